"""The command `halfseen describe`: its output, its refusals, and a report beside it."""

import gzip
import io
import json
import os
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import halfseen
from halfseen.cli.describe import show_diagnosis

PENGUINS = str(files("halfseen.data") / "samples" / "penguins.csv")


@pytest.fixture
def run(call):
    """The command line with the real imputers."""
    return call


def test_penguins_are_described_on_standard_output(run):
    code, out, err = run("describe", PENGUINS)
    assert code == 0
    assert out.startswith("344 rows, 8 columns, 19 missing cells (0.7%), 333 complete rows (96.8%)\n")
    assert "was found. That is not evidence for it." in out
    assert "cannot be tested from these data alone" in out
    assert "\x1b" not in out
    assert [line.split()[0] for line in err.splitlines()] == ["read", "testing", "done"]


def test_json_is_the_dict_and_nothing_else(run):
    code, out, _ = run("describe", PENGUINS, "--json", "--quiet")
    assert code == 0
    content = json.loads(out)
    assert content["n_missing"] == 19
    expected = halfseen.describe(pd.read_csv(PENGUINS)).to_dict()
    assert content["patterns"] == json.loads(json.dumps(expected["patterns"]))
    assert content["little"]["df"] == expected["little"]["df"]


def test_a_report_is_written_and_nothing_else(run, tmp_path):
    code, _, err = run("describe", PENGUINS, "--target", "body_mass_g", "--report", "r.html")
    assert code == 0
    assert os.listdir(tmp_path) == ["r.html"]
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "halfseen describe" in page
    assert "--report r.html" in page
    assert "The target, body_mass_g" in page
    assert "report  r.html" in err


def test_two_tables_are_compared(run, tmp_path):
    frame = pd.read_csv(PENGUINS)
    frame.iloc[:172].to_csv(tmp_path / "old.csv", index=False)
    later = frame.iloc[172:].copy()
    later.iloc[:90, 4] = None
    later.to_parquet(tmp_path / "new.parquet")
    code, out, _ = run("describe", "new.parquet", "--against", "old.csv", "--report", "r.html")
    assert code == 0
    assert "Compared with the reference" in out
    assert "flipper_length_mm" in out.split("Compared with the reference")[1]
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Drift of missingness" in page
    assert "old.csv" in page


def test_formats_and_options_of_a_csv_reach_the_reader(run, tmp_path):
    text = "x|y\n" + "".join(f"{i}|{'-9' if i % 4 == 0 else i * i}\n" for i in range(40))
    (tmp_path / "in.txt.gz").write_bytes(gzip.compress(text.encode()))
    code, out, _ = run("describe", "in.txt.gz", "--delimiter", "|", "--null", "-9", "--json")
    assert code == 0
    assert json.loads(out)["columns"][1]["n_missing"] == 10


def test_quiet_prints_nothing(run):
    assert run("describe", PENGUINS, "-q") == (0, "", "")


def test_a_terminal_gets_tables_and_bars():
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=110, color_system="truecolor")
    frame = pd.DataFrame({"a[b]": [1.0, None] * 30, "b": [*range(59), None], "c": [2.5, 1.0, None] * 20})
    frame.loc[frame["b"] > 30, "c"] = None
    show_diagnosis(halfseen.describe(frame, against=frame), console)
    text = screen.getvalue()
    for words in ("a[b]", "█", "Summary", "Compared with the reference", "AUC", "What cannot be known"):
        assert words in text


REFUSALS = {
    "no such file": (["describe", "none.csv"], "none.csv: no such file"),
    "no such target": (["describe", "in.csv", "--target", "z"], "target 'z' is not a column"),
    "no such reference": (["describe", "in.csv", "--against", "none.csv"], "none.csv: no such file"),
    "nothing in common": (["describe", "in.csv", "--against", "other.csv"], "no column in common"),
    "two streams": (["describe", "-", "--against", "-"], "only one of the two tables"),
    "report into nowhere": (["describe", "in.csv", "--report", "none/r.html"], "'none' does not exist"),
    "report over the input": (
        ["describe", "in.csv", "--report", "in.csv"],
        "--report would overwrite the input",
    ),
    "infinite": (["describe", "infinite.csv"], "contains infinity"),
    "empty": (["describe", "empty.csv"], "is empty"),
    "unknown option": (["describe", "in.csv", "--magic"], "--magic"),
    "unknown format": (["describe", "in.csv", "--from", "doc"], "'doc' is not one of"),
    "no argument": (["describe"], "Missing"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_bad_request_gets_one_line_and_leaves_nothing(run, tmp_path, case):
    contents = {"in": "a,b\n1,2\n3,\n", "other": "c,d\n1,2\n", "infinite": "a,b\n1,inf\n2,\n", "empty": ""}
    for name, content in contents.items():
        (tmp_path / f"{name}.csv").write_text(content)
    arguments, reason = REFUSALS[case]
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith("halfseen: error: ")
    assert err.count("halfseen: error: ") == 1
    assert reason in err
    assert sorted(os.listdir(tmp_path)) == sorted(f"{name}.csv" for name in contents)


def test_a_table_of_nothing_is_described(run, tmp_path):
    (tmp_path / "in.csv").write_text("a,b\nNA,\n,?\n")
    code, out, _ = run("describe", "in.csv")
    assert code == 0
    assert "There are too few observed values to compare rows" in out


def test_the_help_names_the_command(run):
    code, out, _ = run()
    assert code == 0
    assert "describe" in out


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A table, and a regressor and a classifier of it that are saved beside it."""
    folder = tmp_path_factory.mktemp("models")
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 3)), columns=["a", "b", "c"])
    kind = np.where(X["a"] > 0.5, "high", np.where(X["a"] > -0.5, "middle", "low"))
    table = X.assign(kind=kind, y=X.sum(axis=1))
    table.loc[:20, "b"] = np.nan
    table.to_csv(folder / "t.csv", index=False)
    features = table[["a", "b", "c"]]
    halfseen.GaussianRegressor().fit(features, table["y"]).save(folder / "r.halfseen")
    classifier = halfseen.sparsity.SparsityNormClassifier(4, max_epochs=1, random_state=0).fit(features, kind)
    classifier.save(folder / "c.halfseen")
    halfseen.MeanImputer().fit(features).save(folder / "i.halfseen")
    return folder


def test_the_drift_of_a_saved_model_is_described(run, models, tmp_path):
    table = models / "t.csv"
    code, out, _ = run("describe", table, "--model", models / "r.halfseen", "--report", "r.html")
    assert code == 0
    assert (
        "The model (GaussianRegressor, the prediction)\n  The mean prediction does not clearly depend" in out
    )
    assert "GaussianRegressor: mean of the prediction" in (tmp_path / "r.html").read_text(encoding="utf-8")
    code, out, _ = run("describe", table, "--model", models / "c.halfseen", "--class", "low", "--json", "-q")
    assert code == 0
    content = json.loads(out)["model"]
    features = pd.read_csv(table)[["a", "b", "c"]]
    expected = halfseen.evaluation.vsp_curve(halfseen.load(models / "c.halfseen"), features, output="low")
    assert content["followed"] == "the probability of low"
    np.testing.assert_allclose(content["means"], expected.means)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "c.halfseen"], "has 3 classes: choose one by --class, high, low, middle"),
        (
            ["--model", "c.halfseen", "--class", "none"],
            "has no class 'none'; its classes are high, low, middle",
        ),
        (
            ["--model", "r.halfseen", "--class", "low"],
            "--class is for classifiers; the model predicts numbers",
        ),
        (["--class", "low"], "--class requires --model"),
        (["--model", "i.halfseen"], "holds a MeanImputer; --model needs a regressor or classifier"),
        (["--model", "t.csv"], "is not a halfseen model file"),
    ],
)
def test_models_that_cannot_be_asked_are_refused_in_one_line(run, models, monkeypatch, options, message):
    monkeypatch.chdir(models)
    monkeypatch.delenv("HALFSEEN_DEBUG", raising=False)
    code, out, err = run("describe", "t.csv", "--quiet", *options)
    assert code == 2
    assert out == ""
    assert message in err


def test_a_column_of_the_model_that_the_table_lacks_counts_as_missing(run, models, tmp_path):
    table = pd.read_csv(models / "t.csv").drop(columns="b")
    table.to_csv(tmp_path / "short.csv", index=False)
    code, out, err = run("describe", "short.csv", "--model", models / "r.halfseen", "--json")
    assert code == 0, err
    assert "column 'b' is not in short.csv: treated as missing in every row" in err
    expected = halfseen.evaluation.vsp_curve(
        halfseen.load(models / "r.halfseen"), table.assign(b=np.nan)[["a", "b", "c"]], random_state=0
    )
    np.testing.assert_allclose(json.loads(out)["model"]["means"], expected.means)


def test_a_table_without_any_column_of_the_model_is_refused(run, models, monkeypatch):
    monkeypatch.delenv("HALFSEEN_DEBUG", raising=False)
    code, _, err = run("describe", PENGUINS, "--quiet", "--model", models / "r.halfseen")
    assert code == 2
    assert "penguins.csv has none of the columns of the model, which are a, b and c" in err


@pytest.fixture
def survey(tmp_path):
    rng = np.random.default_rng(0)
    age = rng.normal(50, 10, size=80).round(1)
    income = (age + rng.normal(0, 5, size=80)).round(1)
    lines = [
        f"{a},{'' if i < 20 else v},{'' if i > 70 else 'yes' if v > 50 else 'no'}"
        for i, (a, v) in enumerate(zip(age, income, strict=True))
    ]
    (tmp_path / "s.csv").write_text("\n".join(["age,income,smoker", *lines]) + "\n")
    return tmp_path / "s.csv"


@pytest.mark.slow
def test_the_sensitivity_of_a_mean_is_described(run, survey, monkeypatch):
    monkeypatch.chdir(survey.parent)
    code, out, _ = run(
        "describe", survey, "--sensitivity", "income", "--reference", "40", "--report", "r.html"
    )
    assert code == 0
    assert "What if missing values differ\n  If values are missing at random, the data show" in out
    assert "cannot identify the departure" in out
    page = (survey.parent / "r.html").read_text()
    assert "What if missing values differ?" in page
    assert "Mean of income" in page
    assert "self-masking-probit" not in page  # a model of missingness is fitted on request only


@pytest.mark.slow
def test_the_sensitivity_of_a_share_is_described_as_json(run, survey):
    code, out, _ = run("describe", survey, "--sensitivity", "smoker=yes", "--json", "-q")
    assert code == 0
    (found,) = json.loads(out)["sensitivities"]
    assert found["name"] == "share of smoker=yes"
    assert found["tipping_points"] == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sensitivity", "wage"], "There is no column 'wage'; the table has age, income, smoker"),
        (["--sensitivity", "age"], "Column 'age' has no missing values"),
        (["--sensitivity", "smoker=maybe"], "no level 'maybe'; it has no, yes"),
        (["--sensitivity", "income ~ age"], "takes COLUMN or COLUMN=LEVEL"),
        (["--reference", "3"], "--reference requires --sensitivity COLUMN"),
        (
            ["--sensitivity", "income", "--sensitivity", "smoker", "--reference", "3"],
            "--reference belongs to one estimate",
        ),
    ],
)
def test_a_sensitivity_analysis_that_cannot_be_done_is_refused_in_one_line(run, survey, options, message):
    code, _, err = run("describe", survey, "--quiet", *options)
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert "HALFSEEN_DEBUG" not in err
