"""NeuMiss predictors: regression and classification with any subset of the inputs missing."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import ndtri
from sklearn.base import ClassifierMixin
from torch import Tensor
from torch.nn import functional

from halfseen.data.incomplete import Incomplete
from halfseen.data.scaling import Standardizer
from halfseen.estimators._neumiss_base import NeuMissBase
from halfseen.estimators._scaled_targets import ScaledTargetRegressor
from halfseen.estimators._targets import WithClasses, read_numbers
from halfseen.estimators.model_checks import finite_answer
from halfseen.estimators.neumiss_parameters import documented
from halfseen.training.neumiss import Classification, PredictionTask, Regression


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

    _saved = (*NeuMissBase._saved, "_one_dimensional")

    @finite_answer
    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the expected target of each row, given its observed inputs and its mask."""
        answer, _ = self._predict(X)
        return self._shaped(self._target_scaler.inverse(answer))

    @finite_answer
    def predict_interval(
        self, X: Any, level: float = 0.9
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Returns the ends of an interval that contains the target of each row with probability `level`.

        The width depends on the observed inputs of the row. It is scaled by a quantile of the held-out
        errors, so that the average coverage over new rows does not depend on the shape of their distribution.
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

    def _read_targets(self, y: Any, n_rows: int, counted: Tensor) -> tuple[Tensor, Tensor, PredictionTask]:
        numbers, self._one_dimensional = read_numbers(y, n_rows, self)
        self._target_scaler = Standardizer.fit(_complete(numbers[counted]))
        scaled = self._target_scaler.forward(numbers[counted])
        return scaled, scaled, Regression()


@documented
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
    classes_ : array of shape (n_classes,)
        The classes, sorted.
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

    _saved = (*NeuMissBase._saved, "_plain_classes")

    @property
    def temperature_(self) -> float:
        """The divisor of the linear scores, chosen on held-out rows."""
        return self.model_.calibration.temperature

    @finite_answer
    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the probability of each class for each row, in the order of ``classes_``."""
        probabilities: npt.NDArray[np.float64] = self._predict(X)[0].softmax(dim=1).numpy()
        return probabilities

    def predict_log_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the log probability of each class for each row."""
        logs: npt.NDArray[np.float64] = self._predict(X)[0].log_softmax(dim=1).numpy()
        return logs

    def _read_targets(self, y: Any, n_rows: int, counted: Tensor) -> tuple[Tensor, Tensor, PredictionTask]:
        target = self._read_class_codes(y, n_rows)[counted]
        n_classes = len(self.classes_)
        indicators = functional.one_hot(target, n_classes)[:, 1:].double()
        scaled = Standardizer.fit(_complete(indicators)).forward(indicators)
        return scaled, target, Classification(n_classes)


def _complete(x: Tensor) -> Incomplete:
    return Incomplete(x, torch.ones_like(x, dtype=torch.bool))
