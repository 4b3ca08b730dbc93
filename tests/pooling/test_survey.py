"""Strata and clusters of survey designs, by hand and against cluster-robust variances of statsmodels."""

import numpy as np
import polars as pl
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from pooling.oracles import rubin
from pooling.test_weights import FORMULAS, make_tables
from scipy.optimize import approx_fprime
from sklearn.linear_model import LinearRegression, Ridge

from halfseen.pooling import pool, pool_estimates
from halfseen.pooling.survival import _partial_likelihood, fit_weighted_cox


def survey_tables():
    """80 rows in 20 clusters of 4, in 4 strata of 5 clusters."""
    return [
        table.assign(psu=np.repeat(np.arange(20), 4), stratum=np.repeat(list("abcd"), 20))
        for table in make_tables()
    ]


@pytest.mark.parametrize("model", FORMULAS)
def test_clusters_have_the_sandwich_variance_of_statsmodels(model):
    tables = survey_tables()
    estimates, covariances = [], []
    for table in tables:
        if model == "ols":
            built = smf.ols(FORMULAS[model], table)
        else:
            family = {"logit": sm.families.Binomial, "poisson": sm.families.Poisson}[model]()
            built = smf.glm(FORMULAS[model], table, family=family)
        fit = built.fit(cov_type="cluster", cov_kwds={"groups": table["psu"], "use_correction": False})
        estimates.append(fit.params)
        covariances.append(np.asarray(fit.cov_params()) * 20 / 19)
    twin = pool_estimates(np.stack(estimates), np.stack(covariances), df_complete=19)
    pooled = pool(FORMULAS[model], tables, model=model, clusters="psu")
    np.testing.assert_allclose(pooled.estimate, twin.estimate, rtol=1e-8)
    np.testing.assert_allclose(pooled.covariance, twin.covariance, rtol=1e-7)
    np.testing.assert_allclose(pooled.df, twin.df, rtol=1e-7)


def stratified_mean(table, weights):
    """The weighted mean and its variance by the textbook, one stratum and one cluster at a time."""
    mean = (weights * table["x"]).sum() / weights.sum()
    variance = 0.0
    for stratum in table["stratum"].unique():
        inside = table["stratum"] == stratum
        totals = [
            (weights * (table["x"] - mean))[inside & (table["psu"] == psu)].sum() / weights.sum()
            for psu in table["psu"][inside].unique()
        ]
        n = len(totals)
        variance += n / (n - 1) * sum((total - sum(totals) / n) ** 2 for total in totals)
    return mean, variance


@pytest.mark.parametrize("weights", [None, "w"])
def test_a_mean_in_strata_and_clusters_is_that_of_the_textbook(weights):
    tables = survey_tables()
    found = [stratified_mean(t, t["w"] if weights else np.ones(80)) for t in tables]
    pooled = pool("x ~ 1", tables, weights=weights, strata="stratum", clusters="psu")
    hand = rubin([mean for mean, _ in found], [variance for _, variance in found], 20 - 4)
    np.testing.assert_allclose((pooled.estimate[0], pooled.std_error[0], pooled.df[0]), hand, rtol=1e-9)
    assert pooled.df_complete == 16


def test_clusters_may_be_numbered_within_strata_and_given_as_arrays():
    tables = survey_tables()
    named = pool("y ~ x", tables, strata="stratum", clusters="psu", weights="w")
    within = tables[0]["psu"].to_numpy() % 5
    arrays = pool(
        "y ~ x",
        [pl.from_pandas(table) for table in tables],
        strata=tables[0]["stratum"].tolist(),
        clusters=within,
        weights=tables[0]["w"].to_numpy(),
    )
    np.testing.assert_allclose(arrays.covariance, named.covariance, rtol=1e-9)
    assert arrays.df_complete == 16
    rows = pool("y ~ x", tables, strata="stratum")
    assert rows.df_complete == 80 - 4


def test_models_of_scikit_learn_leave_the_columns_of_the_design_out():
    tables = survey_tables()
    formula = pool("y ~ x + z", tables, weights="w", strata="stratum", clusters="psu")
    chosen = [table[["x", "z", "y", "w", "stratum", "psu"]] for table in tables]
    ours = pool(LinearRegression(), chosen, "y", weights="w", strata="stratum", clusters="psu")
    np.testing.assert_allclose(ours.std_error, formula.std_error[[1, 2, 0]], rtol=1e-8)
    np.testing.assert_allclose(ours.df, formula.df[[1, 2, 0]], rtol=1e-8)


def survival_tables():
    """Tied times, censored rows, and the design of `survey_tables`."""
    rng = np.random.default_rng(5)
    time, died = np.ceil(5 * rng.exponential(size=80)), (rng.random(80) < 0.7).astype(int)
    return [table.assign(time=time, died=died) for table in survey_tables()]


def test_cox_models_in_clusters_have_the_robust_variance_of_statsmodels():
    tables = survival_tables()
    fits = [
        smf.phreg("time ~ x + z", t, status="died", ties="breslow").fit(groups=t["psu"].to_numpy())
        for t in tables
    ]
    covariances = np.stack([fit.cov_params() * 20 / 19 for fit in fits])
    twin = pool_estimates(np.stack([fit.params for fit in fits]), covariances, df_complete=19)
    pooled = pool("Surv(time, died) ~ x + z", tables, clusters="psu")
    assert pooled.names == ("x", "z")
    np.testing.assert_allclose(pooled.estimate, twin.estimate, rtol=1e-8)
    np.testing.assert_allclose(pooled.covariance, twin.covariance, rtol=1e-7)
    np.testing.assert_allclose(pooled.df, twin.df, rtol=1e-7)


def test_whole_weights_of_a_cox_model_are_repeated_rows_that_form_clusters():
    tables = [table.assign(w=1 + np.arange(80) % 3) for table in survival_tables()]
    repeated = [t.loc[t.index.repeat(t["w"])].reset_index(names="row") for t in tables]
    weighted = pool("Surv(time, died) ~ x + z", tables, weights="w")
    twin = pool("Surv(time, died) ~ x + z", repeated, clusters="row")
    np.testing.assert_allclose(weighted.estimate, twin.estimate, rtol=1e-8)
    np.testing.assert_allclose(weighted.covariance, twin.covariance, rtol=1e-8)
    assert weighted.df_complete == tables[0]["died"].sum() - 2
    whole = pool("Surv(time, died) ~ x + z", tables, weights="w", strata="stratum", clusters="psu")
    assert whole.df_complete == 16
    np.testing.assert_allclose(whole.estimate, weighted.estimate, rtol=1e-10)


def test_the_weighted_partial_likelihood_has_its_derivatives_and_separation_is_announced():
    table = survival_tables()[0]
    x, given = table[["x", "z"]].to_numpy(), (table["time"].to_numpy(), table["died"].to_numpy(float))
    weights = np.linspace(0.5, 2, 80)

    def value(beta):
        return _partial_likelihood(beta, x, *given, weights)[0]

    at = np.array([0.4, -0.7])
    _, slope, information, _ = _partial_likelihood(at, x, *given, weights)
    np.testing.assert_allclose(slope, approx_fprime(at, value, 1e-7), rtol=1e-4, atol=1e-4)
    numeric = [(_partial_likelihood(at - e, x, *given, weights)[1] - slope) / 1e-6 for e in 1e-6 * np.eye(2)]
    np.testing.assert_allclose(information, np.array(numeric), rtol=1e-4, atol=1e-4)
    for covariates in (x[:, [0, 0]], np.column_stack([x, x @ [3, 1e-3]]), 0 * x[:, [0]]):
        with pytest.raises(ValueError, match="linear combination of the others"):
            fit_weighted_cox(covariates, *given, weights)
    with pytest.raises(ValueError, match="did not converge"):
        fit_weighted_cox(given[1][:, None], np.where(given[1] > 0, 1.0, 2.0), given[1], weights)


@pytest.mark.parametrize(
    ("analysis", "settings", "message"),
    [
        ("y ~ x", {"clusters": "v"}, "no column 'v'"),
        ("y ~ x", {"clusters": "x"}, "Column 'x' of table 1 differs .* clusters must be known"),
        ("y ~ x", {"strata": [1, 2]}, "one value for each of the 80 rows, got 2"),
        ("y ~ x", {"strata": [None] * 80}, "The array of strata is missing in row 0"),
        ("y ~ x", {"strata": "lonely"}, "The stratum of row 0 has one cluster only"),
        ("y ~ x", {"clusters": [0] * 80}, "All rows are in one cluster"),
        (lambda t: (1.0, 1.0), {"clusters": "psu"}, "clusters are used with formulas"),
        (Ridge(), {"clusters": "psu", "y": "y"}, "Ridge come from a bootstrap .* not valid with strata"),
        (LinearRegression(), {"clusters": "psu", "y": "psu"}, "both the target and the clusters"),
    ],
)
def test_designs_that_cannot_be_used_are_explained(analysis, settings, message):
    lonely = ["a"] + ["b"] * 79
    tables = [t.assign(lonely=lonely)[["x", "y", "psu", "lonely"]] for t in survey_tables()]
    if not isinstance(analysis, str):
        tables = [table.drop(columns="lonely") for table in tables]
    with pytest.raises(ValueError, match=message):
        pool(analysis, tables, **settings)
