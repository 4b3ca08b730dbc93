"""Text tables (csv): reading and writing.

A csv is read as text first. What the imputer gets is a typed copy; what is written is the text that was read,
with the missing cells alone replaced. So ``39.10`` stays ``39.10`` and ``007`` stays ``007``. Rows that are
not records, such as repeated headers, units and totals, are not read and are written again.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from halfseen.errors import TableError
from halfseen.files import dialect as dialects
from halfseen.files.dialect import Dialect, find_footer, find_preamble, note_footer
from halfseen.files.distinct import EMPTY, FEW, any_match, as_mask, kind_of
from halfseen.files.formats import Style, format_cells, style_of
from halfseen.files.other_rows import find_blank_rows, find_lines, note_blank_rows
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
