"""The masked system against submatrices written out, pattern by pattern."""

import itertools
import math

import numpy as np
import pytest
import torch
from tolerances import EXACT

from halfseen.neumiss.gaussian_block import MaskedSystem, masked_log_prob, masked_solve, masked_variance

SOLVERS = ("neumann", "chebyshev", "cholesky", "cg")
ENOUGH = {"neumann": 3000, "chebyshev": 300, "cholesky": 0, "cg": 30}


def every_pattern(n_features):
    return torch.tensor(list(itertools.product([True, False], repeat=n_features)))


def covariance_of(generator, n_features, condition=20.0, top=2.0):
    matrix = torch.randn(n_features, n_features, generator=generator, dtype=torch.float64)
    vectors = torch.linalg.qr(matrix).Q
    eigenvalues = top / torch.logspace(0, math.log10(condition), n_features, dtype=torch.float64)
    covariance = vectors * eigenvalues @ vectors.T
    return 0.5 * (covariance + covariance.T)


def inputs(generator, n_features=4, n_rows=None):
    """A covariance, all patterns (or random ones), residuals, and a precision for each cell."""
    observed = every_pattern(n_features)
    if n_rows is not None:
        observed = torch.rand(n_rows, n_features, generator=generator) < 0.5
    residual = torch.randn(observed.shape, generator=generator, dtype=torch.float64)
    precision = torch.randn(observed.shape, generator=generator, dtype=torch.float64).exp()
    return covariance_of(generator, n_features), observed, residual, precision


def textbook(covariance, o, residual):
    """The mean and covariance of the missing part given the observed one, centred."""
    gain = covariance[np.ix_(~o, o)] @ np.linalg.inv(covariance[np.ix_(o, o)])
    return gain @ residual[o], covariance[np.ix_(~o, ~o)] - gain @ covariance[np.ix_(o, ~o)]


def proposition(covariance, o, residual, precision):
    """Proposition 2.2 in its three forms, centred: the mean of missing cells by each, and their variance."""
    mean, left = textbook(covariance, o, residual)
    inverse, noise, shift = np.linalg.inv(left), np.diag(1 / precision[~o]), residual[~o]
    published = np.linalg.inv(np.eye(len(left)) + noise @ inverse) @ (shift + noise @ inverse @ mean)
    spread = np.linalg.inv(np.linalg.inv(noise) + inverse)
    by_precisions = spread @ (np.linalg.inv(noise) @ shift + inverse @ mean)
    by_gain = mean + left @ np.linalg.inv(left + noise) @ (shift - mean)
    return (published, by_precisions, by_gain), np.diag(spread)


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_mean_is_all_three_forms_of_the_proposition_for_every_pattern(generator, solver):
    covariance, observed, residual, precision = inputs(generator)
    h = masked_solve(covariance, observed, residual, precision, solver=solver, depth=ENOUGH[solver])
    mean = h @ covariance
    rows = zip(observed.numpy(), residual.numpy(), precision.numpy(), mean.numpy(), strict=True)
    for o, row, p, found in rows:
        np.testing.assert_allclose(found[o], row[o], atol=EXACT)
        for form in proposition(covariance.numpy(), o, row, p)[0]:
            np.testing.assert_allclose(found[~o], form, atol=EXACT)


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_solution_is_that_of_the_covariance_with_noise_on_its_diagonal(generator, solver):
    covariance, observed, residual, precision = inputs(generator)
    noise = torch.where(observed, 0.0, 1 / precision)
    expected = torch.linalg.solve(covariance + torch.diag_embed(noise), residual)
    h = masked_solve(covariance, observed, residual, precision, solver=solver, depth=ENOUGH[solver])
    torch.testing.assert_close(h, expected, rtol=0, atol=EXACT)


@pytest.mark.parametrize("solver", SOLVERS)
def test_without_precision_the_mean_is_that_of_cells_missing_at_random(generator, solver):
    covariance, observed, residual, _ = inputs(generator)
    nothing = torch.zeros(4, dtype=torch.float64)
    h = masked_solve(covariance, observed, residual, nothing, solver=solver, depth=ENOUGH[solver])
    assert (h[~observed] == 0).all()
    for o, row, found in zip(observed.numpy(), residual.numpy(), (h @ covariance).numpy(), strict=True):
        np.testing.assert_allclose(found[~o], textbook(covariance.numpy(), o, row)[0], atol=EXACT)
    almost = masked_solve(
        covariance, observed, residual, nothing + 1e-13, solver=solver, depth=ENOUGH[solver]
    )
    torch.testing.assert_close(almost, h, rtol=0, atol=EXACT)


def test_ignorable_and_self_masked_cells_may_share_a_row(generator):
    covariance, observed, residual, precision = inputs(generator)
    precision[:, 1] = 0.0
    h = masked_solve(covariance, observed, residual, precision)
    for o, row, p, found in zip(observed, residual, precision, h @ covariance, strict=True):
        keep = o | (p > 0)  # an ignorable cell is marginalised by leaving it out
        noise = torch.where(o, 0.0, 1 / p)[keep].diag()
        sub = covariance[keep][:, keep] + noise
        expected = covariance[:, keep] @ torch.linalg.solve(sub, row[keep])
        torch.testing.assert_close(found, expected, rtol=0, atol=EXACT)


@pytest.mark.parametrize("condition", [1.0, 20.0, 1e6])
@pytest.mark.parametrize("top", [0.01, 1.0, 100.0])
def test_the_series_contracts_for_every_pattern_and_precision(generator, condition, top):
    covariance, observed = covariance_of(generator, 5, condition, top), every_pattern(5)
    for precision in (torch.zeros(32, 5), torch.randn(32, 5, generator=generator).mul(3).exp()):
        system = MaskedSystem.from_precision(covariance, observed, precision.double())
        low, high = system.bounds()
        eigenvalues = torch.linalg.eigvalsh(system.matrix())
        assert eigenvalues.min() >= low - EXACT
        assert eigenvalues.max() <= high + EXACT
        assert (1 - eigenvalues / high).abs().max() < 1


def test_the_product_with_vectors_is_that_of_the_matrix(generator):
    covariance, observed, residual, precision = inputs(generator)
    system = MaskedSystem.from_precision(covariance, observed, precision)
    expected = (system.matrix() @ residual.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(system.product(residual), expected, rtol=0, atol=EXACT)


def test_the_truncated_series_is_its_sum_of_powers(generator):
    covariance, observed, residual, precision = inputs(generator)
    system = MaskedSystem.from_precision(covariance, observed, precision)
    matrix, step = system.matrix(), 1 / torch.linalg.eigvalsh(covariance)[-1]
    for depth in range(4):
        powers = [torch.linalg.matrix_power(torch.eye(4) - step * matrix, k) for k in range(depth + 1)]
        right = (system.scale * residual).unsqueeze(-1)
        expected = system.scale * (step * sum(powers) @ right).squeeze(-1)
        h = masked_solve(covariance, observed, residual, precision, solver="neumann", depth=depth)
        torch.testing.assert_close(h, expected, rtol=0, atol=EXACT)


def test_the_accelerated_error_is_the_chebyshev_polynomial_of_the_matrix(generator):
    covariance, observed, residual, precision = inputs(generator)
    system = MaskedSystem.from_precision(covariance, observed, precision)
    low, high = (bound.item() for bound in system.bounds())
    eigenvalues, vectors = torch.linalg.eigh(system.matrix())
    exact = torch.linalg.solve(system.matrix(), system.scale * residual)
    for depth in range(5):
        polynomial = np.polynomial.Chebyshev.basis(depth + 1)
        inside = (high + low - 2 * eigenvalues.numpy()) / (high - low)
        factor = torch.from_numpy(polynomial(inside) / polynomial((high + low) / (high - low)))
        error = (vectors * factor.unsqueeze(-2)) @ vectors.mT @ exact.unsqueeze(-1)
        expected = system.scale * (exact - error.squeeze(-1))
        h = masked_solve(covariance, observed, residual, precision, solver="chebyshev", depth=depth)
        torch.testing.assert_close(h, expected, rtol=0, atol=EXACT)


def test_conjugate_gradients_need_as_many_steps_as_features(generator):
    covariance, observed, residual, precision = inputs(generator, n_features=6)
    exact = masked_solve(covariance, observed, residual, precision)
    errors = [
        (masked_solve(covariance, observed, residual, precision, solver="cg", depth=depth) - exact)
        .abs()
        .max()
        for depth in (5, 6)
    ]
    assert errors[0] > 1e-6
    assert errors[1] < EXACT


def test_conjugate_gradients_stand_still_once_they_have_converged(generator):
    covariance, observed, residual, precision = inputs(generator)
    residual[3] = 0.0
    h = masked_solve(covariance, observed, residual, precision, solver="cg", depth=500)
    assert (h[3] == 0).all()
    torch.testing.assert_close(h, masked_solve(covariance, observed, residual, precision), rtol=0, atol=EXACT)


def test_conjugate_gradients_do_not_mind_the_units_of_features(generator):
    covariance, observed, residual, _ = inputs(generator)
    units, nothing = torch.tensor([1e-6, 1.0, 50.0, 1e6], dtype=torch.float64), torch.zeros(4).double()
    scaled = units.unsqueeze(-1) * covariance * units
    for depth in (1, 2, 3):  # before it has converged
        h = masked_solve(scaled, observed, units * residual, nothing, solver="cg", depth=depth)
        expected = masked_solve(covariance, observed, residual, nothing, solver="cg", depth=depth)
        torch.testing.assert_close(units * h, expected, rtol=0, atol=EXACT)


def symmetric(factor):
    return factor @ factor.mT + 0.3 * torch.eye(len(factor), dtype=factor.dtype)


@pytest.mark.parametrize("solver", ["cholesky", "cg"])
@pytest.mark.parametrize("shape", [(12, 5), (5,), ()], ids=["each cell", "each feature", "all"])
def test_the_implicit_gradient_of_the_solution_is_that_of_differences(generator, solver, shape):
    _, observed, residual, _ = inputs(generator, n_features=5, n_rows=12)
    factor = torch.randn(5, 5, generator=generator, dtype=torch.float64).requires_grad_()
    precision = torch.rand(shape, generator=generator, dtype=torch.float64).requires_grad_()

    def function(factor, residual, precision):
        return masked_solve(symmetric(factor), observed, residual, precision, solver=solver, depth=12)

    assert torch.autograd.gradcheck(
        function, (factor, residual.requires_grad_(), precision), atol=1e-6, rtol=1e-6
    )


def test_the_gradients_of_all_solvers_agree_where_they_have_converged(generator):
    covariance, observed, residual, precision = inputs(generator, n_features=5, n_rows=12)
    factor = torch.linalg.cholesky(covariance)
    weights = torch.randn(12, 5, generator=generator, dtype=torch.float64)
    gradients = {}
    for solver in SOLVERS:
        leaves = [part.clone().requires_grad_() for part in (factor, residual, precision)]
        h = masked_solve(leaves[0] @ leaves[0].mT, observed, *leaves[1:], solver=solver, depth=ENOUGH[solver])
        gradients[solver] = torch.autograd.grad((weights * h).sum(), leaves)
    for solver in SOLVERS:
        for found, expected in zip(gradients[solver], gradients["cholesky"], strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


def test_the_gradient_to_a_covariance_is_symmetric(generator):
    covariance, *rest = inputs(generator)
    covariance.requires_grad_()
    weights = torch.randn(16, 4, generator=generator, dtype=torch.float64)
    for total in (
        (weights * masked_solve(covariance, *rest)).sum(),
        (weights[:, 0] * masked_log_prob(covariance, *rest)).sum(),
        (weights * masked_variance(covariance, rest[0], rest[2])).sum(),
    ):
        (gradient,) = torch.autograd.grad(total, covariance)
        torch.testing.assert_close(gradient, gradient.T, rtol=0, atol=EXACT)


def test_a_precision_near_zero_has_the_gradient_of_the_limit(generator):
    covariance, observed, residual, _ = inputs(generator)
    weights = torch.randn(16, 4, generator=generator, dtype=torch.float64)

    def total(precision):
        return (weights * masked_solve(covariance, observed, residual, precision)).sum()

    tiny = torch.full((4,), 1e-200, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(total(tiny), tiny)
    for feature in range(4):
        step = torch.zeros(4, dtype=torch.float64)
        step[feature] = 1e-6
        difference = (total(step) - total(torch.zeros(4, dtype=torch.float64))) / 1e-6
        np.testing.assert_allclose(gradient[feature], difference, rtol=1e-4, atol=1e-4)


def test_the_log_density_is_that_of_noisy_observations(generator):
    covariance, observed, residual, precision = inputs(generator)
    noise = torch.where(observed, 0.0, 1 / precision)
    normal = torch.distributions.MultivariateNormal(
        torch.zeros(4, dtype=torch.float64), covariance + torch.diag_embed(noise)
    )
    factor = torch.where(observed, 0.0, 0.5 * torch.log(2 * math.pi / precision)).sum(dim=-1)
    found = masked_log_prob(covariance, observed, residual, precision)
    torch.testing.assert_close(found, normal.log_prob(residual) + factor, rtol=0, atol=EXACT)


def test_the_log_density_of_ignorable_cells_is_the_marginal(generator):
    covariance, observed, residual, _ = inputs(generator)
    found = masked_log_prob(covariance, observed, residual, torch.zeros(4, dtype=torch.float64))
    for o, row, value in zip(observed, residual, found, strict=True):
        if o.any():
            normal = torch.distributions.MultivariateNormal(torch.zeros_like(row[o]), covariance[o][:, o])
            torch.testing.assert_close(value, normal.log_prob(row[o]), rtol=0, atol=EXACT)
        else:
            assert value == 0


def test_the_variance_is_that_of_the_proposition_for_every_pattern(generator):
    covariance, observed, residual, precision = inputs(generator)
    found = masked_variance(covariance, observed, precision).numpy()
    at_random = masked_variance(covariance, observed, torch.zeros(4, dtype=torch.float64)).numpy()
    assert (found[observed] == 0).all()
    for index, o in enumerate(observed.numpy()):
        row, p = residual[index].numpy(), precision[index].numpy()
        np.testing.assert_allclose(
            found[index][~o], proposition(covariance.numpy(), o, row, p)[1], atol=EXACT
        )
        left = np.diag(textbook(covariance.numpy(), o, row)[1])
        np.testing.assert_allclose(at_random[index][~o], left, atol=EXACT)


def test_the_gradients_of_log_density_and_variance_are_those_of_differences(generator):
    _, observed, residual, _ = inputs(generator, n_features=5, n_rows=12)
    factor = torch.randn(5, 5, generator=generator, dtype=torch.float64).requires_grad_()
    precision = torch.rand(12, 5, generator=generator, dtype=torch.float64).requires_grad_()

    def log_prob(factor, residual, precision):
        return masked_log_prob(symmetric(factor), observed, residual, precision)

    def variance(factor, precision):
        return masked_variance(symmetric(factor), observed, precision)

    arguments = (factor, residual.requires_grad_(), precision)
    assert torch.autograd.gradcheck(log_prob, arguments, atol=1e-6, rtol=1e-6)
    assert torch.autograd.gradcheck(variance, (factor, precision), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("poison", [math.nan, 0.0, 1e9])
def test_the_residual_of_an_ignorable_cell_is_never_read(generator, solver, poison):
    covariance, observed, residual, precision = inputs(generator)
    precision[:, 2] = 0.0
    ignorable = ~observed & (precision == 0)
    leaves = [covariance, torch.where(ignorable, poison, residual), torch.where(observed, poison, precision)]
    answers = []
    for row_residual, row_precision in ((residual, precision), leaves[1:]):
        parts = [part.clone().requires_grad_() for part in (covariance, row_residual, row_precision)]
        h = masked_solve(parts[0], observed, *parts[1:], solver=solver, depth=5)
        log_prob = masked_log_prob(parts[0], observed, *parts[1:])
        variance = masked_variance(parts[0], observed, parts[2])
        gradients = torch.autograd.grad(h.sum() + log_prob.sum() + variance.sum(), parts)
        assert all(gradient.isfinite().all() for gradient in gradients)
        assert (gradients[2][observed | ignorable] == 0).all()
        assert (gradients[2][~(observed | ignorable)] != 0).all()
        answers.append((h, log_prob, variance, *gradients))
    for clean, poisoned in zip(*answers, strict=True):
        assert torch.equal(clean, poisoned)


@pytest.mark.parametrize("solver", SOLVERS)
def test_single_precision_stays_finite_at_every_depth_and_magnitude_of_precision(generator, solver):
    covariance = covariance_of(generator, 50, condition=1e3, top=20.0).float()
    observed = torch.rand(64, 50, generator=generator) < 0.5
    residual = torch.randn(64, 50, generator=generator)
    exponents = 60 * torch.rand(64, 50, generator=generator) - 30
    for depth in range(1, 21):
        parts = [part.clone().requires_grad_() for part in (covariance, residual, 10**exponents)]
        h = masked_solve(parts[0], observed, *parts[1:], solver=solver, depth=depth)
        assert h.isfinite().all()
        gradients = torch.autograd.grad(h.square().sum(), parts)
        assert all(gradient.isfinite().all() for gradient in gradients)


def test_an_unknown_solver_and_a_negative_depth_are_refused(generator):
    arguments = inputs(generator)
    with pytest.raises(ValueError, match="solver must be one of neumann, chebyshev, cholesky, cg, got 'lu'"):
        masked_solve(*arguments, solver="lu")
    with pytest.raises(ValueError, match="depth must not be negative, got -1"):
        masked_solve(*arguments, depth=-1)
