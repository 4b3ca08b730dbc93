"""Weights of rows in pooled analyses: whole weights are repeated rows, each of which is one observation."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from sklearn.linear_model import GammaRegressor, LinearRegression, LogisticRegression, PoissonRegressor, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from halfseen import pool
from halfseen.pooling import pool_estimates

FORMULAS = {"ols": "y ~ x + z", "logit": "b ~ x + z", "poisson": "n ~ x + z"}


def make_tables(n_draws=3, n_rows=80):
    """Completed tables whose column x varies between them."""
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(2, n_rows))
    y = 1 + x - z + rng.normal(size=n_rows)
    common = {"z": z, "y": y, "b": (y > 1).astype(int), "n": rng.poisson(np.exp(0.3 * x))}
    common |= {"g": np.exp(0.2 * x) * rng.gamma(3.0, size=n_rows), "w": rng.integers(1, 5, size=n_rows)}
    imputed = rng.random(n_rows) < 0.2
    return [
        pd.DataFrame({"x": np.where(imputed, rng.normal(size=n_rows), x), **common}) for _ in range(n_draws)
    ]


def repeated(table):
    """The rows as often as their weights say, and which row each of them was."""
    row = np.repeat(np.arange(len(table)), table["w"])
    return table.iloc[row].reset_index(drop=True), row


@pytest.mark.parametrize("model", FORMULAS)
def test_whole_weights_are_repeated_rows_that_form_clusters(model):
    """Copies of a row are one observation: the covariance matrix of repeated rows is that by clusters."""
    tables = make_tables()
    n_rows, estimates, covariances = len(tables[0]), [], []
    for table in tables:
        copies, row = repeated(table)
        if model == "ols":
            fitted = smf.ols(FORMULAS[model], copies)
        else:
            family = {"logit": sm.families.Binomial, "poisson": sm.families.Poisson}[model]()
            fitted = smf.glm(FORMULAS[model], copies, family=family)
        by_row = {"groups": row, "use_correction": False}
        results = fitted.fit(cov_type="cluster", cov_kwds=by_row)
        estimates.append(np.asarray(results.params))
        covariances.append(np.asarray(results.cov_params()) * n_rows / (n_rows - 1))
    twin = pool_estimates(np.stack(estimates), np.stack(covariances), df_complete=n_rows - 3)
    pooled = pool(FORMULAS[model], tables, model=model, weights="w")
    np.testing.assert_allclose(pooled.estimate, twin.estimate, rtol=1e-7)
    np.testing.assert_allclose(pooled.std_error, twin.std_error, rtol=1e-6)
    np.testing.assert_allclose(pooled.df, twin.df, rtol=1e-6)
    assert pooled.names == ("Intercept", "x", "z")
    rescaled = pool(FORMULAS[model], tables, model=model, weights=1e6 * tables[0]["w"])
    np.testing.assert_allclose(rescaled.std_error, pooled.std_error, rtol=1e-6)


def test_the_mean_and_its_variance_are_those_of_the_textbook():
    tables = make_tables()
    n_rows = len(tables[0])
    means, variances = [], []
    for table in tables:
        w, x = table["w"], table["x"]
        mean = (w * x).sum() / w.sum()
        means.append([mean])
        variances.append([n_rows / (n_rows - 1) * ((w * (x - mean) / w.sum()) ** 2).sum()])
    twin = pool_estimates(means, variances, df_complete=n_rows - 1)
    pooled = pool("x ~ 1", tables, weights="w")
    np.testing.assert_allclose(pooled.estimate, twin.estimate, rtol=1e-12)
    np.testing.assert_allclose(pooled.std_error, twin.std_error, rtol=1e-10)


@pytest.mark.parametrize(
    ("estimator", "model", "target"),
    [
        (LinearRegression(), "ols", "y"),
        (LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000), "logit", "b"),
        (PoissonRegressor(alpha=0, tol=1e-10, max_iter=1000), "poisson", "n"),
        (make_pipeline(FunctionTransformer(feature_names_out="one-to-one"), LinearRegression()), "ols", "y"),
    ],
)
def test_models_of_scikit_learn_agree_with_formulas(estimator, model, target):
    tables = make_tables()
    formula = pool(FORMULAS[model], tables, model=model, weights="w")
    ours = pool(estimator, [table[["x", "z", target, "w"]] for table in tables], target, weights="w")
    assert ours.names == ("x", "z", "(intercept)")
    order = [1, 2, 0]
    np.testing.assert_allclose(ours.estimate, formula.estimate[order], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(ours.std_error, formula.std_error[order], rtol=1e-4)


def test_other_models_are_bootstrapped_with_their_weights():
    tables = [table[["x", "z", "y", "w"]] for table in make_tables()]
    exact = pool(LinearRegression(), tables, "y", weights="w")
    boot = pool(Ridge(alpha=1e-9), tables, "y", weights="w", n_resamples=100)
    np.testing.assert_allclose(boot.estimate, exact.estimate, rtol=1e-6)
    np.testing.assert_allclose(boot.std_error, exact.std_error, rtol=0.3)
    gamma = [table[["x", "g", "w"]] for table in make_tables()]
    assert pool(GammaRegressor(alpha=0), gamma, "g", weights="w").std_error.min() > 0


@pytest.mark.parametrize(
    ("analysis", "settings", "message"),
    [
        ("y ~ x", {"weights": "v"}, "The completed tables have no column 'v'; they have x, z"),
        ("y ~ x", {"weights": "zero"}, "Column 'zero' has the weight 0 in row 3; weights must be positive"),
        ("y ~ x", {"weights": "text"}, "Column 'text' must hold numbers to serve as weights, got 'a'"),
        ("y ~ x", {"weights": "x"}, "Column 'x' of table 1 differs .* Weights must be known in every row"),
        (
            "y ~ x",
            {"weights": [1.0, 2.0]},
            r"weights must have one weight for each of the 80 rows, got \(2,\)",
        ),
        (
            "y ~ x",
            {"weights": "w", "model": "probit"},
            "With weights, strata or clusters, model must be one of ols, logit, poisson",
        ),
        (
            "text ~ x",
            {"weights": "w", "model": "logit"},
            "Column 'text' contains 'a' and 'b', and logit needs 0 and 1",
        ),
        ("C(text) ~ x", {"weights": "w", "model": "logit"}, r"'C\(text\) ~ x' must be one column of numbers"),
        ("y ~ gap", {"weights": "w"}, "uses 79 of 80 rows of a completed table; the others have missing"),
        ("y ~ x", {"weights": [1.0] * 79 + ["many"]}, "The array of weights must hold numbers .* got 'many'"),
        (LinearRegression(), {"weights": "w", "y": "w"}, "Column 'w' cannot be both the target and the"),
        (lambda table: (1.0, 1.0), {"weights": "w"}, "a function takes them from the table"),
    ],
)
def test_weights_that_cannot_be_used_are_refused_by_name(analysis, settings, message):
    added = {"zero": [1, 1, 1, 0] + [1] * 76, "gap": [None, *range(79)], "text": ["a", "b"] * 40}
    tables = [table.assign(x=table["x"].abs(), **added) for table in make_tables()]
    with pytest.raises(ValueError, match=message):
        pool(analysis, tables, **settings)


def test_a_model_without_weights_is_refused_by_its_name():
    from sklearn.linear_model import Lars

    tables = [table[["x", "z", "y", "w"]] for table in make_tables()]
    with pytest.raises(ValueError, match="Lars does not take weights of rows in fit"):
        pool(make_pipeline(StandardScaler(), Lars()), tables, "y", weights="w")
