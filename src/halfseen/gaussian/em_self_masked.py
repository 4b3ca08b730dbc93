r"""Maximum likelihood for a Gaussian with self-masking features, by EM on rows and masks together."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from halfseen._threads import task_threads
from halfseen.data.incomplete import PIECE_BYTES, Incomplete, rows_in_piece
from halfseen.gaussian.distribution import Bucket, Gaussian, plan_buckets
from halfseen.gaussian.em import (
    WARM_UP_ROWS,
    EMSettings,
    Ridge,
    explain_singular,
    fit_gaussian,
    gaussian_from,
    gaussian_vector,
    maximise,
    penalised_mean,
    sum_in_tree,
)
from halfseen.gaussian.mask_factors import (
    GaussianMaskFactor,
    MaskEvidence,
    MaskFactor,
    ProbitMaskFactor,
    Sites,
)
from halfseen.gaussian.self_masked import SelfMaskedGaussian, without_sites
from halfseen.training.progress import Ascent, ascend, squared_step
from halfseen.words import Missingness, check_missingness

SETTLING = 5  # number of first steps in which the likelihood of the sites is not yet reliable
ROUGH_STEPS = 12  # number of steps to compare initial values, and to initialise a bump
STEEPNESSES = (1.0, 4.0)  # slopes of further initial probits, for features of unit variance
SKEWED = 3.0  # standard errors of skewness from which one side may be missing by a probit
COPIES = 24  # numbers per cell in memory while a step processes its row or feature
MOST_CELLS = 1_000_000  # maximum number of cells for a mask: each needs about 220 bytes, more add little
MIN_CELLS = 10  # minimum number of observed and of missing cells to estimate a feature's mask

OFFERED = (Missingness.MAR, Missingness.PROBIT, Missingness.GAUSSIAN)
"""The assumptions about missingness that a Gaussian can be fitted under."""


@dataclass(frozen=True)
class MaskedFit:
    """The fitted joint distribution of rows and masks, and the penalised log-likelihood at every step."""

    model: Gaussian | SelfMaskedGaussian
    objective: tuple[float, ...]


@task_threads()
def fit_masked_gaussian(
    batch: Incomplete,
    missingness: str,
    may_hide: Tensor,
    settings: EMSettings,
    *,
    generator: torch.Generator,
    weights: Tensor | None = None,
    start: Gaussian | SelfMaskedGaussian | None = None,
    callback: Callable[[int, float], None] | None = None,
) -> MaskedFit:
    """Fits a Gaussian to rows with missing values, with or without a model of why cells are missing.

    Without an initial value, EM on large tables starts from a fit to a random subset of rows. A model of the
    missingness is fitted to at most `MOST_CELLS` cells, from rows chosen at random, because each cell has a
    state.

    Parameters
    ----------
    batch : Incomplete
        (N, D), features on a common scale (unit variance).
    missingness : {"mar", "self-masking-gaussian", "self-masking-probit"}
        Cells are missing at random; by a `GaussianMaskFactor` of their own value; or by a
        `ProbitMaskFactor` of it.
    may_hide : Tensor
        (D), the features that may be self-masking; the others are missing at random.
    settings : EMSettings
        Ridge and stopping rule.
    generator : torch.Generator
        Chooses the rows of the start.
    weights : Tensor, optional
        (N), how much each row counts.
    start : Gaussian or SelfMaskedGaussian, optional
        A fit to similar rows, of the same missingness or of one before it in `OFFERED`.
    callback : callable, optional
        Called with the iteration and the objective per row, once for each iteration of each fit on the way.

    Raises
    ------
    ValueError
        If there is no such missingness, or features depend on each other exactly and there is no ridge.
    """
    check_missingness(missingness, OFFERED)
    if missingness == Missingness.MAR:
        known = start if isinstance(start, Gaussian) else None
        plain = fit_gaussian(
            batch, settings, generator=generator, weights=weights, start=known, callback=callback
        )
        return MaskedFit(plain.gaussian, plain.objective)
    n_rows = max(3 * WARM_UP_ROWS, MOST_CELLS // batch.n_features)
    batch, weights = _some_rows(batch, weights, n_rows, n_rows, generator)
    if isinstance(start, SelfMaskedGaussian) and start.mask.exact == (missingness == Missingness.GAUSSIAN):
        ascent = fit_self_masked(
            batch, start.gaussian, start.mask, settings, weights=weights, callback=callback
        )
        return MaskedFit(ascent.point, ascent.objective)
    some, some_weights = _some_rows(batch, weights, 3 * WARM_UP_ROWS - 1, WARM_UP_ROWS, generator)
    first = _start(some, missingness, may_hide, settings, generator, some_weights, start)
    for part, part_weights in ((some, some_weights), (batch, weights))[len(some) == len(batch) :]:
        ascent = fit_self_masked(
            part, first.gaussian, first.mask, settings, weights=part_weights, callback=callback
        )
        first = ascent.point
    return MaskedFit(ascent.point, ascent.objective)


def _some_rows(
    batch: Incomplete, weights: Tensor | None, most: int, n_rows: int, generator: torch.Generator
) -> tuple[Incomplete, Tensor | None]:
    """Returns a random subsample of rows, with their weights, if a table has more than `most`."""
    if len(batch) <= most:
        return batch, weights
    rows = torch.randperm(len(batch), generator=generator)[:n_rows]
    return batch[rows], None if weights is None else weights[rows]


def _start(
    batch: Incomplete,
    missingness: str,
    may_hide: Tensor,
    settings: EMSettings,
    generator: torch.Generator,
    weights: Tensor | None,
    start: Gaussian | SelfMaskedGaussian | None,
) -> SelfMaskedGaussian:
    """Returns the initial mask: the best of several probits, or a bump that is derived from it."""
    n_observed = batch.observed.sum(dim=0).to(batch.x.dtype)
    active = may_hide & (n_observed >= MIN_CELLS) & (len(batch) - n_observed >= MIN_CELLS)
    probit = start
    if not isinstance(probit, SelfMaskedGaussian):
        plain = probit or fit_gaussian(batch, settings, generator=generator, weights=weights).gaussian
        masks = _probits(batch, active, weights)
        if missingness == Missingness.PROBIT and len(masks) == 1:
            return SelfMaskedGaussian(plain, masks[0])
        rough = replace(settings, max_iterations=ROUGH_STEPS)
        fits = [fit_self_masked(batch, plain, mask, rough, weights=weights) for mask in masks]
        probit = max(fits, key=lambda fit: fit.objective[-1]).point
        if missingness == Missingness.PROBIT:
            return probit
    _, sites = probit.converge(batch)
    return SelfMaskedGaussian(probit.gaussian, GaussianMaskFactor.start(active, sites, batch.observed))


def _probits(batch: Incomplete, active: Tensor, weights: Tensor | None = None) -> list[ProbitMaskFactor]:
    """Returns a flat probit, and steep ones if observed values are skewed as if one side were missing.

    A flat probit is a stationary point if other features are not informative about missing values. In that
    case only the shape of the distribution of the observed values indicates which side is missing.
    """
    weight = torch.ones(len(batch), dtype=batch.x.dtype) if weights is None else weights
    n_observed = weight @ batch.observed.to(weight.dtype)
    count = n_observed.clamp(min=1)
    centred = torch.where(batch.observed, batch.x - weight @ batch.filled() / count, 0.0)
    spread = (weight @ centred.square() / count).sqrt().clamp(min=torch.finfo(weight.dtype).tiny)
    skewness = weight @ (centred / spread) ** 3 / count
    side = torch.where(active & (skewness.abs() > SKEWED * (6 / count).sqrt()), -skewness.sign(), 0.0)
    steepnesses = (0.0, *STEEPNESSES) if bool(side.any()) else (0.0,)
    rate = 1 - n_observed / weight.sum()
    return [ProbitMaskFactor.start(active, rate, steepness * side) for steepness in steepnesses]


@task_threads()
def fit_self_masked(
    batch: Incomplete,
    start: Gaussian,
    mask: MaskFactor,
    settings: EMSettings,
    *,
    weights: Tensor | None = None,
    callback: Callable[[int, float], None] | None = None,
) -> Ascent[SelfMaskedGaussian]:
    r"""Maximises the joint log-likelihood of observed cells and mask, with a ridge penalty.

    .. math::
        \max_{\mu, \Sigma, \psi} \sum_n \log \int \mathcal{N}(x_n \mid \mu, \Sigma)
        \prod_{d \in m_n} \pi_d(x_{nd}) \, d x_{n, m_n} + \sum_{d \notin m_n} \log (1 - \pi_d(x_{nd}))

    minus the penalties of `fit_gaussian` and of the mask. The E-step solves one positive definite system per
    row; the M-step is that of a Gaussian, plus one Newton step in the likelihood of each feature's mask.
    With a bump, EM is exact and monotone. With a probit, the likelihood is approximated by expectation
    propagation, whose sites are kept from one step to the next.

    Parameters
    ----------
    batch : Incomplete
        (N, D), features on a common scale (unit variance).
    start : Gaussian
        The initial value, for example the fit that ignores the mask.
    mask : MaskFactor
        The initial mask, which also determines its kind.
    settings : EMSettings
        Ridge and stopping rule.
    weights : Tensor, optional
        (N), how much each row counts.
    callback : callable, optional
        Called with the iteration and the objective per row.
    """
    algorithm = _SelfMaskedEM(batch, mask, settings, weights)
    model = SelfMaskedGaussian(start, mask)
    first = _Point(model, model.first_sites(batch))
    with explain_singular(settings.ridge):
        for _ in range(0 if mask.exact else SETTLING):
            _, first = algorithm.step(first)
        ascent = ascend(algorithm.step, first, algorithm.extrapolate, settings, batch.n_features, callback)
        ascent.point.model.gaussian.cholesky  # noqa: B018, the last point has not been factorised yet
    return Ascent(ascent.point.model, ascent.objective, ascent.converged)


@dataclass(frozen=True)
class _Point:
    model: SelfMaskedGaussian
    sites: Sites


class _SelfMaskedEM:
    """EM on one table; the plan of rows is made once."""

    def __init__(
        self, batch: Incomplete, mask: MaskFactor, settings: EMSettings, weights: Tensor | None
    ) -> None:
        self.batch = batch
        self.ridge = Ridge.of(batch, settings.ridge, weights)
        self.weights = weights
        self.column = torch.ones(len(batch), 1, dtype=batch.x.dtype) if weights is None else weights[:, None]
        size = rows_in_piece(batch.n_features, COPIES * batch.n_features)
        self.parts = [slice(start, start + size) for start in range(0, len(batch), size)]
        self.buckets = [
            list(plan_buckets(batch.observed[part], missing_side=True, by_row=not mask.exact))
            for part in self.parts
        ]
        width = max(1, PIECE_BYTES // (8 * COPIES * len(batch)))
        self.columns = [slice(start, start + width) for start in range(0, batch.n_features, width)]

    def step(self, point: _Point) -> tuple[float, _Point]:
        """Computes the E-step in chunks of rows, and the M-step of the mask in chunks of features."""
        model, sites = point.model, point.sites
        mean, variance = torch.empty_like(self.batch.x), torch.empty_like(self.batch.x)
        log_joint = self.batch.x.new_empty(len(self.batch))
        following = model.first_sites(self.batch) if model.mask.exact else _empty_sites(self.batch)

        def condition(part: slice, buckets: list[Bucket]) -> Tensor:
            """Keeps the moments of some rows; returns the sum of their conditional covariances."""
            rows, own = self.batch[part], following[part]
            if not model.mask.exact:  # sites of the step before, brought up to date
                own = model.next_sites(model.condition(rows, sites[part], buckets), sites[part])
                following.precision[part], following.linear[part] = own.precision, own.linear
            posterior, added = model.condition_and_sum(rows, own, buckets, self.column[part, 0])
            log_joint[part] = model.log_joint(rows, posterior, own)
            mean[part], variance[part] = posterior.mean, posterior.variance
            return added

        covariance = sum_in_tree(map(condition, self.parts, self.buckets))
        value = penalised_mean(log_joint, model.gaussian, self.ridge, self.weights)
        value += float(model.mask.log_prior() / self.column.sum())
        pseudo_rows = self.ridge.strength * self.ridge.variances(model.gaussian)
        gaussian = maximise(mean, covariance, self.ridge.strength, pseudo_rows, self.weights)
        stepped = self._m_step(model, mean, variance, following)
        return value, _Point(SelfMaskedGaussian(gaussian, stepped), following)

    def _m_step(self, model: SelfMaskedGaussian, mean: Tensor, variance: Tensor, sites: Sites) -> MaskFactor:
        """Returns the mask after a step for each feature, given what is hidden (N, D), see `MaskEvidence`."""
        coefficients, prior = [], model.covariance.diagonal()
        for some in self.columns:
            observed = self.batch.observed[:, some]
            x = torch.where(observed, self.batch.x[:, some], 0.0)
            laws = mean[:, some], variance[:, some]
            own = Sites(sites.precision[:, some], sites.linear[:, some])
            evidence = MaskEvidence(x, observed, *laws, *without_sites(*laws, own, prior[some]), self.column)
            coefficients.append(model.mask.of_features(some).m_step(evidence).coefficients)
        return model.mask.with_coefficients(torch.cat(coefficients))

    def extrapolate(self, first: _Point, second: _Point, third: _Point) -> _Point:
        n_features = self.batch.n_features
        n_gaussian = n_features * (n_features + 1)

        def rebuild(vector: Tensor) -> _Point | None:
            gaussian = gaussian_from(vector[:n_gaussian], n_features)
            mask = third.model.mask.with_coefficients(vector[n_gaussian:].view(n_features, -1))
            return None if gaussian is None else _Point(SelfMaskedGaussian(gaussian, mask), third.sites)

        def flatten(point: _Point) -> Tensor:
            return torch.cat([gaussian_vector(point.model.gaussian), point.model.mask.coefficients.flatten()])

        return squared_step(flatten(first), flatten(second), flatten(third), rebuild) or third


def _empty_sites(batch: Incomplete) -> Sites:
    return Sites(torch.empty_like(batch.x), torch.empty_like(batch.x))
