"""The loss of rating prediction: squared errors of observed entries with a penalty of the weights."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from halfseen.data.sparse import SparseRows


class RatingModel(Protocol):
    """A module that predicts entries of sparse rows."""

    training: bool

    def __call__(self, rows: SparseRows, wanted: SparseRows) -> Tensor:
        """Returns predictions of the entries of `wanted`."""
        ...

    def penalty(self) -> Tensor:
        """Returns what regularisation adds to the loss."""
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
    r"""Computes the squared error of observed entries and, while training, the penalty of the weights.

    .. math:: \ell_i = \sum_{j \in o_i} (\hat r_{ij} - r_{ij})^2 + \frac{\lambda}{N} P(\theta)

    so that the sum over the :math:`N` training rows is the squared error plus :math:`\lambda P`, whatever the
    size of batches.

    Parameters
    ----------
    penalty : float
        The weight :math:`\lambda`.
    n_rows : int
        The number of training rows :math:`N`.
    """

    penalty: float
    n_rows: int

    def draw_noise(self, batch: RatedRows, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Returns nothing: the loss is deterministic."""
        return ()

    def __call__(self, module: RatingModel, batch: RatedRows, noise: tuple[Tensor, ...]) -> Tensor:
        """Returns the loss (N) of each row."""
        errors = (module(batch.inputs, batch.targets) - batch.targets.values).square()
        loss = errors.new_zeros(len(batch)).index_add(0, batch.targets.rows, errors)
        return loss + self.penalty / self.n_rows * module.penalty() if module.training else loss
