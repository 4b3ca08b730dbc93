"""The ridge penalty: linear in ordinary precisions, logarithmic beyond, with the stated slope everywhere."""

import numpy as np
import pytest
import torch

from halfseen import GaussianImputer
from halfseen.data.incomplete import Incomplete
from halfseen.gaussian.distribution import Gaussian
from halfseen.gaussian.em import Ridge


def with_precision(precision):
    return Gaussian(torch.zeros(1), torch.tensor([[1 / precision]], dtype=torch.float64))


@pytest.mark.parametrize("precision", [0.5, 9.0, 11.0, 1e4, 9e6, 2e7, 1e9])
def test_the_variance_of_pseudo_rows_is_the_slope_of_the_penalty(precision):
    ridge = Ridge(2.0, torch.tensor([10.0], dtype=torch.float64), least=1e-6)
    step = 1e-4 * precision
    ends = [with_precision(precision + side * step) for side in (-1, 1)]
    without_determinant = [ridge.penalty(one) - one.log_det for one in ends]
    slope = float(without_determinant[1] - without_determinant[0]) / (2 * step)
    assert slope == pytest.approx(float(ridge.variances(with_precision(precision))), rel=1e-3)


def test_few_rows_are_penalised_as_if_pseudo_rows_had_unit_variance():
    batch = Incomplete.from_array(np.random.default_rng(0).normal(size=(10, 5)))
    close = Gaussian(torch.zeros(5), (torch.full((5, 5), 0.9999) + 1e-4 * torch.eye(5)).double())
    assert Ridge.of(batch, 1.0).variances(close).tolist() == [1.0] * 5


def test_a_weight_of_k_counts_as_k_rows():
    x = np.random.default_rng(0).normal(size=(12, 2))
    weights = torch.arange(1, 13, dtype=torch.float64)
    repeated = np.repeat(x, np.arange(1, 13), axis=0)
    one, two = (
        Ridge.of(Incomplete.from_array(x), 1.0, weights),
        Ridge.of(Incomplete.from_array(repeated), 1.0),
    )
    assert torch.equal(one.reach, two.reach)
    assert one.least == two.least


def test_the_penalty_of_part_of_a_table_has_the_shape_of_that_of_the_table():
    """Otherwise a ridge would be chosen with another penalty than it is used with."""
    x = np.random.default_rng(0).normal(size=(60, 5))
    whole, part = Incomplete.from_array(x), Incomplete.from_array(x[:20])
    assert torch.equal(Ridge.of(part, 1.0, rows_behind=3.0).reach, Ridge.of(whole, 1.0).reach)
    assert not torch.equal(Ridge.of(part, 1.0).reach, Ridge.of(whole, 1.0).reach)


def test_intervals_of_short_tables_of_smooth_curves_hold_their_probability():
    """Given its neighbours, a point of a curve has a small residual, which few rows overfit."""
    rng = np.random.default_rng(0)
    places = np.linspace(0, 1, 30)
    covariance = np.exp(-(np.abs(places[:, None] - places) ** 2) / 0.02) + 1e-3 * np.eye(30)
    curves = rng.multivariate_normal(np.zeros(30), covariance, size=110)
    hidden = rng.random(curves.shape) < 0.1
    imputer = GaussianImputer(random_state=0).fit(np.where(hidden, np.nan, curves))
    low, high = imputer.interval(np.where(hidden, np.nan, curves), level=0.9)
    assert ((low <= curves) & (curves <= high))[hidden].mean() > 0.88
