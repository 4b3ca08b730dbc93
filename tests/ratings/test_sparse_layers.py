"""Products with sparse rows, and their gradients, against dense autograd."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tolerances import EXACT

from halfseen.ratings.network import sampled_product, sparse_linear
from halfseen.ratings.table import SparseRows


@pytest.fixture(params=[0.1, 0.6], ids=["few entries", "many entries"])
def rows(request):
    random = np.random.default_rng(1)
    matrix = sp.random_array((40, 12), density=request.param, rng=random, format="csr")
    return SparseRows.from_scipy(sp.csr_array(matrix), torch.float64)


def to_dense(rows):
    dense = torch.zeros(len(rows), rows.n_columns, dtype=torch.float64)
    dense[rows.rows, rows.columns.long()] = rows.values
    return dense


def weights(n_rows, generator, n_columns=70):
    return torch.randn(n_rows, n_columns, generator=generator, dtype=torch.float64, requires_grad=True)


def assert_gradients(found, expected, parameters, generator):
    torch.testing.assert_close(found, expected, atol=EXACT, rtol=EXACT)
    seed = torch.randn(found.shape, generator=generator, dtype=torch.float64)
    for one, other in zip(
        torch.autograd.grad(found, parameters, seed),
        torch.autograd.grad(expected, parameters, seed),
        strict=True,
    ):
        torch.testing.assert_close(one, other, atol=EXACT, rtol=EXACT)


def test_the_product_with_weights_is_the_dense_one(rows, generator):
    weight = weights(12, generator)
    assert_gradients(sparse_linear(rows, weight), to_dense(rows) @ weight, [weight], generator)
    shifted = rows.with_values(rows.values - 0.5)
    found = sparse_linear(rows, weight, shifted.values)
    assert_gradients(found, to_dense(shifted) @ weight, [weight], generator)


def test_the_sampled_product_is_the_dense_one_where_entries_are_observed(rows, generator):
    left, right = weights(40, generator), weights(12, generator)
    dense = (left @ right.T)[rows.rows, rows.columns.long()]
    assert_gradients(sampled_product(rows, left, right), dense, [left, right], generator)
