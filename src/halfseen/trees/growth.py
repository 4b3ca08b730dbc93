"""Growing boosted trees by scikit-learn, and storing them as arrays of nodes."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from halfseen._arrays import Booleans, Floats, Integers
from halfseen._threads import one_openmp_thread, warning_filters
from halfseen.trees.forest import Forest

# Guesses that no measurement chose.
SMALLEST_VALIDATION = 400  # with fewer rows, holding some out for early stopping costs more than it gains
FEW_ITERATIONS = 30  # of trees that are grown without early stopping
MAX_CLASS_TREES = 600  # with many classes, which have a tree each in every iteration, there are fewer
VALIDATION_SHARE = 0.1  # of the rows, held out for early stopping
PATIENCE = 6  # iterations without a lower loss of held-out rows after which trees stop growing
LONGER_PATIENCE = 15  # of several forests, whose mean overfits less; 6 and 30 are worse on development tables
SMALLEST_COMMON = 100  # rows from which several forests of a small table have a common number of trees
COMMON_SHARE = 0.2  # of these rows, held out by each forest


class _FittedInThreads:
    """Boosted trees of scikit-learn that several threads may fit at the same time.

    Reading and binning the rows changes the filters of warnings, so one thread does this at a time. The
    trees, which take most of the time, grow without the lock. scikit-learn has no public place between the
    two, so the private method that bins is extended. If a version does without it, the lock is held until
    all trees are grown: threads wait for each other and results stay as they are. A test notices both.
    """

    early_stopping: bool
    _held: ExitStack

    def fit(self, X: Floats, y: npt.NDArray[Any], sample_weight: Floats | None = None) -> Any:
        with ExitStack() as self._held:
            self._held.enter_context(warning_filters)
            return super().fit(X, y, sample_weight)  # type: ignore[misc]

    def _bin_data(self, *rows: Any, **options: Any) -> Any:  # its arguments differ between versions
        binned = super()._bin_data(*rows, **options)  # type: ignore[misc]
        if not (options.get("is_training_data") and self.early_stopping):  # else held-out rows follow
            self._held.close()
        return binned

    def decision_function(self, X: Floats) -> Floats:
        with warning_filters:
            scores: Floats = super().decision_function(X)  # type: ignore[misc]
        return scores


class BoostedRegressor(_FittedInThreads, HistGradientBoostingRegressor):
    """Boosted trees of numbers, by scikit-learn."""


class BoostedClassifier(_FittedInThreads, HistGradientBoostingClassifier):
    """Boosted trees of classes, by scikit-learn."""


@dataclass(frozen=True)
class Growth:
    """The settings with which trees are grown.

    Parameters
    ----------
    max_iter, learning_rate, max_leaf_nodes, min_samples_leaf : int, float, int, int
        As in scikit-learn.
    n_categories : int
        The number of categories that is reserved for each categorical feature.
    seed : int
        Seeds the rows held out for early stopping.
    n_forests : int, default=1
        How many times trees are grown, each time with other rows held out for early stopping and other
        features drawn. Their mean predicts. Without both, trees are grown once, because they would be the
        same each time. In small tables, where few rows are held out, all forests have the number of trees
        that is best for the held-out rows of all of them together.
    max_features : float, default=1
        As in scikit-learn: the share of the features among which each split is found.
    """

    max_iter: int
    learning_rate: float
    max_leaf_nodes: int
    min_samples_leaf: int
    n_categories: int
    seed: int
    n_forests: int = 1
    max_features: float = 1.0

    def regress(
        self, X: Floats, y: Floats, categorical: Sequence[int], weight: Floats | None = None
    ) -> tuple[Forest, Floats]:
        """Returns trees whose sums predict y (N), and the constant (1) to add; rows may have weights (N)."""
        if not self._can_split(len(X)):
            return Forest.empty(), np.array([np.average(y, weights=weight)])
        columns = _Columns.of(X, categorical)
        stops = len(X) >= self._smallest
        booster = BoostedRegressor(**self._settings(columns, 1, stops), tol=0.0)
        # scikit-learn computes gradients in single precision, and its `tol` is in the squared unit of y:
        # trees must not depend on that unit, and a power of two changes no digit
        exponent = int(np.frexp(y.max() / 2 - y.min() / 2)[1])
        forest, constant = self._grown(booster, columns, np.ldexp(y, -exponent), weight)
        return replace(forest, value=np.ldexp(forest.value, exponent)), np.ldexp(constant, exponent)

    def classify(
        self, X: Floats, y: Integers, categorical: Sequence[int], weight: Floats | None = None
    ) -> tuple[Forest, Floats]:
        """Returns trees whose sums are scores of the classes y (N), and the constants (K) to add.

        For two classes there is one score, the logit of the second class. Rows may have weights (N).
        """
        place = np.unique(y, return_inverse=True)[1]
        counts = np.bincount(place, weight)
        n_classes = len(counts)
        if n_classes > 1 and not self._can_split(len(X)):
            logs = np.log(counts / counts.sum())
            return Forest.empty(), np.diff(logs) if n_classes == 2 else logs - logs.mean()
        columns = _Columns.of(X, categorical)
        share = COMMON_SHARE if self._has_common(len(X)) else VALIDATION_SHARE
        rarest, n_held = np.bincount(place).min(), int(share * len(X))
        stops = len(X) >= self._smallest and rarest > 1 and n_held >= n_classes  # in both parts
        booster = BoostedClassifier(**self._settings(columns, n_classes, stops))
        return self._grown(booster, columns, y, weight)

    def _can_split(self, n_rows: int) -> bool:
        """Whether a tree can have two leaves; trees of one leaf add nothing to the constants."""
        return n_rows >= 2 * self.min_samples_leaf

    @property
    def _smallest(self) -> int:
        """The number of rows from which rows are held out to find the number of trees."""
        return SMALLEST_COMMON if self.n_forests > 1 else SMALLEST_VALIDATION

    def _has_common(self, n_rows: int) -> bool:
        """Whether several forests of a small table have a common number of trees."""
        return self.n_forests > 1 and n_rows < SMALLEST_VALIDATION

    def _settings(self, columns: "_Columns", n_classes: int, stops: bool) -> dict[str, object]:
        common = self._has_common(len(columns.X))
        patience = LONGER_PATIENCE if self.n_forests > 1 else PATIENCE
        most = self.max_iter if stops else min(self.max_iter, FEW_ITERATIONS)
        return {
            "max_iter": max(1, min(most, MAX_CLASS_TREES // (n_classes if n_classes > 2 else 1))),
            "learning_rate": self.learning_rate,
            "max_leaf_nodes": self.max_leaf_nodes,
            "min_samples_leaf": self.min_samples_leaf,
            "l2_regularization": 1.0,
            "max_features": self.max_features,
            "categorical_features": columns.is_categorical if columns.is_categorical.any() else None,
            "early_stopping": stops,
            "validation_fraction": COMMON_SHARE if common else VALIDATION_SHARE,
            "n_iter_no_change": self.max_iter if common else patience,
        }

    def _grown(
        self, booster: Any, columns: "_Columns", y: npt.NDArray[np.generic], weight: Floats | None
    ) -> tuple[Forest, Floats]:
        """Returns the trees of all forests, whose sum is the mean of the forests, and the mean constants."""
        n_forests = self.n_forests if booster.early_stopping or self.max_features < 1 else 1
        grown: list[list[list[Forest]]] = []  # of each forest, iteration and class
        constants, scores = [], []
        for place in range(n_forests):
            seed = np.random.default_rng([self.seed, place]).integers(2**31) if place else self.seed % 2**31
            with one_openmp_thread():
                booster.set_params(random_state=int(seed)).fit(columns.X, y, sample_weight=weight)
            grown.append([[self._as_forest(tree, columns) for tree in many] for many in booster._predictors])
            constants.append(np.ravel(booster._baseline_prediction).astype(np.float64))
            scores.append(booster.validation_score_)
        if booster.early_stopping and self._has_common(len(columns.X)):
            n_common = int(np.mean(scores, axis=0).argmax())
            grown = [iterations[:n_common] for iterations in grown]
        forests = [tree for iterations in grown for many in iterations for tree in many]
        joined = Forest.joined(forests)
        return replace(joined, value=joined.value / n_forests), np.mean(constants, axis=0)

    def _as_forest(self, tree: object, columns: "_Columns") -> Forest:
        nodes, bits = tree.nodes, tree.raw_left_cat_bitsets  # type: ignore[attr-defined]
        inner = nodes["is_leaf"] == 0
        feature = np.where(inner, columns.order[np.where(inner, nodes["feature_idx"], 0)], -1)
        is_split = inner & (nodes["is_categorical"] == 1)
        missing_left = (nodes["missing_go_to_left"] == 1) & inner
        split = np.where(is_split, np.cumsum(is_split) - 1, -1)
        goes_left = np.repeat(missing_left[is_split, None], max(1, self.n_categories), axis=1)
        for row, node in enumerate(np.flatnonzero(is_split)):
            words = bits[nodes["bitset_idx"][node]]
            known = columns.categories[int(feature[node])]
            place = np.arange(len(known))
            goes_left[row, known] = (words[place // 32] >> (place % 32).astype(np.uint32)) & 1 == 1
        largest = np.finfo(np.float64).max  # in place of infinity, which only a missing value is beyond
        return Forest(
            feature.astype(np.int64),
            np.where(inner & ~is_split, np.minimum(nodes["num_threshold"], largest), 0.0),
            np.where(inner, nodes["right"], 0).astype(np.int64),
            np.where(inner, 0.0, nodes["value"]),
            missing_left,
            split.astype(np.int64),
            goes_left,
            np.array([0, len(nodes)]),
        )


@dataclass(frozen=True)
class _Columns:
    """Features as scikit-learn orders them: categories first, as numbers from 0 without gaps."""

    X: Floats
    order: Integers
    is_categorical: Booleans
    categories: dict[int, Integers]

    @classmethod
    def of(cls, X: Floats, categorical: Sequence[int]) -> "_Columns":
        order = np.array([*categorical, *(j for j in range(X.shape[1]) if j not in set(categorical))])
        ordered, categories = X[:, order].copy(), {}
        for place, j in enumerate(categorical):
            seen = ~np.isnan(X[:, j])
            known, code = np.unique(X[seen, j].astype(np.int64), return_inverse=True)
            ordered[seen, place] = code
            categories[j] = known
        return cls(ordered, order, np.arange(X.shape[1]) < len(categorical), categories)
