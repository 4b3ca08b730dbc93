"""Matching the columns of a new file with those of a model, by names that may differ in blanks and case."""

import unicodedata
from collections.abc import Iterable, Sequence

from halfseen.errors import TableError


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
