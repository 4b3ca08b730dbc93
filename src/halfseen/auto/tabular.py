r"""A mixture of the predictive distributions of several models of a table, with weights by column.

.. math::
    F(x_c \mid x_o) = B_a\Big(\sum_m w_{mc} \, F_m(x_c \mid x_o)\Big),
    \qquad w_{mc} \ge 0, \; \sum_m w_{mc} = 1

A mixture of calibrated distributions is too wide, because the differences between the models add to the
spread of each. For numbers, the distribution function :math:`B_a` of a symmetric beta distribution
compensates for this: with a = 1 it is the identity, with larger a the quantiles are closer to the median,
and with smaller a, for mixtures that are too narrow, they are farther from it.

Single values of numbers are averages of the means of the models. Their weights may differ from those of the
distributions, because a model with a good distribution may have a poor mean.

A draw of a row chooses a model for each column by one random number, so that columns with equal weights are
drawn together from one model. The quantile of the draw in the mixture is then transformed accordingly.

References
----------
Gneiting & Ranjan (2013), Combining predictive distributions.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import betaincinv
from torch import Tensor

from halfseen._arrays import Floats
from halfseen._random import Keys, row_uniforms
from halfseen.base.completion import LevelProbabilities, TabularCompletion, central, enclosing
from halfseen.data.incomplete import Incomplete
from halfseen.training.progress import in_parts, part_of_answer

CHOICE_STREAM = 1 << 24  # noise that chooses a model, apart from the rest
LEVEL_STREAM = CHOICE_STREAM + 1  # noise for the quantile of a draw among equal values
_EDGES = np.sin(np.linspace(0.0, np.pi / 2, 31)) ** 2  # closer to each other near 0 and 1, for the tails
GRID = tuple(
    ((_EDGES[1:] + _EDGES[:-1]) / 2).tolist()
)  # quantiles that stand for a distribution in a mixture
MASS = np.diff(_EDGES)  # the probability of each
LARGEST = float(np.finfo(np.float64).max)  # differences of infinite quantiles would not be numbers


@dataclass(frozen=True)
class TabularStack:
    r"""Codes of a table under a mixture of models, valid if each of the models is."""

    models: Sequence[TabularCompletion]  # the M models, over the same columns
    weights: Floats  # (M, C): the weight of each model for each column
    sharpness: float = 1.0  # the parameter a of the beta distribution
    # (M, C): the weights of the means of numbers in single values; by default those of the distributions.
    point_weights: Floats | None = None
    # The columns that have levels; by default the first model is asked for them.
    level_columns: frozenset[int] | None = None

    def point(self, codes: Incomplete) -> Tensor:
        """Returns codes (N, C) completed by averages of means and the most probable levels of the mixture."""
        weights = torch.from_numpy(self.weights if self.point_weights is None else self.point_weights)
        result = torch.zeros_like(codes.x)
        missing = (~codes.observed).any(dim=0)
        levels = self._levels(codes)
        numbers = [c for c in range(len(missing)) if c not in levels and missing[c]]
        used = weights[:, numbers].any(dim=1).nonzero().squeeze(1).tolist()
        lacks_levels = bool(missing[list(levels)].any())
        for m in in_parts(used, end=0.5 if lacks_levels else 1.0):
            result[:, numbers] += weights[m, numbers] * self.models[m].point(codes)[:, numbers]
        if lacks_levels:
            with part_of_answer(0.5, 1.0, divisible=True):
                probabilities = self.level_probabilities(codes)
            for c, found in probabilities.items():
                result[:, c] = found.block.likeliest(found.groups).double()
        return torch.where(codes.observed, codes.x, result)

    def level_probabilities(self, codes: Incomplete) -> dict[int, LevelProbabilities]:
        """Returns the probability of each level, by column with levels."""
        found = {m: self.models[m].level_probabilities(codes) for m in in_parts(self._used)}
        mixed = {}
        for c in found[self._used[0]]:
            shares = {m: float(self.weights[m, c]) for m in self._used if self.weights[m, c] > 0}
            if len(shares) == 1:
                mixed[c] = found[next(iter(shares))][c]
            else:
                dense = sum((share * found[m][c].dense() for m, share in shares.items()), torch.zeros(()))
                mixed[c] = LevelProbabilities.of_levels(dense, codes, c)
        return mixed

    def quantiles(self, codes: Incomplete, probabilities: Sequence[float]) -> Tensor:
        """Returns quantiles (Q, N, C) of each number by itself; most probable levels otherwise."""
        return self._by_column(
            codes, self.point(codes), probabilities, lambda model: model.quantiles(codes, probabilities)
        )

    def interval(self, codes: Incomplete, level: float) -> Tensor:
        """Returns the ends (2, N, C) of intervals of each number; most probable levels otherwise."""
        point = self.point(codes)
        ends = self._by_column(codes, point, central(level), lambda model: model.interval(codes, level))
        return enclosing(ends, point, level)

    def _by_column(
        self,
        codes: Incomplete,
        point: Tensor,
        probabilities: Sequence[float],
        by_one_model: Callable[[TabularCompletion], Tensor],
    ) -> Tensor:
        """Returns (Q, N, C): quantiles of mixtures, what the model of a column returns, and levels (N, C)."""
        result = point.expand(len(probabilities), -1, -1).clone()
        levels = self._levels(codes)
        for m, columns in self._alone(levels).items():
            result[..., columns] = by_one_model(self.models[m])[..., columns]
        mixed = self._mixed(levels)
        if mixed:
            asked = torch.from_numpy(sharpened(np.array(probabilities), self.sharpness))
            for c, atoms in zip(mixed, self._atoms(codes, mixed), strict=True):
                result[..., c] = atoms.quantiles(asked[:, None].expand(-1, len(codes)))
        return torch.where(codes.observed, codes.x, result)

    def draws(self, codes: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        """Returns completed codes (S, N, C) drawn jointly."""
        noise = [row_uniforms(keys, s, 1, CHOICE_STREAM) for s in range(n_draws)]
        chosen = np.stack(noise) if n_draws else np.empty((0, len(keys), 1))
        upper = np.cumsum(self.weights, axis=0)
        upper[-1] = 1.0
        lower = np.vstack([np.zeros((1, upper.shape[1])), upper[:-1]])
        result = codes.x.expand(n_draws, -1, -1).clone()
        for m in in_parts(range(len(self.models)), end=0.5):
            mine = torch.from_numpy((chosen >= lower[m]) & (chosen < upper[m])) & ~codes.observed
            rows = mine.any(dim=0).any(dim=1).nonzero().squeeze(1)
            if len(rows):
                drawn = self.models[m].draws(codes[rows], keys[rows.numpy()], n_draws)
                result[:, rows] = torch.where(mine[:, rows], drawn, result[:, rows])
        if self.sharpness != 1.0:
            with part_of_answer(0.5, 1.0, divisible=True):
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
        for c, atoms in zip(mixed, self._atoms(codes[rows], mixed), strict=True):
            uniforms = torch.from_numpy(np.stack([one[:, c] for one in noise]))
            levels = atoms.levels(drawn[:, rows, c], uniforms)
            asked = torch.from_numpy(sharpened(levels.numpy(), self.sharpness))
            drawn[:, rows, c] = atoms.quantiles(asked)

    @property
    def _used(self) -> list[int]:
        """The models that have a weight in some column."""
        return [m for m, share in enumerate(self.weights) if (share > 0).any()]

    def _levels(self, codes: Incomplete) -> set[int]:
        """Returns the columns that have levels; if they are not known, one row shows them."""
        if self.level_columns is not None:
            return set(self.level_columns)
        with part_of_answer(0.0, 0.0, divisible=False):
            return set(self.models[0].level_probabilities(codes[:1]))

    def _mixed(self, levels: set[int]) -> list[int]:
        """Returns the columns of numbers that have several models."""
        return [c for c in range(self.weights.shape[1]) if c not in levels and self._n_models(c) > 1]

    def _atoms(self, codes: Incomplete, columns: Sequence[int]) -> Iterator["WeightedAtoms"]:
        """Yields, for each column, the quantiles of its models, with their weights."""
        used = [m for m in range(len(self.models)) if (self.weights[m, columns] > 0).any()]
        grids = [
            self.models[m].quantiles(codes, GRID)[..., columns].clamp(-LARGEST, LARGEST)
            for m in in_parts(used)
        ]
        for i, c in enumerate(columns):
            mine = [(grid[..., i], self.weights[m, c]) for m, grid in zip(used, grids, strict=True)]
            mine = [(values, weight) for values, weight in mine if weight > 0]
            shares = np.concatenate([weight * MASS for _, weight in mine])
            yield WeightedAtoms.of(torch.cat([values for values, _ in mine]), torch.from_numpy(shares))

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


@dataclass(frozen=True)
class WeightedAtoms:
    """The distributions of N cells by A values with probabilities; their functions are linear between values.

    Shapes
    ------
    values, mass : (A, N), values in ascending order, and their probabilities
    middle : (A, N), the level in the middle of each value
    """

    values: Tensor
    mass: Tensor
    middle: Tensor

    @classmethod
    def of(cls, atoms: Tensor, shares: Tensor) -> "WeightedAtoms":
        """Creates them from values (A, N) in any order, with the probabilities (A)."""
        values, order = atoms.sort(dim=0)
        mass = shares[order]
        return cls(values, mass, mass.cumsum(dim=0) - mass / 2)

    def bounds(self, asked: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the probabilities (S, N) of less than the values asked for (S, N), and of up to them.

        They differ where atoms are equal to the value. Beyond the first and the last atom, they are 0 and 1.
        """
        total = torch.cat([torch.zeros_like(self.mass[:1]), self.mass.cumsum(dim=0)])  # (A + 1, N)
        rows, columns = self.values.T.contiguous(), asked.T.contiguous()
        first, last = (torch.searchsorted(rows, columns, right=right).T for right in (False, True))
        above = first.clamp(1, len(self.values) - 1)
        between = _interpolate(asked, self.values, self.middle, above)
        between = torch.where(first == 0, 0.0, torch.where(first == len(self.values), 1.0, between))
        below, up_to = (torch.where(last > first, total.gather(0, place), between) for place in (first, last))
        return below.clamp(0.0, 1.0), up_to.clamp(0.0, 1.0)  # sums of probabilities are rounded

    def levels(self, asked: Tensor, uniforms: Tensor) -> Tensor:
        """Returns levels (S, N) of values (S, N), which are uniform if the values are drawn.

        Levels are random, by `uniforms` (S, N), among equal atoms and beyond the first and the last.
        """
        below, up_to = self.bounds(asked)
        levels = below + uniforms * (up_to - below)
        levels = torch.where(asked < self.values[:1], uniforms * self.middle[:1], levels)
        beyond = 1.0 - uniforms * (1.0 - self.middle[-1:])
        levels = torch.where(asked > self.values[-1:], beyond, levels)
        return levels.clamp(0.0, 1.0)  # sums of probabilities are rounded

    def quantiles(self, levels: Tensor) -> Tensor:
        """Returns quantiles (Q, N) at levels (Q, N)."""
        above = torch.searchsorted(self.middle.T.contiguous(), levels.T.contiguous()).T
        return _interpolate(levels, self.middle, self.values, above.clamp(1, len(self.values) - 1))


def _interpolate(asked: Tensor, x: Tensor, y: Tensor, above: Tensor) -> Tensor:
    """Returns y (S, N) at x = `asked`, linear between the neighbours whose upper one is at `above`."""
    asked, low, high = asked / 2, x.gather(0, above - 1) / 2, x.gather(0, above) / 2  # differences are finite
    share = ((asked - low) / (high - low).clamp(min=1e-300)).clamp(0.0, 1.0)
    return y.gather(0, above - 1) * (1 - share) + y.gather(0, above) * share
