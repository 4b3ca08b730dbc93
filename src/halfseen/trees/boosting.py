"""Boosted trees on incomplete tables, without imputation: each split has a branch for missing values."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from halfseen._threads import task_threads
from halfseen.base.parameters import (
    SCHEMA,
    check_number,
    check_whole,
    documented_by,
    documented_fit,
    finite_answer,
)
from halfseen.base.predictor import EqualWidthRegressor, fit_predictor, steps_of
from halfseen.base.table import TableEstimator
from halfseen.base.targets import Fitted, WithClasses, unequal
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.training.supervised import Labelled
from halfseen.trees.forest import MAX_LEAVES, Forest
from halfseen.trees.growth import Growth
from halfseen.trees.target_statistics import (
    MANY_LEVELS,
    TargetStatistics,
    as_indicators,
    fit_without_leakage,
)

N_FORESTS = 5  # grown with other rows held out each; on tables of benchmarks/boosters.py more than one help
MANY_ROWS = 10_000  # with more there is one forest, because it takes long and would gain less; a guess

TREE_PARAMETERS = {
    "max_iter": "Maximum number of trees of a forest, for each class if there are more than two.",
    "learning_rate": "The factor of each tree.",
    "max_leaf_nodes": f"Maximum number of leaves of a tree, at most {MAX_LEAVES}.",
    "min_samples_leaf": "Minimum number of training rows in a leaf.",
}
MAX_FEATURES = "The share of the columns that each split considers, drawn at random; at least one column."
documented = documented_by(TREE_PARAMETERS | {"max_features": MAX_FEATURES}, SCHEMA)


@dataclass(eq=False, repr=False)
class _Boosting(TableEstimator):
    """Parameters, reading and saving of boosted trees."""

    max_iter: int = 200
    _: KW_ONLY
    learning_rate: float = 0.1
    max_leaf_nodes: int = 31
    min_samples_leaf: int = 20
    max_features: float = 0.5
    schema: Any = None
    random_state: Any = None

    _many: dict[int, int] = field(init=False)  # fitted attributes are no parameters
    _statistics: TargetStatistics = field(init=False)
    _forest: Forest = field(init=False)
    _constants: npt.NDArray[np.float64] = field(init=False)

    @documented_fit()
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Grows the trees."""
        check_tree_parameters(self)
        check_number("max_features", self.max_features, lambda v: 0 < v <= 1, "positive and at most 1")
        return fit_predictor(self, steps_of(self, self._encode_rows, self._grow), X, y, sample_weight)

    def _encode_rows(
        self, codes: Incomplete, target: Tensor, weights: Tensor
    ) -> tuple[Labelled[Tensor], Fitted]:
        features = FeatureMap.fit(self._modelled, codes, all_indicators=True)
        many = {
            c: len(column.levels)
            for c, column in enumerate(self._modelled)
            if column.levels is not None and len(column.levels) > MANY_LEVELS
        }
        inputs = self._inputs(codes, features, list(many))
        return Labelled(inputs, target, weights), {"_features": features, "_many": many}

    def _grow(
        self, train: Labelled[Tensor], held: Labelled[Tensor] | None, plan: None, generator: torch.Generator
    ) -> Fitted:
        """Grows the trees on rows whose inputs are numbers with NaN."""
        inputs, levels = self._split(train.rows)
        weight = unequal(train.weight)
        statistics, others = TargetStatistics.none(), np.zeros((len(inputs), 0))
        if self._many:
            shares = self._target_numbers(train.target)
            statistics, others = fit_without_leakage(levels, self._many, shares, self.seed_, weight)
        growth = replace(self._growth, n_forests=N_FORESTS if len(inputs) <= MANY_ROWS else 1)
        grow = growth.regress if self.capabilities.predicts == "numbers" else growth.classify
        forest, constants = grow(np.c_[inputs, others], train.target.numpy(), self._categorical, weight)
        return {"_statistics": statistics, "_forest": forest, "_constants": constants}

    def _target_numbers(self, target: Tensor) -> npt.NDArray[np.float64]:
        """Returns the numbers (N, Q) whose means are the statistics of levels."""
        numbers: npt.NDArray[np.float64] = target.numpy()[:, None]
        return numbers

    @property
    def n_iter_(self) -> int:
        """The number of trees of all forests together, of each class if there are more than two."""
        return self._forest.n_trees // len(self._constants)

    @property
    def _growth(self) -> Growth:
        sizes = [block.n_groups for block in self._features.blocks]
        return Growth(
            self.max_iter, self.learning_rate, self.max_leaf_nodes, self.min_samples_leaf,
            max(sizes, default=1), self.seed_, max_features=self.max_features,
        )  # fmt: skip

    @property
    def _categorical(self) -> list[int]:
        return [block.column for block in self._features.blocks]

    @staticmethod
    def _inputs(codes: Incomplete, features: FeatureMap, many: list[int]) -> Tensor:
        """Returns numbers and groups of levels (N, C), then levels of columns with many; NaN if missing."""
        x = codes.filled()
        levels = torch.where(codes.observed, x, torch.nan)[:, many]
        for block in features.blocks:
            x[:, block.column] = block.group[x[:, block.column].long()].double()
        return torch.cat([torch.where(codes.observed, x, torch.nan), levels], dim=1)

    def _split(self, inputs: Tensor) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Returns the inputs (N, C) of all columns, and the levels (N, R) of those with many."""
        n_columns = len(self._modelled)
        return inputs[:, :n_columns].numpy(), inputs[:, n_columns:].numpy()

    def _sums(self, inputs: Tensor) -> npt.NDArray[np.float64]:
        """Returns the sums of the trees (N, K) and their constants, for the inputs of rows."""
        own, levels = self._split(inputs)
        rows = np.c_[own, self._statistics.values(levels)]
        return self._forest.sums(rows, len(self._constants)) + self._constants

    @task_threads()
    def _scores(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the sums of the trees (N, K) and their constants, for the rows of a table."""
        check_is_fitted(self)
        codes = self._read(X, reset=False).codes
        return self._sums(self._inputs(codes, self._features, list(self._many)))

    def _state(self) -> dict[str, Tensor]:
        trees = {f"trees.{name}": value for name, value in self._forest.state().items()}
        constants = {"constants": torch.from_numpy(self._constants)}
        return self._features.state() | trees | constants | self._statistics.state()

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        self._features = FeatureMap.from_state(self._modelled, state, all_indicators=True)
        prefix = "trees."
        trees = {name[len(prefix) :]: one for name, one in state.items() if name.startswith(prefix)}
        self._forest = Forest.from_state(trees)
        sizes = [len(column.levels or ()) for column in self._modelled]
        self._statistics = TargetStatistics.from_state(state, sizes)
        self._many = {c: sizes[c] for c in self._statistics.tables}
        if self._forest.feature.max(initial=-1) >= len(self._modelled) + self._statistics.n_values:
            raise ValueError("the trees have more features than the table has columns")
        self._constants = state["constants"].numpy()


@documented
class BoostingRegressor(EqualWidthRegressor, _Boosting):
    r"""Regression by boosted trees that send missing values to one side of each split.

    .. math:: \hat y = c + \sum_t f_t(x)

    Nothing is imputed: each split learns whether missing values go to the left or to the right, so
    missingness itself can predict the target. Values may be missing at random or not, as long as values of
    new rows are missing for the same reasons as in training. Columns with more than ten levels are also
    inputs by the mean of the target of each level, shrunk towards that of all rows and learned without the
    row itself. The trees are grown by scikit-learn's histogram
    gradient boosting and stored as arrays. Each split considers half of the columns, drawn at random, so that
    trees differ, and growth stops early by rows that are held out. What these rows would have taught, and the
    chance by which they stop growth, would cost accuracy, so up to 10,000 rows five forests are grown, each
    with other columns drawn and other rows held out, and their mean predicts. Below 400 rows, where a forest
    holds out few, all have the number of trees that is best for the held-out rows of all of them together;
    below 100 rows growth does not stop early, and there are at most 30 trees in a forest.

    Attributes
    ----------
    n_iter_ : int
        The number of trees of all forests together.

    References
    ----------
    Josse, Chen, Prost, Varoquaux & Scornet (2024), On the consistency of supervised learning with missing
    values: missing incorporated in attributes.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(1000, 2))
    >>> y = np.where(X[:, 0] > 0.5, 3.0, 1.0)
    >>> X[X[:, 0] > 0.9, 0] = np.nan
    >>> BoostingRegressor(random_state=0).fit(X, y).predict([[0.6, 0.1], [0.2, 0.1], [np.nan, 0.1]]).round()
    array([3., 1., 3.])
    """

    @finite_answer
    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the predicted target of each row."""
        return self._scores(X)[:, 0]

    def _predict_rows(self, inputs: Tensor) -> npt.NDArray[np.float64]:
        return self._sums(inputs)[:, 0]


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class BoostingClassifier(WithClasses, ClassifierMixin, _Boosting):
    r"""Classification by boosted trees that send missing values to one side of each split.

    .. math:: p(y = k \mid x) \propto \exp\Big(c_k + \sum_t f_{tk}(x)\Big)

    Nothing is imputed, as in `BoostingRegressor`, and missingness itself can predict the class. Values may be
    missing at random or not, as long as values of new rows are missing for the same reasons as in training.

    Attributes
    ----------
    n_iter_ : int
        The number of trees of all forests together, of each class if there are more than two.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(1000, 2))
    >>> y = np.where(X[:, 0] > 0.5, "high", "low")
    >>> X[X[:, 0] > 0.9, 0] = np.nan
    >>> model = BoostingClassifier(random_state=0).fit(X, y)
    >>> model.predict([[0.6, 0.1], [0.2, 0.1], [np.nan, 0.1]])
    array(['high', 'low', 'high'], dtype='<U4')
    """

    class_weight: Any = None

    def _logits(self, X: Any) -> Tensor:
        return as_logits(self._scores(X))

    def _target_numbers(self, target: Tensor) -> npt.NDArray[np.float64]:
        return as_indicators(target.numpy().astype(np.int64), len(self.classes_))

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        super()._restore(state)
        check_scores(len(self._constants), len(self.classes_))


def as_logits(scores: npt.NDArray[np.float64]) -> Tensor:
    """Returns the logits (N, K) of classes by their scores; two classes have one score, of the second."""
    two = scores.shape[1] == 1
    return torch.from_numpy(np.c_[np.zeros(len(scores)), scores] if two else scores)


def check_scores(n_scores: int, n_classes: int) -> None:
    """Raises a ValueError unless a model has as many scores as a number of classes needs."""
    if n_scores != (1 if n_classes == 2 else n_classes):
        raise ValueError(f"{n_scores} scores do not fit {n_classes} classes")


def check_tree_parameters(estimator: Any) -> None:
    """Raises a ValueError if a parameter of boosted trees is out of range."""
    for name in ("max_iter", "min_samples_leaf"):
        check_whole(name, getattr(estimator, name), 1)
    check_whole("max_leaf_nodes", estimator.max_leaf_nodes, 2)
    if estimator.max_leaf_nodes > MAX_LEAVES:
        raise ValueError(f"max_leaf_nodes must be at most {MAX_LEAVES}, got {estimator.max_leaf_nodes!r}.")
    check_number("learning_rate", estimator.learning_rate, lambda v: 0 < v < np.inf, "positive and finite")
