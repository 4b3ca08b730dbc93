"""Statistics of one completed table on the scale on which they are pooled, for functions given to `pool`."""

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from halfseen._arrays import Floats
from halfseen.pooling.analysis import Analysis

_BLOCK = 1000  # rows that are compared with all others at once, to bound the memory: a guess


def correlation(x: npt.ArrayLike, y: npt.ArrayLike) -> Analysis:
    r"""The correlation of two columns, pooled as Fisher's :math:`z = \operatorname{artanh} r`.

    The variance of z is :math:`1 / (n - 3)`.

    Parameters
    ----------
    x, y : array-like of shape (n_samples,)
        The columns of one completed table.

    Examples
    --------
    >>> from halfseen.pooling import pool
    >>> rng = np.random.default_rng(0)
    >>> tables = rng.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], size=(5, 200))
    >>> pooled = pool(lambda table: correlation(table[:, 0], table[:, 1]), tables)
    >>> low, high = pooled.interval()
    >>> bool(-1 < low[0] < pooled.estimate[0] < high[0] < 1)
    True
    """
    a, b = _column(x, "x", 4), _column(y, "y", 4)
    if len(a) != len(b):
        raise ValueError(f"x and y must be columns of one table, got {len(a)} and {len(b)} values.")
    if a.std() == 0 or b.std() == 0:
        raise ValueError("The correlation of a column that does not vary is not defined.")
    found = float(np.clip(np.corrcoef(a, b)[0, 1], -1, 1))
    if abs(found) == 1:
        raise ValueError(f"The correlation is {found:g}; Fisher's z is infinite.")
    return _one("correlation", np.arctanh(found), 1 / (len(a) - 3), len(a) - 3, "fisher")


def r_squared(value: float, n_rows: int) -> Analysis:
    r"""The coefficient of determination of a model, pooled as Fisher's z of its root.

    The variance of :math:`z = \operatorname{artanh} \sqrt{R^2}` is :math:`1 / (n - 3)`.

    Parameters
    ----------
    value : float
        The coefficient of one completed table, such as ``fit.rsquared`` of statsmodels.
    n_rows : int
        The number of rows n.

    References
    ----------
    Harel (2009), The estimation of R-squared and adjusted R-squared in incomplete data sets using multiple
    imputation, Journal of Applied Statistics 36.
    """
    if not 0 < value < 1:
        raise ValueError(f"R-squared must be in (0, 1) to be pooled, got {value:g}.")
    if n_rows < 4:
        raise ValueError(f"R-squared needs at least 4 rows to be pooled, got {n_rows}.")
    return _one("R-squared", np.arctanh(np.sqrt(value)), 1 / (n_rows - 3), n_rows - 3, "fisher-root")


def quantile(x: npt.ArrayLike, p: float) -> Analysis:
    r"""A quantile of a column, with the variance of Woodruff.

    The standard error is the distance between the quantiles at :math:`p \pm 1.96 \sqrt{p (1 - p) / n}`,
    divided by :math:`2 \cdot 1.96`. It needs no estimate of the density.

    Parameters
    ----------
    x : array-like of shape (n_samples,)
        The column of one completed table.
    p : float
        The probability of the quantile, between 0 and 1.

    References
    ----------
    Woodruff (1952), Confidence intervals for medians and other position measures, JASA 47.
    """
    if not 0 < p < 1:
        raise ValueError(f"p must be between 0 and 1, got {p!r}.")
    values = _column(x, "x", 2)
    z = float(norm.ppf(0.975))
    half = z * np.sqrt(p * (1 - p) / len(values))
    low, middle, high = np.quantile(values, np.clip([p - half, p, p + half], 0, 1))
    return _one(f"quantile {p:g}", middle, ((high - low) / (2 * z)) ** 2, len(values) - 1, None)


def c_index(score: npt.ArrayLike, outcome: npt.ArrayLike, event: npt.ArrayLike | None = None) -> Analysis:
    r"""The concordance of a score with an outcome (C-index, AUC), pooled as its logit.

    The share of comparable pairs of rows in which the row with the larger outcome has the larger score; ties
    of the score count one half. Two rows are comparable if their outcomes differ and, for times with
    censoring, the smaller time is that of an event (Harrell). A score that predicts early events, such as the
    linear predictor of a Cox model, is therefore passed with a minus sign. The variance is that of the linear
    part of the statistic, :math:`\frac{n}{n - 1} \sum_i u_i^2` with :math:`u_i = (\sum_j h_{ij} - C \sum_j
    p_{ij}) / \sum_{i < j} p_{ij}`, p whether a pair is comparable and h its concordance.

    Parameters
    ----------
    score : array-like of shape (n_samples,)
        What predicts the outcome in one completed table.
    outcome : array-like of shape (n_samples,)
        Two classes as 0 and 1 (then C is the area under the ROC curve), numbers, or times.
    event : array-like of shape (n_samples,), optional
        For times: whether the event was observed; False for censored rows.
    """
    s, y = _column(score, "score", 2), _column(outcome, "outcome", 2)
    seen = np.ones(len(s), dtype=bool) if event is None else np.asarray(event).astype(bool)
    if not len(s) == len(y) == len(seen):
        raise ValueError(f"score, outcome and event have {len(s)}, {len(y)} and {len(seen)} rows.")
    pairs, concordant = np.zeros(len(s)), np.zeros(len(s))
    for start in range(0, len(s), _BLOCK):
        part = slice(start, start + _BLOCK)
        smaller = (y[part, None] < y) & seen[part, None]
        larger = (y[part, None] > y) & seen
        above = (s[part, None] < s) + 0.5 * (s[part, None] == s)
        pairs[part] = (smaller | larger).sum(axis=1)
        concordant[part] = (smaller * above + larger * (1 - above)).sum(axis=1)
    if not pairs.any():
        raise ValueError("No two rows have outcomes that can be compared.")
    n_pairs = pairs.sum() / 2
    share = float(concordant.sum() / 2 / n_pairs)
    if not 0 < share < 1:
        raise ValueError(f"The C-index is {share:g}; its logit is infinite.")
    n = len(s)
    variance = n / (n - 1) * float((((concordant - share * pairs) / n_pairs) ** 2).sum())
    slope = 1 / (share * (1 - share))
    return _one("C-index", np.log(share / (1 - share)), slope**2 * variance, n - 1, "logit")


def _one(name: str, estimate: float, variance: float, df: float, transform: str | None) -> Analysis:
    return Analysis(
        (name,), np.array([float(estimate)]), np.array([float(variance)]), df, transform=transform
    )


def _column(values: npt.ArrayLike, name: str, least: int) -> Floats:
    column = np.asarray(values, dtype=np.float64)
    if column.ndim != 1 or len(column) < least:
        raise ValueError(f"{name} must be a column of at least {least} numbers, got shape {column.shape}.")
    wrong = np.flatnonzero(~np.isfinite(column))
    if len(wrong):
        raise ValueError(f"{name} has the value {column[wrong[0]]:g} in row {wrong[0]}; complete it first.")
    return column
