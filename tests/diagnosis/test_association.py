"""Associations of missingness: equal to scipy by pair, with intervals that cover, corrected for number."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import brentq
from tolerances import EXACT, FAILURE_RATE

from halfseen.diagnosis import association
from halfseen.diagnosis.association import associate, chi_squared, midranks
from halfseen.diagnosis.cells import Cells


@pytest.fixture(scope="module")
def table():
    generator = np.random.default_rng(0)
    n = 600
    frame = pd.DataFrame(
        {
            "x": generator.normal(size=n),
            "whole": generator.poisson(2.0, n).astype(float),
            "level": generator.choice(["u", "v", "w"], n, p=[0.5, 0.3, 0.2]),
            "grade": pd.Categorical(
                generator.choice(["low", "mid", "high"], n), ["low", "mid", "high"], ordered=True
            ),
            "when": pd.Timestamp("2020-01-01") + pd.to_timedelta(generator.integers(0, 900, n), unit="D"),
        }
    )
    frame.loc[generator.random(n) < 1 / (1 + np.exp(1.5 - frame["x"])), "whole"] = np.nan
    frame.loc[(frame["level"] == "v") & (generator.random(n) < 0.5), "x"] = np.nan
    frame.loc[generator.random(n) < 0.1, "level"] = None
    frame.loc[generator.random(n) < np.where(frame["level"].isna(), 0.6, 0.1), "when"] = pd.NaT
    return frame


@pytest.fixture(scope="module")
def pairs(table):
    found = associate(Cells.read(table)).pairs
    return {(pair.column, pair.other, pair.about): pair for pair in found}


@pytest.mark.parametrize("other", ["x", "whole", "grade", "when"])
def test_numbers_are_compared_as_by_mann_and_whitney(table, pairs, other):
    numbers = table[other].cat.codes.astype(float) if other == "grade" else table[other]
    for column in ("x", "whole", "level", "when"):
        if column == other:
            continue
        kept = table[other].notna()
        holes, values = (
            table[column].isna()[kept],
            numbers[kept].astype("int64" if other == "when" else float),
        )
        twin = stats.mannwhitneyu(values[holes], values[~holes], use_continuity=False, method="asymptotic")
        pair = pairs[column, other, "value"]
        n_holes, n_seen = int(holes.sum()), int((~holes).sum())
        assert pair.p_value == pytest.approx(twin.pvalue, rel=1e-9)
        assert pair.effect == pytest.approx(2 * twin.statistic / (n_holes * n_seen) - 1, abs=EXACT)
        assert (pair.n_rows, pair.n_missing) == (n_holes + n_seen, n_holes)
        assert pair.low < pair.effect < pair.high
        ranks = stats.rankdata(values)
        assert pair.strength == pytest.approx(abs(np.corrcoef(ranks, holes)[0, 1]), abs=1e-9)


def test_means_are_those_of_the_two_groups(table, pairs):
    pair = pairs["whole", "x", "value"]
    assert pair.when_missing == pytest.approx(table["x"][table["whole"].isna()].mean(), abs=EXACT)
    assert pair.when_seen == pytest.approx(table["x"][table["whole"].notna()].mean(), abs=EXACT)


def test_levels_are_compared_as_by_the_chi_squared_test(table, pairs):
    for column in ("x", "whole", "when"):
        kept = table["level"].notna()
        counts = pd.crosstab(table[column].isna()[kept], table["level"][kept])
        twin = stats.chi2_contingency(counts, correction=False)
        pair = pairs[column, "level", "value"]
        assert pair.p_value == pytest.approx(twin.pvalue, rel=1e-9)
        raw = stats.contingency.association(counts, method="cramer")
        assert 0 <= pair.effect <= raw
        n = counts.to_numpy().sum()
        assert pair.effect**2 == pytest.approx(max(0.0, (raw**2 - 2 / (n - 1)) / (1 - 1 / (n - 1))), abs=1e-9)
    assert pairs["x", "level", "value"].level == "v"
    assert pairs["x", "level", "value"].when_seen == pytest.approx(
        (table["level"][table["x"].notna() & table["level"].notna()] == "v").mean()
    )


def test_missing_values_are_compared_as_a_two_by_two_table(table, pairs):
    pair = pairs["when", "level", "missingness"]  # the column with more missing values comes first
    one, other = table["when"].isna(), table["level"].isna()
    counts = np.array([[np.sum(a & b) for b in (other, ~other)] for a in (one, ~one)])
    assert pair.p_value == pytest.approx(
        stats.chi2_contingency(counts, correction=False).pvalue
        if stats.contingency.expected_freq(counts).min() >= 5
        else stats.fisher_exact(counts).pvalue,
        rel=1e-9,
    )
    assert pair.strength == pytest.approx(abs(np.corrcoef(one, other)[0, 1]), abs=EXACT)
    assert pair.when_missing == pytest.approx(counts[0, 0] / counts[0].sum())
    assert ("level", "when", "missingness") not in pairs  # each pair once


def test_few_missing_values_are_tested_by_fisher():
    x = np.random.default_rng(0).normal(size=(50, 2))
    x[:3, 0] = x[:2, 1] = np.nan
    [pair] = associate(Cells.read(x)).pairs
    assert pair.about == "missingness"
    assert pair.p_value == pytest.approx(stats.fisher_exact([[2, 1], [0, 47]]).pvalue)
    assert 1 < pair.low < pair.effect < pair.high < np.inf


def test_all_kinds_of_pairs_are_there_and_sorted(table, pairs):
    found = associate(Cells.read(table))
    assert len(found.pairs) == 4 * 4 + 6 == len(pairs)
    order = [(pair.p_adjusted >= 0.05, -pair.strength) for pair in found.pairs]
    assert order == sorted(order)
    assert found.n_untested == 0
    assert {pair.column for pair in found.about("x")} >= {"whole", "level"}
    assert all(pair.p_adjusted < 0.05 for pair in found.clear)


def test_p_values_are_corrected_over_all_pairs(table, pairs):
    found = list(pairs.values())
    raw = [pair.p_value for pair in found]
    assert [pair.p_adjusted for pair in found] == pytest.approx(association.holm(raw), abs=EXACT)
    assert min(pair.p_adjusted / pair.p_value for pair in found if pair.p_value > 1e-300) >= 1


def test_groups_that_are_too_small_are_not_tested():
    x = np.random.default_rng(0).normal(size=(100, 2))
    x[: association.MIN_GROUP - 1, 0] = np.nan
    found = associate(Cells.read(x))
    assert found.pairs == ()
    assert found.n_untested == 1
    x[: association.MIN_GROUP, 0] = np.nan
    assert len(associate(Cells.read(x)).pairs) == 1


def test_false_alarms_over_all_pairs_are_at_most_5_percent():
    alarms, n_tables = 0, 60
    for seed in range(n_tables):
        generator = np.random.default_rng(seed)
        frame = pd.DataFrame(generator.normal(size=(200, 4)), columns=list("abcd"))
        frame["e"] = generator.choice(list("uvw"), 200)
        frame = frame.mask(generator.random(frame.shape) < 0.2)
        alarms += bool(associate(Cells.read(frame)).clear)
    assert stats.binom.sf(alarms - 1, n_tables, 0.06) > FAILURE_RATE


def test_a_wide_table_keeps_its_emptiest_columns_and_the_target(monkeypatch):
    monkeypatch.setattr(association, "MAX_INCOMPLETE", 2)
    monkeypatch.setattr(association, "MAX_OTHERS", 3)
    x = np.random.default_rng(0).normal(size=(100, 8))
    for j, n_holes in ((1, 10), (3, 30), (5, 20)):
        x[:n_holes, j] = np.nan
    found = associate(Cells.read(x), target="x7")
    assert {pair.column for pair in found.pairs} == {"x3", "x5"}
    assert {pair.other for pair in found.pairs if pair.about == "value"} <= {"x3", "x5", "x7"}
    assert found.n_left_out == 5


# ----------------------------------------------------------------------------------------------- pieces


@given(st.lists(st.integers(-3, 3), min_size=2, max_size=40))
def test_midranks_are_those_of_scipy(values):
    values = np.array(values, dtype=float)
    ranks, spread = midranks(values)
    assert ranks == pytest.approx(stats.rankdata(values))
    assert spread == pytest.approx(stats.tiecorrect(stats.rankdata(values)))


@given(st.lists(st.floats(0, 1), max_size=20))
def test_holm_is_the_step_down_of_bonferroni(p_values):
    adjusted = association.holm(p_values)
    order = np.argsort(p_values, kind="stable")
    running = 0.0
    for step, place in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - step) * p_values[place]))
        assert adjusted[place] == running


def test_rare_columns_of_a_table_are_counted_together():
    counts = np.array([[40, 30, 1, 2, 3], [60, 30, 2, 3, 4]])
    statistic, df, n_rows = chi_squared(counts)
    together = np.column_stack([counts[:, :2], counts[:, 2:].sum(axis=1)])
    twin = stats.chi2_contingency(together, correction=False)
    assert (statistic, df, n_rows) == (pytest.approx(twin.statistic), 2, 175)
    assert chi_squared(np.array([[40, 1], [60, 0]])) is None
    assert chi_squared(np.array([[4, 0], [60, 50]])) is None
    assert chi_squared(np.array([[40, 30, 1], [60, 30, 0]]))[1] == 1  # a rest of one joins its neighbour


@pytest.mark.parametrize(("statistic", "df"), [(30.0, 3), (5.0, 1), (200.0, 8), (9500.0, 4)])
def test_the_interval_of_cramers_v_inverts_the_noncentral_distribution(statistic, df):
    low, high = association.cramers_v_interval(statistic, df, 20_000)
    for end, tail in ((low, 0.975), (high, 0.025)):
        root = 0.0
        if stats.chi2.cdf(statistic, df) > tail:
            root = brentq(
                lambda nc, tail=tail: stats.ncx2.cdf(statistic, df, nc) - tail, 1e-9, 2 * statistic + 99
            )
        assert float(end) == pytest.approx(np.sqrt(root / 20_000), rel=1e-5)


def test_the_interval_of_cramers_v_is_continuous_where_the_formula_changes():
    limit = association.LARGE_NONCENTRALITY
    below, above = (association.cramers_v_interval(limit + step, 5.0, 1e5) for step in (-1e-6, 1e-6))
    assert np.array(below) == pytest.approx(np.array(above), rel=2e-4)


def test_an_interval_of_cramers_v_starts_at_zero_and_is_never_empty():
    low, high = association.cramers_v_interval(np.array([0.0, 0.5, 9.0]), 10.0, 500)
    assert (low == 0).all()
    assert (high > 0).all()


@pytest.mark.parametrize("shift", [0.0, 0.8, 2.0])
def test_intervals_of_the_rank_biserial_correlation_cover(shift):
    generator = np.random.default_rng(0)
    truth = 2 * stats.norm.cdf(shift / np.sqrt(2)) - 1
    n_tables, covered = 400, 0
    for _ in range(n_tables):
        one, other = generator.normal(shift, size=20), generator.normal(size=60)
        auc = stats.mannwhitneyu(one, other).statistic / 1200
        low, high = association.auc_interval(auc, 20, 60)
        covered += 2 * low - 1 <= truth <= 2 * high - 1
    assert stats.binom.cdf(covered, n_tables, 0.94) > FAILURE_RATE


def test_an_interval_of_the_auc_is_symmetric_inside_and_not_empty_at_its_ends():
    low, high = association.auc_interval(np.array([0.3, 0.7, 0.0, 1.0]), 15, 40)
    assert low[:2] == pytest.approx(1 - high[[1, 0]], abs=EXACT)
    assert (low >= 0).all()
    assert (high <= 1).all()
    assert high[2] > 0.05
    assert low[3] < 0.95


def test_odds_ratios_are_those_of_scipy():
    twin = stats.contingency.odds_ratio([[30, 20], [10, 50]], kind="sample")
    interval = twin.confidence_interval(0.95)
    assert [float(one) for one in association.odds_ratio(30, 20, 10, 50)] == pytest.approx(
        [twin.statistic, interval.low, interval.high]
    )
    assert np.isfinite(association.odds_ratio(30, 0, 0, 50)).all()
