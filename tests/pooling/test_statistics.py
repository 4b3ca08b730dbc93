"""Transformed estimates, correlations, R-squared, quantiles and the C-index, against hand computation."""

import math

import numpy as np
import pytest
import statsmodels.formula.api as smf
from pooling.oracles import rubin
from pooling.test_analyses import completed_tables
from scipy import stats
from sklearn.metrics import roc_auc_score

from halfseen.pooling import c_index, correlation, pool, pool_estimates, quantile, r_squared

HAND = 1e-10
WAYS = {
    "log": (math.log, math.exp, lambda q: 1 / q),
    "logit": (lambda q: math.log(q / (1 - q)), lambda z: 1 / (1 + math.exp(-z)), lambda q: 1 / q / (1 - q)),
    "fisher": (math.atanh, math.tanh, lambda q: 1 / (1 - q**2)),
    "fisher-root": (
        lambda q: math.atanh(math.sqrt(q)),
        lambda z: math.tanh(z) ** 2,
        lambda q: 1 / (2 * math.sqrt(q) * (1 - q)),
    ),
    "cloglog": (
        lambda q: math.log(-math.log(q)),
        lambda z: math.exp(-math.exp(z)),
        lambda q: 1 / (q * math.log(q)),
    ),
}


@pytest.mark.parametrize("name", WAYS)
def test_estimates_are_pooled_on_another_scale_and_mapped_back(name):
    there, back, slope = WAYS[name]
    q, u = [0.5, 0.62, 0.41, 0.55], [0.01, 0.012, 0.011, 0.009]
    z, error, df = rubin(
        [there(one) for one in q], [v * slope(one) ** 2 for one, v in zip(q, u, strict=True)], 40
    )
    half = stats.t.ppf(0.975, df) * error
    ends = sorted([back(z - half), back(z + half)])
    pooled = pool_estimates(q, u, df_complete=40, transform=name)
    low, high = pooled.interval()
    np.testing.assert_allclose([pooled.estimate[0], low[0], high[0]], [back(z), *ends], rtol=HAND)
    step = 1e-6
    delta = abs(back(z + step) - back(z - step)) / (2 * step) * error
    np.testing.assert_allclose(pooled.std_error, delta, rtol=1e-8)
    np.testing.assert_allclose(pooled.p_value, 2 * stats.t.sf(abs(z / error), df), rtol=HAND)
    np.testing.assert_allclose(pooled.on_scale.estimate, z, rtol=HAND)
    np.testing.assert_allclose(pooled.wald_test().statistic, (z / error) ** 2, rtol=HAND)
    assert f"on the scale {name}" in str(pooled)
    again = pool(list(zip(q, u, strict=True)), transform=name, df_complete=40)
    np.testing.assert_allclose(again.df, df, rtol=HAND)


def test_covariance_matrices_follow_by_the_delta_method():
    rng = np.random.default_rng(0)
    q = rng.uniform(0.5, 2.0, size=(4, 2))
    u = np.stack([np.cov(rng.normal(size=(2, 30))) / 30 for _ in range(4)])
    pooled = pool_estimates(q, u, transform="log", df_complete=28)
    scaled = np.stack([np.diag(1 / a) @ b @ np.diag(1 / a) for a, b in zip(q, u, strict=True)])
    twin = pool_estimates(np.log(q), scaled, df_complete=28)
    np.testing.assert_allclose(pooled.on_scale.covariance, twin.covariance, rtol=HAND)
    np.testing.assert_allclose(pooled.estimate, np.exp(np.log(q).mean(0)), rtol=HAND)


def test_correlations_are_pooled_by_fishers_z():
    tables = completed_tables()
    pooled = pool(lambda t: correlation(t["x"], t["y"]), tables)
    z = [math.atanh(stats.pearsonr(t["x"], t["y"]).statistic) for t in tables]
    mean, error, df = rubin(z, [1 / 77] * 4, 77)
    low, high = pooled.interval(0.9)
    half = stats.t.ppf(0.95, df) * error
    expected = np.tanh([mean, mean - half, mean + half])
    np.testing.assert_allclose([pooled.estimate[0], low[0], high[0]], expected, rtol=HAND)
    assert pooled.names == ("correlation",)


def test_r_squared_is_pooled_by_fishers_z_of_its_root():
    tables = completed_tables()
    fits = [smf.ols("y ~ x + z", t).fit() for t in tables]
    pooled = pool([r_squared(fit.rsquared, int(fit.nobs)) for fit in fits])
    z, error, df = rubin([math.atanh(math.sqrt(fit.rsquared)) for fit in fits], [1 / 77] * 4, 77)
    half = stats.t.ppf(0.975, df) * error
    low, high = pooled.interval()
    expected = np.tanh([z, z - half, z + half]) ** 2
    np.testing.assert_allclose([pooled.estimate[0], low[0], high[0]], expected, rtol=HAND)
    tiny = pool([r_squared(1e-4, 30), r_squared(2e-4, 30)])
    assert tiny.interval()[0][0] == 0.0  # an interval does not turn round below zero


def test_quantiles_have_the_variance_of_woodruff():
    x = np.sort(np.random.default_rng(0).normal(size=400))
    found = quantile(x, 0.25)
    half = 1.959963984540054 * math.sqrt(0.25 * 0.75 / 400)
    low, high = np.quantile(x, 0.25 - half), np.quantile(x, 0.25 + half)
    np.testing.assert_allclose(found.covariance[0], ((high - low) / (2 * 1.959963984540054)) ** 2, rtol=HAND)
    # the variance of a quantile of a normal distribution, p (1 - p) / (n f(q)^2), which Woodruff estimates
    limit = 0.25 * 0.75 / 400 / stats.norm.pdf(stats.norm.ppf(0.25)) ** 2
    assert found.covariance[0] == pytest.approx(limit, rel=0.5)
    pooled = pool(lambda t: quantile(t["x"], 0.5), completed_tables())
    assert pooled.estimate[0] == pytest.approx(np.mean([t["x"].median() for t in completed_tables()]))


def concordance_by_pairs(score, time, event):
    """Concordance and jackknife variance, one pair at a time."""

    def share(rows):
        good = total = 0.0
        for i in rows:
            for j in rows:
                if time[i] < time[j] and event[i]:
                    total += 1
                    good += 1.0 if score[i] < score[j] else 0.5 if score[i] == score[j] else 0.0
        return good / total

    rows = list(range(len(score)))
    left_out = np.array([share(rows[:i] + rows[i + 1 :]) for i in rows])
    n = len(rows)
    return share(rows), (n - 1) / n * ((left_out - left_out.mean()) ** 2).sum()


def test_the_c_index_counts_pairs_and_its_variance_is_that_of_the_jackknife():
    rng = np.random.default_rng(1)
    time = rng.exponential(size=60)
    score = np.round(time + rng.normal(size=60), 1)
    event = rng.random(60) < 0.7
    share, variance = concordance_by_pairs(score, time, event)
    found = c_index(score, time, event)
    np.testing.assert_allclose(found.estimate[0], math.log(share / (1 - share)), rtol=HAND)
    on_share = found.covariance[0] * (share * (1 - share)) ** 2
    np.testing.assert_allclose(on_share, variance, rtol=0.05)  # equal up to terms of higher order
    y = (rng.random(60) < 0.4).astype(int)
    area = roc_auc_score(y, score)
    np.testing.assert_allclose(c_index(score, y).estimate[0], math.log(area / (1 - area)), rtol=HAND)
    pooled = pool([c_index(score, y), c_index(score + 0.1 * rng.normal(size=60), y)])
    assert 0 < pooled.interval()[0][0] < pooled.estimate[0] < pooled.interval()[1][0] < 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pool_estimates([1.0, -2.0], [1.0, 1.0], transform="log"), "estimate 0 of table 1 is -2"),
        (
            lambda: pool_estimates([1.0, 2.0], [1.0, 1.0], transform="cube"),
            "transform must be one of log, log",
        ),
        (lambda: correlation([1, 2, 3, 4], [1, 2, 3, 4]), "Fisher's z is infinite"),
        (lambda: correlation([1, 1, 1, 1], [1, 2, 3, 4]), "does not vary"),
        (lambda: correlation([1, 2, 3, 4], [1, 2, 3, 4, 5]), "got 4 and 5 values"),
        (lambda: correlation([1, 2, 3, np.nan], [1, 2, 3, 4]), "x has the value nan in row 3"),
        (lambda: r_squared(1.2, 30), r"R-squared must be in \(0, 1\) to be pooled, got 1.2"),
        (lambda: r_squared(0.2, 3), "at least 4 rows"),
        (lambda: quantile([1.0, 2.0], 1.0), "p must be between 0 and 1"),
        (lambda: c_index([1.0, 2.0], [0, 0]), "No two rows"),
        (lambda: c_index([1.0, 2.0], [0, 1]), "The C-index is 1"),
        (lambda: c_index([1.0, 2.0], [0, 1, 1]), "have 2, 3 and 2 rows"),
        (
            lambda: pool([correlation([1, 2, 3, 5], [1, 3, 2, 4])] * 2, transform="log"),
            "already on the scale 'fisher'",
        ),
    ],
)
def test_misuse_is_explained(call, message):
    with pytest.raises(ValueError, match=message):
        call()
