"""Spreadsheets (xlsx) as inputs: the cells of a sheet as texts, and the table among them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from halfseen._arrays import Floats, Integers
from halfseen.errors import TableError
from halfseen.files.distinct import EMPTY, NOTHING, Mask, as_mask
from halfseen.files.expansion import Expansion, check_cells
from halfseen.files.other_rows import find_totals_and_end, is_no_accident, note_blank_rows
from halfseen.files.sheet_xml import TYPES, Range, SheetXml, parse_sheet, spell_address
from halfseen.files.table_file import SheetOrigin, check_names
from halfseen.files.workbook import (
    DAYS_1900,
    DAYS_1904,
    FIRST_DAY,
    LAST_DAY,
    MS_PER_DAY,
    Sheet,
    Workbook,
    open_workbook,
    unescape,
)
from halfseen.words import Note

# -------------------------------------------------------------------------------------- the cells of a sheet

BLANK, NUMBER, TEXT, BOOLEAN, ERROR, DATE, TIME = range(7)
"""What a cell is."""

_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_WHOLE = r"^(0|-?[1-9]\d*)$"
_PLACE = r"^\d{1,9}$"  # of a shared text
_FORMATS = ("", "date", "time", "duration")
_AT_ONCE = 1 << 17  # cells that are read together
_TEXTS = pa.large_string()


@dataclass(frozen=True)
class SheetCells:
    """The cells of a worksheet that hold something, by rows."""

    # Where they are, counted from 1.
    rows: Integers
    columns: Integers
    texts: pa.Array  # what they hold, as text: `2021-05-28 10:00:00` for a date
    kinds: npt.NDArray[np.int8]  # what they are
    formulas: Mask  # whether a formula gave the value
    held: list[Range]  # merged cells and the results of formulas for several cells

    def where(self, chosen: Mask) -> "SheetCells":
        """Return some of the cells."""
        return SheetCells(
            self.rows[chosen], self.columns[chosen], self.texts.filter(pa.array(chosen)), self.kinds[chosen],
            self.formulas[chosen], self.held,
        )  # fmt: skip

    def with_short_dates(self) -> "SheetCells":
        """Return the cells with dates alone in columns in which every time is midnight."""
        dates = self.kinds == DATE
        if not dates.any():
            return self
        late = dates & ~as_mask(pc.ends_with(self.texts, " 00:00:00"))
        has_clock = np.bincount(self.columns[late], minlength=int(self.columns.max()) + 1) > 0
        short = pa.array(dates & ~has_clock[self.columns])
        texts = pc.if_else(short, pc.utf8_slice_codeunits(self.texts, 0, 10), self.texts)
        return SheetCells(self.rows, self.columns, texts, self.kinds, self.formulas, self.held)


def read_cells(sheet: SheetXml, book: Workbook, where: str) -> SheetCells:
    """Return the cells of a worksheet that hold something.

    Parameters
    ----------
    sheet : SheetXml
        The cells as they are written.
    book : Workbook
        Holds shared texts and formats.
    where : str
        The file and the sheet, for messages.
    """
    formats = np.array([_FORMATS.index(one) for one in book.formats] + [0], dtype=np.int8)
    blocks = [
        _read_block(sheet, slice(start, start + _AT_ONCE), book, formats, where)
        for start in range(0, max(1, len(sheet.rows)), _AT_ONCE)
    ]
    return SheetCells(
        np.concatenate([block.rows for block in blocks]),
        np.concatenate([block.columns for block in blocks]),
        pa.concat_arrays([block.texts for block in blocks]),
        np.concatenate([block.kinds for block in blocks]),
        np.concatenate([block.formulas for block in blocks]),
        sheet.held,
    )


def count_shared(sheet: SheetXml, book: Workbook) -> int:
    """Return the bytes of shared texts in a worksheet, in which each is counted as often as it occurs."""
    shared = sheet.values.filter(pa.array(np.asarray(sheet.types) == 1))
    places = shared.filter(pc.match_substring_regex(shared, _PLACE)).cast(pa.int64()).to_numpy()
    lengths = pc.binary_length(book.strings).to_numpy(zero_copy_only=False)
    counts = np.bincount(places[places < len(lengths)], minlength=len(lengths))
    return int(counts @ lengths.astype(np.int64))


def _read_block(
    sheet: SheetXml, some: slice, book: Workbook, formats: npt.NDArray[np.int8], where: str
) -> SheetCells:
    """Return some of the cells, so that what is computed for them is small."""
    formulas = np.asarray(sheet.formulas[some], dtype=bool)
    raw, types = sheet.values[some], np.asarray(sheet.types[some])
    # A text that is empty is a result; a number that is empty is none.
    absent = as_mask(raw.is_null()) | (as_mask(pc.equal(raw, "")) & ~np.isin(types, (1, 2, 3)))
    chosen = ~absent | formulas
    styles = np.clip(np.asarray(sheet.styles[some], dtype=np.int64), -1, len(formats) - 1)[chosen]
    cells = _Reading(
        np.asarray(sheet.rows[some], dtype=np.int64)[chosen],
        np.asarray(sheet.columns[some], dtype=np.int64)[chosen],
        raw.filter(pa.array(chosen)), types[chosen], formats[styles], book, where,
    )  # fmt: skip
    texts, kinds = cells.read(absent[chosen])
    empty = as_mask(pc.equal(pc.utf8_trim_whitespace(texts), "")) & ~formulas[chosen]
    read = SheetCells(cells.rows, cells.columns, texts, kinds, formulas[chosen], sheet.held)
    return read.where(~empty) if empty.any() else read


def refuse_without_results(cells: SheetCells, where: str) -> None:
    """Raise an error if a formula has no stored result."""
    lacking = np.flatnonzero(cells.formulas & as_mask(cells.texts.is_null()))
    if not len(lacking):
        return
    first = spell_address(int(cells.rows[lacking[0]]), int(cells.columns[lacking[0]]))
    more = f" (and {len(lacking) - 1:,} more)" if len(lacking) > 1 else ""
    raise TableError(
        f"{where}, cell {first}{more}: a formula without a stored result, which is not calculated here; open "
        "the workbook in a spreadsheet program and save it, or replace the formula by its value"
    )


@dataclass(frozen=True)
class _Reading:
    """Turns cells as they are written into texts and kinds."""

    rows: Integers
    columns: Integers
    raw: pa.Array
    types: npt.NDArray[np.int8]
    formats: npt.NDArray[np.int8]
    book: Workbook
    where: str

    def refuse(self, wrong: Mask, why: str) -> None:
        """Raise an error that names the first cell that is wrong."""
        if wrong.any():
            place = int(np.flatnonzero(wrong)[0])
            address = spell_address(int(self.rows[place]), int(self.columns[place]))
            raise TableError(f"{self.where}, cell {address}: {self.raw[place].as_py()!r}: {why}")

    def read(self, absent: Mask) -> tuple[pa.Array, npt.NDArray[np.int8]]:
        texts, kinds = unescape(self.raw), np.full(len(self.rows), TEXT, dtype=np.int8)
        there = ~absent
        shared, booleans = (self.types == 1) & there, (self.types == 4) & there
        numbers, dates = (self.types == 0) & there, (self.types == 6) & there
        kinds[self.types == 5] = ERROR
        texts = _put(texts, shared, self._shared(shared))
        self.refuse(booleans & ~self._is_one_of("0", "1", "true", "false"), "not a boolean")
        true = pa.array(self._is_one_of("1", "true"))
        texts = _put(
            texts, booleans, pc.if_else(true, "true", "false").cast(_TEXTS).filter(pa.array(booleans))
        )
        kinds[booleans] = BOOLEAN
        texts, kinds = self._numbers(texts, kinds, numbers)
        texts, kinds = self._iso_dates(texts, kinds, dates)
        kinds[absent] = BLANK
        return pc.if_else(pa.array(absent), NOTHING, texts), kinds

    def _is_one_of(self, *words: str) -> Mask:
        return as_mask(pc.is_in(self.raw, value_set=pa.array(words, _TEXTS)))

    def _shared(self, chosen: Mask) -> pa.Array:
        wrong = chosen & ~as_mask(pc.match_substring_regex(self.raw, _PLACE))
        self.refuse(wrong, "not the number of a text")
        places = self.raw.filter(pa.array(chosen)).cast(pa.int64())
        beyond = np.zeros(len(chosen), dtype=bool)
        beyond[chosen] = places.to_numpy() >= len(self.book.strings)
        self.refuse(beyond, "there is no text with this number in the workbook")
        return self.book.strings.take(places)

    def _numbers(
        self, texts: pa.Array, kinds: npt.NDArray[np.int8], chosen: Mask
    ) -> tuple[pa.Array, npt.NDArray[np.int8]]:
        spelt = pc.utf8_trim_whitespace(self.raw)
        self.refuse(chosen & ~as_mask(pc.match_substring_regex(spelt, _NUMBER)), "not a number")
        values = np.zeros(len(chosen))
        values[chosen] = pc.replace_substring_regex(spelt.filter(pa.array(chosen)), r"^\+", "").cast(
            pa.float64()
        )
        self.refuse(~np.isfinite(values), "too large for a number")
        whole = as_mask(pc.match_substring_regex(spelt, _WHOLE))
        plain = _spell_numbers(values)
        texts = _put(texts, chosen, pc.if_else(pa.array(whole), spelt, plain).filter(pa.array(chosen)))
        kinds[chosen] = NUMBER
        is_point, is_elapsed = np.isin(self.formats, (1, 2)), self.formats == 3
        clock = chosen & (
            (is_point & (values >= 0) & (values < 1)) | (is_elapsed & (values >= 0) & (values <= LAST_DAY))
        )
        texts = _put(texts, clock, _spell_clock(values[clock]))
        kinds[clock] = TIME
        dates = chosen & is_point & ~clock
        days = values + (DAYS_1900 - DAYS_1904) if self.book.from_1904 else values
        lost = (days < 1) | ((days >= FIRST_DAY - 1) & (days < FIRST_DAY)) | (days >= LAST_DAY + 1)
        self.refuse(dates & lost, "formatted as a date, but not a day of the years 1900 to 9999")
        texts = _put(texts, dates, _spell_dates(days[dates]))
        kinds[dates] = DATE
        return texts, kinds

    def _iso_dates(
        self, texts: pa.Array, kinds: npt.NDArray[np.int8], chosen: Mask
    ) -> tuple[pa.Array, npt.NDArray[np.int8]]:
        pattern = r"^\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\d(\.\d{1,6})?)?$"
        self.refuse(chosen & ~as_mask(pc.match_substring_regex(self.raw, pattern)), "not a date")
        spelt = pc.replace_substring(self.raw.filter(pa.array(chosen)), "T", " ")
        bare = pc.less(pc.utf8_length(spelt), 11)
        timed = pc.binary_join_element_wise(spelt, pa.scalar(" 00:00:00", _TEXTS), EMPTY)
        spelt = pc.if_else(bare, timed, spelt)
        kinds[chosen] = DATE
        return _put(texts, chosen, spelt.cast(_TEXTS)), kinds


def _put(texts: pa.Array, chosen: Mask, new: pa.Array) -> pa.Array:
    return pc.replace_with_mask(texts, pa.array(chosen), new) if chosen.any() else texts


def _spell_numbers(values: Floats) -> pa.Array:
    """Return numbers with the fewest digits that give the same number; whole ones without an exponent."""
    plain = (values == np.trunc(values)) & (np.abs(values) < 1e16)
    whole = pa.array(np.where(plain, values, 0).astype(np.int64)).cast(_TEXTS)
    return pc.if_else(pa.array(plain), whole, pa.array(values).cast(_TEXTS))


def _spell_dates(days: Floats) -> pa.Array:
    """Return days since 1900 as dates with times, to the millisecond, which spreadsheet programs resolve."""
    ms = np.round(days * MS_PER_DAY).astype(np.int64)
    ms += np.where(days < FIRST_DAY - 1, MS_PER_DAY, 0) - DAYS_1900 * MS_PER_DAY
    texts = pc.strftime(pa.array(ms).cast(pa.timestamp("ms")), format="%Y-%m-%d %H:%M:%S").cast(_TEXTS)
    return pc.replace_substring_regex(texts, r"\.000$", "")


def _spell_clock(days: Floats) -> pa.Array:
    """Return parts of days as hours, minutes and seconds."""
    ms = np.round(days * MS_PER_DAY).astype(np.int64)
    parts = [ms // 3_600_000, ms // 60_000 % 60, ms // 1000 % 60]
    two = [pc.utf8_lpad(pa.array(part).cast(_TEXTS), 2, "0") for part in parts]
    tail = pc.utf8_lpad(pa.array(ms % 1000).cast(_TEXTS), 3, "0")
    texts = pc.binary_join_element_wise(*two, pa.scalar(":", _TEXTS))
    full = pc.binary_join_element_wise(texts, tail, pa.scalar(".", _TEXTS))
    return pc.if_else(pa.array(ms % 1000 == 0), texts, full)


# -------------------------------------------------------------------------------------- the table of a sheet

_FEWEST = 4  # rows by which a row of numbers is told from names; a guess
_FIRST_ROWS = 50  # which show whether a sheet holds a table, and where its header is
_SPARSE, _SMALL = 1000, 1_000_000
"""A table of more than a million cells, a thousand for each that is stored, is not one: a guess, far off."""

_TEXT_TYPES = ("s", "str", "inlineStr")


@dataclass(frozen=True)
class SheetTable:
    """The table of a sheet."""

    cells: pa.Table  # the cells as texts; empty where nothing is stored
    origin: SheetOrigin  # where they were
    notes: tuple[Note, ...]  # which sheet and which rows were read
    fixed: dict[str, Mask]  # cells that are never filled, by column: formulas and merged cells
    blank: Mask  # rows between others that have no value and are not filled either

    def hold(
        self, table: pa.Table, kept: dict[str, pa.Array]
    ) -> tuple[SheetOrigin, dict[str, pa.Array], list[Note]]:
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
                row = int(self.origin.rows[np.flatnonzero(fixed)[0]])
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
            left = "it is" if count == 1 else "they are"
            notes.append(
                Note(
                    f"{count:,} {what} the result of a formula or part of merged cells, such as {first}: "
                    f"left as {left} and not imputed"
                )
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
    above = _names_above(cells, header_row)
    header_row += bool(above)
    if header_row > cells.rows[0]:
        text = f"the rows above row {header_row} of sheet {sheet.title!r} are not part of the table: not read"
        notes.append(Note(text, "detail"))
    cells = cells.where(cells.rows >= header_row)
    refuse_without_results(cells, where)
    table, columns, kinds = _arrange(cells, header_row, above, where, bound)
    check_names(table.column_names, source)
    fixed = _find_fixed(cells, header_row, table.num_rows, columns)
    aside, said = find_totals_and_end(table, header_row + 1)
    notes += said
    table = table.filter(pa.array(~aside))
    rows = np.flatnonzero(~aside) + header_row + 1
    fixed, kinds = ({name: one[~aside] for name, one in several.items()} for several in (fixed, kinds))
    blank = np.logical_and.reduce([one == BLANK for one in kinds.values()])
    if keep_empty or not is_no_accident(table, blank):
        blank = np.zeros_like(blank)
    elif blank.any():
        notes.append(note_blank_rows("row", rows[blank].tolist()))
    origin = SheetOrigin(data, sheet.title, header_row, rows, columns, kinds, frozenset())
    return SheetTable(table, origin, tuple(notes), fixed, blank)


# ------------------------------------------------------------------------------------------ which sheet


def find_sheet(book: Workbook, title: str) -> Sheet:
    """Return the worksheet with a name."""
    found = next((sheet for sheet in book.sheets if sheet.title == title), None)
    if found is None:
        raise TableError(f"{book.source}: no sheet {title!r}; there are {_list(book.sheets)}")
    if found.is_chart:
        raise TableError(f"{book.source}: sheet {title!r} is a chart and has no cells")
    return found


def _choose_sheet(book: Workbook, title: str | None) -> tuple[Sheet, list[Note]]:
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
    return worksheets[0], [Note(f"sheet {worksheets[0].title!r} is read; {many} not")] if others else []


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


def _names_above(cells: SheetCells, header_row: int) -> dict[int, str]:
    """Return the names of a row that names groups of columns, by columns; empty if the row names columns.

    The row below it has a different name for each of several columns, of which two at least are numbers; one
    of them has nothing in the upper row, where the cells of a group are merged.
    """
    upper, lower = cells.rows == header_row, cells.rows == header_row + 1
    names, body = cells.texts.filter(pa.array(lower)), cells.where(cells.rows > header_row + 1)
    if not lower.any() or (cells.kinds[upper | lower] != TEXT).any() or len(names.unique()) < len(names):
        return {}
    above, below = cells.columns[upper], cells.columns[lower]
    counts = np.bincount(body.columns, minlength=int(cells.columns.max()) + 1)
    n_numbers = np.bincount(body.columns[body.kinds == NUMBER], minlength=len(counts))
    numbers = below[2 * n_numbers[below] > counts[below]]
    named = np.isin(np.unique(cells.columns), np.concatenate([above, below])).all()
    if not named or len(numbers) < 2 or np.isin(numbers, above).all() or len(np.unique(body.rows)) < _FEWEST:
        return {}
    return dict(zip(above.tolist(), cells.texts.filter(pa.array(upper)).to_pylist(), strict=True))


def _arrange(
    cells: SheetCells, header_row: int, above: dict[int, str], where: str, bound: Expansion
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
    texts = above | dict(zip(header.columns.tolist(), header.texts.to_pylist(), strict=True))
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
        arrays.append(pc.fill_null(found, EMPTY))
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
