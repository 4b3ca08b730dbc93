"""What densities over the features of a table share, once they are put on its columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from halfseen._random import Keys, row_uniforms
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.schema import Column
from halfseen.models.protocols import DrawableModel
from halfseen.models.tabular import (
    MEAN_LEVELS,
    LevelProbabilities,
    decode_mean,
    level_probabilities,
    mean_numbers,
)
from halfseen.nn.weights import module_state

RARE_STREAM = 3  # noise of different purposes is kept apart


class DensityModule(DrawableModel, Protocol):
    """A density over features as a torch module, whose tensors can be saved."""

    def state_dict(self) -> dict[str, Any]:
        """Returns all tensors by name."""
        ...


ModuleT = TypeVar("ModuleT", bound=DensityModule)


@dataclass(frozen=True)
class TabularDensity(Generic[ModuleT]):
    """Codes of a table under a density of its features whose marginals and conditionals are exact.

    A subclass says how the model is rebuilt (`from_state`).

    Parameters
    ----------
    columns : sequence of Column
        The C modelled columns.
    features : FeatureMap
        From codes (N, C) to features (N, D), with all indicators.
    module : nn.Module
        The fitted density: a `DrawableModel` over features.
    """

    columns: Sequence[Column]
    features: FeatureMap
    module: ModuleT

    @torch.no_grad()
    def point(self, codes: Incomplete) -> Tensor:
        """Returns codes (N, C) completed by conditional means and most probable levels."""
        batch = self.features.encode(codes)
        mean = self._mean(batch)
        if not self.features.bent():
            return decode_mean(self.features, codes, mean)
        numbers = mean_numbers(self.features, mean, self._quantiles(batch, MEAN_LEVELS))
        return decode_mean(self.features, codes, mean, numbers)

    @torch.no_grad()
    def draws(self, codes: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        """Returns completed codes (S, N, C) drawn jointly."""
        batch = self.features.encode(codes)
        drawn = [self._draw(codes, batch, keys, s) for s in range(n_draws)]
        return torch.stack(drawn) if drawn else codes.x.new_empty(0, *codes.x.shape)

    @torch.no_grad()
    def quantiles(self, codes: Incomplete, probabilities: Sequence[float]) -> Tensor:
        """Returns exact conditional quantiles (Q, N, C) of numbers; most probable levels otherwise."""
        batch = self.features.encode(codes)
        result = self.point(codes).expand(len(probabilities), -1, -1).clone()
        quantiles = self._quantiles(batch, probabilities)
        result[..., list(self.features.numeric)] = self.features.numbers(quantiles)
        return torch.where(codes.observed, codes.x, result)

    @torch.no_grad()
    def level_probabilities(self, codes: Incomplete) -> dict[int, LevelProbabilities]:
        """Returns the probability of each level, by column with levels."""
        return level_probabilities(self.features, codes, self._mean(self.features.encode(codes)))

    @torch.no_grad()
    def log_prob(self, codes: Incomplete) -> Tensor:
        """Returns the exact log density (N) of the observed cells, in the units of the table."""
        total: Tensor = self.module(self.features.encode(codes)) + self.features.log_jacobian(codes)
        for block in self.features.blocks:
            seen = codes.observed[:, block.column]
            levels = torch.where(seen, codes.x[:, block.column], 0.0).long()
            total = total + torch.where(seen, block.share[levels].log(), 0.0)
        return total

    def state(self) -> dict[str, Tensor]:
        """Returns every learned tensor."""
        return self.features.state() | module_state(self.module)

    def _mean(self, batch: Incomplete) -> Tensor:
        """Returns expected features (N, D)."""
        return self.module.conditional_mean(batch)

    def _quantiles(self, batch: Incomplete, levels: Sequence[float]) -> Tensor:
        """Returns quantiles (Q, N, D) of the features."""
        return torch.stack([self.module.conditional_quantile(batch, level) for level in levels])

    def _draw(self, codes: Incomplete, batch: Incomplete, keys: Keys, draw: int) -> Tensor:
        noise = torch.from_numpy(row_uniforms(keys, draw, self.module.n_noise))
        drawn = self.module.conditional_draw(batch, noise)
        result = codes.x.clone()
        result[:, list(self.features.numeric)] = self.features.numbers(drawn)
        rare = torch.from_numpy(row_uniforms(keys, draw, len(self.features.blocks), RARE_STREAM))
        for number, block in enumerate(self.features.blocks):
            level = block.draw(drawn[:, block.start : block.stop], rare[:, number])
            result[:, block.column] = level.to(result.dtype)
        return torch.where(codes.observed, codes.x, result)
