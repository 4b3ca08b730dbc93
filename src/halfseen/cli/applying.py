"""What commands do with a saved model: load it, read new files as it was trained, match their columns."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import halfseen
from halfseen.cli.cells import kind_of, style_of
from halfseen.cli.errors import TableError
from halfseen.cli.progress import Reporter
from halfseen.cli.reading import read_like_training
from halfseen.cli.tables import TableFile
from halfseen.data.columns import Column
from halfseen.diagnosis.training_drift import TrainingDrift, compare_with_training
from halfseen.diagnosis.wording import names_words, plural
from halfseen.errors import SchemaError

SIMILAR = 0.7  # of the letters and digits of two names that are taken for one
_SHOWN_LEVELS = 3
_TYPES = {"label": pa.large_string(), "boolean": pa.bool_(), "duration": pa.duration("us")}


@dataclass(frozen=True)
class NewRows:
    """A new file, matched with a model.

    Parameters
    ----------
    file : TableFile
        The file as it was read, and after its columns those that it lacks, all missing.
    inputs : pyarrow.Table
        The columns of the model, in its order.
    dropped, extra : tuple of str
        Columns of the model that the file lacks, and columns of the file that the model does not know.
    drift : TrainingDrift
        How often values are missing, here and in training.
    """

    file: TableFile
    inputs: pa.Table
    dropped: tuple[str, ...]
    extra: tuple[str, ...]
    drift: TrainingDrift

    def completed(self, inputs: pa.Table) -> pa.Table:
        """Return the table of the file with the columns of the model replaced."""
        whole = self.file.table
        for place, name in enumerate(whole.column_names):
            if name in inputs.column_names:
                whole = whole.set_column(place, name, inputs[name])
        return whole


def load_model(path: str, needs: str, instead: str) -> Any:
    """Load a model file for a command.

    Parameters
    ----------
    path : str
        The model file.
    needs : {"transform", "predict"}
        The method that the command calls.
    instead : str
        What to do with a model that lacks the method.
    """
    return check_model(halfseen.load(path), path, needs, instead)


def check_model(model: Any, path: str, needs: str, instead: str) -> Any:
    """Return a model that is loaded already, if a command can use it; see `load_model`."""
    if not hasattr(model, needs) or not hasattr(model, "schema_"):
        raise TableError(f"{path} contains {type(model).__name__}, {instead}")
    if not hasattr(model, "feature_names_in_"):
        raise TableError(
            f"{path}: the model was fitted to an array without column names, so the columns of a file cannot "
            "be matched; fit it to a data frame or a file"
        )
    return model


def read_new_rows(
    path: str, model: Any, reporter: Reporter, *, target: str | None = None, **reading: Any
) -> NewRows:
    """Read a file, match its columns with those of a model, and report the differences.

    Parameters
    ----------
    path : str
        The new file.
    model : fitted estimator of tables
        The model.
    reporter : Reporter
        Reports columns that are dropped or extra, unknown levels, and drift.
    target : str, optional
        The name of the target in training: neither a dropped nor an extra column.
    **reading : object
        Options of `read_table`.
    """
    file = read_like_training(path, model, **reading)
    n_rows, n_columns = file.table.shape
    reporter.show("read", f"{file.source}: {plural(n_rows, 'row')}, {plural(n_columns, 'column')}")
    for note in file.notes:
        reporter.note(note)
    names = [str(name) for name in model.feature_names_in_]
    extra = tuple(name for name in file.table.column_names if name not in (*names, target))
    file, dropped = with_dropped_columns(file, model, reporter)
    if extra:
        what = "column" if len(extra) == 1 else "columns"
        reporter.note(f"{what} {_quoted(extra)}: not known to the model, copied to the output unchanged")
        _note_renamed(dropped, extra, reporter)
    inputs = file.table.select(names)
    for column in model.schema_:
        _note_unknown_levels(column, inputs[column.name], reporter)
    drift = compare_with_training(
        model.schema_, {name: inputs[name].null_count for name in names}, inputs.num_rows
    )
    reporter.show("drift", drift.sentence, "yellow" if drift.changed else "bold")
    return NewRows(file, inputs, dropped, extra, drift)


def with_dropped_columns(
    file: TableFile, model: Any, reporter: Reporter
) -> tuple[TableFile, tuple[str, ...]]:
    """Return a file with the columns of a model that it lacks, missing in every row, and their names.

    Parameters
    ----------
    file : TableFile
        The file.
    model : fitted estimator of tables
        The model.
    reporter : Reporter
        Reports which columns are lacking.
    """
    names = [str(name) for name in model.feature_names_in_]
    dropped = tuple(name for name in names if name not in file.table.column_names)
    if len(dropped) == len(names):
        raise TableError(
            f"{file.source} has none of the columns of the model, which are {names_words(names, 8)}"
        )
    if dropped:
        subject = f"column {dropped[0]!r} is" if len(dropped) == 1 else f"columns {_quoted(dropped)} are"
        reporter.note(f"{subject} not in {file.source}: treated as missing in every row")
    columns = {column.name: column for column in model.schema_}
    return _with_missing(file, [columns[name] for name in dropped]), dropped


@contextmanager
def naming(file: str) -> Iterator[None]:
    """Add the name of a file to an error about its columns."""
    try:
        yield
    except SchemaError as error:
        raise TableError(f"{file}: {error}") from error


def _note_renamed(dropped: Sequence[str], extra: Sequence[str], reporter: Reporter) -> None:
    """Report columns of a file whose names resemble those that it lacks."""
    plain = {_plain(name): name for name in extra}
    for name in dropped:
        similar = get_close_matches(_plain(name), plain, n=1, cutoff=SIMILAR)
        if similar:
            reporter.note(
                f"is column {plain[similar[0]]!r} the column {name!r} of the model? It is used if it is "
                "renamed in the file"
            )


def _plain(name: str) -> str:
    """Return the letters and digits of a name, in lower case."""
    return "".join(character for character in name.casefold() if character.isalnum())


def _quoted(names: Sequence[str]) -> str:
    return names_words([repr(name) for name in names], 6)


def _with_missing(file: TableFile, columns: Sequence[Column]) -> TableFile:
    """Return a file with further columns in which every cell is missing."""
    table, text, styles = file.table, file.text, dict(file.styles)
    for column in columns:
        cells = pa.nulls(table.num_rows, _type_of(column))
        table = table.append_column(column.name, cells)
        if text is not None:
            text = text.with_columns({column.name: pa.repeat(pa.scalar("", pa.large_string()), len(cells))})
            styles[column.name] = style_of(kind_of(cells.type), pa.array([], pa.large_string()))
    return replace(file, table=table, text=text, styles=styles)


def _type_of(column: Column) -> pa.DataType:
    if column.storage == "time":
        return pa.date32() if "date" in column.dtype.lower() and "time" not in column.dtype.lower() else (
            pa.timestamp("us")
        )  # fmt: skip
    if column.storage == "number" and column.integer:
        return pa.int64()
    return _TYPES.get(column.storage, pa.float64())


def _note_unknown_levels(column: Column, cells: pa.ChunkedArray, reporter: Reporter) -> None:
    if not column.modelled or column.storage != "label" or column.levels is None:
        return
    if cells.null_count == len(cells):
        return
    if pa.types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    found = pc.value_counts(cells.drop_null())
    unknown = [one for one in found.to_pylist() if one["values"] not in column.levels]
    if unknown:
        shown = ", ".join(repr(one["values"]) for one in unknown[:_SHOWN_LEVELS])
        more = f" and {len(unknown) - _SHOWN_LEVELS:,} more" if len(unknown) > _SHOWN_LEVELS else ""
        n_cells = sum(one["counts"] for one in unknown)
        reporter.note(
            f"column {column.name!r}: {shown}{more} did not occur in training ("
            f"{plural(n_cells, 'cell')}), ignored by "
            "the model and kept in the output"
        )
