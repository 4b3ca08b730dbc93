"""Blocks of rows depend on the numbers of rows and columns only."""

import numpy as np
import pytest

from halfseen.data.incomplete import (
    CELLS_IN_BLOCK,
    FEWEST_ROWS,
    MOST_ROWS,
    PIECE_BYTES,
    add_in_tree,
    blocks_of,
    rows_in_block,
    rows_in_piece,
)


@pytest.mark.parametrize("n_columns", [1, 2, 16, 17, 100, 4096, 4097, 10**6])
def test_blocks_are_bounded_and_cover_every_row_once(n_columns):
    size = rows_in_block(n_columns)
    assert FEWEST_ROWS <= size <= MOST_ROWS
    assert size == FEWEST_ROWS or size * n_columns <= CELLS_IN_BLOCK
    for n_rows in (0, 1, size - 1, size, size + 1, 3 * size + 5):
        rows = [row for block in blocks_of(n_rows, n_columns) for row in range(block.start, block.stop)]
        assert rows == list(range(n_rows))


@pytest.mark.parametrize("n", range(1, 34))
def test_a_tree_adds_each_part_once_and_in_order(n):
    found = add_in_tree(((i,) for i in range(n)), lambda left, right: left + right)
    assert found == tuple(range(n))


def test_the_sum_of_complete_subtrees_is_a_part_of_the_sum_of_all():
    parts = np.random.default_rng(0).normal(size=24)
    left, right = add_in_tree(parts[:16], np.add), add_in_tree(parts[16:], np.add)
    assert add_in_tree(parts, np.add) == left + right


def test_no_parts_have_no_sum():
    assert add_in_tree([], np.add) is None


@pytest.mark.parametrize("n_columns", [1, 12, 100, 4096])
@pytest.mark.parametrize("n_numbers", [1, 300, 10**5, 10**12])
def test_pieces_divide_blocks_and_fit_into_the_planned_memory(n_columns, n_numbers):
    size = rows_in_piece(n_columns, n_numbers)
    assert rows_in_block(n_columns) % size == 0
    assert size == 1 or 8 * size * n_numbers <= PIECE_BYTES
    assert size == rows_in_block(n_columns) or 16 * size * n_numbers > PIECE_BYTES


def test_sums_of_pieces_are_sums_of_blocks_bit_by_bit():
    """So that sums of blocks, which come from elsewhere, can be added to those of a table in memory."""
    numbers = np.random.default_rng(0).normal(size=1000) * 1e3
    pieces = [numbers[start : start + 16].sum() for start in range(0, 1000, 16)]
    of_blocks = [add_in_tree(pieces[k : k + 8], lambda a, b: a + b) for k in range(0, len(pieces), 8)]
    assert add_in_tree(of_blocks, lambda a, b: a + b) == add_in_tree(pieces, lambda a, b: a + b)
