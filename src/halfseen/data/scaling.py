"""Standardisation learned from the observed cells of the training rows."""

from collections.abc import Sequence
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
    def checked(cls, loc: Tensor, scale: Tensor) -> "Standardizer":
        """Returns the standardisation; raises a ValueError unless all scales are positive."""
        if loc.ndim != 1 or scale.shape != loc.shape or not bool((scale > 0).all()):
            raise ValueError("The scales of features or targets are not positive, one for each.")
        return cls(loc, scale)

    @classmethod
    def fit(cls, batch: Incomplete) -> "Standardizer":
        """Learns location and scale; a feature without spread keeps scale 1."""
        parts = [*batch.chunks(max(1, CELLS_AT_ONCE // max(1, batch.n_features)))]
        low, high = (torch.full_like(batch.x[:1].sum(dim=0), end) for end in (torch.inf, -torch.inf))
        total = torch.zeros(batch.n_features, dtype=torch.int64)
        for part in parts:
            total += part.observed.sum(dim=0)
            torch.minimum(low, part.x.masked_fill(~part.observed, torch.inf).amin(dim=0), out=low)
            torch.maximum(high, part.x.masked_fill(~part.observed, -torch.inf).amax(dim=0), out=high)
        nothing = total == 0
        low, high = low.masked_fill(nothing, 0.0), high.masked_fill(nothing, 0.0)
        unit = torch.maximum(low.abs(), high.abs())
        # Squares of numbers near the largest float overflow, and those near the smallest vanish.
        divisor = torch.where((unit == 0) | ((unit > LEAST) & (unit < GREATEST)), 1.0, unit)
        # Numbers close to each other have exact differences, whatever their size: centring comes first.
        centre = low / divisor / 2 + high / divisor / 2
        shift, _ = _moments(parts, divisor, centre, total)
        shift, spread = _moments(parts, divisor, loc := centre + shift, total)
        scale = spread * divisor
        return cls((loc + shift) * divisor, torch.where((high > low) & (scale > 0), scale, 1.0))

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


def _moments(
    parts: Sequence[Incomplete], divisor: Tensor, centre: Tensor, total: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns mean and standard deviation (D) of the observed cells divided by `divisor`, about a centre."""
    sums, squares = torch.zeros_like(centre), torch.zeros_like(centre)
    plain = bool((divisor == 1).all())
    for part in parts:
        x = part.x - centre if plain else part.x / divisor - centre
        x.masked_fill_(~part.observed, 0.0)
        sums += x.sum(dim=0)
        squares += x.square_().sum(dim=0)
    mean = sums / total.clamp(min=1)
    return mean, (squares / total.clamp(min=1) - mean.square()).clamp(min=0.0).sqrt()
