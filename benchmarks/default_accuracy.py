"""How well the default imputes ten tables on which nothing was chosen, beside its own candidates.

    HALFSEEN_DATA=... python benchmarks/default_accuracy.py

The rules by which methods are combined were chosen on the tables of `papers.library.auto` and frozen before
the default met these; four of them are also among the tables of benchmarks/peers. Of each table, at most
1,000 rows, 30% of the known cells are hidden completely at random, with three masks. The automatic choice
and two of its candidates are fitted to what is left, and scored on the hidden cells: RMSE and CRPS in
standard deviations, accuracy of levels. A difference from the best of the others counts if it exceeds two
standard errors over the masks. Stored runs are not repeated, so an interrupted benchmark continues.
results/default_accuracy.json and a table in docs/guide/auto.md are written.
"""

import argparse
import json
import time
import warnings
from collections.abc import Sequence

import numpy as np
from harness import ROOT, find_commit, store_with_table, stored_runs

from halfseen import AutoImputer, GaussianImputer, TreeImputer
from halfseen.evaluation.candidates import enter
from halfseen.evaluation.scores import Scale
from halfseen.missingness import MCAR
from papers.amputed_table import AmputedTable, read_source

PAGE = ROOT / "docs" / "guide" / "auto.md"
RATE, MAX_ROWS, SCORED_ROWS, MASKS = 0.3, 1_000, 500, 3
TABLES = (
    "adult", "bank_marketing", "auto_mpg", "credit_approval", "hepatitis", "house_votes", "drug_consumption",
    "glass", "parkinsons", "yeast",
)  # fmt: skip
METHODS = {"auto": AutoImputer, "gaussian": GaussianImputer, "trees": TreeImputer}
SCORES = {"rmse": "rmse", "crps": "crps", "accuracy": "accuracy"}


def run(name: str, seed: int) -> dict:
    """The scores and the processor times of all methods on a table and a mask."""
    table = read_source(name, (), MAX_ROWS)
    codes = table.codes
    hidden = ~MCAR(rate=RATE).fit(codes).sample(codes, random_state=seed) & ~np.isnan(codes)
    task = AmputedTable(table, hidden, seed)
    rows = np.flatnonzero(hidden.any(axis=1))[:SCORED_ROWS]
    found = {"table": name, "seed": seed, "commit": find_commit(), "shape": list(codes.shape), "methods": {}}
    for method, make in METHODS.items():
        candidate = enter(make(), table, seed)
        began = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            candidate.fit(task.shown)
            seconds = time.process_time() - began
            scores = task.scores(candidate, rows, Scale.fit(task.shown), SCORES)
        found["methods"][method] = scores | {"cpu_seconds": round(seconds, 2)}
    return found


def make_table(runs: Sequence[dict]) -> str:
    """A line for each table with all masks: means, and where the default is behind the best of the others."""
    heads = [f"{score} {method}" for score in SCORES for method in METHODS]
    lines = [f"| table | {' | '.join(heads)} | CPU s | behind |", f"|{' --- |' * (len(heads) + 3)}"]
    ranks: dict[str, list[float]] = {score: [] for score in SCORES}
    tables = [one["table"] for one in runs]
    for name in (one for one in dict.fromkeys(tables) if tables.count(one) == MASKS):
        own = [one["methods"] for one in runs if one["table"] == name]
        cells, behind = [], []
        for score in SCORES:
            if any(score not in one["auto"] or np.isnan(one["auto"][score]) for one in own):
                cells += ["-"] * len(METHODS)
                continue
            values = np.array([[one[method][score] for method in METHODS] for one in own])
            means, sign = values.mean(axis=0), -1.0 if score == "accuracy" else 1.0
            cells += [f"{mean:.3f}" for mean in means]
            ranks[score].append(1.0 + float((sign * means[1:] < sign * means[0]).sum()))
            best = 1 + int((sign * means[1:]).argmin())
            gaps = sign * (values[:, 0] - values[:, best])
            if gaps.mean() > 2.0 * gaps.std(ddof=1) / np.sqrt(len(gaps)):
                behind.append(f"{score} by {gaps.mean():.3f}")
        seconds = np.mean([one["auto"]["cpu_seconds"] for one in own])
        lines.append(f"| {name} | {' | '.join(cells)} | {seconds:.1f} | {', '.join(behind) or 'no'} |")
    said = ", ".join(f"{score} {np.mean(found):.2f}" for score, found in ranks.items() if found)
    commits = " and ".join(dict.fromkeys(one["commit"] for one in runs))
    note = (
        f"Mean ranks of the default among the three: {said}. *behind* names the scores in which it is behind "
        f"the better of the other two by more than two standard errors over {MASKS} masks. The results were "
        f"produced by `python benchmarks/default_accuracy.py` at commit {commits}."
    )
    return "\n".join([*lines, "", note])


def main() -> None:
    """Runs what has no stored result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--again", action="store_true", help="repeat stored runs")
    given = parser.parse_args()
    runs = stored_runs("default_accuracy", again=given.again)
    known = {(one["table"], one["seed"]) for one in runs}
    for name in TABLES:
        for seed in range(MASKS):
            if (name, seed) not in known:
                runs.append(run(name, seed))
                print(json.dumps(runs[-1]), flush=True)
        if all((name, seed) in {(one["table"], one["seed"]) for one in runs} for seed in range(MASKS)):
            store_with_table(
                "default_accuracy", {"experiment": "default_accuracy", "runs": runs}, PAGE, make_table(runs)
            )


if __name__ == "__main__":
    main()
