"""`pool`: any analysis, repeated on several completed tables and pooled by Rubin's rules."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np
from sklearn.base import clone
from sklearn.linear_model import (
    GammaRegressor,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
)
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from halfseen._arrays import Floats
from halfseen._random import seed_from
from halfseen.data.frames import Table, is_frame
from halfseen.data.incomplete import check_not_masked, unmask
from halfseen.data.relations import FUNCTIONS
from halfseen.errors import warn_user
from halfseen.pooling.analysis import Analysis, read_analysis
from halfseen.pooling.prediction import formula_errors
from halfseen.pooling.rules import Pooled, pool_estimates
from halfseen.pooling.survival import build_cox, fit_cox, read_survival
from halfseen.pooling.transformation import find_transformation
from halfseen.pooling.unmodelled import warn_of_unmodelled_terms
from halfseen.pooling.weighted import SurveyDesign, linearised_covariance, read_design, weighted_formula

INTERCEPT = "(intercept)"


@dataclass(frozen=True)
class TargetColumn:
    """The target of a model or the name of its column, and the names of columns that are no inputs."""

    y: Any
    left_out: tuple[str, ...] = ()


def analyse_linear_model(
    estimator: Any,
    table: Any,
    target: TargetColumn,
    survey: SurveyDesign | None,
    n_resamples: int,
    rng: np.random.Generator,
) -> Analysis:
    """Fits a clone of a linear model to a completed table, whose rows may be those of a survey."""
    X, y = _split_target(table, target)
    return _fit_one(estimator, X, y, survey, n_resamples, rng)


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
    kept = frame.drop(list(target.left_out))
    if not isinstance(y, str):
        return kept.to_native(), np.asarray(check_not_masked(y, "y"))
    if y not in kept.columns:
        raise ValueError(
            f"The completed tables have no column {y!r}; they have {', '.join(map(str, kept.columns))}."
        )
    return kept.drop(y).to_native(), kept[y].to_numpy()


def _fit_one(
    estimator: Any, X: Any, y: Any, survey: SurveyDesign | None, n_resamples: int, rng: np.random.Generator
) -> Analysis:
    weights = None if survey is None else survey.weights
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
        if survey is not None and survey.has_groups:
            raise ValueError(
                f"Covariance matrices of {type(final).__name__} come from a bootstrap of rows, which is not "
                "valid with strata or clusters; use a linear model without penalty."
            )
        covariance = _bootstrap(final, matrix, y, weights, has_intercept, n_resamples, rng)
        return Analysis(names, estimate, covariance, len(matrix) - len(estimate), model)
    if has_intercept:
        matrix = np.column_stack([matrix, np.ones(len(matrix))])
    residual, variance = _residuals(final, y, matrix @ estimate)
    freedom = max(len(matrix) - matrix.shape[1], 1)
    if survey is not None:
        covariance = linearised_covariance(matrix, residual, variance, survey)
        return Analysis(names, estimate, covariance, survey.df_complete(len(estimate)), model)
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


TWO_CLASSES = ("logit", "probit")


def analyse_formula(formula: str, model: Any, survey: SurveyDesign | None) -> Callable[[Any], Any]:
    """Returns a function that fits a formula of statsmodels to a table.

    Parameters
    ----------
    formula : str
        Such as ``"y ~ x + C(group)"`` or ``"Surv(time, event) ~ x"``.
    model : str, callable or None
        A name in ``statsmodels.formula.api``, or a function of the formula and a pandas data frame.
    survey : SurveyDesign or None
        How the rows were sampled.
    """
    is_survival, model = read_survival(formula) is not None, _model_of(formula, model)
    build = _named_model(model) if isinstance(model, str) else model
    weighted = None if survey is None else weighted_formula(formula, model, survey)
    errors = tuple(formula_errors())

    def analyse(table: Any) -> Any:
        if not is_frame(table):
            raise ValueError(f"The formula {formula!r} names columns, but the completed tables are arrays.")
        frame = nw.from_native(table, eager_only=True).to_pandas()
        if isinstance(model, str):
            _check_target(formula, model, frame)
        try:
            if weighted is not None:
                return weighted(frame)
            found = build(formula, frame)
        except errors as error:
            reason = str(error).splitlines()[0]
            if any(f"name {name!r} is not defined" in reason for name in FUNCTIONS):
                reason += "; functions are those of numpy, such as np.log"
            columns = ", ".join(map(str, frame.columns))
            raise ValueError(
                f"The formula {formula!r} cannot be used: {reason}. Columns: {columns}."
            ) from error
        _warn_of_missing(formula, found, len(frame))
        if is_survival:
            return fit_cox(found)
        quiet = {"disp": False} if "disp" in inspect.signature(found.fit).parameters else {}
        return found.fit(**quiet)

    return analyse


def _model_of(formula: str, model: Any) -> Any:
    """Returns the model of a formula: by default a Cox model for survival times, and least squares else."""
    survival = read_survival(formula)
    if survival is not None:
        if model not in (None, "phreg"):
            raise ValueError(f"The formula {formula!r} is a Cox model, which model={model!r} contradicts.")
        return lambda _, frame: build_cox(survival, frame)
    if model == "phreg":
        raise ValueError(
            f"The formula {formula!r} does not state which rows have an event. Write Surv(time, event) ~ ... "
            "or, if all rows have one, Surv(time) ~ ..."
        )
    return "ols" if model is None else model


def _check_target(formula: str, model: str, frame: Any) -> None:
    """Raises if the target of a model of numbers is a column of text or categories."""
    target = formula.partition("~")[0].strip()
    if target not in frame.columns or nw.from_native(frame, eager_only=True)[target].dtype.is_numeric():
        return
    levels = sorted(set(frame[target].dropna()), key=str)
    if len(levels) == 2 and model in TWO_CLASSES:
        low, high = (repr(level) for level in levels)
        raise ValueError(
            f"Column {target!r} contains {low} and {high}, and {model} needs 0 and 1. Code it in every "
            f"table, for example by table.assign({target}=(table[{target!r}] == {high}).astype(int))."
        )
    if model in ("ols", "wls", "glm", "poisson", *TWO_CLASSES):
        raise ValueError(f"Column {target!r} does not contain numbers, which the target of {model} must.")


def _warn_of_missing(formula: str, found: Any, n_rows: int) -> None:
    n_used = len(getattr(found, "endog", np.empty(n_rows)))
    if n_used < n_rows:
        warn_user(
            f"The formula {formula!r} uses {n_used} of {n_rows} rows of a completed table; the others have "
            "missing values in its columns. Were the tables completed?"
        )


def _named_model(name: str) -> Any:
    try:
        import statsmodels.formula.api as formulas
    except ImportError as error:
        raise ImportError(
            "Formulas need statsmodels: pip install statsmodels. A function or a scikit-learn model does not."
        ) from error
    offered = sorted(key for key in vars(formulas) if key.islower() and callable(getattr(formulas, key)))
    if name not in offered:
        raise ValueError(f"model must be one of {', '.join(offered)} or a function, got {name!r}.")
    return getattr(formulas, name)


N_RESAMPLES = 200


def pool(
    analysis: Any,
    draws: Sequence[Any] | Floats | None = None,
    y: Any = None,
    *,
    model: Any = None,
    weights: Any = None,
    strata: Any = None,
    clusters: Any = None,
    transform: str | None = None,
    df_complete: float | None = None,
    n_resamples: int = N_RESAMPLES,
    random_state: Any = 0,
) -> Pooled:
    r"""Repeats an analysis on every completed table and pools its estimates by Rubin's rules.

    .. math:: \bar{q} = \frac1M \sum_m q_m, \qquad T = \frac1M \sum_m U_m + \left(1 + \frac1M\right) B

    Parameters
    ----------
    analysis : scikit-learn linear model, formula, function, or sequence of results
        What is estimated:

        - a scikit-learn model with ``coef_`` after `fit`, or a Pipeline that ends in one. The covariance
          matrices of LinearRegression, LogisticRegression without penalty (two classes), PoissonRegressor and
          GammaRegressor without penalty are those of maximum likelihood; those of other models come from a
          bootstrap of rows;
        - a formula of statsmodels such as ``"y ~ x + C(group)"``, see `model`, or
          ``"Surv(time, event) ~ x"`` for a Cox model. statsmodels evaluates it as
          Python expressions, so a formula is trusted input: it can run any code, as a function can. Do not
          pass formulas from a source that you do not trust;
        - a function of a completed table. It returns results with ``params`` and ``cov_params()``, as those
          of statsmodels; or a pair ``(estimates, variances)`` of numbers, arrays, dicts or series, where a
          covariance matrix may take the place of variances; or a dict of such pairs by name;
        - a sequence of what such a function returned for each table, without `draws`.
    draws : sequence of tables, or array of shape (n_draws, n_samples, n_features)
        Completed tables, at least two: the output of `multiple_imputation`, or of `sample` of an imputer.
    y : array-like of shape (n_samples,), or str
        The target of a scikit-learn model, or the name of its column in the tables, whose missing values are
        then imputed too. The target should be among the columns of the imputer; otherwise imputed values are
        unrelated to it, and coefficients are biased towards zero.
    model : str or callable, optional
        The model of a formula: a name in ``statsmodels.formula.api`` such as ``"ols"`` (the default),
        ``"logit"`` or ``"poisson"``, or a function of the formula and a pandas data frame. A formula with the
        outcome ``Surv(time, event)`` is a Cox model (``PHReg``) with Efron's method for ties, as in R.
    weights : str or array-like of shape (n_samples,), optional
        The sampling weights of a survey, inverse probabilities of selection: the name of a column of the
        tables, or numbers. Estimates are weighted. Covariance matrices are design-based (linearisation), or
        come from a bootstrap of weighted rows. With weights, strata or clusters, a formula has the model
        ``"ols"``, ``"logit"`` or ``"poisson"``, or is a Cox model, then with Breslow's method for ties; a
        function takes the design from its table itself.
    strata, clusters : str or array-like of shape (n_samples,), optional
        The strata of a survey and its clusters (primary sampling units), within which rows are alike.
        Covariance matrices are those of clusters drawn within strata; the degrees of freedom of the complete
        data are the number of clusters minus that of strata. Clusters alone give the variance that is robust
        to dependent rows.
    transform : str, optional
        The scale on which the estimates are pooled, as in `pool_estimates`.
    df_complete : float, optional
        The degrees of freedom that the analysis would have without missing values. By default those of the
        model: ``df_resid`` in statsmodels, events minus parameters for Cox models. For functions that return
        numbers they are the rows minus one, and the rows minus the number of estimates if these have a
        covariance matrix; they are infinite for results without tables that do not state them.
    n_resamples : int, default=200
        The number of bootstrap samples, if a bootstrap is needed.
    random_state : int, numpy generator or None, default=0
        Seeds the bootstrap.

    Returns
    -------
    Pooled
        Estimates with standard errors, intervals, p-values and fractions of missing information.

    References
    ----------
    Rubin (1987), Multiple Imputation for Nonresponse in Surveys; Barnard & Rubin (1999), Biometrika 86.

    Examples
    --------
    >>> import halfseen
    >>> from sklearn.linear_model import LinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> X[:, 1] += X[:, 0]
    >>> X[rng.random(300) < 0.3, 0] = np.nan
    >>> draws = halfseen.GaussianImputer(n_posterior_draws=20, random_state=0).fit(X).sample(X, n_draws=20)
    >>> halfseen.pool(LinearRegression(), draws[:, :, :1], draws[0, :, 1]).names
    ('x0', '(intercept)')

    A function returns an estimate and its variance:

    >>> pooled = halfseen.pool(lambda table: (table[:, 0].mean(), table[:, 0].var(ddof=1) / 300), draws)
    >>> bool(abs(pooled.estimate[0]) < 0.2)
    True
    """
    if draws is None:
        if isinstance(analysis, str) or callable(analysis) or hasattr(analysis, "fit"):
            raise ValueError("draws is missing: pass the completed tables to analyse.")
        if any(one is not None for one in (weights, strata, clusters)):
            raise ValueError("weights are used in the analysis of completed tables, but draws is missing.")
        return _combine([read_analysis(result) for result in analysis], df_complete, transform)
    if is_frame(draws) or getattr(draws, "ndim", 3) == 2:
        raise ValueError("draws is one table; pass a list of two or more completed tables.")
    tables = list(draws)
    if len(tables) < 2:
        raise ValueError(f"Pooling needs at least 2 completed tables, got {len(tables)}.")
    for sentence in getattr(draws, "reservations", ()):
        warn_user(sentence)
    survey = _read_survey(analysis, tables, y, weights, strata, clusters)
    target = TargetColumn(y, () if survey is None else survey.columns)
    analyse = _as_function(analysis, target, model, survey, n_resamples, random_state)
    analyses = [_analysis_of(analyse, table) for table in tables]
    warn_of_unmodelled_terms(analysis, analyses[0].fit, draws, tables)
    return _combine(analyses, df_complete, transform)


def _read_survey(
    analysis: Any, tables: Sequence[Any], y: Any, weights: Any, strata: Any, clusters: Any
) -> SurveyDesign | None:
    given = {"weights": weights, "strata": strata, "clusters": clusters}
    given = {name: value for name, value in given.items() if value is not None}
    if given:
        _check_takes_weights(analysis, next(iter(given)))
    for name, value in given.items():
        if isinstance(value, str) and isinstance(y, str) and y == value:
            raise ValueError(f"Column {y!r} cannot be both the target and the {name}.")
    return read_design(tables, weights, strata, clusters)


def _analysis_of(analyse: Callable[[Any], Any], table: Any) -> Analysis:
    """Returns the analysis of a table, with degrees of freedom from its rows if it states none."""
    found = read_analysis(analyse(table))
    if np.isfinite(found.df_complete):
        return found
    n_rows = len(nw.from_native(table, eager_only=True)) if is_frame(table) else len(table)
    n_parameters = len(found.estimate) if found.covariance.ndim == 2 else 1
    return replace(found, df_complete=float(max(n_rows - n_parameters, 1)))


def _combine(analyses: Sequence[Analysis], df_complete: float | None, transform: str | None = None) -> Pooled:
    first = analyses[0]
    for number, one in enumerate(analyses):
        if one.names != first.names or one.estimate.shape != first.estimate.shape:
            raise ValueError(
                f"The analysis of table {number} estimates {_listed(one)}, that of table 0 {_listed(first)}. "
                "All tables must have the same estimates; fix the levels of categorical columns."
            )
    if first.transform is not None and transform is not None:
        raise ValueError(f"The analysis is already on the scale {first.transform!r}; leave out transform.")
    freedom = min(one.df_complete for one in analyses) if df_complete is None else df_complete
    pooled = pool_estimates(
        np.stack([one.estimate for one in analyses]),
        np.stack([one.covariance for one in analyses]),
        names=first.names,
        df_complete=freedom,
        fits=[one.fit for one in analyses] if first.fit is not None else (),
        transform=transform,
    )
    return (
        pooled if first.transform is None else pooled.transformed_back(find_transformation(first.transform))
    )


def _listed(analysis: Analysis) -> str:
    return ", ".join(analysis.names) if analysis.names else f"{len(analysis.estimate)} numbers"


def _check_takes_weights(analysis: Any, what: str) -> None:
    if not isinstance(analysis, str) and not hasattr(analysis, "get_params"):
        raise ValueError(
            f"{what} are used with formulas and scikit-learn models only; a function takes them from the "
            "table."
        )


def _as_function(
    analysis: Any,
    target: TargetColumn,
    model: Any,
    survey: SurveyDesign | None,
    n_resamples: int,
    random_state: Any,
) -> Callable[[Any], Any]:
    """Returns a function from a completed table to what `read_analysis` reads."""
    y = target.y
    if isinstance(analysis, str):
        if y is not None:
            raise ValueError(f"The formula {analysis!r} names the target; y must not be given as well.")
        return analyse_formula(analysis, model, survey)
    if model is not None:
        raise ValueError(f"model={model!r} needs a formula as the analysis, got {type(analysis).__name__}.")
    if hasattr(analysis, "fit") and hasattr(analysis, "get_params"):
        if y is None:
            raise ValueError("y is missing: pass the target, or the name of its column in the tables.")
        rng = np.random.default_rng(seed_from(random_state))
        return lambda table: analyse_linear_model(analysis, table, target, survey, n_resamples, rng)
    if not callable(analysis):
        raise ValueError(
            f"An analysis is a scikit-learn model, a formula or a function, got {type(analysis).__name__}."
        )
    if y is not None:
        raise ValueError("y is used with scikit-learn models only; a function takes it from the table.")
    return analysis
