"""The figure of an experiment: every model in every panel, in its place, with the published number."""

import dataclasses
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from tolerances import EXACT

from halfseen.report.figures import OURS, THEIRS, to_svg
from papers import Budget, Cell, Experiment, Published, Results
from papers.figures.overview import plot_experiment, plot_metrics


def make_results(scores, metric="gap", better="higher", published=None):
    """Results of runs given as {(mechanism, n, model): [a score for each seed, None for a failure]}."""
    cells = [
        Cell({"mechanism": mechanism, "n": n, "d": 3}, model, seed, *_outcome(metric, score))
        for (mechanism, n, model), list_of_scores in scores.items()
        for seed, score in enumerate(list_of_scores)
    ]
    experiment = Experiment(
        name="toy",
        question="?",
        paper="Nobody & Anybody (2020), A < B",
        make_data=lambda *_: None,
        models={},
        score=lambda *_: {},
        metrics={metric: better},
        budgets={"smoke": Budget((), 1)},
        claims=[],
        numbers=lambda setting, model, _: (published or {}).get((setting["mechanism"], model)),
    )
    return Results(experiment, "smoke", cells, {}, Path("toy.json"))


def _outcome(metric, score):
    return ({}, "ValueError: no") if score is None else ({metric: score}, None)


def marks(axes, colour):
    """Return the marked values of a panel in one colour, in the order of its lines."""
    dots = [line for line in axes.lines if line.get_marker() == "o" and line.get_color() == colour]
    return [float(dot.get_xdata()[0]) for dot in dots]


def intervals(axes):
    return [bar.get_segments()[0][:, 0] for bar in axes.collections]


def test_there_is_a_column_for_each_mechanism_and_a_row_for_each_size():
    scores = {(mechanism, n, "a"): [-0.1] for n in (10, 2000) for mechanism in ("one_way", "another")}
    figure = plot_experiment(make_results(scores))
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["one way · n = 10", "another · n = 10", "one way · n = 2,000", "another · n = 2,000"]
    names = [[label.get_text() for label in axes.get_yticklabels()] for axes in figure.axes]
    assert names == [["a"], [""], ["a"], [""]]  # models are named once in a row
    assert "(d = 3)" in figure.get_suptitle()


def test_marks_and_intervals_have_the_values_of_runs_and_of_the_paper():
    published = {("m", "b"): Published(-0.3, 0.1, "them")}
    figure = plot_experiment(
        make_results({("m", 1, "a"): [1.0, 3.0], ("m", 1, "b"): [0.5]}, published=published)
    )
    [axes] = figure.axes
    assert marks(axes, OURS) == [2.0, 0.5]
    assert marks(axes, THEIRS) == [-0.3]
    ours, theirs = intervals(axes)[0], intervals(axes)[1]
    np.testing.assert_allclose(ours, [2 - 2**0.5, 2 + 2**0.5], atol=EXACT)
    np.testing.assert_allclose(theirs, [-0.4, -0.2], atol=EXACT)
    assert axes.get_xscale() == "symlog"  # it includes zero


@pytest.mark.parametrize("values", [(1.0, 2.0, 3.0), (-7.0, -4.5, -2.0)])
def test_values_on_one_side_of_zero_have_a_linear_axis_that_holds_them_all(values):
    scores = {("m", 1, name): [value] for name, value in zip("abc", values, strict=True)}
    [axes] = plot_experiment(make_results(scores)).axes
    assert axes.get_xscale() == "linear"
    low, high = axes.get_xlim()
    assert low < min(values) < max(values) < high


def test_failed_runs_are_counted_where_their_mark_would_be():
    [axes] = plot_experiment(make_results({("m", 1, "a"): [1.0, None], ("m", 1, "b"): [None]})).axes
    assert [text.get_text() for text in axes.texts] == ["1 of 2 failed", "1 of 1 failed"]
    assert marks(axes, OURS) == [1.0]


@pytest.mark.parametrize(
    ("runs", "words"), [((1, 1), "one seed"), ((3, 3), "mean of 3 seeds"), ((1, 3), "mean of 1 to 3 seeds")]
)
def test_the_heading_states_the_number_of_seeds_and_the_better_side(runs, words):
    scores = {("m", 1, name): [1.0] * count for name, count in zip("ab", runs, strict=True)}
    heading = plot_experiment(make_results(scores, better="lower")).get_suptitle()
    assert words in heading
    assert "better is to the left" in heading
    assert "hollow" not in heading  # no published number


def two_metrics(settings=("m",)):
    one = make_results({(setting, 1, "a"): [1.0] for setting in settings})
    cells = [
        Cell(cell.setting, model, 0, {"gap": -2.0 - number, "noise": 0.1 * (number + 1)})
        for cell in one.cells
        for number, model in enumerate(("a", "b", "c"))
    ]
    experiment = dataclasses.replace(one.experiment, metrics={"gap": "higher", "noise": "higher"})
    return dataclasses.replace(one, experiment=experiment, cells=cells)


def test_metrics_side_by_side_have_axes_of_their_own():
    gap, noise = plot_metrics(two_metrics(), ["gap", "noise"]).axes
    assert marks(gap, OURS) == [-2.0, -3.0, -4.0]
    np.testing.assert_allclose(marks(noise, OURS), [0.1, 0.2, 0.3], atol=EXACT)
    assert gap.get_xlim() != noise.get_xlim()
    assert [gap.get_title(loc="left"), noise.get_title(loc="left")] == ["gap", "noise"]


def test_metrics_side_by_side_are_of_one_setting():
    with pytest.raises(ValueError, match=r"for one setting, got \['m', 'n'\]"):
        plot_metrics(two_metrics(("m", "n")), ["gap", "noise"])


def test_the_file_is_svg_with_escaped_text_and_the_same_each_time():
    results = make_results({("m", 1, "a & <b>"): [1.0]})
    first, second = (to_svg(plot_experiment(results)) for _ in range(2))
    assert first == second
    words = [element.text for element in ElementTree.fromstring(first).iter() if element.text]
    assert "a & <b>" in words
    assert any("A < B" in word for word in words)


def test_an_experiment_without_runs_has_an_empty_figure():
    assert plot_experiment(make_results({})).axes == []
