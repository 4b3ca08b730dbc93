r"""Effect sizes with intervals for two groups of rows, in closed form from counts and rank sums."""

import numpy as np
import numpy.typing as npt
from scipy.special import chndtrinc, ndtri

Floats = npt.NDArray[np.float64]

LEVEL = 0.95
Z = float(ndtri((1 + LEVEL) / 2))
N_HALVINGS = 60
LARGE_NONCENTRALITY = 1e4  # from here the root of a chi-squared statistic is normal


def holm(p_values: npt.ArrayLike) -> Floats:
    r"""Returns p-values adjusted by Holm's method; NaN, for what was not tested, stays NaN.

    .. math:: \tilde{p}_{(i)} = \max_{k \le i} \min\{1, (n - k + 1)\, p_{(k)}\}

    The chance of even one false alarm is at most the level, however the tests depend on each other.

    References
    ----------
    Holm (1979), A simple sequentially rejective multiple test procedure.

    Examples
    --------
    >>> holm([0.01, 0.04, np.nan, 0.03])
    array([0.03, 0.06,  nan, 0.06])
    """
    p = np.asarray(p_values, dtype=np.float64)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    adjusted = np.full(p.shape, np.nan)
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0) if len(order) else 0.0
    return adjusted


def auc_interval(auc: npt.ArrayLike, n_one: npt.ArrayLike, n_other: npt.ArrayLike) -> tuple[Floats, Floats]:
    r"""Returns the 95% interval of :math:`A = P(X > Y) + P(X = Y) / 2` from samples of two sizes m and n.

    The ends solve :math:`|\hat{A} - A| = z \sqrt{V(A)}` with

    .. math::
        V(A) = \frac{A (1 - A)}{m n} \left(1 + N^* \frac{1 - A}{2 - A} + N^* \frac{A}{1 + A}\right),
        \qquad N^* = \frac{m + n}{2} - 1

    so an estimate of 0 or 1 still has an interval.

    References
    ----------
    Newcombe (2006), Confidence intervals for an effect size measure based on the Mann-Whitney statistic,
    part 2, method 5.

    Examples
    --------
    >>> low, high = auc_interval(0.5, 50, 50)
    >>> f"{low:.3f} {high:.3f}"
    '0.390 0.610'
    """
    auc, m, n = (np.asarray(one, dtype=np.float64) for one in (auc, n_one, n_other))
    return _lower_auc(auc, m, n), 1 - _lower_auc(1 - auc, m, n)


def _lower_auc(auc: Floats, m: Floats, n: Floats) -> Floats:
    middle = np.maximum((m + n) / 2 - 1, 0.0)
    low, high = np.zeros(np.broadcast(auc, m).shape), np.broadcast_to(auc, np.broadcast(auc, m).shape)
    for _ in range(N_HALVINGS):
        a = (low + high) / 2
        variance = a * (1 - a) / (m * n) * (1 + middle * (1 - a) / (2 - a) + middle * a / (1 + a))
        inside = auc - a < Z * np.sqrt(variance)
        low, high = np.where(inside, low, a), np.where(inside, a, high)
    return (low + high) / 2


def cramers_v(statistic: npt.ArrayLike, df: npt.ArrayLike, n_rows: npt.ArrayLike) -> Floats:
    r"""Returns Cramér's V of a table with two rows, less what chance alone would give.

    .. math:: \tilde{V} = \sqrt{\max\left(0, \frac{\chi^2}{n} - \frac{k - 1}{n - 1}\right) \Big/
        \left(1 - \frac{1}{n - 1}\right)}

    where k - 1 are the degrees of freedom.

    References
    ----------
    Bergsma (2013), A bias-correction for Cramér's V and Tschuprow's T.
    """
    statistic, df, n = (np.asarray(one, dtype=np.float64) for one in (statistic, df, n_rows))
    columns = df - df**2 / (n - 1)
    smaller = np.minimum(1 - 1 / (n - 1), columns)
    return np.sqrt(np.clip(statistic / n - df / (n - 1), 0.0, None) / smaller).clip(max=1.0)


def cramers_v_interval(
    statistic: npt.ArrayLike, df: npt.ArrayLike, n_rows: npt.ArrayLike
) -> tuple[Floats, Floats]:
    r"""Returns the 95% interval of :math:`\sqrt{\lambda / n}`, :math:`\lambda` the noncentrality.

    The ends are those :math:`\lambda` under which a statistic as large, or as small, has probability 2.5%. A
    statistic below its degrees of freedom is raised to them for the upper end, which would be 0 else.

    References
    ----------
    Smithson (2003), Confidence Intervals, chapter 4.
    """
    statistic, df, n = (np.asarray(one, dtype=np.float64) for one in (statistic, df, n_rows))
    low = _noncentrality(statistic, df, (1 + LEVEL) / 2)
    high = _noncentrality(np.maximum(statistic, df), df, (1 - LEVEL) / 2)
    return np.sqrt(low / n).clip(max=1.0), np.sqrt(high / n).clip(max=1.0)


def _noncentrality(statistic: Floats, df: Floats, probability: float) -> Floats:
    """Returns the noncentrality that gives the statistic a cumulative probability; 0 if none does."""
    root = np.sqrt(np.clip(statistic - df + 1, 0.0, None)) - ndtri(probability)
    small = np.minimum(statistic, LARGE_NONCENTRALITY)
    exact = np.nan_to_num(chndtrinc(small, df, probability), nan=0.0)
    exact = np.where(exact > 1e-12, exact, 0.0)
    return np.where(statistic > LARGE_NONCENTRALITY, np.clip(root, 0.0, None) ** 2, exact)


def odds_ratio(
    both: npt.ArrayLike, one: npt.ArrayLike, other: npt.ArrayLike, neither: npt.ArrayLike
) -> tuple[Floats, Floats, Floats]:
    r"""Returns the odds ratio of a 2 x 2 table and its 95% interval.

    .. math:: \log\frac{ad}{bc} \pm z \sqrt{\tfrac1a + \tfrac1b + \tfrac1c + \tfrac1d}

    Where a cell is empty, half a row is added to each.

    References
    ----------
    Woolf (1955); Haldane (1956) for the half.

    Examples
    --------
    >>> estimate, low, high = odds_ratio(10, 5, 5, 10)
    >>> f"{estimate:.1f} ({low:.2f} to {high:.2f})"
    '4.0 (0.88 to 18.26)'
    """
    counts = (np.asarray(cell, dtype=np.float64) for cell in (both, one, other, neither))
    cells = np.stack(np.broadcast_arrays(*counts))
    cells = cells + 0.5 * (cells == 0).any(axis=0)
    centre = np.log(cells[0]) + np.log(cells[3]) - np.log(cells[1]) - np.log(cells[2])
    half = Z * np.sqrt((1 / cells).sum(axis=0))
    return np.exp(centre), np.exp(centre - half), np.exp(centre + half)


def difference_interval(
    count: npt.ArrayLike, n_rows: npt.ArrayLike, other_count: npt.ArrayLike, n_other: npt.ArrayLike
) -> tuple[Floats, Floats]:
    r"""Returns the 95% interval of a difference of two shares, by Newcombe's hybrid of Wilson intervals.

    .. math:: \hat{p}_1 - \hat{p}_0 - \sqrt{(\hat{p}_1 - l_1)^2 + (u_0 - \hat{p}_0)^2}, \qquad
        \hat{p}_1 - \hat{p}_0 + \sqrt{(u_1 - \hat{p}_1)^2 + (\hat{p}_0 - l_0)^2}

    References
    ----------
    Newcombe (1998), Interval estimation for the difference between independent proportions, method 10.

    Examples
    --------
    >>> low, high = difference_interval(56, 70, 48, 80)
    >>> f"{low:.4f} {high:.4f}"
    '0.0524 0.3339'
    """
    share, low, high = _wilson(count, n_rows)
    other, other_low, other_high = _wilson(other_count, n_other)
    return (
        share - other - np.hypot(share - low, other_high - other),
        share - other + np.hypot(high - share, other - other_low),
    )


def _wilson(count: npt.ArrayLike, n_rows: npt.ArrayLike) -> tuple[Floats, Floats, Floats]:
    n = np.asarray(n_rows, dtype=np.float64)
    share = np.asarray(count, dtype=np.float64) / n
    centre, weight = share + Z**2 / (2 * n), 1 + Z**2 / n
    half = Z * np.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2))
    return share, (centre - half) / weight, (centre + half) / weight
