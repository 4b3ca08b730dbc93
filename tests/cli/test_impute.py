"""The command `halfseen impute`: with a tiny imputer in place of the real ones, and at the end for real."""

import csv
import gzip
import io
import json
import os
import re
import subprocess
import sys
import threading
import time
from contextlib import nullcontext, redirect_stdout
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet
import pytest
from rich.console import Console

import halfseen
from halfseen.auto import imputer as auto_imputer
from halfseen.cli import progress
from halfseen.cli.main import main, one_line
from halfseen.cli.progress import BEATS, Reporter
from halfseen.errors import HalfseenWarning
from halfseen.files.tables import read_table
from halfseen.training.progress import part_of_answer, report_share

PENGUINS = str(files("halfseen.data") / "samples" / "penguins.csv")
TABLE = "name,x,y\nann,1.50,4\nbob,,5\ncat,2.25,\n"


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text(TABLE)
    return path


def read_rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def test_missing_cells_are_filled_and_nothing_else_changes(run, table, tmp_path):
    code, out, err = run("impute", table, "-o", "out.csv")
    assert (code, out) == (0, "")
    before, after = read_rows(table), read_rows(tmp_path / "out.csv")
    changed = [(i, j) for i, row in enumerate(before) for j, cell in enumerate(row) if after[i][j] != cell]
    assert changed == [(2, 1), (3, 2)]
    assert after[2][1] in ("1.50", "2.25")
    assert [line.split()[0] for line in err.splitlines()] == [
        "read", "missing", "fitting", "columns", "columns", "imputing", "wrote", "done",
    ]  # fmt: skip
    assert "csv, comma, utf-8): 3 rows, 3 columns" in err
    assert sorted(os.listdir(tmp_path)) == ["in.csv", "out.csv"]


@pytest.mark.parametrize("output", [[], ["-o", "in.csv"]], ids=["no output", "the input"])
def test_the_input_is_replaced_in_place_if_asked(run, table, output):
    assert run("impute", table, "--in-place", *output, "-q") == (0, "", "")
    assert "" not in [cell for row in read_rows(table) for cell in row]


def test_draws_are_stacked_with_a_first_column_of_another_name_if_taken(run, tmp_path):
    (tmp_path / "in.csv").write_text("draw,x\na,1\nb,\n")
    assert run("impute", "in.csv", "-o", "out.csv", "--draws", 3, "-q")[0] == 0
    rows = read_rows(tmp_path / "out.csv")
    assert rows[0] == ["draw_0", "draw", "x"]
    assert [row[0] for row in rows[1:]] == ["1", "1", "2", "2", "3", "3"]


def test_draws_are_proper_by_default(run, table, monkeypatch):
    seen = []
    kind = halfseen.AutoImputer
    monkeypatch.setattr(
        auto_imputer, "AutoImputer", lambda **settings: seen.append(settings) or kind(**settings)
    )
    run("impute", table, "-o", "out.csv", "--draws", 7, "--seed", 5)
    run("impute", table, "-o", "single.csv")
    assert [(one.get("n_posterior_draws", 0), one["random_state"]) for one in seen] == [(7, 5), (0, 0)]


@pytest.mark.parametrize("method", ["gaussian", "chained", "mixture", "mean"])
def test_equal_seeds_give_equal_files(run, table, tmp_path, method):
    for name in ("a.csv", "b.csv"):
        assert run("impute", table, "-o", name, "--method", method, "--seed", 3, "-q") == (0, "", "")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_training_keeps_checkpoints_in_the_folder_that_is_named(run, table, tmp_path, monkeypatch):
    folders = []
    monkeypatch.setattr(halfseen, "checkpoints", lambda folder: folders.append(folder) or nullcontext())
    assert run("impute", table, "-o", "a.csv", "--checkpoint", "run1", "-q") == (0, "", "")
    assert run("impute", table, "-o", "b.csv", "-q") == (0, "", "")
    assert folders == ["run1"]


def test_report_and_model_are_written(run, table, tmp_path):
    code, _, err = run("impute", table, "-o", "out.parquet", "--report", "r.html", "--save-model", "m.half")
    assert code == 0
    assert sorted(os.listdir(tmp_path)) == ["in.csv", "m.half", "out.parquet", "r.html"]
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<!DOCTYPE html>" in page
    assert "halfseen impute" in page
    assert "--report r.html" in page
    assert "r.html" in err
    assert pyarrow.parquet.read_table(tmp_path / "out.parquet").num_rows == 3


def test_standard_output_carries_data_only(run, table):
    code, out, err = run("impute", table, "-o", "-")
    assert code == 0
    assert out.startswith("name,x,y\nann,1.50,4\n")
    assert "wrote  standard output" in err


def test_streams_of_text_may_stand_for_standard_input_and_output(run, table, monkeypatch):
    expected = run("impute", table, "-o", "-")[1]
    stream = io.StringIO()
    with redirect_stdout(stream):
        assert run("impute", table, "-o", "-")[0] == 0
    assert stream.getvalue() == expected
    monkeypatch.setattr("sys.stdin", io.StringIO(Path(table).read_text(encoding="utf-8")))
    assert run("impute", "-", "-o", "-")[1] == expected
    with redirect_stdout(io.StringIO()) as stream:
        code, _, err = run("impute", table, "-o", "-", "--to", "parquet")
    assert (code, stream.getvalue()) == (2, "")
    assert "standard output was replaced by a stream of UTF-8 text" in err


def test_closed_streams_are_named(run, table, monkeypatch, tmp_path):
    for name, arguments in {"input": ("-", "-o", "out.csv"), "output": (table, "-o", "-")}.items():
        with monkeypatch.context() as patched:
            patched.setattr(f"sys.std{name.removesuffix('put')}", None)
            code, _, err = run("impute", *arguments)
        assert code == 2
        assert err.endswith(f": standard {name} is closed\n")
    with monkeypatch.context() as patched:
        patched.setattr("sys.stdout", None)
        assert run("describe", table, "--report", "r.html")[0] == 0
        assert (tmp_path / "r.html").exists()
        patched.setattr("sys.stderr", None)
        assert run("impute", table, "-o", "no/out.csv") == (2, "", "")


def test_options_of_a_csv_reach_the_reader(run, tmp_path):
    (tmp_path / "in.txt").write_bytes("é|x\nNA|1\nb|-9\nc|3\n".encode("latin-1"))
    options = ["--delimiter", "|", "--encoding", "latin-1", "--null", "-9", "--no-default-nulls"]
    assert run("impute", "in.txt", "-o", "out.csv", *options, "-q")[0] == 0
    lines = (tmp_path / "out.csv").read_bytes().decode("latin-1").splitlines()
    assert lines[:2] == ["é|x", "NA|1"]
    assert lines[2] in ("b|1", "b|3")


def test_a_warning_is_one_note_and_reaches_the_report(run, table, tmp_path, monkeypatch):
    class Warning(halfseen.AutoImputer):
        def fit(self, table):
            for _ in range(2):
                __import__("warnings").warn("Column 'x' is\nodd.", HalfseenWarning, stacklevel=1)
            return super().fit(table)

    monkeypatch.setattr(auto_imputer, "AutoImputer", Warning)
    _, _, err = run("impute", table, "-o", "out.csv", "--report", "r.html")
    assert [line for line in err.splitlines() if "odd" in line] == [" warning  Column 'x' is odd."]
    assert "is odd." in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert run("impute", table, "-o", "quiet.csv", "--quiet") == (0, "", "")


def test_a_table_without_missing_values_passes_through(run, tmp_path):
    (tmp_path / "in.csv").write_text("x,y\n1,2\n3,4\n")
    code, _, err = run("impute", "in.csv", "-o", "out.csv", "--report", "r.html")
    assert code == 0
    assert "missing  no cells" in err
    assert "note  no cell is missing: nothing is imputed, so methods are not compared" in err
    assert (tmp_path / "out.csv").read_text() == "x,y\n1,2\n3,4\n"
    assert "No values were missing, so nothing was filled." in (tmp_path / "r.html").read_text(
        encoding="utf-8"
    )


def test_a_model_is_fitted_to_a_table_without_missing_values_if_it_is_saved(run, tmp_path):
    (tmp_path / "in.csv").write_text("x,y\n1,2\n3,4\n")
    code, _, err = run("impute", "in.csv", "-o", "out.csv", "--save-model", "m.halfseen")
    assert code == 0
    assert "no cell is missing" not in err
    assert "fitting  auto" in err


# ------------------------------------------------------------------------------------------ refusals

BAD_INPUTS = {
    "empty file": (b"", [], "is empty"),
    "header only": (b"a,b\n", [], "no rows"),
    "ragged csv": (b"a,b\n1,2\n1,2,3\n", [], "line 3 has 3 cells"),
    "duplicate columns": (b"a,a\n1,2\n", [], "columns 1 and 2 are both called 'a'"),
    "all missing": (b"a,b\nNA,\n,?\n", [], "every cell is missing"),
    "infinite values": (b"a,b\n1,inf\n2,\n", [], "'b' contains infinity"),
    "wrong delimiter": (b"a,b\n1,2\n", ["--delimiter", ";"], "wrong delimiter"),
    "binary junk": (bytes(range(256)) * 8, [], "not a text table"),
    "truncated gz": (gzip.compress(b"a,b\n" + b"1,2\n" * 999)[:-9], [], "truncated"),
    "unknown method": (b"a,b\n1,2\n", ["--method", "magic"], "magic"),
    "unknown option": (b"a,b\n1,2\n", ["--magic"], "--magic"),
    "no draws": (b"a,b\n1,2\n", ["--draws", "0"], "--draws"),
    "bad level": (b"a,b\n1,2\n", ["--level", "90"], "not between 0 and 1"),
    "bad seed": (b"a,b\n1,2\n", ["--seed", "x"], "--seed"),
    "bad encoding": (b"a,b\n1,2\n", ["--encoding", "klingon"], "unknown encoding"),
    "missing schema": (b"a,b\n1,2\n", ["--schema", "none.json"], "none.json"),
    "report into nowhere": (b"a,b\n1,2\n", ["--report", "none/r.html"], "'none' does not exist"),
    "report over the output": (
        b"a,b\n1,2\n",
        ["--report", "out.csv"],
        "would overwrite the file",
    ),
    "no output": (b"a,b\n1,2\n", None, "state where to write with --output, or use --in-place"),
    "two outputs": (b"a,b\n1,2\n", ["--in-place"], "out.csv: --in-place writes to the input, in.csv"),
}


def check_refusal(code, out, err, reason, folder, left):
    assert code == 2
    assert out == ""
    assert err.splitlines()[-1].startswith("halfseen: error: ")
    assert err.count("halfseen: error: ") == 1
    assert reason in err
    assert sorted(os.listdir(folder)) == left


@pytest.mark.parametrize("case", BAD_INPUTS)
def test_bad_input_gets_one_line_and_leaves_nothing(run, tmp_path, case):
    content, options, reason = BAD_INPUTS[case]
    (tmp_path / "in.csv").write_bytes(content)
    arguments = [] if options is None else ["-o", "out.csv", *options]
    code, out, err = run("impute", "in.csv", *arguments)
    check_refusal(code, out, err, reason, tmp_path, ["in.csv"])


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("none/out.csv", "does not exist"),
        ("in.csv/x.csv", "not a directory"),
        ("o.doc", "'.doc'"),
    ],
)
def test_an_unwritable_output_is_refused_before_the_work(run, table, tmp_path, monkeypatch, output, reason):
    monkeypatch.setattr(auto_imputer, "AutoImputer", None)
    check_refusal(*run("impute", table, "-o", output), reason, tmp_path, ["in.csv"])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_permission_is_refused(run, table, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    code, out, err = run("impute", table, "-o", "locked/out.csv")
    check_refusal(code, out, err, "permission denied", tmp_path, ["in.csv", "locked"])


def test_a_full_disk_leaves_nothing(run, table, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    code, _, err = run("impute", table, "-o", "out.csv", "-q")
    assert (code, err) == (2, "halfseen: error: out.csv: cannot write: no space left on device\n")
    assert os.listdir(tmp_path) == ["in.csv"]


def test_missing_input_and_missing_arguments(run, tmp_path):
    check_refusal(*run("impute", "none.csv", "-o", "out.csv"), "none.csv: no such file", tmp_path, [])
    check_refusal(*run("impute"), "Missing", tmp_path, [])
    check_refusal(*run("nonsense"), "nonsense", tmp_path, [])


def test_version_and_help(run):
    assert run("--version") == (0, f"halfseen {halfseen.__version__}\n", "")
    code, out, err = run()
    assert (code, err) == (0, "")
    assert "impute" in out
    assert "completion" not in out


def test_names_with_control_characters_stay_on_one_line():
    assert one_line("a\nb\x1b[31mc") == "a b\N{REPLACEMENT CHARACTER}[31mc"


def test_a_terminal_gets_a_bar_and_lines_at_once():
    screen = io.StringIO()
    reporter = Reporter(console=Console(file=screen, force_terminal=True, width=100))
    with reporter.progress("fitting", "miwae") as callback:
        callback(SimpleNamespace(epoch=3, max_epochs=9))
    assert "3/9" in screen.getvalue()
    reporter.show("read", "a[b]c.csv")
    assert "a[b]c.csv" in screen.getvalue()


def test_without_a_terminal_lines_appear_at_once_and_a_long_step_reports_its_progress(monkeypatch):
    monkeypatch.setattr(progress, "BEATS", (0.01, 0.02, 0.05))
    screen = io.StringIO()
    reporter = Reporter(console=Console(file=screen))
    reporter.show("read", "a.csv")
    assert screen.getvalue() == "    read  a.csv\n"
    with reporter.progress("fitting", "miwae") as callback:
        assert screen.getvalue().startswith("    read  a.csv\n fitting  miwae\n")  # further lines may follow
        wait_for("so far", screen)
        callback(SimpleNamespace(epoch=3, max_epochs=9))
        wait_for("fitting  epoch 3 of 9, 0 s so far", screen)
    said = screen.getvalue()
    assert "halfseen progress" not in [thread.name for thread in threading.enumerate()]
    assert "\x1b" not in said


def test_a_long_answer_reports_its_share(monkeypatch):
    monkeypatch.setattr(progress, "BEATS", (0.01, 0.02, 0.05))
    for is_terminal, words in ((False, "imputing  25% done, 0 s so far"), (True, "25%")):
        screen = io.StringIO()
        reporter = Reporter(console=Console(file=screen, force_terminal=is_terminal, width=100))
        with reporter.answering("imputing", "means"):
            with part_of_answer(0.0, 0.5, divisible=True):
                report_share(0.5)
                wait_for(words, screen)


def test_progress_is_reported_at_least_every_ten_seconds():
    assert max(np.diff((0.0, *BEATS))) <= 10
    assert BEATS[-1] <= 10  # also the time between all later ones


def wait_for(words, screen):
    for _ in range(1000):
        if words in screen.getvalue():
            return
        time.sleep(0.01)
    pytest.fail(f"{words!r} was not said: {screen.getvalue()}")


# ------------------------------------------------------------------------------------------ for real


@pytest.mark.parametrize(
    "method",
    [
        "gaussian",
        "mixture",
        "mean",
        "gaussian:self-masking-probit",
        pytest.param("miwae", marks=pytest.mark.slow),
    ],
)
def test_penguins_end_to_end(tmp_path, capfd, method):
    out, page = tmp_path / "out.csv", tmp_path / "r.html"
    command = [
        "impute",
        PENGUINS,
        "-o",
        str(out),
        "--method",
        method.partition(":")[0],
        "--report",
        str(page),
    ]
    command += ["--missingness", method.partition(":")[2]] if ":" in method else []
    assert main(command) == 0, capfd.readouterr().err
    before, after = read_rows(PENGUINS), read_rows(out)
    assert len(before) == len(after)
    for old_row, new_row in zip(before, after, strict=True):
        for old, new in zip(old_row, new_row, strict=True):
            assert new == old or (old == "" and new != "")
    assert {row[6] for row in after[1:]} == {"male", "female"}
    text = page.read_text(encoding="utf-8")
    assert "penguins.csv" in text
    assert ("missing at random</em>" in text) == (method != "gaussian:self-masking-probit")


def test_a_schema_file_sets_kinds_and_bounds(tmp_path, capfd):
    (tmp_path / "s.json").write_text(
        json.dumps({"columns": {"body_mass_g": {"minimum": 6000, "maximum": 7000}}})
    )
    command = ["impute", PENGUINS, "-o", str(tmp_path / "out.csv"), "--schema", str(tmp_path / "s.json")]
    assert main([*command, "--method", "gaussian"]) == 0, capfd.readouterr().err
    pairs = zip(read_rows(PENGUINS), read_rows(tmp_path / "out.csv"), strict=True)
    assert {6000 <= float(after[5]) <= 7000 for before, after in pairs if before[5] == ""} == {True}


def test_dates_booleans_and_decimal_commas_keep_their_style(tmp_path, capfd):
    lines = ["when;on;v;day", "2020-01-01 10:00;True;1,5;2020-01-05", "2020-01-02 10:00;;2,25;",
             ";False;;2020-02-01", "2020-01-04 11:30;True;1,75;2020-01-09"]  # fmt: skip
    (tmp_path / "in.csv").write_text("\n".join(lines) + "\n")
    command = ["impute", str(tmp_path / "in.csv"), "-o", str(tmp_path / "out.csv"), "--draws", "2"]
    assert main([*command, "--report", str(tmp_path / "r.html")]) == 0, capfd.readouterr().err
    after = (tmp_path / "out.csv").read_text().splitlines()
    assert after[0] == f"draw;{lines[0]}"
    assert [after[place] for place in (1, 4, 5, 8)] == [f"{d};{lines[p]}" for d in "12" for p in (1, 4)]
    for draw, second, third in (("1", *after[2:4]), ("2", *after[6:8])):
        assert re.fullmatch(rf"{draw};2020-01-02 10:00;(True|False);2,25;\d{{4}}-\d\d-\d\d", second)
        assert re.fullmatch(rf"{draw};\d{{4}}-\d\d-\d\d \d\d:\d\d;False;\d+,\d\d;2020-02-01", third)


def test_a_saved_model_gives_the_same_values(tmp_path, capfd):
    model, out = tmp_path / "penguins.model", tmp_path / "out.parquet"
    command = ["impute", PENGUINS, "-o", str(out), "--save-model", str(model), "--method", "mixture"]
    assert main(command) == 0, capfd.readouterr().err
    again = halfseen.load(model).transform(read_table(PENGUINS).table)
    assert again.equals(pyarrow.parquet.read_table(out))


def test_infinite_values_are_refused(tmp_path, capfd):
    (tmp_path / "in.csv").write_text("a,b\n1,inf\n2,\n3,4\n")
    code = main(["impute", str(tmp_path / "in.csv"), "-o", str(tmp_path / "out.csv")])
    check_refusal(code, *capfd.readouterr(), "'b'", tmp_path, ["in.csv"])


def test_the_module_runs_as_a_program(tmp_path):
    run = [sys.executable, "-m", "halfseen", "impute", "-", "-o", "-", "--method", "mean"]
    done = subprocess.run(run, input=TABLE, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("name,x,y\nann,1.50,4\n")


def test_an_unknown_option_is_refused(run, table, tmp_path):
    check_refusal(*run("impute", table, "--magic"), "--magic", tmp_path, ["in.csv"])


def test_a_report_can_evaluate_the_method_on_known_cells(tmp_path):
    report, some = tmp_path / "r.html", tmp_path / "some.csv"
    some.write_text("".join(Path(PENGUINS).read_text().splitlines(keepends=True)[:120]))
    command = [
        "impute",
        str(some),
        "-o",
        str(tmp_path / "o.csv"),
        "--report",
        str(report),
        "--quiet",
        "--overwrite",
    ]
    assert main([*command, "--evaluate"]) == 0
    page = report.read_text()
    assert "Accuracy on known values" in page
    assert all(
        f'<td class="name">{method}</td>' in page for method in ("auto", "mean", "median", "iterative")
    )
    assert main(command) == 0
    assert "Accuracy on known values" not in report.read_text()


@pytest.mark.slow
def test_a_line_and_the_report_state_what_was_chosen_and_why(tmp_path, capsys):
    report = tmp_path / "r.html"
    command = ["impute", PENGUINS, "-o", str(tmp_path / "o.csv"), "--seed", "1", "--max-seconds", "30"]
    assert main([*command, "--report", str(report)]) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("  chosen")]
    assert "AutoImputer combines" in line or "AutoImputer uses" in line
    assert line.removeprefix("  chosen").strip().split(" (")[0] in report.read_text()


def test_an_assumption_about_missingness_needs_no_method(tmp_path, capsys):
    assert main(["impute", PENGUINS, "-o", str(tmp_path / "o.csv"), "--missingness", "mar"]) == 0
    assert "  chosen" not in capsys.readouterr().err


def test_evaluate_without_a_report_is_an_error(tmp_path, capsys):
    assert main(["impute", PENGUINS, "-o", str(tmp_path / "o.csv"), "--evaluate"]) == 2
    assert "use it together with --report" in capsys.readouterr().err


def test_a_report_asks_for_draws_and_intervals_of_some_rows_only(run, tmp_path, monkeypatch):
    asked, imputer = [], halfseen.AutoImputer
    usual = imputer.interval

    def interval(self, table, level):
        asked.append(table.num_rows)
        return usual(self, table, level)

    monkeypatch.setattr(imputer, "interval", interval)
    rows = "\n".join(f"{i % 7 if i % 4 else ''},{i if i % 4 != 1 else ''}" for i in range(12_000))
    (tmp_path / "long.csv").write_text(f"a,b\n{rows}\n")
    assert run("impute", "long.csv", "-o", "out.csv", "--report", "r.html")[0] == 0
    assert asked == [2_000, 4_000]  # to check hidden values; of 6,000 rows
    assert "a random sample of 2,000 is shown" in (tmp_path / "r.html").read_text()


def test_the_report_on_a_circuit_draws_its_tree(tmp_path):
    rows = "\n".join(f"{i * 7 % 13},{i % 7 if i % 5 else ''},{i * i % 11}" for i in range(24))
    (tmp_path / "in.csv").write_text(f"a,b,c\n{rows}\n")
    command = ["impute", str(tmp_path / "in.csv"), "-o", str(tmp_path / "o.csv"), "--method", "circuit"]
    assert main([*command, "--report", str(tmp_path / "r.html"), "--quiet"]) == 0
    page = (tmp_path / "r.html").read_text()
    assert 'aria-label="The tree of the circuit"' in page
    assert "circuit over 3 columns, 1 tree" in page


@pytest.mark.parametrize("options", [(), ("--draws", "2")])
def test_values_far_outside_the_observed_ones_are_announced(tmp_path, capsys, monkeypatch, options):
    from halfseen.base.imputer import BaseImputer

    complete = BaseImputer._by_piece

    def run_away(*arguments):
        return [[1e6 + codes for codes in draw] for draw in complete(*arguments)]

    monkeypatch.setattr(BaseImputer, "_by_piece", run_away)
    rng = np.random.default_rng(0)
    path = tmp_path / "in.csv"
    path.write_text("x,y\n" + "".join(f"{x:.6f},{x + 1:.6f}\n" for x in rng.normal(size=40)) + ",0.5\n")
    assert main(["impute", str(path), "-o", str(tmp_path / "out.csv"), "--method", "mean", *options]) == 0
    count = "2 values lie" if options else "1 value lies"
    assert f"Column 'x': {count} more than 4 observed ranges" in " ".join(capsys.readouterr().err.split())


def test_options_of_chained_equations_are_parameters_of_the_imputer(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [
        f"{i % 7 + i / 10},{i % 5 + i / 9},{'' if i % 6 == 0 else i % 4 + i / 8},{i % 3}" for i in range(40)
    ]
    rows[3] = ",2.5,1.5,1"
    Path("a.csv").write_text("\n".join(["w,h,b,y", *rows]))
    given = [
        "--analysis",
        "y ~ b",
        "--predictors",
        "w = h, b",
        "--column-method",
        "w = pmm",
        "--visit-order",
        "w",
    ]
    code, _, err = call(
        "impute", "a.csv", "-o", "b.csv", "--draws", 2, "--save-model", "m.half", *given, "-q"
    )
    assert (code, err) == (0, "")
    found = halfseen.load("m.half")
    assert (found.analysis, found.predictors) == ("y ~ b", {"w": ["h", "b"]})
    assert (found.methods, found.visit_order, found.n_chains) == ({"w": "pmm"}, ["w"], 2)
    again = ["impute", "a.csv", "-o", "c.csv", "--draws", 2, "-q", "--overwrite"]
    assert call(*again, "--block", "w, h", "--constraint", "b <= 90")[0] == 0
    for wrong, message in (
        (["--predictors", "w"], "is not of the form 'bmi = height, weight'"),
        (["--family", "poisson"], "state --analysis"),
        (["--block", "w,h", "--method", "gaussian"], "the method chained alone"),
        (["--model", "m.half", "--analysis", "y ~ b"], "fitted already"),
    ):
        code, _, err = call(*again, *wrong)
        assert code == 2
        assert message in " ".join(err.split())
