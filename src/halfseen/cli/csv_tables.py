"""Text tables in and out.

A csv is read as text first. What the imputer gets is a typed copy; what is written is the text that was read,
with the missing cells alone replaced. So ``39.10`` stays ``39.10`` and ``007`` stays ``007``.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from halfseen.cli import dialect as dialects
from halfseen.cli.cells import Style, format_cells, kind_of, style_of
from halfseen.cli.delimited import check_single, join_lines, parse_text
from halfseen.cli.dialect import Dialect
from halfseen.cli.errors import TableError
from halfseen.cli.footer import find_footer, note_footer
from halfseen.cli.outcomes import describe_outcomes
from halfseen.cli.preamble import find_preamble
from halfseen.cli.recognition import read_columns
from halfseen.cli.records import find_lines
from halfseen.cli.rules import make_rules, merge_settings
from halfseen.cli.table_file import Surroundings, TableFile
from halfseen.cli.texts import CellTexts, TextBlock


def check_names(names: Sequence[str], source: str) -> None:
    """Refuse names of columns that are not unique."""
    places: dict[str, int] = {}
    for place, name in enumerate(names, start=1):
        if name in places:
            raise TableError(
                f"{source}: duplicate column names: columns {places[name]} and {place} are both called "
                f"{name!r}; names must be unique"
            )
        places[name] = place


def _name_all(header: Sequence[str]) -> list[str]:
    """Return the names of the columns; if several have none, those get a number."""
    if sum(not name.strip() for name in header) < 2:
        return list(header)
    return [name if name.strip() else f"unnamed {place}" for place, name in enumerate(header, start=1)]


def _doubt_header(header: Sequence[str], table: pa.Table) -> list[str]:
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
    return [
        f"the first line ({shown}) is read as column names but looks like a record; if it is one, add a "
        "line with names above it"
    ]


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
    every = (given["overrides"] or {}).get("*")
    keep_empty = isinstance(every, dict) and bool(every.get("fill"))
    lines, more = find_lines(rows, header, preamble.n_lines, keep_empty=keep_empty)
    aside = pa.array(lines.aside) if lines.aside.any() else None
    cells = rows if aside is None else rows.filter(pc.invert(aside))
    rules = make_rules(names, **given)
    outcomes = read_columns(cells, rules, chosen, lambda record: lines.line_of(record, rows), as_written=True)
    table = pa.table([outcome.typed for outcome in outcomes.values()], names=names)
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
            given["overrides"],
        ),
        rules,
        Surroundings(tuple(header), preamble, footer),
        {name: out.placeholders for name, out in outcomes.items() if out.placeholders is not None},
    )


def write_csv(
    tables: Iterable[pa.Table], file: BinaryIO, like: TableFile, layout: Dialect, draw: str | None
) -> None:
    """Write completed tables as text, one below the other; `draw` names a first column that counts them."""
    text, styles = (like.text, like.styles) if like.text is not None else _spell_out(like.as_written().table)
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


def _spell_out(table: pa.Table) -> tuple[CellTexts, dict[str, Style]]:
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
