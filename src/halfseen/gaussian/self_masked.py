"""A Gaussian with self-masking features: conditionals, draws, and the joint likelihood of row and mask.

A target that depends linearly on the features is an additional feature of a Gaussian, which is observed in
training and missing in prediction. A linear score of the features is an additional feature that is never
observed. The conditional distributions of targets and missing features are those of this joint distribution.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import log, pi
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

from halfseen._threads import map_in_threads
from halfseen.data.incomplete import Incomplete
from halfseen.gaussian.distribution import (
    PARALLEL_CELLS,
    Bucket,
    Gaussian,
    padded,
    plan_buckets,
    without_overflow,
)
from halfseen.gaussian.low_rank import LowRankGaussian
from halfseen.gaussian.mask_factors import GaussianMaskFactor, MaskFactor, ProbitMaskFactor, Sites

EP_SWEEPS = 16  # maximum number of sweeps of expectation propagation
CONVERGED = 1e-8  # tolerance for changes of means and variances, in standard deviations
NEW_SHARE = 0.9  # share of the new value in an updated site; damping avoids overshooting


@dataclass(frozen=True)
class Posterior:
    r"""The distribution of missing values, given sites.

    Shapes
    ------
    mean : :math:`(N, D)`, observed cells in place.
    variance : :math:`(N, D)`, zero where observed.
    log_evidence : :math:`(N)`, the log of the integral over the hidden cells with the sites in it.
    """

    mean: Tensor
    variance: Tensor
    log_evidence: Tensor

    def __getitem__(self, rows: Tensor) -> "Posterior":
        return Posterior(self.mean[rows], self.variance[rows], self.log_evidence[rows])

    def replace(self, rows: Tensor, others: "Posterior") -> None:
        """Puts the posteriors of these rows in their place."""
        self.mean[rows] = others.mean
        self.variance[rows] = others.variance
        self.log_evidence[rows] = others.log_evidence


@dataclass(frozen=True)
class SelfMaskedGaussian:
    r"""A Gaussian over D features, each of which is missing with a probability that depends on its value.

    .. math:: p(x, m) = \mathcal{N}(x \mid \mu, \Sigma) \prod_{d \in m} \pi_d(x_d)
              \prod_{d \notin m} (1 - \pi_d(x_d))

    With the factor of a hidden cell as a site :math:`(\tau, \nu)` and :math:`\Lambda = \Sigma^{-1}`,

    .. math:: x_m \mid x_o \sim \mathcal{N}(\mu_m + Q^{-1} b, Q^{-1}), \quad
        Q = \Lambda_{mm} + \mathrm{diag}(\tau), \quad
        b = \nu - \tau \mu_m - \Lambda_{mo} (x_o - \mu_o)

    which is one positive definite system for each row. If the mask is a bump, this is exact. If it is a
    probit, the sites are computed by expectation propagation, a Gaussian approximation of the distribution
    of the missing cells: mean, variance and density are exact with one missing cell, and approximate with
    more.

    Parameters
    ----------
    gaussian : Gaussian
        The distribution of complete rows.
    mask : MaskFactor
        The model of the probability that a feature is missing.

    References
    ----------
    Le Morvan et al. (2020), NeuMiss networks, proposition 2.2, of which this is the precision form.
    """

    gaussian: Gaussian
    mask: MaskFactor

    @property
    def loc(self) -> Tensor:
        """The mean of complete rows."""
        return self.gaussian.loc

    @property
    def covariance(self) -> Tensor:
        """The covariance of complete rows."""
        return self.gaussian.covariance

    def log_prob(self, batch: Incomplete) -> Tensor:
        """Returns the log density (N) of the observed cells together with the mask."""
        return self.log_joint(batch, *self.converge(batch))

    def log_joint(self, batch: Incomplete, posterior: Posterior, sites: Sites) -> Tensor:
        """Returns the log density (N) of the observed cells and the mask, from sites that fit together."""
        scales = self.mask.log_scale(*self.without_sites(posterior, sites), sites)
        shown = self.mask.log_observed(batch.filled(self.loc))
        return posterior.log_evidence + torch.where(batch.observed, shown, scales).sum(dim=1)

    def conditional_mean(self, batch: Incomplete) -> Tensor:
        """Returns (N, D): the mean of each missing cell given the row and the mask; observed ones exact."""
        return self.converge(batch)[0].mean

    def conditional_variance(self, batch: Incomplete) -> Tensor:
        """Returns (N, D): the variance of each missing cell given the row and the mask, 0 where observed."""
        return self.converge(batch)[0].variance

    def moments(self, batch: Incomplete) -> tuple[Tensor, Tensor]:
        """Returns conditional mean and variance (N, D)."""
        posterior, _ = self.converge(batch)
        return posterior.mean, posterior.variance

    def complete(self, x: Tensor, observed: Tensor, normals: Tensor | None = None) -> Tensor:
        r"""Returns rows (*, N, D) with missing cells drawn, or at their mean if there are no `normals`.

        With the factor :math:`L L^\top = Q` of the precision of what is hidden, a draw is the mean plus
        :math:`L^{-\top}` times standard normals.

        Shapes
        ------
        x, normals : :math:`(*, N, D)`; either may lack the leading axes of draws.
        observed : :math:`(N, D)`
        """
        flat = (-1, x.shape[-1])
        rows = Incomplete(x.reshape(flat), observed.expand(x.shape).reshape(flat))
        posterior, sites = self.converge(rows)
        completed = posterior.mean
        if normals is not None:
            noise = normals if x.ndim == 2 else normals.expand(x.shape).reshape(flat)
            drawn = completed + self._noise(sites, rows.observed, noise)
            completed = torch.where(rows.observed, rows.x, drawn)
        return completed if x.ndim == 2 else completed.view(x.shape)

    def _noise(self, sites: Sites, observed: Tensor, normals: Tensor) -> Tensor:
        """Returns draws (*, N, D) of hidden cells less their mean, from standard normals."""
        source = padded(normals)
        noise = torch.zeros_like(source)
        factorise = self._factoriser(sites)
        for bucket in self._plan(observed):
            factor = factorise(bucket)
            index = (..., bucket.rows[:, :, None], bucket.features[:, None, :])
            noise[index] = torch.linalg.solve_triangular(factor, source[index], upper=False, left=False)
        return noise[..., :-1, :-1]

    def first_sites(self, batch: Incomplete) -> Sites:
        """Returns the sites of cells as if each were alone."""
        shape = batch.x.shape
        return self.mask.sites(self.loc.expand(shape), self.covariance.diagonal().expand(shape))

    def next_sites(self, posterior: Posterior, sites: Sites) -> Sites:
        """Returns sites that match the factors, given the cavity distributions of the other cells."""
        return sites if self.mask.exact else self.mask.sites(*self.without_sites(posterior, sites))

    def without_sites(self, posterior: Posterior, sites: Sites) -> tuple[Tensor, Tensor]:
        """Returns mean and variance (N, D) of each hidden cell without its own factor; any where observed."""
        return without_sites(posterior.mean, posterior.variance, sites, self.covariance.diagonal())

    def converge(self, batch: Incomplete) -> tuple[Posterior, Sites]:
        """Returns a consistent posterior and sites; each row is iterated until it converges."""
        sites, buckets = self.first_sites(batch), self._plan(batch.observed)
        posterior = self.condition(batch, sites, buckets)
        if self.mask.exact:
            return posterior, sites
        sites = Sites(sites.precision.clone(), sites.linear.clone())
        moving, rows = torch.arange(len(batch)), batch
        for _ in range(EP_SWEEPS):
            before, last = posterior[moving], sites[moving]
            if len(rows) > len(moving):
                rows = batch[moving]
                buckets = self._plan(rows.observed)
            following = self.next_sites(before, last).damped(last, NEW_SHARE)
            after = self.condition(rows, following, buckets)
            sites.replace(moving, following)
            posterior.replace(moving, after)
            shifts = (after.mean - before.mean).abs() / self.covariance.diagonal().sqrt()
            changes = (after.variance - before.variance).abs() / self.covariance.diagonal()
            moving = moving[(torch.maximum(shifts, changes) > CONVERGED).any(dim=1)]
            if len(moving) == 0:
                break
        return posterior, sites

    def condition(
        self,
        batch: Incomplete,
        sites: Sites,
        buckets: Iterable[Bucket],
        measure: Callable[[Bucket, Tensor], Tensor] | None = None,
        add: Callable[[Tensor], object] | None = None,
    ) -> Posterior:
        """Returns the distribution of the missing values of every row, given sites (N, D).

        `measure` is called with each bucket and its inverse Cholesky factors (P, Q, Q), in any thread; `add`
        receives its results in the order of the buckets.
        """
        centred = torch.where(batch.observed, batch.x - self.loc, 0.0)
        pulled = centred @ self.gaussian.precision
        tilt = sites.linear - sites.precision * self.loc
        pull = torch.where(batch.observed, 0.0, tilt - pulled)
        source = padded(pull)
        solved, spread = torch.zeros_like(source), torch.zeros_like(source)
        log_dets = pull.new_zeros(len(batch) + 1)
        factorise = self._factoriser(sites)

        def solve(bucket: Bucket) -> Tensor | None:
            factor = factorise(bucket)
            identity = torch.eye(factor.shape[1], dtype=factor.dtype).expand_as(factor)
            root = torch.linalg.solve_triangular(factor, identity, upper=False)
            index = bucket.rows[:, :, None], bucket.features[:, None, :]
            solved[index] = source[index] @ root.mT @ root
            spread[index] = root.square().sum(dim=1, keepdim=True).expand(*bucket.rows.shape, -1)
            log_det = 2 * factor.diagonal(dim1=1, dim2=2).log().sum(dim=1)
            log_dets[bucket.rows] = log_det[:, None].expand(bucket.rows.shape)
            return None if measure is None else measure(bucket, root)

        run = map_in_threads if pull.numel() >= PARALLEL_CELLS else map
        for measured in run(solve, buckets):
            if add is not None and measured is not None:
                add(measured)
        offset, variance = solved[:-1, :-1], spread[:-1, :-1]
        constant = torch.where(batch.observed, 0.0, 0.5 * self.loc * (sites.linear + tilt)).sum(dim=1)
        quadratic = without_overflow((centred * pulled).sum(dim=1) - (offset * pull).sum(dim=1))
        n_observed = batch.observed.sum(dim=1).to(batch.x.dtype)
        log_det_all = log_dets[:-1] + self.gaussian.log_det + n_observed * log(2 * pi)
        mean = torch.where(batch.observed, batch.x, self.loc + offset)
        return Posterior(mean, variance, constant - 0.5 * (log_det_all + quadratic))

    def condition_and_sum(
        self, batch: Incomplete, sites: Sites, buckets: Iterable[Bucket], weights: Tensor
    ) -> tuple[Posterior, Tensor]:
        """Returns also the sum (D, D) of the covariances of the rows, which count by weights (N)."""
        width = batch.n_features + 1
        total = batch.x.new_zeros(width**2)
        weight = torch.nn.functional.pad(weights, (0, 1))  # padding weighs nothing

        def measure(bucket: Bucket, root: Tensor) -> Tensor:
            count = weight[bucket.rows].sum(dim=1)
            return bucket.summed(root.mT @ (count[:, None, None] * root), width)

        posterior = self.condition(batch, sites, buckets, measure, total.add_)
        return posterior, total.view(width, width)[:-1, :-1]

    def _plan(self, observed: Tensor) -> list[Bucket]:
        return list(plan_buckets(observed, missing_side=True, by_row=not self.mask.exact))

    def _factoriser(self, sites: Sites) -> Callable[[Bucket], Tensor]:
        """Returns what makes the Cholesky factors (P, Q, Q) of the posterior precision of each pattern."""
        matrix, extra = padded(self.gaussian.precision), padded(sites.precision)

        def factorise(bucket: Bucket) -> Tensor:
            block = bucket.blocks(matrix)
            site = extra[bucket.rows[:, 0, None], bucket.features]  # rows of a pattern agree
            padding = bucket.features == len(self.loc)
            block.diagonal(dim1=1, dim2=2).add_(torch.where(padding, 1.0, site))
            factor: Tensor = torch.linalg.cholesky(block)
            return factor

        return factorise


def without_sites(mean: Tensor, variance: Tensor, sites: Sites, prior: Tensor) -> tuple[Tensor, Tensor]:
    """Returns mean and variance (N, D) of each hidden cell without its own factor; any where observed.

    Shapes
    ------
    mean, variance : :math:`(N, D)`, of the cells with their factors; a variance of 0 where observed.
    prior : :math:`(D)`, the variances of the features.
    """
    hidden = variance > 0
    precision = 1 / torch.where(hidden, variance, prior)
    linear = precision * mean - torch.where(hidden, sites.linear, 0.0)
    precision = precision - torch.where(hidden, sites.precision, 0.0)
    # Other cells only add to the precision: values below it are rounding errors.
    precision = torch.maximum(precision, 1 / prior)
    return linear / precision, 1 / precision


SCORE_NOISE = 1e-6  # of a score that is added to a joint distribution: a Gaussian needs full rank

JointGaussian = Gaussian | SelfMaskedGaussian

MASK_FACTORS: dict[str, type[GaussianMaskFactor] | type[ProbitMaskFactor]] = {
    "gaussian_mask": GaussianMaskFactor,
    "probit_mask": ProbitMaskFactor,
}


def only_features(joint: JointGaussian, n_features: int) -> JointGaussian:
    """Returns the distribution of the first features."""
    if isinstance(joint, SelfMaskedGaussian):
        mask = _with_cells(joint.mask, joint.mask.active[:n_features], joint.mask.coefficients[:n_features])
        return SelfMaskedGaussian(_leading(joint.gaussian, n_features), mask)
    return _leading(joint, n_features)


def with_scores(joint: JointGaussian, weights: Tensor) -> JointGaussian:
    r"""Returns the distribution of the features followed by unobserved scores :math:`W^\top (x - \mu)`.

    Shapes
    ------
    weights : :math:`(D, T)`
    """
    if isinstance(joint, SelfMaskedGaussian):
        n_scores = weights.shape[1]
        mask = _with_cells(
            joint.mask,
            functional.pad(joint.mask.active, (0, n_scores)),
            functional.pad(joint.mask.coefficients, (0, 0, 0, n_scores)),
        )
        return SelfMaskedGaussian(_scored(joint.gaussian, weights), mask)
    return _scored(joint, weights)


def condition(joint: JointGaussian, batch: Incomplete, n_unseen: int) -> tuple[Tensor, Tensor]:
    """Returns mean and variance (N, D + T) of features, and of the targets or scores after them."""
    unseen = batch.x.new_zeros(len(batch), n_unseen)
    joined = Incomplete(
        torch.cat([batch.filled(), unseen], dim=1), torch.cat([batch.observed, unseen.bool()], dim=1)
    )
    return joint.moments(joined)


def joint_state(joint: JointGaussian) -> dict[str, Tensor]:
    """Returns the tensors of a joint distribution, to be saved."""
    gaussian = joint.gaussian if isinstance(joint, SelfMaskedGaussian) else joint
    state = {"joint.loc": gaussian.loc}
    if isinstance(gaussian, LowRankGaussian):
        state |= {"joint.loadings": gaussian.loadings, "joint.noise": gaussian.noise}
    else:
        state["joint.covariance"] = gaussian.covariance
    if isinstance(joint, SelfMaskedGaussian):
        kind = next(kind for kind, factor in MASK_FACTORS.items() if isinstance(joint.mask, factor))
        state |= {
            f"joint.{kind}.active": joint.mask.active,
            f"joint.{kind}.coefficients": joint.mask.coefficients,
        }
    return state


def joint_from_state(state: Mapping[str, Tensor]) -> JointGaussian:
    """Rebuilds a joint distribution from what `joint_state` returned."""
    gaussian = _gaussian_from_state(state)
    for kind, mask in MASK_FACTORS.items():
        if f"joint.{kind}.active" in state:
            found = mask(state[f"joint.{kind}.active"], state[f"joint.{kind}.coefficients"])
            return SelfMaskedGaussian(gaussian, found)
    return gaussian


def _gaussian_from_state(state: Mapping[str, Tensor]) -> Gaussian:
    loc = state["joint.loc"]
    if "joint.loadings" in state:
        return LowRankGaussian.checked_factors(loc, state["joint.loadings"], state["joint.noise"])
    return Gaussian.checked(loc, state["joint.covariance"])


def _with_cells(mask: MaskFactor, active: Tensor, coefficients: Tensor) -> MaskFactor:
    """Returns a mask of the same kind for other features."""
    return replace(
        cast("GaussianMaskFactor | ProbitMaskFactor", mask), active=active, coefficients=coefficients
    )


def _leading(gaussian: Gaussian, n_features: int) -> Gaussian:
    if isinstance(gaussian, LowRankGaussian):
        return LowRankGaussian(
            gaussian.loc[:n_features], gaussian.loadings[:n_features], gaussian.noise[:n_features]
        )
    return Gaussian(gaussian.loc[:n_features], gaussian.covariance[:n_features, :n_features])


def _scored(gaussian: Gaussian, weights: Tensor) -> Gaussian:
    cross = gaussian.covariance @ weights  # (D, T)
    own = weights.T @ cross
    noise = SCORE_NOISE * own.diagonal().clamp(min=1e-6)
    top = torch.cat([gaussian.covariance, cross], dim=1)
    bottom = torch.cat([cross.T, own + noise.diag()], dim=1)
    return Gaussian(functional.pad(gaussian.loc, (0, weights.shape[1])), torch.cat([top, bottom], dim=0))
