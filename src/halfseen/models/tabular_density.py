"""Adapters from models over features to models over the columns of a mixed table."""

from collections.abc import Iterator, Sequence
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

RARE_STREAM = 3  # noise that chooses among rare levels, apart from the rest


@dataclass(frozen=True)
class FeatureAdapter:
    """A model over the codes of a table, given a model over their features.

    A subclass implements the methods `_mean`, `_quantiles`, `_drawn` and `_log_prob` for rows of features
    and, if rows contain more than the encoded codes, `_rows`.

    Parameters
    ----------
    columns : sequence of Column
        The C modelled columns.
    features : FeatureMap
        From codes (N, C) to features (N, D), with all indicators.
    """

    columns: Sequence[Column]
    features: FeatureMap

    @torch.no_grad()
    def point(self, codes: Incomplete) -> Tensor:
        """Returns codes (N, C) completed by conditional means and most probable levels."""
        rows = self._rows(codes)
        if not self.features.bent():
            return decode_mean(self.features, codes, self._mean(rows))
        mean, quantiles = self._mean_and_quantiles(rows, MEAN_LEVELS)
        return decode_mean(self.features, codes, mean, mean_numbers(self.features, mean, quantiles))

    @torch.no_grad()
    def draws(self, codes: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        """Returns completed codes (S, N, C) drawn jointly."""
        result = codes.x.expand(n_draws, -1, -1).clone()
        blocks = self.features.blocks
        for s, drawn in enumerate(self._drawn(self._rows(codes), keys, n_draws)):  # (N, D)
            result[s][:, list(self.features.numeric)] = self.features.numbers(drawn)
            rare = torch.from_numpy(row_uniforms(keys, s, len(blocks), RARE_STREAM))
            for number, block in enumerate(blocks):
                level = block.draw(drawn[:, block.start : block.stop], rare[:, number])
                result[s, :, block.column] = level.to(result.dtype)
        return torch.where(codes.observed, codes.x, result)

    @torch.no_grad()
    def quantiles(self, codes: Incomplete, probabilities: Sequence[float]) -> Tensor:
        """Returns conditional quantiles (Q, N, C) of numbers; most probable levels otherwise."""
        mean, found = self._mean_and_quantiles(self._rows(codes), probabilities)
        result = decode_mean(self.features, codes, mean).expand(len(probabilities), -1, -1).clone()
        result[..., list(self.features.numeric)] = self.features.numbers(found)
        return torch.where(codes.observed, codes.x, result)

    @torch.no_grad()
    def level_probabilities(self, codes: Incomplete) -> dict[int, LevelProbabilities]:
        """Returns the probability of each level, by column with levels."""
        return level_probabilities(self.features, codes, self._mean(self._rows(codes)))

    @torch.no_grad()
    def log_prob(self, codes: Incomplete) -> Tensor:
        """Returns the log density (N) of the observed cells, or a bound, in the units of the table."""
        total = self._log_prob(self._rows(codes)) + self.features.log_jacobian(codes)
        for block in self.features.blocks:
            observed = codes.observed[:, block.column]
            levels = torch.where(observed, codes.x[:, block.column], 0.0).long()
            total = total + torch.where(observed, block.share[levels].log(), 0.0)
        return total

    def _rows(self, codes: Incomplete) -> Incomplete:
        """Returns rows of features (N, D)."""
        return self.features.encode(codes)

    def _mean(self, rows: Incomplete) -> Tensor:
        """Returns expected features (N, D)."""
        raise NotImplementedError

    def _quantiles(self, rows: Incomplete, levels: Sequence[float]) -> Tensor:
        """Returns quantiles (Q, N, D) of the features."""
        raise NotImplementedError

    def _mean_and_quantiles(self, rows: Incomplete, levels: Sequence[float]) -> tuple[Tensor, Tensor]:
        """Returns both, which may be faster than computing one after the other."""
        return self._mean(rows), self._quantiles(rows, levels)

    def _drawn(self, rows: Incomplete, keys: Keys, n_draws: int) -> Iterator[Tensor]:
        """Yields features (N, D) with the missing ones drawn jointly, by noise of the rows' keys."""
        raise NotImplementedError

    def _log_prob(self, rows: Incomplete) -> Tensor:
        """Returns the log density (N) of the observed features, or a bound; 0 where nothing is observed."""
        raise NotImplementedError


class DensityModule(DrawableModel, Protocol):
    """A density over features as a torch module, whose tensors can be saved."""

    def state_dict(self) -> dict[str, Any]:
        """Returns all tensors by name."""
        ...


ModuleT = TypeVar("ModuleT", bound=DensityModule)


@dataclass(frozen=True)
class TabularDensity(FeatureAdapter, Generic[ModuleT]):
    """A model over the codes of a table, given a density of features with exact marginals and conditionals.

    A subclass implements how the model is rebuilt (`from_state`).

    Parameters
    ----------
    columns : sequence of Column
        The C modelled columns.
    features : FeatureMap
        From codes (N, C) to features (N, D), with all indicators.
    module : nn.Module
        The fitted density: a `DrawableModel` over features.
    """

    module: ModuleT

    def state(self) -> dict[str, Tensor]:
        """Returns every learned tensor."""
        return self.features.state() | module_state(self.module)

    def _mean(self, rows: Incomplete) -> Tensor:
        return self.module.conditional_mean(rows)

    def _quantiles(self, rows: Incomplete, levels: Sequence[float]) -> Tensor:
        return torch.stack([self.module.conditional_quantile(rows, level) for level in levels])

    def _drawn(self, rows: Incomplete, keys: Keys, n_draws: int) -> Iterator[Tensor]:
        for s in range(n_draws):
            noise = torch.from_numpy(row_uniforms(keys, s, self.module.n_noise))
            yield self.module.conditional_draw(rows, noise)

    def _log_prob(self, rows: Incomplete) -> Tensor:
        return self.module(rows)
