"""Tables for diagnosis: numeric codes, which values are observed, and counts of patterns of missing values.

Counts can be merged, so that a table can be counted in parts, in any order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from halfseen._arrays import Booleans, Floats, Integers
from halfseen.data.frames import Table
from halfseen.data.schema import Column, infer_codes, open_table
from halfseen.data.summaries import ColumnSummary

MAX_STRETCHES = 80  # consecutive rows are counted together, so that a picture of many rows stays small
MOST_PATTERNS = 1 << 16  # of a table that is counted in parts; a guess, which bounds the memory
FEWEST_PATTERNS = 1 << 10  # of a very wide table
PATTERN_CELLS = 1 << 26  # patterns times columns that are counted


@dataclass(frozen=True)
class Cells:
    """The columns of a table as numeric codes, with the mask.

    Shapes
    ------
    x : (N, P), codes; 0 where not observed and in columns that are constant, empty or identifiers.
    observed : (N, P), True where a cell is not missing.
    known : (N, P), True where the table has a value; a placeholder such as 999 is neither missing nor known.

    Examples
    --------
    >>> cells = Cells.read(np.array([[1.0, np.nan], [2.0, 5.0], [4.0, 7.0]]))
    >>> cells.names, cells.observed.sum(axis=0).tolist()
    (('x0', 'x1'), [3, 2])
    """

    columns: tuple[Column, ...]
    x: Floats
    observed: Booleans
    known: Booleans

    @classmethod
    def read(
        cls,
        X: Any,
        kept: Mapping[str, Any] | None = None,
        summaries: Sequence[ColumnSummary] | None = None,
    ) -> "Cells":
        """Reads a pandas, polars or pyarrow table, or an array of numbers with NaN.

        `kept` has the mask (N), by column, of cells that are empty in the table but not missing. `summaries`
        are those of the columns of a larger table, if these are some of its rows.
        """
        table = open_table(X)
        schema, codes = infer_codes(table, summaries=summaries)
        x = np.zeros(codes.missing.shape, order="F")
        x[:, [column.modelled for column in schema]] = codes.values
        known = np.asfortranarray(~codes.missing)
        observed = known.copy(order="F") if kept else known
        for j, column in enumerate(schema):
            if kept and column.name in kept:
                observed[:, j] |= np.asarray(kept[column.name], dtype=bool)
        return cls(schema.columns, x, observed, known)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def n_rows(self) -> int:
        """The number of rows N."""
        return len(self.observed)


def read_observed(table: Table) -> Booleans:
    """Returns which values (N, P) of a table are observed."""
    observed = np.empty((table.n_rows, len(table.names)), dtype=bool, order="F")
    for j in range(len(table.names)):
        observed[:, j] = ~np.isnan(table.column(j).values)
    return observed


def find_duplicated_rows(table: Table, observed: Booleans) -> Integers | None:
    """Returns the rows that are copies of an earlier row, and the first of which each is a copy.

    A copy has the same values and the same cells missing. Rows without any observed value are no copies of
    each other: they are blank. Rows that differ are told apart column by column, and only rows that are still
    alike are compared further. The result is None if values of a column cannot be compared exactly: lists,
    bytes, or whole numbers that no float represents.

    Parameters
    ----------
    table : Table
        The table.
    observed : (N, P)
        Where a cell is not missing; a placeholder such as 999 is observed without being in the table, and two
        placeholders are alike.

    Returns
    -------
    (K, 2)
        The position of each copy, ascending, and of the row that it repeats.

    Examples
    --------
    >>> import pandas as pd
    >>> table = Table(pd.DataFrame({"a": [1.0, None, 1.0, None], "b": ["x", "y", "x", None]}))
    >>> find_duplicated_rows(table, read_observed(table))
    array([[2, 0]])
    """
    rows = np.flatnonzero(observed.any(axis=1))
    group = np.zeros(len(rows), dtype=np.int64)
    exact = True
    for j in range(len(table.names)):
        column = table.column(j)
        exact &= column.storage != "other" and column.n_merged == 0
        values, code = np.unique(column.values[rows], return_inverse=True)  # every NaN is the same value
        code = 2 * code.reshape(-1) + observed[rows, j]
        group = np.unique(group * 2 * len(values) + code, return_inverse=True)[1].reshape(-1)
        alike = np.bincount(group)[group] > 1
        rows, group = rows[alike], group[alike]
        if len(rows) == 0:
            return np.zeros((0, 2), dtype=np.int64)
    if not exact:
        return None
    _, first, member = np.unique(group, return_index=True, return_inverse=True)
    pairs = np.stack([rows, rows[first[member.reshape(-1)]]], axis=1)
    return pairs[pairs[:, 0] != pairs[:, 1]]


def thin(rows: Integers, n_wanted: int, generator: np.random.Generator) -> Integers:
    """Returns a random subsample of rows, in their order, of at most the given size."""
    if len(rows) <= n_wanted:
        return rows
    return np.sort(generator.choice(rows, n_wanted, replace=False))


TOP_PATTERNS = 20


@dataclass(frozen=True)
class PatternCounts:
    """The distinct rows of a mask, the most frequent first; of equally frequent ones that of the first row.

    Shapes
    ------
    observed : (G, P), the patterns.
    counts : (G), how many rows each has.
    """

    observed: Booleans
    counts: Integers


@dataclass(frozen=True)
class Patterns(PatternCounts):
    """The distinct rows of a mask, and which of them each row is.

    Shapes
    ------
    of_row : (N), which pattern each row has.
    """

    of_row: Integers


def group_patterns(observed: Booleans) -> Patterns:
    """Groups rows by their patterns of missing values.

    Complete columns are ignored.

    Examples
    --------
    >>> patterns = group_patterns(np.array([[True, False], [True, True], [True, False]]))
    >>> patterns.observed.tolist(), patterns.of_row.tolist(), patterns.counts.tolist()
    ([[True, False], [True, True]], [0, 1, 0], [2, 1])
    """
    n_rows = len(observed)
    incomplete = np.flatnonzero(~observed.all(axis=0))
    label = np.zeros(n_rows, dtype=np.int64)
    for start in range(0, len(incomplete), 32):  # words of 32 bits, so that two labels fit into 64
        word = np.zeros(n_rows, dtype=np.int64)
        for bit, j in enumerate(incomplete[start : start + 32]):
            word |= observed[:, j].astype(np.int64) << bit
        label = np.unique((label << 32) | word, return_inverse=True)[1]
    _, first, of_row, counts = np.unique(label, return_index=True, return_inverse=True, return_counts=True)
    order = np.lexsort((first, -counts))
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return Patterns(observed[first[order]], counts[order], place[of_row])


def most_patterns(n_columns: int) -> int:
    """Returns how many patterns are counted, which depends on the number of columns only.

    Examples
    --------
    >>> most_patterns(12), most_patterns(4096), most_patterns(10**6)
    (65536, 16384, 1024)
    """
    return max(FEWEST_PATTERNS, min(MOST_PATTERNS, PATTERN_CELLS // n_columns))


def stretch_edges(n_rows: int) -> Integers:
    """Returns the first row of each of up to 80 stretches of rows, and the number of rows.

    Examples
    --------
    >>> stretch_edges(3).tolist(), len(stretch_edges(1000))
    ([0, 1, 2, 3], 81)
    """
    return np.linspace(0, n_rows, min(MAX_STRETCHES, n_rows) + 1).astype(np.int64)


@dataclass
class MissingCounts:
    """How many values are missing in some rows of a table, and in which patterns.

    All parts are integers, and sums or minima over rows. So the counts of a table do not depend on how it is
    divided into parts, nor on their order.

    Parameters
    ----------
    n_rows : int
        The number of rows of the whole table.
    missing : ndarray of shape (n_stretches, n_columns)
        The number of missing values of each column in each stretch of the table.
    patterns : dict or None
        The number of rows of each pattern and the number of its first row, by the bits of the pattern; None
        if there are more patterns than are counted.
    n_complete : int
        The number of complete rows.
    """

    n_rows: int
    missing: Integers
    patterns: dict[bytes, tuple[int, int]] | None
    n_complete: int = 0

    @classmethod
    def empty(cls, n_rows: int, n_columns: int) -> "MissingCounts":
        """Returns the counts of no rows of a table."""
        return cls(n_rows, np.zeros((len(stretch_edges(n_rows)) - 1, n_columns), dtype=np.int64), {})

    def add_rows(self, start: int, observed: Booleans) -> None:
        """Counts some rows.

        Parameters
        ----------
        start : int
            The number of the first row.
        observed : ndarray of shape (n_rows, n_columns)
            Where cells are not missing.
        """
        rows = np.arange(start, start + len(observed))
        stretch = np.searchsorted(stretch_edges(self.n_rows), rows, side="right") - 1
        first, last = int(stretch[0]), int(stretch[-1])
        cuts = np.searchsorted(stretch, np.arange(first, last + 1))
        self.missing[first : last + 1] += np.add.reduceat((~observed).astype(np.int64), cuts, axis=0)
        self.n_complete += int(observed.all(axis=1).sum())
        if self.patterns is not None:
            found = group_patterns(observed)
            places = np.unique(found.of_row, return_index=True)[1] + start
            bits = np.packbits(found.observed, axis=1)
            self._add_patterns({
                one.tobytes(): (count, place)
                for one, count, place in zip(bits, found.counts.tolist(), places.tolist(), strict=True)
            })  # fmt: skip

    def merge(self, other: "MissingCounts") -> None:
        """Adds the counts of other rows of the same table."""
        self.missing += other.missing
        self.n_complete += other.n_complete
        self._add_patterns(other.patterns)

    def _add_patterns(self, found: dict[bytes, tuple[int, int]] | None) -> None:
        """Adds patterns; those of a table with too many are forgotten, in whatever part this is noticed."""
        if self.patterns is None or found is None:
            self.patterns = None
            return
        for bits, (count, place) in found.items():
            known, first = self.patterns.get(bits, (0, place))
            self.patterns[bits] = (known + count, min(first, place))
        if len(self.patterns) > most_patterns(self.missing.shape[1]):
            self.patterns = None

    def pattern_counts(self) -> PatternCounts | None:
        """Returns the patterns, in the order of `group_patterns`; None if there are too many."""
        if self.patterns is None:
            return None
        n_columns = self.missing.shape[1]
        packed = np.frombuffer(b"".join(self.patterns), dtype=np.uint8).reshape(len(self.patterns), -1)
        counts, first = np.array(list(self.patterns.values()), dtype=np.int64).T
        order = np.lexsort((first, -counts))
        observed = np.unpackbits(packed[order], axis=1, count=n_columns).astype(bool)
        return PatternCounts(observed, counts[order])


@dataclass(frozen=True)
class Pattern:
    """A combination of missing columns, and the number of its rows."""

    missing: tuple[str, ...]
    count: int
    share: float


@dataclass(frozen=True)
class Monotonicity:
    """Whether columns can be ordered so that everything after a missing value is missing too."""

    # The incomplete columns, those with fewer missing values first. If any order is monotone, this one is.
    order: tuple[str, ...]
    monotone: bool  # whether all rows fit the order
    share: float  # the fraction of rows that fit the order


@dataclass(frozen=True)
class PatternTable:
    """The most frequent patterns of the incomplete columns."""

    columns: tuple[str, ...]  # the incomplete columns, in the order of the table
    rows: tuple[Pattern, ...]  # the most frequent patterns, the most frequent first
    n_patterns: int  # the number of distinct patterns
    n_single: int  # the number of patterns that occur in one row only
    n_complete_rows: int  # the number of complete rows
    together: tuple[tuple[str, ...], ...]  # groups of columns that are always missing together
    monotonicity: Monotonicity  # whether the missingness is monotone, as when subjects drop out of a study


def tabulate_patterns(patterns: PatternCounts, names: Sequence[str]) -> PatternTable:
    """Counts patterns and checks whether they are nested.

    Examples
    --------
    >>> mask = np.array([[True, True], [True, False], [True, False], [False, False]])
    >>> table = tabulate_patterns(group_patterns(mask), ["a", "b"])
    >>> [(row.missing, row.count) for row in table.rows]
    [(('b',), 2), ((), 1), (('a', 'b'), 1)]
    >>> table.monotonicity
    Monotonicity(order=('a', 'b'), monotone=True, share=1.0)
    """
    n_rows = int(patterns.counts.sum())
    most_frequent = zip(patterns.observed[:TOP_PATTERNS], patterns.counts[:TOP_PATTERNS], strict=True)
    rows = [
        Pattern(missing_names(shown, names), int(count), int(count) / n_rows)
        for shown, count in most_frequent
    ]
    complete = patterns.observed.all(axis=1)
    incomplete = np.flatnonzero(~patterns.observed.all(axis=0))
    return PatternTable(
        columns=tuple(names[j] for j in incomplete.tolist()),
        rows=tuple(rows),
        n_patterns=len(patterns.counts),
        n_single=int((patterns.counts == 1).sum()),
        n_complete_rows=int(patterns.counts[complete].sum()),
        together=_find_twins(patterns, incomplete, names),
        monotonicity=_check_nesting(patterns, incomplete, names),
    )


def missing_names(shown: Booleans, names: Sequence[str]) -> tuple[str, ...]:
    """Returns the names of the columns that are missing in a pattern."""
    return tuple(names[j] for j in np.flatnonzero(~shown).tolist())


def _find_twins(
    patterns: PatternCounts, incomplete: Integers, names: Sequence[str]
) -> tuple[tuple[str, ...], ...]:
    groups: dict[bytes, list[str]] = {}
    for j in incomplete.tolist():
        groups.setdefault(np.packbits(patterns.observed[:, j]).tobytes(), []).append(names[j])
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def _check_nesting(patterns: PatternCounts, incomplete: Integers, names: Sequence[str]) -> Monotonicity:
    missing = ~patterns.observed[:, incomplete]
    order = np.argsort(patterns.counts @ missing, kind="stable")
    missing = missing[:, order]
    fits = (missing[:, :-1] <= missing[:, 1:]).all(axis=1)  # once missing, missing to the end
    n_fit, n_rows = int(patterns.counts[fits].sum()), int(patterns.counts.sum())
    return Monotonicity(tuple(names[j] for j in incomplete[order]), n_fit == n_rows, n_fit / n_rows)
