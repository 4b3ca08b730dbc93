"""What is kept of a column to find out what it is: counts, extremes, steps, and distinct values with counts.

Summaries of runs of rows are merged, and what is merged is equal to the summary of all rows, bit by bit,
however the rows are divided. A table in files is therefore described as the same table in memory.

Distinct values are kept up to a limit that depends on the number of columns only. Beyond it, numbers with the
smallest hashes remain, with exact counts: they are a random sample of the distinct numbers, whatever their
order, and the largest hash tells how many there are (Bar-Yossef et al., 2002). Labels beyond their limit are
no levels, and the first in their order remain.

References
----------
Bar-Yossef, Jayram, Kumar, Sivakumar & Trevisan (2002), Counting distinct elements in a data stream.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from halfseen._arrays import Booleans, Floats, Integers
from halfseen._random import value_keys
from halfseen.data.columns import DAY, parse_numbers
from halfseen.data.frames import RawColumn, Storage, Table
from halfseen.data.incomplete import Passes, runs_of

TIME_STEPS = (DAY, 3_600e6, 60e6, 1e6)
NATURAL_LIMITS = (1.0, 100.0)  # of shares and percentages, which start at 0
CELLS_OF_NUMBERS, CELLS_OF_LABELS = 1 << 22, 1 << 24
"""Distinct numbers and labels that are kept of all columns together, 64 MB of numbers and counts; guesses."""

FIRST_VALUES = 1000  # that are looked at before all are
FIRST_LABELS = 1000  # of more labels than are kept, from which it is found out what they are


def most_distinct(storage: Storage, n_columns: int) -> int:
    """Returns how many distinct values are kept of a column, by the number of columns of the table.

    Labels may become levels, all of which are needed, so that more of them are kept than of numbers.

    Examples
    --------
    >>> most_distinct("number", 12), most_distinct("number", 200), most_distinct("label", 12)
    (131072, 20971, 1048576)
    """
    if storage == "label":
        return max(1 << 16, min(1 << 20, CELLS_OF_LABELS // n_columns))
    return max(1 << 10, min(1 << 17, CELLS_OF_NUMBERS // n_columns))


@dataclass(frozen=True)
class ColumnSummary:
    """The summary of a column, or of a run of its rows.

    Parameters
    ----------
    column : RawColumn
        The kept distinct values in ascending order, of labels their positions in the order of the labels,
        and what is known of the column besides its values.
    counts : array of shape (V,)
        How often they occur.
    limit : int
        How many distinct values are kept.
    is_complete : bool
        Whether these are all.
    n_rows, n_observed : int
        The rows, and those with a value.
    ends : tuple of float
        The smallest and the largest value.
    is_whole : bool
        Whether all values are whole numbers.
    steps : tuple of bool
        Whether all moments are multiples of each of `TIME_STEPS`.
    n_near, n_at : tuple of int
        How many values are in the last tenth before each of `NATURAL_LIMITS` or beyond it, and at it; 0 if
        there are negative values.
    outer : tuple of float
        The first and the last value, in the order of rows.
    counts_up : bool
        Whether each value is the one before it plus one.
    """

    column: RawColumn
    counts: Integers
    limit: int
    is_complete: bool
    n_rows: int
    n_observed: int
    ends: tuple[float, float]
    is_whole: bool
    steps: tuple[bool, ...]
    n_near: tuple[int, ...]
    n_at: tuple[int, ...]
    outer: tuple[float, float]
    counts_up: bool

    @classmethod
    def of(cls, raw: RawColumn, n_columns: int) -> "ColumnSummary":
        """Summarises a column of a table with this many columns."""
        seen = raw.values[~np.isnan(raw.values)]
        numbers = np.empty(0) if raw.labels else seen  # positions of labels are no numbers
        limit = most_distinct(raw.storage, n_columns)
        values, counts, is_complete = (
            _distinct_labels(raw, seen, limit) if raw.labels else _distinct(seen, limit)
        )
        ends = (float(numbers.min(initial=np.inf)), float(numbers.max(initial=-np.inf)))
        return cls(
            column=_with_values(raw, values),
            counts=counts,
            limit=limit,
            is_complete=is_complete,
            n_rows=len(raw.values),
            n_observed=len(seen),
            ends=ends,
            is_whole=_all(lambda some: some == np.round(some), numbers),
            steps=tuple(_are_multiples(raw, numbers, step) for step in TIME_STEPS),
            n_near=tuple(int((numbers >= 0.9 * one).sum()) if ends[0] >= 0 else 0 for one in NATURAL_LIMITS),
            n_at=tuple(int((numbers == one).sum()) if ends[0] >= 0 else 0 for one in NATURAL_LIMITS),
            outer=(float(numbers[0]), float(numbers[-1])) if len(numbers) else (np.inf, -np.inf),
            counts_up=len(numbers) > 0 and _all(lambda some: some[1:] == some[:-1] + 1, numbers),
        )

    @property
    def values(self) -> Floats:
        """The kept distinct values; of labels, their positions."""
        return self.column.values

    @cached_property
    def n_distinct(self) -> int:
        """How many distinct values there are, if not all are kept an estimate; at least, of labels."""
        if self.is_complete or self.column.labels:
            return len(self.counts) if self.is_complete else self.limit + 1
        share = (float(value_keys(self.values).max()) + 1.0) / 2.0**64
        return min(self.n_observed, round((len(self.counts) - 1) / share))

    @property
    def all_differ(self) -> bool:
        """Whether no value occurs twice; if not all are kept, none of those that are."""
        return bool((self.counts == 1).all())

    def merged(self, after: "ColumnSummary") -> "ColumnSummary":
        """Returns the summary of these rows and those after them."""
        if not self.n_observed or not after.n_observed:
            some = self if self.n_observed else after
            return replace(some, n_rows=self.n_rows + after.n_rows)
        column, counts, is_complete = _union(self, after)
        ends = min(self.ends[0], after.ends[0]), max(self.ends[1], after.ends[1])
        nothing = (0,) * len(NATURAL_LIMITS)
        return ColumnSummary(
            column=column,
            counts=counts,
            limit=self.limit,
            is_complete=is_complete,
            n_rows=self.n_rows + after.n_rows,
            n_observed=self.n_observed + after.n_observed,
            ends=ends,
            is_whole=self.is_whole and after.is_whole,
            steps=tuple(a and b for a, b in zip(self.steps, after.steps, strict=True)),
            n_near=_sums(self.n_near, after.n_near) if ends[0] >= 0 else nothing,
            n_at=_sums(self.n_at, after.n_at) if ends[0] >= 0 else nothing,
            outer=(self.outer[0], after.outer[1]),
            counts_up=self.counts_up and after.counts_up and after.outer[0] == self.outer[1] + 1,
        )


def _sums(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip(one, other, strict=True))


def _all(holds: Callable[[Floats], Booleans], values: Floats) -> bool:
    """Returns whether something holds for all values; mostly it does not for the first ones."""
    return bool(holds(values[:FIRST_VALUES]).all()) and bool(holds(values).all())


def _are_multiples(raw: RawColumn, values: Floats, step: float) -> bool:
    return raw.storage in ("time", "duration") and bool((values % step == 0).all())


def _with_values(raw: RawColumn, values: Floats) -> RawColumn:
    """Returns a column with these values only; labels that no dtype declares are those that occur."""
    if not raw.labels or raw.declared:
        return replace(raw, values=values)
    labels = tuple(raw.labels[int(i)] for i in values)
    return replace(raw, values=np.arange(len(labels), dtype=np.float64), labels=labels)


def _distinct(seen: Floats, limit: int) -> tuple[Floats, Integers, bool]:
    """Returns the distinct numbers that are kept, their counts, and whether these are all."""
    if len(seen) > 4 * limit:
        # Of many values, mostly those with small hashes suffice, and few values are sorted faster.
        few = seen[value_keys(seen) < np.uint64(1.2 * limit / len(seen) * 2.0**64)]
        values, counts = np.unique(few, return_counts=True)
        if len(values) > limit:
            return *_smallest(values, counts, limit), False
    values, counts = np.unique(seen, return_counts=True)
    if len(values) <= limit:
        return values, counts, True
    return *_smallest(values, counts, limit), False


def _smallest(values: Floats, counts: Integers, limit: int) -> tuple[Floats, Integers]:
    """Returns the numbers with the smallest hashes, and their counts."""
    hashes = value_keys(values)
    small = hashes <= np.partition(hashes, limit - 1)[limit - 1]
    return values[small], counts[small]


def _distinct_labels(raw: RawColumn, seen: Floats, limit: int) -> tuple[Floats, Integers, bool]:
    """Returns the positions of labels that are kept, in the order of the labels; see `_distinct`."""
    values, counts = np.unique(seen, return_counts=True)
    if raw.declared or not all(isinstance(label, str) for label in raw.labels):
        return values, counts, True
    order = sorted(range(len(values)), key=lambda place: raw.labels[int(values[place])])
    is_complete = len(values) <= limit
    order = order if is_complete else order[:FIRST_LABELS]
    return values[order], counts[order], is_complete


def _union(one: ColumnSummary, other: ColumnSummary) -> tuple[RawColumn, Integers, bool]:
    """Returns the distinct values that are kept of both, their counts, and whether these are all.

    What one of both has dropped is dropped here as well, since all that it has kept comes before it.
    """
    column, is_complete = one.column, one.is_complete and other.is_complete
    if column.labels and not column.declared:
        found = dict(zip(column.labels, one.counts.tolist(), strict=True))
        for label, count in zip(other.column.labels, other.counts.tolist(), strict=True):
            found[label] = found.get(label, 0) + count
        is_complete = is_complete and len(found) <= one.limit
        labels = sorted(found)[: None if is_complete else FIRST_LABELS]
        column = replace(column, labels=tuple(labels), values=np.arange(len(labels), dtype=np.float64))
        return column, np.array([found[label] for label in labels], dtype=np.int64), is_complete
    some, others = (_below(part, [one, other]) for part in (one, other))
    values, counts = _together(*some, *others)
    if not is_complete or len(values) > one.limit:
        values, counts = _smallest(values, counts, one.limit)
        is_complete = False
    n_merged = max(column.n_merged, other.column.n_merged)
    return replace(column, values=values, n_merged=n_merged), counts, is_complete


def _below(part: ColumnSummary, parts: Sequence[ColumnSummary]) -> tuple[Floats, Integers]:
    """Returns the numbers of a part, and their counts, that no part with dropped numbers has dropped."""
    bounds = [value_keys(of.values).max() for of in parts if not of.is_complete]
    if not bounds:
        return part.values, part.counts
    small = value_keys(part.values) <= min(bounds)
    return part.values[small], part.counts[small]


def _together(
    values: Floats, counts: Integers, others: Floats, their_counts: Integers
) -> tuple[Floats, Integers]:
    """Returns the distinct numbers of two ascending arrays, and the sums of their counts."""
    place = np.searchsorted(values, others)
    known = np.append(values, np.nan)[place] == others
    counts = counts.copy()
    counts[place[known]] += their_counts[known]
    new = place[~known]
    return np.insert(values, new, others[~known]), np.insert(counts, new, their_counts[~known])


@dataclass(frozen=True)
class Summing:
    """What is summarised of a table in files, and which rows are chosen."""

    table: Any  # Scan: the table
    # The column to predict: rows without a value in it are left out of summaries.
    target: str | None
    numbers: frozenset[str]  # the columns of text that are numbers by the schema of the user
    n_rows: int  # the expected number of chosen rows
    random_state: int  # the seed of their choice


def summarise_scan(summing: Summing, passes: Passes) -> tuple[list[ColumnSummary], list[Any]]:
    """Returns the summaries of the columns of a table in files, and the chosen rows of each run."""
    total: list[ColumnSummary] = []
    chosen = []
    table = summing.table
    for part, rows in passes(summarise_run, summing, runs_of(table.n_rows, table.n_columns)):
        total = merge_summaries(total, part)
        chosen.append(rows)
    return total, chosen


def summarise_run(summing: Summing, start: int, stop: int) -> tuple[list[ColumnSummary], Any]:
    """Returns the summaries of the columns of a run of rows, and the rows that are chosen of it."""
    rows, target = summing.table.read(start, stop), summing.target
    chosen = summing.table.choose(start, rows, summing.n_rows, summing.random_state)
    if target is not None:
        rows = with_target(rows, target)
    columns = (as_numbers(raw, raw.name in summing.numbers) for raw in columns_of(rows))
    n_inputs = rows.num_columns - (target is not None)
    return [ColumnSummary.of(raw, n_inputs) for raw in columns], chosen


def with_target(rows: Any, target: str) -> Any:
    """Returns the rows of an Arrow table with a value in a column."""
    return rows.filter(~rows[target].is_null(nan_is_null=True).to_numpy())


def columns_of(rows: Any) -> Iterator[RawColumn]:
    """Yields the columns of rows in memory, each of which is read when it is asked for."""
    table = Table(rows)
    return (table.column(j) for j in range(len(table.names)))


def merge_summaries(total: list[ColumnSummary], part: list[ColumnSummary]) -> list[ColumnSummary]:
    """Returns the summaries of the columns of some rows, perhaps none so far, and of those after them."""
    return [one.merged(after) for one, after in zip(total, part, strict=True)] if total else part


def as_numbers(raw: RawColumn, wanted: bool) -> RawColumn:
    """Returns a column of text that the user wants as numbers as numbers; any other is unchanged."""
    if not wanted or raw.storage != "label":
        return raw
    return replace(raw, values=parse_numbers(raw), labels=(), declared=False)
