"""Which columns are missing together: the distinct patterns of a table, and whether they are nested."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from halfseen.data.codes import Bools
from halfseen.diagnosis.cells import Integers

TOP_PATTERNS = 20


@dataclass(frozen=True)
class Patterns:
    """The distinct rows of a mask, the most frequent first.

    Shapes
    ------
    observed : (G, P), the patterns.
    of_row : (N), which of them each row is.
    counts : (G), how many rows each has.
    """

    observed: Bools
    of_row: Integers
    counts: Integers


def group_patterns(observed: Bools) -> Patterns:
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
    return Patterns(observed[first[order]], place[of_row], counts[order])


@dataclass(frozen=True)
class Pattern:
    """A combination of missing columns, and the number of its rows."""

    missing: tuple[str, ...]
    count: int
    share: float


@dataclass(frozen=True)
class Monotonicity:
    """Whether columns can be ordered so that everything after a missing value is missing too.

    Attributes
    ----------
    order : tuple of str
        The incomplete columns, those with fewer missing values first. If any order is monotone, this one is.
    monotone : bool
        Whether all rows fit the order.
    share : float
        The fraction of rows that fit the order.
    """

    order: tuple[str, ...]
    monotone: bool
    share: float


@dataclass(frozen=True)
class PatternTable:
    """The most frequent patterns of the incomplete columns.

    Attributes
    ----------
    columns : tuple of str
        The incomplete columns, in the order of the table.
    rows : tuple of Pattern
        The most frequent patterns, the most frequent first.
    n_patterns : int
        The number of distinct patterns.
    n_single : int
        The number of patterns that occur in one row only.
    n_complete_rows : int
        The number of complete rows.
    together : tuple of tuples of str
        Groups of columns that are always missing together.
    monotonicity : Monotonicity
        Whether the missingness is monotone, as when subjects drop out of a study.
    """

    columns: tuple[str, ...]
    rows: tuple[Pattern, ...]
    n_patterns: int
    n_single: int
    n_complete_rows: int
    together: tuple[tuple[str, ...], ...]
    monotonicity: Monotonicity


def tabulate_patterns(patterns: Patterns, names: Sequence[str]) -> PatternTable:
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


def missing_names(shown: Bools, names: Sequence[str]) -> tuple[str, ...]:
    """Returns the names of the columns that are missing in a pattern."""
    return tuple(names[j] for j in np.flatnonzero(~shown).tolist())


def _find_twins(
    patterns: Patterns, incomplete: Integers, names: Sequence[str]
) -> tuple[tuple[str, ...], ...]:
    groups: dict[bytes, list[str]] = {}
    for j in incomplete.tolist():
        groups.setdefault(np.packbits(patterns.observed[:, j]).tobytes(), []).append(names[j])
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def _check_nesting(patterns: Patterns, incomplete: Integers, names: Sequence[str]) -> Monotonicity:
    missing = ~patterns.observed[:, incomplete]
    order = np.argsort(patterns.counts @ missing, kind="stable")
    missing = missing[:, order]
    fits = (missing[:, :-1] <= missing[:, 1:]).all(axis=1)  # once missing, missing to the end
    n_fit, n_rows = int(patterns.counts[fits].sum()), int(patterns.counts.sum())
    return Monotonicity(tuple(names[j] for j in incomplete[order]), n_fit == n_rows, n_fit / n_rows)
