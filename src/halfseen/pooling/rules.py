r"""Rubin's rules: one estimate with valid standard errors from several completed tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student_t

from halfseen.pooling.hypotheses import PooledTest, wald_statistic

Floats = npt.NDArray[np.float64]
HEADER = ("estimate", "std error", "2.5%", "97.5%", "p", "df", "riv", "fmi")


@dataclass(frozen=True)
class Pooled:
    r"""Estimates pooled over M completed tables, one entry per coefficient.

    Attributes
    ----------
    names : tuple of str
        The coefficients; the intercept of a scikit-learn model is ``(intercept)``.
    estimate, std_error : ndarray of shape (n_coefficients,)
        The pooled estimate and its standard error :math:`\sqrt{T}`, :math:`T = \bar{U} + (1 + 1/M) B`.
    within, between : ndarray of shape (n_coefficients,)
        The mean variance :math:`\bar{U}` in a completed table, and the variance B between tables.
    df : ndarray of shape (n_coefficients,)
        Degrees of freedom of Barnard and Rubin.
    fmi : ndarray of shape (n_coefficients,)
        The fraction of information about the coefficient that is missing.
    n_draws : int
        The number of tables M.
    estimates : ndarray of shape (n_draws, n_coefficients)
        The estimates of each table.
    within_covariance : ndarray of shape (n_coefficients, n_coefficients) or None
        The mean covariance matrix in a completed table; None if the analysis returned variances only.
    fits : tuple
        What the analysis of each table returned: fitted scikit-learn models or statsmodels results; empty if
        it returned numbers.
    """

    names: tuple[str, ...]
    estimate: Floats
    std_error: Floats
    within: Floats
    between: Floats
    df: Floats
    fmi: Floats
    n_draws: int
    estimates: Floats
    within_covariance: Floats | None = None
    fits: tuple[Any, ...] = ()

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Returns the ends of the confidence intervals."""
        if not 0 < level < 1:
            raise ValueError(f"level must be between 0 and 1, got {level!r}.")
        half = student_t.ppf((1 + level) / 2, self.df) * self.std_error
        return self.estimate - half, self.estimate + half

    @property
    def p_value(self) -> Floats:
        """The two-sided p-values of the hypotheses that a coefficient is zero."""
        safe = np.where(self.std_error > 0, self.std_error, 1.0)
        ratio = np.where(self.std_error > 0, self.estimate / safe, np.inf * np.sign(self.estimate))
        return np.asarray(2 * student_t.sf(np.abs(np.nan_to_num(ratio, nan=0.0)), self.df))

    @property
    def riv(self) -> Floats:
        r"""The relative increase in variance due to missing values, :math:`(1 + 1/M) B / \bar{U}`."""
        extra = (1 + 1 / self.n_draws) * self.between
        safe = np.where(self.within > 0, self.within, 1.0)
        return np.where(self.within > 0, extra / safe, np.where(extra > 0, np.inf, 0.0))

    @cached_property
    def covariance(self) -> Floats:
        r"""The pooled covariance matrix, :math:`\bar{U} + (1 + 1/M) B`."""
        if self.within_covariance is None:
            raise ValueError(
                "The analyses returned variances, not covariance matrices, so there is no pooled one."
            )
        return self.within_covariance + (1 + 1 / self.n_draws) * np.cov(self.estimates.T).reshape(
            self.within_covariance.shape
        )

    def wald_test(
        self,
        names: Sequence[str] | None = None,
        value: npt.ArrayLike = 0.0,
        matrix: npt.ArrayLike | None = None,
    ) -> PooledTest:
        """Tests that several coefficients, or linear combinations of them, equal given values (D1).

        Parameters
        ----------
        names : sequence of str, optional
            The coefficients; by default all but the intercept.
        value : float or array-like of shape (k,), default=0
            The values under the hypothesis.
        matrix : array-like of shape (k, n_coefficients), optional
            Linear combinations, instead of names.
        """
        contrast = self._contrast(names) if matrix is None else np.atleast_2d(np.asarray(matrix, np.float64))
        if contrast.shape[1] != len(self.names):
            raise ValueError(f"matrix has {contrast.shape[1]} columns for {len(self.names)} coefficients.")
        within = np.diag(self.within) if self.within_covariance is None else self.within_covariance
        if self.within_covariance is None and (len(contrast) > 1 or (contrast != 0).sum() > 1):
            raise ValueError("A test of several coefficients needs covariance matrices, not only variances.")
        between = np.cov(self.estimates.T).reshape(within.shape)
        return wald_statistic(
            contrast @ self.estimate - np.broadcast_to(np.asarray(value, np.float64), len(contrast)),
            contrast @ within @ contrast.T,
            contrast @ between @ contrast.T,
            self.n_draws,
        )

    def _contrast(self, names: Sequence[str] | None) -> Floats:
        if names is None:
            names = [name for name in self.names if name not in ("(intercept)", "Intercept", "const")]
        chosen = [names] if isinstance(names, str) else list(names)
        for name in chosen:
            if name not in self.names:
                raise ValueError(f"There is no coefficient {name!r}; there are {', '.join(self.names)}.")
        if not chosen:
            raise ValueError("There is no coefficient to test besides the intercept.")
        return np.eye(len(self.names))[[self.names.index(name) for name in chosen]]

    def predict(self, draws: Sequence[Any] | Floats) -> Floats:
        """Predicts for completed tables of new rows: the mean of the predictions of all M models.

        The model of table m predicts from the m-th completion of the new rows, so that the mean accounts for
        the uncertainty of the missing inputs and of the parameters. For classifiers of scikit-learn, the
        result contains probabilities.

        Parameters
        ----------
        draws : sequence of M tables, or array of shape (M, n_samples, n_features)
            New rows with the columns of the analysis, completed by the imputer of the pooled tables.

        Returns
        -------
        array of shape (n_samples,), or (n_samples, n_classes) for classifiers
        """
        tables = list(draws)
        if not self.fits or not hasattr(self.fits[0], "predict"):
            raise ValueError("Only pooled models can predict; the analyses returned numbers.")
        if len(tables) != self.n_draws:
            raise ValueError(f"{self.n_draws} pooled models need as many tables, got {len(tables)}.")
        return np.mean(
            [
                np.asarray((fit.predict_proba if hasattr(fit, "predict_proba") else fit.predict)(table))
                for fit, table in zip(self.fits, tables, strict=True)
            ],
            axis=0,
        )

    def to_frame(self) -> Any:
        """Returns a pandas data frame with one row per coefficient."""
        import pandas as pd

        low, high = self.interval()
        columns = (self.estimate, self.std_error, low, high, self.p_value, self.df, self.riv, self.fmi)
        return pd.DataFrame(dict(zip(HEADER, columns, strict=True)), index=list(self.names))

    def __str__(self) -> str:
        low, high = self.interval()
        width = max(len("coefficient"), *(len(name) for name in self.names))
        lines = [
            f"{'coefficient':{width}} {'estimate':>10} {'std error':>10} {'2.5%':>10} {'97.5%':>10}"
            f" {'p':>8} {'df':>7} {'riv':>6} {'fmi':>5}"
        ]
        rows = zip(
            self.names, self.estimate, self.std_error, low, high, self.p_value, self.df, self.riv, self.fmi,
            strict=True,
        )  # fmt: skip
        for name, estimate, error, lo, hi, p, df, riv, fmi in rows:
            lines.append(
                f"{name:{width}} {estimate:10.4g} {error:10.4g} {lo:10.4g} {hi:10.4g}"
                f" {p:8.3g} {df:7.1f} {riv:6.3g} {fmi:5.2f}"
            )
        lines.append(f"pooled over {self.n_draws} completed tables by Rubin's rules")
        return "\n".join(lines)


def pool_estimates(
    estimates: npt.ArrayLike,
    variances: npt.ArrayLike,
    *,
    names: Sequence[str] | None = None,
    df_complete: float = np.inf,
    fits: Sequence[Any] = (),
) -> Pooled:
    r"""Applies Rubin's rules to given estimates and variances.

    .. math:: \bar{q} = \frac1M \sum_m q_m, \qquad T = \frac1M \sum_m U_m + \left(1 + \frac1M\right) B

    Parameters
    ----------
    estimates : array-like of shape (n_draws, k), or (n_draws,) for one coefficient
        The estimates of each completed table.
    variances : array-like of shape (n_draws, k) or (n_draws, k, k)
        Their squared standard errors, or their covariance matrices.
    names : sequence of str, optional
        The names of the coefficients; by default ``q0``, ``q1`` and so on.
    df_complete : float, default=inf
        The degrees of freedom that the analysis would have without missing values.
    fits : sequence, optional
        The models that gave the estimates, kept for predictions and likelihood-ratio tests.

    Examples
    --------
    >>> pooled = pool_estimates([1.0, 2.0, 3.0], [0.5, 0.6, 0.7])
    >>> pooled.estimate, pooled.std_error.round(4)
    (array([2.]), array([1.3904]))
    """
    q, u = np.asarray(estimates, np.float64), np.asarray(variances, np.float64)
    q, u = (q[:, None], u.reshape(len(q), 1)) if q.ndim == 1 else (q, u)
    _check(q, u)
    m, k = q.shape
    within_covariance = u.mean(axis=0) if u.ndim == 3 else None
    within = np.diag(within_covariance).copy() if within_covariance is not None else u.mean(axis=0)
    between = q.var(axis=0, ddof=1)
    total = within + (1 + 1 / m) * between
    df, fmi = _barnard_rubin(between, total, m, max(df_complete, 1.0))
    chosen = tuple(f"q{j}" for j in range(k)) if names is None else tuple(str(name) for name in names)
    if len(chosen) != k:
        raise ValueError(f"There are {k} estimates and {len(chosen)} names: {', '.join(chosen)}.")
    return Pooled(
        chosen, q.mean(axis=0), np.sqrt(total), within, between, df, fmi, m, q, within_covariance, tuple(fits)
    )


def _barnard_rubin(between: Floats, total: Floats, n_draws: int, df_complete: float) -> tuple[Floats, Floats]:
    """Returns degrees of freedom and fractions of missing information."""
    share = np.clip((1 + 1 / n_draws) * between / np.where(total > 0, total, 1.0), 1e-12, 1 - 1e-12)
    df = (n_draws - 1) / share**2
    if np.isfinite(df_complete):
        observed = (df_complete + 1) / (df_complete + 3) * df_complete * (1 - share)
        df = df * observed / (df + observed)
    increase = share / (1 - share)
    return df, (increase + 2 / (df + 3)) / (increase + 1)


def _check(estimates: Floats, variances: Floats) -> None:
    if estimates.ndim != 2 or len(estimates) < 2:
        raise ValueError(f"Pooling needs estimates of at least 2 completed tables, got {len(estimates)}.")
    m, k = estimates.shape
    if variances.shape not in ((m, k), (m, k, k)):
        raise ValueError(
            f"{m} tables with {k} estimates need variances of shape {(m, k)} or covariance matrices of shape "
            f"{(m, k, k)}, got {variances.shape}."
        )
    diagonal = variances if variances.ndim == 2 else np.diagonal(variances, axis1=1, axis2=2)
    if not np.isfinite(estimates).all() or not np.isfinite(variances).all():
        raise ValueError("Estimates and variances must be finite; an analysis returned NaN or infinity.")
    if (diagonal < 0).any():
        raise ValueError(f"Variances must not be negative, got {diagonal.min():.4g}.")
