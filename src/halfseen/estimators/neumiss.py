"""Prediction when any subset of the inputs is missing, whatever the reason."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import ndtri
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d
from torch import Tensor
from torch.nn import functional

from halfseen.data.incomplete import Incomplete
from halfseen.data.scaling import Standardizer
from halfseen.estimators._neumiss import NeuMissBase, Rows, View
from halfseen.models.conditional import RowLaw, condition, only_features, with_scores
from halfseen.objectives.supervised import CrossEntropy, SquaredError
from halfseen.training.logistic import Logistic, fit_blend, fit_logistic

LOGISTIC_ROUNDS = 3  # of scores, and then their variances
N_QUANTILES = 1000  # kept of the held-out errors


class NeuMissRegressor(RegressorMixin, NeuMissBase):
    r"""Predicts numbers when any subset of the inputs is missing, at random or not.

    A Gaussian of inputs and targets, fitted to rows with holes, gives for every pattern m of missing inputs

    .. math:: \mathrm{E}[y \mid x_o, m] = \mu_y + \Sigma_{y \cdot} h, \qquad
              (\Sigma + N_m) h = r_m

    which is one positive definite system for each row. Under missing at random it is the best linear
    predictor; where inputs hide themselves, a hidden cell counts as seen at the value that it
    hides most, with noise, and held-out rows decide whether and how (``missingness="auto"``). Networks
    on the expected inputs, their deviations and the mask then correct what is not linear, and count as much
    as held-out rows ask for.

    Parameters
    ----------
    missingness : {"auto", "mar", "self-masking-probit", "self-masking-gaussian"}, default="auto"
        The assumed mechanism: missing at random; a probability that rises or falls with the missing value; or
        a probability that is largest around some value. ``"auto"`` takes the one that predicts held-out
        targets best.
    head : {"auto", "linear", "mlp"}, default="auto"
        Whether networks correct the linear answer: as far as held-out rows ask for it, never, or fully.
    n_networks : int, default=4
        Networks whose mean is the correction.
    width : int, default=128
        Units in each of their two hidden layers.
    max_epochs, batch_size, learning_rate, patience
        Of the training of the networks, which stops early on held-out rows.
    validation_fraction : float, default=0.2
        The share of rows held out to decide all this; tables below 50 rows hold out none and stay linear.
    ridge : float or "auto", default="auto"
        Pseudo-rows of uncorrelated data in the fit of the Gaussian.
    callback : callable, optional
        Called with a progress record after each epoch of the networks.
    schema : dict, optional
        As in `GaussianImputer`, for the columns of X.
    random_state : int, numpy generator or None, default=None
        Seeds everything.

    Attributes
    ----------
    law_ : Gaussian or SelfMaskedGaussian
        Of the standardised features followed by the standardised targets.
    missingness_ : str
        The model of missingness that was chosen.
    validation_errors_ : dict
        The held-out squared error of each model of missingness that was tried.
    head_weight_ : float
        How much the networks count, from 0 to 1.

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
        """Returns the expected target of each row given what it shows, and that the rest is missing."""
        answer, _ = self._answers(X)
        return self._shaped(self._target_scaler.inverse(answer))

    def predict_interval(
        self, X: Any, level: float = 0.9
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Returns the ends of an interval that holds the target of each row with probability `level`.

        Its width follows what the row shows; its factor is that of the held-out errors, so that the coverage
        over rows like those of training is right whatever the errors look like.
        """
        if not 0 < level < 1:
            raise ValueError(f"level must be between 0 and 1, got {level!r}.")
        answer, spread = self._answers(X)
        factor = torch.full((self._n_answers,), float(ndtri((1 + level) / 2)), dtype=torch.float64)
        if len(self._errors):
            rank = min(1.0, level * (1 + 1 / self._n_held_out))
            factor = torch.quantile(self._errors, rank, dim=0, interpolation="higher")
        inverse = self._target_scaler.inverse
        return self._shaped(inverse(answer - factor * spread)), self._shaped(
            inverse(answer + factor * spread)
        )

    def _shaped(self, targets: Tensor) -> npt.NDArray[np.float64]:
        array: npt.NDArray[np.float64] = targets.numpy()
        return array[:, 0] if self._one_dimensional else array

    def _targets(self, y: Any, counted: Tensor) -> tuple[Tensor, Tensor]:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        array = check_array(y, input_name="y", ensure_2d=False, dtype=np.float64)
        check_consistent_length(counted, array)
        self._one_dimensional = array.ndim == 1
        targets = Incomplete.from_array(array.reshape(len(counted), -1))[counted]
        self._target_scaler = Standardizer.fit(targets)
        self._n_answers = targets.n_features
        scaled = self._target_scaler.forward(targets.x)
        return scaled, scaled

    def _answering(self, law: RowLaw, rows: Rows | None = None) -> RowLaw:
        return law

    def _read_out(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        return mean, variance.sqrt()

    def _objective(self) -> SquaredError:
        return SquaredError()

    def _calibrate(self, view: View, correction: Tensor | None, rows: Rows) -> None:
        """Weighs the networks by least squares on held-out rows, and keeps the size of the errors."""
        self._n_held_out, self._errors = 0, torch.zeros(0, self._n_answers, dtype=torch.float64)
        if not self.validation_errors_:
            return
        residual = rows.target - view.base
        if correction is not None:
            weights = rows.weights[:, None]
            size = (weights * correction.square()).sum().clamp(min=1e-12)
            best = float((weights * correction * residual).sum() / size)
            self.head_weight_ = 1.0 if self.head == "mlp" else min(1.0, max(0.0, best))
            residual = residual - self.head_weight_ * correction
        relative = residual.abs() / view.spread.clamp(min=1e-9)
        self._n_held_out = len(relative)
        levels = torch.linspace(0, 1, min(N_QUANTILES, len(relative)), dtype=torch.float64)
        self._errors = _weighted_quantiles(relative, rows.weights, levels)

    def _state(self) -> dict[str, Tensor]:
        return super()._state() | {
            "target.loc": self._target_scaler.loc,
            "target.scale": self._target_scaler.scale,
            "target.errors": self._errors,
            "target.held_out": torch.tensor(self._n_held_out),
        }

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        super()._restore(state)
        self._target_scaler = Standardizer(state["target.loc"], state["target.scale"])
        self._errors = state["target.errors"]
        self._n_held_out = int(state["target.held_out"])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags


class NeuMissClassifier(ClassifierMixin, NeuMissBase):
    r"""Predicts classes when any subset of the inputs is missing, at random or not.

    Scores are linear in the inputs; what a row does not show enters by its conditional mean and variance:

    .. math:: \eta_k = \frac{b_k + w_k^\top \mathrm{E}[x \mid x_o, m]}
              {\sqrt{1 + \frac{\pi}{8} w_k^\top \mathrm{Cov}[x \mid x_o, m] w_k}}

    under the law of `NeuMissRegressor`. Networks on the expected inputs, deviations and the mask correct
    what is not linear; how much they count, and how bold probabilities are, is calibrated on held-out rows.

    Parameters
    ----------
    missingness, head, n_networks, width, max_epochs, batch_size, learning_rate
        As in `NeuMissRegressor`.
    patience, validation_fraction, ridge, callback, schema, random_state
        As in `NeuMissRegressor`.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The classes, sorted.
    missingness_, validation_errors_
        As in `NeuMissRegressor`.
    head_weight_ : float
        By which the logits of the networks count; above 1 if held-out rows ask for bolder ones.
    temperature_ : float
        By which held-out rows ask to divide the linear scores.

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

    _saved = (*NeuMissBase._saved, "temperature_", "_class_list", "_class_dtype")

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Returns the most probable class of each row."""
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(axis=1)]

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the probability of each class for each row, in the order of ``classes_``."""
        probabilities: npt.NDArray[np.float64] = self._answers(X)[0].softmax(dim=1).numpy()
        return probabilities

    def predict_log_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the log probability of each class for each row."""
        logs: npt.NDArray[np.float64] = self._answers(X)[0].log_softmax(dim=1).numpy()
        return logs

    def _targets(self, y: Any, counted: Tensor) -> tuple[Tensor, Tensor]:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        labels = column_or_1d(y, warn=True)
        if labels.dtype.kind in "OmM" and any(label is None or label != label for label in labels):
            raise ValueError("Input y contains NaN or None: leave out the rows whose class is not known.")
        assert_all_finite(labels, input_name="y")
        check_classification_targets(labels)
        check_consistent_length(counted, labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            only = self.classes_.tolist()[0]
            raise ValueError(f"{type(self).__name__} needs at least two classes, got 1 class: {only!r}.")
        is_time = self.classes_.dtype.kind in "mM"  # which a file holds as whole numbers
        self._class_list = (self.classes_.view(np.int64) if is_time else self.classes_).tolist()
        self._class_dtype = self.classes_.dtype.str
        self._n_answers = 1 if len(self.classes_) == 2 else len(self.classes_)
        target = torch.from_numpy(codes.astype(np.int64))[counted]
        indicators = functional.one_hot(target, len(self.classes_))[:, 1:].double()
        scaler = Standardizer.fit(Incomplete(indicators, torch.ones_like(indicators, dtype=torch.bool)))
        return scaler.forward(indicators), target

    def _answering(self, law: RowLaw, rows: Rows | None = None) -> RowLaw:
        """Returns the law of features and scores; with rows, the scores are fitted first."""
        inner = only_features(law, self._features.n_features)
        if rows is not None:
            self.temperature_ = 1.0
            self._fit_scores(inner, rows)
        return with_scores(inner, self._logistic.weights)

    def _fit_scores(self, law: RowLaw, rows: Rows) -> None:
        mean, _ = condition(law, rows.batch, 0)
        variance = torch.zeros(len(rows), self._n_answers, dtype=mean.dtype)
        found: Logistic | None = None
        for _ in range(LOGISTIC_ROUNDS if not bool(rows.batch.observed.all()) else 1):
            found = fit_logistic(
                mean - law.loc, variance, rows.target, len(self.classes_), weights=rows.weights, start=found
            )
            scored = with_scores(law, found.weights)
            variance = condition(scored, rows.batch, self._n_answers)[1][:, -self._n_answers :]
        assert found is not None
        self._logistic = found

    def _read_out(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        return self._logistic(mean, variance), variance.sqrt()

    def _tempered(self, base: Tensor) -> Tensor:
        return base / self.temperature_

    def _objective(self) -> CrossEntropy:
        return CrossEntropy()

    def _calibrate(self, view: View, correction: Tensor | None, rows: Rows) -> None:
        """Finds on held-out rows how much networks count, and how bold scores are."""
        if not self.validation_errors_:
            return
        bold, self.head_weight_ = fit_blend(
            view.base, correction, rows.target, weights=rows.weights, full=self.head == "mlp"
        )
        self.temperature_ = 1 / bold

    @property
    def _n_outputs(self) -> int:
        return len(self.classes_)

    def _state(self) -> dict[str, Tensor]:
        scores = {"logistic.weights": self._logistic.weights, "logistic.bias": self._logistic.bias}
        return super()._state() | scores

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        self.classes_ = np.array(self._class_list, dtype=self._class_dtype)
        self._logistic = Logistic(state["logistic.weights"], state["logistic.bias"])
        super()._restore(state)


def _weighted_quantiles(values: Tensor, weights: Tensor, levels: Tensor) -> Tensor:
    """Returns (L, T): the smallest of values (N, T) up to which rows have each share of the weight (N)."""
    ordered, order = values.sort(dim=0)
    share = weights[order].cumsum(dim=0) / weights.sum()  # (N, T)
    place = torch.searchsorted(share.T.contiguous(), levels.expand(values.shape[1], -1).contiguous())
    return ordered.gather(0, place.T.clamp(max=len(values) - 1))
