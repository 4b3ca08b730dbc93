"""What numbers look like in texts, and texts of quantities that are not numbers, such as 1:30 or 120/80.

This module needs no pyarrow, unlike the reader of files, so that the schema of data frames uses the same
grammar of numbers as the reader.
"""

import re
from collections.abc import Sequence
from typing import Literal

import numpy as np

from halfseen._arrays import Floats, Integers

TextFormat = Literal[
    "times or durations", "quarters", "months", "pairs of numbers",
    "numbers with a unit", "numbers with different units",
]  # fmt: skip

ADVICE: dict[TextFormat, str] = {
    "times or durations": "convert the values to numbers, such as minutes",
    "quarters": "write the values as dates, such as 2021-07-01 for the third quarter of 2021",
    "months": "write the values as dates, such as 2021-07-01 for July 2021",
    "pairs of numbers": "split the column into two",
    "numbers with a unit": "write the values without the unit",
    "numbers with different units": "convert the values to one unit",
}
"""What a user can do so that the values are modelled."""

UNITS = (
    "kg|g|mg|[µμu]g|ng|pg|t|lbs?|oz|l|L|ml|mL|dl|dL|[µμu]l|km|m|cm|mm|[µμu]m|nm|mi|ft|in|yd|ha|km²|m²|cm²|m³|cm³|"
    "h|hrs?|min|mins|sec|ms|days|yrs?|°C|°F|°|mmHg|bpm|ppm|ppb|Hz|kHz|MHz|GHz|Pa|hPa|kPa|MPa|bar|mbar|psi|W|kW|MW|"
    "kWh|MWh|Wh|J|kJ|kcal|cal|V|mV|kV|mA|N|kN|dB|rpm|mph|km/h|kmh|m/s|mol|mmol|[µμu]mol|[kMGT]B|px|dpi|pcs"
)
"""Units of measurement, as a regular expression."""

BLANKS = " \u00a0\u2007\u2009\u202f"
APOSTROPHES = "'\u2019"
MINUS = "\u2212"
_ISO = (
    "AED|ARS|AUD|BGN|BRL|CAD|CHF|CLP|CNY|COP|CZK|DKK|EGP|EUR|GBP|HKD|HUF|IDR|ILS|INR|ISK|JPY|KRW|MXN|MYR|NOK|"
    "NZD|PHP|PLN|RON|RUB|SAR|SEK|SGD|THB|TRY|TWD|UAH|USD|VND|ZAR"  # codespell:ignore
)
CURRENCY = rf"(?:(?:US|CA?|AU?|NZ|HK|R)?\$|[$¢£¥৳฿₠-₿]|{_ISO}|Euro|Fr\.|kr\.?|Kč|zł|Rs\.?)"
LAKHS = r"[1-9]\d?(?:,\d\d)+,\d{3}"  # the Indian grouping: 12,34,567


def body_pattern(decimal: str, groups: Sequence[str]) -> str:
    """Return the pattern of the digits of a number, with a decimal mark and what may separate thousands.

    Digits that begin with a zero, such as 007, are codes and no numbers.
    """
    mark = re.escape(decimal)
    wholes = ["0", r"[1-9]\d*", *(rf"[1-9]\d{{0,2}}(?:{group}\d{{3}})+" for group in groups)]
    if "," in groups:
        wholes.append(LAKHS)
    return rf"(?:(?:{'|'.join(wholes)})(?:{mark}\d*)?|{mark}\d+)"


_BODY = "|".join(
    body_pattern(decimal, (other, f"[{BLANKS}]", f"[{APOSTROPHES}]"))
    for decimal, other in ((".", ","), (",", r"\."))
)
_LIKE_NUMBER = re.compile(
    rf"(?:[<>]=?|[≤≥])?[{BLANKS}]*(\(?)([+\-{MINUS}]?)[{BLANKS}]?(?:{CURRENCY}[{BLANKS}]*)?([+\-{MINUS}]?)"
    rf"(?:{_BODY})(?:[eE][+-]?\d+)?[{BLANKS}]*(?:{CURRENCY}|[%‰])?(-?)(\)?)",
    re.ASCII,
)


def looks_like_number(text: str) -> bool:
    """Return whether a text is a number by the grammar of the reader of files, whatever its marks mean.

    Units are left out: "12 Main Street" is a number with a unit only if other cells have the same one.

    Examples
    --------
    >>> [looks_like_number(text) for text in ("1.577,37 €", "-$5", "<0.05", "29,8 %")]
    [True, True, True, True]
    >>> [looks_like_number(text) for text in ("007", "C17", "1.2.3", "12 Main Street")]
    [False, False, False, False]
    """
    found = _LIKE_NUMBER.fullmatch(text.strip())
    if found is None:
        return False
    opening, *signs, closing = found.groups()
    return bool(opening) == bool(closing) and sum(map(bool, (opening, *signs))) <= 1  # as `split_numbers`


_NUMBER = r"[+-]?\d[\d.,]*"
_SPAN = r"y|yrs?|years?|w|wks?|weeks?|d|days?|h|hrs?|hours?|min|mins|minutes?|m|s|secs?|seconds?"
_SPANS = rf"(?:\d+(?:[.,]\d+)?\s*(?:{_SPAN})\.?[\s,]*)+"
_CLEAR_SPANS = rf".*\d\s*(?:h|hrs?|hours?|mins?|minutes?|days?|weeks?)\b.*|{_NUMBER}\s*\w+[\s,]*\d.*"
_PATTERNS: dict[TextFormat, str] = {
    "times or durations": (
        rf"\d{{1,4}}:[0-5]\d(?::[0-5]\d(?:[.,]\d+)?)?|P(?=[\dT])(?:\d+[YMWD])*(?:T(?:\d+[HMS])+)?|(?i:{_SPANS})"
    ),
    "quarters": r"(?i:\d{4}\s?[-/]?\s?Q[1-4]|(?:Q[1-4]|[1-4]Q)\s?[-/]?\s?(?:\d{4}|\d\d))",
    "months": r"(?:18|19|20)\d\d[-/.](?:0?[1-9]|1[0-2])|(?:0?[1-9]|1[0-2])[-/.](?:18|19|20)\d\d",
    "pairs of numbers": rf"{_NUMBER}\s*/\s*{_NUMBER}",
    "numbers with a unit": rf"{_NUMBER}\s*(?:{UNITS})",
}
_MOSTLY = 0.9  # of the texts, so that a few words such as "unknown" may stand between them


def find_text_format(texts: Sequence[str]) -> TextFormat | None:
    """Returns what the distinct texts of a column are if at least nine tenths of them have the same format.

    Examples
    --------
    >>> find_text_format(["120/80", "135/90"])
    'pairs of numbers'
    >>> find_text_format(["5 kg", "300 g"])
    'numbers with different units'
    >>> find_text_format(["C017", "C018"])
    """
    stripped = [text.strip() for text in texts]
    for form, pattern in _PATTERNS.items():
        matching = [text for text in stripped if re.fullmatch(pattern, text)]
        if not matching or len(matching) < _MOSTLY * len(stripped):
            continue
        if form == "times or durations" and not any(map(_is_clear, matching)):
            continue  # 12 m may be a length
        if form == "numbers with a unit" and len({_unit(text) for text in matching}) > 1:
            return "numbers with different units"
        return form
    return None


def _is_clear(text: str) -> bool:
    """Returns whether a text is a time or duration beyond doubt."""
    return ":" in text or text.startswith("P") or bool(re.fullmatch(_CLEAR_SPANS, text, re.IGNORECASE))


def _unit(text: str) -> str:
    return re.sub(rf"^{_NUMBER}\s*", "", text)


_DISTINCT_DATES, _MOSTLY_DATES = 3, 0.9  # distinct dates in digits, and their share among the cells; guesses
_DAYS_OF_MONTHS = np.array([0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


def are_numbered_dates(values: Floats | Integers, counts: Integers, least: int = _DISTINCT_DATES) -> bool:
    """Return whether whole numbers are dates, or dates with a time, such as 20240131 and 20240131093000.

    Among the numbers of eight digits one in a thousand is a date of these centuries, so that few of them are
    evidence. Years are those from 1600 to 2199, and 9900 to 9999, which stand for an open end.

    Parameters
    ----------
    values : array of shape (V,)
        The distinct numbers.
    counts : array of shape (V,)
        How often they occur.
    least : int
        The number of distinct dates that there must be.

    Examples
    --------
    >>> are_numbered_dates(np.array([20231230, 20240131, 20240229]), np.array([1, 1, 2]))
    True
    >>> are_numbered_dates(np.array([20231230, 20240131, 20240230]), np.array([1, 1, 2]))
    False
    """
    numbers = np.where((values > 1e7) & (values < 1e14), values, 0).astype(np.int64)
    seconds, minutes = numbers >= 10**13, (numbers >= 10**11) & (numbers < 10**12)
    days = np.where(seconds, numbers // 10**6, np.where(minutes, numbers // 10**4, numbers))
    times = np.where(seconds, numbers % 10**6, np.where(minutes, numbers % 10**4 * 100, 0))
    years, months = days // 10**4, days // 100 % 100
    valid = ((years >= 1600) & (years < 2200)) | ((years >= 9900) & (years < 10_000))
    valid &= (months >= 1) & (months <= 12) & (days % 100 >= 1)
    valid &= days % 100 <= _DAYS_OF_MONTHS[np.where(valid, months, 0)]
    valid &= (times // 10**4 < 24) & (times // 100 % 100 < 60) & (times % 100 < 60)
    return bool(valid.sum() >= least and counts[valid].sum() >= _MOSTLY_DATES * counts.sum())
