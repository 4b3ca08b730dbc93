r"""Recurrent networks for sequences with missing values, with Sparsity Normalization of their inputs."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from halfseen.data.incomplete import Incomplete
from halfseen.data.sequences import Sequences
from halfseen.nn.residual import empty_linear, reset_layers
from halfseen.nn.sparsity import SparsityNorm

Cell = Literal["lstm", "gru"]
CELLS: tuple[Cell, ...] = ("lstm", "gru")
COUNTED: dict[str, int | tuple[int, int]] = {"sequence": (-2, -1), "step": -1}
"""What observed values are counted over, and the dimensions that this means."""


def time_gaps(observed: Tensor) -> Tensor:
    r"""Returns for each step and feature the number of steps since the feature was last observed.

    Before the first observation, it is the number of steps since the step before the first one.

    Shapes
    ------
    observed : boolean :math:`(N, T, D)`; output : whole numbers :math:`(N, T, D)`, 0 where observed.

    Examples
    --------
    >>> time_gaps(torch.tensor([[[False], [True], [False], [False]]]))[..., 0]
    tensor([[1, 0, 1, 2]])
    """
    step = torch.arange(observed.shape[1], device=observed.device)[:, None]  # (T, 1)
    last = torch.where(observed, step, -1).cummax(dim=1).values
    return step - last


class SequenceNetwork(nn.Module):
    r"""Creates a recurrent network that reads sequences with missing values and returns logits at their end.

    .. math:: h_t = \mathrm{cell}([s \, (m_t \odot x_t), m_t, \log(1 + g_t)], h_{t-1}), \qquad
              f = C h_T + c

    where :math:`m_t` marks observed values, :math:`s` is the factor of `SparsityNorm` and :math:`g_t` are the
    gaps of `time_gaps`. The mask and the gaps are inputs only if they are requested. The biases of the gates
    are initialised so that the memory of units ranges from one step to `memory` steps.

    Parameters
    ----------
    n_features, width, n_outputs : int
        The number of features, of units of the state, and of logits.
    cell : {"lstm", "gru"}
        The recurrent cell.
    count_over : {"sequence", "step"}
        Whether the normalisation counts the observed values of the whole sequence or of each step.
    alpha : float
        The exponent of the normalisation; 0 for none.
    mask_inputs, gap_inputs : bool
        Whether the mask and the gaps are inputs.

    Shapes
    ------
    sequences : :math:`N` sequences of :math:`(T, D)`; output : :math:`(N, K)`

    References
    ----------
    Yi, Lee, Kim, Hwang & Yang (2020), Why not to use zero imputation?, experiment on PhysioNet. Che et al.
    (2018), Recurrent neural networks for multivariate time series with missing values (time gaps). Tallec &
    Ollivier (2018), Can recurrent neural networks warp time? (start of the gates).

    Examples
    --------
    >>> from halfseen.data.sequences import read_sequences
    >>> sequences = read_sequences([[[1.0], [float("nan")], [2.0]], [[3.0], [4.0], [5.0]]], lengths=[3, 2])
    >>> network = SequenceNetwork(1, 4, 2).double()
    >>> network.reset_parameters(torch.Generator().manual_seed(0), memory=3)
    >>> network(sequences).shape
    torch.Size([2, 2])
    """

    def __init__(
        self,
        n_features: int,
        width: int,
        n_outputs: int,
        *,
        cell: str = "lstm",
        count_over: str = "sequence",
        alpha: float = 1.0,
        mask_inputs: bool = False,
        gap_inputs: bool = False,
    ) -> None:
        super().__init__()
        self.mask_inputs, self.gap_inputs = mask_inputs, gap_inputs
        n_inputs = n_features * (1 + mask_inputs + gap_inputs)
        self.norm = SparsityNorm(1.0, alpha=alpha, dim=COUNTED[count_over])
        kind = {"lstm": nn.LSTM, "gru": nn.GRU}[cell]
        # On "meta" no numbers are drawn: the constructor of PyTorch moves the global generator.
        self.cell = kind(n_inputs, width, batch_first=True, device="meta").to_empty(device="cpu")
        self.output = empty_linear(width, n_outputs)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator, memory: int) -> None:
        """Draws the weights; the memory of units ranges up to `memory` steps."""
        reset_layers(self, generator)
        width = self.cell.hidden_size
        bound = 1 / math.sqrt(width)
        for name, parameter in self.cell.named_parameters():
            if name.startswith("weight"):
                parameter.uniform_(-bound, bound, generator=generator)
            else:
                parameter.zero_()
        spans = 1 + (max(memory, 3) - 2) * torch.rand(width, generator=generator, dtype=torch.float64)
        bias = dict(self.cell.named_parameters())["bias_ih_l0"]
        bias[width : 2 * width] = spans.log()  # of the gate that keeps the state, in both cells
        if isinstance(self.cell, nn.LSTM):
            bias[:width] = -spans.log()

    def forward(self, sequences: Sequences) -> Tensor:
        """Returns the logits of each sequence."""
        states, _ = self.cell(self._inputs(sequences.values))  # (N, T, W)
        last = states[torch.arange(len(sequences), device=states.device), sequences.lengths - 1]
        logits: Tensor = self.output(last)
        return logits

    def _inputs(self, values: Incomplete) -> Tensor:
        parts = [self.norm(values)]
        if self.mask_inputs:
            parts.append(values.observed.to(values.x.dtype))
        if self.gap_inputs:
            parts.append(time_gaps(values.observed).to(values.x.dtype).log1p())
        return torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]
