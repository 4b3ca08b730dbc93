"""Running: every cell once, stored at once, resumed, with failures kept as results."""

import dataclasses
import json

import numpy as np
import pytest

from halfseen import MixtureImputer
from papers import Better, Budget, Experiment, Published, Within, judge_stored, run, runner
from papers.runner import stored_runs


class Model:
    def __init__(self, offset):
        self.offset = offset


def make_experiment(log, **changes):
    """Scores are 10 d + seed + offset; the model 'broken' raises, 'lost' returns NaN."""

    def make_data(setting, seed):
        log.append(("data", setting["d"], seed))
        if setting["d"] == 99:
            raise RuntimeError("no data")
        return setting["d"], seed

    def score(model, data):
        log.append(("score", model.offset, *data))
        if model.offset == "broken":
            raise ValueError("cannot fit")
        return {"r2": float("nan") if model.offset == "lost" else 10 * data[0] + data[1] + model.offset}

    fields = dict(
        name="toy",
        question="Does it run?",
        paper="Nobody (2020)",
        make_data=make_data,
        models={"a": lambda: Model(1.0), "b": lambda: Model(0.0)},
        score=score,
        metrics={"r2": "higher"},
        budgets={"smoke": Budget.grid(2, d=[1, 2]), "small": Budget.grid(3, d=[1, 2])},
        claims=[Better("a", "b", on="r2", by=0.5), Within("a", on="r2", of=0, by=1, where={"d": 7})],
        numbers=lambda setting, model, metric: Published(11.0, 0.5, "A") if model == "a" else None,
    )
    return Experiment(**(fields | changes))


def test_every_model_runs_on_every_setting_and_seed_and_data_are_made_once(tmp_path):
    log = []
    results = run(make_experiment(log), "smoke", tmp_path)
    assert [(c.setting["d"], c.seed, c.model, c.scores["r2"]) for c in results.cells] == [
        (1, 0, "a", 11.0), (1, 0, "b", 10.0), (1, 1, "a", 12.0), (1, 1, "b", 11.0),
        (2, 0, "a", 21.0), (2, 0, "b", 20.0), (2, 1, "a", 22.0), (2, 1, "b", 21.0),
    ]  # fmt: skip
    assert sum(entry[0] == "data" for entry in log) == 4
    first, second = results.rows()[:2]
    assert (first.model, first.mean, first.n_runs, first.n_failed) == ("a", 11.5, 2, 0)
    assert first.sd == pytest.approx(0.5**0.5)
    assert (first.published.mean, second.published) == (11.0, None)
    assert [verdict.outcome for verdict in results.verdicts()] == ["met", "not testable"]


def test_a_sum_of_budgets_runs_its_parts_in_turn_with_the_models_of_each(tmp_path):
    sums = Budget.grid(1, d=[1]) + Budget.grid(2, models=["b"], d=[2]) + Budget.grid(1, models=["a"], d=[3])
    results = run(make_experiment([], budgets={"smoke": sums}), "smoke", tmp_path)
    assert [(c.setting["d"], c.seed, c.model) for c in results.cells] == [
        (1, 0, "a"), (1, 0, "b"), (2, 0, "b"), (2, 1, "b"), (3, 0, "a"),
    ]  # fmt: skip


def test_the_commit_of_stored_runs_stays_if_nothing_is_run_again(tmp_path):
    run(make_experiment([]), "smoke", tmp_path)
    path = tmp_path / "toy-smoke.json"
    stored = json.loads(path.read_text())
    path.write_text(json.dumps(stored | {"provenance": {"commit": "old"}}))
    log = []
    assert run(make_experiment(log), "smoke", tmp_path).provenance == {"commit": "old"}
    assert not log
    assert run(make_experiment([]), "small", tmp_path).provenance != {"commit": "old"}


def test_each_run_keeps_the_commit_that_made_it(tmp_path, monkeypatch):
    smaller = {"smoke": Budget.grid(1, d=[1])}
    monkeypatch.setattr("papers.runner.provenance", lambda *folders: {"commit": "old"})
    run(make_experiment([], budgets=smaller), "smoke", tmp_path)
    monkeypatch.setattr("papers.runner.provenance", lambda *folders: {"commit": "new"})
    run(make_experiment([]), "smoke", tmp_path)
    stored = json.loads((tmp_path / "toy-smoke.json").read_text())
    assert [cell["commit"] for cell in stored["cells"]] == ["old"] * 2 + ["new"] * 6
    assert stored["provenance"] == {"commit": "new"}


def test_chosen_runs_are_run_in_parts_and_others_stay(tmp_path):
    log = []
    first = run(make_experiment(log), "smoke", tmp_path, only=["a on d = 1"])
    assert {(cell.model, cell.setting["d"]) for cell in first.cells} == {("a", 1)}
    both = run(make_experiment(log), "smoke", tmp_path, only=["d = 2", "b on d = 1"])
    assert (both.n_reused, len(both.cells)) == (2, 8)
    log.clear()
    again = run(make_experiment(log), "smoke", tmp_path, only=["b on"], fresh=True)
    assert (again.n_reused, len(again.cells)) == (4, 8)
    assert {entry[1] for entry in log if entry[0] == "score"} == {0.0}
    assert len(stored_runs(make_experiment([]), "smoke", tmp_path)) == 8


def test_a_failed_run_is_tried_again_only_if_it_is_meant(tmp_path):
    failing = make_experiment([], models={"a": lambda: Model("broken")})
    run(failing, "smoke", tmp_path)
    mended = make_experiment([], models={"a": lambda: Model(1.0)})
    found = run(mended, "smoke", tmp_path, only=["d = 1"])
    assert [(cell.setting["d"], cell.failed) for cell in found.cells] == [
        (1, False), (1, False), (2, True), (2, True)
    ]  # fmt: skip
    assert run(mended, "smoke", tmp_path, only=["d = 7"]).cells == found.cells


def test_nothing_is_run_if_nothing_is_meant(tmp_path):
    assert run(make_experiment([]), "smoke", tmp_path, only=["d = 7"]).cells == []


def test_runs_that_name_no_commit_have_that_of_their_file(tmp_path):
    run(make_experiment([]), "smoke", tmp_path)
    path = tmp_path / "toy-smoke.json"
    stored = json.loads(path.read_text())
    for cell in stored["cells"]:
        del cell["commit"]
    path.write_text(json.dumps(stored | {"provenance": {"commit": "old"}}))
    assert {cell.commit for cell in run(make_experiment([]), "smoke", tmp_path).cells} == {"old"}


def test_stored_runs_are_judged_again_and_stay_as_they_are(tmp_path):
    assert judge_stored(make_experiment([]), "smoke", tmp_path) is None
    run(make_experiment([]), "smoke", tmp_path)
    path = tmp_path / "toy-smoke.json"
    before = json.loads(path.read_text())
    path.write_text(json.dumps(before | {"verdicts": [], "summary": []}))
    log = []
    narrower = make_experiment(log, budgets={"smoke": Budget.grid(1, d=[1])})
    results = judge_stored(narrower, "smoke", tmp_path)
    assert (len(results.cells), log) == (8, [])  # also runs that are no longer planned
    assert json.loads(path.read_text()) == before


def test_a_metric_that_stored_runs_lack_counts_the_runs_that_have_it(tmp_path):
    run(make_experiment([]), "smoke", tmp_path)
    path = tmp_path / "toy-smoke.json"
    stored = json.loads(path.read_text())
    stored["cells"][0]["scores"]["new"] = 3.0
    path.write_text(json.dumps(stored))
    more = make_experiment([], metrics={"r2": "higher", "new": "lower"}, claims=[Better("a", "b", on="new")])
    results = judge_stored(more, "smoke", tmp_path)
    assert [verdict.outcome for verdict in results.verdicts()] == ["not testable"]
    (row,) = [row for row in results.rows() if row.metric == "new"]
    assert (row.model, row.mean, row.n_runs, row.n_failed) == ("a", 3.0, 1, 0)


def test_failed_runs_are_judged_as_failures(tmp_path):
    run(make_experiment([]), "smoke", tmp_path)
    path = tmp_path / "toy-smoke.json"
    stored = json.loads(path.read_text())
    for cell in stored["cells"]:
        cell["error"] = "ValueError: no"
    path.write_text(json.dumps(stored))
    assert {
        verdict.outcome for verdict in judge_stored(make_experiment([]), "smoke", tmp_path).verdicts()
    } == {
        "not met",
        "not testable",
    }


def test_results_are_stored_with_where_they_came_from(tmp_path):
    run(make_experiment([]), "smoke", tmp_path / "new" / "folder")
    stored = json.loads((tmp_path / "new" / "folder" / "toy-smoke.json").read_text())
    assert (stored["experiment"], stored["scale"], len(stored["cells"])) == ("toy", "smoke", 8)
    assert {"time", "commit", "python", "versions"} <= set(stored["provenance"])
    assert stored["provenance"]["versions"]["torch"]
    assert stored["cells"][0]["seed"] == 0
    assert stored["cells"][0]["seconds"] >= 0
    assert stored["verdicts"][0]["outcome"] == "met"
    assert stored["summary"][0]["published"] == {"mean": 11.0, "sd": 0.5, "label": "A", "other": ""}
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == ["toy-smoke.json"]


def test_finished_runs_are_not_run_again(tmp_path):
    log = []
    experiment = make_experiment(log)
    first = run(experiment, "smoke", tmp_path)
    log.clear()
    again = run(experiment, "smoke", tmp_path)
    assert (log, again.n_reused, again.cells) == ([], 8, first.cells)
    assert run(experiment, "smoke", tmp_path, fresh=True).n_reused == 0
    assert len([entry for entry in log if entry[0] == "score"]) == 8


def test_an_interrupted_experiment_goes_on_where_it_stopped(tmp_path):
    log = []
    experiment = make_experiment(log)

    def interrupt(cell, number, total):
        if number == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(experiment, "smoke", tmp_path, callback=interrupt)
    log.clear()
    numbers = []
    results = run(experiment, "smoke", tmp_path, callback=lambda cell, *n: numbers.append(n))
    assert (results.n_reused, numbers) == (3, [(4, 8), (5, 8), (6, 8), (7, 8), (8, 8)])
    assert next(entry for entry in log if entry[0] == "score") == ("score", 0.0, 1, 1)


def test_a_run_that_is_cut_short_is_not_stored(tmp_path):
    def score(model, data):
        if data:
            model.set_params(callback=interrupt)
        model.fit(np.arange(20.0).reshape(10, 2))
        return {"epochs": float(len(model.history_.train_loss))}

    def interrupt(progress):
        raise KeyboardInterrupt

    experiment = make_experiment(
        [],
        make_data=lambda setting, seed: seed,
        models={"mixture": lambda: MixtureImputer(2, max_epochs=2)},
        score=score,
        metrics={"epochs": "higher"},
        budgets={"smoke": Budget.grid(2, d=[1])},
        claims=[],
    )
    with pytest.raises(KeyboardInterrupt):
        run(experiment, "smoke", tmp_path)
    [cell] = json.loads((tmp_path / "toy-smoke.json").read_text())["cells"]
    assert (cell["seed"], cell["scores"]) == (0, {"epochs": 2.0})


def test_runs_of_other_code_are_counted(tmp_path, monkeypatch):
    assert run(make_experiment([]), "smoke", tmp_path).n_of_other_code == 0
    monkeypatch.setattr(runner, "code_digest", lambda: "new")
    assert run(make_experiment([]), "small", tmp_path).n_of_other_code == 0
    results = run(make_experiment([]), "smoke", tmp_path)
    assert (results.n_reused, results.n_of_other_code) == (8, 8)


def with_arrays(model, data):
    """Scores, and an array for one of the two models."""
    found = {"r2": model.offset + data[1]}
    return found | ({"picture": np.full((2, 3), data[1], dtype=np.float16)} if model.offset else {})


def test_arrays_are_stored_beside_the_scores_and_come_back(tmp_path):
    first = run(make_experiment([], score=with_arrays), "smoke", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["toy-smoke.json", "toy-smoke.npz"]
    assert "picture" not in (tmp_path / "toy-smoke.json").read_text()
    again = run(make_experiment([], score=None), "smoke", tmp_path)
    assert again.n_reused == 8
    for results in (first, again):
        for cell in results.cells:
            assert set(cell.scores) == {"r2"}
            assert set(cell.arrays) == ({"picture"} if cell.model == "a" else set())
            if cell.model == "a":
                np.testing.assert_array_equal(cell.arrays["picture"], np.full((2, 3), cell.seed))
                assert cell.arrays["picture"].dtype == np.float16


def test_arrays_of_forgotten_runs_are_forgotten(tmp_path):
    run(make_experiment([], score=with_arrays), "smoke", tmp_path)
    run(make_experiment([]), "smoke", tmp_path, fresh=True)
    again = run(make_experiment([]), "smoke", tmp_path)
    assert not any(cell.arrays for cell in again.cells)


def test_a_metric_that_a_model_does_not_have_has_no_line(tmp_path):
    def score(model, data):
        return {"r2": model.offset} | ({"noise": 3.0} if model.offset else {})

    metrics = {"r2": "higher", "noise": "lower"}
    results = run(make_experiment([], score=score, metrics=metrics), "smoke", tmp_path)
    assert [(row.setting["d"], row.model, row.metric) for row in results.rows()] == [
        (1, "a", "r2"), (1, "a", "noise"), (1, "b", "r2"), (2, "a", "r2"), (2, "a", "noise"), (2, "b", "r2"),
    ]  # fmt: skip


def test_a_new_version_runs_anew_and_a_foreign_file_is_left_alone(tmp_path):
    log = []
    run(make_experiment(log), "smoke", tmp_path)
    assert run(dataclasses.replace(make_experiment(log), version=2), "smoke", tmp_path).n_reused == 0
    (tmp_path / "toy-smoke.json").write_text("[1, 2]")
    with pytest.raises(ValueError, match=r"toy-smoke.json is not a result file of an experiment"):
        run(make_experiment(log), "smoke", tmp_path)
    assert (tmp_path / "toy-smoke.json").read_text() == "[1, 2]"


def test_failures_are_results(tmp_path):
    models = {"a": lambda: Model("broken"), "b": lambda: Model(0.0), "c": lambda: Model("lost")}
    experiment = make_experiment([], models=models, budgets={"smoke": Budget.grid(1, d=[1, 99])})
    results = run(experiment, "smoke", tmp_path)
    errors = {(c.setting["d"], c.model): c.error for c in results.cells}
    assert errors[1, "a"] == "ValueError: cannot fit"
    assert errors[1, "b"] is None
    assert errors[99, "b"] == "RuntimeError: no data"
    rows = {(row.setting["d"], row.model): row for row in results.rows()}
    assert (rows[1, "a"].n_failed, rows[1, "b"].n_failed, rows[1, "c"].n_failed) == (1, 0, 1)
    assert rows[1, "a"].mean != rows[1, "a"].mean
    assert results.verdicts()[0].outcome == "not met"
    again = run(experiment, "smoke", tmp_path)
    assert again.n_reused == 1  # what failed is tried again
    assert [cell.failed for cell in again.cells] == [cell.failed for cell in results.cells]


def test_unknown_scales_are_refused(tmp_path):
    with pytest.raises(ValueError, match="scale must be one of smoke, small, got 'huge'"):
        run(make_experiment([]), "huge", tmp_path)
