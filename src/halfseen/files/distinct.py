"""Helper functions for the distinct texts of a column and their counts."""

import re
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from halfseen._arrays import Booleans, Integers

Mask = Booleans
CellKind = Literal["integer", "float", "boolean", "date", "timestamp", "text"]


FEW = 64
"""Columns of up to this many cells are read cell by cell in Python; a guess of where both take as long."""

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


def few_texts(values: pa.Array) -> list[str | None] | None:
    """Return the texts of a short column, or None if it is long or not all of its letters are ASCII.

    A call of pyarrow, which also compiles its pattern, costs as much as some hundred comparisons in Python.
    """
    if len(values) > FEW:
        return None
    texts: list[str | None] = values.to_pylist()
    return texts if "".join(filter(None, texts)).isascii() else None


@lru_cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern of pyarrow for Python, where `$` also matches before a line break at the end."""
    return re.compile(pattern.replace("$", r"\Z"), re.ASCII)


def any_match(values: pa.Array, pattern: str) -> bool:
    """Return whether a pattern without a literal ``$`` is found in any text."""
    if (texts := few_texts(values)) is not None:
        search = compiled(pattern).search
        return any(text is not None and search(text) is not None for text in texts)
    return bool(pc.any(pc.match_substring_regex(values, pattern)).as_py())


def all_match(values: pa.Array, pattern: str) -> bool:
    """Return whether there are texts, and a pattern without a literal ``$`` is found in every one."""
    if (texts := few_texts(values)) is not None:
        search = compiled(pattern).search
        found = [search(text) is not None for text in texts if text is not None]
        return bool(found) and all(found)
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
