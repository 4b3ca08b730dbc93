"""A latent-variable model whose every integral is known: x = W z + b + noise, with diagonal noise."""

import numpy as np
import torch

from halfseen.data.margins import inverse_softplus
from halfseen.distributions.leaves import STD_FLOOR
from halfseen.distributions.observation_model import ObservationModel
from halfseen.latent.model import POSTERIOR_FLOOR, LatentModel
from halfseen.nn.residual import ResidualMLP
from oracles import gaussian

N_FEATURES, N_LATENT = 4, 2
BIAS = np.array([0.3, -0.5, 0.0, 1.0])
STD = np.array([0.6, 0.8, 0.5, 0.9])
# Columns that are orthogonal in units of the noise: then the posterior of complete rows is diagonal.
WEIGHT = STD[:, None] * np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 0.5], [0.5, 1.0]]) * [1.2, 0.8]
COVARIANCE = WEIGHT @ WEIGHT.T + np.diag(STD**2)


def posterior_moments():
    """The matrix and the variances (L) of p(z | x) = N(A (x - b), diag v)."""
    scaled = WEIGHT.T / STD**2
    precision = np.eye(N_LATENT) + scaled @ WEIGHT
    assert np.allclose(precision, np.diag(np.diag(precision)))
    return np.linalg.solve(precision, scaled), 1.0 / np.diag(precision)


def linear_gaussian(tilt=0.0, widen=1.0):
    """The model with its exact posterior, or with one that is tilted and too wide."""
    observation = ObservationModel.for_pixels(N_FEATURES, "gaussian")
    encoder = ResidualMLP(2 * N_FEATURES, 2 * N_LATENT, n_blocks=0, width=0)
    decoder = ResidualMLP(N_LATENT, 2 * N_FEATURES, n_blocks=0, width=0)
    model = LatentModel(encoder, decoder, observation, N_LATENT).double()
    matrix, variance = posterior_moments()
    matrix = torch.from_numpy((1.0 - tilt) * matrix)
    scale = torch.from_numpy(widen * np.sqrt(variance))
    bias, std = torch.from_numpy(BIAS), torch.from_numpy(STD)
    zeros = torch.zeros(N_LATENT, N_FEATURES, dtype=torch.float64)
    encoder.set_linear(
        torch.cat([torch.cat([matrix, zeros], dim=1), torch.cat([zeros, zeros], dim=1)]),
        torch.cat([-matrix @ bias + tilt, inverse_softplus(scale - POSTERIOR_FLOOR)]),
    )
    decoder.set_linear(
        torch.cat([torch.from_numpy(WEIGHT), zeros.mT]), torch.cat([bias, inverse_softplus(std - STD_FLOOR)])
    )
    return model


def log_prob(row, observed):
    """Log density of the observed part of one row."""
    return gaussian.log_prob(BIAS, COVARIANCE, row, observed)


def conditional(row, observed):
    """Mean and covariance of the missing part of one row given its observed part."""
    return gaussian.conditional(BIAS, COVARIANCE, row, observed)


def latent_conditional(row, observed):
    """Mean and covariance of the latents given the observed part of one row."""
    weight, std = WEIGHT[observed], STD[observed]
    covariance = np.linalg.inv(np.eye(N_LATENT) + (weight.T / std**2) @ weight)
    return covariance @ (weight.T / std**2) @ (row[observed] - BIAS[observed]), covariance
