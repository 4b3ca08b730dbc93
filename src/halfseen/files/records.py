"""Rows of a text table that are not records: repeated headers, units, totals and empty rows at the end."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halfseen.files.distinct import Mask, as_mask
from halfseen.files.numbers import UNIT
from halfseen.files.sentinels import is_missing_word

_TOTALS = re.compile(
    r"(grand |sub-?)?totals?|sums?|averages?|means?|summe|gesamt(summe)?|insgesamt|zusammen|mittelwert|"
    r"durchschnitt|totaux|total général|moyenne|totale|media|suma|promedio|totaal|gemiddelde",
    re.IGNORECASE,
)
_SUBTOTALS = ("subtotal", "sub-total", "sub total", "zwischensumme", "sous-total", "subtotale", "subtotaal")
_UNIT = re.compile(rf"\([^()]{{1,15}}\)|\[[^\[\]]{{1,15}}\]|{UNIT}")
_MIN_ROWS = 5
_BY_CHANCE = 0.01  # the expected number of empty rows at random, below which they are no accident
_SAMPLE = 200
_SHOWN = 5
_PLURAL = {
    "repeats the column names": "repeat the column names",
    "holds units": "hold units",
    "holds labels": "hold labels",
    "holds a remark": "hold remarks",
    "holds a total": "hold totals",
    "has no values": "have no values",
}


@dataclass(frozen=True)
class Lines:
    """Where the records of a text file are.

    Parameters
    ----------
    n_above : int
        The lines above the header.
    aside : numpy.ndarray of bool
        The rows of the file that are not records.
    """

    n_above: int
    aside: Mask

    def line_of(self, record: int, text: pa.Table) -> int:
        """Return the line in which a record begins; `text` holds all rows of the file."""
        row = int(np.flatnonzero(~self.aside)[record])
        breaks = (pc.sum(pc.count_substring(column, "\n")).as_py() for column in text.slice(0, row).columns)
        return self.n_above + row + 2 + sum(count or 0 for count in breaks)


def find_lines(
    text: pa.Table, header: Sequence[str], n_above: int, *, keep_empty: bool = False
) -> tuple[Lines, list[str]]:
    """Return which rows of a text table are records, and sentences about the others.

    Parameters
    ----------
    text : pyarrow.Table
        The cells as they are written.
    header : sequence of str
        The names of the columns as they are written.
    n_above : int
        The lines above the header.
    keep_empty : bool
        Whether rows without any text at the end of the file count as records.
    """
    aside = np.zeros(text.num_rows, dtype=bool)
    notes = []
    every = Lines(n_above, aside.copy())
    for what, rows in _find_others(text, header, keep_empty):
        new = rows & ~aside
        if new.any() and not (aside | new).all():
            aside |= new
            notes.append(_note(what, np.flatnonzero(new), every, text))
    return Lines(n_above, aside), notes


def _note(what: str, rows: np.ndarray, every: Lines, text: pa.Table) -> str:
    numbers = [f"{every.line_of(int(row), text):,}" for row in rows[:_SHOWN]]
    more = f" and {len(rows) - _SHOWN:,} more" if len(rows) > _SHOWN else ""
    if len(rows) == 1:
        return f"line {numbers[0]} {what}: copied to a csv output, but not read"
    return f"lines {', '.join(numbers)}{more} {_PLURAL[what]}: copied to a csv output, but not read"


def _find_others(text: pa.Table, header: Sequence[str], keep_empty: bool) -> Iterator[tuple[str, Mask]]:
    yield "repeats the column names", _repeats_header(text, header)
    if text.num_rows < _MIN_ROWS:
        return
    yield "holds units", _only(text, 0, _holds_units(text))
    first = _holds_labels(text, 0)
    yield "holds labels", _only(text, 0, first) | _only(text, 1, first and _holds_labels(text, 1))
    blank = _blank_end(text)
    remarks, end = _find_remarks(text)
    if remarks.any():
        yield "holds a remark", remarks
        blank = end
    last = text.num_rows - 1 - int(blank.sum())
    yield "holds a total", _only(text, last, _holds_total(text, last)) | _holds_subtotals(text)
    if not keep_empty:
        yield "has no values", blank & is_no_accident(text, blank)


def _only(text: pa.Table, row: int, found: bool) -> Mask:
    mask = np.zeros(text.num_rows, dtype=bool)
    mask[row] = found
    return mask


def _repeats_header(text: pa.Table, header: Sequence[str]) -> Mask:
    """Return which rows have the name of every column in its place."""
    same = np.ones(text.num_rows, dtype=bool)
    if len(header) == 1 or all(re.fullmatch(r"[\d.,\s-]*", name) for name in header):
        return ~same  # one word is as likely a value
    for name, column in zip(header, text.columns, strict=True):
        same &= as_mask(pc.equal(pc.utf8_trim_whitespace(column), name.strip()).combine_chunks())
        if not same.any():
            break
    return same


def _holds_units(text: pa.Table) -> bool:
    """Return whether the first row has units, or nothing, above columns of which some are numbers."""
    first = [column[0].as_py().strip() for column in text.columns]
    held = [place for place, cell in enumerate(first) if cell]
    if not held or not all(_UNIT.fullmatch(first[place]) for place in held):
        return False
    below = [[cell for cell in text.column(k)[1:_SAMPLE].to_pylist() if cell.strip()] for k in held]
    numeric = [sum(bool(re.match(r"\W*\d", cell)) for cell in cells) > len(cells) / 2 for cells in below]
    return sum(numeric) > len(held) / 2


def _holds_labels(text: pa.Table, row: int) -> bool:
    """Return whether a row has a label for each column, such as the question of a survey.

    Each cell has text that its column has nowhere else. Below it two columns or more are numbers, and the row
    has no number there. One label at least has several words, or is a definition in JSON, as in exports of
    Qualtrics.
    """
    cells = [column[row].as_py().strip() for column in text.columns]
    if not all(cells) or not any(re.search(r"[^\W\d]\s+[^\W\d]|^\{", cell) for cell in cells):
        return False
    below = [column[row + 1 : row + _SAMPLE].to_pylist() for column in text.columns]
    if any(cell in (other.strip() for other in others) for cell, others in zip(cells, below, strict=True)):
        return False
    numeric = [cell for cell, others in zip(cells, below, strict=True) if _are_numbers(others)]
    words = is_missing_word(pa.array(numeric, pa.large_string())).to_pylist()
    return len(numeric) > 1 and not any(words) and not any(re.match(r"\W*\d", cell) for cell in numeric)


def _are_numbers(cells: Sequence[str]) -> bool:
    """Return whether nine of ten cells with text are numbers."""
    held = [cell for cell in cells if cell.strip()]
    return len(held) >= _MIN_ROWS - 1 and sum(map(_is_number, held)) >= 0.9 * len(held)


def _is_number(cell: str) -> bool:
    return re.fullmatch(r"\s*[<>+-]?\s*\d[\d.,]*\s*", cell) is not None


def _find_remarks(text: pa.Table) -> tuple[Mask, Mask]:
    """Return which rows at the end of the file are remarks, such as a source; and these with the empty rows.

    A remark has several words in the first cell and nothing in the others, of which there are two at least.
    No other row of the table has text in its first cell only.
    """
    nothing = np.zeros(text.num_rows, dtype=bool)
    if text.num_columns < 3:
        return nothing, nothing
    alone = ~_blank(text.column(0))
    for column in text.columns[1:]:
        alone &= _blank(column)
        if not alone.any():
            return nothing, nothing
    empty = np.logical_and.reduce([_blank(column) for column in text.columns])
    end = np.logical_and.accumulate((alone | empty)[::-1])[::-1]
    texts = text.column(0).filter(pa.array(alone)).to_pylist()
    worded = all(len(re.findall(r"[^\W\d_]{2,}", cell)) > 1 for cell in texts)
    return (alone, end) if worded and not (alone & ~end).any() and not end.all() else (nothing, nothing)


def _holds_total(text: pa.Table, row: int) -> bool:
    """Return whether the first cell with text in a row is a word for totals that no other row has there."""
    for column in text.columns:
        word = column[row].as_py().strip()
        if word:
            alone = pc.sum(pc.equal(pc.utf8_trim_whitespace(column), word)).as_py() == 1
            return alone and _TOTALS.fullmatch(word.rstrip(" :")) is not None
    return False


def _holds_subtotals(text: pa.Table) -> Mask:
    """Return which rows begin with a word for subtotals, which are never values."""
    first = pc.utf8_lower(pc.utf8_trim_whitespace(text.column(0)))
    return as_mask(pc.is_in(first, value_set=pa.array(_SUBTOTALS, first.type)).combine_chunks())


def _blank_end(text: pa.Table) -> Mask:
    """Return which rows at the end of the file have no text."""
    blank = np.ones(text.num_rows, dtype=bool)
    for column in text.columns:
        blank &= _blank(column)
        if not blank[-1]:
            return np.zeros_like(blank)
    return np.logical_and.accumulate(blank[::-1])[::-1]


def _blank(column: pa.ChunkedArray) -> Mask:
    return as_mask(pc.equal(pc.utf8_trim_whitespace(column), "").combine_chunks())


def is_no_accident(text: pa.Table, blank: Mask) -> bool:
    """Return whether empty rows are unlikely by chance, given the empty cells; never for one column."""
    if text.num_columns == 1 or not blank.any() or blank.all():
        return False
    shares = [_blank(column)[~blank].mean() for column in text.columns]
    return len(blank) * float(np.prod(shares)) < _BY_CHANCE
