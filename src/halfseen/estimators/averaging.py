"""Averages of predictors, with weights by rows that the predictors were not fitted to."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.utils.validation import check_is_fitted, column_or_1d
from torch import Tensor

from halfseen.data.codes import code_settings
from halfseen.data.masked import check_not_masked
from halfseen.estimators._documented import documented_by
from halfseen.estimators._members import members_state, rebuild_members
from halfseen.estimators._parameters import check_number, check_whole
from halfseen.estimators._table import TableEstimator
from halfseen.estimators._targets import WithClasses, read_classes, read_numbers
from halfseen.estimators._transaction import all_or_nothing
from halfseen.estimators.catalogue import CATALOGUE, Family, find_method
from halfseen.training.averaging import weigh_classes, weigh_numbers

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

DEFAULT = ("boosting", "neumiss", "circuit", "sparsity-norm")
FEWEST_ROWS = 50  # with fewer, weights are equal
SMALLEST_PROBABILITY = 1e-6  # no single row decides

documented = documented_by(
    {
        "predictors": (
            "list of str, or dict of str to dict",
            "The names of predictors, such as ``'boosting'``, or for each name the parameters that differ "
            f"from its defaults; by default {', '.join(DEFAULT)}.",
        ),
        "weights": (
            "dict of str to float",
            "The weights of predictors that were found elsewhere, by their names; those that are not named "
            "have none. By default they are found by cross-validation.",
        ),
        "n_splits": ("int", "The number of folds by which weights are found."),
    }
)


@dataclass(eq=False, repr=False)
class _Averaging(TableEstimator):
    """Parameters, cross-validation and saving of averages."""

    _saved: ClassVar[tuple[str, ...]] = ("weights_",)
    _kind: ClassVar[str] = ""  # how the names of members end in the catalogue

    predictors: Any = None
    _: KW_ONLY
    weights: Mapping[str, float] | None = None
    n_splits: int = 5
    schema: Any = None
    random_state: Any = None

    @all_or_nothing
    def fit(self, X: Any, y: Any) -> Any:
        """Finds the weights, then fits every predictor that has one to all rows.

        Parameters
        ----------
        X : pandas, polars or pyarrow table, or array-like of shape (n_samples, n_features)
            Missing cells are None, NaN, NaT, NA or null.
        y : array-like of shape (n_samples,)
            The target, without missing values.
        """
        settings = self._checked_settings()
        read = self._read(X, reset=True)
        target = self._read_target(y, read.table.n_rows)
        if not self._modelled:
            raise ValueError(
                f"{type(self).__name__} needs a column that varies: all columns are constant, empty or "
                f"identifiers in these rows (n_samples={read.table.n_rows})."
            )
        codes = read.codes.to_array()
        weights = self._given_weights(settings)
        if weights is None:
            found = self._find_weights(settings, codes, target)
            weights = dict(zip(settings, found.tolist(), strict=True))
        self.weights_ = {name: weights[name] for name in sorted(weights) if weights[name] > 0}
        self.members_ = [self._make(name, settings).fit(codes, target) for name in self.weights_]
        return self

    def _read_target(self, y: Any, n_rows: int) -> npt.NDArray[Any]:
        raise NotImplementedError

    def _stratify(self, target: npt.NDArray[Any]) -> bool:
        return False

    def _deviations(self, member: Any, codes: Floats, truth: npt.NDArray[Any]) -> Floats:
        """Returns what decides about the weight of a member (N), of rows that it was not fitted to."""
        raise NotImplementedError

    def _weigh(self, deviations: Floats) -> Floats:
        raise NotImplementedError

    def _make(self, name: str, settings: Mapping[str, Mapping[str, Any]]) -> Any:
        seed = np.random.default_rng([self.seed_, *name.encode()]).integers(2**31)
        estimator = find_method(f"{name}-{self._kind}").estimator
        return estimator(
            **{"random_state": int(seed), **settings[name], "schema": code_settings(self._modelled)}
        )

    def _find_weights(
        self, settings: Mapping[str, Mapping[str, Any]], codes: Floats, target: npt.NDArray[Any]
    ) -> Floats:
        folds = self._folds(target)
        if len(settings) == 1 or not folds:
            return np.full(len(settings), 1.0 / len(settings))
        deviations = np.empty((len(settings), len(codes)))
        for train, test in folds:
            for m, name in enumerate(settings):
                member = self._make(name, settings).fit(codes[train], target[train])
                deviations[m, test] = self._deviations(member, codes[test], target[test])
        return self._weigh(deviations)

    def _folds(self, target: npt.NDArray[Any]) -> list[tuple[Rows, Rows]]:
        """Returns training and test rows of each fold; none if there are too few rows to find weights by."""
        if len(target) < max(FEWEST_ROWS, 2 * self.n_splits):
            return []
        kind = StratifiedKFold if self._stratify(target) else KFold
        splitter = kind(self.n_splits, shuffle=True, random_state=self.seed_ % 2**31)
        folds = list(splitter.split(target, target))
        varies = all(len(np.unique(target[train])) > 1 for train, _ in folds)
        return folds if varies else []

    def _answers(self, X: Any, question: str, **arguments: Any) -> list[Any]:
        """Returns the answers of all members to one question."""
        check_is_fitted(self)
        codes = self._read(X, reset=False).codes.to_array()
        return [getattr(member, question)(codes, **arguments) for member in self.members_]

    def _average(self, answers: Sequence[Any]) -> Floats:
        parts = [w * np.asarray(one) for w, one in zip(self.weights_.values(), answers, strict=True)]
        total: Floats = np.sum(parts, axis=0)
        return total

    def _checked_settings(self) -> dict[str, Mapping[str, Any]]:
        """Returns the parameters of each predictor by its name."""
        check_whole("n_splits", self.n_splits, 2)
        given = DEFAULT if self.predictors is None else self.predictors
        settings = dict(given) if isinstance(given, Mapping) else {}
        if isinstance(given, list | tuple):
            settings = {name: {} for name in given if isinstance(name, str)}
        if not settings or len(settings) < len(given):
            raise ValueError(
                "predictors must be a list of different names, or a dict of parameters by name, got "
                f"{given!r}."
            )
        known = _known(self._kind)
        for name, parameters in settings.items():
            if name not in known:
                raise ValueError(f"predictors has {name!r}; choose from {', '.join(known)}.")
            if not isinstance(parameters, Mapping):
                raise ValueError(f"The parameters of {name!r} must be a dict, got {parameters!r}.")
        return settings

    def _given_weights(self, settings: Mapping[str, Any]) -> dict[str, float] | None:
        """Returns the weights that the user gave, as shares of one."""
        if self.weights is None:
            return None
        if not isinstance(self.weights, Mapping) or not self.weights:
            raise ValueError(f"weights must be a dict of numbers by name, got {self.weights!r}.")
        for name, weight in self.weights.items():
            if name not in settings:
                raise ValueError(f"weights has {name!r}, which is not among the predictors.")
            check_number(f"weights[{name!r}]", weight, lambda v: 0 <= v < np.inf, "at least 0 and finite")
        total = float(sum(self.weights.values()))
        if total <= 0:
            raise ValueError(f"One of the weights must be positive, got {self.weights!r}.")
        return {name: float(weight) / total for name, weight in self.weights.items()}

    def _entries(self) -> dict[str, Any]:
        return super()._entries() | {"members": [member._manifest() for member in self.members_]}

    def _restore_entries(self, description: Mapping[str, Any]) -> None:
        super()._restore_entries(description)
        self._described = list(description["members"])

    def _state(self) -> dict[str, Tensor]:
        return members_state(self.members_)

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        described = self._described
        del self._described
        self.weights_ = {str(name): float(weight) for name, weight in sorted(self.weights_.items())}
        if not self.weights_ or len(described) != len(self.weights_):
            raise ValueError(f"there are {len(self.weights_)} weights of {len(described)} predictors")
        values = np.array(list(self.weights_.values()))
        if not (values > 0).all() or not np.isclose(values.sum(), 1.0):
            raise ValueError(f"the weights {self.weights_!r:.100} do not sum to one")
        self.members_ = rebuild_members(described, state)
        for name, member in zip(self.weights_, self.members_, strict=True):
            wanted = find_method(f"{name}-{self._kind}").estimator
            if type(member) is not wanted or member.n_features_in_ != len(self._modelled):
                raise ValueError(f"member {name!r:.60} is not a predictor of this table")


def _known(kind: str) -> list[str]:
    """Returns the names of the predictors that can be averaged."""
    names = [method.name for method in CATALOGUE if method.family == Family.TABLE_PREDICTOR]
    found = [name.removesuffix(f"-{kind}") for name in names if name.endswith(f"-{kind}")]
    return [name for name in found if name != "average"]


@documented
class AveragingRegressor(RegressorMixin, _Averaging):
    r"""Regression by a weighted average of several predictors of incomplete rows.

    .. math:: \hat y = \sum_m w_m \, \hat y_m(x), \qquad w_m \ge 0, \quad \sum_m w_m = 1

    The weights minimise the squared error of rows that the predictors were not fitted to, by
    cross-validation. Predictors with a weight below 2% are left out; the others are then fitted to all rows.
    With fewer than 50 rows the weights are equal. An average is seldom worse than the best of its members and
    often better, because their errors partly cancel. Values may be missing at random or not, as its members
    assume.

    Attributes
    ----------
    schema_ : Schema
        The kind of each column, and the reasons.
    weights_ : dict of str to float
        The weights of the predictors that are averaged, by name.
    members_ : list of predictors
        Fitted to all rows, in the order of ``weights_``. Their inputs are numeric codes of the columns.

    References
    ----------
    Breiman (1996), Stacked regressions. Lichtendahl, Grushka-Cockayne & Winkler (2013), Is it better to
    average probabilities or quantiles?, for intervals.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 2))
    >>> y = X[:, 0] + (X[:, 1] > 0)
    >>> X[rng.random(X.shape) < 0.1] = np.nan
    >>> model = AveragingRegressor(["gaussian", "boosting"], random_state=0).fit(X, y)
    >>> list(model.weights_), round(sum(model.weights_.values()), 6)
    (['boosting', 'gaussian'], 1.0)
    >>> high, low = model.predict([[2.0, 1.0], [-2.0, np.nan]])
    >>> bool(high > 2 > 0 > low)
    True
    """

    _kind = "regressor"

    def predict(self, X: Any) -> Floats:
        """Returns the predicted target of each row."""
        return self._average(self._answers(X, "predict"))

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[Floats, Floats]:
        """Returns the ends of an interval that contains the target of each row with probability `level`.

        They are the weighted averages of the ends of the members' intervals. As the errors of members partly
        cancel in the average, it contains the target slightly more often than that.
        """
        ends = self._answers(X, "predict_interval", level=level)
        return self._average([low for low, _ in ends]), self._average([high for _, high in ends])

    def _read_target(self, y: Any, n_rows: int) -> npt.NDArray[Any]:
        one = y if y is None else column_or_1d(check_not_masked(y, "y"), warn=True)
        numbers: Floats = read_numbers(one, n_rows, self)[0][:, 0].numpy()
        return numbers

    def _deviations(self, member: Any, codes: Floats, truth: npt.NDArray[Any]) -> Floats:
        errors: Floats = member.predict(codes) - truth
        return errors

    def _weigh(self, deviations: Floats) -> Floats:
        return weigh_numbers(deviations)


@documented
class AveragingClassifier(WithClasses, ClassifierMixin, _Averaging):
    r"""Classification by a weighted average of the probabilities of several predictors of incomplete rows.

    .. math:: p(y = k \mid x) = \sum_m w_m \, p_m(y = k \mid x), \qquad w_m \ge 0, \quad \sum_m w_m = 1

    The weights minimise the log-loss of rows that the predictors were not fitted to, as in
    `AveragingRegressor`. Values may be missing at random or not, as its members assume.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The classes, sorted.
    schema_ : Schema
        The kind of each column, and the reasons.
    weights_ : dict of str to float
        The weights of the predictors that are averaged, by name.
    members_ : list of predictors
        Fitted to all rows, in the order of ``weights_``. Their inputs are numeric codes of the columns, and
        their classes are positions in ``classes_``.

    References
    ----------
    Yao, Vehtari, Simpson & Gelman (2018), Using stacking to average Bayesian predictive distributions.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> y = np.where(X[:, 0] > 0, "high", "low")
    >>> predictors = {"boosting": {"max_iter": 20}, "sparsity-norm": {"max_epochs": 5}}
    >>> model = AveragingClassifier(predictors, n_splits=2, random_state=0).fit(X, y)
    >>> model.predict([[2.0, np.nan], [-2.0, 0.0]])
    array(['high', 'low'], dtype='<U4')
    """

    _kind = "classifier"
    _saved = (*_Averaging._saved, "_plain_classes")

    def predict_proba(self, X: Any) -> Floats:
        """Returns the probability of each class for each row, in the order of ``classes_``."""
        return self._average(self._answers(X, "predict_proba"))

    def predict_log_proba(self, X: Any) -> Floats:
        """Returns the log probability of each class for each row."""
        with np.errstate(divide="ignore"):  # a probability may be zero
            logs: Floats = np.log(self.predict_proba(X))
        return logs

    def _read_target(self, y: Any, n_rows: int) -> npt.NDArray[Any]:
        codes, classes = read_classes(y, n_rows, self)
        self._plain_classes = classes.to_plain()
        target: npt.NDArray[Any] = codes.numpy()
        return target

    def _stratify(self, target: npt.NDArray[Any]) -> bool:
        return int(np.bincount(target).min()) >= self.n_splits

    def _deviations(self, member: Any, codes: Floats, truth: npt.NDArray[Any]) -> Floats:
        every = np.zeros((len(codes), len(self.classes_)))  # training rows may lack a class
        every[:, member.classes_] = member.predict_proba(codes)
        found: Floats = every[np.arange(len(truth)), truth].clip(SMALLEST_PROBABILITY)
        return found

    def _weigh(self, deviations: Floats) -> Floats:
        return weigh_classes(deviations)

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        super()._restore(state)
        for name, member in zip(self.weights_, self.members_, strict=True):
            if len(member.classes_) != len(self.classes_):
                raise ValueError(f"member {name!r:.60} does not have the {len(self.classes_)} classes")
