"""Random effects of groups: Gibbs steps against closed forms, and tables with repeated rows."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats
from tolerances import FAILURE_RATE

from halfseen.chained.effects import (
    EFFECT_VARIANCE,
    EXTRA_FREEDOM,
    EffectDraw,
    GroupedRows,
    LevelRegressions,
    MixedRegression,
    RowGroups,
    cross_products,
    draw_coefficients,
    draw_covariance,
    sequential,
)
from halfseen.chained.regressions import Noise
from halfseen.data.incomplete import Incomplete


class _Given(Noise):
    """Normals that are given one after the other, the same in every chain."""

    def __init__(self, values, n_chains):
        self.values, self.n_chains = iter(values), n_chains

    def normals(self, *shape):
        flat = list(itertools.islice(self.values, int(np.prod(shape))))
        return torch.tensor(flat, dtype=torch.float64).reshape(1, *shape).expand(self.n_chains, *shape)


@pytest.fixture
def rows():
    """A design (N, P) with a constant, two inputs with effects, and a target in four groups."""
    rng = np.random.default_rng(0)
    group = torch.tensor([0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3])
    design = torch.from_numpy(np.c_[np.ones(14), rng.normal(size=(14, 2))])[None]
    inputs = torch.from_numpy(np.c_[np.ones(14), rng.normal(size=14)])
    return design, GroupedRows(group, 4, inputs), torch.from_numpy(rng.normal(size=(1, 14)))


def _dense_posterior(design, grouping, y, used, prior, variance, covariance):
    """The mean and covariance of coefficients and effects together, by one solve of the whole system."""
    n_groups, n_effects = grouping.n_groups, grouping.inputs.shape[1]
    of_groups = torch.zeros(len(y), n_groups, n_effects, dtype=torch.float64)
    of_groups[torch.arange(len(y)), grouping.group] = grouping.inputs
    whole = torch.cat([design, of_groups.flatten(1)], dim=1)[used]
    precision = whole.mT @ whole / variance
    width = design.shape[1]
    precision[:width, :width] += torch.diag(prior)
    precision[width:, width:] += torch.block_diag(*[torch.linalg.inv(covariance)] * n_groups)
    spread = torch.linalg.inv(precision)
    return spread @ (whole.mT @ y[used]) / variance, spread


def test_coefficients_and_effects_have_the_gaussian_posterior_of_the_whole_system(rows):
    design, grouping, y = rows
    used = torch.ones(14, dtype=torch.bool)
    used[[1, 6, 9]] = False
    used = used[None]
    prior, variance = torch.tensor([1e-6, 0.1, 2.0], dtype=torch.float64), 0.7
    covariance = torch.tensor([[0.5, 0.2], [0.2, 0.4]], dtype=torch.float64)
    mean, spread = _dense_posterior(design[0], grouping, y[0], used[0], prior, variance, covariance)
    places, some = torch.arange(3), design[:, used[0]]
    products = cross_products(some.mT @ some, design, places, grouping, used)
    known = torch.where(used, y, 0.0)
    with_target = (known.unsqueeze(1) @ design)[:, 0], grouping.sums(known.unsqueeze(-1) * grouping.inputs)
    n_normals, v = 3 + 8, torch.tensor([variance], dtype=torch.float64)

    def draw(normals):
        found = draw_coefficients(products, with_target, prior[None], v, covariance[None], _Given(normals, 1))
        return torch.cat([found[0].flatten(), found[1].flatten()])

    centre = draw(np.zeros(n_normals))
    steps = torch.stack([draw(row) - centre for row in np.eye(n_normals)], dim=1)  # the map from noise
    np.testing.assert_allclose(centre, mean, atol=1e-10)
    np.testing.assert_allclose(steps @ steps.mT, spread, atol=1e-10)


def test_covariances_have_the_mean_of_the_inverse_wishart_distribution():
    n_chains = 40_000
    effects = torch.tensor(
        [[1.0, 0.5], [-1.0, 0.2], [0.3, -0.4], [9.0, 9.0], [0.1, 0.1], [0.5, -1.0]]
    ).double()
    used = torch.tensor([True, True, True, False, True, True])
    drawn = draw_covariance(effects.expand(n_chains, -1, -1), used[None], Noise(0, range(n_chains)))
    own = effects[used]
    scale = own.mT @ own + EFFECT_VARIANCE * torch.eye(2)
    freedom = len(own) + 2 + EXTRA_FREEDOM
    error = (drawn.mean(dim=0) - scale / (freedom - 3)) / (drawn.std(dim=0) / n_chains**0.5)
    p = 2 * stats.norm.sf(float(error.abs().max()))
    assert p * 3 > FAILURE_RATE  # three different entries


def _grid_posterior(design, group, y, prior):
    """The posterior of both variances of a random intercept, by numerical integration."""
    n_groups, n_rows = int(group.max()) + 1, len(y)
    member = np.eye(n_groups)[group]
    grid = np.exp(np.linspace(-5, 3.5, 90))
    logs, values = [], []
    for residual, between in itertools.product(grid, grid):
        # coefficients have the prior N(0, 1 / prior) and are integrated out
        total = (
            residual * np.eye(n_rows) + between * member @ member.T + design @ np.diag(1 / prior) @ design.T
        )
        root = np.linalg.cholesky(total)
        half = np.linalg.solve(root, y)
        shape = (1 + EXTRA_FREEDOM) / 2
        log = (
            -np.log(np.diag(root)).sum()
            - 0.5 * half @ half
            + stats.invgamma.logpdf(between, shape, scale=EFFECT_VARIANCE / 2)
        )
        logs.append(log + np.log(between))  # the grid is even in both logarithms, and 1 / residual cancels
        values.append((residual, between))
    weights = np.exp(np.array(logs) - max(logs))
    return np.array(values), weights / weights.sum()


@pytest.mark.slow
def test_gibbs_steps_have_the_posterior_of_both_variances():
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(8), 5)
    design = np.c_[np.ones(40), rng.normal(size=40)]
    y = design @ [0.5, 1.0] + rng.normal(size=8)[group] + 0.8 * rng.normal(size=40)
    prior = np.array([0.05, 0.1])
    n_chains = 2_000
    grouping = GroupedRows(torch.from_numpy(group), 8, torch.ones(40, 1, dtype=torch.float64))
    every, places = torch.ones(1, 40, dtype=torch.bool), torch.arange(2)
    part = MixedRegression(grouping, every, torch.from_numpy(prior), n_chains, latent=False)
    z, noise = torch.from_numpy(design).expand(n_chains, -1, -1), Noise(0, range(n_chains))
    products = cross_products(z.mT @ z, z, places, grouping, every)
    target = torch.from_numpy(y).expand(n_chains, -1)
    for _ in range(60):
        part.sweep(products, z, places, target, noise)
    values, weights = _grid_posterior(design, group, y, prior)
    for found, column in ((part.variance, 0), (part.covariance[:, 0, 0], 1)):
        order = np.argsort(values[:, column], kind="stable")
        share = np.cumsum(weights[order])
        middle = values[order, column][np.searchsorted(share, 0.5)]
        below = int((found < middle).sum())
        # the grid of steps of 10% knows the probability of that value to a few percent
        expected = share[np.searchsorted(values[order, column], middle * 1.001) - 1]
        before = share[np.searchsorted(values[order, column], middle * 0.999) - 1]
        low, high = stats.binom.interval(1 - FAILURE_RATE, n_chains, [before - 0.03, expected + 0.03])
        assert low[0] <= below <= high[1]


def test_levels_have_the_probabilities_of_sequential_regressions():
    index = torch.tensor([0.3, -0.7, 1.1], dtype=torch.float64)
    p = stats.norm.cdf(index)
    expected = [p[0], (1 - p[0]) * p[1], (1 - p[0]) * (1 - p[1]) * p[2], np.prod(1 - p)]
    np.testing.assert_allclose(sequential(index), expected, atol=1e-12)


def test_latent_regressions_recover_effects_of_levels():
    rng = np.random.default_rng(2)
    group = torch.from_numpy(np.repeat(np.arange(60), 20))
    z = rng.normal(size=1200)
    effects = rng.normal(size=60)
    scores = 0.8 * z + effects[group] + rng.normal(size=1200)
    levels = torch.from_numpy(np.where(scores > 0, 0, 1))
    grouping = GroupedRows(group, 60, torch.ones(1200, 1, dtype=torch.float64))
    part = LevelRegressions(grouping, 2, torch.full((2,), 0.16).double(), 4)
    design = torch.from_numpy(np.c_[np.ones(1200), z]).expand(4, -1, -1)
    part.sweep(levels[None], design, torch.arange(2), 60, Noise(0, range(4)))
    coefficients, drawn = part.drawn()
    assert abs(float(coefficients[:, 1].mean()) - 0.8) < 0.2
    assert float(drawn.covariance.mean()) == pytest.approx(1.0, abs=0.5)
    assert np.corrcoef(drawn.values.mean(dim=0)[0, :, 0], effects)[0, 1] > 0.9


def test_effects_of_known_groups_are_added_and_those_of_new_groups_are_drawn():
    values = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]).double()  # one chain, one regression, two groups
    covariance = torch.tensor([[[[4.0, 0.0], [0.0, 9.0]]]]).double()
    effects = EffectDraw(values, covariance)
    inputs = torch.tensor([[[1.0, 0.5], [1.0, -1.0], [1.0, 2.0]]]).double()
    group = torch.tensor([1, 0, -7])
    mean, variance = effects.offsets(group, inputs, None)
    np.testing.assert_allclose(mean.flatten(), [5.0, -1.0, 0.0])
    np.testing.assert_allclose(variance.flatten(), [0.0, 0.0, 4.0 + 4 * 9.0])
    normals = torch.ones(1, 3, 1, 2, dtype=torch.float64)
    mean, variance = effects.offsets(group, inputs, normals)
    np.testing.assert_allclose(mean.flatten(), [5.0, -1.0, 2.0 + 2 * 3.0])
    assert not variance.any()


def test_columns_that_are_constant_within_groups_are_found():
    group = torch.from_numpy(np.repeat(np.arange(6), 2))
    x = torch.arange(12, dtype=torch.float64)
    cells = torch.stack([x, group * 1.0, torch.ones(12).double()], dim=1)
    observed = torch.ones(12, 3, dtype=torch.bool)
    observed[[0, 11], 0] = False
    rows = GroupedRows(group, 6, torch.ones(12, 1, dtype=torch.float64))
    found = RowGroups.of(Incomplete(cells, observed), rows, [0, 1, 2])
    assert found.upper == {1}
    np.testing.assert_allclose(found.table.x[:, 0], [1.0, 2.5, 4.5, 6.5, 8.5, 10.0])
