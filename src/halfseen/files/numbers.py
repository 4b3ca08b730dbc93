"""Numbers with separators, currencies, percent signs, units and detection limits: read and written.

All functions operate on the distinct texts of a column, by Arrow kernels. `split_numbers` cuts texts into the
parts of a number, `choose_marks` decides what points and commas mean, `plain_texts` returns the numbers in
the notation of Arrow, and `NumberFormat.write` writes numbers as the column does.

``1,234`` may be 1234 or 1.234. Every reading is weighed by the cells of the column that are numbers under it.
If both fit as many, the sizes of the cells without a mark decide, then the other columns of the file, and
then conventions. Whenever both readings are possible, a sentence for the user says which one was chosen and
how many cells speak for each.
"""

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halfseen._arrays import Floats, Integers
from halfseen.errors import TableError
from halfseen.files.distinct import EMPTY, Mask, any_match, as_mask, middle, most_frequent, shown
from halfseen.files.missing_codes import is_common_code, show_number
from halfseen.files.text_formats import APOSTROPHES, BLANKS, CURRENCY, LAKHS, MINUS, UNITS, body_pattern
from halfseen.words import Note

if TYPE_CHECKING:  # `rules` imports the formats of numbers
    from halfseen.files.rules import Decision, Draft

Negative = Literal["outer", "inner", "parentheses", "trailing"]

_MULTIPLES = "k|K|M|B|bn|mn|Mio\\.?|Mrd\\.?"
_PER = r"(?:/(?:l|L|dl|dL|ml|mL|h|s|min|d|kg|g|m²|m³|km²|mol))?"
UNIT = rf"(?:{CURRENCY}|[%‰]|(?:{UNITS}){_PER})"
"""What may follow a number without a blank between."""

_UNIT_WORD = r"[^\d\s!-/:-@\[-`{-~][^\d<>=()\[\]{}\"]*"
_LONGEST_UNIT = 16  # letters; longer texts after a number are rather remarks, which is a guess
_DIGITS = rf"\d.,{APOSTROPHES}"
_BEFORE = (  # what may stand before the first digit
    rf"^(?P<limit>(?:[<>]=?|[≤≥])?)[{BLANKS}]*(?P<open>\(?)(?P<sign>[+\-{MINUS}]?)[{BLANKS}]?"
    rf"(?P<before>(?:{CURRENCY}[{BLANKS}]*)?)(?P<inner>[+\-{MINUS}]?)$"
)
_AFTER = (  # what may stand after the last
    rf"^(?P<exponent>(?:[eE][+-]?\d+)?)"
    rf"(?P<after>(?:[{BLANKS}]*(?:{UNIT}|{_MULTIPLES})|[{BLANKS}]+{_UNIT_WORD})?)"
    r"(?P<trail>-?)(?P<close>\)?)$"
)
_TO_FIRST_DIGIT = r"^(?:[^\d.,]*(?:Fr|kr|Rs)\.)?[^\d.,]*"
_TO_LAST_DIGIT = rf"^[{_DIGITS}]*(?:[{BLANKS}]+[{_DIGITS}]+)*"
_FROM_LAST_DIGIT = rf"[{BLANKS}]*(?:[^{_DIGITS}{BLANKS}].*)?$"
_SIGNS: dict[str, Negative] = {
    "sign": "outer", "inner": "inner", "open": "parentheses", "trail": "trailing",
}  # fmt: skip
_EXAMPLE = re.compile(rf"1(?P<group>[.,{APOSTROPHES}{BLANKS}]?)234(?:(?P<decimal>[.,])(?P<tail>\d+))?")


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
    """How the numbers of a column are written around their digits."""

    # The decimal mark, and what stands between thousands: nothing if it is empty.
    decimal: str = "."
    group: str = ""
    group_from: int = 4  # the number of digits before the decimal mark from which thousands are separated
    # Currency, percent sign or unit, with its blanks.
    before: str = ""
    after: str = ""
    negative: Negative = "outer"  # where a negative number shows it: `-$5`, `$-5`, `($5)` or `5-`
    plus: bool = False  # whether positive numbers have a plus sign
    # Whether digits are grouped as in India: three at the end, and two in every other group.
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
        return pc.binary_join_element_wise(parts[0], before, parts[1], digits, after, parts[2], EMPTY)

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
        elif re.match(CURRENCY, unit):
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
    """The distinct texts of a column, cut into the parts of a number."""

    parts: dict[str, pa.Array]  # the groups of the pattern; null where a text is not a number
    counts: Integers  # how many cells hold each text
    # The texts that are numbers with the usual currency or unit of the column, whatever the separators.
    valid: Mask
    fits: dict[Marks, Mask]  # the texts that are numbers under each reading of the separators

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
        unit = most_frequent(self.parts["before"], self.counts, self.valid).strip(BLANKS)
        unit = unit or most_frequent(self.parts["after"], self.counts, self.valid).strip(BLANKS)
        return re.fullmatch(CURRENCY, unit) is not None


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
        valid &= as_mask(pc.equal(bare, most_frequent(bare, counts, valid)))
    body = parts["body"]
    readings = (Marks("."), Marks(",")) if declared is None else (declared,)
    fits = {
        marks: valid
        & as_mask(pc.match_substring_regex(body, f"^{body_pattern(marks.decimal, marks.groups)}$"))
        for marks in readings
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


def plain_texts(numbers: Numbers, marks: Marks) -> pa.Array:
    """Return the numbers with a point and a minus sign, null where a text is none."""
    parts = numbers.parts
    digits = pc.replace_substring_regex(parts["body"], f"[{BLANKS}{APOSTROPHES}]", "")
    digits = pc.replace_substring(digits, "." if marks.decimal == "," else ",", "")
    digits = pc.replace_substring(digits, ",", ".")
    minus = np.zeros(len(digits), dtype=bool)
    for name in _SIGNS:
        minus |= _is_minus(parts[name])
    sign = pc.if_else(pa.array(minus), pa.scalar("-", pa.large_string()), EMPTY)
    texts = pc.binary_join_element_wise(sign, digits, parts["exponent"], EMPTY)
    return pc.if_else(pa.array(numbers.fits[marks]), texts, pa.scalar(None, pa.large_string()))


def number_format(numbers: Numbers, marks: Marks) -> NumberFormat:
    """Return how the numbers of a column are written."""
    parts, counts, fits = numbers.parts, numbers.counts, numbers.fits[marks]
    group, group_from, lakhs = _most_frequent_grouping(parts["body"], counts, fits, marks)
    before, after = (most_frequent(parts[name], counts, fits) for name in ("before", "after"))
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


def _most_frequent_grouping(
    body: pa.Array, counts: Integers, fits: Mask, marks: Marks
) -> tuple[str, int, bool]:
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
    by_lakhs = as_mask(pc.match_substring_regex(wholes, f"^{LAKHS}$")) & fits
    by_thousands = grouped & long & ~by_lakhs & as_mask(pc.greater(digits, 5))  # 12,345 is written alike
    return (
        most_frequent(found.field("group"), counts, grouped),
        5 if without[0] > with_mark[0] else 4,
        bool(counts[by_lakhs].sum() > counts[by_thousands].sum()),
    )


def _is_minus(part: pa.Array) -> Mask:
    return as_mask(pc.is_in(part, value_set=pa.array(["-", MINUS, "("], pa.large_string())))


# --------------------------------------------------------------------------------------- which mark is which

_POINT, _COMMA = Marks("."), Marks(",")

_FAR, _NEAR = 100, 10
"""Cells that are at least `_FAR` times as large as the marked ones with decimals speak for thousands, those
that are at most `_NEAR` times as large for decimals. The two readings differ by a factor of 1000, so these
are its thirds, rounded; they were not tuned on data."""

_APART = 300
"""Thousands lose against decimals if the least is so many times larger than all cells without a mark. Small
whole numbers beside thousands are usual, so this is stricter than `_FAR`; it is a guess."""

_FEW = 0.1
"""Cells fewer than this share of the marked ones decide only with a sentence for the user; a guess."""


@dataclass(frozen=True)
class MarkChoice:
    """How the marks of a column are read."""

    # The reading; None if every reading puts numbers about a thousand times away from each other.
    marks: Marks | None
    note: Note | None = None  # a sentence for the user if another reading is possible
    # Whether the sizes of other cells speak against a reading that the rest of the file proves.
    contested: bool = False


@dataclass(frozen=True)
class MarkEvidence:
    """What the cells of a column say about points and commas."""

    # The absolute values of the distinct texts under each reading, NaN where they are no numbers.
    sizes: dict[Marks, Floats]
    counts: Integers  # how many cells hold each text
    marked: Mask  # the texts that both readings take for different numbers

    @property
    def thousands(self) -> Marks:
        """The reading under which most marked cells have separators of thousands."""
        larger = self.sizes[_POINT] > self.sizes[_COMMA]
        by_point = self.counts[self.marked & larger].sum()
        return _POINT if 2 * by_point >= self.counts[self.marked].sum() else _COMMA

    @property
    def decimals(self) -> Marks:
        """The other reading."""
        return _COMMA if self.thousands == _POINT else _POINT

    @property
    def has_both_marks(self) -> bool:
        """Whether one marked cell has a point and another one a comma."""
        larger = (self.sizes[_POINT] > self.sizes[_COMMA])[self.marked]
        return bool(larger.any() and not larger.all())

    @property
    def plain(self) -> Mask:
        """The texts without a mark, except zero and usual codes for missing values."""
        same = self.sizes[_POINT] == self.sizes[_COMMA]
        return same & (self.sizes[_POINT] > 0) & ~is_common_code(self.sizes[_POINT])

    def supporters(self, marks: Marks) -> Mask:
        """Return the texts without a mark that support a reading: marked ones have the same size under it."""
        typical = middle(self.sizes[self.decimals][self.marked], self.counts[self.marked])
        with np.errstate(invalid="ignore"):
            if marks == self.thousands:
                return self.plain & (self.sizes[_POINT] >= _FAR * typical)
            return self.plain & (self.sizes[_POINT] <= _NEAR * typical)

    def count(self, mask: Mask) -> int:
        """Return the number of cells with some texts."""
        return int(self.counts[mask].sum())

    @property
    def favours_thousands(self) -> bool:
        """Whether decimals would put the marked cells about a thousand times away from most others."""
        return self.count(self.supporters(self.thousands)) > self.count(self.supporters(self.decimals))

    @property
    def favours_decimals(self) -> bool:
        """Whether thousands would put the marked cells about a thousand times away from all others."""
        plain = self.plain
        if not plain.any() or self.count(plain) < _FEW * self.count(self.marked):
            return False
        least = self.sizes[self.thousands][self.marked].min()
        return bool(least >= _APART * self.sizes[_POINT][plain].max())


def weigh_readings(numbers: Numbers) -> MarkEvidence:
    """Return what the cells of a column say about points and commas."""
    sizes = {marks: _sizes(numbers, marks) for marks in (_POINT, _COMMA)}
    both = numbers.fits[_POINT] & numbers.fits[_COMMA]
    return MarkEvidence(sizes, numbers.counts, both & (sizes[_POINT] != sizes[_COMMA]))


def _sizes(numbers: Numbers, marks: Marks) -> Floats:
    values = plain_texts(numbers, marks).cast(pa.float64())
    return np.abs(pc.fill_null(values, np.nan).to_numpy(zero_copy_only=False))


def choose_marks(draft: "Draft", numbers: Numbers, decision: "Decision") -> MarkChoice:
    """Return how the points and commas of a column are read.

    Parameters
    ----------
    draft : "Draft"
        The column.
    numbers : Numbers
        Its distinct texts, cut into the parts of a number.
    decision : "Decision"
        What the rest of the file says.
    """
    if len(numbers.fits) == 1:  # declared by the user
        return MarkChoice(next(iter(numbers.fits)))
    evidence = weigh_readings(numbers)
    weights = {marks: numbers.weight(marks) for marks in (_POINT, _COMMA)}
    best = max(weights, key=lambda marks: weights[marks])
    if not evidence.marked.any():
        return MarkChoice(best)
    if weights[_POINT] != weights[_COMMA]:
        why = _weak_proof(draft, numbers, evidence, best)
        return MarkChoice(best, None if why is None else _describe(draft, evidence, best, why))
    if decision.declared_decimal:
        return MarkChoice(Marks(str(decision.decimal)))
    if evidence.has_both_marks:
        return MarkChoice(None)
    marks, why = _decide(numbers, evidence, decision, plain=draft.kind == "float")
    contested = evidence.favours_thousands and marks != evidence.thousands
    return MarkChoice(marks, _describe(draft, evidence, marks, why), contested)


def _decide(
    numbers: Numbers, evidence: MarkEvidence, decision: "Decision", *, plain: bool
) -> tuple[Marks, str]:
    """Return a reading that fits as many cells as the other one, and the reason."""
    proved = None if decision.decimal is None else Marks(decision.decimal)
    if plain and proved == _POINT:  # 1.234 is the plain notation of a number in such a file
        return _POINT, "as in the other columns"
    if evidence.favours_thousands:
        return evidence.thousands, "as most other cells are of that size"
    if proved == evidence.thousands and evidence.favours_decimals:
        return evidence.decimals, "as the other cells are of that size"
    if proved is not None:
        return proved, "as in the other columns"
    if numbers.has_currency:
        return evidence.thousands, "as usual for amounts of money"
    if decision.delimiter == ",":
        return _POINT, "as commas separate the cells"
    return evidence.decimals, "as the file is ambiguous"


def _weak_proof(draft: "Draft", numbers: Numbers, evidence: MarkEvidence, best: Marks) -> str | None:
    """Return the reason for a reading that only few cells prove, and these without the mark in question."""
    other = _COMMA if best == _POINT else _POINT
    proving = numbers.fits[best] & ~numbers.fits[other]
    mark = "," if evidence.thousands == _POINT else "."
    showing = as_mask(pc.match_substring(numbers.parts["body"], mark))
    n_proving, n_marked = evidence.count(proving), evidence.count(evidence.marked)
    if (proving & showing).any() or n_proving >= _FEW * n_marked:
        return None
    return f"as {_count_cells(n_proving)} such as {_example(draft, proving)!r} {_show(n_proving)}"


def _show(count: int) -> str:
    return "shows" if count == 1 else "show"


def _count_cells(count: int) -> str:
    return f"{count:,} {'cell' if count == 1 else 'cells'}"


def _example(draft: "Draft", texts: Mask) -> str:
    assert draft.texts is not None
    return str(draft.texts.dictionary[int(np.flatnonzero(texts)[0])].as_py())


def _describe(draft: "Draft", evidence: MarkEvidence, marks: Marks, why: str) -> Note:
    """Return a sentence on how marked cells are read, and on the cells that speak for each reading."""
    other = evidence.decimals if marks == evidence.thousands else evidence.thousands
    place = int(np.flatnonzero(evidence.marked)[0])
    read, instead = (show_number(float(evidence.sizes[one][place])) for one in (marks, other))
    count = evidence.count(evidence.marked)
    mark = "," if evidence.thousands == _POINT else "."
    option = f"1234{mark}567" if marks == evidence.thousands else f"1{mark}234"
    text = (
        f"column {draft.name!r}: {_count_cells(count)} like {_example(draft, evidence.marked)!r} "
        f"{'is' if count == 1 else 'are'} read as {read} ({why}), which could also be {instead}"
    )
    sides = {read: evidence.supporters(marks), instead: evidence.supporters(other)}
    (first, most), (second, fewer) = sorted(sides.items(), key=lambda side: -evidence.count(side[1]))
    if most.any():
        n_most = evidence.count(most)
        text += (
            f"; {_count_cells(n_most)} without a mark, such as {_example(draft, most)!r}, "
            f"{'is' if n_most == 1 else 'are'} of the size of {first}, and {evidence.count(fewer):,} of the "
            f"size of {second}"
        )
    text += f"; if {instead} is meant, use --number-format {shlex.quote(f'{draft.name}={option}')}"
    return Note(text, "harmful")
