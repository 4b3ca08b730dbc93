"""One column with missing values: observed against imputed values, and how sure the model is."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halfseen.report.shown_cells import KeptCells, ShownCells, missing_cells

MAX_LEVELS = 12
MAX_BINS = 32
MAX_CELLS = 8
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


def summarize_fill(
    known: Any,
    table: pa.Table,
    filled: pa.Table,
    draws: Sequence[pa.Table],
    low: pa.Table | None,
    high: pa.Table | None,
    probability: np.ndarray | None,
    shown: ShownCells | None = None,
    kept: KeptCells | None = None,
    weights: np.ndarray | None = None,
) -> Fill:
    """Compare the observed values of one column with the imputed ones.

    Parameters
    ----------
    known : Column
        The column of the schema.
    table, filled : pyarrow.Table
        The table before and after.
    draws : sequence of pyarrow.Table
        Completed tables drawn from the model.
    low, high : pyarrow.Table or None
        Interval ends per cell.
    probability : array of shape (n_rows,), optional
        The probability of the most probable level in each row.
    shown : ShownCells, optional
        The missing cells that are shown, if not all; `draws`, `low`, `high` and `probability` have its rows.
    kept : mapping of str to pyarrow.Array, optional
        Per column: cells that are null in `table` but not missing.
    weights : array of shape (n_rows,), optional
        The weights of the rows of `table` in means and standard deviations of numbers.

    Returns
    -------
    dict
        Shares per bin or level: ``observed``, ``imputed`` (mean over the draws, with ``low`` and ``high``)
        and ``single`` (the best single values).
    """
    name = known.name
    column, written = _filterable(table[name]), _filterable(filled[name])
    missing = missing_cells(table, name, kept)
    observed = ~pc.is_null(column, nan_is_null=True).to_numpy()
    n_missing, n_filled = int(missing.sum()), int((missing & written.is_valid().to_numpy()).sum())
    cells = missing if shown is None else shown.of_column[name]
    single = written if shown is None else written.take(pa.array(shown.rows))
    answers = [single, *(_filterable(one[name]) for one in draws)]
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
        if probability is not None:
            fill["top_probability"] = float(np.nanmean(np.asarray(probability)[shows]))
    elif known.kind in NUMBER_KINDS and not _is_text(column.type):
        ends = np.empty((2, 0))
        if low is not None and high is not None:
            ends = np.stack([numbers_of(end[name].filter(pa.array(shows))) for end in (low, high)])
        fill |= _compare_numbers(column.filter(pa.array(observed)), answers, cells, ends)
        if weights is not None:
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
    few = len(imputed[0]) == ends.shape[1] <= MAX_CELLS
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
    if whole:  # each bin holds as many whole numbers as the next, else the picture has false teeth
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
