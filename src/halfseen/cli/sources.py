"""Several files at once: folders and patterns, the names of outputs, and reading the files as one table."""

import glob
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from halfseen.errors import TableError
from halfseen.files.missing_codes import hide_placeholders
from halfseen.files.table_file import TableFile
from halfseen.files.tables import EXTENSIONS
from halfseen.files.writing import is_same_file
from halfseen.words import Note


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
        file itself a word is added to the name, as in ``a.imputed.csv``. Files in a folder that are there
        already are not overwritten.
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
        if Path(target).exists() or any(is_same_file(target, other) for _, other in planned):
            raise TableError(f"{target}: exists already, or two files need it; it is not overwritten")
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
