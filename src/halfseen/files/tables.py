"""Table files: csv, Parquet, feather, JSON lines and xlsx in and out, files or standard streams."""

import io
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather
import pyarrow.parquet

from halfseen.errors import TableError
from halfseen.files.csv_tables import read_csv, spell_limits
from halfseen.files.dialect import Dialect
from halfseen.files.expansion import Expansion, check_parquet, check_values, read_arrow, unpack_gzip
from halfseen.files.json_lines import parse_json_lines, read_json_columns
from halfseen.files.missing_codes import blank_codes, hide_placeholders, spell_nulls
from halfseen.files.outcomes import describe_outcomes, find_numbered_dates
from halfseen.files.recognition import read_columns
from halfseen.files.rules import DEFAULT_NULLS, Given, Rules, TrainingRules, make_rules, merge_settings
from halfseen.files.spreadsheet import SheetTable, parse_spreadsheet
from halfseen.files.table_file import Backend, CellTexts, Format, TableFile, check_backend, check_names
from halfseen.words import Note


def read_binary(data: bytes, kind: Format, bound: Expansion) -> pa.Table:
    """Return the table of a file whose columns have types.

    Parameters
    ----------
    data : bytes
        The content of the file.
    kind : {"parquet", "feather"}
        Its format; Arrow files and streams count as feather.
    bound : Expansion
        The name of the file, and the memory that its content may take.
    """
    buffer = pa.BufferReader(data)
    try:
        if kind == "parquet":
            check_parquet(data, bound)
            # A damaged page that has a checksum is an error. Many writers store none by default.
            table = pa.parquet.read_table(buffer, page_checksum_verification=True)
        elif data.startswith(b"FEA1"):
            table = pa.feather.read_table(buffer)
        else:
            table = read_arrow(data, bound)
        names = table.column_names
    except UnicodeDecodeError as error:
        raise TableError(
            f"{bound.source}: the name of a column, {error.object[:40]!r}, is not UTF-8; rename the column"
        ) from None
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise TableError(f"{bound.source}: not a readable {kind} file ({reason})") from None
    check_values(table, bound)
    for name, column in zip(names, table.columns, strict=True):
        _check_zone(column.type, name, bound.source)
        _check_texts(column, name, bound.source)
    return table


def _check_zone(dtype: pa.DataType, name: str, source: str) -> None:
    """Refuse times of a zone that is not in the database of time zones."""
    dtype = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
    if not pa.types.is_timestamp(dtype) or dtype.tz is None:
        return
    try:
        pc.hour(pa.array([0], pa.int64()).cast(dtype))
    except pa.ArrowInvalid:
        raise TableError(
            f"{source}: column {name!r} has the time zone {dtype.tz!r}, which is not known on this machine; "
            "convert the column to UTC"
        ) from None


def _check_texts(column: pa.ChunkedArray, name: str, source: str) -> None:
    """Refuse texts that are not UTF-8, and values that lie outside of their buffers."""
    if pa.types.is_primitive(column.type):
        return
    start = 0
    for chunk in column.chunks:
        reason = _find_fault(chunk)
        if reason is not None:
            raise TableError(f"{source}: column {name!r}{_explain_fault(chunk, start, reason)}")
        start += len(chunk)


def _explain_fault(chunk: pa.Array, start: int, reason: str) -> str:
    """Return the end of a sentence about a column: which row has a fault, and which."""
    if "UTF8" not in reason:
        return f" is damaged ({reason})"
    if pa.types.is_nested(chunk.type):  # the values of all rows are validated together
        return " contains a text that is not UTF-8"
    row, held = _first_fault(chunk)
    return f", row {start + row + 1:,} (counted from 1): the text {held!r:.60} is not UTF-8"


def _find_fault(array: pa.Array) -> str | None:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        return str(error).splitlines()[0].rstrip(".")
    return None


def _first_fault(array: pa.Array) -> tuple[int, bytes]:
    """Return the first row whose text is not UTF-8, and its bytes."""
    if pa.types.is_dictionary(array.type):
        place, held = _first_fault(array.dictionary)
        return max(0, pc.index(array.indices, pa.scalar(place, array.indices.type)).as_py()), held
    low, high = 0, len(array)  # of the first faulty row, by halves
    while high - low > 1:
        middle = (low + high) // 2
        if _find_fault(array.slice(low, middle - low)) is None:
            low = middle
        else:
            high = middle
    return low, array.slice(low, 1).cast(pa.large_binary())[0].as_py()


def find_unstorable(schema: pa.Schema, kind: Format) -> pa.Field | None:
    """Return the first column whose type a format cannot store, if there is one."""
    if kind == "feather" or (kind == "parquet" and _fits_parquet(schema)):
        return None
    seen: set[pa.DataType] = set()
    for field in schema:
        if field.type in seen:
            continue
        seen.add(field.type)
        dtype = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if kind == "parquet":
            storable = _fits_parquet(pa.schema([field]))
        elif kind == "jsonl":
            storable = not _has_bytes(dtype) and (pa.types.is_nested(dtype) or _has_text(dtype))
        else:
            storable = not _has_bytes(dtype) and not pa.types.is_nested(dtype) and _has_text(dtype)
        if not storable:
            return field
    return None


def _fits_parquet(schema: pa.Schema) -> bool:
    levels = [dtype.value_type for dtype in schema.types if pa.types.is_dictionary(dtype)]
    if any(pa.types.is_nested(dtype) for dtype in levels):  # noticed only when there are values
        return False
    try:
        pa.parquet.write_table(schema.empty_table(), io.BytesIO())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return False
    return True


def _has_text(dtype: pa.DataType) -> bool:
    """Return whether the values of a type can be written as texts."""
    try:
        pa.array([], dtype).cast(pa.large_string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return False
    return True


def _has_bytes(dtype: pa.DataType) -> bool:
    kinds = (
        pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary,
    )  # fmt: skip
    inner = [dtype.field(place).type for place in range(dtype.num_fields)]
    return any(is_kind(dtype) for is_kind in kinds) or any(_has_bytes(one) for one in inner)


def write_binary(
    tables: Iterable[pa.Table], file: BinaryIO, like: TableFile, kind: Format, draw: str | None
) -> None:
    """Write completed tables with their types, one below the other; `draw` names a first column."""
    whole = []
    for number, table in enumerate(tables, start=1):
        table = spell_limits(table, like)
        if draw is not None:
            table = table.add_column(0, draw, pa.repeat(pa.scalar(number, pa.int32()), table.num_rows))
        whole.append(table)
    stacked = pa.concat_tables(whole, promote_options="permissive").unify_dictionaries()
    if draw is None and like.table.schema.metadata:
        stacked = stacked.replace_schema_metadata(like.table.schema.metadata)
    is_stream = file is getattr(sys.stdout, "buffer", None) or not file.seekable()
    sink = io.BytesIO() if is_stream else file  # the writers seek and tell
    if kind == "parquet":
        pa.parquet.write_table(stacked, sink, compression="zstd")
    else:
        pa.feather.write_feather(stacked, sink, compression="zstd")
    if is_stream:
        file.write(cast(io.BytesIO, sink).getvalue())


__all__ = ["DEFAULT_NULLS", "Dialect", "TableError", "TableFile", "read_file", "read_table"]

EXTENSIONS: dict[str, Format] = {
    ".csv": "csv", ".tsv": "csv", ".tab": "csv", ".txt": "csv", ".psv": "csv", ".data": "csv",
    ".parquet": "parquet", ".pq": "parquet",
    ".feather": "feather", ".arrow": "feather", ".ipc": "feather",
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".xlsx": "xlsx",
}  # fmt: skip
"""The formats of files by the ends of their names."""

_FORMATS = ("csv", "parquet", "feather", "jsonl", "xlsx")


def find_format(path: str, given: str | None, option: str) -> Format:
    """Return the format of a file: the one given, else by its name, else csv for a standard stream."""
    if given is not None:
        if given not in _FORMATS:
            raise TableError(f"unknown format {given!r} for {option}; choose from {', '.join(_FORMATS)}")
        return cast(Format, given)
    if path == "-":
        return "csv"
    suffix = suffix_of(path)
    if suffix not in EXTENSIONS:
        known = " ".join(EXTENSIONS)
        what = f"unknown extension {suffix!r}" if suffix else "no extension"
        raise TableError(f"{path}: {what}; known are {known} (csv also with .gz), or use {option} csv")
    return EXTENSIONS[suffix]


def suffix_of(path: str) -> str:
    """Return the end of the name of a file that says its format, in lower case and without ``.gz``."""
    name = Path(path).name.lower().removesuffix(".gz")
    return Path(name).suffix


def read_table(
    path: str | os.PathLike[str],
    *,
    backend: Backend | None = None,
    format: str | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    null: Given = (),
    default_nulls: bool = True,
    number_format: Given = (),
    date_order: Given = (),
    schema: Mapping[str, Any] | None = None,
    sheet: str | None = None,
    max_expansion: str | int | None = None,
) -> TableFile:
    r"""Read a table file, and recognise what its columns hold and how their cells are written.

    Numbers and dates in local formats, currencies, units, detection limits and codes for missing values are
    recognised; lines that are not records are left out. Every decision that is not obvious is in ``notes``.
    The guide on exported files has the rules.

    The parameters are the options of the command line, whose names appear in notes and errors: what is
    ``--null age=999`` there is ``null={"age": 999}`` here.

    Parameters
    ----------
    path : str or path-like
        The file: csv (also with ``.gz``), Parquet, Feather, JSON lines or xlsx. ``"-"`` is standard input.
    backend : {"pandas", "polars", "pyarrow"}, optional
        The library of the frame. By default pandas if it is installed, else pyarrow.
    format : {"csv", "parquet", "feather", "jsonl", "xlsx"}, optional
        By default it is inferred from the name; ``--from`` on the command line.
    delimiter, encoding : str, optional
        Those of a csv. By default they are found in the text.
    null : str, number, sequence of them, or mapping, optional
        Texts and numbers that mean missing, in all columns, or in the column that is the key of a mapping. A
        text ``"COLUMN=TEXT"`` holds for one column too.
    default_nulls : bool, default=True
        Whether usual texts such as ``NA`` and ``NaN`` mean missing. The empty cell always does.
    number_format : str or mapping, optional
        How 1234.56 is written, ``"1.234,56"`` for example, in ambiguous columns or, by a mapping, in one
        column; ``{"zip": "text"}`` keeps a column as text.
    date_order : {"dmy", "mdy", "ymd"} or mapping, optional
        The order of day, month and year, in ambiguous columns or, by a mapping, in one column.
    schema : mapping, optional
        The settings of columns, as of an imputer. Columns with levels stay text.
    sheet : str, optional
        The sheet of a workbook; by default, the only one that holds a table.
    max_expansion : str or int, optional
        The memory that the content of a compressed file may take: bytes, or a size such as ``"8 GB"``. By
        default, an eighth of the memory of the machine.

    Returns
    -------
    TableFile
        ``frame`` is the table, ``columns`` what was recognised, ``notes`` what was decided, and ``settings``
        the part of it that imputers take as ``schema``.

    Raises
    ------
    TableError
        A ValueError: the file cannot be read as a table with at least one row and one column.

    See Also
    --------
    write_table : Writes a frame in the formats of the file that it was read from.

    Examples
    --------
    >>> from pathlib import Path
    >>> import halfseen
    >>> lines = ["weight;price;day", "72,9 kg;1.577,37;28.05.2021", "k.A.;2.340,00;31.05.2021", "68,1 kg;;"]
    >>> _ = Path("export.csv").write_text("\n".join(lines), encoding="utf-8")
    >>> file = halfseen.read_table("export.csv")
    >>> file.frame
       weight    price        day
    0    72.9  1577.37 2021-05-28
    1     NaN  2340.00 2021-05-31
    2    68.1      NaN        NaT
    >>> file.columns["weight"].missing_codes
    {'k.A.': 1}
    >>> file.columns["price"].example
    '1.577,37'
    >>> file.notes[0]
    "column 'weight' contains numbers with the unit kg and decimal commas"
    """
    return read_file(
        os.fspath(path), backend=backend, format=format, delimiter=delimiter, encoding=encoding, null=null,
        default_nulls=default_nulls, number_format=number_format, date_order=date_order, schema=schema,
        sheet=sheet, max_expansion=max_expansion,
    )  # fmt: skip


def read_file(
    path: str,
    *,
    backend: Backend | None = None,
    format: str | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
    max_expansion: str | int | None = None,
    schema: Mapping[str, Any] | None = None,
    training: TrainingRules | None = None,
    **reading: Any,
) -> TableFile:
    """Read a table file as `read_table` does, possibly for a model.

    Parameters
    ----------
    path : str
        The file; ``-`` is standard input.
    backend, format, delimiter, encoding, sheet, max_expansion, schema : object
        As of `read_table`.
    training : TrainingRules, optional
        How the file was read that a model was fitted to, if the new file is read for this model.
    **reading : object
        ``null``, ``default_nulls``, ``number_format`` and ``date_order`` of `read_table`.
    """
    source = "standard input" if path == "-" else path
    if path != "-" and not Path(path).is_dir() and not Path(path).exists():
        raise TableError(f"{path}: no such file")
    check_backend(backend)
    kind = "csv" if Path(path).is_dir() else find_format(path, format, "--from")
    if sheet is not None and kind != "xlsx":
        raise TableError(
            f"{source}: --sheet {sheet!r} names a sheet of an xlsx file, and this is a {kind} file"
        )
    bound = Expansion(source) if max_expansion is None else Expansion.of(source, max_expansion)
    data = _unpack(_read_bytes(path, source), bound)
    if not data.strip():
        raise TableError(f"{source}: the file is empty")
    given = reading | {"schema": schema, "training": training}
    if kind == "csv":
        file = read_csv(data, source, delimiter, encoding, given)
    elif kind in ("jsonl", "xlsx"):
        file = _read_cells(data, bound, kind, given, sheet)
    else:
        file = _read_typed(data, bound, kind, given)
    if file.table.num_rows == 0:
        raise TableError(f"{source}: the table has a header but no rows")
    return replace(file, backend=backend)


def _read_typed(data: bytes, bound: Expansion, kind: Format, given: dict[str, Any]) -> TableFile:
    """Return the table of a format whose columns have types."""
    table = spell_nulls(read_binary(data, kind, bound))
    check_names(table.column_names, bound.source)
    rules = make_rules(table.column_names, **given | {"default_nulls": False})
    table, placeholders, notes = hide_placeholders(blank_codes(table, rules), rules)
    dates = _find_numbered_dates(table, rules)
    return TableFile(
        table,
        bound.source,
        kind,
        notes=(*rules.notes, *notes, *dates.values()),
        settings=merge_settings({name: {"fill": False} for name in dates}, given["schema"]),
        rules=rules,
        kept={name: cells.is_valid() for name, cells in placeholders.items()},
        placeholders=placeholders,
    )


def _find_numbered_dates(table: pa.Table, rules: Rules) -> dict[str, Note]:
    """Return notes on the columns of whole numbers that are dates, unless the user says what they are."""
    whole = [
        name
        for name, column in zip(table.column_names, table.columns, strict=True)
        if pa.types.is_integer(column.type) and rules.of(name).wanted is None
    ]
    found = {name: find_numbered_dates(name, table[name].combine_chunks()) for name in whole}
    return {name: note for name, note in found.items() if note is not None}


def _read_cells(
    data: bytes, bound: Expansion, kind: Format, given: dict[str, Any], title: str | None
) -> TableFile:
    """Return the table of a format whose cells are recognised as those of a text file are."""
    source = bound.source
    sheet: SheetTable | None = None
    literals: CellTexts | None = None
    if kind == "xlsx":
        every = (given["schema"] or {}).get("*")
        keep_empty = isinstance(every, dict) and bool(every.get("fill"))
        sheet = parse_spreadsheet(data, bound, title, keep_empty=keep_empty)
        cells, places = sheet.cells, sheet.origin.rows
        rules = make_rules(cells.column_names, **given)
        outcomes = read_columns(cells, rules, ",", lambda record: int(places[record]))
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
        settings=merge_settings(found, given["schema"]),
        rules=rules,
        placeholders={name: values for name, values in placeholders.items() if values is not None},
        literals=literals,
    )
    if sheet is None:
        return file
    origin, held, more = sheet.hold(file.table, file.kept)
    return replace(file, sheet=origin, held=held, notes=(*sheet.notes, *file.notes, *more))


def _read_standard_input() -> bytes:
    """Return the bytes of standard input; a program may have put a stream of text in its place."""
    if sys.stdin is None:
        raise TableError("-: cannot read: standard input is closed")
    stream = getattr(sys.stdin, "buffer", None)
    return sys.stdin.read().encode() if stream is None else bytes(stream.read())


def _read_bytes(path: str, source: str) -> bytes:
    try:
        return _read_standard_input() if path == "-" else Path(path).read_bytes()
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
