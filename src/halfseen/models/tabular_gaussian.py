r"""A Gaussian over the columns of a mixed table: numbers, ordered levels and categories together.

Categories enter as indicators. Given what a row shows, the expected indicators of a missing category are
its class probabilities (the linear probability model, clipped and normalised). Joint draws follow the chain
rule: categories one after the other from their class probabilities, each then counted as seen, and at last
all missing numbers together from their exact conditional.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.special import ndtr, ndtri

from halfseen._random import Keys, row_normals, row_uniforms
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.schema import Column
from halfseen.distributions.gaussian import Gaussian
from halfseen.models.conditional import RowLaw, law_from_state, law_state
from halfseen.models.tabular import LevelProbabilities, decode_mean, level_probabilities, log_level

CATEGORY_STREAM = 1  # noise for categories is apart from noise for numbers, a stream each


@dataclass(frozen=True)
class TabularGaussian:
    r"""Codes of a table under a Gaussian of their features.

    Valid under MAR; with a `SelfMaskedGaussian`, if numbers hide as its mask says. Then what is said of the
    missing cells of a row is given also that they are missing.

    Parameters
    ----------
    columns : sequence of Column
        The C modelled columns.
    features : FeatureMap
        From codes (N, C) to features (N, D).
    gaussian : Gaussian or SelfMaskedGaussian
        The fitted parameters.
    posterior : sequence of Gaussian
        Draws of the parameters; when there are any, draws and intervals carry their uncertainty.
    """

    columns: Sequence[Column]
    features: FeatureMap
    gaussian: RowLaw
    posterior: Sequence[Gaussian] = ()

    def point(self, codes: Incomplete) -> Tensor:
        """Returns codes (N, C) completed by conditional means and most probable levels."""
        batch = self.features.encode(codes)
        if not self.features.ordinal:
            return decode_mean(self.features, codes, self.gaussian.conditional_mean(batch))
        mean, variance = self.gaussian.moments(batch)
        completed = decode_mean(self.features, codes, mean)
        for c in self.features.ordinal:
            level = self._ordinal_probabilities(mean, variance, c).argmax(dim=1).to(completed.dtype)
            completed[:, c] = torch.where(codes.observed[:, c], codes.x[:, c], level)
        return completed

    def draws(self, codes: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        """Returns completed codes (S, N, C) drawn jointly; draw s uses the s-th posterior parameters."""
        if not self.posterior:
            return self._draws(self.gaussian, codes, keys, range(n_draws))
        parts = [
            self._draws(self.posterior[s % len(self.posterior)], codes, keys, range(s, s + 1))
            for s in range(n_draws)
        ]
        return torch.cat(parts) if parts else codes.x.new_empty(0, *codes.x.shape)

    def quantiles(self, codes: Incomplete, probabilities: Sequence[float]) -> Tensor:
        """Returns conditional quantiles (Q, N, C) of the numbers; most probable levels for categories."""
        batch = self.features.encode(codes)
        mean, variance = self._moments(batch)
        scores = ndtri(torch.tensor(probabilities, dtype=torch.float64))[:, None, None]
        spread = self.features.numbers(mean + scores * variance.sqrt())
        result = self.point(codes).expand(len(probabilities), -1, -1).clone()
        result[..., list(self.features.numeric)] = spread
        return torch.where(codes.observed, codes.x, result)

    def level_probabilities(self, codes: Incomplete) -> dict[int, LevelProbabilities]:
        """Returns the probability of each level, by column with levels."""
        batch = self.features.encode(codes)
        mean, variance = self.gaussian.moments(batch)
        found = level_probabilities(self.features, codes, mean)
        for c in self.features.ordinal:
            found[c] = LevelProbabilities.of_levels(self._ordinal_probabilities(mean, variance, c), codes, c)
        return dict(sorted(found.items()))

    def log_prob(self, codes: Incomplete) -> Tensor:
        r"""Returns the log density (N) of the observed cells, in the units of the table.

        Numbers have their exact Gaussian density. Levels follow by the chain rule, each given the numbers
        and the levels before it; with such columns, marginals are those of this order of the chain. Under a
        self-masking model it is the joint log density of the observed cells *and* of which numbers are
        missing: no row scores 0 for showing nothing, and hiding a number is not integrating it out.
        """
        batch = self.features.encode(codes)
        discrete = [*self.features.ordinal, *(block.column for block in self.features.blocks)]
        shown = batch.observed.clone()
        shown[:, self._positions(discrete)] = False
        total = self.gaussian.log_prob(Incomplete(batch.x, shown)) + self.features.log_jacobian(
            Incomplete(codes.x, self._hidden(codes, discrete))
        )
        for c in discrete:
            given = Incomplete(batch.x, shown)
            total = total + log_level(self._one_column(given, codes, c))
            positions = self._positions([c])
            shown[:, positions] = batch.observed[:, positions]
        return total

    def state(self) -> dict[str, Tensor]:
        """Returns every learned tensor."""
        state = self.features.state() | law_state(self.gaussian)
        if self.posterior:
            state["posterior.loc"] = torch.stack([g.loc for g in self.posterior])
            state["posterior.covariance"] = torch.stack([g.covariance for g in self.posterior])
        return state

    @classmethod
    def from_state(cls, columns: Sequence[Column], state: Mapping[str, Tensor]) -> "TabularGaussian":
        """Rebuilds the model from its columns and what `state` returned."""
        features = FeatureMap.from_state(columns, state, all_indicators=False)
        pairs = zip(state.get("posterior.loc", ()), state.get("posterior.covariance", ()), strict=True)
        return cls(columns, features, law_from_state(state), tuple(Gaussian(*pair) for pair in pairs))

    def _moments(self, batch: Incomplete) -> tuple[Tensor, Tensor]:
        """Returns conditional mean and variance (N, D); over the posterior, by the law of total variance."""
        if not self.posterior:
            return self.gaussian.moments(batch)
        means = torch.stack([g.conditional_mean(batch) for g in self.posterior])
        within = sum((g.conditional_variance(batch) for g in self.posterior), torch.zeros(()))
        return means.mean(dim=0), within / len(self.posterior) + means.var(dim=0, unbiased=False)

    def _draws(self, gaussian: RowLaw, codes: Incomplete, keys: Keys, which: range) -> Tensor:
        batch = self.features.encode(codes)
        x, observed = batch.x.expand(len(which), -1, -1).clone(), batch.observed.clone()
        result = codes.x.expand(len(which), -1, -1).clone()
        for number, block in enumerate(self.features.blocks):
            rows = (~codes.observed[:, block.column]).nonzero().squeeze(1)
            if len(rows) == 0:
                continue
            mean = gaussian.complete(x[:, rows], observed[rows])
            groups = self.features.group_probabilities(mean, block)  # (S, R, G)
            uniforms = [row_uniforms(keys[rows.numpy()], s, 1, CATEGORY_STREAM + number)[:, 0] for s in which]
            levels = block.draw(groups, torch.from_numpy(np.stack(uniforms)))
            result[:, rows, block.column] = levels.to(result.dtype)
            x[:, rows, block.start : block.stop] = self.features.indicators(levels, block)
            observed[rows, block.start : block.stop] = True
        normals = [torch.from_numpy(row_normals(keys, s, x.shape[-1])) for s in which]
        shared = torch.equal(observed, batch.observed)  # no level was drawn: all draws see the same
        completed = gaussian.complete(batch.x if shared else x, observed, torch.stack(normals))
        result[..., list(self.features.numeric)] = self.features.numbers(completed)
        return torch.where(codes.observed, codes.x, result)

    def _one_column(self, given: Incomplete, codes: Incomplete, column: int) -> LevelProbabilities:
        if column not in self.features.ordinal:
            return level_probabilities(self.features, codes, self.gaussian.conditional_mean(given))[column]
        probabilities = self._ordinal_probabilities(*self.gaussian.moments(given), column)
        return LevelProbabilities.of_levels(probabilities, codes, column)

    def _ordinal_probabilities(self, mean: Tensor, variance: Tensor, column: int) -> Tensor:
        """Returns the probability (N, L) that the latent score rounds to each level."""
        position = self.features.numeric.index(column)
        scale = self.features.number_scales()[position]
        centre = self.features.numbers(mean)[:, position, None]
        spread = (variance[:, position, None].sqrt() * scale).clamp(min=1e-9)
        n_levels = len(self.columns[column].levels or ())
        edges = torch.arange(n_levels - 1, dtype=torch.float64) + 0.5
        below = ndtr((edges - centre) / spread)
        ends = torch.zeros(len(mean), 1, dtype=torch.float64)
        shares = torch.diff(torch.cat([ends, below, ends + 1], dim=1), dim=1)
        return shares.clamp(min=1e-12) / shares.clamp(min=1e-12).sum(dim=1, keepdim=True)

    def _positions(self, columns: Sequence[int]) -> list[int]:
        """Returns the features of the given columns."""
        found = [self.features.numeric.index(c) for c in columns if c in self.features.numeric]
        for block in self.features.blocks:
            found += list(range(block.start, block.stop)) if block.column in columns else []
        return found

    @staticmethod
    def _hidden(codes: Incomplete, columns: Sequence[int]) -> Tensor:
        observed = codes.observed.clone()
        observed[:, list(columns)] = False
        return observed
