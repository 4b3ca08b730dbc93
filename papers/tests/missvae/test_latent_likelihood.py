"""Likelihoods of latent models against the linear-Gaussian one, whose integral over latents is known."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from tolerances import EXACT, FAILURE_RATE, QUADRATURE

from halfseen.data.incomplete import Incomplete
from halfseen.data.margins import inverse_softplus
from halfseen.distributions.leaves import STD_FLOOR
from halfseen.distributions.observation_model import ObservationModel
from halfseen.errors import HalfseenWarning
from halfseen.latent.bounds import LatentObjective, iwelbo
from halfseen.latent.mask_models import LinearMask
from halfseen.latent.model import POSTERIOR_FLOOR, LatentModel, LearnedFill
from halfseen.latent.self_masking import LinearSelfMask
from halfseen.nn.residual import ResidualMLP
from halfseen.training.loop import TrainingSettings
from papers.missvae.latent_likelihood import (
    LatentGrid,
    estimate_iwelbo,
    grid_log_likelihood,
    log_joint,
    refit_encoder,
)

N_FEATURES = 4


class LinearGaussian:
    r"""The model :math:`x = b + W z + \epsilon` in numpy, and as networks of one linear layer each."""

    def __init__(self, n_latent=2, seed=0, noise=0.7, n_features=N_FEATURES):
        rng = np.random.default_rng(seed)
        self.bias = rng.normal(size=n_features)
        self.std = noise * rng.uniform(0.5, 1.5, size=n_features)
        # Columns that are orthogonal, in units of the noise, in all rows but the last: without the last
        # feature the posterior is diagonal.
        directions = np.linalg.qr(rng.normal(size=(n_features - 1, n_latent)))[0] * rng.uniform(
            1, 2, n_latent
        )
        rest = rng.normal(size=(1, n_latent))
        self.weight = self.std[:, None] * np.concatenate([directions, rest])

    def log_prob(self, x, observed):
        found = []
        for row, seen in zip(x.numpy(), observed.numpy(), strict=True):
            w, s = self.weight[seen], self.std[seen]
            covariance = w @ w.T + np.diag(s**2)
            found.append(
                stats.multivariate_normal(self.bias[seen], covariance).logpdf(row[seen]) if seen.any() else 0
            )
        return torch.tensor(found)

    def posterior(self, x, seen):
        """The mean and covariance of latents given one row."""
        scaled = self.weight[seen] / self.std[seen, None] ** 2
        covariance = np.linalg.inv(np.eye(self.weight.shape[1]) + scaled.T @ self.weight[seen])
        return covariance @ scaled.T @ (x[seen] - self.bias[seen]), covariance

    def model(self, n_components=1, **settings):
        n_features, n_latent = self.weight.shape
        n_outputs = LatentModel.n_outputs(n_latent, n_components)
        encoder = ResidualMLP(2 * n_features, n_outputs, width=0, n_blocks=0)
        decoder = ResidualMLP(n_latent, 2 * n_features, width=0, n_blocks=0)
        observation = ObservationModel.for_pixels(n_features, "gaussian")
        model = LatentModel(encoder, decoder, observation, n_latent, n_components, **settings).double()
        raw = inverse_softplus(torch.tensor(self.std) - STD_FLOOR)
        weight = torch.cat([torch.tensor(self.weight), torch.zeros(n_features, n_latent)])
        model.decoder.set_linear(weight, torch.cat([torch.tensor(self.bias), raw]))
        return model

    def set_exact_posterior(self, model):
        """Makes the encoder exact for rows that miss the last feature, and only that."""
        n_features, n_latent = self.weight.shape
        seen = np.arange(n_features) < n_features - 1
        _, covariance = self.posterior(np.zeros(n_features), seen)
        to_mean = np.zeros((n_latent, n_features))
        to_mean[:, seen] = covariance @ (self.weight[seen] / self.std[seen, None] ** 2).T
        weight = np.zeros((2 * n_latent, 2 * n_features))
        weight[:n_latent, :n_features] = to_mean
        std = torch.tensor(covariance).diagonal().sqrt()
        bias = torch.cat([torch.tensor(-to_mean @ self.bias), inverse_softplus(std - POSTERIOR_FLOOR)])
        model.encoder.set_linear(torch.tensor(weight), bias)


def random_rows(generator, n_rows=12, n_features=N_FEATURES):
    """Rows with random masks, one complete, one that shows nothing; NaN where nothing was seen."""
    x = 1.5 * torch.randn(n_rows, n_features, generator=generator, dtype=torch.float64)
    observed = torch.rand(n_rows, n_features, generator=generator) < 0.6
    observed[0], observed[1] = True, False
    return Incomplete(torch.where(observed, x, torch.nan), observed)


def without_last(generator, n_rows=12):
    x = 1.5 * torch.randn(n_rows, N_FEATURES, generator=generator, dtype=torch.float64)
    observed = (torch.arange(N_FEATURES) < N_FEATURES - 1).expand_as(x)
    return Incomplete(torch.where(observed, x, torch.nan), observed)


def assert_close(left, right, tolerance):
    torch.testing.assert_close(left, right, rtol=0.0, atol=tolerance)


# ------------------------------------------------------------------------------------------------ grid


@pytest.mark.parametrize("n_latent", [1, 2])
def test_the_grid_gives_the_closed_form(generator, n_latent):
    truth, batch = LinearGaussian(n_latent), random_rows(generator)
    found = grid_log_likelihood(truth.model(), batch, n_points=200)
    assert_close(found.log_prob, truth.log_prob(*batch_parts(batch)), QUADRATURE)
    assert found.border.max() < 1e-12
    assert found.unevenness.max() < 1e-3


def batch_parts(batch):
    return batch.x, batch.observed


@pytest.mark.parametrize("working_bytes", [200_000, pytest.param(1, marks=pytest.mark.slow)])
def test_little_memory_changes_nothing(generator, working_bytes):
    model, batch = LinearGaussian().model(), random_rows(generator, n_rows=5)
    settings = {"bounds": (-8.0, 8.0), "n_points": 32}
    whole = grid_log_likelihood(model, batch, **settings)
    pieces = grid_log_likelihood(model, batch, working_bytes=working_bytes, **settings)
    for name in ("log_prob", "border", "unevenness"):
        assert_close(getattr(whole, name), getattr(pieces, name), EXACT)


def test_the_posterior_components_do_not_matter_to_the_grid(generator):
    truth, batch = LinearGaussian(), random_rows(generator, n_rows=3)
    found = [grid_log_likelihood(truth.model(k), batch, n_points=100).log_prob for k in (1, 3)]
    assert_close(*found, EXACT)


def test_no_rows_have_no_likelihood():
    batch = Incomplete(
        torch.zeros(0, N_FEATURES, dtype=torch.float64), torch.zeros(0, N_FEATURES, dtype=torch.bool)
    )
    assert grid_log_likelihood(LinearGaussian().model(), batch, n_points=20).log_prob.shape == (0,)


def test_a_posterior_off_the_grid_is_noticed(generator):
    model, batch = LinearGaussian(n_latent=1).model(), without_last(generator)
    with pytest.warns(HalfseenWarning, match="reach the border of the grid"):
        found = grid_log_likelihood(model, batch, bounds=(20.0, 22.0), n_points=100)
    assert found.border.min() > 0.5


@pytest.mark.parametrize("n_latent", [1, 2])
def test_a_posterior_between_the_points_is_noticed(generator, n_latent):
    model, batch = LinearGaussian(n_latent, noise=0.02).model(), without_last(generator)
    model.decoder.output.weight.data[:N_FEATURES] *= 50.0  # the posterior is as narrow as the noise
    with pytest.warns(HalfseenWarning, match="narrower than the cells"):
        grid_log_likelihood(model, batch, bounds=(-200.0, 200.0), n_points=200)


def test_a_diagonal_ridge_between_the_points_is_noticed():
    """Even rows hold as much as odd rows, and even columns as odd ones; only chequered cells differ."""
    truth = LinearGaussian()
    truth.weight = np.array([[1.0, -1.0], [1.0, -1.0], [0.0, 0.0], [0.0, 0.0]])
    truth.std, truth.bias = np.full(4, 0.02), np.zeros(4)
    batch = Incomplete(torch.zeros(1, 4, dtype=torch.float64), torch.tensor([[True, True, False, False]]))
    with pytest.warns(HalfseenWarning, match="narrower than the cells"):
        found = grid_log_likelihood(truth.model(), batch, bounds=(-8.0, 8.0), n_points=160)
    assert (found.log_prob - truth.log_prob(*batch_parts(batch))).abs() > 0.1


def test_unevenness_predicts_the_error():
    r"""Of a Gaussian at a point, :math:`\delta = 2 e^{-\pi^2 \sigma^2 / 2 h^2}` and the error
    :math:`2 (\delta / 2)^4`."""
    truth = LinearGaussian(n_latent=1)
    batch = Incomplete(
        torch.tensor(truth.bias)[None], torch.ones(1, N_FEATURES, dtype=torch.bool)
    )  # its posterior has mean 0
    spread = math.sqrt(truth.posterior(truth.bias, np.ones(N_FEATURES, dtype=bool))[1].item())
    width = spread / 0.65
    with pytest.warns(HalfseenWarning, match="narrower"):
        found = grid_log_likelihood(truth.model(), batch, bounds=(-20.5 * width, 20.5 * width), n_points=41)
    delta = found.unevenness.item()
    error = (found.log_prob - truth.log_prob(*batch_parts(batch))).expm1().item()
    assert delta == pytest.approx(2 * math.exp(-(math.pi**2) * 0.65**2 / 2), rel=1e-3)
    assert error == pytest.approx(2 * (delta / 2) ** 4, rel=0.01)


def test_a_grid_refuses_three_latents_and_bounds_that_fall():
    with pytest.raises(ValueError, match="1 or 2 latents, the model has 3"):
        LatentGrid(3)
    with pytest.raises(ValueError, match="rising bounds"):
        LatentGrid(1, (1.0, 1.0))


def hidden_integral(truth, mask_logit, x):
    r""":math:`p(x_1, o = (1, 0))` of two features by quadrature over the missing one, given the seen one."""
    covariance = truth.weight @ truth.weight.T + np.diag(truth.std**2)
    slope = covariance[1, 0] / covariance[0, 0]
    mean, std = (
        truth.bias[1] + slope * (x - truth.bias[0]),
        math.sqrt(covariance[1, 1] - slope * covariance[0, 1]),
    )

    def sigmoid(value):
        return 1 / (1 + math.exp(-value))

    def density(y):
        seen, hidden = mask_logit(x, y)
        return stats.norm.pdf(y, mean, std) * sigmoid(seen) * sigmoid(-hidden)

    inside = integrate.quad(density, mean - 12 * std, mean + 12 * std, epsabs=1e-12)[0]
    return stats.norm.logpdf(x, truth.bias[0], math.sqrt(covariance[0, 0])) + math.log(inside)


def self_masked():
    truth, mask = LinearGaussian(n_latent=1, n_features=2), LinearSelfMask(2)
    mask.raw_slope.data, mask.bias.data = torch.tensor([0.8, 2.0]), torch.tensor([0.5, -0.3])
    return truth, truth.model(mask_model=mask)


HALF_SEEN = Incomplete(
    torch.tensor([[0.4, torch.nan], [-1.3, torch.nan]], dtype=torch.float64),
    torch.tensor([[True, False]] * 2),
)


def test_the_grid_counts_the_mask_on_request():
    truth, model = self_masked()
    expected = [hidden_integral(truth, lambda a, b: (0.5 - 0.8 * a, -0.3 - 2 * b), x) for x in (0.4, -1.3)]
    joint = grid_log_likelihood(model, HALF_SEEN, with_mask=True).log_prob
    assert_close(joint, torch.tensor(expected, dtype=torch.float64), QUADRATURE)
    alone = grid_log_likelihood(model, HALF_SEEN).log_prob
    assert_close(alone, truth.log_prob(*batch_parts(HALF_SEEN)), QUADRATURE)


def test_the_grid_refuses_a_mask_whose_missing_cells_are_drawn():
    model = LinearGaussian(n_latent=1, n_features=2).model(mask_model=LinearMask(2))
    with pytest.raises(ValueError, match="does not integrate missing cells out"):
        grid_log_likelihood(model, HALF_SEEN, with_mask=True)


# ---------------------------------------------------------------------------------------------- bounds


@pytest.mark.parametrize("working_bytes", [1, 20_000, 2**26])
@pytest.mark.parametrize("n_draws", [1, 7, 200])
def test_the_bound_is_exact_if_the_posterior_is(generator, n_draws, working_bytes):
    truth, batch = LinearGaussian(), without_last(generator, n_rows=3)
    model = truth.model()
    truth.set_exact_posterior(model)
    found = estimate_iwelbo(model, batch, n_draws, generator=generator, working_bytes=working_bytes)
    assert_close(found.log_prob, truth.log_prob(*batch_parts(batch)), EXACT)
    assert bool((found.standard_error < 1e-6).all()) == (n_draws > 1)


def spread_encoder(model, generator):
    """Any posterior that is wide enough for weights of finite variance."""
    weight = 0.1 * torch.randn(model.encoder.output.weight.shape, generator=generator, dtype=torch.float64)
    bias = 0.2 * torch.randn(len(weight), generator=generator, dtype=torch.float64)
    size = model.n_components * model.n_latent
    bias[size : 2 * size] = 1.5
    model.encoder.set_linear(weight, bias)


@pytest.mark.parametrize(("n_components", "working_bytes"), [(1, 2**26), (3, 2**26), (3, 2**16)])
def test_many_draws_come_to_the_likelihood_within_their_errors(generator, n_components, working_bytes):
    truth, batch = LinearGaussian(), random_rows(generator)
    model = truth.model(n_components)
    spread_encoder(model, generator)
    found = estimate_iwelbo(model, batch, 20_000, generator=generator, working_bytes=working_bytes)
    shows = batch.observed.any(dim=1)  # for the row that shows nothing the posterior is exact
    z = ((found.log_prob - truth.log_prob(*batch_parts(batch))) / found.standard_error)[shows]
    assert stats.chi2.sf(z.square().sum().item(), len(z)) > FAILURE_RATE
    assert found.standard_error.max() < 0.1


@pytest.mark.parametrize("n_components", [1, 3])
def test_the_standard_error_is_the_spread_of_bounds(generator, n_components):
    row = without_last(generator, n_rows=1)
    batch = row[torch.zeros(400, dtype=torch.long)]
    model = LinearGaussian().model(n_components)
    spread_encoder(model, generator)
    found = estimate_iwelbo(model, batch, 3000, generator=generator)
    ratio = found.log_prob.var().item() / found.standard_error.square().mean().item()
    sides = stats.chi2.cdf(ratio * 399, 399), stats.chi2.sf(ratio * 399, 399)
    assert min(sides) > FAILURE_RATE


@pytest.mark.parametrize("n_components", [1, 3])
def test_a_bound_of_one_piece_is_that_of_its_weights(n_components):
    model = LinearGaussian().model(n_components)
    spread_encoder(model, torch.Generator().manual_seed(2))
    batch = random_rows(torch.Generator().manual_seed(3))
    found = estimate_iwelbo(model, batch, 5 * n_components, generator=torch.Generator().manual_seed(4))
    objective = LatentObjective.for_model(model, sampling="stratified", n_draws=5)
    weighted = model.log_weights(batch, objective.draw_noise(batch, torch.Generator().manual_seed(4)))
    assert_close(found.log_prob, iwelbo(weighted.log_w, weighted.log_strata).detach(), EXACT)


@pytest.mark.parametrize("n_components", [1, 3])
@pytest.mark.parametrize("working_bytes", [1, 2**15])
def test_bound_and_error_are_those_of_all_pieces_together(
    generator, monkeypatch, n_components, working_bytes
):
    model, row = LinearGaussian().model(n_components), random_rows(generator)[:1]
    spread_encoder(model, generator)
    seen, log_weights = [], model.log_weights

    def recorded(*arguments, **settings):
        seen.append(log_weights(*arguments, **settings))
        return seen[-1]

    monkeypatch.setattr(model, "log_weights", recorded)
    found = estimate_iwelbo(model, row, 100, generator=generator, working_bytes=working_bytes)
    assert len(seen) > 1
    log_w, log_strata = torch.cat([piece.log_w for piece in seen]), seen[0].log_strata
    assert len(log_w) == math.ceil(100 / n_components)
    assert_close(found.log_prob, iwelbo(log_w, log_strata), EXACT)
    w, strata = log_w[:, 0].exp().numpy(), log_strata[0].exp().numpy()
    error = np.sqrt((strata**2 * w.var(axis=0, ddof=1) / len(w)).sum()) / (strata * w.mean(axis=0)).sum()
    assert found.standard_error.item() == pytest.approx(error, abs=EXACT)


def test_the_bound_counts_the_mask_with_drawn_cells_on_request(generator):
    truth, mask = LinearGaussian(n_latent=1, n_features=2), LinearMask(2)
    mask.weight.data, mask.bias.data = torch.tensor([[0.2, -0.9], [0.4, -1.5]]), torch.tensor([0.5, -0.3])
    model = truth.model(mask_model=mask)
    spread_encoder(model, generator)

    def logits(a, b):
        return 0.5 + 0.2 * a - 0.9 * b, -0.3 + 0.4 * a - 1.5 * b

    joint = estimate_iwelbo(model, HALF_SEEN, 100_000, generator=generator, with_mask=True)
    expected = torch.tensor([hidden_integral(truth, logits, x) for x in (0.4, -1.3)], dtype=torch.float64)
    z = (joint.log_prob - expected) / joint.standard_error
    assert stats.chi2.sf(z.square().sum().item(), 2) > FAILURE_RATE
    assert joint.standard_error.max() < 0.02
    alone = estimate_iwelbo(model, HALF_SEEN, 100_000, generator=generator)
    z = (alone.log_prob - truth.log_prob(*batch_parts(HALF_SEEN))) / alone.standard_error
    assert stats.chi2.sf(z.square().sum().item(), 2) > FAILURE_RATE


def test_no_draws_are_refused(generator):
    model, batch = LinearGaussian().model(), random_rows(generator)
    with pytest.raises(ValueError, match="n_draws must be at least 1"):
        estimate_iwelbo(model, batch, 0, generator=generator)
    with pytest.raises(ValueError, match="n_draws must be at least 1"):
        refit_encoder(model, batch, n_draws=0, generator=generator)


# ----------------------------------------------------------------------------------------------- refit

QUICK = TrainingSettings(max_epochs=400, learning_rate=0.03, schedule="cosine", patience=400, compile=False)


def test_a_refit_encoder_reaches_the_likelihood_and_nothing_else_changes(generator):
    truth, batch = LinearGaussian(), without_last(generator, n_rows=64)
    model = truth.model(fill=LearnedFill(N_FEATURES), mask_model=LinearSelfMask(N_FEATURES))
    model.decoder.output.bias.requires_grad_(False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    flags = {name: value.requires_grad for name, value in model.named_parameters()}

    refit = refit_encoder(model, batch, n_draws=5, generator=generator, settings=QUICK)
    bounds = [estimate_iwelbo(one, batch, 5, generator=generator).log_prob.mean() for one in (model, refit)]
    likelihood = truth.log_prob(*batch_parts(batch)).mean()
    assert bounds[0] < likelihood - 0.1
    assert abs(bounds[1] - likelihood) < QUADRATURE  # the exact posterior is linear in these rows

    assert {name: value.requires_grad for name, value in refit.named_parameters()} == flags
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    changed = {
        name.split(".")[0]
        for name, value in refit.state_dict().items()
        if not torch.equal(value, before[name])
    }
    assert changed == {"encoder", "fill"}


def test_a_refit_with_the_mask_fits_the_joint_posterior(generator):
    _, model = self_masked()
    model.mask_model.raw_slope.data[1], model.mask_model.bias.data[1] = 10.0, 15.0  # hidden above 1.5
    row = HALF_SEEN[:1]
    points = LatentGrid(1, (-6.0, 6.0), 2000).points
    means = []
    for with_mask in (False, True):
        settings = replace(QUICK, max_epochs=150, learning_rate=0.05)
        refit = refit_encoder(
            model, row, n_draws=20, generator=generator, settings=settings, with_mask=with_mask
        )
        truth = log_joint(model, row, points, with_mask=with_mask).softmax(dim=0)[:, 0]
        means.append((refit.posterior(row).mean().item(), (truth * points[:, 0]).sum().item()))
    assert abs(means[0][1] - means[1][1]) > 0.2
    for fitted, true in means:
        assert abs(fitted - true) < 0.05


def test_a_mixture_is_refitted_and_chosen_by_other_rows_if_given(generator):
    truth, batch = LinearGaussian(), random_rows(generator, n_rows=64)
    model = truth.model(n_components=2)
    spread_encoder(model, generator)
    settings = replace(QUICK, max_epochs=30)
    many = batch[torch.arange(64).repeat(20)]
    before = estimate_iwelbo(model, many, 2, generator=generator).log_prob.mean()
    for validation in (None, batch):
        refit = refit_encoder(
            model, batch, n_draws=5, generator=generator, settings=settings, validation=validation
        )
        after = estimate_iwelbo(refit, many, 2, generator=generator).log_prob.mean()
        assert before + 0.3 < after < truth.log_prob(*batch_parts(batch)).mean()
