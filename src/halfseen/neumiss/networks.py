"""The published NeuMiss networks as estimators, trained end to end on the targets alone."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from sklearn.base import ClassifierMixin

from halfseen.base.network import NETWORK_DESCRIPTIONS, NetworkBase
from halfseen.base.parameters import check_whole, documented_by
from halfseen.base.predictor import ScaledTargetRegressor
from halfseen.base.targets import WithClasses
from halfseen.data.incomplete import Incomplete
from halfseen.neumiss.network import NeuMissPredictor
from halfseen.training.supervised import CrossEntropy, SquaredError

DESCRIPTIONS = NETWORK_DESCRIPTIONS | {
    "depth": ("int", "The number of Neumann steps."),
    "shared_weights": (
        "bool",
        "Whether all steps share one matrix (the network of 2021), or each step has its own (that of 2020).",
    ),
    "residual": (
        "bool",
        "Whether steps with matrices of their own have residual connections; steps with a shared matrix "
        "always have them.",
    ),
    "width": ("int", "Units of each hidden layer of the head; 0 for a linear head."),
    "n_blocks": ("int", "Residual blocks of the head after its first hidden layer."),
}
documented = documented_by(DESCRIPTIONS)


@dataclass(frozen=True)
class NeuMissArchitecture:
    """A NeuMiss network with a feed-forward head."""

    depth: int
    shared_weights: bool
    residual: bool
    width: int
    n_blocks: int

    def check(self) -> None:
        """Raises a ValueError if a parameter is out of range."""
        for name in ("depth", "width", "n_blocks"):
            check_whole(name, getattr(self, name), 0)

    def build(self, n_features: int, n_outputs: int) -> NeuMissPredictor:
        """Returns the network, with weights that are not drawn yet."""
        return NeuMissPredictor(
            n_features,
            n_outputs,
            self.depth,
            shared_weights=self.shared_weights,
            residual=self.residual,
            width=self.width,
            n_blocks=self.n_blocks if self.width else 0,
        )

    def n_weights(self, n_features: int, n_outputs: int) -> int:
        """Returns the fewest weights that the largest layer of a saved network must have."""
        return max(self.width, n_outputs) * max(self.width, n_features)

    def initialise(self, module: NeuMissPredictor, rows: Incomplete, generator: torch.Generator) -> None:
        """Draws the weights."""
        module.reset_parameters(generator)

    def objective(self, loss: SquaredError | CrossEntropy) -> SquaredError | CrossEntropy:
        """Returns the objective of the training, which is the loss."""
        return loss


@dataclass(eq=False, repr=False)
class NeuMissNetworkBase(NetworkBase):
    """The parameters of the regressor and the classifier with a published NeuMiss network."""

    _architecture = NeuMissArchitecture

    depth: int = 5
    _: KW_ONLY
    shared_weights: bool = True
    residual: bool = False
    width: int = 64
    n_blocks: int = 1


@documented
class NeuMissNetworkRegressor(ScaledTargetRegressor, NeuMissNetworkBase):
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
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 2))
    >>> y = X[:, 0] + X[:, 1]
    >>> X[rng.random(X.shape) < 0.2] = np.nan
    >>> model = NeuMissNetworkRegressor(max_epochs=30, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.7)
    True
    """


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class NeuMissNetworkClassifier(WithClasses, ClassifierMixin, NeuMissNetworkBase):
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
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 2))
    >>> y = X[:, 0] + X[:, 1] > 0
    >>> X[rng.random(X.shape) < 0.2] = np.nan
    >>> model = NeuMissNetworkClassifier(max_epochs=10, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.8)
    True
    """

    class_weight: Any = None
