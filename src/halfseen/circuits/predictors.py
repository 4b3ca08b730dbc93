"""Prediction with circuits: inputs may be missing at any time, and targets may be missing in training."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from halfseen._threads import task_threads
from halfseen.base.capabilities import Capabilities
from halfseen.base.parameters import SEVERAL, check_level, check_number, documented_fit, finite_answer
from halfseen.base.predictor import ScaledTargetRegressor, Steps, fit_predictor
from halfseen.base.table import TableEstimator, map_pieces, rows_at_once
from halfseen.base.targets import Fitted, WithClasses, read_partial_classes, read_partial_numbers
from halfseen.circuits.circuit import Circuit
from halfseen.circuits.evidence import (
    EvidenceWeight,
    fit_evidence_weight,
    information_gain,
    observed_fraction,
)
from halfseen.circuits.fitting import CircuitParameters, CircuitSettings, documented
from halfseen.circuits.imputer import MIN_STD, circuit_from_state, circuit_state, column_likelihood
from halfseen.circuits.initialisation import resemble_rows, spread_leaves
from halfseen.circuits.objectives import UNKNOWN, ConditionalLikelihood, HybridLikelihood, LabelledRows
from halfseen.circuits.structure import Structure
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete, Standardizer
from halfseen.data.margin_choice import choose_margin
from halfseen.distributions.leaves import GaussianLeaf
from halfseen.distributions.observation_model import ObservationModel
from halfseen.training.loop import fit_module
from halfseen.training.supervised import Labelled

UNKNOWN_TARGETS = (
    "The targets; None or NaN where they are not known. Rows without a target contribute to the joint "
    "distribution of the inputs."
)
Plan = tuple[CircuitSettings, Structure]


@dataclass(eq=False, repr=False, kw_only=True)
class CircuitPredictor(CircuitParameters, TableEstimator):
    """Reads tables and targets, trains a circuit, and predicts in chunks.

    A subclass reads its targets (`_read_target`), lays out the circuit (`_plan`), makes it (`_start`) and its
    objective (`_objective`), and rebuilds it (`_restore`).
    """

    beta: float = 0.1
    max_dropped: float = 0.5

    circuit_: Circuit = field(init=False)  # a fitted attribute, no parameter

    @property
    def capabilities(self) -> Capabilities:
        """What the estimator can do with the parameters that it has."""
        return replace(super().capabilities, holds_out_rows=True, trains_in_epochs=True)

    @documented_fit(y=(SEVERAL, UNKNOWN_TARGETS))
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Trains the circuit on the observed cells and the known targets."""
        check_number("beta", self.beta, lambda v: 0 <= v < float("inf"), "at least 0 and finite")
        check_number("max_dropped", self.max_dropped, lambda v: 0 <= v <= 1, "between 0 and 1")
        steps = Steps(
            features=self._encode_rows,
            plan=self._plan,
            learn=self._train,
            calibrate=self._calibrate,
        )
        return fit_predictor(self, steps, X, y, sample_weight)

    def _encode_rows(self, codes: Incomplete, target: Any, weights: Tensor) -> tuple[LabelledRows, Fitted]:
        features = FeatureMap.fit(self._modelled, codes, all_indicators=True, choose=choose_margin)
        rows = self._rows(features.encode(codes), target, weights)
        return rows, {"_features": features}

    def _rows(self, batch: Incomplete, target: Any, weight: Tensor) -> LabelledRows:
        """Returns what the circuit is trained on, in single precision."""
        raise NotImplementedError

    def _plan(self, codes: Incomplete, rows: LabelledRows, generator: torch.Generator) -> Plan:
        """Returns the settings, and the structure of the circuit, which all rows decide."""
        raise NotImplementedError

    def _train(
        self, train: LabelledRows, held: LabelledRows | None, plan: Plan, generator: torch.Generator
    ) -> Fitted:
        settings, structure = plan
        circuit = self._start(structure, train, generator)
        history = fit_module(
            circuit,
            self._objective(circuit),
            train,
            generator=generator,
            validation=held,
            settings=settings.training,
            callback=self.callback,
        )
        return {"history_": history, "circuit_": circuit.double().requires_grad_(False)}

    def _calibrate(
        self, train: LabelledRows, held: LabelledRows | None, generator: torch.Generator
    ) -> Fitted:
        """Learns nothing; a classifier learns how far its scores can be trusted."""
        return {}

    def _start(self, structure: Structure, train: LabelledRows, generator: torch.Generator) -> Circuit:
        """Returns the circuit before its training."""
        raise NotImplementedError

    def _objective(self, circuit: Circuit) -> Any:
        raise NotImplementedError

    @task_threads()
    @torch.no_grad()
    def _map_rows(self, X: Any, function: Callable[[Incomplete], Tensor], width: int = 1) -> Tensor:
        """Returns the values of a function of the features (N, D) of a table, computed in chunks."""
        codes = self._read(X, reset=False).codes
        size = self._rows_at_once(width)
        return torch.cat(map_pieces(lambda part: function(self._features.encode(part)), codes, size))

    def _rows_at_once(self, width: int) -> int:
        """Returns how many rows fit into the memory that is planned, `width` times what scores need."""
        size = max(len(self.circuit_.leaves.theta), self.circuit_.root.logits.shape[1])
        return rows_at_once(len(self.schema_), self._features.n_features * size * width)

    def _state(self) -> dict[str, Tensor]:
        return self._features.state() | circuit_state(self.circuit_)

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        self._features = FeatureMap.from_state(self._modelled, state, all_indicators=True)


@documented
@dataclass(eq=False, repr=False)
class CircuitClassifier(WithClasses, ClassifierMixin, CircuitPredictor):
    r"""Classification with a probabilistic circuit, exact for every pattern of missing inputs.

    Any subset of the inputs may be missing, in training and in prediction, and so may labels in training. The
    circuit is a density of the inputs for each class,

    .. math:: p(y \mid x_o) \propto \pi_y \int p(x \mid y) \, dx_m

    and the integral over missing inputs is computed exactly, by one pass through the circuit. The circuit is
    trained mainly to predict the class, and to a lesser extent to model the distribution of the inputs
    (`beta`). Then the probabilities are calibrated: the log-likelihood of the inputs of a row is multiplied
    by a weight that depends on the fraction of observed inputs. The weight is chosen on held-out rows from
    which inputs are removed at random. Inputs are assumed to be missing at random (MAR).

    Attributes
    ----------
    circuit_ : Circuit
        The fitted circuit; ``print(circuit_.structure)`` shows its levels.
    evidence_weight_ : EvidenceWeight
        The weight of the log-likelihood for complete rows, and its limit as fewer and fewer inputs are
        observed. A weight is below 1 where the circuit itself is overconfident. Both are 1 if fewer than 30
        rows with a known class were held out; the probabilities are then those of the circuit.
    history_ : History
        The loss after each epoch, and why training stopped.

    References
    ----------
    Sharir, Tamari, Cohen & Shashua (2018), Tensorial mixture models; here over columns, with a tree.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 2))
    >>> y = X[:, 0] * X[:, 1] > 0
    >>> model = CircuitClassifier(n_leaves=8, n_channels=8, max_epochs=20, random_state=0).fit(X, y)
    >>> model.predict([[2.0, 2.0], [-2.0, 2.0]])
    array([ True, False])
    >>> bool(model.predict_proba([[2.0, np.nan]]).max() < 0.7)  # the sign of the other input decides
    True
    """

    n_channels: int | Sequence[int] = (64, 128, 256, 512)
    _: KW_ONLY
    noise: float = 0.15
    class_weight: Any = None

    evidence_weight_: EvidenceWeight = field(init=False)  # a fitted attribute, no parameter

    @property
    def capabilities(self) -> Capabilities:
        """What the estimator can do with the parameters that it has."""
        return replace(super().capabilities, information_gain=True)

    def information_gain(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the expected information gain about the class from measuring each missing input.

        This is the mutual information between the class and the input, given the observed inputs of the row,
        in nats. The result has shape (n_samples, n_features), and is zero where an input is observed and in
        columns that are not modelled. The input with the largest value is the most informative one to measure
        next. The mutual information is exact for the circuit, before its probabilities are calibrated.
        """
        check_is_fitted(self)
        found = self._map_rows(X, lambda batch: information_gain(self.circuit_, batch), len(self.classes_))
        gain = np.zeros((len(found), len(self.schema_)))
        gain[:, [column.modelled for column in self.schema_]] = found.numpy()
        return gain

    def _logits(self, X: Any) -> Tensor:
        check_is_fitted(self)
        owners = self.circuit_.leaves.observation.columns_of_features

        def logits(batch: Incomplete) -> Tensor:
            scores, _ = self.circuit_.class_scores(batch)
            fraction = observed_fraction(batch, owners)
            return self.evidence_weight_(scores, self.circuit_.log_prior, fraction)

        return self._map_rows(X, logits)

    def _calibrate(
        self, train: LabelledRows, held: LabelledRows | None, generator: torch.Generator
    ) -> Fitted:
        circuit = self.circuit_
        owners = circuit.leaves.observation.columns_of_features

        def scores_of(rows: Incomplete) -> Tensor:
            found = map_pieces(
                lambda part: circuit.class_scores(part)[0], rows.to(torch.float64), self._rows_at_once(1)
            )
            return torch.cat(found)

        weight = fit_evidence_weight(scores_of, circuit.log_prior, held, owners, generator)
        return {"evidence_weight_": weight}

    def _read_target(self, y: Any, n_rows: int, weights: Tensor) -> tuple[Tensor, Fitted]:
        return self._read_classes(*read_partial_classes(y, weights, self), weights)

    def _rows(self, batch: Incomplete, target: Tensor, weight: Tensor) -> LabelledRows:
        return Labelled(batch.to(torch.float32), target, weight.float())

    def _plan(self, codes: Incomplete, rows: LabelledRows, generator: torch.Generator) -> Plan:
        settings = CircuitSettings.of(self, len(codes))
        return settings, settings.build(codes.to_array(), self.seed_, len(self.classes_))

    def _start(self, structure: Structure, train: LabelledRows, generator: torch.Generator) -> Circuit:
        n_classes = len(self.classes_)
        likelihood = column_likelihood(self._modelled, self._features, train.rows.to(torch.float64))
        circuit = Circuit(structure, likelihood).float()
        known = train.target != UNKNOWN
        counts = torch.bincount(train.target[known], train.weight[known], n_classes).float() + 1.0
        circuit.log_prior.copy_((counts / counts.sum()).log())
        spread_leaves(circuit, train.rows, generator)
        resemble_rows(circuit, train.rows, generator, train.target)
        return circuit

    def _objective(self, circuit: Circuit) -> HybridLikelihood:
        check_number("noise", self.noise, lambda v: 0 <= v < float("inf"), "at least 0 and finite")
        observation = circuit.leaves.observation
        jitter = torch.zeros(observation.n_features)
        for leaf, own in zip(observation.leaves, observation.own_features(), strict=True):
            if isinstance(leaf, GaussianLeaf):
                jitter[own] = self.noise
        owners = observation.columns_of_features
        return HybridLikelihood(self.beta, owners, self.max_dropped, jitter=jitter if jitter.any() else None)

    def _state(self) -> dict[str, Tensor]:
        return super()._state() | self.evidence_weight_.state()

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        super()._restore(state)
        self.circuit_ = circuit_from_state(column_likelihood(self._modelled, self._features), state)
        n_outputs, n_classes = self.circuit_.structure.n_classes, len(self.classes_)
        if n_outputs != n_classes:
            raise ValueError(f"there are {n_outputs} outputs for {n_classes} classes")
        self.evidence_weight_ = EvidenceWeight.from_state(state)


@documented
class CircuitRegressor(ScaledTargetRegressor, CircuitPredictor):
    r"""Regression with a probabilistic circuit, exact for every pattern of missing inputs.

    Any subset of the inputs may be missing, in training and in prediction, and so may targets in training.
    The targets are further columns of the circuit, which join the tree of inputs at its top:

    .. math:: p(y \mid x_o) = \sum_a w_a(x_o) \, p_a(y), \qquad
              \mathrm{E}[y \mid x_o] = \sum_a w_a(x_o) \, \mu_a

    so the distribution of a target given any observed inputs is a mixture, whose mean and quantiles are
    exact. Inputs are assumed to be missing at random (MAR).

    Attributes
    ----------
    circuit_ : Circuit
        The fitted circuit over the inputs, then the targets.
    history_ : History
        The loss after each epoch, and why training stopped.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(400, 2))
    >>> y = X[:, 0] ** 2 + 0.1 * rng.normal(size=400)
    >>> model = CircuitRegressor(n_leaves=8, n_channels=8, max_epochs=12, random_state=0).fit(X, y)
    >>> bool(model.predict([[0.9, 0.0]])[0] > 0.6), bool(model.predict([[0.0, 0.0]])[0] < 0.2)
    (True, True)
    >>> low, high = model.predict_interval([[0.9, 0.0], [np.nan, 0.0]])
    >>> bool((high - low)[1] > (high - low)[0])  # less is known about the second row
    True
    """

    @finite_answer
    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the expected target of each row given its observed inputs."""
        check_is_fitted(self)
        return self._shaped(self._map_rows(X, lambda batch: self._targets(self._mean(batch))))

    @finite_answer
    def predict_interval(
        self, X: Any, level: float = 0.9
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Returns the ends of an interval that contains the target of each row with probability `level`."""
        check_is_fitted(self)
        check_level(level)
        shares = [(1 - level) / 2, (1 + level) / 2]

        def ends(batch: Incomplete) -> Tensor:
            quantiles = self.circuit_.conditional_quantiles(self._with_unknown(batch), shares)
            return torch.stack([self._targets(quantile) for quantile in quantiles], dim=1)  # (N, 2, T)

        low, high = self._map_rows(X, ends, 4).unbind(dim=1)
        return self._shaped(low), self._shaped(high)

    def _mean(self, batch: Incomplete) -> Tensor:
        return self.circuit_.conditional_mean(self._with_unknown(batch))

    def _targets(self, features: Tensor) -> Tensor:
        return self._target_scaler.inverse(features[:, -len(self._target_scaler.loc) :])

    def _with_unknown(self, batch: Incomplete) -> Incomplete:
        unknown = batch.x.new_zeros(len(batch), len(self._target_scaler.loc))
        return batch.beside(Incomplete(unknown, torch.zeros_like(unknown, dtype=torch.bool)))

    def _read_target(self, y: Any, n_rows: int, weights: Tensor) -> tuple[Any, Fitted]:
        numbers, one_dimensional = read_partial_numbers(y, weights, self)
        scaler = Standardizer.fit(numbers)
        scaled = Incomplete(scaler.forward(numbers.x), numbers.observed)
        return scaled, {"_one_dimensional": one_dimensional, "_target_scaler": scaler}

    def _rows(self, batch: Incomplete, target: Incomplete, weight: Tensor) -> LabelledRows:
        return Labelled(batch.beside(target).to(torch.float32), target.x.float(), weight.float())

    def _plan(self, codes: Incomplete, rows: LabelledRows, generator: torch.Generator) -> Plan:
        settings = CircuitSettings.of(self, len(codes))
        n_targets = len(self._target_scaler.loc)
        return settings, settings.build(codes.to_array(), self.seed_, n_targets=n_targets)

    def _start(self, structure: Structure, train: LabelledRows, generator: torch.Generator) -> Circuit:
        n_targets = len(self._target_scaler.loc)
        inputs = Incomplete(train.rows.x[:, :-n_targets], train.rows.observed[:, :-n_targets])
        circuit = Circuit(structure, self._likelihood(inputs.to(torch.float64))).float()
        spread_leaves(circuit, train.rows, generator)
        resemble_rows(circuit, train.rows, generator)
        return circuit

    def _likelihood(self, inputs: Incomplete | None = None) -> ObservationModel:
        """Returns the likelihood of the columns of the table, then of the targets."""
        of_columns = column_likelihood(self._modelled, self._features, inputs)
        return of_columns.extended(GaussianLeaf(len(self._target_scaler.loc), std_floor=MIN_STD))

    def _objective(self, circuit: Circuit) -> ConditionalLikelihood:
        owners = circuit.leaves.observation.columns_of_features
        return ConditionalLikelihood(self.beta, owners, len(self._target_scaler.loc), self.max_dropped)

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        super()._restore(state)
        self.circuit_ = circuit_from_state(self._likelihood(), state)
