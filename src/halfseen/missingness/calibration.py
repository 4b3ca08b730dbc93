r"""Solves one parameter per column so that a mechanism removes the requested fraction of its values.

There are two calibrations. *On the data*: the mean probability over the fitted values equals the rate, for
any distribution, so that the realised rate has at most binomial error. *For a Gaussian*: the closed forms
that the exact Bayes predictors of a Gaussian model assume.
"""

from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit, ndtr, ndtri

from halfseen._arrays import Floats

InverseLink = Callable[[Floats], Floats]

LARGEST, SMALLEST = 1e150, 1e-150  # beyond these, squares overflow or underflow

_LINKS: dict[str, tuple[InverseLink, Callable[[float], float]]] = {
    "logistic": (expit, logit),
    "probit": (ndtr, ndtri),
}


def solve_intercept(
    scores: Floats, rate: float, link: str = "logistic", weights: Floats | None = None
) -> float:
    r"""Returns :math:`b` with :math:`\sum_i w_i F(s_i + b) = r \sum_i w_i`, `F` logistic or normal.

    The result is minus or plus infinity for a rate of 0 or 1. Without scores, all scores are taken as equal.

    Examples
    --------
    >>> scores = np.exp(np.linspace(-3.0, 3.0, 101))
    >>> b = solve_intercept(scores, rate=0.3)
    >>> round(float(expit(scores + b).mean()), 12)
    0.3
    """
    function, inverse = _LINKS[link]
    centre = float(inverse(rate))  # infinite for rates of 0 and 1
    kept = scores if weights is None else scores[weights > 0]
    if not len(kept) or not np.isfinite(centre):
        return centre
    w = np.ones(len(kept)) if weights is None else weights[weights > 0]
    w = w / w.sum()
    low, high = centre - float(kept.max()), centre - float(kept.min())
    if low == high:
        return low

    def excess(b: float) -> float:
        return float(w @ function(kept + b)) - rate

    return _root(excess, low, high)


def gaussian_variance(rate: float, shift: float) -> float:
    r"""Returns the relative variance :math:`x` of Gaussian self-masking of a Gaussian column.

    .. math:: \mathbb{E}\Big[e^{-(Z - k)^2 / 2x}\Big] = \sqrt{\tfrac{x}{1+x}}\; e^{-k^2 / 2(1+x)} = r,
        \qquad Z \sim \mathcal{N}(0, 1)

    It is unique: the left side increases in :math:`x`, and :math:`x > r^2 / (1 - r^2)`.

    Examples
    --------
    >>> [round(gaussian_variance(0.5, k), 5) for k in (1.0, 2.0, 3.0)]
    [0.78056, 2.72534, 6.26818]
    """
    if not 0.0 < rate < 1.0:
        return 0.0 if rate == 0.0 else np.inf

    def excess(log_x: float) -> float:
        x = np.exp(log_x)
        return float(-0.5 * np.log1p(1.0 / x) - shift**2 / (2.0 * (1.0 + x)) - np.log(rate))

    low = float(np.log(rate**2 / (1.0 - rate**2)))
    high = low + 1.0
    while excess(high) < 0.0:
        high += 1.0
    return float(np.exp(_root(excess, low, high)))


def data_variance(z: Floats, rate: float, shift: float) -> tuple[float, float]:
    r"""Returns width :math:`x` and amplitude :math:`a` of Gaussian self-masking for the given values.

    .. math:: \tfrac1n \sum_i a\, e^{-(z_i - k)^2 / 2x} = r

    The amplitude :math:`a` is 1, unless more values than requested lie exactly at the centre :math:`k`.

    Examples
    --------
    >>> z = np.array([-1.0, -1.0, 0.5, 1.5])
    >>> x, amplitude = data_variance(z, rate=0.3, shift=2.0)
    >>> amplitude, round(float(np.exp(-((z - 2.0) ** 2) / (2 * x)).mean()), 12)
    (1.0, 0.3)
    """
    if not len(z) or not 0.0 < rate < 1.0:
        return gaussian_variance(rate, shift), 1.0
    q = (z - shift) ** 2 / 2.0
    at_centre = float(np.mean(q == 0.0))
    if at_centre >= rate:  # no width is small enough: keep the Gaussian's, remove fewer values at the centre
        x = gaussian_variance(rate, shift)
        return x, rate / float(np.exp(-q / x).mean())
    rest = q[q > 0.0]
    low = np.log(rest.min()) - np.log(-np.log((rate - at_centre) / (1.0 - at_centre)))
    high = np.log(rest.max()) - np.log(-np.log(rate))

    def excess(log_x: float) -> float:
        return float(np.exp(-q / np.exp(log_x)).mean()) - rate

    return float(np.exp(_root(excess, float(low), float(max(low, high))))), 1.0


def probit_threshold(rate: float, slope: float, mean: float, variance: float) -> float:
    r"""Returns the threshold :math:`c` of probit self-masking of a Gaussian column.

    .. math:: \mathbb{E}[\Phi(\lambda X - c)] = r, \quad X \sim \mathcal{N}(\mu, \sigma^2)
        \quad\Rightarrow\quad c = \lambda \mu - \Phi^{-1}(r) \sqrt{1 + \lambda^2 \sigma^2}

    Examples
    --------
    >>> probit_threshold(0.5, slope=0.5, mean=3.0, variance=4.0)
    1.5
    """
    return float(slope * mean - ndtri(rate) * np.sqrt(1.0 + slope**2 * variance))


def split_at_quantile(values: Floats, rate: float) -> tuple[float, float]:
    r"""Returns threshold :math:`t` and probability :math:`p` at it, for an upper tail of exact weight.

    .. math:: \#\{v > t\} + p\, \#\{v = t\} = r n

    Ties at the threshold are removed in part, at random, so that binary columns and counts meet the rate too.

    Examples
    --------
    >>> split_at_quantile(np.array([0.0, 0.0, 0.0, 1.0, 1.0]), rate=0.3)
    (1.0, 0.75)
    """
    if not len(values) or rate <= 0.0:
        return np.inf, 0.0
    if rate >= 1.0:
        return -np.inf, 1.0
    distinct, counts = np.unique(values, return_counts=True)
    above = len(values) - np.cumsum(counts)  # number of values above each distinct value
    wanted = rate * len(values)
    at = int(np.argmax(above <= wanted))
    return float(distinct[at]), float(np.clip((wanted - above[at]) / counts[at], 0.0, 1.0))


def standardizer(values: Floats) -> tuple[float, float]:
    """Returns mean and standard deviation of the given values; 0 and 1 if there are none.

    A column whose spread does not exceed rounding errors is treated as constant.
    """
    if not len(values):
        return 0.0, 1.0
    largest = float(np.abs(values).max())
    unit = largest if largest > LARGEST or 0.0 < largest < SMALLEST else 1.0  # otherwise squares overflow
    mean = float((values / unit).mean()) * unit
    scale = float(np.sqrt(np.mean((values / unit - mean / unit) ** 2))) * unit
    if scale <= 1e-14 * max(abs(mean), float(np.abs(values).max())):
        return float(values[0]) if values.min() == values.max() else mean, 1.0
    return mean, scale


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Returns the root of an increasing function, or an end of the bracket if rounding removed the root."""
    if function(low) >= 0.0:
        return low
    if function(high) <= 0.0:
        return high
    return float(brentq(function, low, high, xtol=1e-13, rtol=1e-14, maxiter=1000))
