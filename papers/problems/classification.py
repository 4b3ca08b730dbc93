r"""Classification with incomplete Gaussian features, with exact class probabilities."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from halfseen.missingness.base import Mechanism
from papers.problems.gaussian import GaussianProblem
from papers.problems.gaussian_score import GaussianScore
from papers.problems.links import PROBABILITY_LINKS, ResponseLink, find_link
from papers.problems.probit import BayesEstimate
from papers.problems.problem import Floats, Problem, Sample, data_generator

_SMALLEST_PROBABILITY = float(np.finfo(np.float64).eps)
_SCORES = np.linspace(-40.0, 40.0, 81)


@dataclass(frozen=True, eq=False)
class GaussianClassificationProblem(Problem):
    r"""Two classes by a linear score of Gaussian features, any of which may be missing.

    .. math:: x \sim \mathcal{N}(\mu, \Sigma), \quad s = \beta_0 + \langle \beta, x \rangle, \quad
              P(y = 1 \mid x) = g(s)

    The mask depends on y through x only. The Bayes probability given the observed values and the mask is
    therefore :math:`P(y = 1 \mid x_o, m) = \mathrm{E}[g(s) \mid x_o, m]`, the best prediction of a
    `GaussianProblem` with link g and no noise: with mean t and variance v of the score it is :math:`\Phi(t /
    \sqrt{1 + v})` for a probit link if values are missing (completely) at random or by Gaussian self-masking,
    and likewise exact for a logistic one. Under probit self-masking it is found by importance sampling. The
    link at the expected score, :math:`g(t)`, is overconfident.

    Parameters
    ----------
    score : GaussianScore
        The distribution of features and score: :math:`\mu, \Sigma, \beta, \beta_0`.
    mechanism : Mechanism
        The calibrated mechanism that removes values: `MCAR`, `MARLogistic`, `GaussianSelfMasking` or
        `ProbitSelfMasking`.
    link : ResponseLink
        The probability g: `Probit` or `Logistic`.

    Examples
    --------
    >>> problem = GaussianClassificationProblem.draw(n_features=10, mechanism="mcar", random_state=0)
    >>> sample = problem.sample(20_000, random_state=0)
    >>> problem.predict_proba_bayes(sample.incomplete[:2]).shape
    (2, 2)
    >>> [round(problem.bayes_accuracy(X, sample.y), 2) for X in (sample.X, sample.incomplete)]
    [0.9, 0.87]
    """

    score: GaussianScore
    mechanism: Mechanism
    link: ResponseLink

    def __post_init__(self) -> None:
        _check(self.link)

    @classmethod
    def draw(
        cls,
        n_features: int = 10,
        mechanism: str | Mechanism = "mcar",
        link: str | ResponseLink = "probit",
        *,
        rate: float = 0.5,
        latent_share: float = 0.5,
        score_variance: float = 9.0,
        prevalence: float = 0.5,
        random_state: Any = None,
    ) -> "GaussianClassificationProblem":
        r"""Returns a random problem with the features and the mechanism of `GaussianProblem.draw`.

        Parameters
        ----------
        n_features, mechanism, rate, latent_share, random_state
            As in `GaussianProblem.draw`; the same `random_state` draws the same features and mechanism.
        link : {"probit", "logistic"} or ResponseLink
            The probability of class 1.
        score_variance : float, default=9.0
            The variance of the score; the larger it is, the easier the classes are to predict. With a probit
            link and balanced classes, the best accuracy on complete rows is :math:`1/2 +
            \arctan(\mathrm{sd}) / \pi`, 0.898 by default.
        prevalence : float, default=0.5
            The frequency of class 1, which determines :math:`\beta_0`.

        Notes
        -----
        `sample` draws the rows and masks of a `GaussianProblem` of the same seed, and then the labels.
        """
        if not 0 < score_variance < np.inf:
            raise ValueError(f"score_variance must be positive and finite, got {score_variance!r}.")
        if not 0 < prevalence < 1:
            raise ValueError(f"prevalence must be between 0 and 1, got {prevalence!r}.")
        response = find_link(link, PROBABILITY_LINKS)
        _check(response)
        shape = {"rate": rate, "latent_share": latent_share}
        problem = GaussianProblem.draw(n_features, mechanism, response, **shape, random_state=random_state)
        loc, covariance = problem.score.loc, problem.score.covariance
        coefficients = np.sqrt(score_variance / problem.score.variance) * problem.score.coefficients
        intercept = _mean_score(response, prevalence, score_variance) - float(coefficients @ loc)
        return cls(GaussianScore(loc, covariance, coefficients, intercept), problem.mechanism, response)

    def sample(self, n_samples: int, random_state: Any = None) -> Sample:
        """Returns complete rows (N, D), labels (N), integers 0 or 1, and the boolean `observed` (N, D)."""
        generator = data_generator(random_state)
        X, chance, observed = self._chances.sample(n_samples, generator)
        labels: npt.NDArray[Any] = (generator.uniform(size=n_samples) < chance).astype(np.int64)
        return Sample(X, labels, observed)

    def predict_bayes(self, X: npt.ArrayLike) -> Floats:
        """Returns the probability (N) of class 1 given the observed cells, and that the rest is missing."""
        return self.estimate_bayes(X).mean

    def estimate_bayes(self, X: npt.ArrayLike) -> BayesEstimate:
        """Returns the probability of class 1 with its standard error and relative effective sample size."""
        return self._chances.estimate_bayes(X)

    def predict_plugged_in(self, X: npt.ArrayLike) -> Floats:
        """Returns the probability at the expected score: the prediction after optimal imputation.

        If the link is symmetric, it predicts the right class, but with too large a probability.
        """
        return self._chances.predict_plugged_in(X)

    def predict_proba_bayes(self, X: npt.ArrayLike) -> Floats:
        """Returns the probabilities (N, 2) of classes 0 and 1."""
        chance = self.predict_bayes(X)
        return np.column_stack([1 - chance, chance])

    def bayes_log_loss(self, X: npt.ArrayLike, y: npt.ArrayLike) -> float:
        """Returns the mean negative log probability of the labels of these rows, in nats.

        A probability of 0 is replaced by the machine epsilon.
        """
        chances = self.predict_proba_bayes(X)
        chosen = chances[np.arange(len(chances)), _labels(y, len(chances))]
        return float(-np.log(chosen.clip(min=_SMALLEST_PROBABILITY)).mean())

    def bayes_accuracy(self, X: npt.ArrayLike, y: npt.ArrayLike) -> float:
        """Returns the accuracy of the Bayes classifier on these rows."""
        chances = self.predict_proba_bayes(X)
        return float((chances.argmax(axis=1) == _labels(y, len(chances))).mean())

    @property
    def _chances(self) -> GaussianProblem:
        """The problem whose noiseless target is the probability of class 1."""
        return GaussianProblem(self.score, 0.0, self.mechanism, self.link)


def _check(link: ResponseLink) -> None:
    values = link(_SCORES)
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"link must give probabilities, as Probit and Logistic do, got {link!r}.")


def _mean_score(link: ResponseLink, prevalence: float, variance: float) -> float:
    """Returns the mean that a Gaussian score must have for the expected probability to be the prevalence."""

    def excess(mean: float) -> float:
        return float(link.expectation(np.array([mean]), np.array([variance]))[0]) - prevalence

    reach = 40 * (1 + np.sqrt(variance))
    return float(brentq(excess, -reach, reach, xtol=1e-12))


def _labels(y: npt.ArrayLike, n_samples: int) -> npt.NDArray[np.int64]:
    """Returns y as integers, 0 or 1, one for each row."""
    labels = np.asarray(y)
    if labels.shape != (n_samples,):
        raise ValueError(f"y must have one label for each of {n_samples} rows, got shape {labels.shape}.")
    if not np.isin(labels, (0, 1)).all():
        wrong = labels[~np.isin(labels, (0, 1))][0]
        raise ValueError(f"y must be 0 or 1, got {wrong!r}.")
    return labels.astype(np.int64)
