"""The latent objective: bounds of a likelihood that is known, and gradients that agree."""

import math

import pytest
import torch
from scipy import stats
from tolerances import EXACT, FAILURE_RATE

from halfseen.data.incomplete import Incomplete
from halfseen.distributions.observation_model import ObservationModel
from halfseen.gaussian.distribution import Gaussian
from halfseen.latent.bounds import LatentObjective
from halfseen.latent.mask_models import LinearMask
from halfseen.latent.model import LatentModel
from halfseen.latent.self_masking import LinearSelfMask
from halfseen.nn.residual import ResidualMLP

NEEDS = "gradient='dreg' needs bound='iwelbo' and ancestral draws"


def linear_gaussian(generator, n_components=1, n_features=4, n_latent=2, mask_model=None):
    """A linear-Gaussian model with a posterior that is not exact, and the Gaussian of its rows."""
    observation = ObservationModel.for_pixels(n_features, "shared-gaussian")
    encoder = ResidualMLP(2 * n_features, LatentModel.n_outputs(n_latent, n_components), width=8, n_blocks=1)
    encoder.reset_parameters(generator)
    with torch.no_grad():  # wider than any posterior: weights are bounded
        encoder.output.bias[n_components * n_latent : 2 * n_components * n_latent] += 1.0
    decoder = ResidualMLP(n_latent, n_features, width=0, n_blocks=0)
    weight = torch.randn(n_features, n_latent, generator=generator)
    bias = torch.randn(n_features, generator=generator)
    decoder.set_linear(weight, bias)
    model = LatentModel(encoder, decoder, observation, n_latent, n_components, mask_model=mask_model).double()
    variance = observation.leaves[0].std.detach().square()
    weight, bias = weight.double(), bias.double()
    covariance = weight @ weight.T + variance * torch.eye(n_features, dtype=torch.float64)
    return model, Gaussian(bias, covariance)


def some_rows(generator, n_rows=8, n_features=4):
    x = torch.randn(n_rows, n_features, generator=generator, dtype=torch.float64)
    return Incomplete(x, torch.rand(n_rows, n_features, generator=generator) < 0.6)


def values(model, batch, generator, n_repeats=200, **choices):
    """Bounds (R, N) of repeated noise."""
    objective = LatentObjective.for_model(model, **choices)
    with torch.no_grad():
        return torch.stack(
            [-objective(model, batch, objective.draw_noise(batch, generator)) for _ in range(n_repeats)]
        )


@pytest.mark.parametrize("sampling", ["ancestral", "stratified"])
@pytest.mark.parametrize("n_components", [1, 3])
def test_bounds_are_ordered_and_approach_the_exact_likelihood(generator, sampling, n_components):
    model, gaussian = linear_gaussian(generator, n_components)
    batch = some_rows(generator)
    exact = gaussian.log_prob(batch)
    choices = {"sampling": sampling}
    means = [
        values(model, batch, generator, 150, bound="elbo", n_draws=5, **choices).mean(),
        values(model, batch, generator, 150, bound="iwelbo", n_draws=5, **choices).mean(),
        values(model, batch, generator, 150, bound="iwelbo", n_draws=50, **choices).mean(),
    ]
    assert means[0] < means[1] < means[2] < exact.mean() + 0.02
    many = values(model, batch, generator, 1, bound="iwelbo", n_draws=30_000, **choices)[0]
    torch.testing.assert_close(many, exact, rtol=0, atol=0.03)


def test_the_looser_bound_lies_between(generator):
    model, _ = linear_gaussian(generator, 3)
    batch = some_rows(generator)
    objectives = [
        LatentObjective.for_model(model, bound=bound, sampling="stratified", n_draws=4)
        for bound in ("elbo", "siwelbo-loose", "iwelbo")
    ]
    noise = objectives[0].draw_noise(batch, generator)
    elbo, looser, iwelbo = (-objective(model, batch, noise) for objective in objectives)
    assert (elbo <= looser).all()
    assert (looser <= iwelbo).all()


@pytest.mark.parametrize("bound", ["elbo", "iwelbo"])
def test_a_mixture_of_one_is_the_gaussian_to_the_bit_however_it_is_drawn(generator, bound):
    model, _ = linear_gaussian(generator, 1)
    batch = some_rows(generator)
    losses, gradients = [], []
    for sampling in ("ancestral", "stratified"):
        objective = LatentObjective.for_model(model, bound=bound, sampling=sampling, n_draws=5)
        noise = objective.draw_noise(batch, torch.Generator().manual_seed(3))
        model.zero_grad()
        loss = objective(model, batch, noise)
        loss.mean().backward()
        losses.append(loss.detach())
        gradients.append([p.grad.clone() for p in model.parameters()])
    assert torch.equal(*losses)
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
    # And it is MIWAE, written out.
    posterior = model.posterior(batch)
    z = posterior.loc[:, 0] + posterior.scale[:, 0] * noise.normals[:, :, 0]
    cells = torch.distributions.Normal(model.decoder(z), model.observation.leaves[0].std)
    log_p = torch.where(batch.observed, cells.log_prob(batch.filled()), 0.0).sum(dim=-1)
    log_q = torch.distributions.Normal(posterior.loc[:, 0], posterior.scale[:, 0]).log_prob(z).sum(dim=-1)
    log_w = log_p + torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(dim=-1) - log_q
    expected = log_w.mean(dim=0) if bound == "elbo" else log_w.logsumexp(dim=0) - math.log(5)
    torch.testing.assert_close(-losses[0], expected.detach(), rtol=EXACT, atol=EXACT)


def gradients(model, batch, generator, n_repeats, **choices):
    """Gradients (R, P) of the encoder's last layer, of repeated noise."""
    objective = LatentObjective.for_model(model, **choices)
    found = []
    for _ in range(n_repeats):
        model.zero_grad()
        objective(model, batch, objective.draw_noise(batch, generator)).mean().backward()
        found.append(torch.cat([p.grad.flatten() for p in model.encoder.output.parameters()]))
    return torch.stack(found)


def agree(one, other):
    """Welch tests of every coordinate, corrected for their number."""
    moves = (one != one[0]).any(dim=0)  # not so for units that are switched off
    assert not (other[:, ~moves] != one[0, ~moves]).any()
    p_values = stats.ttest_ind(one[:, moves].numpy(), other[:, moves].numpy(), equal_var=False).pvalue
    return float(p_values.min()) > FAILURE_RATE / len(p_values)


def test_stratified_and_ancestral_gradients_agree_in_expectation(generator):
    model, _ = linear_gaussian(generator, 3)
    batch = some_rows(generator, n_rows=4)
    ancestral, stratified = (
        gradients(model, batch, generator, 300, bound="elbo", sampling=sampling, n_draws=6)
        for sampling in ("ancestral", "stratified")
    )
    assert agree(ancestral, stratified)
    assert not agree(ancestral, stratified + 3 * ancestral.std(dim=0) / math.sqrt(25))


@pytest.mark.parametrize(
    ("bound", "gradient"), [("elbo", "stl"), ("iwelbo", "dreg")], ids=["stl-elbo", "dreg-iwelbo"]
)
@pytest.mark.parametrize("n_components", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_gradients_with_less_noise_have_the_same_expectation(generator, bound, gradient, n_components):
    model, _ = linear_gaussian(generator, n_components)
    batch = some_rows(generator, n_rows=4)
    full, other = (
        gradients(model, batch, generator, 300, bound=bound, gradient=mode, n_draws=4)
        for mode in ("full", gradient)
    )
    assert agree(full, other)


@pytest.mark.parametrize("mask_model", [LinearSelfMask(4), LinearMask(4)], ids=["integrated", "sample"])
def test_a_mask_of_weight_zero_costs_nothing(generator, mask_model):
    model, _ = linear_gaussian(generator, mask_model=mask_model)
    batch = some_rows(generator)
    ignorant = LatentObjective.for_model(model, mask_weight=0.0)
    noise = ignorant.draw_noise(batch, torch.Generator().manual_seed(1))
    assert noise.cells.numel() == 0
    model.zero_grad()
    ignorant(model, batch, noise).mean().backward()
    assert all(p.grad is None for p in model.mask_model.parameters())
    knowing = LatentObjective.for_model(model)
    knowing(model, batch, knowing.draw_noise(batch, generator)).mean().backward()
    assert all(p.grad is not None for p in model.mask_model.parameters() if p.numel())


def test_what_does_not_exist_or_fit_together_is_refused():
    with pytest.raises(ValueError, match=r"bound must be one of .*, got 'vb'"):
        LatentObjective(2, bound="vb")
    with pytest.raises(ValueError, match=r"sampling must be one of .*, got 'iid'"):
        LatentObjective(2, sampling="iid")
    with pytest.raises(ValueError, match=r"gradient must be one of .*, got 'none'"):
        LatentObjective(2, gradient="none")
    with pytest.raises(ValueError, match="n_draws must be at least 1, got 0"):
        LatentObjective(2, n_draws=0)
    with pytest.raises(ValueError, match=NEEDS):
        LatentObjective(2, bound="elbo", gradient="dreg")
    with pytest.raises(ValueError, match=NEEDS):
        LatentObjective(2, n_components=3, sampling="stratified", gradient="dreg")
