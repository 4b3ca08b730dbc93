"""The ordinal cost against an enumeration of rankings, and the network against a dense one."""

from itertools import permutations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tolerances import EXACT

from halfseen.ratings.cfnade import OrdinalAutoregression
from halfseen.ratings.recommender import OrdinalError, RatedRows, choose_shown, ordinal_cost
from halfseen.ratings.table import SparseRows

LEVELS = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    matrix = sp.random_array((15, 7), density=0.5, rng=rng, format="csr")
    matrix.data = LEVELS.numpy()[rng.integers(0, 3, size=matrix.nnz)]
    return SparseRows.from_scipy(sp.csr_array(matrix), torch.float64)


def a_model(rows, generator, **options):
    model = OrdinalAutoregression(rows.n_columns, 5, levels=LEVELS, **options)
    model.reset_parameters(rows, generator)
    return model.double()


def test_the_ordinal_cost_is_that_of_the_rankings_by_enumeration(generator):
    """The probability of a ranking of some levels is a sum over all complete rankings that agree with it."""
    scores = torch.randn(4, generator=generator, dtype=torch.float64)
    strength = scores.exp().numpy()

    def probability(wanted):
        total = 0.0
        for ranking in permutations(range(4)):
            if [level for level in ranking if level in wanted] == wanted:
                rest = [strength[list(ranking[place:])].sum() for place in range(4)]
                total += np.prod(strength[list(ranking)] / rest)
        return total

    for level in range(4):
        down, up = list(range(level, -1, -1)), list(range(level, 4))
        expected = -np.log(probability(down)) - np.log(probability(up))
        found = ordinal_cost(scores[None], torch.tensor([level]))
        np.testing.assert_allclose(found, [expected], rtol=1e-12)


@pytest.mark.parametrize(("mean_count", "alpha"), [(None, 1.0), (4.5, 1.0), (4.5, 0.5)])
def test_loss_and_gradients_are_those_of_a_dense_network(rows, generator, mean_count, alpha):
    model = a_model(rows, generator, mean_count=mean_count, alpha=alpha).train()
    objective, batch = OrdinalError(), RatedRows(rows, rows)
    noise = objective.draw_noise(batch, generator)
    sparse = objective(model, batch, noise)

    is_shown, factor = choose_shown(rows, *noise)
    level = torch.searchsorted(LEVELS, rows.values)
    shown = torch.zeros(15, 7, 3, dtype=torch.float64)
    shown[rows.rows[is_shown], rows.columns[is_shown].long(), level[is_shown]] = 1.0
    count = shown.sum(dim=(1, 2)).clamp(min=1)
    scale = 1.0 if mean_count is None else ((mean_count / count) ** alpha)[:, None]
    hidden = torch.tanh(scale * (shown.flatten(1) @ model.encoder) + model.hidden_bias)
    scores = (hidden @ model.decoder.T + model.output_bias).view(15, 7, 3)
    row, column = rows.rows[~is_shown], rows.columns[~is_shown].long()
    costs = ordinal_cost(scores[row, column], level[~is_shown])
    dense = factor * torch.zeros(15, dtype=torch.float64).index_add(0, row, costs)

    torch.testing.assert_close(sparse, dense, atol=EXACT, rtol=EXACT)
    parameters = list(model.parameters())
    ours, theirs = (torch.autograd.grad(loss.mean(), parameters) for loss in (sparse, dense))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=EXACT, rtol=EXACT)


def test_each_number_of_shown_ratings_and_each_rating_is_equally_likely(generator):
    """With 3,000 rows of 4 ratings, a share is within 0.03 of its mean but in one of a thousand runs."""
    n_rows = 3000
    starts = torch.arange(0, 4 * n_rows + 1, 4, dtype=torch.int32)
    values = torch.ones(4 * n_rows)
    rows = SparseRows(starts, torch.arange(4, dtype=torch.int32).repeat(n_rows), values, 4)
    is_shown, factor = choose_shown(rows, *OrdinalError().draw_noise(RatedRows(rows, rows), generator))
    counts = is_shown.view(n_rows, 4).sum(dim=1)
    np.testing.assert_allclose(torch.bincount(counts) / n_rows, [0.25] * 4, atol=0.03)
    np.testing.assert_allclose(is_shown.view(n_rows, 4).double().mean(dim=0), [0.375] * 4, atol=0.03)
    np.testing.assert_allclose(factor, 4 / (4 - counts))


def test_levels_start_at_their_frequencies_and_an_empty_row_is_answered_from_biases(rows, generator):
    model = a_model(rows, generator, mean_count=3.0)
    assert model.level(torch.tensor([1.0, 2.0, 4.0])).tolist() == [0, 1, 2]
    empty = SparseRows(torch.zeros(2).int(), torch.zeros(0).int(), torch.zeros(0, dtype=torch.float64), 7)
    model.hidden_bias.data += 0.3
    torch.testing.assert_close(model.hidden(empty), torch.tanh(model.hidden_bias)[None])
    probabilities = torch.softmax(model.output_bias.view(7, 3), dim=1)
    level = torch.searchsorted(LEVELS, rows.values)
    counts = torch.zeros(7, 3, dtype=torch.float64)
    counts.index_put_((rows.columns.long(), level), torch.ones_like(rows.values), accumulate=True)
    usual = (counts.sum(dim=0) + 1) / (counts.sum() + 3)
    expected = (counts + 5 * usual) / (counts.sum(dim=1, keepdim=True) + 5)
    torch.testing.assert_close(probabilities, expected, atol=1e-6, rtol=1e-5)


def test_held_out_ratings_are_scored_by_their_squared_errors(rows, generator):
    model = a_model(rows, generator).eval()
    held = rows.values > 3
    batch = RatedRows(rows.select(~held), rows.select(held))
    errors = (model(batch.inputs, batch.targets) - batch.targets.values).square().sum()
    noise = OrdinalError().draw_noise(batch, generator)
    torch.testing.assert_close(OrdinalError()(model, batch, noise).sum(), errors)
