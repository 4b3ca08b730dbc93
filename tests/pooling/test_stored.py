"""Rubin's rules, D1 to D3, survey designs and Cox models against stored numbers of packages of R.

`stored/pooled.R` made the completed tables and the numbers of mice, mitml, survival, survey and mitools.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from halfseen.pooling import (
    likelihood_ratio_test,
    nelson_aalen,
    pool,
    pool_chi_squares,
    pool_estimates,
    r_squared,
)

FOLDER = Path(__file__).parent / "stored"
SAME = 1e-8  # both sides compute in double precision and iterate until nothing changes
WEIGHTS = 1e-7  # glm of R takes covariance matrices from the weights of its last step but one
NAMES = {"(Intercept)": "Intercept", "gb": "C(g)[T.b]", "gc": "C(g)[T.c]", "x": "x", "z": "z"}
FORMULAS = {
    "ols": ("y ~ x + z + C(g)", "ols"),
    "logit": ("b ~ x + z", "logit"),
    "cox": ("Surv(time, died) ~ x + z", None),
}
SMALLER = {"ols": "y ~ x", "logit": "b ~ x", "cox": "Surv(time, died) ~ x"}


@pytest.fixture(scope="module")
def tables():
    found = pd.read_csv(FOLDER / "tables.csv")
    return [one.drop(columns="table").reset_index(drop=True) for _, one in found.groupby("table")]


@pytest.fixture(scope="module")
def stored():
    """The numbers by package and what they are, each a series by name."""
    found = pd.read_csv(FOLDER / "found.csv")
    return {key: one.set_index("name")["value"] for key, one in found.groupby(["source", "what"])}


@pytest.fixture(scope="module")
def pooled(tables):
    return {what: pool(formula, tables, model=model) for what, (formula, model) in FORMULAS.items()}


@pytest.fixture(scope="module")
def nulls(tables):
    return {what: pool(SMALLER[what], tables, model=model) for what, (_, model) in FORMULAS.items()}


def values(pooled, score, names):
    places = [pooled.names.index(NAMES[name]) for name in names]
    return np.asarray(getattr(pooled, score))[places]


@pytest.mark.parametrize("what", FORMULAS)
def test_rubins_rules_are_those_of_mice(stored, pooled, what):
    tolerance = WEIGHTS if what == "logit" else SAME
    for score, name in {"estimate": "estimate", "df": "df", "riv": "riv", "fmi": "fmi"}.items():
        theirs = stored["mice", f"{what} {name}"]
        np.testing.assert_allclose(
            values(pooled[what], score, theirs.index), theirs, rtol=tolerance, err_msg=name
        )
    theirs = stored["mice", f"{what} t"]
    np.testing.assert_allclose(values(pooled[what], "std_error", theirs.index) ** 2, theirs, rtol=tolerance)


@pytest.mark.parametrize("df_complete", [np.inf, 55])
def test_rubins_rules_are_those_of_mitml(stored, tables, df_complete):
    found = pool("y ~ x + z + C(g)", tables, df_complete=df_complete)
    ending = "Inf" if np.isinf(df_complete) else "55"
    scores = {"estimate": "Estimate", "std_error": "Std.Error", "df": "df", "riv": "RIV", "fmi": "FMI"}
    for score, name in scores.items():
        theirs = stored["mitml", f"ols {name} {ending}"]
        np.testing.assert_allclose(values(found, score, theirs.index), theirs, rtol=SAME, err_msg=name)


def compare(test, theirs):
    ours = [test.statistic, test.df_numerator, test.df_denominator, test.p_value, test.relative_increase]
    np.testing.assert_allclose(ours, theirs[["statistic", "df1", "df2", "p", "riv"]], rtol=SAME)


@pytest.mark.parametrize(
    ("source", "what", "df_complete"),
    [
        ("mice", "D1 ols", None),
        ("mice", "D1 ols, dfcom 55", 55),
        ("mice", "D1 ols, dfcom 1e9", 1e9),
        ("mitml", "D1 ols", np.inf),
        ("mitml", "D1 ols, df.com 55", 55),
    ],
)
def test_d1_is_that_of_mice_and_mitml(stored, tables, source, what, df_complete):
    """With and without the degrees of freedom of Reiter."""
    found = pool("y ~ x + z + C(g)", tables, df_complete=df_complete)
    test = found.wald_test(["z", "C(g)[T.b]", "C(g)[T.c]"])
    assert test.df_method == ("li-raghunathan-rubin" if df_complete == np.inf else "reiter")
    compare(test, stored[source, what])


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("mice", "D2 ols, wald"),
        ("mitml", "D2 ols, wald"),
        ("mice", "D2 logit, likelihood"),
        ("mitml", "D2 logit, likelihood"),
        ("mitml", "D2 cox, wald"),
    ],
)
def test_d2_is_that_of_mice_and_mitml(stored, pooled, nulls, source, what):
    model = what.split()[1].rstrip(",")
    fits, small = pooled[model].fits, nulls[model].fits
    if "likelihood" in what:
        statistics = [2 * (one.llf - other.llf) for one, other in zip(fits, small, strict=True)]
    else:
        names = [name for name in pooled[model].names if name not in nulls[model].names]
        places = [pooled[model].names.index(name) for name in names]
        statistics = []
        for fit in fits:
            beta, covariance = np.asarray(fit.params)[places], np.asarray(fit.cov_params())
            statistics.append(beta @ np.linalg.solve(covariance[np.ix_(places, places)], beta))
    k = len(pooled[model].names) - len(nulls[model].names)
    compare(pool_chi_squares(statistics, df=k), stored[source, what])


@pytest.mark.parametrize(
    ("source", "what", "variant"),
    [("mice", "D3 ols", "mice"), ("mice", "D3 logit", "mice"), ("mitml", "D3 ols", "meng-rubin")],
)
def test_d3_is_that_of_mice_and_mitml(stored, pooled, nulls, source, what, variant):
    model = what.split()[1]
    compare(
        likelihood_ratio_test(pooled[model].fits, nulls[model].fits, variant=variant), stored[source, what]
    )


@pytest.mark.parametrize("what", ["survey ols", "survey logit"])
def test_survey_designs_are_those_of_survey(stored, tables, what):
    outcome, model = ("y", "ols") if what == "survey ols" else ("b", "logit")
    found = pool(f"{outcome} ~ x + z", tables, model=model, weights="w", strata="stratum", clusters="psu")
    for score, name in {"estimate": "estimate", "std_error": "error"}.items():
        theirs = stored["survey", f"{what} {name}"]
        np.testing.assert_allclose(values(found, score, theirs.index), theirs, rtol=SAME, err_msg=name)
    x, z = (found.names.index(name) for name in "xz")
    np.testing.assert_allclose(
        found.covariance[x, z], stored["survey", f"{what} covariance"]["x, z"], rtol=SAME
    )
    assert found.df_complete == stored["survey", f"{what} df"]["design"]


def test_cox_models_have_the_likelihood_of_survival(stored, pooled, nulls):
    for what, found in (("cox", pooled["cox"]), ("cox small", nulls["cox"])):
        theirs = stored["survival", f"{what} log likelihood"]
        np.testing.assert_allclose([fit.llf for fit in found.fits], theirs, rtol=SAME)


def test_cox_models_in_clusters_have_the_robust_variance_of_survival(stored, tables):
    """survival does not multiply by n / (n - 1) for n clusters, as halfseen and survey do."""
    found = pool("Surv(time, died) ~ x + z", [tables[0]] * 2, clusters="psu")
    estimate, variance = (stored["survival", f"cox in clusters {name}"] for name in ("estimate", "variance"))
    np.testing.assert_allclose(found.estimate, estimate, rtol=SAME)
    np.testing.assert_allclose(np.diag(found.covariance), variance * 12 / 11, rtol=SAME)


@pytest.mark.parametrize("adjusted", [False, True])
def test_r_squared_is_pooled_as_by_mice(stored, pooled, adjusted):
    values = [fit.rsquared_adj if adjusted else fit.rsquared for fit in pooled["ols"].fits]
    found = pool([r_squared(value, 60) for value in values])
    theirs = stored["mice", f"R squared, adjusted {str(adjusted).upper()}"]
    np.testing.assert_allclose(found.estimate, theirs["est"], rtol=SAME)


def test_the_hazard_of_nelson_and_aalen_is_that_of_mice(stored, tables):
    """Without ties: of d events at once among n, mice adds 1 / n, 1 / (n - 1) and so on instead of d / n."""
    theirs = stored["mice", "nelsonaalen"]
    found = nelson_aalen(tables[0]["time"] + np.arange(1, 61) / 1000, tables[0]["died"])
    np.testing.assert_allclose(found, theirs, rtol=SAME, atol=1e-12)


def test_scalars_are_pooled_as_by_mice(stored):
    found = pool_estimates([1.0, 2.0, 3.0], [0.5, 0.6, 0.7], df_complete=20)
    ours = found.estimate[0], found.std_error[0] ** 2, found.df[0], found.riv[0], found.fmi[0]
    np.testing.assert_allclose(
        ours, stored["mice", "pool.scalar"][["qbar", "t", "df", "r", "fmi"]], rtol=SAME
    )
