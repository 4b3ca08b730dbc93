"""The loss of rating prediction: squared errors of observed entries."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from halfseen.data.sparse import SparseRows


class RatingModel(Protocol):
    """A module that predicts entries of sparse rows."""

    def __call__(self, rows: SparseRows, wanted: SparseRows) -> Tensor:
        """Returns predictions of the entries of `wanted`."""
        ...


@dataclass(frozen=True)
class RatedRows:
    """Rows that a model sees, and the entries of the same rows that it predicts."""

    inputs: SparseRows
    targets: SparseRows

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, rows: slice | Tensor) -> "RatedRows":
        inputs = self.inputs[rows]
        return RatedRows(inputs, inputs if self.targets is self.inputs else self.targets[rows])


@dataclass(frozen=True)
class RatingError:
    r"""Computes the squared error of observed entries.

    .. math:: \ell_i = \sum_{j \in o_i} (\hat r_{ij} - r_{ij})^2
    """

    def draw_noise(self, batch: RatedRows, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Returns nothing: the loss is deterministic."""
        return ()

    def __call__(self, module: RatingModel, batch: RatedRows, noise: tuple[Tensor, ...]) -> Tensor:
        """Returns the loss (N) of each row."""
        errors = (module(batch.inputs, batch.targets) - batch.targets.values).square()
        return errors.new_zeros(len(batch)).index_add(0, batch.targets.rows, errors)
