"""The picture of an experiment: every model in every panel, in its place, with the paper's number."""

import dataclasses
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from halfseen.experiments import Budget, Cell, Experiment, Published, Results
from halfseen.report.experiment_svg import draw_experiment, draw_metrics

NAMESPACE = "{http://www.w3.org/2000/svg}"


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


def read(results):
    return ElementTree.fromstring(draw_experiment(results))


def texts(tree):
    return [element.text for element in tree.iter(f"{NAMESPACE}text") if element.text]


def dots(tree, kind):
    """Positions of the marks with their tooltips, legend apart."""
    groups = [group for group in tree.iter(f"{NAMESPACE}g")]
    return {
        group[0].text.split(":")[0]: float(mark.get("cx"))
        for group in groups
        for mark in group
        if mark.get("class") == kind
    }


def test_a_panel_for_each_mechanism_and_a_line_for_each_size():
    scores = {(mechanism, n, "a"): [-0.1] for n in (10, 2000) for mechanism in ("one_way", "another")}
    shown = texts(read(make_results(scores)))
    assert shown.count("one way") == shown.count("another") == 2
    assert shown.count("n = 10") == shown.count("n = 2,000") == 2
    assert shown.count("a") == 2  # names stand at the left of a line only
    assert any("(d = 3)" in text for text in shown)


def test_marks_lie_in_the_order_of_the_scores_and_on_the_zero_line_at_zero():
    scores = {
        ("m", 1, name): [score] for name, score in {"a": -0.3, "b": -0.01, "c": -0.001, "d": 0.0}.items()
    }
    tree = read(make_results(scores, published={("m", "b"): Published(-0.3, 0.1, "them")}))
    ours, theirs = dots(tree, "ours"), dots(tree, "theirs")
    assert ours["a"] < ours["b"] < ours["c"] < ours["d"]
    assert theirs == {"b": ours["a"]}
    [zero] = [line.get("d") for line in tree.iter(f"{NAMESPACE}path") if line.get("class") == "zero"]
    assert float(re.match(r"M([\d.]+)", zero)[1]) == pytest.approx(ours["d"], abs=0.1)


def test_positive_scores_have_a_linear_axis():
    ours = dots(
        read(make_results({("m", 1, name): [score] for name, score in zip("abc", (1, 2, 3), strict=True)})),
        "ours",
    )
    assert ours["b"] - ours["a"] == pytest.approx(ours["c"] - ours["b"], abs=0.2)


def test_log_likelihoods_have_a_linear_axis_on_which_none_is_cut():
    scores = {("m", 1, name): [score] for name, score in zip("abc", (-7.0, -4.5, -2.0), strict=True)}
    ours = dots(read(make_results(scores)), "ours")
    assert ours["b"] - ours["a"] == pytest.approx(ours["c"] - ours["b"], abs=0.2)
    assert ours["c"] - ours["a"] > 100


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
    tree = ElementTree.fromstring(draw_metrics(two_metrics(), ["gap", "noise"]))
    places = [
        (group[0].text.split(":")[0], float(mark.get("cx")))
        for group in tree.iter(f"{NAMESPACE}g")
        for mark in group
        if mark.get("class") == "ours"
    ]
    assert [name for name, _ in places] == ["a", "b", "c", "a", "b", "c"]
    gap, noise = ([x for _, x in part] for part in (places[:3], places[3:]))
    assert gap == sorted(gap, reverse=True)
    assert noise == sorted(noise)
    assert noise[0] > gap[0]  # to the right of the first panel
    assert gap[0] - gap[2] == pytest.approx(noise[2] - noise[0], abs=0.2)
    shown = texts(tree)
    assert shown.count("a") == 1
    assert {"gap", "noise"} <= set(shown)


def test_metrics_side_by_side_are_of_one_setting():
    with pytest.raises(ValueError, match=r"for one setting, got \['m', 'n'\]"):
        draw_metrics(two_metrics(("m", "n")), ["gap", "noise"])


def test_the_interval_is_one_standard_deviation_to_each_side():
    tree = read(
        make_results(
            {("m", 1, "a"): [1.0, 3.0], ("m", 1, "low"): [2 - 2**0.5], ("m", 1, "high"): [2 + 2**0.5]}
        )
    )
    ours = dots(tree, "ours")
    spans = [line.get("d") for line in tree.iter(f"{NAMESPACE}path") if line.get("class") == "span"]
    start, end = map(float, re.match(r"M([\d.]+) [\d.]+H([\d.]+)", spans[0]).groups())
    assert (start, end) == (pytest.approx(ours["low"], abs=0.15), pytest.approx(ours["high"], abs=0.15))


def test_the_axis_has_room_for_the_whole_interval():
    tree = read(make_results({("m", 1, "a"): [1.0, 3.0]}))
    [span] = [line.get("d") for line in tree.iter(f"{NAMESPACE}path") if line.get("class") == "span"]
    start, end = map(float, re.match(r"M([\d.]+) [\d.]+H([\d.]+)", span).groups())
    assert end - dots(tree, "ours")["a"] == pytest.approx(dots(tree, "ours")["a"] - start, abs=0.2)
    assert end - start > 100


def test_failures_are_said_and_what_lies_beyond_the_axis_is_at_its_end():
    tree = read(make_results({("m", 1, "a"): [None, -0.1], ("m", 1, "b"): [None], ("m", 1, "c"): [-1e9]}))
    shown = texts(tree)
    assert "1 of 2 failed" in shown
    assert "1 of 1 failed" in shown
    ours = dots(tree, "ours")
    assert set(ours) == {"a", "c"}
    assert 0 < ours["c"] < ours["a"]


def test_the_legend_says_which_way_is_better_and_names_are_escaped():
    drawn = draw_experiment(make_results({("m", 1, "a & <b>"): [1.0]}, better="lower"))
    assert "better is to the left" in drawn
    assert "A &lt; B" in drawn
    assert "a &amp; &lt;b&gt;" in drawn
    assert "<script" not in drawn


@pytest.mark.parametrize(
    ("runs", "words"), [((1, 1), "one seed"), ((3, 3), "mean of 3 seeds"), ((1, 3), "mean of 1 to 3 seeds")]
)
def test_the_legend_says_of_how_many_seeds_a_mean_is(runs, words):
    scores = {("m", 1, name): [1.0] * count for name, count in zip("ab", runs, strict=True)}
    assert any(words in text for text in texts(read(make_results(scores))))


@pytest.mark.parametrize("published", [{}, {("m", "a"): Published(2.0, 0.1, "them")}])
def test_the_legend_has_the_papers_mark_if_there_are_numbers_of_it(published):
    tree = read(make_results({("m", 1, "a"): [1.0]}, published=published))
    marks = [mark for mark in tree.findall(f"{NAMESPACE}circle") if mark.get("class") == "theirs"]
    assert len(marks) == len(published)
    assert any("Anybody" in text for text in texts(tree))


def test_an_experiment_without_runs_has_an_empty_picture():
    assert read(make_results({})).tag == f"{NAMESPACE}svg"
