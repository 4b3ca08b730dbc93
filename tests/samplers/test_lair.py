"""Importance resampling of latents against the linear-Gaussian model, whose conditionals are known."""

import math

import numpy as np
import pytest
import torch
from oracles import linear_gaussian as oracle
from scipy import integrate, stats
from tolerances import EXACT, FAILURE_RATE

from halfseen._random import row_keys
from halfseen.data.incomplete import Incomplete
from halfseen.models.latent.completions import Limits
from halfseen.nn.mask_models import LinearMask
from halfseen.samplers.gibbs import GeneratorNoise, RowNoise
from halfseen.samplers.lair import LairSampler

ROW = np.array([1.2, -0.9, math.nan, math.nan])
SEEN = ~np.isnan(ROW)
MODEL = {"tilt": 0.3, "widen": 1.3}


def many_rows(n_rows, row=ROW):
    x = torch.from_numpy(row).expand(n_rows, -1)
    return Incomplete(x, ~x.isnan())


def elsewhere(n_rows, n_chains):
    return torch.full((n_rows, n_chains, oracle.N_FEATURES), 2.0, dtype=torch.float64)


def draws(sampler, generator, n_rows, n_chains):
    start = elsewhere(n_rows, n_chains)
    return sampler.run(many_rows(n_rows), start, GeneratorNoise(n_rows, generator))[..., ~SEEN].numpy()


def p_values(found):
    """Of the first and second moments of draws (N, K, 2), of which only the rows are independent."""
    mean, covariance = oracle.conditional(ROW, SEEN)
    centred = found - mean
    moments = [centred[..., 0], centred[..., 1], centred[..., 0] * centred[..., 1] - covariance[0, 1]]
    moments += [centred[..., j] ** 2 - covariance[j, j] for j in range(2)]
    return [stats.ttest_1samp(moment.mean(axis=1), 0.0).pvalue for moment in moments]


@pytest.mark.parametrize("n_prior", [0, 1, 3])
def test_the_mean_weight_is_an_unbiased_estimate_of_the_likelihood(n_prior, generator):
    sampler = LairSampler(oracle.linear_gaussian(**MODEL), n_prior=n_prior)
    n_rows = 5000
    start = torch.linspace(-1.0, 2.0, 4, dtype=torch.float64)[:, None].expand(n_rows, 4, 4)
    batch = many_rows(n_rows)
    start = torch.where(batch.observed[:, None], batch.x[:, None], start)
    found = sampler.candidates(batch, start, GeneratorNoise(n_rows, generator), step=0)

    assert found.log_w.shape == (n_rows, 4 + n_prior)
    estimates = found.log_w.exp().mean(dim=1).numpy()
    assert stats.ttest_1samp(estimates, math.exp(oracle.log_prob(ROW, SEEN))).pvalue > FAILURE_RATE


def test_draws_approach_the_conditional_as_chains_grow(generator):
    mean, _ = oracle.conditional(ROW, SEEN)
    bias = {}
    for n_chains in (2, 100):
        sampler = LairSampler(oracle.linear_gaussian(**MODEL), n_steps=3, n_prior=0)
        found = draws(sampler, generator, 20000 // n_chains, n_chains)
        bias[n_chains] = abs(found.mean(axis=(0, 1)) - mean).max()

    assert min(p_values(found)) > FAILURE_RATE
    assert bias[100] < 0.05 < bias[2]


def test_the_final_resampling_makes_up_for_a_single_chain(generator):
    model = oracle.linear_gaussian(**MODEL)
    plain, pooled = (
        draws(LairSampler(model, n_steps=60, n_prior=0, final_resample=final), generator, 4000, 1)
        for final in (False, True)
    )

    assert min(p_values(pooled)) > FAILURE_RATE
    assert min(p_values(plain)) < FAILURE_RATE


def test_a_mask_that_says_something_is_heeded(generator):
    row = np.array([0.4, -0.2, 0.9, math.nan])
    seen, n_rows, n_chains = ~np.isnan(row), 300, 100
    mask_model = LinearMask(4).double()
    with torch.no_grad():
        mask_model.weight.copy_(torch.tensor([[1.0, 1.0, 1.0, -2.0]]).expand(4, 4))
    sampler = LairSampler(oracle.linear_gaussian(**MODEL), n_steps=3, mask_model=mask_model)
    noise = GeneratorNoise(n_rows, generator)
    drawn = sampler.run(many_rows(n_rows, row), elsewhere(n_rows, n_chains), noise)[..., 3].numpy()

    mean, covariance = oracle.conditional(row, seen)
    law = stats.norm(mean[0], math.sqrt(covariance[0, 0]))
    grid = np.linspace(mean[0] - 8.0, mean[0] + 8.0, 4001)
    rows = torch.from_numpy(np.tile(row, (len(grid), 1)))
    rows[:, 3] = torch.from_numpy(grid)
    mask = mask_model.log_prob(rows, torch.from_numpy(seen)).detach().exp().numpy()
    for weight, verdict in ((mask, True), (np.ones_like(mask), False)):
        density = law.pdf(grid) * weight
        expected = integrate.trapezoid(grid * density, grid) / integrate.trapezoid(density, grid)
        assert (stats.ttest_1samp(drawn.mean(axis=1), expected).pvalue > FAILURE_RATE) == verdict


@pytest.mark.parametrize("final_resample", [False, True])
def test_a_row_does_not_depend_on_its_company_and_keeps_what_was_observed(final_resample, generator):
    x = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    observed = torch.rand(6, 4, generator=generator) < 0.5
    batch = Incomplete(torch.where(observed, x, math.nan), observed)
    start = torch.zeros(6, 7, 4, dtype=torch.float64)
    sampler = LairSampler(oracle.linear_gaussian(**MODEL), n_steps=4, final_resample=final_resample)
    keys = row_keys(batch.to_array(), seed=3)
    together = sampler.run(batch, start, RowNoise(keys))
    apart = sampler.run(batch[4:5], start[:1], RowNoise(keys[4:5]))

    torch.testing.assert_close(apart[0], together[4], rtol=EXACT, atol=EXACT)
    where = observed[:, None].expand_as(together)
    assert torch.equal(together[where], x[:, None].expand_as(together)[where])
    assert together.isfinite().all()
    assert (together[~where] != 0.0).all()


def test_cells_stay_within_limits(generator):
    limits = Limits(*torch.tensor([[-0.5], [0.5]], dtype=torch.float64).expand(2, 4))
    sampler = LairSampler(oracle.linear_gaussian(), n_steps=20, limits=limits)
    start = torch.zeros(50, 6, 4, dtype=torch.float64)
    drawn = sampler.run(many_rows(50), start, GeneratorNoise(50, generator))[..., ~SEEN]

    assert (drawn.abs() <= 0.5).all()
    assert len(drawn[..., 0].unique()) > 200


def test_what_does_not_fit_is_refused():
    for settings in ({"n_steps": 0}, {"n_prior": -1}):
        with pytest.raises(ValueError, match="n_steps must be at least 1 and n_prior at least 0, got"):
            LairSampler(oracle.linear_gaussian(), **settings)
