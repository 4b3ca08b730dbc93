"""How well columns are filled, judged by hidden known values, and which are left empty because of that.

Skill is the part of the baseline's loss that an imputer saves: squared errors against those of the mean, or
wrong levels against those of the most frequent level. Verdicts depend on the data and the seed only.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from halfseen.data.columns import KINDS, Column
from halfseen.data.frames import Floats

GOOD_SKILL, SOME_SKILL = 0.5, 0.1
"""The skill from which a column counts as filled well, or roughly; both are guessed."""

MIN_CELLS = 20
"""With fewer hidden values, a column has no verdict."""

CELLS_TO_ACT = 30
"""With fewer hidden values, which are little evidence, a column is left empty only on request."""

Grade = Literal["good", "fair", "poor"]


@dataclass(frozen=True)
class ColumnCheck:
    """The hidden values of one column, compared with the values imputed for them.

    Attributes
    ----------
    name : str
        The column.
    measure : {"error", "accuracy"}
        Root mean squared error in standard deviations of the shown values, or the share of levels that were
        filled right.
    n_cells : int
        The number of hidden values.
    value, baseline : float
        The measure of the filled values, and of the mean or the most frequent level of the shown values.
    skill : float
        The relative reduction of the baseline's squared error, or of its number of wrong levels: 1 is
        perfect, and 0 is no better than the baseline.
    skill_low : float
        The lower end of an approximate 95% interval of the skill.
    """

    name: str
    measure: str
    n_cells: int
    value: float
    baseline: float
    skill: float
    skill_low: float

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
    how = (
        f"is filled no better than by {than}" if check.grade == "poor" else "is filled with too little skill"
    )
    return replace(
        column,
        left="unreliable",
        evidence=f"{how} ({check.evidence}, of {check.n_cells} hidden known values)",
    )
