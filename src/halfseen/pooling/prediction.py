"""Linear predictors of fitted models for new rows, and the way from them to expected outcomes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import narwhals as nw
import numpy as np
from scipy.stats import norm
from sklearn.base import is_regressor
from sklearn.linear_model import GammaRegressor, LogisticRegression, PoissonRegressor
from sklearn.pipeline import Pipeline

from halfseen._arrays import Floats
from halfseen.data.frames import is_frame
from halfseen.pooling.transformation import TRANSFORMATIONS, Transformation

_PARSERS = (("patsy", "PatsyError"), ("formulaic.errors", "FormulaicError"))

_PROBIT = Transformation("probit", norm.ppf, None, norm.cdf, norm.pdf)
_LINKS = {
    "Logit": TRANSFORMATIONS["logit"],
    "Probit": _PROBIT,
    "Poisson": TRANSFORMATIONS["log"],
    "OLS": None,
    "WLS": None,
    "GLS": None,
}


def tables_of(rows: Any, n_draws: int) -> list[Any]:
    """Returns M tables of new rows: a table of complete rows stands for all of them."""
    if is_frame(rows) or (isinstance(rows, np.ndarray) and rows.ndim == 2):
        return [rows] * n_draws
    tables = list(rows)
    if len(tables) != n_draws:
        raise ValueError(f"{n_draws} pooled models need as many tables, got {len(tables)}.")
    return tables


def predictions_of(fit: Any, table: Any) -> Floats:
    """Returns the predictions (N) of a model, or the probabilities (N, L) of a classifier."""
    if hasattr(getattr(fit, "model", None), "surv"):  # PHReg of statsmodels: logarithms of hazard ratios
        matrix = _design(fit, table)
        linear: Floats = matrix[:, matrix.shape[1] - len(fit.params) :] @ np.asarray(fit.params, np.float64)
        return linear
    with _readable_rows():
        return np.asarray((fit.predict_proba if hasattr(fit, "predict_proba") else fit.predict)(table))


def designs(fits: Sequence[Any], tables: Sequence[Any], n_coefficients: int) -> list[Floats]:
    """Returns what the coefficients of each model are multiplied with (N, K), for its table of new rows."""
    found = [_design(fit, table) for fit, table in zip(fits, tables, strict=True)]
    for matrix in found:
        if matrix.shape[1] != n_coefficients:
            raise ValueError(
                f"The new rows give {matrix.shape[1]} columns for {n_coefficients} coefficients; predictions "
                "with intervals need models whose parameters are all coefficients."
            )
        if not np.isfinite(matrix).all():
            raise ValueError("The new rows have missing values; complete them by the imputer first.")
    return found


def _design(fit: Any, table: Any) -> Floats:
    if hasattr(fit, "get_params"):
        final, inputs = (fit[-1], fit[:-1].transform(table)) if isinstance(fit, Pipeline) else (fit, table)
        matrix = np.asarray(inputs.toarray() if hasattr(inputs, "toarray") else inputs, dtype=np.float64)
        constant = bool(getattr(final, "fit_intercept", True))
        return np.column_stack([matrix, np.ones(len(matrix))]) if constant else matrix
    specification = getattr(fit.model.data, "model_spec", getattr(fit.model.data, "design_info", None))
    if specification is None:
        return np.asarray(table, dtype=np.float64)
    frame = nw.from_native(table, eager_only=True).to_pandas()
    if hasattr(specification, "get_model_matrix"):  # formulaic
        return np.asarray(specification.get_model_matrix(frame, na_action="ignore"), dtype=np.float64)
    patsy = import_module("patsy")
    keep = patsy.NAAction(NA_types=[])
    with _readable_rows():
        return np.asarray(patsy.dmatrix(specification, frame, NA_action=keep), dtype=np.float64)


@contextmanager
def _readable_rows() -> Iterator[None]:
    """Turns the errors of the readers of formulas, as of a level that no model knows, into a ValueError."""
    try:
        yield
    except tuple(formula_errors()) as error:
        reason = str(error).partition("The original error message")[2].partition(":")[2] or str(error)
        lines = [line.strip() for line in reason.splitlines() if line.strip()]
        raise ValueError(f"The new rows do not fit the formula: {lines[0]}.") from error


def formula_errors() -> list[type[Exception]]:
    """Returns the errors of the libraries by which statsmodels reads formulas, if they are installed."""
    installed = [(module, name) for module, name in _PARSERS if find_spec(module.partition(".")[0])]
    return [getattr(import_module(module), name) for module, name in installed]


def response_of(fit: Any) -> Transformation | None:
    """Returns the way from linear predictors to expected outcomes; None if they are the same."""
    if hasattr(fit, "get_params"):
        return _response_of_estimator(fit[-1] if isinstance(fit, Pipeline) else fit)
    model = fit.model
    shifts = [getattr(model, name, None) for name in ("offset", "exposure", "_offset_exposure")]
    if any(shift is not None and np.any(np.asarray(shift) != 0) for shift in shifts):
        raise ValueError("Models with an offset or exposure have no expected outcomes without those of rows.")
    if hasattr(model, "family"):
        link = model.family.link
        name = type(link).__name__.lower()
        if name == "identity":
            return None
        return Transformation(name, None, None, link.inverse, link.inverse_deriv)
    if type(model).__name__ not in _LINKS:
        raise ValueError(
            f"Expected outcomes of {type(model).__name__} are not available; use linear and generalised "
            "linear models, or `predict` without a level."
        )
    return _LINKS[type(model).__name__]


def _response_of_estimator(final: Any) -> Transformation | None:
    if isinstance(final, LogisticRegression):
        return TRANSFORMATIONS["logit"]
    if isinstance(final, PoissonRegressor | GammaRegressor):
        return TRANSFORMATIONS["log"]
    if is_regressor(final) and hasattr(final, "coef_") and not hasattr(final, "_base_loss"):
        return None
    raise ValueError(f"Expected outcomes of {type(final).__name__} with intervals are not available.")


def averages(
    estimates: Floats,
    covariances: Floats,
    matrices: Sequence[Floats],
    response: Transformation | None,
    minus: Sequence[Floats] | None = None,
) -> tuple[Floats, Floats]:
    """Returns mean outcomes over rows (M, 1), or differences of two, and their variances (M, 1)."""
    means, variances = [], []
    for m, (beta, covariance) in enumerate(zip(estimates, covariances, strict=True)):
        mean, gradient = _average(beta, matrices[m], response)
        if minus is not None:
            other, slope = _average(beta, minus[m], response)
            mean, gradient = mean - other, gradient - slope
        means.append([mean])
        variances.append([gradient @ covariance @ gradient])
    return np.array(means), np.array(variances)


def _average(beta: Floats, matrix: Floats, response: Transformation | None) -> tuple[float, Floats]:
    """Returns the mean outcome of rows (N, K), and its derivatives (K) by the coefficients."""
    linear = matrix @ beta
    outcome = linear if response is None else response.inverse(linear)
    slope = np.ones(len(matrix)) if response is None else response.inverse_derivative(linear)
    return float(outcome.mean()), slope @ matrix / len(matrix)
