"""Choices by the inverse of a cumulative distribution: the same uniform makes the same choice."""

import torch
from torch import Tensor


def choose_by_cdf(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Returns which of A candidates each of Q uniforms falls on; weights need not sum to one.

    Shapes
    ------
    weights : :math:`(*, A)`, not negative.
    uniforms, output : :math:`(*, Q)`

    Examples
    --------
    >>> choose_by_cdf(torch.tensor([[1.0, 3.0]]), torch.tensor([[0.2, 0.9, 0.3]]))
    tensor([[0, 1, 1]])
    """
    cumulated = weights.cumsum(dim=-1).contiguous()
    reached = uniforms.to(weights.dtype) * cumulated[..., -1:]
    index = torch.searchsorted(cumulated, reached.contiguous(), right=True)
    return index.clamp(max=weights.shape[-1] - 1)  # a uniform may round to 1
