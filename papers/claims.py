"""The claims of an experiment, declared before it runs, and their verdicts.

A claim is *met* or *not met* on the runs that it concerns, and *not testable* when the chosen scale has none
of them. A run that failed, or gave a number that is not finite, counts against the model that made it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student_t

Arrays = Mapping[str, npt.NDArray[Any]]
Outcome = Literal["met", "not met", "not testable"]
Setting = Mapping[str, Any]


@dataclass(frozen=True)
class Published:
    """A number from a paper, with the spread over its repetitions and where it stands."""

    mean: float
    sd: float | None = None
    label: str = ""


@dataclass(frozen=True)
class Cell:
    """One run: a model on a setting with a seed; scores, or the error that it ended with; by which code.

    What pictures are drawn from is in `arrays`.
    """

    setting: Setting
    model: str
    seed: int
    scores: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None
    seconds: float = 0.0
    code: str = ""
    arrays: Arrays = field(default_factory=dict, repr=False, compare=False)

    @property
    def failed(self) -> bool:
        """Whether the run raised, or gave a score that is not a finite number."""
        return self.error is not None or not all(np.isfinite(score) for score in self.scores.values())


@dataclass(frozen=True)
class Verdict:
    """The outcome of a claim, and the numbers behind it."""

    claim: str
    outcome: Outcome
    evidence: str


class ClaimEvidence(Protocol):
    """What a claim is judged by: runs, the paper's numbers, and which way a metric is better."""

    @property
    def cells(self) -> Sequence[Cell]:
        """The runs."""

    def published(self, setting: Setting, model: str, metric: str) -> Published | None:
        """Returns the paper's number for a model on a setting, if it has one."""

    def sign(self, metric: str) -> int:
        """Returns 1 if more of the metric is better, -1 if less is."""


@dataclass(frozen=True)
class Better:
    """One model is better than another by at least `by`, on average over the same data.

    Where the other model failed and this one did not, this one has won, and the pair is left out of the mean.

    Examples
    --------
    >>> str(Better("em", "mean", on="r2", by=0.05))
    'em is better than mean by at least 0.05 in r2'
    """

    model: str
    other: str
    on: str
    by: float = 0.0
    where: Setting = field(default_factory=dict)

    def __str__(self) -> str:
        margin = f" by at least {self.by:g}" if self.by else ""
        return f"{self.model} is better than {self.other}{margin} in {self.on}{_condition(self.where)}"

    def judge(self, evidence: ClaimEvidence) -> Verdict:
        """Returns the verdict on these runs."""
        ours = _runs(evidence, self.model, self.where)
        theirs = {_data(cell): cell for cell in _runs(evidence, self.other, self.where)}
        pairs = [(cell, theirs[_data(cell)]) for cell in ours if _data(cell) in theirs]
        if not pairs:
            return Verdict(str(self), "not testable", "no runs of both")
        failures = sum(cell.failed for cell, _ in pairs)
        if failures:
            return Verdict(str(self), "not met", f"{failures} of {len(pairs)} runs failed")
        gains = [
            evidence.sign(self.on) * (cell.scores[self.on] - other.scores[self.on])
            for cell, other in pairs
            if not other.failed
        ]
        if not gains:
            return Verdict(str(self), "met", f"every run of {self.other} failed")
        gain = fmean(gains)
        won = f"better in {sum(g > 0 for g in gains)} of {len(gains)} runs"
        shown = f"{gain:+.4f}{_half_width(gains)} on average, {won}"
        good = gain > 0 if self.by == 0 else gain >= self.by
        return Verdict(str(self), "met" if good else "not met", shown)


@dataclass(frozen=True)
class AtMostShare:
    """The mean score of a model is at most a share of that of another, on the same data; less is better.

    Examples
    --------
    >>> str(AtMostShare("corrected", "plain", on="drift", share=1 / 3))
    'corrected has at most 0.33 of the drift of plain'
    """

    model: str
    other: str
    on: str
    share: float
    where: Setting = field(default_factory=dict)

    def __str__(self) -> str:
        return (
            f"{self.model} has at most {self.share:.2g} of the {self.on} of {self.other}"
            f"{_condition(self.where)}"
        )

    def judge(self, evidence: ClaimEvidence) -> Verdict:
        """Returns the verdict on these runs."""
        ours = _runs(evidence, self.model, self.where)
        theirs = {_data(cell): cell for cell in _runs(evidence, self.other, self.where)}
        pairs = [(cell, theirs[_data(cell)]) for cell in ours if _data(cell) in theirs]
        if not pairs:
            return Verdict(str(self), "not testable", "no runs of both")
        failures = sum(cell.failed or other.failed for cell, other in pairs)
        if failures:
            return Verdict(str(self), "not met", f"{failures} of {len(pairs)} pairs of runs failed")
        mine, other = (fmean(cell.scores[self.on] for cell in cells) for cells in zip(*pairs, strict=True))
        outcome: Literal["met", "not met"] = "met" if mine <= self.share * other else "not met"
        return Verdict(str(self), outcome, f"{mine:.4f} against {other:.4f}, over {len(pairs)} runs")


@dataclass(frozen=True)
class Within:
    """The mean score of a model is within `by` of a number, in every setting.

    Examples
    --------
    >>> str(Within("em", on="r2 - Bayes", of=0.0, by=0.002, where={"d": 10}))
    'em is within 0.002 of 0 in r2 - Bayes (d = 10)'
    """

    model: str
    on: str
    of: float
    by: float
    where: Setting = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.model} is within {self.by:g} of {self.of:g} in {self.on}{_condition(self.where)}"

    def judge(self, evidence: ClaimEvidence) -> Verdict:
        """Returns the verdict on these runs."""
        groups = _by_setting(_runs(evidence, self.model, self.where))
        distances = {name: _mean(cells, self.on) - self.of for name, cells in groups.items()}
        return _worst(str(self), groups, {name: self.by - abs(d) for name, d in distances.items()}, distances)


@dataclass(frozen=True)
class AtLeast:
    """The mean score of a model is at least as good as a number, in every setting.

    Examples
    --------
    >>> str(AtLeast("em", on="r2 - Bayes", bound=-0.002, where={"d": 10}))
    'em is at least as good as -0.002 in r2 - Bayes (d = 10)'
    """

    model: str
    on: str
    bound: float
    where: Setting = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.model} is at least as good as {self.bound:g} in {self.on}{_condition(self.where)}"

    def judge(self, evidence: ClaimEvidence) -> Verdict:
        """Returns the verdict on these runs."""
        groups = _by_setting(_runs(evidence, self.model, self.where))
        means = {name: _mean(cells, self.on) for name, cells in groups.items()}
        sign = evidence.sign(self.on)
        return _worst(str(self), groups, {name: sign * (m - self.bound) for name, m in means.items()}, means)


@dataclass(frozen=True)
class AsPublished:
    """The mean score of a model is at least the paper's for its counterpart, up to `by`, in every setting.

    Examples
    --------
    >>> str(AsPublished("em", on="r2", by=0.01))
    "em reaches the paper's number up to 0.01 in r2"
    """

    model: str
    on: str
    by: float = 0.0
    where: Setting = field(default_factory=dict)

    def __str__(self) -> str:
        margin = f" up to {self.by:g}" if self.by else ""
        return f"{self.model} reaches the paper's number{margin} in {self.on}{_condition(self.where)}"

    def judge(self, evidence: ClaimEvidence) -> Verdict:
        """Returns the verdict on these runs."""
        groups = _by_setting(_runs(evidence, self.model, self.where))
        known = {
            name: evidence.published(cells[0].setting, self.model, self.on) for name, cells in groups.items()
        }
        gains = {
            name: evidence.sign(self.on) * (_mean(groups[name], self.on) - number.mean)
            for name, number in known.items()
            if number is not None
        }
        tested = {name: groups[name] for name in gains}
        return _worst(str(self), tested, {name: gain + self.by for name, gain in gains.items()}, gains)


Claim = Better | AtMostShare | Within | AtLeast | AsPublished


def _worst(
    claim: str,
    groups: Mapping[str, Sequence[Cell]],
    slack: Mapping[str, float],
    shown: Mapping[str, float],
) -> Verdict:
    """Judges a claim that must hold in every setting by the one where it holds least."""
    if not groups:
        return Verdict(claim, "not testable", "no runs")
    cells = [cell for group in groups.values() for cell in group]
    failures = sum(cell.failed for cell in cells)
    if failures:
        return Verdict(claim, "not met", f"{failures} of {len(cells)} runs failed")
    worst = min(slack, key=slack.__getitem__)
    where = f", at {worst}" if len(groups) > 1 else ""
    return Verdict(claim, "met" if slack[worst] >= 0 else "not met", f"{shown[worst]:+.4f} at worst{where}")


def _half_width(gains: Sequence[float]) -> str:
    """Returns half of the 95% t-interval of the mean of paired differences, or nothing for one pair."""
    if len(gains) < 2:
        return ""
    return f" ± {student_t.ppf(0.975, len(gains) - 1) * stdev(gains) / math.sqrt(len(gains)):.4f}"


def _runs(evidence: ClaimEvidence, model: str, where: Setting) -> list[Cell]:
    return [
        cell
        for cell in evidence.cells
        if cell.model == model and all(_matches(cell.setting.get(key), value) for key, value in where.items())
    ]


def _matches(value: Any, wanted: Any) -> bool:
    return value in wanted if isinstance(wanted, tuple | list) else bool(value == wanted)


def _by_setting(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(show_setting(cell.setting), []).append(cell)
    return groups


def show_setting(setting: Setting) -> str:
    """Returns a setting as one line."""
    return ", ".join(f"{key} = {value}" for key, value in setting.items())


def _data(cell: Cell) -> tuple[str, int]:
    return show_setting(cell.setting), cell.seed


def _mean(cells: Sequence[Cell], metric: str) -> float:
    scores = [cell.scores[metric] for cell in cells if not cell.failed]
    return fmean(scores) if scores else float("nan")


def _condition(where: Setting) -> str:
    if not where:
        return ""
    shown = [
        f"{key} = {' or '.join(map(str, value)) if isinstance(value, tuple | list) else value}"
        for key, value in where.items()
    ]
    return f" ({', '.join(shown)})"
