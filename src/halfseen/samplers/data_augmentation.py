r"""Draws of the parameters of a Gaussian given incomplete data, so that multiple imputation is proper."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from halfseen._threads import task_threads
from halfseen.config import rows_within_budget
from halfseen.data.incomplete import Incomplete
from halfseen.distributions.gaussian import Gaussian
from halfseen.distributions.patterns import Bucket, plan_buckets
from halfseen.distributions.ridge import Ridge

BURN_IN = 20  # the chain starts at the maximum of the likelihood, so it need only spread out
COPIES = 32  # number of arrays of the size of the rows, including buckets, at the peak of a step
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

    @property
    def kept(self) -> list[int]:
        """The steps whose parameters are kept."""
        return list(range(BURN_IN + STEPS_BETWEEN - 1, len(self.mean), STEPS_BETWEEN))

    @classmethod
    def of(cls, names: Sequence[str], steps: Sequence[Gaussian]) -> "Trace":
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
    gaussian, kept = start, []
    for number, batch in enumerate(batches):
        prior = ridge * Ridge.of(batch, ridge).variances(start)
        size = rows_within_budget(COPIES * batch.n_features)
        parts = [(part, list(plan_buckets(part.observed))) for part in batch.chunks(size)]
        for _ in range(STEPS_BETWEEN + (0 if number else BURN_IN)):
            # Of all rows at once, so that draws do not depend on the memory budget.
            normals = torch.randn(batch.x.shape, generator=generator, dtype=batch.x.dtype).split(size)
            moments = [
                _completed_moments(gaussian, part, buckets, noise)
                for (part, buckets), noise in zip(parts, normals, strict=True)
            ]
            gaussian = _draw_parameters(reduce(_merge, moments), ridge, prior, generator)
            if steps is not None:
                steps.append(gaussian)
        kept.append(gaussian)
    return kept


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
