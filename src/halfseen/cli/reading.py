"""The formats of a training file, which are stored in the model and used again for new files.

New files are read by the formats of the training file where their own cells are ambiguous, and written in
them where they do not show a format: in columns that are empty or absent.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from halfseen.data.columns import DAY, Column
from halfseen.errors import TableError
from halfseen.files.distinct import kind_of
from halfseen.files.formats import (
    NUMBERS,
    Style,
    combine_styles,
    decimal_of,
    describe_style,
    format_cells,
    is_written_alike,
    restore_style,
    style_of,
    unit_of,
    with_decimal,
)
from halfseen.files.missing_codes import shorten_notes
from halfseen.files.rules import TrainingRules, match_names
from halfseen.files.tables import TableFile, read_file
from halfseen.words import Note

_NOTED = (*NUMBERS, "date", "timestamp")
_KEYS = {"style": dict, "null": list, "placeholder": list}
_TYPES = {"label": pa.large_string(), "boolean": pa.bool_(), "duration": pa.duration("us")}


def describe_reading(file: TableFile) -> dict[str, Any]:
    """Return how a file was read and is written, as values that JSON can represent, for a model to store.

    These are the null codes of all columns and, for each column, its own null codes, its placeholders and, if
    the file is not typed, the format of its cells.
    """
    everywhere = [text for text in file.rules.declared if text]
    columns: dict[str, dict[str, Any]] = {}
    for name in file.table.column_names:
        entry: dict[str, Any] = {}
        if file.rules.of(name).nulls:
            entry["null"] = list(file.rules.of(name).nulls)
        numbers = _placeholder_numbers(file, name)
        if numbers is not None:
            entry["placeholder"] = numbers
        style = file.styles.get(name)
        if style is not None and (style.kind != "text" or not pa.types.is_floating(file.table[name].type)):
            entry["style"] = describe_style(style)
        if entry:
            columns[name] = entry
    default_nulls = file.rules.words or file.text is None  # typed files have no words to be read
    return {
        "format": file.format, "nulls": everywhere, "default_nulls": default_nulls, "columns": columns
    }  # fmt: skip


def _placeholder_numbers(file: TableFile, name: str) -> list[float] | None:
    """Return the numbers of a column that models did not see, or None if none was found or declared."""
    declared = file.rules.of(name).placeholders
    if name in file.placeholders and kind_of(file.table[name].type) in NUMBERS:
        return sorted({*map(float, file.placeholders[name].drop_null().to_pylist()), *(declared or ())})
    return None if declared is None else list(declared)


# ------------------------------------------------------------------------------------------ reading


def read_like_training(path: str, model: Any, **given: Any) -> TableFile:
    """Read a table file by the rules of the file that a model was fitted to.

    Parameters
    ----------
    path : str
        The file.
    model : fitted estimator of tables
        Has ``schema_``, and ``reading_`` if it was fitted to a file by a command.
    **given : object
        Options of `read_table`, which take precedence over those of the model.

    Returns
    -------
    TableFile
        Its styles are those of the training file for what its cells do not show.
    """
    kept = kept_reading(model)
    training = training_rules(model)
    nulls = kept.get("nulls", [])
    if not isinstance(nulls, list) or not all(isinstance(text, str) for text in nulls):
        raise TableError("the model file has no readable entry on how cells are read (nulls)")
    given["null"] = (*nulls, *given.get("null", ()))
    given["default_nulls"] = bool(kept.get("default_nulls", True)) and given.get("default_nulls", True)
    file = read_file(path, training=training, **given)
    return _with_learned_styles(file, training, model)


def kept_reading(model: Any) -> Mapping[str, Any]:
    """Return how a command read the file that a model was fitted to; nothing if it was fitted in Python."""
    return vars(model).get("reading_") or {}


def training_rules(model: Any) -> TrainingRules:
    """Return how the columns of the training file of a model were read and written."""
    kept = kept_reading(model)
    columns = kept.get("columns", {})
    if not isinstance(columns, dict):
        raise TableError("the model file has no readable entry on how cells are read (columns)")
    known: dict[str, Column | None] = {column.name: column for column in model.schema_}
    if isinstance(kept.get("target"), str):
        known.setdefault(kept["target"], None)
    settings: dict[str, dict[str, Any]] = {}
    styles: dict[str, Style] = {}
    for name, column in known.items():
        entry = columns.get(name, {})
        readable = isinstance(entry, dict) and all(
            key in _KEYS and isinstance(value, _KEYS[key]) for key, value in entry.items()
        )
        if not readable:
            raise TableError(f"the model file has no readable entry on how {name!r} is read")
        if "style" in entry:
            try:
                styles[name] = restore_style(entry["style"])
            except ValueError as error:
                raise TableError(
                    f"the model file has no readable entry on how {name!r} is read: {error}"
                ) from error
        settings[name] = {key: value for key, value in entry.items() if key != "style"}
        settings[name] |= _wanted(column, styles.get(name))
    return TrainingRules(settings, styles)


def _wanted(column: Column | None, style: Style | None) -> dict[str, Any]:
    """Return what the cells of a column are read as: text, or numbers or dates even if a cell is none."""
    kind = "text" if column is not None and column.storage == "label" else None
    if style is not None:
        kind = style.kind
    elif column is not None and column.storage == "number":
        kind = "float"
    if kind == "text":
        return {"number_format": "text"}
    if kind in NUMBERS:
        return {"kind": "continuous"}
    if kind in ("date", "timestamp") and style is not None:
        short = style.date is not None and style.date.year_digits == 2
        return {"kind": "datetime"} | ({"first_year": style.date.first_year} if short and style.date else {})
    return {}


# ------------------------------------------------------------------------------------------ writing


class ColumnFormats:
    """The formats in which the columns of a new file are written.

    A column with values is written in the format that they show, completed by that of the training file. A
    column without values is written in the format of the training file; if other columns show that the new
    file has another decimal mark or other dates than the training file, so has this one. Thousands of whole
    numbers are not separated if the file would then not show that ``3.452`` is a whole number.

    Parameters
    ----------
    file : TableFile
        The new file, as it was read.
    training : TrainingRules
        The formats of the training file.
    model : fitted estimator of tables
        The model.
    """

    def __init__(self, file: TableFile, training: TrainingRules, model: Any) -> None:
        kept = kept_reading(model)
        # Formatted numbers are no values of JSON or of a spreadsheet, unless the training file had them too.
        self.learned = training.styles if file.format in ("csv", kept.get("format")) else {}
        self.columns = {column.name: column for column in model.schema_}
        self.names = match_names(file.table.column_names, training.settings)
        shown = {
            known: file.styles[name]
            for known, name in self.names.items()
            if known in self.learned and file.table[name].null_count < file.table.num_rows
        }
        self.decimal = _changed(
            {decimal_of(style) for style in self.learned.values()},
            {decimal_of(style) for style in shown.values()},
        )
        new = {known: with_decimal(style, self.decimal) for known, style in self.learned.items()} | shown
        self.marks = {decimal_of(style) for style in new.values() if style.kind == "float"}
        self.dates: dict[Style, set[Style]] = {}
        for known, style in shown.items():
            if style.kind == self.learned[known].kind and style.kind not in NUMBERS:
                self.dates.setdefault(self.learned[known], set()).add(style)

    def of_empty(self, known: str) -> tuple[pa.DataType, Style]:
        """Return the type and the style of a column of the model that has no values in the new file."""
        dtype = type_of(self.columns[known], self.learned.get(known))
        return dtype, self.learned_style(known) or style_of(kind_of(dtype), pa.array([], pa.large_string()))

    def learned_style(self, known: str) -> Style | None:
        """Return the style of a column in the training file, as it is in a file like the new one."""
        style = self.learned.get(known)
        if style is None or style.kind in NUMBERS:
            return None if style is None else self._adapted(style)
        others = self.dates.get(style, set())
        return next(iter(others)) if len(others) == 1 else style

    def of_values(self, known: str, own: Style, cells: pa.Array, texts: pa.Array) -> Style:
        """Return the style of a column with values, given its own style, its cells and their texts."""
        learned = self.learned.get(known)
        if learned is None:
            return own
        observed = cells.is_valid()
        spelt = pc.utf8_trim_whitespace(texts.filter(observed))
        return combine_styles(own, self._adapted(learned), spelt, cells.filter(observed))

    def _adapted(self, learned: Style) -> Style:
        """Return a style with the decimal mark of the new file, and separators that can be told from it."""
        style = with_decimal(learned, self.decimal)
        if style.kind != "integer" or style.number is None or style.number.group not in (".", ","):
            return style
        is_shown = self.marks == {style.number.decimal}
        return style if is_shown else replace(style, number=replace(style.number, group=""))


def _changed(before: set[str | None], now: set[str | None]) -> str | None:
    """Return what is the only one now, if there was only one before; else None."""
    before, now = before - {None}, now - {None}
    return now.pop() if len(before) == 1 and len(now) == 1 else None


def _with_learned_styles(file: TableFile, training: TrainingRules, model: Any) -> TableFile:
    """Return a file whose cells are written as in training where the file does not show its own format."""
    formats = ColumnFormats(file, training, model)
    table, styles, placeholders = file.table, dict(file.styles), dict(file.placeholders)
    places = {name: place for place, name in enumerate(table.column_names)}
    notes: list[tuple[str, Note]] = []
    for known, name in formats.names.items():
        cells = table[name].combine_chunks()
        if cells.null_count == len(cells):
            if known in formats.columns and (file.text is not None or pa.types.is_null(cells.type)):
                dtype, styles[name] = formats.of_empty(known)
                table = table.set_column(places[name], name, pa.nulls(len(cells), dtype))
        elif file.text is not None:
            own = styles[name]
            styles[name] = formats.of_values(known, own, cells, file.text[name])
            notes += _note_changed(name, cells, own, styles[name], formats.learned.get(known))
            if styles[name].kind == "float" and pa.types.is_integer(cells.type):
                table = table.set_column(places[name], name, cells.cast(pa.float64()))
                if name in placeholders:
                    placeholders[name] = placeholders[name].cast(pa.float64())
    return replace(
        file, table=table, styles=styles, placeholders=placeholders,
        notes=(*file.notes, *shorten_notes(notes)),
    )  # fmt: skip


def _note_changed(
    name: str, cells: pa.Array, own: Style, style: Style, learned: Style | None
) -> list[tuple[str, Note]]:
    """Return a note if numbers or dates are not written as in training."""
    if learned is None or own.kind not in _NOTED or learned.kind not in _NOTED:
        return []
    if (own.kind in NUMBERS) != (learned.kind in NUMBERS) or is_written_alike(style, learned):
        return []
    value = cells.drop_null()[:1]
    here = format_cells(value, own)[0].as_py()
    there = format_cells(value.cast(pa.timestamp("us")) if learned.kind == "timestamp" else value, learned)[
        0
    ].as_py()
    text = (
        f"column {name!r} is not written as in the training file, {here!r} instead of {there!r}: read and "
        "filled as in this file"
    )
    units = [unit_of(one) for one in (own, learned)]
    if units[0] != units[1]:
        return [(name, Note(f"{text}, and values are not converted to another unit", "harmful"))]
    return [(name, Note(text))]


def type_of(column: Column, style: Style | None) -> pa.DataType:
    """Return the type of a column without values, as in training."""
    if column.storage == "time" and style is not None and style.kind in ("date", "timestamp"):
        return pa.date32() if style.kind == "date" else pa.timestamp("us", "UTC" if style.zone else None)
    if column.storage == "time":
        dtype = column.dtype.lower()
        dated = column.step == DAY or ("date" in dtype and "time" not in dtype)
        return pa.date32() if dated else pa.timestamp("us")
    if column.storage == "number" and column.integer:
        return pa.int64()
    return _TYPES.get(column.storage, pa.float64())
