r"""The predictions of trees for one column: a number or a level, given the rest of its row.

The inputs of the trees are the other columns of the row, completed; the fraction of its cells that are
observed; and the prediction of the previous step for the cell itself: the mean of a number and the standard
deviation of its score, or the probabilities of levels. Trees predict corrections, so that without trees
nothing changes. Numbers are in units of the scale of their column.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from halfseen._arrays import Floats, Integers
from halfseen.trees.forest import Forest

SMALLEST_SPREAD, LARGEST_SPREAD = 0.1, 10.0  # limits of the spread of a cell, relative to its average
PROBABILITY_FLOOR = 1e-6
LEAST_UNIT = 1e-6  # standard deviation of a score; that of an exact copy is 1e-5 by the ridge of the Gaussian
OWN = 2  # inputs that describe the number itself: its mean and the standard deviation of its score


@dataclass(frozen=True)
class Windows:
    r"""The distribution of a number, given its location and scale.

    Locations are divided into windows. Each window has the empirical distribution of the residuals of
    held-out cells with such locations, with mean zero. With `matched`, a window has observed values, in the
    units of the table, in place of residuals (predictive mean matching).

    Shapes
    ------
    centres : :math:`(W)`, the location in the middle of each window, ascending
    atoms : :math:`(W, K)`, equally probable residuals or values of each window, ascending
    values : :math:`(V)`, observed values, ascending, in the units of the table, to the nearest of which
        predictions are moved; none if they are not
    """

    centres: Floats
    atoms: Floats
    matched: bool
    values: Floats

    def quantiles(self, location: Floats, spread: Floats, probabilities: Floats, scale: float) -> Floats:
        """Returns quantiles (Q, N) in the units of the table, at probabilities (Q, N) or (Q, 1).

        Locations (N) and spreads (N) are in units of `scale`.
        """
        middles = (self.centres[1:] + self.centres[:-1]) / 2
        atoms = self.atoms[np.searchsorted(middles, location)]  # (N, K)
        n_atoms = atoms.shape[1]
        rows = np.arange(len(location))
        if self.matched:
            chosen = np.clip(np.floor(probabilities * n_atoms), 0, n_atoms - 1).astype(np.int64)
            matches: Floats = atoms[rows, chosen]
            return matches
        place = np.clip(probabilities * n_atoms - 0.5, 0.0, n_atoms - 1.0)
        below = np.minimum(place.astype(np.int64), n_atoms - 2)
        share = place - below
        residual = atoms[rows, below] * (1 - share) + atoms[rows, below + 1] * share
        found: Floats = (location + spread * residual) * scale
        if len(self.values):
            middles = self.values[:-1] / 2 + self.values[1:] / 2  # a sum of large values would overflow
            found = self.values[np.searchsorted(middles, found)]
        return found


@dataclass(frozen=True)
class NumberHead:
    r"""The distribution of a number given the rest of its row.

    .. math:: x = \mu(r) + \sigma(r) \, \varepsilon, \qquad \varepsilon \sim \hat F_{w(\mu(r))}

    Location and spread are sums of trees; the distribution of the rest depends on the location. The trees
    predict corrections in a unit, which is the same for all rows, or, if `relative`, a multiple of the
    standard deviation of the score of the row. A near-copy of a column needs the latter: its values are known
    almost exactly where the other column is observed, and hardly where it is not.

    Shapes
    ------
    predictors : the columns of a row that are inputs
    """

    column: int
    predictors: Integers
    unit: float
    relative: bool
    constants: Floats
    location_trees: Forest
    spread_trees: Forest
    windows: Windows

    def location(self, inputs: Floats) -> Floats:
        """Returns the mean (N) of the number, for inputs (N, D)."""
        change = self.constants[0] + self.location_trees.sums(inputs)[:, 0]
        found: Floats = inputs[:, -OWN] + self._units(inputs) * change
        return found

    def spread(self, inputs: Floats) -> Floats:
        """Returns the scale (N) of the residual."""
        typical = self.constants[1]
        found = typical + self.spread_trees.sums(inputs)[:, 0]
        bounded: Floats = np.clip(found, SMALLEST_SPREAD * typical, LARGEST_SPREAD * typical)
        return self._units(inputs) * bounded

    def _units(self, inputs: Floats) -> Floats:
        return self.unit * relative_units(inputs) if self.relative else np.full(len(inputs), self.unit)

    def quantiles(self, inputs: Floats, probabilities: Floats, scale: float) -> Floats:
        """Returns quantiles (Q, N) in the units of the table, of a column with this scale."""
        location = self.location(inputs)
        return self.windows.quantiles(location, self.spread(inputs), probabilities, scale)

    def arrays(self) -> dict[str, Any]:
        """Returns what is saved, besides the trees."""
        flags = float(self.windows.matched), float(self.relative)
        return {
            "predictors": self.predictors,
            "numbers": np.array([self.unit, *self.constants, *flags]),
            "centres": self.windows.centres,
            "atoms": self.windows.atoms,
            "values": self.windows.values,
        }

    @property
    def forests(self) -> tuple[Forest, Forest]:
        """The trees."""
        return self.location_trees, self.spread_trees

    @classmethod
    def rebuilt(
        cls, column: int, n_columns: int, arrays: Mapping[str, Any], forests: Sequence[Forest]
    ) -> "NumberHead":
        """Rebuilds a head from what `arrays` and `forests` returned."""
        predictors, numbers = arrays["predictors"], arrays["numbers"]
        centres, atoms = arrays["centres"], arrays["atoms"]
        _check_inputs(column, n_columns, predictors, forests, OWN)
        if numbers.shape == (4,):  # files of earlier versions have units that are the same for all rows
            numbers = np.append(numbers, 0.0)
        fits = numbers.shape == (5,) and atoms.ndim == 2 and centres.shape == atoms.shape[:1]
        if not fits or atoms.shape[1] < 2 or not len(centres) or numbers[0] <= 0 or numbers[2] <= 0:
            raise ValueError(f"The distribution of column {column} does not fit together.")
        values = arrays.get("values", np.zeros(0))  # files of earlier versions have none
        if values.dtype != np.float64 or values.ndim != 1 or not (np.diff(values) > 0).all():
            raise ValueError(f"The values of column {column} are not in order.")
        windows = Windows(centres, atoms, bool(numbers[3]), values)
        locations, spreads = forests
        unit, relative = float(numbers[0]), bool(numbers[4])
        return cls(column, predictors, unit, relative, numbers[1:3], locations, spreads, windows)


def relative_units(inputs: Floats) -> Floats:
    """Returns the standard deviation (N) of the score of each number, for inputs (N, D) of its trees."""
    found: Floats = np.maximum(inputs[:, -1], LEAST_UNIT)
    return found


@dataclass(frozen=True)
class LevelHead:
    r"""The probabilities of the levels of a column given the rest of its row.

    .. math:: \log p_k = a \, s_k(r) + b \log q_k + \text{const}

    :math:`s` are the scores of the trees and :math:`q` the probabilities of the previous step; a and b are
    calibrated on held-out cells. Levels that are too rare for trees keep the probability that they had.

    Shapes
    ------
    classes : :math:`(K)`, the groups of levels that the trees predict, ascending
    constants : :math:`(K)`, or :math:`(1)` of two classes
    weights : :math:`(2)`, a and b
    """

    column: int
    predictors: Integers
    n_groups: int
    classes: Integers
    constants: Floats
    trees: Forest
    weights: Floats

    def probabilities(self, inputs: Floats) -> Floats:
        """Returns the probability (N, G) of each group of levels, for inputs (N, D)."""
        before = np.maximum(inputs[:, -self.n_groups :], PROBABILITY_FLOOR)
        before = _normalised(before)
        if len(self.classes) < 2:
            return before
        pooled = self.weights[0] * self.scores(inputs) + self.weights[1] * np.log(before[:, self.classes])
        pooled = np.exp(pooled - pooled.max(axis=1, keepdims=True))
        known = before[:, self.classes].sum(axis=1, keepdims=True)
        result = before.copy()
        result[:, self.classes] = known * pooled / pooled.sum(axis=1, keepdims=True)
        return _normalised(np.maximum(result, PROBABILITY_FLOOR))

    def scores(self, inputs: Floats) -> Floats:
        """Returns the score (N, K) of each class by the trees."""
        return as_scores(self.constants + self.trees.sums(inputs, len(self.constants)))

    def arrays(self) -> dict[str, Any]:
        """Returns what is saved, besides the trees."""
        return {
            "predictors": self.predictors,
            "classes": self.classes,
            "constants": self.constants,
            "weights": self.weights,
        }

    @property
    def forests(self) -> tuple[Forest]:
        """The trees."""
        return (self.trees,)

    @classmethod
    def rebuilt(
        cls,
        column: int,
        n_columns: int,
        n_groups: int,
        arrays: Mapping[str, Any],
        forests: Sequence[Forest],
    ) -> "LevelHead":
        """Rebuilds a head from what `arrays` and `forests` returned."""
        predictors, classes, constants = arrays["predictors"], arrays["classes"], arrays["constants"]
        _check_inputs(column, n_columns, predictors, forests, n_groups)
        n_scores = 1 if len(classes) == 2 else len(classes)
        fits = (
            classes.dtype == np.int64 and constants.shape == (n_scores,) and arrays["weights"].shape == (2,)
        )
        known = fits and (not len(classes) or (classes.min() >= 0 and classes.max() < n_groups))
        if not known or (np.diff(classes) < 1).any() or (n_scores and forests[0].n_trees % n_scores):
            raise ValueError(f"The levels of column {column} do not fit together.")
        return cls(column, predictors, n_groups, classes, constants, forests[0], arrays["weights"])


Head = NumberHead | LevelHead


def predict_cell(head: Head, inputs: Floats) -> Floats:
    """Returns the mean (N) of a number, or the probabilities (N, G) of the levels."""
    return head.location(inputs) if isinstance(head, NumberHead) else head.probabilities(inputs)


def as_scores(found: Floats) -> Floats:
    """Returns a score for each class; of two classes, trees give that of the second against the first."""
    return np.concatenate([-found / 2, found / 2], axis=1) if found.shape[1] == 1 else found


def _normalised(shares: Floats) -> Floats:
    found: Floats = shares / shares.sum(axis=1, keepdims=True)
    return found


def _check_inputs(
    column: int, n_columns: int, predictors: Any, forests: Sequence[Forest], n_own: int
) -> None:
    """Raises a ValueError if trees ask for inputs that there are not."""
    right = predictors.dtype == np.int64 and predictors.ndim == 1
    if not right or (len(predictors) and (predictors.min() < 0 or predictors.max() >= n_columns)):
        raise ValueError(f"The trees of column {column} have inputs that are no columns.")
    for forest in forests:
        if forest.feature.max(initial=-1) >= len(predictors) + 1 + n_own:
            raise ValueError(f"The trees of column {column} have more inputs than there are.")
