r"""Maximum (penalised) likelihood for a Gaussian with missing data, by exact, accelerated, monotone EM.

The ridge penalty is relative to the residual of features that are near-copies of others.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from halfseen._threads import map_in_threads, task_threads
from halfseen.base.parameters import check_number, check_whole
from halfseen.config import tasks_within_budget
from halfseen.data.incomplete import PIECE_BYTES, Incomplete, add_in_tree, blocks_of, rows_in_piece
from halfseen.gaussian.distribution import Bucket, Gaussian, distinct_patterns, plan_buckets
from halfseen.gaussian.low_rank import LowRankGaussian, allowed_ranks, choose_rank, fit_low_rank
from halfseen.gaussian.moments import PatternMoments, expected_moments, moments_suffice
from halfseen.training.progress import AscentSettings, ascend, is_over, seconds_left, squared_step, time_limit

MOST_OF_RESIDUAL = 10.0  # pseudo-rows have at most this multiple of the residual variance; chosen, not fitted
ROWS_FOR_RESIDUAL = 3.0  # rows per feature up to which small residuals are taken for overfitting
"""A compromise between 2 and 4, compared on subsets of six tables: neither was better on all of them."""
SMALLEST_RESIDUAL = 1e-10  # residual variance of exact copies: keeps condition numbers far below 1e16


@dataclass(frozen=True)
class Ridge:
    r"""The penalty of pseudo-rows of uncorrelated data, added to a table of features of unit variance.

    .. math::
        P(\Sigma) = \frac{\lambda}{2} \left(\log |\Sigma| + \sum_j f_j(\Lambda_{jj})\right), \qquad
        f_j'(t) = \max\left(\min\left(1, \frac{c_j}{t}\right), \varphi\right), \qquad \Lambda = \Sigma^{-1}

    :math:`1 / \Lambda_{jj}` is the residual variance of feature j given all others. Where it is at least
    :math:`1 / c_j`, the penalty is the usual one, :math:`\Lambda_{jj}`. A feature that is nearly a linear
    function of others has a smaller residual, and pseudo-rows of unit variance would inflate it. Its penalty
    is logarithmic instead, which is equivalent to pseudo-rows with :math:`c_j` times its residual variance.
    The function :math:`f_j` is concave, so that a step of EM with the pseudo-rows of the step before still
    never decreases the penalised likelihood.

    Parameters
    ----------
    strength : float
        The number :math:`\lambda` of pseudo-rows.
    reach : Tensor, optional
        (D), the precision :math:`c_j` up to which the penalty is linear; without it, it always is.
    least : float
        The smallest variance :math:`\varphi` of pseudo-rows, for exact copies.
    """

    strength: float
    reach: Tensor | None = None
    least: float = 0.0

    @classmethod
    def of(
        cls, batch: Incomplete, strength: float, weights: Tensor | None = None, rows_behind: float = 1.0
    ) -> "Ridge":
        """Returns the penalty of a table (N, D), the rows of which may have weights (N).

        If the table is part of a larger one, `rows_behind` is how many rows of that one there are for each.

        With few rows per feature, a small residual is no evidence, and the penalty is linear. In between,
        residuals are corrected for the number of coefficients behind them.
        """
        observed = batch.observed.to(batch.x.dtype)
        counts = observed.sum(dim=0) if weights is None else weights.to(batch.x.dtype) @ observed
        total = len(batch) if weights is None else float(weights.sum())
        return cls.of_counts(counts, total, strength, rows_behind)

    @classmethod
    def of_counts(cls, counts: Tensor, total: float, strength: float, rows_behind: float = 1.0) -> "Ridge":
        """Returns the penalty of a table with this number of rows, and of observed cells (D) by feature."""
        counts = rows_behind * counts
        free = 1 - ROWS_FOR_RESIDUAL * len(counts) / counts.clamp(min=1)
        reach = torch.where(free > 0, MOST_OF_RESIDUAL / free.clamp(min=1e-12), torch.inf)
        least = min(1.0, SMALLEST_RESIDUAL * total / strength) if strength > 0 else 0.0
        return cls(strength, reach, least)

    def variances(self, gaussian: Gaussian) -> Tensor:
        """Returns the variances (D) of the pseudo-rows of the next step."""
        precision = gaussian.precision.diagonal()
        if self.reach is None:
            return torch.ones_like(precision)
        return (self.reach / precision).clamp(self.least, 1.0)

    def penalty(self, gaussian: Gaussian) -> Tensor:
        """Returns the penalty."""
        precision = gaussian.precision.diagonal()
        return 0.5 * self.strength * (gaussian.log_det + self._growth(precision).sum())

    def _growth(self, precision: Tensor) -> Tensor:
        """Returns f (D)."""
        if self.reach is None:
            return precision
        end = self.reach / max(self.least, 1e-300)
        beyond = (precision / self.reach).clamp(min=1.0).minimum(end / self.reach)
        logarithmic = torch.where(beyond > 1, self.reach * beyond.log(), 0.0)
        return precision.minimum(self.reach) + logarithmic + self.least * (precision - end).clamp(min=0.0)


# Guesses that no measurement chose: `COPIES` plans memory, the others say where a fit starts and when ridges
# and ranks are compared on held-out cells.
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
    rows_behind : float
        How many rows each row stands for in the shape of the penalty, see `Ridge.of`.
    """

    ridge: float = DEFAULT_RIDGE
    rank: int | None = None
    rows_behind: float = 1.0


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
    if _has_few_patterns(batch):
        moments = PatternMoments.of_table(batch, weights)
        return fit_from_moments(moments, settings, start=start, callback=callback)
    with explain_singular(settings.ridge):
        first = _start(batch, settings, generator, weights) if start is None else start
        result = _GaussianEM(batch, settings, weights).run(first, callback)
        result.gaussian.cholesky  # noqa: B018, the last point has not been factorised yet
    return result


@task_threads()
def fit_from_moments(
    moments: PatternMoments,
    settings: EMSettings,
    *,
    start: Gaussian | None = None,
    callback: Callable[[int, float], None] | None = None,
) -> EMResult:
    """Maximises the same likelihood as `fit_gaussian`, from the moments of the patterns of a table.

    Parameters
    ----------
    moments : PatternMoments
        Of features on a common scale (unit variance), at least one row.
    settings : EMSettings
        Ridge and stopping rule; the covariance is unrestricted, so that there must not be a rank.
    start : Gaussian, optional
        The initial value; by default the pairwise moments.
    callback : callable, optional
        Called with the iteration and the objective per row.
    """
    if settings.rank is not None:
        raise ValueError(f"A covariance of rank {settings.rank} is fitted to rows, not to moments.")
    ridge = Ridge.of_counts(moments.n_observed, moments.total, settings.ridge, settings.rows_behind)

    def step(gaussian: Gaussian) -> tuple[float, Gaussian]:
        expected = expected_moments(gaussian, moments)
        value = (expected.log_prob - float(ridge.penalty(gaussian))) / moments.total
        return value, _maximise_about(gaussian, expected.shift, expected.scatter, moments.total, ridge)

    with explain_singular(settings.ridge):
        first = _positive_definite(*moments.pairwise(), settings.ridge) if start is None else start
        ascent = ascend(step, first, _extrapolate, settings, moments.n_features, callback)
        ascent.point.cholesky  # noqa: B018, the last point has not been factorised yet
    return EMResult(ascent.point, ascent.objective, ascent.converged)


def _has_few_patterns(batch: Incomplete) -> bool:
    """Returns whether EM runs on the moments of patterns, which depends on the table alone."""
    if not moments_suffice(len(batch), 1, batch.n_features):
        return False
    return moments_suffice(len(batch), len(distinct_patterns(batch.observed)[0]), batch.n_features)


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
    # The penalty has the shape that it has for all rows: another one would be best with another ridge.
    rough = replace(settings, tolerance=10 * settings.tolerance, rows_behind=N_FOLDS / (N_FOLDS - 1))
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
    parts = [batch[block] for block in blocks_of(len(batch), batch.n_features)] or [batch]
    n_observed = sum_in_tree(part.observed.sum(dim=0) for part in parts)
    loc = sum_in_tree(part.filled().sum(dim=0) for part in parts) / n_observed.clamp(min=1)

    def scatter_and_counts(part: Incomplete) -> Tensor:
        seen = part.observed.to(batch.x.dtype)
        centred = (part.x - loc).masked_fill_(~part.observed, 0.0)
        return torch.stack([centred.T @ centred, seen.T @ seen])

    scatter, counts = sum_in_tree(map(scatter_and_counts, parts))
    return _positive_definite(loc, scatter, counts, ridge)


def sum_in_tree(parts: Iterable[Tensor]) -> Tensor:
    """Returns the sum of the parts, of which there is at least one, in a fixed order."""
    total = add_in_tree(parts, torch.add)
    assert total is not None
    return total


def _positive_definite(loc: Tensor, scatter: Tensor, counts: Tensor, ridge: float) -> Gaussian:
    """Returns a Gaussian with pairwise covariances, whose eigenvalues are raised to a floor."""
    eye = torch.eye(len(loc), dtype=loc.dtype)
    values, vectors = torch.linalg.eigh((scatter + ridge * eye) / (counts + max(ridge, 1e-12)))
    floor = max(EIGENVALUE_FLOOR * values.mean().item(), 1e-12)
    return Gaussian(loc, (vectors * values.clamp(min=floor)) @ vectors.T)


class _GaussianEM:
    """EM on one table; the plan of patterns is made once."""

    def __init__(self, batch: Incomplete, settings: EMSettings, weights: Tensor | None) -> None:
        self.batch = batch
        self.settings = settings
        self.weights = weights
        self.ridge = Ridge.of(batch, settings.ridge, weights, settings.rows_behind)
        size = rows_in_piece(batch.n_features, COPIES * batch.n_features)
        self.parts = [slice(start, start + size) for start in range(0, len(batch), size)]
        self.buckets: list[list[Bucket]] = [list(plan_buckets(batch.observed[part])) for part in self.parts]
        self.total = float(len(batch) if weights is None else weights.sum())

    def run(self, start: Gaussian, callback: Callable[[int, float], None] | None) -> EMResult:
        ascent = ascend(self._step, start, _extrapolate, self.settings, self.batch.n_features, callback)
        return EMResult(ascent.point, ascent.objective, ascent.converged)

    def _step(self, gaussian: Gaussian) -> tuple[float, Gaussian]:
        """Computes a step by sums over pieces of the rows, which are added in a fixed order."""
        gaussian.precision  # noqa: B018, is computed once, before threads ask for it

        def sums(number: int) -> Tensor:
            part = self.parts[number]
            weights = None if self.weights is None else self.weights[part]
            found = gaussian.statistics(self.batch[part], self.buckets[number], weights)
            centred = found.completed - gaussian.loc
            weighted = centred if weights is None else weights[:, None] * centred
            log_prob = found.log_prob.sum() if weights is None else (weights * found.log_prob).sum()
            scatter = centred.T @ weighted + found.covariance
            return torch.cat([log_prob[None], weighted.sum(dim=0), scatter.flatten()])

        n_features = self.batch.n_features
        at_most = tasks_within_budget(PIECE_BYTES)
        total = sum_in_tree(map_in_threads(sums, range(len(self.parts)), at_most=at_most))
        log_prob, shift, scatter = total.split([1, n_features, n_features**2])
        value = float((log_prob[0] - self.ridge.penalty(gaussian)) / self.total)
        return value, _maximise_about(
            gaussian, shift, scatter.view(n_features, n_features), self.total, self.ridge
        )


def _maximise_about(
    gaussian: Gaussian, shift: Tensor, scatter: Tensor, total: float, ridge: Ridge
) -> Gaussian:
    """Returns the M-step from the sum (D) and scatter (D, D) of completed rows about the mean before.

    The scatter includes conditional covariances; pseudo-rows of the ridge are added here.
    """
    shift = shift / total
    scatter = scatter + (ridge.strength * ridge.variances(gaussian)).diag()
    covariance = (scatter - total * torch.outer(shift, shift)) / (total + ridge.strength)
    return Gaussian(gaussian.loc + shift, (covariance + covariance.T) / 2)


def penalised_mean(log_prob: Tensor, gaussian: Gaussian, ridge: Ridge, weights: Tensor | None) -> float:
    """Returns the log-likelihood per row, less the penalty."""
    penalty = ridge.penalty(gaussian)
    total = log_prob.sum() if weights is None else (weights * log_prob).sum()
    return float((total - penalty) / (len(log_prob) if weights is None else weights.sum()))


def maximise(
    completed: Tensor, covariance: Tensor, ridge: float, pseudo_rows: Tensor, weights: Tensor | None
) -> Gaussian:
    """Returns the M-step, from completed rows (N, D) and the sum of their conditional covariances (D, D).

    `ridge` is the number of pseudo-rows, and `pseudo_rows` (D) the diagonal of their scatter. Sums over rows
    are those of fixed blocks, added in a fixed order.
    """
    total = len(completed) if weights is None else float(weights.sum())
    blocks = list(blocks_of(*completed.shape))

    def weighted(x: Tensor, block: slice) -> Tensor:
        return x if weights is None else weights[block, None] * x

    loc = sum_in_tree(weighted(completed[block], block).sum(dim=0) for block in blocks) / total

    def scatter_of(block: slice) -> Tensor:
        centred = completed[block] - loc
        return centred.T @ weighted(centred, block)

    scatter = sum_in_tree(map(scatter_of, blocks)) + covariance
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
