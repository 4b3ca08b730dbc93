"""Rows of text tables and sheets that are not records.

Repeated column names, units, labels, totals, remarks and blank rows. They are found in the texts of the
cells, before columns are recognised, because a single such row would make a column of numbers one of text.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halfseen._arrays import Floats, Integers
from halfseen.files.distinct import Mask, as_mask
from halfseen.files.missing_codes import is_missing_word
from halfseen.files.numbers import UNIT
from halfseen.words import Note

_SUBTOTAL = r"sub[- ]?totals?|zwischensummen?|teilsummen?|teilergebnis|sous-total|subtotale|subtotaal"
_TOTAL = (
    rf"{_SUBTOTAL}|(?:grand )?totals?|summen?|gesamt(?:summe|ergebnis)?|insgesamt|ergebnis|totaux|"
    r"total général|totale|totaal"
)
_MEAN = r"sums?|averages?|means?|zusammen|mittelwert|durchschnitt|moyenne|media|suma|promedio|gemiddelde"
_BALANCE = (
    r"(?:anfangs|end|schluss|alter |neuer )?saldo|(?:opening|starting|beginning|closing|ending) balance|"
    r"balance (?:brought|carried) forward|übertrag"
)
_ALONE = rf"(?i)^(?:{_TOTAL}|{_MEAN}|{_BALANCE})[ :]*$"
_GAP = "[ :.\N{EN DASH}-]"
_STEM = (
    rf"(?i)^(?:(?:{_TOTAL}|{_MEAN})\b{_GAP}*(?P<after>.*?)|"
    rf"(?P<before>.+?){_GAP}+(?:{_TOTAL}|{_MEAN}))[ :]*$"
)
"""The label of a total, and what it is the total of."""
_MOST_LABELS = 5  # columns in which the label of a total is looked for; a guess
_AS_SUM = 1e-3  # the relative difference by which a sum of rounded numbers may differ; a guess
_UNIT = re.compile(rf"\([^()]{{1,15}}\)|\[[^\[\]]{{1,15}}\]|{UNIT}")
_MIN_ROWS = 5  # in shorter tables a row of units or totals cannot be told from a record; a guess
_BY_CHANCE = 0.01  # empty rows are left out if fewer than this number were expected by chance; a guess
_SAMPLE = 200  # rows below the header by which a row of units or labels is judged; a guess
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
    """Where the records of a text file are."""

    n_above: int  # the lines above the header
    aside: Mask  # the rows of the file that are not records

    def line_of(self, record: int, text: pa.Table) -> int:
        """Return the line in which a record begins; `text` holds all rows of the file."""
        row = int(np.flatnonzero(~self.aside)[record])
        breaks = (pc.sum(pc.count_substring(column, "\n")).as_py() for column in text.slice(0, row).columns)
        return self.n_above + row + 2 + sum(count or 0 for count in breaks)


def find_lines(
    text: pa.Table, header: Sequence[str], n_above: int, *, keep_empty: bool = False
) -> tuple[Lines, list[Note]]:
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
    totals, doubtful = find_totals(text)
    for what, rows in _find_others(text, header, totals, keep_empty):
        new = rows & ~aside
        if new.any() and not (aside | new).all():
            aside |= new
            notes.append(_note(what, np.flatnonzero(new), every, text))
    places = np.flatnonzero(doubtful & ~aside)[:_SHOWN].tolist()
    return Lines(n_above, aside), notes + _doubt_totals("line", [every.line_of(row, text) for row in places])


def _doubt_totals(what: str, numbers: Sequence[int]) -> list[Note]:
    """Return a note on rows that may be totals, of which `what` is "line" or "row"."""
    if not numbers:
        return []
    shown = ", ".join(f"{number:,}" for number in numbers)
    begin = f"{what} {shown} begins" if len(numbers) == 1 else f"{what}s {shown} begin"
    text = (
        f"{begin} with a word for totals, without a sum of the rows above: read as a record; if it is none, "
    )
    return [Note(f"{text}remove it from the file", "harmful")]


def _note(what: str, rows: np.ndarray, every: Lines, text: pa.Table) -> Note:
    numbers = [f"{every.line_of(int(row), text):,}" for row in rows[:_SHOWN]]
    more = f" and {len(rows) - _SHOWN:,} more" if len(rows) > _SHOWN else ""
    if len(rows) == 1:
        return Note(f"line {numbers[0]} {what}: copied to a csv output, but not read")
    return Note(f"lines {', '.join(numbers)}{more} {_PLURAL[what]}: copied to a csv output, but not read")


def _find_others(
    text: pa.Table, header: Sequence[str], totals: Mask, keep_empty: bool
) -> Iterator[tuple[str, Mask]]:
    yield "repeats the column names", _repeats_header(text, header)
    if text.num_rows < _MIN_ROWS:
        return
    yield "holds units", _only(text, 0, _holds_units(text))
    first = _holds_labels(text, 0)
    yield "holds labels", _only(text, 0, first) | _only(text, 1, first and _holds_labels(text, 1))
    remarks, blank, total = _find_end(text)
    yield "holds a remark", remarks
    yield "holds a total", total | totals
    if not keep_empty:
        yield "has no values", blank & is_no_accident(text, blank)


def _find_end(text: pa.Table) -> tuple[Mask, Mask, Mask]:
    """Return which rows at the end of a table are remarks, or empty beside these, and which is a total."""
    remarks, end = _find_remarks(text)
    blank = end if remarks.any() else _blank_end(text)
    last = text.num_rows - 1 - int(blank.sum())
    total = _only(text, last, _holds_total(text, last))
    if total.any():
        blank[:last] |= _blank_end(text.slice(0, last))
    return remarks, blank, total | _only(text, 0, _holds_balance(text))


def find_totals_and_end(text: pa.Table, first: int) -> tuple[Mask, list[Note]]:
    """Return which rows of a sheet are totals, or remarks and blank rows at its end, and notes on these.

    Parameters
    ----------
    text : pyarrow.Table
        The cells of the sheet as texts.
    first : int
        The number of the first row in the sheet.
    """
    if text.num_rows < _MIN_ROWS:
        return np.zeros(text.num_rows, dtype=bool), []
    remarks, _, total = _find_end(text)
    totals, doubtful = find_totals(text)
    total |= totals
    notes = _doubt_totals("row", (np.flatnonzero(doubtful & ~total)[:_SHOWN] + first).tolist())
    for what, rows in (("holds a total", total), ("holds a remark", remarks)):
        numbers = [f"{row + first:,}" for row in np.flatnonzero(rows)[:_SHOWN].tolist()]
        if numbers:
            one = len(numbers) == 1
            said = f"row {numbers[0]} {what}" if one else f"rows {', '.join(numbers)} {_PLURAL[what]}"
            notes.append(Note(f"{said}: kept in a copy of the workbook, but not read"))
    aside = remarks | total
    blank = np.logical_and.reduce([_blank(column) for column in text.columns])
    end = np.logical_and.accumulate((aside | blank)[::-1])[::-1]
    return (aside | end if aside[end].any() else aside), notes


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

    Most cells have text, which their columns have nowhere else. Below it two columns or more are numbers, and
    the row has no number there. One label at least has several words, or is a definition in JSON, as in
    exports of Qualtrics.
    """
    cells = [column[row].as_py().strip() for column in text.columns]
    if 2 * sum(map(bool, cells)) <= len(cells) or not any(
        re.search(r"[^\W\d]\s+[^\W\d]|^\{", cell) for cell in cells
    ):
        return False
    below = [column[row + 1 : row + _SAMPLE].to_pylist() for column in text.columns]
    held = [(cell, others) for cell, others in zip(cells, below, strict=True) if cell]
    if any(cell in (other.strip() for other in others) for cell, others in held):
        return False
    numeric = [cell for cell, others in held if _are_numbers(others)]
    words = is_missing_word(pa.array(numeric, pa.large_string())).to_pylist()
    return len(numeric) > 1 and not any(words) and not any(re.match(r"\W*\d", cell) for cell in numeric)


def _are_numbers(cells: Sequence[str]) -> bool:
    """Return whether nine of ten cells with text are numbers, as for `MOSTLY` in `outcomes`."""
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


def _holds_total(text: pa.Table, row: int, words: str = _ALONE) -> bool:
    """Return whether the first cell with text in a row is a word for totals that no other row has there."""
    for column in text.columns:
        word = column[row].as_py().strip()
        if word:
            alone = pc.sum(pc.equal(pc.utf8_trim_whitespace(column), word)).as_py() == 1
            return alone and re.match(words, word) is not None
    return False


def _holds_balance(text: pa.Table) -> bool:
    """Return whether the first row is the balance at the beginning of a bank statement."""
    return _holds_total(text, 0, rf"(?i)^(?:{_BALANCE})[ :]*$")


def find_totals(text: pa.Table) -> tuple[Mask, Mask]:
    """Return which rows between others are totals of rows above them, and which may be.

    The first cell with text has a word for totals at its beginning or end. This alone is no evidence, because
    it may be a name. A row is a total if the rest of that cell is the label of the row above it, as in
    ``North Total``; or if a number in it is the sum or the mean of the numbers above it, since the last such
    row or since the first row; or if the word is one for subtotals; or if another row with the same label is
    a total. A row may be one if the cell holds nothing but the word.
    """
    labels = _labels(text)
    named = as_mask(
        pc.match_substring_regex(labels, _STEM.replace("?P<after>", "").replace("?P<before>", ""))
    )
    rows = np.flatnonzero(named)
    found = np.zeros(text.num_rows, dtype=bool)
    if text.num_rows < _MIN_ROWS or not len(rows) or 2 * len(rows) > text.num_rows:
        return found, found
    chosen = labels.take(pa.array(rows))
    found[rows] = as_mask(pc.match_substring_regex(chosen, rf"(?i)^(?:{_SUBTOTAL})\b"))
    found[rows] |= _label_above(labels, named, rows)
    for column in text.columns:
        if found[rows].all():
            break
        found[rows] |= _sums_above(column, named, rows)
    alike = pc.is_in(chosen, value_set=chosen.filter(pa.array(found[rows])))
    bare = pc.match_substring_regex(chosen, rf"(?i)^(?:{_TOTAL})[ :]*$")
    found[rows] = as_mask(alike)
    doubtful = np.zeros_like(found)
    doubtful[rows] = as_mask(pc.and_not(bare, alike))
    return found, doubtful


def _labels(text: pa.Table) -> pa.Array:
    """Return the first cell with text of each row, of the first few columns."""
    labels = pc.utf8_trim_whitespace(text.column(0)).combine_chunks()
    for column in text.columns[1:_MOST_LABELS]:
        empty = pc.equal(labels, "")
        if not pc.any(empty).as_py():
            break
        labels = pc.if_else(empty, pc.utf8_trim_whitespace(column).combine_chunks(), labels)
    return labels


def _label_above(labels: pa.Array, named: Mask, rows: Integers) -> Mask:
    """Return which of some rows are named after the last row above them that is none of them."""
    parts = pc.extract_regex(labels.take(pa.array(rows)), _STEM)
    of = pc.if_else(pc.equal(parts.field("after"), ""), parts.field("before"), parts.field("after"))
    others = np.flatnonzero(~named)
    above = np.searchsorted(others, rows) - 1
    last = labels.take(pa.array(others[np.maximum(above, 0)]))
    same = as_mask(pc.equal(pc.utf8_lower(of), pc.utf8_lower(last)))
    return same & (above >= 0) & ~as_mask(pc.equal(of, ""))


def _sums_above(column: pa.ChunkedArray, named: Mask, rows: Integers) -> Mask:
    """Return in which rows a column has the sum or the mean of its numbers above, two at least."""
    matches = np.zeros(len(rows), dtype=bool)
    for decimal, other in ((".", ","), (",", ".")):
        values = _numbers(column, decimal, other)
        if values is None:
            continue
        total, known = values[rows], np.isfinite(values) & ~named
        sums = np.cumsum(np.where(known, values, 0.0))[rows]
        counts = np.cumsum(known)[rows]
        since = (np.concatenate([[0.0], sums[:-1]]), np.concatenate([[0], counts[:-1]]))
        for start, n_start in ((0.0, 0), since):
            n, whole = counts - n_start, sums - start
            for expected in (whole, whole / np.maximum(n, 1)):
                close = np.abs(total - expected) <= _AS_SUM * np.abs(total)
                matches |= close & (n > 1) & (total != 0)
    return matches


def _numbers(column: pa.ChunkedArray, decimal: str, other: str) -> Floats | None:
    """Return the numbers of a column under one decimal mark, NaN for other cells; None if most are others."""
    cells = pc.utf8_trim_whitespace(column).combine_chunks()
    bare = pc.replace_substring_regex(cells, r"[^\d.,()-]", "")
    bare = pc.replace_substring_regex(bare, r"^(?:\((.*)\)|(.*)-)$", r"-\1\2")
    bare = pc.replace_substring(pc.replace_substring(bare, other, ""), decimal, ".")
    is_number = pc.match_substring_regex(bare, r"^-?\d{1,300}(?:\.\d*)?$")
    n_cells = len(cells) - pc.sum(pc.equal(cells, "")).as_py()
    if 10 * (is_number.true_count) < 9 * n_cells or n_cells < _MIN_ROWS:
        return None
    values = pc.if_else(is_number, bare, pa.scalar(None, bare.type)).cast(pa.float64())
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64)


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


def find_blank_rows(text: pa.Table) -> np.ndarray:
    """Return the places of rows without any text, unless some are likely by chance."""
    rows = np.arange(text.num_rows)
    for column in text.columns:
        rows = rows[_blank(column if len(rows) == text.num_rows else column.take(pa.array(rows)))]
        if not len(rows):
            return rows
    blank = np.zeros(text.num_rows, dtype=bool)
    blank[rows] = True
    return rows if is_no_accident(text, blank) else rows[:0]


def note_blank_rows(what: str, numbers: Sequence[int]) -> Note:
    """Return a note on blank rows, of which `what` is "line" or "row", and `numbers` are their numbers."""
    shown = ", ".join(f"{number:,}" for number in numbers[:_SHOWN])
    if len(numbers) == 1:
        return Note(f"{what} {shown} is blank: kept and not imputed; --fill-all imputes it")
    more = f" and {len(numbers) - _SHOWN:,} more" if len(numbers) > _SHOWN else ""
    return Note(f"{what}s {shown}{more} are blank: kept and not imputed; --fill-all imputes them")


def is_no_accident(text: pa.Table, blank: Mask) -> bool:
    """Return whether empty rows are unlikely by chance, given the empty cells; never for one column."""
    if text.num_columns == 1 or not blank.any() or blank.all():
        return False
    shares = [_blank(column)[~blank].mean() for column in text.columns]
    return len(blank) * float(np.prod(shares)) < _BY_CHANCE
