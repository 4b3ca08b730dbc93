"""The energy I-score: equal to its formula where that is easy, and right about who imputes better."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from tolerances import EXACT

from halfseen import GaussianImputer, MeanImputer
from halfseen.evaluation.energy import _losses, energy_i_score, predictors
from halfseen.evaluation.scores import Scale


def holey(seed=0, n_rows=400):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 1)) + 0.4 * rng.normal(size=(n_rows, 3))
    X[rng.random(n_rows) < 0.3, 0] = np.nan
    X[rng.random(n_rows) < 0.2, 1] = np.nan
    return X


def test_a_constant_imputer_scores_its_mean_absolute_error():
    """It fills missing cells with a constant, so it puts the constant into the observed rows too."""
    X = holey()
    scored = energy_i_score(SimpleImputer(strategy="constant", fill_value=0.5), X)
    z = Scale.fit(X).forward(X)
    share = np.isnan(X).mean(axis=0)[:2]
    # In the first pass 0.5 is on the scale of the table; in the second, numbers are standardised once more
    # by their only value, and the filled column is constant: its unit stays, so 0.5 is added to it.
    filled = Scale.fit(X).loc[:2] + 0.5 * Scale.fit(X).scale[:2]
    again = (filled + 0.5 - Scale.fit(X).loc[:2]) / Scale.fit(X).scale[:2]
    expected = [np.nanmean(np.abs(z[:, j] - again[j])) for j in (0, 1)]
    np.testing.assert_allclose([scored.columns[f"x{j}"][0] for j in (0, 1)], expected)
    weights = share * (1 - share)
    np.testing.assert_allclose([scored.columns[f"x{j}"][1] for j in (0, 1)], weights)
    assert scored.value == pytest.approx(weights @ expected / weights.sum())


def test_draws_from_the_right_model_beat_means_and_independence():
    X = holey()
    right = energy_i_score(GaussianImputer(), X).value
    assert right < energy_i_score(IterativeImputer(), X).value
    assert right < energy_i_score(MeanImputer(), X).value


def test_levels_are_scored_by_their_indicators():
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 2, 400)
    frame = pd.DataFrame({"s": np.array(["a", "b"])[kind], "x": 4.0 * kind + rng.normal(size=400)})
    frame.loc[rng.random(400) < 0.3, "s"] = None
    scored = energy_i_score(GaussianImputer(), frame)
    assert scored.value < 0.12  # a coin would have a quarter
    assert 0.2 < energy_i_score(MeanImputer(), frame).value < 0.3
    assert list(scored.columns) == ["s"]


def test_without_a_complete_column_the_one_most_observed_predicts():
    seen = np.ones((6, 3), dtype=bool)
    seen[0, 0] = seen[1, 1] = seen[2, 2] = seen[3, 2] = False
    assert predictors(seen, 0)[0] == [1]
    assert predictors(seen, 0)[1].tolist() == [0, 2, 3, 4, 5]


def test_too_few_cells_give_no_score():
    X = holey()
    X[:, :2] = np.nan_to_num(X[:, :2])
    X[:5, 2] = np.nan
    scored = energy_i_score(GaussianImputer(), X)
    assert np.isnan(scored.value)
    assert np.isnan(scored.columns["x2"][0])


def test_the_loss_of_levels_is_the_energy_score_of_scaled_indicators():
    rng = np.random.default_rng(0)
    column = SimpleNamespace(levels=("a", "b", "c"))
    truth, draws = rng.integers(0, 3, 6).astype(float), rng.integers(0, 3, (5, 6)).astype(float)
    points = np.eye(3)[draws.astype(int)] / np.sqrt(2)  # (S, N, L)
    errors = np.linalg.norm(points - np.eye(3)[truth.astype(int)] / np.sqrt(2), axis=-1).mean(axis=0)
    pairs = np.linalg.norm(points[:, None] - points[None], axis=-1).sum(axis=(0, 1)) / (5 * 4)
    scale = Scale(np.zeros(1), np.ones(1))
    np.testing.assert_allclose(_losses(column, truth, draws, scale, 0), errors - pairs / 2, atol=EXACT)
