"""What commands do with a saved model: load it, read new files as it was trained, match their columns."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

import halfseen
from halfseen.cli.progress import Reporter
from halfseen.cli.reading import ColumnFormats, read_like_training, training_rules
from halfseen.data.columns import Column
from halfseen.diagnosis.drift import TrainingDrift, compare_with_training
from halfseen.errors import SchemaError, TableError
from halfseen.files.rules import match_names
from halfseen.files.tables import TableFile
from halfseen.words import Note, names_words, plural, shape_words

Needs = Literal["transform", "predict"]

SIMILAR = 0.7  # of the letters and digits of two names that are taken for one
_SHOWN_LEVELS = 3


@dataclass(frozen=True)
class NewRows:
    """A new file, matched with a model."""

    file: TableFile  # the file as it was read, and after its columns those that it lacks, all missing
    inputs: pa.Table  # the columns of the model, by its names and in its order
    # The columns of the model and, if the file has it, the target, with their names in the file.
    names: dict[str, str]
    # Columns of the model that the file lacks, and columns of the file that the model does not know.
    dropped: tuple[str, ...]
    extra: tuple[str, ...]
    drift: TrainingDrift  # how often values are missing, here and in training

    @property
    def kept(self) -> dict[str, pa.Array]:
        """The cells of the columns of the model that no model sees, by its names; see `TableFile`."""
        return {known: self.file.kept[name] for known, name in self.names.items() if name in self.file.kept}

    def completed(self, inputs: pa.Table) -> pa.Table:
        """Return the table of the file with the columns of the model replaced."""
        whole = self.file.table
        places = {name: place for place, name in enumerate(whole.column_names)}
        for known in inputs.column_names:
            name = self.names[known]
            whole = whole.set_column(places[name], name, inputs[known])
        return whole


def load_model(path: str, needs: Needs, instead: str) -> Any:
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


def check_model(model: Any, path: str, needs: Needs, instead: str) -> Any:
    """Return a model that is loaded already, if a command can use it; see `load_model`."""
    can = model.capabilities
    if not can.tables or not (can.imputes if needs == "transform" else can.predicts):
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
    reporter.show("read", f"{file.source}: {shape_words(*file.table.shape)}")
    for note in file.notes:
        reporter.note(note)
    matched = match_columns(file, model, reporter, target)
    file, names, dropped = matched.file, matched.names, matched.dropped
    of_model = set(names.values())
    extra = tuple(name for name in file.table.column_names if name not in of_model)
    if extra:
        what = "column" if len(extra) == 1 else "columns"
        reporter.note(f"{what} {_quoted(extra)}: not known to the model, copied to the output unchanged")
        _note_renamed(dropped, extra, reporter)
    inputs = matched.inputs
    for column in model.schema_:
        _note_unknown_levels(column, inputs[column.name], reporter)
    drift = compare_with_training(
        model.schema_, {name: inputs[name].null_count for name in inputs.column_names}, inputs.num_rows
    )
    reporter.show("drift", drift.sentence, "yellow" if drift.changed else "bold")
    return NewRows(file, inputs, names, dropped, extra, drift)


@dataclass(frozen=True)
class MatchedColumns:
    """A file with the columns of a model that it lacks, and the names of its columns; see `NewRows`."""

    file: TableFile
    inputs: pa.Table
    names: dict[str, str]
    dropped: tuple[str, ...]


def match_columns(
    file: TableFile, model: Any, reporter: Reporter, target: str | None = None
) -> MatchedColumns:
    """Match the columns of a file with those of a model by name.

    Names may differ in blanks and case. Columns that the file lacks are missing in every row.

    Parameters
    ----------
    file : TableFile
        The file.
    model : fitted estimator of tables
        The model.
    reporter : Reporter
        Reports which columns are lacking, and which have another name.
    target : str, optional
        The name of the target in training, which the file may have.
    """
    known = [str(name) for name in model.feature_names_in_]
    names = match_names(file.table.column_names, [*known, *([] if target is None else [target])])
    for one, name in names.items():
        if one != name:
            reporter.note(f"column {name!r} is taken for the column {one!r} of the model")
    dropped = tuple(name for name in known if name not in names)
    if len(dropped) == len(known):
        raise TableError(
            f"{file.source} has none of the columns of the model, which are {names_words(known, 8)}"
        )
    if dropped:
        subject = f"column {dropped[0]!r} is" if len(dropped) == 1 else f"columns {_quoted(dropped)} are"
        reporter.note(Note(f"{subject} not in {file.source}: treated as missing in every row", "harmful"))
    file = _with_missing(file, dropped, ColumnFormats(file, training_rules(model), model))
    names |= {name: name for name in dropped}
    inputs = file.table.select([names[name] for name in known]).rename_columns(known)
    return MatchedColumns(file, inputs, names, dropped)


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
            text = (
                f"is column {plain[similar[0]]!r} the column {name!r} of the model? It is used if it is "
                "renamed in the file"
            )
            reporter.note(Note(text, "harmful"))


def _plain(name: str) -> str:
    """Return the letters and digits of a name, in lower case."""
    return "".join(character for character in name.casefold() if character.isalnum())


def _quoted(names: Sequence[str]) -> str:
    return names_words([repr(name) for name in names], 6)


def _with_missing(file: TableFile, names: Sequence[str], formats: ColumnFormats) -> TableFile:
    """Return a file with further columns of the model, in which every cell is missing."""
    table, text, styles = file.table, file.text, dict(file.styles)
    for name in names:
        dtype, style = formats.of_empty(name)
        table = table.append_column(name, pa.nulls(table.num_rows, dtype))
        if text is not None:
            blank = pa.repeat(pa.scalar("", pa.large_string()), table.num_rows)
            text, styles[name] = text.with_columns({name: blank}), style
    return replace(file, table=table, text=text, styles=styles)


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
