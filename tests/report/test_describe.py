"""The page of a diagnosis: self-contained, escaped, small, and careful in what it says."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from report.browser import needs_browser, run_browser
from report.pages import assert_self_contained, check

import halfseen
from halfseen.diagnosis import predictability
from halfseen.diagnosis.association import Association
from halfseen.report.describe import explain_missingness, render_diagnosis, summarize_diagnosis
from halfseen.report.describe_svg import drift_curve, heat_map, log_ratio, mark, shade_of, squeeze
from halfseen.report.result import RunInfo
from halfseen.words import share_words

HOSTILE = "<script>alert(1)</script>\"'&"
CURVE = halfseen.evaluation.vsp_curve(lambda X: np.nan_to_num(X).sum(axis=1), np.ones((20, 5)), n_draws=2)
MODEL = {"class": "SomeRegressor", "followed": f"the probability of {HOSTILE}", **CURVE.to_dict()}


def words_of(page):
    return " ".join(" ".join(check(page).text).split())


@pytest.fixture(scope="module")
def frame():
    generator = np.random.default_rng(0)
    n = 400
    name = HOSTILE
    frame = pd.DataFrame(
        {
            f"{name} x": generator.normal(size=n),
            f"{name} level": generator.choice([HOSTILE, "plain", "a level with quite a long name"], n),
            f"{name} y": generator.normal(size=n),
            f"{name} twin": generator.normal(size=n),
            f"{name} few": generator.normal(size=n),
            "full": np.arange(n) % 7,
        }
    )
    frame.loc[frame[f"{name} x"] > 0.3, [f"{name} y", f"{name} twin"]] = np.nan
    frame.loc[generator.random(n) < 0.2, f"{name} level"] = None
    frame.loc[:2, f"{name} few"] = np.nan
    return frame


@pytest.fixture(scope="module")
def summary(frame):
    diagnosis = halfseen.describe(frame, target=f"{HOSTILE} x", against=frame.iloc[:300])
    return summarize_diagnosis(
        diagnosis, reference=HOSTILE, model=MODEL,
        run=RunInfo(HOSTILE, f"halfseen describe {HOSTILE}", 1.0, [HOSTILE], "1.2"),
    )  # fmt: skip


@pytest.fixture(scope="module")
def page(summary):
    return render_diagnosis(summary)


def test_the_page_is_well_formed_and_asks_for_nothing(page):
    assert_self_contained(page)


def test_hostile_names_are_text_and_nothing_else(page):
    checker = check(page)
    assert "<script" not in page
    assert not any(name.startswith("on") for name, _ in checker.attributes)
    assert "".join(checker.text).count("<script>alert(1)</script>") >= 10


def test_what_is_promised_is_there(page):
    text = words_of(page)
    for words in (
        "In short",
        "Column by column",
        "Findings",
        "There is evidence against MCAR",
        "Which columns are missing together",
        "Is the missingness monotone?",
        "Missingness (rows) and values (columns)",
        "The target,",
        "The strongest associations with values",
        "Little's test",
        "degrees of freedom",
        "Effect size",
        "Can the missingness be predicted?",
        "not tested: fewer than 20 missing values",
        "Drift of missingness",
        "Rates by column",
        "cannot be tested from these data alone",
        "halfseen describe",
        "Always missing together",
    ):
        assert words in text, words


def test_the_page_never_claims_that_mcar_holds(page):
    complete = halfseen.describe(np.random.default_rng(0).normal(size=(100, 3)))
    random = np.random.default_rng(0).normal(size=(200, 3))
    random[np.random.default_rng(1).random(random.shape) < 0.2] = np.nan
    others = [render_diagnosis(summarize_diagnosis(one)) for one in (complete, halfseen.describe(random))]
    for text in map(words_of, (page, *others)):
        assert not re.search(r"MCAR (holds|is true|is confirmed)|is MCAR|are MCAR", text)
    assert "No evidence against MCAR. That is not evidence for it." in words_of(others[1])


def test_the_summary_is_plain(summary):
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_a_table_without_missing_values_has_a_short_page():
    page = render_diagnosis(summarize_diagnosis(halfseen.describe(np.arange(12.0).reshape(6, 2))))
    text = words_of(page)
    assert "Nothing is missing." in text
    assert "Tests" not in text
    assert "Drift" not in text


ODD = {
    "one column": np.array([[1.0], [np.nan], [2.0]]),
    "all missing": np.full((3, 2), np.nan),
    "one row": np.array([[1.0, np.nan]]),
    "constant": np.array([[1.0, 2.0], [1.0, np.nan]] * 9),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_tables_have_pages(case):
    diagnosis = halfseen.describe(ODD[case], against=ODD[case])
    text = words_of(render_diagnosis(summarize_diagnosis(diagnosis)))
    assert not re.search(r"\b(nan|None)\b", text)


def test_a_wide_table_stays_small(monkeypatch):
    monkeypatch.setattr(predictability, "MAX_COLUMNS", 3)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(90, 70))
    x[generator.random(x.shape) < generator.uniform(0.02, 0.4, 70)] = np.nan
    diagnosis = halfseen.describe(x)
    page = render_diagnosis(summarize_diagnosis(diagnosis))
    assert len(page) < 3_000_000
    assert "emptiest of" in page
    assert "columns with fewer missing values are left" in words_of(page)
    assert "were not looked at" not in page or diagnosis.associations.n_left_out


# ---------------------------------------------------------------------------------------------- pictures


def test_the_heat_map_is_drawn_from_its_cells():
    cell = {"strength": 0.25, "clear": True, "words": HOSTILE}
    grid = {"rows": ["a"], "columns": ["b", "c", "d"], "cells": [[cell, {**cell, "clear": False}, None]]}
    picture = heat_map(grid, HOSTILE)
    assert picture.count("<rect") == 3
    assert f'opacity="{shade_of(0.25):.2f}"' in picture
    assert picture.count('class="untested"') == picture.count('class="seen"') == 1
    assert "<script" not in picture
    assert shade_of(0.0) < shade_of(0.1) < shade_of(1.0) == 1.0


def test_marks_stay_on_their_axis():
    settings = {"ends": (-1.0, 1.0), "zero": 0.0, "words": HOSTILE}
    picture = mark(5.0, -9.0, 9.0, **settings, clear=True)
    numbers = [float(x) for x in re.findall(r'(?:cx|x1|x2)="([-\d.]+)"', picture)]
    assert all(0 <= x <= 150 for x in numbers)
    assert "far" in picture
    assert "near" in mark(0.0, -0.1, 0.1, **settings, clear=False)
    assert [round(log_ratio(one), 6) for one in (1e-3, 1, 1e3)] == [-1, 0, 1]


def test_long_names_keep_their_ends():
    names = [squeeze(f"a.column.with.a.very.long.name.{number}") for number in range(3)]
    assert len(set(names)) == 3
    assert all(len(name) == 24 for name in names)
    assert squeeze("short") == "short"


@pytest.mark.slow
@needs_browser
def test_a_browser_finds_nothing_to_complain_of(tmp_path, page):
    assert "default-src 'none'" in page  # so a request would be blocked, and the console would say so
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    done = run_browser(tmp_path, tmp_path / "report.html", "--dump-dom")
    assert done.returncode == 0, done.stderr
    assert "CONSOLE" not in done.stderr
    assert 'id="drift"' in done.stdout


def test_the_drift_of_a_model_is_one_sentence_and_a_picture(page, summary):
    words = words_of(page)
    assert "The mean prediction rises when more values of the same rows become known" in words
    assert "with 10% of the known values, the mean prediction is 1, with all of them 5" in words
    assert f"SomeRegressor: mean of the probability of {HOSTILE}" in words
    assert page.count('class="curve"') == 1
    assert 'class="curve"' not in render_diagnosis(summary | {"model": None})


def test_a_curve_without_any_drift_has_an_axis():
    flat = halfseen.evaluation.vsp_curve(lambda X: np.zeros(len(X)), np.ones((20, 5)), n_draws=2).to_dict()
    assert "nan" not in drift_curve(flat)
    assert drift_curve(flat).count("<circle") == 10


def test_both_columns_that_are_missing_together_are_explained_with_their_own_rates():
    rows = np.arange(100)
    missing = {"first": rows < 20, "second": (rows >= 10) & (rows < 40)}

    def rate_of(other, column):
        return missing[other][missing[column]].mean(), missing[other][~missing[column]].mean()

    when_missing, when_seen = rate_of("second", "first")
    sizes = {"effect": 3.0, "low": 2.0, "high": 4.0, "strength": 0.3, "p_value": 0.01, "p_adjusted": 0.02}
    rates = {
        "n_rows": 100,
        "n_missing": 20,
        "level": None,
        "when_missing": when_missing,
        "when_seen": when_seen,
    }
    pair = Association("first", "second", "missingness", "odds ratio", **sizes, **rates)
    columns = [SimpleNamespace(name=name, n_missing=int(gone.sum())) for name, gone in missing.items()]
    words = explain_missingness(SimpleNamespace(columns=columns, associations=SimpleNamespace(pairs=[pair])))
    for column, other in (("first", "second"), ("second", "first")):
        both, alone = map(share_words, rate_of(other, column))
        assert words[column].startswith(f"missing more often when {other} is missing ({both} of rows with")
        assert words[column].endswith(f"{alone} of rows with {column} observed)")


def test_notes_have_a_section_of_their_own_before_the_findings(page):
    assert page.index('<h2 id="notes">') < page.index('<ul class="notes">') < page.index('<h2 id="says">')


def test_thousands_are_written_in_one_way(frame):
    many = pd.concat([frame] * 6, ignore_index=True)
    text = words_of(render_diagnosis(summarize_diagnosis(halfseen.describe(many))))
    assert "6 columns, 2,000 duplicated rows." in text
    assert not re.search(r"\d[\u00a0\u2009\u202f ]\d{3}\b", text)
