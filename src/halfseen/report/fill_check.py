"""A check of how well columns can be imputed: known values are hidden, imputed and compared."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from halfseen.auto.scoring import HiddenCells
from halfseen.data.reliability import MIN_CELLS, ColumnCheck
from halfseen.missingness.reading import put_nulls
from halfseen.report.fills import LEVEL_KINDS, NUMBER_KINDS, numbers_of
from halfseen.report.shown_cells import take_rows

MAX_ROWS, MAX_CELLS = 2_000, 400_000
"""The rows, and the cells of these rows, that take part in the check of a large table."""

HIDDEN_SHARE, HIDDEN_CELLS, MOST_HIDDEN = 0.1, 100, 0.3
"""A tenth of the known values of a column is hidden, or 100 values, but never more than 30 per cent."""

Booleans = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Fill = Callable[[pa.Table], tuple[pa.Table, pa.Table | None, pa.Table | None]]
"""Completes a table: the single values, and the ends of an interval for each cell."""


@dataclass(frozen=True)
class FillCheck:
    """The outcome of a check on hidden known values.

    Attributes
    ----------
    columns : dict of str to ColumnCheck
        The columns with enough hidden values.
    n_rows : int
        The number of rows that took part.
    refitted : bool
        Whether the method was fitted without the hidden values. If not, the model was fitted to them, and the
        check is optimistic.
    covered : float or None
        The share of hidden numbers within their intervals.
    level : float
        The level of the intervals.
    method : str
        Which method filled the values, if it is not the one that the page is about.
    """

    columns: dict[str, ColumnCheck]
    n_rows: int
    refitted: bool
    covered: float | None
    level: float
    method: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as numbers, strings and dicts."""
        return asdict(self)


def choose_rows(table: pa.Table, seed: int = 0) -> pa.Table:
    """Return the rows that take part in the check: all, or a random sample in their order."""
    most = max(min(MAX_ROWS, MAX_CELLS // max(table.num_columns, 1)), 200)
    if table.num_rows <= most:
        return table
    return take_rows(table, np.sort(np.random.default_rng(seed).permutation(table.num_rows)[:most]))


def check_fill(
    table: pa.Table,
    kinds: Mapping[str, str],
    fill: Fill,
    *,
    refitted: bool,
    seed: int = 0,
    level: float = 0.9,
    method: str = "",
) -> FillCheck:
    """Hide known values of some columns, impute them, and compare.

    Parameters
    ----------
    table : pyarrow.Table
        The rows that take part; see `choose_rows`.
    kinds : mapping of str to str
        The columns to check, with their kinds.
    fill : callable
        Receives the table with more values missing; returns the completed table and, if there are intervals,
        the tables of their lower and upper ends.
    refitted : bool
        Whether `fill` fits the method to the table that it receives.
    seed : int
        The seed of which values are hidden.
    level : float
        The level of the intervals.
    method : str
        Which method fills, for the page.

    Returns
    -------
    FillCheck
        Columns with fewer than 20 hidden values are left out.
    """
    hidden = _hide(table, kinds, seed)
    affected = np.flatnonzero(hidden.any(axis=0))
    if len(affected) == 0:
        return FillCheck({}, table.num_rows, refitted, None, level, method)
    shown = put_nulls(table, hidden, affected.tolist())
    filled, low, high = fill(shown)
    checks: dict[str, ColumnCheck] = {}
    inside: list[Booleans] = []
    for j in affected:
        name = table.column_names[j]
        cells = hidden[:, j] & filled[name].is_valid().to_numpy()
        if cells.sum() < MIN_CELLS:
            continue
        columns = (table[name], shown[name], filled[name])
        if kinds[name] in LEVEL_KINDS:
            check = _check_levels(name, *columns, cells)
        else:
            check = _check_numbers(name, *columns, cells)
            if low is not None and high is not None:
                inside.append(_is_inside(table[name], low[name], high[name], cells))
        if check is not None:
            checks[name] = check
    covered = float(np.concatenate(inside).mean()) if inside else None
    return FillCheck(checks, table.num_rows, refitted, covered, level, method)


def check_hidden(hidden: HiddenCells, names: Collection[str], *, level: float = 0.9) -> FillCheck:
    """Return the check based on values that were hidden in order to choose a method.

    Parameters
    ----------
    hidden : HiddenCells
        The losses, from `AutoImputer`.
    names : collection of str
        The columns to check.
    level : float
        The level of the intervals.

    Returns
    -------
    FillCheck
        Columns with fewer than 20 hidden values are left out.
    """
    checks: dict[str, ColumnCheck] = {}
    inside: list[Booleans] = []
    for name, losses in hidden.columns.items():
        check = losses.check(name) if name in names else None
        if check is not None:
            checks[name] = check
            if losses.below is not None:
                inside.append(losses.covered(level))
    covered = float(np.concatenate(inside).mean()) if inside else None
    return FillCheck(checks, hidden.n_rows, True, covered, level)


def _hide(table: pa.Table, kinds: Mapping[str, str], seed: int) -> Booleans:
    """Return which known values (N, D) are hidden."""
    hidden = np.zeros(table.shape, dtype=bool)
    for j, name in enumerate(table.column_names):
        kind = kinds.get(name)
        if kind not in LEVEL_KINDS and kind not in NUMBER_KINDS:
            continue
        known = np.flatnonzero(~pc.is_null(table[name], nan_is_null=True).to_numpy())
        n_hidden = min(max(HIDDEN_SHARE * len(known), HIDDEN_CELLS), MOST_HIDDEN * len(known))
        hidden[np.random.default_rng([seed, j]).permutation(known)[: int(n_hidden)], j] = True
    return hidden


def _values(column: pa.ChunkedArray, cells: Booleans) -> Floats:
    return numbers_of(column.filter(pa.array(cells)))


def _check_numbers(
    name: str, truth: pa.ChunkedArray, shown: pa.ChunkedArray, filled: pa.ChunkedArray, cells: Booleans
) -> ColumnCheck | None:
    seen = numbers_of(shown.drop_null())
    seen = seen[~np.isnan(seen)]
    with np.errstate(over="ignore", invalid="ignore"):
        mean, scale = seen.mean(), seen.std()
        error = ((_values(filled, cells) - _values(truth, cells)) / scale) ** 2 if scale > 0 else seen[:0]
        baseline = ((mean - _values(truth, cells)) / scale) ** 2 if scale > 0 else seen[:0]
    return ColumnCheck.of(name, "error", error, baseline)  # None if constant, or too large for squares


def _check_levels(
    name: str, truth: pa.ChunkedArray, shown: pa.ChunkedArray, filled: pa.ChunkedArray, cells: Booleans
) -> ColumnCheck | None:
    right = np.array(_texts(truth, cells)) == np.array(_texts(filled, cells))
    levels, counts = np.unique(_texts(shown, shown.is_valid().to_numpy()), return_counts=True)
    usual = np.array(_texts(truth, cells)) == levels[counts.argmax()]
    return ColumnCheck.of(name, "accuracy", (~right).astype(np.float64), (~usual).astype(np.float64))


def _texts(column: pa.ChunkedArray, cells: Booleans) -> list[str]:
    dictionary = pa.types.is_dictionary(column.type)
    plain = column.cast(column.type.value_type) if dictionary else column
    plain = plain.cast(pa.string()) if pa.types.is_string_view(plain.type) else plain
    texts: list[str] = plain.filter(pa.array(cells)).cast(pa.string()).to_pylist()
    return texts


def _is_inside(
    truth: pa.ChunkedArray, low: pa.ChunkedArray, high: pa.ChunkedArray, cells: Booleans
) -> Booleans:
    value = _values(truth, cells)
    inside: Booleans = (_values(low, cells) <= value) & (value <= _values(high, cells))
    return inside
