"""Order constraints between columns, such as ``admission <= discharge``, that draws of missing cells obey."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from halfseen.chained.inputs import InputColumn, Prediction, Role, decode_scores
from halfseen.chained.regressions import Noise, draw_between
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.schema import Column
from halfseen.errors import warn_user

_FORM = re.compile(r"^\s*(.+?)\s*(<=|>=|<|>)\s*(.+?)\s*$")
_GRAMMAR = (
    "A constraint compares two columns, or a column and a number: 'admission <= discharge', 'age >= 18'."
)


@dataclass(frozen=True)
class Constraint:
    """One side must not be greater than another; a side is a column or a number."""

    text: str  # as the user wrote it
    # The position of a column, or a number.
    low: int | float
    high: int | float
    # What the lower side must be less by: the distance of neighbouring codes, if the sides must differ.
    gap: float

    @classmethod
    def parse(cls, text: str, columns: Sequence[Column]) -> "Constraint":
        """Parses a constraint of the modelled columns; raises a ValueError that says what cannot be read."""
        found = _FORM.match(text) if isinstance(text, str) else None
        if found is None or re.search(r"[<>]", found[3]):
            raise ValueError(f"The constraint {text!r} cannot be read. {_GRAMMAR}")
        sides = [_side(found[1], columns, text), _side(found[3], columns, text)]
        places = [side for side in sides if isinstance(side, int)]
        if not places:
            raise ValueError(f"The constraint {text!r} names no column. {_GRAMMAR}")
        if len(set(places)) < len(places):
            raise ValueError(
                f"The constraint {text!r} compares column {columns[places[0]].name!r} with itself."
            )
        for place in places:
            if columns[place].levels is not None:
                raise ValueError(f"The constraint {text!r} names {columns[place].name!r}, which has levels.")
        storages = {columns[place].storage for place in places}
        dated = storages & {"time", "duration"}
        if dated and (len(storages) > 1 or len(places) < 2):
            raise ValueError(f"The constraint {text!r} compares a date or a duration with something else.")
        low, high = sides if found[2] in ("<=", "<") else sides[::-1]
        steps = [columns[place].code_step or 0.0 for place in places]
        return cls(text, low, high, min(steps) if found[2] in ("<", ">") else 0.0)

    def holds(self, codes: Incomplete) -> Tensor:
        """Returns in which rows (N) of a table the constraint holds or is not known."""
        low, high = (self._of(side, codes.filled()) for side in (self.low, self.high))
        known = torch.ones(len(codes), dtype=torch.bool)
        for side in (self.low, self.high):
            if isinstance(side, int):
                known &= codes.observed[:, side]
        return ~known | (low + self.gap <= high)

    @staticmethod
    def _of(side: int | float, cells: Tensor) -> Tensor:
        return cells[..., side] if isinstance(side, int) else cells.new_full(cells.shape[:-1], side)


@dataclass(frozen=True)
class Constraints:
    """All order constraints of a table."""

    every: tuple[Constraint, ...]

    @classmethod
    def parse(cls, texts: Sequence[str] | None, columns: Sequence[Column]) -> "Constraints":
        """Parses constraints of the modelled columns."""
        if texts is None:
            return cls(())
        if isinstance(texts, str) or not isinstance(texts, Sequence):
            raise ValueError(f"constraints must be a list of texts, got {texts!r}. {_GRAMMAR}")
        every = tuple(Constraint.parse(text, columns) for text in texts)
        _check_numbers(every)
        return cls(every)

    @property
    def columns(self) -> set[int]:
        """The positions of all columns that are named."""
        return {side for one in self.every for side in (one.low, one.high) if isinstance(side, int)}

    def warn_of_broken(self, codes: Incomplete) -> None:
        """Warns of observed rows of a table that do not obey."""
        for one in self.every:
            broken = ~one.holds(codes)
            if bool(broken.any()):
                row = int(broken.to(torch.int8).argmax())
                warn_user(
                    f"The constraint {one.text!r} does not hold in {int(broken.sum()):,} rows in which its "
                    f"columns are observed, the first of which is row {row}. Observed values are not changed."
                )

    def bounds(self, c: int, cells: Tensor) -> tuple[Tensor, Tensor] | None:
        """Returns the limits (*, R) of column c, given completed codes (*, R, C); None if there are none."""
        if c not in self.columns:
            return None
        low = torch.full(cells.shape[:-1], -math.inf, dtype=torch.float64)
        high = -low
        for one in self.every:
            if one.low == c and isinstance(one.low, int):
                high = torch.minimum(high, one._of(one.high, cells) - one.gap)
            elif one.high == c and isinstance(one.high, int):
                low = torch.maximum(low, one._of(one.low, cells) + one.gap)
        return low, torch.maximum(low, high)

    def enforce(self, codes: Incomplete, found: Tensor) -> Tensor:
        """Returns completed codes (N, C) whose missing cells are moved to the nearest ones that obey."""
        found = found.clone()
        for c in sorted(self.columns):
            limits = self.bounds(c, found)
            assert limits is not None
            moved = torch.maximum(torch.minimum(found[:, c], limits[1]), limits[0])
            found[:, c] = torch.where(codes.observed[:, c], found[:, c], moved)
        return found


def _check_numbers(every: Sequence[Constraint]) -> None:
    """Raises a ValueError if no number is within the limits that two constraints set for a column."""
    at_least = [one for one in every if isinstance(one.high, int) and not isinstance(one.low, int)]
    at_most = [one for one in every if isinstance(one.low, int) and not isinstance(one.high, int)]
    for low, high in product(at_least, at_most):
        if low.high == high.low and low.low + low.gap > high.high - high.gap:
            raise ValueError(
                f"The constraints {low.text!r} and {high.text!r} contradict each other: no value obeys both."
            )


def _side(text: str, columns: Sequence[Column], whole: str) -> int | float:
    names = [column.name for column in columns]
    name = text.strip("`")
    if name in names:
        return names.index(name)
    try:
        number = float(text)
    except ValueError:
        raise ValueError(
            f"The constraint {whole!r} refers to {text!r}, which is not a modelled column. {_GRAMMAR}"
        ) from None
    if not math.isfinite(number):
        raise ValueError(f"The constraint {whole!r} has the number {text}, which is not finite.")
    return number


def draw_codes(
    column: Column,
    place: InputColumn,
    predicted: Prediction,
    margins: Sequence[FeatureMap],
    noise: Noise,
) -> Tensor:
    """Returns codes (S, R) of a column, drawn from what `Parameters.predict` returns."""
    first, spread, spike = predicted
    if place.role != Role.NUMBER:
        return place.draw_level(first, noise.uniforms(first.shape[1]))
    codes = decode_scores(column, place, first + spread * noise.normals(first.shape[1]), margins)
    return codes if spike is None else place.with_spike(codes, noise.uniforms(first.shape[1]) < spike)


def draw_within(
    column: Column,
    place: InputColumn,
    predicted: Prediction,
    limits: tuple[Tensor, Tensor],
    margins: Sequence[FeatureMap],
    uniforms: Tensor,
) -> Tensor:
    """Returns codes (S, R) of a column between limits (S, R), drawn by uniforms (S, R).

    Numbers have normal scores that are truncated to the scores of the limits, and levels outside of the
    limits have no probability. If no value is possible, the nearest one is taken.
    """
    first, spread, _ = predicted
    low, high = limits
    if place.role == Role.ORDERED:
        allowed = (place.values >= low.unsqueeze(-1)) & (place.values <= high.unsqueeze(-1))
        shares = torch.where(allowed, first, 0.0)
        shares = torch.where(allowed.any(dim=-1, keepdim=True), shares, first)
        return place.draw_level(shares / shares.sum(dim=-1, keepdim=True), uniforms)
    ends = []
    for end in (low, high):
        scored = [one.encode_number(place.feature, x) for one, x in zip(margins, end, strict=True)]
        ends.append(torch.where(end.isinf(), end, torch.stack(scored).nan_to_num(0.0, 1e9, -1e9)))
    scores = draw_between(first, spread, ends[0], torch.maximum(*ends), uniforms)
    codes = decode_scores(column, place, scores, margins)
    step = column.code_step
    if step is not None:  # after rounding, a code may be just beyond a limit
        low, high = (low / step).ceil() * step, (high / step).floor() * step
    return torch.maximum(torch.minimum(codes, high), low)
