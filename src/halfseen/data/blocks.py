"""Fixed blocks of rows: the units in which rows are computed and sums over rows are taken.

The last bits of a matrix product depend on its shape, and the last bits of a sum on its order. Where an
answer must not depend on how a table is split into files, batches or tasks, rows are therefore computed in
blocks that depend only on the index of a row in the whole table and on the number of columns, and sums of
blocks are added in a fixed order. Where an operation needs much memory for each row, a block is cut into
pieces, the size of which depends on the operation and never on the machine.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

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
