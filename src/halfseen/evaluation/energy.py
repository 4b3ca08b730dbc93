r"""Distances between samples of whole rows: energy distance and sliced Wasserstein distance.

RMSE rewards conditional means, which make a completed table too regular. These distances compare the joint
distributions of completed rows and of true rows, and so detect reduced variances and distorted correlations.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist

from halfseen._random import seed_from
from halfseen.data.incomplete import unmask
from halfseen.evaluation.scores import Scale

Floats = npt.NDArray[np.float64]

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
