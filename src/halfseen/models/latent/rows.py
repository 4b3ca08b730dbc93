"""Incomplete rows together with a preimputation, which encoders read."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from halfseen.data.incomplete import Incomplete
from halfseen.distributions.gaussian import Gaussian


@dataclass(frozen=True)
class Preimputed(Incomplete):
    r"""Incomplete values, and a preimputation of the whole row, made from the observed cells alone.

    If it is the conditional mean of a Gaussian, the posterior mean of a linear-Gaussian latent model
    is a linear function of it whatever is missing, :math:`\mathrm{E}[z \mid x_o] = \mathrm{E}[\mathrm{E}[z
    \mid x] \mid x_o] = B (\mathrm{E}[x \mid x_o] - \mu)`; zeros for missing values have no such property.

    Shapes
    ------
    preimputation : :math:`(N, D)`, as ``x``

    Examples
    --------
    >>> rows = Incomplete(torch.tensor([[1.0, torch.nan]]), torch.tensor([[True, False]]))
    >>> gaussian = Gaussian(torch.zeros(2), torch.tensor([[1.0, 0.5], [0.5, 1.0]]))
    >>> Preimputed.by(gaussian, rows).preimputation
    tensor([[1.0000, 0.5000]])
    """

    preimputation: Tensor

    @classmethod
    def by(cls, gaussian: Gaussian, rows: Incomplete) -> "Preimputed":
        """Returns the rows with the conditional means of a Gaussian."""
        return cls(rows.x, rows.observed, gaussian.conditional_mean(rows))

    def to(self, dtype: torch.dtype) -> "Preimputed":
        """Returns the rows with values and preimputations in another floating type."""
        return Preimputed(self.x.to(dtype), self.observed, self.preimputation.to(dtype))

    def __getitem__(self, rows: slice | Tensor) -> "Preimputed":
        return Preimputed(self.x[rows], self.observed[rows], self.preimputation[rows])


class PreimputedFill(nn.Module):
    """Creates the fill of missing values with the preimputation that rows bring along."""

    def forward(self, batch: Incomplete) -> Tensor:
        """Returns the filled values, with the shape of the batch."""
        if not isinstance(batch, Preimputed):
            raise TypeError("The rows bring no preimputation: make them with Preimputed.by.")
        return torch.where(batch.observed, batch.x, batch.preimputation)
