"""Sparsity Normalization against its theorems (by Monte Carlo), its identities, and its limits."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import stats
from tolerances import EXACT, FAILURE_RATE

from halfseen.nn import (
    CausalSparsityLinear,
    Incomplete,
    SNDropout,
    SparsityNorm,
    sn_mask,
)

WIDTHS = (200, 50, 50, 10)
WEIGHT, INPUT, BIAS, SCALE = 0.02, 0.5, 0.1, 0.5  # means of weights, inputs and biases; K / n inputs
RATES = (0.05, 0.2, 0.5, 0.9)
N_DRAWS = 800


def limit(start, bias, act=lambda value: value):
    """The composition f_L o ... o f_1 of the theorems."""
    for width in WIDTHS[:-1]:
        start = act(width * WEIGHT * start + bias)
    return start


def outputs(rate, bias, generator, *, normalised=None, act=lambda value: value):
    """The mean output (N_DRAWS) of networks with random weights, each on a row of its own."""
    x = INPUT + 0.3 * torch.randn(N_DRAWS, WIDTHS[0], generator=generator, dtype=torch.float64)
    batch = Incomplete(x, torch.rand(N_DRAWS, WIDTHS[0], generator=generator) < rate)
    hidden = batch.filled() if normalised is None else normalised(batch)
    for before, after in pairwise(WIDTHS):
        noise = torch.randn(N_DRAWS, before, after, generator=generator, dtype=torch.float64)
        hidden = act((hidden[:, None] @ (WEIGHT + 0.05 * noise))[:, 0] + bias)
    return hidden.mean(dim=1).numpy()


def assert_mean(sample, expected):
    assert stats.ttest_1samp(sample, expected).pvalue > FAILURE_RATE


@pytest.mark.parametrize("rate", RATES)
def test_without_normalisation_linear_networks_are_proportional_to_the_rate(rate, generator):
    """Theorem 1."""
    slope = math.prod(width * WEIGHT for width in WIDTHS[:-1])
    assert_mean(outputs(rate, 0.0, generator), slope * INPUT * rate)


@pytest.mark.parametrize("rate", RATES)
def test_without_normalisation_affine_networks_follow_the_rate(rate, generator):
    """Theorem 2; the spread of the expectations shows that there is something to correct."""
    assert_mean(outputs(rate, BIAS, generator), limit(INPUT * rate, BIAS))
    assert limit(INPUT * 0.9, BIAS) > 5 * limit(INPUT * 0.05, BIAS)


@pytest.mark.parametrize("rate", RATES)
def test_rectified_networks_are_at_least_at_the_limit(rate, generator):
    """Theorem 3."""
    sample = outputs(rate, BIAS, generator, act=torch.relu)
    bound = limit(INPUT * rate, BIAS, act=lambda value: max(value, 0.0))
    assert stats.ttest_1samp(sample, bound, alternative="less").pvalue > FAILURE_RATE


@pytest.mark.parametrize("rate", RATES)
def test_with_the_known_rate_the_mean_does_not_depend_on_it(rate, generator):
    """Theorem 4."""
    sample = outputs(rate, BIAS, generator, normalised=lambda batch: batch.filled() * SCALE / rate)
    assert_mean(sample, limit(INPUT * SCALE, BIAS))


@pytest.mark.parametrize("rate", RATES)
def test_with_the_layer_the_mean_does_not_depend_on_the_rate(rate, generator):
    """Theorem 4 with counts in place of the rate."""
    sample = outputs(rate, BIAS, generator, normalised=SparsityNorm(WIDTHS[0] * SCALE))
    assert_mean(sample, limit(INPUT * SCALE, BIAS))


def a_batch(generator, n_rows=30, n_features=6):
    x = torch.randn(n_rows, n_features, generator=generator, dtype=torch.float64)
    observed = torch.rand(n_rows, n_features, generator=generator) < 0.5
    observed[0] = False
    return Incomplete(x, observed)


@pytest.mark.parametrize("alpha", [1.0, 0.5, "learned"])
@pytest.mark.parametrize("shrinkage", [0.0, 3.0])
def test_complete_rows_are_left_as_they_are(generator, alpha, shrinkage):
    x = torch.randn(9, 7, generator=generator, dtype=torch.float64)
    batch = Incomplete(x, torch.ones(9, 7, dtype=torch.bool))
    layer = SparsityNorm(alpha=alpha, shrinkage=shrinkage).fit(batch.observed)
    torch.testing.assert_close(layer(batch), x, rtol=0, atol=0)


def test_the_mean_count_is_that_of_rows_with_observed_entries(generator):
    batch = a_batch(generator)
    layer = SparsityNorm().fit(batch.observed)
    counts = batch.observed.sum(dim=1)
    assert float(layer.mean_count) == pytest.approx(float(counts[counts > 0].double().mean()))
    assert float(layer.factor(batch.observed)[counts == 2][0]) == pytest.approx(float(layer.mean_count) / 2)


def test_the_mean_count_is_kept_on_other_rows_and_saved_with_the_weights(generator):
    batch = a_batch(generator)
    layer = SparsityNorm().fit(batch.observed)
    known = float(layer.mean_count)
    layer(Incomplete(batch.x, torch.ones_like(batch.observed)))
    assert float(layer.mean_count) == known
    other = SparsityNorm()
    other.load_state_dict(layer.state_dict())
    torch.testing.assert_close(other(batch), layer(batch), rtol=0, atol=0)


def test_a_row_without_observed_entries_becomes_zero_with_finite_gradients(generator):
    batch = a_batch(generator)
    x = torch.where(batch.observed, batch.x, math.nan).requires_grad_()
    layer = SparsityNorm(2.5, alpha="learned")
    output = layer(Incomplete(x, batch.observed))
    assert (output[0] == 0).all()
    output.square().sum().backward()
    assert x.grad.isfinite().all()
    assert layer.alpha.grad.isfinite()
    assert layer.alpha.grad != 0


def test_an_observed_zero_counts(generator):
    values = torch.tensor([[3.0, 0.0]])
    both, one = torch.tensor([[True, True]]), torch.tensor([[True, False]])
    layer = SparsityNorm(2.0)
    assert layer(Incomplete(values, both))[0, 0] == 3.0
    assert layer(Incomplete(values, one))[0, 0] == 6.0


def test_an_exponent_of_one_half_keeps_the_sum_of_squared_factors(generator):
    observed = a_batch(generator).observed[1:]
    observed[:, 0] = True
    factors = SparsityNorm(4.0, alpha=0.5)(Incomplete(torch.ones(observed.shape).double(), observed))
    torch.testing.assert_close(factors.square().sum(dim=1), torch.full((29,), 4.0).double())


def test_shrinkage_damps_the_factor_of_rows_with_few_entries():
    observed = torch.eye(8, dtype=torch.bool)[:1]
    assert float(SparsityNorm(8.0).factor(observed)) == 8.0
    assert float(SparsityNorm(8.0, shrinkage=6.0).factor(observed)) == 2.0


def test_sequences_are_counted_as_a_whole_or_step_by_step(generator):
    x = torch.ones(2, 3, 4, dtype=torch.float64)
    observed = torch.rand(2, 3, 4, generator=generator) < 0.6
    whole = SparsityNorm(6.0, dim=(-2, -1))(Incomplete(x, observed))
    torch.testing.assert_close(whole.sum(dim=(1, 2)), torch.full((2,), 6.0).double())
    steps = SparsityNorm(3.0)(Incomplete(x, observed))
    expected = torch.where(observed.any(dim=2), 3.0, 0.0).double()
    torch.testing.assert_close(steps.sum(dim=2), expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mean_count": 0.0}, "mean_count must be positive and finite, got 0.0"),
        ({"alpha": "half"}, "alpha must be a finite number or 'learned', got 'half'"),
        ({"shrinkage": -1.0}, "shrinkage must be finite and not negative, got -1.0"),
    ],
)
def test_parameters_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SparsityNorm(**options)


def test_a_layer_without_a_mean_count_raises_an_error(generator):
    with pytest.raises(ValueError, match="call fit with the mask of the training rows"):
        SparsityNorm()(a_batch(generator))
    with pytest.raises(ValueError, match="No row has an observed entry"):
        SparsityNorm().fit(torch.zeros(3, 2, dtype=torch.bool))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_factors_of_dropout_sum_to_the_number_of_units(generator, p):
    factors = SNDropout(p, generator=generator)(torch.ones(500, 20, dtype=torch.float64))
    kept = (factors > 0).any(dim=1)
    torch.testing.assert_close(factors[kept].sum(dim=1), torch.full((int(kept.sum()),), 20.0).double())
    assert (factors[~kept] == 0).all()


def test_dropout_keeps_the_mean_up_to_draws_that_keep_nothing(generator):
    p, n_units = 0.7, 4
    units = torch.arange(1.0, 5.0, dtype=torch.float64).expand(40_000, n_units)
    dropped = SNDropout(p, generator=generator)(units).numpy()
    for j in range(n_units):
        assert_mean(dropped[:, j], (1 - p**n_units) * (j + 1))


def test_dropout_changes_nothing_in_evaluation_mode(generator):
    x = torch.randn(5, 4, generator=generator)
    assert SNDropout(0.9).eval()(x) is x
    with pytest.raises(ValueError, match=r"p must be in \[0, 1\), got 1.0"):
        SNDropout(1.0)


def test_rows_of_a_normalised_mask_sum_to_the_mean_number_of_connections(generator):
    mask = torch.rand(12, 9, generator=generator) < 0.4
    mask[3] = False
    normalised = sn_mask(mask).double()
    rows = mask.any(dim=1)
    expected = torch.full((int(rows.sum()),), float(mask.sum()) / 12).double()
    torch.testing.assert_close(normalised[rows].sum(dim=1), expected, atol=1e-6, rtol=0)
    assert (normalised[3] == 0).all()
    assert torch.equal(normalised != 0, mask)
    torch.testing.assert_close(sn_mask(torch.ones(4, 3)), torch.ones(4, 3), atol=0, rtol=0)


def a_causal_layer(generator, n_units=8, n_inputs=6):
    degrees = torch.randint(1, n_inputs, (n_units,), generator=generator)
    layer = CausalSparsityLinear(torch.arange(n_inputs) < degrees[:, None]).double()
    layer.reset_parameters(generator)
    return layer, degrees


def test_causal_normalisation_is_a_loop_over_units(generator):
    layer, _ = a_causal_layer(generator)
    batch = a_batch(generator)
    layer.fit(batch.observed)
    found = layer(batch).detach().numpy()
    x, observed = batch.x.numpy(), batch.observed.numpy()
    mask, weight = layer.connections.numpy(), layer.weight.detach().numpy()
    for k in range(8):
        counts = (observed & mask[k]).sum(axis=1)
        total = np.where(observed & mask[k], x * weight[k], 0.0).sum(axis=1)
        expected = counts.mean() / np.maximum(counts, 1) * total
        np.testing.assert_allclose(found[:, k], expected, atol=EXACT)


def test_causal_normalisation_sees_only_the_inputs_of_each_unit(generator):
    layer, degrees = a_causal_layer(generator)
    batch = a_batch(generator)
    layer.fit(batch.observed)
    for d in range(6):
        flipped = batch.observed.clone()
        flipped[:, d] = ~flipped[:, d]
        changed = (layer(Incomplete(batch.x, flipped)) != layer(batch)).any(dim=0)
        assert torch.equal(changed, degrees > d)
