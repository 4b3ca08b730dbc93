"""D1, D2 and D3 against the formulas of their articles, written out, and against complete data."""

import mpmath
import numpy as np
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from pooling.oracles import moment_df, rubin
from pooling.test_analyses import completed_tables
from scipy import stats

from halfseen.pooling import likelihood_ratio_test, pool, pool_chi_squares, pool_estimates

HAND = 1e-10


@pytest.mark.parametrize("n_draws", [2, 4])
def test_the_wald_test_is_d1_by_hand(n_draws):
    tables = completed_tables(n_draws)
    pooled = pool("y ~ x + z + C(g)", tables, df_complete=np.inf)
    names = ["C(g)[T.b]", "C(g)[T.c]"]
    fits = [smf.ols("y ~ x + z + C(g)", t).fit() for t in tables]
    q = np.array([f.params[names] for f in fits])
    u = sum(f.cov_params().loc[names, names].to_numpy() for f in fits) / n_draws
    b = (q - q.mean(0)).T @ (q - q.mean(0)) / (n_draws - 1)
    r = (1 + 1 / n_draws) * np.trace(b @ np.linalg.inv(u)) / 2
    statistic = q.mean(0) @ np.linalg.inv(u) @ q.mean(0) / (2 * (1 + r))
    test = pooled.wald_test(names)
    np.testing.assert_allclose(test.statistic, statistic, rtol=HAND)
    np.testing.assert_allclose(test.relative_increase, r, rtol=HAND)
    np.testing.assert_allclose(test.df_denominator, moment_df(2, n_draws, r), rtol=HAND)
    np.testing.assert_allclose(test.p_value, stats.f.sf(statistic, 2, moment_df(2, n_draws, r)), rtol=HAND)
    assert pooled.wald_test([*names, names[0]]) == test
    by_matrix = pooled.wald_test(matrix=np.eye(5)[[1, 2]])
    assert by_matrix.statistic == pytest.approx(test.statistic, rel=HAND)
    shifted = pooled.wald_test(names, value=q.mean(0))
    assert shifted.statistic == pytest.approx(0, abs=1e-20)
    assert pooled.wald_test().df_numerator == 4  # all but the intercept


def test_chi_squares_pool_to_d2_by_hand():
    d = np.array([7.0, 9.5, 12.0, 8.2, 10.1])
    m, k = 5, 3
    r = (1 + 1 / m) * sum((np.sqrt(d) - np.sqrt(d).mean()) ** 2) / (m - 1)
    statistic = (d.mean() / k - (m + 1) / (m - 1) * r) / (1 + r)
    freedom = k ** (-3 / m) * (m - 1) * (1 + 1 / r) ** 2
    test = pool_chi_squares(d, df=k)
    np.testing.assert_allclose((test.statistic, test.df_denominator), (statistic, freedom), rtol=HAND)
    np.testing.assert_allclose(test.p_value, stats.f.sf(statistic, k, freedom), rtol=HAND)


def test_the_likelihood_ratio_test_is_d3_by_hand():
    tables = completed_tables(5)
    full, null = pool("b ~ x + z", tables, model="logit"), pool("b ~ 1", tables, model="logit")

    def log_likelihood(beta, table, columns):
        eta = sm.add_constant(table[columns]).to_numpy() @ beta if columns else np.full(len(table), beta[0])
        return float((table["b"] * eta - np.logaddexp(0, eta)).sum())

    at_own, at_mean = [], []
    for fit, small, t in zip(full.fits, null.fits, tables, strict=True):
        a, b = fit.params.to_numpy(), small.params.to_numpy()
        at_own.append(2 * (log_likelihood(a, t, ["x", "z"]) - log_likelihood(b, t, [])))
        at_mean.append(
            2 * (log_likelihood(full.estimate, t, ["x", "z"]) - log_likelihood(null.estimate, t, []))
        )
    r = 6 / (2 * 4) * (np.mean(at_own) - np.mean(at_mean))
    test = likelihood_ratio_test(full.fits, null.fits)
    np.testing.assert_allclose(test.relative_increase, r, rtol=1e-8)
    np.testing.assert_allclose(test.statistic, np.mean(at_mean) / (2 * (1 + r)), rtol=HAND)
    np.testing.assert_allclose(test.df_denominator, moment_df(2, 5, r), rtol=1e-8)
    assert "D3: F(2, " in str(test)
    assert test.variant == "meng-rubin"


def test_the_variant_of_mice_estimates_the_intercept_again():
    tables = completed_tables(5)
    full, null = pool("b ~ x + z", tables, model="logit"), pool("b ~ x", tables, model="logit")

    def at_pooled_slopes(pooled):
        found = []
        for fit in pooled.fits:
            offset = fit.model.exog @ pooled.estimate
            again = sm.GLM(fit.model.endog, np.ones(len(offset)), sm.families.Binomial(), offset=offset)
            found.append(again.fit(tol=1e-12).llf)
        return np.mean(found)

    own = np.mean([2 * (a.llf - b.llf) for a, b in zip(full.fits, null.fits, strict=True)])
    pooled = 2 * (at_pooled_slopes(full) - at_pooled_slopes(null))
    r = 6 / 4 * (own - pooled)
    test = likelihood_ratio_test(full.fits, null.fits, variant="mice")
    np.testing.assert_allclose((test.relative_increase, test.statistic), (r, pooled / (1 + r)), rtol=1e-8)
    assert "variant: mice" in str(test)


def test_equal_tables_give_the_tests_of_complete_data():
    table = completed_tables(1)[0]
    full, null = pool("b ~ x + z", [table] * 3, model="logit"), pool("b ~ 1", [table] * 3, model="logit")
    ratio = 2 * (full.fits[0].llf - null.fits[0].llf)
    assert likelihood_ratio_test(full.fits, null.fits).statistic == pytest.approx(ratio / 2, rel=1e-8)
    wald = full.fits[0].wald_test("x = 0, z = 0", use_f=False, scalar=True)
    assert full.wald_test(["x", "z"]).statistic == pytest.approx(wald.statistic / 2, rel=1e-8)
    assert pool_chi_squares([ratio] * 3, df=2).statistic == pytest.approx(ratio / 2)


def reiter_df(k, m, r, df_complete):
    """Reiter's degrees of freedom, whose second-order terms are derivatives of the mean square.

    Given the relative increase R - 1 at infinitely many tables, the denominator is R times a scaled inverse
    chi-square with nu / R degrees of freedom. Its mean is proportional to g1, its mean square to g2.
    """
    t = k * (m - 1)
    a = mpmath.mpf(r) * t / (t - 2)
    nu = mpmath.mpf(df_complete) * (df_complete + 1) / (df_complete + 3)
    g1 = (1 + a) / (nu - 2 * (1 + a))
    curvature = mpmath.diff(lambda R: R**2 / ((nu - 2 * R) * (nu - 4 * R)), 1 + a, 2)
    return float(4 + 1 / (1 / (nu - 4 * (1 + a)) + a**2 / (t - 4) * curvature / g1**2 / 2))


@pytest.mark.parametrize(("k", "m", "spread", "df"), [(2, 5, 0.2, 30), (3, 20, 0.6, 75), (4, 10, 1.0, 400)])
def test_the_wald_test_has_the_degrees_of_freedom_of_reiter(k, m, spread, df):
    rng = np.random.default_rng(k)
    q = 1 + spread * rng.normal(size=(m, k))
    u = np.stack([np.cov(rng.normal(size=(k, 50))) for _ in range(m)])
    test = pool_estimates(q, u, df_complete=df).wald_test()
    within, between = u.mean(0), np.cov(q.T)
    r = (1 + 1 / m) * np.trace(between @ np.linalg.inv(within)) / k
    assert test.df_method == "reiter"
    np.testing.assert_allclose(test.df_denominator, reiter_df(k, m, r, df), rtol=1e-8)
    np.testing.assert_allclose(test.p_value, stats.f.sf(test.statistic, k, test.df_denominator), rtol=HAND)
    assert test.df_denominator <= df
    assert "degrees of freedom: reiter" in str(test)


def test_reiters_degrees_of_freedom_approach_the_classical_ones_and_those_of_complete_data():
    q = np.array([[1.0, 2.0], [1.3, 1.8], [0.9, 2.2], [1.1, 2.1]])
    u = np.stack([np.diag([0.3, 0.4])] * 4)
    classical = pool_estimates(q, u).wald_test()
    assert classical.df_method == "li-raghunathan-rubin"
    many = pool_estimates(q, u, df_complete=1e12).wald_test()
    assert many.df_method == "reiter"
    np.testing.assert_allclose(many.df_denominator, classical.df_denominator, rtol=1e-6)
    nothing_missing = pool_estimates(np.stack([q[0]] * 4), u, df_complete=30).wald_test()
    np.testing.assert_allclose(nothing_missing.df_denominator, 30 * 31 / 33, rtol=1e-8)


def test_one_coefficient_of_few_tables_has_the_degrees_of_freedom_of_its_interval():
    """Where Reiter's formula does not apply, the test of one coefficient is its t test."""
    pooled = pool_estimates([1.0, 1.4, 0.7], [0.2, 0.25, 0.22], df_complete=12)
    test = pooled.wald_test()
    assert test.df_method == "barnard-rubin"
    np.testing.assert_allclose(test.df_denominator, pooled.df[0], rtol=HAND)
    np.testing.assert_allclose(test.p_value, pooled.p_value[0], rtol=HAND)
    wide = pool_estimates(3 * np.random.default_rng(0).normal(size=(10, 2)), [np.eye(2)] * 10, df_complete=15)
    assert wide.wald_test().df_method == "barnard-rubin"  # with so little left, c2 is negative
    assert 0 < wide.wald_test().df_denominator < 15 * 16 / 18


def gaussian_log_likelihood(table, columns, beta, variance):
    design = sm.add_constant(table[columns]).to_numpy() if columns else np.ones((len(table), 1))
    return float(stats.norm.logpdf(table["y"], design @ beta, np.sqrt(variance)).sum())


def d3_by_hand(tables, columns, variant):
    """D3 of a linear model against the intercept alone, with everything by its formula."""
    m, n, k = len(tables), len(tables[0]), len(columns)
    own, at_mean = np.zeros(m), np.zeros(m)
    for sign, chosen in ((1, columns), (-1, [])):
        designs = [sm.add_constant(t[chosen]).to_numpy() if chosen else np.ones((n, 1)) for t in tables]
        betas = [np.linalg.lstsq(d, t["y"], rcond=None)[0] for d, t in zip(designs, tables, strict=True)]
        squares = [((t["y"] - d @ b) ** 2).mean() for t, d, b in zip(tables, designs, betas, strict=True)]
        mean = np.mean(betas, axis=0)
        for i, (t, d) in enumerate(zip(tables, designs, strict=True)):
            own[i] += 2 * sign * gaussian_log_likelihood(t, chosen, betas[i], squares[i])
            best, variance = mean.copy(), np.mean(squares)
            if variant == "mice":
                best[0] += (t["y"] - d @ mean).mean()
                variance = ((t["y"] - d @ best) ** 2).mean()
            at_mean[i] += 2 * sign * gaussian_log_likelihood(t, chosen, best, variance)
    r = (m + 1) / (k * (m - 1)) * (own.mean() - at_mean.mean())
    return at_mean.mean() / (k * (1 + r)), r, moment_df(k, m, r)


@pytest.mark.parametrize("variant", ["meng-rubin", "mice"])
@pytest.mark.parametrize("model", [smf.ols, smf.glm])
def test_d3_of_linear_models_is_that_of_the_article_or_of_mice(model, variant):
    tables = completed_tables(5)
    for i, table in enumerate(tables):
        table["y"] += 0.4 * np.random.default_rng(i).normal(size=len(table))  # so that the scales differ
    full, null = pool("y ~ x + z", tables, model=model), pool("y ~ 1", tables, model=model)
    test = likelihood_ratio_test(full.fits, null.fits, variant=variant)
    found = test.statistic, test.relative_increase, test.df_denominator
    np.testing.assert_allclose(found, d3_by_hand(tables, ["x", "z"], variant), rtol=1e-8)
    assert test.variant == variant
    assert f"variant: {variant}" in str(test)


def test_d3_of_gamma_models_pools_the_dispersion():
    tables = [t.assign(y=np.exp(t["y"])) for t in completed_tables(4)]

    def gamma(formula, table):
        return smf.glm(formula, table, family=sm.families.Gamma(sm.families.links.Log()))

    full, null = pool("y ~ x", tables, model=gamma), pool("y ~ 1", tables, model=gamma)

    def mean_log_likelihood(fits):
        beta, phi = np.mean([f.params for f in fits], axis=0), np.mean([f.scale for f in fits])
        found = []
        for fit in fits:
            mu = np.exp(fit.model.exog @ beta)
            found.append(stats.gamma.logpdf(fit.model.endog, 1 / phi, scale=mu * phi).sum())
        return np.mean(found)

    pooled = 2 * (mean_log_likelihood(full.fits) - mean_log_likelihood(null.fits))
    own = np.mean([2 * (a.llf - b.llf) for a, b in zip(full.fits, null.fits, strict=True)])
    r = 5 / 3 * (own - pooled)
    test = likelihood_ratio_test(full.fits, null.fits)
    np.testing.assert_allclose((test.relative_increase, test.statistic), (r, pooled / (1 + r)), rtol=1e-8)


def test_a_variant_that_is_not_offered_is_named():
    fits = pool("y ~ x", completed_tables()).fits
    with pytest.raises(ValueError, match="variant must be one of meng-rubin, mice, got 'best'"):
        likelihood_ratio_test(fits, fits, variant="best")


def test_cox_models_have_as_many_degrees_of_freedom_as_events_less_parameters():
    tables = completed_tables(4, n_rows=120)
    rng = np.random.default_rng(3)
    time, died = rng.exponential(size=120), (rng.random(120) < 0.3).astype(int)
    tables = [table.assign(time=time, died=died) for table in tables]
    fits = [smf.phreg("time ~ x + z", table, status="died").fit() for table in tables]
    pooled = pool("time ~ x + z", tables, model=lambda f, d: smf.phreg(f, d, status="died"))
    assert pooled.df_complete == died.sum() - 2
    for j in range(2):
        hand = rubin([f.params[j] for f in fits], [f.bse[j] ** 2 for f in fits], died.sum() - 2)
        found = pooled.estimate[j], pooled.std_error[j], pooled.df[j]
        np.testing.assert_allclose(found, hand, rtol=HAND)
    assert pooled.names == ("x", "z")
    assert pooled.wald_test().df_method == "reiter"
    null = pool("time ~ x", tables, model=lambda f, d: smf.phreg(f, d, status="died"))
    ours, mice = (likelihood_ratio_test(pooled.fits, null.fits, variant=v) for v in ("meng-rubin", "mice"))
    assert ours.statistic == mice.statistic  # there is no intercept
