r"""Several models of a table as one: a mixture of their predictive distributions, with weights by column.

.. math:: p(x_c \mid x_o) = \sum_m w_{mc} \, p_m(x_c \mid x_o), \qquad w_{mc} \ge 0, \; \sum_m w_{mc} = 1

A draw of a row chooses a model for each column by one random number, so that columns with equal weights are
drawn together from one model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from halfseen._random import Keys, row_uniforms
from halfseen.data.incomplete import Incomplete
from halfseen.models.tabular import LevelProbabilities, TabularCompletion

Floats = npt.NDArray[np.float64]

CHOICE_STREAM = 1 << 24  # noise that chooses a model, apart from the rest
GRID = tuple((k + 0.5) / 60 for k in range(60))  # quantiles that stand for a distribution in a mixture


@dataclass(frozen=True)
class TabularStack:
    r"""Codes of a table under a mixture of models, valid if each of the models is.

    Parameters
    ----------
    models : sequence of TabularCompletion
        The M models, over the same columns.
    weights : array of shape (M, C)
        The weight of each model for each column.
    """

    models: Sequence[TabularCompletion]
    weights: Floats

    def point(self, codes: Incomplete) -> Tensor:
        """Returns codes (N, C) completed by means of the mixture and its most probable levels."""
        weights = torch.from_numpy(self.weights)
        result = torch.zeros_like(codes.x)
        for model, share in zip(self.models, weights, strict=True):
            if bool((share > 0).any()):
                result += share * model.point(codes)
        for c, found in self.level_probabilities(codes).items():
            result[:, c] = found.block.likeliest(found.groups).double()
        return torch.where(codes.observed, codes.x, result)

    def level_probabilities(self, codes: Incomplete) -> dict[int, LevelProbabilities]:
        """Returns the probability of each level, by column with levels."""
        used = [m for m, share in enumerate(self.weights) if (share > 0).any()]
        found = {m: self.models[m].level_probabilities(codes) for m in used}
        mixed = {}
        for c in found[used[0]]:
            shares = {m: float(self.weights[m, c]) for m in used if self.weights[m, c] > 0}
            if len(shares) == 1:
                mixed[c] = found[next(iter(shares))][c]
            else:
                dense = sum((share * found[m][c].dense() for m, share in shares.items()), torch.zeros(()))
                mixed[c] = LevelProbabilities.of_levels(dense, codes, c)
        return mixed

    def quantiles(self, codes: Incomplete, probabilities: Sequence[float]) -> Tensor:
        """Returns quantiles (Q, N, C) of each number by itself; most probable levels otherwise."""
        result = self.point(codes).expand(len(probabilities), -1, -1).clone()
        point = result[0].clone()
        levels = set(self.level_probabilities(codes))
        for m, columns in self._alone(levels).items():
            result[..., columns] = self.models[m].quantiles(codes, probabilities)[..., columns]
        mixed = [c for c in range(self.weights.shape[1]) if c not in levels and self._n_models(c) > 1]
        if mixed:
            used = [m for m in range(len(self.models)) if (self.weights[m, mixed] > 0).any()]
            grids = [self.models[m].quantiles(codes, GRID)[..., mixed] for m in used]
            for i, c in enumerate(mixed):
                atoms = torch.cat([grid[..., i] for grid in grids])  # (M * G, N)
                shares = np.repeat(self.weights[used, c] / len(GRID), len(GRID))
                result[..., c] = _weighted_quantiles(atoms, torch.from_numpy(shares), probabilities)
            if len(probabilities) == 2 and probabilities[1] - probabilities[0] > 0.5:
                result[0] = torch.minimum(result[0], point)
                result[1] = torch.maximum(result[1], point)
                result[..., list(levels)] = point[:, list(levels)]
        return torch.where(codes.observed, codes.x, result)

    def draws(self, codes: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        """Returns completed codes (S, N, C) drawn jointly."""
        noise = [row_uniforms(keys, s, 1, CHOICE_STREAM) for s in range(n_draws)]
        chosen = np.stack(noise) if n_draws else np.empty((0, len(keys), 1))
        upper = np.cumsum(self.weights, axis=0)
        upper[-1] = 1.0
        lower = np.vstack([np.zeros((1, upper.shape[1])), upper[:-1]])
        result = codes.x.expand(n_draws, -1, -1).clone()
        for m, model in enumerate(self.models):
            mine = torch.from_numpy((chosen >= lower[m]) & (chosen < upper[m])) & ~codes.observed
            rows = mine.any(dim=0).any(dim=1).nonzero().squeeze(1)
            if len(rows):
                drawn = model.draws(codes[rows], keys[rows.numpy()], n_draws)
                result[:, rows] = torch.where(mine[:, rows], drawn, result[:, rows])
        return torch.where(codes.observed, codes.x, result)

    def _n_models(self, column: int) -> int:
        return int((self.weights[:, column] > 0).sum())

    def _alone(self, levels: set[int]) -> dict[int, list[int]]:
        """Returns the columns of numbers that have one model, by model."""
        found: dict[int, list[int]] = {}
        for c in range(self.weights.shape[1]):
            if c not in levels and self._n_models(c) == 1:
                found.setdefault(int(self.weights[:, c].argmax()), []).append(c)
        return found


def _weighted_quantiles(atoms: Tensor, shares: Tensor, probabilities: Sequence[float]) -> Tensor:
    """Returns quantiles (Q, N) of atoms (A, N) with probabilities (A), linear between the atoms."""
    ordered, order = atoms.sort(dim=0)
    mass = shares[order]
    middle = mass.cumsum(dim=0) - mass / 2  # (A, N)
    asked = torch.tensor(probabilities, dtype=atoms.dtype)[:, None].expand(-1, atoms.shape[1])
    above = torch.searchsorted(middle.T.contiguous(), asked.T.contiguous()).T.clamp(1, len(atoms) - 1)
    below = above - 1
    start, stop = middle.gather(0, below), middle.gather(0, above)
    share = ((asked - start) / (stop - start).clamp(min=1e-300)).clamp(0.0, 1.0)
    low, high = ordered.gather(0, below), ordered.gather(0, above)
    return low * (1 - share) + high * share
