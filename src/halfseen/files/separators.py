"""The choice between two readings of points and commas in numbers, such as ``1,234``: 1234 or 1.234.

Every reading is weighed by the cells of the column that are numbers under it. If both fit as many, the sizes
of the cells without a mark decide, then the other columns of the file, and then conventions. Whenever both
readings are possible, a sentence for the user says which one was chosen and how many cells speak for each.
"""

import shlex
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from halfseen.files.distinct import Integers, Mask, as_mask, middle
from halfseen.files.drafts import Decision, Draft
from halfseen.files.numbers import Marks, Numbers, plain_texts
from halfseen.files.sentinels import is_usual_code, show_number

_POINT, _COMMA = Marks("."), Marks(",")

_FAR, _NEAR = 100, 10
"""Cells that are at least `_FAR` times as large as the marked ones with decimals speak for thousands, those
that are at most `_NEAR` times as large for decimals. The two readings differ by a factor of 1000, so these
are its thirds, rounded; they were not tuned on data."""

_APART = 300
"""Thousands lose against decimals if the least is so many times larger than all cells without a mark. Small
whole numbers beside thousands are usual, so this is stricter than `_FAR`; it is a guess."""

_FEW = 0.1
"""Cells that are fewer than this share of the marked ones decide only with a sentence for the user."""


@dataclass(frozen=True)
class MarkChoice:
    """How the marks of a column are read.

    Parameters
    ----------
    marks : Marks or None
        The reading; None if every reading puts numbers about a thousand times away from each other.
    note : str or None
        A sentence for the user if another reading is possible.
    contested : bool
        Whether the sizes of other cells speak against a reading that the rest of the file proves.
    """

    marks: Marks | None
    note: str | None = None
    contested: bool = False


@dataclass(frozen=True)
class MarkEvidence:
    """What the cells of a column say about points and commas.

    Parameters
    ----------
    sizes : dict of Marks to numpy.ndarray
        The absolute values of the distinct texts under each reading, NaN where they are no numbers.
    counts : numpy.ndarray
        How many cells hold each text.
    marked : numpy.ndarray
        The texts that both readings take for different numbers.
    """

    sizes: dict[Marks, npt.NDArray[np.float64]]
    counts: Integers
    marked: Mask

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
        return same & (self.sizes[_POINT] > 0) & ~is_usual_code(self.sizes[_POINT])

    def speakers(self, marks: Marks) -> Mask:
        """Return the texts without a mark that are of the size of the marked ones under a reading."""
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
        return self.count(self.speakers(self.thousands)) > self.count(self.speakers(self.decimals))

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


def _sizes(numbers: Numbers, marks: Marks) -> npt.NDArray[np.float64]:
    values = plain_texts(numbers, marks).cast(pa.float64())
    return np.abs(pc.fill_null(values, np.nan).to_numpy(zero_copy_only=False))


def choose_marks(draft: Draft, numbers: Numbers, decision: Decision) -> MarkChoice:
    """Return how the points and commas of a column are read.

    Parameters
    ----------
    draft : Draft
        The column.
    numbers : Numbers
        Its distinct texts, cut into the parts of a number.
    decision : Decision
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
    numbers: Numbers, evidence: MarkEvidence, decision: Decision, *, plain: bool
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


def _weak_proof(draft: Draft, numbers: Numbers, evidence: MarkEvidence, best: Marks) -> str | None:
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


def _example(draft: Draft, texts: Mask) -> str:
    assert draft.texts is not None
    return str(draft.texts.dictionary[int(np.flatnonzero(texts)[0])].as_py())


def _describe(draft: Draft, evidence: MarkEvidence, marks: Marks, why: str) -> str:
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
    sides = {read: evidence.speakers(marks), instead: evidence.speakers(other)}
    (first, most), (second, fewer) = sorted(sides.items(), key=lambda side: -evidence.count(side[1]))
    if most.any():
        n_most = evidence.count(most)
        text += (
            f"; {_count_cells(n_most)} without a mark, such as {_example(draft, most)!r}, "
            f"{'is' if n_most == 1 else 'are'} of the size of {first}, and {evidence.count(fewer):,} of the "
            f"size of {second}"
        )
    return f"{text}; if {instead} is meant, use --number-format {shlex.quote(f'{draft.name}={option}')}"
