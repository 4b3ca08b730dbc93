r"""From a linear score to a target, and its expectation when the score is Gaussian."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import numpy as np
from scipy.special import expit, ndtr

from papers.problems.problem import Floats

_GRID = np.linspace(-9.0, 9.0, 20_001)  # in standard deviations, for moments of a target


class ResponseLink(Protocol):
    r"""A response :math:`g` to the score :math:`s = \beta_0 + \langle \beta, x \rangle`."""

    def __call__(self, score: Floats) -> Floats:
        """Returns the noiseless target."""

    def expectation(self, mean: Floats, variance: Floats) -> Floats:
        r"""Returns :math:`\mathrm{E}[g(s)]` for :math:`s \sim \mathcal{N}(t, v)`; v may be 0."""


@dataclass(frozen=True)
class Linear:
    r"""The score itself.

    .. math:: g(s) = s, \qquad \mathrm{E}[g(s)] = t
    """

    def __call__(self, score: Floats) -> Floats:
        """Returns the noiseless target."""
        return score

    def expectation(self, mean: Floats, variance: Floats) -> Floats:
        """Returns the mean; the variance does not matter."""
        return mean


@dataclass(frozen=True)
class Bowl:
    r"""A parabola.

    .. math:: g(s) = (s - 1)^2, \qquad \mathrm{E}[g(s)] = (t - 1)^2 + v

    Examples
    --------
    >>> Bowl().expectation(np.array([2.0]), np.array([0.5]))
    array([1.5])
    """

    def __call__(self, score: Floats) -> Floats:
        """Returns the noiseless target."""
        return (score - 1) ** 2

    def expectation(self, mean: Floats, variance: Floats) -> Floats:
        """Returns the parabola at the mean, and the variance on top."""
        return (mean - 1) ** 2 + variance


@dataclass(frozen=True)
class Wave:
    r"""A line with three soft steps, of heights 2, -4 and 2 at 0.8, 1 and 1.2.

    .. math::
        g(s) = s - 1 + \sum_i a_i \Phi(\gamma (s - c_i)), \qquad
        \mathrm{E}[g(s)] = t - 1 + \sum_i a_i \Phi\left(\frac{t - c_i}{\sqrt{\gamma^{-2} + v}}\right)

    with :math:`\gamma = 20 \sqrt{\pi / 8}`.
    """

    heights: tuple[float, ...] = (2.0, -4.0, 2.0)
    places: tuple[float, ...] = (0.8, 1.0, 1.2)
    steepness: float = 20 * np.sqrt(np.pi / 8)

    def __call__(self, score: Floats) -> Floats:
        """Returns the noiseless target."""
        return self.expectation(score, np.zeros_like(score))

    def expectation(self, mean: Floats, variance: Floats) -> Floats:
        """Returns the line at the mean, with steps that the variance has smoothed further."""
        width = np.sqrt(self.steepness**-2 + variance)
        steps = zip(self.heights, self.places, strict=True)
        waves: Floats = mean - 1 + sum(height * ndtr((mean - place) / width) for height, place in steps)
        return waves


@dataclass(frozen=True)
class Break:
    r"""A line that jumps by 3 above 1.

    .. math:: g(s) = s + 3 \cdot 1\{s > 1\}, \qquad
              \mathrm{E}[g(s)] = t + 3 \Phi\left(\frac{t - 1}{\sqrt v}\right)

    Examples
    --------
    >>> Break().expectation(np.array([1.0, 1.1]), np.array([0.4, 0.0]))
    array([2.5, 4.1])
    """

    jump: float = 3.0
    place: float = 1.0

    def __call__(self, score: Floats) -> Floats:
        """Returns the noiseless target."""
        return score + self.jump * (score > self.place)

    def expectation(self, mean: Floats, variance: Floats) -> Floats:
        """Returns the line at the mean, with the jump times its probability."""
        certain = variance <= 0
        deviation = np.sqrt(np.where(certain, 1.0, variance))
        above = np.where(certain, mean > self.place, ndtr((mean - self.place) / deviation))
        return mean + self.jump * above


@dataclass(frozen=True)
class Probit:
    r"""The probability of a class that grows with the score, by the normal distribution function.

    .. math:: g(s) = \Phi(s), \qquad \mathrm{E}[g(s)] = \Phi\left(\frac{t}{\sqrt{1 + v}}\right)

    Examples
    --------
    >>> Probit().expectation(np.array([2.0, 2.0]), np.array([0.0, 3.0])).round(4)
    array([0.9772, 0.8413])
    """

    def __call__(self, score: Floats) -> Floats:
        """Returns the probability."""
        return self.expectation(score, np.zeros_like(score))

    def expectation(self, mean: Floats, variance: Floats) -> Floats:
        """Returns the probability at the mean, drawn towards one half by the variance."""
        chance: Floats = ndtr(mean / np.sqrt(1 + variance))
        return chance


@dataclass(frozen=True)
class Logistic:
    r"""The probability of a class that grows with the score, by the logistic function.

    .. math:: g(s) = \frac{1}{1 + e^{-s}}, \qquad
              \mathrm{E}[g(s)] = \mathrm{E}_k\left[\Phi\left(\frac{t}{\sqrt{4 k^2 + v}}\right)\right]

    with k from Kolmogorov's distribution: the logistic distribution is that mixture of normals. A sum over 37
    values of k is exact to rounding for every t and v, while Gauss-Hermite quadrature over s fails as v
    grows.

    References
    ----------
    Andrews & Mallows (1974), Scale mixtures of normal distributions; Stefanski (1991), A normal scale mixture
    representation of the logistic distribution.

    Examples
    --------
    >>> Logistic().expectation(np.array([2.0, 2.0]), np.array([0.0, 3.0])).round(4)
    array([0.8808, 0.7935])
    """

    def __call__(self, score: Floats) -> Floats:
        """Returns the probability."""
        chance: Floats = expit(score)
        return chance

    def expectation(self, mean: Floats, variance: Floats) -> Floats:
        """Returns the probability at the mean, drawn towards one half by the variance."""
        chance = np.zeros(np.broadcast_shapes(mean.shape, variance.shape))
        for normal, weight in zip(*_LOGISTIC_MIXTURE, strict=True):
            chance += weight * ndtr(mean / np.sqrt(normal + variance))
        return np.where(variance <= 0, self(mean), chance)


def _logistic_mixture() -> tuple[Floats, Floats]:
    r"""Returns variances :math:`4 k^2` and weights of the normals that make up the logistic distribution.

    .. math:: f(k) = 8 k \sum_{j \ge 1} (-1)^{j + 1} j^2 e^{-2 j^2 k^2}

    f falls faster than any power at both ends, so sums over even steps of log k converge exponentially.
    """
    k = np.exp(np.arange(np.log(0.16), np.log(6.0), 0.1))
    j = np.arange(1, 61)[:, None]
    density = 8 * k * (np.where(j % 2, 1, -1) * j**2 * np.exp(-2 * j**2 * k**2)).sum(axis=0)
    weight = (k * density).clip(min=0.0)
    return 4 * k**2, weight / weight.sum()


_LOGISTIC_MIXTURE = _logistic_mixture()

LINKS: MappingProxyType[str, Callable[[], ResponseLink]] = MappingProxyType(
    {"linear": Linear, "bowl": Bowl, "wave": Wave, "break": Break}
)
PROBABILITY_LINKS: MappingProxyType[str, Callable[[], ResponseLink]] = MappingProxyType(
    {"probit": Probit, "logistic": Logistic}
)


def find_link(link: str | ResponseLink, named: Mapping[str, Callable[[], ResponseLink]]) -> ResponseLink:
    """Returns the link of a name; any other value is returned unchanged."""
    if not isinstance(link, str):
        return link
    if link not in named:
        raise ValueError(f"link must be one of {', '.join(named)}, got {link!r}.")
    return named[link]()


def response_variance(link: ResponseLink, mean: float, variance: float) -> float:
    """Returns the variance of the noiseless target when the score is Gaussian, by a sum over a fine grid."""
    weights = np.exp(-0.5 * _GRID**2)
    weights /= weights.sum()
    values = link(mean + np.sqrt(variance) * _GRID)
    return float(weights @ values**2 - (weights @ values) ** 2)
