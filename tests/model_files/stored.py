"""Model files of every estimator with questions and answers: stored for a version, loaded by all later ones.

Run ``PYTHONPATH=tests:docs python tests/model_files/stored.py`` before a release. It stores the files of the
version of pyproject.toml in place of those of an earlier run; files of a version that CHANGELOG.md lists are
never replaced. `tests/model_files/test_stored.py` loads the files of all versions.
"""

import json
import math
import re
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from conformance.families import DATA, RatingData
from conformance.registry import ESTIMATORS, OTHERS, PREDICTORS, SKELETONS, TRANSFORMERS

import halfseen
from halfseen.testing.tables import ARRAY, cells

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
N_FITTED, N_ASKED = 120, 8  # rows of a table; few, so that the files stay small
METHODS = ("predict", "predict_proba", "score_samples", "transform")
OF_TABLES = ("predict_interval", "sample", "interval")
SETTINGS = {"sample": {"n_draws": 2}}


def penguins(n_rows):
    """Returns the first rows of the bundled table."""
    return halfseen.datasets.load_penguins("pandas").head(n_rows)


def shipped():
    """Yields the estimators that users get: name, a fitted one, and a question to it."""
    for row in (*ESTIMATORS, *TRANSFORMERS):
        if row.name.startswith("skeleton"):
            continue
        table = ARRAY.make()[:N_FITTED] if row in TRANSFORMERS else penguins(N_FITTED)
        numbers = np.random.default_rng(0).normal(size=N_FITTED)
        target = (row.target(numbers),) if row in PREDICTORS else ()
        settings = {} if row in TRANSFORMERS else {"random_state": 0}
        question = {"array": plain(table[:N_ASKED])} if row in TRANSFORMERS else {"penguins": N_ASKED}
        yield row.name, row.make(**settings).fit(table, *target), question
    for row in OTHERS:
        if not isinstance(row.make(), SKELETONS):
            data = DATA[row.family]()
            few = data.take(np.arange(N_ASKED))
            if isinstance(data, RatingData):
                question = {"pairs": [few.frame[name].tolist() for name in ("user", "item")]}
            else:
                question = {"array": plain(few.X), "extra": {k: plain(v) for k, v in few.extra.items()}}
            yield row.name, data.fit(row.make(random_state=0)), question


def names():
    """Returns the names of the estimators that users get."""
    tables = {row.name for row in (*ESTIMATORS, *TRANSFORMERS) if not row.name.startswith("skeleton")}
    return tables | {row.name for row in OTHERS if not isinstance(row.make(), SKELETONS)}


def plain(answer):
    """Returns an answer as lists of plain values: None where missing, numbers with nine digits."""
    if isinstance(answer, pd.DataFrame):
        return plain(cells(answer))
    if isinstance(answer, np.ndarray):
        return plain(answer.tolist())
    if isinstance(answer, list | tuple):
        return [plain(one) for one in answer]
    if isinstance(answer, float):
        return float(f"{answer:.9g}") if math.isfinite(answer) else None
    return answer


def ask(estimator, question):
    """Returns what an estimator answers, by the name of the method."""
    if "penguins" in question:
        arguments, extra, methods = [penguins(question["penguins"])], {}, METHODS + OF_TABLES
    elif "pairs" in question:
        arguments, extra, methods = question["pairs"], {}, METHODS
    else:
        arguments, methods = [np.array(question["array"], dtype=float)], METHODS
        extra = {name: np.array(value) for name, value in question.get("extra", {}).items()}
    return {
        name: plain(getattr(estimator, name)(*arguments, **extra, **SETTINGS.get(name, {})))
        for name in methods
        if hasattr(estimator, name)
    }


def is_released(version):
    """Whether the changelog has a heading of the version."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    return re.search(rf"^## \[{re.escape(version)}\]", changelog, re.MULTILINE) is not None


def main(version=halfseen.__version__):
    """Stores the files, questions and answers of a version; nothing is replaced unless all were made."""
    if is_released(version):
        sys.exit(f"version {version} is released: its files never change.")
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        for stem, estimator, question in shipped():
            model, answers = Path(name) / f"{stem}.half", Path(name) / f"{stem}.json"
            estimator.save(model)
            content = {
                "class": type(estimator).__name__,
                "question": question,
                "answers": ask(estimator, question),
            }
            text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
            answers.write_text(text + "\n", encoding="utf-8")
            print(f"{stem}: {model.stat().st_size:,} and {answers.stat().st_size:,} bytes", flush=True)
        shutil.rmtree(FOLDER / version, ignore_errors=True)
        shutil.copytree(name, FOLDER / version)


if __name__ == "__main__":
    main()
