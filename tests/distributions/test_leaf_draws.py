"""Draws of columns: their distribution, and the gradient they carry."""

import numpy as np
import pytest
import torch
from distributions.leaf_cases import (
    CONTINUOUS,
    COUNTS,
    LEVELS,
    LOC,
    MAX_COUNT,
    PIXELS,
    SCALE,
    grid,
    leaf_of,
    some_parameters,
    support,
    uniforms,
)
from scipy import stats
from tolerances import EXACT, FAILURE_RATE, QUADRATURE

from halfseen.distributions.leaves_counts import poisson_quantile


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_draws_follow_the_distribution_function(name, generator):
    leaf = leaf_of(name)
    parameters = some_parameters(leaf, generator)
    drawn = leaf.sample(parameters.expand(4000, -1), uniforms(generator, 4000, leaf.n_noise))
    for column in leaf.cdf(parameters, drawn).T:
        assert stats.kstest(column.detach().numpy(), "uniform").pvalue > FAILURE_RATE


def p_value(counts, probabilities):
    """Of Pearson's test, after merging what is expected fewer than five times."""
    expected = counts.sum() * probabilities
    rare = expected < 5
    found = np.append(counts[~rare], counts[rare].sum())
    wanted = np.append(expected[~rare], counts.sum() - expected[~rare].sum())
    if wanted[-1] < 1:
        found, wanted = np.append(found[:-2], found[-2:].sum()), np.append(wanted[:-2], wanted[-2:].sum())
    return stats.chi2.sf(((found - wanted) ** 2 / wanted).sum(), df=len(found) - 1)


@pytest.mark.parametrize("name", [*COUNTS, *PIXELS])
def test_draws_of_counts_and_shades_have_the_probabilities_of_the_model(name, generator):
    leaf = leaf_of(name)
    parameters = some_parameters(leaf, generator)
    values = support(leaf, name)
    drawn = leaf.sample(parameters.expand(4000, -1), uniforms(generator, 4000, leaf.n_noise))
    probabilities = leaf.log_prob(parameters, values).exp().numpy()
    for j in range(2):
        nearest = (drawn[:, None, j] - values[:, j]).abs().min(dim=1)
        assert nearest.values.max() < EXACT
        counts = np.bincount(nearest.indices.numpy(), minlength=len(values))
        assert p_value(counts, probabilities[:, j]) > FAILURE_RATE


@pytest.mark.parametrize("name", LEVELS)
def test_drawn_levels_are_one_hot_and_have_their_probabilities(name, generator):
    leaf = leaf_of(name)
    parameters = some_parameters(leaf, generator)
    drawn = leaf.sample(parameters.expand(4000, -1), uniforms(generator, 4000, leaf.n_noise))
    for width, block, mean in zip(
        leaf.widths, drawn.split(leaf.widths, dim=1), leaf.mean(parameters).split(leaf.widths), strict=True
    ):
        assert ((block == 0) | (block == 1)).all()
        assert (block.sum(dim=1) == 1).all()
        if width > 1:
            counts = block.sum(dim=0).numpy()
            assert stats.chisquare(counts, 4000 * mean.detach().numpy()).pvalue > FAILURE_RATE


def pathwise_gradient(leaf, parameters, noise, f):
    draws = leaf.rsample(parameters.expand(len(noise), -1), noise)
    return torch.autograd.grad(f(draws).mean(dim=0).sum(), parameters)[0]


def expected_gradient(leaf, name, parameters, f):
    x, weights = grid(leaf, name)
    total = (leaf.log_prob(parameters, x).exp() * weights * f(x)).sum()
    return torch.autograd.grad(total, parameters)[0]


def noise_grid(leaf, n_points):
    """Noise on a lattice over the unit square: the first of two uniforms is that of the first half."""
    u = (torch.arange(n_points, dtype=torch.float64) + 0.5) / n_points
    if leaf.n_noise == 2:
        return u[:, None].expand(-1, 2)
    first, second = torch.cartesian_prod(u, u).T
    return torch.stack([first, first, second, second], dim=1)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_the_gradient_of_draws_is_that_of_the_expectation(name, generator):
    """Also by the degrees of freedom of a Student-t."""
    leaf = leaf_of(name)
    parameters = some_parameters(leaf, generator).requires_grad_()
    noise = noise_grid(leaf, 1500 if leaf.n_noise == 4 else 40_000)
    found = pathwise_gradient(leaf, parameters, noise, lambda x: torch.tanh(x - 0.3))
    expected = expected_gradient(leaf, name, parameters, lambda x: torch.tanh(x - 0.3))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", COUNTS)
def test_drawn_counts_carry_the_exact_gradient_of_their_mean(name, generator):
    """And of any expectation, with the difference to the next count in the place of the derivative."""
    leaf = leaf_of(name)
    parameters = some_parameters(leaf, generator)
    count = torch.arange(MAX_COUNT + 1.0).double()[:, None].expand(-1, 2)
    slope = leaf._slope(parameters, count)
    parameters.requires_grad_()
    mean = leaf._mean_count(parameters)
    mass = leaf.log_prob(parameters, support(leaf, name)).exp()
    f = torch.tanh(count / 9) + 0.01 * count
    by_parameters = torch.autograd.grad((mass * f).sum(), parameters, retain_graph=True)[0][:2]
    by_mean = by_parameters / torch.autograd.grad(mean.sum(), parameters)[0][:2]
    step = (mass[:-1] * slope[:-1] * f.diff(dim=0)).sum(dim=0)
    torch.testing.assert_close(step, by_mean, rtol=QUADRATURE, atol=QUADRATURE)

    noise = uniforms(generator, 3, leaf.n_noise)
    drawn = leaf.rsample(parameters.expand(3, -1), noise)
    torch.testing.assert_close(drawn, leaf.sample(parameters.expand(3, -1), noise), rtol=0, atol=EXACT)
    found = torch.autograd.grad(drawn.sum(), parameters)[0][:2]
    inner = torch.autograd.grad(leaf.mean(parameters).sum(), parameters)[0][:2]
    expected = inner * leaf._slope(parameters, LOC + SCALE * drawn).sum(dim=0)
    torch.testing.assert_close(found, expected.detach(), rtol=EXACT, atol=EXACT)


def test_a_rounded_logistic_draw_carries_the_gradient_of_its_mean(generator):
    """Exactly so in the limit of many bins inside the range."""
    leaf = leaf_of("discretised-logistic")
    parameters = torch.tensor([0.1, -0.2, -3.0, -2.5]).double().requires_grad_()
    noise = noise_grid(leaf, 100_000)
    found = pathwise_gradient(leaf, parameters, noise, lambda x: x)
    expected = torch.autograd.grad(leaf.mean(parameters).sum(), parameters)[0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [*LEVELS, "bernoulli", "signed-bernoulli"])
def test_relaxed_draws_have_exact_gradients_and_become_exact_draws_at_low_temperature(name, generator):
    leaf = leaf_of(name)
    parameters = some_parameters(leaf, generator, 3).requires_grad_()
    noise = uniforms(generator, 3, leaf.n_noise)
    assert torch.autograd.gradcheck(lambda p: leaf.rsample(p, noise), (parameters,))
    leaf.temperature = 1e-6
    torch.testing.assert_close(leaf.rsample(parameters, noise), leaf.sample(parameters, noise))


@pytest.mark.parametrize("name", LEVELS)
def test_relaxed_levels_sum_to_one_over_each_column(name, generator):
    leaf = leaf_of(name)
    drawn = leaf.rsample(some_parameters(leaf, generator, 5), uniforms(generator, 5, leaf.n_noise))
    for block in drawn.split(leaf.widths, dim=1):
        torch.testing.assert_close(block.sum(dim=1), torch.ones(5).double(), rtol=0, atol=EXACT)


@pytest.mark.parametrize("rate", [0.0, 1e-6, 0.3, 4.0, 1e3, 1e6])
def test_poisson_quantiles_are_those_of_scipy(rate, generator):
    u = torch.cat([uniforms(generator, 500), torch.tensor([1e-12, 1 - 1e-12], dtype=torch.float64)])
    found = poisson_quantile(torch.full_like(u, rate), u)
    np.testing.assert_array_equal(found, np.maximum(stats.poisson(rate).ppf(u.numpy()), 0))
