"""Predictors of complete rows of numbers: linear models and boosted trees, stored as arrays."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import GridSearchCV
from torch import Tensor

from halfseen.models.forest import Forest

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

PENALTIES = np.logspace(-2, 4, 7)
INVERSE_PENALTIES = (0.01, 0.1, 1.0, 10.0)
MAX_ITERATIONS = 500
N_SPLITS = 3  # by which the penalty of a classifier is chosen


class RowScores(Protocol):
    """A fitted predictor of complete rows: a number, or the scores of classes.

    For two classes there is one score, the logit of the second class.
    """

    @property
    def constants(self) -> Floats:
        """The constants (K) of the scores."""
        ...

    @property
    def n_iter(self) -> int:
        """The number of trees of each score; 1 for a linear model."""
        ...

    def scores(self, rows: Floats) -> Floats:
        """Returns the scores (N, K) of rows (N, D)."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Returns all arrays as tensors."""
        ...


@dataclass(frozen=True)
class LinearScores:
    """A linear model.

    Shapes
    ------
    slopes : (D, K)
    constants : (K)
    """

    slopes: Floats
    constants: Floats
    n_iter: ClassVar[int] = 1

    @classmethod
    def regress(cls, rows: Floats, y: Floats) -> "LinearScores":
        """Returns a ridge regression whose penalty has the lowest leave-one-out error."""
        centre = float(y.mean())
        spread = float(np.abs(y - centre).max()) or 1.0  # squares of the largest floats overflow
        fitted = RidgeCV(alphas=PENALTIES).fit(rows, (y - centre) / spread)
        return cls(spread * fitted.coef_[:, None], np.array([centre + spread * float(fitted.intercept_)]))

    @classmethod
    def classify(cls, rows: Floats, y: Integers, inverse_penalty: float) -> "LinearScores":
        """Returns a penalised logistic regression of the classes y (N)."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the optimum need not be exact
            fitted = _logistic(inverse_penalty).fit(rows, y)
        return cls(np.ascontiguousarray(fitted.coef_.T), fitted.intercept_)

    def scores(self, rows: Floats) -> Floats:
        """Returns the scores (N, K) of rows (N, D)."""
        found: Floats = rows @ self.slopes + self.constants
        return found

    def state(self) -> dict[str, Tensor]:
        """Returns all arrays as tensors."""
        return {"slopes": torch.from_numpy(self.slopes), "constants": torch.from_numpy(self.constants)}


@dataclass(frozen=True)
class TreeScores:
    """Boosted trees and the constants (K) to add to their sums."""

    forest: Forest
    constants: Floats

    @property
    def n_iter(self) -> int:
        """The number of trees of each score."""
        return self.forest.n_trees // len(self.constants)

    def scores(self, rows: Floats) -> Floats:
        """Returns the scores (N, K) of rows (N, D)."""
        return self.forest.sums(rows, len(self.constants)) + self.constants

    def state(self) -> dict[str, Tensor]:
        """Returns all arrays as tensors."""
        trees = {f"trees.{name}": tensor for name, tensor in self.forest.state().items()}
        return trees | {"constants": torch.from_numpy(self.constants)}


def choose_inverse_penalty(rows: Floats, y: Integers) -> float:
    """Returns the inverse penalty of a logistic regression with the lowest log-loss by cross-validation.

    If a class has fewer rows than there are folds, it is 1.
    """
    if np.bincount(y).min() < N_SPLITS:
        return 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        search = GridSearchCV(
            _logistic(1.0), {"C": INVERSE_PENALTIES}, scoring="neg_log_loss", cv=N_SPLITS, refit=False
        ).fit(rows, y)
    return float(search.best_params_["C"])


def scores_from_state(state: Mapping[str, Tensor], n_features: int) -> RowScores:
    """Rebuilds a predictor from what `state` returned; raises a ValueError if it is not one of such rows."""
    constants = state["constants"].numpy()
    if constants.ndim != 1 or constants.dtype != np.float64:
        raise ValueError(f"the constants have the type {constants.dtype} and the shape {constants.shape}")
    if "slopes" in state:
        slopes = state["slopes"].numpy()
        if slopes.shape != (n_features, len(constants)) or slopes.dtype != np.float64:
            raise ValueError(f"slopes of the shape {slopes.shape} do not fit {n_features} features")
        return LinearScores(slopes, constants)
    prefix = "trees."
    forest = Forest.from_state(
        {name.removeprefix(prefix): one for name, one in state.items() if name.startswith(prefix)}
    )
    if forest.feature.max(initial=-1) >= n_features or forest.n_trees % max(1, len(constants)):
        raise ValueError(f"the trees do not fit {n_features} features and {len(constants)} scores")
    return TreeScores(forest, constants)


def _logistic(inverse_penalty: float) -> LogisticRegression:
    return LogisticRegression(C=inverse_penalty, max_iter=MAX_ITERATIONS)
