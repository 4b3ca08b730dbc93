"""The base class of the classifier and the regressor with a circuit: reading, training and saving."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from torch import Tensor

from halfseen._random import torch_generator
from halfseen._threads import task_threads
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.margin_choice import choose_margin
from halfseen.estimators._circuit_fit import CircuitSettings
from halfseen.estimators._holdout import split_rows
from halfseen.estimators._parameters import check_number
from halfseen.estimators._table import TableEstimator, rows_at_once
from halfseen.estimators._targets import read_weights
from halfseen.estimators._transaction import all_or_nothing
from halfseen.models.circuits.circuit import Circuit
from halfseen.models.tabular_circuit import circuit_state
from halfseen.objectives.circuits import LabelledRows
from halfseen.training.loop import fit_module
from halfseen.training.progress import Progress


@dataclass(eq=False, repr=False)
class CircuitPredictor(TableEstimator):
    """Reads tables and targets, trains a circuit, and predicts in chunks.

    A subclass reads its targets (`_read_target`), makes the circuit (`_start`) and the objective
    (`_objective`), and rebuilds the circuit (`_restore`).
    """

    n_leaves: int = 32
    n_channels: int | Sequence[int] = 64
    _: KW_ONLY
    structure: str = "tree"
    n_trees: int = 1
    beta: float = 0.1
    max_dropped: float = 0.5
    max_epochs: int = 100
    batch_size: int = 512
    learning_rate: float = 0.03
    patience: int = 10
    validation_fraction: float = 0.1
    callback: Callable[[Progress], None] | None = None
    schema: Any = None
    random_state: Any = None

    @all_or_nothing
    @task_threads()
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Trains the circuit on the observed cells and the known targets.

        Parameters
        ----------
        X : pandas, polars or pyarrow table, or array-like of shape (n_samples, n_features)
            Missing cells are None, NaN, NaT, NA or null.
        y : array-like of shape (n_samples,), or (n_samples, n_targets) for a regressor
            The targets; None or NaN where they are not known. Rows without a target contribute to the joint
            distribution of the inputs.
        sample_weight : array-like of shape (n_samples,), optional
            Relative weights of the rows: doubling all weights changes nothing. Rows with zero weight are used
            for schema inference only.
        """
        check_number("beta", self.beta, lambda v: 0 <= v < float("inf"), "at least 0 and finite")
        check_number("max_dropped", self.max_dropped, lambda v: 0 <= v <= 1, "between 0 and 1")
        read = self._read(X, reset=True)
        if not self._modelled:
            raise self._nothing_to_learn(read.table.n_rows)
        weights = read_weights(sample_weight, read.table.n_rows)
        target = self._read_target(y, read.table.n_rows)
        counted = weights > 0
        codes, target = read.codes[counted], target[counted]
        settings = CircuitSettings.of(self, len(codes))
        generator = torch_generator(self.seed_)
        self._features = FeatureMap.fit(self._modelled, codes, all_indicators=True, choose=choose_margin)
        rows = self._rows(self._features.encode(codes), target, weights[counted])
        train, held = split_rows(rows, self.validation_fraction, generator)
        circuit = self._start(settings, codes, train, generator)
        self.history_ = fit_module(
            circuit,
            self._objective(circuit),
            train,
            generator=generator,
            validation=held,
            settings=settings.training,
            callback=self.callback,
        )
        self.circuit_ = circuit.double().requires_grad_(False)
        self._judge(held, generator)
        return self

    def _judge(self, held: LabelledRows | None, generator: torch.Generator) -> None:
        """Learns what a subclass needs from held-out rows; does nothing by default."""

    def _read_target(self, y: Any, n_rows: int) -> Any:
        """Returns targets (N) or (N, T) that can be indexed by rows."""
        raise NotImplementedError

    def _rows(self, batch: Incomplete, target: Any, weight: Tensor) -> LabelledRows:
        """Returns what the circuit is trained on, in single precision."""
        raise NotImplementedError

    def _start(
        self, settings: CircuitSettings, codes: Incomplete, train: LabelledRows, generator: torch.Generator
    ) -> Circuit:
        raise NotImplementedError

    def _objective(self, circuit: Circuit) -> Any:
        raise NotImplementedError

    @task_threads()
    @torch.no_grad()
    def _answers(self, X: Any, answer: Callable[[Incomplete], Tensor], width: int = 1) -> Tensor:
        """Returns `answer` for the features (N, D) of a table, computed in chunks."""
        codes = self._read(X, reset=False).codes
        found = [answer(self._features.encode(part)) for part in codes.chunks(self._rows_at_once(width))]
        return torch.cat(found or [answer(self._features.encode(codes))])

    def _rows_at_once(self, width: int) -> int:
        """Returns how many rows fit into the memory that is planned, `width` times what scores need."""
        size = max(len(self.circuit_.leaves.theta), self.circuit_.root.logits.shape[1])
        return rows_at_once(self._features.n_features * size * width)

    def _state(self) -> dict[str, Tensor]:
        return self._features.state() | circuit_state(self.circuit_)

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        self._features = FeatureMap.from_state(self._modelled, state, all_indicators=True)
