"""Boosted trees of halfseen beside scikit-learn's, LightGBM, XGBoost and CatBoost, at defaults and tuned.

    HALFSEEN_DATA=... python benchmarks/boosters.py

Ten tables of at most 2,000 rows; two of them have missing values of their own, and 20% of the values of the
others are removed completely at random. A quarter of the rows is predicted, in several splits. Tools that
are not installed are left out. The score is 1 - R2 of numbers and the log-loss of classes; smaller is
better. A method is behind another if the difference, paired by split, exceeds its standard error.

Rivals are tuned by ten random settings, each fitted to three quarters of the training rows and scored on the
rest; the best is fitted again to all. `average` is
`AveragingRegressor` or `AveragingClassifier` at its defaults, in the first splits only, after all others.
Writes results/boosters.json and tables in docs/guide/prediction.md.
"""

import argparse
import importlib.util
import json
import time
import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
from harness import ROOT, find_commit, store_with_table, stored_runs
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
TUNED = {name: f"{name}, tuned" for name in ("scikit-learn", *MODULES)}
MOST_LEVELS = 255  # that scikit-learn reads as categories; it reads more as numbers
TRIALS = 10
AVERAGE, AVERAGE_SPLITS = "average", 2


def methods() -> list[str]:
    """The boosted trees that can run here: halfseen, others at their defaults, and tuned."""
    others = [name for name, module in MODULES.items() if importlib.util.find_spec(module)]
    found = ["halfseen", "scikit-learn", *others]
    return [*found, *(tuned for name, tuned in TUNED.items() if name in found)]


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
    if method == AVERAGE:
        return (halfseen.AveragingClassifier if classify else halfseen.AveragingRegressor)(random_state=seed)
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
    if method.startswith("CatBoost"):
        train, test = (_without_missing_levels(part) for part in (train, test))
    if method.startswith("scikit-learn"):
        train, test = (_with_few_categories(part) for part in (train, test))
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = next((name for name, tuned in TUNED.items() if tuned == method), None)
        model = (
            make(method, classify, train, seed)
            if plain is None
            else tune(plain, train, y_train, classify, seed)
        )
        model.fit(train, y_train)
        seconds = time.process_time() - began
        return measure(model, test, y_test, classify, np.unique(y_train)), seconds


def measure(model, test: pd.DataFrame, y_test: np.ndarray, classify: bool, classes: np.ndarray) -> float:
    """The loss of a fitted model."""
    if classify:
        return float(log_loss(y_test, model.predict_proba(test), labels=classes))
    return 1.0 - float(r2_score(y_test, model.predict(test)))


def tune(method: str, train: pd.DataFrame, y_train: np.ndarray, classify: bool, seed: int):
    """The best of several random settings, not yet fitted to all rows."""
    parts = train_test_split(
        train, y_train, test_size=0.25, random_state=seed, stratify=y_train if classify else None
    )
    rng, tried = np.random.default_rng(seed), []
    for _ in range(TRIALS):
        model = make(method, classify, train, seed).set_params(**draw_settings(method, rng))
        model.fit(parts[0], parts[2])
        tried.append((measure(model, parts[1], parts[3], classify, np.unique(y_train)), len(tried), model))
    return min(tried)[2]


def draw_settings(method: str, rng: np.random.Generator) -> dict:
    """Random settings of about the same meaning for each tool."""
    rate, trees = float(np.exp(rng.uniform(np.log(0.02), np.log(0.2)))), int(rng.integers(50, 401))
    leaves, least, ridge = int(rng.integers(6, 64)), int(rng.integers(5, 41)), float(rng.uniform(0, 10))
    if method == "scikit-learn":
        own = {"max_iter": trees, "max_leaf_nodes": leaves, "min_samples_leaf": least}
        return own | {"learning_rate": rate, "l2_regularization": ridge}
    if method == "CatBoost":  # which takes at least a second if trees are deeper
        own = {"iterations": trees, "depth": min(8, int(np.log2(leaves)) + 1), "l2_leaf_reg": ridge}
        return own | {"learning_rate": rate}
    if method == "LightGBM":
        own = {"num_leaves": leaves, "min_child_samples": least, "reg_lambda": ridge}
    else:
        own = {"max_depth": int(np.log2(leaves)) + 1, "min_child_weight": least, "reg_lambda": ridge}
    return own | {"n_estimators": trees, "learning_rate": rate}


def _without_missing_levels(part: pd.DataFrame) -> pd.DataFrame:
    """Makes missing categories one of their own, because CatBoost refuses them."""
    names = list(part.select_dtypes("category"))
    texts = part[names].astype(object).where(part[names].notna(), "missing").astype(str)
    return part.drop(columns=names).join(texts.astype("category"))


def _with_few_categories(part: pd.DataFrame) -> pd.DataFrame:
    """Makes categories of which there are many numbers, because scikit-learn refuses them."""
    many = [name for name in part.select_dtypes("category") if len(part[name].cat.categories) > MOST_LEVELS]
    return part.assign(**{name: part[name].cat.codes for name in many})


def run(name: str, n_splits: int, chosen: Sequence[str]) -> dict:
    """Some methods on the splits of a table."""
    X, y = read(name)
    classify = name in CLASSIFIED
    found: dict = {"table": name, "commit": find_commit(), "rows": len(X), "losses": {}, "seconds": {}}
    for seed in range(n_splits):
        gone = np.random.default_rng(seed).random(X.shape) < (0.0 if name in NATURAL else RATE)
        parts = train_test_split(
            X.mask(gone), y, test_size=TEST_SHARE, random_state=seed, stratify=y if classify else None
        )
        for method in chosen:
            loss, seconds = score(method, parts, classify, seed)
            found["losses"].setdefault(method, []).append(round(loss, 5))
            found["seconds"].setdefault(method, []).append(round(seconds, 3))
    return found


def make_table(runs: Sequence[dict]) -> str:
    """The boosted trees of halfseen beside others at their defaults, beside tuned ones, and the average."""
    plain = ["halfseen", "scikit-learn", *MODULES]
    plain = [name for name in plain if all(name in one["losses"] for one in runs)]
    first, level = compare(runs, plain, SPLITS)
    parts = [
        first,
        f"Losses are 1 - R² or log-loss, means of {SPLITS} splits. The boosted trees of halfseen are first "
        f"or within one standard error of the best of the others on {level} of {len(runs)} tables.",
    ]
    beside = [one for one in runs if set(TUNED.values()) <= set(one["losses"])]
    if beside:
        second, level = compare(beside, ["halfseen", *TUNED.values()], SPLITS)
        parts += [
            f"Beside rivals that are tuned by {TRIALS} random settings:",
            second,
            f"They are first or within one standard error on {level} of {len(beside)}.",
        ]
    averaged = [one for one in runs if AVERAGE in one["losses"]]
    if averaged:
        third, level = compare(averaged, [AVERAGE, *plain], AVERAGE_SPLITS)
        parts += [
            f"`AveragingRegressor` and `AveragingClassifier` at their defaults, in {AVERAGE_SPLITS} splits:",
            third,
            f"They are first or within one standard error on {level} of {len(averaged)}.",
        ]
    commits = " and ".join(dict.fromkeys(one["commit"] for one in runs))
    parts[-1] += f" The results were produced by `python benchmarks/boosters.py` at commit {commits}."
    return "\n\n".join(parts)


def compare(runs: Sequence[dict], names: Sequence[str], n_splits: int) -> tuple[str, int]:
    """A line for each table: mean losses, and by how many standard errors the first method is behind."""
    heads = " | ".join(names)
    lines = [f"| table | {heads} | behind the best of the others |", f"|{' --- |' * (len(names) + 2)}"]
    level = 0
    for one in runs:
        losses = np.array([one["losses"][name][:n_splits] for name in names])
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
    return "\n".join(lines), level


def main() -> None:
    """Runs the tables that have no stored result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--again", action="store_true", help="repeat stored runs")
    parser.add_argument("--only", default=",".join(TABLES), help="tables, separated by commas")
    parser.add_argument("--methods", default="", help="repeat these methods of stored runs, e.g. halfseen")
    given = parser.parse_args()
    runs = stored_runs("boosters", again=given.again)
    wanted = given.only.split(",")
    if given.methods:
        for one in (one for one in runs if one["table"] in wanted):
            more = run(one["table"], SPLITS, given.methods.split(","))
            add(one, more, f"{one['commit']} ({given.methods} at {more['commit']})")
            store(runs)
        return
    for name in wanted:
        if name not in {one["table"] for one in runs}:
            runs.append(run(name, SPLITS, methods()))
            print(json.dumps(runs[-1]), flush=True)
            store(runs)
    for one in runs:
        if AVERAGE not in one["losses"] and one["table"] in wanted:
            add(one, run(one["table"], AVERAGE_SPLITS, [AVERAGE]), one["commit"])
            store(runs)


def add(stored: dict, more: dict, commit: str) -> None:
    """Adds the results of some methods to a run."""
    print(json.dumps(more), flush=True)
    for part in ("losses", "seconds"):
        stored[part] |= more[part]
    stored["commit"] = commit


def store(runs: Sequence[dict]) -> None:
    """Writes what is known so far."""
    store_with_table("boosters", {"experiment": "boosters", "runs": runs}, PAGE, make_table(runs))


if __name__ == "__main__":
    main()
