"""Codes for missing values: texts that cannot be numbers, and numbers that stand apart from the others."""

import shlex
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

MISSING_WORDS = (
    "-", "--", "---", "\u2013", "\u2014", ".", "..", "...", "*", "n.a.", "n.a", "n/a", "n. a.", "na", "nan",
    "null", "none", "unknown", "missing", "not available", "not known", "no data", "no answer", "k.a.",
    "k. a.", "k.a", "keine angabe", "unbekannt", "inconnu", "desconocido",
    "#div/0!", "#value!", "#ref!", "#name?", "#num!", "#null!", "#n/a",
)  # fmt: skip
"""Texts, in lower case, that mean missing in a column of numbers or dates, and may mean it in one of text."""

_NINES = (9, 99, 999, 9999, 99999)
_CODES = sorted(nines - less for nines in _NINES for less in (0, 1, 2))
_SPELLINGS = sorted(
    {spelt for word in MISSING_WORDS for spelt in (word, word.upper(), word.capitalize(), word.title())}
)


def is_missing_word(texts: pa.Array) -> pa.Array:
    """Tell which texts mean missing in a column of numbers."""
    return pc.is_in(pc.utf8_lower(texts), value_set=pa.array(MISSING_WORDS, texts.type))


def is_number(text: str) -> bool:
    """Tell whether a text that a user gave is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def say_counts(counts: list[tuple[str, int]]) -> str:
    """Return how many cells hold each text, in words, the most frequent first."""
    (first, count), *others = sorted(counts, key=lambda entry: -entry[1])
    start = f"{count:,} {'cell contains' if count == 1 else 'cells contain'} {first}"
    return ", ".join([start, *(f"{count:,} {text}" for text, count in others)])


def suspect_words(name: str, texts: pa.Array) -> str | None:
    """Return a sentence about words in a column of text that may mean missing."""
    held = texts.filter(pc.is_in(texts, value_set=pa.array(_SPELLINGS, texts.type)))
    if len(held) == 0:
        return None
    counts = [(entry["values"], entry["counts"]) for entry in pc.value_counts(held).to_pylist()]
    text = say_counts([(repr(word), count) for word, count in counts])
    return (
        f"column {name!r}: {text}; if this means missing, use --null {shlex.quote(f'{name}={counts[0][0]}')}"
    )


def suspect_numbers(name: str, values: pa.Array | pa.ChunkedArray) -> str | None:
    """Return a sentence about numbers of nines that are repeated far from the other values of a column."""
    if pa.types.is_float16(values.type):  # which has no functions
        values = values.cast(pa.float32())
    ends = pc.min_max(values).as_py()
    low, high = ends["min"], ends["max"]
    if low is None or (high not in _CODES and -low not in _CODES):
        return None
    distinct, counts = np.unique(np.asarray(values.drop_null()), return_counts=True)
    suspects = _beyond(distinct, counts) | _beyond(-distinct[::-1], counts[::-1])[::-1]
    if not suspects.any():
        return None
    others = distinct[~suspects]
    held = [
        (f"{value:g}", int(count)) for value, count in zip(distinct[suspects], counts[suspects], strict=True)
    ]
    options = " ".join(f"--null {shlex.quote(f'{name}={value}')}" for value, _ in held)
    return (
        f"column {name!r}: {say_counts(held)}, far from the other values ({others[0]:g} to {others[-1]:g}); "
        f"if this means missing, use {options}"
    )


def _beyond(distinct: Any, counts: Any) -> Any:
    """Tell which of the distinct values, in order, are codes at the upper end."""
    suspects = np.zeros(len(distinct), dtype=bool)
    is_code = np.isin(distinct, _CODES)
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
    nines = suspects & np.isin(distinct, _NINES) & (counts > 1)
    return suspects if nines.any() else np.zeros_like(suspects)
