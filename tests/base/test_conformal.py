"""Split-conformal intervals from the errors of held-out rows."""

import math

import pytest
import torch

from halfseen.base.parameters import check_level
from halfseen.base.predictor import N_QUANTILES, HeldOutErrors


def test_the_half_width_is_the_order_statistic_of_split_conformal_prediction(generator):
    # With as many stored quantiles as rows, the k-th smallest error has the rank (k - 1) / (n - 1).
    errors = torch.randn(99, generator=generator, dtype=torch.float64)
    level = 0.9
    rank = min(1.0, level * (1 + 1 / len(errors)))
    expected = errors.abs().sort().values[math.ceil(rank * (len(errors) - 1))]

    assert HeldOutErrors.of(errors).half_width(level) == expected


def test_intervals_by_half_the_rows_contain_the_stated_share_of_the_other_half(generator):
    errors = torch.randn(2 * 4000, 2, generator=generator, dtype=torch.float64) * torch.tensor([1.0, 5.0])
    half = HeldOutErrors.of(errors[:4000]).half_width(0.8)
    inside = (errors[4000:].abs() <= half).double().mean(dim=0)

    # Two binomial shares of 4,000 rows, each with the standard deviation sqrt(0.8 * 0.2 / 4000) = 0.0063.
    assert ((inside - 0.8).abs() < 5 * 0.0063 * 2**0.5).all()


def test_a_row_of_weight_two_counts_as_two_rows(generator):
    errors = torch.randn(40, 1, generator=generator, dtype=torch.float64)
    weights = torch.tensor([2.0, 1.0]).repeat(20)
    twice = torch.cat([errors, errors[::2]])

    of_weights, of_copies = HeldOutErrors.of(errors, weights), HeldOutErrors.of(twice)
    median = of_weights.quantiles[(len(errors) - 1) // 2]

    assert (twice.abs() <= median).sum() >= len(twice) // 2 - 2
    assert of_weights.quantiles[-1] == of_copies.quantiles[-1]
    assert of_weights.quantiles[0] == of_copies.quantiles[0]


def test_no_more_than_the_stated_number_of_quantiles_is_stored():
    errors = HeldOutErrors.of(torch.arange(5000.0))

    assert errors.quantiles.shape == (N_QUANTILES,)
    assert errors.n_rows == 5000


def test_without_rows_there_are_no_quantiles():
    assert HeldOutErrors.of(torch.zeros(0)).n_rows == 0


@pytest.mark.parametrize("level", [0, 1, -0.1, 1.5, math.nan, "0.9", None, True])
def test_a_level_must_be_between_0_and_1(level):
    with pytest.raises(ValueError, match="level must be between 0 and 1, got"):
        check_level(level)
