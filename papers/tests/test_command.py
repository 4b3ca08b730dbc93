"""The command `python -m papers`, with a small experiment in place of the real ones."""

import json
from dataclasses import replace

import pytest

from halfseen.datasets import describe_dataset
from halfseen.report.figures import new_figure
from papers import Better, Budget, Experiment, Published, command
from papers.__main__ import run as program


@pytest.fixture
def run(capfd, tmp_path, monkeypatch):
    """Runs the program in an empty directory; returns exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        code = program(list(arguments))
        return code, *capfd.readouterr()

    return call


def score(model, data):
    if model == "bad":
        raise ValueError("cannot fit")
    return {"rmse": 0.5 + data}


@pytest.fixture(autouse=True)
def experiments(monkeypatch):
    toy = Experiment(
        name="toy",
        question="Does it run?",
        paper="Nobody (2020), Nothing",
        make_data=lambda setting, seed: seed / 10,
        models={"ours": lambda: "good", "theirs": lambda: "bad"},
        score=score,
        metrics={"rmse": "lower"},
        budgets={scale: Budget.grid(2, d=[3]) for scale in ("smoke", "small", "paper")},
        claims=[Better("ours", "theirs", on="rmse"), Better("theirs", "ours", on="rmse")],
        numbers=lambda setting, model, metric: Published(0.7, 0.1, "them"),
    )
    monkeypatch.setattr(command, "EXPERIMENTS", {"toy": toy})


def test_numbers_stand_beside_the_papers_and_claims_get_verdicts(run, tmp_path):
    code, out, err = run("toy")
    assert code == 1
    assert err.splitlines()[-1].startswith(
        "halfseen: error: 2 runs failed; the same command repeats only these"
    )
    [ours] = [line for line in out.splitlines() if "ours" in line and "rmse" in line and "0.5500" in line]
    assert "0.5500 ± 0.0707" in ours
    assert "0.7000 ± 0.1000 (them)" in ours
    [theirs] = [line for line in out.splitlines() if "failed" in line and "rmse" in line and "0.7000" in line]
    assert "2, 2 failed" in theirs
    assert "not met" in out
    assert "Does it run?" in err
    assert "theirs on d = 3, seed 1, failed: ValueError: cannot fit" in err
    stored = json.loads((tmp_path / "results" / "toy-smoke.json").read_text())
    assert [verdict["outcome"] for verdict in stored["verdicts"]] == ["met", "not met"]
    picture = (tmp_path / "results" / "toy-smoke.svg").read_text()
    assert "2 of 2 failed" in picture


def test_further_pictures_have_their_own_files_and_some_cannot_be_drawn(run, tmp_path, monkeypatch):
    def titled(results):
        figure = new_figure(2.0, 1.0)
        figure.suptitle(f"{len(results.cells)} runs")
        return figure

    more = {"more": titled, "none": lambda results: None}
    monkeypatch.setattr(command, "FIGURES", {"toy": more})
    run("toy")
    folder = tmp_path / "results"
    assert ">4 runs</text>" in (folder / "toy-smoke-more.svg").read_text()
    assert sorted(path.name for path in folder.glob("*.svg")) == ["toy-smoke-more.svg", "toy-smoke.svg"]


def test_scale_and_folder_are_chosen_and_stored_runs_reused(run, tmp_path):
    run("toy", "--scale", "small", "--output", "elsewhere")
    assert (tmp_path / "elsewhere" / "toy-small.json").is_file()
    _, _, err = run("toy", "--scale", "small", "--output", "elsewhere")
    assert "2 of 4 runs" in err
    assert "ours on" not in err  # only what had failed was tried again
    _, out, err = run("toy", "--scale", "small", "-o", "elsewhere", "--fresh", "-q")
    assert (err.count("\n"), "2 runs failed" in err, "0.5500" in out) == (1, True, True)


def test_parts_are_run_and_what_is_stored_is_listed(run):
    code, out, err = run("toy", "--only", "ours on d = 3")
    assert (code, "theirs on" in err) == (0, False)
    code, out, _ = run("toy", "--status")
    assert code == 0
    assert "toy at scale smoke: 2 of 4 runs" in out
    lines = {line.split(" on ")[0]: line.split() for line in out.splitlines() if " on d = 3" in line}
    assert lines["ours"][5:8] == ["2", "of", "2"]
    assert lines["theirs"][5:8] == ["0", "of", "2"]
    assert run("toy", "--only", "nothing")[0] == 0
    run("toy")
    assert "2 of 4 runs" in run("--status")[1]
    failed = [line.split() for line in run("toy", "--status")[1].splitlines() if line.startswith("theirs")]
    assert failed[0][5:9] == ["2", "of", "2", "2"]


def test_an_experiment_without_failures_ends_well(run, monkeypatch):
    good = replace(command.EXPERIMENTS["toy"], models={"ours": lambda: "good"}, claims=[])
    monkeypatch.setattr(command, "EXPERIMENTS", {"toy": good})
    assert run("toy", "-q")[0] == 0


@pytest.mark.parametrize("folder", [None, "data"])
def test_data_sets_that_are_not_there_are_named_in_one_message(run, tmp_path, monkeypatch, folder):
    mnist = describe_dataset("mnist")
    needing = replace(command.EXPERIMENTS["toy"], data_sets=lambda setting: ("adult", "mnist", "adult"))
    monkeypatch.setattr(command, "EXPERIMENTS", {"toy": needing})
    monkeypatch.delenv("HALFSEEN_DATA", raising=False)
    where = "a folder and set HALFSEEN_DATA to it"
    if folder is not None:
        (tmp_path / folder).mkdir()
        monkeypatch.setenv("HALFSEEN_DATA", folder)
        where = "the folder 'data', which HALFSEEN_DATA names"
    code, out, err = run("toy", "-q")
    assert (code, out) == (2, "")
    assert err == (
        "halfseen: error: Experiment 'toy' at scale 'smoke' needs data sets that are not available. "
        f"Put these files into {where}: adult/adult.csv.gz (adult), {mnist.path} (mnist). "
        "`halfseen datasets NAME` shows the source of each.\n"
    )
    assert not (tmp_path / "results").exists()


def test_experiments_are_listed(run):
    code, out, _ = run()
    assert code == 0
    assert "toy" in out
    assert "Does it run?" in out
    assert "4, 4, 4" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing",), "there is no experiment 'nothing'; there are toy"),
        (("toy", "--scale", "huge"), "'huge' is not one of"),
    ],
)
def test_what_is_unknown_is_one_line_of_error(run, arguments, message):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_a_foreign_result_file_is_not_overwritten(run, tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "toy-smoke.json").write_text("{}")
    code, _, err = run("toy")
    assert code == 2
    assert "is not a result file of an experiment" in err
