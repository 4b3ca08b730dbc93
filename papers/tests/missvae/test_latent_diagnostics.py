"""Diagnostics of latent models against gradients stacked whole, posteriors made by hand, and closed forms."""

import math

import numpy as np
import pytest
import torch
from scipy import special, stats
from tolerances import EXACT, FAILURE_RATE, QUADRATURE

from halfseen.data.incomplete import Incomplete
from halfseen.data.margins import inverse_softplus
from halfseen.distributions.observation_model import ObservationModel
from halfseen.errors import HalfseenWarning
from halfseen.latent.bounds import LatentObjective
from halfseen.latent.model import POSTERIOR_FLOOR, LatentModel, LearnedFill
from halfseen.latent.self_masking import LinearSelfMask
from halfseen.nn.residual import ResidualMLP
from papers.missvae.latent_diagnostics import Divergences, gradient_snr, mixture_usage, posterior_on_grid
from papers.missvae.latent_likelihood import LatentGrid

N_FEATURES = 3


def make_model(n_latent=2, n_components=1, **settings):
    """One linear layer each way; the decoder's scale does not depend on latents."""
    encoder = ResidualMLP(6, LatentModel.n_outputs(n_latent, n_components), width=0, n_blocks=0)
    decoder = ResidualMLP(n_latent, 6, width=0, n_blocks=0)
    observation = ObservationModel.for_pixels(N_FEATURES, "gaussian")
    model = LatentModel(encoder, decoder, observation, n_latent, n_components, **settings).double()
    model.decoder.output.weight.data[N_FEATURES:] = 0.0
    return model


def set_constant_posterior(model, loc, scale, logits=()):
    """Makes the posterior the same for every row."""
    raw = inverse_softplus(torch.tensor(scale, dtype=torch.float64).flatten() - POSTERIOR_FLOOR)
    loc = torch.tensor(loc, dtype=torch.float64).flatten()
    bias = torch.cat([loc, raw, torch.tensor(logits, dtype=torch.float64)])
    model.encoder.set_linear(torch.zeros(len(bias), 2 * N_FEATURES, dtype=torch.float64), bias)


def rows_of(generator, n_rows=20):
    x = torch.randn(n_rows, N_FEATURES, generator=generator, dtype=torch.float64)
    observed = torch.rand(n_rows, N_FEATURES, generator=generator) < 0.7
    observed[:, 0] = True
    return Incomplete(torch.where(observed, x, torch.nan), observed)


# ------------------------------------------------------------------------------------------- gradients


class Replayed:
    """An objective that keeps what it was asked."""

    def __init__(self, objective):
        self.objective, self.asked = objective, []

    def draw_noise(self, batch, generator):
        return self.objective.draw_noise(batch, generator)

    def __call__(self, module, batch, noise):
        self.asked.append((batch, noise))
        return self.objective(module, batch, noise)


def test_signal_and_noise_are_those_of_all_gradients(generator):
    model = make_model(fill=LearnedFill(N_FEATURES), mask_model=LinearSelfMask(N_FEATURES))
    model.decoder.output.weight.requires_grad_(False)
    objective = Replayed(LatentObjective.for_model(model, n_draws=3))
    rows = rows_of(generator)
    found = gradient_snr(model, objective, rows, n_steps=7, batch_size=4, generator=generator)
    assert all(parameter.grad is None for parameter in model.parameters())

    steps = []
    for batch, noise in objective.asked:
        model.zero_grad()
        objective.objective(model, batch, noise).mean().backward()
        steps.append(
            {
                name: value.grad.numpy().copy()
                for name, value in model.named_parameters()
                if value.grad is not None
            }
        )
    assert len(steps) == 7
    assert all(len(batch) == 4 for batch, _ in objective.asked)
    parts = {"encoder": ("encoder.", "fill."), "decoder": ("decoder.",), "mask_model": ("mask_model.",)}
    assert list(found) == ["encoder", "decoder", "mask_model"]
    for part, prefixes in parts.items():
        names = [name for name in steps[0] if name.startswith(prefixes)]
        stacked = np.array([np.concatenate([step[name].ravel() for name in names]) for step in steps])
        mean, std = stacked.mean(axis=0), stacked.std(axis=0, ddof=1)
        moves = std > 0
        assert found[part].snr == pytest.approx(np.abs(mean[moves] / std[moves]).sum(), rel=1e-9)
        assert found[part].variance == pytest.approx((std**2).sum(), rel=1e-9)


def test_gradients_that_never_change_are_dropped(generator):
    """All rows at once and draws of no noise: only rounding could make the steps differ, and it does not."""

    class Noiseless:
        def draw_noise(self, batch, generator):
            return ()

        def __call__(self, module, batch, noise):
            return module.decoder(module.posterior(batch).mean()).square().sum(dim=-1)

    model, rows = make_model(), rows_of(generator)
    found = gradient_snr(model, Noiseless(), rows, n_steps=5, batch_size=len(rows), generator=generator)
    for part in ("encoder", "decoder"):
        n_parameters = sum(value.numel() for value in getattr(model, part).parameters())
        assert found[part].n_dropped == found[part].n_parameters == n_parameters
        assert (found[part].snr, found[part].variance) == (0.0, 0.0)


def test_one_step_has_no_spread(generator):
    model = make_model()
    objective = LatentObjective.for_model(model)
    with pytest.raises(ValueError, match="2 steps"):
        gradient_snr(model, objective, rows_of(generator), n_steps=1, batch_size=4, generator=generator)


def test_more_rows_make_less_noise(generator):
    model = make_model()
    objective, rows = LatentObjective.for_model(model), rows_of(generator, 400)
    noise = [
        gradient_snr(model, objective, rows, n_steps=50, batch_size=size, generator=generator)["encoder"]
        for size in (5, 200)
    ]
    assert noise[1].variance < 0.1 * noise[0].variance
    assert noise[1].snr > 3 * noise[0].snr


# ------------------------------------------------------------------------------------------ components


def test_a_posterior_made_by_hand_is_described(generator):
    model = make_model(n_latent=1, n_components=4)
    probabilities = np.array([0.5, 0.37, 0.1, 0.03])
    loc, scale = [[0.0], [3.0], [3.0], [0.0]], [[1.0], [2.0], [2.0], [1.0]]
    set_constant_posterior(model, loc, scale, np.log(probabilities))
    found = mixture_usage(model, rows_of(generator))
    torch.testing.assert_close(found.mean_weights, torch.tensor(probabilities), rtol=0, atol=EXACT)
    assert found.weight_spread.max() < EXACT
    assert found.in_use.tolist() == [1, 1, 1, 0]  # 0.03 is less than 0.2 / 4
    assert found.components_per_row.tolist() == [0, 0, 0, 1, 0]
    assert found.n_dead == 1
    apart = 3 / math.sqrt((1 + 4) / 2)
    expected = apart * torch.tensor([[0, 1, 1, 0], [1, 0, 0, 1], [1, 0, 0, 1], [0, 1, 1, 0]]).double()
    torch.testing.assert_close(found.distances, expected, rtol=0, atol=EXACT)


def test_use_is_counted_by_row_and_empty_rows_do_not_count():
    model = make_model(n_latent=1, n_components=2)
    set_constant_posterior(model, [[0.0], [1.0]], [[1.0], [1.0]], [0.0, 0.0])
    model.encoder.output.weight.data[-1, N_FEATURES + 1] = -5.0  # component 1 is for rows without feature 1
    observed = torch.tensor([[True, True, True]] * 3 + [[True, False, True]] + [[False] * 3] * 4)
    batch = Incomplete(torch.zeros(8, 3, dtype=torch.float64), observed)
    found = mixture_usage(model, batch)
    low = special.expit(-5.0)
    weights = np.array([low, low, low, 0.5])
    assert found.mean_weights[1].item() == pytest.approx(weights.mean(), abs=EXACT)
    assert found.weight_spread[1].item() == pytest.approx(weights.std(), abs=EXACT)
    assert found.in_use.tolist() == [1.0, 0.25]
    assert found.components_per_row.tolist() == [0.0, 0.75, 0.25]
    assert found.n_dead == 0
    with pytest.raises(ValueError, match="No row has an observed value"):
        mixture_usage(model, batch[4:])


# ------------------------------------------------------------------------------------------ posteriors


def exact_posterior(model, row):
    """The mean and covariance of latents given one row, in numpy."""
    seen = row.observed[0].numpy()
    weight = model.decoder.output.weight.detach().numpy()[:N_FEATURES][seen]
    bias = model.decoder.output.bias.detach().numpy()
    std = 1e-3 + np.log1p(np.exp(bias[N_FEATURES:][seen]))
    precision = np.eye(weight.shape[1]) + weight.T @ (weight / std[:, None] ** 2)
    covariance = np.linalg.inv(precision)
    return covariance @ weight.T @ ((row.x[0].numpy()[seen] - bias[:N_FEATURES][seen]) / std**2), covariance


def gaussian_kl(loc_a, cov_a, loc_b, cov_b):
    shift, inverse = loc_b - loc_a, np.linalg.inv(cov_b)
    logs = np.linalg.slogdet(cov_b)[1] - np.linalg.slogdet(cov_a)[1]
    return 0.5 * (np.trace(inverse @ cov_a) + shift @ inverse @ shift - len(shift) + logs)


def test_posteriors_and_divergences_are_the_closed_forms(generator):
    model, row = make_model(), rows_of(generator)[:1]
    set_constant_posterior(model, [0.4, -0.3], [0.7, 0.6])
    found = posterior_on_grid(model, row, generator=generator, bounds=(-8.0, 8.0), n_points=160)
    loc, covariance = exact_posterior(model, row)
    density = stats.multivariate_normal(loc, covariance).pdf(found.grid.points.numpy())
    assert np.abs(found.log_p.exp().numpy() / math.exp(found.grid.log_volume) - density).max() < QUADRATURE
    q = np.array([0.4, -0.3]), np.diag([0.49, 0.36])
    assert found.encoder.kl_qp == pytest.approx(gaussian_kl(*q, loc, covariance), abs=QUADRATURE)
    assert found.encoder.kl_pq == pytest.approx(gaussian_kl(loc, covariance, *q), abs=QUADRATURE)
    assert max(found.border) < 1e-12


def test_the_divergences_of_a_mixture_posterior_use_the_whole_mixture(generator):
    model, row = make_model(n_latent=1, n_components=2), rows_of(generator)[:1]
    set_constant_posterior(model, [[-1.0], [1.0]], [[0.5], [0.8]], [0.0, 1.0])
    found = posterior_on_grid(model, row, generator=generator, bounds=(-9.0, 9.0), n_points=600)
    axis, share = found.grid.axis.numpy(), special.expit(1.0)
    density = (1 - share) * stats.norm.pdf(axis, -1, 0.5) + share * stats.norm.pdf(axis, 1, 0.8)
    assert np.abs(found.log_q.exp().numpy() / math.exp(found.grid.log_volume) - density).max() < QUADRATURE


def test_jensen_and_shannon_agree_both_ways():
    rng = np.random.default_rng(0)
    a, b = (torch.tensor(rng.normal(size=50)).log_softmax(dim=0) for _ in range(2))
    one, other = Divergences.between(a, b), Divergences.between(b, a)
    assert one.jsd == pytest.approx(other.jsd, abs=EXACT)
    assert (one.kl_qp, one.kl_pq) == pytest.approx((other.kl_pq, other.kl_qp), abs=EXACT)
    expected = stats.entropy(a.exp().numpy(), b.exp().numpy())
    assert one.kl_qp == pytest.approx(expected, abs=EXACT)
    assert Divergences.between(a, a) == Divergences(0.0, 0.0, 0.0)


def test_a_single_draw_is_resampled_to_itself_and_many_to_the_posterior(generator):
    model, row = make_model(n_latent=1), rows_of(generator)[:1]
    set_constant_posterior(model, [0.8], [1.2])
    found = {
        n: posterior_on_grid(model, row, generator=generator, bounds=(-9.0, 9.0), n_points=400, n_draws=n)
        for n in (1, 3, 30, 3000)
    }
    torch.testing.assert_close(found[1].log_q_weighted, found[1].log_q, rtol=0, atol=EXACT)
    divergences = [found[n].weighted.kl_qp for n in (1, 3, 30, 3000)]
    assert divergences == sorted(divergences, reverse=True)
    assert divergences[-1] < 1e-5 < 0.05 < divergences[0]


def test_two_draws_are_resampled_by_the_double_integral(generator):
    model, row = make_model(n_latent=1), rows_of(generator)[:1]
    set_constant_posterior(model, [0.8], [1.2])
    n_repeats = 4000
    found = posterior_on_grid(
        model, row, generator=generator, bounds=(-9.0, 9.0), n_points=300, n_draws=2, n_repeats=n_repeats
    )
    loc, covariance = exact_posterior(model, row)
    axis, width = found.grid.axis.numpy(), 18 / 300
    p, q = stats.norm.pdf(axis, loc[0], math.sqrt(covariance[0, 0])), stats.norm.pdf(axis, 0.8, 1.2)
    given_other = p / (0.5 * ((p / q) + (p / q)[:, None]))  # (other, z)
    expected = width * q @ given_other
    # The estimate is normalised, so its errors are those of deviations from its own total.
    deviation = given_other - expected * (width * given_other.sum(axis=1, keepdims=True))
    error = np.sqrt(width * q @ deviation**2 / n_repeats)
    z = (found.log_q_weighted.exp().numpy() / width - expected) / error
    inside = expected > 1e-4
    assert stats.norm.sf(np.abs(z[inside]).max()) > FAILURE_RATE / inside.sum()
    assert np.abs(z[inside]).max() > 0.1


def test_a_posterior_off_the_grid_is_noticed(generator):
    model, row = make_model(), rows_of(generator)[:1]
    set_constant_posterior(model, [3.0, 3.0], [0.5, 0.5])
    with pytest.warns(HalfseenWarning, match="reaches the border"):
        posterior_on_grid(model, row, generator=generator, bounds=(-3.0, 3.0), n_points=50)


def test_a_posterior_is_of_one_row(generator):
    with pytest.raises(ValueError, match="got 2 rows"):
        posterior_on_grid(make_model(), rows_of(generator)[:2], generator=generator)


def test_the_mask_may_be_informative_of_latents(generator):
    mask = LinearSelfMask(N_FEATURES)
    mask.raw_slope.data = torch.full((N_FEATURES,), 3.0)  # what is large is missing
    model = make_model(n_latent=1, mask_model=mask)
    model.decoder.output.weight.data[:N_FEATURES] = 1.0
    row = Incomplete(torch.zeros(1, 3, dtype=torch.float64), torch.tensor([[True, False, False]]))
    means = [
        (found.log_p.exp() * found.grid.axis).sum()
        for with_mask in (False, True)
        for found in [posterior_on_grid(model, row, generator=generator, with_mask=with_mask)]
    ]
    assert means[1] > means[0] + 0.2


def test_cells_of_a_grid_tile_the_square():
    grid = LatentGrid(2, (-1.0, 1.0), 4)
    assert grid.points.shape == (16, 2)
    assert math.exp(grid.log_volume) * 16 == pytest.approx(4.0, abs=EXACT)
    assert grid.on_border.sum() == 12
