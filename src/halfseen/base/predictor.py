"""How every predictor of tables is fitted, and what regressors share: intervals by errors of held-out rows.

`fit_predictor` is the one order of steps: read the table and the target, learn the features, hold out rows,
learn the model, calibrate it. A predictor passes the functions in which it differs as `Steps`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import ndtri
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from halfseen._random import torch_generator
from halfseen._threads import task_threads
from halfseen.base.capabilities import Capabilities
from halfseen.base.parameters import TrainingParameters, all_or_nothing, check_level, finite_answer
from halfseen.base.table import TableEstimator
from halfseen.base.targets import Fitted, read_number_column, read_numbers, read_weights
from halfseen.data.incomplete import Incomplete, Standardizer
from halfseen.distributions.quantiles import lower_quantiles
from halfseen.training.loop import split_rows
from halfseen.training.supervised import Labelled

EstimatorT = TypeVar("EstimatorT", bound=TableEstimator)

HELD_OUT = 0.2  # fraction of the rows by whose errors the width of intervals is chosen; a guess
N_QUANTILES = 1000  # stored of the errors; a guess: levels are then exact to 0.1%, and model files stay small


def _no_plan(codes: Incomplete, rows: Any, generator: torch.Generator) -> None:
    return None


def _not_calibrated(train: Any, held: Any, generator: torch.Generator) -> Fitted:
    return {}


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The steps of `fit` in which predictors differ: functions that return what they find, and set nothing.

    `fit_predictor` calls them in this order and sets the fitted attributes, a dict by name, that they return.
    So a step can use the attributes of the steps before it.
    """

    # From codes, targets and weights of rows, to the rows that the model is fitted to and attributes.
    features: Callable[[Incomplete, Any, Tensor], tuple[Any, Fitted]]
    # From codes, rows and the generator, to what must be decided from all rows, before some are held out.
    plan: Callable[[Incomplete, Any, torch.Generator], Any] = _no_plan
    held_out: float = 0.0  # the fraction of the rows that is held out, without a `validation_fraction`
    # From training rows, held-out rows or None, the plan and the generator, to attributes.
    learn: Callable[[Any, Any, Any, torch.Generator], Fitted]
    # From training rows, held-out rows or None and the generator, to attributes.
    calibrate: Callable[[Any, Any, torch.Generator], Fitted] = _not_calibrated
    # Whether the model is learned once more from all rows after it was calibrated on rows that were held out.
    refit: bool = False
    needs_columns: bool = True  # whether a table without a column that can be modelled is an error


@all_or_nothing
@task_threads()
def fit_predictor(
    estimator: EstimatorT, steps: Steps, X: Any, y: Any, sample_weight: Any = None
) -> EstimatorT:
    """Fits a predictor by its steps to a table and to a target, which `_read_target` reads; returns it."""
    fitted = estimator.__dict__
    read = estimator._read(X, reset=True)
    n_rows = read.table.n_rows
    weights = read_weights(sample_weight, n_rows)
    counted = weights > 0
    target, found = estimator._read_target(y, n_rows, weights)
    fitted.update(found)
    if steps.needs_columns and not estimator._modelled:
        raise estimator._nothing_to_learn(n_rows)
    codes = read.codes if bool(counted.all()) else read.codes[counted]
    generator = torch_generator(estimator.seed_)
    rows, found = steps.features(codes, target, weights[counted])
    fitted.update(found)
    plan = steps.plan(codes, rows, generator)
    trained = isinstance(estimator, TrainingParameters)
    train, held = split_rows(rows, estimator.validation_fraction if trained else steps.held_out, generator)
    del read, codes
    every = rows if steps.refit else None
    del rows  # all rows are in train and held, and memory holds them once
    fitted.update(steps.learn(train, held, plan, generator))
    fitted.update(steps.calibrate(train, held, generator))
    if steps.refit and held is not None:
        fitted.update(steps.learn(every, None, plan, generator))
    return estimator


@dataclass(frozen=True)
class HeldOutErrors:
    """Quantiles of absolute errors, and the number of rows that they come from.

    Errors may be relative to a predicted spread; then so are the half-widths.

    Shapes
    ------
    quantiles : (Q) or (Q, T), increasing
    """

    quantiles: Tensor
    n_rows: int

    def __post_init__(self) -> None:
        if not self.quantiles.is_floating_point():
            raise ValueError(f"The errors of held-out rows have the type {self.quantiles.dtype}.")

    @classmethod
    def of(cls, errors: Tensor, weights: Tensor | None = None) -> "HeldOutErrors":
        """Returns what is kept of the errors (N) or (N, T) of held-out rows, which may have weights (N).

        Intervals then cover the target of a new row of the population that the weights describe.

        Examples
        --------
        >>> HeldOutErrors.of(torch.tensor([1.0, -3.0, 2.0])).half_width(0.25)
        tensor(2., dtype=torch.float64)
        """
        sizes = errors.abs().to(torch.float64)
        if len(sizes) == 0:
            return cls(sizes, 0)
        every = torch.ones(len(sizes), dtype=torch.float64) if weights is None else weights.double()
        levels = torch.linspace(0, 1, min(N_QUANTILES, len(sizes)), dtype=torch.float64)
        kept = lower_quantiles(sizes.reshape(len(sizes), -1), every, levels)
        return cls(kept.reshape(-1, *sizes.shape[1:]), len(sizes))

    def half_width(self, level: float) -> Tensor:
        """Returns half the width, () or (T), of intervals that contain the target with probability `level`.

        The rank is that of split-conformal prediction: a new row is one more than the held-out rows, so that
        the quantile is taken a little above `level`, at most at the largest error.
        """
        check_level(level)
        rank = min(1.0, level * (1 + 1 / self.n_rows))
        return torch.quantile(self.quantiles, rank, dim=0, interpolation="higher")


class ScaledTargetRegressor(RegressorMixin, TableEstimator):
    """A regressor of one or several targets, which it standardises before fitting.

    A subclass returns means and spreads of the standardised targets (N, T) of a table by `_moments`, or
    overrides both predictions.
    """

    _saved: ClassVar[tuple[str, ...]] = ("_one_dimensional", "_n_errors")
    _moments: Callable[[Any], tuple[Tensor, Tensor]]
    _target_scaler: Standardizer
    _one_dimensional: bool
    _errors: HeldOutErrors | None = None
    _n_errors: int

    @property
    def capabilities(self) -> Capabilities:
        """What the estimator can do with the parameters that it has."""
        return replace(super().capabilities, predicts="numbers")

    @finite_answer
    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the expected target of each row, given its observed inputs."""
        means, _ = self._moments(X)
        return self._shaped(self._target_scaler.inverse(means))

    @finite_answer
    def predict_interval(
        self, X: Any, level: float = 0.9
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Returns the ends of an interval that contains the target of each row with probability `level`.

        The width is the predicted spread of the row, which a network assumes to be the same for all rows,
        times a quantile of the relative errors of held-out rows; so the average coverage over new rows does
        not depend on the shape of their distribution. A network without held-out rows takes the errors of
        the training rows, and its intervals are then too narrow; other models assume a normal distribution.
        """
        check_level(level)
        means, spreads = self._moments(X)
        errors = self._relative_errors
        if errors is None or not errors.n_rows:
            factor = torch.full((means.shape[1],), float(ndtri((1 + level) / 2)), dtype=torch.float64)
        else:
            factor = errors.half_width(level)
        low, high = means - factor * spreads, means + factor * spreads
        inverse = self._target_scaler.inverse
        return self._shaped(inverse(low)), self._shaped(inverse(high))

    @property
    def _relative_errors(self) -> HeldOutErrors | None:
        """The errors of held-out rows, relative to their spreads; None if there are none."""
        return self._errors

    def _read_target(self, y: Any, n_rows: int, weights: Tensor) -> tuple[Tensor, Fitted]:
        numbers, one_dimensional = read_numbers(y, n_rows, self)
        numbers = numbers[weights > 0]
        scaler = Standardizer.fit(Incomplete(numbers, torch.ones_like(numbers, dtype=torch.bool)))
        return scaler.forward(numbers), {"_one_dimensional": one_dimensional, "_target_scaler": scaler}

    def _shaped(self, targets: Tensor) -> npt.NDArray[np.float64]:
        """Returns targets (N, T) in the shape in which they were given to `fit`."""
        array: npt.NDArray[np.float64] = targets.numpy()
        return array[:, 0] if self._one_dimensional else array

    def _state(self) -> dict[str, Tensor]:
        scaler = {"target.loc": self._target_scaler.loc, "target.scale": self._target_scaler.scale}
        errors = {} if self._errors is None else {"target.errors": self._errors.quantiles}
        return super()._state() | scaler | errors

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        self._target_scaler = Standardizer.checked(state["target.loc"], state["target.scale"])
        super()._restore(state)
        if "target.errors" in state:
            self._errors = HeldOutErrors(state["target.errors"], self._n_errors)
        errors, n_targets = self._relative_errors, len(self._target_scaler.loc)
        if errors is not None and errors.n_rows and errors.quantiles.shape[1:] != (n_targets,):
            raise ValueError(f"the errors of held-out rows are not those of {n_targets} targets")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags


class EqualWidthRegressor(RegressorMixin, TableEstimator):
    """A regressor of one number whose intervals all have the same width, by the errors of held-out rows.

    A subclass predicts the numbers (N) of training rows by `_predict_rows`.
    """

    _saved: ClassVar[tuple[str, ...]] = ("_n_errors",)
    _predict_rows: Callable[[Any], npt.NDArray[np.float64]]
    _errors: HeldOutErrors
    _n_errors: int

    @property
    def capabilities(self) -> Capabilities:
        """What the estimator can do with the parameters that it has."""
        return replace(super().capabilities, predicts="numbers")

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the predicted target of each row."""
        raise NotImplementedError

    @finite_answer
    def predict_interval(
        self, X: Any, level: float = 0.9
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Returns the ends of an interval that contains the target of each row with probability `level`.

        All intervals have the same width, given by a quantile of the absolute errors of held-out rows under a
        model that was fitted without them. They are too narrow for rows in which more values are missing than
        in training; those of `NeuMissRegressor` and `CircuitRegressor` become wider. With fewer than 50 rows
        the errors of the training rows are used, and the intervals are too narrow.
        """
        check_is_fitted(self)
        half = float(self._errors.half_width(level))
        predicted = self.predict(X)
        return predicted - half, predicted + half

    def _read_target(self, y: Any, n_rows: int, weights: Tensor) -> tuple[Tensor, Fitted]:
        return read_number_column(y, n_rows, self)[weights > 0], {}

    def _calibrate(
        self, train: Labelled[Any], held: Labelled[Any] | None, generator: torch.Generator
    ) -> Fitted:
        tested = train if held is None else held
        gaps = tested.target - torch.from_numpy(self._predict_rows(tested.rows))
        errors = HeldOutErrors.of(gaps, tested.weight)
        return {"_errors": errors, "_n_errors": errors.n_rows}

    def _state(self) -> dict[str, Tensor]:
        return super()._state() | {"errors": self._errors.quantiles}

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        super()._restore(state)
        self._errors = HeldOutErrors(state["errors"], self._n_errors)


def steps_of(
    estimator: TableEstimator,
    features: Callable[[Incomplete, Any, Tensor], tuple[Any, Fitted]],
    learn: Callable[[Any, Any, Any, torch.Generator], Fitted],
    plan: Callable[[Incomplete, Any, torch.Generator], Any] = _no_plan,
) -> Steps:
    """Returns the steps of a classifier without calibration, or of an `EqualWidthRegressor`.

    The regressor is calibrated on rows that were held out, and is then fitted to all rows.
    """
    steps = Steps(features=features, plan=plan, learn=learn)
    if not isinstance(estimator, EqualWidthRegressor):
        return steps
    return replace(steps, held_out=HELD_OUT, calibrate=estimator._calibrate, refit=True)
