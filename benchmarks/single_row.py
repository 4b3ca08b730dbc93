"""The time of one row: transform of an imputer, predict of a predictor, on a row of a mixed data frame.

Twelve columns, two of them with levels, a fifth of the values missing; pandas and numpy rows. The median over
200 calls on one thread, after ten calls, in wall-clock time and in processor time, which other programs do
not disturb. Writes results/single_row.json and the table in docs/guide/applying.md.
"""

import time

import numpy as np
import pandas as pd
import torch
from harness import ROOT, store_with_table

import halfseen
from halfseen.evaluation.protocol import provenance

PAGE = ROOT / "docs" / "guide" / "applying.md"
N_ROWS, N_CALLS = 1000, 200
LIMIT = 10.0  # milliseconds
AVERAGED = {
    "boosting": {},
    "neumiss": {"max_epochs": 3},
    "circuit": {"max_epochs": 3},
    "sparsity-norm": {"max_epochs": 3},
}
"""The members of the default average; none is left out, so that the time is the longest."""
EQUAL = dict.fromkeys(AVERAGED, 0.25)


def make_table() -> tuple[pd.DataFrame, np.ndarray]:
    """Correlated numbers, two columns with levels, and a target."""
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(N_ROWS, 4)) @ rng.normal(size=(4, 10))
    frame = pd.DataFrame(factors + 0.3 * rng.normal(size=(N_ROWS, 10)), columns=[f"x{i}" for i in range(10)])
    frame["sex"] = np.where(frame["x0"] > 0, "f", "m")
    frame["group"] = rng.choice(["a", "b", "c"], N_ROWS)
    y = frame["x0"].to_numpy() + frame["x1"].to_numpy() ** 2
    return frame.mask(rng.random(frame.shape) < 0.2), y


def fit_all(X, y) -> dict[str, object]:
    """The fitted estimators; how long they were trained does not matter for the time of a row."""
    return {
        "GaussianImputer": halfseen.GaussianImputer(random_state=0).fit(X),
        "MixtureImputer": halfseen.MixtureImputer(random_state=0, max_epochs=3).fit(X),
        "CircuitImputer": halfseen.CircuitImputer(random_state=0, max_epochs=3).fit(X),
        "TreeImputer": halfseen.TreeImputer(random_state=0).fit(X),
        "MIWAEImputer": halfseen.MIWAEImputer(random_state=0, max_epochs=30).fit(X),
        "AutoImputer": halfseen.AutoImputer(random_state=0).fit(X),
        "AveragingRegressor": halfseen.AveragingRegressor(AVERAGED, weights=EQUAL, random_state=0).fit(X, y),
        "AveragingClassifier": halfseen.AveragingClassifier(AVERAGED, weights=EQUAL, random_state=0).fit(
            X, y > 0
        ),
        "NeuMissRegressor": halfseen.NeuMissRegressor(random_state=0, max_epochs=3).fit(X, y),
        "NeuMissClassifier": halfseen.NeuMissClassifier(random_state=0, max_epochs=3).fit(X, y > 0),
        "BoostingRegressor": halfseen.BoostingRegressor(random_state=0).fit(X, y),
        "BoostingClassifier": halfseen.BoostingClassifier(random_state=0).fit(X, y > 0),
        "CircuitRegressor": halfseen.circuits.CircuitRegressor(random_state=0, max_epochs=3).fit(X, y),
        "CircuitClassifier": halfseen.circuits.CircuitClassifier(random_state=0, max_epochs=3).fit(X, y > 0),
        "SparsityNormRegressor": halfseen.sparsity.SparsityNormRegressor(random_state=0, max_epochs=3).fit(
            X, y
        ),
    }


def measure(model, rows) -> dict[str, float]:
    """Milliseconds of a call with one row, the median over calls: wall clock and processor."""
    ask = model.transform if hasattr(model, "transform") else model.predict
    wall, processor = [], []
    for call in range(N_CALLS + 10):
        row = rows[call % len(rows)]
        started, began = time.perf_counter(), time.process_time()
        ask(row)
        processor.append(1e3 * (time.process_time() - began))
        wall.append(1e3 * (time.perf_counter() - started))
    return {
        "wall_ms": round(float(np.median(wall[10:])), 3),
        "processor_ms": round(float(np.median(processor[10:])), 3),
    }


def make_lines(results, commit) -> str:
    """A line for each estimator."""
    lines = ["| milliseconds of processor time | data frame | array |", "| --- | --- | --- |"]
    for name, one in results.items():
        times = " | ".join(f"{kind['processor_ms']:.1f}" for kind in one.values())
        lines.append(f"| {name} | {times} |")
    said = (
        "Each number is the median over 200 rows of 12 columns (arrays: 10 numbers) on one thread. The "
        f"results were produced by `python benchmarks/single_row.py` at commit {commit[:7]}."
    )
    return "\n".join([*lines, "", said])


def main() -> None:
    """Measures all estimators, prints a line for each, and stores the result."""
    torch.set_num_threads(1)
    X, y = make_table()
    numbers = X.select_dtypes("number").to_numpy()
    frames = [X.iloc[[i]] for i in range(50)]
    arrays = [numbers[[i]] for i in range(50)]
    results = {}
    for kind, inputs, rows in (("data frame", X, frames), ("array", numbers, arrays)):
        for name, model in fit_all(inputs, y).items():
            results.setdefault(name, {})[kind] = measure(model, rows)
    for name, one in results.items():
        slow = max(kind["processor_ms"] for kind in one.values()) >= LIMIT
        print(f"{name}: {one}{'  SLOW' if slow else ''}", flush=True)
    content = {"provenance": provenance(), "limit_ms": LIMIT, "results": results}
    lines = make_lines(results, content["provenance"]["commit"])
    store_with_table("single_row", content, PAGE, lines)


if __name__ == "__main__":
    main()
