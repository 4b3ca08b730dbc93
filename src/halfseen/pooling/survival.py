"""Survival outcomes of formulas: Cox models of statsmodels, and the hazard as a covariate of imputation."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halfseen._arrays import Floats

_MOST_STEPS = 50  # of Newton's method; fewer than ten are usual
_CLOSE = 1e-10  # relative change of coefficients at which it ends
_SINGULAR = (
    1e-13  # smallest eigenvalue per coefficient of a correlation matrix; guessed: 500 times the precision
)
_OUTCOME = re.compile(r"\s*Surv\(([^,]+)(?:,([^,]+))?\)\s*")


@dataclass(frozen=True)
class SurvivalFormula:
    """A formula with a survival time as its outcome."""

    text: str  # the formula
    time: str  # the column of times
    # The column that is 1 for an event and 0 for a censored row; None if all rows have an event.
    event: str | None
    terms: str  # the right-hand side


def read_survival(formula: str) -> SurvivalFormula | None:
    """Returns the parts of a formula ``Surv(time, event) ~ terms``; None if it has another outcome.

    Examples
    --------
    >>> read_survival("Surv(months, died) ~ age * stage").event
    'died'
    """
    left, _, right = formula.partition("~")
    found = _OUTCOME.fullmatch(left)
    if found is None:
        return None
    time, event = (None if one is None else one.strip().strip("`") for one in found.groups())
    assert time is not None
    return SurvivalFormula(formula, time, event, right.strip())


def build_cox(formula: SurvivalFormula, frame: Any) -> Any:
    """Returns the Cox model of a pandas data frame, with Efron's method for ties.

    Parameters
    ----------
    formula : SurvivalFormula
        The formula.
    frame : pandas data frame
        A completed table.
    """
    import statsmodels.formula.api as formulas

    for name in (formula.time, formula.event):
        if name is not None and name not in frame.columns:
            columns = ", ".join(map(str, frame.columns))
            raise ValueError(f"The formula {formula.text!r} names the column {name!r}. Columns: {columns}.")
    status = np.ones(len(frame)) if formula.event is None else _events(frame[formula.event])
    text = f"Q({formula.time!r}) ~ {formula.terms}"
    times = np.asarray(frame[formula.time])[status == 1]
    ties = "efron" if len(np.unique(times)) < len(times) else "breslow"  # without ties they are the same
    return formulas.phreg(text, frame, status=status, ties=ties)


def fit_cox(model: Any) -> Any:
    """Returns the fit of a Cox model of statsmodels; its search starts from Breslow's estimate."""
    x, time, event = (np.asarray(one, np.float64) for one in (model.exog, model.endog, model.status))
    start = fit_weighted_cox(x, time, event, np.ones(len(time))).coefficients
    return model.fit(start_params=start, disp=False)


def _events(column: Any) -> Floats:
    """Returns 1 for events and 0 for censored rows."""
    values = column.tolist()
    for row, value in enumerate(values):
        if not isinstance(value, bool | int | float | np.number) or value not in (0, 1):
            raise ValueError(
                f"Column {column.name!r} has {value!r} in row {row}, and events are 1, censored rows 0. Code "
                "it in every table."
            )
    return np.array(values, dtype=np.float64)


@dataclass(frozen=True)
class CoxFit:
    """Coefficients (K), their information matrix (K, K), and the score residuals (N, K) of rows."""

    coefficients: Floats
    information: Floats
    residuals: Floats


def fit_weighted_cox(x: Floats, time: Floats, event: Floats, weights: Floats) -> CoxFit:
    r"""Maximises the weighted partial likelihood of Breslow by Newton's method.

    .. math:: \sum_i w_i d_i \Big(x_i^\top \beta - \log \sum_{k:\, t_k \ge t_i} w_k e^{x_k^\top \beta}\Big)

    Shapes
    ------
    x : (N, K)
    time, event, weights : (N)
    """
    beta = np.zeros(x.shape[1])
    value, slope, information, _ = _partial_likelihood(beta, x, time, event, weights)
    if _is_singular(information):
        raise ValueError("A covariate of the Cox model is a linear combination of the others.")
    for _ in range(_MOST_STEPS):
        if _is_singular(information):
            break  # the coefficients run away, and the hazards of all rows but few become zero
        step = np.linalg.solve(information, slope)
        now = _partial_likelihood(beta + step, x, time, event, weights)
        while not now[0] >= value - _CLOSE * abs(value) and np.abs(step).max() > _CLOSE:
            step = step / 2
            now = _partial_likelihood(beta + step, x, time, event, weights)
        beta, (value, slope, information, _) = beta + step, now
        if np.abs(step).max() < _CLOSE * (1 + np.abs(beta).max()):
            residuals = _partial_likelihood(beta, x, time, event, weights)[3]
            return CoxFit(beta, information, residuals)
    raise ValueError("The Cox model did not converge: a covariate may separate events from censored rows.")


def _is_singular(information: Floats) -> bool:
    """Returns whether the information (K, K), scaled to a unit diagonal, is singular up to rounding."""
    scale = np.sqrt(np.diag(information))
    if not scale.min() > 0:
        return True
    return bool(np.linalg.eigvalsh(information / np.outer(scale, scale))[0] < len(scale) * _SINGULAR)


def _partial_likelihood(
    beta: Floats, x: Floats, time: Floats, event: Floats, weights: Floats
) -> tuple[float, Floats, Floats, Floats]:
    """Returns the log-likelihood, its gradient (K), the information (K, K) and score residuals (N, K)."""
    index = x @ beta
    top = index.max()
    hazard = np.exp(index - top)
    times, place = np.unique(time[event > 0], return_inverse=True)
    deaths = np.bincount(place, weights[event > 0])  # (J)
    order = np.argsort(-time, kind="stable")
    last = len(time) - np.searchsorted(np.sort(time), times) - 1
    weighted = weights * hazard
    at_risk = np.cumsum(weighted[order])[last]
    means = np.cumsum((weighted[:, None] * x)[order], axis=0)[last] / at_risk[:, None]  # (J, K)
    passed = np.searchsorted(times, time, side="right")
    jumps = deaths / at_risk
    reached = np.append(0.0, np.cumsum(jumps))[passed]
    centred = np.vstack([np.zeros(x.shape[1]), np.cumsum(jumps[:, None] * means, axis=0)])[passed]
    own = np.zeros_like(x)
    own[event > 0] = x[event > 0] - means[place]
    residuals = own - hazard[:, None] * (reached[:, None] * x - centred)
    value = float((weights * event) @ index - deaths @ (np.log(at_risk) + top))
    information = (x * (weighted * reached)[:, None]).T @ x - (means * deaths[:, None]).T @ means
    return value, weights @ residuals, information, residuals


def nelson_aalen(time: npt.ArrayLike, event: npt.ArrayLike) -> Floats:
    r"""Returns the cumulative hazard at the time of each row, by the estimator of Nelson and Aalen.

    .. math:: \hat H(t) = \sum_{\tau_j \le t} d_j / n_j

    with :math:`d_j` events and :math:`n_j` rows at risk at :math:`\tau_j`. As a column of the table, together
    with the event, it lets imputation models of main effects relate covariates to a survival time (White &
    Royston, 2009). For analyses with interactions or powers, use `multiple_imputation` with
    ``analysis="Surv(time, event) ~ ..."`` instead.

    Parameters
    ----------
    time : array-like of shape (n_samples,)
        Times, which must not be negative; NaN where they are missing.
    event : array-like of shape (n_samples,)
        1 (or True) for an event and 0 for a censored row; NaN where that is missing.

    Returns
    -------
    ndarray of shape (n_samples,)
        The hazard of each row; NaN where its time or event is missing.

    References
    ----------
    White & Royston (2009), Imputing missing covariate values for the Cox model, Statistics in Medicine 28.

    Examples
    --------
    >>> nelson_aalen([1, 2, 2, 3], [1, 0, 1, 1]).round(4)
    array([0.25  , 0.5833, 0.5833, 1.5833])
    """
    t, d = np.asarray(time, np.float64), np.asarray(event, np.float64)
    if t.ndim != 1 or t.shape != d.shape:
        raise ValueError(f"time and event must be columns of one table, got shapes {t.shape} and {d.shape}.")
    known = ~(np.isnan(t) | np.isnan(d))
    wrong = np.flatnonzero(known & ~np.isin(d, (0.0, 1.0)))
    if len(wrong):
        raise ValueError(f"event must be 0 or 1, got {d[wrong[0]]:g} in row {wrong[0]}.")
    wrong = np.flatnonzero(known & ~((t >= 0) & np.isfinite(t)))
    if len(wrong):
        raise ValueError(f"time must be finite and not negative, got {t[wrong[0]]:g} in row {wrong[0]}.")
    times, n_events = np.unique(t[known & (d == 1)], return_counts=True)
    n_at_risk = known.sum() - np.searchsorted(np.sort(t[known]), times)
    hazard = np.append(0.0, np.cumsum(n_events / np.maximum(n_at_risk, 1)))
    found = np.full(len(t), np.nan)
    found[known] = hazard[np.searchsorted(times, t[known], side="right")]
    return found
