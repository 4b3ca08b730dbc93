"""Helper functions for the distinct texts of a column and their counts."""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]
CellKind = Literal["integer", "float", "boolean", "date", "timestamp", "text"]


NOTHING: pa.Scalar = pa.nulls(1, pa.large_string())[0]
"""A text that is null."""

EMPTY: pa.Scalar = pa.Array.from_buffers(
    pa.large_string(), 1, [None, pa.py_buffer(bytes(16)), pa.py_buffer(b"")]
)[0]
"""The empty text. It is made of buffers because `pa.scalar` imports pandas, which takes 0.3 s."""


def as_mask(values: pa.Array) -> Mask:
    """Return booleans as an array; null is false."""
    return pc.fill_null(values, False).to_numpy(zero_copy_only=False)


def shown(part: pa.Array) -> Mask:
    """Return which texts are not empty; null is."""
    return as_mask(pc.not_equal(part, pa.scalar("", part.type)))


def any_match(values: pa.Array, pattern: str) -> bool:
    """Return whether a pattern is found in any text."""
    return bool(pc.any(pc.match_substring_regex(values, pattern)).as_py())


def all_match(values: pa.Array, pattern: str) -> bool:
    """Return whether a pattern is found in every text."""
    return bool(pc.all(pc.match_substring_regex(values, pattern)).as_py())


def most_frequent(part: pa.Array, counts: Integers, valid: Mask) -> str:
    """Return the text that most cells show, of those that are valid."""
    if not valid.any():
        return ""
    encoded = part.filter(pa.array(valid)).dictionary_encode()
    weights = np.bincount(encoded.indices.to_numpy(zero_copy_only=False), weights=counts[valid])
    return str(encoded.dictionary[int(weights.argmax())].as_py())


def middle(values: npt.NDArray[Any], counts: Integers) -> float:
    """Return the median over cells of distinct values, the lower one of two."""
    order = np.argsort(values)
    below = np.cumsum(counts[order])
    return float(values[order][np.searchsorted(below, below[-1] / 2)])


def kind_of(dtype: pa.DataType) -> CellKind:
    """Return the kind of a column that already has a type."""
    if pa.types.is_boolean(dtype):
        return "boolean"
    if pa.types.is_integer(dtype):
        return "integer"
    if pa.types.is_floating(dtype):
        return "float"
    if pa.types.is_date(dtype):
        return "date"
    return "timestamp" if pa.types.is_timestamp(dtype) else "text"
