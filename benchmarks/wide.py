"""Wide tables: how the time of each method grows with the columns; GaussianImputer beside a free covariance.

Each method completes a table of few rows, and one of four times as many columns; the ratio of processor times
should be near 4. Prints a table and writes results/wide_methods.json; `--methods` does only this.

Costs are those of rank 10 plus noise of standard deviation 0.5, each table in a process of its own. Errors
are those of 100 x 300 cells whose correlations are of low rank, or not. 30% of the cells are missing. Prints
tables and writes results/wide.json. Run with `make bench`.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from harness import clock, find_commit, store

import halfseen
from halfseen.cli.main import main as main_of_command

SIZES = ((1, 3_000), (100, 2_000), (1_000, 500))
RATE = 0.3
KINDS = ("rank 10", "autoregressive", "eigenvalues 1/j")
RIDGES = (1.0, 3.0, 10.0, 30.0, 100.0)


def simulate(kind: str, n_rows: int, n_features: int) -> np.ndarray:
    """Rows of Gaussian columns whose correlations are of the given kind."""
    rng = np.random.default_rng(0)
    if kind == "rank 10":
        factors = rng.normal(size=(n_rows, 10)) @ rng.normal(size=(10, n_features))
        return factors + 0.5 * rng.normal(size=(n_rows, n_features))
    normals = rng.normal(size=(n_rows, n_features))
    if kind == "autoregressive":
        lags = np.abs(np.subtract.outer(np.arange(n_features), np.arange(n_features)))
        return normals @ np.linalg.cholesky(0.9**lags).T
    axes, _ = np.linalg.qr(rng.normal(size=(n_features, n_features)))
    return normals / np.sqrt(np.arange(1, n_features + 1)) @ axes.T


def hide(complete: np.ndarray) -> np.ndarray:
    """Removes each cell with probability RATE."""
    return np.where(np.random.default_rng(1).random(complete.shape) < RATE, np.nan, complete)


def measure(n_rows: int, n_features: int) -> dict:
    """CPU seconds to fit and transform, and MiB at the peak of the process."""
    table = hide(simulate("rank 10", n_rows, n_features))
    began = time.process_time()
    halfseen.GaussianImputer(random_state=0).fit_transform(table)
    return {
        "rows": n_rows,
        "columns": n_features,
        "cpu_seconds": time.process_time() - began,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def compare(kind: str) -> dict:
    """Errors of 100 x 300 cells, as chosen and with a free covariance at the best of the ridges."""
    complete = simulate(kind, 100, 300)
    table = hide(complete)

    def error(ridge: float | str) -> float:
        filled = halfseen.GaussianImputer(ridge=ridge, random_state=0).fit_transform(table)
        standard = (filled - complete) / complete.std(axis=0)
        return float(np.sqrt(np.mean(standard[np.isnan(table)] ** 2)))

    return {"kind": kind, "rmse": error("auto"), "free_rmse": min(error(ridge) for ridge in RIDGES)}


def by_command(method: str, suffix: str) -> Callable[[np.ndarray], object]:
    """The command `halfseen impute` on a file with a table."""

    def run(table: np.ndarray) -> None:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, f"in.{suffix}")
            names = [f"c{j}" for j in range(table.shape[1])]
            cells = np.where(np.isnan(table), None, np.round(table, 3)).tolist()
            if suffix == "jsonl":
                lines = [json.dumps(dict(zip(names, row, strict=True))) for row in cells]
            else:
                texts = [["" if cell is None else str(cell) for cell in row] for row in cells]
                lines = [",".join(row) for row in (names, *texts)]
            source.write_text("\n".join(lines) + "\n", encoding="utf-8")
            words = ["impute", str(source), "-o", str(Path(folder, f"out.{suffix}")), "--method", method]
            if main_of_command([*words, "--overwrite", "--quiet"]):
                raise SystemExit("the command failed")

    return run


METHODS: dict[str, tuple[int, int, Callable[[np.ndarray], object]]] = {
    "mean, CSV": (50, 4_000, by_command("mean", "csv")),
    "mean, JSON lines": (5, 4_000, by_command("mean", "jsonl")),
    "Gaussian": (50, 1_000, lambda x: halfseen.GaussianImputer(random_state=0).fit_transform(x)),
    "Gaussian, 5 draws for pooling": (
        2,
        1_250,
        lambda x: halfseen.GaussianImputer(n_posterior_draws=5, random_state=0).fit(x).sample(x, 5),
    ),
    "circuit": (50, 750, lambda x: halfseen.CircuitImputer(random_state=0).fit_transform(x)),
    "trees": (80, 75, lambda x: halfseen.TreeImputer(random_state=0).fit_transform(x)),
    "MIWAE": (50, 150, lambda x: halfseen.MIWAEImputer(random_state=0).fit_transform(x)),
}
"""By name: rows, columns of the narrower table, and what is done with it."""


def measure_growth() -> None:
    """Measures each method on two tables of which one has four times as many columns."""
    rows = []
    print("| method | rows | columns | CPU seconds | with 4 times the columns | ratio |")
    print("|---|---|---|---|---|---|")
    for name, (n_rows, n_features, run) in METHODS.items():
        tables = [hide(simulate("rank 10", n_rows, size)) for size in (n_features, 4 * n_features)]
        run(tables[0][:, :40])  # loads libraries
        narrow, wide = (clock(partial(run, table))["cpu_seconds"] for table in tables)
        numbers = f"{n_rows} | {n_features:,} | {narrow:.1f} | {wide:.1f} | {wide / narrow:.1f}"
        print(f"| {name} | {numbers} |", flush=True)
        rows.append({"method": name, "rows": n_rows, "columns": n_features, "cpu_seconds": [narrow, wide]})
    store("wide_methods", {"commit": find_commit(), "seeds": [0], "methods": rows})


def measure_apart(n_rows: int, n_features: int) -> dict:
    """The same in a process of its own, so that peaks do not add up."""
    command = [sys.executable, __file__, str(n_rows), str(n_features)]
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}
    found = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(found.stdout)


def main() -> None:
    """Measures one table, or all of them."""
    if len(sys.argv) == 3:
        print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))))
        return
    # First: a process counts the peak of the process that started it as its own.
    tables = [] if sys.argv[1:] == ["--methods"] else [measure_apart(*size) for size in SIZES]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        measure_growth()
    if not tables:
        return
    print("| rows x columns | CPU seconds | peak MiB |\n|---|---|---|")
    for row in tables:
        size = f"{row['rows']:,} x {row['columns']:,}"
        print(f"| {size} | {row['cpu_seconds']:.1f} | {row['peak_mib']:.0f} |")
    errors = [compare(kind) for kind in KINDS]
    print("\n| 100 x 300 | RMSE | free covariance |\n|---|---|---|")
    for row in errors:
        print(f"| {row['kind']} | {row['rmse']:.3f} | {row['free_rmse']:.3f} |")
    results = {"commit": find_commit(), "seeds": [0], "tables": tables, "errors": errors}
    store("wide", results)


if __name__ == "__main__":
    main()
