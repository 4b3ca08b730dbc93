"""Intervals of one width for all rows, by the errors of rows that a regressor was not fitted to."""

from dataclasses import dataclass

import torch
from torch import Tensor

from halfseen.distributions.quantiles import lower_quantiles

N_QUANTILES = 1000  # kept of the errors
HELD_OUT = 0.2  # of the rows, by whose errors the width of intervals is chosen


@dataclass(frozen=True)
class HeldOutErrors:
    """Quantiles of absolute errors, and the number of rows that they come from.

    Shapes
    ------
    quantiles : (Q), increasing
    """

    quantiles: Tensor
    n_rows: int

    @classmethod
    def of(cls, errors: Tensor) -> "HeldOutErrors":
        """Returns what is kept of the errors (N) of held-out rows.

        Examples
        --------
        >>> HeldOutErrors.of(torch.tensor([1.0, -3.0, 2.0])).half_width(0.25)
        2.0
        """
        levels = torch.linspace(0, 1, min(N_QUANTILES, len(errors)), dtype=torch.float64)
        sizes = errors.abs().to(torch.float64)
        return cls(lower_quantiles(sizes[:, None], torch.ones_like(sizes), levels)[:, 0], len(errors))

    def half_width(self, level: float) -> float:
        """Returns half the width of an interval that contains the target with probability `level`."""
        if not 0 < level < 1:
            raise ValueError(f"level must be between 0 and 1, got {level!r}.")
        rank = min(1.0, level * (1 + 1 / self.n_rows))
        return float(torch.quantile(self.quantiles, rank, interpolation="higher"))
