"""Scikit-learn's linear models: coefficients and their covariance matrix."""

from collections.abc import Callable
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

from halfseen.data.frames import Table, is_frame
from halfseen.data.masked import check_not_masked, unmask
from halfseen.pooling.analysis import Analysis

Floats = npt.NDArray[np.float64]
INTERCEPT = "(intercept)"


def analyse_linear_model(
    estimator: Any, table: Any, y: Any, n_resamples: int, rng: np.random.Generator
) -> Analysis:
    """Fits a clone of a linear model to a completed table; `y` is the target or the name of its column."""
    X, target = _split_target(table, y)
    return _fit_one(estimator, X, target, n_resamples, rng)


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


def _fit_one(estimator: Any, X: Any, y: Any, n_resamples: int, rng: np.random.Generator) -> Analysis:
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
        covariance = rule(final, matrix, y, matrix @ estimate)
    else:
        covariance = _bootstrap(final, design, y, has_intercept, n_resamples, rng)
    return Analysis(names, estimate, covariance, len(matrix) - len(estimate), model)


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
    """Returns the covariance matrix of maximum likelihood for the models that have it."""
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
    return residual @ residual / freedom * _inverse_information(design, np.ones(len(design)))


def _logistic(model: Any, design: Floats, y: Any, linear: Floats) -> Floats:
    chance = 1 / (1 + np.exp(-linear))
    return _inverse_information(design, chance * (1 - chance))


def _log_link(model: Any, design: Floats, y: Any, linear: Floats) -> Floats:
    mean = np.exp(linear)
    if type(model) is PoissonRegressor:
        return _inverse_information(design, mean)
    residual = np.asarray(y) / mean - 1
    dispersion = residual @ residual / max(len(design) - design.shape[1], 1)
    return dispersion * _inverse_information(design, np.ones(len(design)))


def _inverse_information(design: Floats, weights: Floats) -> Floats:
    information = (design * weights[:, None]).T @ design
    return np.asarray(np.linalg.pinv(information, hermitian=True), np.float64)


def _bootstrap(
    model: Any, design: Any, y: Any, has_intercept: bool, n_resamples: int, rng: np.random.Generator
) -> Floats:
    matrix = np.asarray(design.toarray() if hasattr(design, "toarray") else design, dtype=np.float64)
    estimates = []
    for _ in range(n_resamples):
        rows = rng.integers(len(matrix), size=len(matrix))
        estimates.append(_coefficients(clone(model).fit(matrix[rows], np.asarray(y)[rows]), has_intercept))
    covariance: Floats = np.cov(np.stack(estimates).T).reshape(len(estimates[0]), -1)
    return covariance
