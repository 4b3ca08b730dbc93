r"""Maximum (penalised) likelihood for a Gaussian with missing data, by exact, accelerated, monotone EM."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from halfseen._threads import task_threads
from halfseen.data.incomplete import Incomplete
from halfseen.distributions.gaussian import Gaussian, Statistics
from halfseen.distributions.patterns import Bucket, plan_buckets

WARM_UP_ROWS = 4000  # a start from this many rows is within a few iterations of the fit to all
RIDGES = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
DEFAULT_RIDGE = 1.0
AMPLE_ROWS = 20  # rows per feature from which the ridge no longer matters
N_FOLDS = 3
EIGENVALUE_FLOOR = 0.005  # of the mean eigenvalue; pairwise covariances need not be positive definite


@dataclass(frozen=True)
class EMSettings:
    r"""When to stop, and how much to shrink.

    Parameters
    ----------
    ridge : float
        The number of pseudo-rows of uncorrelated unit-variance data that are added to the table.
    max_iterations : int
        At most so many passes over all rows.
    tolerance : float
        Stop when a pass gains less than this log-likelihood per row and feature.
    """

    ridge: float = DEFAULT_RIDGE
    max_iterations: int = 200
    tolerance: float = 2e-5


@dataclass(frozen=True)
class EMResult:
    """The fitted Gaussian and the penalised log-likelihood per row at every accepted step, never falling."""

    gaussian: Gaussian
    objective: tuple[float, ...]
    converged: bool


@task_threads()
def fit_gaussian(
    batch: Incomplete,
    settings: EMSettings,
    *,
    generator: torch.Generator,
    callback: Callable[[int, float], None] | None = None,
) -> EMResult:
    r"""Maximises the observed-data log-likelihood with a ridge penalty.

    .. math::
        \max_{\mu, \Sigma} \sum_n \log \mathcal{N}(x_{n,o_n} \mid \mu, \Sigma)
        - \tfrac{\lambda}{2} \left(\log |\Sigma| + \operatorname{tr} \Sigma^{-1}\right)

    The M-step is :math:`\mu = \bar{x}`, :math:`\Sigma = (S + \lambda I) / (N + \lambda)`, with S
    the expected scatter. After every two EM steps a squared extrapolation is tried and kept only if the
    objective does not fall. Large tables start from a fit to a random subset of rows. Valid under MAR.

    Parameters
    ----------
    batch : Incomplete
        (N, D), features on a common scale (unit variance), at least one row.
    settings : EMSettings
        Ridge :math:`\lambda` and stopping rule.
    generator : torch.Generator
        Chooses the rows of the warm-up.
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
    try:
        result = _climb(batch, settings, generator, callback)
        result.gaussian.cholesky  # noqa: B018, the last point has not been factorised yet
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        raise ValueError(
            f"The covariance is singular with ridge={settings.ridge:g}: some columns determine others, or "
            "rows are too few. Use a larger ridge."
        ) from error
    return result


def _climb(
    batch: Incomplete,
    settings: EMSettings,
    generator: torch.Generator,
    callback: Callable[[int, float], None] | None,
) -> EMResult:
    start = pairwise_gaussian(batch, settings.ridge)
    if len(batch) >= 3 * WARM_UP_ROWS:
        rows = torch.randperm(len(batch), generator=generator)[:WARM_UP_ROWS]
        start = _Climb(batch[rows], settings).run(start, callback=None).gaussian
    return _Climb(batch, settings).run(start, callback)


def choose_ridge(batch: Incomplete, settings: EMSettings, *, generator: torch.Generator) -> float:
    """Returns the ridge with the best log-likelihood of held-out rows; the default where rows abound.

    From the default the search goes up or down while the held-out score improves.
    """
    if len(batch) >= AMPLE_ROWS * batch.n_features or len(batch) < 2 * N_FOLDS:
        return DEFAULT_RIDGE
    folds = torch.randperm(len(batch), generator=generator) % N_FOLDS
    rough = replace(settings, tolerance=10 * settings.tolerance)

    def score(ridge: float) -> float:
        total = 0.0
        for fold in range(N_FOLDS):
            fit = fit_gaussian(batch[folds != fold], replace(rough, ridge=ridge), generator=generator)
            total += float(fit.gaussian.log_prob(batch[folds == fold]).sum())
        return total

    scores = {DEFAULT_RIDGE: score(DEFAULT_RIDGE)}
    best = RIDGES.index(DEFAULT_RIDGE)
    for step in (1, -1):
        while 0 <= best + step < len(RIDGES):
            scores[RIDGES[best + step]] = score(RIDGES[best + step])
            if scores[RIDGES[best + step]] <= scores[RIDGES[best]]:
                break
            best += step
        if RIDGES[best] != DEFAULT_RIDGE:
            break
    return RIDGES[best]


def pairwise_gaussian(batch: Incomplete, ridge: float) -> Gaussian:
    """Returns means and pairwise-complete covariances, made positive definite by an eigenvalue floor."""
    seen = batch.observed.to(batch.x.dtype)
    loc = batch.filled().sum(dim=0) / seen.sum(dim=0).clamp(min=1)
    centred = torch.where(batch.observed, batch.x - loc, 0.0)
    eye = torch.eye(batch.n_features, dtype=batch.x.dtype)
    scatter, counts = centred.T @ centred, seen.T @ seen
    values, vectors = torch.linalg.eigh((scatter + ridge * eye) / (counts + max(ridge, 1e-12)))
    floor = max(EIGENVALUE_FLOOR * values.mean().item(), 1e-12)
    return Gaussian(loc, (vectors * values.clamp(min=floor)) @ vectors.T)


class _Climb:
    """EM on one table: the pattern plan is made once, then steps go uphill."""

    def __init__(self, batch: Incomplete, settings: EMSettings) -> None:
        self.batch = batch
        self.settings = settings
        self.buckets: list[Bucket] = list(plan_buckets(batch.observed))

    def run(self, start: Gaussian, callback: Callable[[int, float], None] | None) -> EMResult:
        path = [start]  # the points of the last plain EM steps
        fallback: Gaussian | None = None  # where to return to while path is an extrapolation not yet judged
        objective: list[float] = []
        converged = False
        for iteration in range(self.settings.max_iterations):
            value, following = self._step(path[-1])
            if callback is not None:
                callback(iteration, value)
            gain = value - objective[-1] if objective else float("inf")
            if gain < 0 and fallback is not None:
                path, fallback = [fallback], None
                continue
            fallback = None
            converged = gain < self.settings.tolerance * self.batch.n_features
            if gain >= 0:  # a plain step falls by rounding only, and then the top is reached
                objective.append(value)
                path.append(following)
            if converged:
                break
            if len(path) == 3:
                fallback = path[-1]
                path = [_extrapolate(*path)]
        return EMResult(path[-1] if fallback is None else fallback, tuple(objective), converged)

    def _step(self, gaussian: Gaussian) -> tuple[float, Gaussian]:
        statistics = gaussian.statistics(self.batch, self.buckets)
        ridge = self.settings.ridge
        penalty = 0.5 * ridge * (gaussian.log_det + gaussian.precision.diagonal().sum())
        value = float((statistics.log_prob.sum() - penalty) / len(self.batch))
        return value, self._maximise(statistics)

    def _maximise(self, statistics: Statistics) -> Gaussian:
        ridge = self.settings.ridge
        loc = statistics.completed.mean(dim=0)
        centred = statistics.completed - loc
        scatter = centred.T @ centred + statistics.covariance
        scatter.diagonal().add_(ridge)
        covariance = scatter / (len(self.batch) + ridge)
        return Gaussian(loc, (covariance + covariance.T) / 2)


def _extrapolate(first: Gaussian, second: Gaussian, third: Gaussian) -> Gaussian:
    """Returns a point further along the path of two EM steps; the third point if there is none."""
    points = [torch.cat([g.loc, g.covariance.flatten()]) for g in (first, second, third)]
    step, bend = points[1] - points[0], points[2] - 2 * points[1] + points[0]
    length = float(step.norm() / bend.norm().clamp(min=1e-300))
    n_features = len(first.loc)
    while length > 1.05:
        point = points[0] + 2 * length * step + length**2 * bend
        covariance = point[n_features:].view(n_features, n_features)
        if torch.linalg.cholesky_ex(covariance).info == 0:
            return Gaussian(point[:n_features], covariance)
        length = (length + 1) / 2
    return third
