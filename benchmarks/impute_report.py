"""CPU time and peak memory of ``halfseen impute --report`` on a large mixed table.

    python benchmarks/impute_report.py                      # 500,000 x 12, parquet
    python benchmarks/impute_report.py --rows 50000 --format csv

The table has eight correlated numbers, a count, two columns of levels and a date. Of the values, 10% are
missing completely at random. The command runs in a process of its own; times are those of that process.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

N_NUMBERS = 8
MISSING = 0.1


def make_table(n_rows: int, seed: int = 0) -> pa.Table:
    """Returns the table, with missing values."""
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(n_rows, 3))
    numbers = factors @ rng.normal(size=(3, N_NUMBERS)) + rng.normal(size=(n_rows, N_NUMBERS))
    columns = {f"number_{j}": pa.array(numbers[:, j].round(4)) for j in range(N_NUMBERS)}
    columns["count"] = pa.array(rng.poisson(np.exp(0.3 * factors[:, 0] + 1)))
    for name, levels in {"sex": ["f", "m"], "region": ["north", "east", "south", "west", "centre"]}.items():
        scores = factors[:, :1] * np.arange(len(levels)) + rng.gumbel(size=(n_rows, len(levels)))
        columns[name] = pa.array(np.array(levels)[scores.argmax(axis=1)])
    days = 18_000 + rng.integers(0, 2_000, size=n_rows) + (50 * factors[:, 1]).astype(np.int64)
    columns["day"] = pa.array(days.astype("datetime64[D]"))
    hidden = rng.random((n_rows, len(columns))) < MISSING
    return pa.table(
        {
            name: pa.compute.if_else(pa.array(hidden[:, j]), None, column)
            for j, (name, column) in enumerate(columns.items())
        }
    )


def run(n_rows: int, file_format: str, method: str, *, report: bool) -> dict[str, float]:
    """Imputes a table by the command line; returns the seconds of CPU and the peak memory in MiB."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = (str(Path(folder) / f"{name}.{file_format}") for name in ("in", "out"))
        table = make_table(n_rows)
        writer = pa.csv.write_csv if file_format == "csv" else pa.parquet.write_table
        writer(table, source)
        del table
        command = [sys.executable, "-m", "halfseen", "impute", source, "-o", target, "--method", method, "-q"]
        command += ["--report", str(Path(folder) / "report.html")] if report else []
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu_seconds": round(seconds, 1), "peak_mib": round(after.ru_maxrss / 1024)}


def main() -> None:
    """Prints one line of JSON for each run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--format", choices=["parquet", "csv"], default="parquet")
    parser.add_argument("--method", default="gaussian")
    given = parser.parse_args()
    for report in (True, False):
        found = run(given.rows, given.format, given.method, report=report)
        print(json.dumps({"report": report, "rows": given.rows, "format": given.format} | found), flush=True)


if __name__ == "__main__":
    main()
