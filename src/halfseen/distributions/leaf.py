r"""The interface of likelihoods :math:`p(x_j \mid z)` of columns, given the outputs of a network.

A leaf handles all columns of one family at once. It works on *features*: standardised numbers, or blocks of
0/1 indicators. Every method broadcasts over leading axes; masks are handled by the caller.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from halfseen.data.margins import inverse_softplus


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


TEMPERATURE = 0.5
"""Of relaxed draws: the lower, the closer to whole levels, and the noisier the gradient."""


class Leaf(nn.Module):
    r"""The likelihood of J columns of one family; J is `n_columns`.

    Parameters
    ----------
    n_columns : int
        The number of columns :math:`J`.
    n_parameters : int
        The number of network outputs :math:`P` for all columns together.
    width : int
        The number of features :math:`W`; :math:`J` for numbers.
    n_noise : int
        The number of uniforms :math:`M` that a draw of all columns takes.

    Notes
    -----
    Shapes: ``parameters`` :math:`(*, P)`, ``x`` :math:`(*, W)`, ``noise`` :math:`(*, M)`. The outputs
    have the floating type that ``parameters`` and ``x`` share; buffers that turn features into values stay in
    float64 unless the module is converted.
    """

    is_density = True
    """Whether `log_prob` is a density per unit of the feature, or a probability."""

    def __init__(self, n_columns: int, n_parameters: int, width: int, n_noise: int) -> None:
        super().__init__()
        if n_columns < 1:
            raise ValueError(f"n_columns must be at least 1, got {n_columns!r}.")
        self.n_columns = n_columns
        self.n_parameters = n_parameters
        self.width = width
        self.n_noise = n_noise

    def extra_repr(self) -> str:
        """Returns the sizes."""
        return f"n_columns={self.n_columns}, n_parameters={self.n_parameters}, width={self.width}"

    @property
    def columns_of_features(self) -> Tensor:
        """The column (W), among the leaf's own, that each feature belongs to."""
        return torch.arange(self.n_columns)

    def log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """Returns the log density or probability (*, J) of each column."""
        raise NotImplementedError

    def mean(self, parameters: Tensor) -> Tensor:
        """Returns the expected features (*, W)."""
        raise NotImplementedError

    def variance(self, parameters: Tensor) -> Tensor:
        """Returns the variance (*, W) of each feature."""
        raise NotImplementedError

    def mode(self, parameters: Tensor) -> Tensor:
        """Returns the features (*, W) at which `log_prob` is greatest."""
        raise NotImplementedError

    def rsample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """Returns features (*, W) drawn, or relaxed, with a gradient; `noise` are uniforms."""
        raise NotImplementedError

    @torch.no_grad()
    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """Returns features (*, W) drawn exactly, without a gradient; `noise` are uniforms."""
        return self.rsample(parameters, noise)

    def neutral_parameters(self) -> Tensor:
        """Returns the outputs (P), float64, of the marginal distribution of each column."""
        raise NotImplementedError

    def filler(self) -> Tensor:
        """Returns features (W), float64, at which `log_prob` and its gradient are finite."""
        return torch.zeros(self.width, dtype=torch.float64)


class NumericLeaf(Leaf):
    """The likelihood of J columns of numbers, one feature each."""

    def __init__(self, n_columns: int, n_parameters: int, n_noise: int) -> None:
        super().__init__(n_columns, n_parameters, width=n_columns, n_noise=n_noise)

    def cdf(self, parameters: Tensor, x: Tensor) -> Tensor:
        """Returns the probability (*, J) of a feature not above `x` (*, J)."""
        raise NotImplementedError

    def inflated(self, parameters: Tensor, factor: Tensor) -> Tensor:
        """Returns the parameters of columns `factor` (J) times as wide; the same, if there is no scale."""
        return parameters


def softplus(x: Tensor) -> Tensor:
    """Returns log(1 + exp(x)), by faster operations if no gradient is needed."""
    if torch.is_grad_enabled():
        return functional.softplus(x)
    return x.abs().neg_().exp_().log1p_().add_(x.clamp(min=0.0))


def inflate_softplus(raw: Tensor, factor: Tensor, floor: float) -> Tensor:
    """Returns outputs whose scales, floor + softplus(output), are `factor` times those of `raw`."""
    above = factor * functional.softplus(raw) + (factor - 1.0) * floor
    return inverse_softplus(above.clamp(min=torch.finfo(raw.dtype).eps))


def open_uniforms(noise: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns uniforms in a floating type, kept away from 0 and 1 by the precision of that type."""
    margin = torch.finfo(dtype).eps / 2
    return noise.to(dtype).clamp(min=margin, max=1 - margin)


@torch.no_grad()
def by_scipy(function: Callable[..., Any], *arguments: Tensor) -> Tensor:
    """Returns a function of `scipy.special` of tensors, in float64 and without a gradient."""
    arrays = [argument.double().cpu().numpy() for argument in arguments]
    return torch.from_numpy(np.asarray(function(*arrays))).to(arguments[0].device)
