"""Laws of every density over incomplete features, on random parameters, rows and masks.

Where a density is one of values and mask together, a value that is seen with probability p turns into one
that is missing by the odds (1 - p) / p; with these, integrals and conditionals are those of any density.
That all its masks together have probability one is shown in tests/distributions/test_self_masked.py.
"""

import math

import numpy as np
import pytest
import torch
from conformance.densities import DENSITIES
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, interpolate, stats
from tolerances import EXACT, FAILURE_RATE, QUADRATURE

from halfseen.data.incomplete import Incomplete

N_DRAWS = 150
SEEDS = st.integers(0, 2**16)
GRID = torch.linspace(-40.0, 40.0, 4001, dtype=torch.float64)
COARSE = torch.linspace(
    -30.0, 30.0, 301, dtype=torch.float64
)  # as wide as the narrowest density: enough for sums

AT_RANDOM = [row for row in DENSITIES if not row.scores_the_mask]
BLOCKS = [
    pytest.param(row, *block, id=f"{row}-{block[0]}") for row in DENSITIES for block in row.make(0).blocks
]  # each density with each of its one-hot codes


@pytest.fixture(scope="module", params=DENSITIES, ids=str)
def row(request):
    return request.param


def rows_and_masks(density, seed, rate=0.5, n_rows=8):
    """Random rows with one-hot blocks, in which each number and each block is missing at `rate`."""
    generator = torch.Generator().manual_seed(seed)
    x = 2 * torch.randn(n_rows, density.n_features, generator=generator, dtype=torch.float64)
    observed = torch.rand(x.shape, generator=generator) >= rate
    for start, stop in density.blocks:
        level = torch.randint(stop - start, (n_rows,), generator=generator)
        x[:, start:stop] = torch.nn.functional.one_hot(level, stop - start)
        observed[:, start:stop] = observed[:, start : start + 1]
    return Incomplete(x, observed)


def numbers(density):
    return [d for d in range(density.n_features) if not any(a <= d < b for a, b in density.blocks)]


def random_order(density, seed):
    """A random order of features in which blocks stay together."""
    units = [*([d] for d in numbers(density)), *(list(range(a, b)) for a, b in density.blocks)]
    order = np.random.default_rng(seed).permutation(len(units))
    return [d for unit in order for d in units[unit]]


def repeated(batch, n_rows):
    return Incomplete(batch.x[:1].repeat(n_rows, 1), batch.observed[:1].repeat(n_rows, 1))


def with_feature(batch, feature, values):
    """One row many times, with the given values seen in one feature."""
    many = repeated(batch, len(values))
    many.x[:, feature], many.observed[:, feature] = values, True
    return many


def without(batch, features):
    observed = batch.observed.clone()
    observed[:, features] = False
    return Incomplete(batch.x, observed)


def log_joint(density, batch, *features):
    """The log density (N) of what is seen and of the values of features as if these were missing."""
    return density.log_prob(batch) + density.log_odds(batch.x)[:, list(features)].sum(dim=1)


def distribution_function(curve, grid):
    """The integral of a density that is known on a grid."""
    return interpolate.CubicSpline(grid, integrate.cumulative_simpson(curve, x=grid, initial=0.0))


@given(seed=SEEDS, rate=st.floats(0, 1))
def test_values_under_the_mask_are_never_read(row, seed, rate):
    density = row.make(seed)
    batch = rows_and_masks(density, seed, rate)
    poisoned = Incomplete(torch.where(batch.observed, batch.x, math.nan), batch.observed)

    def draw(rows):
        return density.draw(rows, torch.Generator().manual_seed(0))

    for answer in (density.log_prob, density.mean, lambda rows: density.quantile(rows, 0.8), draw):
        torch.testing.assert_close(answer(poisoned), answer(batch), rtol=0, atol=0)
    (density.log_prob(poisoned).sum() + density.mean(poisoned).sum()).backward()
    assert density.parameters
    assert all(p.grad is not None and p.grad.isfinite().all() for p in density.parameters)


@given(seed=SEEDS, rate=st.floats(0, 1))
def test_observed_cells_come_back_bit_identical(row, seed, rate):
    density = row.make(seed)
    batch = rows_and_masks(density, seed, rate)
    answers = (density.mean(batch), density.quantile(batch, 0.3), density.draw(batch, torch.Generator()))
    for answer in answers:
        assert answer.isfinite().all()
        assert torch.equal(answer[batch.observed], batch.x[batch.observed])


@pytest.mark.parametrize("row", AT_RANDOM, ids=str)
@given(seed=SEEDS)
def test_a_row_with_nothing_observed_has_log_density_zero(row, seed):
    density = row.make(seed)
    nothing = rows_and_masks(density, seed, rate=1.0)
    np.testing.assert_allclose(density.log_prob(nothing).detach(), 0.0, atol=EXACT)


@given(seed=SEEDS, rate=st.floats(0, 1), choice=st.integers(0, 100))
def test_hiding_a_number_equals_integrating_it_out(row, seed, rate, choice):
    density = row.make(seed)
    batch = rows_and_masks(density, seed, rate, n_rows=1)
    feature = numbers(density)[choice % len(numbers(density))]
    curve = log_joint(density, with_feature(batch, feature, GRID), feature).detach().exp()
    total = integrate.trapezoid(curve.numpy(), GRID.numpy())
    marginal = density.log_prob(without(batch, [feature])).item()
    assert math.log(total) == pytest.approx(marginal, abs=QUADRATURE)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_hiding_two_numbers_equals_integrating_both_out(row, seed):
    density = row.make(seed)
    batch = rows_and_masks(density, seed, 0.3, n_rows=1)
    first, second = numbers(density)[:2]
    one, other = torch.meshgrid(COARSE, COARSE, indexing="ij")
    rows = with_feature(batch, first, one.flatten())
    rows.x[:, second], rows.observed[:, second] = other.flatten(), True
    log_total = log_joint(density, rows, first, second).logsumexp(0) + 2 * math.log(COARSE[1] - COARSE[0])
    marginal = density.log_prob(without(batch, [first, second])).item()
    assert log_total.item() == pytest.approx(marginal, abs=QUADRATURE)


@pytest.mark.parametrize(("row", "start", "stop"), BLOCKS)
@given(seed=SEEDS, rate=st.floats(0, 1))
def test_hiding_a_block_equals_summing_over_its_levels(row, start, stop, seed, rate):
    density = row.make(seed)
    batch = rows_and_masks(density, seed, rate, n_rows=1)
    rows = repeated(batch, stop - start)
    rows.x[:, start:stop] = torch.eye(stop - start, dtype=torch.float64)
    rows.observed[:, start:stop] = True
    marginal = density.log_prob(without(batch, range(start, stop))).item()
    assert density.log_prob(rows).logsumexp(0).item() == pytest.approx(marginal, abs=EXACT)


@given(seed=SEEDS, rate=st.floats(0, 1), choice=st.integers(0, 100), level=st.floats(0.02, 0.98))
def test_the_conditional_of_a_number_is_the_joint_over_the_marginal(row, seed, rate, choice, level):
    density = row.make(seed)
    feature = numbers(density)[choice % len(numbers(density))]
    batch = without(rows_and_masks(density, seed, rate, n_rows=1), [feature])
    joint = log_joint(density, with_feature(batch, feature, GRID), feature).detach()
    curve = (joint - density.log_prob(batch).detach()).exp().numpy()

    mean = integrate.trapezoid(curve * GRID.numpy(), GRID.numpy())
    assert density.mean(batch)[0, feature].item() == pytest.approx(mean, abs=QUADRATURE, rel=QUADRATURE)
    quantile = density.quantile(batch, level)[0, feature].item()
    below = distribution_function(curve, GRID.numpy())
    assert below(quantile) == pytest.approx(level, abs=QUADRATURE)


@pytest.mark.parametrize(("row", "start", "stop"), BLOCKS)
@given(seed=SEEDS, rate=st.floats(0, 1))
def test_the_conditional_of_a_block_is_the_joint_over_the_marginal(row, start, stop, seed, rate):
    density = row.make(seed)
    batch = without(rows_and_masks(density, seed, rate, n_rows=1), range(start, stop))
    rows = repeated(batch, stop - start)
    rows.x[:, start:stop] = torch.eye(stop - start, dtype=torch.float64)
    rows.observed[:, start:stop] = True
    shares = (density.log_prob(rows) - density.log_prob(batch)).exp().detach()
    np.testing.assert_allclose(density.mean(batch)[0, start:stop].detach(), shares, rtol=EXACT)


@given(seed=SEEDS, rate=st.floats(0, 1))
def test_permuting_the_features_with_the_density_changes_nothing(row, seed, rate):
    density = row.make(seed)
    order = random_order(density, seed)
    other, batch = density.permuted(order), rows_and_masks(density, seed, rate)
    moved = Incomplete(batch.x[:, order], batch.observed[:, order])
    kwargs = {"rtol": EXACT, "atol": EXACT}
    torch.testing.assert_close(other.log_prob(moved), density.log_prob(batch), **kwargs)
    torch.testing.assert_close(other.mean(moved), density.mean(batch)[:, order], **kwargs)
    torch.testing.assert_close(other.quantile(moved, 0.7), density.quantile(batch, 0.7)[:, order], **kwargs)


@given(seed=SEEDS, rate=st.floats(0, 1))
def test_results_do_not_depend_on_the_order_of_rows_or_on_other_rows(row, seed, rate):
    density = row.make(seed)
    batch = rows_and_masks(density, seed, rate)
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(seed))
    kwargs = {"rtol": EXACT, "atol": EXACT}
    for answer in (density.log_prob, density.mean, lambda rows: density.quantile(rows, 0.7)):
        torch.testing.assert_close(answer(batch[order]), answer(batch)[order], **kwargs)
        torch.testing.assert_close(answer(batch[:1]), answer(batch)[:1], **kwargs)


@pytest.mark.parametrize("row", AT_RANDOM, ids=str)
@given(seed=SEEDS, choice=st.integers(0, 100))
def test_the_density_of_a_number_integrates_to_one(row, seed, choice):
    density = row.make(seed)
    nothing = rows_and_masks(density, seed, rate=1.0, n_rows=1)
    feature = numbers(density)[choice % len(numbers(density))]
    curve = density.log_prob(with_feature(nothing, feature, GRID)).detach().exp()
    assert integrate.trapezoid(curve.numpy(), GRID.numpy()) == pytest.approx(1.0, abs=QUADRATURE)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_draws_of_numbers_follow_the_density(row, seed):
    """By the transformation to uniforms: the first number alone, then the second given the first."""
    density = row.make(seed)
    first, second = numbers(density)[:2]
    batch = without(rows_and_masks(density, seed, 0.3, n_rows=1), [first, second])
    drawn = density.draw(repeated(batch, N_DRAWS), torch.Generator().manual_seed(seed)).detach()

    curve = log_joint(density, with_feature(batch, first, GRID), first) - density.log_prob(batch)
    ranks = distribution_function(curve.detach().exp().numpy(), GRID.numpy())(drawn[:, first].numpy())
    assert stats.kstest(ranks, "uniform").pvalue > FAILURE_RATE

    grid, n_points = GRID[::4], len(GRID[::4])
    given_first = with_feature(batch, first, drawn[:, first])  # (N_DRAWS, D)
    rows = given_first[torch.arange(len(drawn)).repeat_interleave(n_points)]
    rows.x[:, second], rows.observed[:, second] = grid.repeat(len(drawn)), True
    joint = log_joint(density, rows, second).reshape(len(drawn), n_points)
    curves = (joint - density.log_prob(given_first)[:, None]).detach().exp().numpy()
    ranks = [
        distribution_function(curve, grid.numpy())(value)
        for curve, value in zip(curves, drawn[:, second].tolist(), strict=True)
    ]
    assert stats.kstest(ranks, "uniform").pvalue > FAILURE_RATE


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("row", "start", "stop"), BLOCKS)
def test_draws_of_levels_follow_the_density(row, start, stop, seed):
    density = row.make(seed)
    batch = without(rows_and_masks(density, seed, 0.3, n_rows=1), range(start, stop))
    drawn = density.draw(repeated(batch, 4000), torch.Generator().manual_seed(seed)).detach()
    levels = drawn[:, start:stop]
    assert (levels.sum(dim=1) == 1).all()
    expected = density.mean(batch)[0, start:stop].detach().numpy() * len(drawn)
    assert (expected > 5).all()
    assert stats.chisquare(levels.sum(dim=0).numpy(), expected).pvalue > FAILURE_RATE
