"""Drift of missingness: rates, patterns, and what is new."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats
from tolerances import FAILURE_RATE

from halfseen.diagnosis.drift import compare_missingness, compare_rates
from halfseen.diagnosis.wording import difference_words
from halfseen.errors import SchemaError


def with_missing(seed, n_rows, rates):
    generator = np.random.default_rng(seed)
    frame = pd.DataFrame(generator.normal(size=(n_rows, len(rates))), columns=list("abcdef")[: len(rates)])
    return frame.mask(generator.random(frame.shape) < np.array(rates))


def test_rates_by_hand():
    here, there = with_missing(0, 500, [0.3, 0.1, 0.0]), with_missing(1, 400, [0.1, 0.1, 0.0])
    drift = compare_missingness(here, there)
    by_name = {change.column: change for change in drift.columns}
    assert drift.columns[0].column == "a"
    change = by_name["a"]
    assert (change.rate, change.reference_rate) == (here["a"].isna().mean(), there["a"].isna().mean())
    assert change.difference == pytest.approx(change.rate - change.reference_rate)
    assert 0 < change.low < change.difference < change.high
    counts = [[f["a"].isna().sum(), f["a"].notna().sum()] for f in (here, there)]
    assert change.p_value == pytest.approx(stats.chi2_contingency(counts, correction=False).pvalue)
    assert change.p_adjusted == pytest.approx(2 * change.p_value)  # c has nothing to test
    assert np.isnan(by_name["c"].p_value)
    assert by_name["c"].low < 0 < by_name["c"].high


def test_few_missing_values_are_tested_by_fisher():
    here, there = pd.DataFrame({"a": [None] * 3 + [1.0] * 20}), pd.DataFrame({"a": [1.0] * 40})
    [change] = compare_missingness(here, there).columns
    assert change.p_value == pytest.approx(stats.fisher_exact([[3, 20], [0, 40]]).pvalue)


def test_patterns_are_compared_and_new_ones_listed():
    here = pd.DataFrame({"a": [None, None, 1.0, 1.0] * 10, "b": [None, 2.0, 2.0, 2.0] * 10})
    there = pd.DataFrame({"a": [None, 1.0, 1.0, 1.0] * 10, "b": [2.0, 2.0, None, 2.0] * 10})
    drift = compare_missingness(here, there)
    # shares (both, a, b, none): here .25 .25 0 .5, there 0 .25 .25 .5
    assert drift.distance == pytest.approx(0.25)
    assert (drift.n_new_patterns, drift.n_new_rows, drift.n_gone_patterns) == (1, 10, 1)
    [new] = drift.new_patterns
    assert (new.missing, new.count, new.share) == (("a", "b"), 10, 0.25)
    twin = stats.chi2_contingency([[10, 10, 0, 20], [0, 10, 10, 20]], correction=False)
    assert drift.p_value == pytest.approx(twin.pvalue)
    assert drift.low < drift.effect < drift.high


def test_marginal_rates_may_agree_while_patterns_differ():
    together = pd.DataFrame({"a": [None] * 50 + [1.0] * 50, "b": [None] * 50 + [1.0] * 50})
    apart = pd.DataFrame({"a": [None] * 50 + [1.0] * 50, "b": [1.0] * 50 + [None] * 50})
    drift = compare_missingness(together, apart)
    assert all(change.p_value == pytest.approx(1.0) for change in drift.columns)
    assert drift.p_value < FAILURE_RATE
    assert drift.distance == pytest.approx(1.0)


def test_the_same_mechanism_raises_no_alarm_more_often_than_it_may():
    alarms = patterns = 0
    for seed in range(150):
        drift = compare_missingness(
            with_missing(seed, 300, [0.2] * 4), with_missing(10_000 + seed, 200, [0.2] * 4)
        )
        alarms += min(change.p_adjusted for change in drift.columns) < 0.05
        patterns += drift.p_value < 0.05
    for count in (alarms, patterns):
        assert stats.binom.sf(count - 1, 150, 0.06) > FAILURE_RATE


def test_columns_are_matched_by_name_and_libraries_may_differ():
    here = pd.DataFrame({"x": [1.0, None], "y": ["u", None], "mine": [1, 2]})
    there = pl.DataFrame({"y": ["u", "v"], "theirs": [1, 2], "x": [None, 1.0]})
    drift = compare_missingness(here, there)
    assert {change.column for change in drift.columns} == {"x", "y"}
    assert (drift.only_here, drift.only_in_reference) == (("mine",), ("theirs",))


def test_without_missing_values_there_is_one_pattern_and_no_test():
    frame = pd.DataFrame({"x": [1.0, 2.0]})
    drift = compare_missingness(frame, frame)
    assert drift.distance == 0
    assert np.isnan(drift.p_value)
    assert np.isnan(drift.effect)
    assert drift.new_patterns == ()


def test_tables_without_a_common_column_are_refused():
    with pytest.raises(SchemaError, match="no column in common"):
        compare_missingness(pd.DataFrame({"a": [1]}), pd.DataFrame({"b": [1]}))


def test_the_interval_of_a_difference_is_in_points_with_minus_signs():  # Newcombe's interval, by hand
    (change,) = compare_rates(["x"], [10], 40, [20], 40)
    assert (
        difference_words(change)
        == "95% interval of the difference \N{MINUS SIGN}43.3 to \N{MINUS SIGN}3.8 points"
    )
