"""The check behind the verdicts: known values are hidden, filled and compared with what they were."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from halfseen.report.fills import (
    HIDDEN_CELLS,
    MAX_CHECKED_ROWS,
    MIN_CELLS,
    check_fill,
    check_known_values,
    choose_rows,
)

KINDS = {"x": "continuous", "level": "categorical"}


@pytest.fixture(scope="module")
def table():
    generator = np.random.default_rng(0)
    x = generator.normal(3, 2, size=600)
    level = np.array(["low", "high"], dtype=object)[(x + generator.normal(size=600) > 4).astype(int)]
    empty = generator.random((600, 2)) < 0.2
    columns = [pa.array(x, mask=empty[:, 0]), pa.array(level, mask=empty[:, 1]), pa.array(np.arange(600.0))]
    return pa.table(columns, names=["x", "level", "complete"])


def fill_with(x, level):
    """Returns a filler by two functions of the shown table, and keeps what it was shown."""
    seen = []

    def fill(shown):
        seen.append(shown)
        columns = [
            pc.if_else(shown["x"].is_null(), x(shown), shown["x"]),
            pc.if_else(shown["level"].is_null(), level(shown), shown["level"]),
            shown["complete"],
        ]
        return pa.table(columns, names=shown.column_names), None, None

    return fill, seen


def test_the_mean_and_the_most_frequent_level_have_no_skill(table):
    fill, _ = fill_with(lambda t: pc.mean(t["x"]), lambda t: "low")  # low is the more frequent level
    check = check_fill(table, KINDS, fill, refitted=True)
    assert check.columns["x"].skill == pytest.approx(0, abs=1e-12)
    assert check.columns["level"].skill == pytest.approx(0, abs=1e-12)
    assert check.columns["x"].value == check.columns["x"].baseline


def test_the_truth_has_all_the_skill(table):
    fill, _ = fill_with(lambda t: table["x"], lambda t: table["level"])
    check = check_fill(table, KINDS, fill, refitted=True)
    assert check.columns["x"].skill == check.columns["x"].skill_low == 1
    assert (check.columns["level"].value, check.columns["level"].skill) == (1, 1)


def test_the_numbers_are_those_of_the_hidden_cells(table):
    generator = np.random.default_rng(1)
    guess = generator.normal(3, 2, size=600)
    fill, seen = fill_with(lambda t: pa.array(guess), lambda t: "low")
    check = check_fill(table, KINDS, fill, refitted=True)
    shown, truth = (t["x"].to_numpy(zero_copy_only=False) for t in (seen[0], table))
    hidden = np.isnan(shown) & ~np.isnan(truth)
    mean, sd = np.nanmean(shown), np.nanstd(shown)
    error, baseline = (guess - truth)[hidden], (mean - truth)[hidden]
    one = check.columns["x"]
    assert one.n_cells == hidden.sum() == HIDDEN_CELLS
    assert one.value == pytest.approx(np.sqrt(np.mean(error**2)) / sd)
    assert one.baseline == pytest.approx(np.sqrt(np.mean(baseline**2)) / sd)
    assert one.skill == pytest.approx(1 - np.sum(error**2) / np.sum(baseline**2))


def test_only_known_values_of_the_named_columns_are_hidden(table):
    fill, seen = fill_with(lambda t: 0.0, lambda t: "low")
    check_fill(table, {"x": "continuous"}, fill, refitted=True)
    shown = seen[0]
    assert shown["level"].equals(table["level"])
    assert shown["complete"].equals(table["complete"])
    assert shown["x"].null_count == table["x"].null_count + HIDDEN_CELLS


def test_the_interval_of_the_skill_covers_it():
    """The lower limit exceeds the known skill in about 2.5% of checks.

    With 100 hidden values the approximation gives 3.5%, so more than 17 of 200 have a probability < 0.001.
    """
    generator = np.random.default_rng(0)
    too_high = 0
    for seed in range(200):
        x = generator.normal(size=400)
        noise = 0.6 * generator.normal(size=400)
        table = pa.table({"x": x})

        def fill(shown, x=x, noise=noise):
            return pa.table({"x": np.where(shown["x"].is_null(), x + noise, x)}), None, None

        check = check_fill(table, {"x": "continuous"}, fill, refitted=True, seed=seed)
        too_high += check.columns["x"].skill_low > 1 - 0.36
    assert too_high <= 17


def test_few_known_values_are_not_judged():
    table = pa.table({"x": [*np.arange(MIN_CELLS / 0.3 - 2), None]})
    fill = lambda shown: (table, None, None)  # noqa: E731
    assert check_fill(table, {"x": "continuous"}, fill, refitted=True).columns == {}


def test_a_column_without_spread_is_not_judged():
    table = pa.table({"x": [1.0] * 99, "level": ["a"] * 99})
    fill = lambda shown: (table, table, table)  # noqa: E731
    assert check_fill(table, KINDS, fill, refitted=True).columns == {}


def test_large_tables_are_thinned():
    rows = choose_rows(pa.table({"x": np.arange(10_000.0)}), seed=3)
    assert rows.num_rows == MAX_CHECKED_ROWS
    assert (np.diff(rows["x"].to_numpy()) > 0).all()
    assert choose_rows(pa.table({"x": [1.0, 2.0]})).num_rows == 2


class Recorder:
    """An imputer that fills with means and counts how often it is fitted."""

    n_fits = 0

    def fit(self, table):
        Recorder.n_fits += 1
        return self

    def transform(self, table):
        mean = pc.mean(table["x"])
        return pa.table({"x": pc.fill_null(table["x"], mean), "level": pc.fill_null(table["level"], "low")})

    def interval(self, table, level):
        return pa.table({"x": np.full(table.num_rows, -1e9)}), pa.table({"x": np.full(table.num_rows, 1e9)})


@pytest.mark.parametrize("refitted", [True, False])
def test_a_method_that_is_not_built_again_is_not_fitted_again(table, refitted):
    columns = [type("Column", (), {"name": name, "kind": kind}) for name, kind in KINDS.items()]
    Recorder.n_fits = 0
    given = []

    def build(settings):
        given.append(settings)
        return Recorder()

    check = check_known_values(table.drop(["complete"]), columns, build if refitted else None, Recorder())
    assert check.refitted is refitted
    assert Recorder.n_fits == refitted
    assert check.covered == 1
    assert given == ([{"x": {"kind": "continuous"}, "level": {"kind": "categorical"}}] if refitted else [])


def test_a_method_that_cannot_be_fitted_gives_no_check(table):
    def build(settings):
        raise ValueError("too little")

    columns = [type("Column", (), {"name": "x", "kind": "continuous"})]
    assert check_known_values(table, columns, build) is None
