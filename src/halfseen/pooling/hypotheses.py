r"""Tests of several parameters at once from several completed tables: D1, D2 and D3.

All three refer to an F distribution with the number of tested parameters k as degrees of freedom of the
numerator. They differ in what they need of each analysis: estimates with their covariance matrix (D1), only a
chi-square statistic (D2), or the log-likelihood as a function of the parameters (D3).

References
----------
D1: Li, Raghunathan & Rubin (1991), Large-sample significance levels from multiply imputed data using
moment-based statistics and an F reference distribution, JASA 86. D2: Li, Meng, Raghunathan & Rubin (1991),
Significance levels from repeated p-values with multiply-imputed data, Statistica Sinica 1. D3: Meng & Rubin
(1992), Performing likelihood ratio tests with multiply-imputed data sets, Biometrika 79.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import f as f_distribution

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PooledTest:
    """A test of several parameters, pooled over completed tables.

    Attributes
    ----------
    method : str
        ``"D1"`` (Wald), ``"D2"`` (chi-squares) or ``"D3"`` (likelihood ratio).
    statistic : float
        The value of the F statistic; D2 may be negative, which means no evidence at all.
    df_numerator, df_denominator : float
        The degrees of freedom; that of the numerator is the number of tested parameters.
    p_value : float
        The probability of a larger statistic under the hypothesis.
    relative_increase : float
        The average relative increase in variance due to missing values.
    n_draws : int
        The number of completed tables.
    """

    method: str
    statistic: float
    df_numerator: float
    df_denominator: float
    p_value: float
    relative_increase: float
    n_draws: int

    def __str__(self) -> str:
        return (
            f"{self.method}: F({self.df_numerator:g}, {self.df_denominator:.1f}) = {self.statistic:.4g}, "
            f"p = {self.p_value:.3g}, relative increase in variance {self.relative_increase:.3g}, "
            f"{self.n_draws} completed tables"
        )


def wald_statistic(difference: Floats, within: Floats, between: Floats, n_draws: int) -> PooledTest:
    r"""Returns the test D1 of the hypothesis that a pooled vector of k estimates has no difference.

    .. math::
        D_1 = \frac{d^\top \bar U^{-1} d}{k (1 + r)}, \qquad
        r = \left(1 + \frac1M\right) \frac{\operatorname{tr}(B \bar U^{-1})}{k}

    Parameters
    ----------
    difference : array of shape (k,)
        Pooled estimates minus their values under the hypothesis.
    within, between : arrays of shape (k, k)
        The mean covariance matrix in a table, and the covariance matrix of estimates between tables.
    n_draws : int
        The number of tables M.
    """
    k = len(difference)
    increase = (1 + 1 / n_draws) * float(np.trace(np.linalg.solve(within, between))) / k
    statistic = float(difference @ np.linalg.solve(within, difference)) / (k * (1 + increase))
    return _f_test("D1", statistic, k, _moment_df(k, increase, n_draws), increase, n_draws)


def pool_chi_squares(statistics: npt.ArrayLike, df: int) -> PooledTest:
    r"""Pools chi-square statistics of the same test on several completed tables (D2).

    .. math::
        D_2 = \frac{\bar d / k - \frac{M + 1}{M - 1} r}{1 + r}, \qquad
        r = \left(1 + \frac1M\right) \frac{1}{M - 1} \sum_m \left(\sqrt{d_m} - \overline{\sqrt d}\right)^2

    Use it if only the statistics are available: D1 and D3 use more of the data and are more powerful.

    Parameters
    ----------
    statistics : array-like of shape (n_draws,)
        One Wald, likelihood-ratio or score statistic for each completed table.
    df : int
        The degrees of freedom k of each statistic.

    Examples
    --------
    >>> print(pool_chi_squares([9.2, 11.5, 10.1], df=2))
    D2: F(2, 582.0) = 4.838, p = 0.00825, relative increase in variance 0.0432, 3 completed tables
    """
    d = np.asarray(statistics, dtype=np.float64)
    if d.ndim != 1 or len(d) < 2 or not np.isfinite(d).all() or (d < 0).any():
        raise ValueError(f"statistics must be at least 2 numbers that are not negative, got {statistics!r}.")
    if df < 1:
        raise ValueError(f"df must be at least 1, got {df!r}.")
    m = len(d)
    increase = (1 + 1 / m) * float(np.sqrt(d).var(ddof=1))
    statistic = (float(d.mean()) / df - (m + 1) / (m - 1) * increase) / (1 + increase)
    freedom = df ** (-3 / m) * (m - 1) * (1 + 1 / max(increase, 1e-12)) ** 2
    return _f_test("D2", statistic, df, freedom, increase, m)


def likelihood_ratio_test(full: Sequence[Any], null: Sequence[Any]) -> PooledTest:
    r"""Compares two nested models that were fitted to the same completed tables (D3).

    .. math::
        D_3 = \frac{\tilde d}{k (1 + r)}, \qquad r = \frac{M + 1}{k (M - 1)} (\bar d - \tilde d)

    with :math:`\bar d` the mean likelihood-ratio statistic, and :math:`\tilde d` its mean if both models have
    their pooled parameters in every table. For models with a scale that statsmodels does not count among the
    parameters, such as ordinary least squares, the likelihood is maximised over the scale.

    Parameters
    ----------
    full, null : sequences of statsmodels results
        The fits of the larger and of the smaller model, in the order of the tables: `Pooled.fits` of two
        calls of `pool`. A result has ``params``, ``llf`` and ``model.loglike(params)``.
    """
    if len(full) != len(null) or len(full) < 2:
        raise ValueError(
            f"Both models need fits to the same 2 or more tables, got {len(full)} and {len(null)} fits."
        )
    for fit in (*full, *null):
        if not (hasattr(fit, "llf") and hasattr(getattr(fit, "model", None), "loglike")):
            raise ValueError(
                f"A likelihood-ratio test needs results with llf and model.loglike, as those of statsmodels; "
                f"got {type(fit).__name__}. Use Pooled.wald_test or pool_chi_squares."
            )
    m, k = len(full), np.size(full[0].params) - np.size(null[0].params)
    if k < 1:
        raise ValueError(
            f"The full model must have more parameters than the null model, got {np.size(full[0].params)} "
            f"and {np.size(null[0].params)}."
        )
    own = np.mean([2 * (a.llf - b.llf) for a, b in zip(full, null, strict=True)])
    at_full = _log_likelihoods_at_the_mean(full)
    pooled = float(np.mean(2 * (at_full - _log_likelihoods_at_the_mean(null))))
    increase = max((m + 1) / (k * (m - 1)) * float(own - pooled), 0.0)
    return _f_test("D3", pooled / (k * (1 + increase)), k, _moment_df(k, increase, m), increase, m)


def _log_likelihoods_at_the_mean(fits: Sequence[Any]) -> Floats:
    mean = np.mean([np.asarray(fit.params) for fit in fits], axis=0)
    return np.array([float(fit.model.loglike(mean)) for fit in fits])


def _moment_df(k: int, increase: float, n_draws: int) -> float:
    """Returns the degrees of freedom of the denominator of D1 and D3."""
    t, increase = k * (n_draws - 1), max(increase, 1e-12)
    if t > 4:
        return float(4 + (t - 4) * (1 + (1 - 2 / t) / increase) ** 2)
    return float(t * (1 + 1 / k) * (1 + 1 / increase) ** 2 / 2)


def _f_test(
    method: str, statistic: float, k: int, freedom: float, increase: float, n_draws: int
) -> PooledTest:
    p = float(f_distribution.sf(statistic, k, freedom))
    return PooledTest(method, statistic, float(k), freedom, p, increase, n_draws)
