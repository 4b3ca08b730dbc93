"""`pool`: any analysis, repeated on several completed tables and pooled by Rubin's rules."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from halfseen._random import seed_from
from halfseen.errors import warn_user
from halfseen.pooling.analysis import Analysis, read_analysis
from halfseen.pooling.formulas import analyse_formula
from halfseen.pooling.linear_models import TargetColumn, analyse_linear_model
from halfseen.pooling.rules import Pooled, pool_estimates
from halfseen.pooling.weighted import read_row_weights

Floats = npt.NDArray[np.float64]
N_RESAMPLES = 200


def pool(
    analysis: Any,
    draws: Sequence[Any] | Floats | None = None,
    y: Any = None,
    *,
    model: Any = None,
    weights: Any = None,
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
        - a formula of statsmodels such as ``"y ~ x + C(group)"``, see `model`. statsmodels evaluates it as
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
        ``"logit"`` or ``"poisson"``, or a function of the formula and a pandas data frame.
    weights : str or array-like of shape (n_samples,), optional
        The sampling weights of a survey, inverse probabilities of selection: the name of a column of the
        tables, or numbers. Estimates are weighted. Covariance matrices are design-based (linearisation) for
        a design without strata and clusters, or come from a bootstrap of weighted rows. With weights, a
        formula has the model ``"ols"``, ``"logit"`` or ``"poisson"``; a function takes weights from its
        table itself.
    df_complete : float, optional
        The degrees of freedom that the analysis would have without missing values. By default those of the
        model (``df_resid`` in statsmodels); infinite for functions that return numbers.
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
        if weights is not None:
            raise ValueError("weights are used in the analysis of completed tables, but draws is missing.")
        return _combine([read_analysis(result) for result in analysis], df_complete)
    tables = list(draws)
    if len(tables) < 2:
        raise ValueError(f"Pooling needs at least 2 completed tables, got {len(tables)}.")
    for sentence in getattr(draws, "reservations", ()):
        warn_user(sentence)
    if weights is not None:
        _check_takes_weights(analysis)
    if isinstance(weights, str) and isinstance(y, str) and y == weights:
        raise ValueError(f"Column {y!r} cannot be both the target and the weights.")
    own = None if weights is None else read_row_weights(tables, weights)
    left_out = weights if isinstance(weights, str) else None
    analyse = _as_function(analysis, TargetColumn(y, left_out), model, own, n_resamples, random_state)
    return _combine([read_analysis(analyse(table)) for table in tables], df_complete)


def _combine(analyses: Sequence[Analysis], df_complete: float | None) -> Pooled:
    first = analyses[0]
    for number, one in enumerate(analyses):
        if one.names != first.names or one.estimate.shape != first.estimate.shape:
            raise ValueError(
                f"The analysis of table {number} estimates {_listed(one)}, that of table 0 {_listed(first)}. "
                "All tables must have the same estimates; fix the levels of categorical columns."
            )
    freedom = min(one.df_complete for one in analyses) if df_complete is None else df_complete
    return pool_estimates(
        np.stack([one.estimate for one in analyses]),
        np.stack([one.covariance for one in analyses]),
        names=first.names,
        df_complete=freedom,
        fits=[one.fit for one in analyses] if first.fit is not None else (),
    )


def _listed(analysis: Analysis) -> str:
    return ", ".join(analysis.names) if analysis.names else f"{len(analysis.estimate)} numbers"


def _check_takes_weights(analysis: Any) -> None:
    if not isinstance(analysis, str) and not hasattr(analysis, "get_params"):
        raise ValueError(
            "weights are used with formulas and scikit-learn models only; a function takes them from the "
            "table."
        )


def _as_function(
    analysis: Any,
    target: TargetColumn,
    model: Any,
    weights: Floats | None,
    n_resamples: int,
    random_state: Any,
) -> Callable[[Any], Any]:
    """Returns a function from a completed table to what `read_analysis` reads."""
    y = target.y
    if isinstance(analysis, str):
        if y is not None:
            raise ValueError(f"The formula {analysis!r} names the target; y must not be given as well.")
        return analyse_formula(analysis, "ols" if model is None else model, weights)
    if model is not None:
        raise ValueError(f"model={model!r} needs a formula as the analysis, got {type(analysis).__name__}.")
    if hasattr(analysis, "fit") and hasattr(analysis, "get_params"):
        if y is None:
            raise ValueError("y is missing: pass the target, or the name of its column in the tables.")
        rng = np.random.default_rng(seed_from(random_state))
        return lambda table: analyse_linear_model(analysis, table, target, weights, n_resamples, rng)
    if not callable(analysis):
        raise ValueError(
            f"An analysis is a scikit-learn model, a formula or a function, got {type(analysis).__name__}."
        )
    if y is not None:
        raise ValueError("y is used with scikit-learn models only; a function takes it from the table.")
    return analysis
