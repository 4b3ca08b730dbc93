"""Weights of rows in the analysis of a completed table, with covariance matrices by linearisation."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from halfseen.data.frames import is_frame
from halfseen.data.incomplete import check_not_masked
from halfseen.pooling.analysis import Analysis

Floats = npt.NDArray[np.float64]

WEIGHTED_MODELS = ("ols", "logit", "poisson")


def read_row_weights(tables: Sequence[Any], weights: Any) -> Floats:
    """Returns the weights (N) of rows, scaled to a mean of one; raises unless all are positive and finite.

    Parameters
    ----------
    tables : sequence of tables
        The completed tables.
    weights : str or array-like of shape (n_samples,)
        The name of a column of all tables, or the weights.

    Examples
    --------
    >>> read_row_weights([np.zeros((2, 1))], [1.0, 3.0])
    array([0.5, 1.5])
    """
    if not isinstance(weights, str):
        return _checked(
            np.asarray(check_not_masked(weights, "weights")), "The array of weights", len(tables[0])
        )
    found = [_column(table, weights) for table in tables]
    own = _checked(found[0], f"Column {weights!r}", len(found[0]))
    for number, other in enumerate(found):
        if not np.array_equal(other, found[0]):
            raise ValueError(
                f"Column {weights!r} of table {number} differs from that of table 0: it has missing values, "
                "which were imputed. Weights must be known in every row."
            )
    return own


def _column(table: Any, name: str) -> npt.NDArray[Any]:
    if not is_frame(table):
        raise ValueError(
            f"weights={name!r} names a column, but the completed tables are arrays; pass the weights."
        )
    import narwhals as nw

    frame = nw.from_native(table, eager_only=True)
    if name not in frame.columns:
        raise ValueError(
            f"The completed tables have no column {name!r}; they have {', '.join(map(str, frame.columns))}."
        )
    values: npt.NDArray[Any] = frame[name].to_numpy()
    return values


def _checked(values: npt.NDArray[Any], what: str, n_rows: int) -> Floats:
    if values.shape != (n_rows,):
        raise ValueError(f"{what} must have one weight for each of the {n_rows} rows, got {values.shape}.")
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"{what} must hold numbers to serve as weights, got {_first_text(values)!r}."
        ) from None
    wrong = np.flatnonzero(~(np.isfinite(numbers) & (numbers > 0)))
    if len(wrong):
        raise ValueError(
            f"{what} has the weight {numbers[wrong[0]]:g} in row {wrong[0]}; weights must be positive and "
            "finite. Leave out rows without a weight."
        )
    scaled: Floats = numbers / numbers.max()
    return scaled / scaled.mean()


def _first_text(values: npt.NDArray[Any]) -> Any:
    """Returns the first value that is not a number; None counts as a missing number."""
    for value in values.tolist():
        try:
            float(0.0 if value is None else value)
        except (TypeError, ValueError):
            return value
    return None


def linearised_covariance(design: Floats, residual: Floats, variance: Floats, weights: Floats) -> Floats:
    r"""Returns the covariance matrix of weighted estimates under sampling with unequal probabilities.

    .. math:: \frac{n}{n - 1} A^{-1} \Big(\sum_i w_i^2 r_i^2 x_i x_i^T\Big) A^{-1}, \qquad
       A = \sum_i w_i v_i x_i x_i^T

    It is that of a design without strata and clusters, whose rows are drawn with replacement, and does not
    depend on the scale of the weights.

    Shapes
    ------
    design : (N, K)
    residual : (N), the derivative of the log-likelihood of a row by its linear predictor
    variance : (N), the expected curvature of that log-likelihood
    weights : (N)

    References
    ----------
    Binder (1983), On the variances of asymptotically normal estimators from complex surveys.
    """
    n_rows = len(design)
    bread = np.linalg.pinv((design * (weights * variance)[:, None]).T @ design, hermitian=True)
    scores = design * (weights * residual)[:, None]
    found: Floats = n_rows / max(n_rows - 1, 1) * bread @ (scores.T @ scores) @ bread
    return found


def weighted_formula(formula: str, model: Any, weights: Floats) -> Callable[[Any], Analysis]:
    """Returns a function that fits a formula of statsmodels to the weighted rows of a pandas data frame."""
    if model not in WEIGHTED_MODELS:
        raise ValueError(
            f"With weights, model must be one of {', '.join(WEIGHTED_MODELS)}, got {model!r}. For other "
            "models pass a function that returns weighted estimates and their covariance matrix."
        )
    import statsmodels.api as sm
    import statsmodels.formula.api as formulas

    families = {"logit": sm.families.Binomial, "poisson": sm.families.Poisson}

    def analyse(table: Any) -> Analysis:
        if model == "ols":
            fitted = formulas.wls(formula, table, weights=weights).fit()
        else:
            fitted = formulas.glm(formula, table, family=families[model](), freq_weights=weights).fit()
        design, y = np.asarray(fitted.model.exog), np.asarray(fitted.model.endog)
        if not isinstance(fitted.model.endog_names, str):
            raise ValueError(
                f"The target of {formula!r} must be one column of numbers; code two classes as 0 and 1."
            )
        if len(y) != len(weights):
            raise ValueError(
                f"The formula {formula!r} uses {len(y)} of {len(weights)} rows of a completed table; the "
                "others have missing values in its columns. With weights, all rows must be complete."
            )
        mean = np.asarray(fitted.fittedvalues)
        variance = {"ols": np.ones_like(mean), "logit": mean * (1 - mean), "poisson": mean}[model]
        covariance = linearised_covariance(design, y - mean, variance, weights)
        names = tuple(map(str, fitted.params.index))
        return Analysis(names, np.asarray(fitted.params), covariance, len(y) - design.shape[1], fitted)

    return analyse
