"""The Gaussian block against submatrices, quadrature and simple laws of probability."""

import itertools
import math

import numpy as np
import pytest
import torch
from oracles import gaussian as textbook
from scipy import integrate, stats
from tolerances import EXACT, QUADRATURE

from halfseen.data.incomplete import Incomplete
from halfseen.neumiss.gaussian_block import MIN_CHANCE, MIN_VARIANCE, GaussianBlock

SOLVERS = ("neumann", "chebyshev", "cholesky", "cg")
ENOUGH = {"neumann": 3000, "chebyshev": 300, "cholesky": 0, "cg": 30}


def every_pattern(n_features):
    return torch.tensor(list(itertools.product([True, False], repeat=n_features)))


def normal(generator, *shape):
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def random_covariance(generator, n_features):
    factor = normal(generator, n_features, n_features)
    return factor @ factor.T + 0.2 * torch.eye(n_features, dtype=torch.float64)


def random_block(generator, n_features=4, self_masking=True, **options):
    block = GaussianBlock(n_features, self_masking=self_masking, **options).double()
    loc, covariance = normal(generator, n_features), random_covariance(generator, n_features)
    curves = (
        normal(generator, n_features),
        normal(generator, n_features).exp(),
        torch.rand(n_features, generator=generator, dtype=torch.float64),
    )
    block.set_gaussian(loc, covariance, *(curves if self_masking else ()))
    return block


def random_batch(generator, n_features=4, n_rows=30):
    return Incomplete(
        normal(generator, n_rows, n_features), torch.rand(n_rows, n_features, generator=generator) < 0.5
    )


def plain(block):
    """The parameters as arrays: mean, covariance, and those of the masking curves."""
    parts = [block.loc, block.covariance()]
    if block.self_masking:
        parts += [block.centre, block.precision(), block.logit_height.sigmoid()]
    return [part.detach().numpy() for part in parts]


@pytest.mark.parametrize("self_masking", [False, True])
@pytest.mark.parametrize("condition", [1.0, 1e3, 1e5])
def test_a_given_gaussian_is_returned(generator, self_masking, condition):
    block = GaussianBlock(6, self_masking=self_masking).double()
    vectors = torch.linalg.qr(normal(generator, 6, 6)).Q
    eigenvalues = 5 / torch.logspace(0, math.log10(condition), 6, dtype=torch.float64)
    units = torch.tensor([1.0, 1.0, 3.0, 0.5, 2.0, 10.0], dtype=torch.float64)
    covariance = units.unsqueeze(-1) * (vectors * eigenvalues @ vectors.T) * units
    loc = normal(generator, 6)
    block.set_gaussian(loc, covariance)
    torch.testing.assert_close(block.covariance().detach(), covariance, rtol=0, atol=1e-8)
    assert torch.equal(block.loc.detach(), loc)


def test_a_singular_covariance_is_raised_a_little(generator):
    block = GaussianBlock(5).double()
    factor = normal(generator, 5, 2)
    factor[4] = 0.0
    covariance = factor @ factor.T
    block.set_gaussian(torch.zeros(5), covariance)
    found = block.covariance().detach()
    assert torch.linalg.eigvalsh(found)[0] >= MIN_VARIANCE
    assert (found - covariance).abs().max() < 10 * MIN_VARIANCE


def test_given_masking_curves_are_returned_and_missing_ones_kept(generator):
    block = random_block(generator)
    before = plain(block)
    centre, precision = normal(generator, 4), normal(generator, 4).exp()
    block.set_gaussian(block.loc.detach(), block.covariance().detach(), centre, precision)
    after = plain(block)
    np.testing.assert_allclose(after[2], centre, rtol=EXACT)
    np.testing.assert_allclose(after[3], precision, rtol=EXACT)
    np.testing.assert_array_equal(after[4], before[4])
    block.set_gaussian(
        block.loc.detach(), block.covariance().detach(), height=torch.tensor([0.0, 0.2, 0.9, 1.0])
    )
    np.testing.assert_allclose(plain(block)[4], [MIN_CHANCE, 0.2, 0.9, 1 - MIN_CHANCE], rtol=1e-6)
    np.testing.assert_array_equal(plain(block)[3], after[3])


def test_curves_that_cannot_be_are_refused(generator):
    loc, covariance, ones = torch.zeros(2), torch.eye(2), torch.ones(2)
    with pytest.raises(ValueError, match="need a block with self_masking=True"):
        GaussianBlock(2).set_gaussian(loc, covariance, centre=ones)
    with pytest.raises(ValueError, match=r"precision must be positive, got 0\.0"):
        GaussianBlock(2, self_masking=True).set_gaussian(loc, covariance, precision=torch.zeros(2))
    with pytest.raises(ValueError, match="n_features must be at least 1, got 0"):
        GaussianBlock(0)


@pytest.mark.parametrize("solver", SOLVERS)
def test_without_self_masking_the_answer_is_the_textbook_gaussian_for_every_pattern(generator, solver):
    block = random_block(generator, self_masking=False, solver=solver, depth=5 * ENOUGH[solver])
    observed = every_pattern(4)
    x = normal(generator, len(observed), 4)
    conditional, log_prob = block(Incomplete(x, observed)), block.log_prob(Incomplete(x, observed))
    loc, covariance = plain(block)
    for index, o in enumerate(observed.numpy()):
        mean, left = textbook.conditional(loc, covariance, x[index].numpy(), o)
        np.testing.assert_allclose(conditional.mean[index].detach()[~o], mean, atol=1e-8)
        np.testing.assert_allclose(conditional.variance[index].detach()[~o], np.diag(left), atol=EXACT)
        expected = textbook.log_prob(loc, covariance, x[index].numpy(), o)
        np.testing.assert_allclose(log_prob[index].item(), expected, atol=EXACT)


def test_with_self_masking_mean_and_variance_are_those_of_the_proposition_for_every_pattern(generator):
    block = random_block(generator)
    observed = every_pattern(4)
    x = normal(generator, len(observed), 4)
    conditional = block(Incomplete(x, observed))
    loc, covariance, centre, precision, _ = plain(block)
    for index, o in enumerate(observed.numpy()):
        mean, left = textbook.conditional(loc, covariance, x[index].numpy(), o)
        spread = np.linalg.inv(np.diag(precision[~o]) + np.linalg.inv(left))
        expected = spread @ (precision[~o] * centre[~o] + np.linalg.inv(left) @ mean)
        np.testing.assert_allclose(conditional.mean[index].detach()[~o], expected, atol=EXACT)
        np.testing.assert_allclose(conditional.variance[index].detach()[~o], np.diag(spread), atol=EXACT)


@pytest.mark.parametrize("self_masking", [False, True])
def test_one_linear_function_of_h_predicts_a_linear_response_for_every_pattern(generator, self_masking):
    block = random_block(generator, self_masking=self_masking)
    observed, coef = every_pattern(4), normal(generator, 4)
    batch = Incomplete(normal(generator, len(observed), 4), observed)
    conditional = block(batch)
    answer = block.loc @ coef + conditional.h @ (block.covariance() @ coef)
    torch.testing.assert_close(answer, conditional.mean @ coef, rtol=0, atol=EXACT)


def test_observed_cells_come_back_exactly_and_have_no_variance(generator):
    block, batch = random_block(generator), random_batch(generator)
    conditional = block(batch)
    assert torch.equal(conditional.mean[batch.observed], batch.x[batch.observed])
    assert (conditional.variance[batch.observed] == 0).all()
    assert (conditional.variance[~batch.observed] > 0).all()


def curve(x, centre, precision, height):
    return height * np.exp(-0.5 * precision * (x - centre) ** 2)


def test_the_joint_density_is_the_integral_over_the_missing_cell(generator):
    block = random_block(generator, n_features=2)
    loc, covariance, centre, precision, height = plain(block)
    axis = np.linspace(-30, 30, 20001)
    for missing in (0, 1):
        seen, value = 1 - missing, 0.4
        x = np.empty((len(axis), 2))
        x[:, missing], x[:, seen] = axis, value
        density = stats.multivariate_normal(loc, covariance).pdf(x)
        hidden = curve(axis, centre[missing], precision[missing], height[missing])
        shown = 1 - curve(value, centre[seen], precision[seen], height[seen])
        expected = integrate.trapezoid(density * hidden * shown, axis)
        mean = integrate.trapezoid(axis * density * hidden * shown, axis) / expected

        row = torch.full((1, 2), value, dtype=torch.float64)
        batch = Incomplete(row, torch.arange(2).unsqueeze(0) == seen)
        np.testing.assert_allclose(block.log_prob(batch).exp().item(), expected, rtol=QUADRATURE)
        np.testing.assert_allclose(block(batch).mean[0, missing].item(), mean, rtol=QUADRATURE)


@pytest.mark.parametrize("n_features", [1, 2])
def test_the_chances_of_all_masks_and_values_sum_to_one(generator, n_features):
    block = random_block(generator, n_features=n_features)
    axis = np.linspace(-25, 25, 801)
    total = 0.0
    for observed in every_pattern(n_features):
        n_seen = int(observed.sum())
        cells = np.stack(np.meshgrid(*[axis] * n_seen, indexing="ij"), -1) if n_seen else np.empty((1, 0))
        x = torch.zeros(cells[..., 0].size if n_seen else 1, n_features, dtype=torch.float64)
        x[:, observed] = torch.from_numpy(cells.reshape(len(x), n_seen))
        density = block.log_prob(Incomplete(x, observed.expand(len(x), -1))).detach().exp().numpy()
        density = density.reshape([len(axis)] * n_seen)
        for _ in range(n_seen):
            density = integrate.trapezoid(density, axis)
        total += float(density)
    np.testing.assert_allclose(total, 1.0, rtol=QUADRATURE)


def test_the_joint_density_keeps_its_digits_beside_a_peak_of_height_one():
    block = GaussianBlock(1, self_masking=True).double()
    block.set_gaussian(torch.zeros(1), torch.eye(1), torch.zeros(1), torch.ones(1))
    with torch.no_grad():
        block.logit_height.fill_(40.0)  # 1 - K = 4e-18, lost when taken from 1
    batch = Incomplete(torch.tensor([[1e-7]], dtype=torch.float64), torch.ones(1, 1, dtype=torch.bool))
    expected = stats.norm.logpdf(1e-7) + math.log(math.exp(-40.0) + 0.5e-14)
    np.testing.assert_allclose(block.log_prob(batch).item(), expected, rtol=EXACT)
    at_peak = Incomplete(torch.zeros(1, 1, dtype=torch.float64), batch.observed)
    block.log_prob(at_peak).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in block.parameters())


class JointDensity(torch.nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, batch):
        return self.block.log_prob(batch)


def test_the_gradient_of_the_joint_density_is_that_of_differences(generator):
    block, batch = random_block(generator, n_features=3), random_batch(generator, n_features=3, n_rows=8)
    module = JointDensity(block)
    names, values = zip(*module.named_parameters(), strict=True)

    def log_prob(*values):
        return torch.func.functional_call(module, dict(zip(names, values, strict=True)), (batch,))

    leaves = tuple(value.detach().clone().requires_grad_() for value in values)
    assert torch.autograd.gradcheck(log_prob, leaves, atol=1e-6, rtol=1e-6)


def answers(block, batch):
    """All that a block says of rows, and the gradients of its sum."""
    conditional = block(batch)
    said = [conditional.h, conditional.mean, conditional.variance, block.log_prob(batch)]
    total = sum(part.square().sum() for part in said)
    gradients = torch.autograd.grad(total, list(block.parameters()), allow_unused=True)
    return said, [gradient for gradient in gradients if gradient is not None]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("self_masking", [False, True])
@pytest.mark.parametrize("poison", [math.nan, 0.0, 1e9])
def test_values_under_the_mask_are_never_read(generator, solver, self_masking, poison):
    block = random_block(generator, self_masking=self_masking, solver=solver, depth=5)
    batch = random_batch(generator)
    poisoned = Incomplete(torch.where(batch.observed, batch.x, poison), batch.observed)
    clean_said, clean_gradients = answers(block, batch)
    said, gradients = answers(block, poisoned)
    for clean, found in zip(clean_said + clean_gradients, said + gradients, strict=True):
        assert torch.equal(clean, found)
        assert found.isfinite().all()
    assert len(gradients) == (6 if self_masking else 3)


@pytest.mark.parametrize("solver", SOLVERS)
def test_single_precision_stays_finite_at_every_depth(generator, solver):
    block = GaussianBlock(50, self_masking=True, solver=solver)
    factor = torch.randn(50, 25, generator=generator)
    block.set_gaussian(torch.randn(50, generator=generator), factor @ factor.T + 0.05 * torch.eye(50))
    batch = Incomplete(
        3 * torch.randn(64, 50, generator=generator), torch.rand(64, 50, generator=generator) < 0.5
    )
    for depth in range(1, 21):
        block.depth = depth
        said, gradients = answers(block, batch)
        assert all(part.isfinite().all() for part in said + gradients)


def test_a_step_along_the_gradient_raises_the_likelihood_with_every_parameter(generator):
    block, batch = random_block(generator), random_batch(generator, n_rows=200)
    before = block.log_prob(batch).mean()
    before.backward()
    for parameter in block.parameters():
        with torch.no_grad():
            parameter.add_(1e-5 * parameter.grad)
            after = block.log_prob(batch).mean()
            parameter.sub_(1e-5 * parameter.grad)
        expected = 1e-5 * parameter.grad.square().sum()
        np.testing.assert_allclose(after - before.detach(), expected, rtol=1e-2)


def test_permuting_features_and_block_together_changes_nothing(generator):
    block, batch = random_block(generator), random_batch(generator)
    order = torch.tensor([2, 0, 3, 1])
    loc, covariance, *curves = (torch.from_numpy(part) for part in plain(block))
    moved = GaussianBlock(4, self_masking=True).double()
    moved.set_gaussian(loc[order], covariance[order][:, order], *(part[order] for part in curves))
    shuffled = Incomplete(batch.x[:, order], batch.observed[:, order])
    torch.testing.assert_close(moved.log_prob(shuffled), block.log_prob(batch), rtol=0, atol=1e-8)
    torch.testing.assert_close(moved(shuffled).mean, block(batch).mean[:, order], rtol=0, atol=1e-8)
