r"""Draws of the parameters of a Gaussian given incomplete data, so that multiple imputation is proper."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from halfseen._threads import task_threads
from halfseen.data.incomplete import Incomplete, add_in_tree, rows_in_piece
from halfseen.gaussian.distribution import Bucket, Gaussian, plan_buckets
from halfseen.gaussian.em import Ridge
from halfseen.gaussian.low_rank import LowRankGaussian, pack, unpack

BURN_IN = 20  # the chain starts at the maximum of the likelihood, so it need only spread out
COPIES = 32  # number of arrays of the size of the rows, including buckets, at the peak of a step
LEAST_FREEDOM = 3.0  # of the variance of a feature of low rank
LEAST_NOISE = 1e-6  # minimum variance of a standardised feature given the factors, as in the fit
WORKING_BYTES = 32 * 2**20  # of the systems of features that are solved at once
STEPS_BETWEEN = 5  # draws correlate as the fraction of missing information to this power


@dataclass(frozen=True)
class Trace:
    """The parameters at every step of a data augmentation.

    Attributes
    ----------
    names : tuple of str
        The numeric columns.
    mean, std : ndarray of shape (n_steps, n_columns)
        Their means and standard deviations, as scores of the columns.
    """

    names: tuple[str, ...]
    mean: npt.NDArray[np.float64]
    std: npt.NDArray[np.float64]
    of: ClassVar[str] = "scores"

    @property
    def kept(self) -> list[int]:
        """The steps whose parameters are kept."""
        return list(range(BURN_IN + STEPS_BETWEEN - 1, len(self.mean), STEPS_BETWEEN))

    @classmethod
    def of_steps(cls, names: Sequence[str], steps: Sequence[Gaussian]) -> "Trace":
        """Reads the first features of all steps, which are the numeric columns."""
        width = len(names)
        mean = torch.stack([one.loc[:width] for one in steps]).numpy()
        std = torch.stack([one.variance[:width].sqrt() for one in steps]).numpy()
        return cls(tuple(names), mean, std)


@task_threads()
def sample_posterior(
    batches: Iterable[Incomplete],
    start: Gaussian,
    *,
    ridge: float,
    generator: torch.Generator,
    steps: list[Gaussian] | None = None,
) -> list[Gaussian]:
    r"""Draws parameters from their posterior by data augmentation, one for each batch.

    Each step draws the missing cells given the parameters, then the parameters given the completed table:

    .. math::
        \Sigma \sim \mathcal{W}^{-1}(S + \lambda \Psi,\; N - 1 + \lambda), \qquad
        \mu \sim \mathcal{N}(\bar{x}, \Sigma / N)

    with S the scatter about the mean: Jeffreys' prior, and :math:`\lambda` pseudo-rows of uncorrelated data,
    whose variances :math:`\Psi` are those of the fit (see `Ridge`).
    With fewer rows than features the degrees of freedom are raised to D + 2. Valid under MAR.

    If the fit is of low rank plus a diagonal, the factors of each row are drawn given the parameters, then
    the regression of each feature on them: a step costs :math:`N D K^2 + D K^3` operations, and the draws are
    of low rank, too. The degrees of freedom of each feature are the rows in which it is observed plus
    :math:`\lambda`, minus the number of coefficients, but at least 3, as those above are for one feature.

    Parameters
    ----------
    batches : iterable of Incomplete
        (N, D), features of unit variance: those of the same table, perhaps under margins that are drawn, too.
    start : Gaussian
        Where the chain starts: the fit.
    ridge : float
        The pseudo-rows :math:`\lambda` of the fit.
    generator : torch.Generator
        The source of all noise.
    steps : list, optional
        The parameters of every step are appended to it.

    References
    ----------
    Schafer (1997), Analysis of Incomplete Multivariate Data, section 5.4.
    """
    gaussian, kept = start, list[Gaussian]()
    for number, batch in enumerate(batches):
        step = _low_rank_step if isinstance(start, LowRankGaussian) else _free_step
        following = step(batch, start, ridge, generator)
        for _ in range(STEPS_BETWEEN + (0 if number else BURN_IN)):
            gaussian = following(gaussian)
            if steps is not None:
                steps.append(gaussian)
        kept.append(gaussian)
    return kept


def _free_step(
    batch: Incomplete, start: Gaussian, ridge: float, generator: torch.Generator
) -> Callable[[Gaussian], Gaussian]:
    """Returns the step of a covariance without restrictions."""
    prior = ridge * Ridge.of(batch, ridge).variances(start)
    size = rows_in_piece(batch.n_features, COPIES * batch.n_features)
    parts = [(part, list(plan_buckets(part.observed))) for part in batch.chunks(size)]

    def step(gaussian: Gaussian) -> Gaussian:
        # Of all rows at once, so that draws do not depend on the size of pieces.
        normals = torch.randn(batch.x.shape, generator=generator, dtype=batch.x.dtype).split(size)
        moments = [
            _completed_moments(gaussian, part, buckets, noise)
            for (part, buckets), noise in zip(parts, normals, strict=True)
        ]
        merged = add_in_tree(moments, _merge)
        assert merged is not None  # there is at least one row
        return _draw_parameters(merged, ridge, prior, generator)

    return step


def _low_rank_step(
    batch: Incomplete, start: Gaussian, ridge: float, generator: torch.Generator
) -> Callable[[Gaussian], Gaussian]:
    """Returns the step of a covariance of low rank plus a diagonal."""

    def step(gaussian: Gaussian) -> Gaussian:
        assert isinstance(gaussian, LowRankGaussian)
        return _draw_low_rank(gaussian, batch, ridge, generator)

    return step


class _Moments(NamedTuple):
    """The number of rows, their mean (D), and their scatter (D, D) about the mean."""

    n_rows: int
    mean: Tensor
    scatter: Tensor


def _completed_moments(
    gaussian: Gaussian, part: Incomplete, buckets: Sequence[Bucket], normals: Tensor
) -> _Moments:
    """Draws the missing cells of some rows, and returns the moments of the completed rows."""
    completed = gaussian.complete(part.x, part.observed, normals, buckets)
    mean = completed.mean(dim=0)
    centred = completed - mean
    return _Moments(len(part), mean, centred.T @ centred)


def _merge(one: _Moments, other: _Moments) -> _Moments:
    """Returns the moments of the rows of both."""
    n_rows = one.n_rows + other.n_rows
    apart = other.mean - one.mean
    between = torch.outer(apart, apart) * (one.n_rows * other.n_rows / n_rows)
    mean = one.mean + apart * (other.n_rows / n_rows)
    return _Moments(n_rows, mean, one.scatter + other.scatter + between)


def _draw_parameters(moments: _Moments, ridge: float, prior: Tensor, generator: torch.Generator) -> Gaussian:
    """Draws parameters given the moments of rows and of `ridge` pseudo-rows, with squares `prior` (D)."""
    n_rows, mean, scatter = moments
    n_features, dtype = len(mean), mean.dtype
    scale = scatter + prior.clamp(min=1e-9).diag()
    freedom = max(n_rows - 1 + ridge, n_features + 2.0)
    root = torch.linalg.cholesky(scale)
    # Bartlett: A A' is a standard Wishart draw with A triangular, and root (A A')^-1 root' an inverse one.
    triangle = torch.randn(n_features, n_features, generator=generator, dtype=dtype).tril(-1)
    shapes = (freedom - torch.arange(n_features, dtype=dtype)) / 2
    chi_squared = 2 * torch._standard_gamma(shapes, generator=generator)
    triangle.diagonal().copy_(chi_squared.sqrt())
    factor = torch.linalg.solve_triangular(triangle, root.T, upper=False).T  # (D, D), factor of Sigma
    covariance = factor @ factor.T
    noise = torch.randn(n_features, generator=generator, dtype=dtype)
    return Gaussian(mean + factor @ noise / n_rows**0.5, covariance)


def _draw_low_rank(
    gaussian: LowRankGaussian, batch: Incomplete, ridge: float, generator: torch.Generator
) -> LowRankGaussian:
    """Draws the factors of rows (N, D) given the parameters, and the parameters given the factors.

    The pseudo-rows have the factors that are expected given the parameters, as in the fit.
    """
    (n_features, rank), dtype = gaussian.loadings.shape, batch.x.dtype
    triangles = gaussian.products()
    squares, products = _factor_moments(gaussian, batch, triangles, generator)
    inner = unpack(triangles.sum(dim=0, keepdim=True), rank)[0] + torch.eye(rank, dtype=dtype)
    spread = torch.linalg.inv(inner)
    beta = gaussian.weighted @ spread  # (D, K): the factors that a pseudo-row gives
    prior = torch.nn.functional.pad(ridge * (spread + beta.T @ beta), (0, 1, 0, 1))
    products = products + ridge * torch.nn.functional.pad(beta, (0, 1))
    counts = batch.observed.sum(dim=0).to(dtype)
    total = (batch.observed * batch.filled().square()).sum(dim=0) + ridge
    freedom = (counts + ridge - rank - 1).clamp(min=LEAST_FREEDOM)
    chi_squared = 2 * torch._standard_gamma(freedom / 2, generator=generator)
    deviates = torch.randn(n_features, rank + 1, generator=generator, dtype=dtype)
    drawn, noise = torch.empty_like(deviates), torch.empty_like(total)
    for some in torch.arange(n_features).split(max(1, WORKING_BYTES // (32 * (rank + 1) ** 2))):
        matrix = unpack(squares[some], rank + 1).add_(prior)
        matrix[:, -1, -1] += (counts[some] == 0).to(dtype)  # the mean is of no consequence
        root = torch.linalg.cholesky(matrix)
        centre = torch.cholesky_solve(products[some, :, None], root)
        left = total[some] - (centre.squeeze(-1) * products[some]).sum(dim=1)
        noise[some] = (left / chi_squared[some]).clamp(min=LEAST_NOISE)
        apart = torch.linalg.solve_triangular(root.mT, deviates[some, :, None], upper=True)
        drawn[some] = (centre + noise[some, None, None].sqrt() * apart).squeeze(-1)
    return LowRankGaussian(drawn[:, -1], drawn[:, :-1], noise)


def _factor_moments(
    gaussian: LowRankGaussian, batch: Incomplete, triangles: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draws the factors of all rows, with a constant after them, and sums them over rows that show a feature.

    Returns the lower triangles of their second moments (D, (K + 1) (K + 2) / 2), and their products with the
    values (D, K + 1).
    """
    (n_features, rank), dtype = gaussian.loadings.shape, batch.x.dtype
    normals = torch.randn(len(batch), rank, generator=generator, dtype=dtype)
    squares = torch.zeros(n_features, (rank + 1) * (rank + 2) // 2, dtype=dtype)
    products = torch.zeros(n_features, rank + 1, dtype=dtype)
    for part, noise in zip(
        batch.chunks(gaussian.block_rows), normals.split(gaussian.block_rows), strict=True
    ):
        mean, spread, _ = gaussian.factors(part, triangles)
        factors = mean + (torch.linalg.cholesky(spread) @ noise.unsqueeze(-1)).squeeze(-1)
        factors = torch.nn.functional.pad(factors, (0, 1), value=1.0)  # (R, K + 1)
        seen = part.observed.to(dtype)
        squares += seen.T @ pack(factors[:, :, None] * factors[:, None, :])
        products += (seen * part.filled()).T @ factors
    return squares, products
