"""A comparison ("race") of imputers on known cells of the user's own table that are hidden from them."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import betainc

from halfseen.auto.hiding import RaceTask
from halfseen.auto.stacking import Answers, find_weights, tail_weights
from halfseen.auto.tabular import LARGEST, WeightedAtoms
from halfseen.base.completion import TabularCompletion
from halfseen.base.imputer import BaseImputer
from halfseen.config import rows_within_budget
from halfseen.data.incomplete import Incomplete
from halfseen.data.reliability import ColumnCheck
from halfseen.data.schema import Column
from halfseen.training.time_limit import TimeBudget, decide_by_clock, time_limit

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Cost:
    """The time that a method took.

    Parameters
    ----------
    fit : float
        Seconds for fitting.
    n_fitted : int
        The number of rows to which the method was fitted.
    answer : float
        Seconds per row for imputing single values, in a table with many rows.
    """

    fit: float
    n_fitted: int
    answer: float

    def rows_within(self, seconds: float, n_rows: int) -> int:
        """Returns the number of rows to which the method can be fitted in time, at least that of before."""
        if self.fit * n_rows <= seconds * self.n_fitted:
            return n_rows
        return min(n_rows, max(self.n_fitted, int(self.n_fitted * seconds / self.fit)))


def seconds_per_row(n_rows: Sequence[int], seconds: Sequence[float]) -> float:
    """Returns the time per additional row, from the times for a few rows and for more rows after them.

    The difference does not contain the constant cost of a call. It is assumed to be at least a quarter of the
    mean time, because the first rows may be slow by chance.
    """
    if not n_rows:
        return 0.0
    most = max(range(len(n_rows)), key=lambda i: n_rows[i])
    mean = seconds[most] / n_rows[most]
    if n_rows[most] == n_rows[0]:
        return mean
    return max((seconds[most] - seconds[0]) / (n_rows[most] - n_rows[0]), mean / 4)


def too_costly(
    costs: Sequence[Cost], weights: Mapping[int, float], n_rows: int, seconds: float
) -> int | None:
    """Returns the method to give up if all together take too long to impute rows; else None.

    It is the one that takes the most time for its weight, so that the main method is not given up for a
    quick one of which little is used. A single method is never too costly.
    """
    expected = {m: costs[m].answer * n_rows for m in weights}
    if len(expected) < 2 or sum(expected.values()) <= seconds:
        return None
    return max(expected, key=lambda m: expected[m] / weights[m])


FIT_SHARE = 0.7  # of the time of a candidate; the rest is for its predictions
TRIED_ROWS = (20, 100)  # a few and some more, to measure how long the predictions of a candidate take
MAX_MIXED_LEVELS = 40  # of a column whose probabilities are mixed; with more, it has one model
LEVELS = tuple((k + 0.5) / 19 for k in range(19))
SMALLEST_LIKELIHOOD = 1e-6

CellPredictions = dict[int, tuple[Floats, Floats, Floats]]
"""By column, single values (N) of hidden cells; quantiles (N, K) or probabilities of the true level (N); and
the probabilities (N, L) of few levels, else of none."""


@dataclass
class Race:
    """The result of a race: the scores of each candidate that finished, and why others did not."""

    names: list[str] = field(default_factory=list)
    fitted: list[BaseImputer] = field(default_factory=list)
    predictions: list[CellPredictions] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    def join(self, other: "Race") -> bool:
        """Adds the predictions of another mask, if the same candidates finished; returns whether they did."""
        if self.names != other.names:
            return False
        for mine, more in zip(self.predictions, other.predictions, strict=True):
            mine |= {c: _joined(mine[c], more[c]) for c in mine}
        return True

    def leave_out(self, m: int, why: str) -> None:
        """Removes a candidate for which there is no time."""
        decide_by_clock()
        self.left_out[self.names.pop(m)] = why
        del self.fitted[m], self.predictions[m], self.costs[m]


def _joined(one: tuple[Floats, ...], other: tuple[Floats, ...]) -> tuple[Floats, Floats, Floats]:
    first, second, third = (np.concatenate(pair) for pair in zip(one, other, strict=True))
    return first, second, third


def run(
    task: RaceTask,
    candidates: Mapping[str, Callable[[Incomplete], BaseImputer]],
    budget: TimeBudget,
) -> Race:
    """Fits each candidate without the hidden cells, and keeps its predictions of these cells.

    The time of a candidate is the remaining time divided by the number of remaining candidates, but at least
    twice the time of the second candidate, because later models take longer. A part of it is kept for the
    predictions: as much as they took the slowest candidate before, or 30% if that is more. A candidate is
    left out if even the latter exceeds the remaining time, or if imputing the rows would take longer. The
    first two candidates are always used.
    """
    race, expected, answering = Race(), 0.0, 0.0
    for position, (name, fit) in enumerate(candidates.items()):
        left = budget.left
        if position >= 2 and left <= 2 * expected:
            race.left_out[name] = "there was no time left"
            decide_by_clock()
            continue
        share = max(left / (len(candidates) - position), 2 * expected)
        started = budget.clock()
        with time_limit(max(min(share - answering, FIT_SHARE * share), 0.0)):
            imputer = fit(task.shown)
        fitted, model = budget.clock(), imputer._answers
        assert model is not None
        within = TimeBudget(budget.left if position >= 2 else math.inf, budget.clock)
        size = rows_within_budget(imputer._numbers_per_row(len(LEVELS)))
        answered = _answers(task, model, size, within)
        if answered is None:
            race.left_out[name] = "to impute all rows would have taken too long"
            decide_by_clock()
            continue
        predictions, per_row = answered
        race.predictions.append(predictions)
        race.names.append(name)
        race.fitted.append(imputer)
        race.costs.append(Cost(fitted - started, len(task.codes), per_row))
        answering = max(answering, budget.clock() - fitted)
        expected = budget.clock() - started if position == 1 else expected
    return race


def _answers(
    task: RaceTask, model: TabularCompletion, size: int, budget: TimeBudget
) -> tuple[CellPredictions, float] | None:
    """Returns the predictions of a model, and the seconds that single values and probabilities of a row take.

    Rows are asked for in parts of at most `size`. The result is None if the first rows took so long that the
    others would not be finished in time.
    """
    if not len(task.scored):
        return {}, 0.0
    parts: dict[int, list[tuple[Floats, Floats, Floats]]] = {c: [] for c in range(len(task.columns))}
    tried: list[int] = []
    seconds: list[float] = []
    brief: list[float] = []  # of single values and probabilities only
    for rows in _parts(task.scored, size):
        if len(tried) > 1 and seconds_per_row(tried, seconds) * (len(task.scored) - sum(tried)) > budget.left:
            return None
        shown, hidden = task.shown[rows], task.hidden[rows]
        before = budget.clock()
        point = model.point(shown)
        probabilities = model.level_probabilities(shown)
        brief.append(budget.clock() - before)
        quantiles = model.quantiles(shown, LEVELS)
        tried.append(len(rows))
        seconds.append(budget.clock() - before)
        for c, column in enumerate(task.columns):
            cells = hidden[:, c].nonzero().squeeze(1)
            shares = torch.zeros(len(cells), 0)
            if column.levels is None:
                more = quantiles[:, cells, c].T.clamp(-LARGEST, LARGEST)
            else:
                true = task.codes.x[rows[cells], c].long()
                groups, block = probabilities[c].groups[cells], probabilities[c].block
                likelihood = groups.gather(1, block.group[true][:, None])[:, 0] * block.share[true]
                more = likelihood.clamp(min=SMALLEST_LIKELIHOOD)
                if len(column.levels) <= MAX_MIXED_LEVELS:
                    shares = groups[:, block.group] * block.share
            parts[c].append((point[cells, c].numpy(), more.numpy(), shares.numpy()))
    predictions: CellPredictions = {}
    for c, found in parts.items():
        points, mores, several = zip(*found, strict=True)
        predictions[c] = np.concatenate(points), np.concatenate(mores), np.concatenate(several)
    return predictions, seconds_per_row(tried, brief)


def _parts(rows: torch.Tensor, size: int) -> Iterator[torch.Tensor]:
    """Yields chunks of rows: a few, some more, and then as many at once as memory allows."""
    start = 0
    for most in chain(TRIED_ROWS, repeat(size)):
        if start >= len(rows):
            return
        yield rows[start : start + min(most, size)]
        start += min(most, size)


def collect(task: RaceTask, race: Race) -> list[Answers]:
    """Returns the predictions of all candidates for each column, numbers in standard deviations."""
    collected = []
    for c, column in enumerate(task.columns):
        rows = task.scored[task.hidden[task.scored, c]]
        truth, half = task.codes.x[rows, c].numpy(), task.half[rows.numpy()]
        shape = (0,) if column.levels is not None else (0, len(LEVELS))
        found = [
            predictions[c][:2] if c in predictions else (np.zeros(0), np.zeros(shape))
            for predictions in race.predictions
        ]
        points, more = np.stack([one for one, _ in found]), np.stack([other for _, other in found])
        if column.levels is not None:
            collected.append(Answers(truth, half, points, likelihood=more))
        else:
            known = task.codes.x[task.codes.observed[:, c], c].numpy()
            largest = float(np.abs(known).max(initial=0.0)) or 1.0
            scale = (float((known / largest).std()) or 1.0) * largest
            mean = float((known / largest).sum()) / max(len(known), 1) * (largest / scale)
            weight = tail_weights(truth / scale - mean)
            collected.append(Answers(truth / scale, half, points / scale, more / scale, weight=weight))
    return collected


def choose(columns: Sequence[Column], answers: Sequence[Answers]) -> tuple[Floats, dict[str, bool]]:
    """Returns weights (M, C), and for numbers and for levels whether they are those of mixtures."""
    n_models = len(answers[0].points)
    weights, mixed = np.zeros((n_models, len(columns))), {}
    for kind in ("numbers", "levels"):
        chosen = [c for c, column in enumerate(columns) if (column.levels is None) == (kind == "numbers")]
        if chosen:
            found, mixed[kind] = find_weights([answers[c] for c in chosen])
            weights[:, chosen] = found
    for c, column in enumerate(columns):
        if column.levels is not None and len(column.levels) > MAX_MIXED_LEVELS:
            weights[:, c] = np.arange(n_models) == weights[:, c].argmax()
    return weights, mixed


def tabulate(race: Race, answers: Sequence[Answers], weights: Floats) -> list[dict[str, Any]]:
    """Returns one row of scores for each candidate, over all hidden cells."""
    table = []
    for m, name in enumerate(race.names):
        row: dict[str, Any] = {"candidate": name, "weight": round(float(weights[m].mean()), 4)}
        numbers = [a for a in answers if a.atoms is not None and len(a.truth)]
        levels = [a for a in answers if a.atoms is None and len(a.truth)]
        row["rmse"] = math.sqrt(_pooled(numbers, [a.errors()[m] for a in numbers])) if numbers else None
        row["crps"] = _pooled(numbers, [a.losses()[m] for a in numbers]) if numbers else None
        row["accuracy"] = 1 - _pooled(levels, [a.errors()[m] for a in levels]) if levels else None
        row["log_loss"] = _pooled(levels, [a.losses()[m] for a in levels]) if levels else None
        table.append(row)
    return table


def _pooled(answers: Sequence[Answers], values: Sequence[float]) -> float:
    return float(np.average(values, weights=[len(a.truth) for a in answers]))


Cells = tuple[Floats, Floats, Floats]


@dataclass(frozen=True)
class ColumnLosses:
    """The losses of the hidden cells of one column.

    Shapes
    ------
    loss : (N), squared errors in variances of the shown values, or 1 for a wrong level
    baseline : (N), of the mean or the most frequent level of the shown values
    below, up_to : (N), the probabilities of lower values, and of values up to the true one; None for levels
    """

    loss: Floats
    baseline: Floats
    below: Floats | None = None
    up_to: Floats | None = None

    def check(self, name: str) -> ColumnCheck | None:
        """Returns how well the column is filled; None if that cannot be judged."""
        return ColumnCheck.of(name, "accuracy" if self.below is None else "error", self.loss, self.baseline)

    def covered(self, level: float) -> npt.NDArray[np.bool_]:
        """Returns which numbers (N) are within their central intervals of a level."""
        assert self.below is not None
        assert self.up_to is not None
        inside: npt.NDArray[np.bool_] = (self.up_to >= (1 - level) / 2) & (self.below <= (1 + level) / 2)
        return inside


@dataclass(frozen=True)
class HiddenCells:
    """The losses of all hidden cells, by name of the column, and the number of rows that have such cells."""

    columns: dict[str, ColumnLosses]
    n_rows: int


def compare_hidden(task: RaceTask, race: Race, weights: Floats, sharpness: float) -> HiddenCells:
    """Returns the losses of a mixture with weights (M, C), sharpened as in `TabularStack`."""
    found = {}
    for c, column in enumerate(task.columns):
        rows = task.scored[task.hidden[task.scored, c]]
        shown = task.shown.x[task.shown.observed[:, c], c].numpy()
        if len(rows) and len(shown):
            truth = task.codes.x[rows, c].numpy()
            used = np.flatnonzero(weights[:, c]).tolist()
            predictions, shares = [race.predictions[m][c] for m in used], weights[used, c]
            if column.levels is None:
                found[column.name] = _compare_numbers(column, truth, shown, predictions, shares, sharpness)
            else:
                found[column.name] = _compare_levels(truth, shown, predictions, shares)
    return HiddenCells(found, len(np.unique(task.row[task.scored.numpy()])))


def _compare_numbers(
    column: Column,
    truth: Floats,
    shown: Floats,
    predictions: Sequence[Cells],
    weights: Floats,
    sharpness: float,
) -> ColumnLosses:
    point = column.constrain(weights @ np.stack([one[0] for one in predictions]))
    largest = float(np.abs(shown).max()) or 1.0
    scale = float((shown / largest).std()) or 1.0
    mean = (shown / largest).mean()
    loss, baseline = (((one - truth / largest) / scale) ** 2 for one in (point / largest, mean))
    ranks = np.stack([_ranks(truth, one[1]) for one in predictions])  # (M, 2, N)
    below, up_to = np.tensordot(weights, ranks, 1)
    if len(predictions) > 1:
        below, up_to = betainc(sharpness, sharpness, np.clip([below, up_to], 0.0, 1.0))
    return ColumnLosses(loss, baseline, below, up_to)


def _compare_levels(
    truth: Floats, shown: Floats, predictions: Sequence[Cells], weights: Floats
) -> ColumnLosses:
    point = predictions[0][0]
    if len(predictions) > 1:
        point = np.tensordot(weights, np.stack([one[2] for one in predictions]), 1).argmax(axis=1)
    levels, counts = np.unique(shown, return_counts=True)
    usual = levels[counts.argmax()]
    return ColumnLosses((point != truth).astype(np.float64), (usual != truth).astype(np.float64))


def _ranks(truth: Floats, quantiles: Floats) -> Floats:
    """Returns the probabilities (2, N) of less than the truth (N) and of up to it, by quantiles (N, K)."""
    n_levels = quantiles.shape[1]
    shares = torch.full((n_levels,), 1.0 / n_levels, dtype=torch.float64)
    atoms = WeightedAtoms.of(torch.from_numpy(quantiles).T, shares)
    return torch.cat(atoms.bounds(torch.from_numpy(truth)[None])).numpy()
