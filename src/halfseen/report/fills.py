"""Columns with imputed values: observed against imputed, and a check on known values that are hidden."""

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halfseen._arrays import Booleans, Floats
from halfseen.auto.scoring import HiddenCells
from halfseen.data.columns import LEVELLED, NUMERIC
from halfseen.data.frames import put_nulls
from halfseen.data.leaving import MIN_CELLS, ColumnCheck
from halfseen.report.result import ImputationResult, missing_cells, take_rows

MAX_LEVELS = 12
MAX_BINS = 32
MAX_SINGLE_CELLS = 8
"""Up to this many missing values are drawn one by one, each with its interval: too few for a distribution."""

LEVEL_KINDS = ("binary", "categorical", "ordinal")
NUMBER_KINDS = ("continuous", "positive", "count", "datetime", "duration")
BAND = (0.05, 0.95)
"""The quantiles, over the draws, of the share of imputed values in a bin."""

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
HUGE, TINY = 1e140, 1e-140
"""Beyond these, sums or squares leave the range of floats; pictures are computed in other units."""

EXACT_INTEGERS = 2.0**52  # up to here, floats distinguish whole numbers and their halves

Fill = dict[str, Any]


def summarize_fill(known: Any, result: ImputationResult) -> Fill:
    """Compare the observed values of one column with the imputed ones.

    Parameters
    ----------
    known : Column
        The column of the schema.
    result : ImputationResult
        The imputation.

    Returns
    -------
    dict
        Shares per bin or level: ``observed``, ``imputed`` (mean over the draws, with ``low`` and ``high``)
        and ``single`` (the best single values).
    """
    name, shown = known.name, result.shown
    column, written = _filterable(result.table[name]), _filterable(result.filled[name])
    missing = missing_cells(result.table, name, result.kept)
    observed = ~pc.is_null(column, nan_is_null=True).to_numpy()
    n_missing, n_filled = int(missing.sum()), int((missing & written.is_valid().to_numpy()).sum())
    cells = missing if shown is None else shown.of_column[name]
    single = written if shown is None else written.take(pa.array(shown.rows))
    answers = [single, *(_filterable(one[name]) for one in result.draws)]
    shows = cells & single.is_valid().to_numpy()
    fill: Fill = {
        "name": name,
        "kind": known.kind,
        "n_missing": n_missing,
        "n_filled": n_filled,
        "n_shown": int(cells.sum()),
        "chart": None,
        "clipped": False,
    }
    if not shows.any() or not observed.any():
        return fill
    if known.kind in LEVEL_KINDS:
        fill |= _compare_levels(known.levels, column, answers, cells)
        if name in result.probabilities:
            fill["top_probability"] = float(np.nanmean(np.asarray(result.probabilities[name])[shows]))
    elif known.kind in NUMBER_KINDS and not _is_text(column.type):
        ends = np.empty((2, 0))
        if result.low is not None and result.high is not None:
            limits = (result.low, result.high)
            ends = np.stack([numbers_of(end[name].filter(pa.array(shows))) for end in limits])
        fill |= _compare_numbers(column.filter(pa.array(observed)), answers, cells, ends)
        if result.weights is not None:
            weights = result.weights.values
            of_shown = weights if shown is None else weights[shown.rows]
            fill |= _weighted_moments(column, weights, answers, cells, of_shown)
        fill |= _summarize_widths(ends, fill["observed_sd"])
    return fill


def _is_text(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_string(dtype) or pa.types.is_large_string(dtype) or pa.types.is_dictionary(dtype))


def _filterable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the same cells in a type that can be filtered, which views of text cannot."""
    return column.cast(pa.string()) if pa.types.is_string_view(column.type) else column


def numbers_of(column: pa.ChunkedArray) -> np.ndarray:
    """Return a column as floats; dates and durations count in seconds."""
    dtype, seconds = column.type, 1.0
    if pa.types.is_date32(dtype):
        column, seconds = column.cast(pa.int32()), 86_400.0
    elif pa.types.is_date64(dtype):
        column, seconds = column.cast(pa.int64()), 1e-3
    elif pa.types.is_timestamp(dtype) or pa.types.is_duration(dtype):
        column, seconds = column.cast(pa.int64()), SECONDS[dtype.unit]
    numbers = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.asarray(numbers, dtype=np.float64) * seconds


def _shares(counts: np.ndarray) -> np.ndarray:
    return counts / max(counts.sum(), 1)


def _spread(per_draw: np.ndarray) -> Fill:
    """Return mean and band of shares; `per_draw` holds the single values first, then one row per draw."""
    drawn = per_draw[1:] if len(per_draw) > 1 else per_draw
    low, high = np.quantile(drawn, BAND, axis=0)
    return {
        "single": per_draw[0].round(6).tolist(),
        "imputed": drawn.mean(axis=0).round(6).tolist(),
        "low": low.round(6).tolist(),
        "high": high.round(6).tolist(),
    }


def _compare_numbers(
    column: pa.ChunkedArray, answers: list[pa.ChunkedArray], cells: np.ndarray, ends: np.ndarray
) -> Fill:
    observed = numbers_of(column)
    imputed = [numbers_of(one.filter(pa.array(cells)).drop_null()) for one in answers]
    few = len(imputed[0]) == ends.shape[1] <= MAX_SINGLE_CELLS
    edges, clipped = choose_edges(observed, np.concatenate([imputed[0], *ends] if few else imputed))
    inside = (edges[0], edges[-1])
    per_draw = np.stack([_shares(np.histogram(np.clip(one, *inside), edges)[0]) for one in imputed])
    drawn = np.concatenate(imputed[1:]) if len(imputed) > 1 else imputed[0]
    return {
        "chart": "histogram",
        "edges": edges.tolist(),
        "clipped": clipped,
        "time": "date"
        if pa.types.is_temporal(column.type) and not pa.types.is_duration(column.type)
        else None,
        "observed": _shares(np.histogram(np.clip(observed, *inside), edges)[0]).round(6).tolist(),
        **_spread(per_draw),
        "cells": sorted(np.stack([imputed[0], *ends], axis=1).tolist()) if few else [],
        **_moments("observed", observed),
        **_moments("imputed", drawn),
    }


def _weighted_moments(
    column: pa.ChunkedArray,
    weights: np.ndarray,
    answers: list[pa.ChunkedArray],
    cells: np.ndarray,
    of_shown: np.ndarray,
) -> Fill:
    """Return means and standard deviations of observed and imputed values with weights of rows."""
    observed = ~pc.is_null(column, nan_is_null=True).to_numpy()
    drawn = answers[1:] or answers
    filled = [cells & one.is_valid().to_numpy() for one in drawn]
    imputed = [numbers_of(one.filter(pa.array(where))) for one, where in zip(drawn, filled, strict=True)]
    of_imputed = np.concatenate([of_shown[where] for where in filled])
    return {
        **_moments("observed", numbers_of(column.filter(pa.array(observed))), weights[observed]),
        **_moments("imputed", np.concatenate(imputed), of_imputed),
    }


def _moments(what: str, values: np.ndarray, weights: np.ndarray | None = None) -> Fill:
    """Return mean and standard deviation, of numbers as large or small as floats can be."""
    unit = _unit(values)
    values = values / unit
    mean = np.average(values, weights=weights)
    deviation = np.sqrt(np.average((values - mean) ** 2, weights=weights))
    return {f"{what}_mean": float(mean * unit), f"{what}_sd": float(deviation * unit)}


def _unit(values: np.ndarray) -> float:
    """Return a power of two; sums and squares of the values divided by it stay within the range of floats."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest > HUGE:
        return 2.0**600
    return 2.0**-600 if 0 < largest < TINY else 1.0


def choose_edges(observed: np.ndarray, imputed: np.ndarray) -> tuple[np.ndarray, bool]:
    """Return bin edges over both samples, and whether far values were gathered in the outer bins.

    Integers of a small range get one bin each. If the extremes lie far outside the central 98 per cent, the
    outer bins contain them; otherwise a single outlier would push all other values into one bar.
    """
    both = np.concatenate([observed, imputed])
    unit = _unit(both)
    edges, clipped = _edges(both / unit, len(observed))
    limit = np.finfo(np.float64).max / unit if unit > 1 else np.inf
    edges = np.unique(np.clip(edges, -limit, limit) * unit)  # floats may be too coarse for so many bins
    return (edges if len(edges) > 1 else _around(float(both[0]))), clipped


def _around(value: float) -> np.ndarray:
    """Return the edges of one bin with a value in the middle, as near as floats allow."""
    half = max(0.5, abs(value) * 2.0**-50)
    return np.array([value - half, value + half])


def _edges(both: np.ndarray, n_observed: int) -> tuple[np.ndarray, bool]:
    low, high = float(both.min()), float(both.max())
    if low == high:
        return _around(low), False
    whole = bool((both == np.round(both)).all()) and max(-low, high) < EXACT_INTEGERS
    if whole and high - low < MAX_BINS:
        return np.arange(low - 0.5, high + 1.0), False
    inner_low, inner_high = np.quantile(both, [0.01, 0.99])
    span = inner_high - inner_low
    clipped = bool(span > 0 and high - low > 3 * span)
    if clipped:
        low, high = max(low, inner_low - 0.25 * span), min(high, inner_high + 0.25 * span)
    n_bins = int(np.clip(2 * np.cbrt(n_observed), 8, MAX_BINS))
    if whole:  # equal numbers of integers in all bins: otherwise uniform data would show alternating heights
        low, high = np.floor(low), np.ceil(high)
        width = np.ceil((high - low + 1) / n_bins)
        return low - 0.5 + width * np.arange(np.ceil((high - low + 1) / width) + 1), clipped
    return np.linspace(low, high, n_bins + 1), clipped


def _summarize_widths(ends: np.ndarray, scale: float) -> Fill:
    with np.errstate(over="ignore"):  # two ends may be further apart than any float
        width = ends[1] - ends[0]
    width = width[np.isfinite(width)]
    if len(width) == 0:
        return {}
    unit = _unit(width)
    median = float(np.median(width / unit) * unit)
    return {"width": median, "relative_width": median / scale if scale > 0 else None}


def _count_levels(column: pa.ChunkedArray) -> dict[str, int]:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    counted = column.drop_null().cast(pa.string()).value_counts()
    return dict(zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True))


def _compare_levels(
    levels: Sequence[Any] | None, column: pa.ChunkedArray, answers: list[pa.ChunkedArray], cells: np.ndarray
) -> Fill:
    seen = _count_levels(column)
    filled = [_count_levels(one.filter(pa.array(cells))) for one in answers]
    listed = pa.array(list(levels or ())).cast(pa.string()).to_pylist()
    names = [name for name in listed if name in seen] or sorted(seen)
    names = [*dict.fromkeys([*names, *seen, *(name for one in filled for name in one)])]  # levels can be many
    place = {name: i for i, name in enumerate(names)}
    shown = sorted(sorted(names, key=lambda name: -seen.get(name, 0))[:MAX_LEVELS], key=place.__getitem__)
    other = [name for name in names if name not in shown]

    def shares(counts: dict[str, int]) -> np.ndarray:
        rest = [sum(counts.get(name, 0) for name in other)] if other else []
        return _shares(np.array([*(counts.get(name, 0) for name in shown), *rest], dtype=float))

    return {
        "chart": "levels",
        "levels": [*shown, *([f"{len(other)} more levels"] if other else [])],
        "observed": shares(seen).round(6).tolist(),
        **_spread(np.stack([shares(one) for one in filled])),
    }


MAX_CHECKED_ROWS, MAX_CHECKED_CELLS = 2_000, 400_000
"""The rows, and the cells of these rows, that take part in the check of a large table."""

HIDDEN_SHARE, HIDDEN_CELLS, MOST_HIDDEN = 0.1, 100, 0.3
"""A tenth of the known values of a column is hidden, or 100 values, but never more than 30 per cent."""

Completion = Callable[[pa.Table], tuple[pa.Table, pa.Table | None, pa.Table | None]]
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
    most = max(min(MAX_CHECKED_ROWS, MAX_CHECKED_CELLS // max(table.num_columns, 1)), 200)
    if table.num_rows <= most:
        return table
    return take_rows(table, np.sort(np.random.default_rng(seed).permutation(table.num_rows)[:most]))


def check_fill(
    table: pa.Table,
    kinds: Mapping[str, str],
    fill: Completion,
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


CHECKED = (*NUMERIC, *LEVELLED, "datetime", "duration")

Build = Callable[[dict[str, Any]], Any]
"""Returns an imputer that is not fitted, with the given settings of columns."""


def check_known_values(
    table: pa.Table,
    columns: Iterable[Any],
    build: Build | None,
    fitted: Any = None,
    *,
    intervals: bool = True,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    level: float = 0.9,
    method: str = "",
) -> FillCheck | None:
    """Check on hidden known values how well each column with missing values is filled.

    Parameters
    ----------
    table : pyarrow.Table
        The incomplete table.
    columns : iterable
        Has ``name`` and ``kind`` of each column.
    build : callable or None
        Builds an imputer, to be fitted without the hidden values.
    fitted : imputer, optional
        An imputer like it that is fitted. It fills the hidden values if `build` is None; the check is then
        optimistic if the imputer was fitted to this table.
    intervals : bool
        Whether the intervals of hidden numbers are checked too.
    settings : mapping, optional
        The settings of columns that the user gave.
    seed : int
        The seed of which values are hidden.
    level : float
        The level of the intervals.
    method : str
        The name of the method, for a page about something else.

    Returns
    -------
    FillCheck or None
        None if the method cannot be fitted to what remains.
    """
    rows = choose_rows(table, seed)
    kinds = {column.name: column.kind for column in columns if column.kind in CHECKED}
    settings = _with_kinds(kinds, settings)
    incomplete = {name: kind for name, kind in kinds.items() if table[name].null_count}

    def fill(shown: pa.Table) -> tuple[pa.Table, pa.Table | None, pa.Table | None]:
        imputer = fitted if build is None else build(settings).fit(shown)
        low, high = imputer.interval(shown, level=level) if intervals else (None, None)
        return imputer.transform(shown), low, high

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit to the whole table has given its warnings
        try:
            return check_fill(
                rows, incomplete, fill, refitted=build is not None, seed=seed, level=level, method=method
            )
        except ValueError:  # a sample, with values hidden, may leave too little to fit; the page shows this
            return None


def _with_kinds(kinds: Mapping[str, str], settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the user's settings and the kinds that were inferred, which a sample might not show."""
    given = dict(settings or {})
    for name, kind in kinds.items():
        given[name] = {"kind": kind} | given.get(name, {})
    return given
