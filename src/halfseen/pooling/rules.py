"""Rubin's rules: one estimate with valid standard errors from several completed tables, and its printing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student_t

from halfseen._arrays import Floats
from halfseen.base.parameters import check_level
from halfseen.pooling.hypotheses import PooledTest, wald_statistic
from halfseen.pooling.prediction import averages, designs, predictions_of, response_of, tables_of
from halfseen.pooling.transformation import Transformation, find_transformation, transformed


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
    covariances : ndarray of shape (n_draws, n_coefficients, n_coefficients) or None
        The covariance matrix of each table; None if the analysis returned variances only.
    fits : tuple
        What the analysis of each table returned: fitted scikit-learn models or statsmodels results; empty if
        it returned numbers.
    df_complete : float
        The degrees of freedom of the analysis of complete data; infinite if they are not known.
    transformation : Transformation or None
        The scale on which estimates were pooled, if that is not their own. Then `estimate`, `std_error`,
        `within`, `between`, `estimates` and intervals are mapped back, with variances by the delta method,
        and p-values are those of the hypothesis that the transformed estimate is zero.
    on_scale : Pooled or None
        The same on the scale of pooling, if there is a transformation.
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
    covariances: Floats | None = None
    fits: tuple[Any, ...] = ()
    df_complete: float = np.inf
    transformation: Transformation | None = None
    on_scale: "Pooled | None" = None

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Returns the ends of the confidence intervals."""
        check_level(level)
        base = self.on_scale or self
        half = student_t.ppf((1 + level) / 2, self.df) * base.std_error
        low, high = base.estimate - half, base.estimate + half
        if self.transformation is None:
            return low, high
        ends = self.transformation.inverse(low), self.transformation.inverse(high)
        return np.minimum(*ends), np.maximum(*ends)  # a transformation may decrease

    @property
    def statistic(self) -> Floats:
        """The estimates divided by their standard errors, on the scale of pooling."""
        base = self.on_scale or self
        safe = np.where(base.std_error > 0, base.std_error, 1.0)
        sign = np.sign(base.estimate)
        exact = np.where(sign == 0, 0.0, np.where(sign > 0, np.inf, -np.inf))
        return np.where(base.std_error > 0, base.estimate / safe, exact)

    @property
    def p_value(self) -> Floats:
        """The two-sided p-values of the hypotheses that a coefficient is zero on the scale of pooling."""
        return np.asarray(2 * student_t.sf(np.abs(self.statistic), self.df))

    @property
    def riv(self) -> Floats:
        r"""The relative increase in variance due to missing values, :math:`(1 + 1/M) B / \bar{U}`."""
        base = self.on_scale or self
        extra = (1 + 1 / self.n_draws) * base.between
        safe = np.where(base.within > 0, base.within, 1.0)
        return np.where(base.within > 0, extra / safe, np.where(extra > 0, np.inf, 0.0))

    @property
    def within_covariance(self) -> Floats | None:
        """The mean covariance matrix in a completed table; None if the analysis returned variances only."""
        return None if self.covariances is None else self.covariances.mean(axis=0)

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

        If the degrees of freedom of the complete data are known, the denominator has the small-sample degrees
        of freedom of Reiter (2007), otherwise those of Li, Raghunathan and Rubin (1991); `df_method` of the
        result states which.

        Parameters
        ----------
        names : sequence of str, optional
            The coefficients; by default all but the intercept.
        value : float or array-like of shape (k,), default=0
            The values under the hypothesis, on the scale of pooling.
        matrix : array-like of shape (k, n_coefficients), optional
            Linear combinations, instead of names.
        """
        if self.on_scale is not None:
            return self.on_scale.wald_test(names, value, matrix)
        contrast = self._contrast(names) if matrix is None else np.atleast_2d(np.asarray(matrix, np.float64))
        if contrast.shape[1] != len(self.names):
            raise ValueError(f"matrix has {contrast.shape[1]} columns for {len(self.names)} coefficients.")
        mean = self.within_covariance
        within = np.diag(self.within) if mean is None else mean
        if mean is None and (len(contrast) > 1 or (contrast != 0).sum() > 1):
            raise ValueError("A test of several coefficients needs covariance matrices, not only variances.")
        between = np.cov(self.estimates.T).reshape(within.shape)
        return wald_statistic(
            contrast @ self.estimate - np.broadcast_to(np.asarray(value, np.float64), len(contrast)),
            contrast @ within @ contrast.T,
            contrast @ between @ contrast.T,
            self.n_draws,
            self.df_complete,
        )

    def _contrast(self, names: Sequence[str] | None) -> Floats:
        if names is None:
            names = [name for name in self.names if name not in ("(intercept)", "Intercept", "const")]
        chosen = [names] if isinstance(names, str) else list(dict.fromkeys(names))
        for name in chosen:
            if name not in self.names:
                raise ValueError(f"There is no coefficient {name!r}; there are {', '.join(self.names)}.")
        if not chosen:
            raise ValueError("There is no coefficient to test besides the intercept.")
        return np.eye(len(self.names))[[self.names.index(name) for name in chosen]]

    def predict(self, rows: Any, level: float | None = None) -> Any:
        """Predicts for new rows: the mean of the predictions of all M models.

        The model of table m predicts from the m-th completion of the new rows, so that the mean accounts for
        the uncertainty of the missing inputs and of the parameters. For classifiers of scikit-learn, the
        result contains probabilities, for Cox models logarithms of hazard ratios.

        Parameters
        ----------
        rows : table, or sequence of M tables, or array of shape (M, n_samples, n_features)
            Complete new rows with the columns of the analysis, or incomplete ones that were completed M times
            by the imputer of the pooled tables.
        level : float, optional
            The probability of an interval of the mean outcome, for linear and generalised linear models.

        Returns
        -------
        array of shape (n_samples,), or (n_samples, n_classes) for classifiers
            With `level`, a tuple of three arrays: expected outcomes and the ends of their intervals, as from
            `expected`.
        """
        if not self.fits or not hasattr(self.fits[0], "predict"):
            raise ValueError("Only pooled models can predict; the analyses returned numbers.")
        if level is not None:
            found = self.expected(rows)
            return (found.estimate, *found.interval(level))
        return np.mean(
            [
                predictions_of(fit, table)
                for fit, table in zip(self.fits, tables_of(rows, self.n_draws), strict=True)
            ],
            axis=0,
        )

    def expected(self, rows: Any, *, average: bool = False, minus: Any = None) -> "Pooled":
        r"""Returns expected outcomes of new rows with standard errors and intervals.

        The linear predictors :math:`x^\top \beta_m` are pooled by Rubin's rules, which for complete rows
        gives the variance :math:`x^\top T x` with T the pooled covariance matrix; generalised linear models
        then map estimates and ends of intervals by the inverse of their link. Intervals are those of the mean
        outcome, not of a single new outcome.

        Parameters
        ----------
        rows : table, or sequence of M tables
            Complete rows with the columns of the analysis, or one completion of incomplete rows for each
            pooled model.
        average : bool, default=False
            Whether to return one estimate, the mean over all rows (predictive margin), with the variance of
            the delta method. Rows are taken as fixed.
        minus : table, or sequence of M tables, optional
            With `average`, other rows whose mean is subtracted, such as the same rows with another level of a
            treatment; the result is then the difference (average effect), whose variance accounts for the
            covariance of the two means.
        """
        if minus is not None and not average:
            raise ValueError("minus is the difference of two means, so it needs average=True.")
        if not self.fits or self.covariances is None:
            raise ValueError("Only pooled models have expected outcomes; the analyses returned numbers.")
        response = response_of(self.fits[0])
        matrices = designs(self.fits, tables_of(rows, self.n_draws), len(self.names))
        if average:
            others = None
            if minus is not None:
                others = designs(self.fits, tables_of(minus, self.n_draws), len(self.names))
            means, variances = averages(self.estimates, self.covariances, matrices, response, others)
            name = "mean" if others is None else "difference of means"
            return pool_estimates(means, variances, names=[name], df_complete=self.df_complete)
        linear = np.stack([x @ beta for x, beta in zip(matrices, self.estimates, strict=True)])
        variance = np.stack(
            [((x @ u) * x).sum(axis=1) for x, u in zip(matrices, self.covariances, strict=True)]
        )
        names = [f"row {i}" for i in range(linear.shape[1])]
        pooled = pool_estimates(linear, variance, names=names, df_complete=self.df_complete)
        return pooled if response is None else pooled.transformed_back(response)

    def contrast(
        self,
        combinations: Mapping[str, Mapping[str, float]] | npt.ArrayLike,
        names: Sequence[str] | None = None,
    ) -> "Pooled":
        """Returns linear combinations of coefficients with standard errors and intervals.

        Parameters
        ----------
        combinations : dict of dicts, or array-like of shape (k, n_coefficients)
            For each combination the weights of coefficients by name, as in
            ``{"b - c": {"C(g)[T.b]": 1, "C(g)[T.c]": -1}}``; or a matrix of weights.
        names : sequence of str, optional
            The names of the rows of a matrix.
        """
        base = self.on_scale or self
        if base.covariances is None:
            raise ValueError("A contrast needs covariance matrices, not only variances.")
        if isinstance(combinations, Mapping):
            names = list(combinations)
            matrix = np.zeros((len(names), len(self.names)))
            for row, weights in zip(matrix, combinations.values(), strict=True):
                row += np.fromiter(weights.values(), np.float64) @ base._contrast(list(weights))
        else:
            matrix = np.atleast_2d(np.asarray(combinations, np.float64))
        if matrix.shape[1] != len(self.names):
            raise ValueError(f"A contrast has {matrix.shape[1]} weights for {len(self.names)} coefficients.")
        return pool_estimates(
            base.estimates @ matrix.T,
            matrix @ base.covariances @ matrix.T,
            names=names,
            df_complete=self.df_complete,
        )

    def exponentiated(self) -> "Pooled":
        """Returns odds ratios, rate ratios or hazard ratios: exponentials of the estimates and intervals.

        Standard errors are those of the ratios, by the delta method; tests, degrees of freedom and fractions
        of missing information stay those of the coefficients.
        """
        if self.on_scale is not None:
            raise ValueError("The estimates were pooled on another scale and mapped back already.")
        return self.transformed_back(find_transformation("log"))

    def transformed_back(self, transformation: Transformation) -> "Pooled":
        """Returns the estimates on the scale of their origin, with standard errors by the delta method."""
        slope = transformation.inverse_derivative(self.estimate)
        return replace(
            self,
            estimate=transformation.inverse(self.estimate),
            std_error=np.abs(slope) * self.std_error,
            within=slope**2 * self.within,
            between=slope**2 * self.between,
            estimates=transformation.inverse(self.estimates),
            covariances=None,
            transformation=transformation,
            on_scale=self,
        )

    def to_frame(self, level: float = 0.95) -> Any:
        """Returns a tidy pandas data frame with one row per coefficient.

        Its columns are term, estimate, std_error, statistic, df, p_value, conf_low, conf_high, riv and fmi.

        Parameters
        ----------
        level : float, default=0.95
            The probability of the intervals.
        """
        import pandas as pd

        return pd.DataFrame(tidy_columns(self, level))

    def to_latex(self, *, level: float = 0.95, digits: int = 3) -> str:
        """Returns a LaTeX table (``tabular``) with one row per coefficient.

        Parameters
        ----------
        level : float, default=0.95
            The probability of the intervals.
        digits : int, default=3
            The number of significant digits of estimates, standard errors and intervals.
        """
        return as_latex(self, level, digits)

    def to_html(self, *, level: float = 0.95, digits: int = 3) -> str:
        """Returns an HTML table with one row per coefficient; notebooks show it.

        Parameters
        ----------
        level, digits : float, int
            As of `to_latex`.
        """
        return as_html(self, level, digits)

    def _repr_html_(self) -> str:
        return self.to_html(digits=4)

    def __str__(self) -> str:
        return as_text(self)


def pool_estimates(
    estimates: npt.ArrayLike,
    variances: npt.ArrayLike,
    *,
    names: Sequence[str] | None = None,
    df_complete: float = np.inf,
    fits: Sequence[Any] = (),
    transform: str | None = None,
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
    transform : {"log", "logit", "fisher", "fisher-root", "cloglog"}, optional
        The scale on which estimates are pooled: ``"log"`` for ratios, ``"logit"`` for probabilities and the
        C-index, ``"fisher"`` (the inverse hyperbolic tangent) for correlations, ``"fisher-root"`` (that of
        the root) for R-squared, ``"cloglog"`` for survival probabilities. Variances are mapped by the delta
        method; the pooled estimates and the ends of intervals are mapped back.

    Examples
    --------
    >>> pooled = pool_estimates([1.0, 2.0, 3.0], [0.5, 0.6, 0.7])
    >>> pooled.estimate, pooled.std_error.round(4)
    (array([2.]), array([1.3904]))
    """
    q, u = np.asarray(estimates, np.float64), np.asarray(variances, np.float64)
    q, u = (q[:, None], u.reshape(len(q), 1)) if q.ndim == 1 else (q, u)
    _check(q, u)
    if transform is not None:
        moved, scaled = transformed(q, u, transform)
        on_scale = pool_estimates(moved, scaled, names=names, df_complete=df_complete, fits=fits)
        return on_scale.transformed_back(find_transformation(transform))
    m, k = q.shape
    mean = u.mean(axis=0)
    within = np.diag(mean).copy() if u.ndim == 3 else mean
    between = q.var(axis=0, ddof=1)
    total = within + (1 + 1 / m) * between
    df, fmi = _barnard_rubin(between, total, m, max(df_complete, 1.0))
    chosen = tuple(f"q{j}" for j in range(k)) if names is None else tuple(str(name) for name in names)
    if len(chosen) != k:
        raise ValueError(f"There are {k} estimates and {len(chosen)} names: {', '.join(chosen)}.")
    return Pooled(
        chosen, q.mean(axis=0), np.sqrt(total), within, between, df, fmi, m, q,
        u if u.ndim == 3 else None, tuple(fits), df_complete,
    )  # fmt: skip


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


_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": "$<$",
        ">": "$>$",
    }
)


def tidy_columns(pooled: Pooled, level: float) -> dict[str, Any]:
    """Returns the columns of the tidy frame, by name."""
    low, high = pooled.interval(level)
    return {
        "term": list(pooled.names),
        "estimate": pooled.estimate,
        "std_error": pooled.std_error,
        "statistic": pooled.statistic,
        "df": pooled.df,
        "p_value": pooled.p_value,
        "conf_low": low,
        "conf_high": high,
        "riv": pooled.riv,
        "fmi": pooled.fmi,
    }


def as_text(pooled: Pooled) -> str:
    """Returns a table for terminals."""
    low, high = pooled.interval()
    width = max(len("coefficient"), *(len(name) for name in pooled.names))
    lines = [
        f"{'coefficient':{width}} {'estimate':>10} {'std error':>10} {'2.5%':>10} {'97.5%':>10}"
        f" {'p':>8} {'df':>7} {'riv':>6} {'fmi':>5}"
    ]
    rows = zip(
        pooled.names, pooled.estimate, pooled.std_error, low, high, pooled.p_value, pooled.df, pooled.riv,
        pooled.fmi, strict=True,
    )  # fmt: skip
    for name, estimate, error, lo, hi, p, df, riv, fmi in rows:
        lines.append(
            f"{name:{width}} {estimate:10.4g} {error:10.4g} {lo:10.4g} {hi:10.4g}"
            f" {p:8.3g} {df:7.1f} {riv:6.3g} {fmi:5.2f}"
        )
    return "\n".join([*lines, caption(pooled)])


def caption(pooled: Pooled) -> str:
    """Returns how the estimates were pooled, as a line of text."""
    scale = "" if pooled.transformation is None else f" on the scale {pooled.transformation.name}"
    return f"pooled over {pooled.n_draws} completed tables by Rubin's rules{scale}"


def as_latex(pooled: Pooled, level: float, digits: int) -> str:
    """Returns a tabular environment that needs no package."""
    lines = [r"\begin{tabular}{lrrrrrrr}", r"\hline"]
    header, rows = _cells(pooled, level, digits)
    lines.append(" & ".join(cell.translate(_LATEX) for cell in header) + r" \\ \hline")
    lines += [" & ".join(cell.translate(_LATEX) for cell in row) + r" \\" for row in rows]
    return "\n".join([*lines, r"\hline", r"\end{tabular}"])


def as_html(pooled: Pooled, level: float, digits: int) -> str:
    """Returns a table element."""
    header, rows = _cells(pooled, level, digits)
    body = "".join("<tr>" + "".join(_html_cells(row)) + "</tr>" for row in rows)
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    return (
        f"<table><caption>{escape(caption(pooled))}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def _html_cells(row: Sequence[str]) -> list[str]:
    first, *others = (escape(cell) for cell in row)
    return [f'<th scope="row">{first}</th>', *(f"<td>{cell}</td>" for cell in others)]


def _cells(pooled: Pooled, level: float, digits: int) -> tuple[list[str], list[list[str]]]:
    """Returns the header and the rows of a printed table, as texts."""
    if digits < 1:
        raise ValueError(f"digits must be at least 1, got {digits!r}.")
    low, high = pooled.interval(level)
    header = ["term", "estimate", "std. error", f"{level:.0%} low", f"{level:.0%} high", "p", "df", "fmi"]
    numbers = zip(pooled.estimate, pooled.std_error, low, high, strict=True)
    rows = []
    for j, four in enumerate(numbers):
        row = [pooled.names[j], *(f"{number:.{digits}g}" for number in four)]
        p = float(pooled.p_value[j])
        row.append("<0.001" if p < 0.001 else f"{p:.3f}")
        rows.append([*row, f"{pooled.df[j]:.1f}", f"{pooled.fmi[j]:.2f}"])
    return header, rows
