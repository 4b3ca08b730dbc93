"""Standardisation learned from the observed cells of the training rows."""

from dataclasses import dataclass

import torch
from torch import Tensor

from halfseen.data.incomplete import Incomplete

CELLS_AT_ONCE = 2**17  # few enough for the cache of a processor
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
        parts = [*batch.chunks(max(1, CELLS_AT_ONCE // max(1, batch.n_features)))]
        largest, sums, squares = batch.x.new_zeros(3, batch.n_features)
        total = torch.zeros(batch.n_features, dtype=torch.int64)
        for part in parts:
            x = part.filled()
            total += part.observed.sum(dim=0)
            sums += x.sum(dim=0)
            torch.maximum(largest, x.abs_().amax(dim=0), out=largest)
        total.clamp_(min=1)
        unit = torch.where(largest > 0, largest, 1.0)
        # Squares of numbers near the largest float overflow, and those near the smallest vanish.
        divisor = torch.where((unit > LEAST) & (unit < GREATEST), 1.0, unit)
        plain = bool((divisor == 1).all())
        if not plain:
            sums.zero_()
            for part in parts:
                sums += (part.filled() / divisor).sum(dim=0)
        loc = sums / total
        for part in parts:
            x = part.x - loc if plain else part.x / divisor - loc
            squares += x.masked_fill_(~part.observed, 0.0).square_().sum(dim=0)
        scale = (squares / total).sqrt() * divisor
        return cls(loc * divisor, torch.where(scale > 1e-12 * unit, scale, 1.0))

    def forward(self, x: Tensor) -> Tensor:
        """Standardises values (*, D)."""
        scaled = (x - self.loc).div_(self.scale)
        if bool(scaled.sum().isfinite()):
            return scaled
        apart = x / self.scale - self.loc / self.scale  # for differences beyond the largest float
        return torch.where((x - self.loc).isinf(), apart, scaled)

    def overwrite(self, batch: Incomplete) -> Incomplete:
        """Standardises values in their place, those that are missing as zeros, some rows at a time."""
        size = max(1, CELLS_AT_ONCE // max(1, batch.n_features))
        for start in range(0, len(batch), size):
            rows = slice(start, start + size)
            batch.x[rows] = self.forward(batch[rows].filled())
        return batch

    def inverse(self, x: Tensor) -> Tensor:
        """Transforms standardised values (*, D) back to their original scale."""
        return x * self.scale + self.loc
