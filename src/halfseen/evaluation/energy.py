"""Distances between samples of whole rows: energy distance and sliced Wasserstein distance, and the I-score.

RMSE rewards conditional means, which make a completed table too regular. These distances compare the joint
distributions of completed rows and of true rows, and so detect reduced variances and distorted correlations.
The energy I-score ranks imputers on an incomplete table without removing known values.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist

from halfseen._arrays import Booleans, Floats, Integers
from halfseen._random import seed_from
from halfseen.data.incomplete import unmask
from halfseen.data.schema import Column
from halfseen.evaluation.candidates import Answer, CodedTable, enter
from halfseen.evaluation.scores import Scale, crps_draws

MAX_ROWS = 2_000  # beyond it rows are subsampled: the number of distances grows with the square
N_PROJECTIONS = 200
LEVEL_SCALE = 0.5**0.5  # rows that differ in one level, and in nothing else, are one unit apart
_BLOCK = 512


def row_features(codes: npt.ArrayLike, n_levels: Sequence[int | None], scale: Scale) -> Floats:
    r"""Returns rows of a mixed table as points: standardised numbers, and indicators of levels.

    Indicators are multiplied by :math:`1 / \sqrt{2}`: two rows that differ in one level only are one unit
    apart, as are two rows that differ by one standard deviation in one number.

    Parameters
    ----------
    codes : array-like of shape (n_rows, n_columns)
        Complete rows: numbers, or positions among levels.
    n_levels : sequence of int or None
        Per column the number of its levels, None for numbers.
    scale : Scale
        Learned from the observed training cells.

    Examples
    --------
    >>> scale = Scale(np.array([1.0, 0.0]), np.array([2.0, 1.0]))
    >>> row_features([[5.0, 1.0]], [None, 2], scale).round(4)
    array([[2.    , 0.    , 0.7071]])
    """
    array = np.asarray(unmask(codes), dtype=np.float64)
    standardised = scale.forward(array)
    parts = []
    for j, levels in enumerate(n_levels):
        if levels is None:
            parts.append(standardised[:, [j]])
        else:
            parts.append((array[:, [j]] == np.arange(levels)) * LEVEL_SCALE)
    return np.concatenate(parts, axis=1) if parts else np.empty((len(array), 0))


def energy_distance(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    *,
    max_rows: int = MAX_ROWS,
    random_state: object = 0,
) -> float:
    r"""Returns the energy distance between two samples of rows; 0 if and only if they are equal.

    .. math:: 2\, \mathbb{E}|X - Y| - \mathbb{E}|X - X'| - \mathbb{E}|Y - Y'|

    with Euclidean norms and plain averages over all pairs. In one dimension it is the square of
    `scipy.stats.energy_distance`.

    Parameters
    ----------
    first, second : array-like of shape (n_rows, n_features), or (n_rows,)
        Complete rows on comparable scales, see `row_features`.
    max_rows : int, default=2000
        Larger samples are subsampled. From samples of equal length the same rows are taken, so that a
        completed table is compared with its own true rows.
    random_state : int, numpy generator or None, default=0
        Seeds the subsample.

    References
    ----------
    Székely & Rizzo (2013), Journal of Statistical Planning and Inference 143, eq. 5.

    Examples
    --------
    >>> energy_distance([[0.0], [1.0]], [[0.0], [1.0]])
    0.0
    >>> energy_distance([[0.0], [0.0]], [[3.0]])
    6.0
    """
    x, y = _samples(first, second, max_rows, random_state)
    if x.shape == y.shape and np.array_equal(x, y):
        return 0.0
    distance = 2 * _mean_distance(x, y) - _mean_distance(x, x) - _mean_distance(y, y)
    return max(distance, 0.0)  # below 0 by rounding only


def sliced_wasserstein(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    *,
    p: float = 2.0,
    n_projections: int = N_PROJECTIONS,
    max_rows: int | None = None,
    random_state: object = 0,
) -> float:
    r"""Returns the sliced Wasserstein distance between two samples of rows.

    .. math:: \left( \mathbb{E}_\theta \int_0^1
        |F_{\theta^\top X}^{-1}(u) - F_{\theta^\top Y}^{-1}(u)|^p \, du \right)^{1/p}

    over directions :math:`\theta` uniform on the sphere; the one-dimensional distances are exact, for
    samples of unequal length too. In one dimension and with p = 1 it is `scipy.stats.wasserstein_distance`.

    Parameters
    ----------
    first, second : array-like of shape (n_rows, n_features), or (n_rows,)
        Complete rows on comparable scales, see `row_features`.
    p : float, default=2
        The order, at least 1.
    n_projections : int, default=200
        The number of directions.
    max_rows : int, optional
        Larger samples are subsampled.
    random_state : int, numpy generator or None, default=0
        Seeds directions and subsample.

    References
    ----------
    Bonneel et al. (2015), Journal of Mathematical Imaging and Vision 51.

    Examples
    --------
    >>> sliced_wasserstein([0.0, 1.0], [2.0, 3.0], p=1)
    2.0
    """
    if not p >= 1:
        raise ValueError(f"p must be at least 1, got {p!r}.")
    rng = np.random.default_rng(seed_from(random_state))
    x, y = _samples(first, second, max_rows, rng)
    directions = rng.normal(size=(n_projections if x.shape[1] > 1 else 1, x.shape[1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    x_sorted = np.sort(x @ directions.T, axis=0)  # (N, R)
    y_sorted = np.sort(y @ directions.T, axis=0)
    # Between neighbouring steps of either distribution function both quantile functions are constant.
    steps = np.union1d(np.arange(1, len(x) + 1) * len(y), np.arange(1, len(y) + 1) * len(x))
    shares = np.diff(steps, prepend=0) / (len(x) * len(y))
    gap = x_sorted[(steps - 1) // len(y)] - y_sorted[(steps - 1) // len(x)]
    return float(np.mean(shares @ np.abs(gap) ** p) ** (1 / p))


def _samples(
    first: npt.ArrayLike, second: npt.ArrayLike, max_rows: int | None, random_state: object
) -> tuple[Floats, Floats]:
    x, y = (_as_rows(one) for one in (first, second))
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"The samples have {x.shape[1]} and {y.shape[1]} features; these must be equal.")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("The samples contain missing or infinite values; compare complete rows only.")
    if max_rows is None or max(len(x), len(y)) <= max_rows:
        return x, y
    rng = np.random.default_rng(seed_from(random_state))
    kept = np.sort(rng.permutation(len(x))[:max_rows])
    other = kept if len(x) == len(y) else np.sort(rng.permutation(len(y))[:max_rows])
    return x[kept], y[other]


def _as_rows(sample: npt.ArrayLike) -> Floats:
    array = np.asarray(unmask(sample), dtype=np.float64)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or len(array) == 0:
        raise ValueError(f"Expected at least one row of shape (n_rows, n_features), got {array.shape}.")
    return array


def _mean_distance(x: Floats, y: Floats) -> float:
    total = sum(cdist(x[start : start + _BLOCK], y).sum() for start in range(0, len(x), _BLOCK))
    return float(total) / (len(x) * len(y))


FEWEST = 10  # a column with fewer missing or fewer observed cells is not scored


@dataclass(frozen=True)
class IScore:
    """The energy I-score of an imputer; lower is better.

    Attributes
    ----------
    value : float
        The weighted mean over columns; NaN if no column could be scored.
    columns : dict of str to (score, weight)
        The score and weight of each incomplete column; the score is NaN if it could not be computed.
    """

    value: float
    columns: dict[str, tuple[float, float]]


def energy_i_score(
    imputer: Any, X: Any, *, n_draws: int = 20, schema: Any = None, random_state: Any = 0
) -> IScore:
    r"""Scores an imputer on an incomplete table, without known true values.

    For an incomplete column j, let :math:`L_j` be the rows in which it is observed, and :math:`O_j` the other
    columns that are observed in all of these rows. The table is completed by one draw :math:`\tilde x`.
    Then the imputer is fitted to the columns :math:`(j, O_j)` with column j imputed in the *missing* rows
    and removed in the *observed* rows, and draws the latter; the score is

    .. math:: S = \frac{\sum_j w_j S_j}{\sum_j w_j}, \qquad
        S_j = \frac{1}{|L_j|} \sum_{i \in L_j} \mathrm{CRPS}(x_{ij}, \hat F_{ij}), \qquad
        w_j = \frac{|L_j|}{n} \left(1 - \frac{|L_j|}{n}\right)

    An imputation scores well if the imputed values predict the observed ones.

    Numbers are standardised by their observed cells; a column with levels is scored by the energy score of
    its indicators, scaled so that a wrong level costs 1. If no other column is observed in all rows of
    :math:`L_j`, the one with most observed cells there takes the place of :math:`O_j`, and rows without it
    are left out. Columns with fewer than 10 missing or 10 observed cells get no score. The plain average
    over draws is fair (unbiased), where the paper's takes the draws as the whole distribution.

    The score assumes that, given :math:`O_j`, a value has the same distribution whether it is missing or
    observed (conditionally independent MAR, the paper's CIMAR). This need not hold under MAR, and does not
    hold under MNAR.

    Parameters
    ----------
    imputer : imputer
        As in `halfseen.evaluation.protocol.compare`; one without draws is scored by its single values.
    X : pandas, polars or pyarrow table, or array-like of shape (n_samples, n_features)
        An incomplete table.
    n_draws : int, default=20
        The number of draws for each score.
    schema : mapping, optional
        Column kinds, as in the imputers.
    random_state : int, numpy generator or None, default=0
        Seeds the imputer.

    References
    ----------
    Näf, Grzesiak & Scornet (2025), How to rank imputation methods?, arXiv 2507.11297, algorithm 1. Here
    :math:`S` is a loss; the paper's score is its negative.

    Examples
    --------
    >>> from halfseen import GaussianImputer, MeanImputer
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 1)) + 0.3 * rng.normal(size=(300, 3))
    >>> X[rng.random(300) < 0.3, 0] = np.nan
    >>> energy_i_score(GaussianImputer(), X).value < energy_i_score(MeanImputer(), X).value
    True
    """
    table = CodedTable.read(X, schema)
    seed = seed_from(random_state)
    missing = np.isnan(table.codes)
    completed = _complete(imputer, table, seed)
    scale = Scale.fit(table.codes)
    found = {}
    for j in np.flatnonzero(missing.any(axis=0)):
        share = float(missing[:, j].mean())
        score = float("nan")
        if min(missing[:, j].sum(), (~missing[:, j]).sum()) >= FEWEST and len(table.columns) > 1:
            score = _score_column(imputer, table, completed, scale, int(j), n_draws, seed)
        found[table.columns[j].name] = (score, share * (1 - share))
    scored = [(score, weight) for score, weight in found.values() if not np.isnan(score)]
    total = sum(weight for _, weight in scored)
    value = sum(score * weight for score, weight in scored) / total if scored else float("nan")
    return IScore(float(value), found)


def _complete(imputer: Any, table: CodedTable, seed: int) -> Floats:
    return _drawn(_answer(imputer, table, table.codes, 1, seed))[0]


def _answer(imputer: Any, table: CodedTable, codes: Floats, n_draws: int, seed: int) -> Answer:
    candidate = enter(imputer, table, seed)
    candidate.fit(codes)
    return candidate.answer(codes, candidate.fill(codes), n_draws, 0.9)


def _drawn(answer: Answer) -> Floats:
    return answer.point[None] if answer.draws is None else answer.draws


def _score_column(
    imputer: Any, table: CodedTable, completed: Floats, scale: Scale, j: int, n_draws: int, seed: int
) -> float:
    seen = ~np.isnan(table.codes)
    others, rows = predictors(seen, j)
    shown = completed[rows][:, [j, *others]]
    scored = seen[rows, j]
    shown[scored, 0] = np.nan
    columns = tuple(table.columns[k] for k in (j, *others))
    part = CodedTable(columns, shown, tuple(range(len(columns))))
    draws = _drawn(_answer(imputer, part, shown, n_draws, seed))[:, scored, 0]
    return float(_losses(table.columns[j], table.codes[rows[scored], j], draws, scale, j).mean())


def predictors(seen: Booleans, j: int) -> tuple[list[int], Integers]:
    """Returns the columns that predict column j, and the rows that are used.

    Examples
    --------
    >>> seen = np.array([[True, True, False], [True, True, True], [False, False, True]])
    >>> predictors(seen, 0)
    ([1], array([0, 1, 2]))
    """
    known = seen[seen[:, j]]
    others = [k for k in range(seen.shape[1]) if k != j and known[:, k].all()]
    if others:
        return others, np.arange(len(seen))
    counts = known.sum(axis=0)
    counts[j] = -1
    fallback = int(counts.argmax())
    return [fallback], np.flatnonzero(~seen[:, j] | seen[:, fallback])


def _losses(column: Column, truth: Floats, draws: Floats, scale: Scale, j: int) -> Floats:
    if column.levels is None:
        return crps_draws((truth - scale.loc[j]) / scale.scale[j], (draws - scale.loc[j]) / scale.scale[j])
    # With indicators divided by the root of 2, two levels are at distance 1 or 0.
    wrong = (draws != truth).mean(axis=0)
    n_draws = len(draws)
    levels = np.arange(len(column.levels))
    counts = (draws[:, :, None] == levels).sum(axis=0)  # (N, L)
    apart = n_draws**2 - (counts**2).sum(axis=1)  # ordered pairs of draws that differ
    losses: Floats = wrong - apart / (2 * max(n_draws * (n_draws - 1), 1))
    return losses
