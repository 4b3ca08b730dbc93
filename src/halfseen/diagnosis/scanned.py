"""Diagnosis of tables in files: counts of all rows, and tests on some that are chosen by their numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from halfseen._random import seed_from
from halfseen.data._inference import describe_column
from halfseen.data.columns import Column
from halfseen.data.incomplete import Passes, in_this_process, runs_of
from halfseen.data.relations import group_announcements
from halfseen.data.scan import Scan
from halfseen.data.summaries import ColumnSummary, columns_of, merge_summaries
from halfseen.diagnosis.association import associate
from halfseen.diagnosis.cells import (
    Cells,
    MissingCounts,
    PatternCounts,
    Patterns,
    PatternTable,
    group_patterns,
    most_patterns,
    stretch_edges,
    tabulate_patterns,
)
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
    """The counts of a run of rows, the summaries of its columns, and those of its rows that are sampled."""

    counts: MissingCounts
    summaries: list[ColumnSummary]  # none if all rows of the table are sampled
    chosen: pa.Table


def count_rows(counting: Counting, start: int, stop: int) -> CountedRows:
    """Counts a run of rows, and summarises its columns."""
    table = counting.scan
    rows = table.read(start, stop)
    chosen = table.choose(start, rows, counting.n_rows, counting.seed)
    counts = MissingCounts.empty(table.n_rows, table.n_columns)
    if counting.n_rows >= table.n_rows:
        return CountedRows(counts, [], chosen)
    observed = np.empty((stop - start, table.n_columns), dtype=bool)
    summaries = []
    for j, raw in enumerate(columns_of(rows)):
        observed[:, j] = ~np.isnan(raw.values)
        summaries.append(ColumnSummary.of(raw, table.n_columns))
    for first in range(0, stop - start, table.block_rows):
        counts.add_rows(start + first, observed[first : first + table.block_rows])
    return CountedRows(counts, summaries, chosen)


def describe_scan(
    table: Scan,
    target: str | None = None,
    against: Any = None,
    *,
    kept: Mapping[str, Any] | None = None,
    n_rows: int | None = None,
    random_state: Any = 0,
    passes: Passes = in_this_process,
) -> Diagnosis:
    """Describes a table in files; see `halfseen.distributed.describe`."""
    if kept:
        raise SchemaError("kept must be None if the table is a scan, whose rows are not in memory.")
    check_target(target, table.column_names)
    counting = Counting(table, n_rows or sample_size(table.n_columns), seed_from(random_state))
    if against is not None and counting.n_rows < table.n_rows:
        raise SchemaError(
            f"against must be None if the table is a scan of more than {plural(counting.n_rows, 'row')}."
        )
    counts = MissingCounts.empty(table.n_rows, table.n_columns)
    summaries: list[ColumnSummary] = []
    chosen = []
    for part in passes(count_rows, counting, runs_of(table.n_rows, table.n_columns)):
        counts.merge(part.counts)
        summaries = merge_summaries(summaries, part.summaries)
        chosen.append(part.chosen)
    rows = table.joined(chosen)
    if rows.num_rows == table.n_rows:
        return describe(rows, target, against, random_state=counting.seed)
    return _combine(counts, summaries, Cells.read(rows, summaries=summaries), target, counting.seed)


def _combine(
    counts: MissingCounts, summaries: list[ColumnSummary], cells: Cells, target: str | None, seed: int
) -> Diagnosis:
    """Returns the counts of all rows together with the tests on the sampled ones."""
    for sentence in group_announcements(cells.columns):
        warn_user(sentence)
    edges = stretch_edges(counts.n_rows)
    described = map(_described, cells.columns, summaries)
    columns = zip(described, counts.missing.T, strict=True)
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


def _described(column: Column, of_all: ColumnSummary) -> Column:
    """Returns a column as all rows describe it, if the sampled ones have at most one of its values."""
    return (
        column if column.kind not in ("constant", "all-missing") else describe_column(of_all, {}, named=True)
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
