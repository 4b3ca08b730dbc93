"""What pooling needs of the analysis of one completed table, and how results are read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from halfseen._arrays import Floats


@dataclass(frozen=True)
class Analysis:
    """Estimates of one completed table."""

    names: tuple[str, ...] | None  # the names of the estimates, if they have any
    estimate: Floats  # the estimates
    covariance: Floats  # their covariance matrix, or only their variances
    # The degrees of freedom of an analysis of complete data; infinite if they are not known.
    df_complete: float = np.inf
    fit: Any = None  # the fitted model; None if the analysis returned numbers
    transform: str | None = None  # the transformation that estimates and variances have already undergone


def read_analysis(result: Any) -> Analysis:
    """Reads a fitted model with its covariance, a pair of estimates and variances, or a dict of pairs."""
    if isinstance(result, Analysis):
        return result
    if hasattr(result, "params") and (hasattr(result, "cov_params") or hasattr(result, "cov")):
        return _read_results(result)
    if isinstance(result, Mapping) and all(isinstance(v, tuple) and len(v) == 2 for v in result.values()):
        estimates = np.array([float(estimate) for estimate, _ in result.values()])
        variances = np.array([float(variance) for _, variance in result.values()])
        return Analysis(tuple(str(name) for name in result), estimates, variances)
    if isinstance(result, tuple) and len(result) == 2:
        return _read_pair(*result)
    raise ValueError(
        "An analysis must return a pair (estimates, variances or covariance matrix), a dict of such pairs by "
        "name, or results with params and cov_params(), as those of statsmodels; "
        f"got {type(result).__name__}."
    )


def _read_results(result: Any) -> Analysis:
    """Reads results of statsmodels, or of any library that names them alike."""
    params = result.params
    if np.ndim(params) != 1:
        raise ValueError(
            f"{type(result).__name__} has parameters of shape {np.shape(params)}; pool one outcome at a "
            "time, by a function that returns estimates and their covariance matrix."
        )
    covariance = result.cov_params() if hasattr(result, "cov_params") else result.cov
    names = _names(params)
    if names is None:
        own = getattr(getattr(result, "model", None), "exog_names", None)
        names = tuple(map(str, own)) if own is not None and len(own) == len(params) else None
    return Analysis(
        names,
        np.asarray(params, np.float64),
        np.asarray(covariance, np.float64),
        _df_complete(result),
        result,
    )


def _df_complete(result: Any) -> float:
    """Returns residual degrees of freedom; for Cox models the number of events less that of parameters.

    statsmodels gives Cox models rows minus parameters, but rows that are censored early say little.
    """
    model: Any = getattr(result, "model", None)
    if hasattr(model, "status") and hasattr(model, "surv"):  # PHReg of statsmodels
        return max(float(np.sum(model.status != 0)) - np.size(result.params), 1.0)
    df = getattr(result, "df_resid", np.inf)
    return float(df) if df is not None and np.isfinite(df) else np.inf


def _read_pair(estimates: Any, variances: Any) -> Analysis:
    names = _names(estimates)
    if isinstance(estimates, Mapping):
        if isinstance(variances, Mapping):
            missing = [name for name in estimates if name not in variances]
            if missing:
                raise ValueError(f"The analysis returned no variance of {missing[0]!r}.")
            variances = [variances[name] for name in estimates]
        estimates = list(estimates.values())
    estimate = np.atleast_1d(np.asarray(estimates, np.float64))
    covariance = np.asarray(variances, np.float64)
    k = len(estimate)
    covariance = covariance.reshape(1) if k == 1 and covariance.size == 1 else covariance
    if estimate.ndim != 1 or covariance.shape not in ((k,), (k, k)):
        raise ValueError(
            f"An analysis returned estimates of shape {estimate.shape} and variances of shape "
            f"{covariance.shape}; {k} estimates need {k} variances or a {k} x {k} covariance matrix."
        )
    return Analysis(names, estimate, covariance)


def _names(estimates: Any) -> tuple[str, ...] | None:
    """Returns the names of a dict or of a pandas series."""
    if isinstance(estimates, Mapping):
        return tuple(str(name) for name in estimates)
    index = getattr(estimates, "index", None)
    if index is None or callable(index) or np.ndim(estimates) != 1:
        return None
    return tuple(str(name) for name in index)
