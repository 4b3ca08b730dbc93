"""Draws of Gaussian parameters: known for complete data, with more spread for missing values."""

import numpy as np
import pytest
import torch
from scipy.stats import chi2, kstest
from scipy.stats import t as student_t
from tolerances import FAILURE_RATE

from halfseen.data.incomplete import Incomplete
from halfseen.gaussian import data_augmentation
from halfseen.gaussian.data_augmentation import sample_posterior
from halfseen.gaussian.em import EMSettings, fit_gaussian
from halfseen.gaussian.low_rank import LowRankGaussian, fit_low_rank
from halfseen.training.progress import AscentSettings


def draw(batch, n_draws, ridge=0.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    start = fit_gaussian(batch, EMSettings(ridge=ridge), generator=generator).gaussian
    return sample_posterior([batch] * n_draws, start, ridge=ridge, generator=generator)


@pytest.mark.slow
def test_on_complete_data_parameters_have_their_textbook_posterior(monkeypatch):
    """With Jeffreys' prior the precision given the others is chi-square and the mean is Student."""
    monkeypatch.setattr(data_augmentation, "STEPS_BETWEEN", 1)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(30, 3)) @ rng.normal(size=(3, 3))
    n, d = x.shape
    drawn = draw(Incomplete.from_array(x), n_draws=3000)
    scatter = np.cov(x.T) * (n - 1)
    precision = np.stack([np.linalg.inv(g.covariance.numpy()) for g in drawn])
    # The precision is Wishart(scatter^-1, n - 1), so each diagonal entry is chi-square up to its scale.
    ratio = precision[:, 0, 0] * (1 / np.linalg.inv(scatter)[0, 0])
    assert kstest(ratio, chi2(n - 1).cdf).pvalue > FAILURE_RATE
    scaled = np.stack([g.loc.numpy()[1] for g in drawn]) - x[:, 1].mean()
    freedom = n - 1 - d + 1
    scaled /= np.sqrt(scatter[1, 1] / (n * freedom))
    assert kstest(scaled, student_t(freedom).cdf).pvalue > FAILURE_RATE


def test_missing_values_widen_the_posterior():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(100, 2))
    holey = x.copy()
    holey[rng.random(100) < 0.7, 0] = np.nan
    spread = [np.std([g.loc[0] for g in draw(Incomplete.from_array(a), 200)]) for a in (x, holey)]
    assert spread[1] > 1.4 * spread[0]  # about sqrt(1 / 0.3) = 1.8 in expectation


def test_fewer_rows_than_features_still_gives_proper_draws():
    x = np.random.default_rng(3).normal(size=(5, 12))
    for gaussian in draw(Incomplete.from_array(x), 3, ridge=1.0):
        assert torch.linalg.eigvalsh(gaussian.covariance).min() > 0


def test_no_draws_cost_nothing():
    assert draw(Incomplete.from_array(np.eye(3)), 0, ridge=1.0) == []


def test_draws_do_not_depend_on_how_many_rows_are_processed_at_once(monkeypatch):
    """The moments of parts are merged to those of all rows; one of the parts has a single row."""
    x = np.random.default_rng(5).multivariate_normal([1e3, -5], [[1, 0.7], [0.7, 1]], size=65)
    x[:30, 0] = np.nan
    batch = Incomplete.from_array(x)
    at_once = draw(batch, 3)
    monkeypatch.setattr(data_augmentation, "rows_in_piece", lambda n_columns, n_numbers: 16)
    for one, other in zip(at_once, draw(batch, 3), strict=True):
        np.testing.assert_allclose(one.loc, other.loc, rtol=1e-9)
        np.testing.assert_allclose(one.covariance, other.covariance, rtol=1e-8)


def draw_low_rank(batch, rank, n_draws, ridge):
    ones = torch.ones(batch.n_features, dtype=torch.float64)
    loadings = 0.5 * torch.eye(batch.n_features, rank, dtype=torch.float64)
    start, generator = LowRankGaussian(0 * ones, loadings, ones), torch.Generator().manual_seed(0)
    return sample_posterior([batch] * n_draws, start, ridge=ridge, generator=generator)


def test_without_factors_each_feature_has_its_textbook_posterior(monkeypatch):
    monkeypatch.setattr(data_augmentation, "STEPS_BETWEEN", 1)
    x = np.random.default_rng(1).normal(size=(12, 2))
    drawn = draw_low_rank(Incomplete.from_array(x), 0, n_draws=1000, ridge=0.0)
    freedom, scatter = len(x) - 1, len(x) * x[:, 0].var()
    noise = np.array([one.noise[0] for one in drawn])
    assert kstest(scatter / noise, chi2(freedom).cdf).pvalue > FAILURE_RATE
    means = np.array([one.loc[0] for one in drawn]) - x[:, 0].mean()
    means /= np.sqrt(scatter / (len(x) * freedom))
    assert kstest(means, student_t(freedom).cdf).pvalue > FAILURE_RATE


def test_draws_of_low_rank_vary_about_the_sample_as_much_as_its_size_allows(monkeypatch):
    monkeypatch.setattr(data_augmentation, "STEPS_BETWEEN", 3)
    rng, n = np.random.default_rng(2), 400
    x = rng.normal(size=(n, 2)) @ rng.normal(size=(2, 6)) + 0.7 * rng.normal(size=(n, 6))
    x /= x.std(axis=0)
    batch = Incomplete.from_array(x)
    drawn = draw_low_rank(batch, 2, n_draws=400, ridge=1.0)
    means = np.stack([one.loc.numpy() for one in drawn])
    np.testing.assert_allclose(means.mean(axis=0), x.mean(axis=0), atol=0.03)
    np.testing.assert_allclose(means.std(axis=0) * np.sqrt(n), 1.0, atol=0.25)  # draws are dependent
    covariance = np.mean([one.covariance.numpy() for one in drawn], axis=0)
    fitted = fit_low_rank(batch, AscentSettings(), rank=2, ridge=1.0).point.covariance
    np.testing.assert_allclose(covariance, fitted, atol=0.05)
    assert all(isinstance(one, LowRankGaussian) for one in drawn)


def test_missing_cells_of_a_low_rank_table_widen_the_draws(monkeypatch):
    monkeypatch.setattr(data_augmentation, "STEPS_BETWEEN", 2)
    rng, n = np.random.default_rng(3), 200
    x = rng.normal(size=(n, 1)) @ np.ones((1, 4)) + rng.normal(size=(n, 4))
    holes = x.copy()
    holes[: n // 2, 0] = np.nan
    spread = [
        np.std([one.loc[0] for one in draw_low_rank(Incomplete.from_array(table), 1, 400, 1.0)])
        for table in (x, holes)
    ]
    assert 1.1 < spread[1] / spread[0] < 1.7
