"""Prediction after imputation: an imputer, then a predictor of complete rows, in one model."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import ClassifierMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from halfseen._arrays import Floats, Integers
from halfseen._threads import map_in_threads, task_threads, warning_filters
from halfseen.base.imputer import BaseImputer
from halfseen.base.members import check_reads_codes
from halfseen.base.parameters import SCHEMA, check_whole, documented_by, documented_fit, finite_answer
from halfseen.base.predictor import EqualWidthRegressor, fit_predictor, steps_of
from halfseen.base.table import TableEstimator, rows_at_once
from halfseen.base.targets import Fitted, WithClasses, unequal
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.schema import code_settings
from halfseen.gaussian.imputer import GaussianImputer
from halfseen.training.supervised import Labelled
from halfseen.trees.boosting import TREE_PARAMETERS, as_logits, check_scores, check_tree_parameters
from halfseen.trees.forest import Forest
from halfseen.trees.growth import Growth

PENALTIES = np.logspace(-2, 4, 7)
INVERSE_PENALTIES = (0.01, 0.1, 1.0, 10.0)
MAX_ITERATIONS = 500
N_SPLITS = 3  # by which the penalty of a classifier is chosen


class RowScores(Protocol):
    """A fitted predictor of complete rows: a number, or the scores of classes.

    For two classes there is one score, the logit of the second class.
    """

    @property
    def constants(self) -> Floats:
        """The constants (K) of the scores."""
        ...

    @property
    def n_iter(self) -> int:
        """The number of trees of each score; 1 for a linear model."""
        ...

    def scores(self, rows: Floats) -> Floats:
        """Returns the scores (N, K) of rows (N, D)."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Returns all arrays as tensors."""
        ...


@dataclass(frozen=True)
class LinearScores:
    """A linear model.

    Shapes
    ------
    slopes : (D, K)
    constants : (K)
    """

    slopes: Floats
    constants: Floats
    n_iter: ClassVar[int] = 1

    @classmethod
    def regress(cls, rows: Floats, y: Floats, weight: Floats | None = None) -> "LinearScores":
        """Returns a ridge regression whose penalty has the lowest leave-one-out error.

        Rows may have weights (N), here and in `classify`.
        """
        centre = float(y.mean())
        spread = float(np.abs(y - centre).max()) or 1.0  # squares of the largest floats overflow
        with warning_filters:
            fitted = RidgeCV(alphas=PENALTIES).fit(rows, (y - centre) / spread, sample_weight=weight)
        return cls(spread * fitted.coef_[:, None], np.array([centre + spread * float(fitted.intercept_)]))

    @classmethod
    def classify(
        cls, rows: Floats, y: Integers, inverse_penalty: float, weight: Floats | None = None
    ) -> "LinearScores":
        """Returns a penalised logistic regression of the classes y (N)."""
        with warning_filters, warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the optimum need not be exact
            fitted = _logistic(inverse_penalty).fit(rows, y, sample_weight=weight)
        return cls(np.ascontiguousarray(fitted.coef_.T), fitted.intercept_)

    def scores(self, rows: Floats) -> Floats:
        """Returns the scores (N, K) of rows (N, D)."""
        found: Floats = rows @ self.slopes + self.constants
        return found

    def state(self) -> dict[str, Tensor]:
        """Returns all arrays as tensors."""
        return {"slopes": torch.from_numpy(self.slopes), "constants": torch.from_numpy(self.constants)}


@dataclass(frozen=True)
class TreeScores:
    """Boosted trees and the constants (K) to add to their sums."""

    forest: Forest
    constants: Floats

    @property
    def n_iter(self) -> int:
        """The number of trees of each score."""
        return self.forest.n_trees // len(self.constants)

    def scores(self, rows: Floats) -> Floats:
        """Returns the scores (N, K) of rows (N, D)."""
        return self.forest.sums(rows, len(self.constants)) + self.constants

    def state(self) -> dict[str, Tensor]:
        """Returns all arrays as tensors."""
        trees = {f"trees.{name}": tensor for name, tensor in self.forest.state().items()}
        return trees | {"constants": torch.from_numpy(self.constants)}


def choose_inverse_penalty(rows: Floats, y: Integers, weight: Floats | None = None) -> float:
    """Returns the inverse penalty of a logistic regression with the lowest log-loss by cross-validation.

    If a class has fewer rows than there are folds, it is 1. Rows may have weights (N).
    """
    if np.bincount(y).min() < N_SPLITS:
        return 1.0
    losses = np.zeros(len(INVERSE_PENALTIES))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for train, test in StratifiedKFold(N_SPLITS).split(rows, y):
            of_train, of_test = (None if weight is None else weight[part] for part in (train, test))
            for i, inverse_penalty in enumerate(INVERSE_PENALTIES):
                model = _logistic(inverse_penalty).fit(rows[train], y[train], sample_weight=of_train)
                chances = model.predict_proba(rows[test])
                losses[i] += log_loss(y[test], chances, labels=model.classes_, sample_weight=of_test)
    return INVERSE_PENALTIES[int(losses.argmin())]


def scores_from_state(state: Mapping[str, Tensor], n_features: int) -> RowScores:
    """Rebuilds a predictor from what `state` returned; raises a ValueError if it is not one of such rows."""
    constants = state["constants"].numpy()
    if constants.ndim != 1 or constants.dtype != np.float64:
        raise ValueError(f"the constants have the type {constants.dtype} and the shape {constants.shape}")
    if "slopes" in state:
        slopes = state["slopes"].numpy()
        if slopes.shape != (n_features, len(constants)) or slopes.dtype != np.float64:
            raise ValueError(f"slopes of the shape {slopes.shape} do not fit {n_features} features")
        return LinearScores(slopes, constants)
    prefix = "trees."
    forest = Forest.from_state(
        {name.removeprefix(prefix): one for name, one in state.items() if name.startswith(prefix)}
    )
    if forest.feature.max(initial=-1) >= n_features or forest.n_trees % max(1, len(constants)):
        raise ValueError(f"the trees do not fit {n_features} features and {len(constants)} scores")
    return TreeScores(forest, constants)


def _logistic(inverse_penalty: float) -> LogisticRegression:
    return LogisticRegression(C=inverse_penalty, max_iter=MAX_ITERATIONS)


PREDICTORS = ("boosting", "linear")
POSTERIOR_ROWS = 20_000  # with more, the parameters of the default imputer are taken as known in draws

documented = documented_by(
    {
        "imputer": (
            "imputer",
            "An imputer of halfseen, which completes the rows; by default ``GaussianImputer()``, with "
            f"parameters drawn from their posterior if there are draws and at most {POSTERIOR_ROWS:,} rows. "
            "It is cloned and fitted to the inputs alone. Its `schema` and `random_state` are replaced by "
            "those of this estimator.",
        ),
        "predictor": (
            '{"boosting", "linear"}',
            "What is fitted to the completed rows: boosted trees, or a linear model whose penalty is chosen "
            "by cross-validation.",
        ),
        "n_draws": (
            "The number of draws of multiple imputation. For each draw, a predictor is fitted to the drawn "
            "training rows, and predictions for the drawn new rows are averaged. The draws of a new row "
            "depend on its values and the seed only, so equal rows have equal predictions. With 0 there is "
            "one predictor, of the single values that ``imputer.transform`` returns."
        ),
        "add_indicator": (
            "Whether the predictor also sees which values were missing, in the columns that are incomplete "
            "in `fit`."
        ),
        **{name: f"Of boosted trees. {text}" for name, text in TREE_PARAMETERS.items()},
    },
    SCHEMA,
)


@dataclass(frozen=True)
class Designs:
    """The inputs of predictors: of each draw the features of the completed rows, and what was missing.

    Shapes
    ------
    designs : sequence of (N, D)
    """

    designs: Sequence[Floats]

    def __len__(self) -> int:
        return len(self.designs[0])

    def __getitem__(self, rows: slice | Tensor) -> "Designs":
        return Designs([one[rows if isinstance(rows, slice) else rows.numpy()] for one in self.designs])


def _design(completed: Floats, codes: Floats, features: FeatureMap, indicated: Sequence[int]) -> Floats:
    """Returns the inputs (N, D) of a predictor: standardised features and indicators of missingness."""
    encoded = features.encode(Incomplete.from_array(completed))
    numbers: Floats = np.where(encoded.observed.numpy(), encoded.x.numpy(), 0.0)
    return np.c_[numbers, np.isnan(codes[:, indicated])]


@dataclass(eq=False, repr=False)
class _ImputeThen(TableEstimator):
    """Parameters, reading and saving of an imputer with predictors of the rows that it completes."""

    _saved: ClassVar[tuple[str, ...]] = ("_indicated", "_n_draws")

    imputer: Any = None
    _: KW_ONLY
    predictor: str = "boosting"
    n_draws: int = 0
    add_indicator: bool = True
    max_iter: int = 200
    learning_rate: float = 0.1
    max_leaf_nodes: int = 31
    min_samples_leaf: int = 20
    schema: Any = None
    random_state: Any = None

    imputer_: Any = field(init=False)  # fitted attributes are no parameters
    _indicated: list[int] = field(init=False)
    _n_draws: int = field(init=False)
    _models: list[RowScores] = field(init=False)

    @documented_fit()
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fits the imputer to the inputs, then the predictor to the completed rows.

        The imputer is fitted to all rows with a positive weight, which count equally: what is missing is
        assumed to depend on what is known in the same way in all of them.
        """
        self._check_parameters()
        steps = steps_of(self, self._complete, self._learn, self._plan)
        return fit_predictor(self, steps, X, y, sample_weight)

    def _complete(
        self, codes: Incomplete, target: Tensor, weights: Tensor
    ) -> tuple[Labelled[Designs], Fitted]:
        """Returns the inputs of the predictor of each draw, from rows that the imputer has completed."""
        given = codes.to_array()
        indicated = np.flatnonzero(np.isnan(given).any(axis=0)).tolist() if self.add_indicator else []
        imputer = self._prepared(self._template(len(given))).fit(given)
        # Equal rows have draws of their own in training; those of new rows depend on the row alone.
        completed = (
            imputer.sample(given, n_draws=self.n_draws) if self.n_draws else [imputer.transform(given)]
        )
        first = Incomplete.from_array(completed[0])
        features = FeatureMap.fit(self._modelled, first, all_indicators=False)
        designs = [_design(one, given, features, indicated) for one in completed]
        found = {
            "_n_draws": int(self.n_draws), "_indicated": indicated, "imputer_": imputer, "_features": features
        }  # fmt: skip
        return Labelled(Designs(designs), target, weights), found

    def _plan(self, codes: Incomplete, rows: Labelled[Designs], generator: torch.Generator) -> float:
        """Returns the inverse penalty of linear models of classes; other models choose their own."""
        return 0.0

    def _learn(
        self,
        train: Labelled[Designs],
        held: Labelled[Designs] | None,
        plan: float,
        generator: torch.Generator,
    ) -> Fitted:
        """Fits a predictor to the completed rows of each draw."""
        target, weight = train.target.numpy(), unequal(train.weight)

        def fit(design: Floats) -> RowScores:
            return self._fit_model(design, target, weight, plan)

        return {"_models": list(map_in_threads(fit, train.rows.designs))}

    def _fit_model(
        self, design: Floats, target: npt.NDArray[Any], weight: Floats | None, inverse_penalty: float
    ) -> RowScores:
        raise NotImplementedError(f"{type(self).__name__} must implement `_fit_model`.")

    def _check_parameters(self) -> None:
        """Raises a ValueError if a parameter is out of range."""
        if self.predictor not in PREDICTORS:
            raise ValueError(f"predictor must be one of {', '.join(PREDICTORS)}, got {self.predictor!r}.")
        check_whole("n_draws", self.n_draws, 0)
        check_tree_parameters(self)
        if self.imputer is None:
            return
        if not isinstance(self.imputer, BaseImputer) or self.imputer.capabilities.images:
            raise ValueError(f"imputer must be an imputer of tables, got {self.imputer!r}.")

    def _template(self, n_rows: int) -> BaseImputer:
        """Returns the imputer that was given, or the default for a number of rows."""
        if self.imputer is None:
            return GaussianImputer(n_posterior_draws=int(self.n_draws) if n_rows <= POSTERIOR_ROWS else 0)
        given: BaseImputer = self.imputer
        return given

    def _prepared(self, template: BaseImputer) -> Any:
        """Returns a copy of the imputer that reads codes and has a seed of this estimator."""
        seed = int(np.random.default_rng([self.seed_, 1]).integers(2**31))
        own: Any = clone(template)
        return own.set_params(
            schema=code_settings(self._modelled), random_state=seed, add_indicator=False
        )  # fmt: skip

    def _completed(self, codes: Floats) -> Sequence[Floats]:
        """Returns the completed codes (N, C) of each draw, which depend on the row alone."""
        if self._n_draws:
            return list(self.imputer_._sample_by_content(codes, self._n_draws))
        return [self.imputer_.transform(codes)]

    @property
    def n_iter_(self) -> int:
        """The largest number of trees of a predictor, of each class if there are more than two."""
        return max(model.n_iter for model in self._models)

    @property
    def _n_inputs(self) -> int:
        return self._features.n_features + len(self._indicated)

    @property
    def _growth(self) -> Growth:
        return Growth(
            self.max_iter, self.learning_rate, self.max_leaf_nodes, self.min_samples_leaf, 1, self.seed_
        )

    @task_threads()
    def _scores(self, X: Any) -> list[Floats]:
        """Returns the scores (N, K) of each draw."""
        check_is_fitted(self)
        codes = self._read(X, reset=False).codes.to_array()
        size = rows_at_once(len(self.schema_), self._n_inputs, len(self._models))
        parts = [self._scores_of(codes[start : start + size]) for start in range(0, max(1, len(codes)), size)]
        return [np.concatenate(of_draw) for of_draw in zip(*parts, strict=True)]

    def _scores_of(self, codes: Floats) -> list[Floats]:
        designs = [_design(one, codes, self._features, self._indicated) for one in self._completed(codes)]
        return [model.scores(design) for model, design in zip(self._models, designs, strict=True)]

    def _members(self) -> Sequence[BaseImputer]:
        return [self.imputer_]

    def _entries(self) -> dict[str, Any]:
        return super()._entries() | {"default": self.imputer is None}

    def _set_members(self, members: list[Any], description: Mapping[str, Any]) -> None:
        (self.imputer_,) = members
        if not isinstance(self.imputer_, BaseImputer) or self.imputer_.n_features_in_ != len(self._modelled):
            raise ValueError("its imputer is not one of this table")
        check_reads_codes(self.imputer_, self._modelled)
        if not description["default"]:
            self.imputer = clone(self.imputer_).set_params(schema=None, random_state=None)

    def _state(self) -> dict[str, Tensor]:
        models = {
            f"model.{s}.{name}": tensor
            for s, model in enumerate(self._models)
            for name, tensor in model.state().items()
        }
        return self._features.state() | models

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        if any(not isinstance(j, int) or not 0 <= j < len(self._modelled) for j in self._indicated):
            raise ValueError(f"there are indicators of the columns {self._indicated!r:.60}")
        check_whole("the number of draws", self._n_draws, 0)
        self._features = FeatureMap.from_state(self._modelled, state, all_indicators=False)
        self._models = [self._model_from(state, s) for s in range(max(1, self._n_draws))]

    def _model_from(self, state: Mapping[str, Tensor], s: int) -> RowScores:
        prefix = f"model.{s}."
        own = {name.removeprefix(prefix): one for name, one in state.items() if name.startswith(prefix)}
        return scores_from_state(own, self._n_inputs)


@documented
class ImputeThenRegressor(EqualWidthRegressor, _ImputeThen):
    r"""Regression on rows that an imputer has completed.

    .. math:: \hat y = \frac1S \sum_s f_s(x^{(s)}, m)

    where :math:`x^{(s)}` is the completed row, :math:`m` says which of its values were missing, and there is
    one term without draws. With indicators of missingness and a flexible predictor, almost any imputation
    leads to the best possible prediction if there are enough rows, whether values are missing at random or
    not, as long as values of new rows are missing for the same reasons as in training.

    Attributes
    ----------
    imputer_ : imputer
        Fitted to the numeric codes of the columns.
    n_iter_ : int
        The largest number of trees of a predictor, of each class if there are more than two; 1 for linear
        models.

    References
    ----------
    Le Morvan, Josse, Scornet & Varoquaux (2021), What's a good imputation to predict with missing values?

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2)) @ [[1.0, 0.9], [0.0, 0.4]]
    >>> y = 2 * X[:, 0] + 1
    >>> X[:100, 0] = np.nan
    >>> model = ImputeThenRegressor(predictor="linear", random_state=0).fit(X, y)
    >>> model.predict([[1.0, 0.9], [-1.0, -0.9]]).round()
    array([ 3., -1.])
    """

    @finite_answer
    def predict(self, X: Any) -> Floats:
        """Returns the predicted target of each row."""
        mean: Floats = np.mean(self._scores(X), axis=0)[:, 0]
        return mean

    def _predict_rows(self, rows: Designs) -> Floats:
        pairs = zip(self._models, rows.designs, strict=True)
        mean: Floats = np.mean([model.scores(design) for model, design in pairs], axis=0)[:, 0]
        return mean

    def _fit_model(
        self, design: Floats, target: npt.NDArray[Any], weight: Floats | None, inverse_penalty: float
    ) -> RowScores:
        if self.predictor == "linear":
            return LinearScores.regress(design, target, weight)
        return TreeScores(*self._growth.regress(design, target, [], weight))

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        super()._restore(state)
        if any(len(model.constants) != 1 for model in self._models):
            raise ValueError("a predictor of numbers has several scores")


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class ImputeThenClassifier(WithClasses, ClassifierMixin, _ImputeThen):
    r"""Classification of rows that an imputer has completed.

    .. math:: p(y = k \mid x) = \frac1S \sum_s p_s(y = k \mid x^{(s)}, m)

    as in `ImputeThenRegressor`. Values may be missing at random or not, as long as values of new rows are
    missing for the same reasons as in training.

    Attributes
    ----------
    schema_, imputer_, n_iter_ : Schema, imputer, int
        As of `ImputeThenRegressor`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> y = np.where(X[:, 0] > 0, "high", "low")
    >>> X[:50, 1] = np.nan
    >>> model = ImputeThenClassifier(predictor="linear", random_state=0).fit(X, y)
    >>> model.predict([[2.0, np.nan], [-2.0, 0.0]])
    array(['high', 'low'], dtype='<U4')
    """

    class_weight: Any = None

    @finite_answer
    def predict_proba(self, X: Any) -> Floats:
        """Returns the probability of each class for each row, in the order of ``classes_``."""
        mean: Floats = np.mean([as_logits(one).softmax(dim=1).numpy() for one in self._scores(X)], axis=0)
        return mean

    def _logits(self, X: Any) -> Tensor:
        return torch.from_numpy(self.predict_proba(X)).log()

    def _plan(self, codes: Incomplete, rows: Labelled[Designs], generator: torch.Generator) -> float:
        if self.predictor != "linear":
            return 0.0
        return choose_inverse_penalty(rows.rows.designs[0], rows.target.numpy(), unequal(rows.weight))

    def _fit_model(
        self, design: Floats, target: npt.NDArray[Any], weight: Floats | None, inverse_penalty: float
    ) -> RowScores:
        if self.predictor == "linear":
            return LinearScores.classify(design, target, inverse_penalty, weight)
        return TreeScores(*self._growth.classify(design, target, [], weight))

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        super()._restore(state)
        for model in self._models:
            check_scores(len(model.constants), len(self.classes_))
