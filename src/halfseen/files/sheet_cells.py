"""The cells of a worksheet as texts, each with what it is: a number, a text, a boolean or a date."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from halfseen.errors import TableError
from halfseen.files.distinct import Mask, as_mask
from halfseen.files.sheet_markup import DAYS_1900, DAYS_1904, FIRST_DAY, LAST_DAY, MS_PER_DAY
from halfseen.files.sheet_xml import Range, SheetXml, spell_address
from halfseen.files.workbook import Workbook, unescape

BLANK, NUMBER, TEXT, BOOLEAN, ERROR, DATE, TIME = range(7)
"""What a cell is."""

_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_WHOLE = r"^(0|-?[1-9]\d*)$"
_PLACE = r"^\d{1,9}$"  # of a shared text
_FORMATS = ("", "date", "time", "duration")
_AT_ONCE = 1 << 17  # cells that are read together
_TEXTS = pa.large_string()
_NOTHING, _EMPTY, _MIDNIGHT = (pa.scalar(text, _TEXTS) for text in (None, "", " 00:00:00"))

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SheetCells:
    """The cells of a worksheet that hold something, by rows.

    Parameters
    ----------
    rows, columns : numpy.ndarray
        Where they are, counted from 1.
    texts : pyarrow.Array
        What they hold, as text: ``2021-05-28 10:00:00`` for a date.
    kinds : numpy.ndarray
        What they are.
    formulas : numpy.ndarray of bool
        Whether a formula gave the value.
    held : list of Range
        Merged cells and the results of formulas for several cells.
    """

    rows: Integers
    columns: Integers
    texts: pa.Array
    kinds: npt.NDArray[np.int8]
    formulas: Mask
    held: list[Range]

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
        return pc.if_else(pa.array(absent), _NOTHING, texts), kinds

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
        spelt = pc.if_else(bare, pc.binary_join_element_wise(spelt, _MIDNIGHT, _EMPTY), spelt)
        kinds[chosen] = DATE
        return _put(texts, chosen, spelt.cast(_TEXTS)), kinds


def _put(texts: pa.Array, chosen: Mask, new: pa.Array) -> pa.Array:
    return pc.replace_with_mask(texts, pa.array(chosen), new) if chosen.any() else texts


def _spell_numbers(values: npt.NDArray[np.float64]) -> pa.Array:
    """Return numbers with the fewest digits that give the same number; whole ones without an exponent."""
    plain = (values == np.trunc(values)) & (np.abs(values) < 1e16)
    whole = pa.array(np.where(plain, values, 0).astype(np.int64)).cast(_TEXTS)
    return pc.if_else(pa.array(plain), whole, pa.array(values).cast(_TEXTS))


def _spell_dates(days: npt.NDArray[np.float64]) -> pa.Array:
    """Return days since 1900 as dates with times, to the millisecond, which spreadsheet programs resolve."""
    ms = np.round(days * MS_PER_DAY).astype(np.int64)
    ms += np.where(days < FIRST_DAY - 1, MS_PER_DAY, 0) - DAYS_1900 * MS_PER_DAY
    texts = pc.strftime(pa.array(ms).cast(pa.timestamp("ms")), format="%Y-%m-%d %H:%M:%S").cast(_TEXTS)
    return pc.replace_substring_regex(texts, r"\.000$", "")


def _spell_clock(days: npt.NDArray[np.float64]) -> pa.Array:
    """Return parts of days as hours, minutes and seconds."""
    ms = np.round(days * MS_PER_DAY).astype(np.int64)
    parts = [ms // 3_600_000, ms // 60_000 % 60, ms // 1000 % 60]
    two = [pc.utf8_lpad(pa.array(part).cast(_TEXTS), 2, "0") for part in parts]
    tail = pc.utf8_lpad(pa.array(ms % 1000).cast(_TEXTS), 3, "0")
    texts = pc.binary_join_element_wise(*two, pa.scalar(":", _TEXTS))
    full = pc.binary_join_element_wise(texts, tail, pa.scalar(".", _TEXTS))
    return pc.if_else(pa.array(ms % 1000 == 0), texts, full)
