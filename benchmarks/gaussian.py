"""GaussianImputer beside scikit-learn's IterativeImputer (its defaults) in one run: time, error, memory.

Times of one machine differ from run to run; read the ratios. Writes results/gaussian.json and the table of
docs/accuracy.md that is made from it. Run with `make bench`; with `--margins` it only prints what margins of
columns cost, and what they gain, beside the model without them.
"""

import os
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from harness import ROOT, find_commit, store_with_table
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401, needed before the next import
from sklearn.impute import IterativeImputer

import halfseen

RATE = 0.3
MASKS = 5
TABLES = {
    "breast": ("breast_cancer_diagnostic/breast_cancer_diagnostic.csv.gz", ("id", "diagnosis")),
    "concrete": ("concrete/concrete.csv.gz", ()),
    "california": ("california_housing/california_housing.csv.gz", ()),
    "wine, red": ("winequality_red/winequality_red.csv.gz", ()),
    "wine, white": ("winequality_white/winequality_white.csv.gz", ()),
}


def synthetic(n_rows: int = 20_000, n_features: int = 50) -> np.ndarray:
    """Rank 10 plus noise of standard deviation 0.5."""
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(n_rows, 10)) @ rng.normal(size=(10, n_features))
    return factors + 0.5 * rng.normal(size=(n_rows, n_features))


def hide(complete: np.ndarray, seed: int) -> np.ndarray:
    """Removes each cell with probability RATE."""
    hidden = np.random.default_rng(seed).random(complete.shape) < RATE
    return np.where(hidden, np.nan, complete)


def score_imputer(imputer, complete: np.ndarray, seed: int, clock=time.perf_counter) -> tuple[float, float]:
    """Seconds to fit and transform, and the error of hidden cells in standard deviations of what was seen."""
    holey = hide(complete, seed)
    began = clock()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        filled = imputer.fit_transform(holey)
    seconds = clock() - began
    hidden = np.isnan(holey)
    standard = (filled - complete) / np.nanstd(holey, axis=0)
    return seconds, float(np.sqrt(np.mean(standard[hidden] ** 2)))


def peak_memory() -> float:
    """MiB at the peak of a process that imports halfseen, makes the synthetic table, fits and transforms."""
    command = [sys.executable, __file__, "--memory"]
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}
    return float(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


def single_row_milliseconds() -> float:
    """The median time to transform one row of a fitted imputer of a mixed table."""
    penguins = halfseen.datasets.load_penguins("pandas")
    imputer = halfseen.GaussianImputer(random_state=0).fit(penguins)
    row = penguins.iloc[[3]]
    times = []
    for _ in range(50):
        began = time.perf_counter()
        imputer.transform(row)
        times.append(time.perf_counter() - began)
    return 1000 * float(np.median(times))


def read(folder: Path, file: str, dropped: tuple[str, ...]) -> np.ndarray:
    """A table of numbers."""
    import pandas as pd

    return pd.read_csv(folder / file).drop(columns=list(dropped)).to_numpy(dtype=float)


def run_large() -> dict:
    """The synthetic table, both imputers in turn."""
    complete = synthetic()
    ours = score_imputer(halfseen.GaussianImputer(random_state=0), complete, seed=0)
    theirs = score_imputer(IterativeImputer(random_state=0), complete, seed=0)
    return {
        "seconds": ours[0],
        "rmse": ours[1],
        "iterative_seconds": theirs[0],
        "iterative_rmse": theirs[1],
        "times_faster": theirs[0] / ours[0],
        "peak_mib": peak_memory(),
    }


def run_tables(folder: Path) -> dict:
    """Real tables: the mean over masks of time and error."""
    results = {}
    for name, (file, dropped) in TABLES.items():
        complete = read(folder, file, dropped)
        ours = [
            score_imputer(halfseen.GaussianImputer(random_state=0), complete, seed) for seed in range(MASKS)
        ]
        theirs = [score_imputer(IterativeImputer(random_state=0), complete, seed) for seed in range(MASKS)]
        (seconds, rmse), (their_seconds, their_rmse) = np.mean(ours, axis=0), np.mean(theirs, axis=0)
        results[name] = {
            "rows": len(complete),
            "columns": complete.shape[1],
            "rmse": rmse,
            "iterative_rmse": their_rmse,
            "ratio": rmse / their_rmse,
            "times_faster": their_seconds / seconds,
        }
    return results


def run_margins(folder: Path) -> dict:
    """CPU time and error with margins="auto", as shares of those with "gaussian"."""
    tables = {"synthetic": synthetic()}
    tables |= {name: read(folder, *TABLES[name]) for name in ("concrete", "california", "breast")}
    ratios = {}
    for name, complete in tables.items():
        found: dict[str, list[tuple[float, float]]] = {"auto": [], "gaussian": []}
        for seed in range(MASKS):  # in turn, so that the rest of the machine disturbs both
            for margins, times in found.items():
                imputer = halfseen.GaussianImputer(margins=margins, random_state=0)
                times.append(score_imputer(imputer, complete, seed, clock=time.process_time))
        auto, gaussian = (np.array(found[margins]) for margins in ("auto", "gaussian"))
        seconds = np.median(auto[:, 0]), np.median(gaussian[:, 0])
        ratios[name] = {
            "seconds": seconds[0],
            "gaussian_seconds": seconds[1],
            "time_ratio": seconds[0] / seconds[1],
            "rmse_ratio": auto[:, 1].mean() / gaussian[:, 1].mean(),
        }
    return ratios


def as_margins_table(ratios: dict) -> str:
    """Markdown: one row per table."""
    lines = [
        '| table | CPU seconds, margins="auto" | margins="gaussian" | ratio | ratio of RMSE |',
        "|---|---|---|---|---|",
    ]
    for name, row in ratios.items():
        lines.append(
            f"| {name} | {row['seconds']:.3f} | {row['gaussian_seconds']:.3f} "
            f"| {row['time_ratio']:.2f} | {row['rmse_ratio']:.3f} |"
        )
    return "\n".join(lines)


def as_table(results: dict) -> str:
    """Markdown: one row per table."""
    large = results["20,000 x 50, rank 10"]
    lines = [
        "| table, 30% missing completely at random | RMSE | RMSE of IterativeImputer | times faster |",
        "|---|---|---|---|",
        f"| synthetic 20,000 x 50 (rank 10 + noise) | {large['rmse']:.3f} | {large['iterative_rmse']:.3f} "
        f"| {large['times_faster']:.0f} |",
    ]
    for name, row in results.get("tables", {}).items():
        lines.append(
            f"| {name} {row['rows']:,} x {row['columns']} | {row['rmse']:.3f} | {row['iterative_rmse']:.3f} "
            f"| {row['times_faster']:.1f} |"
        )
    lines += [
        "",
        f"The RMSE is in standard deviations of the observed values; it is a mean over {MASKS} masks, except "
        "for the synthetic table, which has one. To fit and impute the synthetic table takes "
        f"{large['seconds']:.1f} s and {large['peak_mib']:.0f} MiB of memory at the peak; to impute one "
        f"row of a mixed table takes {results['single_row_ms']:.1f} ms. The results were produced "
        f"by `make bench` at commit {results['commit']}.",
    ]
    return "\n".join(lines)


def main() -> None:
    """Runs everything that there is data for, prints and stores it."""
    if "--memory" in sys.argv:
        halfseen.GaussianImputer(random_state=0).fit_transform(hide(synthetic(), seed=0))
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return
    folder = os.environ.get("HALFSEEN_DATA", "")
    if "--margins" in sys.argv:
        halfseen.GaussianImputer(random_state=0).fit_transform(hide(synthetic(500, 5), seed=0))  # warm up
        print(as_margins_table(run_margins(Path(folder))))
        return
    results = {
        "commit": find_commit(),
        "seeds": list(range(MASKS)),
        "threads": os.cpu_count(),
        "20,000 x 50, rank 10": run_large(),
        "single_row_ms": single_row_milliseconds(),
    }
    if Path(folder, "concrete").is_dir():
        results["tables"] = run_tables(Path(folder))
        results["margins"] = run_margins(Path(folder))
    else:
        print("HALFSEEN_DATA does not name the folder of data sets: no real tables, nothing is stored.")
    print(as_table(results))
    if "tables" in results:
        print(as_margins_table(results["margins"]))
        store_with_table("gaussian", results, ROOT / "docs" / "accuracy.md", as_table(results))


if __name__ == "__main__":
    main()
