"""Normal scores: ranks of values among the training rows, on the scale of a standard normal."""

from dataclasses import dataclass

import torch
from torch import Tensor

N_KNOTS = 200
SMALLEST_SHARE = 1e-3  # minimum share of rows on either side of a value


@dataclass(frozen=True)
class NormalScores:
    r"""The scores :math:`\Phi^{-1}(F_d(x_d))`, with F the distribution function of training values.

    F is linear between quantiles, and the middle of its jump at values that many rows share. The scores of a
    skewed feature have the same distribution as those of any other, which makes networks easier to train.

    Shapes
    ------
    knots : :math:`(Q, D)`, the quantiles of each feature, rising.
    x : :math:`(N, D)`

    Examples
    --------
    >>> x = torch.tensor([[1.0], [2.0], [4.0], [8.0], [1000.0]], dtype=torch.float64)
    >>> NormalScores.fit(x)(torch.tensor([[2.0], [4.0], [8.0]], dtype=torch.float64)).flatten()
    tensor([-0.6745,  0.0000,  0.6745], dtype=torch.float64)
    """

    knots: Tensor

    @classmethod
    def fit(cls, x: Tensor) -> "NormalScores":
        """Learns the quantiles of features (N, D)."""
        ordered = x.sort(dim=0).values
        place = torch.linspace(0, len(x) - 1, min(N_KNOTS, len(x)), dtype=torch.float64).round().long()
        return cls(ordered[place])

    def __call__(self, x: Tensor) -> Tensor:
        """Returns the scores (N, D) of values."""
        n_knots = len(self.knots)
        knots, values = self.knots.T.contiguous(), x.T.contiguous()  # (D, Q), (D, N)
        left = torch.searchsorted(knots, values)  # knots below a value
        right = torch.searchsorted(knots, values, right=True)  # and up to it
        below = knots.gather(1, (left - 1).clamp(min=0))
        gap = knots.gather(1, left.clamp(max=n_knots - 1)) - below
        between = torch.where(gap > 0, (values - below) / torch.where(gap > 0, gap, 1.0), 0.0)
        rank = torch.where(left < right, (left + right - 1) / 2, left - 1 + between)
        share = rank / max(1, n_knots - 1)
        scores: Tensor = torch.special.ndtri(share.clamp(SMALLEST_SHARE, 1 - SMALLEST_SHARE))
        return scores.T
