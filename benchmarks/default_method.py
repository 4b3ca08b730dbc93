"""How long `halfseen impute` without options takes on every real table at hand.

    HALFSEEN_DATA=... python benchmarks/default_method.py

Runs the command on each CSV and Parquet file below the folder, one after the other, each in a process of its
own, and measures its time by the clock, its processor time and its peak memory. Files that are complete are
written as they are. Stored runs are not repeated unless ``--again`` is given, so an interrupted benchmark
continues where it stopped; ``--small`` repeats those of files with at most 2,000 rows and 20 columns only.
results/default_method.json and the table in docs/guide/auto.md are written.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from harness import ROOT, find_commit, store_with_table, stored_runs
from memory import PROGRAM, wait_for

from halfseen.files.tables import read_table

PAGE = ROOT / "docs" / "guide" / "auto.md"
BUDGET, PATIENCE = 120.0, 600.0  # seconds: from which a run is listed as long, and after which it is ended
SLOWEST = 10  # tables that are listed
SMALL = 2_000, 20  # rows and columns


def find_files(folder: Path) -> list[Path]:
    """The files below a folder that the command can read."""
    return sorted([*folder.glob("*/*.csv.gz"), *folder.glob("*/*.parquet")])


def measure(path: Path) -> dict[str, float | int | str]:
    """Runs the command on a file."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-W", "ignore", "-c", PROGRAM, "impute", str(path), "-o", "out.csv"]
        began = time.perf_counter()
        errors = Path(scratch, "errors.txt")
        with errors.open("wb") as file:
            run = subprocess.Popen(command, cwd=scratch, stdout=subprocess.DEVNULL, stderr=file)
            status, usage = wait_for(run, began + PATIENCE)
        return {
            "exit": os.waitstatus_to_exitcode(status),
            "seconds": round(time.perf_counter() - began, 1),
            "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
            "peak_MiB": usage.ru_maxrss // 1024,
            "last_line": errors.read_text(encoding="utf-8").strip().splitlines()[-1][:200],
        }


def describe(path: Path) -> dict[str, float | int | str]:
    """The size of the table in a file, and how many of its cells are missing."""
    file = read_table(str(path))
    n_rows, n_columns = file.table.shape
    return {"rows": n_rows, "columns": n_columns, "missing": file.n_missing}


def is_small(run: dict) -> bool:
    """Whether the table of a run is one of those that the default shall impute quickly."""
    return run["rows"] <= SMALL[0] and run["columns"] <= SMALL[1]


def make_table(runs: list[dict]) -> str:
    """A line for each of the slowest tables, and a summary of all."""
    incomplete = sorted((run for run in runs if run["missing"]), key=lambda run: -run["seconds"])
    complete = [run["seconds"] for run in runs if not run["missing"]]
    failed = [run["table"] for run in runs if run["exit"]]
    late = [run["table"] for run in runs if run["seconds"] > BUDGET]
    heads = ["table", "rows", "columns", "missing", "seconds", "CPU s", "MiB", "commit"]
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    small = [run for run in incomplete if is_small(run)]
    by_work = sorted(small, key=lambda run: -run["cpu_seconds"])
    for run in incomplete[:SLOWEST] + by_work[:SLOWEST]:
        size = f"{run['rows']:,} | {run['columns']} | {run['missing']:,}"
        times = f"{run['seconds']:.0f} | {run['cpu_seconds']:.1f} | {run['peak_MiB']:,}"
        lines.append(f"| {run['table']} | {size} | {times} | {run['commit']} |")
    usual = median(run["seconds"] for run in incomplete) if incomplete else 0.0
    said = [
        f"The slowest of {len(incomplete)} tables with missing values (median {usual:.0f} s), and of the",
        f"{len(small)} with at most {SMALL[0]:,} rows and {SMALL[1]} columns those that took most work",
        f"(median {median(run['cpu_seconds'] for run in small) if small else 0.0:.1f} s of processor time).",
        f"The other {len(complete)} tables are complete and took at most {max(complete, default=0.0):.0f} s.",
        f"Runs that failed: {', '.join(failed) or 'none'}.",
        f"Runs of more than {BUDGET:.0f} s: {', '.join(late) or 'none'}.",
        "The results were produced by `python benchmarks/default_method.py` at commit",
        f"{' and '.join(dict.fromkeys(run['commit'] for run in runs))}.",
    ]
    return "\n".join([*lines, "", " ".join(said)])


def main() -> None:
    """Measures the files that have no stored run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--again", action="store_true", help="repeat stored runs")
    parser.add_argument("--small", action="store_true", help="repeat stored runs of small incomplete tables")
    given = parser.parse_args()
    runs = stored_runs("default_method", again=given.again)
    if given.small:
        now = find_commit()
        runs = [run for run in runs if run["commit"] == now or not (run["missing"] and is_small(run))]
    known = {run["table"] for run in runs}
    for path in find_files(Path(os.environ["HALFSEEN_DATA"])):
        name = f"{path.parent.name}/{path.name.partition('.')[0]}"
        if name not in known:
            runs.append({"table": name, "commit": find_commit()} | describe(path) | measure(path))
            print(json.dumps(runs[-1]), flush=True)
            results = {"experiment": "default_method", "runs": runs}
            store_with_table("default_method", results, PAGE, make_table(runs))


if __name__ == "__main__":
    main()
