"""The files that a request names: folders, patterns and outputs; and whether they are read in blocks."""

import glob
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from halfseen._machine import count_memory
from halfseen.cli.options import EngineOptions
from halfseen.cli.requests import DescribeRequest, ImputeRequest
from halfseen.data.scan_files import FORMATS
from halfseen.errors import TableError
from halfseen.files.missing_codes import hide_placeholders
from halfseen.files.table_file import TableFile
from halfseen.files.tables import EXTENSIONS
from halfseen.files.writing import is_same_file
from halfseen.words import Note

STREAMED_SHARE = 8
"""A file is streamed if its content takes more than this part of the memory; a larger one that is compressed
is not read into memory at all."""

OF_WHOLE_FILES = {
    "encoding": "--encoding", "null": "--null", "no_default_nulls": "--no-default-nulls",
    "number_format": "--number-format", "date_order": "--date-order", "source_format": "--from",
    "sheet": "--sheet",
}  # fmt: skip
"""Options of the reader of whole files, whose rules blocks do not follow."""

NOT_IN_UNITS = {
    "report": "--report", "evaluate": "--evaluate", "in_place": "--in-place", "weights": "--weights",
    "checkpoint": "--checkpoint", "leave_unreliable": "--leave-unreliable", "output_format": "--to",
    "next_measurement": "--next-measurement", **OF_WHOLE_FILES,
}  # fmt: skip
"""Options that need the whole table in memory, or rules of the reader of whole files."""


NOT_IN_BLOCKS = {
    "against": "--against", "model": "--model", "label": "--class", "sensitivity": "--sensitivity",
    "reference": "--reference", "schema": "--schema", **OF_WHOLE_FILES,
}  # fmt: skip
"""Options that need the whole table in memory, or rules of the reader of whole files."""


def expand(source: str) -> list[str]:
    """Return the files that a source names: itself, those of a folder, or those that a pattern matches.

    The files of a folder are those with the file extension of a table, sorted by name; subfolders are not
    searched. A pattern contains ``*``, ``?`` or ``[`` and is given in quotes, so that the shell does not
    expand it.
    """
    if source == "-" or Path(source).is_file():
        return [source]
    if Path(source).is_dir():
        found = sorted(str(path) for path in Path(source).iterdir() if path.is_file() and _is_table(path))
        if not found:
            raise TableError(f"{source}: the folder has no table files; known are {' '.join(EXTENSIONS)}")
        return found
    if glob.has_magic(source):
        found = sorted(path for path in glob.glob(source, recursive=True) if Path(path).is_file())
        if not found:
            raise TableError(f"{source}: no file matches")
        return found
    return [source]


def _is_table(path: Path) -> bool:
    return Path(path.name.lower().removesuffix(".gz")).suffix in EXTENSIONS and not path.name.startswith(".")


def plan_outputs(source: str, output: str, word: str, format: str | None) -> list[tuple[str, str]]:
    """Return the files that a source names, each with its output.

    Parameters
    ----------
    source : str
        A file, a folder or a pattern.
    output : str
        A file; or an existing folder for the outputs, which keep the names of the files. In the folder of the
        file itself a word is added to the name, as in ``a.imputed.csv``.
    word : str
        What is done to the files.
    format : str or None
        The format of outputs in a folder; that of each file if None.
    """
    sources = expand(source)
    if output == "-" or not Path(output).is_dir():
        if len(sources) > 1:
            raise TableError(
                f"{output}: {source} names {len(sources)} files, which need an existing folder as --output; "
                "create it first"
            )
        return [(sources[0], output)]
    if source == "-":
        raise TableError(f"{output}: standard input needs a file as --output, not a folder")
    planned: list[tuple[str, str]] = []
    for one in sources:
        target = _name_output(Path(one), Path(output), word, format)
        if any(is_same_file(target, other) for _, other in planned):
            raise TableError(f"{target}: two files need this name: give them different names, or folders")
        planned.append((one, target))
    return planned


def _name_output(path: Path, folder: Path, word: str, format: str | None) -> str:
    ending = "".join(path.suffixes[-2:]) if path.suffix.lower() == ".gz" else path.suffix
    beside = path.parent.exists() and path.parent.samefile(folder)
    stem = path.name.removesuffix(ending) + (f".{word}" if beside else "")
    return str(folder / f"{stem}{ending if format is None else f'.{format}'}")


def read_all(sources: Sequence[str], read: Callable[[str], TableFile]) -> TableFile:
    """Return one table of several files, by the names of their columns.

    Parameters
    ----------
    sources : sequence of str
        The files.
    read : callable
        Reads one of them.
    """
    files = [read(source) for source in sources]
    if len(files) == 1:
        return files[0]
    first = files[0]
    styles = {name: style for file in reversed(files) for name, style in file.styles.items()}
    notes = tuple(
        dict.fromkeys(Note(f"{file.source}: {note}", note.severity) for file in files for note in file.notes)
    )
    settings = {name: one for file in reversed(files) for name, one in file.settings.items()}
    try:
        tables = [_decoded(file.as_written().table) for file in files]
        table = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowTypeError:
        raise TableError(_explain_types(files)) from None
    table, placeholders, _ = hide_placeholders(table, first.rules)
    named = f"{len(files)} files, {first.source} to {files[-1].source}"
    return replace(
        first, table=table, source=named, styles=styles, notes=notes, settings=settings, text=None,
        kept={name: cells.is_valid() for name, cells in placeholders.items()}, placeholders=placeholders,
        surroundings=None, literals=None, sheet=None, held={},
    )  # fmt: skip


def _decoded(table: pa.Table) -> pa.Table:
    """Return a table with text in place of dictionaries, which may differ between files."""
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(place, field.name, table.column(place).cast(field.type.value_type))
    return table


def _explain_types(files: Sequence[TableFile]) -> str:
    seen: dict[str, tuple[TableFile, pa.DataType]] = {}
    for file in files:
        for field in file.table.schema:
            other = seen.setdefault(field.name, (file, field.type))
            kinds = [pa.schema([pa.field("x", kind)]) for kind in (other[1], field.type)]
            try:
                pa.unify_schemas(kinds, promote_options="permissive")
            except pa.ArrowTypeError:
                return (
                    f"column {field.name!r} is {other[1]} in {other[0].source} and {field.type} in "
                    f"{file.source}: the files are not parts of one table"
                )
    return f"{files[0].source} and the other files are not parts of one table"


def is_in_units(units: EngineOptions) -> bool:
    """Return whether a user asked for an engine, or for an interrupted run to be resumed."""
    if units.engine is None and (units.address or units.workers or units.row_id or units.layout):
        raise TableError("--address, --workers, --row-id and --layout need --engine")
    return units.engine is not None or units.resume


def is_streamed(request: ImputeRequest) -> bool:
    """Return whether one file is larger than its share of the memory, and can be written while it is read."""
    paths = [] if request.source == "-" else expand(request.source)
    asked = [name for name in given_of(request, NOT_IN_UNITS) if name != "output_format"]
    if len(paths) != 1 or asked or request.draws is not None or request.destination == "-":
        return False
    typed = Path(request.destination).suffix.lower() in (".parquet", ".pq") and request.output_format is None
    return typed and is_large(paths[0])


def is_large(path: str) -> bool:
    """Return whether a file can be read in blocks, and is larger than its share of the memory."""
    known = Path(path).suffix.lower() in FORMATS and Path(path).is_file()
    return known and content_size(path) > largest_in_memory()


def largest_in_memory() -> int:
    """Return the bytes up to which a file is read as a whole."""
    return count_memory() // STREAMED_SHARE


def content_size(path: str) -> int:
    """Return the bytes of the content of a file, before they were compressed if it is a Parquet file."""
    size = os.path.getsize(path)
    if FORMATS[Path(path).suffix.lower()] != "parquet":
        return size
    try:
        found = pyarrow.parquet.read_metadata(path)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError):  # said where the file is read
        return size
    return max(size, sum(found.row_group(place).total_byte_size for place in range(found.num_row_groups)))


def is_in_blocks(request: DescribeRequest) -> bool:
    """Return whether a user asked for an engine, or one file is larger than its share of the memory."""
    asked = request.counting
    if asked.engine is not None:
        return True
    if asked.address or asked.workers:
        raise TableError("--address and --workers need --engine")
    if request.source == "-" or given_of(request, NOT_IN_BLOCKS):
        return False
    paths = expand(request.source)
    return len(paths) == 1 and is_large(paths[0])


def given_of(request: Any, names: Iterable[str]) -> list[str]:
    """Return those of some options that were given."""
    values = {**vars(request.reading), **vars(request)}
    return [name for name in names if values.get(name)]
