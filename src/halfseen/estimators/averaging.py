"""Averages of predictors, with weights by rows that the predictors were not fitted to."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from torch import Tensor

from halfseen.distributions.quantiles import lower_quantiles
from halfseen.estimators._averaging_base import Averaging, Floats, documented
from halfseen.estimators._targets import WithClasses, read_number_column
from halfseen.estimators.model_checks import finite_answer
from halfseen.training.averaging import weigh_classes, weigh_numbers

SMALLEST_PROBABILITY = 1e-6  # no single row decides
REFERENCE = 0.9  # the level of the members' intervals, which those of the average are multiples of
SMALLEST_REACH = 0.05  # of the width of an interval, on either side of the prediction
N_QUANTILES = 1000  # kept of the factors


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
    schema_ : Schema
        The kind of each column, and the reasons.
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

    _kind = "regressor"
    _saved = (*Averaging._saved, "_n_factors")
    _calibrates = True
    _n_questions = 3

    @finite_answer
    def predict(self, X: Any) -> Floats:
        """Returns the predicted target of each row."""
        return self._average(self._answers(self._codes(X), "predict"))

    @finite_answer
    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[Floats, Floats]:
        """Returns the ends of an interval that contains the target of each row with probability `level`.

        If `fit` had fewer than 50 rows, they are the weighted averages of the ends of the members' intervals.
        """
        if not 0 < level < 1:
            raise ValueError(f"level must be between 0 and 1, got {level!r}.")
        codes = self._codes(X)
        calibrated = self._n_factors > 0
        ends = self._answers(codes, "predict_interval", level=REFERENCE if calibrated else level)
        low, high = self._average([one for one, _ in ends]), self._average([one for _, one in ends])
        if not calibrated:
            return low, high
        predicted = self._average(self._answers(codes, "predict"))
        below, above = _reaches(predicted, low, high)
        rank = min(1.0, level * (1 + 1 / self._n_factors))
        factor = float(torch.quantile(self._factors, rank, interpolation="higher"))
        return predicted - factor * below, predicted + factor * above

    def _read_target(self, y: Any, n_rows: int) -> npt.NDArray[Any]:
        numbers: Floats = read_number_column(y, n_rows, self).numpy()
        return numbers

    def _questions(self, member: Any, codes: Floats, truth: npt.NDArray[Any]) -> Floats:
        return np.stack([member.predict(codes), *member.predict_interval(codes, level=REFERENCE)])

    def _weigh(self, answers: Floats, truth: npt.NDArray[Any]) -> Floats:
        return weigh_numbers(answers[:, 0] - truth)

    def _calibrate(self, answers: Floats, truth: npt.NDArray[Any]) -> None:
        """Keeps by what factor the interval of each row must be widened to reach the target."""
        predicted, low, high = answers
        below, above = _reaches(predicted, low, high)
        error = truth - predicted
        factors = torch.from_numpy(np.where(error > 0, error / above, -error / below))
        self._n_factors = len(factors)
        levels = torch.linspace(0, 1, min(N_QUANTILES, len(factors)), dtype=torch.float64)
        every = torch.ones_like(factors)
        self._factors = lower_quantiles(factors[:, None], every, levels)[:, 0] if len(factors) else factors

    def _state(self) -> dict[str, Tensor]:
        return super()._state() | {"factors": self._factors}

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        super()._restore(state)
        self._factors = state["factors"]
        if (self._n_factors > 0) != (len(self._factors) > 0) or (self._factors < 0).any():
            raise ValueError("the factors of intervals are not those of an average")


def _reaches(predicted: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Returns how far an interval reaches below and above the prediction (N); both are positive."""
    least = np.maximum(SMALLEST_REACH * (high - low), np.finfo(np.float64).tiny)
    return np.maximum(predicted - low, least), np.maximum(high - predicted, least)


@documented
class AveragingClassifier(WithClasses, ClassifierMixin, Averaging):
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
    _saved = (*Averaging._saved, "_plain_classes")

    @finite_answer
    def predict_proba(self, X: Any) -> Floats:
        """Returns the probability of each class for each row, in the order of ``classes_``."""
        return self._average(self._answers(self._codes(X), "predict_proba"))

    def predict_log_proba(self, X: Any) -> Floats:
        """Returns the log probability of each class for each row."""
        with np.errstate(divide="ignore"):  # a probability may be zero
            logs: Floats = np.log(self.predict_proba(X))
        return logs

    def _read_target(self, y: Any, n_rows: int) -> npt.NDArray[Any]:
        codes: npt.NDArray[Any] = self._read_class_codes(y, n_rows).numpy()
        return codes

    def _stratify(self, target: npt.NDArray[Any]) -> bool:
        return int(np.bincount(target).min()) >= self.n_splits

    def _questions(self, member: Any, codes: Floats, truth: npt.NDArray[Any]) -> Floats:
        every = np.zeros((len(codes), len(self.classes_)))  # training rows may lack a class
        every[:, member.classes_] = member.predict_proba(codes)
        found: Floats = every[np.arange(len(truth)), truth].clip(SMALLEST_PROBABILITY)
        return found[None]

    def _weigh(self, answers: Floats, truth: npt.NDArray[Any]) -> Floats:
        return weigh_classes(answers[:, 0])

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        super()._restore(state)
        for name, member in zip(self.weights_, self.members_, strict=True):
            if len(member.classes_) != len(self.classes_):
                raise ValueError(f"member {name!r:.60} does not have the {len(self.classes_)} classes")
