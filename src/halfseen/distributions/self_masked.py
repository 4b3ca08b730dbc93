r"""A Gaussian whose features hide themselves: conditionals, draws and the joint likelihood of row and mask."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import log, pi

import torch
from torch import Tensor

from halfseen._threads import map_in_threads
from halfseen.data.incomplete import Incomplete
from halfseen.distributions.gaussian import PARALLEL_CELLS, Gaussian, _padded
from halfseen.distributions.patterns import Bucket, plan_buckets
from halfseen.distributions.self_masks import SelfMask, Sites

EP_SWEEPS = 12
DAMPING = 0.8  # the share of a new site, where sites of a row change together


@dataclass(frozen=True)
class Posterior:
    r"""The law of what is hidden, given sites.

    Shapes
    ------
    mean : :math:`(N, D)`, observed cells in place.
    variance : :math:`(N, D)`, zero where observed.
    covariance : :math:`(D, D)`, the weighted sum over rows of the conditional covariance.
    log_evidence : :math:`(N)`, the log of the integral over the hidden cells with the sites in it.
    """

    mean: Tensor
    variance: Tensor
    covariance: Tensor
    log_evidence: Tensor


@dataclass(frozen=True)
class SelfMaskedGaussian:
    r"""A Gaussian over D features, each of which is missing with a probability of its own value.

    .. math:: p(x, m) = \mathcal{N}(x \mid \mu, \Sigma) \prod_{d \in m} \pi_d(x_d)
              \prod_{d \notin m} (1 - \pi_d(x_d))

    With the factor of a hidden cell as a site :math:`(\tau, \nu)` and :math:`\Lambda = \Sigma^{-1}`,

    .. math:: x_m \mid x_o \sim \mathcal{N}(\mu_m + Q^{-1} b, Q^{-1}), \quad
        Q = \Lambda_{mm} + \mathrm{diag}(\tau), \quad
        b = \nu - \tau \mu_m - \Lambda_{mo} (x_o - \mu_o)

    one positive definite system for each row, whatever is missing. Exact if the mask is a bump; by expectation
    propagation, a Gaussian approximation of the hidden cells, if it is a probit.

    Parameters
    ----------
    gaussian : Gaussian
        The law of complete rows.
    mask : SelfMask
        How features hide.

    References
    ----------
    Le Morvan et al. (2020), NeuMiss networks, proposition 2.2, of which this is the precision form.
    """

    gaussian: Gaussian
    mask: SelfMask

    @property
    def loc(self) -> Tensor:
        """The mean of complete rows."""
        return self.gaussian.loc

    def log_prob(self, batch: Incomplete) -> Tensor:
        """Returns the log density (N) of the observed cells together with the mask."""
        return self.log_joint(batch, *self.settle(batch))

    def log_joint(self, batch: Incomplete, posterior: Posterior, sites: Sites) -> Tensor:
        """Returns the log density (N) of the observed cells and the mask, from sites that fit together."""
        scales = self.mask.log_scale(
            *self.without_sites(posterior, sites), sites.precision, sites.linear
        )
        shown = self.mask.log_observed(batch.filled(self.loc))
        return posterior.log_evidence + torch.where(batch.observed, shown, scales).sum(dim=1)

    def conditional_mean(self, batch: Incomplete) -> Tensor:
        """Returns (N, D): the mean of each missing cell given the row and the mask; observed ones exact."""
        return self.settle(batch)[0].mean

    def conditional_variance(self, batch: Incomplete) -> Tensor:
        """Returns (N, D): the variance of each missing cell given the row and the mask, 0 where observed."""
        return self.settle(batch)[0].variance

    def moments(self, batch: Incomplete) -> tuple[Tensor, Tensor]:
        """Returns conditional mean and variance (N, D)."""
        posterior, _ = self.settle(batch)
        return posterior.mean, posterior.variance

    def complete(self, x: Tensor, observed: Tensor, normals: Tensor | None = None) -> Tensor:
        """Returns rows (*, N, D) with missing cells drawn, or at their mean if there are no `normals`."""
        rows = Incomplete(x.flatten(0, -2), observed.expand(x.shape).flatten(0, -2))
        noise = None if normals is None else normals.flatten(0, -2)
        posterior, sites = self.settle(rows)
        if noise is None:
            return posterior.mean.view(x.shape)
        buckets = plan_buckets(rows.observed, missing_side=True, by_row=not self.mask.exact)
        drawn = posterior.mean.clone()
        padded = _padded(noise)
        additions = torch.zeros_like(padded)
        factorise = self._factoriser(sites)
        for bucket in buckets:
            factor = factorise(bucket)
            z = padded[bucket.rows[:, :, None], bucket.features[:, None, :]]
            step = torch.linalg.solve_triangular(factor.mT, z.mT, upper=True).mT
            additions[bucket.rows[:, :, None], bucket.features[:, None, :]] = step
        drawn = torch.where(rows.observed, rows.x, drawn + additions[:-1, :-1])
        return drawn.view(x.shape)

    def first_sites(self, batch: Incomplete) -> Sites:
        """Returns the sites of cells as if each were alone."""
        shape = batch.x.shape
        return self.mask.sites(
            self.loc.expand(shape), self.gaussian.covariance.diagonal().expand(shape).clamp(min=1e-9)
        )

    def next_sites(self, posterior: Posterior, sites: Sites) -> Sites:
        """Returns sites that match the factors, given what the other cells say."""
        return sites if self.mask.exact else self.mask.sites(*self.without_sites(posterior, sites))

    def without_sites(self, posterior: Posterior, sites: Sites) -> tuple[Tensor, Tensor]:
        """Returns mean and variance (N, D) of each cell without its own factor."""
        variance = posterior.variance.clamp(min=1e-9)
        precision = (1 / variance - sites.precision).clamp(min=1e-6)
        return (posterior.mean / variance - sites.linear) / precision, 1 / precision

    def condition(
        self,
        batch: Incomplete,
        sites: Sites,
        buckets: Iterable[Bucket],
        weights: Tensor | None = None,
    ) -> Posterior:
        """Returns the law of the hidden cells of every row, given sites (N, D) and weights of rows (N)."""
        n_rows, n_features = batch.x.shape
        precision = self.gaussian.precision
        centred = torch.where(batch.observed, batch.x - self.loc, 0.0)
        pulled = centred @ precision
        pull = torch.where(batch.observed, 0.0, sites.linear - sites.precision * self.loc - pulled)
        source = _padded(pull)
        solved, variance = torch.zeros_like(source), torch.zeros_like(source)
        log_dets = torch.zeros(n_rows + 1, dtype=batch.x.dtype)
        weight = torch.ones(n_rows, dtype=batch.x.dtype) if weights is None else weights
        weight = torch.nn.functional.pad(weight, (0, 1))
        total = torch.zeros((n_features + 1) ** 2, dtype=batch.x.dtype)

        factorise = self._factoriser(sites)

        def solve(bucket: Bucket) -> tuple[Tensor, Tensor]:
            factor = factorise(bucket)
            identity = torch.eye(factor.shape[1], dtype=factor.dtype).expand_as(factor)
            root = torch.linalg.solve_triangular(factor, identity, upper=False)
            inverse = root.mT @ root
            inverse.diagonal(dim1=1, dim2=2)[bucket.features == n_features] = 0.0
            index = bucket.rows[:, :, None], bucket.features[:, None, :]
            solved[index] = source[index] @ inverse
            variance[index] = inverse.diagonal(dim1=1, dim2=2)[:, None, :].expand(*bucket.rows.shape, -1)
            log_det = 2 * factor.diagonal(dim1=1, dim2=2).log().sum(dim=1)
            log_dets[bucket.rows] = log_det[:, None].expand(bucket.rows.shape)
            cells = bucket.features[:, :, None] * (n_features + 1) + bucket.features[:, None, :]
            return cells.flatten(), (inverse * weight[bucket.rows].sum(dim=1)[:, None, None]).flatten()

        run = map_in_threads if batch.x.numel() >= PARALLEL_CELLS else map
        for cells, values in run(solve, buckets):
            total.index_add_(0, cells, values)
        offset = solved[:-1, :-1]
        constant = torch.where(batch.observed, 0.0, self.loc * (sites.linear - 0.5 * sites.precision * self.loc))
        quadratic = (centred * pulled).sum(dim=1) - (offset * pull).sum(dim=1)
        n_observed = batch.observed.sum(dim=1).to(batch.x.dtype)
        log_evidence = constant.sum(dim=1) - 0.5 * (
            n_observed * log(2 * pi) + self.gaussian.log_det + log_dets[:-1] + quadratic
        )
        mean = torch.where(batch.observed, batch.x, self.loc + offset)
        covariance = total.view(n_features + 1, -1)[:-1, :-1]
        return Posterior(mean, variance[:-1, :-1], covariance, log_evidence)

    def settle(self, batch: Incomplete) -> tuple[Posterior, Sites]:
        """Returns posterior and sites that agree with each other."""
        sites = self.first_sites(batch)
        buckets = list(plan_buckets(batch.observed, missing_side=True, by_row=not self.mask.exact))
        posterior = self.condition(batch, sites, buckets)
        for _ in range(0 if self.mask.exact else EP_SWEEPS):
            sites = self.next_sites(posterior, sites).damped(sites, DAMPING)
            posterior = self.condition(batch, sites, buckets)
        return posterior, sites

    def _factoriser(self, sites: Sites) -> Callable[[Bucket], Tensor]:
        """Returns what makes the Cholesky factors (P, Q, Q) of the posterior precision of each pattern."""
        matrix, extra = _padded(self.gaussian.precision), _padded(sites.precision)

        def factorise(bucket: Bucket) -> Tensor:
            block = matrix[bucket.features[:, :, None], bucket.features[:, None, :]]
            site = extra[bucket.rows[:, 0, None], bucket.features]  # rows of a pattern agree
            padding = bucket.features == len(self.loc)
            block.diagonal(dim1=1, dim2=2).add_(torch.where(padding, 1.0, site))
            factor: Tensor = torch.linalg.cholesky(block)
            return factor

        return factorise
