"""The XML of a worksheet: its cells as they are written, and a copy in which some cells are replaced."""

import re
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from halfseen.files.workbook import element_end, local, parse_xml, start_tag

MAX_ROWS, MAX_COLUMNS = 1_048_576, 16_384
"""The size of a sheet (ECMA-376, and what spreadsheet programs accept)."""

TYPES = ("n", "s", "str", "inlineStr", "b", "e", "d")
"""The types of cells: numbers, shared texts, results of formulas, other texts, booleans, errors, dates."""

_STEP = MAX_COLUMNS + 1
_AT_ONCE = 1 << 16  # values that are collected before they are packed
_ADDRESS = re.compile(r"([A-Z]{1,3})([1-9]\d{0,6})")
_SPANS = re.compile(rb"""\s+spans\s*=\s*(?:"[^"]*"|'[^']*')""")

Range = tuple[int, int, int, int]
"""First row, first column, last row, last column, counted from 1."""


class _Enough(Exception):
    """The rows that were asked for have been read."""


@dataclass
class SheetXml:
    """The cells of a worksheet as they are written, one entry for each cell that is stored."""

    data: bytes  # the XML
    # Where the cells are, counted from 1.
    rows: "array[int]" = field(default_factory=lambda: array("i"))
    columns: "array[int]" = field(default_factory=lambda: array("i"))
    # The types of the cells, by their place in `TYPES`.
    types: "array[int]" = field(default_factory=lambda: array("b"))
    chunks: list[pa.Array] = field(default_factory=list)  # their values; null if there is none
    # The number of their style; -1 if there is none.
    styles: "array[int]" = field(default_factory=lambda: array("i"))
    formulas: "array[int]" = field(default_factory=lambda: array("b"))  # whether the cell contains a formula
    # The place of the begin of each cell in the XML, and that of its end tag; only for a copy.
    starts: "array[int]" = field(default_factory=lambda: array("q"))
    ends: "array[int]" = field(default_factory=lambda: array("q"))
    # The number of each row that is stored, and the places of its begin and of its end tag.
    lines: "array[int]" = field(default_factory=lambda: array("q"))
    line_starts: "array[int]" = field(default_factory=lambda: array("q"))
    line_ends: "array[int]" = field(default_factory=lambda: array("q"))
    # Merged cells and the results of formulas for several cells.
    held: list[Range] = field(default_factory=list)
    end: int = 0  # where the rows end
    prefix: str = ""  # what stands before the names of elements

    @cached_property
    def values(self) -> pa.Array:
        """The values of the cells as they are written; null if there is none."""
        return pa.concat_arrays([*self.chunks, pa.array([], pa.large_string())])

    @cached_property
    def keys(self) -> npt.NDArray[np.int64]:
        """Numbers that grow from cell to cell."""
        return np.asarray(self.rows, dtype=np.int64) * _STEP + np.asarray(self.columns)

    def find(self, rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the entries of cells, -1 where a cell is not stored."""
        wanted = rows * _STEP + columns
        if len(self.keys) == 0:
            return np.full(len(wanted), -1)
        place = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[place] == wanted, place, -1)


class _Reader:
    """Collects the cells of a worksheet while its XML is parsed."""

    def __init__(self, sheet: SheetXml, max_rows: int | None, blanks: bool) -> None:
        self.sheet, self.max_rows, self.blanks = sheet, max_rows, blanks
        self.parser: Any = None
        self.row = self.column = 0
        self.inside = self.reads = self.has_value = self.phonetic = False
        self.parts: list[str] = []
        self.numbers: dict[str, int] = {}
        self.tags: dict[str, str] = {}
        self.type, self.style, self.formula, self.begin, self.line = 0, -1, False, 0, 0
        self.values: list[str | None] = []

    def watch(self, parser: Any) -> None:
        self.parser = parser

    def start(self, name: str, attributes: dict[str, str]) -> None:
        tag = self.tags.get(name) or self.tags.setdefault(name, local(name))
        if tag == "c" and self.inside:
            self._begin_cell(attributes)
        elif tag in ("v", "t") and self.inside and not self.phonetic:
            self.reads = self.has_value = True
        elif tag == "f" and self.inside:
            self.formula = True
            if attributes.get("t") in ("array", "dataTable") and "ref" in attributes:
                self.sheet.held.append(parse_range(attributes["ref"]))
        elif tag == "rPh":
            self.phonetic = True  # how a Japanese text is pronounced
        elif tag == "row" and self.inside:
            self._begin_row(attributes)
        elif tag == "sheetData":
            self.inside, self.sheet.prefix = True, name[: len(name) - len(tag)]
        elif tag == "mergeCell":
            self.sheet.held.append(parse_range(attributes["ref"]))

    def _begin_row(self, attributes: dict[str, str]) -> None:
        number = int(attributes["r"]) if "r" in attributes else self.row + 1
        if not self.row < number <= MAX_ROWS:
            raise ValueError(f"row {number} after row {self.row}")
        if self.max_rows is not None and len(self.sheet.lines) == self.max_rows:
            raise _Enough
        self.row, self.column, self.line = number, 0, self.parser.CurrentByteIndex

    def _begin_cell(self, attributes: dict[str, str]) -> None:
        address, before = attributes.get("r"), self.column
        if address is None:
            self.column += 1
        else:
            letters = address.rstrip("0123456789")
            if letters not in self.numbers:
                self.numbers[letters] = parse_address(f"{letters}1")[1]
            if address[len(letters) :] != str(self.row):
                raise ValueError(f"cell {address} in row {self.row}")
            self.column = self.numbers[letters]
        if not before < self.column <= MAX_COLUMNS:
            raise ValueError(f"row {self.row} has a cell in column {self.column} after column {before}")
        kind = attributes.get("t", "n")
        if kind not in TYPES:
            raise ValueError(f"the type of cell {spell_address(self.row, self.column)} is {kind!r}")
        self.type, self.style = TYPES.index(kind), int(attributes.get("s", -1))
        self.formula = self.has_value = False
        self.begin, self.parts = self.parser.CurrentByteIndex, []

    def pack(self) -> None:
        """Pack the values that were collected."""
        self.sheet.chunks.append(pa.array(self.values, pa.large_string()))
        self.values = []

    def text(self, text: str) -> None:
        if self.reads:
            self.parts.append(text)

    def end(self, name: str) -> None:
        tag = self.tags[name]
        self.reads = False
        if tag == "c" and self.inside:
            if not (self.has_value or self.formula or self.blanks):
                return
            sheet = self.sheet
            sheet.rows.append(self.row)
            sheet.columns.append(self.column)
            sheet.types.append(self.type)
            self.values.append("".join(self.parts) if self.has_value else None)
            if len(self.values) == _AT_ONCE:
                self.pack()
            sheet.styles.append(self.style)
            sheet.formulas.append(self.formula)
            if self.blanks:
                sheet.starts.append(self.begin)
                sheet.ends.append(self.parser.CurrentByteIndex)
        elif tag == "rPh":
            self.phonetic = False
        elif tag == "row" and self.inside:
            self.sheet.lines.append(self.row)
            self.sheet.line_starts.append(self.line)
            self.sheet.line_ends.append(self.parser.CurrentByteIndex)
        elif tag == "sheetData":
            self.inside, self.sheet.end = False, self.parser.CurrentByteIndex


def parse_sheet(data: bytes, where: str, max_rows: int | None = None, *, blanks: bool = False) -> SheetXml:
    """Return the cells of a worksheet.

    Parameters
    ----------
    data : bytes
        Its XML.
    where : str
        The file and the sheet, for messages.
    max_rows : int, optional
        The number of rows to read.
    blanks : bool
        Whether cells are needed that have a style alone, as in a copy, where they may be filled.
    """
    sheet = SheetXml(data)
    reader = _Reader(sheet, max_rows, blanks)
    try:
        parse_xml(data, where, reader.start, reader.end, reader.text, reader.watch)
    except _Enough:
        pass  # only the first rows were asked for
    reader.pack()
    return sheet


def parse_address(text: str) -> tuple[int, int]:
    """Return the row and the column of a cell.

    Examples
    --------
    >>> parse_address("AB12")
    (12, 28)
    """
    found = _ADDRESS.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not the address of a cell")
    column = 0
    for letter in found[1]:
        column = 26 * column + ord(letter) - 64
    return int(found[2]), column


def parse_range(text: str) -> Range:
    """Return the first and the last row and column of a range such as ``B2:C5``."""
    first, _, last = text.replace("$", "").partition(":")
    return *parse_address(first), *parse_address(last or first)


def spell_column(number: int) -> str:
    """Return the letters of a column.

    Examples
    --------
    >>> spell_column(28)
    'AB'
    """
    letters = ""
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(65 + rest) + letters
    return letters


def spell_address(row: int, column: int) -> str:
    """Return the address of a cell, such as ``B2``."""
    return f"{spell_column(column)}{row}"


# ------------------------------------------------------------------------------------------ a changed copy


@dataclass(frozen=True, slots=True)
class NewCell:
    """A cell to write."""

    # Where, counted from 1.
    row: int
    column: int
    markup: str  # its XML from the end of the attributes that are the same for all types
    style: int = -1  # the number of its style; -1 for none

    def spell(self, prefix: str) -> bytes:
        """Return the element; characters outside ASCII are numbered, so that any encoding holds them."""
        style = f' s="{self.style}"' if self.style >= 0 else ""
        text = f'<{prefix}c r="{spell_address(self.row, self.column)}"{style}{self.markup}'
        return text.encode("ascii", "xmlcharrefreplace")


def replace_cells(sheet: SheetXml, cells: Sequence[NewCell]) -> bytes:
    """Return the XML of a worksheet in which some cells are replaced or added; all else stays as it is.

    Parameters
    ----------
    sheet : SheetXml
        The worksheet, with all its rows and blank cells.
    cells : sequence of NewCell
        The cells to write, each at most once.
    """
    ordered = sorted(cells, key=lambda cell: (cell.row, cell.column))
    places = sheet.find(
        np.array([cell.row for cell in ordered], dtype=np.int64),
        np.array([cell.column for cell in ordered], dtype=np.int64),
    )
    edits: list[tuple[int, int, bytes]] = []
    fresh: dict[int, list[NewCell]] = {}
    for cell, place in zip(ordered, places.tolist(), strict=True):
        if place < 0:
            fresh.setdefault(cell.row, []).append(cell)
        else:
            stop = element_end(sheet.data, sheet.starts[place], sheet.ends[place])
            edits.append((sheet.starts[place], stop, cell.spell(sheet.prefix)))
    for row, added in fresh.items():
        line = bisect_left(sheet.lines, row)
        if line < len(sheet.lines) and sheet.lines[line] == row:
            edits.extend(_extend_row(sheet, line, added))
        else:
            before = sheet.line_starts[line] if line < len(sheet.lines) else sheet.end
            edits.append((before, before, _spell_row(sheet.prefix, row, added)))
    return _apply(sheet.data, edits)


def _apply(data: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    pieces, done = [], 0
    # Sorting is stable: insertions keep their order.
    for start, stop, content in sorted(edits, key=lambda edit: edit[:2]):
        pieces += [data[done:start], content]
        done = stop
    return b"".join([*pieces, data[done:]])


def _spell_row(prefix: str, row: int, cells: Sequence[NewCell]) -> bytes:
    inner = b"".join(cell.spell(prefix) for cell in cells)
    return b'<%srow r="%d">%s</%srow>' % (prefix.encode(), row, inner, prefix.encode())


def _extend_row(sheet: SheetXml, line: int, cells: Sequence[NewCell]) -> list[tuple[int, int, bytes]]:
    """Return the edits that add cells to a row, in the order of columns."""
    number, start, end = sheet.lines[line], sheet.line_starts[line], sheet.line_ends[line]
    whole = start_tag(sheet.data, start)
    tag, stop = _SPANS.sub(b"", whole), start + len(whole)  # the spans of columns are a hint, not needed
    if tag.endswith(b"/>"):
        inner = b"".join(cell.spell(sheet.prefix) for cell in cells)
        return [(start, stop, b"%s>%s</%srow>" % (tag[:-2], inner, sheet.prefix.encode()))]
    edits = [(start, stop, tag)]
    first, last = np.searchsorted(sheet.keys, [number * _STEP, (number + 1) * _STEP]).tolist()
    there = (sheet.keys[first:last] - number * _STEP).tolist()
    for cell in cells:
        place = bisect_left(there, cell.column)
        before = end if place == len(there) else sheet.starts[first + place]
        edits.append((before, before, cell.spell(sheet.prefix)))
    return edits
