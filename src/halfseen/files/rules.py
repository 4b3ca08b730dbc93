"""What a user says about the columns of a file, and what is known about a column while it is read.

`Rules` are the options and the settings of a schema file: texts that mean missing, formats of numbers, orders
of dates. A `Draft` is a column before the whole file was considered, a `Decision` what the file as a whole
says about it, and an `Outcome` the column as it was read.
"""

import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from halfseen._arrays import Integers
from halfseen.errors import TableError
from halfseen.files.dates import Dates, Order, parse_date_order
from halfseen.files.distinct import CellKind
from halfseen.files.formats import Style
from halfseen.files.missing_codes import show_number
from halfseen.files.numbers import Marks, Numbers, parse_number_format
from halfseen.words import Note

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
    """How the file was read that a model was fitted to."""

    settings: dict[str, dict[str, Any]]  # the settings for reading each column, as in a schema file
    styles: dict[str, Style]  # how the cells of each column are written

    def of(self, names: Sequence[str]) -> dict[str, ColumnRules]:
        """Return the rules for the columns of another file that match a column of the model."""
        matched = match_names(names, self.settings)
        return {
            name: replace(_from_schema(name, self.settings[known]), learned=self.styles.get(known))
            for known, name in matched.items()
        }


@dataclass(frozen=True)
class Rules:
    """The rules for reading a file."""

    nulls: tuple[str, ...] = DEFAULT_NULLS  # texts that mean missing in every column
    words: bool = True  # whether words such as `unknown` mean missing in a column of numbers
    # How numbers and dates are written in ambiguous columns.
    marks: Marks | None = None
    order: Order | None = None
    columns: dict[str, ColumnRules] = field(default_factory=dict)  # the rules of single columns
    notes: tuple[Note, ...] = ()  # notes on behaviour that users may not expect
    declared: tuple[str, ...] = ()  # those of `nulls` that the user gave

    def of(self, name: str) -> ColumnRules:
        """Return the rules of a column."""
        return self.columns.get(name, ColumnRules())


Given = str | float | Sequence[str | float] | Mapping[str, Any]
"""What a user gives for all columns, as one text or several, or for single columns, as a mapping."""


def make_rules(
    names: Sequence[str],
    *,
    null: Given = (),
    default_nulls: bool = True,
    number_format: Given = (),
    date_order: Given = (),
    schema: Mapping[str, Any] | None = None,
    training: TrainingRules | None = None,
) -> Rules:
    """Return the rules for a table with these columns; see `read_table` for what the user may give.

    A null text that begins with the name of a column and ``=`` holds for that column, any other for all.
    Options take precedence over the schema file and the file that a model was fitted to.
    """
    rules = Rules(nulls=("", *(DEFAULT_NULLS if default_nulls else ())), words=default_nulls)
    columns = {name: _from_schema(name, schema[name]) for name in names if schema and name in schema}
    columns |= {} if training is None else training.of(names)
    everywhere: list[str] = []
    notes: list[Note] = []
    for column, text in _each(null, names, "--null"):
        _check_text(text, "--null")
        if column is None:
            column, text = _split(text, names)
        if column is None:
            everywhere.append(text.strip())
            if "=" in text:
                said = f"--null {text!r}: no column has a name before '=', so the whole text means missing"
                notes.append(Note(said))
        else:
            old = columns.get(column, ColumnRules())
            columns[column] = replace(old, nulls=(*old.nulls, text.strip()))
    for column, text in _each(number_format, names, "--number-format", split=True):
        marks = None if text == "text" else parse_number_format(text)
        if column is None and marks is None:
            raise TableError("--number-format text needs a column: --number-format COLUMN=text")
        if column is None:
            rules = replace(rules, marks=marks)
        else:
            old = columns.get(column, ColumnRules())
            columns[column] = replace(old, marks=marks, wanted="text" if marks is None else "number")
    for column, text in _each(date_order, names, "--date-order", split=True):
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


def _each(
    given: Given, names: Sequence[str], option: str, *, split: bool = False
) -> Iterator[tuple[str | None, str]]:
    """Yield the texts that a user gave, each with its column; with `split`, also those of COLUMN=TEXT."""
    if isinstance(given, Mapping):
        for column, own in given.items():
            _check_column(column, names, f"{option} for {column!r}")
            for _, text in _each(own, names, option):
                yield column, text
        return
    for one in [given] if isinstance(given, str | int | float) else given:
        text = one if isinstance(one, str) else show_number(one)
        yield _split_last(text, names, option) if split else (None, text)


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
    if found:
        _check_column(column, names, f"{option} {given!r}")
    return (column if found else None), text


def _check_column(column: str, names: Sequence[str], what: str) -> None:
    if column not in names:
        known = ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")
        raise TableError(f"{what}: no column {column!r}; there are {known}")


def _from_schema(name: str, settings: Any) -> ColumnRules:
    settings = {"kind": settings} if isinstance(settings, str) else settings
    if not isinstance(settings, Mapping):
        return ColumnRules()  # the schema raises an error that names the column
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
    asked = isinstance(every, Mapping) and every.get("fill")  # it overrides what was found
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


# ------------------------------------------------------------------------------------------ names of columns


def match_names(names: Sequence[str], known: Iterable[str]) -> dict[str, str]:
    """Return the columns of a model that a file has, each with its name in the file.

    Parameters
    ----------
    names : sequence of str
        The columns of the file.
    known : iterable of str
        The columns of the model.

    Raises
    ------
    TableError
        If a name matches several others except for blanks and case.

    Examples
    --------
    >>> match_names(["Id", "sales  LAST year"], ["Sales last year", "Region"])
    {'Sales last year': 'sales  LAST year'}
    """
    known = list(known)
    exact = set(names) & set(known)
    matched: dict[str, str] = {name: name for name in known if name in exact}
    of_file = _by_plain_name(name for name in names if name not in exact)
    for plain, alike in _by_plain_name(name for name in known if name not in exact).items():
        found = of_file.get(plain, [])
        if len(found) > 1:
            raise TableError(
                f"columns {found[0]!r} and {found[1]!r} of the file could both be the column {alike[0]!r} of "
                "the model, as they differ from it only by blanks and case; rename the right one to "
                f"{alike[0]!r}"
            )
        if found and len(alike) > 1:
            raise TableError(
                f"column {found[0]!r} of the file could be the column {alike[0]!r} or {alike[1]!r} of the "
                "model, as it differs from both only by blanks and case; rename it to one of them"
            )
        if found:
            matched[alike[0]] = found[0]
    return matched


def _by_plain_name(names: Iterable[str]) -> dict[str, list[str]]:
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(_plain(name), []).append(name)
    return alike


def _plain(name: str) -> str:
    """Return a name in composed characters and lower case, without blanks and invisible characters."""
    visible = (
        letter
        for letter in unicodedata.normalize("NFC", name)
        if not letter.isspace() and unicodedata.category(letter) != "Cf"
    )
    return "".join(visible).casefold()


# --------------------------------------------------------------------------------- a column while it is read


@dataclass(frozen=True)
class Draft:
    """What is known about a column before the whole file has been considered."""

    name: str  # its name
    # Its texts; and without blanks around them, null where missing.
    cells: pa.Array
    trimmed: pa.Array
    rules: ColumnRules  # the settings of the user
    kind: CellKind = "text"  # what it is if it is written the plain way
    words: tuple[tuple[str, int], ...] = ()  # texts that mean missing, with their counts
    # Texts that the user declared as missing in other spellings, with their counts.
    spellings: tuple[tuple[str, int], ...] = ()
    # The cells as distinct texts, if they may be numbers or dates in another than the plain format.
    texts: pa.DictionaryArray | None = None
    counts: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # how many cells hold each
    numbers: Numbers | None = None  # these texts as numbers
    dates: tuple[Dates, ...] = ()  # these texts as dates, by layouts


def line_below(row: int) -> int:
    """Return the line of a row in a file whose header is its first line and whose cells have no line ends."""
    return row + 2


@dataclass(frozen=True)
class Decision:
    """How the whole file determines the reading of a column.

    Parameters
    ----------
    decimal : str or None
        The decimal mark that columns agree on, or the user specifies.
    order : str or None
        The order of dates that the user specifies.
    delimiter : str
        What separates the cells.
    line_of : callable
        Returns the line of the file in which a row begins.
    declared_decimal : bool
        Whether the user specifies it.
    orders : dict of str to frozenset of str
        The orders of dates that the cells of each column prove.
    as_written : bool
        Whether numbers are as somebody wrote them. If they come from a format that has numbers, a point in
        them is a decimal point.
    """

    decimal: str | None
    order: Order | None
    delimiter: str
    line_of: Callable[[int], int]
    declared_decimal: bool = False
    orders: Mapping[str, frozenset[Order]] = field(default_factory=dict)
    as_written: bool = False

    def order_beside(self, name: str) -> Order | None:
        """Return the order of dates that the columns other than one agree on."""
        proved = {order for other, orders in self.orders.items() if other != name for order in orders}
        return proved.pop() if len(proved) == 1 else None


@dataclass(frozen=True)
class Outcome:
    """The result of reading a column."""

    typed: pa.Array  # its values; null where missing, or where models must not see the cell
    style: Style  # how its cells are written
    kept: pa.Array | None = None  # the cells whose text stays although models do not see it
    # Values that models do not see, such as 999 or 9999-12-31; null elsewhere.
    placeholders: pa.Array | None = None
    settings: dict[str, Any] = field(default_factory=dict)  # its settings of the schema
    formats: tuple[str, ...] = ()  # what is unusual about its cells, in words
    notes: tuple[Note, ...] = ()  # sentences about it
    # Texts that are read as missing although nobody said so, with their counts.
    words: tuple[tuple[str, int], ...] = ()
