"""Rubin's rules against hand computations, textbook variances and simulated coverage."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student_t
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import (
    GammaRegressor,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from tolerances import EXACT

import halfseen
from halfseen.pooling import pool, pool_estimates


def regression_draws(n_draws=3, n_rows=50, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 2))
    y = 1 + X @ [2.0, -1.0] + rng.normal(size=n_rows)
    return X + 0.1 * rng.normal(size=(n_draws, n_rows, 2)), y


def test_pooling_equals_the_hand_computation():
    """Three estimates 1, 2, 3 with variances 0.5, 0.6, 0.7 and 20 complete-data degrees of freedom."""
    pooled = pool_estimates([1.0, 2.0, 3.0], [0.5, 0.6, 0.7], names=["a"], df_complete=20)
    within, between = 0.6, 1.0
    total = within + 4 / 3 * between
    share = 4 / 3 * between / total
    old, observed = 2 / share**2, 21 / 23 * 20 * (1 - share)
    df = old * observed / (old + observed)
    r = 4 / 3 * between / within
    assert pooled.estimate[0] == pytest.approx(2.0)
    assert pooled.std_error[0] == pytest.approx(np.sqrt(total))
    assert pooled.df[0] == pytest.approx(df)
    assert pooled.fmi[0] == pytest.approx((r + 2 / (df + 3)) / (r + 1))
    low, high = pooled.interval(0.95)
    assert high[0] - low[0] == pytest.approx(2 * student_t.ppf(0.975, df) * np.sqrt(total))
    assert pooled.p_value[0] == pytest.approx(2 * student_t.sf(2 / np.sqrt(total), df))


def test_equal_tables_give_the_complete_data_answer():
    draws, y = regression_draws()
    same = np.stack([draws[0]] * 4)
    pooled = pool(LinearRegression(), same, y)
    design = np.column_stack([draws[0], np.ones(50)])
    solution, residual, *_ = np.linalg.lstsq(design, y, rcond=None)
    errors = np.sqrt(residual[0] / 47 * np.diag(np.linalg.inv(design.T @ design)))
    np.testing.assert_allclose(pooled.estimate, solution, atol=EXACT)
    np.testing.assert_allclose(pooled.std_error, errors, atol=EXACT)
    np.testing.assert_allclose(pooled.fmi, 2 / (pooled.df + 3), atol=1e-6)  # no information is missing
    assert (pooled.df > 45 * 48 / 50).all()


def numerical_information(log_likelihood, parameters, step=1e-4):
    d = len(parameters)
    hessian = np.empty((d, d))
    for i in range(d):
        for j in range(d):
            moves = [(si, sj) for si in (1, -1) for sj in (1, -1)]
            values = [
                si * sj * log_likelihood(parameters + step * (si * np.eye(d)[i] + sj * np.eye(d)[j]))
                for si, sj in moves
            ]
            hessian[i, j] = sum(values) / (4 * step**2)
    return np.linalg.inv(-hessian)


@pytest.mark.parametrize("family", ["logistic", "poisson"])
def test_variances_are_the_inverse_information(family):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 2))
    design = np.column_stack([X, np.ones(200)])
    linear = X @ [0.8, -0.5] + 0.2
    if family == "logistic":
        y = (rng.random(200) < 1 / (1 + np.exp(-linear))).astype(int)
        model = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000)
        log_likelihood = lambda b: (y * (design @ b) - np.logaddexp(0, design @ b)).sum()  # noqa: E731
    else:
        y = rng.poisson(np.exp(linear))
        model = PoissonRegressor(alpha=0, tol=1e-10, max_iter=1000)
        log_likelihood = lambda b: (y * (design @ b) - np.exp(design @ b)).sum()  # noqa: E731
    pooled = pool(model, np.stack([X, X]), y)
    expected = np.diag(numerical_information(log_likelihood, pooled.estimate))
    np.testing.assert_allclose(pooled.within, expected, rtol=1e-4)


def test_gamma_regression_has_a_dispersion():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(4000, 1))
    y = np.exp(0.5 * X[:, 0]) * rng.gamma(4.0, 0.25, size=4000)
    pooled = pool(GammaRegressor(alpha=0, tol=1e-8), np.stack([X, X]), y)
    # dispersion 1 / shape = 0.25, a standard normal design: variance 0.25 / 4000
    assert pooled.within[0] == pytest.approx(0.25 / 4000, rel=0.15)


def test_other_linear_models_are_bootstrapped():
    draws, y = regression_draws(n_rows=300)
    plain, ridge = pool(LinearRegression(), draws, y), pool(Ridge(alpha=1e-8), draws, y)
    np.testing.assert_allclose(ridge.estimate, plain.estimate, atol=1e-6)
    np.testing.assert_allclose(ridge.within, plain.within, rtol=0.5)
    again = pool(Ridge(alpha=1e-8), draws, y)
    np.testing.assert_array_equal(again.std_error, ridge.std_error)


def test_a_pipeline_on_frames_names_its_coefficients_and_may_have_an_imputed_target():
    penguins = halfseen.datasets.load_penguins("pandas").drop(columns="year")
    draws = (
        halfseen.GaussianImputer(n_posterior_draws=5, random_state=0)
        .fit(penguins)
        .sample(penguins, n_draws=5)
    )
    frames = [d[["flipper_length_mm", "sex", "body_mass_g"]] for d in draws]
    encoder = OneHotEncoder(drop="first", sparse_output=False)
    from sklearn.compose import make_column_transformer

    model = make_pipeline(
        make_column_transformer((encoder, ["sex"]), (StandardScaler(), ["flipper_length_mm"])),
        LinearRegression(),
    )
    pooled = pool(model, frames, "body_mass_g")
    assert pooled.names == ("onehotencoder__sex_male", "standardscaler__flipper_length_mm", "(intercept)")
    assert pooled.estimate[0] > 200
    assert "pooled over 5 completed tables" in str(pooled)


def test_misuse_is_explained():
    draws, y = regression_draws()
    with pytest.raises(ValueError, match="at least 2 completed tables, got 1"):
        pool(LinearRegression(), draws[:1], y)
    with pytest.raises(ValueError, match="names a column, but the completed tables are arrays"):
        pool(LinearRegression(), draws, "y")
    with pytest.raises(ValueError, match="no column 'z'"):
        pool(LinearRegression(), [pd.DataFrame(d, columns=["a", "b"]) for d in draws], "z")
    with pytest.raises(ValueError, match="RandomForestRegressor has no coef_"):
        pool(RandomForestRegressor(n_estimators=2, random_state=0), draws, y)
    with pytest.raises(ValueError, match="one target or two classes"):
        pool(LogisticRegression(C=np.inf), draws, np.arange(50) % 3)


def mar_table(rng, n_rows=200):
    """y depends on x and z with coefficient 1 each; x is missing for about 30%, the more so the larger y."""
    z = rng.normal(size=n_rows)
    x = 0.5 * z + rng.normal(size=n_rows)
    y = x + z + rng.normal(size=n_rows)
    missing = rng.random(n_rows) < 1 / (1 + np.exp(-(y - 1.4)))
    return np.column_stack([np.where(missing, np.nan, x), z, y])


@pytest.mark.slow
def test_intervals_of_a_regression_coefficient_cover_at_their_rate():
    """400 tables of 200 rows, 30% missing at random, all defaults: 93 to 97% of 95% intervals cover.

    With a true coverage of 95% the observed share of 400 leaves this range with probability 7%, so the seed
    is fixed; a coverage of 91% or 99% would fail with probability over 90%.
    """
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(400):
        table = mar_table(rng)
        tables = halfseen.multiple_imputation(table, random_state=int(rng.integers(2**31)))
        pooled = pool(LinearRegression(), tables.draws[:, :, :2], table[:, 2])
        low, high = pooled.interval(0.95)
        covered.append(low[0] <= 1.0 <= high[0])
    assert 0.93 <= np.mean(covered) <= 0.97
