"""Tables with many columns: the imputer answers as on any other table, without a matrix of all columns."""

import numpy as np
import pytest

import halfseen
from halfseen import GaussianImputer
from halfseen.distributions.low_rank import LowRankGaussian


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
