"""The normal tail against scipy, and against integrals where scipy loses its digits."""

import numpy as np
import pytest
import torch
from scipy import integrate, special
from tolerances import EXACT

from halfseen.gaussian.mask_factors import FAR, log_normal_cdf, truncation

NEAR_AND_FAR = torch.cat(
    [
        torch.linspace(-60.0, 12.0, 7201, dtype=torch.float64),
        torch.tensor([FAR, -1e3, -1e6, -1e12, -1e100, 50.0, 1e12], dtype=torch.float64),
    ]
)


def test_the_log_mass_equals_that_of_scipy():
    expected = special.log_ndtr(NEAR_AND_FAR.numpy())
    np.testing.assert_allclose(log_normal_cdf(NEAR_AND_FAR), expected, rtol=1e-14, atol=1e-15)


def test_the_rise_equals_mills_ratio():
    expected = np.sqrt(2 / np.pi) / special.erfcx(-NEAR_AND_FAR.numpy() / np.sqrt(2))
    np.testing.assert_allclose(truncation(NEAR_AND_FAR)[0], expected, rtol=1e-11, atol=1e-30)


@pytest.mark.parametrize("z", [-1000.0, -100.0, -36.0, -34.0, -5.0, -0.5, 0.0, 2.0])
def test_truncation_lifts_the_mean_and_lowers_the_variance_as_integrals_say(z):
    """With the shape of the distribution of y > 0 at scale 1 / |z|, so that nothing underflows."""
    scale = 1 / max(1.0, -z)
    weights = [
        integrate.quad(lambda t, k=k: t**k * np.exp(z * t * scale - 0.5 * (t * scale) ** 2), 0, 60)[0]
        for k in range(3)
    ]
    mean, second = scale * weights[1] / weights[0], scale**2 * weights[2] / weights[0]
    rise, fall = truncation(torch.tensor(z, dtype=torch.float64))
    assert (rise + z).item() == pytest.approx(mean, rel=1e-7)
    assert (1 - fall).item() == pytest.approx(second - mean**2, rel=1e-7)


def test_the_fall_stays_between_nothing_and_all():
    _, fall = truncation(NEAR_AND_FAR)
    assert ((fall >= 0) & (fall <= 1)).all()
    assert fall[-1] == 0
    assert fall[-3] == pytest.approx(1.0, abs=EXACT)


def test_gradients_are_finite_near_and_far():
    z = NEAR_AND_FAR.clone().requires_grad_()
    log_normal_cdf(z).sum().backward()
    np.testing.assert_allclose(z.grad, truncation(NEAR_AND_FAR)[0], rtol=1e-9, atol=1e-15)
