"""Predictors for rows with missing inputs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import ndtri
from torch import Tensor

from halfseen._random import torch_generator
from halfseen._threads import task_threads
from halfseen.base.model_file import finite_answer
from halfseen.base.parameters import all_or_nothing, check_level
from halfseen.base.table import ScaledTargetRegressor, map_pieces, rows_at_once
from halfseen.base.targets import read_numbers
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete, Standardizer
from halfseen.gaussian.distribution import Gaussian
from halfseen.gaussian.em import em_settings, fit_gaussian


@dataclass(eq=False, repr=False, kw_only=True)
class GaussianRegressor(ScaledTargetRegressor):
    r"""Linear regression with missing inputs, by a joint Gaussian of inputs and targets.

    .. math:: \mathrm{E}[y \mid x_o] = \mu_y + \Sigma_{yo} \Sigma_{oo}^{-1} (x_o - \mu_o)

    The joint Gaussian gives a linear regression for every pattern of missing inputs. Values are assumed to be
    missing at random (MAR). The prediction is the best linear one if values are missing completely at random,
    and the Bayes predictor if the data are Gaussian and missing at random. Any input may be missing in
    prediction, including inputs that were complete in training.

    Parameters
    ----------
    ridge : float or "auto", default="auto"
        Regularisation: the number of pseudo-rows of uncorrelated data that are added to the table. ``"auto"``
        chooses it by held-out likelihood if there are few rows.
    max_iter : int, default=200
        Maximum number of EM iterations.
    tol : float, default=2e-5
        EM stops when an iteration increases the log-likelihood per row and feature by less than this.
    schema : dict, optional
        As in `GaussianImputer`, for the columns of X.
    random_state : int, numpy generator or None, default=None
        Seeds fitting.

    Attributes
    ----------
    schema_ : Schema
        The kind of each column, and the reasons.
    gaussian_ : Gaussian
        The distribution of the standardised features, followed by the standardised targets.
    objective_ : list of float
        The penalised log-likelihood per row after each EM iteration; it never decreases.
    n_iter_ : int
        The number of EM iterations.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2))
    >>> y = X[:, 0] + X[:, 1]
    >>> X[rng.random(X.shape) < 0.2] = np.nan
    >>> GaussianRegressor().fit(X, y).predict([[1.0, 2.0], [1.0, np.nan]]).round(1)
    array([3., 1.])
    """

    _saved = ("objective_", "n_iter_", "_one_dimensional")

    ridge: float | str = "auto"
    max_iter: int = 200
    tol: float = 2e-5
    schema: Any = None
    random_state: Any = None

    @all_or_nothing
    @task_threads()
    def fit(self, X: Any, y: Any) -> "GaussianRegressor":
        """Fits the joint Gaussian of inputs and targets.

        Parameters
        ----------
        X : pandas, polars or pyarrow table, or array-like of shape (n_samples, n_features)
            Missing values are None, NaN, NaT, NA or null.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            The targets, without missing values.
        """
        read = self._read(X, reset=True)
        numbers, self._one_dimensional = read_numbers(y, read.table.n_rows, self)
        targets = Incomplete(numbers, torch.ones_like(numbers, dtype=torch.bool))
        generator = torch_generator(self.seed_)
        self._features = FeatureMap.fit(self._modelled, read.codes, all_indicators=False)
        self._target_scaler = Standardizer.fit(targets)
        batch = self._joined(read.codes, Incomplete(self._target_scaler.forward(targets.x), targets.observed))
        settings = em_settings(batch, self.ridge, self.max_iter, self.tol, generator)
        result = fit_gaussian(batch, settings, generator=generator)
        self.objective_ = list(result.objective)
        self.n_iter_ = len(self.objective_)
        self.gaussian_ = result.gaussian
        return self

    @finite_answer
    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the expected target of each row, given its observed inputs."""
        return self._predict(X)[0]

    @finite_answer
    def predict_interval(
        self, X: Any, level: float = 0.9
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Returns the ends of an interval that contains the target of each row with probability `level`."""
        check_level(level)
        mean, deviation = self._predict(X)
        half = ndtri((1 + level) / 2) * deviation
        return mean - half, mean + half

    @task_threads()
    def _predict(self, X: Any) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        codes = self._read(X, reset=False).codes
        n_targets = len(self._target_scaler.loc)

        def answer(part: Incomplete) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
            unknown = torch.zeros(len(part), n_targets, dtype=torch.float64)
            batch = self._joined(part, Incomplete(unknown, unknown.bool()))
            mean = self.gaussian_.conditional_mean(batch)[:, -n_targets:]
            variance = self.gaussian_.conditional_variance(batch)[:, -n_targets:]
            deviation = variance.sqrt() * self._target_scaler.scale
            return self._target_scaler.inverse(mean).numpy(), deviation.numpy()

        size = rows_at_once(len(self.schema_), len(self.gaussian_.loc))
        means, deviations = zip(*map_pieces(answer, codes, size), strict=True)
        shape = (-1,) if self._one_dimensional else (-1, n_targets)
        return np.concatenate(means).reshape(shape), np.concatenate(deviations).reshape(shape)

    def _joined(self, codes: Incomplete, targets: Incomplete) -> Incomplete:
        features = self._features.encode(codes)
        return Incomplete(
            torch.cat([features.x, targets.x], dim=1), torch.cat([features.observed, targets.observed], dim=1)
        )

    def _state(self) -> dict[str, Tensor]:
        return self._features.state() | {
            "gaussian.loc": self.gaussian_.loc,
            "gaussian.covariance": self.gaussian_.covariance,
            "target.loc": self._target_scaler.loc,
            "target.scale": self._target_scaler.scale,
        }

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        self._features = FeatureMap.from_state(self._modelled, state, all_indicators=False)
        self._target_scaler = Standardizer.checked(state["target.loc"], state["target.scale"])
        self.gaussian_ = Gaussian.checked(state["gaussian.loc"], state["gaussian.covariance"])
