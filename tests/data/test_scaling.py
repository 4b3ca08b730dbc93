"""Standardisation of what was seen, and of nothing else."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tolerances import EXACT

from halfseen.data.incomplete import Incomplete, Standardizer


@given(seed=st.integers(0, 2**16), rate=st.floats(0, 0.9))
def test_location_and_scale_are_those_of_the_observed_cells(seed, rate):
    rng = np.random.default_rng(seed)
    array = rng.normal(3, 2, size=(30, 3))
    array[rng.random(array.shape) < rate] = np.nan
    array[:2] = [[1.0, 2.0, 3.0], [2.0, 4.0, 9.0]]
    scaler = Standardizer.fit(Incomplete.from_array(array))
    np.testing.assert_allclose(scaler.loc, np.nanmean(array, axis=0), rtol=EXACT)
    np.testing.assert_allclose(scaler.scale, np.nanstd(array, axis=0), rtol=EXACT)
    x = torch.from_numpy(rng.normal(size=(4, 3)))
    torch.testing.assert_close(scaler.inverse(scaler.forward(x)), x, rtol=EXACT, atol=EXACT)


def test_values_under_the_mask_are_never_read():
    x = torch.tensor([[1.0], [3.0], [9.0]], dtype=torch.float64)
    observed = torch.tensor([[True], [True], [False]])
    poisoned = Standardizer.fit(Incomplete(torch.where(observed, x, torch.nan), observed))
    clean = Standardizer.fit(Incomplete(x, observed))
    assert torch.equal(poisoned.loc, clean.loc)
    assert torch.equal(poisoned.scale, clean.scale)


@pytest.mark.parametrize(
    "cells", [[[5.0], [5.0]], [[np.nan], [np.nan]], [[0.0], [0.0]], np.empty((0, 1)), [[1e300]]]
)
def test_a_feature_without_spread_keeps_its_scale(cells):
    scaler = Standardizer.fit(Incomplete.from_array(cells))
    assert scaler.scale.tolist() == [1.0]
    assert torch.isfinite(scaler.loc).all()


@pytest.mark.parametrize("size", [1e308, 1e-300, 1e-320])
def test_extreme_numbers_neither_overflow_nor_vanish(size):
    scaler = Standardizer.fit(Incomplete.from_array([[-size], [size]]))
    np.testing.assert_allclose(scaler.scale, [size], rtol=1e-3)
    assert scaler.forward(torch.tensor([[size]], dtype=torch.float64)).item() == pytest.approx(1, rel=1e-3)


def test_values_further_apart_than_any_float_are_standardised():
    x = torch.tensor([[-1.7e308], [1.7e308], [1.6e308], [1.7e308]], dtype=torch.float64)
    batch = Incomplete(x, torch.ones(4, 1, dtype=torch.bool))
    standard = Standardizer.fit(batch).forward(batch.x)
    assert standard.isfinite().all()
    torch.testing.assert_close(standard.std(correction=0), torch.ones((), dtype=torch.float64))


@pytest.mark.parametrize("centre", [1e3, 1e6, 1e9, -1e12])
def test_a_small_spread_about_a_large_centre_is_a_spread(centre):
    """What counts is what floats can represent: differences of a millionth of a millionth, and far less."""
    spread = 1e4 * np.finfo(np.float64).eps * abs(centre)
    cells = centre + spread * np.random.default_rng(0).normal(size=(500, 1))
    scaler = Standardizer.fit(Incomplete.from_array(cells))
    np.testing.assert_allclose(scaler.scale, (cells - centre).std(axis=0), rtol=1e-3)


@pytest.mark.parametrize("value", [0.1, 1e9 / 3, -1e300 / 7, 1e-310])
def test_equal_values_have_no_spread_though_their_sum_is_rounded(value):
    scaler = Standardizer.fit(Incomplete.from_array(np.full((100_003, 1), value)))
    assert scaler.scale.tolist() == [1.0]
    np.testing.assert_allclose(scaler.loc, [value])
