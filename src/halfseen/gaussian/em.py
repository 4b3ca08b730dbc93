r"""Maximum (penalised) likelihood for a Gaussian with missing data, by exact, accelerated, monotone EM."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from halfseen._threads import task_threads
from halfseen.base.parameters import check_number, check_whole
from halfseen.config import rows_within_budget
from halfseen.data.incomplete import Incomplete
from halfseen.gaussian.distribution import Gaussian
from halfseen.gaussian.em_factors import (
    AscentSettings,
    allowed_ranks,
    ascend,
    choose_rank,
    fit_low_rank,
    squared_step,
)
from halfseen.gaussian.low_rank import LowRankGaussian
from halfseen.gaussian.patterns import Bucket, plan_buckets
from halfseen.gaussian.ridge import Ridge
from halfseen.training.time_limit import is_over, seconds_left, time_limit

PAIRWISE_CELLS = 2**19  # number of cells whose moments are computed together
COPIES = 32  # number of arrays of the size of the rows, including buckets, at the peak of a step
WARM_UP_ROWS = 4000  # a start from this number of rows is within a few iterations of the full fit
RIDGES = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
DEFAULT_RIDGE = 1.0
AMPLE_ROWS = 20  # rows per feature from which the ridge no longer matters
N_FOLDS = 3
ENOUGH_CELLS = 20_000  # number of held-out observed cells from which one fold suffices to choose a ridge
WIDE = 150  # number of features from which a covariance of low rank is considered
MOST_FREE = 500  # number of features up to which an unrestricted covariance is allowed for few rows
EIGENVALUE_FLOOR = 0.005  # relative to the mean; pairwise covariances need not be positive definite


@dataclass(frozen=True)
class EMSettings(AscentSettings):
    r"""The stopping rule of EM and its regularisation.

    Parameters
    ----------
    max_iterations : int
        The maximum number of passes over all rows.
    tolerance : float
        EM stops when a pass increases the log-likelihood per row and feature by less than this.
    ridge : float
        The number of pseudo-rows of uncorrelated data that are added to the table, see `Ridge`.
    rank : int, optional
        With a rank, the covariance is of this rank plus a diagonal, for wide tables; otherwise it is
        unrestricted.
    """

    ridge: float = DEFAULT_RIDGE
    rank: int | None = None


@dataclass(frozen=True)
class EMResult:
    """The fitted Gaussian, and the penalised log-likelihood per row at every step, which never decreases."""

    gaussian: Gaussian
    objective: tuple[float, ...]
    converged: bool


@task_threads()
def fit_gaussian(
    batch: Incomplete,
    settings: EMSettings,
    *,
    generator: torch.Generator,
    weights: Tensor | None = None,
    start: Gaussian | None = None,
    callback: Callable[[int, float], None] | None = None,
) -> EMResult:
    r"""Maximises the observed-data log-likelihood with a ridge penalty.

    .. math::
        \max_{\mu, \Sigma} \sum_n \log \mathcal{N}(x_{n,o_n} \mid \mu, \Sigma)
        - \tfrac{\lambda}{2} \left(\log |\Sigma| + \operatorname{tr} \Sigma^{-1}\right)

    The M-step is :math:`\mu = \bar{x}`, :math:`\Sigma = (S + \lambda I) / (N + \lambda)`, with S the
    expected scatter. The penalty of features that are nearly linear functions of others is smaller, see
    `Ridge`. After every two EM steps, a squared extrapolation is tried and kept only if the
    objective does not decrease. For large tables, EM starts from a fit to a random subset of rows. Valid
    under MAR.

    Parameters
    ----------
    batch : Incomplete
        (N, D), features on a common scale (unit variance), at least one row.
    settings : EMSettings
        Ridge :math:`\lambda` and stopping rule.
    generator : torch.Generator
        Chooses the rows of the warm-up.
    weights : Tensor, optional
        (N), how much each row counts.
    start : Gaussian, optional
        The initial value, for example a fit to similar rows.
    callback : callable, optional
        Called with the iteration and the objective per row.

    References
    ----------
    Dempster, Laird & Rubin (1977). Varadhan & Roland (2008), scheme S3, for the extrapolation.

    Raises
    ------
    ValueError
        If features depend on each other exactly and there is no ridge.
    """
    if settings.rank is not None:
        known = start if isinstance(start, LowRankGaussian) else None
        ascent = fit_low_rank(
            batch, settings, settings.rank, settings.ridge, weights=weights, start=known, callback=callback
        )
        return EMResult(ascent.point, ascent.objective, ascent.converged)
    with explain_singular(settings.ridge):
        first = _start(batch, settings, generator, weights) if start is None else start
        result = _GaussianEM(batch, settings, weights).run(first, callback)
        result.gaussian.cholesky  # noqa: B018, the last point has not been factorised yet
    return result


@contextmanager
def explain_singular(ridge: float) -> Iterator[None]:
    """Raises an error with advice if a factorisation fails."""
    try:
        yield
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        raise ValueError(
            f"The covariance is singular with ridge={ridge:g}: some columns are linear combinations of "
            "others, or there are too few rows. Increase the parameter ridge of the estimator, or leave out "
            "redundant columns."
        ) from error


def _start(
    batch: Incomplete, settings: EMSettings, generator: torch.Generator, weights: Tensor | None
) -> Gaussian:
    """Returns pairwise moments; for a large table, the fit to a random subset of its rows from there."""
    pairwise = pairwise_gaussian(batch, settings.ridge)
    if len(batch) < 3 * WARM_UP_ROWS:
        return pairwise
    rows = torch.randperm(len(batch), generator=generator)[:WARM_UP_ROWS]
    some = None if weights is None else weights[rows]
    return _GaussianEM(batch[rows], settings, some).run(pairwise, callback=None).gaussian


@task_threads()
def choose_shrinkage(batch: Incomplete, settings: EMSettings, *, generator: torch.Generator) -> EMSettings:
    """Returns settings with the ridge, and for a wide table the rank, that are best on held-out cells.

    A table is wide if it has at least 150 features and fewer than 20 rows per feature. If the largest rank is
    best and the table has at most 500 features, the covariance is unrestricted, with the same ridge. At most
    half of the time that is left for training is used.
    """
    with time_limit(seconds_left() / 2):
        return _choose_shrinkage(batch, settings, generator)


def _choose_shrinkage(batch: Incomplete, settings: EMSettings, generator: torch.Generator) -> EMSettings:
    if batch.n_features < WIDE or len(batch) >= AMPLE_ROWS * batch.n_features:
        return replace(settings, ridge=choose_ridge(batch, settings, generator=generator))
    rank, ridge = choose_rank(batch, settings, generator=generator)
    free = batch.n_features <= MOST_FREE and len(batch) > 1 and rank == allowed_ranks(batch)[-1]
    return replace(settings, ridge=ridge, rank=None if free else rank)


def choose_ridge(batch: Incomplete, settings: EMSettings, *, generator: torch.Generator) -> float:
    """Returns the ridge with the best log-likelihood of held-out rows; the default if there are many rows.

    Starting from the default, the ridge is increased or decreased while the held-out score improves. If a
    fold has many cells, one fold is enough. When the time limit of training is reached, the best ridge so
    far is returned.
    """
    if len(batch) >= AMPLE_ROWS * batch.n_features or len(batch) < 2 * N_FOLDS or is_over():
        return DEFAULT_RIDGE
    fold_of = torch.randperm(len(batch), generator=generator) % N_FOLDS
    folds = 1 if batch.observed[fold_of == 0].sum() >= ENOUGH_CELLS else N_FOLDS
    rough = replace(settings, tolerance=10 * settings.tolerance)
    fits: list[Gaussian | None] = [None] * folds  # each ridge starts from the fit with the one before

    def score(ridge: float) -> float:
        total = 0.0
        for fold in range(folds):
            train = batch[fold_of != fold]
            fits[fold] = fit = fit_gaussian(
                train, replace(rough, ridge=ridge), generator=generator, start=fits[fold]
            ).gaussian
            total += float(fit.log_prob(batch[fold_of == fold]).sum())
        return total

    scores = {DEFAULT_RIDGE: score(DEFAULT_RIDGE)}
    best = RIDGES.index(DEFAULT_RIDGE)
    for step in (1, -1):
        while 0 <= best + step < len(RIDGES) and not is_over():
            scores[RIDGES[best + step]] = score(RIDGES[best + step])
            if scores[RIDGES[best + step]] <= scores[RIDGES[best]]:
                break
            best += step
        if RIDGES[best] != DEFAULT_RIDGE:
            break
    return RIDGES[best]


def pairwise_gaussian(batch: Incomplete, ridge: float) -> Gaussian:
    """Returns means and pairwise-complete covariances, made positive definite by an eigenvalue floor."""
    eye = torch.eye(batch.n_features, dtype=batch.x.dtype)
    parts = [*batch.chunks(max(1, PAIRWISE_CELLS // max(1, batch.n_features)))] or [batch]
    n_observed, sums = torch.zeros(batch.n_features, dtype=torch.int64), batch.x.new_zeros(batch.n_features)
    for part in parts:
        n_observed += part.observed.sum(dim=0)
        sums += part.filled().sum(dim=0)
    loc = sums / n_observed.clamp(min=1)
    scatter, counts = torch.zeros_like(eye), torch.zeros_like(eye)
    for part in parts:
        seen = part.observed.to(batch.x.dtype)
        centred = (part.x - loc).masked_fill_(~part.observed, 0.0)
        scatter += centred.T @ centred
        counts += seen.T @ seen
    values, vectors = torch.linalg.eigh((scatter + ridge * eye) / (counts + max(ridge, 1e-12)))
    floor = max(EIGENVALUE_FLOOR * values.mean().item(), 1e-12)
    return Gaussian(loc, (vectors * values.clamp(min=floor)) @ vectors.T)


class _GaussianEM:
    """EM on one table; the plan of patterns is made once."""

    def __init__(self, batch: Incomplete, settings: EMSettings, weights: Tensor | None) -> None:
        self.batch = batch
        self.settings = settings
        self.weights = weights
        self.ridge = Ridge.of(batch, settings.ridge, weights)
        size = rows_within_budget(COPIES * batch.n_features)
        self.parts = [slice(start, start + size) for start in range(0, len(batch), size)]
        self.buckets: list[list[Bucket]] = [list(plan_buckets(batch.observed[part])) for part in self.parts]

    def run(self, start: Gaussian, callback: Callable[[int, float], None] | None) -> EMResult:
        ascent = ascend(self._step, start, _extrapolate, self.settings, self.batch.n_features, callback)
        return EMResult(ascent.point, ascent.objective, ascent.converged)

    def _step(self, gaussian: Gaussian) -> tuple[float, Gaussian]:
        if len(self.parts) > 1:
            return self._step_by_parts(gaussian)
        statistics = gaussian.statistics(self.batch, self.buckets[0], self.weights)
        value = penalised_mean(statistics.log_prob, gaussian, self.ridge, self.weights)
        pseudo_rows = self.ridge.strength * self.ridge.variances(gaussian)
        return value, maximise(
            statistics.completed, statistics.covariance, self.ridge.strength, pseudo_rows, self.weights
        )

    def _step_by_parts(self, gaussian: Gaussian) -> tuple[float, Gaussian]:
        """Computes the same step by sums over parts of the rows, which needs less memory."""
        ridge, n_features = self.ridge.strength, self.batch.n_features
        log_prob, shift = self.batch.x.new_empty(len(self.batch)), self.batch.x.new_zeros(n_features)
        scatter = (ridge * self.ridge.variances(gaussian)).diag()
        for part, buckets in zip(self.parts, self.buckets, strict=True):
            weights = None if self.weights is None else self.weights[part]
            found = gaussian.statistics(self.batch[part], buckets, weights)
            log_prob[part] = found.log_prob
            centred = found.completed - gaussian.loc
            weighted = centred if weights is None else weights[:, None] * centred
            shift += weighted.sum(dim=0)
            scatter += centred.T @ weighted + found.covariance
        count = len(self.batch) if self.weights is None else float(self.weights.sum())
        shift = shift / count
        covariance = (scatter - count * torch.outer(shift, shift)) / (count + ridge)
        value = penalised_mean(log_prob, gaussian, self.ridge, self.weights)
        return value, Gaussian(gaussian.loc + shift, (covariance + covariance.T) / 2)


def penalised_mean(log_prob: Tensor, gaussian: Gaussian, ridge: Ridge, weights: Tensor | None) -> float:
    """Returns the log-likelihood per row, less the penalty."""
    penalty = ridge.penalty(gaussian)
    total = log_prob.sum() if weights is None else (weights * log_prob).sum()
    return float((total - penalty) / (len(log_prob) if weights is None else weights.sum()))


def maximise(
    completed: Tensor, covariance: Tensor, ridge: float, pseudo_rows: Tensor, weights: Tensor | None
) -> Gaussian:
    """Returns the M-step, from completed rows (N, D) and the sum of their conditional covariances (D, D).

    `ridge` is the number of pseudo-rows, and `pseudo_rows` (D) the diagonal of their scatter.
    """
    total = len(completed) if weights is None else float(weights.sum())
    loc = (completed.sum(dim=0) if weights is None else weights @ completed) / total
    centred = completed - loc
    scatter = centred.T @ (centred if weights is None else weights[:, None] * centred) + covariance
    scatter.diagonal().add_(pseudo_rows)
    scatter = scatter / (total + ridge)
    return Gaussian(loc, (scatter + scatter.T) / 2)


def _extrapolate(first: Gaussian, second: Gaussian, third: Gaussian) -> Gaussian:
    """Returns a point further along the path of two EM steps; the third point if there is none."""
    n_features = len(first.loc)

    def rebuild(point: Tensor) -> Gaussian | None:
        return gaussian_from(point, n_features)

    points = gaussian_vector(first), gaussian_vector(second), gaussian_vector(third)
    return squared_step(*points, rebuild) or third


def gaussian_vector(gaussian: Gaussian) -> Tensor:
    """Returns location and covariance as one vector."""
    return torch.cat([gaussian.loc, gaussian.covariance.flatten()])


def gaussian_from(point: Tensor, n_features: int) -> Gaussian | None:
    """Returns the Gaussian that a vector stands for, None if its covariance is not positive definite."""
    covariance = point[n_features:].view(n_features, n_features)
    if torch.linalg.cholesky_ex(covariance).info != 0:
        return None
    return Gaussian(point[:n_features], covariance)


def check_ridge(ridge: float | str) -> None:
    """Raises a ValueError if the ridge of an estimator is invalid."""
    if not isinstance(ridge, str) or ridge != "auto":
        check_number("ridge", ridge, lambda v: v >= 0, "'auto' or a number of at least 0")


def em_settings(
    batch: Incomplete, ridge: float | str, max_iter: int, tol: float, generator: torch.Generator
) -> EMSettings:
    """Checks an estimator's parameters, and chooses the ridge if it is "auto"."""
    check_whole("max_iter", max_iter, 1)
    check_number("tol", tol, lambda v: v >= 0, "a number of at least 0")
    check_ridge(ridge)
    if ridge == "auto":
        settings = EMSettings(max_iterations=max_iter, tolerance=tol)
        return choose_shrinkage(batch, settings, generator=generator)
    return EMSettings(max_iter, tol, float(ridge))
