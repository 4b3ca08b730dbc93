"""The base classes of estimators that train one network on a table."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import ClassifierMixin
from torch import Tensor

from halfseen._random import torch_generator
from halfseen._threads import task_threads
from halfseen.base.capabilities import Capabilities
from halfseen.base.conformal import HeldOutErrors
from halfseen.base.model_file import finite_answer
from halfseen.base.parameters import (
    all_or_nothing,
    check_level,
    check_number,
    check_training,
    check_whole,
)
from halfseen.base.table import ScaledTargetRegressor, TableEstimator, map_pieces, rows_at_once
from halfseen.base.targets import WithClasses, read_numbers, read_weights
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete, Standardizer
from halfseen.nn.weights import load_module, module_state, module_weights
from halfseen.training.holdout import split_rows
from halfseen.training.loop import TrainingSettings, fit_module
from halfseen.training.supervised import CrossEntropy, Labelled, SquaredError

NETWORK_DESCRIPTIONS = {
    "batch_size": (
        'int or "auto"',
        'Rows per training step. ``"auto"`` makes about 20 batches of 16 to 512 rows per epoch.',
    ),
    "validation_fraction": (
        "float",
        "The fraction of rows held out to choose the best epoch and to calibrate intervals. Tables with "
        "fewer than 50 rows hold out none.",
    ),
}

GRADIENT_CLIP = 1.0
MIN_IMPROVEMENT = 1e-5
BATCHES, SMALLEST_BATCH, LARGEST_BATCH = 20, 16, 512  # batches per epoch, and their sizes, if "auto"


class NetworkBase(TableEstimator):
    """Reads tables, trains a network by the one training loop, and predicts in chunks.

    A subclass has the parameters of the training, builds its network (`_build`, with `reset_parameters`) and
    counts the weights of its largest layer (`_n_weights`). `NetworkRegressor` and `NetworkClassifier` read
    the targets.
    """

    _saved: ClassVar[tuple[str, ...]] = ("_n_outputs",)
    _objective: ClassVar[SquaredError | CrossEntropy]
    max_epochs: int
    batch_size: int | str
    learning_rate: float
    weight_decay: float
    patience: int
    validation_fraction: float
    callback: Any

    @property
    def capabilities(self) -> Capabilities:
        """What the estimator can do with the parameters that it has."""
        return replace(super().capabilities, holds_out_rows=True, trains_in_epochs=True)

    @all_or_nothing
    @task_threads()
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Trains the network; held-out rows choose the epoch whose weights are kept.

        Parameters
        ----------
        X : pandas, polars or pyarrow table, or array-like of shape (n_samples, n_features)
            Missing cells are None, NaN, NaT, NA or null.
        y : array-like of shape (n_samples,), or (n_samples, n_targets) for a regressor
            The targets, without missing values.
        sample_weight : array-like of shape (n_samples,), optional
            Relative weights of the rows.
        """
        self._check_parameters()
        read = self._read(X, reset=True)
        weights = read_weights(sample_weight, read.table.n_rows)
        counted = weights > 0
        target = self._read_targets(y, read.table.n_rows, counted)
        codes = read.codes[counted]
        generator = torch_generator(self.seed_)
        self._features = FeatureMap.fit(self._modelled, codes, all_indicators=False)
        batch = self._features.encode(codes).to(torch.float32)
        if batch.n_features == 0:
            raise self._nothing_to_learn(len(batch))
        rows = Labelled(batch, target, weights[counted].float())
        train, held = split_rows(rows, self.validation_fraction, generator)
        module = self._build()
        self._initialise(module, train.rows, generator)
        self.history_ = fit_module(
            module,
            self._loss(),
            self._weighted(train),
            generator=generator,
            validation=None if held is None else self._weighted(held),
            settings=self._settings(len(train)),
            callback=self.callback,
        )
        # In double precision a prediction does not depend on its batch.
        self.module_ = module.double().requires_grad_(False)
        self._use_held_out(train if held is None else held)
        return self

    def _use_held_out(self, rows: Labelled[Incomplete]) -> None:
        """Learns what a subclass needs from held-out rows; does nothing by default."""

    @task_threads()
    @torch.no_grad()
    def _outputs(self, X: Any) -> Tensor:
        """Returns the outputs (N, T) of the network for each row of a table."""
        codes = self._read(X, reset=False).codes
        size = rows_at_once(len(self.schema_), self._features.n_features + self._n_outputs)
        return torch.cat(map_pieces(lambda part: self.module_(self._features.encode(part)), codes, size))

    def _read_targets(self, y: Any, n_rows: int, counted: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} must implement `_read_targets`.")

    def _build(self) -> Any:
        """Returns the network, with weights that are not drawn yet."""
        raise NotImplementedError(f"{type(self).__name__} must implement `_build`.")

    def _n_weights(self) -> int:
        """Returns the fewest weights that the largest layer of a saved network must have."""
        raise NotImplementedError(f"{type(self).__name__} must implement `_n_weights`.")

    def _initialise(self, module: Any, rows: Incomplete, generator: torch.Generator) -> None:
        """Draws the weights, and sets the statistics of the inputs that the network needs."""
        module.reset_parameters(generator)

    def _loss(self) -> Any:
        """Returns the objective of the training."""
        return self._objective

    def _weighted(self, rows: Labelled[Incomplete]) -> Labelled[Incomplete]:
        """Returns rows with the weights that they have in the training."""
        return rows

    def _settings(self, n_rows: int) -> TrainingSettings:
        fitting = min(LARGEST_BATCH, max(SMALLEST_BATCH, n_rows // BATCHES))
        return TrainingSettings.of(
            self,
            batch_size=fitting if self.batch_size == "auto" else int(self.batch_size),
            schedule="cosine",
            weight_decay=self.weight_decay,
            gradient_clip=GRADIENT_CLIP,
            min_improvement=MIN_IMPROVEMENT,
        )

    def _check_training(self) -> None:
        check_whole("max_epochs", self.max_epochs, 0)
        check_whole("batch_size", self.batch_size, 1, auto=True)
        check_number("weight_decay", self.weight_decay, lambda v: 0 <= v < np.inf, "a number of at least 0")
        check_training(self)

    def _check_parameters(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not check its parameters.")

    def _state(self) -> dict[str, Tensor]:
        return self._features.state() | module_state(self.module_)

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        self._features = FeatureMap.from_state(self._modelled, state, all_indicators=False)
        largest = max((value.numel() for value in module_weights(state).values()), default=0)
        if self._n_weights() > largest:
            raise ValueError(f"a network of {self._n_weights()} weights does not fit the saved weights.")
        self.module_ = load_module(self._build().double(), state)


class NetworkRegressor(ScaledTargetRegressor, NetworkBase):
    """A network with standardised targets and intervals from held-out errors."""

    _saved = (*NetworkBase._saved, "_one_dimensional", "_n_errors")
    _objective = SquaredError()

    @finite_answer
    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the predicted target of each row."""
        outputs = self._outputs(X)
        return self._shaped(self._target_scaler.inverse(outputs))

    @finite_answer
    def predict_interval(
        self, X: Any, level: float = 0.9
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Returns the ends of an interval that contains the target of each row with probability `level`.

        All intervals have the same width, given by a quantile of the absolute errors of held-out rows.
        Without held-out rows the errors of the training rows are used, and the intervals are too narrow.
        """
        check_level(level)
        outputs = self._outputs(X)
        half = self._errors.half_width(level)
        low, high = (self._target_scaler.inverse(outputs + sign * half) for sign in (-1, 1))
        return self._shaped(low), self._shaped(high)

    @torch.no_grad()
    def _use_held_out(self, rows: Labelled[Incomplete]) -> None:
        errors = self.module_(rows.rows.to(torch.float64)) - rows.target
        self._errors = HeldOutErrors.of(errors, rows.weight)
        self._n_errors = self._errors.n_rows

    def _read_targets(self, y: Any, n_rows: int, counted: Tensor) -> Tensor:
        numbers, self._one_dimensional = read_numbers(y, n_rows, self)
        numbers = numbers[counted]
        self._n_outputs = numbers.shape[1]
        complete = Incomplete(numbers, torch.ones_like(numbers, dtype=torch.bool))
        self._target_scaler = Standardizer.fit(complete)
        return self._target_scaler.forward(numbers).float()

    def _state(self) -> dict[str, Tensor]:
        return super()._state() | {"target.errors": self._errors.quantiles}

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        super()._restore(state)
        self._errors = HeldOutErrors(state["target.errors"], self._n_errors)


class NetworkClassifier(WithClasses, ClassifierMixin, NetworkBase):
    """A network with one logit per class."""

    _saved = (*NetworkBase._saved, "_plain_classes")
    _objective = CrossEntropy()

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Returns the most probable class of each row."""
        return self._labels_of(self._outputs(X).numpy())

    @finite_answer
    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the probability of each class for each row, in the order of ``classes_``."""
        probabilities: npt.NDArray[np.float64] = self._outputs(X).softmax(dim=1).numpy()
        return probabilities

    def predict_log_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the log probability of each class for each row."""
        logs: npt.NDArray[np.float64] = self._outputs(X).log_softmax(dim=1).numpy()
        return logs

    def _read_targets(self, y: Any, n_rows: int, counted: Tensor) -> Tensor:
        codes = self._read_class_codes(y, n_rows)
        self._n_outputs = len(self.classes_)
        return codes[counted]
