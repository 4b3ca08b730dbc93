"""The Fréchet distance against closed cases and a root of the product, and the features it is taken of."""

import numpy as np
import pytest
import scipy.linalg
import torch
from scipy import stats
from tolerances import EXACT, FAILURE_RATE

from halfseen.data.incomplete import Incomplete
from halfseen.distributions.observation_model import ObservationModel
from halfseen.latent.model import LatentModel, PreimputedFill
from halfseen.nn.residual import ResidualMLP
from papers.missvae import frechet
from papers.missvae.frechet import (
    draw_rows,
    encoder_features,
    frechet_distance,
    gaussian_frechet_distance,
)


def test_equal_samples_are_at_no_distance():
    sample = np.random.default_rng(0).normal(size=(50, 4))
    assert frechet_distance(sample, sample[::-1]) < EXACT


def test_diagonal_covariances_compare_their_standard_deviations():
    rng = np.random.default_rng(0)
    loc, std = rng.normal(size=(2, 5)), rng.uniform(0.1, 3, size=(2, 5))
    expected = ((loc[0] - loc[1]) ** 2).sum() + ((std[0] - std[1]) ** 2).sum()
    found = gaussian_frechet_distance(loc[0], np.diag(std[0] ** 2), loc[1], np.diag(std[1] ** 2))
    assert found == pytest.approx(expected, abs=EXACT)


@pytest.mark.parametrize("n_features", [1, 2, 6])
def test_the_distance_is_that_of_the_root_of_the_product(n_features):
    rng = np.random.default_rng(0)
    first = rng.normal(size=(40, n_features)) @ rng.normal(size=(n_features, n_features))
    second = 1 + rng.normal(size=(60, n_features)) @ rng.normal(size=(n_features, n_features))
    a, b = (np.atleast_2d(np.cov(one.T)) for one in (first, second))
    root = np.atleast_2d(scipy.linalg.sqrtm(a @ b)).real
    expected = ((first.mean(0) - second.mean(0)) ** 2).sum() + np.trace(a + b - 2 * root)
    assert frechet_distance(first, torch.tensor(second)) == pytest.approx(expected, abs=1e-8)


def test_singular_covariances_have_a_distance():
    """On lines through the origin at an angle, the roots' product has the cosine as its only value."""
    u, v = np.array([1.0, 0.0]), np.array([0.6, 0.8])
    found = gaussian_frechet_distance([0, 0], 4 * np.outer(u, u), [0, 0], 9 * np.outer(v, v))
    assert found == pytest.approx(4 + 9 - 2 * 2 * 3 * 0.6, abs=EXACT)


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (np.zeros((1, 2)), "two rows or more"),
        (np.full((3, 2), np.nan), "missing"),
        (np.zeros((3, 5)), "5 and 2"),
    ],
)
def test_what_is_no_sample_is_refused(first, message):
    with pytest.raises(ValueError, match=message):
        frechet_distance(first, np.zeros((4, 2)))


def make_model(n_components=2, **settings):
    n_outputs = LatentModel.n_outputs(3, n_components)
    encoder, decoder = ResidualMLP(8, n_outputs, width=16), ResidualMLP(3, 8, width=0, n_blocks=0)
    observation = ObservationModel.for_pixels(4, "gaussian")
    return LatentModel(encoder, decoder, observation, 3, n_components, **settings).double()


@pytest.mark.parametrize("n_components", [1, 2])
def test_features_of_the_encoder_are_the_parameters_of_the_posterior(generator, n_components, monkeypatch):
    monkeypatch.setattr(frechet, "CHUNK", 3)
    model = make_model(n_components)
    x = torch.randn(7, 4, generator=generator, dtype=torch.float64)
    observed = torch.rand(7, 4, generator=generator) < 0.7
    observed[:, 0] = True
    batch = Incomplete(torch.where(observed, x, torch.nan), observed)
    features, posterior = encoder_features(model, batch), model.posterior(batch)
    size = 3 * n_components
    assert features.shape == (7, LatentModel.n_outputs(3, n_components))
    assert not features.requires_grad
    torch.testing.assert_close(features[:, :size], posterior.loc.detach().flatten(1), rtol=0, atol=EXACT)
    scale = torch.nn.functional.softplus(features[:, size : 2 * size]) + 1e-5
    torch.testing.assert_close(scale, posterior.scale.detach().flatten(1), rtol=0, atol=EXACT)


def test_drawn_rows_have_the_moments_of_the_model(generator):
    model = make_model()
    weight, bias = model.decoder.output.weight.detach(), model.decoder.output.bias.detach()
    weight[4:] = 0.0  # the scale does not depend on latents
    rows = draw_rows(model, 20_000, generator=generator)
    std = 1e-3 + torch.nn.functional.softplus(bias[4:])
    covariance = (weight[:4] @ weight[:4].T + std.square().diag()).numpy()
    assert rows.observed.all()
    z = (rows.x.mean(dim=0) - bias[:4]).numpy() * np.sqrt(len(rows) / covariance.diagonal())
    assert 2 * stats.norm.sf(np.abs(z).max()) > FAILURE_RATE / 4
    # Given the covariance of a Gaussian, the estimate's errors have a known variance.
    spread = np.sqrt((np.outer(covariance.diagonal(), covariance.diagonal()) + covariance**2) / len(rows))
    z = (np.cov(rows.x.numpy().T) - covariance) / spread
    assert 2 * stats.norm.sf(np.abs(z).max()) > FAILURE_RATE / 10


def test_drawn_rows_can_be_read_by_encoders_of_preimputed_rows(generator):
    model = make_model(fill=PreimputedFill())
    rows = draw_rows(model, 5, generator=generator)
    assert encoder_features(model, rows).shape == (5, 14)
    assert len(draw_rows(model, 0, generator=generator)) == 0
