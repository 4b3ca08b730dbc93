"""Fixed amounts of work on an idle machine, and while another process keeps one processor busy.

Laptops, runners of continuous integration and containers are seldom idle. Threads that wait for each other
by spinning lose whole time slices there, and the work takes many times longer than the missing processor time
explains. Each task runs in a process of its own, in turn without and with a busy process that this benchmark
starts and ends; the shorter of two times counts. The processors that all other processes used meanwhile are
measured too: if there are any, the machine was not idle, and ratios are not reliable.

Writes results/busy_core.json. Run with `make bench`; `--rows` changes the size of all tables.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow.parquet
from harness import find_commit, print_results, store

import halfseen
from halfseen.__main__ import run

N_ROWS, N_COLUMNS = 100_000, 50
LIMIT = 2.2  # times as long as without the busy process
REPETITIONS = 2


def simulate(n_rows: int, n_columns: int) -> np.ndarray:
    """Correlated numbers, of which 20% are missing."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n_rows, 5)) @ rng.normal(size=(5, n_columns)) + rng.normal(size=(n_rows, n_columns))
    x[rng.random(x.shape) < 0.2] = np.nan
    return x


def describe(n_rows: int, folder: Path) -> None:
    """The command `halfseen describe`."""
    path = folder / f"{n_rows}.parquet"
    if not path.exists():
        columns = {f"column {j}": values for j, values in enumerate(simulate(n_rows, N_COLUMNS).T)}
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
    sys.argv[1:] = ["describe", str(path), "--quiet"]
    run()


def trees(n_rows: int, folder: Path) -> None:
    """`TreeImputer` on a fiftieth of the rows."""
    halfseen.TreeImputer(random_state=0).fit_transform(simulate(n_rows // 50, 20))


def auto(n_rows: int, folder: Path) -> None:
    """`AutoImputer` on a two-hundredth of the rows, with a time limit that does not matter."""
    halfseen.AutoImputer(3_600, random_state=0).fit_transform(simulate(n_rows // 200, 8))


def boosting(n_rows: int, folder: Path) -> None:
    """The predictors that are made of boosted trees, on a tenth of the rows."""
    X = simulate(n_rows // 10, 20)
    y = np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, 1]) ** 2
    halfseen.BoostingRegressor(random_state=0).fit(X, y).predict(X)
    halfseen.BoostingClassifier(random_state=0).fit(X, y > y.mean()).predict(X)
    halfseen.ImputeThenRegressor(n_draws=3, random_state=0).fit(X, y).predict(X)


TASKS: dict[str, Callable[[int, Path], None]] = {
    "describe": describe, "TreeImputer": trees, "AutoImputer": auto, "boosting predictors": boosting
}  # fmt: skip


@contextmanager
def busy_process() -> Iterator[None]:
    """Keeps one processor busy with a process that ends with this block."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def used_seconds() -> float:
    """Processor time that all processes of the machine have used since it was started, except idle time."""
    first, _, _ = Path("/proc/stat").read_text(encoding="ascii").partition("\n")
    fields = [int(word) for word in first.split()[1:8]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def measure(name: str, n_rows: int, folder: str, n_busy: int) -> dict[str, float]:
    """Seconds of a task by the clock and of processor time, and the processors that others used meanwhile."""
    command = [sys.executable, __file__, "--rows", str(n_rows), "--task", name, "--folder", folder]
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}
    wall, used, before = time.perf_counter(), used_seconds(), os.times()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    seconds, after = time.perf_counter() - wall, os.times()
    cpu = sum(after[2:4]) - sum(before[2:4])
    others = (used_seconds() - used - cpu) / seconds - n_busy
    return {"seconds": seconds, "cpu_seconds": cpu, "others": max(0.0, others)}


def compare(name: str, n_rows: int, folder: str) -> dict[str, float]:
    """The times of a task without and with the busy process."""
    idle, busy = [], []
    for _ in range(REPETITIONS):
        idle.append(measure(name, n_rows, folder, 0))
        with busy_process():
            busy.append(measure(name, n_rows, folder, 1))
    best_idle, best_busy = (min(found, key=lambda one: one["seconds"]) for found in (idle, busy))
    return {
        "idle_seconds": best_idle["seconds"],
        "busy_seconds": best_busy["seconds"],
        "idle_cpu_seconds": best_idle["cpu_seconds"],
        "busy_cpu_seconds": best_busy["cpu_seconds"],
        "processors_used_by_others": max(best_idle["others"], best_busy["others"]),
    }


def main() -> None:
    """Runs one task, or measures all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=N_ROWS, help="rows of the table that is described")
    parser.add_argument("--task", choices=TASKS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        TASKS[options.task](options.rows, options.folder)
        return
    with tempfile.TemporaryDirectory() as folder:
        found = {name: compare(name, options.rows, folder) for name in TASKS}
    results = {
        "commit": find_commit(),
        "rows": options.rows,
        "processors": os.cpu_count(),
        "tasks": found,
        "judged": {name: one["busy_seconds"] / one["idle_seconds"] for name, one in found.items()},
        "limits": dict.fromkeys(found, LIMIT),
    }
    print_results(results)
    store("busy_core", results)


if __name__ == "__main__":
    main()
