"""The format in which the cells of a column are written, and the formats that a model stores.

The text of an observed cell is never rewritten. A column is parsed once, in order to pass numbers, dates and
levels to the imputer; afterwards, only the cells that were missing are formatted, like the other cells. The
formats of a training file are stored in the model as values that JSON can represent, and are combined with
those that a new file shows.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass, replace
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halfseen.files.dates import DateFormat, Order
from halfseen.files.distinct import EMPTY, FEW, CellKind, all_match, any_match, few_texts
from halfseen.files.numbers import NumberFormat
from halfseen.files.text_formats import APOSTROPHES, BLANKS

_NUMBER = r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
_OF_ZERO = ("Z", "UTC", "GMT")  # zones without an offset
_ZONES = r"(?:Z| ?(?:UTC|GMT)| ?[+-]\d\d:?\d\d)"
_PATTERNS: dict[CellKind, str] = {
    "integer": r"^[+-]?\d+$",
    "float": rf"^[+-]?({_NUMBER}|(?i:inf|infinity))$",
    "boolean": r"^(?i:true|false)$",
    "date": r"^\d{4}-\d\d-\d\d$",
    "timestamp": rf"^\d{{4}}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{{1,6}})?)?{_ZONES}?$",
}
CODE = r"^[+-]?0\d"
"""The beginning of numbers that are codes."""

_SAMPLE = 500  # cells whose kind is tested before that of all cells; it changes the time only
_STYLE_SAMPLE = 5000  # cells by which spellings of booleans and times are found; a guess
_USUAL_DECIMALS = (
    4  # more decimals than this are rather digits of a calculation than of a measurement; a guess
)
_MAX_EXACT = 2.0**53  # beyond it, floats do not hold all whole numbers


@dataclass(frozen=True)
class Style:
    """The format in which the cells of one column are written.

    Parameters
    ----------
    kind : str
        What the column holds.
    decimals : int or None
        Digits after the decimal mark; None means six significant digits.
    exponent : str
        The letter before the exponent, ``e`` or ``E``, if every number has one; else empty.
    spelling : tuple of str
        How False and True are spelt.
    pattern : str
        The ``strftime`` pattern of a date or timestamp.
    fraction : int
        Digits of the fraction of a second: 0, 3 or 6.
    zone : str
        What follows a timestamp: nothing, ``Z``, ``UTC`` or an offset, perhaps after a blank.
    number : NumberFormat or None
        Separators, currency and unit of numbers that are not plain.
    date : DateFormat or None
        The format of dates that are not plain.
    limits : tuple of Limit
        What is written instead of a number beyond a detection limit.
    ragged : bool
        Whether some numbers show fewer decimals than others.
    """

    kind: CellKind
    decimals: int | None = None
    spelling: tuple[str, str] = ("false", "true")
    pattern: str = "%Y-%m-%d"
    fraction: int = 0
    zone: str = ""
    number: NumberFormat | None = None
    date: DateFormat | None = None
    limits: tuple["Limit", ...] = ()
    exponent: str = ""
    ragged: bool = False


@dataclass(frozen=True)
class Limit:
    """A detection limit: numbers strictly beyond `value`, on one side, are written as `text`."""

    side: Literal["below", "above"]
    value: float
    text: str


def find_kind(observed: pa.Array) -> CellKind:
    """Return the type of all observed cells if they are in plain format, without surrounding blanks.

    Numbers that begin with a zero (``007``) are codes, which are text.
    """
    head = observed[:_SAMPLE]
    for kind, pattern in _PATTERNS.items():
        if all_match(head, pattern) and (len(observed) <= _SAMPLE or all_match(observed, pattern)):
            return "text" if kind in ("integer", "float") and any_match(observed, CODE) else kind
    return "text"


def cast_cells(trimmed: pa.Array, kind: CellKind) -> pa.Array | None:
    """Return the typed column, None if a cell is not a valid value, such as 2021-02-30 or 30 digits."""
    try:
        return _cast(trimmed, kind)
    except pa.ArrowInvalid:
        return None


def as_text(cells: pa.Array, missing: pa.Array) -> pa.Array:
    """Return the cells as they are, null where missing."""
    texts = pc.if_else(missing, pa.scalar(None, cells.type), cells)
    fits = texts.nbytes < 1 << 31  # the offsets of the usual string type are 32 bits wide
    return texts.cast(pa.string()) if fits else texts


def _cast(trimmed: pa.Array, kind: CellKind) -> pa.Array:
    if kind == "boolean":
        return pc.equal(pc.utf8_lower(trimmed), "true")
    if kind == "date":
        return trimmed.cast(pa.date32())
    if kind == "timestamp":
        zoned = any_match(trimmed.drop_null(), rf":\d\d(\.\d+)?{_ZONES}$")
        if zoned:
            trimmed = pc.replace_substring_regex(trimmed, " ?(UTC|GMT)$", "Z")
            trimmed = pc.replace_substring_regex(trimmed, r" ([+-]\d\d:?\d\d)$", r"\1")
        return trimmed.cast(pa.timestamp("us", "UTC" if zoned else None))
    if kind == "integer":
        signed = any_match(trimmed, r"^\+")
        return (pc.replace_substring_regex(trimmed, r"^\+", "") if signed else trimmed).cast(pa.int64())
    return trimmed.cast(pa.float64())


def style_of(kind: CellKind, observed: pa.Array) -> Style:
    """Return how the observed cells of a column are written; `observed` holds their texts."""
    if kind == "float":
        return _float_style(observed)
    if kind == "boolean":
        seen = Counter(observed[:_STYLE_SAMPLE].to_pylist())
        spelt = {word.lower(): word for word, _ in reversed(seen.most_common())}
        true, false = spelt.get("true"), spelt.get("false")
        return Style(kind, spelling=(false or _like(true, "false"), true or _like(false, "true")))
    if kind == "timestamp":
        return _timestamp_style(observed[:_STYLE_SAMPLE].to_pylist())
    return Style(kind)


def _like(other: str | None, word: str) -> str:
    if other is None or other.islower():
        return word
    return word.upper() if other.isupper() else word.capitalize()


def _float_style(observed: pa.Array) -> Style:
    """Return how numbers are written: with an exponent if all are, else with a number of decimals."""
    has_exponents = any_match(observed, "[eE]")
    for letter in "eE" if has_exponents else "":
        if all_match(observed, rf"^[+-]?\d(\.\d+)?{letter}[+-]\d\d$"):
            digits = pc.utf8_length(pc.replace_substring_regex(observed, rf"^[+-]?\d\.?|{letter}.*$", ""))
            return Style("float", decimals=int(pc.max(digits).as_py()), exponent=letter)
    if len(observed) == 0 or has_exponents:
        return Style("float")
    least, most = _decimal_ends(observed)
    ragged = least < most
    return Style("float", decimals=_count_decimals(observed, most, ragged=ragged), ragged=ragged)


def _decimal_ends(observed: pa.Array) -> tuple[int, int]:
    """Return the least and the largest number of decimals that a number shows."""
    if (texts := few_texts(observed)) is not None:
        shown = [len(text.partition(".")[2]) for text in texts if text is not None]
        return min(shown), max(shown)
    tails = pc.replace_substring_regex(observed, r"^[^.]*\.?", "")
    ends = pc.min_max(pc.utf8_length(tails)).as_py()
    return ends["min"], ends["max"]


def _count_decimals(observed: pa.Array, shown: int, *, ragged: bool) -> int:
    """Return the decimals that all cells show; else the most, at most those that a spread of 1e-5 needs."""
    if not ragged and shown <= _USUAL_DECIMALS:
        return shown
    numbers = observed.cast(pa.float64()).to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore"):  # reading the schema raises an error for infinite cells
        spread = float(np.std(numbers))
    if not math.isfinite(spread) or spread == 0:
        return min(shown, 6)
    return min(shown, max(5 - math.floor(math.log10(spread)), 1))


def _timestamp_style(cells: list[str]) -> Style:
    if not cells:
        return Style("timestamp", pattern="%Y-%m-%d %H:%M:%S")
    first = max(cells, key=len)
    zones = {_zone(cell) for cell in cells}
    zone = zones.pop() if len(zones) == 1 else "+00:00"
    clock = first.removesuffix(_zone(first))[11:]
    digits = len(clock.partition(".")[2])
    fraction = 0 if digits == 0 else 3 if digits <= 3 else 6
    seconds = ":%S" if clock.count(":") > 1 else ""
    return Style("timestamp", pattern=f"%Y-%m-%d{first[10]}%H:%M{seconds}", fraction=fraction, zone=zone)


def _zone(cell: str) -> str:
    clock = cell[11:]
    start = next((place for place, letter in enumerate(clock) if letter in "Z+- UG"), len(clock))
    return clock[start:]


def format_cells(values: pa.Array, style: Style) -> pa.Array:
    """Return typed values as texts in the style of their column."""
    texts = _format_plain(values, style)
    if style.number is not None and style.kind in ("float", "integer"):
        texts = style.number.write(texts)
    for limit in style.limits:
        beyond = pc.less if limit.side == "below" else pc.greater
        texts = pc.if_else(beyond(values, limit.value), pa.scalar(limit.text, texts.type), texts)
    return texts


def _format_plain(values: pa.Array, style: Style) -> pa.Array:
    if style.kind == "float":
        return _format_floats(values, style)
    if style.kind == "integer":
        whole = pc.round(values) if pa.types.is_floating(values.type) else values
        return whole.cast(pa.int64()).cast(pa.large_string())
    if style.kind == "boolean":
        false, true = style.spelling
        return pc.if_else(values.cast(pa.bool_()), true, false).cast(pa.large_string())
    if style.kind in ("date", "timestamp") and pa.types.is_temporal(values.type):
        return style.date.write(values) if style.date is not None else _format_times(values, style)
    return values.cast(pa.large_string())


def _format_floats(values: pa.Array, style: Style) -> pa.Array:
    numbers = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    finite = np.nan_to_num(numbers)
    if style.exponent:
        spelt = [f"{number:.{style.decimals}{style.exponent}}" for number in finite.tolist()]
        texts = pa.array(spelt, pa.large_string())
    elif style.decimals is None or np.abs(finite).max(initial=0.0) >= _MAX_EXACT / 10.0**style.decimals:
        texts = _significant(finite, 6)
    else:
        texts = _fixed(finite, style.decimals)
        vanished = (np.abs(finite) < 0.5 * 10.0**-style.decimals) & (finite != 0)
        if vanished.any():  # a positive quantity must not become zero by rounding
            texts = pc.replace_with_mask(texts, pa.array(vanished), _significant(finite[vanished], 2))
    return pc.if_else(pa.array(np.isnan(numbers)), pa.scalar(None, pa.large_string()), texts)


def _fixed(numbers: np.ndarray, decimals: int) -> pa.Array:
    if len(numbers) <= FEW:
        return pa.array([_fixed_text(number, decimals) for number in numbers.tolist()], pa.large_string())
    units = np.round(np.abs(numbers) * 10.0**decimals).astype(np.int64)
    digits = pa.array(units).cast(pa.large_string())
    sign = pc.if_else(pa.array((numbers < 0) & (units > 0)), "-", "").cast(pa.large_string())
    if decimals == 0:
        return pc.binary_join_element_wise(sign, digits, EMPTY)
    digits = pc.utf8_lpad(digits, decimals + 1, "0")
    whole, tail = pc.utf8_slice_codeunits(digits, 0, -decimals), pc.utf8_slice_codeunits(digits, -decimals)
    point = pa.scalar(".", pa.large_string())
    return pc.binary_join_element_wise(sign, whole, point, tail, EMPTY)


def _fixed_text(number: float, decimals: int) -> str:
    units = round(abs(number) * 10.0**decimals)
    digits = str(units).rjust(decimals + 1, "0")
    text = f"{digits[:-decimals]}.{digits[-decimals:]}" if decimals else digits
    return f"-{text}" if number < 0 and units else text


def _significant(numbers: np.ndarray, digits: int) -> pa.Array:
    magnitude = np.floor(np.log10(np.abs(numbers), where=numbers != 0, out=np.zeros_like(numbers)))
    places = (digits - 1 - magnitude).astype(int)
    first, rest = 10.0 ** np.clip(places, 0, 300), 10.0 ** np.maximum(places - 300, 0)  # of what floats hold
    down = 10.0 ** np.maximum(-places, 0)
    rounded = np.where(
        places > 0, np.round(numbers * first * rest) / rest / first, np.round(numbers / down) * down
    )
    return pa.array(rounded).cast(pa.large_string())


def _format_times(values: pa.Array, style: Style) -> pa.Array:
    if style.kind == "date" or pa.types.is_date(values.type):
        return pc.strftime(values, format=style.pattern.partition("%H")[0].rstrip("T ")).cast(
            pa.large_string()
        )
    stamps = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.timestamp("us"))
    zone = style.zone.strip()
    if zone and zone not in _OF_ZERO:
        sign = -1 if zone[0] == "-" else 1
        minutes = sign * (60 * int(zone[1:3]) + int(zone[-2:]))
        stamps = pc.add(stamps, pa.scalar(minutes * 60_000_000, pa.duration("us")))
    unit = {0: "s", 3: "ms", 6: "us"}[style.fraction]
    stamps = pc.floor_temporal(stamps, unit={"s": "second", "ms": "millisecond", "us": "microsecond"}[unit])
    texts = pc.strftime(stamps.cast(pa.timestamp(unit)), format=style.pattern).cast(pa.large_string())
    return pc.binary_join_element_wise(texts, pa.scalar(style.zone, pa.large_string()), EMPTY)


# ------------------------------------------------------------------------------------------ styles of models

NUMBERS = ("integer", "float")
_MAX_DECIMALS = 300  # the powers of ten that floating-point numbers have
_MAX_GROUP_FROM = 20  # no 64-bit number has more digits
_EXACT_INTEGERS = 2**53  # beyond, floating-point numbers do not represent all whole numbers
_PATTERN = re.compile(r"%Y-%m-%d([T ]%H:%M(:%S)?)?")
_ZONE = re.compile(rf"{_ZONES}?")
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

    Styles of numbers may differ in the number of decimals. Whole numbers show no decimal mark.
    """
    if one.kind in NUMBERS and other.kind in NUMBERS:
        shown = ["group", "before", "after"]
        if one.kind == other.kind == "float":
            shown.append("decimal")
        marks = [
            {key: asdict(style.number or NumberFormat())[key] for key in shown} for style in (one, other)
        ]
        return marks[0] == marks[1]
    return one == other
