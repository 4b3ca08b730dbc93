"""The page of a report: self-contained, escaped, and fit for a browser."""

import re
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report.browser import needs_browser, run_browser
from report.pages import assert_self_contained, check

from halfseen.report import svg
from halfseen.report.render import render
from halfseen.report.result import ImputationResult, RunInfo
from halfseen.report.summarize import summarize

HOSTILE = "<script>alert(1)</script>\"'&"


def summarized(table, filled, draws, low, high, schema, **more):
    """The summary of an imputation."""
    return summarize(
        ImputationResult(table=table, filled=filled, draws=draws, low=low, high=high, schema=schema, **more)
    )


def column(name, kind, levels=None):
    return SimpleNamespace(name=name, kind=kind, dtype="any", levels=levels, reason=f"{HOSTILE} reason")


def make_summary(name="x", n_rows=200, rate=0.3, **settings):
    generator = np.random.default_rng(0)
    levels = (HOSTILE, "plain", "a level with quite a long name")
    full = pa.table(
        {
            name: generator.normal(size=n_rows),
            f"{name} level": np.array(levels, dtype=object)[generator.integers(0, 3, n_rows)],
            f"{name} date": pa.array(generator.integers(0, 9000, n_rows), pa.int32()).cast(pa.date32()),
            f"{name} count": generator.integers(0, 9, n_rows),
            f"{name} few": generator.normal(size=n_rows),
            f"{name} empty": pa.nulls(n_rows, pa.string()),
        }
    )
    rates = (rate, rate, rate, rate, 3 / n_rows if rate else 0, 1.0)
    columns = []
    for values, share in zip(full.columns, rates, strict=True):
        holes = np.zeros(n_rows, dtype=bool)
        holes[generator.permutation(n_rows)[: round(share * n_rows)]] = True
        columns.append(pc.if_else(pa.array(holes), pa.scalar(None, values.type), values))
    table = pa.table(columns, names=full.column_names)
    kinds = ("continuous", "categorical", "datetime", "count", "continuous", "all-missing")
    schema = SimpleNamespace(
        columns=tuple(map(column, table.column_names, kinds, (None, levels, None, None, None, None)))
    )
    probabilities = {f"{name} level": np.full(n_rows, 1 / 3)}
    run = RunInfo(name, f"halfseen impute {HOSTILE}", notes=[HOSTILE], version="1.2")
    draws = [full] * 3
    return summarized(
        table,
        full,
        draws,
        full,
        full,
        schema,
        probabilities=probabilities,
        left={table.column_names[-1]: f"has no observed value {HOSTILE}"},
        **{"method": "gaussian", "run": run} | settings,
    )


def test_the_page_is_well_formed_and_asks_for_nothing():
    page = render(make_summary())
    assert_self_contained(page)


def test_hostile_names_are_text_and_nothing_else():
    page = render(make_summary(name=HOSTILE))
    checker = check(page)
    assert "script" not in checker.tags
    assert "<script" not in page
    assert not any(name.startswith("on") for name, _ in checker.attributes)
    assert "".join(checker.text).count("<script>alert(1)</script>") >= 10


@given(st.text(max_size=12))
def test_any_name_gives_a_well_formed_page(name):
    check(render(make_summary(name=name.replace("\0", ""), n_rows=20)))


def test_what_is_promised_is_there():
    text = " ".join(" ".join(check(render(make_summary(seed=7))).text).split())
    for words in (
        "200 rows \N{MULTIPLICATION SIGN} 6 columns",
        "seed 7",
        "missing at random",
        "Which columns are missing together",
        "Mean probability of the chosen level 33%",
        "90% interval, median width",
        "What was left empty",
        "In short",
        "Column by column",
        "better left empty",
        "Observed values are unchanged.",
        "halfseen impute",
    ):
        assert words in text


def test_equal_values_are_not_promised_after_a_time_limit_ended_the_fit():
    promise = "The\nsame file, version and seed give the same values."
    assert promise in render(make_summary())
    page = render(make_summary(time_limit_met=True))
    assert promise not in page
    assert "The time limit was reached while the model was fitted, so another run may give other" in page


def test_a_table_without_missing_values_has_a_short_page():
    table = pa.table({"x": [1.0, 2.0]})
    schema = SimpleNamespace(columns=(column("x", "continuous"),))
    page = render(summarized(table, table, [], None, None, schema, method="mean"))
    assert "No values were missing, so nothing was filled." in page
    assert "Imputed values" not in page
    check(page)


def test_a_wide_table_shows_the_emptiest_columns():
    n_columns = 90
    values = np.ones((30, n_columns))
    holes = np.arange(30)[:, None] < np.arange(n_columns)[None, :] % 29
    names = [f"column {place}" for place in range(n_columns)]
    full = pa.table({name: values[:, place] for place, name in enumerate(names)})
    table = pa.table(
        {name: pa.array(values[:, place], mask=holes[:, place]) for place, name in enumerate(names)}
    )
    schema = SimpleNamespace(columns=tuple(column(name, "continuous") for name in names))
    page = render(summarized(table, full, [], None, None, schema, method="mean"))
    assert "most\nmissing values are shown, of" in page
    assert len(page) < 2_000_000
    check(page)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1234567.8, "1,234,568"),
        (0.000123, "0.000123"),
        (-1.5, "\N{MINUS SIGN}1.5"),
        (1e20, "1.00e+20"),
        (5.0, "5"),
    ],
)
def test_numbers_are_written_for_people(value, text):
    assert svg.number(value) == text


def test_years_have_no_mark_for_thousands():
    rng = np.random.default_rng(0)
    known = {"year": rng.integers(1990, 2020, 80), "mass": rng.integers(3000, 6000, 80)}
    hidden = np.arange(80) < 20
    full = pa.table({name: pa.array(values.astype(float)) for name, values in known.items()})
    holes = {name: pa.array(values.astype(float), mask=hidden) for name, values in known.items()}
    schema = SimpleNamespace(columns=tuple(column(name, "count") for name in known))
    text = " ".join(
        check(render(summarized(pa.table(holes), full, [], None, None, schema, method="mean"))).text
    )
    assert re.search(r"\b2010\b", text)
    assert "2,010" not in text
    assert "4,000" in text


def test_a_pattern_and_its_number_of_rows_fit_on_a_phone():
    names = ["island", "bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g", "sex", "year"]
    rows = [
        {"count": 70, "share": 0.2, "missing": [False] * 7},
        {"count": 1, "share": 0.003, "missing": [True] * 7},
    ]
    drawn = svg.pattern_grid({"columns": names, "rows": rows})
    assert float(re.search(r'viewBox="0 0 (\d+)', drawn)[1]) < 340


def test_percentages_are_zero_or_all_only_when_they_are():
    shares = (0, 1e-9, 0.0123, 0.5, 0.999_999, 1)
    assert [svg.percent(share) for share in shares] == ["0%", "<0.1%", "1.2%", "50%", ">99.9%", "100%"]


@given(st.floats(-1e9, 1e9), st.floats(1e-3, 1e9))
def test_ticks_are_few_and_inside(low, span):
    ticks = svg.nice_ticks(low, low + span)
    assert len(ticks) <= 12
    assert all(low - 1e-6 * span <= tick <= low + span * (1 + 1e-6) for tick in ticks)


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("broken", [False, True])
def test_a_browser_finds_nothing_to_complain_of(tmp_path, broken):
    page = render(make_summary(name=HOSTILE))
    assert "default-src 'none'" in page  # so a request would be blocked, and the console would say so
    if broken:
        page = page.replace("</main>", '<img src="https://example.org/x.png"></main>')
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    done = run_browser(tmp_path, tmp_path / "report.html", "--dump-dom")
    assert done.returncode == 0, done.stderr
    assert ("CONSOLE" in done.stderr) == broken
    assert done.stdout.count('<article class="panel plot"') == 5
