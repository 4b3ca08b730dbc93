"""Incomplete rows together with a first guess of what is missing, for encoders to start from."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from halfseen.data.incomplete import Incomplete
from halfseen.distributions.gaussian import Gaussian


@dataclass(frozen=True)
class Guessed(Incomplete):
    r"""Incomplete values, and a guess of the whole row that was made from the observed cells alone.

    If the guess is the conditional mean of a Gaussian, the posterior mean of a linear-Gaussian latent model
    is a linear function of it whatever is missing, :math:`\mathrm{E}[z \mid x_o] = \mathrm{E}[\mathrm{E}[z
    \mid x] \mid x_o] = B (\mathrm{E}[x \mid x_o] - \mu)`; zeros for missing values have no such property.

    Shapes
    ------
    guess : :math:`(N, D)`, as ``x``

    Examples
    --------
    >>> rows = Incomplete(torch.tensor([[1.0, torch.nan]]), torch.tensor([[True, False]]))
    >>> gaussian = Gaussian(torch.zeros(2), torch.tensor([[1.0, 0.5], [0.5, 1.0]]))
    >>> Guessed.by(gaussian, rows).guess
    tensor([[1.0000, 0.5000]])
    """

    guess: Tensor

    @classmethod
    def by(cls, gaussian: Gaussian, rows: Incomplete) -> "Guessed":
        """Returns the rows with the conditional means of a Gaussian."""
        return cls(rows.x, rows.observed, gaussian.conditional_mean(rows))

    def to(self, dtype: torch.dtype) -> "Guessed":
        """Returns the rows with values and guesses in another floating type."""
        return Guessed(self.x.to(dtype), self.observed, self.guess.to(dtype))

    def __getitem__(self, rows: slice | Tensor) -> "Guessed":
        return Guessed(self.x[rows], self.observed[rows], self.guess[rows])


class GuessFill(nn.Module):
    """Creates the fill of missing values with the guess that rows bring along."""

    def forward(self, batch: Incomplete) -> Tensor:
        """Returns the filled values, with the shape of the batch."""
        if not isinstance(batch, Guessed):
            raise TypeError("The rows bring no guess: make them with Guessed.by.")
        return torch.where(batch.observed, batch.x, batch.guess)
