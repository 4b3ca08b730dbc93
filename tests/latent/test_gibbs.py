"""Chains over missing cells against the linear-Gaussian model, whose conditionals are known."""

import math

import numpy as np
import pytest
import torch
from oracles import linear_gaussian as oracle
from scipy import integrate, stats
from tolerances import EXACT, FAILURE_RATE

from halfseen._random import row_keys
from halfseen.data.incomplete import Incomplete
from halfseen.latent.completions import Limits
from halfseen.latent.gibbs import GibbsSampler, log_mask, uniforms_of_rows
from halfseen.latent.mask_models import Ignorable, LinearMask
from halfseen.latent.self_masking import LinearSelfMask

N_CHAINS = 4000
ROW = np.array([1.2, -0.9, math.nan, math.nan])
SEEN = ~np.isnan(ROW)


def uniforms_from(n_rows, generator):
    """Noise from a generator, for rows that always come together."""

    def uniforms(step, purpose, n_chains, n_values):
        return torch.rand(n_rows, n_chains, n_values, generator=generator, dtype=torch.float64)

    return uniforms


def one_row(n_rows=1):
    x = torch.from_numpy(ROW).expand(n_rows, -1)
    return Incomplete(x, ~x.isnan())


def far_away(n_chains=N_CHAINS):
    return torch.full((1, n_chains, oracle.N_FEATURES), 6.0, dtype=torch.float64)


def exact_start(generator):
    """Draws of latents and missing cells together, given the observed ones: (x, z)."""
    mean, covariance = oracle.latent_conditional(ROW, SEEN)
    z = (
        mean
        + torch.randn(N_CHAINS, 2, generator=generator).double().numpy() @ np.linalg.cholesky(covariance).T
    )
    noise = torch.randn(N_CHAINS, 4, generator=generator).double().numpy()
    x = z @ oracle.WEIGHT.T + oracle.BIAS + oracle.STD * noise
    return torch.from_numpy(x).unsqueeze(0), torch.from_numpy(z).unsqueeze(0)


def p_values(x):
    """How surprising the draws (K, D) of missing cells are: each, their sum and their difference."""
    mean, covariance = oracle.conditional(ROW, SEEN)
    missing = x[:, ~SEEN]
    result = []
    for direction in np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0]]):
        law = stats.norm(direction @ mean, math.sqrt(direction @ covariance @ direction))
        result.append(stats.kstest(missing @ direction, law.cdf).pvalue)
    return result


def run(sampler, generator, start, z=None):
    noise = uniforms_from(1, generator)
    return sampler.run(one_row(), start, noise, z)[0].numpy()


def test_pseudo_gibbs_is_exact_with_the_exact_posterior(generator):
    sampler = GibbsSampler(oracle.linear_gaussian(), "pseudo-gibbs", n_steps=40)

    assert min(p_values(run(sampler, generator, far_away()))) > FAILURE_RATE


def test_pseudo_gibbs_is_wrong_with_another_posterior(generator):
    sampler = GibbsSampler(oracle.linear_gaussian(tilt=0.3, widen=1.3), "pseudo-gibbs", n_steps=40)

    assert min(p_values(run(sampler, generator, far_away()))) < FAILURE_RATE


def test_metropolis_leaves_exact_draws_exact_whatever_the_posterior(generator):
    sampler = GibbsSampler(oracle.linear_gaussian(tilt=0.3, widen=1.3), "mwg", n_steps=10, n_warm_up=0)

    assert min(p_values(run(sampler, generator, *exact_start(generator)))) > FAILURE_RATE


@pytest.mark.parametrize(("kernel", "n_steps"), [("mwg", 100), ("ac-mwg", 100)])
def test_metropolis_converges_from_elsewhere(kernel, n_steps, generator):
    sampler = GibbsSampler(oracle.linear_gaussian(tilt=0.3, widen=1.3), kernel, n_steps, n_warm_up=2)

    assert min(p_values(run(sampler, generator, far_away()))) > FAILURE_RATE


def test_the_collapsed_chain_leaves_a_place_that_plain_metropolis_cannot(generator):
    """A posterior that trusts its completion too much: chains of the plain kernel stay near their start."""
    model = oracle.linear_gaussian(widen=0.3)
    stuck, freed = (
        GibbsSampler(model, kernel, n_steps=30, n_warm_up=0, prior_share=0.3) for kernel in ("mwg", "ac-mwg")
    )
    mean, _ = oracle.conditional(ROW, SEEN)
    error = [
        abs(run(sampler, generator, far_away(500))[:, ~SEEN].mean(axis=0) - mean).max()
        for sampler in (stuck, freed)
    ]

    assert error[1] < 0.3 < error[0]


def test_past_completions_propose_only_once_their_latent_is_gone(generator):
    """With a rejected first step the only past is the start, whatever was drawn since."""
    model = oracle.linear_gaussian()
    seen_by_encoder = []
    model.encoder.register_forward_hook(lambda _, inputs, __: seen_by_encoder.append(inputs[0].clone()))
    z = torch.from_numpy(oracle.latent_conditional(ROW, SEEN)[0]).view(1, 1, -1)
    start = torch.full((1, 1, 4), 40.0, dtype=torch.float64)  # proposals from here are hopeless
    sampler = GibbsSampler(model, "ac-mwg", n_steps=20, n_warm_up=0, prior_share=0.0)
    states = list(sampler.states(one_row(), start, uniforms_from(1, generator), z))

    assert all(torch.equal(state.z, z) for state in states)
    assert len({state.x[0, 0, 2].item() for state in states}) == 21
    assert all((inputs[0, 0, 2] == 40.0).item() for inputs in seen_by_encoder)


@pytest.mark.parametrize("kind", ["self-masking", "linear"])
def test_an_informative_mask_is_taken_into_account(kind, generator):
    """One missing cell: given the mask, its density is the Gaussian times the probability to be missing."""
    row = np.array([0.4, -0.2, 0.9, math.nan])
    seen = ~np.isnan(row)
    mask_model = {"self-masking": LinearSelfMask, "linear": LinearMask}[kind](4).double()
    with torch.no_grad():
        mask_model.bias.copy_(torch.tensor([3.0, 3.0, 3.0, 1.0]))
        if kind == "linear":
            mask_model.weight.copy_(torch.tensor([1.0, 1.0, 1.0, -2.0]).expand(4, 4))
        else:
            mask_model.raw_slope.fill_(2.0)
    batch = Incomplete(torch.from_numpy(row).unsqueeze(0), torch.from_numpy(seen).unsqueeze(0))
    sampler = GibbsSampler(
        oracle.linear_gaussian(tilt=0.2, widen=1.2), "mwg", n_steps=60, mask_model=mask_model
    )
    start = torch.full((1, N_CHAINS, 4), 0.0, dtype=torch.float64)
    drawn = sampler.run(batch, start, uniforms_from(1, generator))[0, :, 3].numpy()

    mean, covariance = oracle.conditional(row, seen)
    grid = np.linspace(mean[0] - 8.0, mean[0] + 8.0, 4001)
    rows = torch.from_numpy(np.tile(row, (len(grid), 1)))
    rows[:, 3] = torch.from_numpy(grid)
    mask = mask_model.log_prob(rows, torch.from_numpy(seen)).detach().exp().numpy()
    law = stats.norm(mean[0], math.sqrt(covariance[0, 0]))
    for weight, verdict in ((mask, True), (np.ones_like(mask), False)):
        cdf = integrate.cumulative_trapezoid(law.pdf(grid) * weight, grid, initial=0.0)
        p_value = stats.kstest(drawn, lambda v, cdf=cdf: np.interp(v, grid, cdf / cdf[-1])).pvalue
        assert (p_value > FAILURE_RATE) == verdict


def test_columns_that_hide_themselves_sum_to_the_probability_of_the_mask(generator):
    mask_model = LinearSelfMask(4).double()
    x = torch.randn(5, 3, 4, generator=generator, dtype=torch.float64)
    seen = torch.rand(5, 1, 4, generator=generator) < 0.5

    by_column = log_mask(mask_model, x, seen)
    assert by_column.shape == (5, 3, 4)
    torch.testing.assert_close(by_column.sum(dim=-1), mask_model.log_prob(x, seen), rtol=EXACT, atol=EXACT)


def test_observed_cells_come_back_and_missing_ones_are_never_read(generator):
    batch = one_row(3)
    start = far_away(5).expand(3, -1, -1)
    for kernel in ("pseudo-gibbs", "mwg", "ac-mwg"):
        sampler = GibbsSampler(oracle.linear_gaussian(tilt=0.1), kernel, n_steps=3)
        drawn = sampler.run(batch, start, uniforms_from(3, generator))

        assert torch.equal(drawn[..., SEEN], batch.x[:, None, SEEN].expand(-1, 5, -1))
        assert drawn.isfinite().all()
        assert (drawn[..., ~SEEN] != 6.0).all()


@pytest.mark.parametrize("kernel", ["pseudo-gibbs", "mwg"])
def test_noise_that_belongs_to_rows_is_as_good_as_a_generators(kernel):
    batch = one_row(N_CHAINS)
    noise = uniforms_of_rows(row_keys(batch.to_array(), seed=0))
    sampler = GibbsSampler(oracle.linear_gaussian(), kernel, n_steps=20)
    drawn = sampler.run(batch, far_away(1).expand(N_CHAINS, -1, -1), noise)[:, 0].numpy()

    assert min(p_values(drawn)) > FAILURE_RATE
    uniforms = [noise(step, purpose, 1, 4) for step in range(3) for purpose in range(6)]
    everything = torch.stack(uniforms).flatten()
    assert len(everything.unique()) == len(everything)  # none is used for two purposes


@pytest.mark.parametrize("kernel", ["pseudo-gibbs", "mwg", "ac-mwg"])
def test_the_chains_of_a_row_do_not_depend_on_other_rows(kernel, generator):
    x = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    batch = Incomplete(x, torch.rand(6, 4, generator=generator) < 0.5)
    start = torch.zeros(6, 7, 4, dtype=torch.float64)
    sampler = GibbsSampler(oracle.linear_gaussian(tilt=0.1), kernel, n_steps=5)
    keys = row_keys(batch.to_array(), seed=3)
    together = sampler.run(batch, start, uniforms_of_rows(keys))
    apart = sampler.run(batch[4:5], start[:1], uniforms_of_rows(keys[4:5]))

    torch.testing.assert_close(apart[0], together[4], rtol=EXACT, atol=EXACT)
    assert not torch.equal(together[4, 0], together[4, 1])


def test_cells_stay_within_limits(generator):
    limits = Limits(torch.full((4,), -0.5, dtype=torch.float64), torch.full((4,), 0.5, dtype=torch.float64))
    sampler = GibbsSampler(oracle.linear_gaussian(), "mwg", n_steps=20, limits=limits)
    drawn = run(sampler, generator, torch.zeros(1, 300, 4, dtype=torch.float64))[:, ~SEEN]

    assert (abs(drawn) <= 0.5).all()
    assert len(np.unique(drawn[:, 0])) > 200


def test_what_does_not_fit_is_refused():
    model = oracle.linear_gaussian()
    for settings, message in (
        ({"kernel": "gibbs"}, "kernel must be .* got 'gibbs'"),
        ({"n_steps": -1}, "must not be negative, got -1 and 10"),
        ({"prior_share": 1.5}, "prior_share must be from 0 to 1, got 1.5"),
        ({"kernel": "ac-mwg", "mask_model": LinearSelfMask(4)}, "cannot have a mask model"),
    ):
        with pytest.raises(ValueError, match=message):
            GibbsSampler(model, **settings)
    assert GibbsSampler(model, "ac-mwg", mask_model=Ignorable(4)).kernel == "ac-mwg"
