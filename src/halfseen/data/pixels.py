"""Images as tables: every column is a pixel, and all pixels take the same values."""

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from halfseen.data.columns import Column, Kind
from halfseen.data.features import FeatureMap
from halfseen.data.frames import Floats, RawColumn, Table
from halfseen.data.incomplete import Incomplete
from halfseen.data.scaling import Standardizer
from halfseen.data.schema import Schema
from halfseen.errors import SchemaError

MOST_SHADES = 256
_SLACK = 1e-9
_NEAR = 1e-4  # of a shade: what single precision may take from k / 255


def pixel_schema(table: Table) -> Schema:
    """Returns a schema in which all columns are pixels of one kind, with the values of the whole image.

    Two values make binary pixels, whole numbers or multiples of 1/255 shades, all else numbers between the
    least and the greatest. A pixel that never changes, or was never seen, is like the others: models need
    the whole grid.

    Examples
    --------
    >>> print(pixel_schema(Table(np.array([[0.0, 0.0, np.nan], [0.0, 1.0, np.nan]]))))
    x0: binary [2 levels: 0, 1], 0 missing. A pixel with two values.
    x1: binary [2 levels: 0, 1], 0 missing. A pixel with two values.
    x2: binary [2 levels: 0, 1], 2 missing. A pixel with two values.
    """
    found, counts = [], []
    for j in range(len(table.names)):
        seen = _numbers(table.column(j))
        found.append(np.unique(seen))
        counts.append((len(seen), table.n_rows - len(seen)))
    values = np.unique(np.concatenate(found))
    if len(values) < 2:
        return Schema.infer(table)  # nothing for a model to learn
    return Schema(
        tuple(_pixel(table.column(j), values, *count) for j, count in enumerate(counts)),
    )


def image_planes(image_shape: Any, n_columns: int) -> tuple[int, int, int]:
    """Returns the shape (C, H, W) of images, given as it is or as (H, W), that fill a row of columns.

    Examples
    --------
    >>> image_planes((8, 9), 72)
    (1, 8, 9)
    >>> image_planes((8, 8), 72)
    Traceback (most recent call last):
      ...
    ValueError: image_shape (8, 8) has 64 pixels, the table has 72 columns.
    """
    try:
        planes = tuple(operator.index(side) for side in image_shape)
    except TypeError:
        planes = ()
    if len(planes) not in (2, 3) or min(planes) < 1:
        raise ValueError(f"image_shape must be (H, W) or (C, H, W), positive, got {image_shape!r}.")
    channels, height, width = (1, *planes)[-3:]
    if channels * height * width != n_columns:
        size = channels * height * width
        raise ValueError(f"image_shape {planes} has {size} pixels, the table has {n_columns} columns.")
    return channels, height, width


def pixel_features(columns: Sequence[Column], codes: Incomplete) -> FeatureMap:
    """Returns the map from pixels to features: -1 and 1 for two values, from -1 to 1 for shades.

    Other numbers are standardised, all pixels alike. So 0 is the middle, which no binary pixel takes.
    """
    first = columns[0]
    if first.levels is None and first.code_step is None:
        every = Standardizer.fit(Incomplete(codes.x.reshape(-1, 1), codes.observed.reshape(-1, 1)))
        loc, scale = float(every.loc), float(every.scale)
    else:
        low, high = first.code_bounds()
        loc, scale = (low + high) / 2, (high - low) / 2
    size = len(columns)
    scaler = Standardizer(
        torch.full((size,), loc, dtype=torch.float64), torch.full((size,), scale, dtype=torch.float64)
    )
    everything = tuple(range(size))
    return FeatureMap(everything, () if first.levels is None else everything, (), scaler, all_indicators=True)


def n_shades(column: Column) -> int | None:
    """Returns how many evenly spaced values a pixel may take, None if any number will do."""
    step = column.code_step
    if step is None:
        return None
    low, high = column.code_bounds()
    return round((high - low) / step) + 1


def _numbers(raw: RawColumn) -> Floats:
    if raw.storage not in ("number", "boolean"):
        raise SchemaError(f"Column {raw.name!r} of dtype {raw.dtype} holds no numbers, as pixels must be.")
    seen = raw.values[~np.isnan(raw.values)]
    if not np.isfinite(seen).all():
        raise SchemaError(f"Column {raw.name!r} contains infinity, which is no shade; make it missing.")
    return seen


def _pixel(raw: RawColumn, values: Floats, n_observed: int, n_missing: int) -> Column:
    low, high = float(values[0]), float(values[-1])
    step = _step(values)
    kind: Kind = "count" if step == 1.0 and low >= 0 else "continuous"
    reason = "A pixel of real numbers." if step is None else "A pixel of shades."
    if step is not None and step < 1:  # bounds a little apart, or dividing by the step would lose the last
        low, high = (round(end / step) * step + side for end, side in ((low, -_SLACK), (high, _SLACK)))
    levels = None
    if len(values) == 2:
        kind, reason = "binary", "A pixel with two values."
        ends = float(values[0]), float(values[-1])
        levels = tuple(bool(end) if raw.storage == "boolean" else end for end in ends)
    return Column(
        name=raw.name,
        kind=kind,
        dtype=raw.dtype,
        storage=raw.storage,
        levels=levels,
        minimum=None if levels else low,
        maximum=None if levels else high,
        integer=levels is None and step == 1.0,
        step=step if levels is None and step != 1.0 else None,
        reason=reason,
        n_observed=n_observed,
        n_missing=n_missing,
    )


def _step(values: Floats) -> float | None:
    """Returns the distance of shades: 1 for whole numbers, 1/255 for such shares, None for other numbers."""
    if np.all(values == np.round(values)) and values[-1] - values[0] < MOST_SHADES:
        return 1.0
    shades = values * (MOST_SHADES - 1)
    if values[0] >= 0 and values[-1] <= 1 and np.all(np.abs(shades - np.round(shades)) < _NEAR):
        return 1 / (MOST_SHADES - 1)
    return None
