"""Detection limits such as ``<0.05``: cells for which only a bound is known."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from halfseen.cli.cells import Limit
from halfseen.cli.distinct import Mask, as_mask, usual
from halfseen.cli.numbers import Marks, Numbers

MIN_EXACT = 3
"""Fewer distinct exact numbers than this, and ``<30`` and ``>30`` are levels."""

_LARGEST = 9.2e18  # of whole numbers
_SIGNS: dict[Literal["below", "above"], str] = {"below": "^[<≤]", "above": "^[>≥]"}


@dataclass(frozen=True)
class Limited:
    """The distinct numbers of a column, with a number beyond the limit in the place of a limit.

    Parameters
    ----------
    values : pyarrow.Array
        The numbers; null where models must not see one.
    hidden : numpy.ndarray
        Limits other than the most frequent one on their side.
    limits : tuple of Limit
        How numbers beyond a limit are written.
    settings : dict
        The settings of the schema: ``censored_below`` and ``censored_above``.
    notes : tuple of str
        Sentences about it.
    """

    values: pa.Array
    hidden: Mask
    limits: tuple[Limit, ...] = ()
    settings: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()


def replace_limits(
    name: str, numbers: Numbers, marks: Marks, values: pa.Array, texts: pa.Array, *, forced: bool = False
) -> Limited | None:
    """Replace detection limits by numbers beyond them.

    None if the column holds hardly any exact number, unless it is known (`forced`) that it holds numbers.
    """
    fits = numbers.fits[marks]
    sides = {
        side: as_mask(pc.match_substring_regex(numbers.parts["limit"], sign)) & fits
        for side, sign in _SIGNS.items()
    }
    hidden = np.zeros(len(fits), dtype=bool)
    limited = sides["below"] | sides["above"]
    if not limited.any():
        return Limited(values, hidden, settings={})
    whole = pa.types.is_integer(values.type)
    found = pc.fill_null(values.cast(pa.float64(), safe=False), np.nan).to_numpy(zero_copy_only=False).copy()
    exact = fits & ~limited
    if not forced and len(np.unique(found[exact])) < MIN_EXACT:
        return None
    limits, settings, notes = [], {}, []
    for side, held in sides.items():
        if not held.any():
            continue
        bounds, place = np.unique(found[held], return_inverse=True)
        weights = np.bincount(place, weights=numbers.counts[held])
        main = held & (found == bounds[weights.argmax()])
        text = usual(texts, numbers.counts, main)
        bound = _strict_bound(float(bounds[weights.argmax()]), text, side, whole)
        hidden |= held & ~main
        notes.append(_describe(name, side, text, bound, numbers, main, held & ~main, exact, found))
        limits.append(Limit(side, bound, text))
        settings[f"censored_{side}"] = bound
        found[main] = _beyond(bound, side, whole)
    typed = np.where(fits, found, 0).astype(np.int64) if whole else found
    return Limited(pa.array(typed, mask=hidden | ~fits), hidden, tuple(limits), settings, tuple(notes))


def _strict_bound(bound: float, text: str, side: str, whole: bool) -> float:
    """Return a bound that numbers are strictly beyond: of whole numbers, at least 3 means more than 2."""
    if (whole and text[0] in "≤≥") or (whole and text[1:2] == "="):
        return bound + 1 if side == "below" else bound - 1
    return bound


def _beyond(bound: float, side: str, whole: bool) -> float:
    """Return a number that stands for those beyond a bound: half of it, or twice."""
    if bound <= 0:
        return bound - 1 if side == "below" else bound + 1
    number = bound / 2 if side == "below" else bound * 2
    return min(float(np.floor(number)), _LARGEST) if whole else number


def _describe(
    name: str, side: str, text: str, bound: float, numbers: Numbers, main: Mask, others: Mask, exact: Mask,
    values: npt.NDArray[np.float64],
) -> str:  # fmt: skip
    n_main, n_others = int(numbers.counts[main].sum()), int(numbers.counts[others].sum())
    text = (
        f"column {name!r}: {n_main:,} {'cell contains' if n_main == 1 else 'cells contain'} {text!r}, read "
        "as "
    )
    text += f"a value {side} {bound:g}"
    past = exact & (values < bound if side == "below" else values > bound)
    if past.any():
        text += f", like the {int(numbers.counts[past].sum()):,} exact values {side} it"
    if n_others:
        text += f"; {n_others:,} {'cell' if n_others == 1 else 'cells'} with other limits keep their text "
        text += "and are not used by the model"
    return text
