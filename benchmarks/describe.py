"""`halfseen describe` with its report on a generated table of a million rows and 50 mixed columns.

Writes results/describe.json. Run with `make bench`.
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from harness import find_commit, print_results, store

from halfseen.diagnosis.little import little_test

N_ROWS, N_COLUMNS = 1_000_000, 50


def generate() -> pa.Table:
    """Numbers, counts and text that share five factors; most columns have holes that follow a factor."""
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(N_ROWS, 5)).astype(np.float32)
    columns = {}
    for j in range(N_COLUMNS):
        value = factors[:, j % 5] + rng.normal(size=N_ROWS).astype(np.float32)
        chance = 0.3 / (1 + np.exp(-(factors[:, (j + 1) % 5] - 3 + j % 3))) if j % 4 else 0.0
        hidden = rng.random(N_ROWS) < chance
        if j % 10 == 3:
            value = np.array(["north", "south", "east", "west"])[np.digitize(value, [-1, 0, 1])]
        elif j % 10 == 7:
            value = np.round(np.exp(value)).astype(np.int64)
        columns[f"column {j:02d}"] = pa.array(value, mask=hidden)
    return pa.table(columns)


def main() -> None:
    """Measures the command in a process of its own, and Little's test alone."""
    table = generate()
    with tempfile.TemporaryDirectory() as folder:
        source, report = Path(folder, "million.parquet"), Path(folder, "report.html")
        pyarrow.parquet.write_table(table, source)
        began = time.perf_counter()
        command = ["-m", "halfseen", "describe", str(source), "--report", str(report), "--quiet"]
        subprocess.run([sys.executable, *command], check=True)
        seconds = time.perf_counter() - began
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        size = report.stat().st_size
    began = time.perf_counter()
    little_test(table)
    results = {
        "commit": find_commit(),
        "table": f"{N_ROWS} x {N_COLUMNS}, mixed, generated with seed 0",
        "describe_seconds": seconds,
        "describe_peak_mib": peak,
        "report_megabytes": size / 1e6,
        "little_test_seconds": time.perf_counter() - began,
    }
    print_results(results)
    store("describe", results)


if __name__ == "__main__":
    main()
