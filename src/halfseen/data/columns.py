"""A column of a table: its kind, its possible values, and the conversion between values and codes.

The values that may be imputed in a column of numbers are limited by its observed values.
A missing value of a column is either one of its observed values or a new one. The probability that it is a
new one is about the share of cells whose value occurs once (the Good-Turing estimate). If this share is
small, there is no reason to impute anything but observed codes (whole numbers with few distinct values), or
values outside the observed range (other numbers). If it is large, as in a column of measurements, the
observed extremes are no limits: a further value lies beyond them now and then, and models may extrapolate,
but not far.
"""

import datetime
from collections.abc import Container
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from halfseen._arrays import Booleans, Floats, Integers
from halfseen.data._cells import dtype_bounds, plain
from halfseen.data.frames import RawColumn, Storage
from halfseen.errors import SchemaError
from halfseen.files.text_formats import TextFormat

Kind = Literal[
    "continuous", "positive", "count", "binary", "categorical", "ordinal",
    "datetime", "duration", "constant", "all-missing", "identifier", "text", "unsupported",
]  # fmt: skip
KINDS: tuple[str, ...] = get_args(Kind)
NUMERIC = ("continuous", "positive", "count")
LEVELLED = ("binary", "categorical", "ordinal")
DAY = 86_400e6  # microseconds
MAX_SPAN = 999_999_999 * DAY  # the longest duration of Python
MAX_MOMENT = 2.0**63  # the largest number of microseconds since 1970 that numpy can represent
UNMODELLED = ("constant", "all-missing", "identifier", "text", "unsupported")

Cause = Literal["empty", "single", "identifier", "text", "unsupported", "dates", "asked", "unreliable"]
"""Why the missing cells of a column are left empty."""


@dataclass(frozen=True)
class SkipRule:
    """A rule by which a column does not apply to rows in which another column has given values."""

    column: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Column:
    """The description of a column: its kind, its possible values, and the reason for the kind.

    Values are represented by numbers ("codes"): the value itself, a position in `levels`, or microseconds.
    """

    name: str
    kind: Kind
    dtype: str
    storage: Storage
    levels: tuple[Any, ...] | None = None
    minimum: float | None = None
    maximum: float | None = None
    integer: bool = False
    step: float | None = None  # codes are whole multiples of this; a day, for dates without a time
    reason: str = ""
    n_observed: int = 0
    n_missing: int = 0
    fill_code: Any = None  # the code that fills a column which no model sees; the only level that was seen
    fill: bool | None = None  # whether missing cells are filled, where the user specifies it
    left: Cause | None = None  # why missing cells are left empty, None if they are filled
    evidence: str = ""  # that the column would be filled unreliably, if it is left empty for that reason
    skip: SkipRule | bool | None = None  # where the column does not apply; False if rules are not looked for
    firm: bool = False  # the bounds are the user's or natural ones, which distributions keep to
    censored_below: float | None = None  # of a code below, only that it is below is known
    censored_above: float | None = None
    derived: str | None = None  # the formula of other columns from which missing cells follow
    predictor: bool = False  # whether models see a derived column
    n_groups: int | None = None  # of rows, if the column groups rows that may not be independent
    set_by_user: bool = False  # whether the user specified what it is: its kind, levels, limits or formula
    format: TextFormat | None = None  # of texts that no model sees, such as 120/80
    observed_low: float | None = None  # the smallest and largest observed code of a number or time
    observed_high: float | None = None
    least: float | None = None  # the limits of imputed codes that follow from the observed ones
    greatest: float | None = None
    extrapolated: bool = False  # whether these limits are beyond the observed codes
    codes: tuple[float, ...] | None = None  # the only codes that are imputed, ascending

    @property
    def modelled(self) -> bool:
        """Whether the column is used by models."""
        return self.kind not in UNMODELLED and (self.derived is None or self.predictor)

    def encode(self, raw: RawColumn) -> Floats:
        """Returns codes, NaN where missing.

        A level that did not occur in training is NaN too: it stays in the table, but models do not use it.
        """
        if self.kind in ("all-missing", "unsupported"):
            return np.full(len(raw.values), np.nan)
        check_finite(raw)
        self._check_type(raw)
        if self.levels is not None:
            return _encode_levels(raw, self.levels)
        return parse_numbers(raw) if raw.storage == "label" else raw.values

    def constrain(self, codes: Floats) -> Floats:
        """Returns the nearest values that may be imputed: observed codes, or within limits, or a level."""
        if self.codes is not None:
            known = np.array(self.codes)
            middles = known[:-1] / 2 + known[1:] / 2
            return np.where(np.isnan(codes), codes, known[np.searchsorted(middles, codes)])
        low, high = self.imputed_bounds()
        step = self.code_step
        if step is not None:
            with np.errstate(over="ignore"):
                codes = np.round(codes / step) * step
            low, high = np.ceil(low / step) * step, np.floor(high / step) * step
        return np.clip(codes, low, max(low, high))

    def decode(self, codes: Floats) -> npt.NDArray[Any]:
        """Turns codes back into values of the column.

        Numbers, labels, booleans, ``datetime64[us]`` (UTC) or ``timedelta64[us]``.
        """
        if self.storage in ("time", "duration"):
            moments = (
                codes if self.levels is None else np.array(self.levels, dtype=np.float64)[codes.astype(int)]
            )
            unit = "datetime64[us]" if self.storage == "time" else "timedelta64[us]"
            return np.round(moments).astype(np.int64).astype(unit)
        if self.levels is not None:
            return self._storable_levels()[codes.astype(np.int64)]
        if self.storage == "boolean":
            return codes.astype(bool)
        numbers = _as_integers(codes) if self.integer else codes
        if self.storage == "label":  # numbers that the table holds as text
            return np.array([str(number) for number in numbers.tolist()], dtype=object)
        return numbers

    @property
    def code_step(self) -> float | None:
        """The distance between neighbouring codes, None if there is none."""
        return 1.0 if self.integer or self.levels is not None else self.step

    def code_bounds(self) -> tuple[float, float]:
        """Returns the smallest and largest code that the levels, or the user, kind and dtype, allow."""
        if self.levels is not None:
            return 0.0, len(self.levels) - 1.0
        low, high = dtype_bounds(self.storage, self.dtype)
        low = low if self.minimum is None else max(low, self.minimum)
        return low, high if self.maximum is None else min(high, self.maximum)

    def imputed_bounds(self) -> tuple[float, float]:
        """Returns the smallest and largest code that is imputed, given what was observed.

        Distributions have probability beyond them, for the values of new rows.
        """
        if self.codes is not None:
            return self.codes[0], self.codes[-1]
        low, high = self.code_bounds()
        least = low if self.least is None else max(low, self.least)
        greatest = high if self.greatest is None else min(high, self.greatest)
        return min(least, high), max(greatest, low)  # a dtype may hold fewer values than were observed

    def firm_bounds(self) -> tuple[float, float]:
        """Returns the bounds to which distributions are restricted, infinite where there are none."""
        if not self.firm or self.levels is not None:
            return -np.inf, np.inf
        low, high = self.minimum, self.maximum
        return -np.inf if low is None else low, np.inf if high is None else high

    def is_censored(self, codes: Floats) -> Booleans:
        """Returns which codes are known only to lie beyond a detection limit."""
        below = -np.inf if self.censored_below is None else self.censored_below
        above = np.inf if self.censored_above is None else self.censored_above
        return (codes < below) | (codes > above)

    def one_line(self) -> str:
        """Returns one line of text: name, kind, possible values, and the reason."""
        allowed = []
        if self.levels is not None:
            shown = ", ".join(self._show(level) for level in self.levels[:6])
            more = ", ..." if len(self.levels) > 6 else ""
            noun = "level" if len(self.levels) == 1 else "levels"
            allowed.append(f"{len(self.levels)} {noun}: {shown}{more}")
        if self.minimum is not None and self.codes is None:
            allowed.append(f">= {self._show(self.minimum)}")
        if self.maximum is not None and self.codes is None:
            allowed.append(f"<= {self._show(self.maximum)}")
        if self.integer:
            allowed.append("whole numbers")
        bounds = f" [{'; '.join(allowed)}]" if allowed else ""
        name = self.name if self.name.isprintable() else repr(self.name)
        return " ".join(
            filter(
                None, [f"{name}: {self.kind}{bounds}, {self.n_missing} missing.", self.reason, self.imputed]
            )
        )

    @property
    def imputed(self) -> str:
        """Which values are imputed, as a sentence; empty if levels, bounds or the kind say it."""
        if self.codes is not None:
            shown = [self._show(code) for code in self.codes]
            if len(shown) <= 6:
                return f"Imputed values are observed ones: {', '.join(shown)}."
            return f"Imputed values are among the {len(shown)} observed ones, {shown[0]} to {shown[-1]}."
        if self.least is None and self.greatest is None:
            return ""
        low, high = (self._show(end) for end in self.imputed_bounds())
        if not self.extrapolated:
            return f"Imputed values lie within {low} and {high}."
        return f"Imputed values may exceed the observed range: {low} to {high}."

    def _storable_levels(self) -> npt.NDArray[Any]:
        """Returns the levels as values of the dtype, which the float of a large integer may not be."""
        assert self.levels is not None
        levels = np.empty(len(self.levels), dtype=object)
        levels[:] = self.levels
        if self.storage == "number":
            low, high = dtype_bounds(self.storage, self.dtype)
            levels[:] = [min(max(level, low), high) for level in self.levels]
        return levels

    def show(self, value: Any) -> str:
        """Returns a value of the column as text for a sentence: text in quotes, dates in ISO format."""
        return repr(value) if isinstance(value, str) else self._show(value)

    def _show(self, value: Any) -> str:
        if self.storage in ("time", "duration"):
            return show_moment(value, self.storage)
        text = f"{value:g}" if isinstance(value, float) else str(value)
        return text if text.isprintable() else repr(text)

    def _check_type(self, raw: RawColumn) -> None:
        seen = np.flatnonzero(~np.isnan(raw.values))
        if not len(seen):
            return
        was, now = _type_of(self.storage, self.levels or ()), _type_of(raw.storage, raw.labels)
        if self.storage == "label" and self.levels is None:
            was = now if now == "numbers" else "text"
        if was != now:
            first = raw.values[seen[0]]
            example = raw.labels[int(first)] if raw.storage == "label" else first.item()
            if raw.storage == "time":
                example = str(np.datetime64(int(first), "us"))
            raise SchemaError(
                f"Column {self.name!r} contained {was} when the model was fitted, but now it contains "
                f"{example!r}."
            )


def show_moment(code: float, storage: Storage) -> str:
    """Returns a date (without its time at midnight) or a duration, given in microseconds, as text."""
    if storage == "duration":
        return (
            str(datetime.timedelta.resolution * int(code)) if abs(code) < MAX_SPAN else f"{code / DAY:g} days"
        )
    if abs(code) >= MAX_MOMENT:
        return str(np.datetime64(int(code // DAY), "D"))
    return str(np.datetime64(int(code), "us")).removesuffix("T00:00:00.000000").removesuffix(".000000")


def check_finite(raw: RawColumn) -> None:
    """Raises an error that names the first infinite value, or an infinite level, if there is one."""
    if any(isinstance(label, float) and np.isinf(label) for label in raw.labels):
        raise SchemaError(
            f"Column {raw.name!r} has the category infinity. Replace it by a number or by missing values, "
            "and remove it from the categories of the column."
        )
    infinite = np.flatnonzero(np.isinf(raw.values))
    if len(infinite):
        raise SchemaError(
            f"Column {raw.name!r} contains infinity ({raw.values[infinite[0]]} in row {infinite[0]}, "
            f"{len(infinite)} in all). Replace infinite values by numbers or by missing values."
        )


def parse_numbers(raw: RawColumn) -> Floats:
    """Returns labels as numbers, where text is parsed."""
    table = np.full(len(raw.labels) + 1, np.nan)
    for i in np.unique(raw.values[~np.isnan(raw.values)]).astype(np.int64).tolist():
        label = raw.labels[i]
        try:
            table[i] = float(label) if "_" not in str(label) else np.nan
        except (TypeError, ValueError):
            table[i] = np.nan
        if not np.isfinite(table[i]):
            raise SchemaError(f"Column {raw.name!r} cannot be numbers: it contains {label!r}.")
    return table[np.where(np.isnan(raw.values), len(raw.labels), raw.values).astype(np.int64)]


def _encode_levels(raw: RawColumn, levels: tuple[Any, ...]) -> Floats:
    if raw.storage == "label":
        position = {level: float(i) for i, level in enumerate(levels)}
        table = [position.get(plain(label), np.nan) for label in raw.labels]
        index = np.where(np.isnan(raw.values), len(table), raw.values).astype(np.int64)
        return np.array([*table, np.nan])[index]
    numbers = sorted((float(level), float(i)) for i, level in enumerate(levels) if not isinstance(level, str))
    if not numbers:
        return np.full(len(raw.values), np.nan)
    values, codes = np.array(numbers).T
    nearest = np.searchsorted(values, raw.values).clip(max=len(values) - 1)
    return np.where(values[nearest] == raw.values, codes[nearest], np.nan)


def _type_of(storage: Storage, labels: tuple[Any, ...]) -> str:
    if storage == "label":
        return "text" if any(isinstance(plain(label), str) for label in labels) else "numbers"
    return {"time": "dates", "duration": "durations"}.get(storage, "numbers")


def _as_integers(codes: Floats) -> npt.NDArray[Any]:
    codes = np.round(codes)
    largest = np.abs(codes).max(initial=0.0)
    if largest < 2.0**63:
        return codes.astype(np.int64)
    return codes.astype(np.uint64) if largest < 2.0**64 and codes.min() >= 0 else codes


MOST_NEW = 0.1  # probability of a new value up to which none is imputed; chosen: intervals are often at 90%
MOST_CODES = 40  # distinct whole numbers that can be codes, as many as are modelled by thresholds
ROOM = 1.0  # observed ranges beyond the observed values within which values are imputed; chosen so that a
# model of values that are missing because they are large can reach the half of a distribution that it misses


def with_imputed_range(
    column: Column,
    distinct: Floats,
    counts: Integers,
    ends: tuple[float, float],
    given: Container[str],
) -> Column:
    """Returns a column of numbers, dates or durations with limits of its imputed values; others unchanged.

    Parameters
    ----------
    column : Column
        A column with its bounds.
    distinct, counts : arrays of shape (V,)
        The distinct observed values in ascending order, or a random sample of very many, and their counts.
    ends : tuple of float
        The smallest and the largest observed value.
    given : container of str
        The settings of the user. Bounds and detection limits of the user take precedence.
    """
    numbers = column.kind in (*NUMERIC, "datetime", "duration") and column.levels is None
    if not numbers or not len(distinct):
        return column
    low, high = ends
    column = replace(column, observed_low=low, observed_high=high)
    if column.derived is not None:
        return column
    share_of_new = float((counts == 1).sum() / counts.sum())
    bounds = ("minimum", "maximum", "censored_below", "censored_above")
    free = not any(name in given for name in bounds)
    if column.integer and share_of_new <= MOST_NEW and len(distinct) <= MOST_CODES and free:
        return replace(column, codes=tuple(distinct.tolist()))
    if column.firm and free:  # natural limits, which the reason of the kind states
        return column
    room = ROOM if share_of_new > MOST_NEW and column.kind != "datetime" else 0.0
    least, greatest = _widened(low, high, room)
    is_below = "minimum" in given or "censored_below" in given
    is_above = "maximum" in given or "censored_above" in given
    return replace(
        column,
        least=None if is_below else least,
        greatest=None if is_above else greatest,
        extrapolated=room > 0 and not (is_below and is_above),
    )


def with_room(column: Column) -> Column:
    """Returns a column whose missing values may be imputed beyond the observed ones, also if these repeat.

    Where values may be missing because of their size, the observed ones do not show how far the others reach.
    Codes, dates, natural limits and those of the user stay.
    """
    unlimited = column.least is None and column.greatest is None
    if unlimited or column.extrapolated or column.kind == "datetime" or not column.n_missing:
        return column
    assert column.observed_low is not None
    assert column.observed_high is not None
    least, greatest = _widened(column.observed_low, column.observed_high, ROOM)
    return replace(
        column,
        least=None if column.least is None else least,
        greatest=None if column.greatest is None else greatest,
        extrapolated=True,
    )


def _widened(low: float, high: float, room: float) -> tuple[float, float]:
    """Returns a range with room on both sides, without negative numbers unless there are some.

    Numbers that are never negative are mostly amounts, which cannot be. There is no such reason for numbers
    that are never positive: they may be those values of a centred column that are not missing.
    """
    largest = float(np.finfo(np.float64).max)
    width = min(high / 2 - low / 2, largest / 4) * 2 * room  # twice the half, which cannot overflow
    least, greatest = max(low - width, -largest), min(high + width, largest)
    return max(least, 0.0) if low >= 0 else least, greatest
