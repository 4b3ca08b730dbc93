"""Protocols of the data and the objectives of the training loop."""

from typing import Protocol, Self, TypeVar

import torch
from torch import Tensor


class Rows(Protocol):
    """Anything with a length that can be indexed by rows: an ``Incomplete``, or one together with labels."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice | Tensor, /) -> Self: ...


ModuleT = TypeVar("ModuleT", contravariant=True)
RowsT = TypeVar("RowsT", bound=Rows, contravariant=True)


class Objective(Protocol[ModuleT, RowsT]):
    """A loss per row. Its noise is drawn separately, so that the loss itself is deterministic.

    An objective that needs no noise returns an empty tuple from ``draw_noise``. It may access parameters only
    through the `module` that it receives, by any of its methods. An objective with its own state, which a
    checkpoint does not contain, has an attribute ``resumable`` that is False.
    """

    def draw_noise(self, batch: RowsT, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Returns the noise for one evaluation of the loss on `batch`."""
        ...

    def __call__(self, module: ModuleT, batch: RowsT, noise: tuple[Tensor, ...]) -> Tensor:
        """Returns the loss of each row, with shape :math:`(N)`; training minimises its mean."""
        ...
