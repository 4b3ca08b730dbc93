"""Cells that mean missing, and values that no model may use.

Words such as "unknown" mean missing in a column of numbers. Numbers such as 999 that lie far from all others,
and dates such as 9999-12-31, are placeholders: they are written again as they were, and no model sees them.
In typed files, NaN and nulls within dictionaries become plain nulls. A code here is such a sentinel; the
numbers by which `halfseen.data.schema` encodes cells are a different matter.
"""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halfseen.files.distinct import FEW, kind_of
from halfseen.words import Note, names_words, plural

if TYPE_CHECKING:  # `rules` imports what numbers are codes
    from halfseen.files.rules import ColumnRules, Rules

MISSING_WORDS = (
    "-", "--", "---", "\u2013", "\u2014", ".", "..", "...", "\u2026", "*", "n.a.", "n.a", "n/a", "n. a.",
    "na", "nan", "null", "none", "unknown", "missing", "not available", "not known", "no data", "no answer",
    "no response", "not stated", "not reported", "not recorded", "not measured", "not tested", "refused",
    "declined",
    "declined to answer", "prefer not to say", "prefer not to answer", "don't know", "dont know", "dk",
    "k.a.", "k. a.", "k.a", "keine angabe", "weiß nicht", "unbekannt", "inconnu", "non renseigné",
    "desconocido", "sin datos", "no contesta", "ns/nc", "desconhecido", "sconosciuto", "onbekend",
    "n/d", "non disponible", "no disponible", "não disponível", "não informado", "non disponibile",
    "saknas", "uppgift saknas", "okänd", "okänt", "ukjent", "ukendt", "niet bekend", "brak danych",
)  # fmt: skip
"""Texts, in lower case, that mean missing in a column of numbers or dates, and may mean it in one of text."""

FORMULA_ERRORS = ("#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#NULL!", "#N/A")
"""What a spreadsheet shows where a formula fails."""

NEVER_VALUES = (
    *FORMULA_ERRORS, "0000-00-00", "0000-00-00 00:00:00", "00/00/0000", "00.00.0000", "00-00-0000",
)  # fmt: skip
"""Texts that mean missing in every column: formula errors, and the dates of databases that are not there."""

_YES_AND_NO = {"yes", "no", "y", "n", "true", "false", "t", "f", "1", "0", "ja", "nein", "j", "oui", "non"}
_MANY_LEVELS = 50  # columns with more levels are not searched for spellings of one level; a guess
_NINES = (9, 99, 999, 9999, 99999)
_REPEATED = (66, 77, 88, 666, 777, 888, 6666, 7777, 8888)
_DECIMAL = (99.9, 99.99, 999.9, 999.99, 9999.9, 9999.99, 99999.9, 999.25)  # of instruments and well logs
_LARGEST = (32767, 32768, 65535, 2147483647, 2147483648, 4294967295)  # whole numbers of 16 and 32 bits
_LONG = (999, 9999, 99999, *(code for code in _DECIMAL if code > 999), *_LARGEST)  # hardly ever values
_CODES = sorted({nines - less for nines in _NINES for less in (0, 1, 2)} | {*_REPEATED, *_DECIMAL, *_LARGEST})
_LEAST_LONG = 666  # the least code beside those above
# The number of other distinct values, and the distance from them in units of their range; guesses.
_MANY_OTHERS, _FAR = 10, 5
_FIRST_DAYS = (
    date(1753, 1, 1), date(1800, 1, 1), date(1899, 12, 30), date(1899, 12, 31), date(1900, 1, 1),
    date(1901, 1, 1), date(1970, 1, 1),
)  # fmt: skip


def fold(texts: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return texts without the difference of upper and lower case."""
    return pc.replace_substring(pc.utf8_lower(texts), "ß", "ss")


def is_any_of(texts: pa.Array | pa.ChunkedArray, words: Sequence[str]) -> pa.Array | pa.ChunkedArray:
    """Return which texts are one of some words, in upper or lower case; null is none of them."""
    return pc.is_in(fold(texts), value_set=fold(pa.array(words, texts.type)))


def is_missing_word(texts: pa.Array) -> pa.Array:
    """Return which texts mean missing in a column of numbers."""
    return is_any_of(texts, MISSING_WORDS)


def is_never_value(texts: pa.Array) -> pa.Array:
    """Return which texts mean missing in every column."""
    return is_any_of(texts, NEVER_VALUES)


def is_number(text: str) -> bool:
    """Return whether a text that a user gave is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def say_counts(counts: list[tuple[str, int]]) -> str:
    """Return how many cells hold each text, in words, the most frequent first."""
    (first, count), *others = sorted(counts, key=lambda entry: -entry[1])
    start = f"{count:,} {'cell contains' if count == 1 else 'cells contain'} {first}"
    more = [f"{count:,} {'contains' if count == 1 else 'contain'} {text}" for text, count in others]
    return ", ".join([start, *more])


def group_spellings(counts: Sequence[tuple[str, int]]) -> list[list[tuple[str, int]]]:
    """Return texts with their counts, those together that differ in case only; the most frequent first."""
    folded = fold(pa.array([text for text, _ in counts], pa.large_string())).to_pylist()
    alike: dict[str, list[tuple[str, int]]] = {}
    for key, entry in zip(folded, counts, strict=True):
        alike.setdefault(key, []).append(entry)
    groups = [sorted(group, key=lambda entry: -entry[1]) for group in alike.values()]
    return sorted(groups, key=lambda group: -sum(count for _, count in group))


def say_spellings(counts: Sequence[tuple[str, int]]) -> str:
    """Return how many cells hold each text, in words; texts that differ in case only are counted together.

    Examples
    --------
    >>> say_spellings([("k.A.", 78), ("none", 1), ("k.a.", 2)])
    "80 cells contain 'k.A.' (78) or 'k.a.' (2), 1 contains 'none'"
    """
    said = []
    for group in group_spellings(counts):
        shown = [f"{text!r} ({count:,})" for text, count in group]
        one = f"{', '.join(shown[:-1])} or {shown[-1]}" if len(group) > 1 else repr(group[0][0])
        said.append((one, sum(count for _, count in group)))
    return say_counts(said)


def null_options(name: str, texts: Sequence[str]) -> str:
    """Return the options by which some texts of a column are read as missing."""
    return " ".join(f"--null {shlex.quote(f'{name}={text}')}" for text in texts)


def suspect_words(name: str, texts: pa.Array, removed: pa.Array) -> Note | None:
    """Return a sentence about words in a column of text that may mean missing.

    Parameters
    ----------
    name : str
        The name of the column.
    texts, removed : pyarrow.Array
        The cells that are levels, and those that are read as missing.
    """
    trimmed = pc.utf8_trim_whitespace(texts)
    held = trimmed.filter(is_missing_word(trimmed))
    if len(held) == 0:
        return None
    counts = [(entry["values"], entry["counts"]) for entry in pc.value_counts(held).to_pylist()]
    words = [group[0][0] for group in group_spellings(counts)]
    removed = pc.utf8_trim_whitespace(removed)
    alike = pc.value_counts(removed.filter(is_any_of(removed, words))).to_pylist()
    already = ""
    if alike:
        spelt = say_spellings([(entry["values"], entry["counts"]) for entry in alike])
        already = f" ({spelt}, which means missing in every column)"
    options = null_options(name, words)
    return Note(f"column {name!r}: {say_spellings(counts)}; if this means missing, use {options}{already}")


def suspect_spellings(name: str, texts: pa.Array) -> Note | None:
    """Return a sentence about levels that differ only in case or blanks, or are spellings of yes and no."""
    distinct = pc.value_counts(texts)
    if len(distinct) > min(_MANY_LEVELS, max(2, len(texts) // 2)):
        return None
    counts = {entry["values"]: entry["counts"] for entry in distinct.to_pylist()}
    words = {word.casefold() for word in MISSING_WORDS}  # which have a note of their own
    alike: dict[str, list[str]] = {}
    for text in counts:
        alike.setdefault(" ".join(text.casefold().split()), []).append(text)
    groups = [
        sorted(group, key=lambda text: -counts[text])
        for folded, group in alike.items()
        if len(group) > 1 and folded not in words
    ]
    if len(alike) > 2 and set(alike) <= _YES_AND_NO:
        shown = ", ".join(map(repr, sorted(counts, key=lambda text: -counts[text])[:8]))
        return Note(
            f"column {name!r}: {shown} are different levels; write yes and no in one way if they mean that"
        )
    if groups:
        shown = " and ".join(map(repr, groups[0][:3]))
        more = f" (and {len(groups) - 1} more such groups)" if len(groups) > 1 else ""
        return Note(f"column {name!r}: {shown} differ in case or blanks only and are different levels{more}")
    return None


@dataclass(frozen=True)
class NumberCodes:
    """Repeated numbers such as 99 or 88 far from the other values of a column, or a single one such as -999.

    Parameters
    ----------
    counts : dict of float to int
        How many cells hold each of them.
    low, high : float
        The least and the largest of the other values.
    certain : bool
        Whether they can hardly be values: farther away than the others spread, or negative where no other
        value is; and fewer than the others, unless they are unmistakable, such as -999 among positive values.
    """

    counts: dict[float, int]
    low: float
    high: float
    certain: bool

    def describe(self, name: str) -> str:
        """Return how many cells hold them, and where the others are."""
        counts = say_counts([(show_number(value), count) for value, count in self.counts.items()])
        return f"column {name!r}: {counts}, far from the other values ({self.low:g} to {self.high:g})"


def show_number(value: float) -> str:
    """Return a number as a user would write it, with as many digits as it has."""
    short = f"{value:g}"
    return short if float(short) == value else f"{value:.15g}"


def find_number_codes(values: pa.Array | pa.ChunkedArray) -> NumberCodes | None:
    """Return the numbers of a column that may mean missing."""
    if pa.types.is_float16(values.type):  # which has no functions
        values = values.cast(pa.float32())
    ends = pc.min_max(values).as_py()
    low, high = ends["min"], ends["max"]
    if low is None or not (_is_code(np.asarray([high, -low], _float_of(values.type))).any() or low == -1):
        return None
    distinct, counts = np.unique(np.asarray(values.drop_null()), return_counts=True)
    distinct = distinct.astype(_float_of(values.type))  # the least integer of a type has no negative in it
    suspects = _beyond(distinct, counts) | _beyond(-distinct[::-1], counts[::-1])[::-1]
    suspects |= _is_minus_one(distinct, counts)
    if not suspects.any():
        return None
    others = distinct[~suspects]
    rare = counts[suspects].sum() < counts[~suspects].sum()
    certain = _is_remote(distinct[suspects], others) and (
        rare or _is_unmistakable(distinct[suspects], counts[suspects], others)
    )
    held = zip(distinct[suspects].tolist(), counts[suspects].tolist(), strict=True)
    return NumberCodes(dict(held), float(others[0]), float(others[-1]), bool(certain))


def _float_of(dtype: pa.DataType) -> Any:
    return np.float32 if pa.types.is_float32(dtype) else np.float64


def is_common_code(sizes: Any) -> Any:
    """Return which numbers, without their signs, are usual as codes for missing values, such as 999."""
    return _is_code(np.asarray(sizes, np.float64))


def _is_code(values: Any, codes: Sequence[float] = _CODES) -> Any:
    """Return which numbers are codes; numbers of 32 bits are compared with codes that are rounded alike."""
    dtype = np.float32 if values.dtype == np.float32 else np.float64
    if values.size <= FEW and values.ndim == 1:  # faster than sorting
        known = _known_codes(tuple(codes), dtype)
        return np.fromiter((value in known for value in values.tolist()), bool, values.size)
    return np.isin(values, np.asarray(codes, dtype))


@cache
def _known_codes(codes: tuple[float, ...], dtype: Any) -> frozenset[float]:
    return frozenset(np.asarray(codes, dtype).tolist())


@np.errstate(over="ignore")
def _is_remote(codes: Any, others: Any) -> bool:
    """Return whether codes are negative as no other value is, or farther away than the others spread."""
    low, high = float(others[0]), float(others[-1])
    above, below = codes[codes > high], codes[codes < low]
    far = not len(above) or above[0] - high >= high - low
    return far and (not len(below) or low >= 0 or low - below[-1] >= high - low)


@np.errstate(over="ignore")
def _is_unmistakable(codes: Any, counts: Any, others: Any) -> bool:
    """Return whether codes mean missing however frequent they are.

    The most frequent of them must have three or more nines, or be the largest integer of a type. Negative
    codes must be below 0 as no other value is. Positive ones may also be a frequent value, such as a price of
    999, so they must be five times as far from at least ten distinct others as these spread.
    """
    if np.abs(codes).min() < _LEAST_LONG or not _is_code(np.abs(codes[[counts.argmax()]]), _LONG).all():
        return False
    low, high = float(others[0]), float(others[-1])
    if codes[-1] < 0 <= low:
        return True
    gap = float(np.where(codes > high, codes - high, low - codes).min())
    return len(others) >= _MANY_OTHERS and gap >= _FAR * (high - low)


def _is_minus_one(distinct: Any, counts: Any) -> Any:
    """Return which value is -1, repeated, among many whole numbers that are not negative and reach far."""
    others = distinct[1:]
    held = distinct == -1
    if not held[0] or counts[0] < 2 or len(others) <= 10 or others[-1] <= 20:
        return held & False
    return held & bool((others == np.round(others)).all())


@np.errstate(over="ignore")  # a range beyond that of floats is infinite, and nothing is far from it
def _beyond(distinct: Any, counts: Any) -> Any:
    """Return which of the distinct values, in order, are codes at the upper end."""
    suspects = np.zeros(len(distinct), dtype=bool)
    is_code = _is_code(distinct)
    ordinary = distinct[~is_code]
    if len(ordinary) < 2:
        return suspects
    edge, start = ordinary[-1], ordinary[0]
    for place in np.flatnonzero(is_code & (distinct > edge)):
        value = distinct[place]
        apart = value - edge > (edge - start) / 4 and value - edge > 1
        apart |= edge <= 0 < value  # a negative code among numbers that are not, seen from below
        if apart:
            suspects[place:] = True
            break
        edge = value
    nines = suspects & _is_code(distinct, (*_NINES, *_DECIMAL)) & (counts > 1)
    # other codes are suspected only if they are very far away: 88 or 98 on a scale from 1 to 5
    remote = is_code & (distinct > 10) & (distinct - ordinary[-1] > 3 * (ordinary[-1] - ordinary[0]))
    remote &= suspects & (counts > 1)
    # a single -999 is enough where no other value is negative
    alone = suspects & _is_code(distinct, _LONG) & (ordinary[-1] <= 0)
    return suspects if (nines | remote | alone).any() else np.zeros_like(suspects)


def find_date_codes(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return which dates stand for something else: 0001-01-01, or those beyond 2500 such as 9999-12-31.

    None is one if the others are not all between the years 1000 and 2300.
    """
    years = pc.year(values)
    late = pc.and_(pc.greater(years, 2500), pc.less(years, 10_000))
    held = pc.fill_null(pc.or_(pc.equal(years, 1), late), False)
    ends = pc.min_max(years.filter(pc.invert(held))).as_py()
    if ends["min"] is None or ends["min"] < 1000 or ends["max"] > 2300:
        return pc.and_(held, False)
    return held


def suspect_dates(name: str, values: pa.Array | pa.ChunkedArray) -> Note | None:
    """Return a sentence about dates that may mean missing, such as 1900-01-01 far from the others."""
    if len(values) == values.null_count:
        return None
    days = values.cast(pa.date32(), safe=False)
    held = _is_first_day(days)
    if not pc.any(held).as_py():
        return None
    counts = pc.value_counts(days.filter(held)).to_pylist()
    text = say_counts([(str(entry["values"]), entry["counts"]) for entry in counts])
    options = null_options(name, [str(entry["values"]) for entry in counts])
    said = f"column {name!r}: {text}, far from the other dates; if this means missing, use {options}"
    return Note(said, "harmful")


def _is_first_day(days: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return which dates are a usual first day, repeated, and farther from the others than these spread."""
    held = pc.fill_null(pc.is_in(days, value_set=pa.array(_FIRST_DAYS, pa.date32())), False)
    others = pc.min_max(days.filter(pc.invert(held)).cast(pa.int32())).as_py()
    last = pc.max(days.filter(held).cast(pa.int32())).as_py()
    if last is None or others["min"] is None or (pc.sum(held).as_py() or 0) < 2:
        return pc.and_(held, False)
    apart = others["min"] - last > max(others["max"] - others["min"], 365)
    return held if apart else pc.and_(held, False)


# ------------------------------------------------------------------------------------------ placeholders

_SHOWN_ALIKE = 3


def shorten_notes(notes: Iterable[tuple[str, Note]]) -> list[Note]:
    """Return notes, given with the names of their columns; of similar notes only three are shown.

    Notes are similar if they have the same severity and differ only in names, numbers and quoted texts.

    Examples
    --------
    >>> shorten_notes([(name, Note(f"column {name!r} is empty")) for name in "abcde"])[2:]
    ["column 'c' is empty", "the same applies to 2 columns: 'd' and 'e'"]
    """
    alike: dict[tuple[str, str], list[tuple[str, Note]]] = {}
    for name, note in notes:
        text = note.replace(repr(name), "").replace(f"{name}=", "=")
        pattern = re.sub(r"'[^']*'|[-\d.,]+", "", text)
        alike.setdefault((note.severity, pattern), []).append((name, note))
    shown: list[Note] = []
    for group in alike.values():
        shown.extend(note for _, note in group[:_SHOWN_ALIKE])
        if others := [repr(name) for name, _ in group[_SHOWN_ALIKE:]]:
            text = f"the same applies to {plural(len(others), 'column')}: {names_words(others, 12)}"
            shown.append(Note(text, group[0][1].severity))
    return shown


_SHOWN = 5


def find_placeholders(
    name: str,
    values: pa.Array | pa.ChunkedArray,
    rules: "ColumnRules",
    texts: pa.Array | None = None,
) -> tuple[pa.Array | pa.ChunkedArray | None, list[Note]]:
    """Return which cells of a column hold placeholders, if any, and sentences for the user.

    A sentence may also be about values that are not certain to be placeholders, which remain values.

    Parameters
    ----------
    name : str
        The name of the column.
    values : pyarrow.Array or pyarrow.ChunkedArray
        Its values.
    rules : ColumnRules
        May declare its placeholders.
    texts : pyarrow.Array or None
        How its cells are written, if not like the values.
    """
    kind = kind_of(values.type)
    if kind in ("integer", "float"):
        return _find_numbers(name, values, rules)
    if kind in ("date", "timestamp"):
        return _find_dates(name, values, texts)
    return None, []


def hide_placeholders(table: pa.Table, rules: "Rules") -> tuple[pa.Table, dict[str, pa.Array], list[Note]]:
    """Return a table without placeholders, these by column (null elsewhere), and sentences for the user."""
    found: dict[str, pa.Array] = {}
    notes: list[tuple[str, Note]] = []
    for place, field in enumerate(table.schema):
        column = table.column(place)
        held, found_notes = find_placeholders(field.name, column, rules.of(field.name))
        notes.extend((field.name, note) for note in found_notes)
        if held is not None:
            shown, found[field.name] = split_placeholders(column, held)
            table = table.set_column(place, field.with_nullable(True), shown)
    return table, found, shorten_notes(notes)


def split_placeholders(values: Any, held: Any) -> tuple[Any, pa.Array]:
    """Return the values without placeholders, and the placeholders alone."""
    nothing = pa.scalar(None, values.type)
    alone = pc.if_else(held, values, nothing)
    return pc.if_else(held, nothing, values), (
        alone.combine_chunks() if isinstance(alone, pa.ChunkedArray) else alone
    )


def _find_numbers(name: str, values: Any, rules: "ColumnRules") -> tuple[Any, list[Note]]:
    if rules.placeholders is not None:
        held = _is_one_of(values, rules.placeholders)
        count = pc.sum(held).as_py() or 0
        if not count:
            return None, []
        shown = ", ".join(show_number(value) for value in rules.placeholders)
        cells = "cell contains" if count == 1 else "cells contain"
        text = f"column {name!r}: {count:,} {cells} a placeholder ({shown}): kept and not used by the model"
        return held, [Note(text, "detail")]
    codes = find_number_codes(values)
    if codes is None:
        return None, []
    options = null_options(name, [show_number(value) for value in codes.counts])
    if not codes.certain:
        return None, [Note(f"{codes.describe(name)}; if this means missing, use {options}", "harmful")]
    text = (
        f"{codes.describe(name)}: kept and not used by the model; {options} makes them missing, and "
        '"placeholder": [] in the schema makes them ordinary values'
    )
    return _is_one_of(values, codes.counts), [Note(text)]


def _is_one_of(values: Any, numbers: Any) -> Any:
    numbers = pa.array(list(numbers), pa.float64())
    return pc.is_in(values.cast(pa.float64(), safe=False), value_set=numbers)


def _find_dates(name: str, values: Any, texts: pa.Array | None) -> tuple[Any, list[Note]]:
    held = find_date_codes(values)
    suspected = suspect_dates(name, values.filter(pc.invert(held)))
    others = [] if suspected is None else [suspected]
    if not pc.any(held).as_py():
        return None, others
    written = values.cast(pa.date32(), safe=False) if texts is None else texts
    counts = Counter(str(text).strip() for text in written.filter(held).to_pylist()).most_common(_SHOWN)
    note = Note(
        f"column {name!r}: {say_spellings(counts)}, far from the other dates: kept and not used by the "
        f"model; {null_options(name, [text for text, _ in counts])} makes them missing"
    )
    return held, [note, *others]


# --------------------------------------------------------------------------------------- one kind of missing


def spell_nulls(table: pa.Table) -> pa.Table:
    """Return the table with null, and nothing else, where a cell is missing."""
    for position, column in enumerate(table.columns):
        if pa.types.is_floating(column.type):
            new = _without_nan(column)
        elif pa.types.is_dictionary(column.type):
            new = pa.chunked_array([_without_null_value(chunk) for chunk in column.chunks], column.type)
        else:
            continue
        table = table.set_column(position, table.schema.field(position).with_nullable(True), new)
    return table


def _without_nan(column: pa.ChunkedArray) -> pa.ChunkedArray:
    missing = pc.is_null(column, nan_is_null=True)
    if pc.sum(missing).as_py() in (None, column.null_count):
        return column
    return pc.if_else(missing, pa.scalar(None, column.type), column)


def _without_null_value(array: pa.DictionaryArray) -> pa.DictionaryArray:
    missing = pc.is_null(array.dictionary, nan_is_null=True).to_numpy(zero_copy_only=False)
    if not missing.any():
        return array
    position = pa.array(np.cumsum(~missing) - 1, mask=missing)
    indices = position.take(array.indices).cast(array.indices.type)
    values = array.dictionary.filter(pa.array(~missing))
    return pa.DictionaryArray.from_arrays(indices, values, ordered=array.type.ordered)


def blank_codes(table: pa.Table, rules: "Rules") -> pa.Table:
    """Return typed columns without the values that mean missing by the options of the user."""
    for place, field in enumerate(table.schema):
        texts = [text for text in (*rules.nulls, *rules.of(field.name).nulls) if text]
        if not texts or pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
            continue
        coded = _is_coded(table.column(place), texts)
        if pc.any(coded).as_py():
            column = pc.if_else(coded, pa.scalar(None, field.type), table.column(place))
            table = table.set_column(place, field.with_nullable(True), column)
    return table


def _is_coded(column: pa.ChunkedArray, texts: list[str]) -> pa.ChunkedArray:
    """Return which cells hold one of the values: numbers and dates by value, others by their text."""
    by_value = equals_codes(column, texts)
    if by_value is not None and kind_of(column.type) in ("integer", "float"):
        return by_value
    by_text = is_any_of(column.cast(pa.large_string()), texts)
    return by_text if by_value is None else pc.or_(by_text, by_value)


def equals_codes(values: Any, texts: Sequence[str]) -> Any:
    """Return which numbers or dates equal one that a user gave as text; None if they are neither.

    A date such as 1900-01-01 stands for all times of the day.
    """
    kind = kind_of(values.type)
    if kind in ("integer", "float"):
        codes = pa.array([float(text) for text in texts if is_number(text)], pa.float64())
        return pc.is_in(values.cast(pa.float64(), safe=False), value_set=codes)
    if kind in ("date", "timestamp"):
        days = pa.array([day for text in texts if (day := _parse_day(text)) is not None], pa.date32())
        return pc.is_in(values.cast(pa.date32(), safe=False), value_set=days)
    return None


def _parse_day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None
