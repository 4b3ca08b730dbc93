"""Spreadsheets (xlsx) as outputs: a copy of the workbook that was read, or a new workbook with one sheet.

In a copy only the cells that were missing are written. Everything else in the file, such as other sheets,
widths, styles, charts and formulas, stays as it is, byte by byte.
"""

import io
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halfseen.errors import TableError
from halfseen.files.csv_tables import splice
from halfseen.files.distinct import EMPTY, Mask, as_mask
from halfseen.files.formats import format_cells
from halfseen.files.sheet_xml import (
    MAX_COLUMNS,
    MAX_ROWS,
    TYPES,
    NewCell,
    SheetXml,
    parse_sheet,
    replace_cells,
    spell_column,
)
from halfseen.files.spreadsheet import NUMBER, TEXT, find_sheet
from halfseen.files.table_file import SheetOrigin, TableFile
from halfseen.files.workbook import (
    DAYS_1900,
    DAYS_1904,
    FIRST_DAY,
    LAST_DAY,
    MS_PER_DAY,
    CellFormat,
    Workbook,
    open_workbook,
)

# ------------------------------------------------------------------------------------------ cells as XML

MAX_CHARACTERS = 32_767
"""The length of the text of a cell, in units of UTF-16, that spreadsheet programs accept."""

_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
_MAX_WHOLE = 2**53
_MAX_DIGITS = 15  # of a decimal number that a double holds
_UNSTORABLE = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x{fffe}\x{ffff}]"


@dataclass(frozen=True)
class Written:
    """The cells of a column as XML."""

    cells: pa.Array  # the markup of each cell; null where it is empty
    format: CellFormat = ""  # what the format of the cells must make of numbers
    fraction: bool = False  # whether times have milliseconds
    clock: bool = False  # whether dates have a time


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
        return pc.binary_join_element_wise(first, texts.cast(pa.large_string()), last, EMPTY)

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


# ------------------------------------------------------------------------------------------ the output

_TEXTS = pa.large_string()
_LIMIT = r"^\s*[<>≤≥]"
_ROWS_AT_ONCE = 10_000


def write_spreadsheet(tables: Iterable[pa.Table], file: BinaryIO, like: TableFile, draw: str | None) -> None:
    """Write completed tables, one below the other; `draw` names a first column that counts them.

    A single table that was read from a workbook is written into a copy of it.
    """
    if draw is None and like.sheet is not None and like.sheet.workbook is not None:
        (table,) = tables
        _write_copy(table, file, like, like.sheet, like.sheet.workbook)
    else:
        _write_new(tables, file, like, draw)


# ------------------------------------------------------------------------------------------ a copy


def _write_copy(table: pa.Table, file: BinaryIO, like: TableFile, origin: SheetOrigin, data: bytes) -> None:
    book = open_workbook(data, like.source)
    sheet = find_sheet(book, origin.title)
    assert sheet.part is not None  # it has been read
    xml = parse_sheet(book.part(sheet.part), f"{like.source}: sheet {sheet.title!r}", blanks=True)
    target = _Target(book, xml, Markup(xml.prefix, DAYS_1904 if book.from_1904 else DAYS_1900), origin, like)
    cells = [
        cell for name in origin.columns if name in table.column_names for cell in target.filled(name, table)
    ]
    added = [name for name in table.column_names if name not in origin.columns]
    for place, name in enumerate(added, start=1):
        cells += target.appended(name, table, max(origin.columns.values()) + place)
    book.write_copy(file, {sheet.part: replace_cells(xml, cells)} | book.to_recalculate() if cells else {})


@dataclass(frozen=True)
class _Target:
    """The sheet of a copy, and the table that was read from it."""

    book: Workbook
    xml: SheetXml
    markup: Markup
    origin: SheetOrigin
    like: TableFile

    def filled(self, name: str, table: pa.Table) -> Iterator[NewCell]:
        """Yield the cells of a column that were missing and are not any more, and those that were erased."""
        given, values, style = self.like.table[name], table[name], self.like.styles[name]
        if name in self.like.erased:
            yield from self._erase(name, np.flatnonzero(as_mask(self.like.erased[name])))
        empty = as_mask(pc.and_(given.is_null(), values.is_valid()).combine_chunks())
        if name in self.like.kept:
            empty &= ~as_mask(self.like.kept[name])
        rows = np.flatnonzero(empty)
        if len(rows) == 0:
            return
        values = _settled(self.like, name, table).filter(pa.array(empty))
        texts = format_cells(values, style)
        if style.kind == "text" or name in self.origin.texts:
            yield from self._levels(name, rows, texts, as_mask(given.is_valid().combine_chunks()))
            return
        written = self._shown(self.markup.column(values, texts), texts)
        cells = written.cells
        if style.limits:
            limited = pc.match_substring_regex(texts, _LIMIT)
            cells = pc.if_else(limited, self.markup.text(texts), cells)
        yield from self._place(name, rows, cells, written.format)

    def _erase(self, name: str, rows: np.ndarray) -> Iterator[NewCell]:
        """Yield cells without a value, each with the style of its place."""
        column, places = self.origin.columns[name], self.origin.rows[rows]
        entries = self.xml.find(places, np.full(len(places), column))
        for row, entry in zip(places.tolist(), entries.tolist(), strict=True):
            yield NewCell(row, column, "/>", self.xml.styles[entry] if entry >= 0 else -1)

    def _shown(self, written: Written, texts: pa.Array) -> Written:
        """Return cells as texts if the workbook has no style that shows them as dates."""
        if written.format and self._any_style(written.format) < 0:
            return Written(self.markup.text(texts))
        return written

    def _any_style(self, form: CellFormat) -> int:
        """Return the first style of the workbook with a format; -1 if there is none."""
        formats = self.book.formats
        return formats.index(form) if form in formats else -1

    def _levels(self, name: str, rows: np.ndarray, texts: pa.Array, observed: Mask) -> Iterator[NewCell]:
        """Yield cells that hold what an observed cell with the same text holds, or else a text."""
        assert self.like.text is not None
        known = np.flatnonzero(observed)
        seen = self.like.text[name].take(pa.array(known))
        levels = texts.unique()
        firsts = pc.index_in(levels, value_set=seen)
        sources = known[pc.fill_null(firsts, 0).to_numpy()] if len(known) else np.zeros(len(levels), np.int64)
        entries = self.xml.find(self.origin.rows[sources], np.full(len(levels), self.origin.columns[name]))
        cells = self.markup.text(levels).to_pylist()
        forms: list[CellFormat] = [""] * len(levels)
        for place in np.flatnonzero(as_mask(firsts.is_valid())).tolist():
            entry = int(entries[place])
            value = self.xml.values[entry].as_py() or ""
            cells[place] = self.markup.copied(TYPES[self.xml.types[entry]], value)
            forms[place] = self._format(self.xml.styles[entry])
        level = pc.index_in(texts, value_set=levels).to_numpy()
        for form in dict.fromkeys(forms):
            own = np.array([one == form for one in forms])[level]
            chosen = pa.array(cells, _TEXTS).take(pa.array(level[own]))
            yield from self._place(name, rows[own], chosen, form)

    def _place(self, name: str, rows: np.ndarray, cells: pa.Array, form: CellFormat) -> Iterator[NewCell]:
        """Yield cells in the rows of the table, each with the style of its place if its format fits."""
        column, places = self.origin.columns[name], self.origin.rows[rows]
        entries = self.xml.find(places, np.full(len(places), column))
        usual = self._most_frequent_style(name, form)
        for row, entry, cell in zip(places.tolist(), entries.tolist(), cells.to_pylist(), strict=True):
            own = self.xml.styles[entry] if entry >= 0 else -1
            yield NewCell(row, column, cell, own if own >= 0 and self._format(own) == form else usual)

    def _most_frequent_style(self, name: str, form: CellFormat) -> int:
        """Return the style that most observed cells of a column have, of those with a format.

        If there is none, it is any style for dates, and no style (-1) for other cells.
        """
        observed = np.flatnonzero(as_mask(self.like.table[name].is_valid().combine_chunks()))
        column = np.full(len(observed), self.origin.columns[name])
        entries = self.xml.find(self.origin.rows[observed], column)
        styles = np.asarray(self.xml.styles)[entries[entries >= 0]]
        numbers, counts = np.unique(styles, return_counts=True)
        fits = [place for place, one in enumerate(numbers.tolist()) if self._format(one) == form]
        if fits:
            return int(numbers[max(fits, key=lambda place: counts[place])])
        return self._any_style(form) if form else -1

    def _format(self, style: int) -> CellFormat:
        formats = self.book.formats
        return formats[style] if 0 <= style < len(formats) else ""

    def appended(self, name: str, table: pa.Table, column: int) -> Iterator[NewCell]:
        """Yield the cells of a new column to the right of the table."""
        last = max(self.origin.columns.values())
        entry = int(self.xml.find(np.array([self.origin.header_row]), np.array([last]))[0])
        title = self.markup.text(pa.array([name], _TEXTS))[0].as_py()
        yield NewCell(self.origin.header_row, column, title, self.xml.styles[entry] if entry >= 0 else -1)
        values = _settled(self.like, name, table)
        written = self._shown(self.markup.column(values), values.cast(_TEXTS))
        style = self._any_style(written.format) if written.format else -1
        for row, cell in zip(self.origin.rows.tolist(), written.cells.to_pylist(), strict=True):
            if cell is not None:
                yield NewCell(row, column, cell, style)


def _settled(like: TableFile, name: str, table: pa.Table) -> pa.Array:
    """Return a column with values in place of a dictionary, and with imputed times that a sheet can hold."""
    values = table[name].combine_chunks()
    if pa.types.is_dictionary(values.type):
        return values.dictionary_decode()
    return round_times(values, as_mask(like.table[name].is_null().combine_chunks()))


# ------------------------------------------------------------------------------------------ a new workbook

_STYLES: tuple[tuple[CellFormat, bool, bool, str], ...] = (
    ("date", False, False, "yyyy-mm-dd"),
    ("date", True, False, "yyyy-mm-dd hh:mm:ss"),
    ("date", True, True, "yyyy-mm-dd hh:mm:ss.000"),
    ("time", True, False, "hh:mm:ss"),
    ("time", True, True, "hh:mm:ss.000"),
    ("duration", True, False, "[h]:mm:ss"),
    ("duration", True, True, "[h]:mm:ss.000"),
)
"""The formats of new workbooks: of what, with a time, with milliseconds, and how it is shown."""

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
_TYPES = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_CONTENT = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_FIRST_TIME = (1980, 1, 1, 0, 0, 0)  # equal tables give equal files


def _write_new(tables: Iterable[pa.Table], file: BinaryIO, like: TableFile, draw: str | None) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in _parts().items():
            archive.writestr(_entry(name), _HEAD + content)
        with archive.open(_entry("xl/worksheets/sheet1.xml"), "w") as part:
            part.write(f'{_HEAD}<worksheet xmlns="{_MAIN}"><sheetData>'.encode())
            _write_rows(tables, part, like, draw)
            part.write(b"</sheetData></worksheet>")
    file.write(buffer.getvalue())


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _FIRST_TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def _write_rows(tables: Iterable[pa.Table], part: IO[bytes], like: TableFile, draw: str | None) -> None:
    markup, done = Markup(), 1
    for number, table in enumerate(tables, start=1):
        columns = [_column(table, name, like) for name in table.column_names]
        if draw is not None:
            numbers = pa.repeat(pa.scalar(str(number), _TEXTS), table.num_rows)
            columns.insert(0, Written(markup.number(numbers)))
        if number == 1:
            names = [draw, *table.column_names] if draw is not None else table.column_names
            _write_block(part, [Written(markup.text(pa.array([name], _TEXTS))) for name in names], 0)
        for start in range(0, table.num_rows, _ROWS_AT_ONCE):
            block = [replace(one, cells=one.cells[start : start + _ROWS_AT_ONCE]) for one in columns]
            _write_block(part, block, done + start)
        done += table.num_rows


def _write_block(part: IO[bytes], columns: Sequence[Written], above: int) -> None:
    """Write some rows; `above` is the number of rows above them."""
    numbers = pa.array(range(above + 1, above + 1 + len(columns[0].cells))).cast(_TEXTS)
    cells = []
    for place, column in enumerate(columns, start=1):
        wanted = (column.format, column.clock, column.fraction)
        found = next((number for number, one in enumerate(_STYLES, start=1) if one[:3] == wanted), 0)
        start = pa.scalar(f'<c r="{spell_column(place)}', _TEXTS)
        quote = pa.scalar(f'" s="{found}"' if found else '"', _TEXTS)
        joined = pc.binary_join_element_wise(start, numbers, quote, column.cells, EMPTY)
        cells.append(pc.fill_null(joined, EMPTY))
    first, middle, last = (pa.scalar(one, _TEXTS) for one in ('<row r="', '">', "</row>"))
    rows = pc.binary_join_element_wise(first, numbers, middle, *cells, last, EMPTY)
    part.write("".join(rows.to_pylist()).encode())


def _column(table: pa.Table, name: str, like: TableFile) -> Written:
    """Return the cells of a column: values, or texts where the column has texts to keep."""
    values, markup = _settled(like, name, table), Markup()
    if like.text is None or name not in like.styles:
        return markup.column(values)
    kept, style = like.kept.get(name), like.styles[name]
    texts = splice(like.text[name], like.table[name], table[name], style, kept)
    written = markup.column(values, texts)
    spelt = as_mask(values.is_null()) | (
        as_mask(pc.match_substring_regex(texts, _LIMIT)) & bool(style.limits)
    )
    if kept is not None:
        shown = like.placeholders.get(name)
        spelt |= as_mask(kept) & (True if shown is None else as_mask(shown.is_null()))
    numbers = np.zeros_like(spelt)
    if like.sheet is not None and name in like.sheet.kinds:
        kinds = np.where(as_mask(like.table[name].is_valid().combine_chunks()), like.sheet.kinds[name], -1)
        spelt |= kinds == TEXT
        if name in like.sheet.texts:
            spelt |= kinds == -1
        if style.kind == "text":
            numbers = kinds == NUMBER
    spelt &= as_mask(pc.not_equal(texts, ""))
    cells = pc.if_else(pa.array(spelt), markup.text(texts), written.cells)
    return replace(written, cells=pc.if_else(pa.array(numbers), markup.number(texts), cells))


def _parts() -> dict[str, str]:
    """Return the parts of a new workbook besides its sheet."""
    kinds = {
        "xl/workbook.xml": "sheet.main",
        "xl/worksheets/sheet1.xml": "worksheet",
        "xl/styles.xml": "styles",
    }
    types = "".join(
        f'<Override PartName="/{name}" ContentType="{_CONTENT}.{kind}+xml"/>' for name, kind in kinds.items()
    )
    formats = "".join(
        f'<numFmt numFmtId="{164 + place}" formatCode="{code}"/>' for place, (*_, code) in enumerate(_STYLES)
    )
    numbers = [0, *(164 + place for place in range(len(_STYLES)))]
    cell_formats = "".join(
        f'<xf numFmtId="{one}" fontId="0" fillId="0" borderId="0" xfId="0" applyNumberFormat="1"/>'
        for one in numbers
    )
    package = "application/vnd.openxmlformats-package.relationships+xml"
    return {
        "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        f'<Default Extension="rels" ContentType="{package}"/>'
        f'<Default Extension="xml" ContentType="application/xml"/>{types}</Types>',
        "_rels/.rels": f'<Relationships xmlns="{_RELATIONS}"><Relationship Id="rId1" '
        f'Type="{_TYPES}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_TYPES}"><sheets><sheet name="table" '
        'sheetId="1" r:id="rId1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_RELATIONS}"><Relationship Id="rId1" '
        f'Type="{_TYPES}/worksheet" Target="worksheets/sheet1.xml"/><Relationship Id="rId2" '
        f'Type="{_TYPES}/styles" Target="styles.xml"/></Relationships>',
        "xl/styles.xml": f'<styleSheet xmlns="{_MAIN}"><numFmts count="{len(_STYLES)}">{formats}</numFmts>'
        '<fonts count="1"><font><sz val="11"/><name val="Calibri"/></font></fonts><fills count="2"><fill>'
        '<patternFill patternType="none"/></fill><fill><patternFill patternType="gray125"/></fill></fills>'
        '<borders count="1"><border><left/><right/><top/><bottom/><diagonal/></border></borders>'
        '<cellStyleXfs count="1"><xf numFmtId="0" fontId="0" fillId="0" borderId="0"/></cellStyleXfs>'
        f'<cellXfs count="{len(numbers)}">{cell_formats}</cellXfs><cellStyles count="1"><cellStyle '
        'name="Normal" xfId="0" builtinId="0"/></cellStyles></styleSheet>',
    }
