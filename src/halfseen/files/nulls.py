"""One representation of missing cells: NaN, and nulls within dictionaries, are converted to plain nulls."""

from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halfseen.files.cells import kind_of
from halfseen.files.rules import Rules
from halfseen.files.sentinels import is_any_of, is_number


def spell_nulls(table: pa.Table) -> pa.Table:
    """Return the table with null, and nothing else, where a cell is missing."""
    for position, column in enumerate(table.columns):
        if pa.types.is_floating(column.type):
            new = _without_nan(column)
        elif pa.types.is_dictionary(column.type):
            new = pa.chunked_array([_without_null_value(chunk) for chunk in column.chunks], column.type)
        else:
            continue
        table = table.set_column(position, table.schema.field(position).with_nullable(True), new)
    return table


def _without_nan(column: pa.ChunkedArray) -> pa.ChunkedArray:
    missing = pc.is_null(column, nan_is_null=True)
    if pc.sum(missing).as_py() in (None, column.null_count):
        return column
    return pc.if_else(missing, pa.scalar(None, column.type), column)


def _without_null_value(array: pa.DictionaryArray) -> pa.DictionaryArray:
    missing = pc.is_null(array.dictionary, nan_is_null=True).to_numpy(zero_copy_only=False)
    if not missing.any():
        return array
    position = pa.array(np.cumsum(~missing) - 1, mask=missing)
    indices = position.take(array.indices).cast(array.indices.type)
    values = array.dictionary.filter(pa.array(~missing))
    return pa.DictionaryArray.from_arrays(indices, values, ordered=array.type.ordered)


def blank_codes(table: pa.Table, rules: Rules) -> pa.Table:
    """Return typed columns without the values that mean missing by the options of the user."""
    for place, field in enumerate(table.schema):
        texts = [text for text in (*rules.nulls, *rules.of(field.name).nulls) if text]
        if not texts or pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
            continue
        coded = _is_coded(table.column(place), texts)
        if pc.any(coded).as_py():
            column = pc.if_else(coded, pa.scalar(None, field.type), table.column(place))
            table = table.set_column(place, field.with_nullable(True), column)
    return table


def _is_coded(column: pa.ChunkedArray, texts: list[str]) -> pa.ChunkedArray:
    """Return which cells hold one of the values: numbers and dates by value, others by their text."""
    by_value = equals_codes(column, texts)
    if by_value is not None and kind_of(column.type) in ("integer", "float"):
        return by_value
    by_text = is_any_of(column.cast(pa.large_string()), texts)
    return by_text if by_value is None else pc.or_(by_text, by_value)


def equals_codes(values: Any, texts: Sequence[str]) -> Any:
    """Return which numbers or dates equal one that a user gave as text; None if they are neither.

    A date such as 1900-01-01 stands for all times of the day.
    """
    kind = kind_of(values.type)
    if kind in ("integer", "float"):
        codes = pa.array([float(text) for text in texts if is_number(text)], pa.float64())
        return pc.is_in(values.cast(pa.float64(), safe=False), value_set=codes)
    if kind in ("date", "timestamp"):
        days = pa.array([day for text in texts if (day := _parse_day(text)) is not None], pa.date32())
        return pc.is_in(values.cast(pa.date32(), safe=False), value_set=days)
    return None


def _parse_day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None
