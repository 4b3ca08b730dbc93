"""The summary behind a report: counts that can be checked by hand."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example as instance
from hypothesis import given
from hypothesis import strategies as st

from halfseen.report import fills, svg
from halfseen.report.result import ImputationResult, RunInfo, choose_cells
from halfseen.report.summarize import (
    MAX_BLOCKS,
    MAX_PATTERNS,
    summarize,
    summarize_blocks,
    summarize_patterns,
)


def summarized(table, filled, draws, low, high, schema, **more):
    """The summary of an imputation."""
    return summarize(
        ImputationResult(table=table, filled=filled, draws=draws, low=low, high=high, schema=schema, **more)
    )


def column(name, kind, levels=None):
    return SimpleNamespace(name=name, kind=kind, dtype="any", levels=levels, reason=f"{name} looks like it.")


def example(n_draws=4):
    table = pa.table(
        {
            "x": [1.0, None, 3.0, None, 5.0],
            "s": ["u", "v", None, "u", "u"],
            "when": pa.array([0, None, 2, 3, 4], pa.date32()),
            "full": [1, 2, 3, 4, 5],
            "empty": pa.nulls(5, pa.float64()),
        }
    )
    filled = table.set_column(0, "x", pa.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    filled = filled.set_column(1, "s", pa.array(["u", "v", "u", "u", "u"]))
    filled = filled.set_column(2, "when", pa.array([0, 1, 2, 3, 4], pa.date32()))
    draws = [
        filled.set_column(0, "x", pa.array([1.0, 2.0 + draw, 3.0, 4.0, 5.0])).set_column(
            1, "s", pa.array(["u", "v", "uv"[draw % 2], "u", "u"])
        )
        for draw in range(n_draws)
    ]
    ends = [
        filled.set_column(0, "x", pc.add(filled["x"], pc.if_else(table["x"].is_null(), side, 0.0)))
        for side in (-1.0, 1.0)
    ]
    kinds = ("continuous", "categorical", "datetime", "count", "all-missing")
    columns = tuple(map(column, table.column_names, kinds, (None, ("u", "v"), None, None, None)))
    return table, filled, draws, *ends, SimpleNamespace(columns=columns)


def test_counts_are_those_of_the_table():
    summary = summarized(*example(), method="gaussian", seed=3, run=RunInfo("a.csv", notes=["a note"]))
    assert (summary["n_rows"], summary["n_columns"], summary["n_cells"]) == (5, 5, 25)
    assert summary["n_missing"] == 2 + 1 + 1 + 5
    assert summary["n_left"] == 5
    assert summary["n_complete_rows"] == 0
    assert [one["n_missing"] for one in summary["columns"]] == [2, 1, 1, 0, 5]
    assert [fill["name"] for fill in summary["fills"]] == ["x", "s", "when"]
    assert summary["columns"][0]["reason"] == "x looks like it."


def test_columns_left_empty_are_listed_with_the_reason_and_not_compared():
    summary = summarized(*example(), left={"empty": "has no observed value", "x": "is not left at all"})
    assert summary["left"] == [{"name": "empty", "n_left": 5, "n_missing": 5, "why": "has no observed value"}]
    assert (summary["n_left_columns"], summary["n_filled_columns"]) == (1, 3)


def test_intervals_count_only_for_cells_that_are_filled():
    table, filled, draws, low, high, schema = example()
    some = pa.array([1.0, 2.0, 3.0, None, 5.0])
    tables = [one.set_column(0, "x", some) for one in (filled, *draws, low, high)]
    fill = summarized(table, tables[0], tables[1:-2], *tables[-2:], schema)["fills"][0]
    assert (fill["n_filled"], fill["n_missing"], fill["cells"]) == (1, 2, [[2.0, 2.0, 2.0]])


def test_the_summary_is_plain_data():
    probabilities = {"s": np.array([0.5, 0.5, 0.9, 0.5, 0.5])}
    summary = summarized(*example(), probabilities=probabilities)
    assert json.loads(json.dumps(summary)) == summary
    assert summary["fills"][1]["top_probability"] == pytest.approx(0.9)


def test_widths_are_relative_to_the_observed_spread():
    fill = summarized(*example())["fills"][0]
    assert fill["width"] == pytest.approx(2.0)
    assert fill["relative_width"] == pytest.approx(2.0 / np.std([1.0, 3.0, 5.0]))
    assert (fill["observed_mean"], fill["n_filled"]) == (3.0, 2)


def test_few_missing_cells_are_kept_one_by_one():
    fill = summarized(*example())["fills"][0]
    assert fill["cells"] == [[2.0, 1.0, 3.0], [4.0, 3.0, 5.0]]


def test_shares_of_levels_and_their_band_over_the_draws():
    fill = summarized(*example(n_draws=4))["fills"][1]
    assert fill["levels"] == ["u", "v"]
    assert fill["observed"] == [0.75, 0.25]
    assert fill["single"] == [1.0, 0.0]
    assert fill["imputed"] == [0.5, 0.5]
    assert fill["low"] == [0.0, 0.0]
    assert fill["high"] == [1.0, 1.0]


def test_a_summary_needs_neither_draws_nor_intervals():
    table, filled, _, _, _, schema = example()
    fill = summarized(table, filled, [], None, None, schema)["fills"][0]
    assert fill["imputed"] == fill["single"] == fill["low"] == fill["high"]
    assert "width" not in fill


def test_rare_levels_are_gathered():
    names = [f"level {place}" for place in range(30)]
    seen = pa.chunked_array([names * 2 + names[:5] * 20 + [None]])
    holes = pc.is_null(seen).to_numpy()
    full = pc.fill_null(seen, "level 29")
    fill = fills._compare_levels(tuple(names), seen, [full, full], holes)
    assert len(fill["levels"]) == fills.MAX_LEVELS + 1
    assert fill["levels"][-1] == "18 more levels"
    assert sum(fill["observed"]) == pytest.approx(1, abs=1e-4)
    assert fill["imputed"][-1] == 1.0


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50),
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50),
)
def test_bins_cover_what_they_show(observed, imputed):
    edges, clipped = fills.choose_edges(np.array(observed), np.array(imputed))
    assert np.all(np.diff(edges) > 0)
    assert len(edges) <= fills.MAX_BINS + 1
    if not clipped:
        assert edges[0] <= min(observed + imputed)
        assert edges[-1] >= max(observed + imputed)


FINITE = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=9)


@given(FINITE, FINITE, st.booleans())
@instance([-1.7e308], [1.7e308], False)
@instance([5e-324], [1e-323], False)
@instance([2.0**53], [2.0**53 + 2], False)
@instance([1e300], [1e300], False)
def test_bins_of_any_floats_are_apart_and_can_be_drawn(observed, imputed, time):
    edges, _ = fills.choose_edges(np.array(observed), np.array(imputed))
    assert np.all(np.isfinite(edges))
    assert np.all(np.diff(edges) > 0)
    assert 2 <= len(edges) <= fills.MAX_BINS + 1
    shares = [1.0] + [0.0] * (len(edges) - 2)
    same = dict.fromkeys(("observed", "imputed", "single", "low", "high"), shares)
    cells = [[imputed[0], min(observed), max(observed)]]
    for shown in ([], cells):
        fill = {"name": "x", "edges": edges.tolist(), "time": "date" if time else None, "cells": shown} | same
        assert not re.search(r"\b(nan|inf)\b", svg.histogram(fill))


@given(FINITE)
def test_moments_of_any_floats_are_finite(values):
    moments = fills._moments("observed", np.array(values))
    assert all(np.isfinite(value) for value in moments.values())
    assert min(values) <= moments["observed_mean"] <= max(values) or len(values) > 1


def test_dates_and_durations_of_every_unit_are_numbers_of_seconds():
    for unit, per_second in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        for dtype in (pa.timestamp(unit), pa.duration(unit)):
            stored = pa.array([3 * per_second, None], pa.int64()).view(dtype)
            numbers = fills.numbers_of(pa.chunked_array([stored]))
            np.testing.assert_allclose(numbers, [3.0, np.nan])
    days = pa.chunked_array([pa.array([2_932_896], pa.int32()).view(pa.date32())])  # 9999-12-31
    assert fills.numbers_of(days).tolist() == [2_932_896 * 86_400.0]


def test_whole_numbers_get_a_bin_each_and_outliers_do_not_squeeze_the_rest():
    edges, _ = fills.choose_edges(np.array([0.0, 3.0, 5.0]), np.array([2.0]))
    assert edges.tolist() == [-0.5, 0.5, 1.5, 2.5, 3.5, 4.5, 5.5]
    edges, _ = fills.choose_edges(np.arange(100.0), np.array([50.0]))
    assert set(np.diff(edges) % 1) == {0}
    assert (edges[0], len(edges) <= fills.MAX_BINS + 1) == (-0.5, True)
    far = np.append(np.linspace(0, 1, 999), 1e9)
    edges, clipped = fills.choose_edges(far, far)
    assert clipped
    assert edges[-1] < 2


# ---------------------------------------------------------------------------------- patterns and blocks


@pytest.mark.parametrize("n_columns", [3, 70])
def test_patterns_agree_with_counting_rows_one_by_one(n_columns):
    generator = np.random.default_rng(0)
    holes = generator.random((400, n_columns)) < 0.3
    holes[:, 3:] = False
    names = [f"c{place}" for place in range(n_columns)]
    patterns = summarize_patterns(holes, names)
    counts = {}
    for row in holes[:, :3].tolist():
        counts[tuple(row)] = counts.get(tuple(row), 0) + 1
    assert {tuple(row["missing"]): row["count"] for row in patterns["rows"]} == counts
    assert [row["count"] for row in patterns["rows"]] == sorted(counts.values(), reverse=True)
    assert patterns["columns"] == names[:3]


def test_rare_patterns_are_counted_together():
    generator = np.random.default_rng(0)
    holes = generator.random((500, 12)) < 0.5
    patterns = summarize_patterns(holes, [f"c{place}" for place in range(12)])
    assert len(patterns["rows"]) == MAX_PATTERNS
    assert sum(row["count"] for row in patterns["rows"]) + patterns["n_other"] == 500


def test_more_than_64_columns_may_have_missing_values():
    holes = np.eye(100, dtype=bool)
    patterns = summarize_patterns(holes, [f"c{place}" for place in range(100)])
    assert patterns["n_hidden_columns"] == 60
    assert patterns["n_patterns"] == 41


def test_blocks_contain_every_missing_cell():
    holes = np.zeros((1003, 2), dtype=bool)
    holes[500:, 1] = True
    blocks = summarize_blocks(holes, ["a", "b"])
    assert blocks["columns"] == ["b"]
    assert len(blocks["shares"][0]) == MAX_BLOCKS
    assert blocks["edges"][-1] == 1003
    weights = np.diff(blocks["edges"])
    assert np.dot(weights, blocks["shares"][0]) == pytest.approx(503, abs=1)


def test_the_summary_of_a_long_table_is_small():
    generator = np.random.default_rng(0)
    n_rows = 200_000
    values = generator.normal(size=(n_rows, 4))
    full = pa.table({f"x{place}": values[:, place] for place in range(4)})
    holes = generator.random((n_rows, 4)) < 0.2
    table = pa.table({f"x{place}": pa.array(values[:, place], mask=holes[:, place]) for place in range(4)})
    schema = SimpleNamespace(columns=tuple(column(name, "continuous") for name in table.column_names))
    summary = summarized(table, full, [full] * 3, full, full, schema)
    assert len(json.dumps(summary)) < 100_000


def test_long_labels_of_an_axis_do_not_overlap():
    edges = (2.0**53 + 2 * np.arange(9)).tolist()
    shares = dict.fromkeys(("observed", "imputed", "single", "low", "high"), [0.125] * 8)
    page = svg.histogram({"name": "x", "edges": edges, "time": None, "cells": []} | shares)
    places = [float(x) for x in re.findall(r'class="tick" x="([0-9.]+)"', page)]
    longest = max(map(len, re.findall(r'class="tick"[^>]*>([^<]+)<', page)))
    assert len(places) >= 1
    assert all(np.diff(places) >= 5 * longest)


def with_missing(n_rows=1000, seed=0):
    """A table whose numbers are missing in half of the rows, and whose levels in five."""
    rng = np.random.default_rng(seed)
    x, level = rng.normal(size=n_rows), np.array(["u", "v"])[rng.integers(0, 2, n_rows)]
    full = pa.table({"x": x, "s": level})
    few = np.isin(np.arange(n_rows), [3, 50, 51, 700, 999])
    holes = {"x": rng.random(n_rows) < 0.5, "s": few}
    table = pa.table({name: pa.array(full[name].to_numpy(), mask=holes[name]) for name in holes})
    schema = SimpleNamespace(
        columns=(column("x", "continuous", None), column("s", "categorical", ("u", "v"))),
    )
    return table, full, schema


def test_of_many_missing_cells_a_random_sample_is_shown_and_of_few_all():
    table, _, _ = with_missing()
    shown = choose_cells(table, seed=1, max_shown=40)
    assert {name: int(cells.sum()) for name, cells in shown.of_column.items()} == {"x": 40, "s": 5}
    assert len(shown.rows) <= 45
    assert (np.diff(shown.rows) > 0).all()
    some = shown.take(table)
    for name, cells in shown.of_column.items():
        assert some[name].is_null().to_numpy()[cells].all()
    assert not np.array_equal(choose_cells(table, seed=2, max_shown=40).rows, shown.rows)


def test_columns_share_the_rows_of_their_shown_cells():
    rng = np.random.default_rng(0)
    cells = np.where(rng.random((4000, 20)) < 0.25, np.nan, 1.0)
    shown = choose_cells(pa.table({f"x{j}": cells[:, j] for j in range(20)}), max_shown=50)
    assert all(cells.sum() == 50 for cells in shown.of_column.values())
    assert len(shown.rows) < 400  # about 200 rows have 50 missing cells of a column


def test_a_fill_is_compared_on_the_cells_that_are_shown():
    table, full, schema = with_missing()
    shown = choose_cells(table, max_shown=40)
    some = shown.take(full)
    x, s = summarized(table, full, [some] * 3, some, some, schema, shown=shown)["fills"]
    assert (x["n_missing"], x["n_shown"], s["n_shown"]) == (table["x"].null_count, 40, 5)
    cells = some["x"].to_numpy()[shown.of_column["x"]]
    np.testing.assert_allclose([x["imputed_mean"], x["imputed_sd"]], [cells.mean(), cells.std()])
    observed = table["x"].drop_null().to_numpy()
    np.testing.assert_allclose(x["observed_mean"], observed.mean())


def test_showing_all_cells_is_the_same_as_choosing_none():
    table, full, schema = with_missing()
    shown = choose_cells(table)
    some = shown.take(full)
    chosen = summarized(table, full, [some] * 3, some, some, schema, shown=shown)
    assert chosen == summarized(table, full, [full] * 3, full, full, schema)
