"""A race of imputers on cells of the user's own table, which are known and hidden from them."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from halfseen._random import torch_generator
from halfseen.data.incomplete import Incomplete
from halfseen.data.schema import Column
from halfseen.estimators._stacking import Answers, find_weights
from halfseen.estimators._table import rows_at_once
from halfseen.missingness.learned import Learned
from halfseen.models.tabular import TabularCompletion
from halfseen.training.time_limit import time_limit

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]

MAX_RACE_ROWS = 3_000
MAX_SCORED_ROWS = 1_000
HIDDEN_SHARE = 0.2
MAX_LEARNED_COLUMNS = 40  # with more columns, no mechanism is learned: it would take too long
MAX_MIXED_LEVELS = 40  # of a column whose probabilities are mixed; with more, it has one model
LEVELS = tuple((k + 0.5) / 19 for k in range(19))
SMALLEST_LIKELIHOOD = 1e-6


@dataclass(frozen=True)
class Task:
    """Rows of a race.

    Shapes
    ------
    codes : (N, C)
    hidden : (N, C), observed cells that no imputer sees
    scored : rows with hidden cells
    half : (N), 0 or 1
    """

    columns: Sequence[Column]
    codes: Incomplete
    hidden: torch.Tensor
    scored: torch.Tensor
    half: npt.NDArray[np.int64]

    @property
    def shown(self) -> Incomplete:
        """The codes without the hidden cells."""
        return Incomplete(self.codes.x, self.codes.observed & ~self.hidden)


@dataclass
class Race:
    """What happened: the scores of each candidate that finished, and why others did not."""

    names: list[str] = field(default_factory=list)
    said: list[dict[int, tuple[Floats, Floats]]] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


def make_task(
    columns: Sequence[Column], codes: Incomplete, complete: Callable[[Incomplete], torch.Tensor], seed: int
) -> Task:
    """Returns rows with hidden cells: half of them at random, half by the mechanism learned from the table.

    `complete` returns completed codes, on which the mechanism is applied.
    """
    generator = torch_generator(seed)
    if len(codes) > MAX_RACE_ROWS:
        codes = codes[torch.randperm(len(codes), generator=generator)[:MAX_RACE_ROWS].sort().values]
    scored = torch.randperm(len(codes), generator=generator)[:MAX_SCORED_ROWS].sort().values
    part = codes[scored]
    priority = torch.rand(part.x.shape, generator=generator)
    wanted = (priority < HIDDEN_SHARE) & part.observed
    missing = ~codes.observed
    if bool(missing.any()) and codes.x.shape[1] <= MAX_LEARNED_COLUMNS:
        mechanism = Learned().fit(codes.to_array())
        removed = ~torch.from_numpy(mechanism.sample(complete(part).numpy(), random_state=seed))
        removed &= part.observed
        rate = float(removed.double().mean())
        kept = torch.rand(part.x.shape, generator=generator) < HIDDEN_SHARE / 2 / max(rate, 1e-12)
        wanted = ((priority < HIDDEN_SHARE / 2) & part.observed) | (removed & kept)
    alone = wanted.sum(dim=1) == part.observed.sum(dim=1)  # a row keeps something, if it has two cells
    wanted[alone & (part.observed.sum(dim=1) > 1)] = False
    hidden = torch.zeros_like(codes.observed)
    hidden[scored] = _spared(codes, scored, wanted, generator)
    half = torch.randint(2, (len(codes),), generator=generator).numpy()
    return Task(columns, codes, hidden, scored[hidden[scored].any(dim=1)], half)


def _spared(
    codes: Incomplete, scored: torch.Tensor, wanted: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """Returns the wanted cells (M, C) that columns can spare: at most a third of a column, chosen at random.

    A column in which fewer than 10 cells, or a single value, would be left keeps all its cells.
    """
    most = codes.observed.sum(dim=0) // 3
    order = torch.rand(wanted.shape, generator=generator)
    rank = torch.where(wanted, order, torch.inf).argsort(dim=0).argsort(dim=0)
    spared = wanted & (rank < most)
    left = codes.observed.clone()
    left[scored] &= ~spared
    low = torch.where(left, codes.x, torch.inf).amin(dim=0)
    high = torch.where(left, codes.x, -torch.inf).amax(dim=0)
    return spared & (left.sum(dim=0) >= 10) & (high > low)


def run(
    task: Task,
    candidates: Mapping[str, Callable[[Incomplete], TabularCompletion | None]],
    seconds: float,
    width: int,
) -> Race:
    """Fits each candidate to what is shown, and keeps what it says of the hidden cells.

    A candidate has the time that is left divided by the number of candidates that are left, and is left out
    if there is none. The first two always take part.
    """
    race, end = Race(), time.monotonic() + seconds
    for position, (name, fit) in enumerate(candidates.items()):
        left = (end - time.monotonic()) / (len(candidates) - position)
        if left <= 0 and position >= 2:
            race.left_out[name] = "there was no time left"
            continue
        with time_limit(max(left, 0.0)):
            model = fit(task.shown)
        assert model is not None
        race.said.append(_answers(task, model, width))
        race.names.append(name)
    return race


def _answers(task: Task, model: TabularCompletion, width: int) -> dict[int, tuple[Floats, Floats]]:
    """Returns, by column, single values (N) of hidden cells, and quantiles (N, K) or probabilities (N)."""
    parts: dict[int, list[tuple[Floats, Floats]]] = {c: [] for c in range(len(task.columns))}
    size = rows_at_once(width, len(LEVELS))
    for start in range(0, len(task.scored), size):
        rows = task.scored[start : start + size]
        shown, hidden = task.shown[rows], task.hidden[rows]
        point = model.point(shown)
        quantiles = model.quantiles(shown, LEVELS)
        probabilities = model.level_probabilities(shown)
        for c, column in enumerate(task.columns):
            cells = hidden[:, c].nonzero().squeeze(1)
            if column.levels is None:
                more = quantiles[:, cells, c].T
            else:
                true = task.codes.x[rows[cells], c].long()
                found = probabilities[c]
                group = found.groups[cells, found.block.group[true]]
                more = (group * found.block.share[true]).clamp(min=SMALLEST_LIKELIHOOD)
            parts[c].append((point[cells, c].numpy(), more.numpy()))
    return {
        c: (np.concatenate([one for one, _ in found]), np.concatenate([more for _, more in found]))
        for c, found in parts.items()
        if found
    }


def collect(task: Task, race: Race) -> list[Answers]:
    """Returns what all candidates say of each column, numbers in standard deviations."""
    collected = []
    for c, column in enumerate(task.columns):
        rows = task.scored[task.hidden[task.scored, c]]
        truth, half = task.codes.x[rows, c].numpy(), task.half[rows.numpy()]
        shape = (0,) if column.levels is not None else (0, len(LEVELS))
        found = [said.get(c, (np.zeros(0), np.zeros(shape))) for said in race.said]
        points, more = np.stack([one for one, _ in found]), np.stack([other for _, other in found])
        if column.levels is not None:
            collected.append(Answers(truth, half, points, likelihood=more))
        else:
            known = task.codes.x[task.codes.observed[:, c], c].numpy()
            largest = float(np.abs(known).max(initial=0.0)) or 1.0
            scale = (float((known / largest).std()) or 1.0) * largest
            collected.append(Answers(truth / scale, half, points / scale, more / scale))
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
