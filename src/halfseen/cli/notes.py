"""Summarising similar notes about columns."""

import re
from collections.abc import Iterable

from halfseen.diagnosis.wording import names_words, plural

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
