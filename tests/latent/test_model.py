"""Latent-variable models: log weights, the mask term, and where training starts, against closed forms."""

import math

import pytest
import torch
from tolerances import EXACT, QUADRATURE
from torch.nn import functional

from halfseen.data.incomplete import Incomplete
from halfseen.distributions.leaves import GaussianLeaf, StudentTLeaf
from halfseen.distributions.leaves_counts import CategoricalLeaf
from halfseen.distributions.observation_model import ObservationModel, Part
from halfseen.gaussian.distribution import Gaussian
from halfseen.gaussian.low_rank import LowRankGaussian
from halfseen.latent.mask_models import LinearMask, MaskLayout
from halfseen.latent.model import LatentModel, LatentNoise, Preimputed, PreimputedFill
from halfseen.latent.self_masking import LinearSelfMask, TiltedCells, integrated_log_prob, log_missing
from halfseen.latent.training import Factors, start_from_factors
from halfseen.nn.residual import ResidualMLP

NOTHING = torch.empty(0, dtype=torch.float64)


def small_model(
    seed=0, n_features=3, n_latent=2, n_components=1, family="gaussian", mask_model=None, **options
):
    """A model with random networks, in double precision."""
    observation = ObservationModel.for_pixels(n_features, family)
    encoder = ResidualMLP(2 * n_features, LatentModel.n_outputs(n_latent, n_components), width=8, n_blocks=1)
    decoder = ResidualMLP(n_latent, observation.n_parameters, width=8, n_blocks=1)
    for number, network in enumerate((encoder, decoder)):
        network.reset_parameters(torch.Generator().manual_seed(2 * seed + number))
    model = LatentModel(
        encoder, decoder, observation, n_latent, n_components, mask_model=mask_model, **options
    )
    return model.double()


def rows_with_holes(generator, n_rows=6, n_features=3, rate=0.4):
    x = torch.randn(n_rows, n_features, generator=generator, dtype=torch.float64)
    return Incomplete(x, torch.rand(n_rows, n_features, generator=generator) >= rate)


def noise_for(generator, n_draws, n_rows, n_strata, n_latent=2, n_cells=0):
    return LatentNoise(
        torch.randn(n_draws, n_rows, n_strata, n_latent, generator=generator, dtype=torch.float64),
        torch.rand(n_draws, n_rows, generator=generator, dtype=torch.float64),
        torch.rand(n_draws, n_rows, n_strata, n_cells, generator=generator, dtype=torch.float64),
    )


def mask_models():
    return {
        "ignorable": None,
        "integrated": LinearSelfMask(3).double(),
        "sample": LinearMask(3).double(),
    }


# ------------------------------------------------------------------------------------------ log weights


@pytest.mark.parametrize("mask", ["ignorable", "integrated", "sample"])
@pytest.mark.parametrize("n_components", [1, 3])
def test_values_under_the_mask_are_never_read(generator, mask, n_components):
    model = small_model(n_components=n_components, mask_model=mask_models()[mask])
    batch = rows_with_holes(generator)
    poison = Incomplete(torch.where(batch.observed, batch.x, math.nan), batch.observed)
    noise = noise_for(generator, 4, len(batch), n_components, n_cells=model.n_cells)
    expected = model.log_weights(batch, noise)
    actual = model.log_weights(poison, noise)
    torch.testing.assert_close(actual.log_w, expected.log_w, rtol=0, atol=0)
    actual.log_w.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_a_row_that_shows_nothing_has_the_prior_as_posterior_and_weighs_one(generator):
    model = small_model(n_components=3)
    batch = Incomplete(torch.zeros(2, 3, dtype=torch.float64), torch.zeros(2, 3, dtype=torch.bool))
    for n_strata in (1, 3):
        log_w = model.log_weights(batch, noise_for(generator, 5, 2, n_strata)).log_w
        torch.testing.assert_close(log_w, torch.zeros_like(log_w), rtol=0, atol=EXACT)


def test_log_weights_are_the_sum_of_their_densities(generator):
    model = small_model(n_components=2)
    batch = rows_with_holes(generator)
    noise = noise_for(generator, 4, len(batch), 1)
    posterior = model.posterior(batch)
    z = model.draw(posterior, noise).squeeze(-2)  # (S, N, L)
    loc, std = model.decoder(z).chunk(2, dim=-1)
    normal = torch.distributions.Normal(loc, model.observation.leaves[0].std_floor + functional.softplus(std))
    of_cells = torch.where(batch.observed, normal.log_prob(batch.filled()), 0.0).sum(dim=-1)
    prior = torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(dim=-1)
    parts = torch.distributions.Normal(posterior.loc, posterior.scale).log_prob(z.unsqueeze(-2)).sum(dim=-1)
    log_q = (posterior.log_weights + parts).logsumexp(dim=-1)
    weighted = model.log_weights(batch, noise)
    torch.testing.assert_close(weighted.log_w.squeeze(-1), of_cells + prior - log_q, rtol=EXACT, atol=EXACT)
    assert (weighted.log_strata == 0).all()


def test_the_mask_term_is_added_by_its_weight(generator):
    model = small_model(mask_model=LinearMask(3).double())
    batch = rows_with_holes(generator)
    noise = noise_for(generator, 4, len(batch), 1, n_cells=model.n_cells)
    without = model.log_weights(batch, noise, mask_weight=0.0)
    half, whole = (model.log_weights(batch, noise, mask_weight=weight) for weight in (0.5, 1.0))
    assert without.completed is None
    observed = batch.observed.unsqueeze(-2).expand_as(whole.completed)
    torch.testing.assert_close(
        whole.completed[observed], batch.x.unsqueeze(-2).expand_as(whole.completed)[observed], rtol=0, atol=0
    )
    log_mask = model.mask_model.log_prob(whole.completed, batch.observed.unsqueeze(-2))
    torch.testing.assert_close(whole.log_w, without.log_w + log_mask, rtol=EXACT, atol=EXACT)
    torch.testing.assert_close(half.log_w, without.log_w + 0.5 * log_mask, rtol=EXACT, atol=EXACT)


def test_sticking_the_landing_changes_no_value_and_leaves_the_weights_of_strata_attached(generator):
    model = small_model(n_components=3)
    batch = rows_with_holes(generator)
    noise = noise_for(generator, 4, len(batch), 3)
    full, stl = (model.log_weights(batch, noise, gradient=mode) for mode in ("full", "stl"))
    torch.testing.assert_close(stl.log_w, full.log_w, rtol=0, atol=0)
    assert stl.log_strata.requires_grad


def test_unknown_mask_terms_and_ones_that_cannot_be_integrated_are_refused():
    with pytest.raises(ValueError, match="mask_term must be 'auto', 'sample' or 'integrated', got 'exact'"):
        small_model(mask_model=LinearSelfMask(3), mask_term="exact")
    with pytest.raises(ValueError, match="mask_term='integrated' needs a self-masking model"):
        small_model(mask_model=LinearMask(3), mask_term="integrated")
    model = small_model()
    with pytest.raises(ValueError, match="n_latent and n_components must be at least 1, got 2 and 0"):
        LatentModel(model.encoder, model.decoder, model.observation, 2, 0)


def test_rows_without_a_preimputation_are_refused_where_one_is_needed(generator):
    model = small_model(fill=PreimputedFill())
    with pytest.raises(TypeError, match="The rows bring no preimputation"):
        model.posterior(rows_with_holes(generator))


# ------------------------------------------------------------------------------------- the mask integrated


def mixed_observation():
    leaves = [
        Part(GaussianLeaf(1), columns=[0], features=[0]),
        Part(StudentTLeaf(1), columns=[2], features=[4]),
        Part(CategoricalLeaf([3]), columns=[1], features=[1, 2, 3]),
    ]
    return ObservationModel(leaves)


def mixed_mask(columns=None):
    mask = LinearSelfMask(MaskLayout((0, 1, 1, 1, 2), columns)).double()
    with torch.no_grad():
        mask.raw_slope.copy_(torch.tensor([2.0, 0.3, -1.5]))
        mask.bias.copy_(torch.tensor([0.5, -0.3, 0.2]))
        mask.level_logits.copy_(torch.tensor([1.0, -2.0, 0.4]))
    return mask


def test_missing_cells_are_integrated_out_of_the_mask_as_on_a_fine_grid(generator):
    observation, mask = mixed_observation(), mixed_mask()
    parameters = torch.randn(4, observation.n_parameters, generator=generator, dtype=torch.float64)
    nothing = torch.zeros(4, 3, dtype=torch.bool)
    actual = integrated_log_prob(observation, mask, parameters, torch.zeros(4, 5).double(), nothing)

    grid = torch.linspace(-400, 400, 800_001, dtype=torch.float64)
    expected = torch.zeros(4, dtype=torch.float64)
    gaussian, student, levels = observation.split(parameters)
    for i in range(4):
        for leaf, part, column in ((0, gaussian, 0), (1, student, 2)):
            density = observation.leaves[leaf].log_prob(part[i], grid[:, None]).exp()[:, 0]
            hidden = torch.sigmoid(-(mask.bias[column] - mask.slope[column] * grid))
            expected[i] += torch.trapezoid(density * hidden, grid).log()
        hidden = torch.sigmoid(-(mask.bias[1] + mask.level_logits))
        expected[i] += (levels[i].softmax(dim=0) * hidden).sum().log()
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-3)


def test_observed_cells_enter_the_mask_as_they_are(generator):
    observation, mask = mixed_observation(), mixed_mask()
    parameters = torch.randn(4, observation.n_parameters, generator=generator, dtype=torch.float64)
    x = torch.tensor([[0.3, 0.0, 1.0, 0.0, -2.0]], dtype=torch.float64).expand(4, -1)
    everything = torch.ones(4, 3, dtype=torch.bool)
    actual = integrated_log_prob(observation, mask, parameters, x, everything)
    torch.testing.assert_close(actual, mask.log_prob(x, everything), rtol=EXACT, atol=EXACT)


def test_columns_whose_mask_is_not_modelled_count_as_missing_at_random(generator):
    observation, mask = mixed_observation(), mixed_mask(columns=(0,))
    parameters = torch.randn(4, observation.n_parameters, generator=generator, dtype=torch.float64)
    cells = TiltedCells.of(observation, mask, parameters)
    torch.testing.assert_close(
        cells.mean[:, 1:4], observation.mean(parameters)[:, 1:4], rtol=EXACT, atol=EXACT
    )
    torch.testing.assert_close(cells.mean[:, 4], observation.mean(parameters)[:, 4], rtol=0, atol=1e-3)
    x, seen = torch.zeros(4, 5).double(), torch.tensor([[True, False, False]])
    actual = integrated_log_prob(observation, mask, parameters, x, seen)
    torch.testing.assert_close(actual, functional.logsigmoid(mask.bias[0]).expand(4), rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("columns", [None, (0,), (1, 2), ()])
def test_training_and_imputation_agree_on_how_likely_cells_are_missing(columns, generator):
    observation, mask = mixed_observation(), mixed_mask(columns=columns)
    parameters = torch.randn(4, observation.n_parameters, generator=generator, dtype=torch.float64)
    modelled = list(range(3)) if columns is None else list(columns)
    cells = TiltedCells.of(observation, mask, parameters)
    found = log_missing(observation, mask, parameters)
    torch.testing.assert_close(found[:, modelled], cells.log_missing[:, modelled], rtol=EXACT, atol=EXACT)


# ------------------------------------------------------------------------------------- where training starts


def factor_gaussian(generator, n_features=5, n_factors=2):
    loadings = torch.randn(n_features, n_factors, generator=generator, dtype=torch.float64)
    noise = 0.2 + torch.rand(n_features, generator=generator, dtype=torch.float64)
    loc = torch.randn(n_features, generator=generator, dtype=torch.float64)
    return Gaussian(loc, loadings @ loadings.T + noise.diag())


def test_factors_recover_a_covariance_of_few_factors(generator):
    gaussian = factor_gaussian(generator)
    factors = Factors.of(gaussian, 2)
    rebuilt = factors.loadings @ factors.loadings.T + factors.uniqueness.diag()
    torch.testing.assert_close(rebuilt, gaussian.covariance, rtol=0, atol=1e-2)


def test_there_may_be_more_factors_than_features():
    factors = Factors.of(Gaussian(torch.zeros(2).double(), torch.eye(2).double()), 4)
    assert factors.loadings.shape == (2, 4)
    assert (factors.loadings[:, :2].abs().sum(dim=0) > 0).all(), "a latent that nothing uses stays unused"


@pytest.mark.parametrize("family", ["gaussian", "shared-gaussian"])
def test_training_starts_with_the_likelihood_of_the_factors_and_the_exact_posterior_mean(generator, family):
    gaussian = factor_gaussian(generator)
    factors = Factors.of(gaussian, 2)
    if family == "shared-gaussian":
        factors = Factors(factors.loc, factors.loadings, torch.full_like(factors.uniqueness, 0.4))
        gaussian = Gaussian(factors.loc, factors.loadings @ factors.loadings.T + factors.uniqueness.diag())
    observation = ObservationModel.for_pixels(5, family)
    encoder = ResidualMLP(10, 4, width=8, n_blocks=1, linear_skip=True)
    decoder = ResidualMLP(2, observation.n_parameters, width=8, n_blocks=1, linear_skip=True)
    model = LatentModel(encoder, decoder, observation, 2, fill=PreimputedFill()).double()
    batch = rows_with_holes(generator, n_features=5)
    rebuilt = Gaussian(factors.loc, factors.loadings @ factors.loadings.T + factors.uniqueness.diag())
    rows = Preimputed.by(rebuilt, batch)
    start_from_factors(model, factors, batch.observed, generator)

    posterior = model.posterior(rows)
    scaled = torch.where(batch.observed[..., None], factors.loadings / factors.uniqueness[:, None], 0.0)
    right = torch.where(batch.observed, batch.x - factors.loc, 0.0)
    mean = torch.linalg.solve(factors.precision(batch.observed), (scaled.mT @ right[..., None])).squeeze(-1)
    shown = batch.observed.any(dim=1)
    torch.testing.assert_close(posterior.loc[shown, 0], mean[shown], rtol=0, atol=QUADRATURE)
    z = torch.randn(3, 2, generator=generator, dtype=torch.float64)
    parameters = model.decoder(z)
    expected = factors.loc + z @ factors.loadings.T
    torch.testing.assert_close(observation.mean(parameters), expected, rtol=0.01, atol=1e-3)
    torch.testing.assert_close(
        observation.variance(parameters), factors.uniqueness.expand(3, -1), rtol=0.01, atol=1e-3
    )


@pytest.mark.parametrize("n_factors", [1, 2, 4])
def test_factors_of_a_covariance_of_low_rank_are_those_of_the_whole_matrix(n_factors, generator):
    loadings = torch.randn(12, 2, generator=generator, dtype=torch.float64)
    noise = 0.2 + torch.rand(12, generator=generator, dtype=torch.float64)
    low_rank = LowRankGaussian(torch.zeros(12).double(), loadings, noise)
    found = Factors.of(low_rank, n_factors)
    expected = Factors.of(Gaussian(low_rank.loc, low_rank.covariance), n_factors)
    products = [one.loadings @ one.loadings.T for one in (found, expected)]
    largest = float(low_rank.covariance.max())
    torch.testing.assert_close(*products, rtol=0, atol=1e-6 * largest if n_factors == 2 else 0.1 * largest)
    assert found.loadings.shape == (12, n_factors)
    assert (found.loadings.square().sum(dim=0) > 0).all()
