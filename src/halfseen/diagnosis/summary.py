r"""Diagnosis of a table: what is missing, what it is associated with, and evidence against MCAR."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from halfseen._arrays import Integers
from halfseen._machine import plain_json
from halfseen._random import seed_from
from halfseen.base.table import is_scan
from halfseen.data.columns import Column
from halfseen.data.relations import group_announcements
from halfseen.data.schema import open_table
from halfseen.diagnosis import wording
from halfseen.diagnosis.association import Association, Associations, associate
from halfseen.diagnosis.cells import (
    Cells,
    Patterns,
    PatternTable,
    find_duplicated_rows,
    group_patterns,
    stretch_edges,
    tabulate_patterns,
)
from halfseen.diagnosis.drift import Drift, run_drift
from halfseen.diagnosis.little import LittleTest, run_little
from halfseen.diagnosis.predictability import Predictability, run_predictability
from halfseen.diagnosis.wording import write
from halfseen.errors import SchemaError, warn_user
from halfseen.words import absent_words

MAX_PAIRS = 1000  # of `to_dict`
TOP_COPIES = 5  # duplicated rows that are named; a guess, which keeps the sentence short


@dataclass(frozen=True)
class ColumnMissingness:
    """The missing values of one column."""

    name: str
    kind: str
    n_missing: int  # the number of missing values
    share: float  # the fraction of rows with a missing value
    # The missing rate in up to 80 equal blocks of rows, in their order; empty for complete columns.
    positions: tuple[float, ...]


@dataclass(frozen=True)
class SampledRows:
    """The rows of a large table in files from which parts of its diagnosis are found.

    These parts are the kinds of the columns, the associations with values, Little's test and the
    predictability of missingness.

    Attributes
    ----------
    n_rows : int
        The number of rows, which are chosen at random by their numbers.
    n_patterns : int or None
        If the table has more patterns than are counted, the number of those that are counted at most: then
        the patterns, apart from the number of complete rows, and all associations are found from these rows,
        too. None if patterns are counted in all rows.
    """

    n_rows: int
    n_patterns: int | None = None


@dataclass(frozen=True)
class Diagnosis:
    """The result of `describe`, which can be printed; its parts are attributes.

    Attributes
    ----------
    n_rows, n_missing : int
        The number of rows, and of missing values.
    n_duplicated_rows : int or None
        The number of rows that are copies of an earlier row, with the same values and the same cells missing;
        None if a column has values that cannot be compared, such as lists, or if parts of the diagnosis are
        found from some rows only. Blank rows do not count.
    first_duplicates : tuple of pairs of int
        The positions of the first of these copies, counted from 0, and of the rows that they repeat.
    columns : tuple of ColumnMissingness
        All columns, in table order.
    patterns : PatternTable
        Which columns are missing together, and whether the missingness is monotone.
    associations : Associations
        Associations of the missingness of each column with the values and missingness of other columns.
    little : LittleTest
        Little's test of MCAR, with effect sizes.
    predictability : tuple of Predictability
        The accuracy with which the missingness of each column is predicted from the rest of the row.
    target : str or None
        The column named as the target.
    drift : Drift or None
        The differences in missingness to the reference table.
    sampled : SampledRows or None
        The rows of a large table in files from which parts are found; None if all parts are found from all
        rows.
    """

    n_rows: int
    n_missing: int
    n_duplicated_rows: int | None
    first_duplicates: tuple[tuple[int, int], ...]
    columns: tuple[ColumnMissingness, ...]
    patterns: PatternTable
    associations: Associations
    little: LittleTest
    predictability: tuple[Predictability, ...]
    target: str | None
    drift: Drift | None
    sampled: SampledRows | None = None

    @property
    def n_pattern_rows(self) -> int:
        """The number of rows in which patterns are counted: all, or the sampled ones."""
        if self.sampled is None or self.sampled.n_patterns is None:
            return self.n_rows
        return self.sampled.n_rows

    @property
    def readings(self) -> tuple[str, ...]:
        """The main results in sentences."""
        return wording.read(self)

    @property
    def limits(self) -> tuple[str, ...]:
        """What cannot be tested from these data."""
        return wording.LIMITS

    def distinct_pairs(self, about: str) -> tuple[Association, ...]:
        """Returns the significant pairs, about "value" or "missingness", without repetitions.

        Of columns that are always missing together, only the first is included.
        """
        echoes = {name for group in self.patterns.together for name in group[1:]}
        clear = (pair for pair in self.associations.clear if pair.about == about)
        missing = (pair for pair in clear if pair.column not in echoes)
        return tuple(pair for pair in missing if about == "value" or pair.other not in echoes)

    def to_dict(self) -> dict[str, Any]:
        """Returns the diagnosis as JSON data, with at most 1,000 pairs; NaN becomes None."""
        pairs = self.associations.pairs
        short = replace(self, associations=replace(self.associations, pairs=pairs[:MAX_PAIRS]))
        content: dict[str, Any] = plain_json(short)
        content["associations"]["n_pairs"] = len(pairs)
        return content | {"readings": list(self.readings), "limits": list(self.limits)}

    def __str__(self) -> str:
        return write(self)


def describe(
    table: Any,
    target: str | None = None,
    against: Any = None,
    *,
    kept: Mapping[str, Any] | None = None,
    random_state: Any = 0,
) -> Diagnosis:
    r"""Describes the missing values of a table: patterns, associations, and evidence against MCAR.

    Under MCAR the mask does not depend on the data, :math:`P(m \mid x) = P(m)`; under MAR it depends on
    observed values only, :math:`P(m \mid x) = P(m \mid x_o)`; everything else is MNAR. The data can provide
    evidence against MCAR, but not for it, and they cannot distinguish MAR from MNAR.

    Parameters
    ----------
    table : pandas, polars or pyarrow table, array of shape (n_rows, n_columns), or Scan
        A table with missing values. Of a large table in files, opened by `halfseen.scan`, missing values and
        patterns are counted in all rows, and the rest is found from about 200,000 rows, see
        `halfseen.distributed.describe`.
    target : str, optional
        The column that will be predicted; associations with it are listed first. The columns of an array are
        called x0, x1, ...
    against : table, optional
        A reference table, for example the training data, with which the missingness is compared.
    kept : mapping of str to array of bool, optional
        By column, the rows in which the table is empty although nothing is missing, because the cell held a
        placeholder such as 999. They do not count as missing, and there is no value to compare.
    random_state : int, numpy generator or None, default=0
        Seeds the subsamples of large tables, and the folds.

    Returns
    -------
    Diagnosis

    Warns
    -----
    HalfseenWarning
        If a column groups rows, such as a repeated identifier, so that rows may not be independent.

    See Also
    --------
    halfseen.diagnosis.little.little_test : Little's test alone.
    halfseen.diagnosis.predictability.predict_missingness : The classifier alone.
    halfseen.diagnosis.drift.compare_missingness : The comparison of two tables alone.

    References
    ----------
    Rubin (1976), Inference and missing data. Little (1988), A test of missing completely at random.

    Examples
    --------
    >>> from halfseen.datasets import load_penguins
    >>> diagnosis = describe(load_penguins("pandas"))
    >>> diagnosis.n_missing, diagnosis.patterns.n_patterns, diagnosis.patterns.monotonicity.monotone
    (19, 3, True)
    >>> print(diagnosis.readings[0].split(". ")[0])
    Rows with missing values do not differ significantly from the other rows
    """
    if is_scan(table):
        from halfseen.diagnosis.scanned import describe_scan

        return describe_scan(table, target, against, kept=kept, random_state=random_state)
    cells = Cells.read(table, kept)
    check_target(target, cells.names)
    for sentence in group_announcements(cells.columns):
        warn_user(sentence)
    drift = None if against is None else run_drift(cells.names, cells.observed, against)
    seed = seed_from(random_state)
    patterns = group_patterns(cells.observed)
    columns = _count_missing(cells)
    copies = find_duplicated_rows(open_table(table), cells.observed)
    return Diagnosis(
        n_rows=cells.n_rows,
        n_missing=sum(column.n_missing for column in columns),
        n_duplicated_rows=None if copies is None else len(copies),
        first_duplicates=() if copies is None else tuple((int(a), int(b)) for a, b in copies[:TOP_COPIES]),
        columns=columns,
        patterns=tabulate_patterns(patterns, cells.names),
        associations=associate(cells, target),
        little=_run_little(cells, patterns, seed),
        predictability=run_predictability(cells, seed),
        target=target,
        drift=drift,
    )


def check_target(target: str | None, names: Sequence[str]) -> None:
    """Raises an error if a target is not among the columns."""
    if target is not None and target not in names:
        others = absent_words(names, target)
        raise SchemaError(f"The target {target!r} is not a column of the table; {others}")


def _run_little(cells: Cells, patterns: Patterns, seed: int) -> LittleTest:
    """Performs Little's test; patterns are those of known values, of which means are compared."""
    if len(patterns.counts) < 2 or cells.known is cells.observed:
        return run_little(cells, patterns, seed)
    test = run_little(replace(cells, observed=cells.known), group_patterns(cells.known), seed)
    return replace(test, notes=(*test.notes, "Placeholders count as missing in this test."))


def _count_missing(cells: Cells) -> tuple[ColumnMissingness, ...]:
    edges = stretch_edges(cells.n_rows)
    return tuple(
        column_missingness(column, np.add.reduceat((~seen).astype(np.int64), edges[:-1]), edges)
        for column, seen in zip(cells.columns, cells.observed.T, strict=True)
    )


def column_missingness(column: Column, counts: Integers, edges: Integers) -> ColumnMissingness:
    """Returns the missing values of a column, from their counts in stretches of rows between edges."""
    n_missing, n_rows = int(counts.sum()), int(edges[-1])
    shares: list[float] = (counts / np.diff(edges)).round(4).tolist() if n_missing else []
    return ColumnMissingness(column.name, column.kind, n_missing, n_missing / n_rows, tuple(shares))
