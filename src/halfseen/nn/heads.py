r"""Readouts that turn what is known of an incomplete row into predictions."""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from halfseen.nn.gaussian_block import Conditional


class MLPHead(nn.Module):
    r"""A multilayer perceptron on the conditional Gaussian of a row and its mask.

    .. math:: \hat y = \mathrm{MLP}\left([h,\; o,\; \mathrm{E}[X \mid x_o],\; \mathrm{sd}(X \mid x_o)]\right)

    with ReLU between the layers. A response that is not linear depends on the spread of what is missing and
    not only on its mean; the mask lets it answer MNAR patterns that the Gaussian does not describe.

    Parameters
    ----------
    n_features : int
        The number of features :math:`D`.
    n_outputs : int
        The number of predictions :math:`O` a row.
    width : int
        The number of units of each hidden layer.
    depth : int
        The number of hidden layers; at 0 the head is linear.
    with_h : bool
        Whether the head reads :math:`h` also.

    Shapes
    ------
    conditional : of :math:`N` rows and :math:`D` features.
    output : :math:`(N, O)`

    Notes
    -----
    All weights are zero until `reset_parameters` draws them.

    References
    ----------
    Le Morvan, Josse, Scornet & Varoquaux (2021), What's a good imputation to predict with missing values?,
    section 5: there the perceptron reads :math:`h` alone.

    Examples
    --------
    >>> from halfseen.data.incomplete import Incomplete
    >>> from halfseen.nn.gaussian_block import GaussianBlock
    >>> batch = Incomplete(torch.zeros(4, 2), torch.tensor([[True, False]]).expand(4, 2))
    >>> head = MLPHead(n_features=2, n_outputs=3, width=8, depth=1)
    >>> head.reset_parameters(torch.Generator().manual_seed(0))
    >>> head(GaussianBlock(n_features=2)(batch)).shape
    torch.Size([4, 3])
    """

    def __init__(
        self, n_features: int, n_outputs: int, width: int, depth: int, *, with_h: bool = True
    ) -> None:
        super().__init__()
        for name, size in (("n_features", n_features), ("n_outputs", n_outputs), ("width", width)):
            if size < 1:
                raise ValueError(f"{name} must be at least 1, got {size!r}.")
        if depth < 0:
            raise ValueError(f"depth must not be negative, got {depth!r}.")
        self.n_features = n_features
        self.with_h = with_h

        sizes = [(4 if with_h else 3) * n_features, *[width] * depth, n_outputs]
        self.weights = nn.ParameterList(torch.zeros(after, before) for before, after in pairwise(sizes))
        self.biases = nn.ParameterList(torch.zeros(size) for size in sizes[1:])

    def extra_repr(self) -> str:
        """Returns the number of features and the sizes of the layers."""
        sizes = [bias.shape[0] for bias in self.biases]
        return f"n_features={self.n_features}, layers={sizes}, with_h={self.with_h}"

    def forward(self, conditional: Conditional) -> Tensor:
        """Returns the predictions of each row."""
        seen = conditional.observed
        spread = conditional.variance
        certain = seen | (spread <= 0)  # the root has no derivative at 0
        deviation = torch.where(certain, 0.0, torch.where(certain, 1.0, spread).sqrt())
        known = [seen.to(deviation.dtype), conditional.mean, deviation]
        a = torch.cat([conditional.h, *known] if self.with_h else known, dim=-1)  # (N, 4 D)
        for index, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            a = functional.linear(a if index == 0 else a.relu(), weight, bias)

        return a

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator) -> None:
        r"""Draws weights evenly within :math:`\pm\sqrt{12 / (\text{in} + \text{out})}`; biases are zero."""
        for weight, bias in zip(self.weights, self.biases, strict=True):
            bound = math.sqrt(2.0) * math.sqrt(6.0 / sum(weight.shape))  # Xavier's, for ReLU
            weight.uniform_(-bound, bound, generator=generator)
            bias.zero_()
