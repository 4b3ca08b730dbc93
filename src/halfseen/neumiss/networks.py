"""The published NeuMiss networks as estimators, trained end to end on the targets alone."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

from halfseen.base.network import NETWORK_DESCRIPTIONS, NetworkBase, NetworkClassifier, NetworkRegressor
from halfseen.base.parameters import check_whole, documented_by
from halfseen.neumiss.network import NeuMissPredictor
from halfseen.training.progress import Progress

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


@dataclass(eq=False, repr=False)
class _NeuMissNetwork(NetworkBase):
    """The parameters of a NeuMiss network, and how it is built."""

    depth: int = 5
    _: KW_ONLY
    shared_weights: bool = True
    residual: bool = False
    width: int = 64
    n_blocks: int = 1
    max_epochs: int = 100
    batch_size: int | str = "auto"
    learning_rate: float = 1e-2
    weight_decay: float = 0.1
    patience: int = 20
    validation_fraction: float = 0.2
    callback: Callable[[Progress], None] | None = None
    schema: Any = None
    random_state: Any = None

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

    def _n_weights(self) -> int:
        return max(self.width, self._n_outputs) * max(self.width, self._features.n_features)

    def _check_parameters(self) -> None:
        for name, lowest in {"depth": 0, "width": 0, "n_blocks": 0}.items():
            check_whole(name, getattr(self, name), lowest)
        self._check_training()


@documented
class NeuMissNetworkRegressor(NetworkRegressor, _NeuMissNetwork):
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
class NeuMissNetworkClassifier(NetworkClassifier, _NeuMissNetwork):
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
