"""Table files: csv, Parquet and feather in and out, plain or through gzip, files or standard streams.

A csv is read as text first. What the imputer gets is a typed copy; what is written is the text that was read,
with the missing cells alone replaced. So ``39.10`` stays ``39.10`` and ``007`` stays ``007``.
"""

import gzip
import io
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather
import pyarrow.parquet

from halfseen.cli import dialect as dialects
from halfseen.cli.atomic import check_writable, write_atomically
from halfseen.cli.cells import Style, format_cells, kind_of, style_of
from halfseen.cli.delimited import check_single, join_lines, parse_text
from halfseen.cli.dialect import Dialect
from halfseen.cli.errors import TableError
from halfseen.cli.nulls import blank_codes, spell_nulls, suspect_codes
from halfseen.cli.outcomes import describe_outcomes
from halfseen.cli.recognition import read_columns
from halfseen.cli.rules import DEFAULT_NULLS, Rules, make_rules, merge_settings

__all__ = [
    "DEFAULT_NULLS", "Dialect", "TableError", "TableFile", "check_cells", "check_output", "read_table",
    "write_tables",
]  # fmt: skip

Format = Literal["csv", "parquet", "feather"]

_EXTENSIONS: dict[str, Format] = {
    ".csv": "csv", ".tsv": "csv", ".tab": "csv", ".txt": "csv", ".psv": "csv", ".data": "csv",
    ".parquet": "parquet", ".pq": "parquet",
    ".feather": "feather", ".arrow": "feather", ".ipc": "feather",
}  # fmt: skip
_TABBED = (".tsv", ".tab")
_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class TableFile:
    """A table that was read, and what is needed to write it back in its own style.

    Parameters
    ----------
    table : pyarrow.Table
        The typed columns; a missing cell is null.
    source : str
        The name of the file, or ``standard input``.
    format : {"csv", "parquet", "feather"}
        What the file was.
    dialect : Dialect
        How its text was laid out; the default one for a binary format.
    text : pyarrow.Table or None
        The cells as they were written, for a csv.
    styles : dict of str to Style
        How the cells of each column of a csv are written.
    notes : tuple of str
        What was decided while reading.
    kept : dict of str to pyarrow.Array
        Cells of a csv that are null in the table but not missing: no model sees them, and their text stays.
    settings : dict of str to object
        The schema settings for models: what was found while reading, under what the user said.
    rules : Rules
        What the user said about cells.
    """

    table: pa.Table
    source: str
    format: Format
    dialect: Dialect = field(default_factory=Dialect)
    text: pa.Table | None = None
    styles: dict[str, Style] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    kept: dict[str, pa.Array] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    rules: Rules = field(default_factory=Rules)

    @property
    def n_missing(self) -> int:
        """The number of missing cells."""
        n_kept = sum(kept.true_count for kept in self.kept.values())
        return sum(column.null_count for column in self.table.columns) - n_kept


def find_format(path: str, given: str | None, option: str) -> Format:
    """Return the format of a file: the one given, else what its name says, else csv for a standard stream."""
    if given is not None:
        if given not in ("csv", "parquet", "feather"):
            raise TableError(f"unknown format {given!r} for {option}; choose csv, parquet or feather")
        return cast(Format, given)
    if path == "-":
        return "csv"
    suffix = _suffix(path)
    if suffix not in _EXTENSIONS:
        known = " ".join(_EXTENSIONS)
        what = f"unknown extension {suffix!r}" if suffix else "no extension"
        raise TableError(f"{path}: {what}; known are {known} (csv also with .gz), or say {option} csv")
    return _EXTENSIONS[suffix]


def _suffix(path: str) -> str:
    name = Path(path).name.lower().removesuffix(".gz")
    return Path(name).suffix


def read_table(
    path: str,
    *,
    format: str | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    nulls: Sequence[str] = (),
    default_nulls: bool = True,
    number_formats: Sequence[str] = (),
    date_orders: Sequence[str] = (),
    overrides: Mapping[str, Any] | None = None,
) -> TableFile:
    """Read a table file.

    Parameters
    ----------
    path : str
        The file; ``-`` is standard input.
    format : {"csv", "parquet", "feather"}, optional
        Taken from the name if not given.
    delimiter, encoding : str, optional
        Found in the text if not given.
    nulls : sequence of str
        Cell texts that mean missing, or ``COLUMN=TEXT`` for one column; numbers also in a binary format.
    default_nulls : bool
        Whether `DEFAULT_NULLS` mean missing too. The empty cell always does.
    number_formats : sequence of str
        How 1234.56 is written in a csv, ``1.234,56`` for example, or ``COLUMN=1.234,56`` or ``COLUMN=text``.
    date_orders : sequence of str
        The order of dates in a csv: ``dmy``, ``mdy``, ``ymd``, or ``COLUMN=dmy``.
    overrides : mapping, optional
        The settings of a schema file, by column. Columns that are said to have levels stay text.

    Returns
    -------
    TableFile

    Raises
    ------
    TableError
        When the file cannot be read as a table with at least one row and one column.
    """
    source = "standard input" if path == "-" else path
    if path != "-" and not Path(path).is_dir() and not Path(path).exists():
        raise TableError(f"{path}: no such file")
    kind = "csv" if Path(path).is_dir() else find_format(path, format, "--from")
    data = _unpack(_read_bytes(path, source), source)
    if not data.strip():
        raise TableError(f"{source}: the file is empty")
    given: dict[str, Any] = {
        "nulls": nulls, "default_nulls": default_nulls, "number_formats": number_formats,
        "date_orders": date_orders, "overrides": overrides,
    }  # fmt: skip
    if kind == "csv":
        file = _read_csv(data, source, delimiter, encoding, given)
    else:
        table = spell_nulls(_read_binary(data, source, kind))
        _check_names(table.column_names, source)
        rules = make_rules(table.column_names, **given | {"default_nulls": False})
        table = blank_codes(table, rules)
        notes = (*rules.notes, *suspect_codes(table))
        file = TableFile(
            table, source, kind, notes=notes, settings=merge_settings({}, overrides), rules=rules
        )
    if file.table.num_rows == 0:
        raise TableError(f"{source}: the table has a header but no rows")
    return file


def _read_bytes(path: str, source: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except IsADirectoryError:
        raise TableError(f"{source}: this is a directory, not a table file") from None
    except OSError as error:
        raise TableError(f"{source}: cannot read: {(error.strerror or str(error)).lower()}") from error


def _unpack(data: bytes, source: str) -> bytes:
    if not data.startswith(b"\x1f\x8b"):
        if source.lower().endswith(".gz") and data:
            raise TableError(f"{source}: the name ends in .gz but the content is not gzip")
        return data
    try:
        return gzip.decompress(data)
    except EOFError:
        raise TableError(f"{source}: the gzip file is truncated") from None
    except (zlib.error, gzip.BadGzipFile) as error:
        raise TableError(f"{source}: the gzip file is damaged ({error})") from None


def _read_binary(data: bytes, source: str, kind: Format) -> pa.Table:
    buffer = pa.BufferReader(data)
    try:
        if kind == "parquet":
            table = pa.parquet.read_table(buffer)
        elif data.startswith((b"ARROW1", b"FEA1")):
            table = pa.feather.read_table(buffer)
        else:
            table = pa.ipc.open_stream(buffer).read_all()
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise TableError(f"{source}: not a readable {kind} file ({reason})") from None
    return table


def _check_names(names: Sequence[str], source: str) -> None:
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise TableError(
            f"{source}: duplicate column names: {', '.join(map(repr, twice[:5]))}; names must be unique"
        )


def _read_csv(
    data: bytes, source: str, delimiter: str | None, encoding: str | None, given: dict[str, Any]
) -> TableFile:
    text, encoding, notes = dialects.decode(data, source, encoding)
    sample = dialects.first_lines(text)
    sniffed = dialects.sniff_delimiter(sample)
    chosen = dialects.parse_delimiter(delimiter) if delimiter is not None else sniffed or ","
    layout = Dialect(chosen, encoding, dialects.find_newline(sample))
    header = next(iter(dialects.read_rows(sample, chosen)), [])
    if not header:
        raise TableError(f"{source}: the first line has no column names")
    check_single(source, header, chosen, sniffed)
    _check_names(header, source)
    cells = parse_text(text, source, layout, header)
    rules = make_rules(header, **given)
    outcomes = read_columns(cells, rules, chosen)
    return TableFile(
        pa.table([outcome.typed for outcome in outcomes.values()], names=header),
        source,
        "csv",
        layout,
        cells,
        {name: outcome.style for name, outcome in outcomes.items()},
        (*notes, *rules.notes, *describe_outcomes(outcomes)),
        {name: outcome.kept for name, outcome in outcomes.items() if outcome.kept is not None},
        merge_settings(
            {name: outcome.settings for name, outcome in outcomes.items() if outcome.settings},
            given["overrides"],
        ),
        rules,
    )


def check_output(path: str, format: str | None = None) -> None:
    """Refuse an output that could not be written, before the work begins."""
    kind = find_format(path, format, "--to")
    if kind != "csv" and path.lower().endswith(".gz"):
        raise TableError(f"{path}: only csv is written through gzip; {kind} files are compressed already")
    if path != "-":
        check_writable(path)


def check_cells(table: pa.Table, path: str, format: str | None = None) -> None:
    """Refuse a table with cells that the output cannot hold, before the work begins."""
    if find_format(path, format, "--to") != "csv":
        return
    for column in table.schema:
        if pa.types.is_nested(column.type) or _is_bytes(column.type):
            raise TableError(
                f"{path}: column {column.name!r} has the type {column.type}, which a csv file cannot store; "
                "write parquet "
                "or feather instead"
            )


def _is_bytes(dtype: pa.DataType) -> bool:
    kinds = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    return any(is_kind(dtype) for is_kind in (*kinds, pa.types.is_fixed_size_binary))


def write_tables(
    tables: Iterable[pa.Table],
    path: str,
    like: TableFile,
    *,
    format: str | None = None,
    draw: str | None = None,
) -> None:
    """Write completed tables, one below the other, atomically.

    Parameters
    ----------
    tables : iterable of pyarrow.Table
        Completed copies of ``like.table``; a cell that is still null keeps its text.
    path : str
        The file; ``-`` is standard output.
    like : TableFile
        The table that was read.
    format : {"csv", "parquet", "feather"}, optional
        Taken from the name if not given.
    draw : str, optional
        The name of a first column that counts the tables from 1.
    """
    check_output(path, format)
    check_cells(like.table, path, format)
    kind = find_format(path, format, "--to")
    with ExitStack() as stack:
        file: BinaryIO = stack.enter_context(write_atomically(path))
        if path.lower().endswith(".gz"):
            file = cast(BinaryIO, stack.enter_context(gzip.GzipFile("", "wb", 6, file, mtime=0)))
        if kind == "csv":
            _write_csv(tables, file, like, _output_dialect(path, like), draw)
        else:
            _write_binary(tables, file, like, kind, draw)
        file.flush()


def _output_dialect(path: str, like: TableFile) -> Dialect:
    layout, suffix = like.dialect, _suffix(path)
    if suffix in _TABBED:
        return Dialect("\t", layout.encoding, layout.newline)
    if suffix == ".csv" and _suffix(like.source) in _TABBED:
        return Dialect(",", layout.encoding, layout.newline)
    return layout


def _write_binary(
    tables: Iterable[pa.Table], file: BinaryIO, like: TableFile, kind: Format, draw: str | None
) -> None:
    whole = []
    for number, table in enumerate(tables, start=1):
        table = _spell_limits(table, like)
        if draw is not None:
            table = table.add_column(0, draw, pa.repeat(pa.scalar(number, pa.int32()), table.num_rows))
        whole.append(table)
    stacked = pa.concat_tables(whole, promote_options="permissive").unify_dictionaries()
    if draw is None and like.table.schema.metadata:
        stacked = stacked.replace_schema_metadata(like.table.schema.metadata)
    sink = io.BytesIO() if file is sys.stdout.buffer else file  # the writers seek and tell
    if kind == "parquet":
        pa.parquet.write_table(stacked, sink, compression="zstd")
    else:
        pa.feather.write_feather(stacked, sink, compression="zstd")
    if isinstance(sink, io.BytesIO):
        file.write(sink.getvalue())


def _write_csv(
    tables: Iterable[pa.Table], file: BinaryIO, like: TableFile, layout: Dialect, draw: str | None
) -> None:
    text, styles = (like.text, like.styles) if like.text is not None else _spell_out(like.table)
    encode = layout.encoding not in ("utf-8", "utf-8-sig")
    names = ([draw] if draw is not None else []) + list(text.column_names)
    header = [pa.array([name], pa.large_string()) for name in names]
    first = join_lines(header, layout)
    mark = first.decode().encode(layout.encoding) if layout.encoding != "utf-8" else first
    file.write(mark)
    # After the first line no byte-order mark may follow, so the plain name of the byte order is needed.
    tail = {"utf-16": f"utf-16-{sys.byteorder[0]}e", "utf-32": f"utf-32-{sys.byteorder[0]}e"}
    for number, table in enumerate(tables, start=1):
        columns = [
            _splice(text[name], like.table[name], table[name], styles[name], like.kept.get(name))
            for name in text.column_names
        ]
        for start in range(0, table.num_rows, _ROWS_AT_ONCE):
            block = [column[start : start + _ROWS_AT_ONCE] for column in columns]
            if draw is not None:
                block.insert(0, pa.repeat(pa.scalar(str(number), pa.large_string()), len(block[0])))
            lines = join_lines(block, layout)
            file.write(lines.decode().encode(tail.get(layout.encoding, layout.encoding)) if encode else lines)


def _spell_limits(table: pa.Table, like: TableFile) -> pa.Table:
    """Return a table in which columns with cells that no number holds, such as ``<0.05``, are text."""
    for place, name in enumerate(table.column_names):
        style, kept = like.styles.get(name), like.kept.get(name)
        if like.text is not None and style is not None and (style.limits or kept is not None):
            texts = _splice(like.text[name], like.table[name], table[name], style, kept)
            table = table.set_column(place, name, texts)
    return table


def _spell_out(table: pa.Table) -> tuple[pa.Table, dict[str, Style]]:
    """Return typed columns as text, with the styles that this text shows."""
    columns, styles = [], {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        texts = column.combine_chunks().cast(pa.large_string())
        if pa.types.is_timestamp(column.type) and pc.all(pc.match_substring_regex(texts, r"\.0+Z?$")).as_py():
            texts = pc.replace_substring_regex(texts, r"\.0+(Z?)$", r"\1")
        columns.append(texts)
        styles[name] = style_of(kind_of(column.type), texts.drop_null())
    return pa.table(columns, names=table.column_names), styles


def _splice(
    text: pa.ChunkedArray,
    given: pa.ChunkedArray,
    filled: pa.ChunkedArray,
    style: Style,
    kept: pa.Array | None,
) -> pa.Array:
    """Return the cells as they were written, with those that were missing and now are not replaced."""
    texts = pc.fill_null(text.combine_chunks(), "")
    empty = pc.and_(given.is_null(), filled.is_valid()).combine_chunks()
    if kept is not None:
        empty = pc.and_not(empty, kept)
    if not pc.any(empty).as_py():
        return texts
    values = filled.combine_chunks().filter(empty)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return pc.replace_with_mask(texts, empty, format_cells(values, style))
