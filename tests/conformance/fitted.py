"""Estimators that are fitted once in a process and shared by all laws which only ask them something.

A law that fits, or sets a parameter, makes an estimator of its own or takes a copy; a fixture checks this.
"""

import functools
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import safetensors
from conformance.registry import ESTIMATORS
from conformance.tables import ARRAY, CASES_BY_NAME

from halfseen.testing.checks import Subject
from halfseen.testing.predictors import make_target

ROWS_BY_NAME = {row.name: row for row in ESTIMATORS}


def fitted(row, case):
    """The estimator of a row, fitted to a table with the random state 0."""
    return _on_table(row.name, case.name)


def subject(row, case):
    """What laws take: the shared estimator of a row on a table, and a way to make others."""
    table = case.make()
    target = make_target(row.make(), len(table)) if hasattr(row.make(), "predict") else None
    return Subject(functools.partial(_make, row), table, target, lambda: fitted(row, case))


def fitted_to_frame(row):
    """The imputer or predictor of a row, fitted to `frame` and `target` with the random state 3."""
    return _estimator(row.name)


def frame():
    """The numbers of the array in a frame of four columns, a to d."""
    return pd.DataFrame(ARRAY.make(), columns=list("abcd"))


def target():
    """Numbers that have nothing to do with the frame."""
    return np.random.default_rng(3).normal(size=len(ARRAY.make()))


def changed_estimators(folder):
    """The names of shared estimators that no longer are what they were when they were fitted."""
    return [name for name, (estimator, content) in _SHARED.items() if _content(estimator, folder) != content]


_SHARED = {}  # by name: the estimator, and the content of its model file when it was fitted


def _make(row, **parameters):
    return row.make(**{"random_state": 0} | parameters)


@functools.cache
def _on_table(row, case):
    one = subject(ROWS_BY_NAME[row], CASES_BY_NAME[case])
    return _shared(f"{row} on {case}", one.fit(one.make()))


@functools.cache
def _estimator(row):
    fitted = ROWS_BY_NAME[row].make(random_state=3).fit(frame(), ROWS_BY_NAME[row].target(target()))
    return _shared(f"{row} on the frame", fitted)


def _shared(name, estimator):
    with tempfile.TemporaryDirectory() as folder:
        _SHARED[name] = estimator, _content(estimator, folder)
    return estimator


def _content(estimator, folder):
    """The manifest of a model file, with the checksum of its weights."""
    path = Path(folder) / "model"
    estimator.save(path)
    with safetensors.safe_open(path, "pt") as file:
        return file.metadata()
