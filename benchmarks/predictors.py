"""`halfseen fit` and the boosted trees of halfseen beside four boosters, on tables where nothing was chosen.

    HALFSEEN_DATA=... python benchmarks/predictors.py                # the rivals
    HALFSEEN_DATA=... python benchmarks/predictors.py --methods fit  # what `halfseen fit` saves, and so on

Ten tables of at most 1,000 rows that decided nothing in the library; four have missing values of their own,
and 20% of the values of the others are removed completely at random. A quarter of the rows is predicted, in
five splits. The rivals are run at their defaults and with the best of ten random settings, as in boosters.py.
The score is 1 - R2 of numbers and the log-loss of classes; smaller is better. Methods run split by split, and
stored runs are not repeated, so an interrupted benchmark continues; the table has the splits that all methods
have finished. A method is behind by the difference from the best rival, negative if it is ahead. Writes
results/predictors.json and tables in docs/guide/prediction.md.
"""

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from boosters import MODULES, PAGE, RATE, TEST_SHARE, TRIALS, TUNED, measure, score
from harness import find_commit, store_with_table, stored_runs
from sklearn.model_selection import train_test_split

from halfseen import load as load_model
from halfseen.cli.fit import fit
from halfseen.cli.options import TaskName
from halfseen.cli.progress import Reporter
from halfseen.cli.requests import FitRequest
from halfseen.datasets import load

MAX_ROWS, SPLITS = 1_000, 5
NUMBERS = {
    "ozone": ("V4", ()),
    "mi_sets/nlsyv": ("ppvtr.36", ()),
    "vim_sets/wine": ("price", ()),
    "bike_sharing": ("cnt", ("instant", "dteday", "casual", "registered")),
    "boston_housing": ("MEDV", ()),
    "diabetes": ("target", ()),
}
CLASSES = {
    "house_votes": ("Class", ()),
    "credit_default": ("default_payment_next_month", ("ID",)),
    "spambase": ("type", ()),
    "raisin": ("Class", ()),
}
"""Targets, and columns that are left out because they number the rows or contain the target."""
NATURAL = ("ozone", "mi_sets/nlsyv", "vim_sets/wine", "house_votes")
FIT, TREES = "halfseen fit", "halfseen"
DEFAULTS = ("scikit-learn", *MODULES)
RIVALS = (*DEFAULTS, *TUNED.values())
GROUPS = {"rivals": RIVALS, "trees": (TREES,), "fit": (FIT,)}
NEAR = 0.03  # of the loss of the best rival: further behind is a failure


def read(name: str) -> tuple[pd.DataFrame, np.ndarray]:
    """Inputs and target; texts are categories."""
    target, dropped = (NUMBERS | CLASSES)[name]
    frame = load(name).drop(columns=list(dropped)).dropna(subset=[target])
    frame = frame.sample(min(len(frame), MAX_ROWS), random_state=0).reset_index(drop=True)
    X, y = frame.drop(columns=target), frame[target].to_numpy()
    for column in X.select_dtypes(exclude="number"):
        X[column] = X[column].astype("category")
    return X, np.unique(y, return_inverse=True)[1] if name in CLASSES else y.astype(float)


def run(name: str, split: int, method: str) -> dict:
    """The loss of a method on a split of a table, and the processor time of its fit."""
    X, y = read(name)
    gone = np.random.default_rng(split).random(X.shape) < (0.0 if name in NATURAL else RATE)
    parts = train_test_split(
        X.mask(gone),
        y,
        test_size=TEST_SHARE,
        random_state=split,
        stratify=y if name in CLASSES else None,
    )
    found = score_fit(parts, name in CLASSES, split) if method == FIT else None
    loss, seconds = found or score(method, parts, name in CLASSES, split)
    own = {"table": name, "split": split, "method": method, "rows": len(X), "columns": X.shape[1]}
    return own | {"loss": round(loss, 5), "cpu_seconds": round(seconds, 2), "commit": find_commit()}


def score_fit(parts: Sequence, classify: bool, seed: int) -> tuple[float, float]:
    """The loss of what `halfseen fit` saves, and the processor time of the command."""
    train, test, y_train, y_test = parts
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source, path = f"{folder}/train.parquet", f"{folder}/model"
        table = pa.Table.from_pandas(_texts(train), preserve_index=False)
        pq.write_table(table.append_column("the target", pa.array(y_train)), source)
        task = TaskName("classification" if classify else "regression")
        began = time.process_time()
        fit(
            FitRequest(source=source, target="the target", save_model=path, task=task, seed=seed),
            Reporter(quiet=True),
        )
        seconds = time.process_time() - began
        return measure(load_model(path), _texts(test), y_test, classify, np.unique(y_train)), seconds


def _texts(part: pd.DataFrame) -> pd.DataFrame:
    """Categories as texts, as they are in a file."""
    names = list(part.select_dtypes("category"))
    return part.assign(**{name: part[name].astype(object) for name in names})


def make_table(runs: Sequence[dict]) -> str:
    """For both methods of halfseen, their losses beside the rivals, and how far each is behind the best."""
    own = {(one["table"], one["split"], one["method"]): one for one in runs}
    parts = []
    for method in (TREES, FIT):
        names = (method, *RIVALS)
        losses = {}
        for table in NUMBERS | CLASSES:
            done = [k for k in range(SPLITS) if all((table, k, name) in own for name in names)]
            if done:
                losses[table] = np.array([[own[table, k, name]["loss"] for k in done] for name in names])
        if losses:
            parts += _compare(losses, names, runs)
    commits = " and ".join(dict.fromkeys(one["commit"] for one in runs))
    note = (
        f"Losses are 1 - R² or log-loss, means over the splits that all methods have finished; rivals were "
        f"tuned by {TRIALS} random settings. The results were produced by `python benchmarks/predictors.py` "
        f"at commit {commits}."
    )
    return "\n\n".join([*parts, note])


def _compare(losses: dict[str, np.ndarray], names: Sequence[str], runs: Sequence[dict]) -> list[str]:
    """A table of losses (methods, splits), the first method is of halfseen, and a sentence on the gaps."""
    heads = ("table", "splits", *names, "behind the best at defaults", "behind the best of all")
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    defaults, every = range(1, 1 + len(DEFAULTS)), range(1, len(names))
    verdicts: list[list[tuple[bool, bool]]] = [[], []]
    for table, found in losses.items():
        cells = [table, str(found.shape[1]), *(f"{mean:.3f}" for mean in found.mean(axis=1))]
        for rivals, verdict in zip((defaults, every), verdicts, strict=True):
            text, *judged = _behind(found, rivals, names)
            cells.append(text)
            verdict.append(tuple(judged))
        lines.append(f"| {' | '.join(cells)} |")
    times = [np.mean([one["cpu_seconds"] for one in runs if one["method"] == name]) for name in names]
    lines.append(f"| *CPU s of a fit* | | {' | '.join(f'{one:.1f}' for one in times)} | | |")
    said = [
        f"{label}, it is first or within one standard error on {sum(level for level, _ in verdict)} of "
        f"{len(losses)} tables, and more than {NEAR:.0%} behind on {sum(not near for _, near in verdict)}"
        for label, verdict in zip(("Beside defaults", "Beside all"), verdicts, strict=True)
    ]
    return ["\n".join(lines), f"*{names[0]}*: {'. '.join(said)}."]


def _behind(losses: np.ndarray, rivals: Sequence[int], names: Sequence[str]) -> tuple[str, bool, bool]:
    """How far the first method is behind the best rival; whether level with it, and whether near it."""
    best = min(rivals, key=lambda one: losses[one].mean())
    gaps, scale = losses[0] - losses[best], losses[best].mean()
    error = gaps.std(ddof=1) / np.sqrt(len(gaps)) if len(gaps) > 1 else 0.0
    width = f" ± {error / scale:.1%}" if len(gaps) > 1 else ""
    text = f"{gaps.mean() / scale:+.1%}{width} ({names[best]})"
    return text, bool(gaps.mean() <= error), bool(gaps.mean() / scale <= NEAR)


def main() -> None:
    """Runs what has no stored result, split by split."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--again", action="store_true", help="repeat stored runs of the named methods")
    parser.add_argument("--only", default=",".join(NUMBERS | CLASSES), help="tables, separated by commas")
    parser.add_argument("--methods", default="rivals", help="rivals, trees, fit or several with commas")
    parser.add_argument("--splits", type=int, default=SPLITS, help="how many of the splits")
    given = parser.parse_args()
    methods = [method for group in given.methods.split(",") for method in GROUPS[group]]
    for split in range(given.splits):
        for name in given.only.split(","):
            for method in methods:
                runs = stored_runs("predictors")  # read again: several methods may run at the same time
                key = (name, split, method)
                others = [one for one in runs if (one["table"], one["split"], one["method"]) != key]
                if len(others) < len(runs) and not given.again:
                    continue
                more = run(name, split, method)
                print(json.dumps(more), flush=True)
                stored = stored_runs("predictors")
                runs = [one for one in stored if (one["table"], one["split"], one["method"]) != key] + [more]
                content = {"experiment": "predictors", "runs": runs}
                store_with_table("predictors", content, PAGE, make_table(runs))


if __name__ == "__main__":
    main()
