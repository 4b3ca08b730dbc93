"""Counts of missing values that can be merged, so that a table can be counted in parts, in any order."""

from dataclasses import dataclass

import numpy as np

from halfseen._arrays import Booleans, Integers
from halfseen.diagnosis.cells import PatternCounts, group_patterns

MAX_STRETCHES = 80  # consecutive rows are counted together, so that a picture of many rows stays small
MOST_PATTERNS = 1 << 16  # of a table that is counted in parts; a guess, which bounds the memory
FEWEST_PATTERNS = 1 << 10  # of a very wide table
PATTERN_CELLS = 1 << 26  # patterns times columns that are counted


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
