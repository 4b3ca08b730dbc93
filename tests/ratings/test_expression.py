"""Single-cell counts: how they are read, and the preparation against its reference."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse

from halfseen.datasets import load
from halfseen.ratings.autoimpute import normalise_counts, read_expression

X = np.array([[0.0, 2.0, np.nan], [3.0, 0.0, 1.0]])


@pytest.mark.parametrize(
    "given", [X, X.tolist(), scipy.sparse.csc_array(X), SimpleNamespace(X=scipy.sparse.csr_matrix(X))]
)
def test_arrays_sparse_matrices_and_objects_with_x_are_read_alike(given):
    matrix = read_expression(given)
    np.testing.assert_array_equal(matrix.toarray(), [[0, 2, 0], [3, 0, 1]])
    assert matrix.nnz == 3


def test_the_matrix_of_a_user_is_not_changed():
    given = scipy.sparse.csr_array(X)
    read_expression(given)
    np.testing.assert_array_equal(given.toarray(), X)


def test_wrong_expression_is_named():
    with pytest.raises(ValueError, match=r"cell 1 has -1\.0 in gene 2\."):
        read_expression([[0, 1, 2], [3, 0, -1]])
    with pytest.raises(ValueError, match=r"got the shape \(2,\)"):
        read_expression([1, 2])
    with pytest.raises(ValueError, match=r"X has 3 features \(genes\), but the estimator was fitted to 4\."):
        read_expression(X, 4)
    with pytest.raises(ValueError, match="more than 2 counts in more than 3 cells: pass raw counts"):
        normalise_counts(X)
    lonely = np.diag([0.0, 0, 0, 0, 0, 9])
    lonely[:5, 0] = 9
    with pytest.raises(ValueError, match="Cell 5 has no counts of the genes that are kept: leave it out"):
        normalise_counts(lonely)


def test_the_preparation_is_that_of_the_reference(shared_data):
    """The file is AutoImpute's own prepared input; it is stored in single precision."""
    raw, expected = load("scrna_blakeley/blakeley_raw"), load("scrna_blakeley/blakeley_processed")
    expression, genes = normalise_counts(raw["counts"])
    np.testing.assert_array_equal(raw["genes"][genes], expected["genes"])
    np.testing.assert_allclose(expression, expected["expression"], rtol=1e-7)
    assert (expression > 0).sum() == 14_556
    assert expression.max() == pytest.approx(17.15, abs=0.005)
