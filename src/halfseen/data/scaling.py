"""Standardisation learned from the observed cells of the training rows."""

from dataclasses import dataclass

import torch
from torch import Tensor

from halfseen.data.incomplete import Incomplete

LEAST, GREATEST = 1e-100, 1e100  # between these, squares of numbers are numbers, and so are their sums


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
        x = batch.filled()
        largest = x.abs().amax(dim=0) if len(batch) else torch.ones(batch.n_features)
        unit = torch.where(largest > 0, largest, 1.0).to(batch.x.dtype)
        # Squares of numbers near the largest float overflow, and those near the smallest vanish.
        divisor = torch.where((unit > LEAST) & (unit < GREATEST), 1.0, unit)
        if bool((divisor != 1).any()):
            x = x / divisor
        loc = x.sum(dim=0) / total
        centred = (x - loc).masked_fill_(~batch.observed, 0.0)
        scale = (centred.square_().sum(dim=0) / total).sqrt() * divisor
        return cls(loc * divisor, torch.where(scale > 1e-12 * unit, scale, 1.0))

    def forward(self, x: Tensor) -> Tensor:
        """Standardises values (*, D)."""
        scaled = (x - self.loc).div_(self.scale)
        if bool(scaled.sum().isfinite()):
            return scaled
        apart = x / self.scale - self.loc / self.scale  # for differences beyond the largest float
        return torch.where((x - self.loc).isinf(), apart, scaled)

    def inverse(self, x: Tensor) -> Tensor:
        """Transforms standardised values (*, D) back to their original scale."""
        return x * self.scale + self.loc
