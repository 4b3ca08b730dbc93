"""The base class of the NeuMiss regressor and classifier: parameters, reading and saving."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from halfseen._random import torch_generator
from halfseen._threads import task_threads
from halfseen.data.features import FeatureMap
from halfseen.estimators._em_settings import check_ridge, em_settings
from halfseen.estimators._holdout import split_rows
from halfseen.estimators._parameters import check_training, check_whole
from halfseen.estimators._table import TableEstimator, rows_at_once
from halfseen.estimators._targets import read_weights
from halfseen.estimators._transaction import all_or_nothing
from halfseen.models.neumiss import NeuMissModel
from halfseen.training.em_self_masked import OFFERED
from halfseen.training.loop import TrainingSettings
from halfseen.training.neumiss import AUTO, NeuMissSettings, PredictionTask, SupervisedRows, fit_neumiss
from halfseen.training.progress import Progress
from halfseen.vocabulary import check_missingness

HEADS = ("auto", "linear", "mlp")
WEIGHT_DECAY = 1e-2


@dataclass(eq=False, repr=False, kw_only=True)
class NeuMissBase(TableEstimator):
    """Reads tables and targets, fits a `NeuMissModel`, and predicts with it in chunks.

    A subclass turns its targets into tensors (`_read_targets`).
    """

    _saved: ClassVar[tuple[str, ...]] = ("missingness_", "validation_errors_")
    _unbounded = ("bounds",)

    missingness: str = AUTO
    head: str = "auto"
    n_networks: int = 4
    width: int = 128
    max_epochs: int = 200
    batch_size: int = 256
    learning_rate: float = 1e-3
    patience: int = 8
    validation_fraction: float = 0.2
    ridge: float | str = "auto"
    callback: Callable[[Progress], None] | None = None
    schema: Any = None
    random_state: Any = None

    @all_or_nothing
    @task_threads()
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fits the joint Gaussian, chooses the model of missingness, and trains the networks.

        Parameters
        ----------
        X : pandas, polars or pyarrow table, or array-like of shape (n_samples, n_features)
            Missing cells are None, NaN, NaT, NA or null.
        y : array-like of shape (n_samples,), or (n_samples, n_targets) for a regressor
            The targets, without missing values.
        sample_weight : array-like of shape (n_samples,), optional
            Relative weights of the rows: doubling all weights changes nothing. Rows with zero weight are used
            for schema inference only.
        """
        self._check_parameters()
        read = self._read(X, reset=True)
        n_rows = read.table.n_rows
        weights = read_weights(sample_weight, n_rows)
        counted = weights > 0
        joint, target, task = self._read_targets(y, n_rows, counted)
        codes = read.codes if bool(counted.all()) else read.codes[counted]
        generator = torch_generator(self.seed_)
        features, batch = FeatureMap.fit_encoded(self._modelled, codes, all_indicators=False)
        rows = SupervisedRows(batch, joint, target, weights[counted])
        settings = self._settings(rows, generator)
        train, held = split_rows(rows, self.validation_fraction, generator)
        del read, codes, batch, rows  # all rows are in train and held
        fit = fit_neumiss(
            train,
            held,
            task,
            settings,
            may_hide=_may_hide(features),
            n_numbers=len(features.numeric),
            generator=generator,
            callback=self.callback,
        )
        self._features = features
        self.missingness_, self.validation_errors_ = fit.missingness, fit.validation_errors
        self.history_, self.model_ = fit.history, fit.model
        return self

    @property
    def head_weight_(self) -> float:
        """The weight of the networks' correction, chosen on held-out rows."""
        return self.model_.calibration.head_weight

    @task_threads()
    def _predict(self, X: Any) -> tuple[Tensor, Tensor]:
        """Returns the prediction (N, T) for each row of a table, and its scale."""
        codes = self._read(X, reset=False).codes
        size = rows_at_once(len(self.model_.first.joint.loc))
        parts = [
            self.model_.predict(self._features.encode(part)) for part in [*codes.chunks(size)] or [codes]
        ]
        answers, spreads = zip(*parts, strict=True)
        return torch.cat(answers), torch.cat(spreads)

    def _read_targets(self, y: Any, n_rows: int, counted: Tensor) -> tuple[Tensor, Tensor, PredictionTask]:
        """Returns targets for the joint Gaussian (N, J), the targets, and the task, of rows with weight."""
        raise NotImplementedError(f"{type(self).__name__} must implement `_read_targets`.")

    def _settings(self, rows: SupervisedRows, generator: torch.Generator) -> NeuMissSettings:
        training = TrainingSettings(
            max_epochs=self.max_epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            patience=self.patience,
            weight_decay=WEIGHT_DECAY,
        )
        em = em_settings(rows.joined, self.ridge, 200, 2e-5, generator)
        return NeuMissSettings(self.missingness, self.head, self.n_networks, self.width, em, training)

    def _check_parameters(self) -> None:
        check_missingness(self.missingness, (AUTO, *OFFERED))
        if self.head not in HEADS:
            raise ValueError(f"head must be one of {', '.join(HEADS)}, got {self.head!r}.")
        for name, lowest in {"n_networks": 1, "width": 1, "batch_size": 1, "max_epochs": 0}.items():
            check_whole(name, getattr(self, name), lowest)
        check_training(self)
        check_ridge(self.ridge)

    def _state(self) -> dict[str, Tensor]:
        return self._features.state() | self.model_.state()

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        self._features = FeatureMap.from_state(self._modelled, state, all_indicators=False)
        self.model_ = NeuMissModel.from_state(state)


def _may_hide(features: FeatureMap) -> Tensor:
    """Returns (D): the features that are numbers, neither ordered levels nor indicators."""
    numbers = [c not in features.ordinal for c in features.numeric]
    return torch.tensor(numbers + [False] * (features.n_features - len(numbers)), dtype=torch.bool)
