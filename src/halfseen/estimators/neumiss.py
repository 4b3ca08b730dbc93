"""NeuMiss predictors: regression and classification with any subset of the inputs missing."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import ndtri
from sklearn.base import ClassifierMixin, RegressorMixin
from torch import Tensor
from torch.nn import functional

from halfseen.data.incomplete import Incomplete
from halfseen.data.scaling import Standardizer
from halfseen.estimators._neumiss_base import NeuMissBase
from halfseen.estimators._targets import Classes, read_classes, read_numbers
from halfseen.training.neumiss import Classification, Regression, Task


class NeuMissRegressor(RegressorMixin, NeuMissBase):
    r"""Predicts numbers when any subset of the inputs is missing, at random or not.

    A joint Gaussian of inputs and targets, fitted to incomplete rows, gives for every pattern m of missing
    inputs

    .. math:: \mathrm{E}[y \mid x_o, m] = \mu_y + \Sigma_{y \cdot} h, \qquad
              (\Sigma + N_m) h = r_m

    which is one positive definite system for each row. Under MAR it is the best linear predictor. Under
    self-masking a missing input acts as a noisy observation at its most-masked value; held-out rows decide
    whether such a model is used (``missingness="auto"``). An ensemble of networks on the conditional means
    and standard deviations of the inputs and on the mask then corrects what is not linear, with a weight that
    is chosen on held-out rows.

    Parameters
    ----------
    missingness : {"auto", "mar", "self-masking-probit", "self-masking-gaussian"}, default="auto"
        The assumed mechanism: missing at random; a probability that rises or falls with the missing value; or
        a probability that is largest around some value. ``"auto"`` takes the one that predicts held-out
        targets best.
    head : {"auto", "linear", "mlp"}, default="auto"
        Whether networks correct the linear prediction: with a weight chosen on held-out rows, never, or with
        weight 1.
    n_networks : int, default=4
        The number of networks; their mean is the correction.
    width : int, default=128
        Units in each of their two hidden layers.
    max_epochs : int, default=200
        Maximum number of epochs of the networks.
    batch_size : int, default=256
        Rows per training step of the networks.
    learning_rate : float, default=1e-3
        Initial learning rate of the networks.
    patience : int, default=8
        Training stops after this many epochs without an improvement on held-out rows.
    validation_fraction : float, default=0.2
        The fraction of rows held out to choose the model of missingness, to stop the training and to
        calibrate. Tables with fewer than 50 rows hold out none and use the linear prediction.
    ridge : float or "auto", default="auto"
        Pseudo-rows of uncorrelated data in the fit of the Gaussian.
    callback : callable, optional
        Called with a progress record after each epoch of the networks.
    schema : dict, optional
        As in `GaussianImputer`, for the columns of X.
    random_state : int, numpy generator or None, default=None
        Seeds the held-out rows, starts and batches.

    Attributes
    ----------
    model_ : NeuMissModel
        The fitted model; ``model_.first.joint`` is the Gaussian of the standardised features followed by the
        standardised targets, ``model_.correction`` holds the networks.
    missingness_ : str
        The model of missingness that was chosen.
    validation_errors_ : dict
        The held-out squared error of each model of missingness that was tried.
    head_weight_ : float
        The weight of the networks' correction, from 0 to 1.

    References
    ----------
    Le Morvan, Josse, Moreau, Scornet & Varoquaux (2020), NeuMiss networks, propositions 2.1 and 2.2. We solve
    the system instead of unrolling a Neumann series, and fit its parameters by likelihood.

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

    _saved = (*NeuMissBase._saved, "_one_dimensional")

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the expected target of each row given its observed inputs, and that the rest is missing."""
        answer, _ = self._predict(X)
        return self._shaped(self._target_scaler.inverse(answer))

    def predict_interval(
        self, X: Any, level: float = 0.9
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Returns the ends of an interval that contains the target of each row with probability `level`.

        The width depends on the observed inputs of the row. It is scaled by a quantile of the held-out
        errors, so that the coverage over rows like those of training does not rest on their distribution.
        """
        if not 0 < level < 1:
            raise ValueError(f"level must be between 0 and 1, got {level!r}.")
        answer, spread = self._predict(X)
        calibration = self.model_.calibration
        factor = torch.full((answer.shape[1],), float(ndtri((1 + level) / 2)), dtype=torch.float64)
        if calibration.n_held_out:
            rank = min(1.0, level * (1 + 1 / calibration.n_held_out))
            factor = torch.quantile(calibration.errors, rank, dim=0, interpolation="higher")
        low, high = answer - factor * spread, answer + factor * spread
        inverse = self._target_scaler.inverse
        return self._shaped(inverse(low)), self._shaped(inverse(high))

    def _shaped(self, targets: Tensor) -> npt.NDArray[np.float64]:
        array: npt.NDArray[np.float64] = targets.numpy()
        return array[:, 0] if self._one_dimensional else array

    def _read_targets(self, y: Any, n_rows: int, counted: Tensor) -> tuple[Tensor, Tensor, Task]:
        numbers, self._one_dimensional = read_numbers(y, n_rows, self)
        self._target_scaler = Standardizer.fit(_complete(numbers[counted]))
        scaled = self._target_scaler.forward(numbers[counted])
        return scaled, scaled, Regression()

    def _state(self) -> dict[str, Tensor]:
        scaler = {"target.loc": self._target_scaler.loc, "target.scale": self._target_scaler.scale}
        return super()._state() | scaler

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        super()._restore(state)
        self._target_scaler = Standardizer(state["target.loc"], state["target.scale"])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags


class NeuMissClassifier(ClassifierMixin, NeuMissBase):
    r"""Predicts classes when any subset of the inputs is missing, at random or not.

    Scores are linear in the inputs; missing inputs enter by their conditional mean and variance:

    .. math:: \eta_k = \frac{b_k + w_k^\top \mathrm{E}[x \mid x_o, m]}
              {\sqrt{1 + \frac{\pi}{8} w_k^\top \mathrm{Cov}[x \mid x_o, m] w_k}}

    under the joint Gaussian of `NeuMissRegressor`. An ensemble of networks on the conditional means and
    standard deviations of the inputs and on the mask corrects what is not linear; its weight and the
    temperature of the probabilities are chosen on held-out rows.

    Parameters
    ----------
    missingness : {"auto", "mar", "self-masking-probit", "self-masking-gaussian"}, default="auto"
        The assumed mechanism, as in `NeuMissRegressor`.
    head : {"auto", "linear", "mlp"}, default="auto"
        Whether networks correct the linear scores: with a weight chosen on held-out rows, never, or with
        weight 1.
    n_networks : int, default=4
        The number of networks; their mean is the correction.
    width : int, default=128
        Units in each of their two hidden layers.
    max_epochs : int, default=200
        Maximum number of epochs of the networks.
    batch_size : int, default=256
        Rows per training step of the networks.
    learning_rate : float, default=1e-3
        Initial learning rate of the networks.
    patience : int, default=8
        Training stops after this many epochs without an improvement on held-out rows.
    validation_fraction : float, default=0.2
        The fraction of rows held out to choose the model of missingness, to stop the training and to
        calibrate. Tables with fewer than 50 rows hold out none and use the linear scores.
    ridge : float or "auto", default="auto"
        Pseudo-rows of uncorrelated data in the fit of the Gaussian.
    callback : callable, optional
        Called with a progress record after each epoch of the networks.
    schema : dict, optional
        As in `GaussianImputer`, for the columns of X.
    random_state : int, numpy generator or None, default=None
        Seeds the held-out rows, starts and batches.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The classes, sorted.
    model_ : NeuMissModel
        The fitted model, as in `NeuMissRegressor`.
    missingness_ : str
        The model of missingness that was chosen.
    validation_errors_ : dict
        The held-out squared error of the class indicators for each model of missingness that was tried.
    head_weight_ : float
        The weight of the networks' logits; above 1 if held-out rows ask for more extreme probabilities.
    temperature_ : float
        What the linear scores are divided by.

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

    _saved = (*NeuMissBase._saved, "_plain_classes")

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """The classes, sorted."""
        return Classes.from_plain(self._plain_classes).labels

    @property
    def temperature_(self) -> float:
        """What the linear scores are divided by, chosen on held-out rows."""
        return self.model_.calibration.temperature

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Returns the most probable class of each row."""
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(axis=1)]

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the probability of each class for each row, in the order of ``classes_``."""
        probabilities: npt.NDArray[np.float64] = self._predict(X)[0].softmax(dim=1).numpy()
        return probabilities

    def predict_log_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the log probability of each class for each row."""
        logs: npt.NDArray[np.float64] = self._predict(X)[0].log_softmax(dim=1).numpy()
        return logs

    def _read_targets(self, y: Any, n_rows: int, counted: Tensor) -> tuple[Tensor, Tensor, Task]:
        codes, classes = read_classes(y, n_rows, self)
        self._plain_classes = classes.to_plain()
        target = codes[counted]
        indicators = functional.one_hot(target, len(classes))[:, 1:].double()
        scaled = Standardizer.fit(_complete(indicators)).forward(indicators)
        return scaled, target, Classification(len(classes))


def _complete(x: Tensor) -> Incomplete:
    return Incomplete(x, torch.ones_like(x, dtype=torch.bool))
