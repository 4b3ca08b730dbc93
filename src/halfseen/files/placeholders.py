"""Values that stand for something else, such as 999 or 9999-12-31: written again, and seen by no model."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from halfseen.files.cells import kind_of
from halfseen.files.rules import ColumnRules, Rules
from halfseen.files.sentinels import (
    find_date_codes,
    find_number_codes,
    null_options,
    say_spellings,
    show_number,
    suspect_dates,
)
from halfseen.words import names_words, plural

_SHOWN_ALIKE = 3


def shorten_notes(notes: Iterable[tuple[str, str]]) -> list[str]:
    """Return notes, given with the names of their columns; of similar notes only three are shown.

    Notes are similar if they differ only in names, numbers and quoted texts.

    Examples
    --------
    >>> shorten_notes([(name, f"column {name!r} is empty") for name in "abcde"])[2:]
    ["column 'c' is empty", "the same applies to 2 columns: 'd' and 'e'"]
    """
    alike: dict[str, list[tuple[str, str]]] = {}
    for name, note in notes:
        text = note.replace(repr(name), "").replace(f"{name}=", "=")
        alike.setdefault(re.sub(r"'[^']*'|[-\d.,]+", "", text), []).append((name, note))
    shown: list[str] = []
    for group in alike.values():
        shown.extend(note for _, note in group[:_SHOWN_ALIKE])
        if others := [repr(name) for name, _ in group[_SHOWN_ALIKE:]]:
            shown.append(f"the same applies to {plural(len(others), 'column')}: {names_words(others, 12)}")
    return shown


_SHOWN = 5


def find_placeholders(
    name: str,
    values: pa.Array | pa.ChunkedArray,
    rules: ColumnRules,
    texts: pa.Array | None = None,
) -> tuple[pa.Array | pa.ChunkedArray | None, list[str]]:
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


def hide_placeholders(table: pa.Table, rules: Rules) -> tuple[pa.Table, dict[str, pa.Array], list[str]]:
    """Return a table without placeholders, these by column (null elsewhere), and sentences for the user."""
    found: dict[str, pa.Array] = {}
    notes: list[tuple[str, str]] = []
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


def _find_numbers(name: str, values: Any, rules: ColumnRules) -> tuple[Any, list[str]]:
    if rules.placeholders is not None:
        held = _is_one_of(values, rules.placeholders)
        count = pc.sum(held).as_py() or 0
        if not count:
            return None, []
        shown = ", ".join(show_number(value) for value in rules.placeholders)
        return held, [
            f"column {name!r}: {count:,} {'cell contains' if count == 1 else 'cells contain'} a placeholder "
            f"({shown}): kept and not used by the model"
        ]
    codes = find_number_codes(values)
    if codes is None:
        return None, []
    options = null_options(name, [show_number(value) for value in codes.counts])
    if not codes.certain:
        return None, [f"{codes.describe(name)}; if this means missing, use {options}"]
    return _is_one_of(values, codes.counts), [
        f"{codes.describe(name)}: kept and not used by the model; {options} makes them missing, and "
        '"placeholder": [] in the schema makes them ordinary values'
    ]


def _is_one_of(values: Any, numbers: Any) -> Any:
    numbers = pa.array(list(numbers), pa.float64())
    return pc.is_in(values.cast(pa.float64(), safe=False), value_set=numbers)


def _find_dates(name: str, values: Any, texts: pa.Array | None) -> tuple[Any, list[str]]:
    held = find_date_codes(values)
    suspected = suspect_dates(name, values.filter(pc.invert(held)))
    others = [] if suspected is None else [suspected]
    if not pc.any(held).as_py():
        return None, others
    written = values.cast(pa.date32(), safe=False) if texts is None else texts
    counts = Counter(str(text).strip() for text in written.filter(held).to_pylist()).most_common(_SHOWN)
    note = (
        f"column {name!r}: {say_spellings(counts)}, far from the other dates: kept and not used by the "
        f"model; {null_options(name, [text for text, _ in counts])} makes them missing"
    )
    return held, [note, *others]
