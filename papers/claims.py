"""The claims of an experiment, declared before it runs, and their verdicts.

A comparison of two models is *met* only if the 95% interval of the mean difference over the same data
excludes zero, *not met* if the mean has the wrong sign or is smaller than was claimed, and *undecided* if the
mean agrees with the claim but its interval contains zero or there is only one pair of runs. A claim that
compares one model with a number is judged in the same way, by the interval of its mean over the runs of a
setting: it is *met* only if the whole interval is on the right side of the number. A claim about coverage or
bias over repetitions is judged by the mean, and is *not met* only if its interval excludes what was claimed.
A claim is *not testable* when no run that it concerns is stored: the chosen scale has none, or the stored
ones lack the score. A run that failed, or gave a number that is not finite, counts against the model that
made it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, fmean, stdev
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student_t

Arrays = Mapping[str, npt.NDArray[Any]]
Outcome = Literal["met", "not met", "undecided", "not testable"]
Setting = Mapping[str, Any]

ROUNDING = 1e-9  # the mean of shares over blocks may differ by less than this from the share itself


@dataclass(frozen=True)
class Published:
    """A number from a paper, with the spread over its repetitions and where it stands.

    If the paper's setting or method is another one, `other` says in what; then the number can be a bar to
    reach, but tables do not show it beside ours.
    """

    mean: float
    sd: float | None = None
    label: str = ""
    other: str = ""


@dataclass(frozen=True)
class Cell:
    """One run: a model on a setting with a seed; scores, or the error that it ended with; by which code.

    The code is named by a hash of the library's source and by the commit of library and experiments. What
    pictures are drawn from is in `arrays`.
    """

    setting: Setting
    model: str
    seed: int
    scores: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None
    seconds: float = 0.0
    code: str = ""
    commit: str | None = ""
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

    A negative `by` claims that it is less than that much worse.

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
        if self.by < 0:
            relation = f"is less than {-self.by:g} worse than {self.other}"
        else:
            relation = f"is better than {self.other}" + (f" by at least {self.by:g}" if self.by else "")
        return f"{self.model} {relation} in {self.on}{_condition(self.where)}"

    def judge(self, evidence: ClaimEvidence) -> Verdict:
        """Returns the verdict on these runs."""
        pairs = _pairs(evidence, self.model, self.other, self.on, self.where)
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
        won = f"better in {sum(g > 0 for g in gains)} of {len(gains)} runs"
        shown = f"{fmean(gains):+.4f}{_show_half_width(gains)} on average, {won}"
        return Verdict(str(self), _outcome(gains, self.by), shown)


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
        pairs = _pairs(evidence, self.model, self.other, self.on, self.where)
        if not pairs:
            return Verdict(str(self), "not testable", "no runs of both")
        failures = sum(cell.failed or other.failed for cell, other in pairs)
        if failures:
            return Verdict(str(self), "not met", f"{failures} of {len(pairs)} pairs of runs failed")
        scores = [(cell.scores[self.on], other.scores[self.on]) for cell, other in pairs]
        mine, other = (fmean(column) for column in zip(*scores, strict=True))
        outcome = _outcome([self.share * theirs - ours for ours, theirs in scores])
        return Verdict(str(self), outcome, f"{mine:.4f} against {other:.4f}, over {len(pairs)} runs")


@dataclass(frozen=True)
class Within:
    """The mean score of a model, with its 95% interval, is within `by` of a number, in every setting.

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
        groups = _by_setting(_runs(evidence, self.model, [self.on], self.where))
        distances = {name: _mean(cells, self.on) - self.of for name, cells in groups.items()}
        slack = {name: self.by - abs(distance) for name, distance in distances.items()}
        return _worst(str(self), self.on, groups, slack, distances)


@dataclass(frozen=True)
class AtLeast:
    """The mean score of a model, with its 95% interval, is at least as good as a number, in every setting.

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
        groups = _by_setting(_runs(evidence, self.model, [self.on], self.where))
        means = {name: _mean(cells, self.on) for name, cells in groups.items()}
        sign = evidence.sign(self.on)
        slack = {name: sign * (mean - self.bound) for name, mean in means.items()}
        return _worst(str(self), self.on, groups, slack, means)


@dataclass(frozen=True)
class AsPublished:
    """The mean score of a model is at least the paper's for its counterpart, up to `by`, in every setting.

    The whole 95% interval of the mean must be; the paper's own spread is not counted.

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
        groups = _by_setting(_runs(evidence, self.model, [self.on], self.where))
        known = {
            name: evidence.published(cells[0].setting, self.model, self.on) for name, cells in groups.items()
        }
        gains = {
            name: evidence.sign(self.on) * (_mean(groups[name], self.on) - number.mean)
            for name, number in known.items()
            if number is not None
        }
        tested = {name: groups[name] for name in gains}
        slack = {name: gain + self.by for name, gain in gains.items()}
        return _worst(str(self), self.on, tested, slack, gains)


@dataclass(frozen=True)
class Covers:
    """Shares over the repetitions of a model are between two bounds, for instance coverages of intervals.

    It is *met* if all shares are, *not met* if the 95% interval of one of them is outside of the bounds, and
    otherwise *undecided*. Each run is a block of as many repetitions as its setting states.

    Examples
    --------
    >>> str(Covers("ours", ["coverage of x"], 0.93, 0.97))
    'ours has a coverage of x between 0.93 and 0.97'
    """

    model: str
    on: Sequence[str]
    low: float
    high: float
    where: Setting = field(default_factory=dict)

    def __str__(self) -> str:
        return (
            f"{self.model} has a {' and '.join(self.on)} between {self.low:g} and {self.high:g}"
            f"{_condition(self.where)}"
        )

    def judge(self, evidence: ClaimEvidence) -> Verdict:
        """Returns the verdict on these runs."""
        runs = _runs(evidence, self.model, self.on, self.where)
        spoiled = _spoiled(str(self), runs)
        if spoiled is not None:
            return spoiled
        intervals = {}
        for name, cells in _by_other_setting(runs).items():
            for on in self.on:
                share = _mean(cells, on)
                intervals[on + name] = (share, *binomial_interval(share, _n_repetitions(cells)))
        return _farthest(str(self), intervals, self.low, self.high)


@dataclass(frozen=True)
class Unbiased:
    """Biases over the repetitions of a model are at most a share of the standard deviation of the estimates.

    `on` states for each bias the score that is the variance of the estimates. It is *met* if all biases are
    small, *not met* if the 95% interval of one of them excludes small ones, and otherwise *undecided*. Each
    run is a block of as many repetitions as its setting states.

    Examples
    --------
    >>> str(Unbiased("ours", {"bias of x": "variance of x"}, 0.1))
    'ours has a bias of x of at most 0.1 standard deviations'
    """

    model: str
    on: Mapping[str, str]
    by: float
    where: Setting = field(default_factory=dict)

    def __str__(self) -> str:
        shown = " and ".join(self.on)
        return (
            f"{self.model} has a {shown} of at most {self.by:g} standard deviations{_condition(self.where)}"
        )

    def judge(self, evidence: ClaimEvidence) -> Verdict:
        """Returns the verdict on these runs."""
        runs = _runs(evidence, self.model, [*self.on, *self.on.values()], self.where)
        spoiled = _spoiled(str(self), runs)
        if spoiled is not None:
            return spoiled
        intervals = {}
        for name, cells in _by_other_setting(runs).items():
            n_repetitions = _n_repetitions(cells)
            half = float(student_t.ppf(0.975, n_repetitions - 1)) / math.sqrt(n_repetitions)
            for bias, variance in self.on.items():
                ratio = _mean(cells, bias) / math.sqrt(_mean(cells, variance))
                intervals[bias + name] = (ratio, ratio - half, ratio + half)
        return _farthest(str(self), intervals, -self.by, self.by)


Claim = Better | AtMostShare | Within | AtLeast | AsPublished | Covers | Unbiased


def binomial_interval(share: float, n_repetitions: int) -> tuple[float, float]:
    """Returns the 95% interval of Wilson for a probability, given the share of repetitions.

    Examples
    --------
    >>> [round(end, 3) for end in binomial_interval(0.95, 100)]
    [0.888, 0.978]
    """
    squared = NormalDist().inv_cdf(0.975) ** 2 / n_repetitions
    centre = share + squared / 2
    half = math.sqrt(squared * (share * (1 - share) + squared / 4))
    return (centre - half) / (1 + squared), (centre + half) / (1 + squared)


def _by_other_setting(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Returns runs by their setting in words that follow the name of a score; without words if all agree."""
    groups = _by_setting(cells)
    return {f", {name}" if len(groups) > 1 else "": group for name, group in groups.items()}


def _n_repetitions(cells: Sequence[Cell]) -> int:
    return sum(cell.setting["repetitions"] for cell in cells)


def _spoiled(claim: str, cells: Sequence[Cell]) -> Verdict | None:
    """Returns the verdict if there are no runs or some failed, otherwise None."""
    if not cells:
        return Verdict(claim, "not testable", "no runs")
    failures = sum(cell.failed for cell in cells)
    return Verdict(claim, "not met", f"{failures} of {len(cells)} runs failed") if failures else None


def _farthest(
    claim: str, intervals: Mapping[str, tuple[float, float, float]], low: float, high: float
) -> Verdict:
    """Judges by numbers with their intervals whether all numbers are between two bounds."""
    # The worst is the one whose interval is farthest away, or, among those that are not, the number that is.
    worst = max(
        intervals,
        key=lambda name: (
            max(intervals[name][1] - high, low - intervals[name][2], 0.0),
            max(intervals[name][0] - high, low - intervals[name][0]),
        ),
    )
    number, start, end = intervals[worst]
    outcome: Outcome = "met" if low - ROUNDING <= number <= high + ROUNDING else "undecided"
    if start > high or end < low:
        outcome = "not met"
    where = f" at worst, {worst}" if len(intervals) > 1 else ""
    return Verdict(claim, outcome, f"{number:.3f} (95% interval {start:.3f} to {end:.3f}){where}")


def _worst(
    claim: str,
    on: str,
    groups: Mapping[str, Sequence[Cell]],
    slack: Mapping[str, float],
    shown: Mapping[str, float],
) -> Verdict:
    """Judges a claim that must hold in every setting by the one where it holds least.

    The slack of a setting is by how much the mean over its runs is on the right side. It must be at least
    half of the 95% interval of this mean, which is infinite for a single run.
    """
    spoiled = _spoiled(claim, [cell for group in groups.values() for cell in group])
    if spoiled is not None:
        return spoiled
    half = {name: _half_width([cell.scores[on] for cell in cells]) for name, cells in groups.items()}
    wrong = [name for name in slack if slack[name] < 0]
    open_ = [name for name in slack if slack[name] < half[name]]
    outcome: Outcome = "not met" if wrong else "undecided" if open_ else "met"
    worst = min(wrong or open_ or slack, key=lambda name: slack[name] - (0 if wrong else half[name]))
    spread = "" if math.isinf(half[worst]) else f" ± {half[worst]:.4f}"
    runs = " in a single run" if math.isinf(half[worst]) else ""
    where = f", at {worst}" if len(groups) > 1 else ""
    return Verdict(claim, outcome, f"{shown[worst]:+.4f}{spread} at worst{runs}{where}")


def _outcome(gains: Sequence[float], by: float = 0.0) -> Outcome:
    """Returns the outcome of the claim that the mean gain of pairs of runs is positive and at least `by`.

    A negative `by` is a margin of non-inferiority: the interval must then exclude a loss as large as that.
    """
    gain, bound = fmean(gains), min(by, 0.0)
    if gain <= bound or gain < by:
        return "not met"
    return "met" if gain - bound > _half_width(gains) else "undecided"


def _half_width(gains: Sequence[float]) -> float:
    """Returns half of the length of the 95% t-interval of the mean; infinity for a single number."""
    if len(gains) < 2:
        return math.inf
    return float(student_t.ppf(0.975, len(gains) - 1)) * stdev(gains) / math.sqrt(len(gains))


def _show_half_width(gains: Sequence[float]) -> str:
    return "" if len(gains) < 2 else f" ± {_half_width(gains):.4f}"


def _pairs(
    evidence: ClaimEvidence, model: str, other: str, on: str, where: Setting
) -> list[tuple[Cell, Cell]]:
    """Returns the runs of two models on the same data."""
    theirs = {_data(cell): cell for cell in _runs(evidence, other, [on], where)}
    runs = _runs(evidence, model, [on], where)
    return [(cell, theirs[_data(cell)]) for cell in runs if _data(cell) in theirs]


def _runs(evidence: ClaimEvidence, model: str, on: Sequence[str], where: Setting) -> list[Cell]:
    """Returns the runs of a model that have some scores, or failed; others were made before these existed."""
    return [
        cell
        for cell in evidence.cells
        if cell.model == model
        and (cell.failed or all(metric in cell.scores for metric in on))
        and all(_matches(cell.setting.get(key), value) for key, value in where.items())
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
