"""How much memory and time `halfseen impute` takes for a table of a given size, in a process of its own.

Makes a file of mixed columns (numbers, counts, and two columns with levels) of which 20% of the cells are
missing, runs the command on it, and prints the peak of its resident memory, its processor time and its time
by the clock, and how large the table is as an array of doubles, as a line of JSON. A run on the first rows of
such a table shows what the interpreter and its libraries take; what the long run takes above that and above
the table is ``above_MiB``, to be compared with the memory budget of 512 MiB. Arguments after ``--`` go to
`halfseen impute`::

    python benchmarks/memory.py 500000 12 -- --method miwae
    python benchmarks/memory.py 300000 40 -- --report report.html
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

RATE = 0.2
FEW_ROWS = 50  # of the run that shows what the interpreter and its libraries take
PROGRAM = "import sys; from halfseen.cli.main import main; sys.exit(main())"


def write_table(path: Path, n_rows: int, n_columns: int) -> None:
    """Writes numbers that hang together, a count in every fourth column, and two columns with levels."""
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(n_rows, 3)).astype(np.float32)
    columns = {}
    for j in range(n_columns - 2):
        values = factors @ rng.normal(size=3) + rng.normal(size=n_rows)
        cells = rng.poisson(np.exp(0.4 * values)) if j % 4 == 3 else values.round(3)
        columns[f"x{j}"] = pa.array(cells, mask=rng.uniform(size=n_rows) < RATE)
    for name, n_levels in {"group": 5, "answer": 2}.items():
        level = (factors @ rng.normal(size=(3, n_levels)) + rng.gumbel(size=(n_rows, n_levels))).argmax(
            axis=1
        )
        words = np.array([f"{name} {k}" for k in range(n_levels)])[level]
        columns[name] = pa.array(words, mask=rng.uniform(size=n_rows) < RATE)
    csv.write_csv(pa.table(columns), path)


def measure(n_rows: int, n_columns: int, options: list[str], limit: float) -> dict[str, float | int | str]:
    """Runs the command on a new file, and returns what it took."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "table.csv")
        # Another process makes the table: a new process inherits the peak of the one that starts it.
        writer = get_context("spawn").Process(target=write_table, args=(source, n_rows, n_columns))
        writer.start()
        writer.join()
        program = [sys.executable, "-W", "ignore", "-c", PROGRAM, "impute", source.name, "-o", "out.csv"]
        began = time.perf_counter()
        run = subprocess.Popen([*program, *options], cwd=folder, stdout=subprocess.DEVNULL)
        status, usage = wait_for(run, began + limit)
        return {
            "command": " ".join(["halfseen impute", *options]),
            "rows": n_rows,
            "columns": n_columns,
            "exit": os.waitstatus_to_exitcode(status),
            "peak_MiB": usage.ru_maxrss // 1024,
            "table_MiB": 8 * n_rows * n_columns // 2**20,
            "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
            "seconds": round(time.perf_counter() - began, 1),
        }


def wait_for(run: "subprocess.Popen[bytes]", deadline: float) -> tuple[int, "resource.struct_rusage"]:
    """Waits for a process, which is ended at the deadline; returns its status and what it used."""
    while True:
        pid, status, usage = os.wait4(run.pid, os.WNOHANG)
        if pid:
            return status, usage
        if time.perf_counter() > deadline:
            run.kill()
            _, status, usage = os.wait4(run.pid, 0)
            return status, usage
        time.sleep(0.1)


def main() -> None:
    """Measures a run on a table of the size that was asked for."""
    own, options = sys.argv[1:], []
    if "--" in own:
        own, options = own[: own.index("--")], own[own.index("--") + 1 :]
    parser = argparse.ArgumentParser(description="Memory and time of `halfseen impute`.")
    parser.add_argument("rows", type=int)
    parser.add_argument("columns", type=int)
    parser.add_argument("--limit", type=float, default=900.0, help="seconds after which the run is ended")
    given = parser.parse_args(own)
    few = measure(FEW_ROWS, given.columns, options, given.limit)
    found = measure(given.rows, given.columns, options, given.limit)
    above = int(found["peak_MiB"]) - int(few["peak_MiB"]) - int(found["table_MiB"])
    print(json.dumps(found | {"libraries_MiB": few["peak_MiB"], "above_MiB": above}))


if __name__ == "__main__":
    main()
