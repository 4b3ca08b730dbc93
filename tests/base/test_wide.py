"""Tables with many columns: the imputer answers as on any other table, without a matrix of all columns."""

import numpy as np
import pytest

import halfseen
from halfseen import GaussianImputer
from halfseen.gaussian.low_rank import LowRankGaussian
from halfseen.trees.fitting import _choose_predictors


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3)) @ rng.normal(size=(3, 520)) + 0.5 * rng.normal(size=(40, 520))
    x[rng.random(x.shape) < 0.3] = np.nan
    return x


@pytest.fixture(scope="module")
def imputer(table):
    return GaussianImputer(random_state=0).fit(table)


def test_a_wide_table_gets_a_covariance_of_low_rank(imputer):
    gaussian = imputer.model_.gaussian
    assert isinstance(gaussian, LowRankGaussian)
    assert 1 <= gaussian.loadings.shape[1] <= 6


def test_a_given_ridge_asks_for_a_free_covariance(table):
    imputer = GaussianImputer(ridge=30.0, max_iter=1, random_state=0).fit(table[:, :160])
    assert not isinstance(imputer.model_.gaussian, LowRankGaussian)


def test_a_saved_imputer_gives_the_same_answers(imputer, table, tmp_path):
    path = tmp_path / "wide.halfseen"
    imputer.save(path)
    assert path.stat().st_size < 520**2 * 8 / 2  # no matrix of all columns is stored
    loaded = halfseen.load(path)
    np.testing.assert_allclose(loaded.transform(table), imputer.transform(table), rtol=1e-9)
    np.testing.assert_allclose(loaded.sample(table, 2), imputer.sample(table, 2), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(loaded.score_samples(table), imputer.score_samples(table), rtol=1e-9)
    low, high = imputer.interval(table, level=0.9)
    assert (low[np.isnan(table)] < high[np.isnan(table)]).all()


def test_two_rows_of_many_columns_are_completed(table):
    rows = np.stack([np.nan_to_num(table[0]), table[1]])
    filled = GaussianImputer(random_state=0).fit_transform(np.tile(rows, (1, 6)))
    assert np.isfinite(filled).all()


@pytest.fixture
def no_matrix_of_all_columns(monkeypatch):
    """Fails where the covariance of all pairs of columns is asked for."""

    def refuse(gaussian):
        raise AssertionError("a matrix of all columns was created")

    monkeypatch.setattr(LowRankGaussian, "covariance", property(refuse))


@pytest.fixture(scope="module")
def counts(table):
    return np.where(np.isnan(table), np.nan, np.round(2 * table))


@pytest.mark.parametrize("kind", ["numbers", "counts"])
def test_draws_for_pooling_need_no_matrix_of_all_columns(
    no_matrix_of_all_columns, table, counts, kind, tmp_path
):
    x = table if kind == "numbers" else counts
    imputer = GaussianImputer(n_posterior_draws=2, random_state=0).fit(x)
    drawn = imputer.sample(x, n_draws=2)
    assert np.isfinite(drawn).all()
    assert (drawn[0] != drawn[1]).any()
    assert imputer.trace_.std.shape[1] == x.shape[1]
    imputer.save(tmp_path / "wide")
    loaded = halfseen.load(tmp_path / "wide")
    np.testing.assert_allclose(loaded.sample(x, n_draws=2), drawn, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    "make",
    [
        lambda: halfseen.TreeImputer(n_rounds=0, random_state=0),
        pytest.param(
            lambda: halfseen.MIWAEImputer(max_epochs=1, n_imputation_draws=10, random_state=0),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["trees", "miwae"],
)
def test_models_that_start_from_a_gaussian_need_no_matrix_of_all_columns(
    no_matrix_of_all_columns, table, make
):
    assert np.isfinite(make().fit(table).transform(table[:3])).all()


def test_predictors_of_a_column_are_those_with_the_highest_correlation(no_matrix_of_all_columns, table):
    model = halfseen.TreeImputer(n_rounds=0, random_state=0).fit(table).model_
    gaussian = model.gaussian.gaussian
    covariance = (gaussian.loadings @ gaussian.loadings.T + gaussian.noise.diag()).numpy()
    scale = np.sqrt(np.diag(covariance))
    correlation = np.abs(covariance[3] / scale[3] / scale)
    correlation[3] = 0
    assert set(_choose_predictors(model, 3, 10)) == set(np.argsort(-correlation)[:10])
