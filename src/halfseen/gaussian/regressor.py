"""Regression by a joint Gaussian of inputs and targets; inputs may be missing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from halfseen._threads import task_threads
from halfseen.base.parameters import TARGETS, documented_fit
from halfseen.base.predictor import ScaledTargetRegressor, Steps, fit_predictor
from halfseen.base.table import map_pieces, rows_at_once
from halfseen.base.targets import Fitted, unequal
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete, Standardizer
from halfseen.gaussian.distribution import Gaussian
from halfseen.gaussian.em import em_settings, fit_gaussian
from halfseen.training.supervised import Labelled

JointRows = Labelled[Incomplete]  # inputs and targets as the features of one Gaussian


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
    >>> from halfseen.datasets import load_penguins
    >>> penguins = load_penguins("pandas").dropna(subset=["body_mass_g"])
    >>> inputs = penguins[["bill_length_mm", "flipper_length_mm", "sex"]]
    >>> model = GaussianRegressor().fit(inputs, penguins["body_mass_g"])
    >>> round(model.score(inputs, penguins["body_mass_g"]), 2)
    0.8
    """

    _saved = ("objective_", "n_iter_")

    ridge: float | str = "auto"
    max_iter: int = 200
    tol: float = 2e-5
    schema: Any = None
    random_state: Any = None

    gaussian_: Gaussian = field(init=False)  # a fitted attribute, no parameter

    @documented_fit(y=TARGETS)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "GaussianRegressor":
        """Fits the joint Gaussian of inputs and targets."""
        steps = Steps(
            features=self._encode_rows,
            learn=self._learn,
            needs_columns=False,
        )
        return fit_predictor(self, steps, X, y, sample_weight)

    def _encode_rows(self, codes: Incomplete, target: Tensor, weights: Tensor) -> tuple[JointRows, Fitted]:
        features = FeatureMap.fit(self._modelled, codes, all_indicators=False)
        known = Incomplete(target, torch.ones_like(target, dtype=torch.bool))
        return Labelled(features.encode(codes).beside(known), target, weights), {"_features": features}

    def _learn(self, train: JointRows, held: None, plan: None, generator: torch.Generator) -> Fitted:
        weights = None if unequal(train.weight) is None else train.weight
        settings = em_settings(train.rows, self.ridge, self.max_iter, self.tol, generator)
        found = fit_gaussian(train.rows, settings, weights=weights, generator=generator)
        objective = list(found.objective)
        return {"objective_": objective, "n_iter_": len(objective), "gaussian_": found.gaussian}

    @task_threads()
    def _moments(self, X: Any) -> tuple[Tensor, Tensor]:
        """Returns the mean and the standard deviation (N, T) of the standardised targets of each row."""
        codes = self._read(X, reset=False).codes
        n_targets = len(self._target_scaler.loc)

        def moments(part: Incomplete) -> tuple[Tensor, Tensor]:
            unknown = torch.zeros(len(part), n_targets, dtype=torch.float64)
            batch = self._features.encode(part).beside(Incomplete(unknown, unknown.bool()))
            mean = self.gaussian_.conditional_mean(batch)[:, -n_targets:]
            return mean, self.gaussian_.conditional_variance(batch)[:, -n_targets:].sqrt()

        size = rows_at_once(len(self.schema_), len(self.gaussian_.loc))
        means, deviations = zip(*map_pieces(moments, codes, size), strict=True)
        return torch.cat(means), torch.cat(deviations)

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
