"""Standardisation learned on the observed cells of the training rows, and nothing else."""

from dataclasses import dataclass

import torch
from torch import Tensor

from halfseen.data.incomplete import Incomplete


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
    def fit(cls, batch: Incomplete) -> "Standardizer":
        """Learns location and scale; a feature without spread keeps scale 1."""
        total = batch.observed.sum(dim=0).clamp(min=1)
        # Squares of numbers near the largest float overflow, so everything is divided by the largest first.
        largest = batch.filled().abs().amax(dim=0) if len(batch) else torch.ones(batch.n_features)
        unit = torch.where(largest > 0, largest, 1.0).to(batch.x.dtype)
        x = batch.filled() / unit
        loc = x.sum(dim=0) / total
        centred = torch.where(batch.observed, x - loc, 0.0)
        scale = (centred.square().sum(dim=0) / total).sqrt() * unit
        return cls(loc * unit, torch.where(scale > 1e-12 * unit, scale, 1.0))

    def forward(self, x: Tensor) -> Tensor:
        """Standardises values (*, D)."""
        centred = x - self.loc
        apart = x / self.scale - self.loc / self.scale  # for differences beyond the largest float
        return torch.where(centred.isinf(), apart, centred / self.scale)

    def inverse(self, x: Tensor) -> Tensor:
        """Puts standardised values (*, D) back on their own scale."""
        return x * self.scale + self.loc
