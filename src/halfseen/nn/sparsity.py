r"""Sparsity Normalization: layers whose mean output does not depend on the number of observed inputs."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from halfseen.data.incomplete import Incomplete
from halfseen.nn.residual import empty_linear, reset_layers

LEARNED: Literal["learned"] = "learned"


def count_factor(count: Tensor, mean_count: Tensor, alpha: Tensor | float, shrinkage: float = 0.0) -> Tensor:
    r"""Returns the factor of Sparsity Normalization for counts of observed entries; 0 where none is observed.

    .. math:: s(c) = \left(\frac{K + \lambda}{c + \lambda}\right)^\alpha, \qquad s(0) = 0

    Examples
    --------
    >>> count_factor(torch.tensor([0.0, 1.0, 4.0]), torch.tensor(2.0), 1.0)
    tensor([0.0000, 2.0000, 0.5000])
    """
    ratio = (mean_count + shrinkage) / (count.clamp(min=1) + shrinkage)
    return torch.where(count > 0, ratio**alpha, 0.0)


class SparsityNorm(nn.Module):
    r"""Creates the layer that fills missing inputs with zeros and rescales rows by their observed counts.

    .. math:: h = \left(\frac{K + \lambda}{c + \lambda}\right)^{\alpha} (m \odot x), \qquad c = \sum_j m_j

    where :math:`m_j` is 1 if input :math:`j` is observed and :math:`K` is the mean of :math:`c` over the
    training rows that have an observed input, so that complete data are left unchanged. Without the layer,
    the expected output of a network on rows filled with zeros depends on :math:`c`. The correction of the
    mean is exact (:math:`\alpha = 1`, affine networks) if values are missing completely at random; if the
    number of observed inputs is informative, this information is removed. A row without observed inputs
    becomes zero.

    Parameters
    ----------
    mean_count : float, optional
        The constant :math:`K`. By default it is learned by `fit`.
    alpha : float or "learned", default=1.0
        The exponent. 1 keeps the mean of the next layer constant, 1/2 its variance, which is the better
        choice if inputs have mean zero; 0 fills with zeros only. ``"learned"`` starts at 1 and is trained.
    shrinkage : float, default=0.0
        The constant :math:`\lambda`, which damps the factor of rows with few observed inputs.
    dim : int or tuple of int, default=-1
        The dimensions over which observed entries are counted: -1 for each row, ``(-2, -1)`` for each
        sequence.

    Shapes
    ------
    batch : :math:`(*, D)`; values where `observed` is False are never read.
    output : :math:`(*, D)`

    References
    ----------
    Yi, Lee, Kim, Hwang & Yang (2020), Why not to use zero imputation? Correcting sparsity bias in training
    neural networks, algorithm 1 (:math:`\alpha = 1, \lambda = 0`). The exponent and the shrinkage are not
    in the paper.

    Examples
    --------
    >>> layer = SparsityNorm(mean_count=2.0)
    >>> layer(Incomplete.from_array([[4.0, 2.0, float("nan")], [3.0, float("nan"), float("nan")]]))
    tensor([[4., 2., 0.],
            [6., 0., 0.]], dtype=torch.float64)
    """

    mean_count: Tensor
    alpha: Tensor

    def __init__(
        self,
        mean_count: float | None = None,
        *,
        alpha: float | Literal["learned"] = 1.0,
        shrinkage: float = 0.0,
        dim: int | tuple[int, ...] = -1,
    ) -> None:
        super().__init__()
        if mean_count is not None and not 0 < mean_count < math.inf:
            raise ValueError(f"mean_count must be positive and finite, got {mean_count!r}.")
        if alpha != LEARNED and not (isinstance(alpha, int | float) and math.isfinite(alpha)):
            raise ValueError(f"alpha must be a finite number or 'learned', got {alpha!r}.")
        if not 0 <= shrinkage < math.inf:
            raise ValueError(f"shrinkage must be finite and not negative, got {shrinkage!r}.")
        start = torch.tensor(1.0 if alpha == LEARNED else float(alpha))
        if alpha == LEARNED:
            self.alpha = nn.Parameter(start)
        else:
            self.register_buffer("alpha", start)
        known = math.nan if mean_count is None else float(mean_count)
        self.register_buffer("mean_count", torch.tensor(known, dtype=torch.float64))
        self.shrinkage = shrinkage
        self.dim = dim

    def fit(self, observed: Tensor) -> "SparsityNorm":
        """Sets the mean count to that of the training rows (N, D) that have an observed entry."""
        counts = observed.sum(dim=self.dim).flatten()
        if not bool((counts > 0).any()):
            raise ValueError("No row has an observed entry, so there is no mean count.")
        self.mean_count.copy_(counts[counts > 0].double().mean())
        return self

    def factor(self, observed: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
        """Returns the factor of each row, with the counted dimensions kept as 1."""
        if bool(self.mean_count.isnan()):
            raise ValueError(
                "mean_count is not known: pass it, or call fit with the mask of the training rows."
            )
        count = observed.sum(dim=self.dim, keepdim=True).double()
        return count_factor(count, self.mean_count.double(), self.alpha.double(), self.shrinkage).to(dtype)

    def forward(self, batch: Incomplete) -> Tensor:
        """Returns the rows with zeros where values are missing, rescaled."""
        return batch.filled() * self.factor(batch.observed, batch.x.dtype)

    def extra_repr(self) -> str:
        """Returns the settings of the layer."""
        mean = f"mean_count={float(self.mean_count):g}"
        return f"{mean}, alpha={float(self.alpha):g}, shrinkage={self.shrinkage:g}, dim={self.dim}"


def sn_dropout(x: Tensor, kept: Tensor) -> Tensor:
    r"""Returns units with those that are not kept set to zero, rescaled by the exact number of kept units.

    .. math:: y_j = \frac{n}{\sum_k m_k} \, m_j x_j

    Examples
    --------
    >>> sn_dropout(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([True, False, True]))
    tensor([1.5000, 0.0000, 4.5000])
    """
    factor = count_factor(
        kept.sum(dim=-1, keepdim=True).to(x.dtype), torch.tensor(kept.shape[-1], dtype=x.dtype), 1.0
    )
    return torch.where(kept, x, 0.0) * factor


class SNDropout(nn.Module):
    r"""Creates dropout that rescales by the exact number of kept units; replaces ``torch.nn.Dropout``.

    .. math:: y_j = \frac{n}{\sum_k m_k} \, m_j x_j, \qquad m_j \sim \mathrm{Bernoulli}(1 - p)

    Usual dropout divides by the expected number :math:`n (1 - p)`, so the size of its output varies from
    draw to draw; here the factors of each row sum to exactly :math:`n`. In evaluation mode the layer
    changes nothing. If no unit is kept the output is zero.

    Parameters
    ----------
    p : float, default=0.5
        The probability that a unit is dropped.
    generator : torch.Generator, optional
        The source of randomness; by default torch's global one, as in ``torch.nn.Dropout``.

    Shapes
    ------
    x, output : :math:`(*, D)`; units are those of the last dimension.

    References
    ----------
    Yi, Lee, Kim, Hwang & Yang (2020), Why not to use zero imputation?, section on dropout.

    Examples
    --------
    >>> layer = SNDropout(p=0.5, generator=torch.Generator().manual_seed(0))
    >>> layer(torch.ones(2, 6)).sum(dim=-1)
    tensor([6., 6.])
    """

    def __init__(self, p: float = 0.5, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"p must be in [0, 1), got {p!r}.")
        self.p = p
        self.generator = generator

    def forward(self, x: Tensor) -> Tensor:
        """Returns the units, some of them dropped while training."""
        if not self.training or self.p == 0:
            return x
        return sn_dropout(x, (torch.rand(x.shape, generator=self.generator) >= self.p).to(x.device))

    def extra_repr(self) -> str:
        """Returns the settings of the layer."""
        return f"p={self.p:g}"


def sn_mask(connections: Tensor) -> Tensor:
    r"""Returns a mask of weights whose rows sum to the mean number of incoming connections.

    .. math:: \tilde M = \frac{1^\top M 1}{n} \, \frac{M}{M 1 1^\top}

    where :math:`M` (receiving by sending units, 0 and 1) has :math:`n` rows. Multiply the weights by it
    wherever they were multiplied by :math:`M`. A unit without incoming connections keeps its row of zeros.

    Examples
    --------
    >>> sn_mask(torch.tensor([[1, 1], [1, 0], [0, 0]]))
    tensor([[0.5000, 0.5000],
            [1.0000, 0.0000],
            [0.0000, 0.0000]])
    """
    weights = connections.to(torch.get_default_dtype())
    fan_in = weights.sum(dim=1, keepdim=True)
    return weights * count_factor(fan_in, fan_in.mean(), 1.0)


class CausalSparsityLinear(nn.Module):
    r"""Creates a masked linear layer in which each unit is normalised by the inputs that it may see.

    .. math:: z_k = \frac{K_k}{\max(c_k, 1)} \sum_d M_{kd} W_{kd} x_d + b_k, \qquad c_k = \sum_d M_{kd} m_d

    where :math:`m_d` is 1 if input :math:`d` is observed and :math:`K_k` is the mean of :math:`c_k` over
    training rows. If an autoregressive network is normalised by the count of *all* inputs, as published,
    each output depends on its own input, so that the product of the conditionals is not a density. With this
    layer, the order of the inputs is respected.

    Parameters
    ----------
    connections : Tensor of shape (units, inputs)
        The mask :math:`M`, True where a unit may see an input.

    Shapes
    ------
    batch : :math:`(*, D)`; output : :math:`(*, K)`

    Examples
    --------
    >>> layer = CausalSparsityLinear(torch.tensor([[True, False], [True, True]]))
    >>> layer.reset_parameters(torch.Generator().manual_seed(0))
    >>> batch = Incomplete(torch.ones(3, 2), torch.tensor([[True, True], [True, False], [False, True]]))
    >>> layer.fit(batch.observed)(batch).shape
    torch.Size([3, 2])
    """

    connections: Tensor
    mean_counts: Tensor

    def __init__(self, connections: Tensor) -> None:
        super().__init__()
        n_units, n_inputs = connections.shape
        self.register_buffer("connections", connections.bool())
        self.register_buffer("mean_counts", torch.ones(n_units))  # (K,)
        self.weight = nn.Parameter(torch.zeros(n_units, n_inputs))  # (K, D)
        self.bias = nn.Parameter(torch.zeros(n_units))  # (K,)

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draws weights from the uniform distribution of ``torch.nn.Linear``; biases are zero."""
        bound = 1 / math.sqrt(self.weight.shape[1])
        noise = torch.rand(self.weight.shape, generator=generator, dtype=self.weight.dtype)
        self.weight.data.copy_(bound * (2 * noise - 1))
        self.bias.data.zero_()

    def fit(self, observed: Tensor) -> "CausalSparsityLinear":
        """Sets the mean counts to those of the training rows (N, D)."""
        counts = self._counts(observed.reshape(-1, observed.shape[-1]))
        self.mean_counts.copy_(counts.mean(dim=0).clamp(min=1e-12))
        return self

    def forward(self, batch: Incomplete) -> Tensor:
        """Returns the units, before any activation."""
        weight = torch.where(self.connections, self.weight, 0.0)
        total = functional.linear(batch.filled(), weight)
        return total * count_factor(self._counts(batch.observed), self.mean_counts, 1.0) + self.bias

    def _counts(self, observed: Tensor) -> Tensor:
        """Returns the number (*, K) of observed inputs that each unit sees."""
        return functional.linear(observed.to(self.weight.dtype), self.connections.to(self.weight.dtype))


class SparsityNormMLP(nn.Module):
    r"""Creates a multilayer perceptron whose inputs are normalised by the number of observed ones.

    .. math:: \hat y = W_L \, \sigma(\dots \sigma(W_1 h_0 + b_1) \dots) + b_L

    where :math:`h_0` is the output of `SparsityNorm` and :math:`\sigma` the rectifier, with the dropout of
    `sn_dropout` after it.

    Parameters
    ----------
    n_features, n_outputs : int
        The number of inputs and of outputs.
    widths : sequence of int
        The widths of the hidden layers.
    alpha : float or "learned"
        The exponent of the normalisation.
    shrinkage : float
        The shrinkage of the normalisation.

    Shapes
    ------
    batch : :math:`(N, D)`; kept : boolean :math:`(N, \text{width})` for each hidden layer; output :
    :math:`(N, T)`

    Examples
    --------
    >>> network = SparsityNormMLP(3, 1, widths=[4])
    >>> batch = Incomplete(torch.ones(5, 3), torch.ones(5, 3, dtype=torch.bool))
    >>> network.reset_parameters(torch.Generator().manual_seed(0))
    >>> network.norm.fit(batch.observed)
    SparsityNorm(mean_count=3, alpha=0.5, shrinkage=0, dim=-1)
    >>> network(batch).shape
    torch.Size([5, 1])
    """

    def __init__(
        self,
        n_features: int,
        n_outputs: int,
        *,
        widths: Sequence[int] = (64, 64),
        alpha: float | Literal["learned"] = 0.5,
        shrinkage: float = 0.0,
    ) -> None:
        super().__init__()
        sizes = [n_features, *widths, n_outputs]
        self.norm = SparsityNorm(1.0, alpha=alpha, shrinkage=shrinkage)
        self.layers = nn.ModuleList(empty_linear(a, b) for a, b in pairwise(sizes))

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draws weights and biases as PyTorch does."""
        reset_layers(self, generator)

    def forward(self, batch: Incomplete, kept: Sequence[Tensor] = ()) -> Tensor:
        """Returns the outputs; units that are not kept are dropped, if `kept` is given."""
        hidden: Tensor = self.norm(batch)
        for place, layer in enumerate(self.layers[:-1]):
            hidden = functional.relu(layer(hidden))
            if kept:
                hidden = sn_dropout(hidden, kept[place])
        output: Tensor = self.layers[-1](hidden)
        return output
