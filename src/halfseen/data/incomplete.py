r"""The input of every model: a pair of values and a mask that states which of them were observed.

`Standardizer` learns means and standard deviations from the observed cells of the training rows.

Shapes everywhere: ``*`` batch, ``N`` rows, ``D`` features, ``K`` components, ``L`` latent, ``S`` draws.
The feature axis is last, the draws axis first, the component axis just before features.

Fixed blocks of rows: the units in which rows are computed and sums over rows are taken.

The last bits of a matrix product depend on its shape, and the last bits of a sum on its order. Where an
answer must not depend on how a table is split into files, batches or tasks, rows are therefore computed in
blocks that depend only on the index of a row in the whole table and on the number of columns, and sums of
blocks are added in a fixed order. Where an operation needs much memory for each row, a block is cut into
pieces, the size of which depends on the operation and never on the machine.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from halfseen._random import choose_rows

Part = TypeVar("Part")

# A block has about a million cells: large enough that its fixed costs hardly count (blocks of 65,536
# rows of 12 columns were measured to cost 10% more than blocks of 250,000), small enough for little memory.
CELLS_IN_BLOCK = 1 << 20
MOST_ROWS = 1 << 16
FEWEST_ROWS = 1 << 8

# The working memory that is planned for a piece of a block: a guess, by which two threads, each with a piece,
# stay within a memory budget of 128 MiB (tests/conformance/test_memory.py).
PIECE_BYTES = 1 << 25


def rows_in_block(n_columns: int) -> int:
    """Returns the number of rows in a block: a power of two that depends on the number of columns only.

    Examples
    --------
    >>> rows_in_block(12), rows_in_block(100), rows_in_block(100_000)
    (65536, 8192, 256)
    """
    rows = MOST_ROWS
    while rows > FEWEST_ROWS and rows * n_columns > CELLS_IN_BLOCK:
        rows //= 2
    return rows


def rows_in_piece(n_columns: int, n_numbers: int, n_bytes: int = 8) -> int:
    """Returns how many rows of a block are computed at a time: a power of two, at most the rows of a block.

    Parameters
    ----------
    n_columns : int
        The number of columns of the table, which gives the size of a block.
    n_numbers : int
        How many numbers are in memory for each row at the peak of the operation.
    n_bytes : int
        The size of a number.

    Examples
    --------
    >>> rows_in_piece(12, 12), rows_in_piece(12, 24 * 12), rows_in_piece(12, 10**9)
    (65536, 8192, 1)
    """
    rows = rows_in_block(n_columns)
    while rows > 1 and rows * n_numbers * n_bytes > PIECE_BYTES:
        rows //= 2
    return rows


def add_in_tree(parts: Iterable[Part], add: Callable[[Part, Part], Part]) -> Part | None:
    """Adds parts, in their order, by a binary tree that depends on their number only; None if there are none.

    At most one partial sum for each level of the tree is kept, so parts may come from a stream.

    Examples
    --------
    >>> add_in_tree("abcde", lambda left, right: f"({left}{right})")
    '(((ab)(cd))e)'
    """
    partial: list[tuple[int, Part]] = []  # (level, sum) of complete subtrees, from the left
    for part in parts:
        level, total = 0, part
        while partial and partial[-1][0] == level:
            total = add(partial.pop()[1], total)
            level += 1
        partial.append((level, total))
    if not partial:
        return None
    total = partial.pop()[1]
    while partial:
        total = add(partial.pop()[1], total)
    return total


BLOCKS_IN_RUN = 16
"""Blocks that are worked off together: a power of two, so that the sum of a run is a part of the tree."""


def runs_of(n_rows: int, n_columns: int) -> list[tuple[int, int]]:
    """Returns the first row of each run of blocks of a table, and that after its last one.

    Examples
    --------
    >>> runs_of(2_000_000, 12)
    [(0, 1048576), (1048576, 2000000)]
    """
    size = BLOCKS_IN_RUN * rows_in_block(n_columns)
    return [(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]


SAMPLE_ROWS = 1_000_000  # rows to which estimators are fitted that do not take all; a guess


class Passes(Protocol):
    """Goes over the rows of a table, run by run; engines of `halfseen.distributed` use several processes."""

    def __call__(
        self, function: Callable[[Any, int, int], Any], job: Any, runs: Sequence[tuple[int, int]]
    ) -> Iterable[Any]:
        """Returns ``function(job, start, stop)`` of each run, in their order; a function of a module."""
        ...


def in_this_process(
    function: Callable[[Any, int, int], Part], job: Any, runs: Sequence[tuple[int, int]]
) -> Iterator[Part]:
    """Yields the results of a function of runs of rows, one after the other; see `Passes`."""
    return (function(job, start, stop) for start, stop in runs)


def blocks_of(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Yields the blocks of a table, as slices of its rows.

    Examples
    --------
    >>> list(blocks_of(100_000, 12))
    [slice(0, 65536, None), slice(65536, 100000, None)]
    """
    size = rows_in_block(n_columns)
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


NUMBERS_PER_CELL = 32  # planned for scaling, so that pieces have at most 2**17 cells: they fit into a cache
LEAST, GREATEST = 1e-100, 1e100  # between these, squares of numbers are numbers, and so are their sums


def unmask(X: Any) -> Any:
    """Returns a masked array as a plain array with NaN or NaT; any other object is returned unchanged.

    Integers and booleans become float64, because they cannot represent NaN.

    Examples
    --------
    >>> unmask(np.ma.array([1, 2, -999], mask=[False, False, True]))
    array([ 1.,  2., nan])
    """
    if isinstance(X, list | tuple) and any(isinstance(row, np.ma.MaskedArray) for row in X):
        X = np.ma.stack([np.ma.asarray(row) for row in X])
    if not isinstance(X, np.ma.MaskedArray):
        return X
    cells, masked = np.array(np.ma.getdata(X)), np.ma.getmaskarray(X)
    if cells.dtype.kind in "biu":
        cells = cells.astype(np.float64)
    elif cells.dtype.kind in "SU":
        cells = cells.astype(object)
    if masked.any():
        cells[masked] = np.array("NaT", cells.dtype) if cells.dtype.kind in "mM" else np.nan
    return cells


def check_not_masked(values: Any, name: str) -> Any:
    """Returns targets or weights without their mask; raises if one of them is masked."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    n_masked = int(np.ma.getmaskarray(values).sum())
    if n_masked:
        raise ValueError(
            f"Input {name} contains NaN: {n_masked} of its {values.size} values are masked. Leave out the "
            "rows in which it is not known."
        )
    return np.array(np.ma.getdata(values))


@dataclass(frozen=True)
class Incomplete:
    r"""Incomplete values: ``x`` and the boolean ``observed`` of the same shape, True for observed values.

    The entries of ``x`` where ``observed`` is False have no meaning and are never read: every function fills
    them with ``torch.where`` before a computation, and masks the result with ``torch.where`` afterwards.

    Examples
    --------
    >>> batch = Incomplete.from_array(np.array([[1.0, np.nan], [3.0, 4.0]]))
    >>> batch.observed
    tensor([[ True, False],
            [ True,  True]])
    >>> batch.to_array()
    array([[ 1., nan],
           [ 3.,  4.]])
    """

    x: Tensor
    observed: Tensor

    def __post_init__(self) -> None:
        if self.observed.dtype != torch.bool:
            raise ValueError(
                f"observed must be boolean (True for observed values), got {self.observed.dtype}."
            )
        if self.x.shape != self.observed.shape:
            shapes = f"{tuple(self.x.shape)} and {tuple(self.observed.shape)}"
            raise ValueError(f"x and observed must have one shape, got {shapes}.")

    @classmethod
    def from_array(cls, array: npt.ArrayLike, dtype: torch.dtype = torch.float64) -> "Incomplete":
        """Splits an array with NaN; always copies, so the caller's memory is never shared."""
        values = np.array(unmask(array), dtype=np.float64, copy=True)
        observed = ~np.isnan(values)
        return cls(torch.from_numpy(np.where(observed, values, 0.0)).to(dtype), torch.from_numpy(observed))

    def to_array(self) -> npt.NDArray[np.float64]:
        """Returns a float64 array with NaN where values are missing."""
        array: npt.NDArray[np.float64] = torch.where(self.observed, self.x, torch.nan).double().numpy()
        return array

    def chosen_rows(self, n_rows: int, seed: int = 0) -> Tensor:
        """Returns the positions of at most `n_rows` rows, chosen by a hash of the cells of each row.

        Which rows they are does not depend on the order of the rows. If there are no more, all are returned,
        in their order.
        """
        if len(self) <= n_rows:
            return torch.arange(len(self))
        columns = (Incomplete(*one).to_array() for one in zip(self.x.T, self.observed.T, strict=True))
        return torch.from_numpy(choose_rows(columns, len(self), n_rows, seed))

    def filled(self, value: float | Tensor = 0.0) -> Tensor:
        """Returns ``x`` with `value` (a number, or a tensor that broadcasts) for missing values."""
        return torch.where(self.observed, self.x, value.to(self.x) if isinstance(value, Tensor) else value)

    def to(self, dtype: torch.dtype) -> "Incomplete":
        """Returns the pair with ``x`` in another floating type."""
        return Incomplete(self.x.to(dtype), self.observed)

    def beside(self, other: "Incomplete") -> "Incomplete":
        """Returns the columns of this pair followed by those of another, in the type of this one."""
        x = torch.cat([self.x, other.x.to(self.x.dtype)], dim=-1)
        return Incomplete(x, torch.cat([self.observed, other.observed], dim=-1))

    def chunks(self, n_rows: int) -> Iterator["Incomplete"]:
        """Yields consecutive pieces of at most `n_rows` rows."""
        for start in range(0, len(self), n_rows):
            yield self[start : start + n_rows]

    @property
    def n_features(self) -> int:
        """The number of features D."""
        return self.x.shape[-1]

    def __len__(self) -> int:
        return self.x.shape[0]

    def __getitem__(self, rows: slice | Tensor) -> "Incomplete":
        return Incomplete(self.x[rows], self.observed[rows])


@dataclass(frozen=True)
class Standardizer:
    """Shifts and scales each feature to mean 0 and standard deviation 1 over its observed cells.

    Examples
    --------
    >>> x = torch.tensor([[1.0], [3.0], [9.0]], dtype=torch.float64)
    >>> batch = Incomplete(x, torch.tensor([[True], [True], [False]]))
    >>> Standardizer.fit(batch).forward(batch.x)[:2].flatten().tolist()
    [-1.0, 1.0]
    """

    loc: Tensor
    scale: Tensor

    @classmethod
    def checked(cls, loc: Tensor, scale: Tensor) -> "Standardizer":
        """Returns the standardisation; raises a ValueError unless all scales are positive."""
        numbers = loc.is_floating_point() and scale.dtype == loc.dtype
        if not numbers or loc.ndim != 1 or scale.shape != loc.shape or not bool((scale > 0).all()):
            raise ValueError("The scales of features or targets are not positive, one for each.")
        return cls(loc, scale)

    @classmethod
    def fit(cls, batch: Incomplete) -> "Standardizer":
        """Learns location and scale; a feature without spread keeps scale 1."""
        parts = [*batch.chunks(_rows_scaled_at_once(batch))]
        low, high = (torch.full_like(batch.x[:1].sum(dim=0), end) for end in (torch.inf, -torch.inf))
        total = torch.zeros(batch.n_features, dtype=torch.int64)
        for part in parts:
            total += part.observed.sum(dim=0)
            torch.minimum(low, part.x.masked_fill(~part.observed, torch.inf).amin(dim=0), out=low)
            torch.maximum(high, part.x.masked_fill(~part.observed, -torch.inf).amax(dim=0), out=high)
        nothing = total == 0
        low, high = low.masked_fill(nothing, 0.0), high.masked_fill(nothing, 0.0)
        unit = torch.maximum(low.abs(), high.abs())
        # Squares of numbers near the largest float overflow, and those near the smallest vanish.
        divisor = torch.where((unit == 0) | ((unit > LEAST) & (unit < GREATEST)), 1.0, unit)
        # Numbers close to each other have exact differences, whatever their size: centring comes first.
        centre = low / divisor / 2 + high / divisor / 2
        shift, _ = _moments(parts, divisor, centre, total)
        shift, spread = _moments(parts, divisor, loc := centre + shift, total)
        scale = spread * divisor
        return cls((loc + shift) * divisor, torch.where((high > low) & (scale > 0), scale, 1.0))

    def forward(self, x: Tensor) -> Tensor:
        """Standardises values (*, D)."""
        scaled = (x - self.loc).div_(self.scale)
        if bool(scaled.sum().isfinite()):
            return scaled
        apart = x / self.scale - self.loc / self.scale  # for differences beyond the largest float
        return torch.where((x - self.loc).isinf(), apart, scaled)

    def overwrite(self, batch: Incomplete) -> Incomplete:
        """Standardises values in their place, those that are missing as zeros, some rows at a time."""
        size = _rows_scaled_at_once(batch)
        for start in range(0, len(batch), size):
            rows = slice(start, start + size)
            batch.x[rows] = self.forward(batch[rows].filled())
        return batch

    def inverse(self, x: Tensor) -> Tensor:
        """Transforms standardised values (*, D) back to their original scale."""
        return x * self.scale + self.loc


def _rows_scaled_at_once(batch: Incomplete) -> int:
    """Returns a power of two, which divides a block of rows, so that sums of pieces are sums of blocks."""
    return rows_in_piece(batch.n_features, NUMBERS_PER_CELL * batch.n_features)


def _moments(
    parts: Sequence[Incomplete], divisor: Tensor, centre: Tensor, total: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns mean and standard deviation (D) of the observed cells divided by `divisor`, about a centre."""
    plain = bool((divisor == 1).all())

    def sums_of(part: Incomplete) -> Tensor:
        x = part.x - centre if plain else part.x / divisor - centre
        x.masked_fill_(~part.observed, 0.0)
        return torch.stack([x.sum(dim=0), x.square_().sum(dim=0)])

    found = add_in_tree(map(sums_of, parts), torch.add)
    sums, squares = torch.stack([torch.zeros_like(centre)] * 2) if found is None else found
    mean = sums / total.clamp(min=1)
    return mean, (squares / total.clamp(min=1) - mean.square()).clamp(min=0.0).sqrt()
