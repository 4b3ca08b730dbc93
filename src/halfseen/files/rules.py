"""The user's rules for reading cells: texts that mean missing, formats of numbers, orders of dates."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from halfseen.errors import TableError
from halfseen.files.cells import Style
from halfseen.files.dates import Order, parse_date_order
from halfseen.files.matching import match_names
from halfseen.files.numbers import Marks, parse_number_format

DEFAULT_NULLS = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>",
    "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null", "?",
)  # fmt: skip
"""Cell texts read as missing unless ``--no-default-nulls``: those of pandas, and the question mark."""

READING_KEYS = ("number_format", "date_order", "first_year", "null", "placeholder")
"""Settings of a schema file for reading cells; models do not see them."""

_LEVELS = ("binary", "categorical", "ordinal", "identifier", "constant")
_NUMBERS = ("continuous", "positive", "count")


@dataclass(frozen=True)
class ColumnRules:
    """The rules for reading one column.

    Parameters
    ----------
    nulls : tuple of str
        Texts that mean missing here.
    marks : Marks or None
        How its numbers are written.
    order : {"dmy", "mdy", "ymd"} or None
        The order of its dates.
    first_year : int or None
        The first of the hundred years that two-digit years stand for.
    placeholders : tuple of float or None
        Numbers that models do not see and that stay as they are. By default they are found.
    wanted : {"text", "levels", "number", "date"} or None
        What it is: text even if every cell is a number, levels unless every cell is a plain number, or
        numbers or dates even if some cells are none.
    learned : Style or None
        How its cells are written in the file that a model was fitted to, if the file is read for a model. It
        decides what the cells of the column and the other columns leave open.
    """

    nulls: tuple[str, ...] = ()
    marks: Marks | None = None
    order: Order | None = None
    first_year: int | None = None
    placeholders: tuple[float, ...] | None = None
    wanted: Literal["text", "levels", "number", "date"] | None = None
    learned: Style | None = None


@dataclass(frozen=True)
class TrainingRules:
    """How the file was read that a model was fitted to.

    Parameters
    ----------
    settings : dict of str to dict
        The settings for reading each column, as in a schema file.
    styles : dict of str to Style
        How the cells of each column are written.
    """

    settings: dict[str, dict[str, Any]]
    styles: dict[str, Style]

    def of(self, names: Sequence[str]) -> dict[str, ColumnRules]:
        """Return the rules for the columns of another file that match a column of the model."""
        matched = match_names(names, self.settings)
        return {
            name: replace(_from_schema(name, self.settings[known]), learned=self.styles.get(known))
            for known, name in matched.items()
        }


@dataclass(frozen=True)
class Rules:
    """The rules for reading a file.

    Parameters
    ----------
    nulls : tuple of str
        Texts that mean missing in every column.
    words : bool
        Whether words such as ``unknown`` mean missing in a column of numbers.
    marks, order : Marks, str, or None
        How numbers and dates are written in ambiguous columns.
    columns : dict of str to ColumnRules
        The rules of single columns.
    notes : tuple of str
        Notes on behaviour that users may not expect.
    declared : tuple of str
        Those of `nulls` that the user gave.
    """

    nulls: tuple[str, ...] = DEFAULT_NULLS
    words: bool = True
    marks: Marks | None = None
    order: Order | None = None
    columns: dict[str, ColumnRules] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()

    def of(self, name: str) -> ColumnRules:
        """Return the rules of a column."""
        return self.columns.get(name, ColumnRules())


def make_rules(
    names: Sequence[str],
    *,
    nulls: Iterable[str] = (),
    default_nulls: bool = True,
    number_formats: Iterable[str] = (),
    date_orders: Iterable[str] = (),
    overrides: Mapping[str, Any] | None = None,
    training: TrainingRules | None = None,
) -> Rules:
    """Return the rules for a table with these columns.

    A null text that begins with the name of a column and ``=`` holds for that column, any other for all.
    Options take precedence over the schema file and the file that a model was fitted to.
    """
    rules = Rules(nulls=("", *(DEFAULT_NULLS if default_nulls else ())), words=default_nulls)
    columns = {name: _from_schema(name, overrides[name]) for name in names if overrides and name in overrides}
    columns |= {} if training is None else training.of(names)
    everywhere: list[str] = []
    notes: list[str] = []
    for given in nulls:
        _check_text(given, "--null")
        column, text = _split(given, names)
        if column is None:
            everywhere.append(given.strip())
            if "=" in given:
                notes.append(
                    f"--null {given!r}: no column has a name before '=', so the whole text means missing"
                )
        else:
            old = columns.get(column, ColumnRules())
            columns[column] = replace(old, nulls=(*old.nulls, text.strip()))
    for given in number_formats:
        column, text = _split_last(given, names, "--number-format")
        marks = None if text == "text" else parse_number_format(text)
        if column is None and marks is None:
            raise TableError("--number-format text needs a column: --number-format COLUMN=text")
        if column is None:
            rules = replace(rules, marks=marks)
        else:
            old = columns.get(column, ColumnRules())
            columns[column] = replace(old, marks=marks, wanted="text" if marks is None else "number")
    for given in date_orders:
        column, text = _split_last(given, names, "--date-order")
        order = parse_date_order(text)
        if column is None:
            rules = replace(rules, order=order)
        else:
            columns[column] = replace(columns.get(column, ColumnRules()), order=order, wanted="date")
    return replace(
        rules,
        nulls=(*rules.nulls, *everywhere),
        columns=columns,
        notes=tuple(notes),
        declared=tuple(everywhere),
    )


def _check_text(text: str, option: str) -> None:
    """Refuse a text that no cell can have, because it is not UTF-8."""
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise TableError(f"{option} {text!r} is not UTF-8, so no cell contains it")


def _split(given: str, names: Sequence[str]) -> tuple[str | None, str]:
    """Return the longest name of a column that the text begins with, before ``=``, and what follows."""
    ends = [end for end, letter in enumerate(given) if letter == "=" and given[:end] in names]
    return (given[: ends[-1]], given[ends[-1] + 1 :]) if ends else (None, given)


def _split_last(given: str, names: Sequence[str], option: str) -> tuple[str | None, str]:
    column, found, text = given.rpartition("=")
    if found and column not in names:
        known = ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")
        raise TableError(f"{option} {given!r}: no column {column!r}; there are {known}")
    return (column if found else None), text


def _from_schema(name: str, settings: Any) -> ColumnRules:
    settings = {"kind": settings} if isinstance(settings, str) else settings
    if not isinstance(settings, Mapping):
        return ColumnRules()  # refused later, with a sentence
    kind, wanted = settings.get("kind"), None
    if kind in _LEVELS or settings.get("levels"):
        wanted = "levels"
    elif kind in _NUMBERS or any(settings.get(key) is not None for key in ("minimum", "maximum", "integer")):
        wanted = "number"
    elif kind == "datetime":
        wanted = "date"
    given = settings.get("null", ())
    nulls = tuple(str(text).strip() for text in (given if isinstance(given, list | tuple) else [given]))
    rules = ColumnRules(nulls=nulls, wanted=wanted)  # type: ignore[arg-type]
    try:
        for null in nulls:
            _check_text(null, "null")
        if (text := settings.get("number_format")) is not None:
            marks = None if text == "text" else parse_number_format(str(text))
            rules = replace(rules, marks=marks, wanted="text" if marks is None else "number")
        if (text := settings.get("date_order")) is not None:
            rules = replace(rules, order=parse_date_order(str(text)), wanted="date")
        if (year := settings.get("first_year")) is not None:
            if not isinstance(year, int) or not 1 <= year <= 9900:
                raise TableError(f"first_year must be a year such as 1950, got {year!r}")
            rules = replace(rules, first_year=year)
        if (numbers := settings.get("placeholder")) is not None:
            rules = replace(rules, placeholders=_read_placeholders(numbers))
    except TableError as error:
        raise TableError(f"schema of column {name!r}: {error}") from None
    return rules


def _read_placeholders(given: Any) -> tuple[float, ...]:
    numbers = given if isinstance(given, list | tuple) else [given]
    if not all(
        isinstance(number, int | float) and not isinstance(number, bool) and abs(number) <= sys.float_info.max
        for number in numbers
    ):
        raise TableError(f"placeholder must be a list of numbers such as [999], got {given!r:.60}")
    return tuple(map(float, numbers))


def merge_settings(
    found: Mapping[str, dict[str, Any]], overrides: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the schema settings for models: those found in the cells, overridden by those of the user."""
    every = (overrides or {}).get("*")
    asked = isinstance(every, Mapping) and every.get("fill")  # to fill every column comes first
    found = {
        name: {key: value for key, value in settings.items() if key != "fill" or not asked}
        for name, settings in found.items()
    }
    merged: dict[str, Any] = dict(found)
    for name, settings in (overrides or {}).items():
        if isinstance(settings, Mapping):
            kept = {key: value for key, value in settings.items() if key not in READING_KEYS}
            if kept or name in found or not settings:
                merged[name] = {**found.get(name, {}), **kept}
        elif name in found and isinstance(settings, str):
            merged[name] = {**found[name], "kind": settings}
        else:
            merged[name] = settings
    return merged
