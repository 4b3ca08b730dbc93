"""The reading rules of a training file, which are stored in the model and used again for new files."""

from typing import Any

import pyarrow as pa

from halfseen.cli.cells import kind_of
from halfseen.cli.errors import TableError
from halfseen.cli.numbers import NumberFormat
from halfseen.cli.rules import DEFAULT_NULLS
from halfseen.cli.tables import TableFile, read_table
from halfseen.data.schema import Schema

_KEYS = {"number_format": str, "date_order": str, "first_year": int, "null": list, "placeholder": list}


def describe_reading(file: TableFile) -> dict[str, Any]:
    """Return the reading rules of a file that a model stores, as values that JSON can represent.

    These are the null codes of all columns and, for each column, its own null codes, its placeholders, the
    format of its numbers, the order of its dates, or the fact that it is text.
    """
    everywhere = [text for text in file.rules.nulls if text and text not in DEFAULT_NULLS]
    columns: dict[str, dict[str, Any]] = {}
    for name in file.table.column_names:
        entry: dict[str, Any] = {}
        if file.rules.of(name).nulls:
            entry["null"] = list(file.rules.of(name).nulls)
        numbers = _placeholder_numbers(file, name)
        if numbers is not None:
            entry["placeholder"] = numbers
        style = file.styles.get(name)
        if style is not None and style.number is not None:
            entry["number_format"] = _example(style.number)
        elif style is not None and style.date is not None:
            entry["date_order"] = style.date.order
            if style.date.year_digits == 2:
                entry["first_year"] = style.date.first_year
        elif style is not None and style.kind == "text" and not pa.types.is_floating(file.table[name].type):
            entry["number_format"] = "text"
        if entry:
            columns[name] = entry
    default_nulls = file.rules.words or file.text is None  # typed files have no words to be read
    return {"nulls": everywhere, "default_nulls": default_nulls, "columns": columns}


def _placeholder_numbers(file: TableFile, name: str) -> list[float] | None:
    """Return the numbers of a column that models did not see, or None if none was found or declared."""
    declared = file.rules.of(name).placeholders
    if name in file.placeholders and kind_of(file.table[name].type) in ("integer", "float"):
        return sorted({*map(float, file.placeholders[name].drop_null().to_pylist()), *(declared or ())})
    return None if declared is None else list(declared)


def _example(form: NumberFormat) -> str:
    """Return 1234.56 with the separators of a format."""
    return f"1{form.group}234{form.decimal}56"


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
    """
    kept = getattr(model, "reading_", None) or {}
    overrides = _overrides(model.schema_, kept)
    nulls = kept.get("nulls", [])
    if not isinstance(nulls, list) or not all(isinstance(text, str) for text in nulls):
        raise TableError("the model file has no readable entry on how cells are read (nulls)")
    given["nulls"] = (*nulls, *given.get("nulls", ()))
    given["default_nulls"] = bool(kept.get("default_nulls", True)) and given.get("default_nulls", True)
    return read_table(path, overrides=overrides, **given)


def _overrides(schema: Schema, kept: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return reading settings by column: those kept, else text for text and numbers for numbers."""
    columns = kept.get("columns", {})
    if not isinstance(columns, dict):
        raise TableError("the model file has no readable entry on how cells are read (columns)")
    overrides: dict[str, dict[str, Any]] = {}
    if isinstance(kept.get("target"), str) and isinstance(columns.get(kept["target"], {}), dict):
        overrides[kept["target"]] = columns.get(kept["target"], {})
    for column in schema:
        entry = columns.get(column.name, {})
        readable = isinstance(entry, dict) and all(
            key in _KEYS and isinstance(value, _KEYS[key]) for key, value in entry.items()
        )
        if not readable:
            raise TableError(f"the model file has no readable entry on how {column.name!r} is read")
        if column.storage == "label" and "number_format" not in entry:
            entry = {**entry, "number_format": "text"}
        elif column.storage == "number" and "number_format" not in entry:
            entry = {**entry, "kind": "continuous"}  # numbers, even if a cell is none
        overrides[column.name] = entry
    return overrides
