"""Splitting rows into training rows and held-out rows, by one rule for all estimators."""

import math
from typing import TypeVar

import torch

from halfseen.training.step import Rows

RowsT = TypeVar("RowsT", bound=Rows)

SMALLEST_SPLIT = 50  # with fewer rows, holding some out costs more than it gains


def split_rows(rows: RowsT, fraction: float, generator: torch.Generator) -> tuple[RowsT, RowsT | None]:
    """Returns rows to train on and rows held out, chosen at random.

    With fewer than `SMALLEST_SPLIT` rows, nothing is held out and the second value is None.
    """
    n_held_out = math.ceil(fraction * len(rows))
    if n_held_out == 0 or len(rows) < SMALLEST_SPLIT:
        return rows, None
    order = torch.randperm(len(rows), generator=generator)
    return rows[order[n_held_out:]], rows[order[:n_held_out]]
