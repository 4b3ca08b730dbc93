"""Reading and writing numbers with separators, currencies, percent signs, units and detection limits.

All functions operate on the distinct texts of a column, by Arrow kernels.
"""

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halfseen.errors import TableError
from halfseen.files.distinct import Integers, Mask, any_match, as_mask, shown, usual
from halfseen.files.text_formats import UNITS

Negative = Literal["outer", "inner", "parentheses", "trailing"]

BLANKS = " \u00a0\u2007\u2009\u202f"
APOSTROPHES = "'\u2019"
_MINUS = "\u2212"
_ISO = (
    "AED|ARS|AUD|BGN|BRL|CAD|CHF|CLP|CNY|COP|CZK|DKK|EGP|EUR|GBP|HKD|HUF|IDR|ILS|INR|ISK|JPY|KRW|MXN|MYR|NOK|"
    "NZD|PHP|PLN|RON|RUB|SAR|SEK|SGD|THB|TRY|TWD|UAH|USD|VND|ZAR"  # codespell:ignore
)
_CURRENCY = rf"(?:(?:US|CA?|AU?|NZ|HK|R)?\$|[$¢£¥৳฿₠-₿]|{_ISO}|Euro|Fr\.|kr\.?|Kč|zł|Rs\.?)"
_MULTIPLES = "k|K|M|B|bn|mn|Mio\\.?|Mrd\\.?"
_PER = r"(?:/(?:l|L|dl|dL|ml|mL|h|s|min|d|kg|g|m²|m³|km²|mol))?"
UNIT = rf"(?:{_CURRENCY}|[%‰]|(?:{UNITS}){_PER})"
"""What may follow a number without a blank between."""

_UNIT_WORD = r"[^\d\s!-/:-@\[-`{-~][^\d<>=()\[\]{}\"]*"
_LONGEST_UNIT = 16
_DIGITS = rf"\d.,{APOSTROPHES}"
_BEFORE = (  # what may stand before the first digit
    rf"^(?P<limit>(?:[<>]=?|[≤≥])?)[{BLANKS}]*(?P<open>\(?)(?P<sign>[+\-{_MINUS}]?)[{BLANKS}]?"
    rf"(?P<before>(?:{_CURRENCY}[{BLANKS}]*)?)(?P<inner>[+\-{_MINUS}]?)$"
)
_AFTER = (  # what may stand after the last
    rf"^(?P<exponent>(?:[eE][+-]?\d+)?)"
    rf"(?P<after>(?:[{BLANKS}]*(?:{UNIT}|{_MULTIPLES})|[{BLANKS}]+{_UNIT_WORD})?)"
    r"(?P<trail>-?)(?P<close>\)?)$"
)
_TO_FIRST_DIGIT = r"^(?:[^\d.,]*(?:Fr|kr|Rs)\.)?[^\d.,]*"
_TO_LAST_DIGIT = rf"^[{_DIGITS}]*(?:[{BLANKS}]+[{_DIGITS}]+)*"
_FROM_LAST_DIGIT = rf"[{BLANKS}]*(?:[^{_DIGITS}{BLANKS}].*)?$"
_LAKHS = r"[1-9]\d?(?:,\d\d)+,\d{3}"  # the Indian grouping: 12,34,567
_SIGNS: dict[str, Negative] = {
    "sign": "outer", "inner": "inner", "open": "parentheses", "trail": "trailing",
}  # fmt: skip
_EXAMPLE = re.compile(rf"1(?P<group>[.,{APOSTROPHES}{BLANKS}]?)234(?:(?P<decimal>[.,])(?P<tail>\d+))?")
_EMPTY = pa.scalar("", pa.large_string())


@dataclass(frozen=True)
class Marks:
    """The decimal mark, and whether the other one of point and comma may separate thousands.

    Blanks and apostrophes may separate them in any case, as they mean nothing else.
    """

    decimal: str
    other_groups: bool = True

    @property
    def groups(self) -> tuple[str, ...]:
        """The patterns of what may stand between thousands."""
        other = (r"\.",) if self.decimal == "," else (",",)
        return (*(other if self.other_groups else ()), f"[{BLANKS}]", f"[{APOSTROPHES}]")


@dataclass(frozen=True)
class NumberFormat:
    """How the numbers of a column are written around their digits.

    Parameters
    ----------
    decimal, group : str
        The decimal mark, and what stands between thousands: nothing if it is empty.
    group_from : int
        The number of digits before the decimal mark from which thousands are separated.
    before, after : str
        Currency, percent sign or unit, with its blanks.
    negative : {"outer", "inner", "parentheses", "trailing"}
        Where a negative number shows it: ``-$5``, ``$-5``, ``($5)`` or ``5-``.
    plus : bool
        Whether positive numbers have a plus sign.
    lakhs : bool
        Whether digits are grouped as in India: three at the end, and two in every other group.
    """

    decimal: str = "."
    group: str = ""
    group_from: int = 4
    before: str = ""
    after: str = ""
    negative: Negative = "outer"
    plus: bool = False
    lakhs: bool = False

    def write(self, texts: pa.Array) -> pa.Array:
        """Return plain numbers, with a point and a minus sign, in this format."""
        negative = pc.starts_with(texts, "-")
        digits = pc.utf8_ltrim(texts, "-")
        if self.decimal != ".":
            digits = pc.replace_substring(digits, ".", self.decimal)
        if self.group:
            digits = self._separate(digits)
        before, after = pa.scalar(self.before, texts.type), pa.scalar(self.after, texts.type)
        opening, inner, closing = {
            "outer": ("-", "", ""), "inner": ("", "-", ""),
            "parentheses": ("(", "", ")"), "trailing": ("", "", "-"),
        }[self.negative]  # fmt: skip
        plus = ("", "+") if self.plus and self.negative == "inner" else ("+" if self.plus else "", "")
        parts = [
            pc.if_else(negative, pa.scalar(mark, texts.type), pa.scalar(other, texts.type))
            for mark, other in ((opening, plus[0]), (inner, plus[1]), (closing, ""))
        ]
        return pc.binary_join_element_wise(parts[0], before, parts[1], digits, after, parts[2], _EMPTY)

    def _separate(self, digits: pa.Array) -> pa.Array:
        long = pc.match_substring_regex(digits, rf"^\d{{{self.group_from},}}")
        grouped = digits
        size = 3
        while any_match(grouped, rf"^\d{{{size + 1},}}"):  # one separator each time
            grouped = pc.replace_substring_regex(grouped, rf"^(\d+)(\d{{{size}}})", rf"\1{self.group}\2")
            size = 2 if self.lakhs else 3
        return pc.if_else(long, grouped, digits)

    def format_note(self, *, whole: bool) -> str:
        """Return what is unusual about the format, in words; whole numbers show no decimal mark."""
        unit = f"{self.before.strip(BLANKS)} {self.after.strip(BLANKS)}".strip()
        marks = []
        if self.decimal == "," and not whole:
            marks.append("decimal commas")
        if self.group:
            name = {",": "commas", ".": "points"}.get(self.group)
            name = name or ("blanks" if self.group in BLANKS else "apostrophes")
            marks.append(f"{name} in the Indian grouping" if self.lakhs else f"{name} between thousands")
        what = "numbers"
        if unit in ("%", "‰"):
            what = "percentages"
        elif re.match(_CURRENCY, unit):
            what = f"amounts in {unit}"
        elif unit:
            marks.insert(0, f"the unit {unit}")
        signs = {"parentheses": "negative numbers in parentheses", "trailing": "minus signs at the end"}
        marks += [signs[self.negative]] if self.negative in signs else []
        return f"{what} with {' and '.join(marks)}" if marks else what


def parse_number_format(text: str) -> Marks:
    """Return the marks of an example such as ``1.234,56``; refuse what is none."""
    found = _EXAMPLE.fullmatch(text.strip())
    if found is None or (found["group"] and found["group"] == found["decimal"]):
        raise TableError(
            f"--number-format {text!r} is not understood; write the number 1234.56 the way the file does, "
            "for example 1,234.56 or 1.234,56 or 1234,56, or use COLUMN=text"
        )
    group, decimal = found["group"], found["decimal"]
    if decimal is None:
        decimal = "," if group == "." else "."
    return Marks(decimal, other_groups=group in ("", ".", ","))


@dataclass(frozen=True)
class Numbers:
    """The distinct texts of a column, cut into the parts of a number.

    Parameters
    ----------
    parts : dict of str to pyarrow.Array
        The groups of the pattern; null where a text is not a number.
    counts : numpy.ndarray
        How many cells hold each text.
    valid : numpy.ndarray
        The texts that are numbers with the usual currency or unit of the column, whatever the separators.
    fits : dict of Marks to numpy.ndarray
        The texts that are numbers under each reading of the separators.
    """

    parts: dict[str, pa.Array]
    counts: Integers
    valid: Mask
    fits: dict[Marks, Mask]

    def weight(self, marks: Marks) -> int:
        """Return the number of cells that are numbers under a reading."""
        return int(self.counts[self.fits[marks]].sum())

    @property
    def readings(self) -> list[Marks]:
        """The readings under which the most cells are numbers."""
        most = max(map(self.weight, self.fits))
        return [marks for marks in self.fits if self.weight(marks) == most]

    @property
    def has_currency(self) -> bool:
        """Whether the numbers are amounts of money."""
        unit = usual(self.parts["before"], self.counts, self.valid).strip(BLANKS)
        unit = unit or usual(self.parts["after"], self.counts, self.valid).strip(BLANKS)
        return re.fullmatch(_CURRENCY, unit) is not None


def split_numbers(texts: pa.Array, counts: Integers, declared: Marks | None = None) -> Numbers:
    """Cut the distinct texts of a column into the parts of a number.

    Parameters
    ----------
    texts : pyarrow.Array
        The distinct texts.
    counts : numpy.ndarray
        How many cells hold each of them.
    declared : Marks, optional
        The marks that the user declares: no other reading is considered.
    """
    rest = pc.replace_substring_regex(texts, _TO_FIRST_DIGIT, "")
    before = pc.replace_substring_regex(texts, r"[\d.,].*$", "")
    if any_match(before, "(?:Fr|kr|Rs)$"):
        before = pc.replace_substring_regex(texts, r"\d.*$", "")
    parts = _cut(before, _BEFORE) | _cut(pc.replace_substring_regex(rest, _TO_LAST_DIGIT, ""), _AFTER)
    whole = pc.and_(parts["limit"].is_valid(), parts["after"].is_valid())
    parts["body"] = pc.replace_substring_regex(rest, _FROM_LAST_DIGIT, "")
    parts = {
        name: pc.if_else(whole, part, pa.scalar(None, pa.large_string())) for name, part in parts.items()
    }
    seen = {name: shown(part) for name, part in parts.items()}
    signs = sum(seen[name].astype(int) for name in _SIGNS)
    valid = as_mask(whole) & seen["body"] & (signs <= 1) & (seen["open"] == seen["close"])
    multiple = as_mask(pc.match_substring_regex(parts["after"], rf"^(?:{_MULTIPLES})$"))
    valid &= seen["before"] | ~multiple
    valid &= as_mask(pc.less_equal(pc.utf8_length(parts["after"]), _LONGEST_UNIT))
    for name in ("before", "after"):  # one currency, one unit: the usual one
        bare = pc.utf8_trim(parts[name], BLANKS)
        valid &= as_mask(pc.equal(bare, usual(bare, counts, valid)))
    body = parts["body"]
    readings = (Marks("."), Marks(",")) if declared is None else (declared,)
    fits = {
        marks: valid & as_mask(pc.match_substring_regex(body, _body_pattern(marks))) for marks in readings
    }
    return Numbers(parts, counts, valid, fits)


def _cut(texts: pa.Array, pattern: str) -> dict[str, pa.Array]:
    """Return the groups of a pattern, null where it does not match; few of the texts differ."""
    encoded = texts.dictionary_encode()
    cut = pc.extract_regex(encoded.dictionary, pattern=pattern)
    absent = pa.scalar(None, pa.large_string())
    return {
        field.name: pc.if_else(cut.is_valid(), cut.field(field.name), absent).take(encoded.indices)
        for field in cut.type
    }


def _body_pattern(marks: Marks) -> str:
    decimal = re.escape(marks.decimal)
    wholes = ["0", r"[1-9]\d*", *(rf"[1-9]\d{{0,2}}(?:{group}\d{{3}})+" for group in marks.groups)]
    if "," in marks.groups:
        wholes.append(_LAKHS)
    return rf"^(?:(?:{'|'.join(wholes)})(?:{decimal}\d*)?|{decimal}\d+)$"


def plain_texts(numbers: Numbers, marks: Marks) -> pa.Array:
    """Return the numbers with a point and a minus sign, null where a text is none."""
    parts = numbers.parts
    digits = pc.replace_substring_regex(parts["body"], f"[{BLANKS}{APOSTROPHES}]", "")
    digits = pc.replace_substring(digits, "." if marks.decimal == "," else ",", "")
    digits = pc.replace_substring(digits, ",", ".")
    minus = np.zeros(len(digits), dtype=bool)
    for name in _SIGNS:
        minus |= _is_minus(parts[name])
    sign = pc.if_else(pa.array(minus), pa.scalar("-", pa.large_string()), _EMPTY)
    texts = pc.binary_join_element_wise(sign, digits, parts["exponent"], _EMPTY)
    return pc.if_else(pa.array(numbers.fits[marks]), texts, pa.scalar(None, pa.large_string()))


def number_format(numbers: Numbers, marks: Marks) -> NumberFormat:
    """Return how the numbers of a column are written."""
    parts, counts, fits = numbers.parts, numbers.counts, numbers.fits[marks]
    group, group_from, lakhs = _usual_grouping(parts["body"], counts, fits, marks)
    before, after = (usual(parts[name], counts, fits) for name in ("before", "after"))
    weights = {name: counts[_is_minus(parts[name]) & fits].sum() for name in _SIGNS}
    most = max(weights, key=lambda name: weights[name])
    if not weights[most]:
        most = "inner" if before.strip(BLANKS).isalpha() else "sign"
    pluses = as_mask(pc.equal(parts["sign"], "+")) | as_mask(pc.equal(parts["inner"], "+"))
    plus = counts[pluses & fits].sum()
    unsigned = counts[fits].sum() - sum(weights.values()) - plus
    return NumberFormat(
        marks.decimal, group, group_from, before, after, _SIGNS[most], bool(plus > unsigned), lakhs
    )


def _usual_grouping(body: pa.Array, counts: Integers, fits: Mask, marks: Marks) -> tuple[str, int, bool]:
    """Return what most long numbers have between thousands, from how many digits on, and whether by lakhs.

    Numbers of four digits may be written without a separator though longer ones have one.
    """
    wholes = pc.replace_substring_regex(body, rf"{re.escape(marks.decimal)}.*$", "")
    found = pc.extract_regex(wholes, pattern=rf"\d(?P<group>{'|'.join(marks.groups)})\d")
    grouped = as_mask(found.is_valid()) & fits
    if not grouped.any():
        return "", 4, False
    digits = pc.utf8_length(pc.replace_substring_regex(wholes, r"\D", ""))
    four, long = (as_mask(compare(digits, 4)) & fits for compare in (pc.equal, pc.greater))
    with_mark, without = (
        [int(counts[size & one].sum()) for size in (four, long)] for one in (grouped, ~grouped)
    )
    if sum(with_mark) < sum(without) and with_mark[1] <= without[1]:
        return "", 4, False
    by_lakhs = as_mask(pc.match_substring_regex(wholes, f"^{_LAKHS}$")) & fits
    by_thousands = grouped & long & ~by_lakhs & as_mask(pc.greater(digits, 5))  # 12,345 is written alike
    return (
        usual(found.field("group"), counts, grouped),
        5 if without[0] > with_mark[0] else 4,
        bool(counts[by_lakhs].sum() > counts[by_thousands].sum()),
    )


def _is_minus(part: pa.Array) -> Mask:
    return as_mask(pc.is_in(part, value_set=pa.array(["-", _MINUS, "("], pa.large_string())))
