"""The model over the columns of a mixed table. Copy it to src/halfseen/<family>/imputer.py."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.special import ndtr

from halfseen._random import Keys, row_uniforms
from halfseen.base.completion import LevelProbabilities, level_probabilities, log_level
from halfseen.base.density import TabularDensity
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.schema import Column
from halfseen.nn.weights import load_module
from skeletons.model import DiagonalGaussian  # in the library: from halfseen.<family>.model import ...

LEVEL_STREAM = 1  # noise that chooses levels is kept apart from noise for numbers


@dataclass(frozen=True)
class TabularDiagonal(TabularDensity[DiagonalGaussian]):
    """A `TabularModel` with independent columns over the codes of a table, based on a module over features.

    `TabularDensity` implements means, quantiles and saving. This model overrides the methods for levels,
    because its module is Gaussian in their indicators; a module with categorical levels needs `from_state`
    only.

    Parameters
    ----------
    columns : sequence of Column
        The C modelled columns.
    features : FeatureMap
        From codes (N, C) to standardised features (N, D) and back.
    module : DiagonalGaussian
        The fitted density of the features.
    """

    @classmethod
    def create(cls, columns: Sequence[Column], features: FeatureMap) -> "TabularDiagonal":
        """Returns a model that is not yet trained."""
        return cls(columns, features, DiagonalGaussian(features.n_features).double())

    @torch.no_grad()
    def draws(self, codes: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        """Returns completed codes (S, N, C) whose noise is determined by the rows."""
        batch = self.features.encode(codes)
        drawn = [self._draw(codes, batch, keys, s) for s in range(n_draws)]
        return torch.stack(drawn) if drawn else codes.x.new_empty(0, *codes.x.shape)

    @torch.no_grad()
    def level_probabilities(self, codes: Incomplete) -> dict[int, LevelProbabilities]:
        """Returns for each column with levels the probability of each."""
        mean, scale = self.module.loc.expand(len(codes), -1), self.module.scale
        found = level_probabilities(self.features, codes, mean)
        for c in self.features.ordinal:  # an ordered level is a score that was rounded
            position = self.features.numeric.index(c)
            spread = (scale * self.features.scaler.scale)[position]
            centre = self.features.numbers(mean)[:, position, None]
            edges = torch.arange(len(self.columns[c].levels or ()) - 1, dtype=torch.float64) + 0.5
            below = ndtr((edges - centre) / spread)
            ends = below.new_zeros(len(codes), 1)
            shares = torch.diff(torch.cat([ends, below, ends + 1.0], dim=1), dim=1)
            found[c] = LevelProbabilities.of_levels(shares, codes, c)
        return dict(sorted(found.items()))

    @torch.no_grad()
    def log_prob(self, codes: Incomplete) -> Tensor:
        """Returns the log density (N) of the observed cells: numbers by the module, levels by probability."""
        marginals = self.level_probabilities(codes)
        observed = codes.observed.clone()
        observed[:, list(marginals)] = False
        numbers = Incomplete(codes.x, observed)
        total: Tensor = self.module(self.features.encode(numbers))
        total = total + self.features.log_jacobian(numbers)
        for probabilities in marginals.values():
            total = total + log_level(probabilities)
        return total

    @classmethod
    def from_state(cls, columns: Sequence[Column], state: Mapping[str, Tensor]) -> "TabularDiagonal":
        """Rebuilds the model from its columns and what `state` returned."""
        model = cls.create(columns, FeatureMap.from_state(columns, state, all_indicators=False))
        load_module(model.module, state)
        return model

    def _draw(self, codes: Incomplete, batch: Incomplete, keys: Keys, draw: int) -> Tensor:
        noise = torch.from_numpy(row_uniforms(keys, draw, self.module.n_noise))
        uniforms = torch.from_numpy(row_uniforms(keys, draw, len(self.columns), LEVEL_STREAM))
        result = codes.x.clone()
        result[:, list(self.features.numeric)] = self.features.numbers(
            self.module.conditional_draw(batch, noise)
        )
        for c, found in self.level_probabilities(codes).items():
            result[:, c] = found.block.draw(found.groups, uniforms[:, c]).to(result.dtype)
        return torch.where(codes.observed, codes.x, result)
