"""Images as tables: every column is a pixel, and all pixels take the same values."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from halfseen._arrays import Floats
from halfseen.data.columns import Column, Kind
from halfseen.data.features import FeatureMap
from halfseen.data.frames import RawColumn, Table
from halfseen.data.incomplete import Incomplete, Standardizer, unmask
from halfseen.data.schema import Schema
from halfseen.errors import SchemaError

MOST_SHADES = 256
_SLACK = 1e-9
_NEAR = 1e-4  # of a shade: what single precision may take from k / 255


def pixel_schema(table: Table) -> Schema:
    """Returns a schema in which all columns are pixels of one kind, with the values of the whole image.

    Pixels with two values are binary; integers and multiples of 1/255 are grey levels; all others are numbers
    between the smallest and the largest. A pixel that never changes, or was never observed, is treated like
    the others, because models need the whole grid.

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


def image_planes(image_shape: Any, n_columns: int | None = None) -> tuple[int, int, int]:
    """Returns the shape (C, H, W) of images, given as it is or as (H, W), that fill a row of a table.

    Examples
    --------
    >>> image_planes((8, 9), 72)
    (1, 8, 9)
    >>> image_planes((8, 8), 72)
    Traceback (most recent call last):
      ...
    ValueError: image_shape (8, 8) has 64 pixels, but the table has 72 columns.
    """
    try:
        planes = tuple(operator.index(side) for side in image_shape)
    except TypeError:
        planes = ()
    if len(planes) not in (2, 3) or min(planes) < 1:
        raise ValueError(f"image_shape must be (H, W) or (C, H, W), positive, got {image_shape!r}.")
    channels, height, width = (1, *planes)[-3:]
    if n_columns not in (None, channels * height * width):
        size = channels * height * width
        raise ValueError(f"image_shape {planes} has {size} pixels, but the table has {n_columns} columns.")
    return channels, height, width


@dataclass(frozen=True)
class ImageLayout:
    """How a user lays out images: as rows of pixels, as (N, H, W) or as (N, H, W, C).

    Rows of pixels are in the order (C, H, W).
    """

    planes: tuple[int, int, int]  # the shape (C, H, W) of an image
    n_dims: int = 2  # the number of dimensions of the user's array: 2, 3 or 4

    def restore(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Returns rows of pixels (..., N, C * H * W) in the user's layout."""
        if self.n_dims == 2:
            return rows
        images = rows.reshape(*rows.shape[:-1], *self.planes)  # (..., N, C, H, W)
        return images[..., 0, :, :] if self.n_dims == 3 else np.moveaxis(images, -3, -1)


def read_images(X: Any, image_shape: Any = None) -> tuple[Any, ImageLayout]:
    """Returns images as a table of pixels, and their layout; raises a ValueError if they have no such layout.

    Parameters
    ----------
    X : array of shape (n_images, H, W) or (n_images, H, W, C), or table with one column per pixel
        Missing pixels are NaN. A row of a table has its pixels in the order (C, H, W).
    image_shape : (H, W) or (C, H, W), optional
        The shape of an image, which a table needs. An array must agree with it.

    Examples
    --------
    >>> rows, layout = read_images(np.zeros((5, 2, 3)))
    >>> rows.shape, layout.planes, layout.restore(rows).shape
    ((5, 6), (1, 2, 3), (5, 2, 3))
    """
    X = unmask(X)
    array = np.asarray(X) if isinstance(X, list | tuple) or getattr(X, "ndim", 2) > 2 else X
    n_dims = getattr(array, "ndim", 2)
    if n_dims == 2:
        if image_shape is None:
            raise ValueError(
                "Rows of pixels need image_shape, such as (28, 28). Otherwise pass images as an array of "
                "shape (n_images, H, W) or (n_images, H, W, C)."
            )
        return X, ImageLayout(image_planes(image_shape, array.shape[1]))
    if n_dims not in (3, 4) or 0 in array.shape[1:]:
        raise ValueError(
            "Images must be an array of shape (n_images, H, W) or (n_images, H, W, C), or rows of pixels, "
            f"got the shape {array.shape}."
        )
    images = array[:, None] if n_dims == 3 else np.moveaxis(array, -1, 1)  # (N, C, H, W)
    channels, height, width = images.shape[1:]
    planes = (channels, height, width)
    if image_shape is not None and image_planes(image_shape) != planes:
        raise ValueError(
            f"X has images of the shape (C, H, W) = {planes}, but image_shape, given or learned in fit, is "
            f"{image_planes(image_shape)}."
        )
    return images.reshape(len(images), channels * height * width), ImageLayout(planes, n_dims)


def pixel_features(columns: Sequence[Column], codes: Incomplete) -> FeatureMap:
    """Returns the map from pixels to features: -1 and 1 for two values, from -1 to 1 for grey levels.

    Other numbers are standardised, in the same way for all pixels. No binary pixel has the value 0.
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
    """Returns the number of evenly spaced values of a pixel, None if a pixel can be any number."""
    step = column.code_step
    if step is None:
        return None
    low, high = column.code_bounds()
    return round((high - low) / step) + 1


def _numbers(raw: RawColumn) -> Floats:
    if raw.storage not in ("number", "boolean"):
        raise SchemaError(
            f"Column {raw.name!r} of dtype {raw.dtype} does not contain numbers, which pixels must be."
        )
    seen = raw.values[~np.isnan(raw.values)]
    if not np.isfinite(seen).all():
        raise SchemaError(
            f"Column {raw.name!r} contains infinity, which is not a pixel value; replace it by NaN."
        )
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
    """Returns the step between grey levels: 1 for integers, 1/255 for its multiples, None otherwise."""
    if np.all(values == np.round(values)) and values[-1] - values[0] < MOST_SHADES:
        return 1.0
    shades = values * (MOST_SHADES - 1)
    if values[0] >= 0 and values[-1] <= 1 and np.all(np.abs(shades - np.round(shades)) < _NEAR):
        return 1 / (MOST_SHADES - 1)
    return None
