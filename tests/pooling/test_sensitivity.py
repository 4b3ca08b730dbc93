"""Sensitivity analyses against closed forms: shifts, tilts, log odds and a known tipping point."""

import json
import re
import warnings

import matplotlib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from pooling.oracles import rubin
from scipy import stats
from scipy.optimize import brentq
from scipy.special import expit, logit
from scipy.stats import t as student_t
from tolerances import FAILURE_RATE

import halfseen
from halfseen import GaussianImputer, MeanImputer
from halfseen.pooling.adjustment import AdjustedColumn, draw_candidates

matplotlib.use("agg")
NORMAL = GaussianImputer(margins="gaussian")


def sample_with_holes(n_rows=400, share=0.25, mean=0.5):
    rng = np.random.default_rng(0)
    X = rng.normal(mean, 2.0, size=(n_rows, 1))
    X[: int(share * n_rows)] = np.nan
    return X


def test_the_mean_shifts_by_the_missing_share_times_delta():
    X = sample_with_holes()
    found = halfseen.sensitivity(NORMAL, X, "x0", unit="column", deltas=[-2, 1.0, 3], mechanisms=[])
    np.testing.assert_allclose(found.delta, [-2, 0, 1, 3])
    np.testing.assert_allclose(found.estimate - found.at_mar[0], 0.25 * found.delta, atol=1e-12)
    in_sd = halfseen.sensitivity(NORMAL, X, "x0", deltas=[1.0], mechanisms=[])
    np.testing.assert_allclose(in_sd.estimate[1] - in_sd.estimate[0], 0.25 * np.nanstd(X, ddof=1))
    assert in_sd.name == "mean of x0"
    assert in_sd.reference is None  # a mean is not compared with 0 unless asked
    assert "is above 0" not in in_sd.conclusion


def test_the_tipping_point_is_where_the_interval_by_hand_reaches_the_reference():
    """Interval of a mean by Rubin's rules as a function of delta, solved for its end at 0."""
    X = sample_with_holes()
    found = halfseen.sensitivity(NORMAL, X, "x0", reference=0, mechanisms=[], random_state=3)
    draws = halfseen.multiple_imputation(X, NORMAL, random_state=3).draws[:, :, 0]
    scale = np.nanstd(X, ddof=1)

    def low(delta):
        moved = draws + delta * scale * np.isnan(X[:, 0])
        variances = moved.var(axis=1, ddof=1) / len(X)
        estimate, error, df = rubin(moved.mean(axis=1).tolist(), variances.tolist(), len(X) - 1)
        return estimate - student_t.ppf(0.975, df) * error

    assert low(0.0) > 0
    by_hand = brentq(low, -1, 0)
    assert found.tipping_point == pytest.approx(by_hand, abs=0.25 / 2**11)
    assert found.tipping_points == (found.tipping_point,)
    assert "the data show that the mean of x0 is above 0, but that changes" in found.conclusion
    assert "25% of the values of x0 are missing" in found.conclusion
    assert "cannot identify" in found.limit
    other = halfseen.sensitivity(NORMAL, X, "x0", mechanisms=[], reference=-5.0)
    assert other.tipping_point is None
    assert "stays so for all departures from -1 to 1 standard deviations" in other.conclusion


def test_a_tilt_of_a_normal_column_moves_its_mean_by_delta_standard_deviations():
    """3,000 imputed values: a standard error of 0.02 standard deviations, and a bias of 0.01."""
    X = sample_with_holes(2400)
    found = halfseen.sensitivity(NORMAL, X, "x0", method="tilt", deltas=[-0.5, 0.5], n_draws=5, mechanisms=[])
    moved = (found.estimate - np.nanmean(X)) / 0.25 / np.nanstd(X)
    np.testing.assert_allclose(moved, [-0.5, 0.0, 0.5], atol=0.08)
    assert found.unit == "units of tilt"


class KnownDistribution:
    """Draws every cell of a table with one column from a distribution; the parameters are known."""

    n_features_in_ = 1

    def __init__(self, distribution):
        self.distribution, self.rng = distribution, np.random.default_rng(0)

    def sample(self, X, n_draws=1):
        return self.distribution.rvs(size=(n_draws, len(X), 1), random_state=self.rng).astype(float)


@pytest.mark.parametrize("delta", [-0.8, 0.4])
@pytest.mark.parametrize(
    ("distribution", "tilted"),
    [
        (stats.norm(1, 2), lambda d: stats.norm(1 + 4 * d, 2)),
        (stats.gamma(3, scale=0.5), lambda d: stats.gamma(3, scale=1 / (2 - d))),
        (stats.poisson(2), lambda d: stats.poisson(2 * np.exp(d))),
        (stats.bernoulli(0.3), lambda d: stats.bernoulli(expit(logit(0.3) + d))),
    ],
    ids=["normal", "gamma", "poisson", "bernoulli"],
)
def test_tilted_draws_have_the_closed_form_of_their_exponential_family(distribution, tilted, delta):
    """2,000 rows with 400 candidates; the tilt is in units of half of the column, so that s counts."""
    X = np.full((2000, 1), np.nan)
    column = AdjustedColumn("x0", 0, np.arange(2000), 0.5)
    found = draw_candidates(KnownDistribution(distribution), X, 1, [column], 400, seed=1)
    values, expected = found.tables(delta / 2)[0][:, 0], tilted(delta)
    if isinstance(distribution.dist, stats.rv_continuous):
        assert stats.kstest(values, expected.cdf).pvalue > FAILURE_RATE
    else:
        counts = np.bincount(np.minimum(values, 7).astype(int), minlength=8)
        chances = expected.pmf(np.arange(8)) + expected.sf(7) * (np.arange(8) == 7)
        kept = chances > 0
        assert stats.chisquare(counts[kept], 2000 * chances[kept]).pvalue > FAILURE_RATE


def test_a_tilt_is_a_logistic_selection_model_with_any_dependence_on_covariates():
    """Given z, missing values are normal with a mean that is 0.6 larger.

    By Bayes' rule, the log odds of being missing rise by 0.6 per unit of the value, whatever they are as a
    function of z.
    """
    rng = np.random.default_rng(0)
    z = rng.normal(size=4000)
    missing = rng.random(4000) < expit(z**2 - 1)
    y = 0.8 * z + 0.6 * missing + rng.normal(size=4000)
    table = np.column_stack([z, np.where(missing, np.nan, y)])
    scale = y[~missing].std()
    found = halfseen.sensitivity(NORMAL, table, "x1", method="tilt", deltas=[0.6 * scale], n_draws=5)
    assert found.high[0] < y.mean()  # under MAR
    assert found.low[1] < y.mean() < found.high[1]
    slope = (found.estimate[1] - found.estimate[0]) / missing.mean()
    assert slope == pytest.approx(0.6, abs=0.05)  # delta sigma^2 / s, with sigma = 1 given z


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_delta_is_added_to_the_log_odds_of_a_level(make):
    """2,400 imputed values: a standard error of 0.01."""
    rng = np.random.default_rng(0)
    g = np.where(rng.random(2400) < 0.3, "yes", "no").tolist()
    table = make({"g": [None] * 600 + g[600:], "z": rng.normal(size=2400)})
    found = halfseen.sensitivity(MeanImputer(), table, "g=yes", deltas=[-1, 1], n_draws=4, reference=0.3)
    p = g[600:].count("yes") / 1800
    odds = p / (1 - p) * np.exp([-1, 0, 1])
    imputed = (found.estimate - 0.75 * p) / 0.25
    np.testing.assert_allclose(imputed, odds / (1 + odds), atol=0.04)
    assert (found.unit, found.name) == ("log odds", "share of g=yes")
    assert found.mechanisms == ()


def test_rows_that_are_not_moved_and_other_columns_stay_as_they_are():
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"a": rng.normal(size=60), "g": ["u", "v"] * 30}, index=range(100, 160))
    table.loc[100:120, "a"] = np.nan
    table.loc[115:130, "g"] = None
    tables = []

    def keep(one):
        tables.append(one)
        return one["a"].mean(), one["a"].var() / 60

    halfseen.sensitivity(None, table, keep, columns="g=v", deltas=[2.0], n_draws=2, n_candidates=5)
    for one in tables:
        assert list(one.index) == list(table.index)
        assert list(one.dtypes) == list(table.dtypes)
        assert one.notna().all(axis=None)
        pd.testing.assert_frame_equal(one.loc[131:], table.loc[131:])
        pd.testing.assert_series_equal(one.loc[121:, "a"], table.loc[121:, "a"])


def test_a_fitted_mechanism_stands_beside_with_its_departure():
    rng = np.random.default_rng(0)
    X = rng.multivariate_normal([5, 5], [[1, 0.6], [0.6, 1]], size=600)
    X[X[:, 1] > rng.normal(5, 0.7, size=600), 1] = np.nan  # large values are missing
    asked = {"reference": 5.0, "n_draws": 4, "deltas": [1.0], "mechanisms": ["self-masking-probit"]}
    found = halfseen.sensitivity(NORMAL, X, "x1", **asked)
    (fitted,) = found.mechanisms
    assert fitted.missingness == "self-masking-probit"
    assert found.at_mar[0] < fitted.estimate
    assert fitted.delta > 0.2
    frame = found.to_frame()
    assert list(frame["assumption"]) == ["mar", "shift", "self-masking-probit"]
    assert "includes 5" in frame
    json.dumps(found.to_dict(), allow_nan=False)
    axes = found.plot()
    assert axes.get_ylabel() == "mean of x1"
    assert re.search("self-masking-probit assumes .* does not depend on any other column", str(found))
    assert found.to_dict()["mechanisms"][0]["assumption"] == fitted.assumption
    matplotlib.pyplot.close(axes.figure)


def test_no_model_of_missingness_is_fitted_unless_it_is_asked_for():
    X = np.random.default_rng(0).multivariate_normal([5, 5], [[1, 0.6], [0.6, 1]], size=100)
    X[:30, 1] = np.nan
    found = halfseen.sensitivity(NORMAL, X, "x1", n_draws=2, deltas=[1.0])
    assert found.mechanisms == ()
    assert list(found.to_frame()["assumption"]) == ["mar", "shift"]


def test_an_analysis_of_any_kind_can_be_followed():
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    table = pd.DataFrame({"x": x, "y": 1 + x + rng.normal(size=200)})
    table.loc[:60, "x"] = np.nan
    common = {"columns": "x", "deltas": [1.0], "n_draws": 3, "mechanisms": []}
    assert halfseen.sensitivity(NORMAL, table, "y ~ x", **common).name == "x"
    intercept = halfseen.sensitivity(NORMAL, table, "y ~ x", coefficient="Intercept", **common)
    assert intercept.name == "Intercept"
    assert intercept.estimate[1] < intercept.estimate[0]


def test_an_analysis_that_the_imputer_knows_is_followed_without_a_warning():
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(2, 80))
    table = pd.DataFrame({"x": x, "z": z, "y": x + z + 0.5 * x * z + rng.normal(size=80)})
    table.loc[:20, "x"] = np.nan
    asked = {"columns": "x", "deltas": [1.0], "n_draws": 2, "coefficient": "x:z", "reference": None}
    known = halfseen.ChainedImputer(analysis="y ~ x * z")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert halfseen.sensitivity(known, table, "y ~ x * z", **asked).name == "x:z"
    with pytest.warns(halfseen.HalfseenWarning, match=r"The analysis has x \* z"):
        halfseen.sensitivity(halfseen.ChainedImputer(), table, "y ~ x * z", **asked)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"estimand": "w"}, "no column 'w'; the table has a, g, d, full"),
        ({"estimand": "g"}, "has 3 levels; name one, as in 'g=u'"),
        ({"estimand": "g=z"}, "no level 'z'"),
        ({"estimand": "full"}, "'full' has no missing values"),
        ({"estimand": "d"}, "'d' is datetime; only numbers and levels"),
        ({"estimand": "a ~ full"}, "State in columns"),
        ({"estimand": "a", "columns": []}, "columns is empty"),
        ({"estimand": "a", "columns": ["a", "g=u"]}, "cannot be moved together"),
        ({"estimand": "a", "method": "move"}, "method must be one of shift, tilt, got 'move'"),
        ({"estimand": "a", "unit": "m"}, "unit must be one of sd, column"),
        ({"estimand": "a", "deltas": [np.inf]}, "deltas must be finite numbers"),
        ({"estimand": "a", "n_draws": 1}, "n_draws"),
        ({"estimand": "a", "coefficient": "b"}, "no coefficient 'b'"),
        ({"estimand": "a", "mechanisms": ["self-masking"]}, "cannot fit 'self-masking'; it offers mar"),
    ],
)
def test_misuse_is_explained(arguments, message):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "a": rng.normal(size=60),
            "g": rng.choice(["u", "v", "w"], size=60),
            "d": pd.date_range("2026-01-01", periods=60, freq="D"),
            "full": rng.normal(size=60),
        }
    )
    table.loc[:20, ["a", "g"]] = None
    table.loc[15:25, "d"] = pd.NaT
    settings = {"n_draws": 2, "mechanisms": [], "deltas": [1.0]} | arguments
    with pytest.raises(ValueError, match=message):
        halfseen.sensitivity(NORMAL, table, **settings)
