"""No command overwrites one of its inputs unasked, or one output with another, however a path is spelt."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from halfseen.errors import TableError
from halfseen.files.writing import check_overwriting

TABLE = "name,x,y\nann,1.50,4\nbob,,5\ncat,2.25,\n"
SPELLINGS = {
    "the same": lambda folder: "in.csv",
    "with a dot": lambda folder: "./in.csv",
    "up and down": lambda folder: f"../{folder.name}/in.csv",
    "absolute": lambda folder: folder / "in.csv",
    "a link": lambda folder: _link(folder, os.symlink),
    "a hard link": lambda folder: _link(folder, os.link),
    "through a linked folder": lambda folder: _linked_folder(folder),
}
COMMANDS = {
    "impute, output": ["impute", "in.csv", "-o", "PATH"],
    "impute, report": ["impute", "in.csv", "-o", "out.csv", "--report", "PATH"],
    "impute, model": ["impute", "in.csv", "-o", "out.csv", "--save-model", "PATH"],
    "impute, report in place": ["impute", "in.csv", "--in-place", "--report", "PATH"],
    "impute, over the schema": ["impute", "other.csv", "--schema", "in.csv", "-o", "PATH"],
    "describe, report": ["describe", "in.csv", "--report", "PATH"],
    "describe, over the reference": ["describe", "other.csv", "--against", "in.csv", "--report", "PATH"],
    "ampute, output": ["ampute", "in.csv", "-o", "PATH"],
    "compare, report": ["compare", "in.csv", "--report", "PATH"],
    "compare, over the schema": ["compare", "other.csv", "--schema", "in.csv", "--report", "PATH"],
}


def _link(folder, make):
    make(folder / "in.csv", folder / "link.csv")
    return "link.csv"


def _linked_folder(folder):
    (folder / "elsewhere").symlink_to(folder)
    return "elsewhere/in.csv"


@pytest.fixture
def inputs(tmp_path):
    for name in ("in.csv", "other.csv"):
        (tmp_path / name).write_text(TABLE)
    return tmp_path


def check_refused(run, folder, arguments):
    files = sorted(os.listdir(folder))
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("halfseen: error: ")
    assert "would overwrite" in err
    assert len(err.splitlines()) == 1
    assert (folder / "in.csv").read_text() == TABLE
    assert sorted(os.listdir(folder)) == files


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("command", COMMANDS)
def test_an_input_is_not_overwritten(run, inputs, command, spelling):
    path = str(SPELLINGS[spelling](inputs))
    check_refused(run, inputs, [path if part == "PATH" else part for part in COMMANDS[command]])


def test_the_error_states_how_to_replace_the_input(run, inputs):
    _, _, err = run("impute", "in.csv", "-o", "./in.csv")
    assert err == (
        "halfseen: error: ./in.csv: --output would overwrite the input: give another name, "
        "or --in-place to replace it\n"
    )


@pytest.mark.parametrize(
    ("one", "other"), [("r.html", "./r.html"), ("old.html", "link.html"), ("r.html", "R.HTML")]
)
def test_outputs_do_not_overwrite_each_other(run, inputs, one, other):
    (inputs / "old.html").write_text("old")
    (inputs / "link.html").symlink_to(inputs / "old.html")
    check_refused(run, inputs, ["impute", "in.csv", "-o", "o.csv", "--report", one, "--save-model", other])
    assert (inputs / "old.html").read_text() == "old"


def test_a_comparison_does_not_overwrite_its_input_with_its_results(run, inputs):
    (inputs / "results.json").write_text("{}")
    (inputs / "results.parquet").symlink_to(inputs / "in.csv")
    check_refused(run, inputs, ["compare", "in.csv", "-o", "."])
    (inputs / "new").mkdir()
    check_refused(run, inputs, ["compare", "in.csv", "-o", "new", "--report", "new/results.json"])


@pytest.mark.slow
def test_a_redirected_stream_is_the_file_behind_it(inputs):
    command = [sys.executable, "-m", "halfseen", "impute", "-", "-o", "in.csv", "--method", "mean"]
    with (inputs / "in.csv").open() as file:
        done = subprocess.run(
            command, stdin=file, capture_output=True, text=True, check=False, cwd=inputs
        )  # fmt: skip
    assert done.returncode == 2
    assert "in.csv: --output would overwrite the input" in done.stderr
    assert (inputs / "in.csv").read_text() == TABLE


OUTPUTS = {
    "impute": ["impute", "in.csv", "-o", "PATH"],
    "impute, report": ["impute", "in.csv", "-o", "-", "--report", "PATH"],
    "impute, report in place": ["impute", "in.csv", "--in-place", "--report", "PATH"],
    "impute, model": ["impute", "in.csv", "-o", "-", "--save-model", "PATH"],
    "impute, several": ["impute", "?*[nr].csv", "-o", "new", "--save-model", "PATH"],
    "describe": ["describe", "in.csv", "--report", "PATH"],
    "describe, in blocks": ["describe", "in.csv", "--engine", "local", "--report", "PATH"],
    "compare": ["compare", "in.csv", "--report", "PATH"],
    "compare, predictors": ["compare", "in.csv", "--target", "x", "--report", "PATH"],
    "compare, predictors, results": ["compare", "in.csv", "--target", "x", "-o", "PATH"],
    "ampute": ["ampute", "in.csv", "-o", "PATH"],
    "fit": ["fit", "in.csv", "--target", "x", "--save-model", "PATH"],
    "fit, report": ["fit", "in.csv", "--target", "x", "--save-model", "m", "--report", "PATH"],
    "fit, recommender": ["fit", "in.csv", "--recommender", "autorec", "--save-model", "PATH"],
    "predict": ["predict", "other.half", "in.csv", "-o", "PATH"],
    "predict, report": ["predict", "other.half", "in.csv", "-o", "-", "--report", "PATH"],
    "recommend": ["recommend", "in.csv", "--user", "ann", "--save-model", "PATH"],
    "impute, in blocks": ["impute", "in.csv", "-o", "new/x", "--engine", "local", "--save-model", "PATH"],
}


@pytest.mark.parametrize("command", OUTPUTS)
def test_an_existing_output_is_replaced_only_if_asked(run, inputs, command):
    (inputs / "new").mkdir()
    (inputs / "old.csv").write_text("old")
    code, out, err = run(*["old.csv" if part == "PATH" else part for part in OUTPUTS[command]])
    assert (code, out) == (2, "")
    assert "error: old.csv: --" in err
    assert err.endswith(": the file exists; --overwrite replaces it\n")
    assert (inputs / "old.csv").read_text() == "old"
    assert (inputs / "in.csv").read_text() == TABLE
    assert sorted(os.listdir(inputs)) == ["in.csv", "new", "old.csv", "other.csv"]
    assert not os.listdir(inputs / "new")


@pytest.mark.parametrize("command", ["impute", "impute, report", "impute, model", "describe", "ampute"])
def test_an_existing_output_is_replaced_if_asked(run, inputs, command):
    (inputs / "old.csv").write_text("old")
    arguments = ["old.csv" if part == "PATH" else part for part in OUTPUTS[command]]
    code, _, err = run(*arguments, "--overwrite")
    assert code == 0, err
    assert (inputs / "old.csv").read_text() != "old"


@pytest.mark.parametrize("command", COMMANDS)
def test_an_input_is_not_replaced_even_if_outputs_are(run, inputs, command):
    arguments = ["in.csv" if part == "PATH" else part for part in COMMANDS[command]]
    check_refused(run, inputs, [*arguments, "--overwrite"])


def test_no_input_of_several_is_replaced(run, inputs):
    (inputs / "new").mkdir()
    check_refused(run, inputs, ["impute", "*.csv", "-o", "new", "--save-model", "in.csv", "--overwrite"])
    check_refused(run, inputs, ["describe", "*.csv", "--report", "in.csv", "--overwrite"])
    run("impute", "in.csv", "-o", ".", "-q")
    files = sorted(os.listdir(inputs))
    code, _, err = run("impute", "*.csv", "-o", ".", "--overwrite")  # in.imputed.csv is an input now
    assert code == 2
    assert "would overwrite the input" in err
    assert sorted(os.listdir(inputs)) == files


def test_the_results_of_a_comparison_are_replaced_only_where_it_goes_on(run, inputs):
    (inputs / "results.json").write_text("{}")
    code, _, err = run("compare", "in.csv", "-o", ".")
    assert code == 2
    assert "results.json: --output (results.json): the file exists; --overwrite replaces it" in err
    assert (inputs / "results.json").read_text() == "{}"


def test_standard_output_is_no_file_that_is_replaced(inputs):
    command = [sys.executable, "-m", "halfseen", "ampute", "in.csv", "-o", "/dev/stdout", "--to", "csv", "-q"]
    with (inputs / "out.csv").open("w") as file:
        subprocess.run(command, stdout=file, check=True, cwd=inputs)
    assert (inputs / "out.csv").read_text().startswith("name,x,y\n")


def test_in_place_follows_a_link_and_keeps_it(run, inputs):
    (inputs / "link.csv").symlink_to("in.csv")
    assert run("impute", "link.csv", "--in-place", "-q") == (0, "", "")
    assert (inputs / "link.csv").is_symlink()
    assert (inputs / "in.csv").read_text() != TABLE


def test_devices_and_streams_may_be_named_twice():
    check_overwriting({"IN": "-"}, {"--output": "-", "--report": os.devnull, "--save-model": os.devnull})
    check_overwriting({"IN": "-", "--schema": None}, {"--output": None})
    with pytest.raises(TableError, match="--report would overwrite the file of --output"):
        check_overwriting({"IN": "a"}, {"--output": "-", "--report": "-"})


def test_files_that_are_the_same_on_a_file_system_without_cases_are_found(tmp_path, monkeypatch):
    """Such a file system finds IN.CSV where in.csv is; it is played here by a link."""
    monkeypatch.chdir(tmp_path)
    Path("in.csv").write_text(TABLE)
    os.link("in.csv", "IN.CSV")
    with pytest.raises(TableError, match=r"IN\.CSV: --output would overwrite the input"):
        check_overwriting({"IN": "in.csv"}, {"--output": "IN.CSV"})
