r"""A table like that of a national health screening: many examinations, few of them attended by most."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import expit, log_expit

from papers.problems.problem import Floats, Problem, Sample, data_generator, incomplete_rows

PREVALENCES = (0.20, 0.10, 0.15, 0.02, 0.08)
"""The shares of people with each of the five diseases."""

_N_LATENT = 5
_MEMORY = 0.8  # correlation of a latent variable between successive years
_NOISE = 0.5  # variance of an examination that is not explained by health
_REACH = 4.0  # standard deviations of an examination that correspond to the ends 0 and 1
_ATTENDANCE = -1.0  # mean log odds of attendance if it depends on health
_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(31)
_GRID = np.linspace(-8.0, 8.0, 161)  # grid of log odds, in standard deviations
_ROWS_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class HealthScreening(Problem):
    r"""Examinations of several years, and diseases, of people who attend some of them.

    .. math::
        z_t = \phi z_{t-1} + \sqrt{1 - \phi^2} \, \epsilon_t \in \mathbb{R}^5, \qquad
        x_{tj} \propto \langle a_j, z_t \rangle + \eta_{tj}, \qquad
        y_k \sim \mathrm{Bernoulli}(\sigma(\langle w_k, z_T \rangle + b_k))

    Examinations are scaled so that four standard deviations below and above the mean are 0 and 1. A person
    attends each examination of each year with an individual probability :math:`\rho_i`:

    - ``"mcar"``: :math:`\rho_i \sim \mathrm{Beta}(1.2, 3)`, whatever the health;
    - ``"mnar"``: :math:`\mathrm{logit} \, \rho_i \sim \mathcal{N}(\gamma g_i - 1, 1)`, with :math:`g_i` the
      mean of all latents, scaled to variance 1: how much is known about a person is then informative.

    The best prediction is exact up to quadrature: given the values that were seen, :math:`\langle w_k, z_T
    \rangle` and :math:`g` are Gaussian, and the mask enters by the number of attended examinations alone.

    Parameters
    ----------
    loadings : array (J, 5)
        The :math:`a_j` of each examination.
    weights : array (5, 5)
        The :math:`w_k` of each disease.
    n_years : int, default=5
        A row has J features for each year, year by year.
    mechanism : {"mcar", "mnar"}, default="mcar"
        Whether attendance depends on health.
    strength : float, default=1.0
        The :math:`\gamma` of ``"mnar"``.

    References
    ----------
    The shape follows the private table of Yi, Lee, Kim, Hwang & Yang (2020), Why not to use zero imputation?
    Correcting sparsity bias in training neural networks.

    Examples
    --------
    >>> problem = HealthScreening.draw(n_exams=6, n_years=2, random_state=0)
    >>> X, y, observed = problem.sample(4, random_state=0)
    >>> X.shape, y.shape
    ((4, 12), (4, 5))
    >>> problem.predict_bayes(np.full((1, 12), np.nan)).round(4)
    array([[0.2 , 0.1 , 0.15, 0.02, 0.08]])
    """

    loadings: Floats
    weights: Floats
    n_years: int = 5
    mechanism: str = "mcar"
    strength: float = 1.0

    def __post_init__(self) -> None:
        if self.mechanism not in ("mcar", "mnar"):
            raise ValueError(f"mechanism must be 'mcar' or 'mnar', got {self.mechanism!r}.")

    @classmethod
    def draw(
        cls,
        n_exams: int = 34,
        n_years: int = 5,
        *,
        mechanism: str = "mcar",
        strength: float = 1.0,
        random_state: Any = None,
    ) -> "HealthScreening":
        """Returns a problem with standard normal loadings (over the root of 5) and weights."""
        generator = data_generator(random_state)
        loadings = generator.normal(size=(n_exams, _N_LATENT)) / np.sqrt(_N_LATENT)
        weights = generator.normal(size=(len(PREVALENCES), _N_LATENT))
        return cls(loadings, weights, n_years, mechanism, strength)

    def sample(self, n_samples: int, random_state: Any = None) -> Sample:
        """Returns examinations (N, T J), diseases (N, 5) as 0 or 1, and which examinations were attended."""
        generator = data_generator(random_state)
        root = np.linalg.cholesky(self._latent)
        z = generator.normal(size=(n_samples, len(root))) @ root.T
        exams = z @ self._design.T
        exams += np.sqrt(_NOISE) * generator.normal(size=exams.shape)
        score = z @ self._readout.T  # (N, 6)
        y = generator.uniform(size=(n_samples, len(PREVALENCES))) < expit(score[:, :-1] + self._intercepts)
        if self.mechanism == "mcar":
            rate = generator.beta(1.2, 3.0, size=n_samples)
        else:
            rate = expit(generator.normal(_ATTENDANCE + self.strength * score[:, -1], 1.0))
        observed = generator.uniform(size=exams.shape) < rate[:, None]
        return Sample(0.5 + exams / (2 * _REACH * self._deviation), y.astype(np.float64), observed)

    def predict_bayes(self, X: npt.ArrayLike) -> Floats:
        """Returns the probability (N, 5) of each disease."""
        rows = incomplete_rows(X, len(self._deviation))
        parts = [np.empty((0, len(PREVALENCES)))]
        for mean, covariance, count in self._posterior(rows):
            if self.mechanism == "mcar":
                variance = np.diagonal(covariance, axis1=1, axis2=2)
                parts.append(_mean_sigmoid(mean + np.append(self._intercepts, 0.0), variance)[:, :-1])
            else:
                parts.append(self._predict_from_count(mean, covariance, count))
        return np.concatenate(parts)

    def _posterior(self, rows: Floats) -> Iterator[tuple[Floats, Floats, Floats]]:
        """Yields mean (N, 6) and covariance (N, 6, 6) of the read-outs given what was seen, and how much."""
        outer = (self._design[:, :, None] * self._design[:, None, :]).reshape(len(self._design), -1)
        prior = np.linalg.inv(self._latent)
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            part = rows[start : start + _ROWS_AT_ONCE]
            seen = (~np.isnan(part)).astype(np.float64)
            exams = np.nan_to_num((part - 0.5) * (2 * _REACH * self._deviation), nan=0.0)
            precision = prior + (seen @ outer).reshape(-1, *prior.shape) / _NOISE
            spread = np.linalg.inv(precision)  # (N, T L, T L)
            mean = np.einsum("nij,nj->ni", spread, exams @ self._design / _NOISE)
            yield mean @ self._readout.T, self._readout @ spread @ self._readout.T, seen.sum(axis=1)

    def _predict_from_count(self, mean: Floats, covariance: Floats, count: Floats) -> Floats:
        """Averages over the log odds of attending, weighted by the likelihood of the number attended."""
        variance = self.strength**2 * covariance[:, -1, -1] + 1.0  # (N), of the log odds
        step = np.sqrt(variance)[:, None] * _GRID  # (N, G)
        odds = _ATTENDANCE + self.strength * mean[:, -1:] + step
        attended = count[:, None]
        log_weight = attended * log_expit(odds) + (len(self._deviation) - attended) * log_expit(-odds)
        log_weight -= 0.5 * _GRID**2
        weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
        weight /= weight.sum(axis=1, keepdims=True)
        probability = np.empty((len(mean), len(PREVALENCES)))
        for k, intercept in enumerate(self._intercepts):
            shared = self.strength * covariance[:, k, -1] / variance  # (N)
            centre = mean[:, k : k + 1] + intercept + shared[:, None] * step
            left = np.maximum(covariance[:, k, k] - shared**2 * variance, 0.0)
            probability[:, k] = (weight * _mean_sigmoid(centre, left[:, None])).sum(axis=1)
        return probability

    @cached_property
    def _latent(self) -> Floats:
        """The covariance of the latents of all years."""
        years = np.arange(self.n_years)
        path = _MEMORY ** np.abs(years[:, None] - years).astype(np.float64)
        return _kron(path, np.eye(_N_LATENT))

    @cached_property
    def _design(self) -> Floats:
        """The examinations of all years (T J) from the latents of all years (T L)."""
        return _kron(np.eye(self.n_years), self.loadings)

    @cached_property
    def _deviation(self) -> Floats:
        return np.tile(np.sqrt((self.loadings**2).sum(axis=1) + _NOISE), self.n_years)

    @cached_property
    def _readout(self) -> Floats:
        """What matters of the latents: the score of each disease at the last year, and wellness."""
        readout = np.zeros((len(PREVALENCES) + 1, len(self._latent)))
        readout[:-1, -_N_LATENT:] = self.weights
        readout[-1] = 1 / np.sqrt(self._latent.sum())
        return readout

    @cached_property
    def _intercepts(self) -> Floats:
        """The :math:`b_k` that give each disease its prevalence."""
        variances = (self.weights**2).sum(axis=1)
        return np.array([_intercept(p, v) for p, v in zip(PREVALENCES, variances, strict=True)])


def _kron(first: Floats, second: Floats) -> Floats:
    product: Floats = np.asarray(np.kron(first, second), dtype=np.float64)
    return product


def _intercept(prevalence: float, variance: float) -> float:
    def excess(intercept: float) -> float:
        return float(_mean_sigmoid(np.array([intercept]), np.array([variance]))[0]) - prevalence

    return float(brentq(excess, -100.0, 100.0))


def _mean_sigmoid(mean: Floats, variance: Floats) -> Floats:
    """Returns the expected sigmoid of Gaussians, by Gauss-Hermite quadrature."""
    total = np.zeros(np.broadcast_shapes(mean.shape, variance.shape))
    deviation = np.sqrt(variance)
    for node, weight in zip(_NODES, _NODE_WEIGHTS / _NODE_WEIGHTS.sum(), strict=True):
        total += weight * expit(mean + node * deviation)
    return total
