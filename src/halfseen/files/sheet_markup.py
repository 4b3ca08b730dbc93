"""Values as the XML of the cells of a worksheet: numbers with all their digits, text that is never a formula.

A column that a sheet cannot hold as numbers or dates is written as text: whole numbers beyond 2^53, which
spreadsheet programs round, times with a zone or with microseconds, and dates before March 1900.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halfseen.errors import TableError
from halfseen.files.distinct import Mask, as_mask
from halfseen.files.sheet_xml import MAX_COLUMNS, MAX_ROWS
from halfseen.files.workbook import CellFormat

MAX_CHARACTERS = 32_767
"""The length of the text of a cell, in units of UTF-16, that spreadsheet programs accept."""

MS_PER_DAY = 86_400_000
DAYS_1900, DAYS_1904 = 25_569, 24_107
"""The number of 1970-01-01 in workbooks that count days from 1900 or from 1904."""

FIRST_DAY, LAST_DAY = 61, 2_958_465
"""1900-03-01, before which the counting of days includes a day that did not exist, and 9999-12-31."""

_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
_MAX_WHOLE = 2**53
_MAX_DIGITS = 15  # of a decimal number that a double holds
_UNSTORABLE = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x{fffe}\x{ffff}]"
_EMPTY = pa.scalar("", pa.large_string())


@dataclass(frozen=True)
class Written:
    """The cells of a column as XML.

    Parameters
    ----------
    cells : pyarrow.Array
        The markup of each cell; null where it is empty.
    format : {"", "date", "time", "duration"}
        What the format of the cells must make of numbers.
    fraction : bool
        Whether times have milliseconds.
    clock : bool
        Whether dates have a time.
    """

    cells: pa.Array
    format: CellFormat = ""
    fraction: bool = False
    clock: bool = False


@dataclass(frozen=True)
class Markup:
    """Writes cells of a worksheet whose elements have a prefix, with days counted from an origin.

    Parameters
    ----------
    prefix : str
        What stands before the names of elements.
    origin : int
        The number of 1970-01-01.

    Examples
    --------
    >>> Markup().text(pa.array(["=1+1"], pa.large_string()))[0].as_py()
    ' t="inlineStr"><is><t xml:space="preserve">=1+1</t></is></c>'
    """

    prefix: str = ""
    origin: int = DAYS_1900

    def number(self, texts: pa.Array) -> pa.Array:
        """Return cells with numbers, given as texts."""
        return self._wrap("><{0}v>", texts, "</{0}v></{0}c>")

    def boolean(self, values: pa.Array) -> pa.Array:
        """Return cells with booleans."""
        return self._wrap(' t="b"><{0}v>', pc.if_else(values, "1", "0"), "</{0}v></{0}c>")

    def text(self, texts: pa.Array) -> pa.Array:
        """Return cells with texts, which no program reads as formulas."""
        _check_texts(texts, "the xlsx output", "a cell")
        for plain, spelt in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\r", "&#13;")):
            texts = pc.replace_substring(texts, plain, spelt)
        texts = pc.replace_substring_regex(texts, "_(x[0-9A-Fa-f]{4}_)", r"_x005F_\1")
        before = ' t="inlineStr"><{0}is><{0}t xml:space="preserve">'
        return self._wrap(before, texts, "</{0}t></{0}is></{0}c>")

    def copied(self, kind: str, value: str) -> str:
        """Return a cell with the type and the value of another one."""
        if kind == "inlineStr":
            return str(self.text(pa.array([value], pa.large_string()))[0].as_py())
        value = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return f' t="{kind}"><{self.prefix}v>{value}</{self.prefix}v></{self.prefix}c>'

    def _wrap(self, before: str, texts: pa.Array, after: str) -> pa.Array:
        first, last = (pa.scalar(one.format(self.prefix), pa.large_string()) for one in (before, after))
        return pc.binary_join_element_wise(first, texts.cast(pa.large_string()), last, _EMPTY)

    def column(self, values: pa.Array, texts: pa.Array | None = None) -> Written:
        """Return the cells of a typed column.

        Parameters
        ----------
        values : pyarrow.Array
            Its values; null is an empty cell.
        texts : pyarrow.Array, optional
            How they are spelt, where a sheet cannot hold them as numbers or dates.
        """
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        kind = values.type
        if pa.types.is_boolean(kind):
            return Written(self.boolean(values))
        if pa.types.is_floating(kind):
            finite = pc.if_else(pc.is_finite(values), values, pa.scalar(None, kind))
            return Written(self.number(finite.cast(pa.float64()).cast(pa.large_string())))
        if pa.types.is_integer(kind) and is_exact(values):
            return Written(self.number(values.cast(pa.large_string())))
        if pa.types.is_decimal(kind) and kind.precision <= _MAX_DIGITS:
            return Written(self.number(values.cast(pa.large_string())))
        if pa.types.is_temporal(kind):
            found = self._temporal(values)
            if found is not None:
                return found
        spelt = texts if texts is not None else values.cast(pa.large_string())
        return Written(self.text(pc.if_else(values.is_valid(), spelt, pa.scalar(None, spelt.type))))

    def _temporal(self, values: pa.Array) -> Written | None:
        """Return cells with dates or times; None if a sheet cannot hold them in milliseconds."""
        kind = values.type
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            return None
        if kind in (pa.date32(), pa.date64()):
            values = values.cast(pa.timestamp("ms"))
        whole = pc.fill_null(_as_int64(values), 0).to_numpy(zero_copy_only=False)
        per_second = _PER_SECOND[values.type.unit]
        if per_second > 1000 and (whole % (per_second // 1000)).any():
            return None
        ms = whole * 1000 if per_second == 1 else whole // (per_second // 1000)
        numbers = ms / MS_PER_DAY
        is_point = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
        if is_point:
            numbers = ms // MS_PER_DAY + self.origin + (ms % MS_PER_DAY) / MS_PER_DAY
            days = np.where(values.is_valid().to_numpy(zero_copy_only=False), numbers, FIRST_DAY)
            first = FIRST_DAY - DAYS_1900 + self.origin
            if (days < first).any() or (days >= LAST_DAY + 1 - DAYS_1900 + self.origin).any():
                return None
        texts = pa.array(numbers).cast(pa.large_string())
        texts = pc.if_else(values.is_valid(), texts, pa.scalar(None, texts.type))
        form: CellFormat = "date" if is_point else "time" if pa.types.is_time(kind) else "duration"
        clock = not is_point or pa.types.is_timestamp(kind)
        return Written(self.number(texts), form, bool((ms % 1000).any()), clock)


def _as_int64(values: pa.Array) -> pa.Array:
    return values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64()).cast(pa.int64())


def round_times(values: pa.Array, filled: Mask) -> pa.Array:
    """Return times of which those that were filled have whole seconds or milliseconds, like the others.

    A sheet cannot hold microseconds, which imputed times have and observed ones mostly do not.

    Parameters
    ----------
    values : pyarrow.Array
        The column.
    filled : numpy.ndarray of bool
        The cells that were missing.
    """
    unit = getattr(values.type, "unit", None)
    if not pa.types.is_temporal(values.type) or unit not in _PER_SECOND:
        return values
    whole = pc.fill_null(_as_int64(values), 0).to_numpy(zero_copy_only=False)
    for step in (_PER_SECOND[unit], _PER_SECOND[unit] // 1000):
        if step > 1 and not (whole[~filled] % step).any():
            new = pa.array(np.where(filled, whole - whole % step, whole), mask=~as_mask(values.is_valid()))
            return (new.cast(pa.int32()) if values.type.bit_width == 32 else new).cast(values.type)
    return values


def is_exact(values: pa.Array | pa.ChunkedArray) -> bool:
    """Return whether a sheet, whose numbers are doubles, holds whole numbers with all their digits."""
    ends = pc.min_max(values).as_py()
    return ends["min"] is None or max(-ends["min"], ends["max"]) <= _MAX_WHOLE


def check_sheet(table: pa.Table, path: str, n_tables: int = 1) -> None:
    """Raise an error if a sheet cannot hold a table, before the work begins.

    Parameters
    ----------
    table : pyarrow.Table
        The table.
    path : str
        The file to write, for messages.
    n_tables : int
        How many of them are written below each other.
    """
    n_rows, n_columns = table.num_rows * n_tables + 1, table.num_columns + (n_tables > 1)
    if n_rows > MAX_ROWS or n_columns > MAX_COLUMNS:
        raise TableError(
            f"{path}: {n_rows:,} rows and {n_columns:,} columns are too many for a sheet of an xlsx "
            f"file, which has {MAX_ROWS:,} rows and {MAX_COLUMNS:,} columns; write csv or parquet instead"
        )
    _check_texts(pa.array(table.column_names, pa.large_string()), path, "the name of column {0}")
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            _check_texts(column.cast(pa.large_string()), path, f"column {name!r}, row {{0}}")
        elif pa.types.is_floating(kind) and pc.any(pc.is_inf(column)).as_py():
            raise TableError(
                f"{path}: column {name!r} contains infinite numbers, which an xlsx file cannot store"
            )
        elif pa.types.is_interval(kind):
            raise TableError(
                f"{path}: column {name!r} has the type {kind}, which an xlsx file cannot store; write "
                "parquet or feather instead"
            )
        elif pa.types.is_duration(kind) and Markup()._temporal(column.combine_chunks()) is None:
            raise TableError(
                f"{path}: column {name!r} contains durations with microseconds, which an xlsx file cannot "
                "store; write parquet or feather instead"
            )


def _check_texts(texts: pa.Array | pa.ChunkedArray, path: str, where: str) -> None:
    """Raise an error for the first text that is too long or holds characters that XML cannot hold."""
    units = pc.add(pc.utf8_length(texts), pc.count_substring_regex(texts, r"[\x{10000}-\x{10ffff}]"))
    row = _first(pc.greater(units, MAX_CHARACTERS))
    if row is not None:
        raise TableError(
            f"{path}: {where.format(row + 1)}: the text has {units[row].as_py():,} characters, and a cell of "
            f"an xlsx file holds at most {MAX_CHARACTERS:,}; write csv or parquet instead"
        )
    row = _first(pc.match_substring_regex(texts, _UNSTORABLE))
    if row is not None:
        raise TableError(
            f"{path}: {where.format(row + 1)}: the text contains a control character, which an xlsx file "
            "cannot store; remove it, or write csv or parquet instead"
        )


def _first(found: Any) -> int | None:
    place = int(pc.index(pc.fill_null(found, False), True).as_py())
    return None if place < 0 else place
