r"""Tests of several parameters at once from several completed tables: D1, D2 and D3.

All three refer to an F distribution with the number of tested parameters k as degrees of freedom of the
numerator. They differ in what they need of each analysis: estimates with their covariance matrix (D1), only a
chi-square statistic (D2), or the log-likelihood as a function of the parameters (D3).

References
----------
D1: Li, Raghunathan & Rubin (1991), Large-sample significance levels from multiply imputed data using
moment-based statistics and an F reference distribution, JASA 86; Reiter (2007), Small-sample degrees of
freedom for multi-component significance tests with multiple imputation for missing data, Biometrika 94. D2:
Li, Meng, Raghunathan & Rubin (1991), Significance levels from repeated p-values with multiply-imputed data,
Statistica Sinica 1. D3: Meng & Rubin (1992), Performing likelihood ratio tests with multiply-imputed data
sets, Biometrika 79.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from scipy.stats import f as f_distribution

from halfseen._arrays import Floats

LARGE_SAMPLE = "li-raghunathan-rubin"
VARIANTS = ("meng-rubin", "mice")


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
    df_method : str
        Where the degrees of freedom of the denominator come from: ``"reiter"`` and ``"barnard-rubin"``
        account for the degrees of freedom of the analysis of complete data; ``"li-raghunathan-rubin"`` (D1
        and D3) and ``"li-meng-raghunathan-rubin"`` (D2) assume that there are many.
    variant : str or None
        For D3, which parameters are pooled: ``"meng-rubin"`` or ``"mice"``; otherwise None.
    """

    method: str
    statistic: float
    df_numerator: float
    df_denominator: float
    p_value: float
    relative_increase: float
    n_draws: int
    df_method: str = LARGE_SAMPLE
    variant: str | None = None

    def __str__(self) -> str:
        variant = "" if self.variant is None else f", variant: {self.variant}"
        return (
            f"{self.method}: F({self.df_numerator:g}, {self.df_denominator:.1f}) = {self.statistic:.4g}, "
            f"p = {self.p_value:.3g}, relative increase in variance {self.relative_increase:.3g}, "
            f"{self.n_draws} completed tables\ndegrees of freedom: {self.df_method}{variant}"
        )


def wald_statistic(
    difference: Floats, within: Floats, between: Floats, n_draws: int, df_complete: float = np.inf
) -> PooledTest:
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
    df_complete : float
        The degrees of freedom of the analysis of complete data; infinite if they are not known.
    """
    k = len(difference)
    increase = (1 + 1 / n_draws) * float(np.trace(np.linalg.solve(within, between))) / k
    statistic = float(difference @ np.linalg.solve(within, difference)) / (k * (1 + increase))
    freedom, df_method = denominator_df(k, increase, n_draws, df_complete)
    return _f_test("D1", statistic, k, freedom, increase, n_draws, df_method)


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
    degrees of freedom: li-meng-raghunathan-rubin
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
    return _f_test("D2", statistic, df, freedom, increase, m, "li-meng-raghunathan-rubin")


def likelihood_ratio_test(
    full: Sequence[Any], null: Sequence[Any], *, variant: str = "meng-rubin"
) -> PooledTest:
    r"""Compares two nested models that were fitted to the same completed tables (D3).

    .. math::
        D_3 = \frac{\tilde d}{k (1 + r)}, \qquad r = \frac{M + 1}{k (M - 1)} (\bar d - \tilde d)

    with :math:`\bar d` the mean likelihood-ratio statistic, and :math:`\tilde d` its mean if both models have
    their pooled parameters in every table.

    Parameters
    ----------
    full, null : sequences of statsmodels results
        The fits of the larger and of the smaller model, in the order of the tables: `Pooled.fits` of two
        calls of `pool`. A result has ``params``, ``llf`` and ``model.loglike(params)``.
    variant : {"meng-rubin", "mice"}, default="meng-rubin"
        Which parameters are the pooled ones in :math:`\tilde d`. ``"meng-rubin"``: all, as in the article,
        also the residual variance (dispersion) of linear models and of generalised linear models that
        estimate one. ``"mice"``: the slopes only, as in ``D3`` of the R package mice; the intercept and the
        dispersion have their best values in each table, so that the relative increase in variance is smaller.
    """
    if variant not in VARIANTS:
        raise ValueError(f"variant must be one of {', '.join(VARIANTS)}, got {variant!r}.")
    k = _n_tested(full, null)
    m = len(full)
    own = np.mean([2 * (a.llf - b.llf) for a, b in zip(full, null, strict=True)])
    pooled = float(np.mean(2 * (_at_pooled_parameters(full, variant) - _at_pooled_parameters(null, variant))))
    increase = max((m + 1) / (k * (m - 1)) * float(own - pooled), 0.0)
    freedom, df_method = denominator_df(k, increase, m, np.inf)
    return _f_test("D3", pooled / (k * (1 + increase)), k, freedom, increase, m, df_method, variant)


def _n_tested(full: Sequence[Any], null: Sequence[Any]) -> int:
    """Returns the number of parameters by which two models differ; raises if they cannot be compared."""
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
    k = int(np.size(full[0].params) - np.size(null[0].params))
    if k < 1:
        raise ValueError(
            f"The full model must have more parameters than the null model, got {np.size(full[0].params)} "
            f"and {np.size(null[0].params)}."
        )
    return k


def _at_pooled_parameters(fits: Sequence[Any], variant: str) -> Floats:
    """Returns the log-likelihoods of all tables (M) at the means of the parameters."""
    mean = np.mean([np.asarray(fit.params) for fit in fits], axis=0)
    if variant == "mice":
        return np.array([_at_best_intercept(fit, mean) for fit in fits])
    scales = [one for one in map(_scale_of, fits) if one is not None]
    if len(scales) < len(fits):
        return np.array([float(fit.model.loglike(mean)) for fit in fits])
    pooled = float(np.mean(scales))
    return np.array([_log_likelihood(fit, mean, pooled) for fit in fits])


def _at_best_intercept(fit: Any, params: Floats) -> float:
    """Returns the largest log-likelihood of a table if only intercept and dispersion differ from parameters.

    A model without an intercept, such as a Cox model, has its log-likelihood at the parameters.
    """
    rows = np.asarray(fit.model.exog, np.float64)
    shift = np.zeros(len(params))  # change of coefficients that adds 1 to all linear predictors
    shift[: rows.shape[1]] = np.linalg.lstsq(rows, np.ones(len(rows)))[0]
    has_scale = _scale_of(fit) is not None

    def loss(by: float) -> float:
        moved = params + by * shift
        return -(_log_likelihood(fit, moved, None) if has_scale else float(fit.model.loglike(moved)))

    if not np.allclose(rows @ shift[: rows.shape[1]], 1.0):
        return -loss(0.0)
    return -float(minimize_scalar(loss).fun)


def _scale_of(fit: Any) -> float | None:
    """Returns the estimated scale that belongs to ``llf``; None if the model has no scale besides params.

    In statsmodels, ``llf`` of least squares and of Gaussian models with the identity link is at the scale of
    maximum likelihood, and ``llf`` of other families at the estimate of the scale that standard errors use.
    """
    model = fit.model
    if hasattr(model, "wendog") and hasattr(model, "wexog"):
        return _mean_square(model, np.asarray(fit.params))
    family = getattr(model, "family", None)
    if family is None or type(family).__name__ in ("Binomial", "Poisson", "NegativeBinomial"):
        return None
    return _dispersion(model, np.asarray(fit.params))


def _log_likelihood(fit: Any, params: Floats, scale: float | None) -> float:
    """Returns the log-likelihood at a scale; by default at the best one for the parameters."""
    model = fit.model
    if hasattr(model, "wendog"):
        best = float(model.loglike(params))  # statsmodels evaluates it at the scale that maximises it
        if scale is None:
            return best
        ratio = _mean_square(model, params) / scale
        return best + len(model.wendog) / 2 * float(np.log(ratio) + 1 - ratio)
    return float(model.loglike(params, scale=_dispersion(model, params) if scale is None else scale))


def _mean_square(model: Any, params: Floats) -> float:
    return float(np.mean((np.asarray(model.wendog) - np.asarray(model.wexog) @ params) ** 2))


def _dispersion(model: Any, params: Floats) -> float:
    mean = model.predict(params)
    if type(model.family).__name__ == "Gaussian" and getattr(model.family.link, "power", None) == 1.0:
        return float((model.iweights * (model.endog - mean) ** 2).sum() / model.wnobs)
    return float(model.estimate_scale(mean))


def denominator_df(k: int, increase: float, n_draws: int, df_complete: float) -> tuple[float, str]:
    r"""Returns the degrees of freedom of the denominator of D1 and D3, and the name of their formula.

    With :math:`t = k (M - 1)` and many degrees of freedom of the complete data (Li, Raghunathan & Rubin)

    .. math:: \nu = 4 + (t - 4) \left(1 + \frac{1 - 2 / t}{r}\right)^2 \quad (t > 4), \qquad
       \nu = \frac{k + 1}{2} (M - 1) \left(1 + \frac1r\right)^2 \quad (t \le 4)

    With :math:`\nu_c` of them, :math:`\nu^* = \nu_c (\nu_c + 1) / (\nu_c + 3)`, :math:`a = r t / (t - 2)`,
    :math:`c_1 = \nu^* - 2 (1 + a)` and :math:`c_2 = \nu^* - 4 (1 + a)` (Reiter, as in the R package mitml)

    .. math:: \nu = 4 + \left\{\frac{1}{c_2} + \frac{a^2}{t - 4} \left[\frac{c_1}{(1 + a)^2 c_2}
       + \frac{8 c_1}{(1 + a) c_2^2} + \frac{4}{(1 + a) c_2} + \frac{4}{c_1 c_2} + \frac{16 c_1}{c_2^3}
       + \frac{8}{c_2^2}\right]\right\}^{-1}

    The bracket holds the second-order terms of the mean square of the denominator, as a function of the
    relative increase in variance. Where the formula does not apply (:math:`t \le 4`, or :math:`c_2 \le 0`
    because little information is left), the degrees of freedom are :math:`(k + 1) / 2` times those of Barnard
    and Rubin for one coefficient, at most :math:`\nu^*`: equal to theirs for k = 1, and to the second formula
    above for many degrees of freedom.
    """
    t, r = k * (n_draws - 1), max(increase, 1e-12)
    if not np.isfinite(df_complete):
        if t > 4:
            return float(4 + (t - 4) * (1 + (1 - 2 / t) / r) ** 2), LARGE_SAMPLE
        return float(t * (1 + 1 / k) * (1 + 1 / r) ** 2 / 2), LARGE_SAMPLE
    complete = max(df_complete, 1.0)
    star = complete * (complete + 1) / (complete + 3)
    a = r * t / (t - 2) if t > 2 else np.inf
    c1, c2 = star - 2 * (1 + a), star - 4 * (1 + a)
    if t <= 4 or c2 <= 0:
        large, left = (n_draws - 1) * (1 + 1 / r) ** 2, star / (1 + r)
        return float(min((k + 1) / 2 * large * left / (large + left), star)), "barnard-rubin"
    second = c1 / ((1 + a) ** 2 * c2) + 8 * c1 / ((1 + a) * c2**2) + 4 / ((1 + a) * c2)
    second += 4 / (c1 * c2) + 16 * c1 / c2**3 + 8 / c2**2
    return float(4 + 1 / (1 / c2 + a**2 / (t - 4) * second)), "reiter"


def _f_test(
    method: str,
    statistic: float,
    k: int,
    freedom: float,
    increase: float,
    n_draws: int,
    df_method: str,
    variant: str | None = None,
) -> PooledTest:
    p = float(f_distribution.sf(statistic, k, freedom))
    return PooledTest(method, statistic, float(k), freedom, p, increase, n_draws, df_method, variant)
