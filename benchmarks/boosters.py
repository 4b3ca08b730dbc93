"""Boosted trees of halfseen beside scikit-learn's, LightGBM, XGBoost and CatBoost, all at their defaults.

    HALFSEEN_DATA=... python benchmarks/boosters.py

Ten tables of at most 2,000 rows; two of them have missing values of their own, and 20% of the values of the
others are removed completely at random. A quarter of the rows is predicted, in several splits. Tools that
are not installed are left out. The score is 1 - R2 of numbers and the log-loss of classes; smaller is
better. A method is behind another if the difference, paired by split, exceeds its standard error. Writes
results/boosters.json and a table in docs/guide/prediction.md.
"""

import argparse
import importlib.util
import json
import time
import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
from harness import ROOT, find_commit, store_with_table
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import log_loss, r2_score
from sklearn.model_selection import train_test_split

import halfseen
from halfseen.datasets import describe_dataset, load

PAGE = ROOT / "docs" / "guide" / "prediction.md"
RATE, MAX_ROWS, TEST_SHARE, SPLITS = 0.2, 2_000, 0.25, 5
NATURAL = ("pima_diabetes", "mice_sets/brandsma")
TABLES = (
    "abalone", "airfoil", "concrete", "energy_efficiency", "winequality_red", "obesity", "vehicle",
    "maternal_health", *NATURAL,
)  # fmt: skip
CLASSIFIED = ("obesity", "vehicle", "maternal_health", "pima_diabetes")
DROPPED = {"mice_sets/brandsma": ["pup", "sch"]}  # identifiers
MODULES = {"LightGBM": "lightgbm", "XGBoost": "xgboost", "CatBoost": "catboost"}


def methods() -> list[str]:
    """The methods that can run here."""
    others = [name for name, module in MODULES.items() if importlib.util.find_spec(module)]
    return ["halfseen", "scikit-learn", *others]


def read(name: str) -> tuple[pd.DataFrame, np.ndarray]:
    """Inputs and target; texts are categories."""
    target = describe_dataset(name).target[0]
    frame = load(name).drop(columns=DROPPED.get(name, [])).dropna(subset=[target])
    frame = frame.sample(min(len(frame), MAX_ROWS), random_state=0).reset_index(drop=True)
    X, y = frame.drop(columns=target), frame[target].to_numpy()
    for column in X.select_dtypes(exclude="number"):
        X[column] = X[column].astype("category")
    return X, np.unique(y, return_inverse=True)[1] if name in CLASSIFIED else y.astype(float)


def make(method: str, classify: bool, X: pd.DataFrame, seed: int):
    """An estimator with its defaults, on one thread."""
    if method == "halfseen":
        return (halfseen.BoostingClassifier if classify else halfseen.BoostingRegressor)(random_state=seed)
    if method == "scikit-learn":
        kind = HistGradientBoostingClassifier if classify else HistGradientBoostingRegressor
        return kind(random_state=seed)
    if method == "LightGBM":
        import lightgbm

        kind = lightgbm.LGBMClassifier if classify else lightgbm.LGBMRegressor
        return kind(random_state=seed, n_jobs=1, verbose=-1)
    if method == "XGBoost":
        import xgboost

        kind = xgboost.XGBClassifier if classify else xgboost.XGBRegressor
        return kind(random_state=seed, n_jobs=1, enable_categorical=True)
    import catboost

    names = list(X.select_dtypes("category"))
    kind = catboost.CatBoostClassifier if classify else catboost.CatBoostRegressor
    return kind(random_state=seed, thread_count=1, verbose=0, cat_features=names, allow_writing_files=False)


def score(method: str, parts: Sequence, classify: bool, seed: int) -> tuple[float, float]:
    """The loss of a method on a split, and the processor time of its fit."""
    train, test, y_train, y_test = parts
    if method == "CatBoost":
        train, test = (_without_missing_levels(part) for part in (train, test))
    model = make(method, classify, train, seed)
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(train, y_train)
        seconds = time.process_time() - began
        if classify:
            return float(log_loss(y_test, model.predict_proba(test), labels=np.unique(y_train))), seconds
        return 1.0 - float(r2_score(y_test, model.predict(test))), seconds


def _without_missing_levels(part: pd.DataFrame) -> pd.DataFrame:
    """Makes missing categories one of their own, because CatBoost refuses them."""
    names = list(part.select_dtypes("category"))
    texts = part[names].astype(object).where(part[names].notna(), "missing").astype(str)
    return part.drop(columns=names).join(texts.astype("category"))


def run(name: str, n_splits: int) -> dict:
    """All methods on all splits of a table."""
    X, y = read(name)
    classify = name in CLASSIFIED
    found: dict = {"table": name, "commit": find_commit(), "rows": len(X), "losses": {}, "seconds": {}}
    for seed in range(n_splits):
        gone = np.random.default_rng(seed).random(X.shape) < (0.0 if name in NATURAL else RATE)
        parts = train_test_split(
            X.mask(gone), y, test_size=TEST_SHARE, random_state=seed, stratify=y if classify else None
        )
        for method in methods():
            loss, seconds = score(method, parts, classify, seed)
            found["losses"].setdefault(method, []).append(round(loss, 5))
            found["seconds"].setdefault(method, []).append(round(seconds, 3))
    return found


def make_table(runs: Sequence[dict]) -> str:
    """A line for each table: mean losses, and by how many standard errors halfseen is behind the best."""
    names = list(runs[0]["losses"])
    lines = [
        f"| table | {' | '.join(names)} | behind the best of the others |",
        f"|{' --- |' * (len(names) + 2)}",
    ]
    level = 0
    for one in runs:
        losses = np.array([one["losses"][name] for name in names])
        means = losses.mean(axis=1)
        best = 1 + int(means[1:].argmin())
        gaps = losses[0] - losses[best]
        error = gaps.std(ddof=1) / np.sqrt(len(gaps))
        level += bool(gaps.mean() <= error)
        errors = gaps.mean() / max(error, 1e-12)
        behind = f"{gaps.mean() / means[best]:+.1%} ({names[best]}; {errors:+.1f} standard errors)"
        lines.append(f"| {one['table']} | {' | '.join(f'{mean:.3f}' for mean in means)} | {behind} |")
    seconds = [np.mean([np.mean(one["seconds"][name]) for one in runs]) for name in names]
    lines.append(f"| *CPU s of a fit* | {' | '.join(f'{one:.2f}' for one in seconds)} | |")
    commits = " and ".join(dict.fromkeys(one["commit"] for one in runs))
    n_splits = len(runs[0]["losses"][names[0]])
    note = (
        f"Losses are 1 - R² or log-loss, means of {n_splits} splits. halfseen is first or within one "
        f"standard error of the best of the others on {level} of {len(runs)} tables. The results were "
        f"produced by `python benchmarks/boosters.py` at commit {commits}."
    )
    return "\n".join([*lines, "", note])


def main() -> None:
    """Runs the tables that have no stored result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--again", action="store_true", help="repeat stored runs")
    parser.add_argument("--only", default=",".join(TABLES), help="tables, separated by commas")
    given = parser.parse_args()
    stored, runs = ROOT / "results" / "boosters.json", []
    if stored.exists() and not given.again:
        runs = json.loads(stored.read_text(encoding="utf-8"))["runs"]
    for name in given.only.split(","):
        if name not in {one["table"] for one in runs}:
            runs.append(run(name, SPLITS))
            print(json.dumps(runs[-1]), flush=True)
            store_with_table("boosters", {"experiment": "boosters", "runs": runs}, PAGE, make_table(runs))


if __name__ == "__main__":
    main()
