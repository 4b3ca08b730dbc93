"""Sparse rows against dense matrices."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from halfseen.ratings.table import SparseRows


@pytest.fixture
def matrix():
    return sp.csr_array(sp.random_array((9, 6), density=0.4, rng=np.random.default_rng(0), format="csr"))


def dense(rows):
    layout = (rows.values.numpy(), rows.columns.numpy(), rows.starts.numpy())
    return sp.csr_array(layout, shape=(len(rows), rows.n_columns)).toarray()


@pytest.mark.parametrize("chosen", [slice(2, 5), slice(None), slice(None, None, 2), slice(4, 4)])
def test_slices_are_those_of_the_dense_matrix(matrix, chosen):
    rows = SparseRows.from_scipy(matrix, torch.float64)
    np.testing.assert_array_equal(dense(rows[chosen]), matrix.toarray()[chosen])


def test_rows_can_be_chosen_in_any_order_and_repeated(matrix):
    rows = SparseRows.from_scipy(matrix, torch.float64)
    order = torch.tensor([3, 0, 3, 8])
    np.testing.assert_array_equal(dense(rows[order]), matrix.toarray()[order.numpy()])


def test_a_stored_zero_is_an_observed_entry():
    matrix = sp.csr_array((np.zeros(2), np.array([0, 1]), np.array([0, 2, 2])), shape=(2, 3))
    assert SparseRows.from_scipy(matrix).counts.tolist() == [2, 0]


def test_entries_can_be_selected(matrix):
    rows = SparseRows.from_scipy(matrix, torch.float64)
    large = rows.values > 0.5
    expected = np.where(matrix.toarray() > 0.5, matrix.toarray(), 0.0)
    np.testing.assert_array_equal(dense(rows.select(large)), expected)


def test_the_transposition_is_that_of_the_dense_matrix(matrix):
    rows = SparseRows.from_scipy(matrix, torch.float64)
    starts, columns, order = rows.transposition
    np.testing.assert_array_equal(
        dense(SparseRows(starts, columns, rows.values[order], len(rows))), matrix.toarray().T
    )


@pytest.mark.parametrize(
    ("starts", "columns", "message"),
    [
        ([0, 1], [0, 1], "do not describe 2 sparse rows"),
        ([0, 2, 1], [0, 1], "do not follow each other"),
        ([0, 1, 2], [0, 3], "outside its 3 columns"),
        ([0, 1, 2], [0, -1], "outside its 3 columns"),
    ],
)
def test_tensors_that_describe_no_rows_are_refused(starts, columns, message):
    tensors = (torch.tensor(starts).int(), torch.tensor(columns).int(), torch.ones(len(columns)))
    with pytest.raises(ValueError, match=message):
        SparseRows.checked(*tensors, (2, 3))
