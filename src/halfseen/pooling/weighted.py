"""Survey designs in the analysis of a completed table: weights, strata and clusters, by linearisation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halfseen._arrays import Floats, Integers
from halfseen.data.frames import is_frame
from halfseen.data.incomplete import check_not_masked
from halfseen.pooling.analysis import Analysis
from halfseen.pooling.survival import SurvivalFormula, build_cox, fit_weighted_cox, read_survival

WEIGHTED_MODELS = ("ols", "logit", "poisson")


@dataclass(frozen=True)
class SurveyDesign:
    """How the rows of a table were sampled."""

    weights: Floats  # inverse probabilities of selection, scaled to a mean of one
    cluster: Integers  # the cluster of each row, from 0; without clusters, every row is one
    stratum: Integers  # the stratum of each cluster, from 0
    has_groups: bool = False  # whether strata or clusters were given
    columns: tuple[str, ...] = ()  # the columns of the tables that hold the design

    def df_complete(self, n_parameters: int) -> float:
        """Returns clusters minus strata, or rows minus parameters for a design of weights alone."""
        if self.has_groups:
            return float(len(self.stratum) - (self.stratum.max() + 1))
        return float(len(self.weights) - n_parameters)


def read_design(tables: Sequence[Any], weights: Any, strata: Any, clusters: Any) -> SurveyDesign | None:
    """Returns the design of a survey; None if neither weights nor strata nor clusters are given.

    Parameters
    ----------
    tables : sequence of tables
        The completed tables.
    weights, strata, clusters : str, array-like of shape (n_samples,) or None
        The name of a column of all tables, or its values. A cluster belongs to one stratum: equal numbers in
        two strata are two clusters.
    """
    if weights is None and strata is None and clusters is None:
        return None
    n_rows = _n_rows(tables[0])
    own = np.ones(n_rows) if weights is None else read_row_weights(tables, weights)
    of_row = np.zeros(n_rows, np.int64) if strata is None else _read_groups(tables, strata, "strata", n_rows)
    cluster = np.arange(n_rows) if clusters is None else _read_groups(tables, clusters, "clusters", n_rows)
    pairs, cluster = np.unique(np.column_stack([of_row, cluster]), axis=0, return_inverse=True)
    counts = np.bincount(pairs[:, 0])
    if counts.min() < 2:
        row = int(np.flatnonzero(of_row == counts.argmin())[0])
        raise ValueError(
            f"The stratum of row {row} has one cluster only, so its variance cannot be estimated. Merge it "
            "with another stratum."
            if strata is not None
            else "All rows are in one cluster, so variances cannot be estimated."
        )
    named = tuple(one for one in (weights, strata, clusters) if isinstance(one, str))
    has_groups = strata is not None or clusters is not None
    return SurveyDesign(own, cluster.ravel().astype(np.int64), pairs[:, 0], has_groups, named)


def _read_groups(tables: Sequence[Any], groups: Any, what: str, n_rows: int) -> Integers:
    """Returns the groups of rows, numbered from 0."""
    if isinstance(groups, str):
        columns = [_column(table, groups, what) for table in tables]
        for number, other in enumerate(columns):
            if other.tolist() != columns[0].tolist():
                raise ValueError(
                    f"Column {groups!r} of table {number} differs from that of table 0: {what} must be known "
                    "in every row."
                )
        values, name = columns[0].tolist(), f"Column {groups!r}"
    else:
        values, name = np.asarray(check_not_masked(groups, what)).tolist(), f"The array of {what}"
    if len(values) != n_rows:
        raise ValueError(f"{name} must have one value for each of the {n_rows} rows, got {len(values)}.")
    missing = next((i for i, value in enumerate(values) if value is None or value != value), None)
    if missing is not None:
        raise ValueError(f"{name} is missing in row {missing}; {what} must be known in every row.")
    numbers = {value: i for i, value in enumerate(dict.fromkeys(values))}
    return np.array([numbers[value] for value in values], dtype=np.int64)


def _n_rows(table: Any) -> int:
    import narwhals as nw

    return len(nw.from_native(table, eager_only=True)) if is_frame(table) else len(table)


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
            np.asarray(check_not_masked(weights, "weights")), "The array of weights", _n_rows(tables[0])
        )
    found = [_column(table, weights, "weights") for table in tables]
    own = _checked(found[0], f"Column {weights!r}", len(found[0]))
    for number, other in enumerate(found):
        if not np.array_equal(other, found[0]):
            raise ValueError(
                f"Column {weights!r} of table {number} differs from that of table 0: it has missing values, "
                "which were imputed. Weights must be known in every row."
            )
    return own


def _column(table: Any, name: str, what: str) -> npt.NDArray[Any]:
    if not is_frame(table):
        raise ValueError(
            f"{what}={name!r} names a column, but the completed tables are arrays; pass the {what}."
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


def linearised_covariance(design: Floats, residual: Floats, variance: Floats, survey: SurveyDesign) -> Floats:
    r"""Returns the covariance matrix of weighted estimates under sampling of clusters within strata.

    .. math:: A^{-1} \Big(\sum_h \frac{n_h}{n_h - 1} \sum_{c \in h} (s_c - \bar s_h)
       (s_c - \bar s_h)^T\Big) A^{-1}, \qquad A = \sum_i w_i v_i x_i x_i^T

    with :math:`s_c = \sum_{i \in c} w_i r_i x_i` the sum over the rows of a cluster, and :math:`\bar s_h`
    the mean of the :math:`n_h` clusters of stratum h. It is that of clusters drawn with replacement, and does
    not depend on the scale of the weights. Without clusters every row is one.

    Shapes
    ------
    design : (N, K)
    residual : (N), the derivative of the log-likelihood of a row by its linear predictor
    variance : (N), the expected curvature of that log-likelihood
    survey : weights and clusters of N rows

    References
    ----------
    Binder (1983), On the variances of asymptotically normal estimators from complex surveys.
    """
    bread = np.linalg.pinv((design * (survey.weights * variance)[:, None]).T @ design, hermitian=True)
    return sandwich(np.asarray(bread, np.float64), design * (survey.weights * residual)[:, None], survey)


def sandwich(bread: Floats, scores: Floats, survey: SurveyDesign) -> Floats:
    """Returns the covariance matrix (K, K) from the inverse of the information and weighted scores (N, K)."""
    totals = np.zeros((len(survey.stratum), scores.shape[1]))
    np.add.at(totals, survey.cluster, scores)
    counts = np.bincount(survey.stratum)
    means = np.zeros((len(counts), scores.shape[1]))
    np.add.at(means, survey.stratum, totals)
    centred = totals - (means / counts[:, None])[survey.stratum]
    inflation = (counts / (counts - 1))[survey.stratum]
    found: Floats = bread @ ((centred * inflation[:, None]).T @ centred) @ bread
    return found


def weighted_cox(formula: SurvivalFormula, table: Any, survey: SurveyDesign) -> Analysis:
    """Returns the analysis of the weighted partial likelihood, with Breslow's method for ties.

    The covariance matrix is that of clusters within strata, from the score residuals of rows.

    References
    ----------
    Binder (1992), Fitting Cox's proportional hazards models from survey data, Biometrika 79.
    """
    model = build_cox(formula, table)
    if len(model.endog) != len(survey.weights):
        raise ValueError(
            f"The formula {formula.text!r} uses {len(model.endog)} of {len(survey.weights)} rows of a "
            "completed table; the others have missing values in its columns. With weights, all rows must be "
            "complete."
        )
    time, event = np.asarray(model.endog, np.float64), np.asarray(model.status, np.float64)
    fit = fit_weighted_cox(np.asarray(model.exog, np.float64), time, event, survey.weights)
    bread = np.asarray(np.linalg.inv(fit.information), np.float64)
    covariance = sandwich(bread, survey.weights[:, None] * fit.residuals, survey)
    freedom = survey.df_complete(len(fit.coefficients))
    if not survey.has_groups:
        freedom = max(float(event.sum()) - len(fit.coefficients), 1.0)
    return Analysis(tuple(map(str, model.exog_names)), fit.coefficients, covariance, freedom)


def weighted_formula(formula: str, model: Any, survey: SurveyDesign) -> Callable[[Any], Analysis]:
    """Returns a function that fits a formula of statsmodels to the weighted rows of a pandas data frame."""
    survival = read_survival(formula)
    if survival is not None:
        return lambda table: weighted_cox(survival, table, survey)
    weights = survey.weights
    if model not in WEIGHTED_MODELS:
        raise ValueError(
            f"With weights, strata or clusters, model must be one of {', '.join(WEIGHTED_MODELS)}, got "
            f"{model!r}. For other models pass a function that returns weighted estimates and their "
            "covariance matrix."
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
        covariance = linearised_covariance(design, y - mean, variance, survey)
        names = tuple(map(str, fitted.params.index))
        freedom = survey.df_complete(design.shape[1])
        return Analysis(names, np.asarray(fitted.params), covariance, freedom, fitted)

    return analyse
