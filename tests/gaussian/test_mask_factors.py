"""Factors of hidden cells: their sites against integrals, and their M-steps against finite differences."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, special
from tolerances import EXACT, QUADRATURE

from halfseen.gaussian.mask_factors import (
    FLATTEST,
    HIGHEST,
    NARROWEST,
    GaussianMaskFactor,
    MaskEvidence,
    ProbitMaskFactor,
    Sites,
)

SEEDS = st.integers(0, 2**16)


def draw(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def all_active(n_features):
    return torch.ones(n_features, dtype=torch.bool)


def random_bump(seed, n_features=3):
    return GaussianMaskFactor(all_active(n_features), draw(seed, n_features, 3).clamp(-2, 2))


def random_probit(seed, n_features=3):
    return ProbitMaskFactor(all_active(n_features), draw(seed, n_features, 2) * 2)


def hidden_share(mask, x):
    """The probability of being hidden, straight from the definition."""
    if isinstance(mask, GaussianMaskFactor):
        return (mask.height * torch.exp(-0.5 * mask.precision * (x - mask.centre) ** 2)).numpy()
    slope, intercept = mask.coefficients.T
    return special.ndtr((slope * x + intercept).numpy())


def random_evidence(seed, n_rows=60, n_features=3):
    mean, rest_mean = draw(seed, n_rows, n_features), draw(seed + 1, n_rows, n_features)
    observed = draw(seed + 2, n_rows, n_features) > 0
    variance, rest_variance = (draw(seed + s, n_rows, n_features).exp() for s in (3, 4))
    return MaskEvidence(
        x=torch.where(observed, mean, 0.0),
        observed=observed,
        mean=mean,
        variance=torch.where(observed, 0.0, variance),
        rest_mean=rest_mean,
        rest_variance=rest_variance,
        weights=draw(seed + 5, n_rows, 1).exp(),
    )


def explained(mask, evidence):
    """The objective of `m_step`, for each feature, from its definition."""
    x, hidden, weights = evidence.x.numpy(), ~evidence.observed.numpy(), evidence.weights.numpy()
    if isinstance(mask, GaussianMaskFactor):
        shown = np.log1p(-hidden_share(mask, evidence.x))
        c, q = mask.centre.numpy(), mask.precision.numpy()
        spread = evidence.variance.numpy() + (evidence.mean.numpy() - c) ** 2
        unseen, prior = np.log(mask.height.numpy()) - 0.5 * q * spread, 0.0
    else:
        slope, intercept = mask.coefficients.numpy().T
        scale = np.sqrt(1 + slope**2 * evidence.rest_variance.numpy())
        unseen = special.log_ndtr((slope * evidence.rest_mean.numpy() + intercept) / scale)
        shown = special.log_ndtr(-(slope * x + intercept))
        prior = -0.5 * (slope / 30) ** 2
    return (weights * np.where(hidden, unseen, shown)).sum(axis=0) + prior


@given(seed=SEEDS)
@pytest.mark.parametrize("make", [random_bump, random_probit])
def test_shown_and_hidden_add_up_to_one(make, seed):
    mask, x = make(seed), 3 * draw(seed + 1, 20, 3)
    np.testing.assert_allclose(mask.log_observed(x).exp(), 1 - hidden_share(mask, x), rtol=1e-8, atol=EXACT)


def test_the_sites_of_a_bump_are_its_factor():
    mask, x = random_bump(1), draw(2, 50, 3)
    sites = mask.sites(x, torch.ones_like(x))
    scale = mask.log_scale(x, torch.ones_like(x), sites)
    found = torch.exp(scale - 0.5 * sites.precision * x**2 + sites.linear * x)
    np.testing.assert_allclose(found, hidden_share(mask, x), rtol=EXACT)


@given(seed=SEEDS)
def test_a_site_of_a_probit_has_its_mass_mean_and_variance(seed):
    """Against the integral of the normal times the probit."""
    mask = random_probit(seed, 1)
    loc, variance = 2 * draw(seed + 1, 1, 1), draw(seed + 2, 1, 1).exp()
    sites = mask.sites(loc, variance)
    total = 1 / variance + sites.precision
    m, s = loc.item(), math.sqrt(variance.item())
    grid = np.linspace(m - 12 * s, m + 12 * s, 40_001)
    density = np.exp(-0.5 * ((grid - m) / s) ** 2) / (s * math.sqrt(2 * math.pi))
    curve = density * hidden_share(mask, torch.from_numpy(grid)[:, None])[:, 0]
    mass = integrate.simpson(curve, x=grid)
    mean = integrate.simpson(curve * grid, x=grid) / mass
    spread = integrate.simpson(curve * (grid - mean) ** 2, x=grid) / mass
    assert ((loc / variance + sites.linear) / total).item() == pytest.approx(mean, abs=QUADRATURE)
    assert (1 / total).item() == pytest.approx(spread, rel=QUADRATURE)
    tau, nu = sites.precision.item(), sites.linear.item()
    scale = mask.log_scale(loc, variance, sites).item()
    site_mass = integrate.simpson(density * np.exp(scale - 0.5 * tau * grid**2 + nu * grid), x=grid)
    assert site_mass == pytest.approx(mass, rel=QUADRATURE)


@pytest.mark.parametrize("slope", [0.0, 1e3, -1e6, 1e12])
@pytest.mark.parametrize("loc", [0.0, 1e6, -1e6])
def test_sites_of_extreme_probits_are_finite_and_never_negative(slope, loc):
    mask = ProbitMaskFactor(all_active(1), torch.tensor([[slope, 0.3]], dtype=torch.float64))
    loc, variance = (torch.full((1, 1), v, dtype=torch.float64) for v in (loc, 0.5))
    sites = mask.sites(loc, variance)
    assert sites.precision >= 0
    for part in (sites.precision, sites.linear, mask.log_scale(loc, variance, sites)):
        assert part.isfinite().all()


@pytest.mark.parametrize("make", [random_bump, random_probit])
def test_inactive_features_contribute_nothing_and_never_change(make):
    mask = make(0)
    active = torch.tensor([True, False, True])
    mask = type(mask)(active, mask.coefficients)
    loc, variance = draw(1, 5, 3), draw(2, 5, 3).exp()
    sites = mask.sites(loc, variance)
    told = (sites.precision, sites.linear, mask.log_scale(loc, variance, sites), mask.log_observed(loc))
    for part in told:
        assert (part[:, 1] == 0).all()
        assert (part[:, 0] != 0).all()
    reached = mask.m_step(random_evidence(3)).coefficients
    assert torch.equal(reached[1], mask.coefficients[1])
    assert not torch.equal(reached[0], mask.coefficients[0])


@given(seed=SEEDS)
@pytest.mark.parametrize("make", [random_bump, random_probit])
def test_an_m_step_never_loses(make, seed):
    mask, evidence = make(seed), random_evidence(seed + 10)
    for _ in range(3):
        before, mask = explained(mask, evidence), mask.m_step(evidence)
        after = explained(mask, evidence)
        assert (after >= before - 1e-9 * np.abs(before)).all()


def interior_evidence(make, n_rows=2000):
    """Cells that a mask of the kind hid, so that the best coefficients lie within their bounds."""
    truth = GaussianMaskFactor(
        all_active(2), torch.tensor([[0.5, 0.3, 1.0], [-1.0, -0.5, 0.0]], dtype=torch.float64)
    )
    if make is random_probit:
        truth = ProbitMaskFactor(all_active(2), torch.tensor([[1.5, 0.2], [-0.7, -0.4]], dtype=torch.float64))
    x, uniform = draw(7, n_rows, 2), torch.special.ndtr(draw(8, n_rows, 2))
    observed = uniform > torch.from_numpy(hidden_share(truth, x))
    ones = torch.ones_like(x)
    shown = torch.where(observed, x, 0.0)
    variance = torch.where(observed, 0.0, 0.1 * ones)
    return MaskEvidence(shown, observed, x, variance, x, 0.1 * ones, ones[:, :1])


@pytest.mark.parametrize("make", [random_bump, random_probit])
def test_where_m_steps_come_to_rest_the_gradient_is_zero(make):
    mask, evidence = make(0, 2), interior_evidence(make)
    for _ in range(100):
        mask = mask.m_step(evidence)
    step = 1e-5
    for j in range(mask.coefficients.shape[1]):
        ends = []
        for sign in (1, -1):
            moved = mask.coefficients.clone()
            moved[:, j] += sign * step
            ends.append(explained(type(mask)(mask.active, moved), evidence))
        assert np.abs((ends[0] - ends[1]) / (2 * step)).max() < 1e-3  # of 2000 cells


def test_an_m_step_at_a_bound_still_moves_the_other_coefficients():
    """Cells hidden without regard to their value want the flattest bump, with their share on average."""
    x, n_rows = draw(0, 4000, 1), 4000
    observed = torch.special.ndtr(draw(1, n_rows, 1)) > 0.3
    variance = torch.zeros_like(x)
    shown = torch.where(observed, x, 0.0)
    evidence = MaskEvidence(shown, observed, x, variance, x, variance, torch.ones_like(x))
    start = torch.tensor([[0.0, math.log(FLATTEST), 2.0]], dtype=torch.float64)
    mask = GaussianMaskFactor(all_active(1), start)
    for _ in range(50):
        mask = mask.m_step(evidence)
    assert hidden_share(mask, x).mean() == pytest.approx((~observed).double().mean().item(), abs=1e-3)
    assert mask.precision.item() < 0.02


def test_coefficients_of_bumps_keep_within_their_bounds():
    far = torch.tensor([[1e6, 1e6, 1e6], [-1e6, -1e6, -1e6]], dtype=torch.float64)
    mask = random_bump(0, 2).with_coefficients(far)
    assert mask.coefficients[:, 0].tolist() == [1e6, -1e6]
    np.testing.assert_allclose(mask.precision, [NARROWEST, FLATTEST])
    assert mask.coefficients[0, 2] == HIGHEST
    assert (mask.height < 1).all()
    assert (mask.height > 0).all()


def test_a_bump_starts_at_the_mean_site_with_about_the_rate_that_is_hidden():
    n_rows = 1000
    observed = torch.arange(n_rows)[:, None] >= 250
    full = torch.ones(n_rows, 1, dtype=torch.float64)
    mask = GaussianMaskFactor.start(all_active(1), Sites(0.5 * full, 0.5 * full), observed)
    assert mask.centre.item() == pytest.approx(1.0)
    assert mask.precision.item() == pytest.approx(0.5)
    grid = torch.linspace(-10, 10, 4001, dtype=torch.float64)
    share = (
        hidden_share(mask, grid[:, None])[:, 0] * np.exp(-0.5 * grid.numpy() ** 2) / math.sqrt(2 * math.pi)
    )
    assert integrate.simpson(share, x=grid.numpy()) == pytest.approx(0.25, abs=1e-6)


def test_a_probit_starts_flat_at_the_rate_that_is_missing():
    mask = ProbitMaskFactor.start(all_active(2), torch.tensor([0.25, 1.0], dtype=torch.float64))
    x = draw(0, 5, 2)
    np.testing.assert_allclose(mask.log_observed(x).exp()[:, 0], 0.75, rtol=EXACT)
    assert mask.log_observed(x).isfinite().all()


def test_steep_slopes_have_a_smaller_prior_and_inactive_ones_do_not_count():
    coefficients = torch.tensor([[60.0, 0.0], [1e9, 0.0]], dtype=torch.float64)
    mask = ProbitMaskFactor(torch.tensor([True, False]), coefficients)
    assert mask.log_prior().item() == pytest.approx(-2.0)
    assert random_bump(0).log_prior() == 0


def test_damped_sites_lie_between_old_and_new():
    old, new = Sites(draw(0, 2, 2), draw(1, 2, 2)), Sites(draw(2, 2, 2), draw(3, 2, 2))
    mixed = new.damped(old, 0.75)
    torch.testing.assert_close(mixed.precision, 0.25 * old.precision + 0.75 * new.precision)
    torch.testing.assert_close(mixed.linear, 0.25 * old.linear + 0.75 * new.linear)
