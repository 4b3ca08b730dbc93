"""Writing table files: completed tables of commands, and frames of users, in the formats that were read.

Outputs are checked before the work begins, never written over an input, and written atomically.
"""

import gzip
import io
import os
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halfseen import _machine
from halfseen.errors import TableError
from halfseen.files.csv_tables import spell_out, write_csv
from halfseen.files.dialect import Dialect
from halfseen.files.distinct import EMPTY, kind_of
from halfseen.files.formats import Style, style_of
from halfseen.files.json_lines import write_json_lines
from halfseen.files.missing_codes import spell_nulls
from halfseen.files.spreadsheet_output import check_sheet, write_spreadsheet
from halfseen.files.table_file import Format, TableFile, check_names, has_other_rows, to_arrow
from halfseen.files.tables import find_format, find_unstorable, suffix_of, write_binary

STANDARD_OUTPUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
"""Names of standard output, to which is written as it is, also if it appends to a file."""
TEXT_ONLY = "standard output was replaced by a stream of UTF-8 text, which cannot hold this: name a file"


def check_writable(path: str) -> None:
    """Raise an error if a path cannot be written, before the work begins."""
    target = Path(path)
    if target.is_dir():
        raise TableError(f"{path}: cannot write: this is a directory")
    if target.exists() and not target.is_file():  # a pipe or a device, which is not replaced by another file
        if not os.access(target, os.W_OK):
            raise TableError(f"{path}: cannot write: permission denied")
        return
    folder = target.parent
    if not folder.exists():
        raise TableError(f"{path}: cannot write: the directory {str(folder)!r} does not exist")
    if not folder.is_dir():
        raise TableError(f"{path}: cannot write: {str(folder)!r} is not a directory")
    if not os.access(folder, os.W_OK) or (target.exists() and not os.access(target, os.W_OK)):
        raise TableError(f"{path}: cannot write: permission denied")


def check_in_place(path: str) -> None:
    """Raise an error if a file would not stay what it is when another one takes its place.

    A file is replaced as a whole, so that it is never half-written. Other names of it would keep the old
    content, and a file of another user would change its owner.
    """
    status = os.stat(path)
    if status.st_nlink > 1:
        raise TableError(
            f"{path}: --in-place: the file has other names (hard links), which would keep the old content; "
            "use --output"
        )
    if not _machine.can_keep_owner(status):
        raise TableError(
            f"{path}: --in-place: the file belongs to another user or group, which a new file cannot; "
            "use --output"
        )


def check_report(path: str | None) -> None:
    """Raise an error if a report could not be made or written, before the work begins."""
    if path is not None:
        check_writable(path)
        import_module("jinja2")  # of an extra; if it is missing, `main` names what to install


def check_overwriting(
    inputs: Mapping[str, str | Sequence[str] | None],
    outputs: Mapping[str, str | None],
    *,
    in_place: bool = False,
    resumed: Collection[str] = (),
    overwrite: bool = False,
) -> None:
    """Raise an error if an output is an input or another output, or would replace a file unasked.

    Files are compared, not names, so that links and other spellings of a path are recognised.

    Parameters
    ----------
    inputs, outputs : dict of str to str or None
        Paths, by the argument or option that named them; ``-`` is a standard stream. None was not given. An
        argument that names several files has a list.
    in_place : bool
        Whether ``--output`` may be ``IN``.
    resumed : collection of str
        Those of the outputs that belong to an earlier run, which goes on.
    overwrite : bool
        Whether existing files that are no inputs may be replaced.
    """
    named = {option: [paths] if isinstance(paths, str) else paths or () for option, paths in inputs.items()}
    known = [(option, path, 0) for option, paths in named.items() for path in paths]
    for option, path in outputs.items():
        if path is None:
            continue
        for other, taken, stream in known:
            if (in_place and (option, other) == ("--output", "IN")) or not is_same_file(path, taken, stream):
                continue
            hint = ", or --in-place to replace it" if (option, other) == ("--output", "IN") else ""
            what = "the input" if other == "IN" else f"the file of {other}"
            raise TableError(f"{path}: {option} would overwrite {what}: give another name{hint}")
        known.append((option, path, 1))
    for option, path in outputs.items():
        replaced = overwrite or option in resumed or (in_place and option == "--output")
        if path is not None and not replaced and file_exists(path):
            raise TableError(f"{path}: {option}: the file exists; --overwrite replaces it")


def file_exists(path: str) -> bool:
    """Return whether a path names a file with content to lose, rather than a stream or a device."""
    return path not in STANDARD_OUTPUT and Path(path).is_file()


def is_same_file(output: str, other: str, stream: int = 0) -> bool:
    """Return whether an output is another file; `stream` is the standard stream that ``-`` means there."""
    if output == other == "-":
        return stream == 1
    one, two = _status(output, 1), _status(other, stream)
    if one is not None and two is not None:
        regular = stat.S_ISREG(one.st_mode)  # devices and pipes may be named twice
        return regular and os.path.samestat(one, two)
    if one is not None or two is not None or "-" in (output, other):
        return False
    paths = [Path(os.path.realpath(path)) for path in (output, other)]
    # Neither is there yet, and whether the file system distinguishes upper and lower case is not known.
    return paths[0].parent == paths[1].parent and paths[0].name.casefold() == paths[1].name.casefold()


def _status(path: str, stream: int) -> os.stat_result | None:
    try:
        return os.fstat(stream) if path == "-" else os.stat(path)
    except OSError:
        return None


@contextmanager
def _standard_output() -> Iterator[BinaryIO]:
    """Open standard output for bytes, also where a program has put a stream of text in its place."""
    stream = getattr(sys.stdout, "buffer", None)
    if stream is not None:
        yield stream
        stream.flush()
        return
    content = io.BytesIO()
    yield content
    try:
        sys.stdout.write(content.getvalue().decode())
    except UnicodeDecodeError:
        raise TableError(f"-: {TEXT_ONLY}") from None


@contextmanager
def write_atomically(path: str) -> Iterator[BinaryIO]:
    """Open a temporary file, which is renamed when the block succeeds; failures are TableErrors.

    ``-`` is standard output, and so is ``/dev/stdout``.
    """
    name = "standard output" if path == "-" else path
    try:
        if path in STANDARD_OUTPUT:
            with _standard_output() as stream:
                yield stream
            return
        with _machine.write_atomically(path) as file:
            yield file
    except BrokenPipeError:
        raise  # the reader of the pipe has ended, which `main` handles
    except OSError as error:
        raise TableError(f"{name}: cannot write: {(error.strerror or str(error)).lower()}") from error


def write_page(path: str, page: str) -> None:
    """Write a report; characters of file names that are not UTF-8 become question marks."""
    with write_atomically(path) as file:
        file.write(page.encode("utf-8", errors="replace"))


_TABBED = (".tsv", ".tab")


def write_table(
    table: Any,
    path: str | os.PathLike[str],
    *,
    like: TableFile | None = None,
    format: str | None = None,
    overwrite: bool = False,
) -> None:
    r"""Write a frame to a table file, its cells as the file had them from which it was read.

    A cell whose value is still the one that was read is written as it was, character by character. A cell
    with another value is written in the format of its column: with its decimals, separators, unit and order
    of dates. Cells that are kept although models do not see them, such as placeholders (``columns[...].kept``
    lists them), are written as they were whatever the frame has. Lines that are not records, and other parts
    of a workbook, are copied.

    The file is written beside its place and then renamed, so that it is complete or not there.

    Parameters
    ----------
    table : frame of pandas, polars or pyarrow
        The table. With `like`, its rows are those that were read, in their order; columns may be removed,
        added and moved.
    path : str or path-like
        The file to write; ``"-"`` is standard output.
    like : TableFile, optional
        What `read_table` returned. Without it, the values are written in plain formats, as UTF-8 with commas
        if the file is a csv.
    format : {"csv", "parquet", "feather", "jsonl", "xlsx"}, optional
        By default it is inferred from the name.
    overwrite : bool, default=False
        Whether an existing file is replaced.

    Raises
    ------
    TableError
        A ValueError: the file exists, cannot be written, or cannot store a column; or the rows are not those
        of `like`.

    See Also
    --------
    read_table : Reads a table file.

    Examples
    --------
    >>> from pathlib import Path
    >>> import halfseen
    >>> _ = Path("amounts.csv").write_text("id;amount\n007;1.577,370\n008;\n009;2.340,000\n")
    >>> file = halfseen.read_table("amounts.csv", backend="pandas")
    >>> frame = file.frame.fillna({"amount": file.frame["amount"].mean()})
    >>> halfseen.write_table(frame, "filled.csv", like=file)
    >>> print(Path("filled.csv").read_text())
    id;amount
    007;1.577,370
    008;1.958,685
    009;2.340,000
    <BLANKLINE>
    """
    target = os.fspath(path)
    if not overwrite and file_exists(target):
        raise TableError(f"{target}: the file exists; use overwrite=True to replace it")
    arrow = spell_nulls(to_arrow(table))
    check_names(arrow.column_names, "the table")
    if arrow.num_columns == 0:
        raise TableError("the table has no columns")
    if like is None:
        file = TableFile(arrow, target, find_format(target, format, "format="))
    else:
        rows = np.arange(like.table.num_rows) if like.rows is None else like.rows
        if arrow.num_rows != like.table.num_rows or has_other_rows(table, rows):
            raise TableError(
                f"the table has other rows than {like.source}, which had {like.table.num_rows:,}, or another "
                "order: use like=file.take(rows) with the positions of the rows in the file"
            )
        arrow, file = _revise(arrow, like)
    write_tables([arrow], target, file, format=format)


def _revise(table: pa.Table, like: TableFile) -> tuple[pa.Table, TableFile]:
    """Return the table of a user in the types of the file, and the file without the cells that changed.

    The writers of the formats write cells that were missing and now are not. So a changed cell is made one
    that was missing, and a new column one that was read.
    """
    columns: dict[str, pa.Array] = {}
    before: dict[str, pa.Array] = {}
    texts: dict[str, pa.Array] = {}
    literals: dict[str, pa.Array] = {}
    erased: dict[str, pa.Array] = {}
    styles = dict(like.styles)
    for name in table.column_names:
        given = like.table[name].combine_chunks() if name in like.table.column_names else None
        new = table[name].combine_chunks()
        if given is None:
            columns[name] = before[name] = new
            if like.text is not None:
                cells, spelt = spell_out(pa.table({name: new}))
                texts[name], styles[name] = pc.fill_null(cells[name], ""), spelt[name]
            continue
        new, given = _in_one_type(new, given)
        fixed = [masks[name] for masks in (like.kept, like.held) if name in masks]
        for mask in fixed:  # cells that are written as they were
            new = pc.if_else(mask, pa.scalar(None, new.type), new)
        changed = pc.and_(given.is_valid(), pc.fill_null(pc.not_equal(new, given), True))
        columns[name] = new
        before[name] = pc.if_else(changed, pa.scalar(None, given.type), given)
        if not pc.any(changed).as_py() and new.type == like.table[name].type:
            continue
        erased[name] = pc.and_(changed, new.is_null())
        if like.text is not None:
            texts[name] = pc.if_else(changed, EMPTY, like.text[name])
            styles[name] = _widen(styles[name], new)
        if like.literals is not None:
            literals[name] = pc.if_else(changed, pa.scalar("null", EMPTY.type), like.literals[name])
    file = _rearrange(like, table.column_names, texts, literals)
    return pa.table(columns), replace(file, table=pa.table(before), styles=styles, erased=erased)


def _in_one_type(new: pa.Array, given: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the new and the old values of a column in the type of the old, or else in one that holds both.

    Frames change types: pandas stores days as times and may store whole numbers as floats.
    """
    if new.type == given.type:
        return new, given
    if pa.types.is_dictionary(new.type):
        new = new.dictionary_decode()
    try:
        return new.cast(given.type), given
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    kinds = {kind_of(new.type), kind_of(given.type)}
    plain = given.dictionary_decode() if pa.types.is_dictionary(given.type) else given
    if kinds <= {"integer", "float"}:
        return new.cast(pa.float64()), plain.cast(pa.float64())
    if kinds <= {"date", "timestamp"}:
        zone = getattr(new.type, "tz", None)
        return new.cast(pa.timestamp("us", zone)), plain.cast(pa.timestamp("us", zone))
    try:
        return new.cast(pa.large_string()), plain.cast(pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return new, pa.nulls(len(new), new.type)


def _widen(style: Style, values: pa.Array) -> Style:
    """Return the style of a column that also writes new values of another type in full."""
    kind = kind_of(values.type)
    if style.kind == "integer" and kind == "float":
        return replace(style, kind="float", decimals=None)
    if style.kind == "date" and kind == "timestamp":
        return style_of(kind, pa.array([], pa.large_string()))
    return replace(style, kind="text", number=None, date=None, limits=()) if kind == "text" else style


def _rearrange(
    like: TableFile, names: list[str], texts: dict[str, pa.Array], literals: dict[str, pa.Array]
) -> TableFile:
    """Return a file with other texts and literals, and with the columns of a table in their order."""
    around = like.surroundings
    if around is not None:
        written = dict(zip(like.table.column_names, around.header, strict=False))
        around = replace(around, header=tuple(written.get(name, name) for name in names))
    sheet = like.sheet
    if sheet is not None and not set(sheet.columns) <= set(names):
        sheet = replace(sheet, workbook=None)  # a copy would keep the columns that were removed
    masks: dict[str, Any] = {
        key: {name: cells for name, cells in getattr(like, key).items() if name in names}
        for key in ("kept", "placeholders", "held")
    }
    text = None if like.text is None else like.text.with_columns(texts).select(names)
    values = like.literals
    if values is not None:
        values = values.with_columns(literals)
        values = values.select([name for name in names if name in values.column_names])
    return replace(like, text=text, literals=values, surroundings=around, sheet=sheet, **masks)


def check_output(path: str, format: str | None = None) -> None:
    """Refuse an output that could not be written, before the work begins."""
    kind = find_format(path, format, "--to")
    if kind not in ("csv", "jsonl") and path.lower().endswith(".gz"):
        raise TableError(f"{path}: only csv is written through gzip; {kind} files are compressed already")
    if path == "-" and sys.stdout is None:
        raise TableError("-: cannot write: standard output is closed")
    if path in STANDARD_OUTPUT and kind not in ("csv", "jsonl") and not hasattr(sys.stdout, "buffer"):
        raise TableError(f"{path}: {TEXT_ONLY}")
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
    layout, suffix = like.dialect, suffix_of(path)
    if suffix in _TABBED:
        return Dialect("\t", layout.encoding, layout.newline)
    if suffix == ".csv" and suffix_of(like.source) in _TABBED:
        return Dialect(",", layout.encoding, layout.newline)
    return layout
