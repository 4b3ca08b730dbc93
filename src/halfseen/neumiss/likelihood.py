"""NeuMiss predictors: regression and classification with any subset of the inputs missing."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from sklearn.base import ClassifierMixin
from torch import Tensor
from torch.nn import functional

from halfseen._threads import task_threads
from halfseen.base.capabilities import Capabilities
from halfseen.base.parameters import (
    TARGETS,
    Descriptions,
    TrainingParameters,
    check_training,
    check_whole,
    documented_by,
    documented_fit,
)
from halfseen.base.predictor import HeldOutErrors, ScaledTargetRegressor, Steps, fit_predictor
from halfseen.base.table import TableEstimator, map_pieces, rows_at_once
from halfseen.base.targets import Fitted, WithClasses
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete, Standardizer
from halfseen.gaussian.em import check_ridge, em_settings
from halfseen.gaussian.em_self_masked import OFFERED
from halfseen.neumiss.model import NeuMissModel
from halfseen.neumiss.training import (
    AUTO,
    Classification,
    NeuMissSettings,
    PredictionTask,
    Regression,
    SupervisedRows,
    fit_neumiss,
)
from halfseen.training.loop import TrainingSettings
from halfseen.words import check_missingness

HEADS = ("auto", "linear", "mlp")
WEIGHT_DECAY = 1e-2


DESCRIPTIONS: Descriptions = {
    "missingness": (
        '{"auto", "mar", "self-masking-probit", "self-masking-gaussian"}',
        "The assumed mechanism: missing at random; a probability that rises or falls with the missing "
        'value; or a probability that is largest around some value. ``"auto"`` takes the one that '
        "predicts held-out targets best.",
    ),
    "head": (
        '{"auto", "linear", "mlp"}',
        "Whether networks correct the linear prediction: with a weight chosen on held-out rows "
        '(``"auto"``), never (``"linear"``), or with weight 1 (``"mlp"``).',
    ),
    "n_networks": "The number of networks, whose mean is the correction.",
    "width": "Units in each of the two hidden layers of a network.",
    "max_epochs": "Maximum number of epochs of the networks.",
    "batch_size": "Rows per training step of the networks.",
    "learning_rate": "Initial learning rate of the networks.",
    "validation_fraction": (
        "The fraction of rows held out to choose the model of missingness, to stop the training and to "
        "calibrate. Tables with fewer than 50 rows hold out none and use the linear prediction."
    ),
    "ridge": (
        'float or "auto"',
        "Regularisation of the Gaussian: the number of pseudo-rows of uncorrelated data that are added to "
        'the table. ``"auto"`` chooses it by held-out likelihood if there are few rows.',
    ),
}

documented = documented_by(DESCRIPTIONS)


@dataclass(eq=False, repr=False, kw_only=True)
class NeuMissBase(TrainingParameters, TableEstimator):
    """Reads tables and targets, fits a `NeuMissModel`, and predicts with it in chunks.

    A subclass says how targets enter the joint Gaussian (`_joint_target`) and are predicted (`_task`).
    """

    _saved: ClassVar[tuple[str, ...]] = ("missingness_", "validation_errors_")
    _unbounded = ("bounds",)

    missingness: str = AUTO
    head: str = "auto"
    n_networks: int = 4
    width: int = 128
    max_epochs: int = 200
    batch_size: int = 256
    patience: int = 8
    validation_fraction: float = 0.2
    ridge: float | str = "auto"

    model_: NeuMissModel = field(init=False)  # fitted attributes are no parameters

    @property
    def capabilities(self) -> Capabilities:
        """What the estimator can do with the parameters that it has."""
        return replace(super().capabilities, holds_out_rows=True, trains_in_epochs=True)

    @documented_fit(y=TARGETS)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fits the joint Gaussian, chooses the model of missingness, and trains the networks."""
        self._check_parameters()
        steps = Steps(
            features=self._encode_rows,
            plan=self._plan,
            learn=self._learn,
            needs_columns=False,
        )
        return fit_predictor(self, steps, X, y, sample_weight)

    def _encode_rows(
        self, codes: Incomplete, target: Tensor, weights: Tensor
    ) -> tuple[SupervisedRows, Fitted]:
        features, batch = FeatureMap.fit_encoded(self._modelled, codes, all_indicators=False)
        return SupervisedRows(batch, self._joint_target(target), target, weights), {"_features": features}

    def _plan(self, codes: Incomplete, rows: SupervisedRows, generator: torch.Generator) -> NeuMissSettings:
        em = em_settings(rows.joined, self.ridge, 200, 2e-5, generator)
        training = TrainingSettings.of(self, weight_decay=WEIGHT_DECAY)
        return NeuMissSettings(self.missingness, self.head, self.n_networks, self.width, em, training)

    def _learn(
        self,
        train: SupervisedRows,
        held: SupervisedRows | None,
        plan: NeuMissSettings,
        generator: torch.Generator,
    ) -> Fitted:
        fit = fit_neumiss(
            train,
            held,
            self._task,
            plan,
            may_hide=_may_hide(self._features),
            n_numbers=len(self._features.numeric),
            generator=generator,
            callback=self.callback,
        )
        return {
            "missingness_": fit.missingness,
            "validation_errors_": fit.validation_errors,
            "history_": fit.history,
            "model_": fit.model,
        }

    def _joint_target(self, target: Tensor) -> Tensor:
        """Returns what the joint Gaussian models of the targets: (N, J)."""
        raise NotImplementedError(f"{type(self).__name__} must implement `_joint_target`.")

    @property
    def _task(self) -> PredictionTask:
        """How targets are predicted."""
        raise NotImplementedError(f"{type(self).__name__} must implement `_task`.")

    @property
    def head_weight_(self) -> float:
        """The weight of the networks' correction, chosen on held-out rows."""
        return self.model_.calibration.head_weight

    @task_threads()
    def _moments(self, X: Any) -> tuple[Tensor, Tensor]:
        """Returns the prediction (N, T) for each row of a table, and its scale."""
        codes = self._read(X, reset=False).codes
        size = rows_at_once(len(self.schema_), len(self.model_.first.joint.loc))
        found = map_pieces(lambda part: self.model_.predict(self._features.encode(part)), codes, size)
        answers, spreads = zip(*found, strict=True)
        return torch.cat(answers), torch.cat(spreads)

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
        with_classes = isinstance(self, WithClasses)
        n_outputs = len(self.classes_) if isinstance(self, WithClasses) else len(self._target_scaler.loc)
        self.model_.check(self._features.n_features, n_outputs, has_link=with_classes)


def _may_hide(features: FeatureMap) -> Tensor:
    """Returns (D): the features that are numbers, neither ordered levels nor indicators."""
    numbers = [c not in features.ordinal for c in features.numeric]
    return torch.tensor(numbers + [False] * (features.n_features - len(numbers)), dtype=torch.bool)


@documented
class NeuMissRegressor(ScaledTargetRegressor, NeuMissBase):
    r"""Regression with missing inputs, at random or not.

    Any subset of the inputs may be missing, in training and in prediction. A joint Gaussian of inputs and
    targets is fitted to the incomplete rows. For every pattern m of missing inputs it gives

    .. math:: \mathrm{E}[y \mid x_o, m] = \mu_y + \Sigma_{y \cdot} h, \qquad
              (\Sigma + N_m) h = r_m

    which is one positive definite linear system per row. If inputs are missing completely at random, this is
    the best linear predictor. Under self-masking, a missing input acts as a noisy observation at its
    most-masked value; such a model is used only if it predicts held-out targets better
    (``missingness="auto"``). An ensemble of networks then corrects what is not linear. Its inputs are the
    conditional means and standard deviations of the inputs and the mask, and its weight is chosen on
    held-out rows.

    Attributes
    ----------
    model_ : NeuMissModel
        The fitted model. ``model_.first.joint`` is the Gaussian of the standardised features followed by the
        standardised targets; ``model_.correction`` contains the networks.
    missingness_ : str
        The model of missingness that was chosen.
    validation_errors_ : dict
        The held-out squared error of each model of missingness that was tried.
    head_weight_ : float
        The weight of the networks' correction, from 0 to 1.

    References
    ----------
    Le Morvan, Josse, Moreau, Scornet & Varoquaux (2020), NeuMiss networks, propositions 2.1 and 2.2. Here
    the system is solved instead of unrolling a Neumann series, and its parameters are fitted by likelihood.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2))
    >>> y = X[:, 0] + X[:, 1]
    >>> X[rng.random(X.shape) < 0.2] = np.nan
    >>> model = NeuMissRegressor(head="linear", random_state=0).fit(X, y)
    >>> model.predict([[1.0, 2.0], [1.0, np.nan]]).round(1)
    array([3., 1.])
    """

    @property
    def _relative_errors(self) -> HeldOutErrors:
        return self.model_.calibration.errors

    def _joint_target(self, target: Tensor) -> Tensor:
        return target

    @property
    def _task(self) -> PredictionTask:
        return Regression()


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class NeuMissClassifier(WithClasses, ClassifierMixin, NeuMissBase):
    r"""Classification with missing inputs, at random or not.

    Any subset of the inputs may be missing, in training and in prediction. The scores of the classes are
    linear in the inputs, and missing inputs enter by their conditional mean and variance:

    .. math:: \eta_k = \frac{b_k + w_k^\top \mathrm{E}[x \mid x_o, m]}
              {\sqrt{1 + \frac{\pi}{8} w_k^\top \mathrm{Cov}[x \mid x_o, m] w_k}}

    under the joint Gaussian of `NeuMissRegressor`. An ensemble of networks corrects what is not linear; its
    inputs are the conditional means and standard deviations of the inputs and the mask. Its weight and the
    temperature of the probabilities are chosen on held-out rows.

    Attributes
    ----------
    model_ : NeuMissModel
        The fitted model, as in `NeuMissRegressor`.
    missingness_ : str
        The model of missingness that was chosen.
    validation_errors_ : dict
        The held-out squared error of the class indicators for each model of missingness that was tried.
    head_weight_ : float
        The weight of the networks' logits. It exceeds 1 if held-out rows call for more extreme probabilities.
    temperature_ : float
        The divisor of the linear scores.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2))
    >>> y = X[:, 0] + X[:, 1] > 0
    >>> X[rng.random(X.shape) < 0.2] = np.nan
    >>> model = NeuMissClassifier(head="linear", random_state=0).fit(X, y)
    >>> model.predict([[1.0, 2.0], [np.nan, -1.0]])
    array([ True, False])
    """

    class_weight: Any = None

    @property
    def temperature_(self) -> float:
        """The divisor of the linear scores, chosen on held-out rows."""
        return self.model_.calibration.temperature

    def _logits(self, X: Any) -> Tensor:
        return self._moments(X)[0]

    def _joint_target(self, target: Tensor) -> Tensor:
        indicators = functional.one_hot(target, len(self.classes_))[:, 1:].double()
        every = Incomplete(indicators, torch.ones_like(indicators, dtype=torch.bool))
        return Standardizer.fit(every).forward(indicators)

    @property
    def _task(self) -> PredictionTask:
        return Classification(len(self.classes_))
