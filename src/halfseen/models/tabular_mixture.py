"""A diagonal mixture over the columns of a mixed table: Gaussian numbers, categorical levels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from halfseen._random import Keys, row_normals, row_uniforms
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.schema import Column
from halfseen.models.mixture import DiagonalMixture
from halfseen.models.tabular import LevelProbabilities, decode_mean, level_probabilities, mean_numbers

COMPONENT_STREAM, LEVEL_STREAM, RARE_STREAM = 1, 2, 3  # noise of different purposes is kept apart


@dataclass(frozen=True)
class TabularMixture:
    """Codes of a table under a mixture of independent columns; valid under MAR, every answer exact.

    Parameters
    ----------
    columns : sequence of Column
        The C modelled columns.
    features : FeatureMap
        From codes (N, C) to features (N, D), with all indicators.
    module : DiagonalMixture
        The fitted mixture.
    """

    columns: Sequence[Column]
    features: FeatureMap
    module: DiagonalMixture

    @classmethod
    def create(cls, columns: Sequence[Column], features: FeatureMap, n_components: int) -> "TabularMixture":
        """Returns a model that is not yet trained."""
        blocks = [(block.start, block.stop) for block in features.blocks]
        module = DiagonalMixture(features.n_features, n_components, blocks).double()
        return cls(columns, features, module)

    @torch.no_grad()
    def point(self, codes: Incomplete) -> Tensor:
        """Returns codes (N, C) completed by conditional means and most probable levels."""
        batch = self.features.encode(codes)
        mean = self.module.conditional_mean(batch)
        numbers = mean_numbers(self.features, mean, lambda levels: self._quantiles(batch, levels))
        return decode_mean(self.features, codes, mean, numbers)

    @torch.no_grad()
    def draws(self, codes: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        """Returns completed codes (S, N, C) drawn jointly: a component, then its columns."""
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
        mean = self.module.conditional_mean(self.features.encode(codes))
        return level_probabilities(self.features, codes, mean)

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
        weights = {f"module.{name}": value for name, value in self.module.state_dict().items()}
        return self.features.state() | weights

    @classmethod
    def from_state(cls, columns: Sequence[Column], state: Mapping[str, Tensor]) -> "TabularMixture":
        """Rebuilds the model from its columns and what `state` returned."""
        features = FeatureMap.from_state(columns, state, all_indicators=True)
        model = cls.create(columns, features, n_components=len(state["module.logits"]))
        prefix = "module."
        weights = {name[len(prefix) :]: value for name, value in state.items() if name.startswith(prefix)}
        model.module.load_state_dict(weights)
        model.module.eval().requires_grad_(False)
        return model

    def _quantiles(self, batch: Incomplete, levels: Sequence[float]) -> Tensor:
        """Returns quantiles (Q, N, D) of the features."""
        return torch.stack([self.module.conditional_quantile(batch, level) for level in levels])

    def _draw(self, codes: Incomplete, batch: Incomplete, keys: Keys, draw: int) -> Tensor:
        n_blocks = len(self.features.blocks)
        drawn = self.module.conditional_draw(
            batch,
            torch.from_numpy(row_uniforms(keys, draw, 1, COMPONENT_STREAM)[:, 0]),
            torch.from_numpy(row_normals(keys, draw, batch.n_features)),
            torch.from_numpy(row_uniforms(keys, draw, n_blocks, LEVEL_STREAM)),
        )
        result = codes.x.clone()
        result[:, list(self.features.numeric)] = self.features.numbers(drawn)
        rare = torch.from_numpy(row_uniforms(keys, draw, n_blocks, RARE_STREAM))
        for number, block in enumerate(self.features.blocks):
            level = block.draw(drawn[:, block.start : block.stop], rare[:, number])
            result[:, block.column] = level.to(result.dtype)
        return torch.where(codes.observed, codes.x, result)
