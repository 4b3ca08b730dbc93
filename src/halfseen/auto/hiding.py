"""Rows of the user's own table in which known cells are hidden, for a comparison of imputers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from halfseen._random import torch_generator
from halfseen.data.incomplete import Incomplete
from halfseen.data.schema import Column
from halfseen.missingness.learned import Learned

MAX_RACE_ROWS = 3_000
MAX_RACE_CELLS = 600_000
MAX_SCORED_ROWS = 1_000
MAX_SCORED_CELLS = 100_000
HIDDEN_SHARE = 0.2
MAX_MASKS, ENOUGH_CELLS = 3, 150  # masks; hidden cells of a column, on average, that need no other mask
MAX_REPETITIONS = 20  # of a learned mechanism that removes few cells
MAX_LEARNED_COLUMNS = 40  # with more columns, no mechanism is learned: it would take too long


@dataclass(frozen=True)
class RaceTask:
    """Rows of a race.

    Shapes
    ------
    codes : (N, C)
    hidden : (N, C), observed cells that no imputer sees
    scored : rows with hidden cells
    half : (N), 0 or 1
    row : (N), which of the rows of the table it is: a row occurs once for each mask
    """

    columns: Sequence[Column]
    codes: Incomplete
    hidden: torch.Tensor
    scored: torch.Tensor
    half: npt.NDArray[np.int64]
    row: npt.NDArray[np.int64]

    @property
    def shown(self) -> Incomplete:
        """The codes without the hidden cells."""
        return Incomplete(self.codes.x, self.codes.observed & ~self.hidden)


def race_rows(codes: Incomplete) -> int:
    """Returns the number of rows that are used in a race."""
    return min(len(codes), MAX_RACE_ROWS, max(200, MAX_RACE_CELLS // codes.x.shape[1]))


def make_tasks(
    columns: Sequence[Column], codes: Incomplete, complete: Callable[[Incomplete], torch.Tensor], seed: int
) -> Iterator[RaceTask]:
    """Yields rows with hidden cells: half of them at random, half by the mechanism learned from the table.

    The same rows follow with other cells hidden, as long as the masks before have hidden too few cells to
    choose by. `complete` returns completed codes, to which the mechanism is applied, if there is one.
    """
    generator = torch_generator(seed)
    n_rows = race_rows(codes)
    if len(codes) > n_rows:
        codes = codes[torch.randperm(len(codes), generator=generator)[:n_rows].sort().values]
    learned = None
    if bool((~codes.observed).any()) and codes.x.shape[1] <= MAX_LEARNED_COLUMNS:
        learned = Learned().fit(codes.to_array())

    def remove(part: Incomplete, seed: int) -> torch.Tensor | None:
        return None if learned is None else _remove(learned, part, complete(part).numpy(), seed)

    hidden, scored = _hide(codes, codes.observed, remove, generator, seed)
    half = torch.randint(2, (len(codes),), generator=generator).numpy()
    task = RaceTask(columns, codes, hidden, scored, half, np.arange(len(codes)))
    yield task
    hidden_before = hidden
    for more in range(1, MAX_MASKS):
        if float(hidden_before.sum(dim=0).double().mean()) >= ENOUGH_CELLS:
            return
        free = codes.observed & ~hidden_before
        hidden, scored = _hide(codes, free, remove, torch_generator(seed + more), seed + more)
        if not len(scored):
            return
        hidden_before = hidden_before | hidden
        yield replace(task, hidden=hidden, scored=scored)


def join_tasks(tasks: Sequence[RaceTask]) -> RaceTask:
    """Returns the rows of all tasks, one after the other."""
    starts = np.cumsum([0, *(len(task.codes) for task in tasks)])
    scored = torch.cat([task.scored + int(start) for task, start in zip(tasks, starts[:-1], strict=True)])
    observed = torch.cat([task.codes.observed for task in tasks])
    return RaceTask(
        tasks[0].columns,
        Incomplete(torch.cat([task.codes.x for task in tasks]), observed),
        torch.cat([task.hidden for task in tasks]),
        scored,
        np.concatenate([task.half for task in tasks]),
        np.concatenate([task.row for task in tasks]),
    )


def _hide(
    codes: Incomplete,
    free: torch.Tensor,
    remove: Callable[[Incomplete, int], torch.Tensor | None],
    generator: torch.Generator,
    seed: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns hidden cells (N, C), all of them free ones, and the rows that have some.

    `remove` returns the observed cells of rows that a learned mechanism removes; None if there is none.
    """
    n_scored = min(MAX_SCORED_ROWS, max(100, MAX_SCORED_CELLS // codes.x.shape[1]))
    scored = torch.randperm(len(codes), generator=generator)[:n_scored].sort().values
    part, unused = codes[scored], free[scored]
    priority = torch.rand(part.x.shape, generator=generator)
    wanted = (priority < HIDDEN_SHARE) & unused
    removed = remove(part, seed)
    if removed is not None:
        rate = float(removed.double().mean())
        kept = torch.rand(part.x.shape, generator=generator) < HIDDEN_SHARE / 2 / max(rate, 1e-12)
        wanted = ((priority < HIDDEN_SHARE / 2) & unused) | (removed & kept & unused)
    alone = wanted.sum(dim=1) == part.observed.sum(dim=1)  # a row keeps something, if it has two cells
    wanted[alone & (part.observed.sum(dim=1) > 1)] = False
    hidden = torch.zeros_like(codes.observed)
    hidden[scored] = _spared(codes, scored, wanted, generator)
    return hidden, scored[hidden[scored].any(dim=1)]


def _remove(
    learned: Learned, part: Incomplete, completed: npt.NDArray[np.float64], seed: int
) -> torch.Tensor:
    """Returns the observed cells (N, C) that the mechanism removes from the rows of a part.

    If it removes few, it is applied again to the rows in which it has removed nothing. Cells that are missing
    together in the table are then hidden together, however few they are.
    """
    removed = torch.zeros_like(part.observed)
    for repetition in range(MAX_REPETITIONS):
        none = ~removed.any(dim=1)
        if float(removed.double().mean()) >= HIDDEN_SHARE / 2 or not none.any():
            break
        shown = torch.from_numpy(learned.sample(completed, random_state=seed + repetition * MAX_MASKS))
        removed[none] = (~shown & part.observed)[none]
    return removed


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
