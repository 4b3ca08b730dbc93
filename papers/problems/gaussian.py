r"""Regression with incomplete Gaussian features, with the exact Bayes predictor under four mechanisms."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halfseen.missingness.base import CellMechanism, Mechanism
from halfseen.missingness.logistic import MARLogistic
from halfseen.missingness.mcar import MCAR
from halfseen.missingness.self_masking import GaussianSelfMasking, ProbitSelfMasking
from halfseen.words import Missingness
from papers.problems.gaussian_score import GaussianScore
from papers.problems.links import LINKS, Linear, ResponseLink, find_link, response_variance
from papers.problems.probit import BayesEstimate, ProbitSelfMasked
from papers.problems.problem import (
    Bools,
    Floats,
    Generator,
    Problem,
    Sample,
    data_generator,
    incomplete_rows,
)

MECHANISMS = ("mcar", Missingness.MAR, Missingness.GAUSSIAN, Missingness.PROBIT)
"""Names of the mechanisms that `GaussianProblem.draw` makes; a mechanism object will do as well."""

_CALIBRATION_ROWS = 20_000


@dataclass(frozen=True, eq=False)
class GaussianProblem(Problem):
    r"""A response to a linear score of Gaussian features, any of which may be missing.

    .. math:: x \sim \mathcal{N}(\mu, \Sigma), \quad s = \beta_0 + \langle \beta, x \rangle, \quad
              y = g(s) + \varepsilon, \quad \varepsilon \sim \mathcal{N}(0, \sigma^2)

    Given the observed values and the mask, s is Gaussian with mean t and variance v in closed form if values
    are missing (completely) at random or by Gaussian self-masking, and :math:`f^* = \mathrm{E}[g(s)]` is
    closed for every link :math:`g`; see `GaussianScore` and the links. Under probit self-masking :math:`f^*`
    is closed for up to two missing features and linear g, and otherwise found by importance sampling; see
    `ProbitSelfMasked`.

    Parameters
    ----------
    score : GaussianScore
        The distribution of features and score: :math:`\mu, \Sigma, \beta, \beta_0`.
    noise_variance : float
        The :math:`\sigma^2` of the noise.
    mechanism : Mechanism
        The calibrated mechanism that removes values: `MCAR`, `MARLogistic`, `GaussianSelfMasking` or
        `ProbitSelfMasking`.
    link : ResponseLink
        The response g: `Linear`, `Bowl`, `Wave` or `Break`.

    Examples
    --------
    >>> problem = GaussianProblem.draw(n_features=10, mechanism="mcar", random_state=0)
    >>> sample = problem.sample(30_000, random_state=0)
    >>> round(problem.bayes_r2(sample.incomplete[:10_000], sample.y[:10_000]), 6)
    0.818671
    """

    score: GaussianScore
    noise_variance: float
    mechanism: Mechanism
    link: ResponseLink

    @classmethod
    def draw(
        cls,
        n_features: int = 10,
        mechanism: str | Mechanism = "mcar",
        link: str | ResponseLink = "linear",
        *,
        rate: float = 0.5,
        latent_share: float = 0.5,
        signal_to_noise: float = 10.0,
        random_state: Any = None,
    ) -> "GaussianProblem":
        r"""Returns a random problem of the kind used in the papers below.

        .. math:: \Sigma = U U^\top + \mathrm{diag}(e), \quad U_{ij} \sim \mathcal{N}(0, 1), \quad
                  e_i \sim \mathcal{U}(0.01, 0.1), \quad \mu_i \sim \mathcal{N}(0, 1), \quad \beta_0 = 1

        with U of `latent_share` times as many columns as rows. With a linear link :math:`\beta = (1, \dots,
        1)`; with another it is scaled so that the score has variance 1. The noise has 1 / `signal_to_noise`
        of the variance of g(s).

        Parameters
        ----------
        n_features : int, default=10
            The number of features.
        mechanism : {"mcar", "mar", "self-masking-gaussian", "self-masking-probit"} or Mechanism
            The mechanism that removes values. An object that is not yet calibrated is calibrated on a large
            sample.
        link : {"linear", "bowl", "wave", "break"} or ResponseLink
            The response.
        rate : float, default=0.5
            The fraction of missing values in the columns that a mechanism affects; for mechanisms given by
            name.
        latent_share, signal_to_noise : float
            As above.
        random_state : int, numpy generator or None
            An integer seeds numpy's legacy generator; drawn are, in this order, U, e, :math:`\mu`, and what
            calibrates the mechanism.

        Notes
        -----
        `sample` with the same integer restarts the generator and draws, in this order, features, noise and
        the mask: uniforms by rows for MCAR, binomials by columns otherwise. The seeds 0, 1, ... therefore
        give the data sets of the NeuMiss paper: its test rows are the first 10,000 of 30,000, followed by
        10,000 for validation. There are three differences. The paper draws its MAR mechanism again for each
        chunk of rows; here it is drawn once. The noise of the paper under self-masking has 1/10 of the
        variance of y in the chunk, here 1/10 of the variance of its distribution. And the matrix
        decomposition used by ``multivariate_normal`` is not the same on every machine; if it differs, the
        rows differ, but not their distribution.

        References
        ----------
        Le Morvan, Josse, Moreau, Scornet & Varoquaux (2020), NeuMiss networks. Le Morvan, Josse, Scornet &
        Varoquaux (2021), What's a good imputation to predict with missing values?
        """
        if not 0 < rate < 1:
            raise ValueError(f"rate must be between 0 and 1, got {rate!r}.")
        generator = data_generator(random_state)
        factors = generator.standard_normal((n_features, int(latent_share * n_features)))
        covariance = factors @ factors.T + np.diag(generator.uniform(0.01, 0.1, size=n_features))
        loc = generator.standard_normal(n_features)
        response = find_link(link, LINKS)
        ones = np.ones(n_features)
        scale = 1.0 if isinstance(response, Linear) else float(np.sqrt(ones @ covariance @ ones))
        score = GaussianScore(loc, covariance, ones / scale, 1.0)
        noise = response_variance(response, score.mean, score.variance) / signal_to_noise
        return cls(score, noise, _calibrated(mechanism, score, rate, generator), response)

    def sample(self, n_samples: int, random_state: Any = None) -> Sample:
        """Returns complete rows (N, D), targets (N) and the boolean mask `observed` (N, D)."""
        generator = data_generator(random_state)
        X = generator.multivariate_normal(self.score.loc, self.score.covariance, size=n_samples)
        noise = generator.normal(0.0, np.sqrt(self.noise_variance), size=n_samples)
        y = self.link(self.score(X)) + noise
        return Sample(X, y, self._draw_mask(X, generator))

    def predict_bayes(self, X: npt.ArrayLike) -> Floats:
        """Returns the expected target of each row given its observed cells, and that the rest is missing."""
        return self.estimate_bayes(X).mean

    def estimate_bayes(self, X: npt.ArrayLike) -> BayesEstimate:
        """Returns the best prediction with its standard error and relative effective sample size."""
        rows = incomplete_rows(X, len(self.score.loc))
        if isinstance(self.mechanism, ProbitSelfMasking):
            slope = self._per_feature(self.mechanism.slopes_)
            law = ProbitSelfMasked(self.score, slope, self._per_feature(self.mechanism.thresholds_))
            return law.estimate(rows, self.link)
        mean = self.link.expectation(*self.score.moments(rows, *self._pseudo_observations()))
        return BayesEstimate(mean, np.zeros(len(rows)), np.ones(len(rows)))

    def predict_plugged_in(self, X: npt.ArrayLike) -> Floats:
        """Returns the response at the expected score: the prediction after optimal imputation.

        It is the best prediction if the link is linear, and biased otherwise.
        """
        rows = incomplete_rows(X, len(self.score.loc))
        return self.link(self.score.moments(rows, *self._pseudo_observations())[0])

    def impute_bayes(self, X: npt.ArrayLike) -> Floats:
        """Returns the rows with each missing feature at its expectation; observed ones stay exact."""
        rows = incomplete_rows(X, len(self.score.loc))
        return self.score.conditional_mean(rows, *self._pseudo_observations())

    def _draw_mask(self, X: Floats, generator: Generator) -> Bools:
        """Draws which cells are observed, in the order of the original simulations."""
        if isinstance(self.mechanism, MCAR) and self.mechanism.unit == "cells":
            kept: Bools = generator.uniform(size=X.shape) >= self.mechanism.probability(X)
            return kept
        if isinstance(self.mechanism, CellMechanism):
            return np.column_stack([generator.binomial(1, p) == 0 for p in self.mechanism.probability(X).T])
        observed: Bools = self.mechanism.sample(X, random_state=generator)
        return observed

    def _pseudo_observations(self) -> tuple[Floats | float, Floats | float]:
        """Returns the pseudo-observation of a missing feature: a value and its precision."""
        if isinstance(self.mechanism, GaussianSelfMasking):
            precision = self._per_feature(1 / self.mechanism.variances_)
            return self._per_feature(self.mechanism.centres_), precision
        if isinstance(self.mechanism, MCAR | MARLogistic):
            return 0.0, 0.0
        raise ValueError(f"There is no closed form for {type(self.mechanism).__name__}.")

    def _per_feature(self, values: Floats) -> Floats:
        """Spreads what is known of the affected columns; the others are never missing."""
        spread = np.zeros(len(self.score.loc))
        spread[self.mechanism.columns_] = values
        return spread


def _calibrated(
    mechanism: str | Mechanism, score: GaussianScore, rate: float, generator: Generator
) -> Mechanism:
    """Returns a mechanism calibrated in closed form if there is one, else on a sample."""
    known = {
        "mean": score.loc.tolist(),
        "variance": np.diag(score.covariance).tolist(),
        "calibration": "gaussian",
    }
    made: Mechanism
    if not isinstance(mechanism, str):
        made = mechanism
    elif mechanism == "mcar":
        made = MCAR(rate=rate)
    elif mechanism == Missingness.MAR:
        made = MARLogistic(rate=rate, standardize=False, random_state=generator)
    elif mechanism == Missingness.GAUSSIAN:
        made = GaussianSelfMasking(rate=rate, shift=2.0, **known)
    elif mechanism == Missingness.PROBIT:
        made = ProbitSelfMasking(rate=rate, slope=0.5, standardize=False, **known)
    else:
        raise ValueError(f"mechanism must be one of {', '.join(MECHANISMS)}, got {mechanism!r}.")
    if hasattr(made, "columns_"):
        return made
    return made.fit(generator.multivariate_normal(score.loc, score.covariance, size=_CALIBRATION_ROWS))
