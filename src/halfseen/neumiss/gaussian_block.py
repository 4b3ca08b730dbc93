r"""A layer that computes the conditional Gaussian of every row, under MAR or Gaussian self-masking.

One positive definite system per row, for cells that are observed, missing at random or self-masked.

A missing cell that is missing with a probability :math:`\propto \exp(-\tfrac12 p_k (X_k - t_k)^2)` acts as a
noisy observation, the *pseudo-observation* :math:`t_k` with precision :math:`p_k`. At :math:`p_k = 0` it has
no influence, and the cell is ignorable. Let rows be :math:`\mathcal{N}(\mu, C)`, :math:`r` the residuals of
all observations from :math:`\mu`, and :math:`n_k` their noise: 0 if observed, :math:`1 / p_k` if missing.
Then everything follows from :math:`A = C + \mathrm{diag}(n)`, and the conditional mean is
:math:`\mu + C A^{-1} r`. `MaskedSystem` is a form of this system that is stable for arbitrarily small
precisions.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from math import log, pi
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from halfseen.data.incomplete import Incomplete
from halfseen.data.margins import inverse_softplus

Solver = Literal["neumann", "chebyshev", "cholesky", "cg"]

_LOG_TWO_PI = log(2.0 * pi)


@dataclass(frozen=True)
class MaskedSystem:
    r"""The matrices of all rows, stored as a common covariance and diagonal scalings per row.

    .. math::
        B = \mathrm{diag}(s) \, C \, \mathrm{diag}(s) + \mathrm{diag}(e), \qquad
        A^{-1} = \mathrm{diag}(s) \, B^{-1} \, \mathrm{diag}(s)

    with :math:`s_k = 1, e_k = 0` where observed, :math:`s_k^2 = p_k / (1 + p_k)` and
    :math:`e_k = 1 / (1 + p_k)` where missing. As :math:`s_k^2 + e_k = 1`, the eigenvalues of :math:`B` lie
    between :math:`\min(\lambda_{min}(C), 1)` and :math:`\max(\lambda_{max}(C), 1)` for every pattern.

    Shapes
    ------
    covariance : :math:`(D, D)`
    scale, ridge : :math:`(N, D)`, the vectors :math:`s` and :math:`e`.

    Examples
    --------
    >>> observed, precision = torch.tensor([[True, False]]), torch.tensor([[0.0, 0.0]])
    >>> MaskedSystem.from_precision(torch.tensor([[2.0, 1.0], [1.0, 3.0]]), observed, precision).matrix()
    tensor([[[2., 0.],
             [0., 1.]]])
    """

    covariance: Tensor
    scale: Tensor
    ridge: Tensor

    @classmethod
    def from_precision(cls, covariance: Tensor, observed: Tensor, precision: Tensor) -> "MaskedSystem":
        """Builds the system of rows with these observed cells (N, D) and precisions (N, D) of the others."""
        informative = ~observed & (precision > 0)
        some = torch.where(informative, precision, 1.0)  # the root has no derivative at 0
        nothing = torch.where(observed, 0.0, 1.0).to(precision.dtype)
        return cls(
            covariance,
            scale=torch.where(informative, (some / (1.0 + some)).sqrt(), 1.0 - nothing),
            ridge=torch.where(informative, 1.0 / (1.0 + some), nothing),
        )

    def product(self, vectors: Tensor) -> Tensor:
        """Returns B times one vector per row, (N, D), by a single matrix product."""
        return self.scale * ((self.scale * vectors) @ self.covariance) + self.ridge * vectors

    def matrix(self) -> Tensor:
        """Returns all B, with shape (N, D, D)."""
        scaled = self.scale.unsqueeze(-1) * self.covariance * self.scale.unsqueeze(-2)
        return scaled + torch.diag_embed(self.ridge)

    def cholesky(self) -> Tensor:
        """Returns the lower factors of all B, with shape (N, D, D)."""
        factor: Tensor = torch.linalg.cholesky(self.matrix())
        return factor

    def inverse(self, factor: Tensor) -> Tensor:
        """Returns all inverses of A, with shape (N, D, D), from the factors of B."""
        return self.scale.unsqueeze(-1) * torch.cholesky_inverse(factor) * self.scale.unsqueeze(-2)

    @torch.no_grad()
    def bounds(self) -> tuple[Tensor, Tensor]:
        """Returns numbers below and above all eigenvalues of all B; no gradient flows through them."""
        eigenvalues = torch.linalg.eigvalsh(self.covariance)
        return eigenvalues[0].clamp(min=0.0, max=1.0), eigenvalues[-1].clamp(min=1.0)


def masked_solve(
    covariance: Tensor,
    observed: Tensor,
    residual: Tensor,
    precision: Tensor,
    *,
    solver: Solver = "cholesky",
    depth: int = 20,
) -> Tensor:
    r"""Returns :math:`h = A^{-1} r = \mathrm{diag}(s) \, B^{-1} \, \mathrm{diag}(s) \, r` of each row.

    The conditional mean of all cells is :math:`\mu + C h`. Where a cell is ignorable, :math:`h` is zero.

    Parameters
    ----------
    covariance : Tensor
        The matrix :math:`C`, symmetric and positive definite.
    observed : Tensor
        True where the cell is observed.
    residual : Tensor
        :math:`x_k - \mu_k` where observed and :math:`t_k - \mu_k` where missing.
    precision : Tensor
        :math:`p_k \geq 0` of missing cells. One at exactly 0 is ignorable: its residual is never read, and
        it receives no gradient. What it holds for observed cells has no influence.
    solver : {"neumann", "chebyshev", "cholesky", "cg"}
        "neumann" is the truncated series with the step that contracts for every pattern, "chebyshev" its
        acceleration; their gradient is that of the truncated series with the bounds of the eigenvalues held
        fixed. "cholesky" is exact; "cg" are conjugate gradients, preconditioned by the diagonal, in which
        a row stops once it has converged. Their gradient is that of the exact solution and costs one
        more solve.
    depth : int
        The number of products with the covariance; "cg" may need fewer, "cholesky" has none.

    Shapes
    ------
    covariance : :math:`(D, D)`
    observed, residual : :math:`(N, D)`
    precision : :math:`(N, D)`, or any shape that broadcasts to it.
    output : :math:`(N, D)`

    Notes
    -----
    The step of the series is :math:`1 / \lambda_{max}` and not :math:`2 / (\lambda_{max} + \lambda_{min})`,
    which has the best worst-case rate: along the leading directions, in which rows vary most, the former
    converges first and the latter last.

    References
    ----------
    Le Morvan et al. (2020), NeuMiss networks, propositions 2.1 (all :math:`p_k = 0`) and 2.2, where
    :math:`1 / p_k` is written :math:`\tilde\sigma_k^2` and :math:`t_k` is :math:`\tilde\mu_k`. Saad (2003),
    Iterative methods for sparse linear systems, sections 6.7 and 12.3.

    Examples
    --------
    >>> covariance = torch.tensor([[2.0, 1.0], [1.0, 3.0]])
    >>> observed, residual = torch.tensor([[True, False]]), torch.tensor([[4.0, torch.nan]])
    >>> masked_solve(covariance, observed, residual, torch.zeros(2))
    tensor([[2., 0.]])
    """
    if solver not in get_args(Solver):
        raise ValueError(f"solver must be one of {', '.join(get_args(Solver))}, got {solver!r}.")
    if depth < 0:
        raise ValueError(f"depth must not be negative, got {depth!r}.")
    residual, precision = _readable(observed, residual, precision)
    if solver in ("cholesky", "cg"):
        h: Tensor = _ImplicitSolve.apply(covariance, observed, residual, precision, solver, depth)  # type: ignore[no-untyped-call]
        return h

    system = MaskedSystem.from_precision(covariance, observed, precision)
    low, high = system.bounds()
    right = system.scale * residual
    if solver == "neumann":
        return system.scale * _iterate(system, right, 1.0 / high, [1.0] * depth)
    middle = 0.5 * (high + low)
    return system.scale * _iterate(
        system, right, 1.0 / middle, _chebyshev((high - low) / (high + low), depth)
    )


def masked_log_prob(covariance: Tensor, observed: Tensor, residual: Tensor, precision: Tensor) -> Tensor:
    r"""Returns the log density, for each row, of observed values and (up to a factor) pseudo-observations.

    .. math::
        -\tfrac12 \Big(|o| \log 2\pi + \log |B| + r^\top A^{-1} r + \sum_{k \in m} \log(1 + p_k)\Big)
        = \log \mathcal{N}(r; 0, A) + \tfrac12 \sum_{k \in m} \log \frac{2\pi}{p_k}

    It is the logarithm of :math:`\int \mathcal{N}(x; \mu, C) \prod_{k \in m} e^{-p_k (x_k - t_k)^2 / 2}
    \, dx_m`; where all missing cells are ignorable, it is :math:`\log p(x_o)`. Exact, by Cholesky.

    Shapes
    ------
    As those of `masked_solve`; the output is :math:`(N)`.

    Examples
    --------
    >>> seen = torch.tensor([[True, True], [True, False]])
    >>> masked_log_prob(torch.eye(2), seen, torch.zeros(2, 2), torch.zeros(2))
    tensor([-1.8379, -0.9189])
    """
    residual, precision = _readable(observed, residual, precision)
    log_prob: Tensor = _ImplicitLogProb.apply(covariance, observed, residual, precision)  # type: ignore[no-untyped-call]
    return log_prob


def masked_variance(covariance: Tensor, observed: Tensor, precision: Tensor) -> Tensor:
    r"""Returns the conditional variance of each cell, the diagonal of :math:`C - C A^{-1} C`.

    It is zero where a cell was observed. Exact, by Cholesky.

    Shapes
    ------
    As those of `masked_solve`; the output is :math:`(N, D)`.

    Examples
    --------
    >>> covariance = torch.tensor([[2.0, 1.0], [1.0, 3.0]])
    >>> masked_variance(covariance, torch.tensor([[True, False]]), torch.zeros(2))
    tensor([[0.0000, 2.5000]])
    """
    precision = precision.expand(observed.shape)
    variance: Tensor = _ImplicitVariance.apply(covariance, observed, precision)  # type: ignore[no-untyped-call]
    return torch.where(observed, 0.0, variance.clamp(min=0.0))


def _readable(observed: Tensor, residual: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
    """Fills the residuals that have no meaning, and expands the precisions to all rows."""
    precision = precision.expand(observed.shape)
    return torch.where(observed | (precision > 0), residual, 0.0), precision


def _iterate(system: MaskedSystem, right: Tensor, step: Tensor, momenta: Iterable[float | Tensor]) -> Tensor:
    """Richardson's iteration from zero, where `momenta` w repeat w - 1 of the last change; 1 is Neumann."""
    change = step * right
    solution = change
    for momentum in momenta:
        change = momentum * step * (right - system.product(solution)) + (momentum - 1.0) * change
        solution = solution + change
    return solution


def _chebyshev(ratio: Tensor, depth: int) -> list[Tensor]:
    """The momenta of Chebyshev's method for eigenvalues within middle * (1 - ratio, 1 + ratio)."""
    momenta = [2.0 / (2.0 - ratio.square())]
    while len(momenta) < depth:
        momenta.append(1.0 / (1.0 - 0.25 * ratio.square() * momenta[-1]))
    return momenta[:depth]


def _conjugate_gradients(system: MaskedSystem, right: Tensor, depth: int) -> Tensor:
    """Solves B x = `right` row by row; rows that have converged are not updated, which avoids 0 / 0."""
    inverse_diagonal = 1.0 / (system.scale.square() * system.covariance.diagonal() + system.ridge)
    solution, residual = torch.zeros_like(right), right
    direction = inverse_diagonal * residual
    norm = (residual * direction).sum(dim=-1, keepdim=True)  # (N, 1)
    enough = torch.finfo(right.dtype).eps ** 2 * norm
    for _ in range(depth):
        active = norm > enough
        if not active.any():
            break
        image = system.product(direction)
        curvature = torch.where(active, (direction * image).sum(dim=-1, keepdim=True), 1.0)
        length = torch.where(active, norm / curvature, 0.0)
        solution = solution + length * direction
        residual = residual - length * image
        steepest = inverse_diagonal * residual
        before, norm = norm, (residual * steepest).sum(dim=-1, keepdim=True)
        direction = steepest + torch.where(active, norm / torch.where(active, before, 1.0), 0.0) * direction
    return solution


def _solve_rows(system: MaskedSystem, solver: Solver, depth: int) -> Callable[[Tensor], Tensor]:
    """Returns the map from r to A^-1 r; a factorisation is made once and serves every call."""
    if solver == "cg":
        return lambda right: system.scale * _conjugate_gradients(system, system.scale * right, depth)
    factor = system.cholesky()

    def solve(right: Tensor) -> Tensor:
        scaled = (system.scale * right).unsqueeze(-1)
        return system.scale * torch.cholesky_solve(scaled, factor).squeeze(-1)

    return solve


class _ImplicitSolve(torch.autograd.Function):
    """A^-1 r with the derivative of the exact solution, regardless of the solver.

    With g = A^-1 dh: the gradient to r is g, to C it is -g h', and to p_k it is the product of the k-th
    elements of dh - C g and r - C h, because h_k = p_k (r - C h)_k and g_k = p_k (dh - C g)_k.
    """

    @staticmethod
    def forward(
        ctx: Any,
        covariance: Tensor,
        observed: Tensor,
        residual: Tensor,
        precision: Tensor,
        solver: Solver,
        depth: int,
    ) -> Tensor:
        ctx.solve = _solve_rows(MaskedSystem.from_precision(covariance, observed, precision), solver, depth)
        h: Tensor = ctx.solve(residual)
        ctx.save_for_backward(covariance, residual, h, ~observed & (precision > 0))
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        covariance, residual, h, informed = ctx.saved_tensors
        adjoint = ctx.solve(grad)
        to_precision = None
        if ctx.needs_input_grad[3]:
            product = (grad - adjoint @ covariance) * (residual - h @ covariance)
            to_precision = torch.where(informed, product, 0.0)
        to_covariance = adjoint.mT @ h
        return -0.5 * (to_covariance + to_covariance.mT), None, adjoint, to_precision, None, None


class _ImplicitLogProb(torch.autograd.Function):
    """The log density of `masked_log_prob` with its derivative.

    To r it is -h, to C it is (h h' - A^-1) / 2, and to p_k it is -E[(x_k - t_k)^2] / 2 given all that is
    known, of which the mean is (C h - r)_k and the variance that of `masked_variance`.
    """

    @staticmethod
    def forward(
        ctx: Any, covariance: Tensor, observed: Tensor, residual: Tensor, precision: Tensor
    ) -> Tensor:
        system = MaskedSystem.from_precision(covariance, observed, precision)
        factor = system.cholesky()
        scaled = (system.scale * residual).unsqueeze(-1)
        h = system.scale * torch.cholesky_solve(scaled, factor).squeeze(-1)
        ctx.system = system
        ctx.save_for_backward(residual, h, factor, ~observed & (precision > 0))

        log_det = 2.0 * factor.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)
        cells = torch.where(observed, _LOG_TWO_PI, torch.log1p(precision))
        return -0.5 * (log_det + (h * residual + cells).sum(dim=-1))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        residual, h, factor, informed = ctx.saved_tensors
        covariance = ctx.system.covariance
        inverse = ctx.system.inverse(factor)
        weighted = grad.unsqueeze(-1) * h
        to_precision = None
        if ctx.needs_input_grad[3]:
            variance = covariance.diagonal() - ((inverse @ covariance) * covariance).sum(dim=-2)
            square = (residual - h @ covariance).square() + variance
            to_precision = torch.where(informed, -0.5 * grad.unsqueeze(-1) * square, 0.0)
        to_covariance = 0.5 * (weighted.mT @ h - torch.tensordot(grad, inverse, dims=1))
        return to_covariance, None, -weighted, to_precision


class _ImplicitVariance(torch.autograd.Function):
    """The diagonal of V = C - C A^-1 C with its derivative: dV = T dC T' - V dP V, T = I - C A^-1."""

    @staticmethod
    def forward(ctx: Any, covariance: Tensor, observed: Tensor, precision: Tensor) -> Tensor:
        system = MaskedSystem.from_precision(covariance, observed, precision)
        explained = system.inverse(system.cholesky()) @ covariance  # (N, D, D)
        ctx.save_for_backward(covariance, explained, ~observed & (precision > 0))
        return covariance.diagonal() - (explained * covariance).sum(dim=-2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        covariance, explained, informed = ctx.saved_tensors
        left = torch.eye(len(covariance), dtype=grad.dtype) - explained  # (N, D, D), the transpose of T
        to_covariance = torch.einsum("nij,nkj->ik", left * grad.unsqueeze(-2), left)
        to_precision = None
        if ctx.needs_input_grad[2]:
            spread = left.mT @ covariance  # V
            to_precision = torch.where(informed, -(spread.square() @ grad.unsqueeze(-1)).squeeze(-1), 0.0)
        return to_covariance, None, to_precision


MIN_VARIANCE = 1e-6
"""Added to the diagonal of every covariance: it stays positive definite throughout training."""

MIN_CHANCE = 1e-6
"""The smallest initial height of a masking curve, and the smallest distance of its height from 1."""


@dataclass(frozen=True)
class Conditional:
    r"""The conditional Gaussian of each row, as a Gaussian block returns it.

    Shapes
    ------
    h : :math:`(N, D)`, the solution of the row's system, on which a linear layer can predict.
    mean : :math:`(N, D)`, the conditional mean; observed cells are the values themselves.
    observed : :math:`(N, D)`
    covariance, precision : :math:`(D, D)` and :math:`(D)`, of the block.
    """

    h: Tensor
    mean: Tensor
    observed: Tensor
    covariance: Tensor
    precision: Tensor

    @cached_property
    def variance(self) -> Tensor:
        """The conditional variance (N, D) of each cell, zero where observed; computed on first access."""
        return masked_variance(self.covariance, self.observed, self.precision)


class GaussianBlock(nn.Module):
    r"""A Gaussian of incomplete rows with learned parameters: a NeuMiss block that cannot diverge.

    The rows are :math:`X \sim \mathcal{N}(\mu, C)` with :math:`C = F F^\top + \mathrm{diag}(v)` and
    :math:`v > 0`. Missing cells are ignorable (MAR), or with `self_masking` they are missing with probability

    .. math:: P(k \text{ missing} \mid X) = K_k \exp\left(-\tfrac12 p_k (X_k - t_k)^2\right)

    (MNAR). In both cases the block solves one positive definite system per row,
    :math:`(C + \mathrm{diag}(n)) \, h = r`, where an observed cell has :math:`n_k = 0, r_k = x_k - \mu_k` and
    a missing one :math:`n_k = 1 / p_k, r_k = t_k - \mu_k`. Then :math:`\mathrm{E}[X \mid x_o, o] = \mu +
    C h`, so the Bayes predictor of a linear response is one linear function of :math:`h` for every pattern.

    Parameters
    ----------
    n_features : int
        The number of features :math:`D`.
    self_masking : bool
        Whether the probability that a cell is missing depends on its value; otherwise :math:`p_k = 0`.
    solver : {"neumann", "chebyshev", "cholesky", "cg"}
        The solver of the system, see `masked_solve`.
    depth : int
        The number of steps of a solver that is not "cholesky".

    Shapes
    ------
    batch : :math:`(N, D)`, of the type of the parameters; entries of `x` where `observed` is False are never
        read.

    Notes
    -----
    It is initialised as a standard normal with wide masking curves around the mean; `set_gaussian` sets the
    parameters to estimates. Features should be standardised.

    References
    ----------
    Le Morvan et al. (2020), NeuMiss networks, propositions 2.1 and 2.2. We write :math:`1 / p_k` and
    :math:`t_k` for their :math:`\tilde\sigma_k^2` and :math:`\tilde\mu_k`, and read the factor of a missing
    cell as a pseudo-observation; the paper approximates what is exact here.

    Examples
    --------
    >>> block = GaussianBlock(n_features=2)
    >>> block.set_gaussian(torch.zeros(2), torch.tensor([[1.0, 0.8], [0.8, 1.0]]))
    >>> batch = Incomplete(torch.tensor([[1.0, torch.nan]]), torch.tensor([[True, False]]))
    >>> conditional = block(batch)
    >>> conditional.mean
    tensor([[1.0000, 0.8000]], grad_fn=<WhereBackward0>)
    >>> conditional.variance
    tensor([[0.0000, 0.3600]], grad_fn=<WhereBackward0>)
    """

    def __init__(
        self, n_features: int, *, self_masking: bool = False, solver: Solver = "cholesky", depth: int = 20
    ) -> None:
        super().__init__()
        if n_features < 1:
            raise ValueError(f"n_features must be at least 1, got {n_features!r}.")
        self.n_features = n_features
        self.self_masking = self_masking
        self.solver: Solver = solver
        self.depth = depth

        self.loc = nn.Parameter(torch.zeros(n_features))  # (D,)
        self.factor = nn.Parameter(torch.zeros(n_features, n_features))  # (D, D)
        self.raw_variance = nn.Parameter(torch.zeros(n_features))  # (D,)
        if self_masking:
            self.centre = nn.Parameter(torch.zeros(n_features))  # (D,)
            self.log_precision = nn.Parameter(torch.full((n_features,), 0.1).log())  # (D,)
            self.logit_height = nn.Parameter(torch.zeros(n_features))  # (D,)
        self.set_gaussian(torch.zeros(n_features), torch.eye(n_features))

    def extra_repr(self) -> str:
        """Returns the arguments of the constructor."""
        return (
            f"n_features={self.n_features}, self_masking={self.self_masking}, "
            f"solver={self.solver!r}, depth={self.depth}"
        )

    def covariance(self) -> Tensor:
        """Returns the covariance, of shape (D, D)."""
        variance = MIN_VARIANCE + functional.softplus(self.raw_variance)
        return self.factor @ self.factor.mT + torch.diag(variance)

    def precision(self) -> Tensor:
        """Returns the precision (D) of pseudo-observations of missing cells; zero without self-masking."""
        return self.log_precision.exp() if self.self_masking else torch.zeros_like(self.loc)

    def forward(self, batch: Incomplete) -> Conditional:
        """Returns the conditional Gaussian of each row."""
        covariance, precision = self.covariance(), self.precision()
        h = masked_solve(
            covariance, batch.observed, self._residual(batch), precision, solver=self.solver, depth=self.depth
        )
        mean = batch.filled(self.loc + h @ covariance)

        return Conditional(h, mean, batch.observed, covariance, precision)

    def log_prob(self, batch: Incomplete) -> Tensor:
        r"""Returns the log density (N) of the observed cells; with `self_masking`, of them and the mask.

        .. math::
            \log p(x_o, o) = \log \mathcal{N}(r; 0, C + \mathrm{diag}(n))
            + \sum_{k \in m} \log\left(K_k \sqrt{2\pi / p_k}\right)
            + \sum_{k \in o} \log\left(1 - K_k e^{-p_k (x_k - t_k)^2 / 2}\right)

        It is exact, regardless of the solver.
        """
        residual = self._residual(batch)
        log_prob = masked_log_prob(self.covariance(), batch.observed, residual, self.precision())
        if not self.self_masking:
            return log_prob

        distance = 0.5 * self.precision() * (batch.filled(self.centre) - self.centre).square()
        height = self.logit_height.sigmoid()
        # 1 - K exp(-q) = (1 - K) + K (1 - exp(-q)): a sum of positive numbers, in which no digit is lost.
        chance_seen = (-self.logit_height).sigmoid() - height * torch.expm1(-distance)
        log_mask = torch.where(batch.observed, chance_seen.log(), functional.logsigmoid(self.logit_height))
        return log_prob + log_mask.sum(dim=-1)

    @torch.no_grad()
    def set_gaussian(
        self,
        loc: Tensor,
        covariance: Tensor,
        centre: Tensor | None = None,
        precision: Tensor | None = None,
        height: Tensor | None = None,
    ) -> None:
        r"""Sets the parameters to these values; masking curves that are None stay as they are.

        If the covariance is singular or nearly so, its diagonal is increased by at most about `MIN_VARIANCE`.

        Parameters
        ----------
        loc, covariance : Tensor
            :math:`\mu` and :math:`C`, of shapes :math:`(D)` and :math:`(D, D)`.
        centre, precision, height : Tensor, optional
            :math:`t`, :math:`p > 0` and :math:`0 \leq K \leq 1`, each of shape :math:`(D)`.

        Raises
        ------
        ValueError
            If masking curves are given to a block without `self_masking`, or a precision is not positive.
        """
        root, variance = _split_covariance(covariance.double())
        above = variance - MIN_VARIANCE
        self.loc.copy_(loc)
        self.factor.copy_(root)
        self.raw_variance.copy_(inverse_softplus(above))
        if not self.self_masking and not (centre is None and precision is None and height is None):
            raise ValueError("centre, precision and height need a block with self_masking=True.")
        if centre is not None:
            self.centre.copy_(centre)
        if precision is not None:
            if not (precision > 0).all():
                raise ValueError(f"precision must be positive, got {precision.min().item()!r}.")
            self.log_precision.copy_(precision.log())
        if height is not None:
            self.logit_height.copy_(torch.logit(height.double(), eps=MIN_CHANCE))

    def _residual(self, batch: Incomplete) -> Tensor:
        """Returns observed values, or pseudo-observations of missing ones, minus the mean."""
        return batch.filled(self.centre if self.self_masking else self.loc) - self.loc


def _split_covariance(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Splits a covariance into a square root and a diagonal that is half of the largest possible."""
    spread = covariance.diagonal().clamp(min=MIN_VARIANCE).sqrt()
    correlation = covariance / (spread * spread.unsqueeze(-1))
    share = 0.5 * torch.linalg.eigvalsh(correlation)[0]
    variance = (share * spread.square()).clamp(min=2.0 * MIN_VARIANCE)
    eigenvalues, vectors = torch.linalg.eigh(covariance - torch.diag(variance))
    return vectors * eigenvalues.clamp(min=0.0).sqrt() @ vectors.mT, variance
