"""Rows of the user's own table in which known cells are hidden, for a comparison of imputers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from halfseen._random import seed_from, torch_generator
from halfseen.data.incomplete import Incomplete
from halfseen.data.schema import Column
from halfseen.missingness.logistic import Learned

# Guesses: a comparison of the default candidates is to take a small part of their fits to a long table, while
# enough cells are hidden to tell the candidates apart.
MAX_COMPARED_ROWS = 3_000
MAX_COMPARED_CELLS = 600_000
MAX_SCORED_ROWS = 1_500
MAX_SCORED_CELLS = 100_000
HIDDEN_SHARE = 0.1  # of the cells of a row, at least one; with more, rows would lack more than others do
MAX_MASKS, ENOUGH_CELLS = 3, 40  # masks; hidden cells of a column, on average, that need no other mask
MOST_CELLS = 80  # hidden cells of a column, on average
PATTERN_SHARE = 0.75  # of the rows whose cells are hidden by a learned mechanism
MAX_REPETITIONS = 3  # of a learned mechanism that removes few cells
MAX_LEARNED_COLUMNS = 40  # with more columns, no mechanism is learned: it would take too long
HIDING = 1  # which random numbers of a seed are those of the hidden cells


@dataclass(frozen=True)
class HiddenTask:
    """Rows of a comparison.

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


def compared_rows(codes: Incomplete) -> int:
    """Returns the number of rows that are used in a comparison."""
    return min(len(codes), MAX_COMPARED_ROWS, max(200, MAX_COMPARED_CELLS // max(1, codes.x.shape[1])))


def make_tasks(
    columns: Sequence[Column], codes: Incomplete, complete: Callable[[Incomplete], torch.Tensor], seed: int
) -> Iterator[HiddenTask]:
    """Yields rows with hidden cells, so that what is left of a row is like what incomplete rows have.

    In a quarter of the rows, a cell is hidden at random (one of ten in wide tables). In the others, cells
    are hidden by the mechanism that is learned from the table. In a complete row, these are all cells of a
    pattern that it draws, so that cells that are missing together are hidden together. In an incomplete row
    it is one of these cells, because the row would otherwise lack the cells of two patterns. Cells are drawn
    before it is asked whether they are known, so that rows with few known cells lose fewer: if values are
    missing completely at random, the row of a hidden cell then lacks as many cells as that of a missing one.

    The same rows follow with other cells hidden, as long as the masks before have hidden too few cells to
    choose by. `complete` returns completed codes, to which the mechanism is applied, if there is one.

    `seed` is often also the seed by which somebody removed values from the table, with a mechanism of this
    library. The random numbers are therefore others than those of the seed itself: the learned mechanism
    would choose the cells that are missing already, and hide hardly any cell of some columns.
    """
    seed = seed_from(np.random.default_rng([seed, HIDING]))
    generator = torch_generator(seed)
    n_rows = compared_rows(codes)
    if len(codes) > n_rows:
        codes = codes[torch.randperm(len(codes), generator=generator)[:n_rows].sort().values]
    learned = None
    if bool((~codes.observed).any()) and codes.x.shape[1] <= MAX_LEARNED_COLUMNS:
        learned = Learned().fit(codes.to_array())

    def remove(part: Incomplete, seed: int) -> torch.Tensor | None:
        if learned is None:
            return None
        return _remove(learned, part, complete(part).numpy(), codes.observed, seed)

    hidden, scored = _hide(codes, codes.observed, remove, generator, seed)
    half = torch.randint(2, (len(codes),), generator=generator).numpy()
    task = HiddenTask(columns, codes, hidden, scored, half, np.arange(len(codes)))
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


def join_tasks(tasks: Sequence[HiddenTask]) -> HiddenTask:
    """Returns the rows of all tasks, one after the other."""
    starts = np.cumsum([0, *(len(task.codes) for task in tasks)])
    scored = torch.cat([task.scored + int(start) for task, start in zip(tasks, starts[:-1], strict=True)])
    observed = torch.cat([task.codes.observed for task in tasks])
    return HiddenTask(
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

    `remove` returns the cells (N, C) of a pattern for each row by a learned mechanism; None if there is none.
    """
    n_columns = codes.x.shape[1]
    n_hidden = max(1, round(HIDDEN_SHARE * n_columns))
    most = min(MAX_SCORED_ROWS, max(100, MAX_SCORED_CELLS // n_columns, MOST_CELLS * n_columns // n_hidden))
    scored = torch.randperm(len(codes), generator=generator)[:most].sort().values
    part, unused = codes[scored], free[scored]
    wanted = _some(torch.ones_like(unused), n_hidden, generator) & unused
    pattern = remove(part, seed)
    if pattern is not None:
        complete = part.observed.all(dim=1, keepdim=True)
        learned = torch.where(complete, pattern, _some(pattern, n_hidden, generator))
        chance = torch.rand(len(part), 1, generator=generator)
        wanted = torch.where(chance < PATTERN_SHARE, learned & unused, wanted)
    alone = wanted.sum(dim=1) == part.observed.sum(dim=1)  # a row keeps something, if it has two cells
    wanted[alone & (part.observed.sum(dim=1) > 1)] = False
    hidden = torch.zeros_like(codes.observed)
    hidden[scored] = _spared(codes, scored, wanted, generator)
    return hidden, scored[hidden[scored].any(dim=1)]


def _some(allowed: torch.Tensor, n_cells: int, generator: torch.Generator) -> torch.Tensor:
    """Returns at most a number of the allowed cells (N, C) of each row, chosen at random."""
    order = torch.rand(allowed.shape, generator=generator)
    rank = torch.where(allowed, order, torch.inf).argsort(dim=1).argsort(dim=1)
    return allowed & (rank < n_cells)


def _remove(
    learned: Learned,
    part: Incomplete,
    completed: npt.NDArray[np.float64],
    patterns: torch.Tensor,
    seed: int,
) -> torch.Tensor:
    """Returns a pattern (N, C) for each row: the cells that the mechanism removes.

    `patterns` (R, C) are the observed cells of the rows of the table.

    If it removes no cell of a row, it is applied to this row again, a few times; then the row has the
    pattern of an incomplete row of the table. Cells that are missing together in the table are therefore
    hidden together, however few they are.
    """
    removed = torch.zeros_like(part.observed)
    for repetition in range(MAX_REPETITIONS):
        none = ~removed.any(dim=1)
        if not none.any():
            break
        shown = torch.from_numpy(learned.sample(completed, random_state=seed + repetition * MAX_MASKS))
        removed[none] = ~shown[none]
    none = ~removed.any(dim=1)
    donors = patterns[(~patterns).any(dim=1)]
    if len(donors):
        drawn = torch.randint(len(donors), (int(none.sum()),), generator=torch_generator(seed))
        removed[none] = ~donors[drawn]
    return removed


def _spared(
    codes: Incomplete, scored: torch.Tensor, wanted: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """Returns the wanted cells (M, C) that columns can spare: at most a third of a column, chosen at random.

    A column in which fewer than 10 cells, or a single value, would be left keeps all its cells.
    """
    most = codes.observed.sum(dim=0) // 3
    order = torch.rand(len(wanted), 1, generator=generator)  # of rows: cells that are hidden together stay so
    rank = torch.where(wanted, order, torch.inf).argsort(dim=0).argsort(dim=0)
    spared = wanted & (rank < most)
    left = codes.observed.clone()
    left[scored] &= ~spared
    low = torch.where(left, codes.x, torch.inf).amin(dim=0)
    high = torch.where(left, codes.x, -torch.inf).amax(dim=0)
    return spared & (left.sum(dim=0) >= 10) & (high > low)
