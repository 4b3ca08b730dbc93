"""Parsing and writing delimited text, without a loop over cells."""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from halfseen.cli import dialect as dialects
from halfseen.cli.dialect import Dialect
from halfseen.cli.errors import TableError

_EMPTY = pa.scalar("", pa.large_string())

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
    table = table.slice(1).rename_columns(
        header
    )  # the header was read as a row, so that it may hold line ends
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
    cells[-1] = pc.binary_join_element_wise(cells[-1], pa.scalar(layout.newline, pa.large_string()), _EMPTY)
    lines = pc.binary_join_element_wise(*cells, pa.scalar(layout.delimiter, pa.large_string()))
    # The data buffer of a string array is the concatenation of its values: here, of the lines.
    _, _, buffer = pa.concat_arrays([lines]).buffers()
    return buffer.to_pybytes() if buffer is not None else b""


def _quote(cells: pa.Array, delimiter: str, *, alone: bool) -> pa.Array:
    special = pc.match_substring_regex(cells, rf'["\r\n\x{ord(delimiter):02x}]')
    if alone:  # in a table of one column an empty cell would be a blank line
        special = pc.or_(special, pc.equal(cells, _EMPTY))
    if not pc.any(special).as_py():
        return cells
    doubled = pc.replace_substring(cells.filter(special), '"', '""')
    mark = pa.scalar('"', pa.large_string())
    return pc.replace_with_mask(cells, special, pc.binary_join_element_wise(mark, doubled, mark, _EMPTY))
