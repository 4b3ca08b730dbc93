"""The published NeuMiss networks as estimators, trained end to end on the targets alone."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from torch import Tensor

from halfseen._random import torch_generator
from halfseen._threads import task_threads
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.scaling import Standardizer
from halfseen.estimators._holdout import split_rows
from halfseen.estimators._parameters import check_number, check_training, check_whole
from halfseen.estimators._table import TableEstimator, rows_at_once
from halfseen.estimators._targets import Classes, read_classes, read_numbers, read_weights
from halfseen.estimators._transaction import all_or_nothing
from halfseen.estimators.neumiss_parameters import documented_network
from halfseen.nn.neumiss import NeuMissPredictor
from halfseen.objectives.supervised import CrossEntropy, Labelled, SquaredError
from halfseen.training.loop import TrainingSettings, fit_module
from halfseen.training.neumiss import weighted_quantiles
from halfseen.training.progress import Progress

GRADIENT_CLIP = 1.0
MIN_IMPROVEMENT = 1e-5
BATCHES, SMALLEST_BATCH, LARGEST_BATCH = 20, 16, 512  # batches per epoch, and their sizes, if "auto"
N_QUANTILES = 1000  # kept of the held-out errors


class _NeuMissNetwork(TableEstimator):
    """Reads tables, trains a `NeuMissPredictor` by the one training loop, and predicts in chunks.

    A subclass reads its targets and names its loss.
    """

    _saved: ClassVar[tuple[str, ...]] = ("_n_outputs",)
    _objective: ClassVar[SquaredError | CrossEntropy]

    def __init__(
        self,
        depth: int = 5,
        *,
        shared_weights: bool = True,
        residual: bool = False,
        width: int = 64,
        n_blocks: int = 1,
        max_epochs: int = 100,
        batch_size: int | str = "auto",
        learning_rate: float = 1e-2,
        weight_decay: float = 0.1,
        patience: int = 20,
        validation_fraction: float = 0.2,
        callback: Callable[[Progress], None] | None = None,
        schema: Any = None,
        random_state: Any = None,
    ) -> None:
        self.depth = depth
        self.shared_weights = shared_weights
        self.residual = residual
        self.width = width
        self.n_blocks = n_blocks
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.callback = callback
        self.schema = schema
        self.random_state = random_state

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
            raise ValueError(
                f"{type(self).__name__} needs a column that varies: all columns are constant, empty or "
                f"identifiers in these rows (n_samples={len(batch)})."
            )
        rows = Labelled(batch, target, weights[counted].float())
        train, held = split_rows(rows, self.validation_fraction, generator)
        module = self._build()
        module.reset_parameters(generator)
        self.history_ = fit_module(
            module,
            self._objective,
            train,
            generator=generator,
            validation=held,
            settings=self._settings(len(train)),
            callback=self.callback,
        )
        self.module_ = module.double().requires_grad_(
            False
        )  # so that a prediction does not depend on its batch
        self._judge(train if held is None else held)
        return self

    def _judge(self, rows: Labelled[Incomplete]) -> None:
        """Learns what a subclass needs from held-out rows; nothing by default."""

    @task_threads()
    @torch.no_grad()
    def _outputs(self, X: Any) -> Tensor:
        """Returns the outputs (N, T) of the network for each row of a table."""
        codes = self._read(X, reset=False).codes
        size = rows_at_once(self._features.n_features + self._n_outputs)
        parts = [self._features.encode(part) for part in [*codes.chunks(size)] or [codes]]
        return torch.cat([self.module_(part) for part in parts])

    def _read_targets(self, y: Any, n_rows: int, counted: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} does not say how its targets are read.")

    def _build(self) -> NeuMissPredictor:
        return NeuMissPredictor(
            self._features.n_features,
            self._n_outputs,
            self.depth,
            shared_weights=self.shared_weights,
            residual=self.residual,
            width=self.width,
            n_blocks=self.n_blocks if self.width else 0,
        )

    def _settings(self, n_rows: int) -> TrainingSettings:
        fitting = min(LARGEST_BATCH, max(SMALLEST_BATCH, n_rows // BATCHES))
        return TrainingSettings(
            max_epochs=self.max_epochs,
            batch_size=fitting if self.batch_size == "auto" else int(self.batch_size),
            learning_rate=self.learning_rate,
            schedule="cosine",
            weight_decay=self.weight_decay,
            gradient_clip=GRADIENT_CLIP,
            patience=self.patience,
            min_improvement=MIN_IMPROVEMENT,
        )

    def _check_parameters(self) -> None:
        for name, lowest in {"depth": 0, "width": 0, "n_blocks": 0, "max_epochs": 0}.items():
            check_whole(name, getattr(self, name), lowest)
        check_whole("batch_size", self.batch_size, 1, auto=True)
        check_number("weight_decay", self.weight_decay, lambda v: 0 <= v < np.inf, "a number of at least 0")
        check_training(self)

    def _state(self) -> dict[str, Tensor]:
        weights = {f"module.{name}": value for name, value in self.module_.state_dict().items()}
        return self._features.state() | weights

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        self._features = FeatureMap.from_state(self._modelled, state, all_indicators=False)
        weights = {k.removeprefix("module."): v for k, v in state.items() if k.startswith("module.")}
        largest = max((value.numel() for value in weights.values()), default=0)
        planned = max(self.width, self._n_outputs) * max(self.width, self._features.n_features)
        if planned > largest:
            raise ValueError(f"width={self.width!r} does not fit the saved weights.")
        module = self._build().double()
        module.load_state_dict(weights)
        self.module_ = module.eval().requires_grad_(False)


@documented_network
class NeuMissNetworkRegressor(RegressorMixin, _NeuMissNetwork):
    r"""Regression with missing inputs by a NeuMiss network, trained end to end as published.

    .. math:: \hat y = g(h_d), \qquad h_0 = r, \quad h_{k+1} = \bar m \odot (W h_k) + r, \quad
              r = \bar m \odot (x - \mu)

    where :math:`\bar m` is 1 for observed features and :math:`g` is a network with a linear path. The network
    learns from the targets alone how they depend on the observed values and on the mask, so it makes no
    assumption about the missingness. It needs more rows than `NeuMissRegressor`, which fits the same kind of
    predictor by likelihood and is the better choice for most tables.

    Attributes
    ----------
    module_ : NeuMissPredictor
        The trained torch module, on standardised features.
    history_ : History
        The loss after each epoch, and the reason why training stopped.

    References
    ----------
    Le Morvan, Josse, Moreau, Scornet & Varoquaux (2020), NeuMiss networks. Le Morvan, Josse, Scornet &
    Varoquaux (2021), What's a good imputation to predict with missing values?

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 2))
    >>> y = X[:, 0] + X[:, 1]
    >>> X[rng.random(X.shape) < 0.2] = np.nan
    >>> model = NeuMissNetworkRegressor(max_epochs=30, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.7)
    True
    """

    _saved = (*_NeuMissNetwork._saved, "_one_dimensional", "_n_errors")
    _objective = SquaredError()

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the predicted target of each row."""
        outputs = self._outputs(X)
        predicted: npt.NDArray[np.float64] = self._target_scaler.inverse(outputs).numpy()
        return predicted[:, 0] if self._one_dimensional else predicted

    def predict_interval(
        self, X: Any, level: float = 0.9
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Returns the ends of an interval that contains the target of each row with probability `level`.

        All intervals have the same width, given by a quantile of the absolute errors of held-out rows.
        Without held-out rows the errors of the training rows are used, and the intervals are too narrow.
        """
        if not 0 < level < 1:
            raise ValueError(f"level must be between 0 and 1, got {level!r}.")
        outputs = self._outputs(X)
        rank = min(1.0, level * (1 + 1 / self._n_errors))
        half = torch.quantile(self._errors, rank, dim=0, interpolation="higher")
        low, high = (self._target_scaler.inverse(outputs + sign * half).numpy() for sign in (-1, 1))
        return (low[:, 0], high[:, 0]) if self._one_dimensional else (low, high)

    @torch.no_grad()
    def _judge(self, rows: Labelled[Incomplete]) -> None:
        errors = (self.module_(rows.rows.to(torch.float64)) - rows.target).abs()
        levels = torch.linspace(0, 1, min(N_QUANTILES, len(errors)), dtype=torch.float64)
        self._n_errors = len(errors)
        self._errors = weighted_quantiles(errors, rows.weight.double(), levels)

    def _read_targets(self, y: Any, n_rows: int, counted: Tensor) -> Tensor:
        numbers, self._one_dimensional = read_numbers(y, n_rows, self)
        numbers = numbers[counted]
        self._n_outputs = numbers.shape[1]
        complete = Incomplete(numbers, torch.ones_like(numbers, dtype=torch.bool))
        self._target_scaler = Standardizer.fit(complete)
        return self._target_scaler.forward(numbers).float()

    def _state(self) -> dict[str, Tensor]:
        scaler = {"target.loc": self._target_scaler.loc, "target.scale": self._target_scaler.scale}
        return super()._state() | scaler | {"target.errors": self._errors}

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        super()._restore(state)
        self._target_scaler = Standardizer(state["target.loc"], state["target.scale"])
        self._errors = state["target.errors"]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags


@documented_network
class NeuMissNetworkClassifier(ClassifierMixin, _NeuMissNetwork):
    r"""Classification with missing inputs by a NeuMiss network, trained end to end as published.

    The network is that of `NeuMissNetworkRegressor` with one logit per class, trained by the log-loss. It
    makes no assumption about the missingness. Its probabilities are not calibrated; `NeuMissClassifier`,
    which fits by likelihood and calibrates on held-out rows, is the better choice for most tables.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The classes, sorted.
    module_ : NeuMissPredictor
        The trained torch module, on standardised features.
    history_ : History
        The loss after each epoch, and the reason why training stopped.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 2))
    >>> y = X[:, 0] + X[:, 1] > 0
    >>> X[rng.random(X.shape) < 0.2] = np.nan
    >>> model = NeuMissNetworkClassifier(max_epochs=30, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.8)
    True
    """

    _saved = (*_NeuMissNetwork._saved, "_plain_classes")
    _objective = CrossEntropy()

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """The classes, sorted."""
        return Classes.from_plain(self._plain_classes).labels

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Returns the most probable class of each row."""
        outputs = self._outputs(X)
        return self.classes_[outputs.argmax(dim=1).numpy()]

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the probability of each class for each row, in the order of ``classes_``."""
        probabilities: npt.NDArray[np.float64] = self._outputs(X).softmax(dim=1).numpy()
        return probabilities

    def predict_log_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the log probability of each class for each row."""
        logs: npt.NDArray[np.float64] = self._outputs(X).log_softmax(dim=1).numpy()
        return logs

    def _read_targets(self, y: Any, n_rows: int, counted: Tensor) -> Tensor:
        codes, classes = read_classes(y, n_rows, self)
        self._plain_classes = classes.to_plain()
        self._n_outputs = len(classes)
        return codes[counted]
