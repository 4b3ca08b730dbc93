"""Calibration of logits by the number of observed values."""

import numpy as np
import pytest
import torch

from halfseen.sequences.classifier import (
    CountScaling,
    fit_constant_scaling,
    fit_count_scaling,
    hat_functions,
)


def test_weights_of_knots_interpolate_as_numpy_does():
    knots, values = torch.tensor([0.0, 1.0, 4.0]), torch.tensor([2.0, -1.0, 5.0])
    x = torch.linspace(-1, 6, 29)
    found = hat_functions(knots, x) @ values
    np.testing.assert_allclose(found, np.interp(x, knots, values), rtol=1e-6, atol=1e-6)


@pytest.fixture(scope="module")
def rows():
    """True logits, and what a network gives that is too sure, and too high, where few values are known."""
    rng = np.random.default_rng(0)
    counts = torch.from_numpy(rng.integers(0, 200, size=20_000))
    true = torch.from_numpy(rng.normal(-1.5, 1.0, size=len(counts)))
    target = (torch.from_numpy(rng.random(len(counts))) < true.sigmoid()).long()
    few = (counts < 40).double()
    given = (1 + few) * true + 0.5 * few
    return torch.stack([torch.zeros_like(given), given], dim=1), counts, true, target


def test_probabilities_are_right_on_average_for_every_number_of_values(rows):
    """The standard error of a group's mean is about 0.008."""
    logits, counts, true, target = rows
    found = fit_count_scaling(logits, counts, target)(logits, counts).softmax(dim=1)[:, 1]
    constant = fit_constant_scaling(logits, target)(logits, counts).softmax(dim=1)[:, 1]
    groups = [counts < 20, (counts >= 20) & (counts < 60), counts >= 60]
    errors = [[float((p[own] - true.sigmoid()[own]).mean()) for own in groups] for p in (found, constant)]
    assert np.abs(errors[0]).max() < 0.025
    assert abs(errors[1][0]) > 0.04


def test_a_constant_scaling_ignores_counts(rows):
    logits, counts, _, target = rows
    scaling = fit_constant_scaling(logits, target)
    torch.testing.assert_close(scaling(logits, counts), scaling(logits, 0 * counts))


def test_one_count_gives_one_knot():
    logits = torch.zeros(8, 2, dtype=torch.float64)
    scaling = fit_count_scaling(logits, torch.full((8,), 3), torch.tensor([0, 1] * 4))
    assert isinstance(scaling, CountScaling)
    assert scaling.knots.shape == (1,)
    torch.testing.assert_close(scaling(logits, torch.tensor([0] * 8)), logits)
