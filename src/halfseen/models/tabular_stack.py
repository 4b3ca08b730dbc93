r"""Several models of a table as one: a mixture of their predictive distributions, with weights by column.

.. math::
    F(x_c \mid x_o) = B_a\Big(\sum_m w_{mc} \, F_m(x_c \mid x_o)\Big),
    \qquad w_{mc} \ge 0, \; \sum_m w_{mc} = 1

A mixture of calibrated distributions is too wide, because it adds the differences between the models to the
spread of each. The distribution function :math:`B_a` of a symmetric beta distribution takes this back for
numbers: with a = 1 it is the identity, and with larger a the quantiles are nearer to the median.

A draw of a row chooses a model for each column by one random number, so that columns with equal weights are
drawn together from one model. Its quantile in the mixture is then moved.

References
----------
Gneiting & Ranjan (2013), Combining predictive distributions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import betaincinv
from torch import Tensor

from halfseen._random import Keys, row_uniforms
from halfseen.data.incomplete import Incomplete
from halfseen.models.tabular import LevelProbabilities, TabularCompletion

Floats = npt.NDArray[np.float64]

CHOICE_STREAM = 1 << 24  # noise that chooses a model, apart from the rest
LEVEL_STREAM = CHOICE_STREAM + 1  # noise for the quantile of a draw among equal values
GRID = tuple((k + 0.5) / 30 for k in range(30))  # quantiles that stand for a distribution in a mixture


@dataclass(frozen=True)
class TabularStack:
    r"""Codes of a table under a mixture of models, valid if each of the models is.

    Parameters
    ----------
    models : sequence of TabularCompletion
        The M models, over the same columns.
    weights : array of shape (M, C)
        The weight of each model for each column.
    sharpness : float, default=1.0
        The parameter a of the beta distribution.
    """

    models: Sequence[TabularCompletion]
    weights: Floats
    sharpness: float = 1.0

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
        levels = self._levels(codes)
        for m, columns in self._alone(levels).items():
            result[..., columns] = self.models[m].quantiles(codes, probabilities)[..., columns]
        mixed = self._mixed(levels)
        if mixed:
            asked = torch.from_numpy(sharpened(np.array(probabilities), self.sharpness))
            for c, (atoms, shares) in zip(mixed, self._atoms(codes, mixed), strict=True):
                result[..., c] = _weighted_quantiles(atoms, shares, asked[:, None].expand(-1, len(codes)))
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
        if self.sharpness != 1.0:
            self._sharpen(codes, keys, result)
        return torch.where(codes.observed, codes.x, result)

    def _sharpen(self, codes: Incomplete, keys: Keys, drawn: Tensor) -> None:
        """Moves draws (S, N, C) of the mixture to the quantiles that `sharpness` gives them, in place."""
        rows = (~codes.observed).any(dim=1).nonzero().squeeze(1)
        mixed = self._mixed(self._levels(codes)) if len(rows) else []
        if not mixed:
            return
        mine, width = keys[rows.numpy()], drawn.shape[-1]
        noise = [row_uniforms(mine, s, width, LEVEL_STREAM) for s in range(len(drawn))]
        for c, (atoms, shares) in zip(mixed, self._atoms(codes[rows], mixed), strict=True):
            uniforms = torch.from_numpy(np.stack([one[:, c] for one in noise]))
            levels = mixture_levels(atoms, shares, drawn[:, rows, c], uniforms)
            asked = torch.from_numpy(sharpened(levels.numpy(), self.sharpness))
            drawn[:, rows, c] = _weighted_quantiles(atoms, shares, asked)

    def _levels(self, codes: Incomplete) -> set[int]:
        """Returns the columns that have levels; one row shows them."""
        return set(self.models[0].level_probabilities(codes[:1]))

    def _mixed(self, levels: set[int]) -> list[int]:
        """Returns the columns of numbers that have several models."""
        return [c for c in range(self.weights.shape[1]) if c not in levels and self._n_models(c) > 1]

    def _atoms(self, codes: Incomplete, columns: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields, for each column, values (A, N) that stand for its mixture, and their probabilities (A)."""
        used = [m for m in range(len(self.models)) if (self.weights[m, columns] > 0).any()]
        grids = [self.models[m].quantiles(codes, GRID)[..., columns] for m in used]
        for i, c in enumerate(columns):
            shares = np.repeat(self.weights[used, c] / len(GRID), len(GRID))
            yield torch.cat([grid[..., i] for grid in grids]), torch.from_numpy(shares)

    def _n_models(self, column: int) -> int:
        return int((self.weights[:, column] > 0).sum())

    def _alone(self, levels: set[int]) -> dict[int, list[int]]:
        """Returns the columns of numbers that have one model, by model."""
        found: dict[int, list[int]] = {}
        for c in range(self.weights.shape[1]):
            if c not in levels and self._n_models(c) == 1:
                found.setdefault(int(self.weights[:, c].argmax()), []).append(c)
        return found


def sharpened(levels: Floats, sharpness: float) -> Floats:
    """Returns the levels at which quantiles of the mixture are quantiles of the sharpened distribution."""
    found: Floats = levels if sharpness == 1.0 else betaincinv(sharpness, sharpness, levels)
    return found


def mixture_levels(atoms: Tensor, shares: Tensor, values: Tensor, uniforms: Tensor) -> Tensor:
    """Returns the probability (S, N) that a mixture of atoms (A, N) is lower than values (S, N).

    It is linear between atoms with the probabilities `shares` (A), and random among equal atoms and beyond
    the first and the last, by `uniforms` (S, N): the levels of draws of the mixture are then uniform.
    """
    ordered, mass, middle = _order(atoms, shares)
    total = torch.cat([torch.zeros_like(mass[:1]), mass.cumsum(dim=0)])  # (A + 1, N), below each atom
    rows, asked = ordered.T.contiguous(), values.T.contiguous()
    first, last = (torch.searchsorted(rows, asked, right=right).T for right in (False, True))
    above = first.clamp(1, len(atoms) - 1)
    low, high = ordered.gather(0, above - 1), ordered.gather(0, above)
    share = ((values - low) / (high - low).clamp(min=1e-300)).clamp(0.0, 1.0)
    between = middle.gather(0, above - 1) * (1 - share) + middle.gather(0, above) * share
    outside = torch.where(first == 0, uniforms * middle[:1], 1.0 - uniforms * (1.0 - middle[-1:]))
    between = torch.where((first == 0) | (first == len(atoms)), outside, between)
    below, up_to = total.gather(0, first), total.gather(0, last)
    levels = torch.where(last > first, below + uniforms * (up_to - below), between)
    return levels.clamp(0.0, 1.0)  # sums of probabilities are rounded


def _weighted_quantiles(atoms: Tensor, shares: Tensor, levels: Tensor) -> Tensor:
    """Returns quantiles (Q, N) at levels (Q, N) of atoms (A, N) with probabilities (A), linear between."""
    ordered, _, middle = _order(atoms, shares)
    above = torch.searchsorted(middle.T.contiguous(), levels.T.contiguous()).T.clamp(1, len(atoms) - 1)
    below = above - 1
    start, stop = middle.gather(0, below), middle.gather(0, above)
    share = ((levels - start) / (stop - start).clamp(min=1e-300)).clamp(0.0, 1.0)
    low, high = ordered.gather(0, below), ordered.gather(0, above)
    return low * (1 - share) + high * share


def _order(atoms: Tensor, shares: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns atoms in their order, their probabilities, and the level in the middle of each, all (A, N)."""
    ordered, order = atoms.sort(dim=0)
    mass = shares[order]
    return ordered, mass, mass.cumsum(dim=0) - mass / 2
