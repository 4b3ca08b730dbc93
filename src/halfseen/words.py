"""Words that messages, notes and reports share: missingness assumptions, notes, plurals, percentages."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from enum import StrEnum
from typing import Literal, get_args


class Missingness(StrEnum):
    r"""The assumed reason for missing values.

    A mechanism of `halfseen.missingness` and the ``missingness`` parameter of an estimator that have the same
    name are the same model: a table whose values were removed by ``halfseen ampute --mechanism W`` satisfies
    the assumption of ``missingness=W``. In the formulas :math:`x` is the value itself, and :math:`p` the
    probability that it is missing. The direction of a monotone mechanism is a separate parameter, ``signs``.
    """

    MAR = "mar"
    """Missing at random: the probability depends on observed values only, and need not be modelled."""

    LOGISTIC = "self-masking-logistic"
    r""":math:`p = \operatorname{sigmoid}(s x + b)`, rising or falling with the value itself."""

    PROBIT = "self-masking-probit"
    r""":math:`p = \Phi(\lambda x - c)`, rising or falling with the value itself."""

    GAUSSIAN = "self-masking-gaussian"
    r""":math:`p = K \exp(-q (x - c)^2 / 2)`, largest at some value :math:`c`."""

    MONOTONE = "self-masking-monotone"
    """Any function of the value itself that rises, or that falls."""

    SHARED_SLOPE = "self-masking-shared-slope"
    """As ``"self-masking-logistic"``, with one slope for all columns."""

    FLEXIBLE = "self-masking-flexible"
    """Any smooth function of the value itself."""

    LINEAR = "linear"
    """A logistic function of a linear combination of the whole row."""

    NONLINEAR = "nonlinear"
    """A logistic function of a small network on the whole row."""


def check_missingness(given: object, offered: Iterable[str], *, besides: str = "") -> None:
    """Raises a ValueError that lists what is offered, unless `given` is one of these words.

    Examples
    --------
    >>> check_missingness("mnar", (Missingness.MAR, Missingness.PROBIT))
    Traceback (most recent call last):
    ...
    ValueError: missingness must be one of 'mar', 'self-masking-probit', got 'mnar'.
    """
    words = [str(word) for word in offered]
    if not isinstance(given, str) or given not in words:
        listed = ", ".join(repr(word) for word in words)
        raise ValueError(f"missingness must be one of {listed}{besides}, got {given!r}.")


Severity = Literal["harmful", "check", "detail"]
"""How much a note matters, the most harmful first.

- ``harmful``: results may be wrong, or a column is not imputed, unless the user acts.
- ``check``: a decision was made that the user may want to change.
- ``detail``: what was recognised, and hardly ever has to be changed.
"""


class Note(str):
    """A sentence for the user that knows how much it matters.

    Parameters
    ----------
    text : str
        The sentence.
    severity : {"harmful", "check", "detail"}
        How much it matters; see `Severity`.

    Examples
    --------
    >>> note = Note("column 'a' is empty", "harmful")
    >>> note, note.severity
    ("column 'a' is empty", 'harmful')
    """

    severity: Severity

    def __new__(cls, text: str, severity: Severity = "check") -> "Note":
        """Makes a note."""
        if severity not in get_args(Severity):
            raise ValueError(f"severity must be one of {get_args(Severity)}, got {severity!r}")
        note = super().__new__(cls, text)
        note.severity = severity
        return note


def as_note(text: str, otherwise: Severity = "check") -> Note:
    """Returns a note as it is, and other text with the severity `otherwise`."""
    return text if isinstance(text, Note) else Note(text, otherwise)


def by_severity(notes: Iterable[str]) -> list[Note]:
    """Returns notes, the most harmful first and otherwise in their order.

    Examples
    --------
    >>> by_severity([Note("a", "detail"), "b", Note("c", "harmful")])
    ['c', 'b', 'a']
    """
    order = get_args(Severity)
    return sorted(map(as_note, notes), key=lambda note: order.index(note.severity))


def minus(text: str) -> str:
    r"""Returns a text in which the signs of negative numbers are minus signs and not hyphens.

    Examples
    --------
    >>> minus("rank-biserial -0.5").encode("unicode_escape")
    b'rank-biserial \\u22120.5'
    """
    return re.sub(r"(?<!\w)-(?=\d)", "\N{MINUS SIGN}", text)


def similar_words(names: Iterable[str], wanted: str) -> str:
    """Returns the end of a sentence that offers the names most similar to one that does not exist.

    Examples
    --------
    >>> similar_words(["auto", "gaussian"], "gauss")
    "; did you mean 'gaussian'?"
    >>> similar_words(["auto", "gaussian"], "forest")
    ''
    """
    plain = {name.casefold(): name for name in names}
    close = [plain[one] for one in get_close_matches(wanted.casefold(), plain, n=2, cutoff=0.6)]
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


def absent_words(names: Sequence[str], wanted: str) -> str:
    """Returns the columns of a table that lacks one, the most similar names first if there are any.

    Examples
    --------
    >>> absent_words(["body_mass_g", "sex"], "bodymass")
    "did you mean 'body_mass_g'?"
    >>> absent_words(["body_mass_g", "sex"], "outcome")
    'its columns are body_mass_g and sex.'
    """
    listed = f"its columns are {names_words(names, 8)}."
    return similar_words(names, wanted).removeprefix("; ") or listed


def names_words(names: Sequence[str], at_most: int = 4) -> str:
    """Returns names in a list that stays short.

    Examples
    --------
    >>> names_words(["a", "b", "c"]), names_words(list("abcdef"))
    ('a, b and c', 'a, b, c and 3 more')
    """
    if len(names) > at_most:
        return f"{', '.join(names[: at_most - 1])} and {len(names) - at_most + 1} more"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def plural(number: int, noun: str) -> str:
    """Returns a count with its noun."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def shape_words(n_rows: int, n_columns: int) -> str:
    """Returns the size of a table."""
    return f"{plural(n_rows, 'row')}, {plural(n_columns, 'column')}"


def share_words(share: float, *, rounded: bool = False) -> str:
    """Returns a share as a percentage that is 0% or 100% only if it is exactly that.

    Parameters
    ----------
    share : float
        From 0 to 1.
    rounded : bool
        Whether shares from 10% to 90% have no decimals.

    Examples
    --------
    >>> share_words(0.0004), share_words(0.254), share_words(0.254, rounded=True)
    ('<0.1%', '25.4%', '25%')
    """
    if share in (0, 1):
        return f"{share:.0%}"
    if share < 0.001 or share > 0.999:
        return "<0.1%" if share < 0.001 else ">99.9%"
    return f"{share:.0%}" if rounded and 0.1 <= share <= 0.9 else f"{share:.1%}"
