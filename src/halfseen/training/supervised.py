"""Losses of predictions: any module, any rows, one target and one weight per row."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from scipy.stats import rankdata
from torch import Tensor, nn
from torch.nn import functional

from halfseen.data.sequences import Sequences
from halfseen.training.step import AlignedRows, Rows, WithoutNoise

RowsT = TypeVar("RowsT", bound=Rows)
Predictor = Callable[[Any], Tensor]  # a module, or a module with some of its arguments


@dataclass(frozen=True)
class Labelled(AlignedRows, Generic[RowsT]):
    r"""Rows with their targets and weights, for supervised training.

    Shapes
    ------
    rows : whatever the module takes, of length :math:`N`.
    target : :math:`(N, T)` numbers, or :math:`(N)` classes.
    weight : :math:`(N)`
    """

    rows: RowsT
    target: Tensor
    weight: Tensor


class SquaredError(WithoutNoise):
    r"""Computes the weighted squared error of predictions, averaged over the networks of an ensemble.

    .. math:: \ell = \frac{w}{E} \sum_e \lVert f_e(x) - y \rVert^2

    The module returns predictions of shape :math:`(N, T)`, or :math:`(E, N, T)` for an ensemble.
    """

    def __call__(self, module: Predictor, batch: Labelled[Any], noise: tuple[Tensor, ...]) -> Tensor:
        """Returns the weighted loss (N) of each row."""
        error: Tensor = module(batch.rows) - batch.target
        return batch.weight * _mean_over_networks(error.square().sum(dim=-1))


class CrossEntropy(WithoutNoise):
    r"""Computes the weighted log-loss of logits, averaged over the networks of an ensemble.

    .. math:: \ell = -\frac{w}{E} \sum_e \log \mathrm{softmax}(f_e(x))_y

    The module returns logits of shape :math:`(N, K)`, or :math:`(E, N, K)` for an ensemble.
    """

    def __call__(self, module: Predictor, batch: Labelled[Any], noise: tuple[Tensor, ...]) -> Tensor:
        """Returns the weighted loss (N) of each row."""
        logits: Tensor = module(batch.rows)
        target = batch.target.expand(logits.shape[:-1])
        loss = functional.cross_entropy(logits.flatten(end_dim=-2), target.flatten(), reduction="none")
        return batch.weight * _mean_over_networks(loss.view(logits.shape[:-1]))


@dataclass(frozen=True)
class RankingLoss:
    r"""Computes 1 minus the area under the ROC curve (AUROC) of a classifier, for the choice of an epoch.

    .. math:: 1 - \Pr(f(x)_k > f(x')_k \mid y = k, y' \neq k)

    averaged over the classes; of two classes it is that of the second. Ties count half. A class that all
    rows or no rows have is left out.

    Parameters
    ----------
    batch_size : int
        The rows that the module reads at once.
    """

    batch_size: int

    def __call__(self, module: nn.Module, rows: Labelled[Any]) -> float:
        """Returns the loss of rows of at least two classes; weights do not count."""
        parts = [rows[start : start + self.batch_size] for start in range(0, len(rows), self.batch_size)]
        scores = torch.cat([module(part.rows).log_softmax(dim=1) for part in parts]).cpu().double()  # (N, K)
        is_class = rows.target.cpu()[:, None] == torch.arange(scores.shape[1])
        n_inside = is_class.sum(dim=0)
        n_pairs = n_inside * (len(rows) - n_inside)
        if not bool(n_pairs.any()):
            raise ValueError("AUROC is not defined: the held-out rows have only one class.")
        ranks = torch.from_numpy(rankdata(scores.numpy(), axis=0))
        wins = torch.where(is_class, ranks, 0.0).sum(dim=0) - n_inside * (n_inside + 1) / 2
        if bool(scores.isnan().any()):
            return math.nan
        return 1.0 - float((wins / n_pairs)[n_pairs > 0].mean())


@dataclass(frozen=True)
class WithDropout:
    """A loss of predictions with dropout of hidden units, whose masks are drawn beforehand.

    The module takes ``kept``, the masks (N, width) of its hidden layers. In evaluation nothing is dropped.
    """

    loss: SquaredError | CrossEntropy  # the loss of the predictions
    rate: float  # the probability that a unit is dropped
    widths: tuple[int, ...]  # the width of each hidden layer

    def draw_noise(self, batch: Labelled[Any], generator: torch.Generator) -> tuple[Tensor, ...]:
        """Returns which units of each hidden layer are kept."""
        return tuple(torch.rand(len(batch), w, generator=generator) >= self.rate for w in self.widths)

    def __call__(self, module: nn.Module, batch: Labelled[Any], noise: tuple[Tensor, ...]) -> Tensor:
        """Returns the weighted loss (N) of each row."""
        return self.loss(partial(module, kept=noise) if module.training else module, batch, ())


@dataclass(frozen=True)
class WithSubsets:
    r"""A loss of predictions of sequences of which only a random part of the observed values is shown.

    .. math:: \ell = -\log p(y \mid x_S), \qquad \Pr(j \in S) = q, \quad q \sim \mathrm{Uniform}(0, 1)

    with one share :math:`q` for each sequence. A module that minimises it predicts the distribution of the
    class given any part of the values, if values are missing completely at random, so that its mean
    prediction does not depend on how many are known. In evaluation everything is shown.

    Parameters
    ----------
    loss : SquaredError or CrossEntropy
        The loss of the predictions.
    """

    loss: SquaredError | CrossEntropy

    def draw_noise(self, batch: Labelled[Sequences], generator: torch.Generator) -> tuple[Tensor, ...]:
        """Returns which values (N, T, D) are shown, if they are observed."""
        return self.draw(batch.rows, generator)

    @staticmethod
    def draw(sequences: Sequences, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Returns which values (N, T, D) of sequences are shown, if they are observed."""
        shares = torch.rand(len(sequences), 1, 1, generator=generator)
        return (torch.rand(sequences.values.x.shape, generator=generator) < shares,)

    def __call__(self, module: nn.Module, batch: Labelled[Sequences], noise: tuple[Tensor, ...]) -> Tensor:
        """Returns the weighted loss (N) of each sequence."""
        if module.training:
            batch = Labelled(batch.rows.shown(*noise), batch.target, batch.weight)
        return self.loss(module, batch, ())


def _mean_over_networks(loss: Tensor) -> Tensor:
    """Returns the mean (N) of losses of shape (E, N); a single network has the shape (N) already."""
    return loss if loss.dim() == 1 else loss.mean(dim=0)
