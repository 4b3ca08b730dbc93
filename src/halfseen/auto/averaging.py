"""Averages of predictors, with weights by rows that the predictors were not fitted to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from halfseen._arrays import Floats, Integers
from halfseen.auto.mixing_weights import weigh_classes, weigh_numbers
from halfseen.base.capabilities import Capabilities
from halfseen.base.catalogue import build_named, catalogue_name, find_method, predictor_names
from halfseen.base.members import check_reads_codes
from halfseen.base.parameters import (
    SCHEMA,
    check_level,
    check_number,
    check_whole,
    documented_by,
    documented_fit,
    finite_answer,
)
from halfseen.base.predictor import HeldOutErrors, Steps, fit_predictor
from halfseen.base.table import TableEstimator
from halfseen.base.targets import Fitted, WithClasses, read_number_column, unequal
from halfseen.data.incomplete import Incomplete
from halfseen.data.schema import code_settings
from halfseen.training.supervised import Labelled

Rows = Integers

DEFAULT = ("boosting", "neumiss", "circuit", "sparsity-norm")
FEWEST_ROWS = 50  # with fewer, weights are equal

documented = documented_by(
    {
        "predictors": (
            "list of str, or dict of str to dict",
            "The names of predictors, such as ``'boosting'``, or for each name the parameters that differ "
            f"from its defaults; by default {', '.join(DEFAULT)}. Names such as ``'gaussian+linear'`` are "
            "imputation and then prediction; all names are in the error about an unknown one.",
        ),
        "weights": (
            "dict of str to float",
            "The weights of predictors that were found elsewhere, by their names; those that are not named "
            "have none. By default they are found by cross-validation.",
        ),
        "n_splits": "The number of folds by which weights are found.",
    },
    SCHEMA,
)


@dataclass(eq=False, repr=False)
class Averaging(TableEstimator):
    """An average of predictors; a subclass says what is predicted and how weights are found."""

    _saved: ClassVar[tuple[str, ...]] = ("weights_",)

    predictors: Any = None
    _: KW_ONLY
    weights: Mapping[str, float] | None = None
    n_splits: int = 5
    schema: Any = None
    random_state: Any = None

    weights_: dict[str, float] = field(init=False)  # fitted attributes are no parameters
    members_: list[Any] = field(init=False)

    @documented_fit()
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Finds the weights, then fits every predictor that has one to all rows."""
        self._given_weights(self._checked_settings())
        steps = Steps(features=self._rows, learn=self._learn)
        return fit_predictor(self, steps, X, y, sample_weight)

    def _rows(self, codes: Incomplete, target: Tensor, weights: Tensor) -> tuple[Labelled[Any], Fitted]:
        return Labelled(codes, target, weights), {}  # each member has features of its own

    def _learn(self, train: Labelled[Any], held: None, plan: None, generator: torch.Generator) -> Fitted:
        codes, target, rows_count = train.rows.to_array(), train.target.numpy(), train.weight.numpy()
        settings = self._checked_settings()
        given = self._given_weights(settings)
        names = list(settings) if given is None else [name for name in given if given[name] > 0]
        folds = self._folds(target)
        if len(names) == 1 or given is not None:
            folds = folds[:1] if self.capabilities.predicts == "numbers" else []  # intervals are calibrated
        fit = partial(self._fit_member, settings=settings, codes=codes, target=target, weight=rows_count)
        answers, rows = self._out_of_fold(names, fit, codes, target, folds)
        weights = np.full(len(names), 1.0 / len(names))
        if given is not None:
            weights = np.array([given[name] for name in names])
        elif len(names) > 1 and folds:
            shares = None if unequal(train.weight) is None else rows_count[rows] / rows_count[rows].sum()
            weights = self._weigh(answers, target[rows], shares)
        average = np.tensordot(weights, answers, axes=1)
        calibrated = self._calibrate(average, target[rows], train.weight[torch.from_numpy(rows)])
        found = dict(zip(names, weights.tolist(), strict=True))
        found = {name: found[name] for name in sorted(found) if found[name] > 0}
        members = [fit(name, np.arange(len(target))) for name in found]
        return calibrated | {"weights_": found, "members_": members}

    @property
    def _catalogue_kind(self) -> str:
        """How the names of members end in the catalogue."""
        return "regressor" if self.capabilities.predicts == "numbers" else "classifier"

    def _stratify(self, target: npt.NDArray[Any]) -> bool:
        return False

    def _questions(self, member: Any, codes: Floats, truth: npt.NDArray[Any]) -> Floats:
        """Returns what is asked of a member about rows that it was not fitted to (Q, N)."""
        raise NotImplementedError

    def _weigh(self, answers: Floats, truth: npt.NDArray[Any], shares: Floats | None) -> Floats:
        """Returns the weights (M), by the answers of the members (M, Q, N) and the shares of rows (N)."""
        raise NotImplementedError

    def _calibrate(self, answers: Floats, truth: npt.NDArray[Any], rows_count: Tensor) -> Fitted:
        """Learns from the average of the answers (Q, N), without rows if there are too few.

        `rows_count` (N) is how much rows count.
        """
        return {}

    def _fit_member(
        self,
        name: str,
        rows: Rows,
        *,
        settings: Mapping[str, Mapping[str, Any]],
        codes: Floats,
        target: npt.NDArray[Any],
        weight: Floats,
    ) -> Any:
        """Returns a predictor that is fitted to some of the rows."""
        return self._make(name, settings).fit(codes[rows], target[rows], sample_weight=weight[rows])

    def _make(self, name: str, settings: Mapping[str, Mapping[str, Any]]) -> Any:
        seed = np.random.default_rng([self.seed_, *name.encode()]).integers(2**31)
        own = {"random_state": int(seed), **settings[name], "schema": code_settings(self._modelled)}
        return build_named(name, self._catalogue_kind, **own)

    def _out_of_fold(
        self,
        names: Sequence[str],
        fit: Callable[[str, Rows], Any],
        codes: Floats,
        target: npt.NDArray[Any],
        folds: Sequence[tuple[Rows, Rows]],
    ) -> tuple[Floats, Rows]:
        """Returns the answers of members (M, Q, N) about the test rows of all folds, and these rows (N)."""
        n_answers = 3 if self.capabilities.predicts == "numbers" else 1  # with both ends of an interval
        parts, rows = [np.zeros((len(names), n_answers, 0))], [np.zeros(0, dtype=np.int64)]
        for train, test in folds:
            members = [fit(name, train) for name in names]
            parts.append(np.stack([self._questions(one, codes[test], target[test]) for one in members]))
            rows.append(test)
        return np.concatenate(parts, axis=2), np.concatenate(rows)

    def _folds(self, target: npt.NDArray[Any]) -> list[tuple[Rows, Rows]]:
        """Returns training and test rows of each fold; none if there are too few rows to find weights by."""
        if len(target) < max(FEWEST_ROWS, 2 * self.n_splits):
            return []
        kind = StratifiedKFold if self._stratify(target) else KFold
        splitter = kind(self.n_splits, shuffle=True, random_state=self.seed_ % 2**31)
        folds = list(splitter.split(target, target))
        varies = all(len(np.unique(target[train])) > 1 for train, _ in folds)
        return folds if varies else []

    def _codes(self, X: Any) -> Floats:
        """Returns the inputs of the members."""
        check_is_fitted(self)
        return self._read(X, reset=False).codes.to_array()

    def _answers(self, codes: Floats, question: str, **arguments: Any) -> list[Any]:
        """Returns the answers of all members to one question."""
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
        known = predictor_names(self._catalogue_kind)
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

    def _members(self) -> Sequence[Any]:
        return self.members_

    def _state(self) -> dict[str, Tensor]:
        return {}  # of its own, beside those of the members

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        """Does nothing; a regressor restores its intervals."""

    def _set_members(self, members: list[Any], description: Mapping[str, Any]) -> None:
        self.weights_ = {str(name): float(weight) for name, weight in sorted(self.weights_.items())}
        if not self.weights_ or len(members) != len(self.weights_):
            raise ValueError(f"there are {len(self.weights_)} weights of {len(members)} predictors")
        values = np.array(list(self.weights_.values()))
        if not (values > 0).all() or not np.isclose(values.sum(), 1.0):
            raise ValueError(f"the weights {self.weights_!r:.100} do not sum to one")
        for name, member in zip(self.weights_, members, strict=True):
            wanted = find_method(catalogue_name(name, self._catalogue_kind)).estimator
            if type(member) is not wanted or member.n_features_in_ != len(self._modelled):
                raise ValueError(f"member {name!r:.60} is not a predictor of this table")
            check_reads_codes(member, self._modelled)
        self.members_ = members


SMALLEST_PROBABILITY = 1e-6  # no single row decides
REFERENCE = 0.9  # the level of the members' intervals, which those of the average are multiples of
SMALLEST_REACH = 0.05  # of the width of an interval, on either side of the prediction


@documented
class AveragingRegressor(RegressorMixin, Averaging):
    r"""Regression by a weighted average of several predictors of incomplete rows.

    .. math:: \hat y = \sum_m w_m \, \hat y_m(x), \qquad w_m \ge 0, \quad \sum_m w_m = 1

    The weights minimise the squared error of rows that the predictors were not fitted to, by
    cross-validation. Predictors with a weight below 2% are left out; the others are then fitted to all rows.
    With fewer than 50 rows the weights are equal. An average is seldom worse than the best of its members and
    often better, because their errors partly cancel. Values may be missing at random or not, as its members
    assume.

    Intervals begin as the weighted averages of the members' intervals, and are then widened or narrowed by
    one factor for each level, so that they have the stated coverage in rows that the members were not fitted
    to.

    Attributes
    ----------
    weights_ : dict of str to float
        The weights of the predictors that are averaged, by name.
    members_ : list of predictors
        Fitted to all rows, in the order of ``weights_``. Their inputs are numeric codes of the columns.

    References
    ----------
    Breiman (1996), Stacked regressions. Lei, G'Sell, Rinaldo, Tibshirani & Wasserman (2018),
    Distribution-free predictive inference for regression, section 5.2, for intervals.

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

    _saved = ("_n_factors",)
    _factors: HeldOutErrors
    _n_factors: int

    @property
    def capabilities(self) -> Capabilities:
        """What the estimator can do with the parameters that it has."""
        return replace(super().capabilities, predicts="numbers")

    @finite_answer
    def predict(self, X: Any) -> Floats:
        """Returns the predicted target of each row."""
        return self._average(self._answers(self._codes(X), "predict"))

    @finite_answer
    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[Floats, Floats]:
        """Returns the ends of an interval that contains the target of each row with probability `level`.

        If `fit` had fewer than 50 rows, they are the weighted averages of the ends of the members' intervals.
        """
        check_level(level)
        codes = self._codes(X)
        calibrated = self._factors.n_rows > 0
        ends = self._answers(codes, "predict_interval", level=REFERENCE if calibrated else level)
        low, high = self._average([one for one, _ in ends]), self._average([one for _, one in ends])
        if not calibrated:
            return low, high
        predicted = self._average(self._answers(codes, "predict"))
        below, above = _reaches(predicted, low, high)
        factor = float(self._factors.half_width(level))
        return predicted - factor * below, predicted + factor * above

    def _read_target(self, y: Any, n_rows: int, weights: Tensor) -> tuple[Tensor, Fitted]:
        return read_number_column(y, n_rows, self)[weights > 0], {}

    def _questions(self, member: Any, codes: Floats, truth: npt.NDArray[Any]) -> Floats:
        return np.stack([member.predict(codes), *member.predict_interval(codes, level=REFERENCE)])

    def _weigh(self, answers: Floats, truth: npt.NDArray[Any], shares: Floats | None) -> Floats:
        return weigh_numbers(answers[:, 0] - truth, shares)

    def _calibrate(self, answers: Floats, truth: npt.NDArray[Any], rows_count: Tensor) -> Fitted:
        """Returns by what factor the interval of each row must be widened to reach the target."""
        predicted, low, high = answers
        below, above = _reaches(predicted, low, high)
        error = truth - predicted
        relative = np.where(error > 0, error / above, error / below)
        factors = HeldOutErrors.of(torch.from_numpy(relative), rows_count)
        return {"_factors": factors, "_n_factors": factors.n_rows}

    def _state(self) -> dict[str, Tensor]:
        return super()._state() | {"factors": self._factors.quantiles}

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        super()._restore(state)
        factors = state["factors"]
        self._factors = HeldOutErrors(factors, self._n_factors)
        if (self._n_factors > 0) != (len(factors) > 0) or (factors < 0).any():
            raise ValueError("the factors of intervals are not those of an average")


def _reaches(predicted: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Returns how far an interval reaches below and above the prediction (N); both are positive."""
    least = np.maximum(SMALLEST_REACH * (high - low), np.finfo(np.float64).tiny)
    return np.maximum(predicted - low, least), np.maximum(high - predicted, least)


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class AveragingClassifier(WithClasses, ClassifierMixin, Averaging):
    r"""Classification by a weighted average of the probabilities of several predictors of incomplete rows.

    .. math:: p(y = k \mid x) = \sum_m w_m \, p_m(y = k \mid x), \qquad w_m \ge 0, \quad \sum_m w_m = 1

    The weights minimise the log-loss of rows that the predictors were not fitted to, as in
    `AveragingRegressor`. Values may be missing at random or not, as its members assume.

    Attributes
    ----------
    schema_, weights_ : Schema, dict of str to float
        As of `AveragingRegressor`.
    members_ : list of predictors
        Those of `AveragingRegressor`, whose classes are positions in ``classes_``.

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

    class_weight: Any = None

    @finite_answer
    def predict_proba(self, X: Any) -> Floats:
        """Returns the probability of each class for each row, in the order of ``classes_``."""
        return self._average(self._answers(self._codes(X), "predict_proba"))

    def _logits(self, X: Any) -> Tensor:
        return torch.from_numpy(self.predict_proba(X)).log()

    def _stratify(self, target: npt.NDArray[Any]) -> bool:
        return int(np.bincount(target).min()) >= self.n_splits

    def _questions(self, member: Any, codes: Floats, truth: npt.NDArray[Any]) -> Floats:
        every = np.zeros((len(codes), len(self.classes_)))  # training rows may lack a class
        every[:, member.classes_] = member.predict_proba(codes)
        found: Floats = every[np.arange(len(truth)), truth].clip(SMALLEST_PROBABILITY)
        return found[None]

    def _weigh(self, answers: Floats, truth: npt.NDArray[Any], shares: Floats | None) -> Floats:
        return weigh_classes(answers[:, 0], shares)

    def _set_members(self, members: list[Any], description: Mapping[str, Any]) -> None:
        super()._set_members(members, description)
        for name, member in zip(self.weights_, self.members_, strict=True):
            if len(member.classes_) != len(self.classes_):
                raise ValueError(f"member {name!r:.60} does not have the {len(self.classes_)} classes")
