"""Cox models of formulas against statsmodels and by hand, ratios, and the estimator of Nelson and Aalen."""

import numpy as np
import polars as pl
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from pooling.oracles import moment_df, rubin
from pooling.test_analyses import completed_tables
from scipy import stats

from halfseen.pooling import likelihood_ratio_test, nelson_aalen, pool, pool_estimates

FORMULA = "Surv(time, died) ~ x + z + C(g)"


def survival_tables(n_draws=4, n_rows=120):
    """Completed tables with the same times, of which many are tied."""
    rng = np.random.default_rng(3)
    time = np.ceil(6 * rng.exponential(size=n_rows))
    died = (rng.random(n_rows) < 0.6).astype(int)
    return [table.assign(time=time, died=died) for table in completed_tables(n_draws, n_rows=n_rows)]


def test_a_survival_formula_is_the_cox_model_of_statsmodels_with_the_ties_of_efron():
    tables = survival_tables()
    fits = [smf.phreg("time ~ x + z + C(g)", t, status="died", ties="efron").fit() for t in tables]
    pooled = pool(FORMULA, tables)
    assert pooled.names == ("C(g)[T.b]", "C(g)[T.c]", "x", "z")
    events = tables[0]["died"].sum()
    assert pooled.df_complete == events - 4
    for j in range(4):
        hand = rubin([f.params[j] for f in fits], [f.bse[j] ** 2 for f in fits], events - 4)
        np.testing.assert_allclose((pooled.estimate[j], pooled.std_error[j], pooled.df[j]), hand, rtol=1e-8)
    again = pool(FORMULA, [pl.from_pandas(table) for table in tables])
    np.testing.assert_allclose(again.estimate, pooled.estimate, rtol=1e-8)
    np.testing.assert_allclose(pool(FORMULA, tables, model="phreg").estimate, pooled.estimate)


def efron(beta, z, time, died):
    """The partial likelihood, one event at a time."""
    index = z @ beta
    total = 0.0
    for tau in np.unique(time[died == 1]):
        tied = (time == tau) & (died == 1)
        at_risk, own = np.exp(index[time >= tau]).sum(), np.exp(index[tied]).sum()
        total += index[tied].sum()
        total -= sum(np.log(at_risk - k / tied.sum() * own) for k in range(tied.sum()))
    return total


def test_d3_of_cox_models_is_that_of_the_partial_likelihood_by_hand():
    tables = survival_tables()
    full, null = pool("Surv(time, died) ~ x + z", tables), pool("Surv(time, died) ~ x", tables)
    own, at_mean = [], []
    for t, a, b in zip(tables, full.fits, null.fits, strict=True):
        given = t["time"].to_numpy(), t["died"].to_numpy()
        both, one = t[["x", "z"]].to_numpy(), t[["x"]].to_numpy()
        own.append(2 * (efron(a.params, both, *given) - efron(b.params, one, *given)))
        at_mean.append(2 * (efron(full.estimate, both, *given) - efron(null.estimate, one, *given)))
    r = 5 / 3 * (np.mean(own) - np.mean(at_mean))
    test = likelihood_ratio_test(full.fits, null.fits)
    np.testing.assert_allclose(test.relative_increase, r, rtol=1e-6)
    np.testing.assert_allclose(test.statistic, np.mean(at_mean) / (1 + r), rtol=1e-8)
    np.testing.assert_allclose(test.df_denominator, moment_df(1, 4, r), rtol=1e-6)


def test_hazard_ratios_are_exponentials_of_coefficients_and_intervals():
    pooled = pool(FORMULA, survival_tables())
    ratios = pooled.exponentiated()
    np.testing.assert_allclose(ratios.estimate, np.exp(pooled.estimate), rtol=1e-12)
    np.testing.assert_allclose(ratios.interval(0.9), np.exp(pooled.interval(0.9)), rtol=1e-12)
    np.testing.assert_allclose(ratios.std_error, np.exp(pooled.estimate) * pooled.std_error, rtol=1e-12)
    np.testing.assert_allclose(ratios.p_value, pooled.p_value, rtol=1e-12)
    assert "on the scale log" in str(ratios)
    with pytest.raises(ValueError, match="mapped back already"):
        ratios.exponentiated()


def test_a_difference_of_margins_has_the_variance_of_the_delta_method():
    tables = completed_tables(3)
    pooled = pool("b ~ x + z", tables, model="logit")
    high, low = ([t.assign(x=value) for t in tables] for value in (1.0, -0.5))
    found = pooled.expected(high, average=True, minus=low)
    q, u = [], []
    for fit, a, b in zip(pooled.fits, high, low, strict=True):
        one, other = (sm.add_constant(t[["x", "z"]], has_constant="add").to_numpy() for t in (a, b))
        p, s = (1 / (1 + np.exp(-rows @ fit.params.to_numpy())) for rows in (one, other))
        gradient = ((p * (1 - p)) @ one - (s * (1 - s)) @ other) / len(a)
        q.append(p.mean() - s.mean())
        u.append(gradient @ fit.cov_params().to_numpy() @ gradient)
    hand = rubin(q, u, pooled.df_complete)
    np.testing.assert_allclose((found.estimate[0], found.std_error[0], found.df[0]), hand, rtol=1e-8)
    assert found.names == ("difference of means",)
    nothing = pooled.expected(high, average=True, minus=high)
    assert (nothing.estimate[0], nothing.std_error[0]) == (0, 0)
    with pytest.raises(ValueError, match="it needs average=True"):
        pooled.expected(high, minus=low)


def test_the_hazard_of_nelson_and_aalen_is_that_of_statsmodels():
    rng = np.random.default_rng(0)
    time, died = np.ceil(10 * rng.exponential(size=60)), (rng.random(60) < 0.7).astype(float)
    known = sm.SurvfuncRight(time, died)
    times, hazard = known.surv_times, np.cumsum(known.n_events / known.n_risk)
    found = nelson_aalen(time, died)
    before = [np.append(0.0, hazard[times <= t]).max() for t in time]
    np.testing.assert_allclose(found, before, rtol=1e-8)
    holes = np.append(time, [np.nan, 5.0]), np.append(died, [1.0, np.nan])
    np.testing.assert_allclose(nelson_aalen(*holes)[:60], found)
    assert np.isnan(nelson_aalen(*holes)[60:]).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: pool("time ~ x", survival_tables(), model="phreg"),
            "does not state which rows have an event",
        ),
        (
            lambda: pool(FORMULA, survival_tables(), model="ols"),
            "is a Cox model, which model='ols' contradicts",
        ),
        (
            lambda: pool("Surv(time, g) ~ x", survival_tables()),
            "Column 'g' has .* events are 1, censored rows 0",
        ),
        (lambda: pool("Surv(when, died) ~ x", survival_tables()), "names the column 'when'"),
        (lambda: nelson_aalen([1, 2], [0, 2]), "event must be 0 or 1, got 2 in row 1"),
        (lambda: nelson_aalen([-1, 2], [0, 1]), "time must be finite and not negative, got -1 in row 0"),
        (lambda: nelson_aalen([1, 2], [0, 1, 1]), "columns of one table"),
    ],
)
def test_misuse_is_explained(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_rows_without_censoring_need_no_column_of_events():
    tables = [table.assign(died=1) for table in survival_tables()]
    one, other = pool("Surv(time) ~ x", tables), pool("Surv(time, died) ~ x", tables)
    np.testing.assert_allclose(one.estimate, other.estimate)


def test_pooled_ratios_are_pooled_on_the_log_scale():
    """Ratios of two tables by hand: the mean of logarithms, with their variance."""
    q, u = np.log([1.5, 2.0]), np.array([0.04, 0.05])
    found = pool_estimates(q, u).exponentiated()
    mean, error, df = rubin(q.tolist(), u.tolist())
    assert found.estimate[0] == pytest.approx(np.exp(mean))
    assert found.interval()[1][0] == pytest.approx(np.exp(mean + stats.t.ppf(0.975, df) * error))


def test_predictions_are_mean_log_hazard_ratios():
    tables = survival_tables()
    pooled, new = pool("Surv(time, died) ~ x + z", tables), tables[0].head(3)
    np.testing.assert_allclose(pooled.predict(new), new[["x", "z"]].to_numpy() @ pooled.estimate, rtol=1e-8)
