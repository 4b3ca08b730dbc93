"""Columns whose missing cells are left empty: no imputed value would be sensible, or none is reliable.

Reliability is measured on hidden known values.
Skill is the part of the baseline's loss that an imputer saves: squared errors against those of the mean, or
wrong levels against those of the most frequent level. Verdicts depend on the data and the seed only.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from halfseen._arrays import Floats
from halfseen.data.columns import KINDS, LEVELLED, Cause, Column
from halfseen.files.text_formats import ADVICE, TextFormat, find_text_format
from halfseen.words import Note, Severity

SEPARATE = 5  # up to this number, columns with the same cause are announced separately
NAMED = 3  # otherwise, this number of columns is named

_HAVE: dict[Cause, str] = {
    "empty": "have no observed value",
    "single": "have one observed value each",
    "identifier": "look like identifiers",
    "text": "look like free text",
    "unsupported": "hold values that no model can see",
    "dates": "contain dates that are stored as numbers of the form 20240131",
    "unreliable": "are filled too unreliably, judged by hidden known values",
}
_HAS: dict[Cause, str] = {
    "empty": "has no observed value",
    "identifier": "looks like an identifier",
    "text": "looks like free text",
    "dates": "contains dates that are stored as numbers of the form 20240131",
    "asked": "is not imputed, as the schema requires",
}


def find_cause(
    column: Column, n_distinct: int, n_observed: int, *, named: bool, are_dates: bool = False
) -> Cause | None:
    """Returns why the missing cells of a column are left empty, None if they are imputed.

    Parameters
    ----------
    column : Column
        Its kind, and whether the user wants it to be imputed.
    n_distinct : int
        How many distinct values were observed.
    n_observed : int
        How many cells were observed.
    named : bool
        Whether the table is a data frame; columns of numeric arrays are imputed unless the user forbids it.
    are_dates : bool
        Whether its numbers are dates in digits, between which not every number is a date.
    """
    cause = "dates" if are_dates else _inherent_cause(column, n_distinct, n_observed)
    if cause not in (None, "dates") and column.fill_code is None:
        return cause  # there is nothing to fill it with
    if column.fill is not None:
        return None if column.fill else "asked"
    return cause if named else None


def _inherent_cause(column: Column, n_distinct: int, n_observed: int) -> Cause | None:
    if column.kind == "all-missing":
        return "empty"
    if column.kind in ("identifier", "text", "unsupported"):
        return column.kind
    if column.kind == "constant" and n_observed == 1 and column.n_missing:
        return "single"  # one cell is no evidence that all cells are equal
    levelled = column.kind in LEVELLED or column.storage in ("label", "boolean", "time")
    return "single" if levelled and column.levels is not None and n_distinct == 1 else None


def explain_left(column: Column) -> str:
    """Returns why the missing cells of a column are left empty, as the predicate of a sentence."""
    assert column.left is not None
    return _has(column, column.left)


def _has(column: Column, cause: Cause) -> str:
    if cause == "single":
        assert column.levels is not None
        declared = ", ".join(column.show(level) for level in column.levels[:6])
        of = f", of the levels {declared}" if len(column.levels) > 1 else ""
        return f"has one observed value, {column.show(column.levels[int(column.fill_code)])}{of}"
    if cause == "unsupported":
        return f"has the type {column.dtype}, which is not supported"
    if cause == "unreliable":
        return column.evidence
    if cause == "identifier" and column.n_groups is not None:
        return f"is a repeated identifier, of {column.n_groups:,} groups of rows"
    if column.format is not None:
        assert column.levels is not None
        most_frequent = column.levels[0]  # it may be a word for missing values
        known = find_text_format([str(most_frequent)]) is not None
        example = f" such as {column.show(most_frequent)}" if known else ""
        return f"contains {column.format}{example}, which are not read as numbers or dates"
    return _HAS[cause]


def announcements(columns: Sequence[Column], *, named: bool) -> list[Note]:
    """Returns notes for the user: one sentence for each column, or for several columns with the same note.

    The notes are about columns with missing cells that are left empty or imputed without a model. There is no
    note if the user requested this, or if a column of a numeric array has a single value. Columns left empty
    are harmful, as their user expects them to be imputed.
    """
    groups: dict[tuple[Cause, str, TextFormat | None], list[Column]] = {}
    for column in columns:
        if column.derived is not None:
            continue
        cause, how = _treatment(column)
        if cause in (None, "asked") or not column.n_missing or (cause == "single" and not named):
            continue
        groups.setdefault((cause, how, column.format), []).append(column)
    notes = []
    for (cause, how, form), group in groups.items():
        severity: Severity = "check" if group[0].left is None else "harmful"
        if len(group) > SEPARATE:
            listed = shortened([column.name for column in group])
            cells = f"their missing cells are {how}{_hint(group)}"
            what = _HAVE[cause] if form is None else f"contain {form}, which are not read as numbers or dates"
            notes.append(Note(f"{len(group):,} columns {what}; {cells}: {listed}.", severity))
        else:
            notes += [Note(_announce(column, cause, how), severity) for column in group]
    return notes


def _announce(column: Column, cause: Cause, how: str) -> str:
    one = column.n_missing == 1
    cells = f"its {column.n_missing:,} missing {'cell is' if one else 'cells are'} {how}"
    return f"Column {column.name!r} {_has(column, cause)}; {cells}{_hint([column])}."


def _hint(columns: Sequence[Column]) -> str:
    if columns[0].format is not None and columns[0].left is not None:
        return f' (to impute them, {ADVICE[columns[0].format]}, or use "kind": "categorical" in the schema)'
    if columns[0].left == "dates":
        return ' (to impute them, convert the values to dates; "fill": true in the schema imputes numbers)'
    if columns[0].left == "unreliable":
        return ' (--fill-all, or "fill": true in the schema, imputes them)'
    fillable = all(column.left is not None and column.fill_code is not None for column in columns)
    return ' ("fill": true in the schema imputes them)' if fillable else ""


def shortened(names: Sequence[str]) -> str:
    """Returns the first names of a list, with the number of the others."""
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _treatment(column: Column) -> tuple[Cause | None, str]:
    """Returns the cause of the note on a column, if any, and how its missing cells are treated."""
    if column.left is not None:
        return column.left, "left empty"
    if column.kind == "all-missing":
        return "empty", f"imputed with {column.fill_code:g}"
    if column.kind == "constant":
        return "single", "imputed with it"
    if column.kind in ("identifier", "text"):
        return column.kind, "imputed with the most frequent value"
    return None, ""


GOOD_SKILL, SOME_SKILL = 0.5, 0.1
"""The skill from which a column counts as filled well, or roughly; both are guessed."""

MIN_CELLS = 20
"""With fewer hidden values, a column has no verdict."""

CELLS_TO_ACT = 30
"""With fewer hidden values, which are little evidence, a column is left empty only on request."""

Grade = Literal["good", "fair", "poor"]


@dataclass(frozen=True)
class ColumnCheck:
    """The hidden values of one column, compared with the values imputed for them."""

    name: str  # the column
    # "error", the root mean squared error in standard deviations of the shown values, or "accuracy", the
    # share of levels that were filled right.
    measure: str
    n_cells: int  # the number of hidden values
    # The measure of the filled values, and of the mean or the most frequent level of the shown values.
    value: float
    baseline: float
    # The relative reduction of the baseline's squared error, or of its number of wrong levels: 1 is perfect,
    # 0 is no better than the baseline.
    skill: float
    skill_low: float  # the lower end of an approximate 95% interval of the skill

    @classmethod
    def of(cls, name: str, measure: str, loss: Floats, baseline: Floats) -> "ColumnCheck | None":
        """Compares the losses (N) of imputed values with those of the baseline.

        Losses are squared errors, or 1 for a wrong level. The result is None if there are too few, if one is
        not finite, or if the baseline is always right.
        """
        if len(loss) < MIN_CELLS or not np.isfinite([loss, baseline]).all() or baseline.mean() == 0:
            return None
        value, usual = float(loss.mean()), float(baseline.mean())
        skill, low = estimate_skill(loss, baseline)
        if measure == "accuracy":
            return cls(name, measure, len(loss), 1 - value, 1 - usual, skill, low)
        return cls(name, measure, len(loss), value**0.5, usual**0.5, skill, low)

    @property
    def grade(self) -> Grade:
        """The verdict: ``"good"``, ``"fair"`` or ``"poor"``."""
        return grade(self.skill, self.skill_low)

    @property
    def is_unclear(self) -> bool:
        """Whether the skill would do, but there are too few hidden values to tell it from zero."""
        return is_unclear(self.skill, self.skill_low)

    @property
    def verdict(self) -> str:
        """The grade, or ``"unclear"``."""
        return name_verdict(self.skill, self.skill_low)

    @property
    def evidence(self) -> str:
        """The measure and that of the baseline, in words."""
        return evidence_words(self.measure, self.value, self.baseline)

    def is_unreliable(self, min_skill: float = SOME_SKILL) -> bool:
        """Returns whether the skill is below a limit, or is not certainly positive."""
        return self.skill < min_skill or self.skill_low <= 0


def estimate_skill(loss: Floats, baseline: Floats) -> tuple[float, float]:
    """Returns 1 minus the ratio of mean losses, and the lower end of its approximate 95% interval.

    The interval is that of the logarithm of the ratio, whose distribution is nearly symmetric.
    """
    ratio = loss.mean() / baseline.mean()
    if ratio == 0:
        return 1.0, 1.0
    error = (loss - ratio * baseline).std(ddof=1) / np.sqrt(len(loss)) / loss.mean()
    return float(1 - ratio), float(1 - ratio * np.exp(1.96 * error))


def grade(skill: float, skill_low: float) -> Grade:
    """Returns the verdict on a column, given its measured skill and the lower limit of the skill."""
    if skill >= GOOD_SKILL and skill_low >= SOME_SKILL:
        return "good"
    return "fair" if skill >= SOME_SKILL and skill_low > 0 else "poor"


def is_unclear(skill: float, skill_low: float) -> bool:
    """Returns whether a measured skill would do, but is not certainly positive."""
    return skill >= SOME_SKILL and skill_low <= 0


def name_verdict(skill: float, skill_low: float) -> str:
    """Returns the grade of a measured skill, or ``"unclear"`` if there are too few hidden values to tell."""
    return "unclear" if is_unclear(skill, skill_low) else grade(skill, skill_low)


def baseline_words(measure: str) -> str:
    """Returns what a column is compared with, by its measure."""
    return "the mean" if measure == "error" else "the most frequent level"


def evidence_words(measure: str, value: float, baseline: float) -> str:
    """Returns the measure of a column and that of its baseline, in words."""
    against = baseline_words(measure)
    if measure == "error":
        return f"typical error {value:.2f} standard deviations, compared with {baseline:.2f} for {against}"
    return f"{value:.0%} correct, compared with {baseline:.0%} for {against}"


def leave_unreliable(
    columns: Sequence[Column],
    checks: Mapping[str, ColumnCheck],
    min_skill: float | None,
    at_chance: Collection[str] = (),
) -> tuple[Column, ...]:
    """Returns the columns, of which those that are filled unreliably are left empty.

    Parameters
    ----------
    columns : sequence of Column
        All columns. Those that the user wants to be filled are filled.
    checks : mapping of str to ColumnCheck
        By name, how well columns are filled.
    min_skill : float or None
        Columns of any kind are left empty if their skill is below this, or may be zero; none if it is None.
    at_chance : collection of str
        Kinds of columns that are left empty if they have next to no skill in enough hidden values.
    """
    assert set(at_chance) <= set(KINDS)
    return tuple(_left_if(column, checks.get(column.name), min_skill, at_chance) for column in columns)


def _left_if(
    column: Column, check: ColumnCheck | None, min_skill: float | None, at_chance: Collection[str]
) -> Column:
    if check is None or column.left is not None or column.fill is True or column.derived is not None:
        return column
    asked = min_skill is not None and check.is_unreliable(min_skill)
    chance = column.kind in at_chance and check.skill < SOME_SKILL and check.n_cells >= CELLS_TO_ACT
    if not asked and not chance:
        return column
    than = baseline_words(check.measure)
    if check.is_unclear:
        how = f"is not clearly filled better than by {than}"
    elif check.grade == "poor":
        how = f"is filled no better than by {than}"
    else:
        how = "is filled with too little skill"
    return replace(
        column,
        left="unreliable",
        evidence=f"{how} ({check.evidence}, of {check.n_cells} hidden known values)",
    )
