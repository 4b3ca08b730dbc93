"""NeuMiss beside boosted trees that take NaN and a network on filled columns: real tables, two mechanisms.

Every cell of the table is the mean over random splits; differences are paired by split. Writes
results/prediction.json and the table of docs/guide/prediction.md that is made from it. Run with `make bench`;
`--splits 2` and `--only concrete,letter` make it short, and then nothing is stored.
"""

import argparse
import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from harness import ROOT, find_commit, store_with_table
from scipy import stats
from sklearn.compose import TransformedTargetRegressor, make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import halfseen
from halfseen.missingness import MCAR, LogisticSelfMasking

PAGE = ROOT / "docs" / "guide" / "prediction.md"
RATE = 0.3
SPLITS = 5
TEST_SHARE = 0.25
METHODS = ("NeuMiss", "trees", "network")
MECHANISMS = ("at random", "large hide")
SHOWN = {"at random": "MCAR", "large hide": "self-masking", "as it is": "original"}  # names in the guide


@dataclass(frozen=True)
class Table:
    """A file, its target, columns that are no inputs, and how many rows are taken, 0 for all."""

    file: str
    target: str
    classify: bool = False
    dropped: tuple[str, ...] = ()
    n_rows: int = 0
    natural: bool = False  # whether the missing values of the table itself are studied


TABLES = {
    "concrete": Table("concrete/concrete.csv.gz", "strength_mpa"),
    "california": Table("california_housing/california_housing.csv.gz", "SalePrice", n_rows=5000),
    "wine, white": Table("winequality_white/winequality_white.csv.gz", "quality"),
    "adult": Table("adult/adult.csv.gz", "income", True, ("split",), 8000),
    "letter": Table("letter/letter.csv.gz", "lettr", True, n_rows=6000),
    "brandsma": Table("mice_sets/brandsma.csv.gz", "lpo", dropped=("pup", "sch"), natural=True),
    "pima": Table("pima_diabetes/pima_diabetes.csv.gz", "diabetes", True, natural=True),
}


def read(folder: Path, table: Table) -> tuple[pd.DataFrame, np.ndarray]:
    """Inputs and target; rows without a target are left out, text is a category."""
    frame = pd.read_csv(folder / table.file).drop(columns=list(table.dropped)).dropna(subset=[table.target])
    if table.n_rows:
        frame = frame.sample(table.n_rows, random_state=0)
    X, y = frame.drop(columns=table.target), frame[table.target].to_numpy()
    for name in X.select_dtypes(exclude="number"):
        X[name] = X[name].astype("category")
    return X.reset_index(drop=True), np.unique(y, return_inverse=True)[1] if table.classify else y


def hide(X: pd.DataFrame, mechanism: str, seed: int) -> pd.DataFrame:
    """Removes values: completely at random, or numbers with a probability that rises with the value."""
    if mechanism == "as it is":
        return X
    numbers = list(X.select_dtypes("number").columns)
    rule = MCAR(rate=RATE) if mechanism == "at random" else LogisticSelfMasking(rate=RATE, columns=numbers)
    X = X.astype(dict.fromkeys(numbers, float))
    return rule.fit(X).amputate(X, random_state=seed)


def make(method: str, classify: bool, seed: int):
    """The estimators with their defaults."""
    if method == "NeuMiss":
        kind = halfseen.NeuMissClassifier if classify else halfseen.NeuMissRegressor
        return kind(random_state=seed)
    if method == "trees":
        kind = HistGradientBoostingClassifier if classify else HistGradientBoostingRegressor
        return kind(categorical_features="from_dtype", random_state=seed)
    columns = make_column_transformer(
        (
            make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()),
            make_column_selector(dtype_include="number"),
        ),
        (
            OneHotEncoder(handle_unknown="ignore", sparse_output=False),
            make_column_selector(dtype_include="category"),
        ),
    )
    if classify:
        return make_pipeline(columns, MLPClassifier(random_state=seed))
    network = make_pipeline(columns, MLPRegressor(random_state=seed))
    return TransformedTargetRegressor(network, transformer=StandardScaler())


def score_model(method: str, table: Table, parts: list, seed: int) -> dict[str, float]:
    """The scores of one method on one split, and the seconds of its fit."""
    train, test, y_train, y_test = parts
    estimator = make(method, table.classify, seed)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        estimator.fit(train, y_train)
    scores = {"seconds": time.perf_counter() - began}
    if table.classify:
        chances = estimator.predict_proba(test)
        scores["log_loss"] = log_loss(y_test, chances, labels=np.unique(y_train))
        scores["accuracy"] = float((estimator.classes_[chances.argmax(axis=1)] == y_test).mean())
    else:
        scores["r2"] = estimator.score(test, y_test)
    return scores


def difference(ours: list[float], theirs: list[float]) -> list[float]:
    """Mean of ours less theirs, and half its 95% interval, corrected for splits that share rows.

    The correction is that of Nadeau and Bengio (2003).
    """
    gaps = np.subtract(ours, theirs)
    variance = gaps.var(ddof=1) * (1 / len(gaps) + TEST_SHARE / (1 - TEST_SHARE))
    return [float(gaps.mean()), float(stats.t.ppf(0.975, len(gaps) - 1) * np.sqrt(variance))]


def run(folder: Path, name: str, mechanism: str, n_splits: int) -> dict:
    """All methods on all splits of one table with one mechanism."""
    table = TABLES[name]
    X, y = read(folder, table)
    scores: dict[str, list] = {method: [] for method in METHODS}
    for seed in range(n_splits):
        holey = hide(X, mechanism, seed)
        stratify = y if table.classify else None
        parts = train_test_split(holey, y, test_size=TEST_SHARE, random_state=seed, stratify=stratify)
        for method in METHODS:
            scores[method].append(score_model(method, table, parts, seed))
    measures = ("log_loss", "accuracy") if table.classify else ("r2",)
    found = {m: {k: [s[k] for s in scores[m]] for k in (*measures, "seconds")} for m in METHODS}
    gaps = {
        measure: {m: difference(found["NeuMiss"][measure], found[m][measure]) for m in METHODS[1:]}
        for measure in measures
    }
    missing = float(holey.isna().to_numpy().mean())
    return {"rows": len(X), "columns": X.shape[1], "missing": missing, "scores": found, "differences": gaps}


def as_table(results: dict) -> str:
    """Markdown: one row for each table and mechanism."""
    lines = [
        "| table | missingness | score | NeuMiss | trees | network | minus trees | minus network | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    names = {"r2": "R²", "log_loss": "log-loss", "accuracy": "accuracy"}
    for entry in results["runs"]:
        for measure, gaps in entry["differences"].items():
            means = [f"{np.mean(entry['scores'][m][measure]):.3f}" for m in METHODS]
            paired = [f"{gaps[m][0]:+.3f} ± {gaps[m][1]:.3f}" for m in METHODS[1:]]
            seconds = f"{np.mean(entry['scores']['NeuMiss']['seconds']):.1f}"
            what = [f"{entry['table']} {entry['rows']:,} x {entry['columns']}", SHOWN[entry["mechanism"]]]
            lines.append(f"| {' | '.join([*what, names[measure], *means, *paired, seconds])} |")
    lines += [
        "",
        f"Each score is the mean of {results['splits']} splits with three quarters of the rows for training. "
        "*minus trees* and *minus network* are the score of NeuMiss minus that of the other method, paired "
        "by split, ± half the width of a 95% confidence interval. Larger R² and accuracy and smaller "
        "log-loss are better. *seconds* is the time to fit NeuMiss on one core. The results were produced by "
        f"`make bench` at commit {results['commit']}.",
    ]
    return "\n".join(lines)


def main() -> None:
    """Runs every table, prints what comes out, and stores it if nothing was left out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--only", default=",".join(TABLES).replace("wine, white", "wine"))
    options = parser.parse_args()
    folder = Path(os.environ.get("HALFSEEN_DATA", ""))
    if not (folder / "concrete").is_dir():
        print("HALFSEEN_DATA does not name the folder of data sets: nothing to do.")
        return
    results = {"commit": find_commit(), "splits": options.splits, "rate": RATE, "runs": []}
    for name, table in TABLES.items():
        if name.split(",")[0] not in options.only.split(","):
            continue
        for mechanism in ("as it is",) if table.natural else MECHANISMS:
            found = run(folder, name, mechanism, options.splits)
            results["runs"].append({"table": name, "mechanism": mechanism} | found)
            print(as_table(results | {"runs": results["runs"][-1:]}).split("\n")[2:-2], flush=True)
    print(as_table(results))
    if options.splits == SPLITS and len({entry["table"] for entry in results["runs"]}) == len(TABLES):
        store_with_table("prediction", results, PAGE, as_table(results))


if __name__ == "__main__":
    main()
