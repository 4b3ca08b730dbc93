"""Split-conformal intervals: their width is a quantile of the errors of rows not used for fitting."""

from dataclasses import dataclass

import torch
from torch import Tensor

from halfseen.base.parameters import check_level
from halfseen.distributions.quantiles import lower_quantiles

N_QUANTILES = 1000  # stored of the errors; a guess: levels are then exact to 0.1%, and model files stay small


@dataclass(frozen=True)
class HeldOutErrors:
    """Quantiles of absolute errors, and the number of rows that they come from.

    Errors may be relative to a predicted spread; then so are the half-widths.

    Shapes
    ------
    quantiles : (Q) or (Q, T), increasing
    """

    quantiles: Tensor
    n_rows: int

    def __post_init__(self) -> None:
        if not self.quantiles.is_floating_point():
            raise ValueError(f"The errors of held-out rows have the type {self.quantiles.dtype}.")

    @classmethod
    def of(cls, errors: Tensor, weights: Tensor | None = None) -> "HeldOutErrors":
        """Returns what is kept of the errors (N) or (N, T) of held-out rows, which may have weights (N).

        Intervals then cover the target of a new row of the population that the weights describe.

        Examples
        --------
        >>> HeldOutErrors.of(torch.tensor([1.0, -3.0, 2.0])).half_width(0.25)
        tensor(2., dtype=torch.float64)
        """
        sizes = errors.abs().to(torch.float64)
        if len(sizes) == 0:
            return cls(sizes, 0)
        every = torch.ones(len(sizes), dtype=torch.float64) if weights is None else weights.double()
        levels = torch.linspace(0, 1, min(N_QUANTILES, len(sizes)), dtype=torch.float64)
        kept = lower_quantiles(sizes.reshape(len(sizes), -1), every, levels)
        return cls(kept.reshape(-1, *sizes.shape[1:]), len(sizes))

    def half_width(self, level: float) -> Tensor:
        """Returns half the width, () or (T), of intervals that contain the target with probability `level`.

        The rank is that of split-conformal prediction: a new row is one more than the held-out rows, so that
        the quantile is taken a little above `level`, at most at the largest error.
        """
        check_level(level)
        rank = min(1.0, level * (1 + 1 / self.n_rows))
        return torch.quantile(self.quantiles, rank, dim=0, interpolation="higher")
