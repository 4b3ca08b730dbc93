"""Contrasts, expected outcomes, margins and printed tables of pooled models, against statsmodels."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from pooling.oracles import rubin
from pooling.test_analyses import completed_tables, mean_and_variance
from scipy import stats
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor

from halfseen.pooling import pool, pool_estimates

NEW = pd.DataFrame({"x": [-1.0, 0.0, 2.0], "z": [0.5, 0.0, -1.0], "g": ["a", "b", "c"]})


def test_expected_outcomes_on_complete_data_are_those_of_statsmodels():
    table = completed_tables(1)[0]
    pooled = pool("y ~ x * z + C(g)", [table] * 3).expected(NEW)
    theirs = smf.ols("y ~ x * z + C(g)", table).fit().get_prediction(NEW)
    np.testing.assert_allclose(pooled.estimate, theirs.predicted_mean, rtol=1e-8)
    np.testing.assert_allclose(pooled.std_error, theirs.se_mean, rtol=1e-8)
    assert pooled.names == ("row 0", "row 1", "row 2")


def test_a_level_that_no_model_knows_is_explained():
    pooled = pool("y ~ x + C(g)", completed_tables(3))
    for predict in (pooled.predict, pooled.expected):
        with pytest.raises(ValueError, match=r"The new rows do not fit the formula: .*'q' does not match"):
            predict(NEW.assign(g="q"))


@pytest.mark.parametrize("family", [sm.families.Binomial(), sm.families.Poisson(), sm.families.Gaussian()])
def test_expected_outcomes_of_generalised_linear_models_are_those_of_statsmodels(family):
    table = completed_tables(1)[0]

    def model(formula, data):
        return smf.glm(formula, data, family=family)

    pooled = pool("b ~ x + z", [table] * 3, model=model, df_complete=np.inf).expected(NEW)
    theirs = model("b ~ x + z", table).fit().get_prediction(NEW).summary_frame()
    np.testing.assert_allclose(pooled.estimate, theirs["mean"], rtol=1e-8)
    np.testing.assert_allclose(pooled.std_error, theirs["mean_se"], rtol=1e-8)
    np.testing.assert_allclose(np.column_stack(pooled.interval()), theirs.iloc[:, 2:4], rtol=1e-6)


def test_logit_probit_and_poisson_of_statsmodels_have_expected_outcomes():
    table = completed_tables(1)[0]
    for name in ("logit", "probit", "poisson"):
        pooled = pool("b ~ x + z", [table] * 2, model=name)
        expected = pooled.expected(NEW)
        np.testing.assert_allclose(expected.estimate, pooled.fits[0].predict(NEW), rtol=1e-8)


def test_expected_outcomes_have_the_variance_of_the_pooled_covariance_matrix():
    tables = completed_tables()
    pooled = pool("y ~ x + z", tables)
    design = np.column_stack([np.ones(3), NEW["x"], NEW["z"]])
    found = pooled.expected(NEW)
    np.testing.assert_allclose(found.estimate, design @ pooled.estimate, rtol=1e-10)
    variances = np.diag(design @ pooled.covariance @ design.T)
    np.testing.assert_allclose(found.std_error**2, variances, rtol=1e-10)
    mean, low, high = pooled.predict(NEW, level=0.9)
    np.testing.assert_allclose(high - mean, stats.t.ppf(0.95, found.df) * found.std_error, rtol=1e-10)
    np.testing.assert_allclose(mean - low, high - mean, rtol=1e-10)
    np.testing.assert_allclose(pooled.predict(NEW), mean, rtol=1e-10)
    np.testing.assert_allclose(pooled.predict(pl.from_pandas(NEW), level=0.9)[0], mean, rtol=1e-10)


def test_rows_that_were_completed_several_times_are_pooled_too():
    tables = completed_tables()
    pooled = pool("y ~ x", tables)
    new = [table.head(2) for table in tables]
    found = pooled.expected(new)
    for i in range(2):
        q, u = [], []
        for fit, rows in zip(pooled.fits, new, strict=True):
            x = np.array([1.0, rows["x"].iloc[i]])
            q.append(x @ fit.params)
            u.append(x @ fit.cov_params().to_numpy() @ x)
        hand = rubin(q, u, 78)
        np.testing.assert_allclose((found.estimate[i], found.std_error[i], found.df[i]), hand, rtol=1e-9)


@pytest.mark.parametrize(
    ("estimator", "model", "target"),
    [
        (LinearRegression(), "ols", "y"),
        (LogisticRegression(C=np.inf, tol=1e-12, max_iter=5000), "logit", "b"),
        (PoissonRegressor(alpha=0, tol=1e-12, max_iter=5000), "poisson", "b"),
    ],
)
def test_models_of_scikit_learn_have_the_same_expected_outcomes(estimator, model, target):
    tables = completed_tables()
    ours = pool(estimator, [t[["x", "z", target]] for t in tables], target).expected(NEW[["x", "z"]])
    theirs = pool(f"{target} ~ x + z", tables, model=model).expected(NEW)
    np.testing.assert_allclose(ours.estimate, theirs.estimate, rtol=1e-4)
    np.testing.assert_allclose(ours.std_error, theirs.std_error, rtol=1e-3)


def test_a_predictive_margin_is_the_mean_outcome_with_the_variance_of_the_delta_method():
    tables = completed_tables()
    pooled = pool("b ~ x + z", tables, model="logit")
    margin = pooled.expected(NEW, average=True)
    design = np.column_stack([np.ones(3), NEW["x"], NEW["z"]])
    q, u = [], []
    for fit in pooled.fits:
        beta = fit.params.to_numpy()

        def mean(b):
            return float((1 / (1 + np.exp(-design @ b))).mean())

        step = 1e-5
        gradient = np.array([(mean(beta + step * e) - mean(beta - step * e)) / (2 * step) for e in np.eye(3)])
        q.append(mean(beta))
        u.append(gradient @ fit.cov_params().to_numpy() @ gradient)
    hand = rubin(q, u, 77)
    np.testing.assert_allclose((margin.estimate[0], margin.std_error[0], margin.df[0]), hand, rtol=1e-7)


def test_contrasts_by_name_and_by_matrix_are_those_of_statsmodels():
    table = completed_tables(1)[0]
    pooled = pool("y ~ x + C(g)", [table] * 3)
    named = pooled.contrast({"b - c": {"C(g)[T.b]": 1, "C(g)[T.c]": -1}, "half x": {"x": 0.5}})
    theirs = smf.ols("y ~ x + C(g)", table).fit().t_test([[0, 1, -1, 0], [0, 0, 0, 0.5]])
    np.testing.assert_allclose(named.estimate, theirs.effect, rtol=1e-8)
    np.testing.assert_allclose(named.std_error, theirs.sd, rtol=1e-8)
    assert named.names == ("b - c", "half x")
    matrix = pooled.contrast([[0, 1, -1, 0]], names=["b - c"])
    np.testing.assert_allclose(matrix.estimate, named.estimate[:1], rtol=1e-12)
    differing = pool("y ~ x + C(g)", completed_tables())
    one = differing.contrast([[0, 1, -1, 0]])
    row = np.array([0, 1, -1, 0])
    np.testing.assert_allclose(one.std_error[0] ** 2, row @ differing.covariance @ row, rtol=1e-10)


def test_the_tidy_frame_has_a_row_for_each_term():
    pooled = pool("y ~ x + z", completed_tables())
    frame = pooled.to_frame(level=0.9)
    columns = "term estimate std_error statistic df p_value conf_low conf_high riv fmi"
    assert list(frame.columns) == columns.split()
    assert list(frame["term"]) == list(pooled.names)
    np.testing.assert_allclose(frame["statistic"], pooled.estimate / pooled.std_error)
    np.testing.assert_allclose(frame["conf_low"], pooled.interval(0.9)[0])


def test_latex_and_html_escape_names_and_round_numbers():
    pooled = pool_estimates([[1.23456, 0.1], [1.3, 0.2]], [[1e-4, 1.0]] * 2, names=["a_1 & <b>", "50%"])
    latex = pooled.to_latex(digits=2)
    assert r"a\_1 \& $<$b$>$ & 1.3 &" in latex
    assert r"50\% & 0.15 &" in latex
    assert latex.startswith(r"\begin{tabular}{lrrrrrrr}")
    html = pooled.to_html(level=0.9)
    assert '<th scope="row">a_1 &amp; &lt;b&gt;</th>' in html
    assert "<th>90% low</th>" in html
    assert "pooled over 2 completed tables" in pooled._repr_html_()
    with pytest.raises(ValueError, match="digits must be at least 1"):
        pooled.to_latex(digits=0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: pool(mean_and_variance, t).expected(NEW), "Only pooled models have expected outcomes"),
        (lambda t: pool("y ~ x", t).expected([NEW] * 3), "4 pooled models need as many tables, got 3"),
        (lambda t: pool("y ~ x", t).expected(NEW.assign(x=np.nan)), "The new rows have missing values"),
        (lambda t: pool("y ~ x", t).contrast([[1.0]]), "1 weights for 2 coefficients"),
        (lambda t: pool("y ~ x", t).contrast({"w": {"w": 1}}), "no coefficient 'w'"),
        (lambda t: pool(mean_and_variance, t).contrast([[1.0]]), "needs covariance matrices"),
        (
            lambda t: pool("y ~ x", t, model=lambda f, d: smf.quantreg(f, d)).expected(NEW),
            "Expected outcomes of QuantReg are not available",
        ),
        (
            lambda t: pool(
                "b ~ x",
                t,
                model=lambda f, d: smf.glm(f, d, family=sm.families.Poisson(), offset=np.ones(80)),
            ).expected(NEW),
            "with an offset",
        ),
    ],
)
def test_misuse_is_explained(call, message):
    with pytest.raises(ValueError, match=message):
        call(completed_tables())
