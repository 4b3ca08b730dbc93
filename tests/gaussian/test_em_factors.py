"""EM for a covariance of low rank plus a diagonal: the same objective, never downhill, and which rank."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import EXACT

from halfseen.data.incomplete import Incomplete
from halfseen.gaussian.distribution import Gaussian
from halfseen.gaussian.em import EMSettings, Ridge, choose_shrinkage, fit_gaussian, penalised_mean
from halfseen.gaussian.low_rank import fit_low_rank


def make_batch(seed, n_rows=40, n_features=8, rank=2, rate=0.3, noise=0.5):
    """Returns standardised rows with missing cells, and the values of all cells."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_rows, rank)) @ rng.normal(size=(rank, n_features)) / max(1, rank) ** 0.5
    x = x + noise * rng.normal(size=x.shape)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    observed = rng.random(x.shape) >= rate
    full = torch.from_numpy(x)
    return Incomplete(full.masked_fill(torch.from_numpy(~observed), 0.0), torch.from_numpy(observed)), full


def autoregressive(n_rows, n_features, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_rows, n_features))
    for j in range(1, n_features):
        x[:, j] = 0.9 * x[:, j - 1] + np.sqrt(1 - 0.81) * x[:, j]
    return Incomplete.from_array(np.where(rng.random(x.shape) < 0.3, np.nan, x))


def generator():
    return torch.Generator().manual_seed(0)


def penalised(loc, covariance, batch, ridge):
    """The objective of the free fit, in a form that has gradients."""
    total = -0.5 * ridge * (torch.logdet(covariance) + torch.linalg.inv(covariance).trace())
    for x, seen in zip(batch.x, batch.observed, strict=True):
        if seen.any():
            part = torch.distributions.MultivariateNormal(loc[seen], covariance[seen][:, seen])
            total = total + part.log_prob(x[seen])
    return total / len(batch)


@pytest.mark.parametrize("rank", [0, 2])
def test_the_objective_is_that_of_the_free_fit(rank):
    batch, _ = make_batch(0)
    result = fit_low_rank(batch, EMSettings(max_iterations=2), rank, ridge=0.7)
    start = fit_low_rank(batch, EMSettings(max_iterations=1), rank, ridge=0.7).point
    dense = Gaussian(start.loc, start.covariance)
    expected = penalised_mean(dense.log_prob(batch), dense, Ridge(0.7), None)
    assert result.objective[1] == pytest.approx(expected, abs=EXACT)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**16), rate=st.floats(0, 0.9), n_rows=st.integers(2, 40))
def test_the_objective_never_falls(seed, rate, n_rows):
    batch, _ = make_batch(seed, n_rows=n_rows, rate=rate)
    objective = fit_low_rank(batch, EMSettings(max_iterations=100, tolerance=1e-9), 2, ridge=1.0).objective
    assert (np.diff(objective) >= 0).all()


def test_the_result_is_a_maximum_over_loadings_and_noise():
    batch, _ = make_batch(1)
    fit = fit_low_rank(batch, EMSettings(max_iterations=1000, tolerance=1e-13), 2, ridge=5.0).point
    parameters = [value.clone().requires_grad_() for value in (fit.loc, fit.loadings, fit.noise)]
    loc, loadings, noise = parameters
    penalised(loc, loadings @ loadings.T + noise.diag(), batch, 5.0).backward()
    for parameter in parameters:
        assert parameter.grad.abs().max() < 1e-4


def test_the_largest_rank_comes_close_to_the_free_fit():
    """With fewer rows than features, nothing but the noise of the features is restricted."""
    batch = autoregressive(20, 40)
    free = fit_gaussian(batch, EMSettings(ridge=10.0, tolerance=1e-8), generator=generator())
    previous = -np.inf
    for rank in (0, 3, 19):
        low = fit_gaussian(batch, EMSettings(ridge=10.0, tolerance=1e-8, rank=rank), generator=generator())
        assert previous < low.objective[-1] <= free.objective[-1]
        previous = low.objective[-1]
    missing = ~batch.observed
    difference = low.gaussian.conditional_mean(batch) - free.gaussian.conditional_mean(batch)
    assert difference[missing].square().mean().sqrt() < 0.03


def test_a_weight_counts_as_a_row_repeated():
    batch, _ = make_batch(2)
    rows = torch.cat([torch.arange(40), torch.arange(20)])
    weights = torch.ones(40, dtype=torch.float64)
    weights[:20] = 2
    start = fit_low_rank(batch, EMSettings(max_iterations=3), 2, ridge=1.0).point
    step = EMSettings(max_iterations=1)  # from one start, as principal components do not know of weights
    weighted = fit_low_rank(batch, step, 2, ridge=1.0, weights=weights, start=start)
    repeated = fit_low_rank(batch[rows], step, 2, ridge=1.0, start=start)
    assert weighted.objective[0] == pytest.approx(repeated.objective[0], abs=EXACT)
    torch.testing.assert_close(weighted.point.covariance, repeated.point.covariance, rtol=0, atol=EXACT)


def test_a_feature_that_no_row_shows_has_no_correlation():
    batch, _ = make_batch(3)
    batch.observed[:, 0] = False
    fit = fit_low_rank(batch, EMSettings(max_iterations=500, tolerance=1e-9), 2, ridge=1.0).point
    torch.testing.assert_close(fit.covariance[0, 0], torch.ones((), dtype=torch.float64), rtol=0, atol=1e-4)
    assert fit.covariance[0, 1:].abs().max() < 1e-2


@pytest.mark.slow
def test_the_rank_and_the_ridge_follow_the_data():
    low_rank, _ = make_batch(0, n_rows=120, n_features=200, rank=3)
    noise, _ = make_batch(0, n_rows=120, n_features=200, rank=0)
    assert choose_shrinkage(low_rank, EMSettings(), generator=generator()).rank == 3
    assert choose_shrinkage(noise, EMSettings(), generator=generator()).rank == 0
    free = choose_shrinkage(autoregressive(60, 160), EMSettings(), generator=generator())
    assert free.rank is None
    assert free.ridge >= 10


def test_a_table_of_few_rows_counts_as_independent_features_at_once(monkeypatch):
    def refuse(*args, **keywords):
        raise AssertionError("no fit is needed")

    monkeypatch.setattr("halfseen.gaussian.low_rank.fit_low_rank", refuse)
    batch, _ = make_batch(0, n_rows=3, n_features=700)
    assert choose_shrinkage(batch, EMSettings(), generator=generator()).rank == 0


def test_few_features_and_ample_rows_keep_a_free_covariance():
    narrow, _ = make_batch(0, n_rows=30, n_features=20)
    assert choose_shrinkage(narrow, EMSettings(), generator=generator()).rank is None
    tall, _ = make_batch(0, n_rows=3000, n_features=150)
    assert choose_shrinkage(tall, EMSettings(), generator=generator()).rank is None


def test_missing_cells_of_a_wide_table_of_low_rank_are_predicted():
    """Better than with a free covariance and its best ridge."""
    batch, full = make_batch(0, n_rows=80, n_features=250, rank=4)
    missing = ~batch.observed

    def error(settings):
        fit = fit_gaussian(batch, settings, generator=generator()).gaussian
        return (fit.conditional_mean(batch) - full)[missing].square().mean().sqrt()

    chosen = error(choose_shrinkage(batch, EMSettings(), generator=generator()))
    free = min(error(EMSettings(ridge=ridge)) for ridge in (10.0, 30.0, 100.0))
    assert chosen < free
    assert chosen < 0.6
