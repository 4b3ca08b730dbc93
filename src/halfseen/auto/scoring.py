"""A comparison of imputers on known cells of the user's own table that are hidden from them."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any

import numpy as np
import torch
from scipy.special import betainc

from halfseen._arrays import Booleans, Floats
from halfseen.auto.hiding import HiddenTask
from halfseen.auto.stacking import (
    Answers,
    LevelLoss,
    QuadraticLoss,
    find_level_weights,
    find_point_weights,
    find_weights,
    tail_weights,
)
from halfseen.auto.tabular import LARGEST, WeightedAtoms
from halfseen.base.completion import TabularCompletion
from halfseen.base.imputer import BaseImputer
from halfseen.data.incomplete import Incomplete, rows_in_piece
from halfseen.data.leaving import ColumnCheck
from halfseen.data.schema import Column
from halfseen.training.progress import TimeBudget, decide_by_clock, time_limit


@dataclass(frozen=True)
class Cost:
    """The time that a method took."""

    fit: float  # seconds for fitting
    n_fitted: int  # the number of rows to which the method was fitted
    answer: float  # seconds per row for imputing single values, in a table with many rows

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


# Guesses, apart from the levels, which are those of the quantiles that stand for a distribution.
FIT_SHARE = 0.7  # of the time of a candidate; the rest is for its predictions
TRIED_ROWS = (20, 100)  # a few and some more, to measure how long the predictions of a candidate take
MAX_MIXED_LEVELS = 40  # of a column whose probabilities are mixed; with more, it has one model
LEVELS = tuple((k + 0.5) / 19 for k in range(19))
SMALLEST_LIKELIHOOD = 1e-6  # no single cell decides by a log-loss that is nearly infinite

CellPredictions = dict[int, tuple[Floats, Floats, Floats]]
"""By column, single values (N) of hidden cells; quantiles (N, K) or probabilities of the true level (N); and
the probabilities (N, L) of few levels, else of none."""


@dataclass
class CandidateResults:
    """The result of a comparison: the scores of each candidate that finished, and why others did not."""

    names: list[str] = field(default_factory=list)
    fitted: list[BaseImputer] = field(default_factory=list)
    predictions: list[CellPredictions] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    n_hidden: int = 0  # cells of the first mask, which the fitted candidates have not seen

    def join(self, other: "CandidateResults") -> bool:
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
    task: HiddenTask,
    candidates: Mapping[str, Callable[[Incomplete], BaseImputer]],
    budget: TimeBudget,
) -> CandidateResults:
    """Fits each candidate without the hidden cells, and keeps its predictions of these cells.

    The time of a candidate is the remaining time divided by the number of remaining candidates, but at least
    twice the time of the second candidate, because later models take longer. A part of it is kept for the
    predictions: as much as they took the slowest candidate before, or 30% if that is more. A candidate is
    left out if even the latter exceeds the remaining time, or if imputing the rows would take longer. The
    first two candidates are always used.
    """
    compared, expected, answering = CandidateResults(), 0.0, 0.0
    for position, (name, fit) in enumerate(candidates.items()):
        left = budget.left
        if position >= 2 and left <= 2 * expected:
            compared.left_out[name] = "there was no time left"
            decide_by_clock()
            continue
        share = max(left / (len(candidates) - position), 2 * expected)
        started = budget.clock()
        with time_limit(max(min(share - answering, FIT_SHARE * share), 0.0)):
            imputer = fit(task.shown)
        fitted, model = budget.clock(), imputer._fitted_model
        assert model is not None
        within = TimeBudget(budget.left if position >= 2 else math.inf, budget.clock)
        size = rows_in_piece(len(task.columns), imputer._numbers_per_row(len(LEVELS)))
        answered = _answers(task, model, size, within)
        if answered is None:
            compared.left_out[name] = "to impute all rows would have taken too long"
            decide_by_clock()
            continue
        predictions, per_row = answered
        compared.predictions.append(predictions)
        compared.names.append(name)
        compared.fitted.append(imputer)
        compared.costs.append(Cost(fitted - started, len(task.codes), per_row))
        answering = max(answering, budget.clock() - fitted)
        expected = budget.clock() - started if position == 1 else expected
    return compared


def _answers(
    task: HiddenTask, model: TabularCompletion, size: int, budget: TimeBudget
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


def collect(task: HiddenTask, compared: CandidateResults) -> list[Answers]:
    """Returns the predictions of all candidates for each column, numbers in standard deviations."""
    collected = []
    for c, column in enumerate(task.columns):
        rows = task.scored[task.hidden[task.scored, c]]
        truth, half = task.codes.x[rows, c].numpy(), task.half[rows.numpy()]
        shape = (0,) if column.levels is not None else (0, len(LEVELS))
        n_levels = len(column.levels or ())
        found = [
            predictions.get(c, (np.zeros(0), np.zeros(shape), np.zeros((0, n_levels))))
            for predictions in compared.predictions
        ]
        points, more = np.stack([one[0] for one in found]), np.stack([one[1] for one in found])
        if column.levels is not None:
            few = np.stack([one[2] for one in found]) if n_levels <= MAX_MIXED_LEVELS else None
            collected.append(Answers(truth, half, points, likelihood=more, probabilities=few))
        else:
            known = task.codes.x[task.codes.observed[:, c], c].numpy()
            largest = float(np.abs(known).max(initial=0.0)) or 1.0
            scale = (float((known / largest).std()) or 1.0) * largest
            mean = float((known / largest).sum()) / max(len(known), 1) * (largest / scale)
            weight = tail_weights(truth / scale - mean)
            collected.append(Answers(truth / scale, half, points / scale, more / scale, weight=weight))
    return collected


@dataclass(frozen=True)
class ChosenWeights:
    """The weights of candidates.

    Shapes
    ------
    distribution, point : (M, C), of distributions and of single values of numbers; those of levels are equal
    mixed : for distributions of numbers, the share of mixtures: 0 if columns have one method each; for single
        values and for levels, 1 if a column has several methods
    """

    distribution: Floats
    point: Floats
    mixed: Mapping[str, float]

    @property
    def largest(self) -> Floats:
        """The largest weight (M) of each candidate."""
        found: Floats = np.maximum(self.distribution, self.point).max(axis=1)
        return found

    def without(self, dropped: Booleans) -> "ChosenWeights":
        """Returns the weights without some candidates (M), whose weights the others get."""
        parts = []
        for weights in (self.distribution, self.point):
            kept = np.where(dropped[:, None], 0.0, weights)
            alone = kept.sum(axis=0) == 0  # all weight of a column was dropped
            kept[:, alone] = self._fallback(dropped)[:, None]
            parts.append(kept / kept.sum(axis=0))
        return ChosenWeights(parts[0], parts[1], self.mixed)

    def _fallback(self, dropped: Booleans) -> Floats:
        """Returns the weights (M) of a column whose candidates were all dropped: that used most has all."""
        total = np.where(dropped, -1.0, (self.distribution + self.point).sum(axis=1))
        return (np.arange(len(total)) == total.argmax()).astype(np.float64)

    def of(self, used: Sequence[int]) -> "ChosenWeights":
        """Returns the weights of some candidates."""
        return ChosenWeights(self.distribution[list(used)], self.point[list(used)], self.mixed)


def choose(columns: Sequence[Column], answers: Sequence[Answers]) -> ChosenWeights:
    """Returns the weights of single values and of distributions."""
    n_models = len(answers[0].points)
    weights, mixed = np.zeros((n_models, len(columns))), {}
    point = weights.copy()
    numbers = [c for c, column in enumerate(columns) if column.levels is None]
    levels = [c for c, column in enumerate(columns) if column.levels is not None]
    if numbers:
        some = [answers[c] for c in numbers]
        weights[:, numbers], mixed["distributions"] = find_weights(some, QuadraticLoss.of_distributions)
        point[:, numbers] = find_point_weights(some)
        mixed["single values"] = float(((point[:, numbers] > 0).sum(axis=0) > 1).any())
    few = [c for c in levels if len(columns[c].levels or ()) <= MAX_MIXED_LEVELS]
    if few:
        some = [answers[c] for c in few]
        weights[:, few] = find_level_weights(some)
        mixed["levels"] = float(((weights[:, few] > 0).sum(axis=0) > 1).any())
    many = [c for c in levels if c not in few]
    if many:
        found, _ = find_weights([answers[c] for c in many], LevelLoss.of_levels)
        weights[:, many] = np.arange(n_models)[:, None] == found.argmax(axis=0)
    point[:, levels] = weights[:, levels]
    return ChosenWeights(weights, point, mixed)


COMBINATION = "combination"  # the row of the scores that is not a candidate


def tabulate(
    compared: CandidateResults, answers: Sequence[Answers], weights: ChosenWeights, wrong: float | None
) -> list[dict[str, Any]]:
    """Returns one row of scores for each candidate over all hidden cells, and then one of the combination.

    `wrong` is the share of hidden levels that the combination predicts wrongly, None without levels.
    """
    numbers = [(c, a) for c, a in enumerate(answers) if a.atoms is not None and len(a.truth)]
    levels = [(c, a) for c, a in enumerate(answers) if a.atoms is None and len(a.truth)]
    table = []
    for m, name in enumerate([*compared.names, COMBINATION]):
        is_one = m < len(compared.names)
        vertex = np.arange(len(compared.names)) == m
        row: dict[str, Any] = {"candidate": name, "weight": 1.0}
        if is_one:
            row["weight"] = round(float(weights.distribution[m].mean()), 4)
        row |= {"rmse": None, "crps": None, "accuracy": None, "log_loss": None}
        if numbers:
            of_points = [vertex if is_one else weights.point[:, c] for c, _ in numbers]
            of_numbers = [vertex if is_one else weights.distribution[:, c] for c, _ in numbers]
            some = [a for _, a in numbers]
            errors = [
                float(((w @ a.points - a.truth) ** 2).mean()) for w, a in zip(of_points, some, strict=True)
            ]
            row["rmse"] = math.sqrt(_pooled(some, errors))
            row["crps"] = _pooled(some, [a.crps(w) for w, a in zip(of_numbers, some, strict=True)])
        if levels:
            some = [a for _, a in levels]
            of_levels = [vertex if is_one else weights.distribution[:, c] for c, _ in levels]
            misses = [a.errors()[m] for a in some] if is_one else [wrong or 0.0] * len(some)
            row["accuracy"] = 1 - _pooled(some, misses)
            losses = [float(LevelLoss.of_levels(a)(w)[0]) for w, a in zip(of_levels, some, strict=True)]
            row["log_loss"] = _pooled(some, losses)
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

    def covered(self, level: float) -> Booleans:
        """Returns which numbers (N) are within their central intervals of a level."""
        assert self.below is not None
        assert self.up_to is not None
        inside: Booleans = (self.up_to >= (1 - level) / 2) & (self.below <= (1 + level) / 2)
        return inside


@dataclass(frozen=True)
class HiddenCells:
    """The losses of all hidden cells, by name of the column, and the number of rows that have such cells."""

    columns: dict[str, ColumnLosses]
    n_rows: int

    @property
    def wrong_levels(self) -> float | None:
        """The share of levels that were predicted wrongly; None without levels."""
        losses = [one.loss for one in self.columns.values() if one.below is None]
        return float(np.concatenate(losses).mean()) if losses else None


def compare_hidden(
    task: HiddenTask, compared: CandidateResults, weights: ChosenWeights, sharpness: float
) -> HiddenCells:
    """Returns the losses of the combination, sharpened as in `TabularStack`."""
    found = {}
    for c, column in enumerate(task.columns):
        rows = task.scored[task.hidden[task.scored, c]]
        shown = task.shown.x[task.shown.observed[:, c], c].numpy()
        if len(rows) and len(shown):
            truth = task.codes.x[rows, c].numpy()
            used = np.flatnonzero(weights.distribution[:, c]).tolist()
            predictions, shares = [compared.predictions[m][c] for m in used], weights.distribution[used, c]
            if column.levels is None:
                averaged = np.flatnonzero(weights.point[:, c]).tolist()
                means = np.stack([compared.predictions[m][c][0] for m in averaged])
                point = column.constrain(weights.point[averaged, c] @ means)
                found[column.name] = _compare_numbers(truth, shown, point, predictions, shares, sharpness)
            else:
                found[column.name] = _compare_levels(truth, shown, predictions, shares)
    return HiddenCells(found, len(np.unique(task.row[task.scored.numpy()])))


def _compare_numbers(
    truth: Floats,
    shown: Floats,
    point: Floats,
    predictions: Sequence[Cells],
    weights: Floats,
    sharpness: float,
) -> ColumnLosses:
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
