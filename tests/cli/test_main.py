"""What users see when something goes wrong: one line, an exit code, and nothing half-written."""

import errno
import io
import itertools
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from importlib.resources import files
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import halfseen
from halfseen.cli import impute as impute_module
from halfseen.cli import main as main_module
from halfseen.cli.main import main
from halfseen.errors import TrainingError
from halfseen.report import summarize as summarize_module

PENGUINS = str(files("halfseen.data") / "samples" / "penguins.csv")
TABLE = "name,x,y\nann,1.50,4\nbob,,5\ncat,2.25,\n"


@pytest.fixture
def as_a_user(monkeypatch):
    monkeypatch.delenv("HALFSEEN_DEBUG")


@pytest.fixture
def table(tmp_path):
    (tmp_path / "in.csv").write_text(TABLE)
    return tmp_path / "in.csv"


def fail_with(monkeypatch, error, where="fit"):
    """Makes the imputer of the tests raise."""

    def broken(self, *args, **kwargs):
        raise error

    monkeypatch.setattr(halfseen.AutoImputer, where, broken)


def last_line(err):
    assert err.count("halfseen: error: ") == 1
    return err.splitlines()[-1]


# -------------------------------------------------------------------------------------------- errors

WHERE = "(HALFSEEN_DEBUG=1 shows where)"
NO_MEMORY = "there is not enough memory; request fewer draws, or pass only some of the rows"
ERRORS = {
    "a value": (ValueError("ridge must be positive"), 2, f"ridge must be positive {WHERE}"),
    "arrow": (pa.ArrowNotImplementedError("no kernel"), 2, f"no kernel {WHERE}"),
    "arrow, a value": (pa.ArrowInvalid("not valid"), 2, f"not valid {WHERE}"),
    "memory": (MemoryError(), 2, NO_MEMORY),
    "memory of torch": (
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
        2,
        NO_MEMORY,
    ),
    "a file": (PermissionError(errno.EACCES, "Permission denied", "m.half"), 2, "m.half: permission denied"),
    "training": (TrainingError("In epoch 3 the loss was nan."), 2, "In epoch 3 the loss was nan."),
    "a defect": (
        TypeError("'int' object is not\niterable"),
        70,
        "internal error, please report it: TypeError: 'int' object is not iterable "
        "(HALFSEEN_DEBUG=1 shows the traceback)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_an_error_is_one_line_and_an_exit_code(run, table, tmp_path, monkeypatch, as_a_user, case):
    error, expected, message = ERRORS[case]
    fail_with(monkeypatch, error)
    code, out, err = run("impute", table, "-o", "out.csv")
    assert (code, out) == (expected, "")
    assert last_line(err) == f"halfseen: error: {message}"
    assert os.listdir(tmp_path) == ["in.csv"]


@pytest.mark.parametrize("case", ["a value", "arrow", "memory", "a defect"])
def test_with_debugging_a_defect_has_its_traceback(run, table, monkeypatch, case):
    error, _, _ = ERRORS[case]
    fail_with(monkeypatch, error)
    with pytest.raises(type(error)):
        run("impute", table, "-o", "out.csv")


def test_warnings_of_other_packages_do_not_reach_a_user(run, table, monkeypatch, as_a_user):
    fit = halfseen.AutoImputer.fit

    def warn(self, given):
        warnings.warn("overflow encountered", RuntimeWarning, stacklevel=1)
        np.asarray([1e308]) * 10
        return fit(self, given)

    monkeypatch.setattr(halfseen.AutoImputer, "fit", warn)
    code, _, err = run("impute", table, "-o", "out.csv")
    assert code == 0
    assert "overflow" not in err
    monkeypatch.setenv("HALFSEEN_DEBUG", "1")
    with pytest.raises(RuntimeWarning, match="overflow encountered"):
        run("impute", table, "-o", "again.csv")


# ----------------------------------------------------------------------------------- after the table


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("year 9999 is out of range"), "year 9999 is out of range (HALFSEEN_DEBUG=1 shows where)"),
        (IndexError("list index"), "internal error, please report it: IndexError: list index"),
        (OSError(errno.ENOSPC, "No space left on device", "r.html"), "r.html: no space left on device"),
    ],
)
def test_a_report_that_fails_costs_nothing_of_the_table(run, table, monkeypatch, as_a_user, error, reason):
    def broken(*args):
        error.add_note("column 'x'")
        raise error

    monkeypatch.setattr(impute_module, "make_page", broken)
    code, _, err = run("impute", table, "-o", "out.csv", "--report", "r.html", "--save-model", "m.half")
    assert code == 2
    assert last_line(err).startswith(f"halfseen: error: the report could not be made: {reason}")
    assert last_line(err).endswith("; column 'x'; the table was written to out.csv")
    assert (table.parent / "out.csv").read_text().startswith("name,x,y\n")
    assert sorted(os.listdir(table.parent)) == ["in.csv", "m.half", "out.csv"]


def test_draws_are_written_before_the_report_asks_for_more(run, table, monkeypatch, as_a_user):
    fail_with(monkeypatch, ValueError("not this time"), where="transform")
    code, _, err = run("impute", table, "-o", "out.csv", "--draws", 2, "--report", "r.html")
    assert code == 2
    assert last_line(err).endswith("; the table was written to out.csv")
    assert (table.parent / "out.csv").read_text().startswith("draw,name,x,y\n1,ann,1.50,4\n")


def test_a_report_that_fails_names_the_column(run, table, monkeypatch, as_a_user):
    def broken(column, *given):
        raise OverflowError("date value out of range")

    monkeypatch.setattr(summarize_module, "summarize_fill", broken)
    code, _, err = run("impute", table, "-o", "out.csv", "--report", "r.html")
    assert code == 2
    assert "OverflowError: date value out of range" in last_line(err)
    assert last_line(err).endswith("; column 'x'; the table was written to out.csv")


def test_a_model_that_fails_costs_nothing_of_the_table(run, table, monkeypatch, as_a_user):
    fail_with(monkeypatch, OSError(errno.ENOSPC, "No space left on device", "m.half"), where="save")
    code, _, err = run("impute", table, "-o", "out.csv", "--save-model", "m.half")
    assert code == 2
    assert last_line(err) == (
        "halfseen: error: the model could not be made: m.half: no space left on device; "
        "the table was written to out.csv"
    )
    assert sorted(os.listdir(table.parent)) == ["in.csv", "out.csv"]


def test_the_error_of_an_interrupted_report_mentions_that_the_table_was_written(run, table, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(impute_module, "make_page", interrupt)
    code, _, err = run("impute", table, "-o", "out.csv", "--report", "r.html")
    assert code == 130
    assert last_line(err) == "halfseen: error: interrupted; the table was written to out.csv"


# ----------------------------------------------------------------------------------------- full disks

full_device = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")


@full_device
@pytest.mark.parametrize("option", ["--output", "--report", "--save-model"])
def test_a_full_disk_names_the_file(tmp_path, capfd, option):
    paths = {"--output": str(tmp_path / "out.csv"), option: "/dev/full"}
    given = [word for pair in paths.items() for word in pair]
    assert main(["impute", PENGUINS, "--method", "mean", *given]) == 2
    assert "/dev/full: " in last_line(capfd.readouterr().err)
    assert os.listdir(tmp_path) == ([] if option == "--output" else ["out.csv"])


@full_device
@pytest.mark.slow
def test_a_full_disk_behind_standard_output_is_named(tmp_path):
    command = [sys.executable, "-m", "halfseen", "ampute", PENGUINS, "-o", "-"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert "halfseen: error: standard output: cannot write: no space left on device" in done.stderr


# --------------------------------------------------------------------------------------- interruption


@pytest.fixture
def start(tmp_path):
    """Starts the command on a long table, as a terminal does: as the leader of a group of processes."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(4000, 6)).round(3)
    lines = [",".join("" if rng.random() < 0.2 else str(cell) for cell in row) for row in rows]
    (tmp_path / "in.csv").write_text("\n".join(["a,b,c,d,e,f", *lines]) + "\n")
    (tmp_path / "old.csv").write_text("old")
    code = (  # a suite that runs in the background may ignore Ctrl-C, which its children inherit
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from halfseen.cli.main import run; run()"
    )
    begun = []

    def start(*arguments):
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        begun.append(process)
        return process

    yield start
    for process in begun:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_run_that_is_stopped_in_training_writes_nothing(start, tmp_path, number, code, word):
    outputs = ("-o", "old.csv", "--report", "r.html", "--save-model", "m.half", "--overwrite")
    process = start("impute", "in.csv", *outputs, "--method", "miwae")
    said = list(itertools.takewhile(lambda line: "epoch" not in line, process.stderr))
    assert process.poll() is None, "".join(said)
    process.send_signal(number)
    err = process.stderr.read()
    assert process.wait() == code
    assert last_line(err) == f"halfseen: error: {word}"
    assert "Traceback" not in err
    assert sorted(os.listdir(tmp_path)) == ["in.csv", "old.csv"]
    assert (tmp_path / "old.csv").read_text() == "old"


@pytest.mark.slow
def test_ctrl_c_in_parallel_runs_keeps_those_that_are_finished_and_writes_nothing_else(start, tmp_path):
    methods = ("--methods", "mean,miwae", "--repeats", "2", "--jobs", "2", "--draws", "2")
    process = start("compare", "in.csv", *methods, "-o", "race", "--report", "r.html")
    while not list(tmp_path.glob("race/runs/*.json")):  # then a network is in training
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    err = process.stderr.read()
    assert process.wait() == 130
    assert last_line(err) == "halfseen: error: interrupted"
    assert "Traceback" not in err
    kept = [json.loads(path.read_text()) for path in tmp_path.glob("race/runs/*")]
    assert {(run["method"], run["status"]) for run in kept} == {("mean", "ok")}
    assert sorted(os.listdir(tmp_path)) == ["in.csv", "old.csv", "race"]
    assert os.listdir(tmp_path / "race") == ["runs"]


def test_an_interruption_is_one_line_and_nothing_is_written(run, table, monkeypatch):
    fail_with(monkeypatch, KeyboardInterrupt())
    code, out, err = run("impute", table, "-o", "out.csv", "--quiet")
    assert (code, out, err) == (130, "", "halfseen: error: interrupted\n")
    assert os.listdir(table.parent) == ["in.csv"]


@pytest.mark.slow
def test_a_closed_pipe_is_no_error(tmp_path):
    command = f"'{sys.executable}' -m halfseen ampute '{PENGUINS}' -o - | head -c 10; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert "error" not in done.stderr


# ---------------------------------------------------------------------------------------------- extras

WITHOUT = """
import sys

class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hide())
from halfseen.cli.main import main
sys.exit(main({arguments}))
"""


@pytest.mark.parametrize(
    ("hidden", "arguments", "package", "extra"),
    [
        (("typer", "rich", "pyarrow", "jinja2"), ["--version"], "typer", "cli"),
        (("rich",), ["impute", PENGUINS, "-o", "out.csv"], "rich", "cli"),
        (("pyarrow",), ["impute", PENGUINS, "-o", "out.csv"], "pyarrow", "cli"),
        *(
            pytest.param(
                ("jinja2",), [*command, "--report", "r.html"], "jinja2", "report", marks=pytest.mark.slow
            )
            for command in (["describe", PENGUINS], ["impute", PENGUINS, "-o", "out.csv"])
        ),
    ],
)
def test_a_package_that_is_not_installed_is_named_with_its_extra(tmp_path, hidden, arguments, package, extra):
    code = WITHOUT.format(hidden=hidden, arguments=arguments)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"halfseen: error: this needs the package {package}: pip install 'halfseen[{extra}]'\n"
    )
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_a_table_is_imputed_without_the_packages_of_reports(tmp_path):
    arguments = ["impute", PENGUINS, "-o", "out.csv", "--method", "mean", "-q"]
    code = WITHOUT.format(hidden=("jinja2", "markupsafe"), arguments=arguments)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("name", main_module.WAIT_POLICY)
def test_threads_of_libraries_wait_without_computing_unless_the_user_decides(monkeypatch, name):
    monkeypatch.setattr(main_module, "count_processors", lambda: os.cpu_count())
    environment = {}
    main_module.choose_threads(environment)
    assert environment == {"OMP_WAIT_POLICY": "PASSIVE"}
    decided = {name: "ACTIVE"}
    main_module.choose_threads(decided)
    assert decided == {name: "ACTIVE"}


def test_libraries_start_no_more_threads_than_the_processors_that_are_granted(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(main_module, "count_processors", lambda: 3)
    environment, decided = {}, {"OMP_NUM_THREADS": "8"}
    for one in (environment, decided):
        main_module.choose_threads(one)
    assert environment["OMP_NUM_THREADS"] == "3"
    assert decided["OMP_NUM_THREADS"] == "8"


def test_the_command_decides_about_threads_before_libraries_are_loaded():
    code = (
        "import os, sys\n"
        "from halfseen.cli import main\n"
        "def report():\n"
        "    print(os.environ['OMP_WAIT_POLICY'], {'torch', 'numpy', 'sklearn'} & set(sys.modules))\n"
        "main.main = report\n"
        "main.run()"
    )
    environment = {name: value for name, value in os.environ.items() if name not in main_module.WAIT_POLICY}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert ended.stdout == "PASSIVE set()\n"


def test_an_error_is_wrapped_at_words_in_a_terminal(monkeypatch):
    class Screen(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "stderr", Screen())
    assert main(["impute", "a file that is not there and has a very long name.csv", "-o", "out.csv"]) == 2
    lines = sys.stderr.getvalue().splitlines()
    assert len(lines) > 1
    assert all(len(line) <= 40 for line in lines)
    assert " ".join(lines).endswith("a very long name.csv: no such file")


def test_a_wrong_method_is_named_without_remarks_of_the_parser(capsys):
    assert main(["impute", "a.csv", "--method", "gauss"]) == 2
    err = capsys.readouterr().err
    assert "Invalid value for '--method': 'gauss' is not one of 'auto', 'gaussian'" in err
    assert "'not-miwae'; did you mean 'gaussian'? (see halfseen impute --help)" in err


def test_a_number_that_is_none_is_named(capsys):
    assert main(["impute", "a.csv", "--seed", "abc"]) == 2
    err = capsys.readouterr().err
    assert "--seed" in err
    assert "'abc'" in err


@pytest.mark.parametrize("command", ["impute", "fit", "compare"])
def test_the_help_has_no_types_that_a_narrow_terminal_cuts(command, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([command, "--help"]) == 0
    shown = capsys.readouterr().out.partition("Options")[2]
    beside_options = [line for line in shown.splitlines() if "<" in line and ">" not in line]
    assert beside_options == []
    assert "…" not in shown


@pytest.mark.slow
def test_the_default_command_writes_the_same_bytes_with_two_threads_beside_busy_processes(tmp_path):
    frame = halfseen.datasets.load_penguins("pandas")
    frame = frame.mask(np.random.default_rng(0).random(frame.shape) < 0.3)  # enough for all candidates
    frame.to_csv(tmp_path / "in.csv", index=False)
    found = []
    for threads, n_busy in (("1", 0), ("2", 2)):
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n_busy)]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "halfseen", "impute", "in.csv", "-o", f"{threads}.csv"],
                cwd=tmp_path, env=os.environ | {"OMP_NUM_THREADS": threads}, capture_output=True, text=True,
            )  # fmt: skip
        finally:
            for one in busy:
                one.kill()
                one.wait()
        assert done.returncode == 0
        chosen = next(line for line in done.stderr.splitlines() if line.strip().startswith("chosen"))
        assert all(name in chosen for name in ("Gaussian", "Trees", "Circuit"))
        found.append((chosen, (tmp_path / f"{threads}.csv").read_bytes()))
    assert found[0] == found[1]
