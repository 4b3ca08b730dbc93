"""No command overwrites one of its inputs unasked, or one output with another, however a path is spelt."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from halfseen.errors import TableError
from halfseen.files.writing import check_apart

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


def test_another_existing_output_is_replaced(run, inputs):
    (inputs / "out.csv").write_text("old")
    assert run("impute", "in.csv", "-o", "out.csv", "-q") == (0, "", "")
    assert (inputs / "out.csv").read_text().startswith("name,x,y\n")


def test_in_place_follows_a_link_and_keeps_it(run, inputs):
    (inputs / "link.csv").symlink_to("in.csv")
    assert run("impute", "link.csv", "--in-place", "-q") == (0, "", "")
    assert (inputs / "link.csv").is_symlink()
    assert (inputs / "in.csv").read_text() != TABLE


def test_devices_and_streams_may_be_named_twice():
    check_apart({"IN": "-"}, {"--output": "-", "--report": os.devnull, "--save-model": os.devnull})
    check_apart({"IN": "-", "--schema": None}, {"--output": None})
    with pytest.raises(TableError, match="--report would overwrite the file of --output"):
        check_apart({"IN": "a"}, {"--output": "-", "--report": "-"})


def test_files_that_are_the_same_on_a_file_system_without_cases_are_found(tmp_path, monkeypatch):
    """Such a file system finds IN.CSV where in.csv is; it is played here by a link."""
    monkeypatch.chdir(tmp_path)
    Path("in.csv").write_text(TABLE)
    os.link("in.csv", "IN.CSV")
    with pytest.raises(TableError, match=r"IN\.CSV: --output would overwrite the input"):
        check_apart({"IN": "in.csv"}, {"--output": "IN.CSV"})
