"""Model files of every estimator, and their answers: stored at a release, loaded by all later versions.

Run ``PYTHONPATH=tests:docs python tests/model_files/stored.py 0.1.0`` once, when a version is released; it
refuses to replace what is stored. `tests/model_files/test_stored.py` loads the files of all versions.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
from conformance.families import DATA
from conformance.registry import ESTIMATORS, OTHERS, PREDICTORS, SKELETONS, TRANSFORMERS
from conformance.tables import PENGUINS

from halfseen.testing.tables import ARRAY, cells

FOLDER = Path(__file__).parent
N_FITTED, N_ASKED = 120, 8  # rows of a table; few, so that the files stay small


def rows():
    """Yields the shipped estimators: name, a function that makes it, how to fit it, how to ask it."""
    for row in (*ESTIMATORS, *TRANSFORMERS):
        if row.name.startswith("skeleton"):
            continue
        table = ARRAY.make()[:N_FITTED] if row in TRANSFORMERS else PENGUINS.make().head(N_FITTED)
        numbers = np.random.default_rng(0).normal(size=N_FITTED)
        target = (row.target(numbers),) if row in PREDICTORS else ()
        settings = {} if row in TRANSFORMERS else {"random_state": 0}
        yield row.name, (lambda row=row, settings=settings: row.make(**settings)), (table, *target)
    for row in OTHERS:
        if not isinstance(row.make(), SKELETONS):
            yield row.name, (lambda row=row: row.make(random_state=0)), (DATA[row.family](),)


def fit(estimator, data):
    """Fits an estimator to a table and a target, or to other data, which know how."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit(*data) if hasattr(data[0], "shape") else data[0].fit(estimator)


def ask(estimator, data):
    """Returns what an estimator says of a few rows, as lists of plain values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not hasattr(data[0], "shape"):
            answers = data[0].take(np.arange(N_ASKED)).ask(estimator)
            return {name: np.asarray(answer).tolist() for name, answer in answers.items()}
        table = data[0][:N_ASKED]
        names = ("predict", "predict_proba", "predict_interval", "score_samples")
        answers = {name: getattr(estimator, name)(table) for name in names if hasattr(estimator, name)}
        found = {name: np.asarray(answer).tolist() for name, answer in answers.items()}
        if hasattr(estimator, "transform"):
            found["transform"] = cells(estimator.transform(table))
        if hasattr(estimator, "sample"):
            found["sample"] = [cells(one) for one in estimator.sample(table, n_draws=2)]
            found["interval"] = [cells(one) for one in estimator.interval(table)]
        return found


def main(version):
    """Stores the files and answers of a version."""
    folder = FOLDER / version
    folder.mkdir()  # fails if the version is stored: its files never change
    for name, make, data in rows():
        estimator = fit(make(), data)
        estimator.save(folder / f"{name}.half")
        content = json.dumps({"class": type(estimator).__name__, "answers": ask(estimator, data)})
        (folder / f"{name}.json").write_text(content + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
