"""Formats of columns that a model stores: as values that JSON can represent, and combined with a new file."""

import re
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass, replace
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pyarrow as pa
import pyarrow.compute as pc

from halfseen.files.cells import Style, format_cells
from halfseen.files.dates import Order
from halfseen.files.numbers import APOSTROPHES, BLANKS, NumberFormat

NUMBERS = ("integer", "float")
_MAX_DECIMALS = 300  # the powers of ten that floating-point numbers have
_MAX_GROUP_FROM = 20  # no 64-bit number has more digits
_EXACT_INTEGERS = 2**53  # beyond, floating-point numbers do not represent all whole numbers
_PATTERN = re.compile(r"%Y-%m-%d([T ]%H:%M(:%S)?)?")
_ZONE = re.compile(r"(Z|[+-]\d\d:?\d\d)?")
_SWAPPED = str.maketrans(".,", ",.")


# ------------------------------------------------------------------------------------------ as JSON


def describe_style(style: Style) -> dict[str, Any]:
    """Return a style as values that JSON can represent, without those that are the default.

    Examples
    --------
    >>> describe_style(Style("float", decimals=2, number=NumberFormat(",", after=" €")))
    {'kind': 'float', 'decimals': 2, 'number': {'decimal': ',', 'after': ' €'}}
    """
    return _without_defaults(style)


def _without_defaults(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        kept = {one.name: getattr(value, one.name) for one in fields(value)}
        defaults = {one.name: one.default for one in fields(value) if one.default is not MISSING}
        return {
            name: _without_defaults(item)
            for name, item in kept.items()
            if name not in defaults or item != defaults[name]
        }
    return [_without_defaults(item) for item in value] if isinstance(value, tuple) else value


def restore_style(entry: Any) -> Style:
    """Return the style that `describe_style` described; raise a ValueError if the entry is malformed.

    Examples
    --------
    >>> restore_style({"kind": "boolean", "spelling": ["no", "yes"]}).spelling
    ('no', 'yes')
    """
    style = _restore(Style, entry)
    assert isinstance(style, Style)
    number, date = style.number or NumberFormat(), style.date
    separators = ("", ".", ",", *BLANKS, *APOSTROPHES)
    sound = (
        0 <= (style.decimals or 0) <= _MAX_DECIMALS
        and _PATTERN.fullmatch(style.pattern) is not None
        and _ZONE.fullmatch(style.zone) is not None
        and style.fraction in (0, 3, 6)
        and style.exponent in ("", "e", "E")
        and (style.decimals is not None or not style.exponent)
        and number.decimal in (".", ",")
        and number.group in separators
        and number.group != number.decimal
        and 0 < number.group_from <= _MAX_GROUP_FROM
    )
    if date is not None:
        sound = (
            sound
            and len(date.names) in (0, 12)
            and date.year_digits in (2, 4)
            and date.fraction in (0, 3, 6)
            and 1 <= date.first_year <= 9900
        )
    if not sound:
        raise ValueError(f"the format of a column has an impossible value: {entry!r:.200}")
    return style


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _restore(hint: Any, value: Any) -> Any:
    """Return a JSON value as what a type hint says; raise a ValueError if it is something else."""
    origin, options = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        return _restore_fields(hint, value)
    if origin in (Union, UnionType):
        for option in options:
            try:
                return _restore(option, value)
            except ValueError:
                continue
    elif origin is tuple and isinstance(value, list):
        if options[1:] == (Ellipsis,):
            options = options[:1] * len(value)
        if len(options) == len(value):
            return tuple(_restore(option, item) for option, item in zip(options, value, strict=True))
    elif origin is Literal:
        if isinstance(value, str) and value in options:
            return value
    elif hint is float and type(value) in (int, float):
        return float(value)
    elif hint in (int, str, bool, NoneType) and type(value) is hint:
        return value
    raise ValueError(f"the format of a column has an impossible value: {value!r:.200}")


def _restore_fields(kind: Any, value: Any) -> Any:
    known, hints = {one.name for one in fields(kind)}, _hints(kind)
    required = {one.name for one in fields(kind) if one.default is MISSING}
    if not isinstance(value, Mapping) or not required <= value.keys() <= known:
        raise ValueError(f"the format of a column is not described by {value!r:.200}")
    return kind(**{name: _restore(hints[name], item) for name, item in value.items()})


# ------------------------------------------------------------------------------------------ in a new file


def decimal_of(style: Style) -> str | None:
    """Return the decimal mark that the numbers of a column show; None if they show none."""
    if style.kind not in NUMBERS:
        return None
    form = style.number or NumberFormat()
    return form.decimal if style.kind == "float" or form.group in (".", ",") else None


def order_of(style: Style) -> Order | None:
    """Return the order of dates in a column that are written as numbers with the year last."""
    numeric = style.date is not None and not style.date.names and style.date.order != "ymd"
    return style.date.order if style.date is not None and numeric else None


def with_decimal(style: Style, decimal: str | None) -> Style:
    """Return a style of numbers with another decimal mark; points and commas between thousands give way."""
    form = style.number or NumberFormat()
    if style.kind not in NUMBERS or decimal is None or decimal == form.decimal:
        return style
    group = form.group.translate(_SWAPPED)
    limits = tuple(replace(limit, text=limit.text.translate(_SWAPPED)) for limit in style.limits)
    return replace(style, number=_unless_plain(replace(form, decimal=decimal, group=group)), limits=limits)


def combine_styles(own: Style, learned: Style, texts: pa.Array, values: pa.Array) -> Style:
    """Return the style of a column that has values: its own, and that of training for what is not shown.

    Parameters
    ----------
    own, learned : Style
        The style that the cells of the new file show, and that of the training file.
    texts, values : pyarrow.Array
        The observed cells of the new file: their texts without blanks around them, and their values.
    """
    if own.kind in NUMBERS and learned.kind in NUMBERS:
        return _combine_numbers(own, learned, values)
    if own.kind == learned.kind and pc.all(pc.equal(format_cells(values, learned), texts)).as_py():
        return learned
    return own


def _combine_numbers(own: Style, learned: Style, values: pa.Array) -> Style:
    """Return a style with the marks, unit and decimals that the cells show.

    Separators of thousands show in numbers of a thousand and more, minus signs in negative numbers. Whole
    numbers show no decimals: those of training are used, because they would otherwise be lost.
    """
    learned = with_decimal(learned, decimal_of(own))
    mine, theirs = own.number or NumberFormat(), learned.number or NumberFormat()
    ends = pc.min_max(values).as_py()
    form = replace(mine, decimal=decimal_of(own) or theirs.decimal)
    if max(-ends["min"], ends["max"]) < 1000:
        form = replace(form, group=theirs.group, group_from=theirs.group_from)
    if ends["min"] >= 0:
        form = replace(form, negative=theirs.negative)
    style = replace(own, number=_unless_plain(form), limits=own.limits or learned.limits)
    if learned.kind == "integer":
        return style
    if own.kind == "integer" and max(-ends["min"], ends["max"]) < _EXACT_INTEGERS:
        return replace(
            style, kind="float", decimals=learned.decimals, exponent=learned.exponent, ragged=learned.ragged
        )
    if learned.ragged and own.decimals is not None and learned.decimals is not None and not own.exponent:
        return replace(style, decimals=max(own.decimals, learned.decimals), ragged=True)
    return style


def unit_of(style: Style) -> str:
    """Return the currency, percent sign or unit of numbers."""
    form = style.number or NumberFormat()
    return (form.before + form.after).strip(BLANKS)


def _unless_plain(form: NumberFormat) -> NumberFormat | None:
    return None if form == NumberFormat() else form


def is_written_alike(one: Style, other: Style) -> bool:
    """Return whether two styles of a column agree in marks, units, dates and spellings.

    Styles of numbers may differ in the number of decimals.
    """
    if one.kind in NUMBERS and other.kind in NUMBERS:
        marks = [
            {
                key: asdict(style.number or NumberFormat())[key]
                for key in ("decimal", "group", "before", "after")
            }
            for style in (one, other)
        ]
        return marks[0] == marks[1]
    return one == other
