"""Cost of multiple imputation by ChainedImputer, beside the joint Gaussian: 20 draws of each table.

Writes results/chained.json. Times of one machine differ from run to run; read the ratios. The table boys is
that of the R package mice, read from HALFSEEN_DATA; without it, it is left out.
"""

import os
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from harness import clock, find_commit, print_results, store

import halfseen

N_DRAWS = 20
LIMITS = {"numeric": 25.0, "boys": 3.0}  # seconds of processor time


def numeric(n_rows: int = 2_000, n_columns: int = 100) -> pd.DataFrame:
    """Normal columns of rank 10 plus noise, 20% missing."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n_rows, 10)) @ rng.normal(size=(10, n_columns)) + 1.5 * rng.normal(
        size=(n_rows, n_columns)
    )
    x[rng.random(x.shape) < 0.2] = np.nan
    return pd.DataFrame(x, columns=[f"x{j}" for j in range(n_columns)])


def mixed() -> pd.DataFrame:
    """The same with 20 binary columns, 10 of three levels and 10 lognormal ones."""
    table = numeric()
    for name in table.columns[60:80]:
        table[name] = np.where(table[name].isna(), None, np.where(table[name] > 0, "a", "b"))
    for name in table.columns[80:90]:
        table[name] = np.where(table[name].isna(), None, np.digitize(table[name], [-1, 1]).astype(str))
    for name in table.columns[90:]:
        table[name] = np.exp(table[name] / 4)
    return table


def draw(table: pd.DataFrame, imputer) -> None:
    """Fits an imputer and draws completed tables."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", halfseen.HalfseenWarning)
        halfseen.multiple_imputation(table, imputer, n_draws=N_DRAWS, random_state=0)


def main() -> None:
    """Times all tables, and stores the times."""
    tables = {"numeric": numeric(), "mixed": mixed()}
    folder = os.environ.get("HALFSEEN_DATA")
    if folder:
        tables["boys"] = pd.read_csv(Path(folder) / "mice_sets" / "boys.csv.gz")
    draw(numeric(200, 5), halfseen.ChainedImputer())  # imports
    times = {
        name: {
            "shape": list(table.shape),
            "chained": clock(lambda table=table: draw(table, halfseen.ChainedImputer())),
            "gaussian": clock(lambda table=table: draw(table, halfseen.GaussianImputer())),
        }
        for name, table in tables.items()
    }
    judged = {name: times[name]["chained"]["cpu_seconds"] for name in LIMITS if name in times}
    limits = {name: LIMITS[name] for name in judged}
    results = {
        "commit": find_commit(),
        "n_draws": N_DRAWS,
        "times": times,
        "judged": judged,
        "limits": limits,
    }
    print_results(results)
    store("chained", results)


if __name__ == "__main__":
    main()
