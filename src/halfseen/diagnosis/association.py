r"""Associations of the missingness of each column with the values and the missingness of other columns.

Effect sizes and their intervals for two groups of rows are in closed form, from counts and rank sums.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import chndtrinc, ndtr, ndtri
from scipy.stats import chi2, fisher_exact

from halfseen._arrays import Floats, Integers
from halfseen.data.columns import Column
from halfseen.diagnosis.cells import Cells, PatternCounts

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


MIN_GROUP = 5  # minimum number of rows with a missing value, and of rows without
MIN_EXPECTED = 5.0  # of a cell of a chi-squared test; rarer levels are merged
MAX_LEVELS = 30
MAX_INCOMPLETE = 100  # columns whose missingness is analysed, those with most missing values
MAX_OTHERS = 300  # columns whose values are compared


@dataclass(frozen=True)
class Association:
    """The association of the missingness of a column with the values or the missingness of another."""

    column: str  # the column whose missingness is analysed
    other: str
    about: str  # "value" or "missingness": what of the other column is compared
    measure: str  # the effect size: "rank-biserial", "Cramér's V" or "odds ratio"; see `associate`
    # The effect size and its 95% interval.
    effect: float
    low: float
    high: float
    strength: float  # the correlation with the other column, from 0 to 1, comparable between measures
    # The p-value, and the p-value adjusted by Holm's method over all pairs.
    p_value: float
    p_adjusted: float
    # The number of rows compared, and of those in which `column` is missing.
    n_rows: int
    n_missing: int
    level: str | None  # for a column with levels, the level whose frequency differs most
    # The mean value, the frequency of `level`, or the missing rate of the other column, in rows with `column`
    # missing and in rows with `column` observed.
    when_missing: float
    when_seen: float


@dataclass(frozen=True)
class Associations:
    """All pairs that could be tested, the strongest first."""

    # Pairs with an adjusted p-value below 5% first, then the others; both sorted by strength.
    pairs: tuple[Association, ...]
    n_untested: int  # the number of pairs with too few rows in one group, or with a constant column
    n_left_out: int  # the number of columns of a wide table that were not analysed

    def about(self, name: str) -> tuple[Association, ...]:
        """Returns the pairs whose other column has this name."""
        return tuple(pair for pair in self.pairs if pair.other == name)

    @property
    def clear(self) -> tuple[Association, ...]:
        """The pairs with an adjusted p-value below 5%."""
        return tuple(pair for pair in self.pairs if pair.p_adjusted < 0.05)


def associate(cells: Cells, target: str | None = None, counted: PatternCounts | None = None) -> Associations:
    r"""Compares rows in which a column is missing with rows in which it is observed, for each column.

    For numbers and ordered levels, with rank sum R of the m rows in which the column is missing and n others,

    .. math:: r = \frac{2 U}{m n} - 1, \qquad U = R - \frac{m (m + 1)}{2}

    is the rank-biserial correlation, which is 1 if every row with the column missing has the higher value;
    the p-value is that of Mann and Whitney. For levels the effect size is the bias-corrected Cramér's V, with
    the p-value of the chi-squared test. For the missingness of the other column it is the odds ratio, with
    the p-value of the chi-squared test or, for few rows, of Fisher's exact test. Pairs are sorted by
    strength, the correlation of the missingness indicator with ranks, levels or the other indicator; its
    square is the fraction of the variance of the indicator that the other column explains. Comparisons of
    values use only the rows in which the other column is observed.

    Parameters
    ----------
    cells : Cells
        The table.
    target : str, optional
        A column that is tested however wide the table is.
    counted : PatternCounts, optional
        The patterns of all rows of a larger table, of which `cells` are some rows. Columns are then chosen by
        the missing values of all rows, and missingness is compared with missingness over all rows.

    References
    ----------
    Kerby (2014), The simple difference formula. Bergsma (2013). Holm (1979).

    Examples
    --------
    >>> x = np.column_stack([np.arange(40.0), np.arange(40.0) % 7])
    >>> x[30:, 1] = np.nan
    >>> [pair] = associate(Cells.read(x)).pairs
    >>> pair.measure, pair.effect, f"{pair.low:.2f} {pair.high:.2f}"
    ('rank-biserial', 1.0, '0.73 1.00')
    """
    n_rows, n_missing = cells.n_rows, cells.n_rows - cells.observed.sum(axis=0)
    if counted is not None:
        n_rows, n_missing = int(counted.counts.sum()), counted.counts @ ~counted.observed
    missing, others = _choose_columns(cells, target, n_missing, n_rows)
    rows = [np.flatnonzero(~cells.observed[:, j]) for j in missing]
    pairs: list[Association] = []
    n_untested = 0
    for k in others:
        column = cells.columns[k]
        compare = _compare_levels if column.kind in ("binary", "categorical") else _compare_numbers
        beside = [(cells.names[j], some) for j, some in zip(missing, rows, strict=True) if j != k]
        found = list(compare(cells.x[:, k], cells.known[:, k], column, beside))
        n_untested += len(beside) - len(found)
        pairs += found
    both = _count_together(rows, cells.n_rows) if counted is None else _count_in_patterns(counted, missing)
    together = _compare_missingness([cells.names[j] for j in missing], both, n_missing[missing], n_rows)
    n_untested += len(missing) * (len(missing) - 1) // 2 - len(together)
    n_left_out = len(cells.columns) - len(set(missing) | set(others) | set(_silent(cells)))
    return Associations(_sorted_by_strength(pairs + together), n_untested, n_left_out)


def _choose_columns(
    cells: Cells, target: str | None, n_missing: Integers, n_rows: int
) -> tuple[list[int], list[int]]:
    partial = np.flatnonzero((n_missing > 0) & (n_missing < n_rows))
    missing = sorted(partial[np.argsort(-n_missing[partial], kind="stable")][:MAX_INCOMPLETE].tolist())
    modelled = [k for k, column in enumerate(cells.columns) if column.modelled]
    first = [k for k in modelled if cells.names[k] == target or k in missing]
    chosen = [*first, *(k for k in modelled if k not in first)][:MAX_OTHERS]
    return missing, sorted(chosen)


def _silent(cells: Cells) -> list[int]:
    """Returns the columns that have nothing to compare: no missing values, and values without meaning."""
    n_seen = cells.observed.sum(axis=0)
    return [
        k for k, column in enumerate(cells.columns) if not column.modelled and n_seen[k] in (0, cells.n_rows)
    ]


def _sorted_by_strength(pairs: list[Association]) -> tuple[Association, ...]:
    adjusted = holm([pair.p_value for pair in pairs])
    pairs = [replace(pair, p_adjusted=float(p)) for pair, p in zip(pairs, adjusted, strict=True)]
    return tuple(sorted(pairs, key=lambda pair: (pair.p_adjusted >= 0.05, -pair.strength)))


# --------------------------------------------------------------------------------------------- numbers


def midranks(values: Floats) -> tuple[Floats, float]:
    r"""Returns ranks from 1, equal values sharing theirs, and :math:`1 - \sum (t^3 - t) / (n^3 - n)`."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    n, t = float(len(values)), counts.astype(np.float64)
    spread = 1 - float(((t**3 - t) / (n**3 - n)).sum()) if n > 1 else 0.0
    return ranks, spread


def _compare_numbers(
    x: Floats, seen: Any, column: Column, beside: list[tuple[str, Integers]]
) -> Iterator[Association]:
    values = x[seen]
    n_rows = len(values)
    if n_rows < 2 * MIN_GROUP:
        return
    ranks = np.zeros(len(x))
    ranks[seen], spread = midranks(values)
    m = np.array([seen[rows].sum() for _, rows in beside], dtype=np.float64)
    n = n_rows - m
    enough = (np.minimum(m, n) >= MIN_GROUP) & (spread > 0)
    beside = [one for one, tested in zip(beside, enough, strict=True) if tested]
    m, n = m[enough], n[enough]
    auc = (np.array([ranks[rows].sum() for _, rows in beside]) - m * (m + 1) / 2) / (m * n)
    z = (auc - 0.5) / np.sqrt((n_rows + 1) * spread / (12 * m * n))
    low, high = auc_interval(auc, m, n)
    p_values, strengths = 2 * ndtr(-np.abs(z)), np.minimum(np.abs(z) / np.sqrt(n_rows - 1), 1.0)
    total, sums = float(values.sum()), np.array([x[rows].sum() for _, rows in beside])
    for place, (name, _) in enumerate(beside):
        yield Association(
            name, column.name, "value", "rank-biserial",
            effect=float(2 * auc[place] - 1), low=float(2 * low[place] - 1), high=float(2 * high[place] - 1),
            strength=float(strengths[place]), p_value=float(p_values[place]), p_adjusted=np.nan,
            n_rows=n_rows, n_missing=int(m[place]), level=None,
            when_missing=float(sums[place] / m[place]), when_seen=float((total - sums[place]) / n[place]),
        )  # fmt: skip


# ---------------------------------------------------------------------------------------------- levels


def _compare_levels(
    x: Floats, seen: Any, column: Column, beside: list[tuple[str, Integers]]
) -> Iterator[Association]:
    levels = [str(level) for level in column.levels or ()]
    codes = np.where(seen, x, len(levels)).astype(np.int64)
    counts = np.bincount(codes, minlength=len(levels) + 1)[:-1]
    for name, rows in beside:
        inside = np.bincount(codes[rows], minlength=len(levels) + 1)[:-1]
        tested = chi_squared(np.stack([inside, counts - inside]))
        if tested is None:
            continue
        statistic, df, n_rows = tested
        m, n = int(inside.sum()), int(counts.sum() - inside.sum())
        difference = inside / m - (counts - inside) / n
        most = int(np.argmax(np.abs(difference) + 1e-9 * (difference > 0)))  # of two levels the one gained
        effect, (low, high) = cramers_v(statistic, df, n_rows), cramers_v_interval(statistic, df, n_rows)
        yield Association(
            name, column.name, "value", "Cramér's V",
            effect=float(effect), low=float(low), high=float(high), strength=float(effect),
            p_value=float(chi2.sf(statistic, df)), p_adjusted=np.nan, n_rows=n_rows, n_missing=m,
            level=levels[most], when_missing=float(inside[most] / m),
            when_seen=float((counts[most] - inside[most]) / n),
        )  # fmt: skip


def chi_squared(table: Integers, max_columns: int = MAX_LEVELS) -> tuple[float, int, int] | None:
    """Returns Pearson's statistic, its degrees of freedom and the rows of a 2 x K table of counts.

    Columns of which a cell is expected to hold fewer than five rows are counted together; None if after that
    fewer than two are left, or one of the two groups is too small.

    Examples
    --------
    >>> chi_squared(np.array([[10, 20], [20, 10]]))
    (6.666666666666667, 1, 60)
    """
    sizes, n_rows = table.sum(axis=1), int(table.sum())
    if sizes.min() < MIN_GROUP:
        return None
    columns = table.sum(axis=0)
    enough = columns * sizes.min() / n_rows >= MIN_EXPECTED
    frequent = np.argsort(-columns, kind="stable")[:max_columns]
    kept = np.zeros(len(columns), dtype=bool)
    kept[frequent] = enough[frequent]
    rest = table[:, ~kept].sum(axis=1, keepdims=True)
    table = np.concatenate([table[:, kept], rest], axis=1) if rest.sum() else table[:, kept]
    if rest.sum() and rest.sum() * sizes.min() / n_rows < MIN_EXPECTED and table.shape[1] > 1:
        smallest = int(np.argmin(table[:, :-1].sum(axis=0)))  # a rest too small for itself joins the next
        table[:, smallest] += table[:, -1]
        table = table[:, :-1]
    if table.shape[1] < 2:
        return None
    expected = np.outer(sizes, table.sum(axis=0)) / n_rows
    return float(((table - expected) ** 2 / expected).sum()), table.shape[1] - 1, n_rows


# ----------------------------------------------------------------------------------------------- missing


def _count_together(rows: list[Integers], n_rows: int) -> Integers:
    """Returns in how many rows (K, K) two columns are both missing; only the upper triangle is filled."""
    both = np.zeros((len(rows), len(rows)), dtype=np.int64)
    gone = np.zeros(n_rows, dtype=bool)
    for one in range(len(rows)):
        gone[rows[one]] = True
        for other in range(one + 1, len(rows)):
            both[one, other] = gone[rows[other]].sum()
        gone[rows[one]] = False
    return both


def _count_in_patterns(counted: PatternCounts, columns: list[int]) -> Integers:
    """Returns in how many rows (K, K) two columns are both missing, from the patterns of all rows."""
    missing = ~counted.observed[:, columns]
    both: Integers = (missing * counted.counts[:, None]).T @ missing.astype(np.int64)
    return both


def _compare_missingness(
    names: list[str], both: Integers, n_missing: Integers, n_rows: int
) -> list[Association]:
    n = [int(count) for count in n_missing]
    return [
        _compare_pair(names[one], names[other], int(both[one, other]), n[one], n[other], n_rows)
        for one in range(len(names))
        for other in range(one + 1, len(names))
    ]


def _compare_pair(name: str, other: str, both: int, n_one: int, n_other: int, n_rows: int) -> Association:
    """Compares the missingness of two columns; the one with more missing values comes first."""
    if n_other > n_one:
        name, other, n_one, n_other = other, name, n_other, n_one
    table = np.array([[both, n_one - both], [n_other - both, n_rows - n_one - n_other + both]])
    spread = np.sqrt(float(n_one) * n_other * (n_rows - n_one) * (n_rows - n_other))
    phi = (float(both) * n_rows - float(n_one) * n_other) / spread
    expected = min(n_one, n_rows - n_one) * min(n_other, n_rows - n_other) / n_rows
    few = expected < MIN_EXPECTED
    p_value = float(fisher_exact(table)[1]) if few else float(chi2.sf(n_rows * phi**2, 1))
    effect, low, high = odds_ratio(*table.ravel())
    return Association(
        name, other, "missingness", "odds ratio",
        effect=float(effect), low=float(low), high=float(high), strength=min(abs(phi), 1.0),
        p_value=min(p_value, 1.0), p_adjusted=np.nan, n_rows=n_rows, n_missing=n_one, level=None,
        when_missing=both / n_one, when_seen=(n_other - both) / max(n_rows - n_one, 1),
    )  # fmt: skip
