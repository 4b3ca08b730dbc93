"""Reading and writing dates with various orders of day, month and year, month names and times.

All functions operate on the distinct texts of a column, by Arrow kernels.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halfseen._arrays import Integers
from halfseen.errors import TableError
from halfseen.files.distinct import EMPTY, Mask, any_match, as_mask, middle, most_frequent, shown

Order = Literal["dmy", "mdy", "ymd"]

ORDERS: tuple[Order, ...] = ("dmy", "mdy", "ymd")
ORDER_WORDS: dict[Order, str] = {"dmy": "day first", "mdy": "month first", "ymd": "year first"}
_FIRST_YEAR = (
    1969  # two-digit years are 1969 to 2068, as in POSIX, unless those of the column leave a wide gap
)
_WIDE_GAP = 15  # years; a guess

_MONTHS = {
    "English": "January February March April May June July August September October November December",
    "English, short": "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec",
    "German": "Januar Februar März April Mai Juni Juli "  # codespell:ignore
    "August September Oktober November Dezember",  # codespell:ignore
    "German, short": "Jan Feb Mär Apr Mai Jun Jul Aug Sep Okt Nov Dez",
    "French": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "French, short": "janv févr mars avr mai juin juil août sept oct nov déc",
}
_TIME = (
    r"(?P<gap>(?:,? |T)?)(?P<hour>(?:\d{1,2})?)(?P<minute>(?::\d\d)?)(?P<second>(?::\d\d)?)"
    r"(?P<fraction>(?:\.\d{1,6})?)(?P<half>(?: ?[AaPp][Mm])?)$"
)
_DAY, _NAME, _YEAR, _SOME_YEAR = r"\d{1,2}", r"[^\d\s.,:/-]+\.?", r"\d{4}", r"(?:\d{4}|\d\d)"
_PATTERNS = {
    family: rf"^(?P<one>{one})(?P<first>{first})(?P<two>{two})(?P<last>{last})(?P<three>{three}){_TIME}"
    for family, one, first, two, last, three in (
        ("ymd", _YEAR, "[./-]", _DAY, "[./-]", _DAY),
        ("digits", r"(?:1[6-9]|2[01]|99)\d\d", "", r"(?:0[1-9]|1[0-2])", "", r"(?:0[1-9]|[12]\d|3[01])"),
        ("numbers", _DAY, "[./-]", _DAY, "[./-]", _SOME_YEAR),
        ("day, name", _DAY, r"\. ?|[ /-]", _NAME, "[ /-]", _SOME_YEAR),
        ("name, day", _NAME, " ", _DAY, ",? ", _YEAR),
    )
}
_YEAR_FIRST = ("ymd", "digits")
_ORDER_OF: dict[str, Order] = {"ymd": "ymd", "digits": "ymd", "day, name": "dmy", "name, day": "mdy"}
_DAYS = (
    r"^(?:1[6-9]|2[01]|99)\d\d(?:(?:0[13578]|1[02])(?:0[1-9]|[12]\d|3[01])|"
    r"(?:0[469]|11)(?:0[1-9]|[12]\d|30)|02(?:0[1-9]|[12]\d))"
)
_DIGITS = rf"{_DAYS}(?:{_TIME})"
NO_DATE = "00000000"
"""What stands for no date among dates of eight digits."""
_DISTINCT, _MOST = 3, 0.9  # dates of eight digits, and their share among the cells; guesses
HEAD = 100
"""Cells at the beginning of a column that are looked at before all of them; a guess."""
_MAX_LAYOUTS = 5  # of one column; a bound on the time, as more than two are hardly ever seen


@dataclass(frozen=True)
class DateFormat:
    """How the dates of a column are written."""

    order: Order  # the order of day, month and year
    marks: tuple[str, str]  # what stands between the three
    # Whether a single digit has a zero before it.
    padded_day: bool = True
    padded_month: bool = True
    padded_hour: bool = True
    names: tuple[str, ...] = ()  # the names of the months; empty if they are numbers
    year_digits: int = 4  # two or four
    clock: str = ""  # what is between date and time; empty if there is no time
    seconds: bool = False  # whether seconds are written
    fraction: int = 0  # the digits after them
    # What follows a time before and after noon; empty if hours count to 24.
    halves: tuple[str, str] | tuple[()] = ()
    first_year: int = _FIRST_YEAR  # the first of the hundred years that two-digit years stand for

    def write(self, values: pa.Array) -> pa.Array:
        """Return dates or times as texts in this format."""
        month, year = pc.month(values), _spell(pc.year(values), 4)
        if self.names:
            months = pa.array(self.names, pa.large_string()).take(pc.subtract(month, 1))
        else:
            months = _spell(month, 2 if self.padded_month else 1)
        year = pc.utf8_slice_codeunits(year, 2) if self.year_digits == 2 else year
        parts = {"d": _spell(pc.day(values), 2 if self.padded_day else 1), "m": months, "y": year}
        one, two, three = (parts[letter] for letter in self.order)
        marks = [pa.scalar(mark, pa.large_string()) for mark in self.marks]
        texts = pc.binary_join_element_wise(one, marks[0], two, marks[1], three, EMPTY)
        if not self.clock or not pa.types.is_timestamp(values.type):
            return texts
        gap = pa.scalar(self.clock, pa.large_string())
        return pc.binary_join_element_wise(texts, gap, self._write_clock(values), EMPTY)

    def _write_clock(self, values: pa.Array) -> pa.Array:
        hour = pc.hour(values)
        width = 2 if self.padded_hour else 1
        if self.halves:
            late = pc.greater_equal(hour, 12)
            twelve = pc.subtract(hour, pc.if_else(pc.greater(hour, 12), 12, 0))
            hour = pc.if_else(pc.equal(hour, 0), 12, twelve)
        colon = pa.scalar(":", pa.large_string())
        texts = pc.binary_join_element_wise(_spell(hour, width), _spell(pc.minute(values), 2), colon)
        if self.seconds:
            texts = pc.binary_join_element_wise(texts, _spell(pc.second(values), 2), colon)
        if self.fraction:
            digits = _spell(pc.add(pc.multiply(pc.millisecond(values), 1000), pc.microsecond(values)), 6)
            point = pa.scalar(".", pa.large_string())
            tail = pc.utf8_slice_codeunits(digits, 0, self.fraction)
            texts = pc.binary_join_element_wise(texts, tail, point)
        if self.halves:
            before, after = (pa.scalar(half, pa.large_string()) for half in self.halves)
            texts = pc.binary_join_element_wise(texts, pc.if_else(late, after, before), EMPTY)
        return texts


def _spell(numbers: pa.Array, width: int) -> pa.Array:
    return pc.utf8_lpad(numbers.cast(pa.int64()).cast(pa.large_string()), width, "0")


def parse_date_order(text: str) -> Order:
    """Return an order of day, month and year; refuse what is none."""
    for order in ORDERS:
        if text.strip().lower() == order:
            return order
    raise TableError(f"--date-order {text!r} is not understood; use dmy, mdy or ymd, or COLUMN=dmy")


@dataclass(frozen=True)
class Dates:
    """The distinct texts of a column that have one layout, cut into the parts of a date."""

    parts: dict[str, pa.Array]  # the groups of the pattern; null where a text is not a date of this family
    counts: Integers  # how many cells hold each text
    family: str  # which of the patterns it is
    valid: Mask  # the texts with that layout
    # The first of the hundred years of two-digit years, if the user specifies it.
    given_year: int | None = None

    @property
    def orders(self) -> list[Order]:
        """The orders under which the most texts are dates, the likelier first."""
        possible: tuple[Order, ...] = ("dmy", "mdy")
        if self.family != "numbers":
            possible = (_ORDER_OF[self.family],)
        weights = {order: int(self.counts[self.days(order)[1]].sum()) for order in possible}
        return [order for order in possible if weights[order] == max(weights.values())]

    @property
    def mark(self) -> str:
        """What stands between the first two parts."""
        return most_frequent(self.parts["first"], self.counts, self.valid)

    @property
    def by_convention(self) -> bool:
        """Whether the day comes first by the marks alone, as with points."""
        return self.family == "numbers" and self.mark == "."

    @property
    def weight(self) -> int:
        """The number of cells with this layout."""
        return int(self.counts[self.valid].sum())

    @property
    def years(self) -> Integers:
        """The years of the texts as they are written, -1 where a text has another layout."""
        years = _integers(self.parts["one" if self.family in _YEAR_FIRST else "three"])
        return np.where(self.valid, years, -1)

    @property
    def timed(self) -> bool:
        """Whether cells have a time."""
        return bool((shown(self.parts["hour"]) & self.valid).any())

    @property
    def first_year(self) -> int:
        """The first of the hundred years that two-digit years stand for.

        The hundred years begin after the widest gap between the years of the column, so that dates that are
        near each other, such as 59 and 71, remain so. The century is that of most of the years between 1969
        and 2068, which is also the range if no gap is wide.
        """
        if self.given_year is not None:
            return self.given_year
        part = self.parts["one" if self.family in _YEAR_FIRST else "three"]
        short = as_mask(pc.equal(pc.utf8_length(part), 2)) & self.valid
        if not short.any():
            return _FIRST_YEAR
        years, counts = self.years[short], self.counts[short]
        used = np.unique(years)
        gaps = (np.roll(used, -1) - used - 1) % 100 if len(used) > 1 else np.array([99])
        if gaps.max() < _WIDE_GAP:
            return _FIRST_YEAR
        start = int(used[(int(gaps.argmax()) + 1) % len(used)])  # the first year after the gap
        usual = _FIRST_YEAR + (years - _FIRST_YEAR) % 100
        centuries = usual - (years - start) % 100  # where the hundred years begin by each of them
        candidates = np.unique(centuries)
        return int(max(candidates, key=lambda first: counts[centuries == first].sum()))

    def days(self, order: Order) -> tuple[Integers, Mask]:
        """Return days since 1970 under an order, and which texts are dates that exist."""
        one, two, three = (self.parts[name] for name in ("one", "two", "three"))
        place = dict(zip(order, (one, two, three), strict=True))
        month = self._name_numbers(place["m"])[0] if "name" in self.family else _integers(place["m"])
        day, year = _integers(place["d"]), _integers(place["y"])
        short = as_mask(pc.equal(pc.utf8_length(place["y"]), 2))
        first = self.first_year
        year = np.where(short, first + (year - first) % 100, year)
        good = self.valid & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31) & (year >= 1)
        months = np.where(good, (year - 1970) * 12 + month - 1, 0).astype("datetime64[M]")
        days = months.astype("datetime64[D]") + np.where(good, day - 1, 0)
        good &= days.astype("datetime64[M]") == months
        return days.astype(np.int64), good

    def _name_numbers(self, part: pa.Array) -> tuple[Integers, tuple[str, ...]]:
        """Return the numbers of months that are named, and the names in the column's own spelling."""
        encoded = pc.utf8_rtrim(part, ".").dictionary_encode()
        used = encoded.dictionary.to_pylist()
        folded = {name.casefold() for name in used}
        tables = [names.split() for names in _MONTHS.values()]
        names = max(tables, key=lambda names: len(folded & {name.casefold() for name in names}))
        place = {name.casefold(): number for number, name in enumerate(names, start=1)}
        numbers = np.array([place.get(name.casefold(), 0) for name in used] + [0], dtype=np.int64)
        index = pc.fill_null(encoded.indices, len(used)).to_numpy(zero_copy_only=False)
        if all(name.isupper() for name in used):
            names = [name.upper() for name in names]
        elif all(name.islower() for name in used):
            names = [name.lower() for name in names]
        dot = "." if most_frequent(part, self.counts, self.valid).endswith(".") else ""
        return numbers[index], tuple(name + dot for name in names)

    def moments(self, order: Order, *, timed: bool) -> tuple[pa.Array, Mask]:
        """Return dates, or times if `timed`, and which texts they are."""
        days, good = self.days(order)
        if not timed:
            return pa.array(days.astype(np.int32), mask=~good).cast(pa.date32()), good
        hour, half = (
            _integers(self.parts["hour"], 0),
            pc.utf8_lower(pc.utf8_trim_whitespace(self.parts["half"])),
        )
        halved, late = shown(half), as_mask(pc.equal(half, "pm"))
        good = good & (~halved | ((hour >= 1) & (hour <= 12)))
        hour = np.where(halved, hour % 12 + 12 * late, hour)
        minute = _integers(pc.utf8_ltrim(self.parts["minute"], ":"), 0)
        second = _integers(pc.utf8_ltrim(self.parts["second"], ":"), 0)
        digits = pc.utf8_rpad(pc.utf8_ltrim(self.parts["fraction"], "."), 6, "0")
        good &= (hour < 24) & (minute < 60) & (second < 60)
        seconds = ((days * 24 + hour) * 60 + minute) * 60 + second
        stamps = np.where(good, seconds * 1_000_000 + _integers(digits, 0), 0)
        return pa.array(stamps, pa.timestamp("us"), mask=~good), good

    def format(self, order: Order) -> DateFormat:
        """Return how the dates are written."""
        parts, counts, good = self.parts, self.counts, self.moments(order, timed=self.timed)[1]
        place = dict(zip(order, ("one", "two", "three"), strict=True))
        named = "name" in self.family
        shape = {name: most_frequent(part, counts, good) for name, part in parts.items()}
        timed = good & shown(parts["hour"])
        halves: tuple[str, str] | tuple[()] = ()
        if self.timed and (half := most_frequent(parts["half"], counts, timed)):
            letters = ("A", "P") if half.strip()[0].isupper() else ("a", "p")
            gap = half[: len(half) - 2]
            halves = (gap + letters[0] + half[-1], gap + letters[1] + half[-1])
        fraction = len(most_frequent(parts["fraction"], counts, timed).lstrip("."))
        return DateFormat(
            order,
            (shape["first"], shape["last"]),
            padded_day=not _single(parts[place["d"]], good),
            padded_month=not _single(parts[place["m"]], good),
            padded_hour=not _single(parts["hour"], timed),
            names=self._name_numbers(parts[place["m"]])[1] if named else (),
            year_digits=len(shape[place["y"]]),
            clock=most_frequent(parts["gap"], counts, timed) if self.timed else "",
            seconds=self.timed and bool(most_frequent(parts["second"], counts, timed)),
            fraction=0 if fraction == 0 else 3 if fraction <= 3 else 6,
            halves=halves,
            first_year=self.first_year,
        )


def are_digits(cells: pa.Array, least: int = _DISTINCT) -> bool:
    """Return whether the cells of a column are dates of eight digits, such as 20240131.

    Among the numbers of eight digits one in a thousand is such a date, so that few of them are evidence.

    Parameters
    ----------
    cells : pyarrow.Array
        The cells with text.
    least : int
        The number of distinct dates that there must be.
    """
    cells = cells.filter(pc.not_equal(cells, NO_DATE))
    if not any_match(cells[:HEAD], _DIGITS):
        return False
    dates = cells.filter(pc.match_substring_regex(cells, _DIGITS))
    return len(dates) >= _MOST * len(cells) and len(dates.unique()) >= least


def split_dates(texts: pa.Array, counts: Integers, first_year: int | None = None) -> tuple[Dates, ...]:
    """Cut the distinct texts of a column into the parts of dates, by layouts, the most frequent one first.

    If some cells have years of two digits and others of four, the former denote the hundred years around the
    median of the latter, unless `first_year` is given.
    """
    layouts: list[Dates] = []
    left = np.ones(len(texts), dtype=bool)
    while len(layouts) < _MAX_LAYOUTS and left.any():
        found = _find_layout(texts, counts, left, first_year)
        if found is None:
            break
        layouts.append(found)
        left &= ~found.valid
    years = np.max([one.years for one in layouts], axis=0) if layouts else np.zeros(0)
    if first_year is None and len(layouts) > 1 and (years >= 100).any():
        around = int(middle(years[years >= 100], counts[years >= 100])) - 50
        layouts = [replace(one, given_year=around) for one in layouts]
    return tuple(sorted(layouts, key=lambda one: -one.weight))


def _find_layout(texts: pa.Array, counts: Integers, among: Mask, first_year: int | None) -> Dates | None:
    """Return the most frequent layout of some of the texts, None if none of them is a date."""
    best: Dates | None = None
    for family, pattern in _PATTERNS.items():
        cut = pc.extract_regex(texts, pattern=pattern)
        whole = cut.is_valid()
        valid = as_mask(whole) & among
        if not valid.any():
            continue
        parts = {
            field.name: pc.if_else(whole, cut.field(field.name), pa.scalar(None, pa.large_string()))
            for field in cut.type
        }
        valid &= _well_formed(parts, family, counts, valid)
        if valid.any() and (best is None or counts[valid].sum() > best.weight):
            best = Dates(parts, counts, family, valid, first_year)
    return best


def _well_formed(parts: dict[str, pa.Array], family: str, counts: Integers, valid: Mask) -> Mask:
    """Return which texts have the usual marks and a time that is whole or absent."""
    first, second = parts["first"], parts["last"]
    alike = as_mask(pc.equal(first, most_frequent(first, counts, valid)))
    alike &= as_mask(pc.equal(second, most_frequent(second, counts, valid)))
    year = pc.utf8_length(parts["three"])
    if family in ("ymd", "numbers"):
        alike &= as_mask(pc.equal(first, second))
    if family == "numbers":  # 28-05-21 might begin with the year
        alike &= as_mask(pc.or_(pc.equal(year, 4), pc.not_equal(first, "-")))
    if family in ("numbers", "day, name"):
        digits = year.cast(pa.large_string())
        alike &= as_mask(pc.equal(digits, most_frequent(digits, counts, valid & alike)))
    timed, minutes, gap = shown(parts["hour"]), shown(parts["minute"]), shown(parts["gap"])
    loose = shown(parts["second"]) | shown(parts["fraction"]) | shown(parts["half"])
    pointed = ~shown(parts["fraction"]) | shown(parts["second"])
    return alike & (timed == minutes) & (timed == gap) & (~loose | timed) & pointed


def _integers(texts: pa.Array, default: int = -1) -> Integers:
    """Return texts of digits as numbers."""
    digits = pc.if_else(pc.match_substring_regex(texts, r"^\d+$"), texts, pa.scalar(None, texts.type))
    return pc.fill_null(digits.cast(pa.int64()), default).to_numpy(zero_copy_only=False)


def _single(part: pa.Array, good: Mask) -> bool:
    return bool((as_mask(pc.equal(pc.utf8_length(part), 1)) & good).any())
