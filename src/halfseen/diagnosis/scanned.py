"""Diagnosis of tables in files: counts of all rows, and tests on some that are chosen by their numbers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from halfseen._random import seed_from
from halfseen.data.relations import group_announcements
from halfseen.data.scan import Scan
from halfseen.data.schema import open_table
from halfseen.diagnosis.association import associate
from halfseen.diagnosis.cells import (
    Cells,
    PatternCounts,
    Patterns,
    PatternTable,
    group_patterns,
    tabulate_patterns,
)
from halfseen.diagnosis.counts import MissingCounts, most_patterns, stretch_edges
from halfseen.diagnosis.little import LittleTest, run_little
from halfseen.diagnosis.predictability import run_predictability
from halfseen.diagnosis.summary import (
    Diagnosis,
    SampledRows,
    check_target,
    column_missingness,
    describe,
)
from halfseen.errors import SchemaError, warn_user
from halfseen.words import plural

SAMPLE_ROWS = 200_000  # from which tests are computed; a guess
FEWEST_ROWS = 20_000  # of a wide table, as many as the tests use for one column
SAMPLE_CELLS = 1 << 24  # 128 MiB of numbers

BLOCKS_IN_PART = 16  # as in a unit of `halfseen.distributed`


def sample_size(n_columns: int) -> int:
    """Returns the expected number of sampled rows, which depends on the number of columns only.

    Examples
    --------
    >>> sample_size(12), sample_size(200), sample_size(10_000)
    (200000, 83886, 20000)
    """
    return max(FEWEST_ROWS, min(SAMPLE_ROWS, SAMPLE_CELLS // n_columns))


@dataclass(frozen=True)
class Counting:
    """What is counted of a table, and which rows are kept."""

    scan: Scan  # the table
    n_rows: int  # the expected number of sampled rows
    seed: int  # the seed of their choice


@dataclass(frozen=True)
class CountedRows:
    """The counts of a run of rows, and those of its rows that are in the sample."""

    start: int  # the number of the first row
    counts: MissingCounts  # the counts
    chosen: pa.Table  # the rows


def count_rows(counting: Counting, start: int, stop: int) -> CountedRows:
    """Counts a run of rows, block by block."""
    table = counting.scan
    counts = MissingCounts.empty(table.n_rows, table.n_columns)
    chosen = [table.schema.empty_table()]
    for first, block in table.blocks(start, stop):
        counts.add_rows(first, ~open_table(block).missing())
        chosen.append(table.choose(first, block, counting.n_rows, counting.seed))
    return CountedRows(start, counts, pa.concat_tables(chosen).combine_chunks())


def describe_scan(
    table: Scan,
    target: str | None = None,
    against: Any = None,
    *,
    kept: Mapping[str, Any] | None = None,
    random_state: Any = 0,
) -> Diagnosis:
    """Describes a table in files in this process; see `describe`."""
    counting = plan_counting(table, target, against, kept=kept, random_state=random_state)
    size = BLOCKS_IN_PART * table.block_rows
    starts = range(0, table.n_rows, size)
    parts = (count_rows(counting, start, min(start + size, table.n_rows)) for start in starts)
    return diagnose(counting, parts, target, against)


def plan_counting(
    table: Scan,
    target: str | None,
    against: Any,
    *,
    kept: Mapping[str, Any] | None = None,
    n_rows: int | None = None,
    random_state: Any = 0,
) -> Counting:
    """Returns what is to be counted; raises an error if that is not possible."""
    if kept:
        raise SchemaError("kept must be None if the table is a scan, whose rows are not in memory.")
    check_target(target, table.column_names)
    counting = Counting(table, n_rows or sample_size(table.n_columns), seed_from(random_state))
    if against is not None and counting.n_rows < table.n_rows:
        raise SchemaError(
            f"against must be None if the table is a scan of more than {plural(counting.n_rows, 'row')}."
        )
    return counting


def diagnose(
    counting: Counting, parts: Iterable[CountedRows], target: str | None = None, against: Any = None
) -> Diagnosis:
    """Returns the diagnosis of a table whose rows are counted in parts, in any order."""
    table = counting.scan
    counts = MissingCounts.empty(table.n_rows, table.n_columns)
    chosen: dict[int, pa.Table] = {}
    for part in parts:
        counts.merge(part.counts)
        chosen[part.start] = part.chosen
    ordered = [chosen[start] for start in sorted(chosen)]
    rows = pa.concat_tables([table.schema.empty_table(), *ordered]).combine_chunks()
    if rows.num_rows == table.n_rows:
        return describe(rows, target, against, random_state=counting.seed)
    return _combine(counts, Cells.read(rows), target, counting.seed)


def _combine(counts: MissingCounts, cells: Cells, target: str | None, seed: int) -> Diagnosis:
    """Returns the counts of all rows together with the tests on the sampled ones."""
    for sentence in group_announcements(cells.columns):
        warn_user(sentence)
    edges = stretch_edges(counts.n_rows)
    columns = zip(cells.columns, counts.missing.T, strict=True)
    of_sample, of_all = group_patterns(cells.observed), counts.pattern_counts()
    return Diagnosis(
        n_rows=counts.n_rows,
        n_missing=int(counts.missing.sum()),
        n_duplicated_rows=None,
        first_duplicates=(),
        columns=tuple(column_missingness(column, missing, edges) for column, missing in columns),
        patterns=_tabulate(counts, of_sample if of_all is None else of_all, cells.names),
        associations=associate(cells, target, of_all),
        little=_run_little(cells, of_sample, seed),
        predictability=run_predictability(cells, seed),
        target=target,
        drift=None,
        sampled=SampledRows(cells.n_rows, most_patterns(len(cells.columns)) if of_all is None else None),
    )


def _tabulate(counts: MissingCounts, patterns: PatternCounts, names: Sequence[str]) -> PatternTable:
    """Returns the table of patterns of all or of the sampled rows; complete rows are counted in all."""
    incomplete = np.flatnonzero(counts.missing.any(axis=0)).tolist()
    return replace(
        tabulate_patterns(patterns, names),
        columns=tuple(names[j] for j in incomplete),
        n_complete_rows=counts.n_complete,
    )


def _run_little(cells: Cells, patterns: Patterns, seed: int) -> LittleTest:
    test = run_little(cells, patterns, seed)
    note = f"The test is computed from {plural(cells.n_rows, 'sampled row')}."
    return replace(test, notes=(note, *test.notes))
