r"""Draws of the parameters of a Gaussian given incomplete data, so that multiple imputation is proper."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from halfseen._threads import task_threads
from halfseen.data.incomplete import Incomplete
from halfseen.distributions.gaussian import Gaussian
from halfseen.distributions.patterns import plan_buckets

BURN_IN = 20  # the chain starts at the maximum of the likelihood, so it need only spread out
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
        std = torch.stack([one.covariance.diagonal()[:width].sqrt() for one in steps]).numpy()
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
        \Sigma \sim \mathcal{W}^{-1}(S + \lambda I,\; N - 1 + \lambda), \qquad
        \mu \sim \mathcal{N}(\bar{x}, \Sigma / N)

    with S the scatter about the mean: Jeffreys' prior, and :math:`\lambda` pseudo-rows of uncorrelated data.
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
        buckets = list(plan_buckets(batch.observed))
        for _ in range(STEPS_BETWEEN + (0 if number else BURN_IN)):
            normals = torch.randn(batch.x.shape, generator=generator, dtype=batch.x.dtype)
            completed = gaussian.complete(batch.x, batch.observed, normals, buckets)
            gaussian = _draw_parameters(completed, ridge, generator)
            if steps is not None:
                steps.append(gaussian)
        kept.append(gaussian)
    return kept


def _draw_parameters(completed: Tensor, ridge: float, generator: torch.Generator) -> Gaussian:
    n_rows, n_features = completed.shape
    mean = completed.mean(dim=0)
    centred = completed - mean
    scale = centred.T @ centred + max(ridge, 1e-9) * torch.eye(n_features, dtype=completed.dtype)
    freedom = max(n_rows - 1 + ridge, n_features + 2.0)
    root = torch.linalg.cholesky(scale)
    # Bartlett: A A' is a standard Wishart draw with A triangular, and root (A A')^-1 root' an inverse one.
    triangle = torch.randn(n_features, n_features, generator=generator, dtype=completed.dtype).tril(-1)
    shapes = (freedom - torch.arange(n_features, dtype=completed.dtype)) / 2
    chi_squared = 2 * torch._standard_gamma(shapes, generator=generator)
    triangle.diagonal().copy_(chi_squared.sqrt())
    factor = torch.linalg.solve_triangular(triangle, root.T, upper=False).T  # (D, D), factor of Sigma
    covariance = factor @ factor.T
    noise = torch.randn(n_features, generator=generator, dtype=completed.dtype)
    return Gaussian(mean + factor @ noise / n_rows**0.5, covariance)
