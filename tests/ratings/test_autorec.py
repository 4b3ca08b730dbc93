"""The autoencoder of sparse rows against a dense one with a mask, in value and in gradient."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tolerances import EXACT

from halfseen.ratings.autorec import SparseAutoencoder
from halfseen.ratings.recommender import PartialRatingError, RatedRows, RatingError, RatingOffsets
from halfseen.ratings.table import SparseRows


@pytest.fixture
def rows():
    matrix = sp.random_array((20, 11), density=0.4, rng=np.random.default_rng(0), format="csr")
    matrix.data = 1 + 4 * matrix.data
    return SparseRows.from_scipy(sp.csr_array(matrix), torch.float64)


def a_model(rows, generator, **options):
    model = SparseAutoencoder(rows.n_columns, 6, **options)
    model.reset_parameters(rows.with_values(rows.values.float()), generator)
    return model.double()


def dense_loss(model, rows, mean_count, alpha, centre, shown=None):
    """The loop that everybody writes: a dense matrix, a mask, and a product with it."""
    x = torch.zeros(len(rows), rows.n_columns, dtype=torch.float64)
    mask, read = torch.zeros_like(x), torch.zeros_like(x)
    x[rows.rows, rows.columns.long()] = rows.values
    mask[rows.rows, rows.columns.long()] = 1.0
    read[rows.rows, rows.columns.long()] = torch.ones_like(rows.values) if shown is None else shown.double()
    inputs = (x - centre) * read
    if mean_count is not None:
        inputs = inputs * (mean_count / read.sum(dim=1, keepdim=True).clamp(min=1)) ** alpha
    hidden = torch.sigmoid(inputs @ model.encoder + model.hidden_bias)
    error = (hidden @ model.decoder.T + model.output_bias - x) * mask
    return error.square().sum(dim=1)


@pytest.mark.parametrize(("mean_count", "alpha"), [(None, 1.0), (4.5, 1.0), (4.5, 0.5)])
@pytest.mark.parametrize("centre", [0.0, 3.0])
def test_loss_and_gradients_are_those_of_the_dense_loop(rows, generator, mean_count, alpha, centre):
    model = a_model(rows, generator, mean_count=mean_count, alpha=alpha, centre=centre).train()
    sparse = RatingError()(model, RatedRows(rows, rows), ())
    dense = dense_loss(model, rows, mean_count, alpha, centre)
    torch.testing.assert_close(sparse, dense, atol=EXACT, rtol=EXACT)
    parameters = list(model.parameters())
    ours, theirs = (torch.autograd.grad(loss.mean(), parameters) for loss in (sparse, dense))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=EXACT, rtol=EXACT)


@pytest.mark.parametrize(("mean_count", "centre"), [(None, 0.0), (4.5, 3.0)])
def test_all_entries_are_predicted_from_a_random_part(rows, generator, mean_count, centre):
    model = a_model(rows, generator, mean_count=mean_count, centre=centre).train()
    objective, batch = PartialRatingError(), RatedRows(rows, rows)
    keys, shares = objective.draw_noise(batch, generator)
    shown = keys < (1 + shares[rows.rows]) / 2
    assert 0 < shown.sum() < len(shown)
    sparse = objective(model, batch, (keys, shares))
    dense = dense_loss(model, rows, mean_count, 1.0, centre, shown)
    torch.testing.assert_close(sparse, dense, atol=EXACT, rtol=EXACT)
    parameters = list(model.parameters())
    ours, theirs = (torch.autograd.grad(loss.mean(), parameters) for loss in (sparse, dense))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=EXACT, rtol=EXACT)
    torch.testing.assert_close(
        objective(model.eval(), batch, (keys, shares)), RatingError()(model, batch, ())
    )


def test_held_out_entries_are_scored_by_their_squared_errors(rows, generator):
    model = a_model(rows, generator).eval()
    held = rows.values > 3
    batch = RatedRows(rows.select(~held), rows.select(held))
    errors = (model(batch.inputs, batch.targets) - batch.targets.values).square().sum()
    torch.testing.assert_close(RatingError()(model, batch, ()).sum(), errors)


def test_batches_of_rows_keep_inputs_and_targets_together(rows):
    batch = RatedRows(rows, rows)[torch.tensor([4, 1])]
    assert batch.targets is batch.inputs
    held = RatedRows(rows, rows.select(rows.values > 3))[2:6]
    assert len(held) == len(held.targets) == 4


def test_a_row_without_entries_is_answered_from_the_biases(generator):
    empty = SparseRows(torch.zeros(2).int(), torch.zeros(0).int(), torch.zeros(0, dtype=torch.float64), 3)
    model = SparseAutoencoder(3, 2, mean_count=2.0).double()
    model.hidden_bias.data += 0.3
    torch.testing.assert_close(model.hidden(empty), torch.sigmoid(model.hidden_bias)[None])


def test_offsets_are_the_solution_of_the_penalised_least_squares(rows):
    offsets = RatingOffsets.fit(rows)
    found = offsets.predict(rows.rows.numpy(), rows.columns.long().numpy())
    error = rows.values.numpy() - found
    gradient = np.bincount(rows.rows.numpy(), error, len(rows)) - 5.0 * offsets.row
    np.testing.assert_allclose(gradient, 0.0, atol=1e-6)
    assert offsets.predict(np.array([-1]), np.array([-1]))[0] == pytest.approx(offsets.mean)
