"""Mechanisms on numbers at the ends of what floats hold: hidden at the rate, or refused in words."""

import numpy as np
import pytest

from halfseen import missingness as ms
from halfseen.errors import SchemaError

ROWS = np.random.default_rng(0).uniform(-1, 1, size=(200, 3))
SCALES = (1.7e308, 1e160, 1e-310)
BY_SQUARES = (ms.LogisticSelfMasking, ms.ProbitSelfMasking, ms.GaussianSelfMasking, ms.MARLogistic)
BY_ORDER = (ms.MCAR, ms.MonotoneDropout)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("mechanism", BY_SQUARES, ids=lambda one: one.__name__)
def test_a_mechanism_that_computes_with_squares_refuses_extreme_numbers_by_name(mechanism, scale):
    with pytest.raises(SchemaError, match=r"Column 'x0' contains numbers up to .* in another unit"):
        mechanism(rate=0.3).fit(scale * ROWS)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("mechanism", BY_ORDER, ids=lambda one: one.__name__)
def test_other_mechanisms_hide_extreme_numbers_too(mechanism, scale):
    holed = mechanism(rate=0.3).fit(scale * ROWS).amputate(scale * ROWS, random_state=0)
    assert 0.05 < np.isnan(holed).mean() < 0.5
    seen = ~np.isnan(holed)
    np.testing.assert_array_equal(holed[seen], (scale * ROWS)[seen])
