"""Rows held out of training: one rule for every estimator that needs some."""

import math
from typing import TypeVar

import torch

from halfseen.objectives.protocols import Rows

RowsT = TypeVar("RowsT", bound=Rows)

SMALLEST_SPLIT = 50  # with fewer rows, holding some out costs more than it gains


def split_rows(rows: RowsT, fraction: float, generator: torch.Generator) -> tuple[RowsT, RowsT | None]:
    """Returns rows to train on and rows held out, chosen at random.

    Nothing is held out of fewer than `SMALLEST_SPLIT` rows; then the second value is None.
    """
    n_held_out = math.ceil(fraction * len(rows))
    if n_held_out == 0 or len(rows) < SMALLEST_SPLIT:
        return rows, None
    order = torch.randperm(len(rows), generator=generator)
    return rows[order[n_held_out:]], rows[order[:n_held_out]]
