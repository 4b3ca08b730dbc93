r"""The mean of the target by level, for columns with many levels.

.. math:: s_l = \frac{n_l \bar y_l + m \bar y}{n_l + m}

A split by sets of levels overfits if there are many, and rare levels have no split of their own. The mean of
the target by level is one number, shrunk towards the mean of all rows, the more the rarer the level is. In
training, the mean of a row's level is that of the other folds, so that no row sees its own target. Levels
that were not seen in training, and missing ones, have the mean of all rows.

References
----------
Micci-Barreca (2001), A preprocessing scheme for high-cardinality categorical attributes in classification and
prediction problems, equation 3, with a constant m.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from halfseen._arrays import Floats, Integers

# Guesses that no measurement chose.
MANY_LEVELS = 10  # a column with more has statistics
PRIOR_ROWS = 10.0  # m: the rows that the mean of all rows counts as
N_FOLDS = 5
MAX_OUTPUTS = 5  # classes whose shares are statistics, the most frequent ones


@dataclass(frozen=True)
class TargetStatistics:
    """Statistics of the columns that have many levels.

    Shapes
    ------
    tables : by column, (L, Q), of each level
    prior : (Q), of all rows
    """

    tables: Mapping[int, Floats]
    prior: Floats

    @classmethod
    def none(cls) -> "TargetStatistics":
        """Returns those of a table without such columns."""
        return cls({}, np.zeros(0))

    @classmethod
    def fit(
        cls, levels: Floats, sizes: Mapping[int, int], target: Floats, weight: Floats | None = None
    ) -> "TargetStatistics":
        """Learns the statistics of targets (N, Q) by level.

        Parameters
        ----------
        levels : array of shape (N, R)
            The level of each row in each column, NaN where it is missing.
        sizes : mapping of int to int
            The columns and their numbers of levels, in the order of `levels`.
        target : array of shape (N, Q)
            What is averaged.
        weight : array of shape (N), optional
            How much each row counts.
        """
        weight = np.ones(len(target)) if weight is None else weight
        prior = np.average(target, axis=0, weights=weight)
        tables = {}
        for r, (column, n_levels) in enumerate(sizes.items()):
            known = ~np.isnan(levels[:, r])
            place = levels[known, r].astype(np.int64)
            counts = np.bincount(place, weight[known], n_levels)[:, None]
            away = weight[known, None] * (target[known] - prior)
            sums = np.stack([np.bincount(place, away[:, q], n_levels) for q in range(len(prior))], axis=1)
            tables[column] = prior + sums / (counts + PRIOR_ROWS)
        return cls(tables, prior)

    def values(self, levels: Floats) -> Floats:
        """Returns the statistics (N, R * Q) of levels (N, R)."""
        found = [np.zeros((len(levels), 0))]
        for r, table in enumerate(self.tables.values()):
            known = ~np.isnan(levels[:, r])
            own = np.repeat(self.prior[None], len(levels), axis=0)
            own[known] = table[levels[known, r].astype(np.int64)]
            found.append(own)
        return np.concatenate(found, axis=1)

    @property
    def n_values(self) -> int:
        """The number R * Q of statistics of a row."""
        return len(self.tables) * len(self.prior)

    def state(self) -> dict[str, Tensor]:
        """Returns all arrays as tensors."""
        named = {f"statistics.{c}": torch.from_numpy(table) for c, table in self.tables.items()}
        return named | {"statistics.prior": torch.from_numpy(self.prior)} if named else {}

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor], sizes: Sequence[int]) -> "TargetStatistics":
        """Rebuilds the statistics of columns with these numbers of levels; raises a ValueError if not.

        Files of earlier versions have none.
        """
        prefix = "statistics."
        own = {
            name.removeprefix(prefix): one.numpy() for name, one in state.items() if name.startswith(prefix)
        }
        if not own:
            return cls.none()
        prior = own.pop("prior", np.zeros(0))
        if prior.ndim != 1 or not len(prior) or prior.dtype != np.float64:
            raise ValueError("the statistics of levels have no mean of all rows")
        tables = {}
        for name in sorted(own, key=lambda text: (len(text), text)):
            known = name.isdecimal() and int(name) < len(sizes) and own[name].dtype == np.float64
            if not known or own[name].shape != (sizes[int(name)], len(prior)):
                raise ValueError(f"the statistics of column {name[:20]} do not fit its levels")
            tables[int(name)] = own[name]
        return cls(tables, prior)


def fit_without_leakage(
    levels: Floats, sizes: Mapping[int, int], target: Floats, seed: int, weight: Floats | None = None
) -> tuple[TargetStatistics, Floats]:
    """Returns the statistics of all rows, and for each row those of the other folds (N, R * Q).

    Rows may have weights (N).

    Examples
    --------
    >>> levels, target = np.array([[0.0], [0.0], [1.0], [np.nan]]), np.array([[2.0], [4.0], [9.0], [1.0]])
    >>> found, others = fit_without_leakage(levels, {3: 2}, target, seed=0)
    >>> found.tables[3].round(2).tolist()
    [[3.83], [4.45]]
    >>> bool(others[2, 0] == target[[0, 1, 3]].mean())  # the only row of its level
    True
    """
    weight = np.ones(len(levels)) if weight is None else weight
    fold = np.random.default_rng(seed).permutation(len(levels)) % N_FOLDS
    others = np.zeros((len(levels), len(sizes) * target.shape[1]))
    for f in np.unique(fold):
        own = fold == f
        if own.all():
            others[own] = target[own].mean()
        else:
            learned = TargetStatistics.fit(levels[~own], sizes, target[~own], weight[~own])
            others[own] = learned.values(levels[own])
    return TargetStatistics.fit(levels, sizes, target, weight), others


def as_indicators(place: Integers, n_classes: int) -> Floats:
    """Returns indicators (N, Q) of classes: of the second of two, else of the most frequent ones."""
    if n_classes == 2:
        second: Floats = (place == 1).astype(np.float64)[:, None]
        return second
    counts = np.bincount(place, minlength=n_classes)
    frequent = np.sort(np.argsort(-counts, kind="stable")[:MAX_OUTPUTS])
    found: Floats = (place[:, None] == frequent).astype(np.float64)
    return found
