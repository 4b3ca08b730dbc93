"""The command `halfseen compare`, for real and on small tables."""

import io
import json
import re
from importlib.resources import files

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from halfseen.cli.compare import comparison_table, thin_rows
from halfseen.cli.compare_target import prediction_table
from halfseen.cli.main import main
from halfseen.cli.options import QUICK as QUICK_METHODS
from halfseen.cli.requests import CompareRequest
from halfseen.evaluation.comparison import Comparison
from halfseen.report.compare import render_comparison, render_scores, summarize_comparison, verdict
from halfseen.report.result import RunInfo

PENGUINS = str(files("halfseen.data") / "samples" / "penguins.csv")
QUICK = ("--methods", "gaussian,mean,median", "--repeats", "2", "--draws", "5")


@pytest.fixture
def run(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        code = main(["compare", *(str(argument) for argument in arguments)])
        out, err = capfd.readouterr()
        return code, out, err

    return run


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 1)) + 0.3 * rng.normal(size=(60, 3))
    lines = [",".join("" if rng.random() < 0.1 else f"{v:.3f}" for v in row) for row in x]
    path = tmp_path / "in.csv"
    path.write_text("a,b,<b>c</b>\n" + "\n".join(lines) + "\n")
    return path


def test_the_comparison_on_the_bundled_table_is_printed_kept_and_reported(run, tmp_path):
    code, out, err = run(PENGUINS, *QUICK, "-o", "race", "--report", "race.html")
    assert code == 0
    header = next(line for line in out.splitlines() if "method" in line)
    for column in (
        "RMSE",
        "MAE",
        "accuracy",
        "log-loss",
        "CRPS",
        "coverage 90%",
        "energy",
        "seconds",
        "failures",
    ):
        assert column in header
    assert len(re.findall(r"│ (gaussian|mean|median) ", out)) == 6  # new rows and fitted rows
    assert out.count("0/2") == 6
    assert "RMSE: gaussian" in out
    assert [line.split()[0] for line in err.splitlines()] == [
        "read", "running", "hidden", "wrote", "report", "done",
    ]  # fmt: skip
    assert sorted(path.name for path in (tmp_path / "race").iterdir()) == [
        "results.json", "results.parquet", "runs",
    ]  # fmt: skip
    content = json.loads((tmp_path / "race" / "results.json").read_text())
    assert len(content["settings"]["seeds"]) == 2
    page = (tmp_path / "race.html").read_text()
    assert "<script" not in page
    assert not re.search(r'(src|href)="(?!data:|#)', page)
    assert f"halfseen compare {PENGUINS}" in page


def test_a_second_run_resumes_and_prints_the_same(run, table):
    first, second = (run(table, *QUICK, "-o", "race") for _ in range(2))
    assert "resumed  6 of 6 runs" in second[2]
    assert "resumed" not in first[2]
    assert first[1] == second[1]
    third = run(table, "--methods", "gaussian,mean,median", "--repeats", "3", "--draws", "5", "-o", "race")
    assert "resumed  6 of 9 runs" in third[2]


def test_the_seed_decides(run, table):
    def scores(*arguments):
        return re.sub(r" +\d+\.\d\d │ +\d/\d", "", run(table, *QUICK, *arguments)[1])  # without seconds

    assert scores() == scores("--seed", 0)
    assert scores() != scores("--seed", 1)


def test_a_learned_mechanism_removes_values_where_the_table_has_missing_ones(run, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    y = x + rng.normal(size=200)
    lines = [f"{a:.3f},{'' if a > 0.5 else f'{b:.3f}'}" for a, b in zip(x, y, strict=True)]
    (tmp_path / "in.csv").write_text("x,y\n" + "\n".join(lines) + "\n")
    code, _, err = run("in.csv", *QUICK, "--mechanism", "learned", "-o", "race")
    assert code == 0
    assert "too few to distinguish good methods" in err
    records = Comparison.load("race").records
    assert {name for one in records for name in one.columns["in"]} == {"y"}


@pytest.mark.slow
def test_all_quick_methods_run_on_a_mixed_table_unless_others_are_named(run):
    code, out, _ = run(PENGUINS, "--repeats", 1, "--draws", 3, "--max-rows", 80)
    assert code == 0
    for method in QUICK_METHODS:
        assert f"│ {method} " in out
    assert "1/1" not in out


def test_quiet_prints_nothing(run, table):
    assert run(table, *QUICK, "-q") == (0, "", "")


def test_long_tables_are_subsampled_with_a_note(run, table):
    _, _, err = run(table, *QUICK, "--max-rows", 40)
    assert "40 of 60 rows are used" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.csv"], "missing.csv: no such file"),
        (
            ["in.csv", "--methods", "mean,magic"],
            "unknown method 'magic'; choose from auto, gaussian, chained, mixture, circuit, ",
        ),
        (["in.csv", "--methods", ","], "--methods is empty"),
        (["in.csv", "--rate", "1.5"], "--rate must be between 0 and 1, got 1.5"),
        (["in.csv", "--level", "90"], "--level must be between 0 and 1, got 90"),
        (["in.csv", "--test-fraction", "1"], "--test-fraction must be between 0 and 1, got 1"),
        (["in.csv", "--mechanism", "magic"], "unknown mechanism 'magic'; choose from mcar, learned"),
        (["in.csv", "--repeats", "0"], "Invalid value for '--repeats'"),
        (["in.csv", "--jobs", "0"], "--jobs must not be 0"),
        (["in.csv", "--report", "no/such/r.html"], "the directory 'no/such' does not exist"),
        (["in.csv", "--output", "in.csv"], "in.csv: cannot write: this is a file, not a directory"),
        (["in.csv", "--schema", "none.json"], "There is no schema file 'none.json'"),
        (["full.csv", "--mechanism", "learned"], "full.csv: nothing is missing"),
        (["same.csv"], "no column on which imputers can be compared"),
    ],
)
def test_what_the_user_can_mend_is_one_line_and_exit_code_2(run, table, tmp_path, arguments, message):
    (tmp_path / "full.csv").write_text("a,b\n" + "\n".join(f"{i}.5,{i * i}.25" for i in range(30)) + "\n")
    (tmp_path / "same.csv").write_text("a,b\n" + "1,2\n" * 30)
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err.splitlines()[-1]
    assert err.count("halfseen: error: ") == 1


@pytest.fixture
def summary(run, table):
    assert run(table, *QUICK, "-o", "race", "-q")[0] == 0
    return summarize_comparison(Comparison.load("race"), RunInfo("<i>in</i>.csv", "a && b", version="0"))


def test_the_summary_is_plain_data(summary):
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_names_are_escaped_on_the_page(summary):
    page = render_comparison(summary)
    assert "<b>c</b>" not in page.replace("&lt;b&gt;c&lt;/b&gt;", "")
    assert "&lt;b&gt;c&lt;/b&gt;" in page
    assert "<i>in</i>" not in page
    assert "a &amp;&amp; b" in page


def test_the_comparison_can_be_a_part_of_another_page(summary):
    part = str(render_scores(summary))
    assert part in render_comparison(summary)
    assert "td.tied" in render_comparison(summary)  # the style of the fragment
    assert "<html" not in part
    assert part.count("<svg") == len(summary["pictured"]) == 6


def test_failures_show_in_table_and_page(summary):
    method = summary["methods"][2]
    method |= {"n_failed": 1, "errors": {"MemoryError: too wide": 1}}
    assert "<b>median</b> failed in 1 of 2 repetitions: MemoryError: too wide" in render_comparison(summary)
    console = Console(width=70, record=True, file=io.StringIO())
    console.print(comparison_table(summary, "out", narrow=True))
    text = console.export_text()
    assert "1/2" in text
    assert "*" in text


def test_a_verdict_names_the_best_and_the_ties():
    score = {"label": "RMSE", "best": "a", "tied": []}
    assert verdict(score) == "RMSE: a"
    assert verdict({**score, "tied": ["b", "c", "d"]}) == "RMSE: a, statistically tied with b, c and d"
    assert "no method finished every repetition" in verdict({**score, "best": None})


def test_long_tables_are_subsampled_also_if_columns_are_views_of_text():
    table = pa.table({"view": pa.array(list("abcdef"), pa.string_view()), "x": range(6)})
    thinned = thin_rows(table, CompareRequest(source="in.parquet", max_rows=3))
    assert thinned.num_rows == 3
    rows = thinned["x"].to_pylist()
    assert rows == sorted(rows)
    assert thinned["view"].to_pylist() == ["abcdef"[row] for row in rows]


@pytest.mark.parametrize("width", [80, 100, 140])
def test_no_number_of_a_comparison_of_predictors_is_cut(width):
    one = {"mean": -0.008, "low": -0.05, "high": 0.03}
    method = {
        "best": False, "tied": True,
        "scores": dict.fromkeys(("r2", "rmse", "mae"), one), "by_rate": [one] * 4,
        "fit_seconds": 12.5, "mebibytes": 100.0, "n_done": 5, "n_folds": 5, "n_failed": 0,
    }  # fmt: skip
    names = ("gaussian+boosting", "constant+boosting", "sparsity-norm")
    labels = {"r2": "R²", "rmse": "RMSE", "mae": "MAE"}
    summary = {
        "target": "price", "task": "regression", "n_repeats": 1, "n_splits": 5, "rates": [0.0, 0.1, 0.3, 0.5],
        "scores": [{"name": name, "label": label, "main": name == "r2"} for name, label in labels.items()],
        "methods": [method | {"name": name} for name in names],
    }  # fmt: skip
    console = Console(file=io.StringIO(), width=width)
    console.print(prediction_table(summary, narrow=width < 120))
    shown = console.file.getvalue()
    assert "…" not in shown
    assert shown.count("gaussian+boosting") == 1
    assert ("MiB" in shown) == (width == 140)
