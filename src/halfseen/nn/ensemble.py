"""Several small networks of one shape, computed together."""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


class EnsembleMLP(nn.Module):
    r"""E multilayer perceptrons with the same inputs and separate weights.

    .. math:: f_e(x) = W_e^{(H)} \, \sigma(\dots \sigma(W_e^{(0)} x + b_e^{(0)}) \dots) + b_e^{(H)}

    The layers of all networks are computed by one batched product. The last layer is initialised to zero, so
    that training starts from the prediction to which the networks are added.

    Parameters
    ----------
    n_networks : int
        The number of networks E.
    n_inputs, n_outputs : int
        The number of inputs and of outputs.
    width : int
        The width of hidden layers.
    n_layers : int
        The number H of hidden layers.

    Shapes
    ------
    x : :math:`(N, \text{inputs})`; output : :math:`(E, N, \text{outputs})`

    Examples
    --------
    >>> network = EnsembleMLP(n_networks=4, n_inputs=3, n_outputs=1)
    >>> network.reset_parameters(torch.Generator().manual_seed(0))
    >>> network(torch.zeros(5, 3)).shape
    torch.Size([4, 5, 1])
    """

    def __init__(
        self,
        n_networks: int,
        n_inputs: int,
        n_outputs: int,
        *,
        width: int = 128,
        n_layers: int = 2,
    ) -> None:
        super().__init__()
        sizes = [n_inputs, *[width] * n_layers, n_outputs]
        self.weights = nn.ParameterList(torch.zeros(n_networks, a, b) for a, b in pairwise(sizes))
        self.biases = nn.ParameterList(torch.zeros(n_networks, 1, b) for b in sizes[1:])

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draws hidden weights whose variance preserves the scale of signals; the last layer is zero."""
        for weight in self.weights[:-1]:
            noise = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
            weight.data.copy_(noise * math.sqrt(2 / max(1, weight.shape[1])))
        for parameter in (self.weights[-1], *self.biases):
            parameter.data.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """Returns the output of each network for each row."""
        hidden = x.expand(len(self.weights[0]), -1, -1)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            hidden = functional.silu(torch.baddbmm(bias, hidden, weight))
        return torch.baddbmm(self.biases[-1], hidden, self.weights[-1])
