"""Scikit-learn's linear models: coefficients and their covariance matrix."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.linear_model import (
    GammaRegressor,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
)
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from halfseen.data.frames import Table, is_frame
from halfseen.data.masked import check_not_masked, unmask
from halfseen.pooling.analysis import Analysis
from halfseen.pooling.weighted import linearised_covariance

Floats = npt.NDArray[np.float64]
INTERCEPT = "(intercept)"


@dataclass(frozen=True)
class TargetColumn:
    """The target of a model or the name of its column, and the name of a column that is no input."""

    y: Any
    left_out: str | None = None


def analyse_linear_model(
    estimator: Any,
    table: Any,
    target: TargetColumn,
    weights: Floats | None,
    n_resamples: int,
    rng: np.random.Generator,
) -> Analysis:
    """Fits a clone of a linear model to a completed table, whose rows may have weights (N)."""
    X, y = _split_target(table, target)
    return _fit_one(estimator, X, y, weights, n_resamples, rng)


def _split_target(table: Any, target: TargetColumn) -> tuple[Any, Any]:
    y = target.y
    if not is_frame(table):
        if isinstance(y, str):
            raise ValueError(
                f"y={y!r} names a column, but the completed tables are arrays; pass the target itself."
            )
        return unmask(table), np.asarray(check_not_masked(y, "y"))
    import narwhals as nw

    frame = nw.from_native(table, eager_only=True)
    kept = frame if target.left_out is None else frame.drop(target.left_out)
    if not isinstance(y, str):
        return kept.to_native(), np.asarray(check_not_masked(y, "y"))
    if y not in kept.columns:
        raise ValueError(
            f"The completed tables have no column {y!r}; they have {', '.join(map(str, kept.columns))}."
        )
    return kept.drop(y).to_native(), kept[y].to_numpy()


def _fit_one(
    estimator: Any, X: Any, y: Any, weights: Floats | None, n_resamples: int, rng: np.random.Generator
) -> Analysis:
    model = _fit_weighted(estimator, X, y, weights)
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
    if not _has_variance_rule(final):
        covariance = _bootstrap(final, matrix, y, weights, has_intercept, n_resamples, rng)
        return Analysis(names, estimate, covariance, len(matrix) - len(estimate), model)
    if has_intercept:
        matrix = np.column_stack([matrix, np.ones(len(matrix))])
    residual, variance = _residuals(final, y, matrix @ estimate)
    freedom = max(len(matrix) - matrix.shape[1], 1)
    if weights is not None:
        covariance = linearised_covariance(matrix, residual, variance, weights)
    else:
        information = (matrix * variance[:, None]).T @ matrix
        covariance = np.asarray(np.linalg.pinv(information, hermitian=True), np.float64)
        if type(final) in (LinearRegression, GammaRegressor):  # whose dispersion is estimated
            covariance = covariance * (residual @ residual / freedom)
    return Analysis(names, estimate, covariance, len(matrix) - len(estimate), model)


def _fit_weighted(estimator: Any, X: Any, y: Any, weights: Floats | None) -> Any:
    if weights is None:
        return clone(estimator).fit(X, y)
    final = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    if not has_fit_parameter(final, "sample_weight"):
        raise ValueError(f"{type(final).__name__} does not take weights of rows in fit.")
    prefix = f"{estimator.steps[-1][0]}__" if isinstance(estimator, Pipeline) else ""
    return clone(estimator).fit(X, y, **{f"{prefix}sample_weight": weights})


def _coefficients(model: Any, has_intercept: bool) -> Floats:
    coefficients = np.ravel(model.coef_).astype(np.float64)
    return np.append(coefficients, np.ravel(model.intercept_)) if has_intercept else coefficients


def _names(model: Any, design: Any) -> tuple[str, ...]:
    if isinstance(model, Pipeline) and hasattr(model[:-1], "get_feature_names_out"):
        return tuple(str(name) for name in model[:-1].get_feature_names_out())
    if is_frame(design):
        return Table(design).names
    return tuple(f"x{j}" for j in range(np.shape(design)[1]))


def _has_variance_rule(model: Any) -> bool:
    """Returns whether the covariance matrix is that of maximum likelihood."""
    if type(model) is LinearRegression:
        return not getattr(model, "positive", False)
    if type(model) is LogisticRegression:
        return _unpenalised(model)
    return type(model) in (PoissonRegressor, GammaRegressor) and bool(model.alpha == 0)


def _unpenalised(model: Any) -> bool:
    return bool(model.penalty is None or np.isinf(model.C))


def _residuals(model: Any, y: Any, linear: Floats) -> tuple[Floats, Floats]:
    """Returns derivative (N) and expected curvature (N) of log-likelihoods by the linear predictor.

    Both are for a dispersion of one.
    """
    if type(model) is LinearRegression:
        return np.asarray(y, dtype=np.float64) - linear, np.ones(len(linear))
    if type(model) is LogisticRegression:
        chance = 1 / (1 + np.exp(-linear))
        return (np.asarray(y) == model.classes_[1]) - chance, chance * (1 - chance)
    mean = np.exp(linear)
    if type(model) is PoissonRegressor:
        return np.asarray(y) - mean, mean
    return np.asarray(y) / mean - 1, np.ones(len(linear))


def _bootstrap(
    model: Any,
    matrix: Floats,
    y: Any,
    weights: Floats | None,
    has_intercept: bool,
    n_resamples: int,
    rng: np.random.Generator,
) -> Floats:
    estimates = []
    for _ in range(n_resamples):
        rows = rng.integers(len(matrix), size=len(matrix))
        own = None if weights is None else weights[rows]
        resampled = _fit_weighted(model, matrix[rows], np.asarray(y)[rows], own)
        estimates.append(_coefficients(resampled, has_intercept))
    covariance: Floats = np.cov(np.stack(estimates).T).reshape(len(estimates[0]), -1)
    return covariance
