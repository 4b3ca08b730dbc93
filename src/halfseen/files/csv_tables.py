"""Text tables (csv): reading and writing.

A csv is read as text first. What the imputer gets is a typed copy; what is written is the text that was read,
with the missing cells alone replaced. So ``39.10`` stays ``39.10`` and ``007`` stays ``007``. Rows that are
not records, such as repeated headers, units and totals, are not read and are written again.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from halfseen.errors import TableError
from halfseen.files import dialect as dialects
from halfseen.files.dialect import Dialect, find_footer, find_preamble, note_footer
from halfseen.files.distinct import EMPTY, FEW, Mask, any_match, as_mask, kind_of
from halfseen.files.formats import Style, format_cells, style_of
from halfseen.files.missing_codes import is_missing_word
from halfseen.files.numbers import UNIT
from halfseen.files.outcomes import describe_outcomes
from halfseen.files.recognition import read_columns
from halfseen.files.rules import make_rules, merge_settings
from halfseen.files.table_file import CellTexts, Surroundings, TableFile, TextBlock, check_names
from halfseen.words import Note

BLOCK = 1 << 24
"""Bytes that a thread parses. A text of one block is parsed without threads, because a process that ends
while Arrow starts its threads, as after an error, may be aborted."""

_LARGEST_BLOCK = (1 << 31) - 1  # Arrow counts the bytes of a block by 32 bits


def check_single(source: str, header: list[str], chosen: str, sniffed: str | None) -> None:
    """Raise an error if a delimiter does not split any line although another one would."""
    if len(header) == 1 and sniffed is not None and sniffed != chosen:
        given, better = dialects.name_delimiter(chosen), dialects.name_delimiter(sniffed)
        raise TableError(
            f"{source}: wrong delimiter: with a {given} every line is one cell, a {better} would fit; "
            f"leave --delimiter out or give the right one"
        )


def parse_text(text: bytes, source: str, layout: Dialect, header: list[str], n_above: int = 0) -> pa.Table:
    """Return the cells below the header as they are written; `n_above` lines of the file were cut off."""
    try:
        table = _parse(text, layout, len(header), BLOCK)
    except pa.ArrowInvalid as error:
        raise _explain_ragged(text, source, layout, len(header), n_above, str(error)) from None
    # The header was read as a row, so that it may hold line ends.
    table = table.slice(1).rename_columns(header)
    if table.num_rows:
        _check_last_quote(text, source, str(table[-1][-1]), n_above)
    return table


def _parse(text: bytes, layout: Dialect, width: int, block: int) -> pa.Table:
    places = [str(place) for place in range(width)]  # positions: names may be empty
    try:
        return pa.csv.read_csv(
            pa.BufferReader(text),
            pa.csv.ReadOptions(use_threads=len(text) > block, column_names=places, block_size=block),
            pa.csv.ParseOptions(
                delimiter=layout.delimiter, newlines_in_values=True, ignore_empty_lines=width > 1
            ),
            pa.csv.ConvertOptions(
                column_types=dict.fromkeys(places, pa.large_string()), strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid as error:
        if "straddling" not in str(error) or block >= min(len(text), _LARGEST_BLOCK):
            raise
        return _parse(text, layout, width, min(8 * block, _LARGEST_BLOCK))  # a row is longer than the block


def _explain_ragged(
    text: bytes, source: str, layout: Dialect, width: int, n_above: int, reason: str
) -> TableError:
    found = dialects.find_ragged_row(text, layout.delimiter, width)
    if found is None:
        return TableError(f"{source}: not a readable csv ({reason.splitlines()[0]})")
    line, n_cells, row = found
    other = dialects.sniff_delimiter(row) if n_cells == 1 else None
    hint = f"; that line seems to use a {dialects.name_delimiter(other)} as delimiter" if other else ""
    return TableError(
        f"{source}: line {line + n_above} has {n_cells} {'cell' if n_cells == 1 else 'cells'}, "
        f"the header has {width} (delimiter: {layout.delimiter_name}){hint}"
    )


def _check_last_quote(text: bytes, source: str, last: str, n_above: int) -> None:
    # The parser takes an unclosed quote up to the end of the file as one cell.
    if last and text.endswith(b'"' + last.encode()):
        line = text.count(b"\n", 0, len(text) - len(last.encode())) + 1 + n_above
        raise TableError(f"{source}: the quote opened in line {line} is never closed")


def join_lines(columns: list[pa.Array], layout: Dialect) -> bytes:
    """Return rows as text: the cells joined by the delimiter, quoted only where they must be."""
    cells = [_quote(column, layout.delimiter, alone=len(columns) == 1) for column in columns]
    cells[-1] = pc.binary_join_element_wise(cells[-1], pa.scalar(layout.newline, pa.large_string()), EMPTY)
    lines = pc.binary_join_element_wise(*cells, pa.scalar(layout.delimiter, pa.large_string()))
    # The data buffer of a string array is the concatenation of its values: here, of the lines.
    _, _, buffer = pa.concat_arrays([lines]).buffers()
    return buffer.to_pybytes() if buffer is not None else b""


def _quote(cells: pa.Array, delimiter: str, *, alone: bool) -> pa.Array:
    pattern = rf'["\r\n\x{ord(delimiter):02x}]'
    if len(cells) <= FEW and not alone and not any_match(cells, pattern):
        return cells
    special = pc.match_substring_regex(cells, pattern)
    if alone:  # in a table of one column an empty cell would be a blank line
        special = pc.or_(special, pc.equal(cells, EMPTY))
    if not pc.any(special).as_py():
        return cells
    doubled = pc.replace_substring(cells.filter(special), '"', '""')
    mark = pa.scalar('"', pa.large_string())
    return pc.replace_with_mask(cells, special, pc.binary_join_element_wise(mark, doubled, mark, EMPTY))


def _name_all(header: Sequence[str]) -> list[str]:
    """Return the names of the columns; if several have none, those get a number."""
    if sum(not name.strip() for name in header) < 2:
        return list(header)
    return [name if name.strip() else f"unnamed {place}" for place, name in enumerate(header, start=1)]


def _doubt_header(header: Sequence[str], table: pa.Table) -> list[Note]:
    """Return a sentence if the first line looks like a record: numbers above all columns of numbers.

    Years and numbers in order, such as wavelengths, are names.
    """
    numbers = [float(name) for name in header if re.fullmatch(r"\s*[+-]?\d+(\.\d+)?\s*", name)]
    steps = {later > number for number, later in pairwise(numbers)}
    ordered = len(numbers) > 2 and len(steps) == 1 and len(set(numbers)) == len(numbers)
    numeric = sum(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in table.schema.types)
    if not 0 < numeric <= len(numbers) or ordered or all(1800 <= number < 2200 for number in numbers):
        return []
    shown = ", ".join(header[:6]) + (", ..." if len(header) > 6 else "")
    text = (
        f"the first line ({shown}) is read as column names but looks like a record; if it is one, add a "
        "line with names above it"
    )
    return [Note(text, "harmful")]


def read_csv(
    data: bytes, source: str, delimiter: str | None, encoding: str | None, given: dict[str, Any]
) -> TableFile:
    """Return the table of a text file.

    Parameters
    ----------
    data : bytes
        The content of the file.
    source : str
        Its name, for messages.
    delimiter, encoding : str or None
        Those that the user gave.
    given : dict
        How cells are read: the keyword arguments of `make_rules`.
    """
    text, encoding, notes = dialects.decode(data, source, encoding)
    wanted = dialects.parse_delimiter(delimiter) if delimiter is not None else None
    sample = dialects.first_lines(text)
    preamble = find_preamble(sample, wanted)
    if preamble.text:
        notes.append(preamble.note())
        text, sample = text[len(preamble.text.encode()) :], sample[len(preamble.text) :]
    sniffed = dialects.sniff_delimiter(sample)
    chosen = wanted or preamble.delimiter or sniffed or ","
    layout = Dialect(chosen, encoding, dialects.find_newline(sample))
    header = next(iter(dialects.read_rows(sample, chosen)), [])
    if not header:
        raise TableError(f"{source}: the first line has no column names")
    check_single(source, header, chosen, sniffed)
    names = _name_all(header)
    check_names(names, source)
    footer = find_footer(text, chosen, len(header))
    if footer:
        notes.append(note_footer(footer))
        text = text[: -len(footer.encode())]
    rows = parse_text(text, source, layout, names, preamble.n_lines)
    every = (given["schema"] or {}).get("*")
    keep_empty = isinstance(every, dict) and bool(every.get("fill"))
    lines, more = find_lines(rows, header, preamble.n_lines, keep_empty=keep_empty)
    aside = pa.array(lines.aside) if lines.aside.any() else None
    cells = rows if aside is None else rows.filter(pc.invert(aside))
    rules = make_rules(names, **given)
    outcomes = read_columns(cells, rules, chosen, lambda record: lines.line_of(record, rows), as_written=True)
    table = pa.table([outcome.typed for outcome in outcomes.values()], names=names)
    blank = np.zeros(0, np.int64) if keep_empty else find_blank_rows(cells)
    if len(blank):
        more.append(note_blank_rows("line", [lines.line_of(int(row), rows) for row in blank]))
    return TableFile(
        table,
        source,
        "csv",
        layout,
        CellTexts.of(rows, aside),
        {name: outcome.style for name, outcome in outcomes.items()},
        (*notes, *more, *_doubt_header(header, table), *rules.notes, *describe_outcomes(outcomes)),
        {name: outcome.kept for name, outcome in outcomes.items() if outcome.kept is not None},
        merge_settings(
            {name: outcome.settings for name, outcome in outcomes.items() if outcome.settings},
            given["schema"],
        ),
        rules,
        Surroundings(tuple(header), preamble, footer),
        {name: out.placeholders for name, out in outcomes.items() if out.placeholders is not None},
        held=_hold(blank, table),
    )


def _hold(blank: np.ndarray, table: pa.Table) -> dict[str, pa.Array]:
    """Return the missing cells of blank rows."""
    if not len(blank):
        return {}
    rows = np.zeros(table.num_rows, dtype=bool)
    rows[blank] = True
    masks = {name: as_mask(table[name].is_null().combine_chunks()) & rows for name in table.column_names}
    return {name: pa.array(mask) for name, mask in masks.items() if mask.any()}


def write_csv(
    tables: Iterable[pa.Table], file: BinaryIO, like: TableFile, layout: Dialect, draw: str | None
) -> None:
    """Write completed tables as text, one below the other; `draw` names a first column that counts them."""
    text, styles = (like.text, like.styles) if like.text is not None else spell_out(like.as_written().table)
    around = like.surroundings or Surroundings(tuple(text.column_names))
    encode = layout.encoding not in ("utf-8", "utf-8-sig")
    added = text.column_names[len(around.header) :]
    names = ([draw] if draw is not None else []) + [*around.header, *added]
    header = join_lines([pa.array([name], pa.large_string()) for name in names], layout)
    first = around.preamble.written(layout.delimiter).encode() + header
    file.write(first.decode().encode(layout.encoding) if layout.encoding != "utf-8" else first)
    # After the first line no byte-order mark may follow, so the plain name of the byte order is needed.
    tail = {"utf-16": f"utf-16-{sys.byteorder[0]}e", "utf-32": f"utf-32-{sys.byteorder[0]}e"}
    for number, table in enumerate(tables, start=1):
        for block in text.blocks():
            columns = [_complete_block(block, name, like, table, styles[name]) for name in text.column_names]
            if draw is not None:
                columns.insert(0, pa.repeat(pa.scalar(str(number), pa.large_string()), len(columns[0])))
            lines = join_lines(columns, layout)
            file.write(lines.decode().encode(tail.get(layout.encoding, layout.encoding)) if encode else lines)
    file.write(around.footer.encode(tail.get(layout.encoding, layout.encoding) if encode else "utf-8"))


def _complete_block(block: TextBlock, name: str, like: TableFile, table: pa.Table, style: Style) -> pa.Array:
    """Return the cells of a column in some rows of the file; those that are not records stay as they were."""
    rows, kept = block.records, like.kept.get(name)
    given, filled = like.table[name][rows], table[name][rows]
    texts = splice(block.of_records(name), given, filled, style, None if kept is None else kept[rows])
    return block.with_records(name, texts)


def spell_limits(table: pa.Table, like: TableFile) -> pa.Table:
    """Return a table in which columns with cells that no number holds, such as ``<0.05``, are text."""
    for place, name in enumerate(table.column_names):
        style = like.styles.get(name)
        if like.text is not None and style is not None and (style.limits or like.keeps_texts(name)):
            texts = splice(like.text[name], like.table[name], table[name], style, like.kept.get(name))
            table = table.set_column(place, name, texts)
    return table


def spell_out(table: pa.Table) -> tuple[CellTexts, dict[str, Style]]:
    """Return typed columns as text, with the styles that this text shows."""
    columns, styles = [], {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        texts = column.combine_chunks().cast(pa.large_string())
        if pa.types.is_timestamp(column.type) and pc.all(pc.match_substring_regex(texts, r"\.0+Z?$")).as_py():
            texts = pc.replace_substring_regex(texts, r"\.0+(Z?)$", r"\1")
        columns.append(texts)
        styles[name] = style_of(kind_of(column.type), texts.drop_null())
    return CellTexts.of(pa.table(columns, names=table.column_names)), styles


def splice(
    text: pa.Array,
    given: pa.ChunkedArray,
    filled: pa.ChunkedArray,
    style: Style,
    kept: pa.Array | None,
) -> pa.Array:
    """Return the cells as they were written, with those that were missing and now are not replaced."""
    texts = pc.fill_null(text, "")
    empty = find_filled(given, filled, kept)
    if not pc.any(empty).as_py():
        return texts
    return pc.replace_with_mask(texts, empty, format_cells(decode_cells(filled, empty), style))


def find_filled(given: pa.ChunkedArray, filled: pa.ChunkedArray, kept: pa.Array | None) -> pa.Array:
    """Return which cells were missing and now are not; cells that are kept are not missing."""
    empty = pc.and_(given.is_null(), filled.is_valid()).combine_chunks()
    return empty if kept is None else pc.and_not(empty, kept)


def decode_cells(cells: pa.ChunkedArray, chosen: pa.Array) -> pa.Array:
    """Return some cells of a column, with values in place of a dictionary."""
    values = cells.combine_chunks().filter(chosen)
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


# --------------------------------------------------------------------------------- rows that are not records

_TOTALS = re.compile(
    r"(grand |sub-?)?totals?|sums?|averages?|means?|summe|gesamt(summe)?|insgesamt|zusammen|mittelwert|"
    r"durchschnitt|totaux|total général|moyenne|totale|media|suma|promedio|totaal|gemiddelde",
    re.IGNORECASE,
)
_SUBTOTALS = ("subtotal", "sub-total", "sub total", "zwischensumme", "sous-total", "subtotale", "subtotaal")
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
    for what, rows in _find_others(text, header, keep_empty):
        new = rows & ~aside
        if new.any() and not (aside | new).all():
            aside |= new
            notes.append(_note(what, np.flatnonzero(new), every, text))
    return Lines(n_above, aside), notes


def _note(what: str, rows: np.ndarray, every: Lines, text: pa.Table) -> Note:
    numbers = [f"{every.line_of(int(row), text):,}" for row in rows[:_SHOWN]]
    more = f" and {len(rows) - _SHOWN:,} more" if len(rows) > _SHOWN else ""
    if len(rows) == 1:
        return Note(f"line {numbers[0]} {what}: copied to a csv output, but not read")
    return Note(f"lines {', '.join(numbers)}{more} {_PLURAL[what]}: copied to a csv output, but not read")


def _find_others(text: pa.Table, header: Sequence[str], keep_empty: bool) -> Iterator[tuple[str, Mask]]:
    yield "repeats the column names", _repeats_header(text, header)
    if text.num_rows < _MIN_ROWS:
        return
    yield "holds units", _only(text, 0, _holds_units(text))
    first = _holds_labels(text, 0)
    yield "holds labels", _only(text, 0, first) | _only(text, 1, first and _holds_labels(text, 1))
    remarks, blank, total = _find_end(text)
    yield "holds a remark", remarks
    yield "holds a total", total | _holds_subtotals(text)
    if not keep_empty:
        yield "has no values", blank & is_no_accident(text, blank)


def _find_end(text: pa.Table) -> tuple[Mask, Mask, Mask]:
    """Return which rows at the end of a table are remarks, or empty beside these, and which is a total."""
    remarks, end = _find_remarks(text)
    blank = end if remarks.any() else _blank_end(text)
    last = text.num_rows - 1 - int(blank.sum())
    return remarks, blank, _only(text, last, _holds_total(text, last))


def cut_end(text: pa.Table, first: int) -> tuple[int, list[Note]]:
    """Return how many rows come before the total and the remarks at the end of a sheet, and notes on these.

    Parameters
    ----------
    text : pyarrow.Table
        The cells of the sheet as texts.
    first : int
        The number of the first row in the sheet.
    """
    if text.num_rows < _MIN_ROWS:
        return text.num_rows, []
    remarks, _, total = _find_end(text)
    notes = []
    for what, rows in (("holds a total", total), ("holds a remark", remarks)):
        numbers = [f"{row + first:,}" for row in np.flatnonzero(rows)[:_SHOWN].tolist()]
        if numbers:
            one = len(numbers) == 1
            said = f"row {numbers[0]} {what}" if one else f"rows {', '.join(numbers)} {_PLURAL[what]}"
            notes.append(Note(f"{said}: kept in a copy of the workbook, but not read"))
    others = np.flatnonzero(remarks | total)
    if not len(others):
        return text.num_rows, notes
    stop = int(others[0])
    return stop - int(_blank_end(text.slice(0, stop)).sum()), notes


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
