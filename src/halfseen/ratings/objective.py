"""The losses of rating prediction: squared errors of observed entries, and the ordinal cost of levels."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from halfseen.data.sparse import SparseRows


class RatingModel(Protocol):
    """A module that predicts entries of sparse rows."""

    def __call__(self, rows: SparseRows, wanted: SparseRows) -> Tensor:
        """Returns predictions of the entries of `wanted`."""
        ...


class PartialModel(RatingModel, Protocol):
    """A module that predicts in another way in training."""

    training: bool


class OrdinalModel(PartialModel, Protocol):
    """A module that scores the levels of entries of sparse rows."""

    def scores(self, rows: SparseRows, wanted: SparseRows) -> Tensor:
        """Returns scores (M, S) of the levels of the entries of `wanted`."""
        ...

    def level(self, ratings: Tensor) -> Tensor:
        """Returns the level of each rating."""
        ...


@dataclass(frozen=True)
class RatedRows:
    """Rows that a model sees, and the entries of the same rows that it predicts."""

    inputs: SparseRows
    targets: SparseRows

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, rows: slice | Tensor) -> "RatedRows":
        inputs = self.inputs[rows]
        return RatedRows(inputs, inputs if self.targets is self.inputs else self.targets[rows])


@dataclass(frozen=True)
class RatingError:
    r"""Computes the squared error of observed entries.

    .. math:: \ell_i = \sum_{j \in o_i} (\hat r_{ij} - r_{ij})^2
    """

    def draw_noise(self, batch: RatedRows, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Returns nothing: the loss is deterministic."""
        return ()

    def __call__(self, module: RatingModel, batch: RatedRows, noise: tuple[Tensor, ...]) -> Tensor:
        """Returns the loss (N) of each row."""
        errors = (module(batch.inputs, batch.targets) - batch.targets.values).square()
        return errors.new_zeros(len(batch)).index_add(0, batch.targets.rows, errors)


@dataclass(frozen=True)
class PartialRatingError:
    r"""Computes the squared error of all ratings of a row, given a random part of them.

    Each rating of a row is shown with a probability that is drawn for the row, uniform on [1/2, 1]. Outside
    of training the loss is that of `RatingError`, given all inputs.
    """

    def draw_noise(self, batch: RatedRows, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Returns a number in [0, 1) for each entry, and one for each row."""
        sizes = len(batch.inputs.values), len(batch)
        return tuple(torch.rand(size, generator=generator) for size in sizes)

    def __call__(self, module: PartialModel, batch: RatedRows, noise: tuple[Tensor, ...]) -> Tensor:
        """Returns the loss (N) of each row."""
        if not module.training:
            return RatingError()(module, batch, ())
        keys, shares = noise
        is_shown = keys < (0.5 + 0.5 * shares).index_select(0, batch.inputs.rows)
        return RatingError()(module, RatedRows(batch.inputs.select(is_shown), batch.targets), ())


@dataclass(frozen=True)
class OrdinalError:
    r"""Computes the ordinal cost of ratings given random subsets of the other ratings of their row.

    Of a row with :math:`D` ratings, :math:`d` at random are shown, with :math:`d` uniform on 0 to
    :math:`D - 1`, and the others are predicted:

    .. math:: \ell = \frac{D}{D - d} \sum_{t} C(r_t)

    with the cost of `ordinal_cost`. Outside of training the loss is the squared error of the targets, given
    all inputs.

    References
    ----------
    Zheng, Tang, Ding & Zhou (2016), A neural autoregressive approach to collaborative filtering.
    """

    def draw_noise(self, batch: RatedRows, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Returns a number in [0, 1) for each entry, and one for each row."""
        sizes = len(batch.inputs.values), len(batch)
        return tuple(torch.rand(size, generator=generator, dtype=torch.float64) for size in sizes)

    def __call__(self, module: OrdinalModel, batch: RatedRows, noise: tuple[Tensor, ...]) -> Tensor:
        """Returns the loss (N) of each row."""
        if not module.training:
            return RatingError()(module, batch, ())
        is_shown, factor = choose_shown(batch.inputs, *noise)
        shown, wanted = batch.inputs.select(is_shown), batch.inputs.select(~is_shown)
        costs = ordinal_cost(module.scores(shown, wanted), module.level(wanted.values))
        loss = costs.new_zeros(len(batch)).index_add(0, wanted.rows, costs)
        return loss * factor.to(loss.dtype)


def ordinal_cost(scores: Tensor, level: Tensor) -> Tensor:
    r"""Returns the cost (M) of levels (M) under scores (M, S): how far the ranking of levels is from theirs.

    .. math:: C(k) = -\sum_{j \le k} \log \frac{e^{s_j}}{\sum_{l \le j} e^{s_l}}
                     -\sum_{j \ge k} \log \frac{e^{s_j}}{\sum_{l \ge j} e^{s_l}}

    It is the negative log-likelihood, in the model of Plackett and Luce, of the rankings
    :math:`k, k - 1, \dots, 1` and :math:`k, k + 1, \dots, S`.

    Examples
    --------
    >>> ordinal_cost(torch.zeros(1, 3), torch.tensor([2]))  # log 3!
    tensor([1.7918])
    """
    below = scores - scores.logcumsumexp(dim=1)
    above = scores - scores.flip(1).logcumsumexp(dim=1).flip(1)
    position, own = torch.arange(scores.shape[1], device=scores.device), level.unsqueeze(-1)
    counted = torch.where(position <= own, below, 0.0) + torch.where(position >= own, above, 0.0)
    return -counted.sum(dim=1)


def choose_shown(rows: SparseRows, keys: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Returns which entries are shown, and the factor (N) of the loss of each row."""
    order = torch.argsort(rows.rows + keys)  # a random order within each row
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order), device=order.device) - rows.starts[:-1].long()[rows.rows]
    n_shown = (shares * rows.counts).floor().long()
    factor = rows.counts / (rows.counts - n_shown).clamp(min=1)
    return rank < n_shown[rows.rows], factor
