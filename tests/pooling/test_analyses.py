"""Formulas, statsmodels results and functions pool to what Rubin's rules say by hand."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from pooling.oracles import rubin
from sklearn.linear_model import LinearRegression, LogisticRegression

import halfseen
from halfseen.pooling import likelihood_ratio_test, pool, pool_chi_squares, pool_estimates

HAND = 1e-10


def completed_tables(n_draws=4, n_rows=80, seed=0):
    """Tables with the columns y, b (0 or 1), x, z and g (three groups), that differ in x and z."""
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=(2, n_rows))
    g = rng.choice(["a", "b", "c"], size=n_rows)
    y = 1 + 0.5 * x + 0.3 * z + 0.4 * (g == "b") + rng.normal(size=n_rows)
    b = (y > 1).astype(int)
    return [
        pd.DataFrame(
            {
                "y": y,
                "b": b,
                "x": x + 0.3 * rng.normal(size=n_rows),
                "z": z + 0.3 * rng.normal(size=n_rows),
                "g": g,
            }
        )
        for _ in range(n_draws)
    ]


def assert_rubin(pooled, fits):
    """Compares every coefficient with the rules written out."""
    assert pooled.names == tuple(fits[0].params.index)
    for j, name in enumerate(pooled.names):
        found = pooled.estimate[j], pooled.std_error[j], pooled.df[j]
        hand = rubin([f.params[name] for f in fits], [f.bse[name] ** 2 for f in fits], fits[0].df_resid)
        np.testing.assert_allclose(found, hand, rtol=HAND)


@pytest.mark.parametrize("model", ["ols", "logit", "poisson"])
def test_a_formula_pools_to_rubins_rules_by_hand(model):
    tables = completed_tables()
    formula = f"{'y' if model == 'ols' else 'b'} ~ x + z + C(g)"
    fits = [getattr(smf, model)(formula, t).fit(**({} if model == "ols" else {"disp": 0})) for t in tables]
    assert_rubin(pool(formula, tables, model=model), fits)
    assert_rubin(pool(formula, tables, model=getattr(smf, model)), fits)


def test_a_function_with_statsmodels_results_and_finished_results_pool_alike():
    tables = completed_tables()

    def analyse(table):
        return smf.glm("b ~ x + z", table, family=sm.families.Binomial()).fit()

    fits = [analyse(table) for table in tables]
    assert_rubin(pool(analyse, tables), fits)
    assert_rubin(pool(fits), fits)
    array = pool(lambda t: sm.OLS(t["y"].to_numpy(), sm.add_constant(t[["x", "z"]].to_numpy())).fit(), tables)
    assert array.names == ("const", "x1", "x2")
    frames = [pl.from_pandas(table) for table in tables]
    np.testing.assert_allclose(pool("y ~ x", frames).estimate, pool("y ~ x", tables).estimate, rtol=HAND)


def mean_and_variance(table):
    return table["x"].mean(), table["x"].var() / len(table)


@pytest.mark.parametrize(
    ("analyse", "names"),
    [
        (mean_and_variance, ("q0",)),
        (lambda t: {"mean of x": mean_and_variance(t)}, ("mean of x",)),
        (lambda t: ({"m": t["x"].mean()}, {"m": t["x"].var() / len(t)}), ("m",)),
        (lambda t: (t[["x"]].mean(), t[["x"]].cov() / len(t)), ("x",)),
    ],
)
def test_a_function_of_a_table_pools_to_rubins_rules_by_hand(analyse, names):
    tables = completed_tables()
    values = [mean_and_variance(table) for table in tables]
    pooled = pool(analyse, tables, df_complete=79)
    assert pooled.names == names
    hand = rubin([v[0] for v in values], [v[1] for v in values], 79)
    np.testing.assert_allclose((pooled.estimate[0], pooled.std_error[0], pooled.df[0]), hand, rtol=HAND)
    np.testing.assert_allclose(pool(analyse, tables).df, hand[2], rtol=HAND)  # 80 rows, one estimate
    unlimited = rubin([v[0] for v in values], [v[1] for v in values])
    np.testing.assert_allclose(pool(analyse, tables, df_complete=np.inf).df, unlimited[2], rtol=HAND)


def test_functions_have_the_degrees_of_freedom_of_their_rows():
    tables = completed_tables()
    several = pool(lambda t: {name: (t[name].mean(), t[name].var() / len(t)) for name in "xyz"}, tables)
    assert several.df_complete == 79  # three means, each with its own variance
    matrix = pool(lambda t: (t[["x", "z"]].mean(), t[["x", "z"]].cov() / len(t)), tables)
    assert matrix.df_complete == 78
    assert pool([(1.0, 0.5), (1.2, 0.5)]).df_complete == np.inf  # no table, no rows


def test_scikit_learn_and_a_formula_agree():
    tables = completed_tables()
    ours = pool(LinearRegression(), [t[["x", "z", "y"]] for t in tables], "y")
    theirs = pool("y ~ x + z", tables)
    np.testing.assert_allclose(ours.estimate[[2, 0, 1]], theirs.estimate, rtol=1e-8)
    np.testing.assert_allclose(ours.covariance[np.ix_([2, 0, 1], [2, 0, 1])], theirs.covariance, rtol=1e-8)
    np.testing.assert_allclose(ours.df[[2, 0, 1]], theirs.df, rtol=1e-8)


def test_summaries_have_the_relative_increase():
    pooled = pool_estimates([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]], [[0.5, 1.0], [0.6, 1.0], [0.7, 1.0]])
    np.testing.assert_allclose(pooled.riv, [4 / 3 / 0.6, 0.0])
    assert "riv" in str(pooled)


def test_pooled_models_predict_for_incomplete_rows():
    tables = completed_tables()
    pooled = pool("y ~ x + z", tables)
    expected = np.mean([f.predict(t) for f, t in zip(pooled.fits, tables, strict=True)], axis=0)
    np.testing.assert_allclose(pooled.predict(tables), expected)
    columns = [t[["x", "z"]] for t in tables]
    linear = pool(LinearRegression(), columns, tables[0]["y"])
    np.testing.assert_allclose(linear.predict(columns), expected, rtol=1e-8)
    logistic = pool(LogisticRegression(C=np.inf), columns, tables[0]["b"])
    assert logistic.predict(columns).shape == (80, 2)
    with pytest.raises(ValueError, match="4 pooled models need as many tables, got 3"):
        linear.predict(columns[:3])
    with pytest.raises(ValueError, match="Only pooled models can predict"):
        pool(mean_and_variance, tables).predict(tables)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda t: pool("y ~ x", t, "y"), "names the target"),
        (lambda t: pool("y ~ x", t, model="olss"), "model must be one of .*logit.*, got 'olss'"),
        (lambda t: pool("y ~ x", [d[["x", "y"]].to_numpy() for d in t]), "tables are arrays"),
        (lambda t: pool(mean_and_variance, t, model="ols"), "needs a formula"),
        (lambda t: pool(mean_and_variance, t, "y"), "y is used with scikit-learn models only"),
        (lambda t: pool(LinearRegression(), t), "y is missing"),
        (lambda t: pool(LinearRegression()), "draws is missing"),
        (lambda t: pool(3.0, t), "got float"),
        (lambda t: pool(lambda d: 1.0, t), "got float"),
        (lambda t: pool(lambda d: ([1.0, 2.0], [1.0, 2.0, 3.0]), t), r"shape \(2,\) and .* \(3,\)"),
        (lambda t: pool(lambda d: (np.nan, 1.0), t), "must be finite"),
        (lambda t: pool(lambda d: (1.0, -1.0), t), "not be negative, got -1"),
        (lambda t: pool("y ~ C(g)", [t[0], t[1][t[1]["g"] != "c"]]), "table 1 estimates"),
        (lambda t: pool("y ~ x", t).wald_test(["w"]), "no coefficient 'w'"),
        (lambda t: pool(lambda d: ([1.0, 2.0], [1.0, 1.0]), t).wald_test(), "needs covariance matrices"),
        (lambda t: pool(mean_and_variance, t).covariance, "not covariance matrices"),
        (lambda t: pool("y ~ x", t).interval(1.5), "level must be between 0 and 1"),
        (lambda t: pool_chi_squares([1.0], 2), "at least 2 numbers"),
        (lambda t: pool_chi_squares([1.0, 2.0], 0), "df must be at least 1"),
        (lambda t: likelihood_ratio_test(pool("y ~ x", t).fits, []), "got 4 and 0 fits"),
        (lambda t: likelihood_ratio_test(t, t), "needs results with llf"),
        (
            lambda t: likelihood_ratio_test(pool("y ~ 1", t).fits, pool("y ~ x", t).fits),
            "more parameters",
        ),
        (lambda t: pool_estimates([1.0, 2.0], [1.0, 1.0], names=["a", "b"]), "1 estimates and 2 names"),
    ],
)  # fmt: skip
def test_misuse_is_explained(arguments, message):
    with pytest.raises(ValueError, match=message):
        arguments(completed_tables())


def test_a_formula_that_cannot_be_used_is_explained():
    rng = np.random.default_rng(0)
    x = rng.normal(size=40)
    table = pd.DataFrame(
        {"x": x, "y": x + rng.normal(size=40), "s": ["no", "yes"] * 20, "t": list("abcd") * 10}
    )
    tables = [table, table]
    with pytest.raises(ValueError, match=r"The formula 'y ~ z' cannot be used: .*'z'.* Columns: x, y, s, t"):
        pool("y ~ z", tables)
    with pytest.raises(ValueError, match=r"'log' is not defined; functions are those of numpy"):
        pool("y ~ log(x)", tables)
    with pytest.raises(ValueError, match="draws is one table; pass a list of two or more completed tables"):
        pool("y ~ x", table)
    code = r"Column 's' contains 'no' and 'yes', and logit needs 0 and 1. .*\(table\['s'\] == 'yes'\)"
    with pytest.raises(ValueError, match=code):
        pool("s ~ x", tables, model="logit")
    with pytest.raises(ValueError, match="Column 't' does not contain numbers, which the target of ols must"):
        pool("t ~ x", tables)
    with pytest.warns(halfseen.HalfseenWarning, match="'y ~ x' uses 30 of 40 rows of a completed table"):
        pool("y ~ x", [table.assign(x=table["x"].where(table.index >= 10))] * 2)
