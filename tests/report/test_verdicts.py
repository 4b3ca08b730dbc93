"""The first lines of the pages, and the verdict on each column."""

import pytest

from halfseen.data.leaving import grade
from halfseen.report.compare import compare_lines, dot_plot, judge_compared, show_score
from halfseen.report.describe import describe_lines, judge_missingness
from halfseen.report.render import _environment
from halfseen.report.summarize import impute_lines, judge_columns


@pytest.mark.parametrize(
    ("skill", "low", "verdict"),
    [
        (0.9, 0.8, "good"),
        (0.5, 0.1, "good"),
        (0.5, 0.05, "fair"),
        (0.3, 0.01, "fair"),
        (0.3, 0.0, "poor"),
        (0.09, 0.08, "poor"),
        (-2.0, -3.0, "poor"),
    ],
)
def test_skill_and_its_certainty_decide(skill, low, verdict):
    assert grade(skill, low) == verdict


def column(name, n_missing, n_left=0):
    return {"name": name, "n_missing": n_missing, "n_left": n_left, "share": n_missing / 100}


def checked(measure, value, baseline, skill):
    return {
        "measure": measure,
        "value": value,
        "baseline": baseline,
        "skill": skill,
        "skill_low": skill,
        "n_cells": 40,
    }


@pytest.fixture
def summary():
    return {
        "columns": [
            column("a", 10), column("b", 20), column("c", 5, 5),
            column("d", 0), column("e", 9, 3), column("f", 1),
        ],
        "fills": [{"name": "e", "relative_width": 1.0}, {"name": "f"}],
        "left": [{"name": "c", "why": "has no observed value"}, {"name": "e", "why": "does not apply"}],
        "check": {
            "columns": {"a": checked("error", 0.3, 1.0, 0.91), "b": checked("accuracy", 0.6, 0.58, 0.05)},
            "covered": 0.7,
            "level": 0.9,
        },
        "level": 0.9,
        "n_missing": 45,
        "n_left": 8,
        "n_cells": 600,
        "n_columns": 6,
        "n_incomplete_columns": 5,
    }  # fmt: skip


def test_each_column_with_missing_values_has_a_verdict(summary):
    found = {one["name"]: one for one in judge_columns(summary)}
    assert {name: one["verdict"] for name, one in found.items()} == {
        "b": "poor", "a": "good", "e": "unchecked", "c": "left", "f": "unchecked",
    }  # fmt: skip
    assert found["a"]["why"] == (
        "Typical error 0.30 standard deviations, compared with 1.00 for the mean (40 hidden known values)."
    )
    assert found["b"]["label"] == "hardly better than the most frequent level: better left empty"
    assert (
        found["b"]["why"]
        == "60% correct, compared with 58% for the most frequent level (40 hidden known values)."
    )
    assert found["c"]["why"] == "Has no observed value."
    assert "90% interval is 1.00 standard deviations wide" in found["e"]["why"]
    assert found["e"]["why"].endswith("3 values left empty: does not apply.")


def test_the_first_lines_state_what_was_missing_how_well_it_is_imputed_and_what_is_unreliable(summary):
    lines = impute_lines(summary, judge_columns(summary))
    assert (
        lines[0]
        == "45 values of this table (7.5%) were missing, in 5 of 6 columns: 37 were filled, 8 left empty."
    )
    assert lines[1] == (
        "Of the columns with missing values, 1 is filled well, 1 is filled hardly better than by the mean "
        "or the most frequent level, 2 are filled but could not be checked and 1 is not filled."
    )
    assert lines[2].startswith(
        "Do not rely on the filled values of b. The 90% intervals are too narrow: they contained 70%"
    )
    assert "because of their own size" in lines[2]


def test_intervals_that_cover_are_not_blamed(summary):
    summary["check"]["covered"] = 0.86
    assert "too narrow" not in " ".join(impute_lines(summary, judge_columns(summary)))


def test_a_column_with_too_few_hidden_values_is_not_called_poor(summary):
    summary["check"]["columns"]["b"] |= {"skill": 0.3, "skill_low": -0.1}
    verdicts = judge_columns(summary)
    assert (
        "not clearly better than the most frequent level"
        in {one["name"]: one for one in verdicts}["b"]["label"]
    )
    lines = impute_lines(summary, verdicts)
    assert "1 is not clearly filled better than by the mean or the most frequent level" in lines[1]
    assert "hardly" not in lines[1]


def test_a_diagnosis_begins_with_the_change(summary):
    diagnosis = summary | {
        "n_rows": 100,
        "n_complete_rows": 60,
        "n_duplicated_rows": 0,
        "evidence": True,
        "drift_readings": ["The rate changed.", "And patterns."],
        "sample_readings": [],
        "reasons": {name: f"{name} is missing more often" for name in "abcef"},
        "columns": [one | {"kind": "text" if one["name"] == "c" else "count"} for one in summary["columns"]],
    }
    diagnosis["check"]["method"] = "Gaussian"
    verdicts = judge_missingness(diagnosis)
    assert {one["name"]: one["verdict"] for one in verdicts} == {
        "a": "good", "b": "poor", "c": "left", "e": "unchecked", "f": "unchecked",
    }  # fmt: skip
    assert verdicts[0]["reason"] == "B is missing more often."
    lines = describe_lines(diagnosis, verdicts)
    assert lines[0] == "The rate changed."
    assert "would lose 40% of the rows, and the remaining rows may not be representative." in lines[1]
    assert "2 incomplete columns were filled: 1 well and 1 hardly better than by the mean " in lines[2]
    copies = describe_lines(diagnosis | {"n_duplicated_rows": 1200, "first_duplicates": [[7, 0]]}, verdicts)
    assert [line for line in copies if line not in lines] == [
        "1,200 rows are copies of earlier ones: row 8 of row 1 and 1,199 more, counted without the header."
    ]
    assert describe_lines(diagnosis | {"n_missing": 0}, []) == ["The rate changed.", "Nothing is missing."]


@pytest.fixture
def comparison():
    return {
        "methods": [{"name": "mean", "n_failed": 0}, {"name": "new", "n_failed": 2}],
        "columns": [
            {"name": "a", "score": "RMSE", "values": [1.0, 0.5], "best": 0.5},
            {"name": "b", "score": "accuracy", "values": [0.60, 0.61], "best": 0.61},
            {"name": "c", "score": "RMSE", "values": [None, 0.5], "best": 0.5},
        ],
        "scores": [
            {"name": "rmse", "best": "new", "tied": ["mean"]},
            {"name": "mae", "best": "new", "tied": []},
            {"name": "accuracy", "best": None, "tied": []},
        ],
        "settings": {"n_rows": 300, "n_repeats": 5},
        "n_hidden": [40],
    }  # fmt: skip


def test_a_comparison_names_the_columns_that_are_worth_imputing(comparison):
    found = judge_compared(comparison)
    assert [(one["name"], one["verdict"], one["method"]) for one in found] == [
        ("a", "good", "new"), ("b", "poor", "new"),
    ]  # fmt: skip
    assert found[0]["why"] == "RMSE 0.50, compared with 1.00 for the mean."
    lines = compare_lines(comparison, found)
    assert lines[0].startswith("40 known values of 300 rows were hidden, filled by 2 methods")
    assert lines[0].endswith(" times.")
    assert lines[1] == "Best for numbers: new (statistically tied with mean)."
    assert lines[2].startswith("No method fills b much better")
    assert "new failed in some repetitions" in lines[2]


def test_every_column_of_a_wide_comparison_is_judged(comparison):
    comparison["columns"] = [
        {"name": f"c{place}", "score": "RMSE", "values": [1.0, 0.5], "best": 0.5} for place in range(300)
    ]
    assert len(judge_compared(comparison)) == 300


def test_drawn_intervals_end_where_the_values_of_a_score_end():
    row = {"method": "new", "mean": 0.9, "low": -0.3, "high": 1.6, "best": True, "tied": False}
    score = {
        "name": "coverage",
        "label": "coverage",
        "direction": "level",
        "target": 0.9,
        "parts": {"out": [row]},
    }
    drawn = dot_plot(score, "out")
    assert "90.0% (0.0% to 100.0%)" in drawn
    assert ">120%<" not in drawn
    assert row["high"] == 1.6
    assert "0.900 (0.000 to 1.600)" in dot_plot(score | {"name": "crps", "target": None}, "out")


def test_errors_in_the_units_of_the_target_have_separated_thousands():
    assert [show_score("mae", one) for one in (2540.4, 0.51234)] == ["2,540", "0.5123"]
    assert [show_score("rmse", one, 2.835) for one in (2.6, 0.4289)] == ["2.600", "0.429"]
    assert show_score("r2", -0.008) == "\N{MINUS SIGN}0.008"


def test_a_comparison_on_very_few_values_judges_no_column(comparison):
    comparison["n_hidden"] = [1]
    comparison["settings"]["n_repeats"] = 1
    assert judge_compared(comparison) == []
    assert compare_lines(comparison, [])[0].endswith(
        "1 known value of 300 rows was hidden, filled by 2 methods and compared with the truth."
    )


def test_without_the_mean_there_is_nothing_to_judge_by(comparison):
    comparison["methods"][0]["name"] = "median"
    assert judge_compared(comparison) == []


def page_with(n_good, n_poor):
    """Returns the table of verdicts of so many columns, as a template shows it."""
    template = _environment().from_string(
        '{% from "_verdicts.html.jinja" import verdict_table %}'
        "{% call(one) verdict_table(verdicts, '', 1) %}<tr><td>{{ one.name }}</td></tr>{% endcall %}"
    )
    verdicts = [{"name": f"<g{n}>", "verdict": "good"} for n in range(n_good)]
    verdicts += [{"name": f"<p{n}>", "verdict": "poor"} for n in range(n_poor)]
    return template.render(verdicts=verdicts)


def test_many_verdicts_are_grouped_the_worst_first_and_can_be_filtered():
    page = page_with(30, 5)
    assert "<script" not in page
    assert page.index("&lt;p0&gt;") < page.index("&lt;g0&gt;")
    assert page.count('type="radio"') == 3
    for words in ("All 35", "Hardly better than a constant 5", "Well 30"):
        assert words in " ".join(page.split())
    assert [page.count(f'class="of-{key}"') for key in ("poor", "good", "fair")] == [1, 1, 0]
    rule = ".sorted > #only-poor:checked ~ .panel tbody:not(.of-poor) { display: none; }"
    assert rule in _environment().get_template("_style.css.jinja").render()


@pytest.mark.parametrize(("n_good", "n_poor"), [(6, 5), (40, 0)])
def test_few_or_equal_verdicts_are_one_list(n_good, n_poor):
    page = page_with(n_good, n_poor)
    assert 'type="radio"' not in page
    assert page.count("<tbody") == 1
    assert page.count("<td>") == n_good + n_poor
