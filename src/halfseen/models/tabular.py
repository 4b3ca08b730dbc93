"""What an imputer asks of a model over the codes of a table, and what such models share."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from halfseen._random import Keys
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete


class TabularModel(Protocol):
    """Completes codes (N, C) in several ways; observed codes always come back exactly.

    Codes are the numbers of `halfseen.data.schema.Column`: values, or positions among levels. A model need
    not round or bound them: the estimator does, for all models alike.
    """

    def point(self, codes: Incomplete) -> Tensor:
        """Returns the best single completion (N, C): means and most probable levels."""
        ...

    def draws(self, codes: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        """Returns joint draws (S, N, C) whose noise belongs to the rows' keys."""
        ...

    def quantiles(self, codes: Incomplete, probabilities: Sequence[float]) -> Tensor:
        """Returns quantiles (Q, N, C) of each cell by itself; most probable levels where there are levels."""
        ...

    def level_probabilities(self, codes: Incomplete) -> dict[int, Tensor]:
        """Returns the probability (N, L) of each level, for every column with levels."""
        ...

    def log_prob(self, codes: Incomplete) -> Tensor:
        """Returns the log density (N) of the observed cells, in the units of the table."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Returns every learned tensor, to be saved."""
        ...


def decode_mean(features: FeatureMap, codes: Incomplete, mean: Tensor) -> Tensor:
    """Returns codes (N, C) completed by expected features (N, D)."""
    result = codes.x.clone()
    result[:, list(features.numeric)] = features.numbers(mean)
    for block in features.blocks:
        levels = features.level_probabilities(mean, block).argmax(dim=-1)
        result[:, block.column] = levels.to(result.dtype)
    return torch.where(codes.observed, codes.x, result)


def level_probabilities(features: FeatureMap, codes: Incomplete, mean: Tensor) -> dict[int, Tensor]:
    """Returns the level probabilities (N, L) of each column with a block, from expected features (N, D)."""
    return {
        block.column: with_certainty(features.level_probabilities(mean, block), codes, block.column)
        for block in features.blocks
    }


def with_certainty(probabilities: Tensor, codes: Incomplete, column: int) -> Tensor:
    """Returns level probabilities (N, L), with 0 and 1 in the rows where the column was observed."""
    certain = functional.one_hot(_seen_levels(codes, column), probabilities.shape[1])
    return torch.where(codes.observed[:, column, None], certain.to(probabilities.dtype), probabilities)


def log_level(probabilities: Tensor, codes: Incomplete, column: int) -> Tensor:
    """Returns the log probability (N) of the level observed in a column; 0 where it is missing."""
    chosen = probabilities.gather(1, _seen_levels(codes, column)[:, None]).squeeze(1).log()
    return torch.where(codes.observed[:, column], chosen, 0.0)


def invert_cdf(probabilities: Tensor, uniforms: Tensor) -> Tensor:
    """Returns the level (*) at which the cumulated probabilities (*, L) pass the uniforms (*)."""
    cumulated = probabilities.cumsum(dim=-1)
    reached = (uniforms.unsqueeze(-1) * cumulated[..., -1:] >= cumulated).sum(dim=-1)
    return reached.clamp(max=probabilities.shape[-1] - 1)


def _seen_levels(codes: Incomplete, column: int) -> Tensor:
    return torch.where(codes.observed[:, column], codes.x[:, column], 0.0).long()
