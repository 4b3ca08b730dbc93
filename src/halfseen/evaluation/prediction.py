"""Cross-validation of predictors on an incomplete table, also with more values missing than in training.

The target column is predicted as classes or as numbers.
"""

import math
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.model_selection import KFold, StratifiedKFold
from threadpoolctl import threadpool_limits

from halfseen._arrays import Booleans, Floats, Integers
from halfseen._machine import in_thread
from halfseen._random import seed_from
from halfseen.data._cells import plain
from halfseen.data.columns import LEVELLED
from halfseen.data.frames import RawColumn
from halfseen.data.schema import Column, infer_columns, open_table
from halfseen.data.summaries import ColumnSummary
from halfseen.errors import SchemaError
from halfseen.evaluation.candidates import CodedTable
from halfseen.words import absent_words

Task = Literal["classification", "regression"]
TASKS = ("auto", "classification", "regression")

MAX_CLASSES = 100
FEW_VALUES = 10  # whole numbers with so few distinct values may be meant as classes


@dataclass(frozen=True)
class Target:
    """The target column of a table."""

    name: str  # its name
    task: Task  # what is to be predicted
    values: npt.NDArray[Any]  # classes or numbers; without meaning where they are not known
    known: Booleans  # where the target is known
    reason: str  # the reason for the task

    @property
    def classes(self) -> list[Any]:
        """The classes, sorted; empty for numbers."""
        return [] if self.task == "regression" else np.unique(self.values[self.known]).tolist()


def read_target(
    X: Any, name: str, task: str = "auto", summaries: Sequence[ColumnSummary] | None = None
) -> Target:
    """Reads a column as the target of a prediction.

    Parameters
    ----------
    X : pandas, polars or pyarrow table
        The table.
    name : str
        The column.
    task : {"auto", "classification", "regression"}
        What is to be predicted; "auto" decides by the kind of the column.
    summaries : sequence of ColumnSummary, optional
        If the rows are some of a larger table, the summaries of all columns of that one.

    Raises
    ------
    SchemaError
        If there is no such column, or if it can be neither classes nor numbers.

    Examples
    --------
    >>> import pandas as pd
    >>> target = read_target(pd.DataFrame({"y": ["no", "yes", None, "no"], "x": [1, 2, 3, 4]}), "y")
    >>> target.task, target.classes, target.reason
    ('classification', ['no', 'yes'], 'two distinct values')
    """
    if task not in TASKS:
        raise SchemaError(f"task must be one of {', '.join(TASKS)}, got {task!r}.")
    table = open_table(X)
    if name not in table.names:
        raise SchemaError(f"The table has no column {name!r} to predict; {absent_words(table.names, name)}")
    place = table.names.index(name)
    ((raw, column),) = infer_columns(table, None, [place], summaries)
    known = ~np.isnan(raw.values)
    distinct = np.unique(raw.values[known])
    if len(distinct) < 2:
        what = "is empty" if len(distinct) == 0 else "has the same value in every row"
        raise SchemaError(f"Column {name!r} {what}: there is nothing to predict.")
    of_all = ColumnSummary.of(raw, len(table.names)) if summaries is None else summaries[place]
    n_distinct = len(distinct) if summaries is None else of_all.n_distinct
    chosen, reason = _choose_task(of_all, column, n_distinct, task)
    if chosen == "regression":
        return Target(name, chosen, np.where(known, raw.values, np.nan), known, reason)
    return Target(name, chosen, _labels(raw, known), known, reason)


def _choose_task(of_all: ColumnSummary, column: Column, n_distinct: int, task: str) -> tuple[Task, str]:
    raw = of_all.column
    if raw.storage not in ("number", "boolean", "label"):
        raise SchemaError(
            f"Column {raw.name!r} is of kind {column.kind}: it can be predicted neither as classes nor as "
            "numbers. Convert it to numbers first."
        )
    if task == "regression":
        if raw.storage == "label":
            raise SchemaError(f"Column {raw.name!r} contains text: it cannot be predicted as numbers.")
        return "regression", "set by the user"
    levelled = column.kind in LEVELLED
    if raw.storage == "number" and not levelled and task == "auto":
        if n_distinct <= FEW_VALUES and of_all.is_whole:
            return "regression", f"numbers; for the {n_distinct} distinct values as classes, set the task"
        return "regression", "numbers"
    if n_distinct > MAX_CLASSES or (task == "auto" and not levelled):
        raise SchemaError(
            f"Column {raw.name!r} has {n_distinct} distinct values, which are too many for classes. Predict "
            "another column, or merge rare values first."
        )
    why = "two distinct values" if n_distinct == 2 else f"{n_distinct} levels"
    return "classification", why if task == "auto" else "set by the user"


def _labels(raw: RawColumn, known: Booleans) -> npt.NDArray[Any]:
    """Returns the classes of all rows as text, integers, numbers or booleans."""
    if raw.storage == "label":
        labels = np.array([str(plain(label)) for label in raw.labels])
        return labels[np.where(known, raw.values, 0).astype(np.int64)]
    values = np.where(known, raw.values, raw.values[known][0])
    if raw.storage == "boolean":
        return values.astype(bool)
    return values.astype(np.int64) if np.equal(values, np.round(values)).all() else values


INTERVAL = 0.01  # seconds between two looks


@dataclass
class Peak:
    """The growth of the memory of the process at its peak, in bytes; NaN if the system does not report it."""

    bytes: float = float("nan")


@contextmanager
def peak_memory() -> Iterator[Peak]:
    """Measures by how much the resident memory of the process grows, measured every hundredth of a second.

    Memory that was freed before and is used again does not count, so that a second run may appear smaller.

    Examples
    --------
    >>> with peak_memory() as peak:
    ...     values = b"x" * 400_000_000
    >>> bool(peak.bytes > 10_000_000 or peak.bytes != peak.bytes)
    True
    """
    peak, before = Peak(), resident_bytes()
    if before is None:
        yield peak
        return
    highest = [before]

    def look(ended: threading.Event) -> None:
        while not ended.wait(INTERVAL):
            highest.append(max(highest.pop(), resident_bytes() or 0))

    try:
        with in_thread(look, "halfseen memory"):
            yield peak
    finally:
        peak.bytes = float(max(highest[0], resident_bytes() or 0) - before)


def resident_bytes() -> int | None:
    """Returns the resident memory of the process; None where the system does not report it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


Rows = Integers

MAX_MESSAGE = 300
SMALLEST_PROBABILITY = 1e-6  # in log-losses: no single row decides


class OutOfBudgetError(RuntimeError):
    """Raised inside a training that is still going on when the time is over."""


@dataclass(frozen=True)
class PredictionRecord:
    """The result of one method in one fold."""

    method: str  # the name of the method
    fold: int  # the number of the fold, from 0
    status: str  # "ok", "failed", "out of budget": what happened
    error: str = ""  # type and message of what was raised, if it failed
    # The time to fit to the training rows, and to predict the test rows once.
    fit_seconds: float = math.nan
    predict_seconds: float = math.nan
    memory: float = math.nan  # the growth of memory while fitting and predicting, in bytes; see `peak_memory`
    # For each rate of additional missingness, the scores on the test rows.
    scores: tuple[dict[str, float], ...] = ()


@dataclass(frozen=True)
class Fold:
    """The rows of one fold, and the inputs of its test rows with more and more values missing."""

    number: int
    train: Rows
    test: Rows
    shown: tuple[Floats, ...]


@dataclass(frozen=True)
class Repetition:
    """One cross-validation: every method on every fold.

    Attributes
    ----------
    folds : tuple of Fold
        The folds; each row is a test row of one of them.
    records : tuple of PredictionRecord
        One per fold and method.
    predictions : dict
        By method and number of the fold, for each rate the predicted numbers (N) of the test rows, or the
        probabilities (N, K) of their classes; without those of runs that did not finish.
    """

    folds: tuple[Fold, ...]
    records: tuple[PredictionRecord, ...]
    predictions: dict[tuple[str, int], tuple[Floats, ...]]


def run_folds(
    table: CodedTable,
    target: Target,
    methods: Mapping[str, Any],
    *,
    n_splits: int = 5,
    rates: Sequence[float] = (0.0,),
    budget: float = math.inf,
    random_state: Any = 0,
    first: int = 0,
    part: slice = slice(None),
    callback: Callable[[PredictionRecord], None] | None = None,
) -> Repetition:
    """Fits every method to the training rows of every fold and scores it on the test rows.

    Whatever a method tunes, it tunes on the training rows of the fold; test rows only score it. The folds and
    the values that are removed from test rows are the same for all methods.

    Parameters
    ----------
    table : CodedTable
        The inputs. Methods are fitted to arrays of codes; those with a parameter ``schema`` receive what the
        columns are.
    target : Target
        The target, known in every row.
    methods : mapping of str to estimator
        Regressors or classifiers; the first ones are run first in every fold.
    n_splits : int
        The number of folds, stratified for classes.
    rates : sequence of float
        Shares of the known values of test rows that are removed at random before predicting; 0 first.
    budget : float
        Seconds for all runs. If, by earlier folds, not all methods can finish the rest, the worst ones are
        left out, so that the others finish. A run does not start if it would take longer than what is left;
        a training that reports its progress is stopped at the end.
    random_state : int, numpy generator or None
        Seeds folds, methods and what is removed.
    first : int
        The number of the first fold.
    part : slice
        Which of the folds to run; all by default.
    callback : callable, optional
        Called with every record.
    """
    seed = seed_from(random_state)
    deadline = time.perf_counter() + budget
    folds = tuple(_folds(table, target, n_splits, rates, seed, first))[part]
    times: dict[str, list[float]] = {name: [0.0] for name in methods}
    affordable = set(methods)
    records: list[PredictionRecord] = []
    predictions = {}
    for done, fold in enumerate(folds):
        losses = _mean_losses(records, target)
        left = deadline - time.perf_counter()
        expected = {name: sum(times[name]) / max(1, done) for name in methods if name in affordable}
        affordable = _affordable(expected, losses, left, len(folds) - done)
        for name, method in methods.items():
            started = time.perf_counter()
            if started + max(times[name]) > deadline or name not in affordable:
                record = PredictionRecord(name, fold.number, "out of budget")
            else:
                fresh = prepared(method, table, seed + fold.number - first, deadline)
                record, predicted = _run(name, fresh, table, target, fold)
                if predicted:
                    predictions[name, fold.number] = predicted
            times[name].append(time.perf_counter() - started)
            records.append(record)
            if callback is not None:
                callback(record)
    return Repetition(folds, tuple(records), predictions)


def _affordable(
    seconds: Mapping[str, float], losses: Mapping[str, float], left: float, n_folds: int
) -> set[str]:
    """Returns the methods that can finish all remaining folds together, preferring those with low losses.

    Examples
    --------
    >>> seconds, losses = {"a": 1.0, "b": 9.0, "c": 2.0}, {"a": 0.7, "b": 0.5, "c": 0.4}
    >>> sorted(_affordable(seconds, losses, left=20.0, n_folds=4))
    ['a', 'c']
    """
    found: set[str] = set()
    for name in sorted(seconds, key=lambda name: losses.get(name, math.inf)):
        if n_folds * (seconds[name] + sum(seconds[one] for one in found)) <= left:
            found.add(name)
    return found


def _mean_losses(records: Sequence[PredictionRecord], target: Target) -> dict[str, float]:
    """Returns the mean RMSE or log-loss by method, of those that finished a fold."""
    score = "rmse" if target.task == "regression" else "log_loss"
    found: dict[str, list[float]] = {}
    for record in records:
        if record.status == "ok":
            found.setdefault(record.method, []).append(record.scores[0][score])
    return {name: float(np.mean(values)) for name, values in found.items()}


def prepared(method: Any, table: CodedTable, seed: int, deadline: float = math.inf) -> Any:
    """Returns a copy of a method that is seeded, knows the columns, and stops when the time is over."""
    fresh = clone(method)
    names = fresh.get_params()
    settings: dict[str, Any] = {}
    for name in names:
        last = name.rpartition("__")[2]
        if last == "random_state":
            settings[name] = seed % 2**31
        elif name == "schema":
            settings[name] = table.array_schema()
        elif last == "callback" and math.isfinite(deadline):
            settings[name] = _Deadline(deadline)
    return fresh.set_params(**settings)


@dataclass(frozen=True)
class _Deadline:
    """A callback of a training that ends it when the time is over."""

    moment: float

    def __call__(self, progress: Any) -> None:
        if time.perf_counter() > self.moment:
            raise OutOfBudgetError


def _folds(
    table: CodedTable, target: Target, n_splits: int, rates: Sequence[float], seed: int, first: int
) -> Iterator[Fold]:
    classes = target.task == "classification"
    smallest = int(np.unique(target.values, return_counts=True)[1].min()) if classes else len(table.codes)
    if len(table.codes) < 2 * n_splits:
        raise SchemaError(
            f"{len(table.codes)} rows are too few for {n_splits} folds, by which methods are compared: "
            f"at least {2 * n_splits} are needed."
        )
    kind = StratifiedKFold if classes and smallest >= n_splits else KFold
    splitter = kind(n_splits, shuffle=True, random_state=seed % 2**31)
    for number, (train, test) in enumerate(splitter.split(table.codes, target.values)):
        generator = np.random.default_rng([seed % 2**63, number])
        chance = generator.random((len(test), table.codes.shape[1]))  # nested: what is removed stays removed
        shown = tuple(np.where(chance < rate, np.nan, table.codes[test]) for rate in rates)
        yield Fold(first + number, train, test, shown)


def _run(
    name: str, method: Any, table: CodedTable, target: Target, fold: Fold
) -> tuple[PredictionRecord, tuple[Floats, ...]]:
    """Returns the record of a run and, for each rate, what was predicted; nothing if it did not finish."""
    record = PredictionRecord(name, fold.number, "ok")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with threadpool_limits(1), peak_memory() as peak:  # libraries that share cores disturb each other
                started = time.perf_counter()
                method.fit(table.codes[fold.train], target.values[fold.train])
                fitted = time.perf_counter()
                first = predict_codes(method, fold.shown[0], target)
                seconds = fitted - started, time.perf_counter() - fitted
            predicted = (first, *(predict_codes(method, one, target) for one in fold.shown[1:]))
        except OutOfBudgetError:
            return replace(record, status="out of budget"), ()
        except Exception as error:  # a method may fail in any way, and each is a result
            text = " ".join(f"{type(error).__name__}: {error}".split())
            return replace(record, status="failed", error=text[:MAX_MESSAGE]), ()
    scores = tuple(score_predictions(one, target, target.values[fold.test]) for one in predicted)
    return replace(
        record, fit_seconds=seconds[0], predict_seconds=seconds[1], memory=peak.bytes, scores=scores
    ), predicted


def score_predictions(predicted: Floats, target: Target, truth: npt.NDArray[Any]) -> dict[str, float]:
    """Returns the scores of predicted numbers (N), or of the probabilities (N, K) of classes."""
    losses = prediction_losses(predicted, target, truth)
    if target.task == "regression":
        return {
            "r2": float(r2_score(truth, predicted)),
            "rmse": math.sqrt(float(losses.mean())),
            "mae": float(np.abs(truth - predicted).mean()),
        }
    chosen = np.array(target.classes)[predicted.argmax(axis=1)]
    scores = {"log_loss": float(losses.mean()), "accuracy": float((chosen == truth).mean())}
    if len(target.classes) == 2 and len(np.unique(truth)) == 2:
        scores["auc"] = float(roc_auc_score(truth == target.classes[1], predicted[:, 1]))
    return scores


def prediction_losses(predicted: Floats, target: Target, truth: npt.NDArray[Any]) -> Floats:
    """Returns the squared error or the log-loss (N) of each row."""
    if target.task == "regression":
        squared: Floats = (truth - predicted) ** 2
        return squared
    losses: Floats = -np.log(true_class_probabilities(predicted, target, truth))
    return losses


def true_class_probabilities(predicted: Floats, target: Target, truth: npt.NDArray[Any]) -> Floats:
    """Returns the probability (N) of the true class of each row, out of those of all classes (N, K)."""
    found: Floats = predicted[np.arange(len(truth)), np.searchsorted(target.classes, truth)]
    return found


def predict_codes(method: Any, codes: Floats, target: Target) -> Floats:
    """Returns predicted numbers (N), or the probabilities (N, K) of all classes."""
    if target.task != "regression":
        return _probabilities(method, codes, target.classes)
    predicted = np.asarray(method.predict(codes), dtype=np.float64)
    if not np.isfinite(predicted).all():
        raise ValueError(f"{(~np.isfinite(predicted)).sum()} predictions are not finite")
    return predicted


def _probabilities(method: Any, codes: Floats, classes: Sequence[Any]) -> Floats:
    """Returns the probabilities (N, K) of all classes, also of those that the training rows lacked."""
    found = np.asarray(method.predict_proba(codes), dtype=np.float64)
    if not np.isfinite(found).all():
        raise ValueError("some probabilities are not finite")
    every = np.zeros((len(found), len(classes)))
    every[:, np.searchsorted(classes, method.classes_)] = found
    every = every.clip(SMALLEST_PROBABILITY)
    normalised: Floats = every / every.sum(axis=1, keepdims=True)
    return normalised
