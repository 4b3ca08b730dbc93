"""The published networks against the textbook Gaussian, for every pattern of a few features."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats
from tolerances import EXACT, FAILURE_RATE

from halfseen.data.incomplete import Incomplete
from halfseen.neumiss.network import NeuMissBlock, NeuMissNetwork


def every_pattern(n_features):
    return torch.tensor(list(itertools.product([True, False], repeat=n_features)))


def problem(generator, n_features=5, condition=10.0, top=0.95):
    """A mean, a covariance with eigenvalues from top / condition to top, coefficients, and an intercept."""
    matrix = torch.randn(n_features, n_features, generator=generator, dtype=torch.float64)
    vectors = torch.linalg.qr(matrix).Q
    eigenvalues = top / torch.logspace(0, math.log10(condition), n_features, dtype=torch.float64)
    loc, coef = torch.randn(2, n_features, generator=generator, dtype=torch.float64)
    return loc, vectors * eigenvalues @ vectors.T, coef, 0.7


def neumann(matrix, order):
    """The series S(l) = (I - matrix) S(l - 1) + I from S(0) = I."""
    series = np.eye(len(matrix))
    for _ in range(order):
        series = (np.eye(len(matrix)) - matrix) @ series + np.eye(len(matrix))
    return series


def bayes(loc, covariance, coef, intercept, row, observed, inverse=np.linalg.inv):
    """Equation 4 of the paper, or equation 7 where `inverse` is a series."""
    loc, covariance, coef, row, o = (np.asarray(part) for part in (loc, covariance, coef, row, observed))
    gain = covariance[np.ix_(~o, o)] @ inverse(covariance[np.ix_(o, o)])
    mean = loc[~o] + gain @ (row[o] - loc[o])
    return intercept + coef[o] @ row[o] + coef[~o] @ mean


def analytic_network(loc, covariance, coef, intercept, depth, start=None, residual=True):
    """The network with the weights that make it the series of order depth - 1."""
    network = NeuMissNetwork(len(loc), depth, residual=residual).double()
    identity = torch.eye(len(loc), dtype=torch.float64)
    with torch.no_grad():
        network.layers.copy_((identity - covariance).expand(depth, -1, -1))
        if depth > 0:
            network.layers[0] = identity if start is None else start
        network.mix.copy_(covariance)
        network.loc.copy_(loc)
        network.coef.copy_(coef)
        network.intercept.fill_(intercept)
    return network


def analytic_block(loc, covariance, depth):
    block = NeuMissBlock(len(loc), depth).double()
    with torch.no_grad():
        block.weight.copy_(torch.eye(len(loc), dtype=torch.float64) - covariance)
        block.loc.copy_(loc)
    return block


def linear_part(function, loc, observed):
    """The matrix (outputs, D) of a function that is affine in the observed features, at one pattern."""
    n_features = len(loc)
    steps = torch.cat([torch.zeros(1, n_features), torch.eye(n_features)]).double()
    answers = function(Incomplete(loc + steps, observed.expand(n_features + 1, -1))).detach()
    return (answers[1:] - answers[:1]).T


def test_the_series_contracts_at_the_rate_of_the_smallest_eigenvalue(generator):
    loc, covariance, _, _ = problem(generator)
    for observed in every_pattern(5):
        if not observed.any():
            continue
        o = observed.numpy()
        sub = covariance.numpy()[np.ix_(o, o)]
        slowest = 1 - np.linalg.eigvalsh(sub)[0]
        errors = []
        for depth in range(8):
            series = linear_part(analytic_block(loc, covariance, depth), loc, observed).numpy()[np.ix_(o, o)]
            errors.append(np.eye(len(sub)) - sub @ series)
        for order, error in enumerate(errors):
            bound = slowest**order * np.linalg.norm(errors[0], 2)
            assert np.linalg.norm(error, 2) <= bound * (1 + 1e-9)
        for before, after in itertools.pairwise(errors):
            np.testing.assert_allclose(after, (np.eye(len(sub)) - sub) @ before, atol=EXACT)


def expected_square_error(network, loc, covariance, coef):
    """The mean over patterns of E(f_l - f*)^2, from the network's own linear function of each pattern."""
    total = []
    for observed in every_pattern(len(loc)):
        o = observed.numpy()
        ours = linear_part(lambda batch: network(batch).unsqueeze(-1), loc, observed)[0].numpy()[o]
        sub = covariance.numpy()[np.ix_(o, o)]
        best = coef.numpy()[o] + np.linalg.solve(sub, covariance.numpy()[np.ix_(o, ~o)]) @ coef.numpy()[~o]
        total.append((ours - best) @ sub @ (ours - best))
    return np.mean(total)


def test_the_error_of_the_network_falls_with_depth_and_stays_below_its_bound(generator):
    loc, covariance, coef, intercept = problem(generator, condition=4.0)
    least = np.linalg.eigvalsh(covariance)[0]
    start = np.mean(
        [
            np.linalg.norm(np.eye(o.sum()) - covariance.numpy()[np.ix_(o, o)], 2) ** 2 if o.any() else 0.0
            for o in every_pattern(5).numpy()
        ]
    )
    errors = [
        expected_square_error(
            analytic_network(loc, covariance, coef, intercept, order + 1), loc, covariance, coef
        )
        for order in range(12)
    ]
    for order, error in enumerate(errors):
        assert error <= (1 - least) ** (2 * order) * coef.square().sum().item() / least * start
    assert all(after < before for before, after in itertools.pairwise(errors))
    assert errors[-1] < 1e-2 * errors[0]


@pytest.mark.parametrize("depth", [1, 2, 3, 7])
def test_the_network_is_the_truncated_series_for_every_pattern(generator, depth):
    parts = problem(generator)
    observed = every_pattern(5)
    x = torch.randn(len(observed), 5, generator=generator, dtype=torch.float64)
    answer = analytic_network(*parts, depth)(Incomplete(x, observed)).detach()
    for row, pattern, value in zip(x, observed, answer, strict=True):
        expected = bayes(*parts, row, pattern, inverse=lambda matrix: neumann(matrix, depth - 1))
        np.testing.assert_allclose(value, expected, atol=EXACT)


def test_without_residual_connections_layers_are_a_plain_product(generator):
    parts = problem(generator)
    observed = every_pattern(5)
    x = torch.randn(len(observed), 5, generator=generator, dtype=torch.float64)
    answer = analytic_network(*parts, 3, residual=False)(Incomplete(x, observed)).detach()
    for row, pattern, value in zip(x, observed, answer, strict=True):
        expected = bayes(
            *parts,
            row,
            pattern,
            inverse=lambda matrix: (np.eye(len(matrix)) - matrix) @ (np.eye(len(matrix)) - matrix),
        )
        np.testing.assert_allclose(value, expected, atol=EXACT)


def test_at_depth_zero_the_network_only_mixes(generator):
    parts = problem(generator)
    observed = every_pattern(5)
    x = torch.randn(len(observed), 5, generator=generator, dtype=torch.float64)
    answer = analytic_network(*parts, 0)(Incomplete(x, observed)).detach()
    for row, pattern, value in zip(x, observed, answer, strict=True):
        np.testing.assert_allclose(
            value, bayes(*parts, row, pattern, inverse=lambda m: np.eye(len(m))), atol=EXACT
        )


def test_the_number_of_parameters_is_the_published_one():
    for depth in (0, 3):
        count = sum(parameter.numel() for parameter in NeuMissNetwork(10, depth).parameters())
        assert count == 100 * (depth + 1) + 21


def test_a_linear_layer_on_the_block_is_bayes_for_every_pattern(generator):
    loc, covariance, coef, intercept = problem(generator, condition=20.0, top=3.0)
    scale = np.linalg.eigvalsh(covariance)[-1]
    observed = every_pattern(5)
    x = torch.randn(len(observed), 5, generator=generator, dtype=torch.float64)
    h = analytic_block(loc, covariance / scale, 1000)(Incomplete(x, observed)).detach()
    answer = intercept + coef @ loc + h @ (covariance @ coef / scale)
    for row, pattern, value in zip(x, observed, answer, strict=True):
        np.testing.assert_allclose(value, bayes(loc, covariance, coef, intercept, row, pattern), atol=EXACT)


def test_with_independent_features_the_inverse_variances_are_exact_at_order_zero(generator):
    loc, coef = torch.randn(2, 5, generator=generator, dtype=torch.float64)
    variance = torch.rand(5, generator=generator, dtype=torch.float64) + 0.5
    observed = every_pattern(5)
    x = torch.randn(len(observed), 5, generator=generator, dtype=torch.float64)
    network = analytic_network(loc, variance.diag(), coef, 0.7, 1, start=variance.reciprocal().diag())
    batch = Incomplete(x, observed)

    expected = torch.where(observed, (x - loc) / variance, 0.0)
    torch.testing.assert_close(network.hidden(batch).detach(), expected, rtol=0, atol=EXACT)
    expected = 0.7 + torch.where(observed, x, loc) @ coef
    torch.testing.assert_close(network(batch).detach(), expected, rtol=0, atol=EXACT)


def test_a_relu_layer_on_values_and_mask_is_a_masked_layer_up_to_constants(generator):
    loc, weight, _, _ = problem(generator)
    network = analytic_network(loc, weight, loc, 0.0, 0)
    observed = every_pattern(5).repeat(20, 1)
    x = torch.rand(len(observed), 5, generator=generator, dtype=torch.float64) - 0.5
    masked_unit = torch.where(observed, 0.0, network.complete(Incomplete(x, observed)).detach() - loc)

    from_mask = weight * loc
    from_mask = from_mask - from_mask.diag().diag() + 2e3 * torch.eye(5, dtype=torch.float64)
    missing = (~observed).double()
    unit = (torch.where(observed, x, 0.0) @ weight.T + missing @ from_mask.T - 1e3).relu()

    assert (unit[observed] == 0).all()
    for feature in range(5):
        gap = (unit - masked_unit)[~observed[:, feature], feature]
        np.testing.assert_allclose(gap, gap[0].item(), atol=EXACT)
        expected = (weight[feature] * loc).sum() - weight[feature, feature] * loc[feature] + 1e3
        np.testing.assert_allclose(gap[0], expected, atol=EXACT)


def test_masking_before_and_after_a_layer_is_masking_its_weights(generator):
    block = NeuMissBlock(5, 1).double()
    block.reset_parameters(generator)
    loc = block.loc.detach()
    observed = every_pattern(5)
    x = torch.randn(len(observed), 5, generator=generator, dtype=torch.float64)
    seen = observed.double()
    masked = block.weight.detach() * seen.unsqueeze(-1) * seen.unsqueeze(-2)  # (N, D, D)
    start = torch.where(observed, x - loc, 0.0)
    expected = start + (masked @ (x - loc).unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(block(Incomplete(x, observed)).detach(), expected, rtol=0, atol=EXACT)


@pytest.mark.parametrize("residual", [False, True])
def test_a_network_of_any_weights_follows_its_equations_row_by_row(generator, residual):
    network = NeuMissNetwork(4, 3, residual=residual).double()
    network.reset_parameters(generator)
    observed = every_pattern(4)
    x = torch.randn(len(observed), 4, generator=generator, dtype=torch.float64)
    answer = network(Incomplete(x, observed)).detach()
    layers, mix, loc, coef, intercept = (part.detach().numpy() for part in network.parameters())
    for row, o, value in zip(x.numpy(), observed.numpy(), answer, strict=True):
        start = row[o] - loc[o]
        h = layers[0][np.ix_(o, o)] @ start
        for layer in layers[1:]:
            h = layer[np.ix_(o, o)] @ h + (start if residual else 0.0)
        filled = loc[~o] + mix[np.ix_(~o, o)] @ h
        np.testing.assert_allclose(value, intercept + coef[o] @ row[o] + coef[~o] @ filled, atol=EXACT)


def random_module(kind, generator):
    module = kind(6, 4)
    module.reset_parameters(generator)
    return module.double()


@pytest.mark.parametrize("kind", [NeuMissNetwork, NeuMissBlock])
@pytest.mark.parametrize("poison", [math.nan, 0.0, 1e9, math.inf])
def test_values_under_the_mask_are_never_read(generator, kind, poison):
    module = random_module(kind, generator)
    x = torch.randn(40, 6, generator=generator, dtype=torch.float64)
    observed = torch.rand(40, 6, generator=generator) < 0.5
    poisoned = torch.where(observed, x, poison)
    answer = module(Incomplete(poisoned, observed))
    assert torch.equal(answer, module(Incomplete(x, observed)))
    answer.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in module.parameters())


def test_the_block_is_zero_on_missing_features(generator):
    block = random_module(NeuMissBlock, generator)
    x = torch.randn(40, 6, generator=generator, dtype=torch.float64)
    observed = torch.rand(40, 6, generator=generator) < 0.5
    h = block(Incomplete(x, observed))
    assert (h[~observed] == 0).all()
    assert (h[observed] != 0).all()


@pytest.mark.parametrize(("kind", "shape"), [(NeuMissNetwork, (1,)), (NeuMissBlock, (1, 6))])
def test_a_single_row_keeps_its_axis(generator, kind, shape):
    module = random_module(kind, generator)
    batch = Incomplete(torch.zeros(1, 6, dtype=torch.float64), torch.ones(1, 6, dtype=torch.bool))
    assert module(batch).shape == shape


def test_a_network_starts_as_the_published_one(generator):
    network = NeuMissNetwork(40, 5)
    network.reset_parameters(generator)
    matrices = torch.cat([network.layers.flatten(), network.mix.flatten()]).detach().numpy()
    assert stats.kstest(matrices, stats.norm(scale=1 / math.sqrt(40)).cdf).pvalue > FAILURE_RATE
    rest = torch.cat([network.loc, network.coef, network.intercept.reshape(1)]).detach().numpy()
    assert stats.kstest(rest, stats.norm.cdf).pvalue > FAILURE_RATE


def test_a_block_starts_as_the_published_one_and_contracts(generator):
    block = NeuMissBlock(50, 5)
    block.reset_parameters(generator)
    bound = 0.5 * math.sqrt(6 / 100)
    uniform = stats.uniform(-bound, 2 * bound)
    assert stats.kstest(block.weight.detach().flatten().numpy(), uniform.cdf).pvalue > FAILURE_RATE
    assert stats.kstest(block.loc.detach().numpy(), stats.norm.cdf).pvalue > FAILURE_RATE
    assert torch.linalg.eigvals(block.weight.detach()).abs().max() < 0.7


@pytest.mark.parametrize("kind", [NeuMissNetwork, NeuMissBlock])
def test_the_same_generator_draws_the_same_parameters(kind):
    modules = [kind(4, 2), kind(4, 2)]
    for module in modules:
        module.reset_parameters(torch.Generator().manual_seed(3))
    for first, second in zip(*(module.parameters() for module in modules), strict=True):
        assert torch.equal(first, second)


@pytest.mark.parametrize("kind", [NeuMissNetwork, NeuMissBlock])
def test_impossible_sizes_are_refused(kind):
    with pytest.raises(ValueError, match="n_features must be at least 1, got 0"):
        kind(0, 1)
    with pytest.raises(ValueError, match="depth must not be negative, got -1"):
        kind(1, -1)
