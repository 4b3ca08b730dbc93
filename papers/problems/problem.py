"""The interface of simulated problems: complete data, a mask, and the Bayes predictor."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Generator = np.random.RandomState | np.random.Generator


class Sample(NamedTuple):
    """Complete rows, their targets, and the mask (True for observed values).

    Examples
    --------
    >>> sample = Sample(np.array([[1.0, 2.0]]), np.array([3.0]), np.array([[True, False]]))
    >>> sample.incomplete
    array([[ 1., nan]])
    """

    X: Floats
    y: Floats
    observed: Bools

    def take(self, rows: slice) -> "Sample":
        """Returns some of the rows."""
        return Sample(self.X[rows], self.y[rows], self.observed[rows])

    @property
    def incomplete(self) -> Floats:
        """The rows with NaN for missing values."""
        return np.where(self.observed, self.X, np.nan)


class Problem(ABC):
    r"""A joint distribution of rows, targets and masks whose Bayes predictor is known.

    .. math:: f^*(x_o, m) = \mathrm{E}[y \mid x_o, m]

    where :math:`o` are the observed features and :math:`m` is the mask. No predictor has a smaller expected
    squared error, whatever it was trained on.
    """

    @abstractmethod
    def sample(self, n_samples: int, random_state: Any = None) -> Sample:
        """Returns complete rows X, targets y and the boolean `observed`, True for observed values."""

    @abstractmethod
    def predict_bayes(self, X: npt.ArrayLike) -> Floats:
        """Returns the expected target of each row given its observed cells, and that the rest is missing."""

    def bayes_r2(self, X: npt.ArrayLike, y: npt.ArrayLike) -> float:
        """Returns the R2 of the Bayes predictor on these rows.

        With several targets it is the mean over them.
        """
        target = np.asarray(y, dtype=np.float64)
        error = np.mean((target - self.predict_bayes(X)) ** 2, axis=0)
        return float(np.mean(1 - error / np.var(target, axis=0)))


class ImputationProblem(Problem):
    """A problem whose target is the complete row, so that imputation is prediction."""

    def bayes_r2(self, X: npt.ArrayLike, y: npt.ArrayLike) -> float:
        """Returns one minus the ratio of the squared errors of the best imputation and of column means of y.

        Only missing cells are used.
        """
        rows, target = incomplete_rows(X), np.asarray(y, dtype=np.float64)
        missing = np.isnan(rows)
        error = (target - self.predict_bayes(rows))[missing]
        spread = (target - target.mean(axis=0))[missing]
        return float(1 - np.sum(error**2) / np.sum(spread**2))

    def bayes_rmse(self, X: npt.ArrayLike, y: npt.ArrayLike) -> float:
        """Returns the root mean square error of the best imputation of the missing cells."""
        rows = incomplete_rows(X)
        error = (np.asarray(y, dtype=np.float64) - self.predict_bayes(rows))[np.isnan(rows)]
        return float(np.sqrt(np.mean(error**2)))


def incomplete_rows(X: npt.ArrayLike, n_features: int | None = None) -> Floats:
    """Returns X as a new two-dimensional float array, with NaN where missing."""
    rows = np.array(X, dtype=np.float64)
    if rows.ndim != 2:
        raise ValueError(f"X must have two dimensions, rows and features; got shape {rows.shape}.")
    if n_features is not None and rows.shape[1] != n_features:
        raise ValueError(f"X must have {n_features} features, as the problem has; got {rows.shape[1]}.")
    return rows


def data_generator(random_state: Any) -> Generator:
    """Returns a numpy generator; an integer seeds the legacy one, whose stream no numpy version may change.

    This reproduces the published data sets of papers that used it.
    """
    if isinstance(random_state, np.random.RandomState | np.random.Generator):
        return random_state
    if random_state is None:
        return np.random.default_rng()
    if not isinstance(random_state, int | np.integer) or not 0 <= random_state < 2**32:
        raise ValueError(
            f"random_state must be None, an integer below 2**32 or a numpy generator, got {random_state!r}."
        )
    return np.random.RandomState(int(random_state))
