"""The interface of models over the codes of a table or of images, and functions that such models share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from halfseen._random import Keys
from halfseen.data.columns import Column
from halfseen.data.features import Block, FeatureMap
from halfseen.data.incomplete import Incomplete


@dataclass(frozen=True)
class LevelProbabilities:
    r"""The probability of each level of a column in each row, stored by groups because levels can be many.

    Shapes
    ------
    groups : :math:`(N, G)`, the probability of each group
    block : of the levels
    observed_level : :math:`(N)`, the level that was observed, -1 where the cell is missing
    """

    groups: Tensor
    block: Block
    observed_level: Tensor

    @classmethod
    def of_levels(cls, probabilities: Tensor, codes: Incomplete, column: int) -> "LevelProbabilities":
        """Takes a probability (N, L) for each level, where levels are few."""
        alone = torch.arange(probabilities.shape[1])
        block = Block(column, 0, len(alone), alone, torch.ones(len(alone), dtype=probabilities.dtype))
        return cls(probabilities, block, _observed_levels(codes, column))

    def dense(self) -> Tensor:
        """Returns the probability (N, L) of each level; 0 and 1 where the cell was observed."""
        result = self.groups[:, self.block.group] * self.block.share
        rows = (self.observed_level >= 0).nonzero().squeeze(1)
        result[rows] = 0.0
        result[rows, self.observed_level[rows]] = 1.0
        return result

    def top(self) -> Tensor:
        """Returns the probability (N) of the most probable level; 1 where the cell was observed."""
        return torch.where(self.observed_level >= 0, 1.0, self.block.of_leaders(self.groups).amax(dim=1))


MEAN_LEVELS = tuple((k + 0.5) / 20 for k in range(20))
"""Quantiles whose average is the mean of a number that has a margin."""


class TabularCompletion(Protocol):
    """Completes codes (N, C) in several ways; observed codes are always returned exactly.

    Codes are the numbers of `halfseen.data.schema.Column`: values, or positions among levels. A model need
    not round or bound them, because the estimator does this for all models.
    """

    def point(self, codes: Incomplete) -> Tensor:
        """Returns the best single completion (N, C): means and most probable levels."""
        ...

    def draws(self, codes: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        """Returns joint draws (S, N, C) whose noise is determined by the keys of the rows."""
        ...

    def quantiles(self, codes: Incomplete, probabilities: Sequence[float]) -> Tensor:
        """Returns quantiles (Q, N, C) of each cell separately; most probable levels without an order.

        A quantile does not depend on the other probabilities that are asked for, and does not decrease with
        its probability.
        """
        ...

    def interval(self, codes: Incomplete, level: float) -> Tensor:
        """Returns the ends (2, N, C) of an interval of each cell separately that has a probability.

        They may differ from the quantiles at `central(level)`: where single values have positive
        probabilities, no central interval has exactly the probability `level`; and an interval of more than
        half of the probability may be extended to the value that `point` returns (see `enclosing`).
        """
        ...

    def level_probabilities(self, codes: Incomplete) -> dict[int, LevelProbabilities]:
        """Returns the probability of each level, for every column with levels."""
        ...


class TabularModel(TabularCompletion, Protocol):
    """A density of tables: it completes codes (N, C) by its conditional distributions."""

    def log_prob(self, codes: Incomplete) -> Tensor:
        """Returns the log density (N) of the observed cells, in the units of the table."""
        ...


def central(level: float) -> tuple[float, float]:
    """Returns the probabilities of the ends of a central interval."""
    return (1 - level) / 2, (1 + level) / 2


def enclosing(ends: Tensor, point: Tensor, level: float) -> Tensor:
    """Returns ends (2, N, C) of intervals, extended to the point (N, C) if they hold most of the probability.

    The mean of a skewed distribution may be outside a central interval. Narrow intervals are about the
    median, and to extend them to the mean would make them much more probable than `level`.
    """
    if level <= 0.5:
        return ends
    return torch.stack([torch.minimum(ends[0], point), torch.maximum(ends[1], point)])


def mean_numbers(features: FeatureMap, mean: Tensor, quantiles: Tensor) -> Tensor:
    """Returns expected numbers (N, n_numeric): from expected features (N, D), or from quantiles with margins.

    `quantiles` (Q, N, D) are those of the features at `MEAN_LEVELS`.
    """
    numbers, average = features.numbers(mean), features.numbers(quantiles).mean(dim=0)
    for i, _ in features.transformed():
        numbers[:, i] = average[:, i]
    return numbers


def decode_mean(
    features: FeatureMap, codes: Incomplete, mean: Tensor, numbers: Tensor | None = None
) -> Tensor:
    """Returns codes (N, C) completed by expected features (N, D), or by expected numbers if given."""
    result = codes.x.clone()
    result[:, list(features.numeric)] = features.numbers(mean) if numbers is None else numbers
    for block in features.blocks:
        levels = block.likeliest(features.group_probabilities(mean, block))
        result[:, block.column] = levels.to(result.dtype)
    return torch.where(codes.observed, codes.x, result)


def level_probabilities(
    features: FeatureMap, codes: Incomplete, mean: Tensor
) -> dict[int, LevelProbabilities]:
    """Returns the level probabilities of each column with a block, from expected features (N, D)."""
    return {
        block.column: LevelProbabilities(
            features.group_probabilities(mean, block), block, _observed_levels(codes, block.column)
        )
        for block in features.blocks
    }


def log_level(probabilities: LevelProbabilities) -> Tensor:
    """Returns the log probability (N) of the level observed in a column; 0 where it is missing."""
    block, level = probabilities.block, probabilities.observed_level.clamp(min=0)
    chosen = probabilities.groups.gather(1, block.group[level][:, None]).squeeze(1) * block.share[level]
    return torch.where(probabilities.observed_level >= 0, chosen.log(), 0.0)


def _observed_levels(codes: Incomplete, column: int) -> Tensor:
    return torch.where(codes.observed[:, column], codes.x[:, column], -1.0).long()


@dataclass(frozen=True)
class PixelModel:
    """A model over the codes of pixels; a subclass computes means and quantiles of their features.

    Parameters
    ----------
    columns : sequence of Column
        The D pixels, all of one kind, in the order (C, H, W).
    features : FeatureMap
        From codes (N, D) to features (N, D), as `pixel_features` makes it.
    """

    columns: Sequence[Column]
    features: FeatureMap

    @torch.no_grad()
    def point(self, codes: Incomplete) -> Tensor:
        """Returns codes (N, D) completed by expectations; of binary pixels, probabilities to be rounded."""
        return self._completed(codes, self._mean(codes))

    @torch.no_grad()
    def quantiles(self, codes: Incomplete, probabilities: Sequence[float]) -> Tensor:
        """Returns quantiles (Q, N, D) of shades and numbers; the more probable value of binary pixels."""
        if self._is_binary:
            return self.point(codes).expand(len(probabilities), -1, -1)
        return self._completed(codes, self._feature_quantiles(codes, probabilities))

    def interval(self, codes: Incomplete, level: float) -> Tensor:
        """Returns the ends (2, N, D) of central intervals; the more probable value of binary pixels."""
        return self.quantiles(codes, central(level))

    def level_probabilities(self, codes: Incomplete) -> dict[int, LevelProbabilities]:
        """Returns the probability of both values of binary pixels."""
        if not self._is_binary:
            return {}
        high = self.point(codes)
        pairs = torch.stack([1.0 - high, high], dim=-1)  # (N, D, 2)
        return {c: LevelProbabilities.of_levels(pairs[:, c], codes, c) for c in range(len(self.columns))}

    def _mean(self, codes: Incomplete) -> Tensor:
        """Returns the expected features (N, D)."""
        raise NotImplementedError

    def _feature_quantiles(self, codes: Incomplete, probabilities: Sequence[float]) -> Tensor:
        """Returns quantiles (Q, N, D) of features."""
        raise NotImplementedError

    @property
    def _is_binary(self) -> bool:
        return self.columns[0].levels is not None

    def _completed(self, codes: Incomplete, features: Tensor) -> Tensor:
        return torch.where(codes.observed, codes.x, self.features.numbers(features.double()))
