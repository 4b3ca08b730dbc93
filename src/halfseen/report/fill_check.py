"""A check of how well columns can be imputed: known values are hidden, imputed and compared."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from halfseen.estimators._hidden_cells import HiddenCells
from halfseen.missingness.nulls import put_nulls
from halfseen.report.fills import LEVEL_KINDS, NUMBER_KINDS, numbers_of
from halfseen.report.shown_cells import take_rows

MAX_ROWS, MAX_CELLS = 2_000, 400_000
"""The rows, and the cells of these rows, that take part in the check of a large table."""

HIDDEN_SHARE, HIDDEN_CELLS, MOST_HIDDEN = 0.1, 100, 0.3
"""A tenth of the known values of a column is hidden, or 100 values, but never more than 30 per cent."""

MIN_CELLS = 20
"""With fewer hidden values, a column has no verdict."""

Booleans = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Fill = Callable[[pa.Table], tuple[pa.Table, pa.Table | None, pa.Table | None]]
"""Completes a table: the single values, and the ends of an interval for each cell."""


@dataclass(frozen=True)
class ColumnCheck:
    """The hidden values of one column, compared with the values imputed for them.

    Attributes
    ----------
    name : str
        The column.
    measure : {"error", "accuracy"}
        Root mean squared error in standard deviations of the shown values, or the share of levels that were
        filled right.
    n_cells : int
        The number of hidden values.
    value, baseline : float
        The measure of the filled values, and of the mean or the most frequent level of the shown values.
    skill : float
        The relative reduction of the baseline's squared error, or of its number of wrong levels: 1 is
        perfect, and 0 is no better than the baseline.
    skill_low : float
        The lower end of an approximate 95% interval of the skill.
    """

    name: str
    measure: str
    n_cells: int
    value: float
    baseline: float
    skill: float
    skill_low: float


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
        finite = bool(np.isfinite([losses.loss, losses.baseline]).all())
        if name not in names or len(losses.loss) < MIN_CELLS or not finite or losses.baseline.mean() == 0:
            continue
        skill, low = _skill(losses.loss, losses.baseline)
        value, baseline = float(losses.loss.mean()), float(losses.baseline.mean())
        measure, means = "accuracy", (1 - value, 1 - baseline)
        if losses.below is not None:
            measure, means = "error", (value**0.5, baseline**0.5)
            inside.append(losses.covered(level))
        checks[name] = ColumnCheck(name, measure, len(losses.loss), *means, skill, low)
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
    if len(error) == 0 or not np.isfinite([error, baseline]).all() or baseline.mean() == 0:
        return None  # constant, or too large for squares
    skill, low = _skill(error, baseline)
    rms = float(np.sqrt(error.mean())), float(np.sqrt(baseline.mean()))
    return ColumnCheck(name, "error", len(error), *rms, skill, low)


def _check_levels(
    name: str, truth: pa.ChunkedArray, shown: pa.ChunkedArray, filled: pa.ChunkedArray, cells: Booleans
) -> ColumnCheck | None:
    right = np.array(_texts(truth, cells)) == np.array(_texts(filled, cells))
    levels, counts = np.unique(_texts(shown, shown.is_valid().to_numpy()), return_counts=True)
    usual = np.array(_texts(truth, cells)) == levels[counts.argmax()]
    if usual.all():
        return None  # the most frequent level is always right: there is nothing to win
    skill, low = _skill((~right).astype(float), (~usual).astype(float))
    return ColumnCheck(name, "accuracy", len(right), float(right.mean()), float(usual.mean()), skill, low)


def _texts(column: pa.ChunkedArray, cells: Booleans) -> list[str]:
    dictionary = pa.types.is_dictionary(column.type)
    plain = column.cast(column.type.value_type) if dictionary else column
    plain = plain.cast(pa.string()) if pa.types.is_string_view(plain.type) else plain
    texts: list[str] = plain.filter(pa.array(cells)).cast(pa.string()).to_pylist()
    return texts


def _skill(loss: Floats, baseline: Floats) -> tuple[float, float]:
    """Return 1 minus the ratio of mean losses, and the lower end of its approximate 95% interval.

    The interval is that of the logarithm of the ratio, whose distribution is nearly symmetric.
    """
    ratio = loss.mean() / baseline.mean()
    if ratio == 0:
        return 1.0, 1.0
    error = (loss - ratio * baseline).std(ddof=1) / np.sqrt(len(loss)) / loss.mean()
    return float(1 - ratio), float(1 - ratio * np.exp(1.96 * error))


def _is_inside(
    truth: pa.ChunkedArray, low: pa.ChunkedArray, high: pa.ChunkedArray, cells: Booleans
) -> Booleans:
    value = _values(truth, cells)
    inside: Booleans = (_values(low, cells) <= value) & (value <= _values(high, cells))
    return inside
