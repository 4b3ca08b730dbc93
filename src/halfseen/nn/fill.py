r"""How encoders fill the missing values of a row."""

import torch
from torch import Tensor, nn

from halfseen.data.incomplete import Incomplete


class ZeroFill(nn.Module):
    r"""Creates the fill with zeros, which is the mean if features are standardised.

    .. math:: x^\text{in}_j = x_j \text{ if observed, else } 0

    Examples
    --------
    >>> batch = Incomplete(torch.tensor([[1.0, torch.nan]]), torch.tensor([[True, False]]))
    >>> ZeroFill()(batch)
    tensor([[1., 0.]])
    """

    def forward(self, batch: Incomplete) -> Tensor:
        """Returns the filled values, with the shape of the batch."""
        return torch.where(batch.observed, batch.x, 0.0)


class LearnedFill(nn.Module):
    r"""Creates the fill with one learned constant for each feature, initially 0.

    .. math:: x^\text{in}_j = x_j \text{ if observed, else } c_j

    Parameters
    ----------
    n_features : int
        The number of features :math:`D`.

    Examples
    --------
    >>> batch = Incomplete(torch.tensor([[1.0, torch.nan]]), torch.tensor([[True, False]]))
    >>> LearnedFill(2)(batch)
    tensor([[1., 0.]], grad_fn=<WhereBackward0>)
    """

    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.zeros(n_features))  # (D,)

    def forward(self, batch: Incomplete) -> Tensor:
        """Returns the filled values, with the shape of the batch."""
        return torch.where(batch.observed, batch.x, self.value)


def encoder_input(batch: Incomplete, fill: nn.Module, with_mask: bool = True) -> Tensor:
    r"""Returns the input of encoders: the filled values, followed by the mask of observed values as 0 and 1.

    The mask distinguishes an observed zero from a missing value; the input is :math:`(*, 2D)` with the
    mask and :math:`(*, D)` without it.

    Examples
    --------
    >>> batch = Incomplete(torch.tensor([[3.0, torch.nan]]), torch.tensor([[True, False]]))
    >>> encoder_input(batch, ZeroFill())
    tensor([[3., 0., 1., 0.]])
    """
    filled: Tensor = fill(batch)
    return torch.cat([filled, batch.observed.to(filled.dtype)], dim=-1) if with_mask else filled
