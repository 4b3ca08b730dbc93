"""Estimators that train one network on a table."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from halfseen._threads import task_threads
from halfseen.base.capabilities import Capabilities
from halfseen.base.parameters import (
    TARGETS,
    Descriptions,
    TrainingParameters,
    TypesAndTexts,
    check_number,
    check_training,
    check_whole,
    documented_fit,
)
from halfseen.base.predictor import HeldOutErrors, Steps, fit_predictor
from halfseen.base.table import TableEstimator, map_pieces, rows_at_once
from halfseen.base.targets import Fitted, WithClasses
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.nn.weights import load_module, module_state, module_weights
from halfseen.training.loop import TrainingSettings, fit_module
from halfseen.training.supervised import CrossEntropy, Labelled, SquaredError

NETWORK_DESCRIPTIONS: Descriptions = {
    "batch_size": (
        'int or "auto"',
        'Rows per training step. ``"auto"`` makes about 20 batches of 16 to 512 rows per epoch.',
    ),
    "validation_fraction": (
        "The fraction of rows held out to choose the best epoch and to calibrate intervals. Tables with "
        "fewer than 50 rows hold out none."
    ),
}

MODULE: TypesAndTexts = {
    "module_": ("torch module", "The trained network, on standardised features."),
    "history_": ("History", "The loss after each epoch, and the reason why training stopped."),
}
"""The fitted attributes of every predictor that trains a network."""

GRADIENT_CLIP = 1.0
MIN_IMPROVEMENT = 1e-5
BATCHES, SMALLEST_BATCH, LARGEST_BATCH = 20, 16, 512  # batches per epoch, and their sizes, if "auto"


class Architecture(Protocol):
    """The network of an estimator: a dataclass whose fields are parameters of the estimator."""

    def check(self) -> None:
        """Raises a ValueError if a parameter is out of range."""
        ...

    def build(self, n_features: int, n_outputs: int) -> Any:
        """Returns the network, with weights that are not drawn yet."""
        ...

    def n_weights(self, n_features: int, n_outputs: int) -> int:
        """Returns the fewest weights that the largest layer of a saved network must have."""
        ...

    def initialise(self, module: Any, rows: Incomplete, generator: torch.Generator) -> None:
        """Draws the weights, and sets the statistics of the inputs that the network needs."""
        ...

    def objective(self, loss: SquaredError | CrossEntropy) -> Any:
        """Returns the objective of the training, for a loss of predictions."""
        ...


@dataclass(eq=False, repr=False, kw_only=True)
class NetworkBase(TrainingParameters, TableEstimator):
    """Trains the network of an architecture by the one training loop, and predicts in chunks.

    A subclass also is a `ScaledTargetRegressor`, whose intervals come from held-out errors, or `WithClasses`,
    with one logit per class.
    """

    _saved: ClassVar[tuple[str, ...]] = ("_n_outputs",)
    _architecture: ClassVar[type[Any]]

    max_epochs: int = 100
    batch_size: int | str = "auto"
    learning_rate: float = 1e-2
    weight_decay: float = 0.1
    validation_fraction: float = 0.2

    module_: Any = field(init=False)  # fitted attributes are no parameters
    _n_outputs: int = field(init=False)

    @property
    def capabilities(self) -> Capabilities:
        """What the estimator can do with the parameters that it has."""
        return replace(super().capabilities, holds_out_rows=True, trains_in_epochs=True)

    @documented_fit(y=TARGETS)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Trains the network; held-out rows choose the epoch whose weights are kept."""
        self._network.check()
        check_whole("max_epochs", self.max_epochs, 0)
        check_whole("batch_size", self.batch_size, 1, auto=True)
        check_number("weight_decay", self.weight_decay, lambda v: 0 <= v < np.inf, "a number of at least 0")
        check_training(self)
        steps = Steps(features=self._encode_rows, learn=self._train, calibrate=self._calibrate)
        return fit_predictor(self, steps, X, y, sample_weight)

    @property
    def _network(self) -> Architecture:
        """The architecture with the parameters of the estimator."""
        network: Architecture = self._architecture(
            **{one.name: getattr(self, one.name) for one in fields(self._architecture)}
        )
        return network

    def _encode_rows(
        self, codes: Incomplete, target: Tensor, weights: Tensor
    ) -> tuple[Labelled[Incomplete], Fitted]:
        features = FeatureMap.fit(self._modelled, codes, all_indicators=False)
        batch = features.encode(codes).to(torch.float32)
        if isinstance(self, WithClasses):
            n_outputs = len(self.classes_)
        else:
            n_outputs, target = target.shape[1], target.float()
        rows = Labelled(batch, target, weights.float())
        return rows, {"_features": features, "_n_outputs": n_outputs}

    def _train(
        self,
        train: Labelled[Incomplete],
        held: Labelled[Incomplete] | None,
        plan: None,
        generator: torch.Generator,
    ) -> Fitted:
        module = self._build()
        self._network.initialise(module, train.rows, generator)
        loss = CrossEntropy() if isinstance(self, WithClasses) else SquaredError()
        history = fit_module(
            module,
            self._network.objective(loss),
            self._weighted(train),
            generator=generator,
            validation=None if held is None else self._weighted(held),
            settings=self._settings(len(train)),
            callback=self.callback,
        )
        # In double precision a prediction does not depend on its batch.
        return {"history_": history, "module_": module.double().requires_grad_(False)}

    @torch.no_grad()
    def _calibrate(
        self, train: Labelled[Incomplete], held: Labelled[Incomplete] | None, generator: torch.Generator
    ) -> Fitted:
        rows = train if held is None else held
        return self._calibrated(self.module_(rows.rows.to(torch.float64)), rows)

    def _calibrated(self, outputs: Tensor, rows: Labelled[Incomplete]) -> Fitted:
        """Returns what is learned from the outputs (N, T) for rows that were held out."""
        if isinstance(self, WithClasses):
            return {}
        errors = HeldOutErrors.of(outputs - rows.target, rows.weight)
        return {"_errors": errors, "_n_errors": errors.n_rows}

    @task_threads()
    @torch.no_grad()
    def _outputs(self, X: Any) -> Tensor:
        """Returns the outputs (N, T) of the network for each row of a table."""
        codes = self._read(X, reset=False).codes
        size = rows_at_once(len(self.schema_), self._features.n_features + self._n_outputs)
        return torch.cat(map_pieces(lambda part: self.module_(self._features.encode(part)), codes, size))

    def _logits(self, X: Any) -> Tensor:
        return self._outputs(X)

    def _moments(self, X: Any) -> tuple[Tensor, Tensor]:
        return self._outputs(X), torch.ones((), dtype=torch.float64)

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

    def _build(self) -> Any:
        return self._network.build(self._features.n_features, self._n_outputs)

    def _state(self) -> dict[str, Tensor]:
        return self._features.state() | module_state(self.module_)

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        self._features = FeatureMap.from_state(self._modelled, state, all_indicators=False)
        n_targets, what = (
            (len(self.classes_), "classes")
            if isinstance(self, WithClasses)
            else (len(self._target_scaler.loc), "targets")
        )
        if n_targets != self._n_outputs:
            raise ValueError(f"there are {self._n_outputs} outputs for {n_targets} {what}")
        largest = max((value.numel() for value in module_weights(state).values()), default=0)
        n_weights = self._network.n_weights(self._features.n_features, self._n_outputs)
        if n_weights > largest:
            raise ValueError(f"a network of {n_weights} weights does not fit the saved weights.")
        self.module_ = load_module(self._build().double(), state)
