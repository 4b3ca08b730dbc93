"""Little's test: against a slow direct implementation, at its level, and with difficult covariances."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, chi2, kstest
from tolerances import FAILURE_RATE

from halfseen.diagnosis import little
from halfseen.diagnosis.little import little_test
from halfseen.errors import SchemaError

DIRECT = 1e-8


def em(x, n_iterations=20_000):
    """The textbook: one row at a time, until nothing changes."""
    n_rows, n_features = x.shape
    seen = ~np.isnan(x)
    loc, covariance = np.nanmean(x, axis=0), np.diag(np.nanvar(x, axis=0))
    for _ in range(n_iterations):
        completed, spread = np.where(seen, x, 0.0), np.zeros((n_features, n_features))
        for i in range(n_rows):
            o, m = np.flatnonzero(seen[i]), np.flatnonzero(~seen[i])
            weights = np.linalg.solve(covariance[np.ix_(o, o)], covariance[np.ix_(o, m)])
            completed[i, m] = loc[m] + (x[i, o] - loc[o]) @ weights
            spread[np.ix_(m, m)] += covariance[np.ix_(m, m)] - covariance[np.ix_(m, o)] @ weights
        new_loc = completed.mean(axis=0)
        new = ((completed - new_loc).T @ (completed - new_loc) + spread) / n_rows
        change = max(np.abs(new - covariance).max(), np.abs(new_loc - loc).max())
        loc, covariance = new_loc, new
        if change < 1e-14:
            break
    return loc, covariance


def direct(x):
    """The formula, one pattern at a time."""
    loc, covariance = em(x)
    patterns = {}
    for row in x:
        patterns.setdefault(tuple(np.flatnonzero(~np.isnan(row))), []).append(row)
    statistic, df = 0.0, -x.shape[1]
    for o, rows in patterns.items():
        o = list(o)
        deviation = np.mean([row[o] for row in rows], axis=0) - loc[o]
        statistic += len(rows) * deviation @ np.linalg.solve(covariance[np.ix_(o, o)], deviation)
        df += len(o)
    return statistic * (len(x) - 1) / len(x), df


def mcar(seed, n_rows=200, n_features=4, rate=0.15, draw=None):
    generator = np.random.default_rng(seed)
    z = generator.normal(size=(n_rows, n_features)) if draw is None else draw(generator, (n_rows, n_features))
    x = z @ generator.normal(size=(n_features, n_features)) + generator.normal(size=n_features) * 10
    x[generator.random(x.shape) < rate] = np.nan
    return x[~np.isnan(x).all(axis=1)]


@pytest.mark.parametrize("seed", range(4))
def test_it_equals_a_direct_implementation(seed):
    x = mcar(seed, n_rows=60, n_features=3)
    test = little_test(x)
    statistic, df = direct(x)
    assert test.df == df
    assert test.statistic == pytest.approx(statistic, rel=DIRECT)
    assert test.p_value == pytest.approx(chi2.sf(statistic, df), rel=1e-6)
    assert test.n_rows == len(x)


def test_two_patterns_by_hand():
    # With one column complete and one with missing values, d2 compares two means of the complete column.
    x = np.column_stack([[1.0, 2.0, 3.0, 4.0, 6.0, 8.0], [1.0, 3.0, 2.0, 4.0, np.nan, np.nan]])
    variance = x[:, 0].var()
    expected = 5 / 6 * (4 * (2.5 - 4.0) ** 2 + 2 * (7.0 - 4.0) ** 2) / variance
    test = little_test(x)
    assert test.df == 1
    assert test.statistic == pytest.approx(expected, rel=DIRECT)
    assert test.effect == pytest.approx(np.sqrt((expected - 1) / 6), rel=DIRECT)


def test_a_shift_of_the_mean_is_found_named_and_measured():
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({"a": generator.normal(size=4000), "b": generator.normal(size=4000)})
    frame.loc[3000:, "a"] += 0.8  # the rows that will miss b lie 0.8 above the others
    frame.loc[3000:, "b"] = np.nan
    test = little_test(frame)
    assert test.p_value < FAILURE_RATE
    assert (test.largest.column, test.largest.missing, test.largest.n_rows) == ("a", ("b",), 1000)
    spread = np.sqrt(1 + 0.8**2 * 0.25 * 0.75)
    assert test.largest.shift == pytest.approx(0.6 / spread, abs=0.1)
    assert test.effect == pytest.approx(np.sqrt(0.25 * 0.75) * 0.8 / spread, abs=0.05)


def test_the_effect_size_does_not_grow_with_the_rows_and_the_statistic_does():
    x = mcar(1, n_rows=300)
    x[x[:, 0] > np.nanmean(x[:, 0]), 1] = np.nan
    once, thrice = little_test(x), little_test(np.tile(x, (3, 1)))
    assert thrice.statistic > 2.9 * once.statistic
    assert thrice.effect == pytest.approx(once.effect, rel=0.2)


def test_units_and_the_order_of_columns_and_rows_do_not_matter():
    x = mcar(2, n_rows=100)
    test = little_test(x)
    order = np.random.default_rng(0).permutation(len(x))
    other = little_test((x * [1e3, 1e-3, 7.0, -1.0] + 5)[order][:, [2, 0, 3, 1]])
    assert other.df == test.df
    assert other.statistic == pytest.approx(test.statistic, rel=1e-6)


def test_levels_take_part_as_indicators():
    generator = np.random.default_rng(0)
    level = generator.choice(["u", "v", "w"], 600)
    x = generator.normal(size=600)
    x[(level == "v") & (generator.random(600) < 0.7)] = np.nan
    test = little_test(pd.DataFrame({"x": x, "level": level}))
    assert test.n_features == 3
    assert test.p_value_robust < FAILURE_RATE
    assert test.largest.column == "level"


def test_missing_values_of_columns_without_usable_values_make_patterns_too():
    generator = np.random.default_rng(0)
    x = generator.normal(size=500)
    note = np.where(x > 0.5, None, "asked")  # one value only: nothing to compare but its missingness
    assert little_test(pd.DataFrame({"x": x, "note": note})).p_value < FAILURE_RATE


@pytest.mark.parametrize("copies", [1, 3])
def test_columns_that_determine_each_other_count_once(copies):
    x = mcar(3, n_rows=300)
    alone = little_test(x)
    twins = np.column_stack([x, *[2 * x[:, :1] + 1] * copies])  # missing at the same places
    test = little_test(twins)
    assert test.df == alone.df
    assert test.statistic == pytest.approx(alone.statistic, rel=1e-6)
    assert f"{copies} of {4 + copies} features are determined by others" in test.notes[0]


def test_missing_values_of_a_determined_column_still_make_patterns():
    x = np.random.default_rng(0).normal(size=(400, 2))
    twin = np.where(x[:, 0] > 0.8, np.nan, x[:, 0])  # missingness depends on x, though the values add nothing
    assert little_test(np.column_stack([x, twin])).p_value < FAILURE_RATE


def test_low_power_is_reported_for_a_table_with_a_pattern_for_each_row():
    test = little_test(mcar(0, n_rows=50, n_features=8, rate=0.45))
    assert test.df > 0
    assert any("has little power" in note for note in test.notes)


@pytest.mark.slow
def test_the_test_keeps_its_level_on_tables_with_a_pattern_for_each_row():
    tests = [little_test(mcar(seed, n_rows=50, n_features=8, rate=0.45)) for seed in range(10)]
    rejected = sum(test.p_value < 0.05 for test in tests)
    assert binom.sf(rejected - 1, len(tests), 0.05) > FAILURE_RATE


REASONS = {
    "complete": (np.arange(20.0).reshape(10, 2), "same observed columns"),
    "nothing to compare": (
        pd.DataFrame({"a": ["one"] * 9 + [None], "b": ["two"] * 10}),
        "No column contains values",
    ),
    "too few rows": (
        np.where(np.eye(6) == 1, np.nan, np.random.default_rng(0).normal(size=(6, 6))),
        "too few",
    ),
    "no overlap": (
        np.array([[1.0, np.nan]] * 5 + [[np.nan, 1.0]] * 5) + np.arange(10)[:, None],
        "No column is observed in two patterns",
    ),
}


@pytest.mark.parametrize("case", REASONS)
def test_a_reason_is_given_where_no_test_can_be_made(case):
    table, reason = REASONS[case]
    test = little_test(table)
    assert reason in test.reason
    assert np.isnan(test.p_value)
    assert np.isnan(test.statistic)


def test_an_empty_table_is_refused():
    with pytest.raises(SchemaError, match="0 rows"):
        little_test(np.empty((0, 2)))
    with pytest.raises(SchemaError, match="two-dimensional"):
        little_test(np.zeros(3))


def test_a_row_without_anything_changes_the_statistic_by_the_factor_only():
    x = mcar(4, n_rows=100)
    test, more = little_test(x), little_test(np.vstack([x, np.full((1, 4), np.nan)]))
    factor = (len(x) / (len(x) + 1)) / ((len(x) - 1) / len(x))
    assert (more.df, more.n_rows) == (test.df, test.n_rows)
    assert more.statistic == pytest.approx(test.statistic * factor, rel=1e-6)


@pytest.mark.slow
def test_a_large_table_takes_the_covariance_from_a_part_and_keeps_its_level(monkeypatch):
    monkeypatch.setattr(little, "MAX_ROWS", 1000)
    tests = [little_test(mcar(seed, n_rows=8000, n_features=5, rate=0.2)) for seed in range(25)]
    assert "The covariance is estimated from 1,000 rows" in tests[0].notes[0]
    # A mean from 1,000 rows in place of all would make the statistic several times its degrees of freedom.
    assert kstest([test.p_value for test in tests], "uniform").pvalue > FAILURE_RATE
    assert np.mean([test.statistic / test.df for test in tests]) == pytest.approx(1.0, abs=0.1)


def test_of_very_many_patterns_the_most_frequent_are_compared(monkeypatch):
    monkeypatch.setattr(little, "MAX_ROWS", 500)
    monkeypatch.setattr(little, "MAX_DF", 60)
    test = little_test(mcar(0, n_rows=3000, n_features=6, rate=0.3))
    assert test.df <= 60
    assert "most frequent of" in test.notes[1]


def test_rare_levels_do_not_decide():
    generator = np.random.default_rng(0)
    for frequent in (["u", "v"], ["u", "v", "w"]):
        level = np.where(np.arange(3000) < 6, "rare", generator.choice(frequent, 3000))
        x = generator.normal(size=3000)
        x[:6] = np.nan  # every row with the rare level, and one in five of the others
        x[generator.random(3000) < 0.2] = np.nan
        test = little_test(pd.DataFrame({"x": x, "level": level}))
        assert test.n_features == len(frequent)
        assert test.p_value > FAILURE_RATE


def false_positives(n_tables, **settings):
    tests = [little_test(mcar(seed, **settings)) for seed in range(n_tables)]
    return tuple(np.mean([getattr(t, p) < 0.05 for t in tests]) for p in ("p_value", "p_value_robust"))


@pytest.mark.slow
def test_heavy_tails_raise_false_alarms_of_the_textbook_and_not_of_the_robust_one():
    n_tables = 80
    textbook, robust = false_positives(
        n_tables, n_rows=150, n_features=3, rate=0.2, draw=lambda g, shape: np.exp(1.5 * g.normal(size=shape))
    )
    assert binom.sf(round(robust * n_tables) - 1, n_tables, 0.06) > FAILURE_RATE
    assert textbook > robust


@pytest.mark.slow
def test_false_positives_are_5_percent_over_250_tables():
    """The share of 250 has a standard error of 1.4%: each of the four is outside once in 200 runs."""
    for rate in false_positives(250):
        assert rate == pytest.approx(0.05, abs=0.039)
    for rate in false_positives(250, n_rows=500, n_features=6, rate=0.1):
        assert rate == pytest.approx(0.05, abs=0.039)


@pytest.mark.slow
def test_the_robust_p_value_keeps_its_rate_on_heavy_tails_where_the_textbook_does_not():
    """300 log-normal MCAR tables: with a true rate of 5% the robust share is above 9% once in 600 runs."""
    rng = np.random.default_rng(0)
    textbook, robust = [], []
    for _ in range(300):
        x = np.exp(rng.normal(size=(300, 4)))
        test = little_test(np.where(rng.random(x.shape) < 0.2, np.nan, x))
        textbook.append(test.p_value < 0.05)
        robust.append(test.p_value_robust < 0.05)
    assert np.mean(robust) <= 0.09
    assert np.mean(textbook) > np.mean(robust)
