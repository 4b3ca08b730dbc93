"""The transformer of Sparsity Normalization: one answer for arrays, frames and sparse matrices."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from tolerances import EXACT

import halfseen
from halfseen.sparsity import SparsityNormalizer


@pytest.fixture
def rows():
    """Rows with missing values, an observed zero in each column, and one row without observed values."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 5))
    X[rng.random(X.shape) < 0.4] = np.nan
    X[0], X[1] = np.nan, 0.0
    return X


def as_csr(X):
    """Stores each observed value, zeros too."""
    seen = ~np.isnan(X)
    indptr = np.r_[0, seen.sum(axis=1).cumsum()]
    return sp.csr_matrix((X[seen], seen.nonzero()[1], indptr), shape=X.shape)


def expected(X, mean_count):
    counts = (~np.isnan(X)).sum(axis=1)
    return np.nan_to_num(X) * np.where(counts, mean_count / np.maximum(counts, 1), 0.0)[:, None]


def test_rows_are_divided_by_their_counts_and_multiplied_by_the_mean_count(rows):
    model = SparsityNormalizer().fit(rows)
    counts = (~np.isnan(rows)).sum(axis=1)
    assert model.mean_count_ == pytest.approx(counts[counts > 0].mean())
    assert model.n_empty_rows_ == (counts == 0).sum()
    np.testing.assert_allclose(model.transform(rows), expected(rows, model.mean_count_), atol=EXACT)
    assert (model.transform(rows)[0] == 0).all()


def test_a_sparse_matrix_gives_the_same_as_an_array_and_keeps_its_stored_zeros(rows):
    dense = SparsityNormalizer().fit(rows)
    matrix = as_csr(rows)
    sparse = SparsityNormalizer().fit(matrix)
    assert sparse.mean_count_ == dense.mean_count_
    assert sparse.n_empty_rows_ == dense.n_empty_rows_
    result = sparse.transform(matrix)
    assert result.nnz == matrix.nnz > matrix.count_nonzero()
    np.testing.assert_allclose(result.toarray(), dense.transform(rows), atol=EXACT)
    assert sp.issparse(sparse.transform(sp.csc_array(matrix)))


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "arrow"])
def test_a_frame_comes_back_in_its_library(rows, library):
    frame = library({name: rows[:, j] for j, name in enumerate("abcde")})
    model = SparsityNormalizer().fit(frame)
    result = model.transform(frame)
    assert type(result) is type(frame)
    columns = np.column_stack([np.asarray(result[name]) for name in "abcde"])
    np.testing.assert_allclose(columns, SparsityNormalizer().fit_transform(rows), atol=EXACT)
    assert model.get_feature_names_out().tolist() == list("abcde")


def test_a_pandas_frame_keeps_its_index_and_takes_integers_and_booleans():
    frame = pd.DataFrame({"a": [1, 2], "b": pd.array([True, None], dtype="boolean")}, index=["x", "y"])
    result = SparsityNormalizer().fit_transform(frame)
    assert result.index.tolist() == ["x", "y"]
    np.testing.assert_allclose(result.to_numpy(), [[0.75, 0.75], [3.0, 0.0]])
    assert frame["a"].tolist() == [1, 2]


def test_the_mean_count_of_fit_is_used_for_other_rows(rows):
    model = SparsityNormalizer().fit(rows)
    complete = np.ones((3, 5))
    np.testing.assert_allclose(model.transform(complete), model.mean_count_ / 5 * complete)
    np.testing.assert_array_equal(SparsityNormalizer(mean_count=5).fit(rows).transform(complete), complete)


def test_rows_without_observed_values_are_zero_nan_or_an_error(rows):
    assert np.isnan(SparsityNormalizer(on_empty="nan").fit_transform(rows)[0]).all()
    message = "1 of 40 rows have no observed value, the first is row 0"
    with pytest.raises(ValueError, match=message):
        SparsityNormalizer(on_empty="raise").fit(rows).transform(rows)
    with pytest.raises(ValueError, match="None of the 3 rows has an observed value"):
        SparsityNormalizer().fit(np.full((3, 2), np.nan))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": "half"}, "alpha must be a finite number, got 'half'"),
        ({"shrinkage": -1}, "shrinkage must be finite and at least 0, got -1"),
        ({"mean_count": 0}, "mean_count must be positive and finite, got 0"),
        ({"on_empty": "skip"}, "on_empty must be one of zero, nan, raise, got 'skip'"),
    ],
)
def test_parameters_out_of_range_are_refused(rows, options, message):
    with pytest.raises(ValueError, match=message):
        SparsityNormalizer(**options).fit(rows)


def test_columns_of_text_and_infinity_are_refused_by_name():
    with pytest.raises(ValueError, match=r"Column 'b' .* does not hold numbers. Encode it first"):
        SparsityNormalizer().fit(pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}))
    with pytest.raises(ValueError, match="Column 'a' contains infinity"):
        SparsityNormalizer().fit(pd.DataFrame({"a": [1.0, np.inf]}))


def test_a_saved_transformer_gives_the_same_rows(rows, tmp_path):
    model = SparsityNormalizer(alpha=0.5, shrinkage=2.0).fit(rows)
    model.save(tmp_path / "model")
    loaded = halfseen.load(tmp_path / "model")
    assert loaded.n_empty_rows_ == model.n_empty_rows_
    np.testing.assert_array_equal(loaded.transform(rows), model.transform(rows))


def test_a_network_of_scikit_learn_takes_missing_values_through_a_pipeline(rows):
    network = MLPRegressor(hidden_layer_sizes=(8,), tol=1e6, random_state=0)
    pipeline = make_pipeline(MinMaxScaler(), SparsityNormalizer(), network)
    assert np.isfinite(pipeline.fit(rows, np.arange(40.0)).predict(rows)).all()
