"""Proposals for latents of a row: the mode that holds the mass is found, wherever the encoder points."""

import math

import pytest
import torch

from halfseen.distributions.mixture import GaussianMixture
from halfseen.latent.proposals import LatentPoints, propose

SEPARATE = 8.0
SPREADS = (0.2, 0.3)


def narrow_posterior(at, n_latent=2):
    loc = torch.full((1, 1, n_latent), float(at), dtype=torch.float64)
    return GaussianMixture(torch.zeros(1, 1).double(), loc, torch.full_like(loc, 0.3))


def two_modes(minor):
    """The log density of a mixture with modes at 0 and at SEPARATE, the second with so much of the mass."""

    def log_joint(z):
        parts = []
        for share, place, spread in ((1 - minor, 0.0, SPREADS[0]), (minor, SEPARATE, SPREADS[1])):
            distance = ((z - place) / spread).square().sum(dim=-1)
            parts.append(math.log(share) - 0.5 * distance - 2 * math.log(spread * math.sqrt(2 * math.pi)))
        return torch.logaddexp(*parts)

    return log_joint


def evidence_of(log_joint, posterior, seed=0):
    noise, pilot = (LatentPoints.draw(256, 1, 2, s, torch.float64) for s in (seed, seed + 1))
    draws = propose(posterior, lambda rows: log_joint, noise, pilot)
    return float(draws.log_weights(log_joint(draws.z)).logsumexp(dim=0))


@pytest.mark.parametrize("minor", [1e-12, 1e-4])
def test_the_main_mode_is_found_if_the_encoder_points_to_a_minor_one(minor):
    """The density integrates to one; draws of the minor mode alone would find its share."""
    found = evidence_of(two_modes(minor), narrow_posterior(SEPARATE))
    assert found == pytest.approx(0.0, abs=0.1)


def test_a_posterior_at_the_main_mode_is_kept():
    log_joint, posterior = two_modes(1e-6), narrow_posterior(0.0)
    noise, pilot = (LatentPoints.draw(256, 1, 2, seed, torch.float64) for seed in (0, 1))
    draws = propose(posterior, lambda rows: log_joint, noise, pilot)
    assert torch.equal(draws.z, noise.of_posterior(posterior).z)


def test_a_density_that_overflows_gives_draws_all_the_same():
    def log_joint(z):
        return -(z * 1e200).square().sum(dim=-1)

    noise, pilot = (LatentPoints.draw(64, 1, 6, seed, torch.float64) for seed in (0, 1))
    assert propose(narrow_posterior(3.0, n_latent=6), lambda rows: log_joint, noise, pilot).z.isfinite().all()
