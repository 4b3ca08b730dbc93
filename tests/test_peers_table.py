"""The table of the benchmark against other tools counts failures and compares on common tables only."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
from peers_table import behind_table, behind_tools_table, peers_tables, ranks_table

import halfseen


def record(method, table, rmse=None, error=""):
    answer = {} if rmse is None else {"test": {"rmse": rmse}, "seconds": 1.0, "megabytes": 100.0}
    return {"method": method, "table": table, "mechanism": "MCAR", "error": error} | answer


def test_failures_are_counted_and_means_are_over_common_tables():
    records = [
        *(record("a", table, rmse) for table, rmse in (("t1", 1.0), ("t2", 2.0), ("t3", 6.0))),
        *(record("b", table, rmse) for table, rmse in (("t1", 0.5), ("t2", 0.5))),
        record("b", "t3", error="crashed"),
        record("c", "t1", 0.1),
        record("c", "t2", error="not finished"),
        record("c", "t3", error="not finished"),
    ]
    settings = {"max_rows": 10, "rate": 0.3, "processor_seconds": 5, "n_draws": 9}
    text = peers_tables({"records": records, "settings": settings, "scale": "small", "commit": "0123456789"})
    assert "| MCAR, new rows of 2 of 3 tables |" in text
    lines = {line.split(" |")[0][2:]: line for line in text.splitlines() if line.startswith("| ")}
    assert "| 1.500 |" in lines["a"]
    assert lines["a"].endswith("0 of 3 |")
    assert "| 0.500 |" in lines["b"]
    assert lines["b"].endswith("1 of 3 |")
    assert "0.100" not in lines["c"]
    assert lines["c"].endswith("2 of 3 |")
    assert "for other tools at commit 0123456." in text


def test_the_number_of_draws_behind_a_crps_and_its_error_are_stated():
    """By hand: the error of nine draws is .02 of 1.0 for one tool; the other has none."""
    precise = record("a", "t1", 1.0)
    precise["test"] |= {"crps": 1.0, "crps_error": 0.02}
    settings = {"max_rows": 10, "rate": 0.3, "processor_seconds": 5, "n_draws": 9, "many_draws": 45}
    results = {"settings": settings, "scale": "small", "commit": "0123456789"}
    text = ranks_table({"records": [precise, record("b", "t1", 1.0)], **results})
    assert "The CRPS of a is computed from 45 draws. If it is computed from 9 draws" in text
    assert "its standard error due to drawing is 2.0%" in text
    elsewhere = record("a", "t1", 1.0) | {"mechanism": "MAR"}
    text = ranks_table({"records": [precise, elsewhere], **results})
    assert "The CRPS of a under MCAR is computed from 45 draws" in text
    assert "The CRPS of" not in ranks_table({"records": [record("b", "t1", 1.0)], **results})


def test_a_tool_that_failed_is_last_and_equal_scores_share_a_rank():
    records = [
        *(record("a", table, rmse) for table, rmse in (("t1", 1.00), ("t2", 2.0))),
        *(record("b", table, rmse) for table, rmse in (("t1", 1.01), ("t2", 2.0))),
        record("c", "t1", 3.0),
        record("c", "t2", error="crashed"),
    ]
    settings = {"max_rows": 10, "rate": 0.3, "processor_seconds": 5, "n_draws": 9}
    text = ranks_table({"records": records, "settings": settings, "scale": "small", "commit": "0123456789"})
    lines = {
        line.split(" |")[0][2:]: line.split(" | ") for line in text.splitlines() if line.startswith("| ")
    }
    place = lines["2 tasks"].index("RMSE, new rows")
    assert [lines[method][place] for method in "abc"] == ["1.2 (100%)", "1.8 (100%)", "3.0 (0%)"]


def test_the_distance_to_the_best_other_is_that_of_means_over_mechanisms():
    """By hand: RMSE (2 + 4) / (2 + 3) - 1 = 20%, and (2 + 4) / (4 + 4) - 1 = -25% among tools.

    d is the only other tool, and c has no MAR; the accuracies are .5 of 100 and .9 of 25 cells.
    """
    scores = {
        ("AutoImputer", "MCAR"): (2.0, 0.5, 100),
        ("AutoImputer", "MAR"): (4.0, 0.9, 25),
        ("b", "MCAR"): (2.0, 0.7, 100),
        ("b", "MAR"): (3.0, 0.8, 25),
        ("c", "MCAR"): (0.1, 1.0, 100),
        ("d", "MCAR"): (4.0, 0.1, 100),
        ("d", "MAR"): (4.0, 0.1, 25),
    }
    records = [
        {"method": method, "mechanism": mechanism, "table": "t", "test": {"rmse": rmse, "accuracy": accuracy},
         "cells": {"test": {"levels": n}}, "tool": "other" if method == "d" else "halfseen"}
        for (method, mechanism), (rmse, accuracy, n) in scores.items()
    ]  # fmt: skip
    settings = {"max_rows": 10, "rate": 0.3, "processor_seconds": 5, "n_draws": 9}
    results = {"records": records, "settings": settings, "scale": "small", "commit": "0123456789"}
    among_tools = next(line for line in behind_tools_table(results).splitlines() if line.startswith("| t |"))
    assert among_tools.split(" | ")[4] == "-25.0% (d)"
    text = behind_table(results)
    row = next(line for line in text.splitlines() if line.startswith("| t |")).split(" | ")
    assert row[4] == "+20.0% (b)"
    error = 100 * np.sqrt(0.5 * 0.5 / 100 + 0.9 * 0.1 / 25) / 2
    assert row[6] == f"+5.0 ± {error:.1f} points (b) |"
    assert row[5] == "\N{EN DASH}"


@pytest.mark.parametrize("mechanism", ["MCAR", "MAR", "self-masking"])
def test_a_task_hides_known_values_of_a_table(mechanism, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks" / "peers"))
    peers = importlib.import_module("peers")
    monkeypatch.setattr(peers, "load", lambda name: halfseen.datasets.load_penguins("pandas"))
    path, table, hidden, test, digest = peers.make_task("penguins", mechanism, 200, tmp_path)
    assert abs(hidden.sum() / hidden.size - peers.RATE) < 0.12  # predictors of MAR stay observed
    assert not (hidden & np.isnan(table.codes)).any()
    with np.load(path) as task:
        assert np.isnan(task["train"]).sum() == (hidden | np.isnan(table.codes))[~test].sum()
    assert peers.make_task("penguins", mechanism, 200, tmp_path)[-1] == digest


def test_the_crps_of_many_draws_is_that_of_the_judge_and_equal_groups_of_nine_have_no_error(
    tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks" / "peers"))
    peers = importlib.import_module("peers")
    monkeypatch.setattr(peers, "load", lambda name: halfseen.datasets.load_penguins("pandas"))
    _, table, hidden, _, _ = peers.make_task("penguins", "MCAR", 100, tmp_path)
    scorer = peers.CellScorer(table, table.codes, hidden, peers.Scale.fit(table.codes), peers.LEVEL)
    nine = table.codes + np.random.default_rng(0).normal(size=(9, *hidden.shape))
    twice = np.concatenate([nine, nine])
    found = peers.score_draws(scorer, twice)
    assert found["crps"] == pytest.approx(scorer.scores(peers.Answer(table.codes, twice))["crps"])
    assert found["crps_error"] == pytest.approx(0.0, abs=1e-12)
    assert peers.score_draws(scorer, np.concatenate([nine, 2 * nine]))["crps_error"] > 0.01


@pytest.mark.parametrize("written", [True, False])
def test_an_answer_counts_if_only_further_draws_exceed_the_time(written, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks" / "peers"))
    peers = importlib.import_module("peers")
    target, program = tmp_path / "answer.npz", tmp_path / "tool.py"
    write = f"open({str(target)!r}, 'w').close()\n" if written else ""
    busy = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'while True: pass'])\n"
    program.write_text(write + busy)  # the time of a child counts
    monkeypatch.setattr(peers, "WAIT", 0.05)
    error = peers.answer_task(sys.executable, program, "method", tmp_path / "task.npz", target, 0.2)
    assert error == ("" if written else "not finished after 0.2 s of processor time")


def test_a_tool_that_waits_forever_is_stopped(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks" / "peers"))
    peers = importlib.import_module("peers")
    program = tmp_path / "tool.py"
    program.write_text("import time\ntime.sleep(10**6)\n")
    monkeypatch.setattr(peers, "WAIT", 0.05)
    monkeypatch.setattr(peers, "PATIENCE", 0.01)
    error = peers.answer_task(sys.executable, program, "method", tmp_path / "task.npz", tmp_path / "a", 60)
    assert error == "not finished after 0.6 s"


def test_a_tool_that_crashes_is_described_by_the_last_line_of_its_errors(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks" / "peers"))
    peers = importlib.import_module("peers")
    program = tmp_path / "tool.py"
    program.write_text("raise KeyError('no such column')\n")
    error = peers.answer_task(sys.executable, program, "method", tmp_path / "task.npz", tmp_path / "a", 60)
    assert error == "crashed: KeyError: 'no such column'"
