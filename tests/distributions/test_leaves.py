"""Likelihoods of columns against scipy, quadrature and enumeration."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from tolerances import EXACT, FAILURE_RATE, QUADRATURE

from halfseen.distributions.leaf import NumericLeaf, inverse_softplus, open_uniforms
from halfseen.distributions.leaves import GaussianLeaf, LogNormalLeaf, SharedGaussianLeaf, StudentTLeaf
from halfseen.distributions.leaves_counts import NegativeBinomialLeaf, PoissonLeaf, poisson_quantile
from halfseen.distributions.leaves_levels import CategoricalLeaf, OrdinalLeaf
from halfseen.distributions.leaves_pixels import BernoulliLeaf, DiscretisedLogisticLeaf

LOC, SCALE = torch.tensor([5.0, 20.0]).double(), torch.tensor([2.0, 8.0]).double()
MAX_COUNT = 3000
GROUPS = [torch.tensor([2, 0, 1, 3]), torch.tensor([0, 1]), torch.tensor([1, 0, 2, 2, 0])]
SHARES = [
    torch.tensor([0.1, 0.4, 0.3, 0.2]),
    torch.tensor([0.7, 0.3]),
    torch.tensor([0.1, 0.2, 0.3, 0.3, 0.1]),
]

CONTINUOUS = {
    "gaussian": lambda: GaussianLeaf(2),
    "shared-gaussian": lambda: SharedGaussianLeaf(2),
    "student-t": lambda: StudentTLeaf(2),
    "log-normal": lambda: LogNormalLeaf(LOC, SCALE, torch.tensor([1.4, 2.8]), torch.tensor([0.6, 0.3])),
}
COUNTS = {
    "poisson": lambda: PoissonLeaf(LOC, SCALE, LOC),
    "negative-binomial": lambda: NegativeBinomialLeaf(LOC, SCALE, LOC, torch.tensor([0.5, 4.0])),
}
PIXELS = {
    "bernoulli": lambda: BernoulliLeaf(2),
    "signed-bernoulli": lambda: BernoulliLeaf(2, low=-1.0),
    "discretised-logistic": lambda: DiscretisedLogisticLeaf(2, low=0.0, high=1.0, n_bins=256),
}
LEVELS = {
    "categorical": lambda: CategoricalLeaf([2, 4, 1, 3], torch.arange(1.0, 11.0)),
    "ordinal": lambda: OrdinalLeaf(GROUPS, SHARES),
}
ALL = CONTINUOUS | COUNTS | PIXELS | LEVELS


def leaf_of(name):
    return ALL[name]().double()


def some_parameters(leaf, generator, *shape):
    """Not far from the neutral ones, so that every quadrature below covers the mass."""
    noise = torch.randn(*shape, leaf.n_parameters, generator=generator, dtype=torch.float64)
    return leaf.neutral_parameters() + 0.5 * noise


def uniforms(generator, *shape):
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def quadrature(name):
    """Features (G, 2) and weights (G, 2) that integrate over the support: a double-exponential rule."""
    t = torch.linspace(-4.5, 4.5, 6001, dtype=torch.float64)
    node = torch.sinh(math.pi / 2 * torch.sinh(t))
    weight = (t[1] - t[0]) * math.pi / 2 * torch.cosh(t) * torch.cosh(math.pi / 2 * torch.sinh(t))
    if name != "log-normal":
        return node[:, None].expand(-1, 2), weight[:, None].expand(-1, 2)
    log_value = torch.linspace(-15, 20, 6001, dtype=torch.float64)[:, None].expand(-1, 2)
    x = (log_value.exp() - LOC) / SCALE
    return x, (log_value[1] - log_value[0]) * log_value.exp() / SCALE


def support(leaf, name):
    """Every value (V, W) that a discrete leaf can take, the same in all its columns, with weights of one."""
    if name in COUNTS:
        return (torch.arange(MAX_COUNT + 1.0).double()[:, None] - LOC) / SCALE
    if name == "discretised-logistic":
        return torch.linspace(0, 1, 256, dtype=torch.float64)[:, None].expand(-1, 2)
    return torch.tensor([leaf.low, leaf.high]).double()[:, None].expand(-1, 2)


def grid(leaf, name):
    """Features (G, J) and weights (G, J) of all that a numeric leaf or a pixel can be."""
    if name in CONTINUOUS:
        return quadrature(name)
    values = support(leaf, name)
    return values, torch.ones_like(values)


def one_hots(leaf):
    """Yields for each column the indicators (V, W) of each of its groups, zero elsewhere."""
    start = 0
    for width in leaf.widths:
        yield torch.eye(leaf.width, dtype=torch.float64)[start : start + width]
        start += width


NUMERIC_OR_PIXELS = [*CONTINUOUS, *COUNTS, *PIXELS]


@pytest.mark.parametrize("name", NUMERIC_OR_PIXELS)
def test_a_density_has_total_one_and_the_mean_and_variance_it_reports(name, generator):
    leaf = leaf_of(name)
    x, weights = grid(leaf, name)
    for parameters in some_parameters(leaf, generator, 5):
        mass = leaf.log_prob(parameters, x).exp() * weights
        mean = (mass * x).sum(dim=0)
        variance = (mass * (x - mean).square()).sum(dim=0)
        torch.testing.assert_close(mass.sum(dim=0), torch.ones(2).double(), rtol=0, atol=QUADRATURE)
        torch.testing.assert_close(leaf.mean(parameters), mean, rtol=QUADRATURE, atol=QUADRATURE)
        torch.testing.assert_close(leaf.variance(parameters), variance, rtol=QUADRATURE, atol=QUADRATURE)


@pytest.mark.parametrize("name", LEVELS)
def test_level_probabilities_sum_to_one_over_each_column(name, generator):
    leaf = leaf_of(name)
    parameters = some_parameters(leaf, generator, 5)
    for column, x in enumerate(one_hots(leaf)):
        mass = leaf.log_prob(parameters[:, None], x)[..., column].exp()  # (5, V)
        torch.testing.assert_close(mass.sum(dim=1), torch.ones(5).double(), rtol=0, atol=EXACT)
        here = x.argmax(dim=1)
        torch.testing.assert_close(leaf.mean(parameters)[:, here], mass, rtol=EXACT, atol=EXACT)
        torch.testing.assert_close(leaf.variance(parameters)[:, here], mass - mass**2, rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_the_distribution_function_is_the_integral_of_the_density(name, generator):
    leaf = leaf_of(name)
    parameters = some_parameters(leaf, generator)
    low, high = leaf.filler() - 0.3, leaf.filler() + 0.8
    nodes, weights = map(torch.from_numpy, np.polynomial.legendre.leggauss(60))
    x = low + (high - low) * (nodes[:, None] + 1) / 2
    between = (leaf.log_prob(parameters, x).exp() * weights[:, None] * (high - low) / 2).sum(dim=0)
    found = leaf.cdf(parameters, high) - leaf.cdf(parameters, low)
    torch.testing.assert_close(found, between, rtol=0, atol=QUADRATURE)
    ends = leaf.cdf(parameters, torch.tensor([[-1e9], [1e9]]).double().expand(2, 2))
    torch.testing.assert_close(ends, torch.tensor([[0.0], [1.0]]).double().expand(2, 2))


@pytest.mark.parametrize("name", [*COUNTS, "discretised-logistic"])
def test_the_distribution_function_of_whole_values_is_the_cumulated_probability(name, generator):
    leaf = leaf_of(name)
    parameters = some_parameters(leaf, generator)
    x = support(leaf, name)[:250]
    cumulated = leaf.log_prob(parameters, x).exp().cumsum(dim=0)
    half = (x[1] - x[0]) / 2
    for shift in (0.0, half):  # constant up to the next value
        torch.testing.assert_close(leaf.cdf(parameters, x + shift), cumulated, rtol=0, atol=EXACT)
    assert (leaf.cdf(parameters, x[0] - half) == 0).all()


def test_densities_equal_those_of_scipy(generator):
    x = torch.randn(7, 2, generator=generator, dtype=torch.float64)
    student, log_normal = leaf_of("student-t"), leaf_of("log-normal")
    parameters = some_parameters(student, generator, 7)
    loc, scale, df = parameters[:, :2], 1e-3 + softplus(parameters[:, 2:4]), 3 + softplus(parameters[:, 4:])
    expected = stats.t(df.numpy(), loc.numpy(), scale.numpy())
    np.testing.assert_allclose(student.log_prob(parameters, x), expected.logpdf(x), atol=EXACT)
    np.testing.assert_allclose(student.cdf(parameters, x), expected.cdf(x), atol=EXACT)

    parameters = some_parameters(log_normal, generator, 7)
    centre = log_normal.log_mean + log_normal.log_std * parameters[:, :2]
    spread = log_normal.log_std * (1e-3 + softplus(parameters[:, 2:]))
    expected = stats.lognorm(spread.numpy(), scale=centre.exp().numpy())
    value = (LOC + SCALE * x).abs() + 0.1
    feature = (value - LOC) / SCALE
    density = expected.logpdf(value) + SCALE.log().numpy()  # per unit of the feature
    np.testing.assert_allclose(log_normal.log_prob(parameters, feature), density, atol=1e-9)
    np.testing.assert_allclose(log_normal.cdf(parameters, feature), expected.cdf(value), atol=EXACT)


def test_counts_have_the_probabilities_of_scipy(generator):
    count = torch.tensor([[0.0, 3.0], [1.0, 40.0], [12.0, 100.0]]).double()
    x = (count - LOC) / SCALE
    poisson, negative = leaf_of("poisson"), leaf_of("negative-binomial")
    parameters = some_parameters(poisson, generator)
    rate = LOC * (softplus(parameters) + 1e-6)
    np.testing.assert_allclose(
        poisson.log_prob(parameters, x), stats.poisson(rate.numpy()).logpmf(count), atol=1e-9
    )
    np.testing.assert_allclose(poisson.cdf(parameters, x), stats.poisson(rate).cdf(count), atol=EXACT)
    parameters = some_parameters(negative, generator)
    mean = LOC * (softplus(parameters[:2]) + 1e-6)
    shape = torch.tensor([0.5, 4.0]).double() * (softplus(parameters[2:]) + 1e-6)
    expected = stats.nbinom(shape.numpy(), (shape / (shape + mean)).numpy())
    np.testing.assert_allclose(negative.log_prob(parameters, x), expected.logpmf(count), atol=1e-9)
    np.testing.assert_allclose(negative.cdf(parameters, x), expected.cdf(count), atol=EXACT)


def softplus(t):
    return torch.log1p(t.exp())


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
def test_whole_draws_have_their_probabilities(name, generator):
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
def test_relaxed_draws_have_the_gradient_of_finite_differences_and_harden_when_cold(name, generator):
    leaf = leaf_of(name)
    parameters = some_parameters(leaf, generator, 3).requires_grad_()
    noise = uniforms(generator, 3, leaf.n_noise)
    assert torch.autograd.gradcheck(lambda p: leaf.rsample(p, noise), (parameters,))
    soft = leaf.rsample(parameters, noise)
    sums = torch.autograd.grad(soft.square().sum(), parameters, retain_graph=True)[0]
    leaf.straight_through = True
    through = leaf.rsample(parameters, noise)
    torch.testing.assert_close(through, leaf.sample(parameters, noise), rtol=0, atol=EXACT)
    passed = torch.autograd.grad((through * 2 * soft.detach()).sum(), parameters)[0]
    torch.testing.assert_close(passed, sums, rtol=EXACT, atol=EXACT)
    leaf.straight_through, leaf.temperature = False, 1e-6
    torch.testing.assert_close(leaf.rsample(parameters, noise), leaf.sample(parameters, noise))


@pytest.mark.parametrize("name", LEVELS)
def test_relaxed_levels_sum_to_one_over_each_column(name, generator):
    leaf = leaf_of(name)
    drawn = leaf.rsample(some_parameters(leaf, generator, 5), uniforms(generator, 5, leaf.n_noise))
    for block in drawn.split(leaf.widths, dim=1):
        torch.testing.assert_close(block.sum(dim=1), torch.ones(5).double(), rtol=0, atol=EXACT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [-50.0, 0.0, 50.0])
@pytest.mark.parametrize("name", ALL)
def test_values_draws_and_gradients_stay_finite_at_the_filler_and_at_extreme_outputs(name, size, dtype):
    leaf = ALL[name]().to(dtype)
    signs = torch.tensor([1.0, -1.0, -1.0, 1.0, 1.0]).repeat(leaf.n_parameters)[: leaf.n_parameters]
    parameters = torch.stack([torch.full_like(signs, size), size * signs]).to(dtype).requires_grad_()
    noise = torch.linspace(0, 1, 5).to(dtype)[:, None, None].expand(5, 2, leaf.n_noise)  # ends included
    outputs = [
        leaf.log_prob(parameters, leaf.filler().to(dtype)),
        leaf.mean(parameters),
        leaf.variance(parameters),
        leaf.rsample(parameters, noise),
        leaf.sample(parameters, noise),
    ]
    if isinstance(leaf, NumericLeaf):
        outputs.append(leaf.cdf(parameters, leaf.filler().to(dtype)))
    for output in outputs:
        assert output.dtype == dtype
        assert output.isfinite().all()
        if output.requires_grad:
            gradients = torch.autograd.grad(output.sum(), [parameters, *leaf.parameters()], allow_unused=True)
            assert all(g.isfinite().all() for g in gradients if g is not None)


@pytest.mark.parametrize("name", ALL)
def test_leading_axes_broadcast(name, generator):
    leaf = leaf_of(name)
    parameters = some_parameters(leaf, generator, 4, 3)
    noise = uniforms(generator, 4, 3, leaf.n_noise)
    x = leaf.sample(parameters[0], noise[0])
    together = leaf.log_prob(parameters, x)
    assert together.shape == (4, 3, leaf.n_columns)
    assert leaf.rsample(parameters, noise).shape == (4, 3, leaf.width)
    for s in range(4):
        torch.testing.assert_close(leaf.log_prob(parameters[s], x), together[s], rtol=EXACT, atol=EXACT)


def test_neutral_outputs_describe_each_column_by_itself():
    for name in ("gaussian", "student-t"):
        leaf = leaf_of(name)
        neutral = leaf.neutral_parameters()
        torch.testing.assert_close(leaf.mean(neutral), torch.zeros(2).double())
        torch.testing.assert_close(leaf.variance(neutral), torch.ones(2).double())
    for name in COUNTS:
        leaf = leaf_of(name)
        torch.testing.assert_close(leaf.mean(leaf.neutral_parameters()), torch.zeros(2).double())
    log_normal = leaf_of("log-normal")
    at_half = log_normal.cdf(log_normal.neutral_parameters(), log_normal.filler())
    torch.testing.assert_close(at_half, torch.full((2,), 0.5).double())
    categorical = leaf_of("categorical")
    blocks = torch.arange(1.0, 11.0).double().split(categorical.widths)
    expected = torch.cat([block / block.sum() for block in blocks])
    torch.testing.assert_close(categorical.mean(categorical.neutral_parameters()), expected)


def test_thresholds_start_from_the_frequencies_of_levels_and_a_group_has_the_sum_of_its_levels():
    leaf = leaf_of("ordinal")
    mean = leaf.mean(leaf.neutral_parameters()).detach()
    expected = [0.4, 0.3, 0.1, 0.2, 0.7, 0.3, 0.2 + 0.1, 0.1, 0.3 + 0.3]
    torch.testing.assert_close(mean, torch.tensor(expected).double(), rtol=1e-5, atol=1e-5)


def test_a_greater_location_makes_higher_levels_more_probable(generator):
    leaf = OrdinalLeaf([torch.arange(5)]).double()
    with torch.no_grad():
        for parameter in leaf.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    location = torch.linspace(-8, 8, 101, dtype=torch.float64)[:, None]
    at_most = leaf.mean(location).cumsum(dim=1)[:, :-1]
    assert (at_most.diff(dim=0) < 0).all()
    cut = leaf.thresholds - location / leaf.log_scale.exp()
    torch.testing.assert_close(at_most, torch.sigmoid(cut), rtol=EXACT, atol=EXACT)
    assert (leaf.thresholds.diff() > 0).all()


@pytest.mark.parametrize("name", [*LEVELS, "shared-gaussian"])
def test_what_the_leaf_owns_has_the_gradient_of_finite_differences(name, generator):
    leaf = leaf_of(name)
    outputs = some_parameters(leaf, generator, 3).requires_grad_()
    x = leaf.sample(outputs, uniforms(generator, 3, leaf.n_noise))
    owned = {key: value.detach().clone().requires_grad_() for key, value in leaf.named_parameters()}

    def log_prob(outputs, *values):
        chosen = dict(zip(owned, values, strict=True))
        return torch.func.functional_call(
            _LogProb(leaf), {f"leaf.{k}": v for k, v in chosen.items()}, (outputs, x)
        )

    assert torch.autograd.gradcheck(log_prob, (outputs, *owned.values()))


class _LogProb(torch.nn.Module):
    def __init__(self, leaf):
        super().__init__()
        self.leaf = leaf

    def forward(self, outputs, x):
        return self.leaf.log_prob(outputs, x)


def test_a_sharp_logistic_gives_each_shade_its_probability_down_to_the_far_tails():
    """Where the difference of two sigmoids rounds to zero, its logarithm is still right."""
    leaf = DiscretisedLogisticLeaf(1, low=0.0, high=255.0).double()
    parameters = torch.tensor([0.0, -6.0]).double()
    scale = math.exp(-7 + math.log1p(math.e))
    shade = torch.tensor([[1.0], [200.0]]).double()
    edge = (2 * (shade + 0.5) / 255 - 1) / scale  # the upper edge of the first, far from the centre
    tail = edge[0] + math.log(-math.expm1(-2 / 255 / scale))
    torch.testing.assert_close(leaf.log_prob(parameters, shade)[0], tail, rtol=EXACT, atol=EXACT)
    assert leaf.log_prob(parameters, shade)[1] < -100


def test_zero_in_a_positive_column_is_improbable_but_possible():
    leaf = leaf_of("log-normal")
    log_prob = leaf.log_prob(leaf.neutral_parameters(), torch.stack([-LOC / SCALE, -LOC / SCALE - 1]))
    assert log_prob.isfinite().all()
    assert (log_prob < -100).all()


@pytest.mark.parametrize("rate", [0.0, 1e-6, 0.3, 4.0, 1e3, 1e6])
def test_poisson_quantiles_are_those_of_scipy(rate, generator):
    u = torch.cat([uniforms(generator, 500), torch.tensor([1e-12, 1 - 1e-12], dtype=torch.float64)])
    found = poisson_quantile(torch.full_like(u, rate), u)
    np.testing.assert_array_equal(found, np.maximum(stats.poisson(rate).ppf(u.numpy()), 0))


def test_the_ends_of_uniforms_are_kept_open_and_softplus_is_inverted():
    for dtype in (torch.float32, torch.float64):
        ends = open_uniforms(torch.tensor([0.0, 1.0]).double(), dtype)
        assert (ends > 0).all()
        assert (ends < 1).all()
    y = torch.tensor([1e-8, 0.5, 40.0]).double()
    torch.testing.assert_close(torch.nn.functional.softplus(inverse_softplus(y)), y, rtol=1e-7, atol=0)


def test_impossible_settings_are_refused():
    with pytest.raises(ValueError, match="n_columns must be at least 1, got 0"):
        GaussianLeaf(0)
    with pytest.raises(ValueError, match="low must be less than high, got"):
        BernoulliLeaf(1, low=1.0, high=0.0)
    with pytest.raises(ValueError, match="n_bins must be at least 2, got 1"):
        DiscretisedLogisticLeaf(1, low=0.0, high=1.0, n_bins=1)
    with pytest.raises(ValueError, match="at least one indicator, got widths"):
        CategoricalLeaf([2, 0])
    with pytest.raises(ValueError, match="at least two levels"):
        OrdinalLeaf([torch.tensor([0])])
