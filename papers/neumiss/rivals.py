"""The competitors of NeuMiss: a perceptron with the mask as input, and predictors that know the truth."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from halfseen.data.incomplete import Incomplete
from halfseen.neumiss.gaussian_block import Solver, masked_solve
from papers.neumiss.task import Task

Floats = npt.NDArray[np.float64]


class MaskMLP(RegressorMixin, BaseEstimator):
    """A perceptron with one hidden layer on the rows, with 0 for missing values, and on the mask.

    As in the NeuMiss paper missing values are filled on the raw scale, and then all columns are standardised.
    Where the paper trains for up to 2000 epochs and takes the best of 12 widths on validation rows, this one
    has one width (see `BestWidthMLP`), a standardised target, and scikit-learn's early stopping on a tenth of
    the rows.

    Parameters
    ----------
    width_factor : int
        The number of hidden units over the number of features.
    random_state : int
        Seeds training.
    """

    def __init__(self, width_factor: int = 10, random_state: int = 0) -> None:
        self.width_factor = width_factor
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> "MaskMLP":
        """Trains on rows with NaN where missing."""
        network = MLPRegressor(
            hidden_layer_sizes=(self.width_factor * np.shape(X)[1],),
            batch_size=200,
            early_stopping=True,
            n_iter_no_change=15,
            max_iter=300,
            random_state=self.random_state,
        )
        target = TransformedTargetRegressor(network, transformer=StandardScaler())
        self.model_ = make_pipeline(StandardScaler(), target).fit(_with_mask(X), y)
        return self

    def predict(self, X: Any) -> Floats:
        """Returns the prediction of each row."""
        predicted: Floats = self.model_.predict(_with_mask(X))
        return predicted


class BestWidthMLP(RegressorMixin, BaseEstimator):
    """The perceptron of the width that has the least squared error on validation rows, as in the paper.

    Parameters
    ----------
    width_factors : sequence of int
        The numbers of hidden units, over the number of features, to choose from.
    random_state : int
        Seeds training.

    Attributes
    ----------
    width_factor_ : int
        The width that was chosen.
    validation_errors_ : dict
        The mean squared error on validation rows by width.
    """

    def __init__(self, width_factors: Sequence[int], random_state: int = 0) -> None:
        self.width_factors = width_factors
        self.random_state = random_state

    def fit(self, X: Any, y: Any, validation: tuple[Any, Any]) -> "BestWidthMLP":
        """Trains one perceptron of each width and keeps the best on validation rows."""
        models = {q: MaskMLP(q, self.random_state).fit(X, y) for q in self.width_factors}
        held, target = validation
        self.validation_errors_ = {
            q: float(np.mean((model.predict(held) - target) ** 2)) for q, model in models.items()
        }
        self.width_factor_ = min(self.validation_errors_, key=self.validation_errors_.__getitem__)
        self.model_ = models[self.width_factor_]
        return self

    def predict(self, X: Any) -> Floats:
        """Returns the prediction of each row."""
        return self.model_.predict(X)


def _with_mask(X: Any) -> Floats:
    missing = np.isnan(X)
    return np.hstack([np.where(missing, 0.0, X), missing])


@runtime_checkable
class Oracle(Protocol):
    """A predictor that is not fitted: it knows the problem."""

    def answer(self, task: Task) -> Floats:
        """Returns the prediction of each test row."""


@dataclass(frozen=True)
class ChainedOracles:
    r"""The response at the expected score, as if the best imputation were followed by the best regression.

    .. math:: \hat y = g(\mathrm{E}[s \mid x_o, m])

    It is biased where the response g is not linear; the second NeuMiss paper chains oracles so.
    """

    def answer(self, task: Task) -> Floats:
        """Returns the prediction of each test row."""
        return task.problem.predict_plugged_in(task.test.incomplete)


@dataclass(frozen=True)
class TruncatedSolve:
    r"""The Bayes predictor of the true Gaussian, with the inverse replaced by a few steps of a solver.

    .. math:: \hat y = \beta_0 + \langle \beta, \bar m \odot x + m \odot (\mu + \Sigma h) \rangle, \qquad
              h \approx \Sigma_{oo}^{-1} (x_o - \mu_o)

    Parameters
    ----------
    solver : {"neumann", "chebyshev", "cg"}
        ``"neumann"`` is the paper's series :math:`h = \frac1L \sum_{k \leq l} (I - \Sigma_{oo} / L)^k (x_o -
        \mu_o)`, with the spectral norm L of each pattern's own :math:`\Sigma_{oo}`. The others are those of
        `masked_solve`, which know the spectrum of :math:`\Sigma` only.
    order : int
        The number of products with the matrix.

    References
    ----------
    Le Morvan, Josse, Moreau, Scornet & Varoquaux (2020), NeuMiss networks, equation 7 and figure 3.
    """

    solver: Solver
    order: int

    def answer(self, task: Task) -> Floats:
        """Returns the prediction of each test row."""
        score = task.problem.score
        loc, covariance = torch.from_numpy(score.loc), torch.from_numpy(score.covariance)
        batch = Incomplete.from_array(task.test.incomplete)
        residual = batch.filled(loc) - loc
        if self.solver == "neumann":
            h = neumann_series(covariance, batch.observed, residual, self.order)
        else:
            no_precision = torch.zeros_like(loc)
            h = masked_solve(
                covariance, batch.observed, residual, no_precision, solver=self.solver, depth=self.order
            )
        return score(batch.filled(loc + h @ covariance).numpy())


def neumann_series(covariance: Tensor, observed: Tensor, residual: Tensor, order: int) -> Tensor:
    """Returns the truncated series (N, D), each row scaled by the spectral norm of what it observes."""
    seen = observed.to(covariance.dtype)
    norms = [
        torch.linalg.eigvalsh(part[:, :, None] * covariance * part[:, None, :])[:, -1]
        for part in seen.split(4096)
    ]
    norm = torch.cat(norms).clamp(min=1e-12)[:, None]  # where nothing was seen there is no norm
    h = residual
    for _ in range(order):
        h = h - torch.where(observed, h @ covariance, 0.0) / norm + residual
    return h / norm
