"""Spreadsheets (xlsx): one sheet of a workbook as a table."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halfseen.errors import TableError
from halfseen.files.csv_tables import check_names
from halfseen.files.distinct import Mask, as_mask
from halfseen.files.expansion import Expansion, check_cells
from halfseen.files.records import is_no_accident
from halfseen.files.sheet_cells import (
    BLANK,
    TEXT,
    Integers,
    SheetCells,
    count_shared,
    read_cells,
    refuse_without_results,
)
from halfseen.files.sheet_xml import TYPES, SheetXml, parse_sheet, spell_address
from halfseen.files.table_file import SheetOrigin
from halfseen.files.workbook import Sheet, Workbook, open_workbook

_FIRST_ROWS = 50  # which show whether a sheet holds a table, and where its header is
_SPARSE, _SMALL = 1000, 1_000_000
"""A table of more than a million cells, a thousand for each that is stored, is not one: a guess, far off."""

_SHOWN = 3
_TEXT_TYPES = ("s", "str", "inlineStr")
_EMPTY = pa.scalar("", pa.large_string())


@dataclass(frozen=True)
class SheetTable:
    """The table of a sheet.

    Parameters
    ----------
    cells : pyarrow.Table
        The cells as texts; empty where nothing is stored.
    origin : SheetOrigin
        Where they were.
    notes : tuple of str
        Which sheet and which rows were read.
    fixed : dict of str to numpy.ndarray of bool
        Cells that are never filled, by column: formulas and merged cells.
    blank : numpy.ndarray of bool
        Rows between others that have no value and are not filled either.
    """

    cells: pa.Table
    origin: SheetOrigin
    notes: tuple[str, ...]
    fixed: dict[str, Mask]
    blank: Mask

    def hold(
        self, table: pa.Table, kept: dict[str, pa.Array]
    ) -> tuple[SheetOrigin, dict[str, pa.Array], list[str]]:
        """Return the origin, the missing cells that stay as they are, and sentences about them.

        Parameters
        ----------
        table : pyarrow.Table
            The typed columns.
        kept : dict of str to pyarrow.Array
            Cells that are not missing although they are null.
        """
        held, texts, first, count = {}, set(), "", 0
        for name, column in zip(table.column_names, table.columns, strict=True):
            missing = as_mask(column.is_null().combine_chunks())
            if name in kept:
                missing &= ~as_mask(kept[name])
            fixed = missing & self.fixed[name]
            if fixed.any() and not first:
                row = int(np.flatnonzero(fixed)[0]) + self.origin.header_row + 1
                first = spell_address(row, self.origin.columns[name])
            count += int(fixed.sum())
            if (missing & (fixed | self.blank)).any():
                held[name] = pa.array(missing & (fixed | self.blank))
            kinds = self.origin.kinds[name][~missing]
            if (kinds == TEXT).sum() > (kinds != TEXT).sum():
                texts.add(name)
        notes = []
        if count:
            what = "cell without a value is" if count == 1 else "cells without a value are"
            notes.append(
                f"{count:,} {what} the result of a formula or part of merged cells, such as {first}: left as "
                f"{'it is' if count == 1 else 'they are'} and not imputed"
            )
        return replace(self.origin, texts=frozenset(texts)), held, notes


def parse_spreadsheet(
    data: bytes, bound: Expansion, title: str | None = None, *, keep_empty: bool = False
) -> SheetTable:
    """Return the table of a sheet.

    Parameters
    ----------
    data : bytes
        The content of the file.
    bound : Expansion
        Its name, and what its content may take.
    title : str, optional
        The name of the sheet; by default, the only one that holds a table.
    keep_empty : bool
        Whether rows without any value between others are filled like others.
    """
    source = bound.source
    book = open_workbook(data, source, bound)
    sheet, notes = _choose_sheet(book, title)
    where = f"{source}: sheet {sheet.title!r}"
    written = _parse(book, sheet)
    bound.check(count_shared(written, book))
    cells = read_cells(written, book, where)
    if len(cells.rows) == 0:
        raise TableError(f"{where} is empty")
    header_row = _find_header(cells.rows, cells.kinds == TEXT)
    if header_row > cells.rows[0]:
        notes.append(
            f"the rows above row {header_row} of sheet {sheet.title!r} are not part of the table: not read"
        )
    cells = cells.where(cells.rows >= header_row)
    refuse_without_results(cells, where)
    table, columns, kinds = _arrange(cells, header_row, where, bound)
    check_names(table.column_names, source)
    fixed = _find_fixed(cells, header_row, table.num_rows, columns)
    blank = np.logical_and.reduce([one == BLANK for one in kinds.values()])
    if keep_empty or not is_no_accident(table, blank):
        blank = np.zeros_like(blank)
    elif blank.any():
        notes.append(_say_blank(np.flatnonzero(blank) + header_row + 1))
    origin = SheetOrigin(data, sheet.title, header_row, columns, kinds, frozenset())
    return SheetTable(table, origin, tuple(notes), fixed, blank)


def _say_blank(rows: Integers) -> str:
    if len(rows) == 1:
        return f"row {rows[0]} is blank: kept and not imputed; --fill-all imputes it"
    more = f" and {len(rows) - _SHOWN:,} more" if len(rows) > _SHOWN else ""
    shown = ", ".join(str(row) for row in rows[:_SHOWN])
    return f"rows {shown}{more} are blank: kept and not imputed; --fill-all imputes them"


# ------------------------------------------------------------------------------------------ which sheet


def find_sheet(book: Workbook, title: str) -> Sheet:
    """Return the worksheet with a name."""
    found = next((sheet for sheet in book.sheets if sheet.title == title), None)
    if found is None:
        raise TableError(f"{book.source}: no sheet {title!r}; there are {_list(book.sheets)}")
    if found.is_chart:
        raise TableError(f"{book.source}: sheet {title!r} is a chart and has no cells")
    return found


def _choose_sheet(book: Workbook, title: str | None) -> tuple[Sheet, list[str]]:
    """Return the sheet that was asked for, or the only one that holds a table; and notes."""
    if title is not None:
        return find_sheet(book, title), []
    worksheets = [sheet for sheet in book.sheets if not sheet.is_chart]
    if not worksheets:
        raise TableError(f"{book.source}: the workbook has charts only, and no sheet with cells")
    worksheets = [sheet for sheet in worksheets if not sheet.hidden] or worksheets
    if len(worksheets) > 1:
        grades = [_grade(_parse(book, sheet, _FIRST_ROWS)) for sheet in worksheets]
        if max(grades) == 0:
            raise TableError(f"{book.source}: none of the sheets {_list(worksheets)} holds a table")
        best = [sheet for sheet, grade in zip(worksheets, grades, strict=True) if grade == max(grades)]
        if len(best) > 1:
            raise TableError(
                f"{book.source}: {len(best)} sheets hold tables, {_list(best)}: choose one by --sheet"
            )
        worksheets = best
    others = len(book.sheets) - 1
    many = f"the {others} other sheets are" if others > 1 else "the other sheet is"
    return worksheets[0], [f"sheet {worksheets[0].title!r} is read; {many} not"] if others else []


def _list(sheets: Sequence[Sheet]) -> str:
    return ", ".join(repr(sheet.title) for sheet in sheets)


def _grade(sheet: SheetXml) -> int:
    """Return 2 if a sheet begins with a header and values below it, 1 if it has rows, else 0."""
    filled = ~as_mask(pc.equal(pc.fill_null(pc.utf8_trim_whitespace(sheet.values), ""), ""))
    filled |= np.asarray(sheet.formulas, dtype=bool)
    rows, columns = np.asarray(sheet.rows)[filled], np.asarray(sheet.columns)[filled]
    if len(np.unique(rows)) < 2:
        return 0
    texts = np.isin(sheet.types, [TYPES.index(one) for one in _TEXT_TYPES])[filled]
    header_row = _find_header(rows, texts)
    n_columns = len(np.unique(columns[rows >= header_row]))
    is_named = 2 * (rows == header_row).sum() > n_columns
    return 2 if n_columns > 1 and is_named and rows[-1] > header_row else 1


def _parse(book: Workbook, sheet: Sheet, max_rows: int | None = None) -> SheetXml:
    where = f"{book.source}: sheet {sheet.title!r}"
    if sheet.part is None:
        raise TableError(f"{where} is listed in the workbook, but not stored in it")
    return parse_sheet(book.part(sheet.part), where, max_rows)


# ------------------------------------------------------------------------------------------ its table


def _find_header(rows: Integers, texts: Mask) -> int:
    """Return the row of the names: the first, or the first wide one below titles, which have few cells.

    Parameters
    ----------
    rows : numpy.ndarray
        The rows of the cells, in their order.
    texts : numpy.ndarray of bool
        Which cells are text.
    """
    numbers, counts = (some[:_FIRST_ROWS] for some in np.unique(rows, return_counts=True))
    wide = 2 * counts > counts.max()
    if wide[0]:
        return int(numbers[0])
    first = int(numbers[np.flatnonzero(wide)[0]])
    there = rows == first
    return first if 2 * (texts & there).sum() > there.sum() else int(numbers[0])


def _arrange(
    cells: SheetCells, header_row: int, where: str, bound: Expansion
) -> tuple[pa.Table, dict[str, int], dict[str, np.ndarray]]:
    """Return the texts, the columns of the sheet and the kinds of cells, by the names of the columns."""
    is_name = cells.rows == header_row
    header, body = cells.where(is_name), cells.where(~is_name).with_short_dates()
    header = header.with_short_dates()
    n_rows = int(body.rows[-1]) - header_row if len(body.rows) else 0
    used = np.unique(cells.columns)
    if n_rows * len(used) > max(_SMALL, _SPARSE * len(cells.rows)):
        last = spell_address(int(body.rows[-1]), int(body.columns[-1]))
        raise TableError(
            f"{where}: the table would have {n_rows:,} rows and {len(used):,} columns, of which "
            f"{len(cells.rows):,} cells are filled; delete what does not belong to it, such as cell {last}"
        )
    check_cells(n_rows, len(used), bound)
    texts = dict(zip(header.columns.tolist(), header.texts.to_pylist(), strict=True))
    arrays, columns, kinds = [], {}, {}
    order = np.argsort(body.columns, kind="stable")
    starts = np.searchsorted(body.columns[order], [*used, used[-1] + 1])
    names = [_name(texts.get(number), place) for place, number in enumerate(used.tolist(), start=1)]
    for place, (name, number) in enumerate(zip(names, used.tolist(), strict=True)):
        own = order[starts[place] : starts[place + 1]]
        rows = body.rows[own] - header_row - 1
        places = np.full(n_rows, -1)
        places[rows] = own
        found = body.texts.take(pa.array(places, mask=places < 0))
        arrays.append(pc.fill_null(found, _EMPTY))
        kinds[name] = np.full(n_rows, BLANK, dtype=np.int8)
        kinds[name][rows] = body.kinds[own]
        columns[name] = number
    return pa.table(arrays, names=names), columns, kinds


def _name(text: str | None, place: int) -> str:
    return text if text is not None and text.strip() else f"column_{place}"


def _find_fixed(cells: SheetCells, header_row: int, n_rows: int, columns: dict[str, int]) -> dict[str, Mask]:
    """Return which cells are the results of formulas or parts of merged cells, by column."""
    fixed = {name: np.zeros(n_rows, dtype=bool) for name in columns}
    names = {number: name for name, number in columns.items()}
    below = np.flatnonzero(cells.formulas & (cells.rows > header_row))
    below = below[np.argsort(cells.columns[below], kind="stable")]
    found, starts = np.unique(cells.columns[below], return_index=True)
    for number, (start, stop) in zip(found.tolist(), pairwise([*starts, len(below)]), strict=True):
        fixed[names[number]][cells.rows[below[start:stop]] - header_row - 1] = True
    numbers = np.array(list(names))
    for first_row, first, last_row, last in cells.held:
        for number in numbers[(numbers >= first) & (numbers <= last)].tolist():
            start, stop = max(first_row - header_row - 1, 0), max(last_row - header_row, 0)
            fixed[names[number]][start:stop] = True
    return fixed
