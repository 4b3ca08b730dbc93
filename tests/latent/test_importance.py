"""Importance sampling of missing cells against exact conditionals of linear-Gaussian models."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from tolerances import EXACT, FAILURE_RATE

from halfseen._random import row_keys
from halfseen.data.incomplete import Incomplete
from halfseen.distributions.observation_model import ObservationModel
from halfseen.distributions.quantiles import weighted_quantiles
from halfseen.gaussian.distribution import Gaussian
from halfseen.latent import importance, proposals
from halfseen.latent.gibbs import ChainedSampler
from halfseen.latent.importance import ImportanceSampler
from halfseen.latent.mask_models import LinearMask
from halfseen.latent.model import LatentModel, Preimputed, PreimputedFill
from halfseen.latent.proposals import DF, SHARES, LatentPoints, StudentT, WeightedDrawSource, at_mode
from halfseen.latent.self_masking import LinearSelfMask
from halfseen.latent.training import Factors, start_from_factors
from halfseen.latent.weights import effective_sample_size
from halfseen.nn.residual import ResidualMLP

SLOPE, BIAS = 2.0, 0.5


def linear_gaussian(n_features=2, n_latent=1, n_components=1, mask_model=None, **options):
    """A linear-Gaussian model whose posterior has the exact mean, and the Gaussian of its rows."""
    generator = torch.Generator().manual_seed(5)
    loadings = 0.5 + torch.rand(n_features, n_latent, generator=generator, dtype=torch.float64)
    loc = torch.linspace(-0.5, 0.5, n_features, dtype=torch.float64)
    factors = Factors(loc, loadings, torch.full((n_features,), 0.3, dtype=torch.float64))
    gaussian = Gaussian(loc, loadings @ loadings.T + 0.3 * torch.eye(n_features, dtype=torch.float64))
    observation = ObservationModel.for_pixels(n_features, "shared-gaussian")
    encoder = ResidualMLP(
        2 * n_features, LatentModel.n_outputs(n_latent, n_components), width=4, n_blocks=0, linear_skip=True
    )
    decoder = ResidualMLP(n_latent, n_features, width=0, n_blocks=0)
    model = LatentModel(
        encoder,
        decoder,
        observation,
        n_latent,
        n_components,
        mask_model=mask_model,
        fill=PreimputedFill(),
        **options,
    ).double()
    every = torch.rand(200, n_features, generator=generator) < 0.5
    start_from_factors(model, factors, every, generator)
    with torch.no_grad():
        decoder.set_linear(loadings, loc)  # exactly, where the start is damped
        observation.leaves[0].log_std.fill_(math.log(math.sqrt(0.3) - observation.leaves[0].std_floor))
        size = n_components * n_latent
        encoder.output.bias[size : 2 * size] += 0.3  # wider than the posterior: weights are bounded
    return model, gaussian


def self_mask(n_features=2):
    mask = LinearSelfMask(n_features).double()
    with torch.no_grad():
        mask.raw_slope.fill_(SLOPE)
        mask.bias.fill_(BIAS)
    return mask


def rows(gaussian, x, observed):
    return Preimputed.by(gaussian, Incomplete(torch.tensor(x, dtype=torch.float64), torch.tensor(observed)))


def some_rows(gaussian, n_rows=12, seed=0):
    generator = torch.Generator().manual_seed(seed)
    n_features = len(gaussian.loc)
    x = torch.randn(n_rows, n_features, generator=generator, dtype=torch.float64)
    return Preimputed.by(gaussian, Incomplete(x, torch.rand(n_rows, n_features, generator=generator) < 0.5))


# ------------------------------------------------------------------------------------ missing at random


@pytest.mark.parametrize("n_components", [1, 3])
def test_the_mean_and_the_bound_are_those_of_the_gaussian(n_components):
    model, gaussian = linear_gaussian(4, 2, n_components)
    batch = some_rows(gaussian)
    sampler = ImportanceSampler(model, 8192)
    torch.testing.assert_close(sampler.mean(batch), gaussian.conditional_mean(batch), rtol=0, atol=0.02)
    torch.testing.assert_close(sampler.log_prob(batch), gaussian.log_prob(batch), rtol=0, atol=0.02)


def test_quantiles_are_those_of_the_gaussian():
    model, gaussian = linear_gaussian(4, 2)
    batch = some_rows(gaussian)
    levels = [0.05, 0.5, 0.9]
    actual = ImportanceSampler(model, 4096).quantiles(batch, levels)
    mean, spread = gaussian.conditional_mean(batch), gaussian.conditional_variance(batch).sqrt()
    for level, found in zip(levels, actual, strict=True):
        expected = mean + stats.norm.ppf(level) * spread
        hidden = ~batch.observed
        torch.testing.assert_close(found[hidden], expected[hidden], rtol=0, atol=0.04)


@pytest.mark.parametrize("mask", ["ignorable", "integrated"])
def test_draws_have_the_mean_and_the_quantiles_that_are_reported(mask):
    model, gaussian = linear_gaussian(mask_model=None if mask == "ignorable" else self_mask())
    one = rows(gaussian, [[0.0, 0.7]], [[False, True]])
    many = one[torch.zeros(3000, dtype=torch.long)]
    sampler = ImportanceSampler(model, 50)  # few: what is reported is that of the same draws
    keys = row_keys(many.to_array(), seed=3)
    drawn = sampler.draws(many, keys, 1)[0, :, 0].numpy()
    assert stats.ttest_1samp(drawn, float(sampler.mean(one)[0, 0])).pvalue > FAILURE_RATE
    for level in (0.1, 0.5, 0.9):
        end = float(sampler.quantiles(one, [level])[0, 0, 0])
        assert stats.binomtest(int((drawn < end).sum()), len(drawn), level).pvalue > FAILURE_RATE


@pytest.mark.parametrize("mask", ["ignorable", "integrated", "sample"])
def test_mean_and_quantiles_together_are_those_of_each_and_latents_are_decoded_once(mask):
    options = {} if mask == "ignorable" else {"mask_model": self_mask(), "mask_term": mask}
    model, gaussian = linear_gaussian(**options)
    batch, sampler, levels = some_rows(gaussian), ImportanceSampler(model, 256), [0.1, 0.5, 0.9]
    decoded = []
    model.decoder.register_forward_hook(lambda module, inputs, output: decoded.append(output.numel()))
    quantiles = sampler.quantiles(batch, levels)
    once = sum(decoded)
    decoded.clear()
    found = sampler.mean_and_quantiles(batch, levels)
    assert sum(decoded) == once
    torch.testing.assert_close(found[0], sampler.mean(batch), rtol=EXACT, atol=EXACT)
    assert torch.equal(found[1], quantiles)


def test_cells_of_a_row_are_drawn_jointly():
    model, gaussian = linear_gaussian(3, 1)
    nothing = rows(gaussian, [[0.0] * 3], [[False] * 3])
    many = nothing[torch.zeros(4000, dtype=torch.long)]
    drawn = ImportanceSampler(model, 512).draws(many, row_keys(many.to_array(), seed=1), 1)[0]
    torch.testing.assert_close(drawn.T.cov(), gaussian.covariance, rtol=0, atol=0.15)


# --------------------------------------------------------------------------------- missing by their value


def exact_mean(gaussian, seen):
    """E[x_0 | x_1 = seen, x_0 missing], by quadrature."""
    batch = rows(gaussian, [[0.0, seen]], [[False, True]])
    mean = float(gaussian.conditional_mean(batch)[0, 0])
    spread = float(gaussian.conditional_variance(batch)[0, 0].sqrt())

    def hidden(x):
        return stats.norm.pdf(x, mean, spread) / (1 + math.exp(BIAS - SLOPE * x))

    ends = mean - 10 * spread, mean + 10 * spread
    return integrate.quad(lambda x: x * hidden(x), *ends)[0] / integrate.quad(hidden, *ends)[0]


SEEN = [-1.5, 0.0, 1.0]


@pytest.mark.parametrize(
    "form", ["auto", *(pytest.param(form, marks=pytest.mark.slow) for form in ("integrated", "sample"))]
)
def test_the_mean_of_a_cell_that_hid_itself_is_exact_where_decoder_means_are_not(form):
    model, gaussian = linear_gaussian(mask_model=self_mask())
    batch = rows(gaussian, [[0.0, seen] for seen in SEEN], [[False, True]] * len(SEEN))
    exact = torch.tensor([exact_mean(gaussian, seen) for seen in SEEN])
    n_draws = 20_000
    found = ImportanceSampler(model, n_draws, form=form).mean(batch)[:, 0]
    weight_diagnostics = ImportanceSampler(model, n_draws, form=form).weight_diagnostics(batch)
    error = gaussian.conditional_variance(batch)[:, 0].sqrt() / weight_diagnostics.ess.sqrt()
    assert ((found - exact).abs() < 3 * error).all()
    naive = ImportanceSampler(model, n_draws, form="decoder_mean").mean(batch)[:, 0]
    assert ((naive - exact).abs() > 5 * error).all()
    blind = ImportanceSampler(linear_gaussian()[0], n_draws).mean(batch)[:, 0]
    assert ((naive - exact).abs() < (blind - exact).abs()).all()


@pytest.mark.parametrize("form", ["integrated", "sample"])
def test_the_median_of_a_cell_that_hid_itself_is_exact(form):
    model, gaussian = linear_gaussian(mask_model=self_mask())
    batch = rows(gaussian, [[0.0, 0.4]], [[False, True]])
    found = float(ImportanceSampler(model, 8192, form=form).quantiles(batch, [0.5])[0, 0, 0])
    mean = float(gaussian.conditional_mean(batch)[0, 0])
    spread = float(gaussian.conditional_variance(batch)[0, 0].sqrt())
    grid = np.linspace(mean - 10 * spread, mean + 10 * spread, 100_001)
    density = stats.norm.pdf(grid, mean, spread) / (1 + np.exp(BIAS - SLOPE * grid))
    cumulated = density.cumsum() / density.sum()
    assert found == pytest.approx(grid[np.searchsorted(cumulated, 0.5)], abs=0.03)


def test_draws_under_a_model_of_the_whole_row_have_its_mean():
    mask = LinearMask(2).double()
    with torch.no_grad():
        mask.weight.copy_(torch.tensor([[-SLOPE, 0.5], [0.0, 0.0]]))
        mask.bias.copy_(torch.tensor([BIAS, 0.0]))
    model, gaussian = linear_gaussian(mask_model=mask)
    one = rows(gaussian, [[0.0, 0.0]], [[False, True]])  # at 0 the other column adds nothing
    many = one[torch.zeros(2000, dtype=torch.long)]
    sampler = ImportanceSampler(model, 100)
    drawn = sampler.draws(many, row_keys(many.to_array(), seed=3), 1)[0, :, 0].numpy()
    assert abs(drawn.mean() - exact_mean(gaussian, 0.0)) < 5 * drawn.std() / math.sqrt(len(drawn))


# -------------------------------------------------------------------------------------------- row by row


@pytest.mark.parametrize(
    "mask",
    [
        pytest.param(None, id="none"),
        pytest.param(self_mask(), id="self", marks=pytest.mark.slow),
        pytest.param(LinearMask(2).double(), id="linear"),
    ],
)
def test_results_do_not_depend_on_other_rows_memory_or_values_under_the_mask(mask, monkeypatch):
    model, gaussian = linear_gaussian(mask_model=mask)
    batch = some_rows(gaussian, n_rows=9)
    poison = Preimputed(torch.where(batch.observed, batch.x, math.nan), batch.observed, batch.preimputation)
    keys = row_keys(batch.to_array(), seed=2)
    sampler = ImportanceSampler(model, 64)

    def answers(rows):
        drawn, ends = sampler.draws(rows, keys, 2), sampler.quantiles(rows, [0.2])
        return sampler.mean(rows), sampler.log_prob(rows), drawn, ends

    whole, poisoned = answers(batch), answers(poison)
    alone = sampler.draws(batch[4:5], keys[4:5], 2)
    for module in (importance, proposals):
        monkeypatch.setattr(module, "SHARE_OF_BUDGET", 2**20)  # 512 bytes: less than one row at a time
    for one, other, little in zip(whole, poisoned, answers(poison), strict=True):
        torch.testing.assert_close(one, other, rtol=EXACT, atol=EXACT)
        torch.testing.assert_close(one, little, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(alone, whole[2][:, 4:5], rtol=1e-9, atol=1e-9)


def test_weight_diagnostics_are_good_for_the_exact_posterior_and_bad_for_a_narrow_one():
    model, gaussian = linear_gaussian(4, 2)
    batch = some_rows(gaussian)
    good = ImportanceSampler(model, 1000).weight_diagnostics(batch)
    assert (good.ess > 300).all()
    assert (good.pareto_k < 0.7).all()
    with torch.no_grad():
        model.encoder.output.bias[2:4] -= 3.0
    bad = ImportanceSampler(model, 1000, adapts=False).weight_diagnostics(batch[batch.observed.any(dim=1)])
    assert (bad.ess < 200).all()
    assert (bad.pareto_k > 0.5).double().mean() > 0.9


def test_weighted_quantiles_are_those_of_numpy(generator):
    atoms = torch.randn(201, 3, generator=generator, dtype=torch.float64)
    levels = [0.1, 0.5, 0.77]
    actual = weighted_quantiles(atoms, torch.ones_like(atoms), levels)
    expected = np.quantile(atoms.numpy(), levels, axis=0, method="hazen")
    np.testing.assert_allclose(actual, expected, rtol=0, atol=EXACT)
    twice = torch.cat([atoms, atoms[:50]])
    weights = torch.ones_like(atoms)
    weights[:50] = 2.0
    gap = (
        weighted_quantiles(twice, torch.ones_like(twice), levels) - weighted_quantiles(atoms, weights, levels)
    ).abs()
    assert gap.max() < 0.05


def test_no_draws_and_unknown_forms_are_refused():
    model, _ = linear_gaussian()
    with pytest.raises(ValueError, match="n_draws must be at least 1, got 0"):
        ImportanceSampler(model, 0)
    with pytest.raises(ValueError, match="There is no form 'exact' of importance sampling"):
        ImportanceSampler(model, form="exact")


# --------------------------------------------------------------------------------------- poor posteriors


@pytest.mark.parametrize("n_components", [1, 3])
def test_a_row_with_a_poor_posterior_gets_a_proposal_of_its_own(n_components):
    model, gaussian = linear_gaussian(8, 4, n_components)
    with torch.no_grad():
        model.encoder.output.bias[: 4 * n_components] += 0.7  # off, and too narrow
        model.encoder.output.bias[4 * n_components : 8 * n_components] -= 1.0
    batch = some_rows(gaussian)
    batch = batch[batch.observed.any(dim=1)]
    plain, own = (ImportanceSampler(model, 2000, adapts=adapts) for adapts in (False, True))
    assert (plain.weight_diagnostics(batch).ess < 300).all()
    assert (own.weight_diagnostics(batch).ess > 800).all()
    torch.testing.assert_close(own.mean(batch), gaussian.conditional_mean(batch), rtol=0, atol=0.05)
    torch.testing.assert_close(own.log_prob(batch), gaussian.log_prob(batch), rtol=0, atol=0.05)
    errors = [(sampler.log_prob(batch) - gaussian.log_prob(batch)).abs().mean() for sampler in (own, plain)]
    assert errors[0] < 0.2 * errors[1]


def test_the_proposal_at_a_mode_is_the_posterior_of_a_linear_gaussian_model():
    model, gaussian = linear_gaussian(6, 3)
    batch = some_rows(gaussian)
    joint = WeightedDrawSource(model, 1, 0)
    student = at_mode(
        torch.full((len(batch), 3), 5.0, dtype=torch.float64),
        lambda z: joint.joint(batch, z, torch.empty(0), 1.0).log_w,
    )
    loadings, loc = model.decoder.output.weight, model.decoder.output.bias
    for n, observed in enumerate(batch.observed):
        seen = loadings[observed]
        covariance = torch.linalg.inv(torch.eye(3) + seen.T @ seen / 0.3)
        expected = covariance @ seen.T @ (batch.x[n] - loc)[observed] / 0.3
        torch.testing.assert_close(student.loc[n], expected, rtol=0, atol=1e-8)
        torch.testing.assert_close(student.root[n] @ student.root[n].T, covariance, rtol=0, atol=1e-8)


def test_the_density_of_a_proposal_is_that_of_scipy_and_its_draws_have_its_moments():
    generator = torch.Generator().manual_seed(0)
    shape = torch.randn(2, 3, 3, generator=generator, dtype=torch.float64)
    root = torch.linalg.cholesky(shape @ shape.mT + torch.eye(3))
    student = StudentT(torch.randn(2, 3, generator=generator, dtype=torch.float64), root)
    z = torch.randn(5, 2, 3, generator=generator, dtype=torch.float64)
    for n in range(2):
        law = stats.multivariate_t(student.loc[n], root[n] @ root[n].T, df=DF)
        np.testing.assert_allclose(student.log_prob(z)[:, n], law.logpdf(z[:, n]), atol=EXACT)
    drawn = student.draw(LatentPoints.draw(2**14, 1, 3, 0, torch.float64).extra)[:, 0]
    torch.testing.assert_close(drawn.mean(dim=0), student.loc[0], rtol=0, atol=0.02)
    expected = root[0] @ root[0].T * DF / (DF - 2)
    torch.testing.assert_close(drawn.T.cov(), expected, rtol=0.03, atol=0.03)


def test_chains_bring_draws_of_a_poor_start_to_the_distribution_of_the_model():
    model, gaussian = linear_gaussian(3, 1)
    one = rows(gaussian, [[0.0, 0.7, 0.0]], [[False, True, False]])
    many = one[torch.zeros(2000, dtype=torch.long)]
    keys = row_keys(many.to_array(), seed=3)
    importance = ImportanceSampler(model, 1)  # a single latent, the same for all rows
    mean, variance = gaussian.conditional_mean(one)[0, 0], gaussian.conditional_variance(one)[0, 0]
    law = stats.norm(float(mean), float(variance.sqrt()))
    poor = importance.draws(many, keys, 1)[0, :, 0].numpy()
    assert stats.kstest(poor, law.cdf).pvalue < FAILURE_RATE
    moved = ChainedSampler(importance, 40).draws(many, keys, 1)[0, :, 0].numpy()
    assert stats.kstest(moved, law.cdf).pvalue > FAILURE_RATE


def count_decoded(model, monkeypatch):
    """A list that gets the number of latents of all rows that are decoded together."""
    decoded = []
    forward = type(model).log_joint

    def watched(self, rows, z, *args, **options):
        decoded.append(z.shape[0] * z.shape[1])
        return forward(self, rows, z, *args, **options)

    monkeypatch.setattr(type(model), "log_joint", watched)
    return decoded


def test_rows_whose_posterior_fits_need_no_draws_beyond_the_pilot_for_means_and_quantiles(monkeypatch):
    """A few more points are decoded, among which a start of a proposal would be chosen."""
    model, gaussian = linear_gaussian()
    batch = some_rows(gaussian, n_rows=9)
    monkeypatch.setattr(importance, "MAX_ROWS", len(batch))
    decoded = count_decoded(model, monkeypatch)
    sampler = ImportanceSampler(model, 200)
    answers = {
        "mean": lambda sampler: sampler.mean(batch),
        "quantiles": lambda sampler: sampler.quantiles(batch, [0.1, 0.9]),
        "draws": lambda sampler: sampler.draws(batch, row_keys(batch.to_array(), seed=0), 2),
    }
    n_draws = {}
    for name, answer in answers.items():
        decoded.clear()
        answer(sampler)
        n_draws[name] = sum(decoded) / len(batch) - len(SHARES)
    assert n_draws == {"mean": 64, "quantiles": 64, "draws": 200}
    decoded.clear()
    answers["mean"](replace(sampler, effort="fixed"))
    assert sum(decoded) > 5 * len(batch) * 64


def test_few_rows_of_a_wide_table_are_not_padded_to_many(monkeypatch):
    model, gaussian = linear_gaussian()
    batch = some_rows(gaussian, n_rows=3)
    sampler = ImportanceSampler(model, 200)
    padded = sampler.mean(batch)
    monkeypatch.setattr(importance, "MAX_BLOCK", 4 * model.observation.n_parameters)
    decoded = count_decoded(model, monkeypatch)
    torch.testing.assert_close(sampler.mean(batch), padded, rtol=0, atol=1e-12)
    assert sum(decoded) == 4 * (64 + len(SHARES))


@pytest.mark.parametrize("n_components", [1, 3])
def test_rows_use_as_many_draws_as_they_need_whatever_the_other_rows(n_components):
    model, gaussian = linear_gaussian(8, 2, n_components)
    model.requires_grad_(False)
    model.encoder.output.bias[: 2 * n_components] += torch.linspace(0.0, 0.3, 2).repeat(n_components)
    batch = some_rows(gaussian, n_rows=20)
    source = WeightedDrawSource(model, 600, 0)
    found, counts = source.all_of(batch, frugal=True)
    assert len(counts.unique()) > 2
    assert (counts % n_components == 0).all()
    ess = effective_sample_size(found.log_w)
    assert ess.median() > 0.15 * 600
    for row in range(len(batch)):
        alone, count = source.all_of(batch[row : row + 1], frugal=True)
        assert count == counts[row]
        torch.testing.assert_close(alone.log_w[:, 0], found.log_w[:, row], rtol=0, atol=1e-9)
    expected = gaussian.conditional_mean(batch)
    mean = torch.einsum("an,and->nd", found.log_w.exp(), model.observation.mean(found.parameters))
    error = (mean - expected) / gaussian.conditional_variance(batch).sqrt()
    assert error[~batch.observed].square().mean().sqrt() < (0.2 * 600) ** -0.5
