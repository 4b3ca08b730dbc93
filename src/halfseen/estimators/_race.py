"""A comparison ("race") of imputers on known cells of the user's own table that are hidden from them."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from halfseen.config import rows_within_budget
from halfseen.data.incomplete import Incomplete
from halfseen.data.schema import Column
from halfseen.estimators._base import BaseImputer
from halfseen.estimators._costs import Cost, seconds_per_row
from halfseen.estimators._race_task import RaceTask
from halfseen.estimators._stacking import Answers, find_weights, tail_weights
from halfseen.models.tabular import TabularCompletion
from halfseen.models.tabular_stack import LARGEST
from halfseen.training.time_limit import TimeBudget, decide_by_clock, time_limit

Floats = npt.NDArray[np.float64]

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
