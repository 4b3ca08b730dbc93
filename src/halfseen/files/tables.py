"""Table files: csv, Parquet, feather, JSON lines and xlsx in and out, files or standard streams."""

import gzip
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa

from halfseen.errors import TableError
from halfseen.files.atomic import check_writable, write_atomically
from halfseen.files.binary_tables import find_unstorable, read_binary, write_binary
from halfseen.files.csv_tables import check_names, read_csv, write_csv
from halfseen.files.dialect import Dialect
from halfseen.files.expansion import Expansion, unpack_gzip
from halfseen.files.json_lines import parse_json_lines, read_json_columns, write_json_lines
from halfseen.files.nulls import blank_codes, spell_nulls
from halfseen.files.outcomes import describe_outcomes
from halfseen.files.placeholders import hide_placeholders
from halfseen.files.recognition import read_columns
from halfseen.files.rules import DEFAULT_NULLS, TrainingRules, make_rules, merge_settings
from halfseen.files.sheet_markup import check_sheet
from halfseen.files.spreadsheet import SheetTable, parse_spreadsheet
from halfseen.files.spreadsheet_output import write_spreadsheet
from halfseen.files.table_file import Format, TableFile
from halfseen.files.texts import CellTexts

__all__ = [
    "DEFAULT_NULLS", "Dialect", "TableError", "TableFile", "check_cells", "check_output", "read_table",
    "write_tables",
]  # fmt: skip

EXTENSIONS: dict[str, Format] = {
    ".csv": "csv", ".tsv": "csv", ".tab": "csv", ".txt": "csv", ".psv": "csv", ".data": "csv",
    ".parquet": "parquet", ".pq": "parquet",
    ".feather": "feather", ".arrow": "feather", ".ipc": "feather",
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".xlsx": "xlsx",
}  # fmt: skip
"""The formats of files by the ends of their names."""

_FORMATS = ("csv", "parquet", "feather", "jsonl", "xlsx")
_TABBED = (".tsv", ".tab")


def find_format(path: str, given: str | None, option: str) -> Format:
    """Return the format of a file: the one given, else by its name, else csv for a standard stream."""
    if given is not None:
        if given not in _FORMATS:
            raise TableError(f"unknown format {given!r} for {option}; choose from {', '.join(_FORMATS)}")
        return cast(Format, given)
    if path == "-":
        return "csv"
    suffix = _suffix(path)
    if suffix not in EXTENSIONS:
        known = " ".join(EXTENSIONS)
        what = f"unknown extension {suffix!r}" if suffix else "no extension"
        raise TableError(f"{path}: {what}; known are {known} (csv also with .gz), or use {option} csv")
    return EXTENSIONS[suffix]


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
    max_expansion: str | int | None = None,
    training: TrainingRules | None = None,
    sheet: str | None = None,
) -> TableFile:
    """Read a table file.

    Parameters
    ----------
    path : str
        The file; ``-`` is standard input.
    format : {"csv", "parquet", "feather", "jsonl", "xlsx"}, optional
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
        The settings of a schema file, by column. Columns with levels stay text.
    max_expansion : str or int, optional
        The memory that the content of a compressed file may take: bytes, or a size such as ``"8 GB"``. By
        default, an eighth of the memory of the machine.
    training : TrainingRules, optional
        How the file was read that a model was fitted to, if the new file is read for this model.
    sheet : str, optional
        The sheet of a workbook to read; by default, the only one that holds a table.

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
    if sheet is not None and kind != "xlsx":
        raise TableError(
            f"{source}: --sheet {sheet!r} names a sheet of an xlsx file, and this is a {kind} file"
        )
    bound = Expansion.of(source, max_expansion)
    data = _unpack(_read_bytes(path, source), bound)
    if not data.strip():
        raise TableError(f"{source}: the file is empty")
    given: dict[str, Any] = {
        "nulls": nulls, "default_nulls": default_nulls, "number_formats": number_formats,
        "date_orders": date_orders, "overrides": overrides, "training": training,
    }  # fmt: skip
    if kind == "csv":
        file = read_csv(data, source, delimiter, encoding, given)
    elif kind in ("jsonl", "xlsx"):
        file = _read_cells(data, bound, kind, given, sheet)
    else:
        table = spell_nulls(read_binary(data, kind, bound))
        check_names(table.column_names, source)
        rules = make_rules(table.column_names, **given | {"default_nulls": False})
        table, placeholders, notes = hide_placeholders(blank_codes(table, rules), rules)
        file = TableFile(
            table,
            source,
            kind,
            notes=(*rules.notes, *notes),
            settings=merge_settings({}, overrides),
            rules=rules,
            kept={name: cells.is_valid() for name, cells in placeholders.items()},
            placeholders=placeholders,
        )
    if file.table.num_rows == 0:
        raise TableError(f"{source}: the table has a header but no rows")
    return file


def _read_cells(
    data: bytes, bound: Expansion, kind: Format, given: dict[str, Any], title: str | None
) -> TableFile:
    """Return the table of a format whose cells are recognised as those of a text file are."""
    source = bound.source
    sheet: SheetTable | None = None
    literals: CellTexts | None = None
    if kind == "xlsx":
        every = (given["overrides"] or {}).get("*")
        keep_empty = isinstance(every, dict) and bool(every.get("fill"))
        sheet = parse_spreadsheet(data, bound, title, keep_empty=keep_empty)
        cells, first = sheet.cells, sheet.origin.header_row + 1
        rules = make_rules(cells.column_names, **given)
        outcomes = read_columns(cells, rules, ",", lambda record: record + first)
    else:
        parsed = parse_json_lines(data, bound)
        cells, literals = parsed.cells, CellTexts.of(parsed.literals)
        rules = make_rules(cells.column_names, **given)
        outcomes = read_json_columns(parsed, rules)
    found = {name: one.settings for name, one in outcomes.items() if one.settings}
    placeholders = {name: one.placeholders for name, one in outcomes.items()}
    file = TableFile(
        pa.table([one.typed for one in outcomes.values()], names=cells.column_names),
        source,
        kind,
        text=CellTexts.of(cells),
        styles={name: one.style for name, one in outcomes.items()},
        notes=(*rules.notes, *describe_outcomes(outcomes)),
        kept={name: one.kept for name, one in outcomes.items() if one.kept is not None},
        settings=merge_settings(found, given["overrides"]),
        rules=rules,
        placeholders={name: values for name, values in placeholders.items() if values is not None},
        literals=literals,
    )
    if sheet is None:
        return file
    origin, held, more = sheet.hold(file.table, file.kept)
    return replace(file, sheet=origin, held=held, notes=(*sheet.notes, *file.notes, *more))


def _read_bytes(path: str, source: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except IsADirectoryError:
        raise TableError(f"{source}: this is a directory, not a table file") from None
    except OSError as error:
        raise TableError(f"{source}: cannot read: {(error.strerror or str(error)).lower()}") from error


def _unpack(data: bytes, bound: Expansion) -> bytes:
    if data.startswith(b"\x1f\x8b"):
        return unpack_gzip(data, bound)
    if bound.source.lower().endswith(".gz") and data:
        raise TableError(f"{bound.source}: the name ends in .gz but the content is not gzip")
    return data


def check_output(path: str, format: str | None = None) -> None:
    """Refuse an output that could not be written, before the work begins."""
    kind = find_format(path, format, "--to")
    if kind not in ("csv", "jsonl") and path.lower().endswith(".gz"):
        raise TableError(f"{path}: only csv is written through gzip; {kind} files are compressed already")
    if path != "-":
        check_writable(path)


def check_cells(table: pa.Table, path: str, format: str | None = None, n_tables: int = 1) -> None:
    """Refuse a table with cells that the output cannot hold, before the work begins.

    Parameters
    ----------
    table : pyarrow.Table
        The table.
    path : str
        The file to write.
    format : str, optional
        Its format, if not by its name.
    n_tables : int
        How many such tables are written below each other.
    """
    kind = find_format(path, format, "--to")
    column = find_unstorable(table.schema, kind)
    if column is not None:
        article = "an" if kind == "xlsx" else "a"
        formats: tuple[Format, ...] = ("parquet", "feather")
        others = " or ".join(one for one in formats if find_unstorable(pa.schema([column]), one) is None)
        raise TableError(
            f"{path}: column {column.name!r} has the type {column.type}, which {article} {kind} file cannot "
            f"store; write {others} instead"
        )
    if kind == "xlsx":
        check_sheet(table, path, n_tables)


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
    format : {"csv", "parquet", "feather", "jsonl", "xlsx"}, optional
        Taken from the name if not given.
    draw : str, optional
        The name of a first column that counts the tables from 1.
    """
    check_output(path, format)
    check_cells(like.table, path, format)
    kind = find_format(path, format, "--to")
    tables = (like.to_write(table) for table in tables)
    with ExitStack() as stack:
        file: BinaryIO = stack.enter_context(write_atomically(path))
        if path.lower().endswith(".gz"):
            file = cast(BinaryIO, stack.enter_context(gzip.GzipFile("", "wb", 6, file, mtime=0)))
        if kind == "csv":
            write_csv(tables, file, like, _output_dialect(path, like), draw)
        elif kind == "jsonl":
            write_json_lines(tables, file, like, draw)
        elif kind == "xlsx":
            write_spreadsheet(tables, file, like, draw)
        else:
            write_binary(tables, file, like, kind, draw)
        file.flush()


def _output_dialect(path: str, like: TableFile) -> Dialect:
    layout, suffix = like.dialect, _suffix(path)
    if suffix in _TABBED:
        return Dialect("\t", layout.encoding, layout.newline)
    if suffix == ".csv" and _suffix(like.source) in _TABBED:
        return Dialect(",", layout.encoding, layout.newline)
    return layout
