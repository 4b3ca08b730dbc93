"""Networks with Sparsity Normalization as estimators on tables with missing values."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import ClassifierMixin
from torch import Tensor

from halfseen.base.network import NETWORK_DESCRIPTIONS, NetworkBase
from halfseen.base.parameters import check_number, check_whole, documented_by
from halfseen.base.predictor import ScaledTargetRegressor
from halfseen.base.targets import Classes, Fitted, WithClasses
from halfseen.data.incomplete import Incomplete
from halfseen.nn.sparsity import LEARNED, SparsityNormMLP
from halfseen.training.logistic import fit_scaling
from halfseen.training.supervised import CrossEntropy, Labelled, SquaredError, WithDropout

DESCRIPTIONS = NETWORK_DESCRIPTIONS | {
    "width": ("int", "Units of each hidden layer."),
    "n_layers": ("int", "The number of hidden layers; 0 for a linear model."),
    "alpha": (
        'float or "learned"',
        "The exponent of the normalisation. Columns are standardised, for which 1/2 keeps the variance of "
        'the first layer constant; 1 is the published one, 0 none, and ``"learned"`` is trained.',
    ),
    "shrinkage": ("float", "Damps the factor of rows with few observed values."),
    "dropout": (
        "float",
        "The probability that a hidden unit is dropped in training; units are rescaled by the exact "
        "number of kept units.",
    ),
    "class_weight": (
        'dict, "balanced" or None',
        "Weights of classes in the training and in the decisions of `predict`. Probabilities are calibrated "
        "on held-out rows and do not depend on them.",
    ),
}
documented = documented_by(DESCRIPTIONS)


@dataclass(frozen=True)
class SparsityNormArchitecture:
    """A multilayer perceptron on inputs that are normalised by their observed count."""

    width: int
    n_layers: int
    alpha: float | str
    shrinkage: float
    dropout: float

    def check(self) -> None:
        """Raises a ValueError if a parameter is out of range."""
        check_whole("width", self.width, 1)
        check_whole("n_layers", self.n_layers, 0)
        if self.alpha != LEARNED:
            check_number("alpha", self.alpha, np.isfinite, "a finite number or 'learned'")
        check_number("shrinkage", self.shrinkage, lambda v: 0 <= v < np.inf, "finite and at least 0")
        check_number("dropout", self.dropout, lambda v: 0 <= v < 1, "in [0, 1)")

    @property
    def _widths(self) -> list[int]:
        return [self.width] * self.n_layers

    def build(self, n_features: int, n_outputs: int) -> SparsityNormMLP:
        """Returns the network, with weights that are not drawn yet."""
        alpha: Any = self.alpha if self.alpha == LEARNED else float(self.alpha)
        return SparsityNormMLP(
            n_features, n_outputs, widths=self._widths, alpha=alpha, shrinkage=float(self.shrinkage)
        )

    def n_weights(self, n_features: int, n_outputs: int) -> int:
        """Returns the fewest weights that the largest layer of a saved network must have."""
        return max(a * b for a, b in pairwise([n_features, *self._widths, n_outputs]))

    def initialise(self, module: SparsityNormMLP, rows: Incomplete, generator: torch.Generator) -> None:
        """Draws the weights, and learns the mean number of observed inputs."""
        module.reset_parameters(generator)
        if bool(rows.observed.any()):
            module.norm.fit(rows.observed)

    def objective(self, loss: SquaredError | CrossEntropy) -> Any:
        """Returns the objective of the training: the loss, with dropout if there is any."""
        return WithDropout(loss, float(self.dropout), tuple(self._widths)) if self.dropout else loss


@dataclass(eq=False, repr=False)
class SparsityNormBase(NetworkBase):
    """The parameters of the regressor and the classifier with Sparsity Normalization."""

    _architecture = SparsityNormArchitecture

    width: int = 64
    _: KW_ONLY
    n_layers: int = 2
    alpha: float | str = 0.5
    shrinkage: float = 0.0
    dropout: float = 0.0
    learning_rate: float = 3e-3
    weight_decay: float = 0.01


@documented
class SparsityNormRegressor(ScaledTargetRegressor, SparsityNormBase):
    r"""Regression with missing inputs by a network whose inputs are normalised by their observed count.

    .. math:: \hat y = g\left(\left(\frac{K + \lambda}{c + \lambda}\right)^{\alpha} (m \odot x)\right)

    where :math:`x` are standardised features, :math:`m` marks observed ones, :math:`c` is their number,
    :math:`K` its mean in training, and :math:`g` is a multilayer perceptron. The size of the network's
    input does not depend on how many values are known. It is suited to tables in which the number of known
    values varies much between rows and is unrelated to the target. It assumes that values are missing
    completely at random; where missingness is informative, use `NeuMissRegressor`.

    Attributes
    ----------
    module_ : SparsityNormMLP
        The trained torch module, on standardised features.
    history_ : History
        The loss after each epoch, and the reason why training stopped.

    References
    ----------
    Yi, Lee, Kim, Hwang & Yang (2020), Why not to use zero imputation? Correcting sparsity bias in training
    neural networks.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 3))
    >>> y = X.sum(axis=1)
    >>> X[rng.random(X.shape) < 0.1] = np.nan
    >>> model = SparsityNormRegressor(max_epochs=20, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.6)
    True
    """


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class SparsityNormClassifier(WithClasses, ClassifierMixin, SparsityNormBase):
    r"""Classification with missing inputs by a network whose inputs are normalised by their observed count.

    The network is that of `SparsityNormRegressor` with one logit per class, trained by the log-loss. Its
    probabilities are calibrated on held-out rows by a factor and an offset of the logits of each class.
    Values are assumed to be missing completely at random (MCAR).

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The classes, sorted.
    module_ : SparsityNormMLP
        The trained torch module, on standardised features.
    history_ : History
        The loss after each epoch, and the reason why training stopped.

    References
    ----------
    Yi, Lee, Kim, Hwang & Yang (2020), Why not to use zero imputation? Correcting sparsity bias in training
    neural networks.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 3))
    >>> y = X.sum(axis=1) > 1
    >>> X[rng.random(X.shape) < 0.1] = np.nan
    >>> model = SparsityNormClassifier(max_epochs=20, class_weight="balanced", random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.7)
    True
    """

    class_weight: Any = None

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Returns the class of each row whose probability, times its weight, is largest."""
        scores = self._logits(X) + self._class_weights.log()
        return self._labels_of(scores.numpy())

    def _logits(self, X: Any) -> Tensor:
        logits = super()._logits(X)  # raises an error if nothing is fitted
        return self._factor * logits + self._offsets

    def _read_classes(self, codes: Tensor, classes: Classes, weights: Tensor) -> tuple[Tensor, Fitted]:
        target, found = super()._read_classes(codes, classes, weights)
        own = Classes.from_plain(found["_plain_classes"]).weights
        of_classes = torch.ones(len(classes), dtype=torch.float64) if own is None else torch.from_numpy(own)
        return target, found | {"_class_weights": of_classes}

    def _weighted(self, rows: Labelled[Incomplete]) -> Labelled[Incomplete]:
        return Labelled(rows.rows, rows.target, rows.weight * self._class_weights[rows.target].float())

    def _calibrated(self, outputs: Tensor, rows: Labelled[Incomplete]) -> Fitted:
        factor, offsets = fit_scaling(outputs, rows.target, weights=rows.weight.double())
        return {"_factor": factor, "_offsets": offsets}

    def _state(self) -> dict[str, Tensor]:
        factor = torch.tensor([self._factor], dtype=torch.float64)
        calibration = {"calibration.factor": factor, "calibration.offsets": self._offsets}
        return super()._state() | calibration | {"class_weights": self._class_weights}

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        super()._restore(state)
        factor, offsets = state["calibration.factor"], state["calibration.offsets"]
        weights, shape = state["class_weights"], (len(self.classes_),)
        if factor.shape != (1,) or not factor.is_floating_point() or not factor > 0:
            raise ValueError("the factor of logits is not a positive number")
        if offsets.shape != shape or not offsets.is_floating_point():
            raise ValueError(f"the offsets of classes are not {shape[0]} numbers")
        if weights.shape != shape or not weights.is_floating_point() or not (weights > 0).all():
            raise ValueError(f"the weights of classes are not {shape[0]} positive numbers")
        self._factor, self._offsets, self._class_weights = float(factor), offsets, weights
