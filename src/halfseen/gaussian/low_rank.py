r"""A Gaussian whose covariance is of low rank plus a diagonal, for tables with many columns."""

from collections.abc import Iterable
from functools import cached_property
from math import log, pi

import torch
from torch import Tensor

from halfseen.data.incomplete import Incomplete
from halfseen.gaussian.distribution import Gaussian, without_overflow
from halfseen.gaussian.patterns import Bucket

WORKING_BYTES = 32 * 2**20  # of one block of rows


class LowRankGaussian(Gaussian):
    r"""A factor analysis: :math:`x = \mu + W z + \varepsilon` with K standard normal factors z.

    .. math:: x \sim \mathcal{N}(\mu, W W^\top + \operatorname{diag}(\psi))

    All results are exactly those of a `Gaussian` with that covariance, by the Woodbury identity: a row costs
    :math:`D K^2` operations for every pattern, and no D x D matrix is created unless `covariance` is
    accessed.

    Parameters
    ----------
    loc : Tensor
        (D), the mean.
    loadings : Tensor
        (D, K), the matrix W.
    noise : Tensor
        (D), the variances :math:`\psi`, all positive.

    References
    ----------
    Rubin & Thayer (1982), EM algorithms for ML factor analysis.

    Examples
    --------
    >>> loadings, noise = torch.tensor([[0.8], [0.8]]), torch.tensor([0.36, 0.36])
    >>> gaussian = LowRankGaussian(torch.zeros(2), loadings, noise)
    >>> batch = Incomplete(torch.tensor([[1.0, 0.0]]), torch.tensor([[True, False]]))
    >>> gaussian.conditional_mean(batch)
    tensor([[1.0000, 0.6400]])
    """

    loadings: Tensor
    noise: Tensor

    def __init__(self, loc: Tensor, loadings: Tensor, noise: Tensor) -> None:
        for name, value in (("loc", loc), ("loadings", loadings), ("noise", noise)):
            object.__setattr__(self, name, value)

    @classmethod
    def checked_factors(cls, loc: Tensor, loadings: Tensor, noise: Tensor) -> "LowRankGaussian":
        """Returns the distribution; raises a ValueError unless tensors fit and variances are positive."""
        fits = loc.ndim == 1 and loadings.ndim == 2 and loadings.shape[:1] == loc.shape == noise.shape
        if not fits or not loc.dtype == loadings.dtype == noise.dtype:
            raise ValueError("The mean, loadings and noise of a Gaussian do not fit together.")
        if not bool((noise > 0).all()):
            raise ValueError("The noise of a Gaussian is not positive.")
        return cls(loc, loadings, noise)

    @cached_property
    def covariance(self) -> Tensor:
        """The covariance (D, D)."""
        return self.loadings @ self.loadings.T + self.noise.diag()

    @cached_property
    def variance(self) -> Tensor:
        """The variances (D)."""
        return self.loadings.square().sum(dim=1) + self.noise

    def covariance_of(self, features: Tensor) -> Tensor:
        """Returns the covariances (F, D) of some features with all."""
        covariance = self.loadings[features] @ self.loadings.T
        covariance[torch.arange(len(features)), features] += self.noise[features]
        return covariance

    def without(self, noise: Tensor) -> Gaussian:
        """Returns the distribution with independent noise of variances (D) subtracted."""
        return LowRankGaussian(self.loc, self.loadings, self.noise - noise)

    @cached_property
    def weighted(self) -> Tensor:
        r"""The loadings divided by the noise, (D, K): :math:`\Psi^{-1} W`."""
        return self.loadings / self.noise[:, None]

    @cached_property
    def root(self) -> tuple[Tensor, Tensor]:
        r"""Vectors Q (D, K) and s (K) with :math:`(I + Q s Q^\top)^2 = \Psi^{-1/2} \Sigma \Psi^{-1/2}`."""
        scaled = self.loadings / self.noise.sqrt()[:, None]
        values, rotation = torch.linalg.eigh(scaled.T @ scaled)
        values = values.clamp(min=1e-30)
        return scaled @ (rotation / values.sqrt()), (1 + values).sqrt() - 1

    def log_prob(self, batch: Incomplete) -> Tensor:
        """Returns the log density (N) of the observed cells; 0 for a row without observed cells."""
        products = self.products()
        parts = [self.factors(part, products)[2] for part in batch.chunks(self.block_rows)]
        return torch.cat(parts) if parts else batch.x.new_zeros(0)

    def complete(
        self,
        x: Tensor,
        observed: Tensor,
        normals: Tensor | None = None,
        buckets: Iterable[Bucket] | None = None,
    ) -> Tensor:
        """Returns rows (*, N, D) with the missing cells drawn given the observed ones; see `Gaussian`."""
        joint = torch.zeros_like(x) if normals is None else self.unconditional(normals)
        residual = torch.where(observed, x - self.loc - joint, 0.0)
        right, products = residual @ self.weighted, self.products()
        factors = torch.empty_like(right)  # (*, N, K)
        for rows in torch.arange(len(observed)).split(self.block_rows):
            inner = self._inner(observed[rows], products)
            factors[..., rows, :] = torch.cholesky_solve(right[..., rows, :, None], inner).squeeze(-1)
        return torch.where(observed, x, self.loc + joint + factors @ self.loadings.T)

    def moments(self, batch: Incomplete) -> tuple[Tensor, Tensor]:
        """Returns the conditional mean and variance (N, D) of each cell."""
        mean = self.conditional_mean(batch)
        variance, products = torch.empty_like(mean), self.products()
        for rows in torch.arange(len(batch)).split(self.block_rows):
            spread = torch.cholesky_inverse(self._inner(batch.observed[rows], products))  # (R, K, K)
            variance[rows] = pack(2 * spread - torch.diag_embed(spread.diagonal(dim1=1, dim2=2))) @ products.T
        variance = (variance + 1) * self.noise
        return mean, torch.where(batch.observed, 0.0, variance)

    def factors(self, batch: Incomplete, products: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns mean (N, K) and covariance (N, K, K) of the factors given each row, and its log density."""
        residual = torch.where(batch.observed, batch.x - self.loc, 0.0)
        inner = self._inner(batch.observed, products)
        right = residual @ self.weighted
        mean = torch.cholesky_solve(right.unsqueeze(-1), inner).squeeze(-1)
        log_det = batch.observed.to(batch.x.dtype) @ self.noise.log()
        log_det = log_det + 2 * inner.diagonal(dim1=1, dim2=2).log().sum(dim=1)
        distance = without_overflow((residual.square() / self.noise).sum(dim=1) - (right * mean).sum(dim=1))
        n_observed = batch.observed.sum(dim=1).to(batch.x.dtype)
        log_prob = -0.5 * (n_observed * log(2 * pi) + log_det + distance)
        return mean, torch.cholesky_inverse(inner), log_prob

    def products(self) -> Tensor:
        r"""Returns :math:`w_d w_d^\top / \psi_d` of each feature, as lower triangles (D, K (K + 1) / 2)."""
        row, column = torch.tril_indices(self.loadings.shape[1], self.loadings.shape[1])
        return self.loadings.index_select(1, row) * self.weighted.index_select(1, column)

    def _inner(self, observed: Tensor, products: Tensor) -> Tensor:
        r"""Returns the factors (R, K, K) of :math:`I + W_o^\top \Psi_o^{-1} W_o`, the precision of z."""
        inner = unpack(observed.to(products.dtype) @ products, self.loadings.shape[1])
        inner.diagonal(dim1=1, dim2=2).add_(1.0)
        factor: Tensor = torch.linalg.cholesky(inner)
        return factor

    def unconditional(self, normals: Tensor) -> Tensor:
        """Returns draws (*, N, D) about zero, a linear map of as many normals."""
        vectors, scale = self.root
        return (normals + ((normals @ vectors) * scale) @ vectors.T) * self.noise.sqrt()

    @property
    def block_rows(self) -> int:
        """How many rows are answered at once."""
        n_features, n_factors = self.loadings.shape
        return max(1, WORKING_BYTES // (8 * max(1, n_features + 3 * n_factors**2)))


def pack(matrices: Tensor) -> Tensor:
    """Returns the lower triangles (N, K (K + 1) / 2) of symmetric matrices (N, K, K), row by row."""
    size = matrices.shape[1]
    row, column = torch.tril_indices(size, size)
    return matrices.reshape(len(matrices), size**2).index_select(1, row * size + column)


def unpack(packed: Tensor, size: int) -> Tensor:
    """Returns the symmetric matrices (N, K, K) of which `pack` took the lower triangles."""
    row, column = torch.tril_indices(size, size)
    place = torch.empty(size, size, dtype=torch.int64)
    place[row, column] = place[column, row] = torch.arange(len(row))
    return packed.index_select(1, place.flatten()).view(len(packed), size, size)
