"""Likelihoods of columns against scipy, quadrature and enumeration."""

import math

import numpy as np
import pytest
import torch
from distributions.leaf_cases import (
    ALL,
    CONTINUOUS,
    COUNTS,
    LEVELS,
    LOC,
    PIXELS,
    SCALE,
    grid,
    leaf_of,
    one_hots,
    some_parameters,
    support,
    uniforms,
)
from scipy import stats
from tolerances import EXACT, QUADRATURE

from halfseen.data.margins import inverse_softplus
from halfseen.distributions.leaves import GaussianLeaf, NumericLeaf, StudentTLeaf, open_uniforms
from halfseen.distributions.leaves_counts import CategoricalLeaf, OrdinalLeaf
from halfseen.distributions.leaves_pixels import BernoulliLeaf, DiscretisedLogisticLeaf


@pytest.mark.parametrize("name", [*CONTINUOUS, *COUNTS, *PIXELS])
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


@pytest.mark.parametrize("name", ALL)
def test_no_value_is_more_probable_than_the_mode(name, generator):
    leaf = leaf_of(name)
    for parameters in some_parameters(leaf, generator, 5):
        at_mode = leaf.log_prob(parameters, leaf.mode(parameters))
        if name in LEVELS:
            others = [leaf.log_prob(parameters, x)[:, c].max() for c, x in enumerate(one_hots(leaf))]
            torch.testing.assert_close(at_mode, torch.stack(others), rtol=0, atol=EXACT)
        else:
            assert (leaf.log_prob(parameters, grid(leaf, name)[0]) <= at_mode + EXACT).all()


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
    x = support(leaf, name)[:256]
    cumulated = leaf.log_prob(parameters, x).exp().cumsum(dim=0)
    half = (x[1] - x[0]) / 2
    for shift in (0.0, half):  # constant up to the next value
        torch.testing.assert_close(leaf.cdf(parameters, x + shift), cumulated, rtol=0, atol=EXACT)
    assert (leaf.cdf(parameters, x[0] - half) == 0).all()


@pytest.mark.parametrize("name", COUNTS)
def test_rounded_features_do_not_fall_below_their_count(name):
    """A standardised count in single precision is hardly ever whole again."""
    loc, scale = torch.tensor([10 / 3]).double(), torch.tensor([0.7]).double()
    more = [] if name == "poisson" else [torch.full((1,), 0.3)]
    leaf = type(leaf_of(name))(loc, scale, loc, *more)
    x = ((torch.arange(60.0).double()[:, None] - loc) / scale).float()
    parameters = leaf.neutral_parameters()
    cumulated = leaf.log_prob(parameters, x).exp().cumsum(dim=0)
    torch.testing.assert_close(leaf.cdf(parameters, x), cumulated, rtol=0, atol=EXACT)


def test_densities_equal_those_of_scipy(generator):
    x = torch.randn(7, 2, generator=generator, dtype=torch.float64)
    student, log_normal = leaf_of("student-t"), leaf_of("log-normal")
    parameters = some_parameters(student, generator, 7)
    loc, scale, df = parameters[:, :2], 1e-3 + softplus(parameters[:, 2:4]), 3 + softplus(parameters[:, 4:])
    expected = stats.t(df.numpy(), loc.numpy(), scale.numpy())
    np.testing.assert_allclose(student.log_prob(parameters, x), expected.logpdf(x), atol=EXACT)
    np.testing.assert_allclose(student.cdf(parameters, x), expected.cdf(x), atol=1.1e-5)

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


@pytest.mark.parametrize("leaf", [GaussianLeaf(3), StudentTLeaf(3)], ids=["gaussian", "student-t"])
def test_the_mean_of_each_column_is_its_own_location(leaf):
    parameters = torch.arange(float(leaf.n_parameters))
    assert leaf.mean(parameters).tolist() == [0.0, 1.0, 2.0]
