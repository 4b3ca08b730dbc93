r"""Rubin's rules: one estimate with valid standard errors from several completed tables."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student_t
from sklearn.base import clone
from sklearn.linear_model import (
    GammaRegressor,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
)
from sklearn.pipeline import Pipeline

from halfseen._random import seed_from
from halfseen.data.frames import Table, is_frame
from halfseen.data.masked import check_not_masked, unmask

Floats = npt.NDArray[np.float64]
N_RESAMPLES = 200
INTERCEPT = "(intercept)"


@dataclass(frozen=True)
class Pooled:
    r"""Estimates pooled over M completed tables, one entry per coefficient.

    Attributes
    ----------
    names : tuple of str
        The coefficients; the intercept is ``(intercept)``.
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
    """

    names: tuple[str, ...]
    estimate: Floats
    std_error: Floats
    within: Floats
    between: Floats
    df: Floats
    fmi: Floats
    n_draws: int

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Returns the ends of the confidence intervals."""
        half = student_t.ppf((1 + level) / 2, self.df) * self.std_error
        return self.estimate - half, self.estimate + half

    @property
    def p_value(self) -> Floats:
        """Returns the two-sided p-values of the hypothesis that a coefficient is zero."""
        return np.asarray(2 * student_t.sf(np.abs(self.estimate / self.std_error), self.df))

    def __str__(self) -> str:
        low, high = self.interval()
        width = max(len("coefficient"), *(len(name) for name in self.names))
        lines = [
            f"{'coefficient':{width}} {'estimate':>10} {'std error':>10} {'2.5%':>10} {'97.5%':>10}"
            f" {'p':>8} {'df':>7} {'fmi':>5}"
        ]
        rows = zip(
            self.names, self.estimate, self.std_error, low, high, self.p_value, self.df, self.fmi, strict=True
        )
        for name, estimate, error, lo, hi, p, df, fmi in rows:
            lines.append(
                f"{name:{width}} {estimate:10.4g} {error:10.4g} {lo:10.4g} {hi:10.4g}"
                f" {p:8.3g} {df:7.1f} {fmi:5.2f}"
            )
        lines.append(f"pooled over {self.n_draws} completed tables by Rubin's rules")
        return "\n".join(lines)


def pool(
    estimator: Any,
    draws: Sequence[Any] | Floats,
    y: Any,
    *,
    n_resamples: int = N_RESAMPLES,
    random_state: Any = 0,
) -> Pooled:
    r"""Fits a linear model to every completed table and pools its coefficients by Rubin's rules.

    .. math:: \bar{q} = \frac1M \sum_m q_m, \qquad T = \frac1M \sum_m U_m + \left(1 + \frac1M\right) B

    Parameters
    ----------
    estimator : scikit-learn linear model, or a Pipeline that ends in one
        Any model with ``coef_`` after `fit`. The variances :math:`U_m` of LinearRegression,
        LogisticRegression without penalty (two classes), PoissonRegressor and GammaRegressor without penalty
        are those of maximum likelihood; those of any other model come from a bootstrap of rows.
    draws : list of tables, or array of shape (n_draws, n_samples, n_features)
        The output of `sample` of an imputer, with at least two draws. The draws should include the
        uncertainty of the parameters, as those of ``GaussianImputer(n_posterior_draws=len(draws))``.
    y : array-like of shape (n_samples,), or str
        The target, or the name of its column in the tables, whose missing values are then imputed too. The
        target should be among the columns of the imputer; otherwise imputed values are unrelated to it, and
        coefficients are biased towards zero.
    n_resamples : int, default=200
        The number of bootstrap samples, if a bootstrap is needed.
    random_state : int, numpy generator or None, default=0
        Seeds the bootstrap.

    References
    ----------
    Rubin (1987), Multiple Imputation for Nonresponse in Surveys; Barnard & Rubin (1999), Biometrika 86.

    Examples
    --------
    >>> from halfseen import GaussianImputer
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> X[:, 1] += X[:, 0]
    >>> X[rng.random(300) < 0.3, 0] = np.nan
    >>> draws = GaussianImputer(n_posterior_draws=20, random_state=0).fit(X).sample(X, n_draws=20)
    >>> pooled = pool(LinearRegression(), draws[:, :, :1], draws[0, :, 1])
    >>> pooled.names
    ('x0', '(intercept)')
    """
    tables = list(draws)
    if len(tables) < 2:
        raise ValueError(f"Pooling needs at least 2 completed tables, got {len(tables)}.")
    rng = np.random.default_rng(seed_from(random_state))
    fits = [_fit_one(estimator, *_split_target(table, y), n_resamples, rng) for table in tables]
    n_rows = fits[0].n_rows
    estimates, variances = np.stack([f.estimate for f in fits]), np.stack([f.variance for f in fits])
    return _combine(fits[0].names, estimates, variances, n_rows - estimates.shape[1])


@dataclass(frozen=True)
class _Fit:
    names: tuple[str, ...]
    estimate: Floats
    variance: Floats
    n_rows: int


def _combine(names: tuple[str, ...], estimates: Floats, variances: Floats, df_complete: float) -> Pooled:
    """Applies Rubin's rules to estimates and variances (M, n_coefficients)."""
    n_draws = len(estimates)
    within = variances.mean(axis=0)
    between = estimates.var(axis=0, ddof=1)
    total = within + (1 + 1 / n_draws) * between
    share = np.clip((1 + 1 / n_draws) * between / np.where(total > 0, total, 1.0), 1e-12, 1 - 1e-12)
    df_old = (n_draws - 1) / share**2
    df_complete = max(df_complete, 1.0)
    df_observed = (df_complete + 1) / (df_complete + 3) * df_complete * (1 - share)
    df = df_old * df_observed / (df_old + df_observed)
    increase = share / (1 - share)
    fmi = (increase + 2 / (df + 3)) / (increase + 1)
    return Pooled(names, estimates.mean(axis=0), np.sqrt(total), within, between, df, fmi, n_draws)


def _split_target(table: Any, y: Any) -> tuple[Any, Any]:
    if not isinstance(y, str):
        return unmask(table), np.asarray(check_not_masked(y, "y"))
    if not is_frame(table):
        raise ValueError(
            f"y={y!r} names a column, but the completed tables are arrays; pass the target itself."
        )
    import narwhals as nw

    frame = nw.from_native(table, eager_only=True)
    if y not in frame.columns:
        raise ValueError(
            f"The completed tables have no column {y!r}; they have {', '.join(map(str, frame.columns))}."
        )
    return frame.drop(y).to_native(), frame[y].to_numpy()


def _fit_one(estimator: Any, X: Any, y: Any, n_resamples: int, rng: np.random.Generator) -> _Fit:
    model = clone(estimator).fit(X, y)
    final, design = (model[-1], model[:-1].transform(X)) if isinstance(model, Pipeline) else (model, X)
    if not hasattr(final, "coef_"):
        raise ValueError(f"{type(final).__name__} has no coef_ after fit; only linear models can be pooled.")
    names = _names(model, design)
    if np.size(final.coef_) != len(names):
        raise ValueError(
            f"{type(final).__name__} has {np.size(final.coef_)} coefficients for {len(names)} features; "
            "pool one target or two classes at a time."
        )
    matrix = np.asarray(design.toarray() if hasattr(design, "toarray") else design, dtype=np.float64)
    has_intercept = bool(getattr(final, "fit_intercept", True))
    estimate = _coefficients(final, has_intercept)
    names = (*names, INTERCEPT) if has_intercept else names
    if has_intercept:
        matrix = np.column_stack([matrix, np.ones(len(matrix))])
    rule = _variance_rule(final)
    if rule is not None:
        variance = rule(final, matrix, y, matrix @ estimate)
    else:
        variance = _bootstrap(final, design, y, has_intercept, n_resamples, rng)
    return _Fit(names, estimate, variance, len(matrix))


def _coefficients(model: Any, has_intercept: bool) -> Floats:
    coefficients = np.ravel(model.coef_).astype(np.float64)
    return np.append(coefficients, np.ravel(model.intercept_)) if has_intercept else coefficients


def _names(model: Any, design: Any) -> tuple[str, ...]:
    if isinstance(model, Pipeline) and hasattr(model[:-1], "get_feature_names_out"):
        return tuple(str(name) for name in model[:-1].get_feature_names_out())
    if is_frame(design):
        return Table(design).names
    return tuple(f"x{j}" for j in range(np.shape(design)[1]))


Rule = Callable[[Any, Floats, Any, Floats], Floats]


def _variance_rule(model: Any) -> Rule | None:
    """Returns the variances of maximum likelihood for the models that have them."""
    if type(model) is LinearRegression and not getattr(model, "positive", False):
        return _ordinary_least_squares
    if type(model) is LogisticRegression and _unpenalised(model):
        return _logistic
    if type(model) in (PoissonRegressor, GammaRegressor) and model.alpha == 0:
        return _log_link
    return None


def _unpenalised(model: Any) -> bool:
    return bool(model.penalty is None or np.isinf(model.C))


def _ordinary_least_squares(model: Any, design: Floats, y: Any, linear: Floats) -> Floats:
    residual = np.asarray(y, dtype=np.float64) - linear
    freedom = max(len(design) - design.shape[1], 1)
    return residual @ residual / freedom * _inverse_diagonal(design, np.ones(len(design)))


def _logistic(model: Any, design: Floats, y: Any, linear: Floats) -> Floats:
    chance = 1 / (1 + np.exp(-linear))
    return _inverse_diagonal(design, chance * (1 - chance))


def _log_link(model: Any, design: Floats, y: Any, linear: Floats) -> Floats:
    mean = np.exp(linear)
    if type(model) is PoissonRegressor:
        return _inverse_diagonal(design, mean)
    residual = np.asarray(y) / mean - 1
    dispersion = residual @ residual / max(len(design) - design.shape[1], 1)
    return dispersion * _inverse_diagonal(design, np.ones(len(design)))


def _inverse_diagonal(design: Floats, weights: Floats) -> Floats:
    information = (design * weights[:, None]).T @ design
    return np.diag(np.linalg.pinv(information, hermitian=True)).copy()


def _bootstrap(
    model: Any, design: Any, y: Any, has_intercept: bool, n_resamples: int, rng: np.random.Generator
) -> Floats:
    matrix = np.asarray(design.toarray() if hasattr(design, "toarray") else design, dtype=np.float64)
    estimates = []
    for _ in range(n_resamples):
        rows = rng.integers(len(matrix), size=len(matrix))
        estimates.append(_coefficients(clone(model).fit(matrix[rows], np.asarray(y)[rows]), has_intercept))
    variances: Floats = np.var(estimates, axis=0, ddof=1)
    return variances
