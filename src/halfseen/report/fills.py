"""One column with holes: observed against imputed values, and how sure the model is."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

MAX_LEVELS = 12
MAX_BINS = 32
MAX_CELLS = 8
"""Up to so many holes are drawn one by one, each with its interval: too few for a distribution."""

LEVEL_KINDS = ("binary", "categorical", "ordinal")
NUMBER_KINDS = ("continuous", "positive", "count", "datetime", "duration")
BAND = (0.05, 0.95)
"""The quantiles, over the draws, of the share of imputed values in a bin."""

Fill = dict[str, Any]


def summarize_fill(
    known: Any,
    table: pa.Table,
    filled: pa.Table,
    draws: Sequence[pa.Table],
    low: pa.Table | None,
    high: pa.Table | None,
    probability: np.ndarray | None,
) -> Fill:
    """Compare the observed cells of one column with the values that filled its holes.

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

    Returns
    -------
    dict
        Shares per bin or level: ``observed``, ``imputed`` (mean over the draws, with ``low`` and ``high``)
        and ``single`` (the best single values).
    """
    name = known.name
    holes = pc.is_null(table[name], nan_is_null=True).to_numpy()
    n_missing = int(holes.sum())
    n_filled = n_missing - int(filled[name].filter(pa.array(holes)).null_count)
    fill: Fill = {
        "name": name,
        "kind": known.kind,
        "n_missing": n_missing,
        "n_filled": n_filled,
        "chart": None,
        "clipped": False,
    }
    if n_filled == 0 or n_missing == len(holes):
        return fill
    tables = [filled, *draws]
    if known.kind in LEVEL_KINDS:
        fill |= _compare_levels(known.levels, table[name], [one[name] for one in tables], holes)
        if probability is not None:
            fill["top_probability"] = float(np.nanmean(np.asarray(probability)[holes]))
    elif known.kind in NUMBER_KINDS and not _is_text(table[name].type):
        ends = np.empty((2, 0))
        if low is not None and high is not None:
            ends = np.stack([numbers_of(end[name].filter(pa.array(holes))) for end in (low, high)])
        fill |= _compare_numbers(table[name], [one[name] for one in tables], holes, ends)
        fill |= _summarize_widths(ends, fill["observed_sd"])
    return fill


def _is_text(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_string(dtype) or pa.types.is_large_string(dtype) or pa.types.is_dictionary(dtype))


def numbers_of(column: pa.ChunkedArray) -> np.ndarray:
    """Return a column as floats; dates and durations count in seconds."""
    dtype = column.type
    if pa.types.is_date(dtype):
        column = column.cast(pa.timestamp("s"))
    if pa.types.is_timestamp(dtype) or pa.types.is_date(dtype):
        column = pc.divide(column.cast(pa.timestamp("us")).cast(pa.int64()).cast(pa.float64()), 1e6)
    elif pa.types.is_duration(dtype):
        column = pc.divide(column.cast(pa.duration("us")).cast(pa.int64()).cast(pa.float64()), 1e6)
    elif pa.types.is_boolean(dtype) or pa.types.is_decimal(dtype):
        column = column.cast(pa.float64())
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)


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
    column: pa.ChunkedArray, tables: list[pa.ChunkedArray], holes: np.ndarray, ends: np.ndarray
) -> Fill:
    observed = numbers_of(column.filter(pa.array(~holes)))
    imputed = [numbers_of(one.filter(pa.array(holes)).drop_null()) for one in tables]
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
        "observed_mean": float(observed.mean()),
        "observed_sd": float(observed.std()),
        "imputed_mean": float(drawn.mean()),
        "imputed_sd": float(drawn.std()),
    }


def choose_edges(observed: np.ndarray, imputed: np.ndarray) -> tuple[np.ndarray, bool]:
    """Return bin edges over both samples, and whether far values were gathered in the outer bins.

    Whole numbers of a small range get one bin each. Where the extremes lie far outside the middle 98 per
    cent, the outer bins gather them, else one odd value would press all others into a single bar.
    """
    both = np.concatenate([observed, imputed])
    low, high = float(both.min()), float(both.max())
    if low == high:
        return np.array([low - 0.5, low + 0.5]), False
    whole = bool((observed == np.round(observed)).all() and (imputed == np.round(imputed)).all())
    if whole and high - low < MAX_BINS:
        return np.arange(low - 0.5, high + 1.0), False
    inner_low, inner_high = np.quantile(both, [0.01, 0.99])
    span = inner_high - inner_low
    clipped = bool(span > 0 and high - low > 3 * span)
    if clipped:
        low, high = max(low, inner_low - 0.25 * span), min(high, inner_high + 0.25 * span)
    n_bins = int(np.clip(2 * np.cbrt(len(observed)), 8, MAX_BINS))
    if whole:  # each bin holds as many whole numbers as the next, else the picture has false teeth
        low, high = np.floor(low), np.ceil(high)
        width = np.ceil((high - low + 1) / n_bins)
        return low - 0.5 + width * np.arange(np.ceil((high - low + 1) / width) + 1), clipped
    return np.linspace(low, high, n_bins + 1), clipped


def _summarize_widths(ends: np.ndarray, scale: float) -> Fill:
    width = ends[1] - ends[0]
    width = width[np.isfinite(width)]
    if len(width) == 0:
        return {}
    median = float(np.median(width))
    return {"width": median, "relative_width": median / scale if scale > 0 else None}


def _count_levels(column: pa.ChunkedArray) -> dict[str, int]:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    counted = column.drop_null().cast(pa.string()).value_counts()
    return dict(zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True))


def _compare_levels(
    levels: Sequence[Any] | None, column: pa.ChunkedArray, tables: list[pa.ChunkedArray], holes: np.ndarray
) -> Fill:
    seen = _count_levels(column)
    filled = [_count_levels(one.filter(pa.array(holes))) for one in tables]
    listed = pa.array(list(levels or ())).cast(pa.string()).to_pylist()
    names = [name for name in listed if name in seen] or sorted(seen)
    names += [name for name in {**seen, **{key: 0 for one in filled for key in one}} if name not in names]
    shown = sorted(sorted(names, key=lambda name: -seen.get(name, 0))[:MAX_LEVELS], key=names.index)
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
