r"""Conditional models that a user chooses for single columns: predictive mean matching, trees, functions.

A method is a function ``fit(X, y, rng)`` that draws the parameters of a model of a column, and returns a
function ``draw(X, uniforms)`` that draws values. Predictive mean matching and trees, which are methods too,
draw observed values of similar rows, the donors.

References
----------
Little (1988), Missing-data adjustments in large surveys, for predictive mean matching; Doove, van Buuren &
Dusseldorp (2014), Recursive partitioning for missing data imputation in the presence of interaction effects.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from torch import Tensor

from halfseen._threads import warning_filters
from halfseen.chained.inputs import InputColumn, Prediction, Role
from halfseen.chained.regressions import Noise
from halfseen.data.schema import Column

Floats: TypeAlias = npt.NDArray[np.float64]
Draw: TypeAlias = Callable[[Floats, Floats], Floats]
Method: TypeAlias = Callable[[Floats, Floats, np.random.Generator], Draw]

METHODS = ("regression", "pmm", "trees")
N_DONORS = 5  # of predictive mean matching, the usual number
LEAF_ROWS = 5  # donors of a leaf at least, the usual number
RIDGE = 1e-5  # of cross-products, relative to their diagonal: for inputs that determine each other
ROUNDING = 1e-9  # relative difference of predictions that count as equal


@dataclass(frozen=True)
class MeanDonors:
    """Predictive mean matching: one of the observed values whose predicted means are nearest is drawn.

    The means of donors are predicted by the estimated coefficients, those of other rows by drawn ones.
    """

    coefficients: Floats  # (P,): drawn from their posterior distribution
    means: Floats  # (D,): the predicted means of the donors, ascending
    values: Floats  # (D,): the values of the donors

    @classmethod
    def fit(cls, X: Floats, y: Floats, rng: np.random.Generator) -> "MeanDonors":
        """Draws the coefficients of a linear regression, and remembers the donors."""
        gram = X.T @ X
        factor = np.linalg.cholesky(gram + np.diag(RIDGE * np.diag(gram) + 1e-12))
        estimated = np.linalg.solve(factor.T, np.linalg.solve(factor, X.T @ y))
        residual = y - X @ estimated
        scale = np.sqrt(residual @ residual / rng.chisquare(max(len(y) - X.shape[1], 1)))
        drawn = estimated + scale * np.linalg.solve(factor.T, rng.standard_normal(X.shape[1]))
        means = X @ estimated
        order = np.lexsort((y, means))
        return cls(drawn, means[order], y[order])

    def __call__(self, X: Floats, uniforms: Floats) -> Floats:
        """Draws a value for each row of X, by uniforms."""
        at, n = X @ self.coefficients, len(self.means)
        place = np.searchsorted(self.means, at)
        near = np.clip(place[:, None] + np.arange(-N_DONORS, N_DONORS), 0, n - 1)
        apart = np.abs(self.means[near] - at[:, None])
        apart[(place[:, None] + np.arange(-N_DONORS, N_DONORS) != near)] = np.inf  # beyond the ends
        apart.sort(axis=1)
        reach = apart[:, min(N_DONORS, n) - 1]
        reach = reach * (1 + ROUNDING) + ROUNDING * np.abs(at)
        low = np.searchsorted(self.means, at - reach)  # donors with equal means count as well
        high = np.maximum(np.searchsorted(self.means, at + reach, side="right"), low + 1)
        chosen = np.minimum(low + (uniforms * (high - low)).astype(np.int64), n - 1)
        found: Floats = self.values[chosen]
        return found

    def check(self, n_inputs: int) -> bool:
        """Returns whether the arrays fit each other and the number of inputs."""
        fits = self.coefficients.shape == (n_inputs,) and self.means.ndim == 1 and len(self.means) > 0
        return fits and self.means.shape == self.values.shape and bool((np.diff(self.means) >= 0).all())


@dataclass(frozen=True)
class LeafDonors:
    """A tree that was grown on resampled rows: one of the observed values in the leaf of a row is drawn."""

    # (T,): the positions of the children of each node, which are larger than its own; 0 for leaves.
    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    # (T,): rows whose input is at most the threshold go to the left.
    feature: npt.NDArray[np.int64]
    threshold: Floats
    # (T + 1,): where the donors of each node begin among all values; nodes that are not leaves have none.
    start: npt.NDArray[np.int64]
    values: Floats  # (D,): the values of the donors, leaf by leaf

    @classmethod
    def fit(cls, X: Floats, y: Floats, rng: np.random.Generator, *, levels: bool) -> "LeafDonors":
        """Grows a tree on a bootstrap sample of the rows."""
        rows = rng.integers(len(y), size=len(y))
        grow = DecisionTreeClassifier if levels else DecisionTreeRegressor
        own, values = X[rows].astype(np.float32), y[rows]
        grown = grow(min_samples_leaf=LEAF_ROWS, random_state=int(rng.integers(2**31)))
        with warning_filters:  # chains run in threads
            leaf = grown.fit(own, values).apply(own)
        tree = grown.tree_
        order = np.lexsort((values, leaf))
        start = np.searchsorted(leaf[order], np.arange(tree.node_count + 1))
        inner = tree.children_left >= 0
        left, right, feature = (
            np.where(inner, one, 0).astype(np.int64)
            for one in (tree.children_left, tree.children_right, tree.feature)
        )
        threshold = np.where(inner, tree.threshold, 0.0)
        return cls(left, right, feature, threshold, start.astype(np.int64), values[order])

    def __call__(self, X: Floats, uniforms: Floats) -> Floats:
        """Draws a value for each row of X, by uniforms."""
        own, node = X.astype(np.float32), np.zeros(len(X), dtype=np.int64)
        while True:
            inner = np.flatnonzero(self.left[node])
            if len(inner) == 0:
                break
            at = node[inner]
            goes_left = own[inner, self.feature[at]] <= self.threshold[at]
            node[inner] = np.where(goes_left, self.left[at], self.right[at])
        low, high = self.start[node], self.start[node + 1]
        return self.values[low + (uniforms * (high - low)).astype(np.int64)]

    def check(self, n_inputs: int) -> bool:
        """Returns whether the arrays are those of a tree with this number of inputs."""
        n = len(self.left)
        several = (self.left, self.right, self.feature)
        if n == 0 or any(one.shape != (n,) or one.dtype != np.int64 for one in several):
            return False
        if self.threshold.shape != (n,) or self.start.shape != (n + 1,) or self.start.dtype != np.int64:
            return False
        inner, here = self.left > 0, np.arange(n)
        fits = bool((inner == (self.right > 0)).all()) and self.values.ndim == 1
        fits = fits and all(
            bool(((one[inner] > here[inner]) & (one[inner] < n)).all()) for one in several[:2]
        )
        fits = fits and bool(((self.feature >= 0) & (self.feature < n_inputs)).all())
        sizes = np.diff(self.start)
        return (
            fits
            and self.start[0] == 0
            and self.start[-1] == len(self.values)
            and bool(((sizes > 0) == ~inner).all() and (sizes >= 0).all())
        )


STORED: dict[str, type[MeanDonors] | type[LeafDonors]] = {"pmm": MeanDonors, "trees": LeafDonors}


def grow_level_tree(X: Floats, y: Floats, rng: np.random.Generator) -> LeafDonors:
    """Grows a tree of levels, whose splits make the leaves purer."""
    return LeafDonors.fit(X, y, rng, levels=True)


def grow_number_tree(X: Floats, y: Floats, rng: np.random.Generator) -> LeafDonors:
    """Grows a tree of numbers, whose splits make the squared deviations smaller."""
    return LeafDonors.fit(X, y, rng, levels=False)


def read_methods(methods: Any, columns: Sequence[Column], roles: Sequence[Role]) -> dict[int, Method]:
    """Returns the methods that replace the regressions of columns, by position; raises a ValueError.

    Parameters
    ----------
    methods : mapping of str to str or function, or None
        What the user passed.
    columns : sequence of Column
        The modelled columns.
    roles : sequence of Role
        How they are regressed by default.
    """
    if methods is None:
        return {}
    if not isinstance(methods, Mapping):
        raise ValueError(f"methods must be a dict of column names to methods, got {methods!r}.")
    names = [column.name for column in columns]
    found: dict[int, Method] = {}
    for name, method in methods.items():
        if name not in names:
            raise ValueError(f"methods refers to column {name!r}, which is not a modelled column.")
        c = names.index(name)
        if columns[c].derived is not None:
            raise ValueError(f"Column {name!r} is derived from others, so it cannot have a method.")
        if not callable(method) and method not in METHODS:
            raise ValueError(
                f"The method of column {name!r} must be one of {', '.join(METHODS)} or a function, "
                f"got {method!r}."
            )
        if method == "pmm" and columns[c].levels is not None:
            raise ValueError(
                f"Column {name!r} has levels, and predictive mean matching ('pmm') is for numbers: use "
                "'trees' or 'regression'."
            )
        if callable(method):
            found[c] = method
        elif method == "pmm":
            found[c] = MeanDonors.fit
        elif method == "trees":
            found[c] = grow_level_tree if roles[c] == Role.LEVELS else grow_number_tree
    return found


def fit_method(method: Method, design: Tensor, y: Tensor, noise: Noise) -> tuple[Draw, ...]:
    """Returns what draws values in every chain, from inputs (S, N, P) and codes (N) of observed rows."""
    codes = y.numpy()
    each = zip(design.numpy(), noise.generators, strict=True)
    return tuple(method(np.ascontiguousarray(X), codes, rng) for X, rng in each)


def draw_by_method(several: Sequence[Draw], column: Column, design: Tensor, uniforms: Tensor) -> Tensor:
    """Returns codes (S, R) that may be imputed, from inputs (S, R, P) and uniforms (S, R)."""
    found = np.empty(uniforms.shape)
    for s, draw in enumerate(several):
        values = np.asarray(draw(np.ascontiguousarray(design[s].numpy()), uniforms[s].numpy()), np.float64)
        if values.shape != found[s].shape or np.isnan(values).any():
            raise ValueError(
                f"The method of column {column.name!r} must draw one number for each of {found.shape[1]} "
                f"rows, got an array of shape {values.shape} with {int(np.isnan(values).sum())} NaN."
            )
        found[s] = values
    return torch.from_numpy(column.constrain(found))


def spread_of_draws(column: InputColumn, codes: Tensor, scores: Callable[[Tensor], Tensor]) -> Prediction:
    """Returns draws (S, R) as distributions without a spread, whose average is that of the draws."""
    if column.role == Role.NUMBER:
        found = scores(codes)
        return Prediction(found, torch.zeros_like(found))
    shares = torch.nn.functional.one_hot(column.level_of(codes), column.n_levels).double()
    return Prediction(shares, shares)


def method_state(several: Sequence[Draw]) -> dict[str, Tensor]:
    """Returns the arrays of predictive mean matching or trees in every chain, by name."""
    found: dict[str, Tensor] = {}
    for s, one in enumerate(several):
        if not isinstance(one, MeanDonors | LeafDonors):
            raise ValueError(
                "A model file cannot store methods that are functions; 'pmm', 'trees' and 'regression' can "
                "be stored."
            )
        found |= {f"{s}.{name}": torch.from_numpy(values.copy()) for name, values in vars(one).items()}
    return found


def method_from_state(
    method: str, state: Mapping[str, Tensor], prefix: str, n_chains: int, n_inputs: int
) -> tuple[Draw, ...]:
    """Rebuilds what draws values in every chain, and checks it."""
    kind: Any = STORED[method]
    found = []
    for s in range(n_chains):
        arrays = {name: state[f"{prefix}{s}.{name}"].numpy() for name in kind.__dataclass_fields__}
        one = kind(**arrays)
        if not one.check(n_inputs):
            raise ValueError(f"The arrays of the method {method!r} do not fit each other.")
        found.append(one)
    return tuple(found)
