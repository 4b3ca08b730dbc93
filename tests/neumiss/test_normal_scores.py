"""Normal scores against scipy's ranks, and at the ends and ties of a column."""

import numpy as np
import pytest
import torch
from scipy import stats
from tolerances import EXACT

from halfseen.neumiss.model import N_KNOTS, SMALLEST_SHARE, NormalScores

END = stats.norm.ppf(1 - SMALLEST_SHARE)


def column(values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


def expected(values):
    """Scores of the middle ranks of training values."""
    share = (stats.rankdata(values) - 1) / (len(values) - 1)
    return stats.norm.ppf(share.clip(SMALLEST_SHARE, 1 - SMALLEST_SHARE))


@pytest.mark.parametrize("decimals", [5, 0], ids=["distinct", "ties"])
def test_training_values_have_the_score_of_their_rank(decimals):
    values = np.random.default_rng(0).normal(size=N_KNOTS).round(decimals)
    scores = NormalScores.fit(column(values))(column(values))
    np.testing.assert_allclose(scores[:, 0], expected(values), rtol=EXACT, atol=EXACT)


def test_scores_are_linear_in_rank_between_values():
    scores = NormalScores.fit(column([1.0, 2.0, 6.0]))(column([1.5, 4.0]))
    np.testing.assert_allclose(scores[:, 0], stats.norm.ppf([0.25, 0.75]), rtol=EXACT)


def test_scores_do_not_change_under_a_rising_function_of_the_column():
    values = np.random.default_rng(0).normal(size=150)
    one = NormalScores.fit(column(values))(column(values))
    other = NormalScores.fit(column(np.exp(3 * values)))(column(np.exp(3 * values)))
    torch.testing.assert_close(one, other, rtol=EXACT, atol=EXACT)


def test_values_beyond_all_others_stay_at_the_ends():
    scores = NormalScores.fit(column(np.arange(50.0)))(column([-1e300, -1.0, 0.0, 49.0, 1e300]))
    np.testing.assert_allclose(scores[:, 0], [-END, -END, -END, END, END], rtol=EXACT)


def test_many_rows_keep_few_knots_and_close_scores():
    values = np.random.default_rng(0).normal(size=20_000)
    scores = NormalScores.fit(column(values))
    assert scores.knots.shape == (N_KNOTS, 1)
    found = scores(column(values))[:, 0].numpy()
    inside = np.abs(values) < 2
    assert np.abs(found - values)[inside].max() < 0.05


def test_columns_are_scored_each_by_itself():
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(30, 3)))
    together = NormalScores.fit(x)(x)
    for d in range(3):
        torch.testing.assert_close(together[:, [d]], NormalScores.fit(x[:, [d]])(x[:, [d]]), rtol=0, atol=0)


@pytest.mark.parametrize("shape", [(0, 2), (3, 0), (1, 2)], ids=str)
def test_odd_shapes_do_no_harm(shape):
    scores = NormalScores.fit(torch.ones(max(1, shape[0]), shape[1]))(torch.ones(shape))
    assert scores.shape == shape
    assert scores.isfinite().all()
