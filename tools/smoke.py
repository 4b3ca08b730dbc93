"""Tries the main jobs in an environment that has the wheel and its dependencies: ``python tools/smoke.py``.

It uses only what the extras named on the command line install, so that it shows whether the wheel is
complete, whether the bounds on dependencies are right, and whether optional dependencies are optional. It
exits with an error at the first thing that does not work.
"""

import argparse
import importlib.util
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

import halfseen

IMPUTERS = ("Mean", "Gaussian", "Mixture", "Circuit", "Tree", "Chained")
TABLE = "name;height;smoker\nAnna;1,70;yes\nBen;;no\nČeněk;1,82;\nDora;1,65;no\nEmil;1,77;yes\n"


def make_table():
    """Returns three related columns, a fifth of whose values are missing, and a target."""
    rng = np.random.default_rng(0)
    complete = rng.normal(size=(200, 1)) + 0.5 * rng.normal(size=(200, 3))
    table = np.where(rng.random(complete.shape) < 0.2, np.nan, complete)
    return table, complete.sum(axis=1)


def check_imputers(folder):
    """Fits, asks, saves and loads each kind of imputer."""
    table, _ = make_table()
    for name in IMPUTERS:
        imputer = getattr(halfseen, f"{name}Imputer")(random_state=0).fit(table)
        completed, draws = imputer.transform(table), imputer.sample(table, n_draws=2)
        low, high = imputer.interval(table, level=0.9)
        observed = ~np.isnan(table)
        assert np.isfinite(completed).all(), name
        assert (completed[observed] == table[observed]).all(), name
        assert np.shape(draws) == (2, *table.shape), name
        assert (low <= high).all(), name
        imputer.save(folder / name)
        assert (halfseen.load(folder / name).transform(table) == completed).all(), name


def check_predictors():
    """Fits predictors to incomplete rows."""
    table, target = make_table()
    for name in ("GaussianRegressor", "BoostingRegressor", "NeuMissRegressor"):
        predicted = getattr(halfseen, name)().fit(table, target).predict(table)
        assert np.corrcoef(predicted, target)[0, 1] > 0.5, name


def check_frames():
    """Imputes frames of each library that is installed."""
    content = {"height": [1.7, None, 1.82, 1.65, 1.77] * 8, "smoker": ["yes", "no", None, "no", "yes"] * 8}
    for library in ("pandas", "polars", "pyarrow"):
        if importlib.util.find_spec(library) is None:
            continue
        module = importlib.import_module(library)
        frame = module.table(content) if library == "pyarrow" else module.DataFrame(content)
        completed = halfseen.GaussianImputer(random_state=0).fit(frame).transform(frame)
        assert type(completed) is type(frame), library


def check_command(folder, report):
    """Imputes a file by the command, with a report if its extra is there."""
    for words in (["--help"], ["impute", "--help"], ["--version"]):
        subprocess.run([sys.executable, "-m", "halfseen", *words], check=True, capture_output=True)
    source, target = folder / "table.csv", folder / "completed.csv"
    source.write_text(TABLE, encoding="utf-8")
    options = ["--report", str(folder / "report.html")] if report else []
    command = [
        sys.executable,
        "-m",
        "halfseen",
        "impute",
        str(source),
        "-o",
        str(target),
        "--method",
        "gaussian",
    ]
    subprocess.run([*command, *options], check=True, capture_output=True, text=True)
    assert target.read_text(encoding="utf-8").startswith("name;height;smoker\n")
    assert not report or (folder / "report.html").stat().st_size > 1000


def check_engine(folder, engine):
    """Imputes a table in a file by a worker of Ray or Dask, as the model does in memory."""
    import pyarrow
    import pyarrow.parquet

    values, _ = make_table()
    table = pyarrow.table(
        {name: pyarrow.array(column, from_pandas=True) for name, column in zip("abc", values.T, strict=True)}
    )
    pyarrow.parquet.write_table(table, folder / "table.parquet")
    imputer = halfseen.GaussianImputer(random_state=0).fit(table)
    rows = halfseen.scan(str(folder / "table.parquet"))
    written = halfseen.distributed.impute(rows, imputer, folder / engine, engine=engine, n_workers=1)
    (completed,) = [pyarrow.parquet.read_table(path) for path in written.files]
    assert completed.equals(imputer.transform(table)), engine


def check_absent(folder):
    """Without its extra, the command ends with one line that says what to install."""
    run = subprocess.run([sys.executable, "-m", "halfseen", "--help"], capture_output=True, text=True)
    assert run.returncode != 0, "the command works without its extra: nothing was tested"
    assert "halfseen[cli]" in run.stderr, run.stderr
    assert "Traceback" not in run.stderr, run.stderr


def main():
    """Runs what the installed extras allow."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--extras", default="", help="the extras that were installed, separated by commas")
    extras = set(filter(None, parser.parse_args().extras.split(",")))
    warnings.simplefilter("error", DeprecationWarning)
    warnings.filterwarnings("ignore", module=r"(?!halfseen).*")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        check_imputers(folder)
        check_predictors()
        check_frames()
        for engine in sorted(extras & {"dask", "ray"}):
            check_engine(folder, engine)
        if "cli" in extras:
            check_command(folder, "report" in extras)
        else:
            check_absent(folder)
    print(f"halfseen {halfseen.__version__} works with Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
