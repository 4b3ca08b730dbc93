"""How far predictions are from targets."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Labelled:
    r"""Rows for a network that corrects a first prediction.

    Shapes
    ------
    inputs : :math:`(N, P)`, what the network sees.
    base : :math:`(N, T)`, the first prediction: targets, or logits of classes.
    target : :math:`(N, T)` numbers, or :math:`(N)` classes.
    weight : :math:`(N)`, how much each row counts.
    """

    inputs: Tensor
    base: Tensor
    target: Tensor
    weight: Tensor

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, rows: slice | Tensor) -> "Labelled":
        return Labelled(self.inputs[rows], self.base[rows], self.target[rows], self.weight[rows])


class SquaredError:
    r"""Scores an ensemble by the mean squared error of its networks.

    .. math:: \ell = \frac{w}{E} \sum_e \lVert t + f_e(x) - y \rVert^2
    """

    def draw_noise(self, batch: Labelled, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Returns nothing: the loss is deterministic."""
        return ()

    def __call__(self, module: nn.Module, batch: Labelled, noise: tuple[Tensor, ...]) -> Tensor:
        """Returns the weighted loss (N) of each row."""
        error: Tensor = batch.base + module(batch.inputs) - batch.target  # (E, N, T)
        return batch.weight * error.square().sum(dim=-1).mean(dim=0)


class CrossEntropy:
    r"""Scores an ensemble by the mean log-loss of its networks.

    .. math:: \ell = -\frac{w}{E} \sum_e \log \mathrm{softmax}(t + f_e(x))_y
    """

    def draw_noise(self, batch: Labelled, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Returns nothing: the loss is deterministic."""
        return ()

    def __call__(self, module: nn.Module, batch: Labelled, noise: tuple[Tensor, ...]) -> Tensor:
        """Returns the weighted loss (N) of each row."""
        logits = batch.base + module(batch.inputs)  # (E, N, T)
        target = batch.target.expand(len(logits), -1)
        loss = functional.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none")
        return batch.weight * loss.view(len(logits), -1).mean(dim=0)
