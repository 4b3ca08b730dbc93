"""How well the default imputes twenty tables, beside its candidates and the imputers of scikit-learn.

    HALFSEEN_DATA=... python benchmarks/default_accuracy.py

The rules by which methods are combined were chosen on ten of the tables, those of `papers.library.auto`; the
ten others were named before the default met them. Of each table, at most 1,000 rows, 30% of the known cells
are hidden completely at random, with three masks. All methods are fitted to what is left, and scored on the
hidden cells: RMSE and CRPS in standard deviations, accuracy of levels. The default is behind if the mean of
a score is worse than the best mean of the others by more than 2% and by more than two standard errors over
the masks. Stored runs are not repeated, so an interrupted benchmark continues.
results/default_accuracy.json and tables in docs/guide/auto.md are written.
"""

import argparse
import json
import time
import warnings
from collections.abc import Sequence

import numpy as np
from harness import ROOT, find_commit, store_with_table, stored_runs
from sklearn.experimental import enable_iterative_imputer  # noqa: F401, needed before the next import
from sklearn.impute import IterativeImputer, KNNImputer

from halfseen import AutoImputer, CircuitImputer, GaussianImputer, TreeImputer
from halfseen.evaluation.candidates import enter
from halfseen.evaluation.scores import Scale
from halfseen.missingness import MCAR
from papers.amputed_table import AmputedTable, read_source
from papers.library.auto import SOURCES

PAGE = ROOT / "docs" / "guide" / "auto.md"
RATE, MAX_ROWS, SCORED_ROWS, MASKS = 0.3, 1_000, 500, 3
OTHERS = (
    "adult", "bank_marketing", "auto_mpg", "credit_approval", "hepatitis", "house_votes", "drug_consumption",
    "glass", "parkinsons", "yeast",
)  # fmt: skip
TABLES = SOURCES | {name: (name, ()) for name in OTHERS}
METHODS = {
    "auto": AutoImputer,
    "gaussian": GaussianImputer,
    "trees": TreeImputer,
    "circuit": CircuitImputer,
    "KNNImputer": KNNImputer,
    "IterativeImputer": IterativeImputer,
}
FIRST = ("auto", "gaussian", "trees")  # a table is shown once it has these; "-" stands for others not yet run
SCORES = {"rmse": "rmse", "crps": "crps", "accuracy": "accuracy"}
SMALLEST_GAP = 0.02  # of the best score


def run(name: str, seed: int, methods: Sequence[str]) -> dict:
    """The scores and the processor times of some methods on a table and a mask."""
    table = read_source(*TABLES[name], MAX_ROWS)
    codes = table.codes
    hidden = ~MCAR(rate=RATE).fit(codes).sample(codes, random_state=seed) & ~np.isnan(codes)
    task = AmputedTable(table, hidden, seed)
    rows = np.flatnonzero(hidden.any(axis=1))[:SCORED_ROWS]
    found: dict = {"table": name, "seed": seed, "shape": list(codes.shape), "methods": {}}
    for method in methods:
        candidate = enter(METHODS[method](), table, seed)
        began = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            candidate.fit(task.shown)
            seconds = time.process_time() - began
            scores = task.scores(candidate, rows, Scale.fit(task.shown), SCORES)
        found["methods"][method] = scores | {"cpu_seconds": round(seconds, 2), "commit": find_commit()}
    return found


def make_table(runs: Sequence[dict]) -> str:
    """Tables of mean scores, what the default gains over the Gaussian, and where it is behind."""
    tables = [one["table"] for one in runs if set(one["methods"]) >= set(FIRST)]
    names = [name for name in TABLES if tables.count(name) == MASKS]
    own = {name: [one["methods"] for one in runs if one["table"] == name] for name in names}
    parts = [_scores_table(own, score) for score in SCORES]
    heads = ["table", *(f"gain in {score}" for score in SCORES), "CPU s", "CPU s gaussian", "behind"]
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    behind = {name: _behind(one) for name, one in own.items()}
    for name, one in own.items():
        gains = [_gain(one, score) for score in SCORES]
        seconds = [np.mean([mask[method]["cpu_seconds"] for mask in one]) for method in ("auto", "gaussian")]
        times = [f"{each:.1f}" for each in seconds]
        lines.append(f"| {' | '.join([name, *gains, *times, ', '.join(behind[name]) or 'no'])} |")
    n_behind = sum(bool(found) for found in behind.values())
    said = []
    for label, group in {"all": names, "the ten others": [one for one in names if one in OTHERS]}.items():
        ranks = {score: _mean_ranks(own, group, score) for score in SCORES}
        words = ", ".join(f"{score} {found['auto']:.2f}{_first(found)}" for score, found in ranks.items())
        said.append(f"on {label} ({len(group)}) {words}")
    commits = " and ".join(
        dict.fromkeys(
            method["commit"] for masks in own.values() for mask in masks for method in mask.values()
        )
    )
    note = (
        f"*gain* is how much better the default is than the Gaussian alone. Its mean ranks among the "
        f"methods that were run: {'; '.join(said)}. It is *behind* the best of the others, by more than "
        f"{SMALLEST_GAP:.0%} and by more than two standard errors over {MASKS} masks, on {n_behind} of "
        f"{len(names)} tables. The results were produced by `python benchmarks/default_accuracy.py` at "
        f"commit {commits}."
    )
    return "\n\n".join([*parts, "\n".join(lines), note])


def _values(masks: Sequence[dict], score: str) -> np.ndarray | None:
    """The scores (masks, methods), smaller is better, NaN if not run; None if a table has no such score."""
    if any(np.isnan(one["auto"].get(score, np.nan)) for one in masks):
        return None
    sign = -1.0 if score == "accuracy" else 1.0
    return np.array([[sign * one.get(method, {}).get(score, np.nan) for method in METHODS] for one in masks])


def _scores_table(own: dict[str, list[dict]], score: str) -> str:
    lines = [f"| {score} | {' | '.join(METHODS)} |", f"|{' --- |' * (len(METHODS) + 1)}"]
    for name, masks in own.items():
        values = _values(masks, score)
        if values is not None:
            means = ["-" if np.isnan(one) else f"{abs(one):.3f}" for one in values.mean(axis=0)]
            lines.append(f"| {name} | {' | '.join(means)} |")
    return "\n".join(lines)


def _gain(masks: Sequence[dict], score: str) -> str:
    values = _values(masks, score)
    if values is None:
        return "-"
    means = dict(zip(METHODS, values.mean(axis=0), strict=True))
    return f"{(means['gaussian'] - means['auto']) / abs(means['gaussian']):+.1%}"


def _behind(masks: Sequence[dict]) -> list[str]:
    """The scores in which the default is clearly behind, and by how much."""
    found = []
    for score in SCORES:
        values = _values(masks, score)
        if values is None:
            continue
        best = 1 + int(np.nanargmin(values[:, 1:].mean(axis=0)))
        gaps = values[:, 0] - values[:, best]
        share = gaps.mean() / max(abs(values[:, best].mean()), 1e-12)
        if share > SMALLEST_GAP and gaps.mean() > 2.0 * gaps.std(ddof=1) / np.sqrt(len(gaps)):
            found.append(f"{score} by {share:.1%} ({list(METHODS)[best]})")
    return found


def _mean_ranks(own: dict[str, list[dict]], names: Sequence[str], score: str) -> dict[str, float]:
    """The mean rank of each method that was run on all tables, among those that were run on a table."""
    ranks = []
    for name in names:
        values = _values(own[name], score)
        if values is not None:
            means = values.mean(axis=0)
            ranks.append(np.where(np.isnan(means), np.nan, 1 + (means < means[:, None]).sum(axis=1)))
    if not ranks:
        return {"auto": 1.0}
    found = dict(zip(METHODS, np.mean(ranks, axis=0).tolist(), strict=True))
    return {method: rank for method, rank in found.items() if not np.isnan(rank)}


def _first(ranks: dict[str, float]) -> str:
    """Words about the method with the lowest mean rank, if it is not the default."""
    best = min(ranks, key=lambda name: ranks[name])
    return "" if ranks[best] >= ranks["auto"] else f" (behind {best}, {ranks[best]:.2f})"


def main() -> None:
    """Runs what has no stored result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--again", action="store_true", help="repeat stored runs")
    parser.add_argument("--only", default=",".join(TABLES), help="tables, separated by commas")
    given = parser.parse_args()
    runs = stored_runs("default_accuracy", again=given.again)
    for name in given.only.split(","):
        for seed in range(MASKS):
            stored = next((one for one in runs if (one["table"], one["seed"]) == (name, seed)), None)
            missing = [one for one in METHODS if stored is None or one not in stored["methods"]]
            if not missing:
                continue
            more = run(name, seed, missing)
            print(json.dumps(more), flush=True)
            if stored is None:
                runs.append(more)
            else:
                stored["methods"] |= more["methods"]
        store_with_table(
            "default_accuracy", {"experiment": "default_accuracy", "runs": runs}, PAGE, make_table(runs)
        )


if __name__ == "__main__":
    main()
