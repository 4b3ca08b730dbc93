"""Spreadsheets (xlsx) as outputs: a copy of the workbook that was read, or a new workbook with one sheet.

In a copy only the cells that were missing are written. Everything else in the file, such as other sheets,
widths, styles, charts and formulas, stays as it is, byte by byte.
"""

import io
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import IO, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halfseen.files.cells import format_cells
from halfseen.files.csv_tables import splice
from halfseen.files.distinct import Mask, as_mask
from halfseen.files.sheet_cells import NUMBER, TEXT
from halfseen.files.sheet_markup import DAYS_1900, DAYS_1904, Markup, Written, round_times
from halfseen.files.sheet_xml import TYPES, NewCell, SheetXml, parse_sheet, replace_cells, spell_column
from halfseen.files.spreadsheet import find_sheet
from halfseen.files.table_file import SheetOrigin, TableFile
from halfseen.files.workbook import CellFormat, Workbook, open_workbook

_TEXTS = pa.large_string()
_NOTHING, _EMPTY = pa.scalar(None, _TEXTS), pa.scalar("", _TEXTS)
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
        """Yield the cells of a column that were missing and are not any more."""
        given, values, style = self.like.table[name], table[name], self.like.styles[name]
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
        entries = self.xml.find(
            sources + self.origin.header_row + 1, np.full(len(levels), self.origin.columns[name])
        )
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
        column, places = self.origin.columns[name], rows + self.origin.header_row + 1
        entries = self.xml.find(places, np.full(len(places), column))
        usual = self._usual_style(name, form)
        for row, entry, cell in zip(places.tolist(), entries.tolist(), cells.to_pylist(), strict=True):
            own = self.xml.styles[entry] if entry >= 0 else -1
            yield NewCell(row, column, cell, own if own >= 0 and self._format(own) == form else usual)

    def _usual_style(self, name: str, form: CellFormat) -> int:
        """Return the style that most observed cells of a column have, of those with a format.

        If there is none, it is any style for dates, and no style (-1) for other cells.
        """
        observed = np.flatnonzero(as_mask(self.like.table[name].is_valid().combine_chunks()))
        column = np.full(len(observed), self.origin.columns[name])
        entries = self.xml.find(observed + self.origin.header_row + 1, column)
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
        for row, cell in enumerate(written.cells.to_pylist(), start=self.origin.header_row + 1):
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
        joined = pc.binary_join_element_wise(start, numbers, quote, column.cells, _EMPTY)
        cells.append(pc.fill_null(joined, _EMPTY))
    first, middle, last = (pa.scalar(one, _TEXTS) for one in ('<row r="', '">', "</row>"))
    rows = pc.binary_join_element_wise(first, numbers, middle, *cells, last, _EMPTY)
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
