"""The steps of ``halfseen fit``: read, choose a predictor, fit it, save it."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import halfseen
from halfseen.cli.compare_target import (
    BASELINE,
    SAVED,
    build_predictor,
    compare_on,
    describe_comparison,
    unit_of_progress,
)
from halfseen.cli.options import Predictor
from halfseen.cli.progress import Reporter
from halfseen.cli.reading import describe_reading
from halfseen.cli.requests import FitRequest
from halfseen.cli.sources import expand, read_all
from halfseen.data.target import Target, read_target
from halfseen.evaluation.prediction_result import (
    AVERAGE,
    PredictionComparison,
    say_average,
    say_best,
    say_expected,
    say_repeats,
)
from halfseen.evaluation.repetitions import MAX_REPEATS, choose_method
from halfseen.files.tables import TableError, TableFile, read_table
from halfseen.files.writing import check_apart, check_report, check_writable, write_page
from halfseen.report.result import take_rows
from halfseen.training.time_limit import time_limit
from halfseen.words import Note, plural

AVERAGED = (Predictor.auto.value, Predictor.average.value)
"""The methods for which the average of all others is compared with them."""

_SHOWN_CLASSES = 6

MAX_COMPARED = 2_000
"""Rows on which predictors are compared; a guess, by which a choice takes minutes at most."""

LIMIT_MET = (
    "the time limit was reached while predictors were compared, so that the speed of the computer decided "
    "how much was done: another run may choose another one"
)


def planned_repeats(n_rows: int) -> int:
    """Return how often predictors may be compared again: the choice is noisy where there are few rows.

    Examples
    --------
    >>> [planned_repeats(n_rows) for n_rows in (100, 500, 2_000)]
    [5, 3, 1]
    """
    return max(1, min(MAX_REPEATS, REPEATED_ROWS // max(1, n_rows)))


REPEATED_ROWS = 1_500
"""Rows times repetitions of the comparison; a guess."""


@dataclass(frozen=True)
class TrainingTable:
    """A table of inputs with a target, of the rows whose target is known."""

    file: TableFile
    inputs: pa.Table
    target: Target
    settings: dict[str, Any] | None
    everything: tuple[pa.Table, Target]


def fit(request: FitRequest, reporter: Reporter) -> None:
    """Fit a predictor to a table file and save it.

    Parameters
    ----------
    request : FitRequest
        The table, the target, the method, and where to save.
    reporter : Reporter
        The reporter of progress.
    """
    assert request.target is not None
    check_writable(request.save_model)
    check_report(request.report)
    check_apart(
        {"IN": request.source, "--schema": request.schema},
        {"--save-model": request.save_model, "--report": request.report},
    )
    with reporter.noting_warnings():
        n_rows = None
        if request.sampling.given():
            from halfseen.cli.units import sample_rows

            file, n_rows = sample_rows(request, reporter)
            training = as_training(file, request.target, request.task, reporter)
        else:
            training = read_training(
                request.source, request.target, request.task, reporter, request.schema,
                **request.reading.to_arguments(),
            )  # fmt: skip
        method, comparison = _choose(request, training, reporter)
        model = _fit(request, training, method, comparison, reporter)
        model.reading_ = describe_reading(training.file) | {"target": request.target}
        if n_rows is not None:
            n_used = training.inputs.num_rows
            model.rows_used_ = {"kinds": n_used, "parameters": n_used, "table": n_rows}
        model.save(request.save_model)
        reporter.show("model", f"{request.save_model}: {type(model).__name__}")
        if request.report is not None and comparison is not None:
            _report(request, training, comparison, reporter)
    reporter.done()


def read_training(
    source: str, name: str, task: str, reporter: Reporter, schema: str | None = None, **reading: Any
) -> TrainingTable:
    """Read a table file with a target; leave out rows without it, and report their number.

    Parameters
    ----------
    source, name : str
        The file, and the column to predict.
    task : {"auto", "classification", "regression"}
        What to predict.
    reporter : Reporter
        Reports what was read and decided.
    schema : str, optional
        A schema file.
    **reading : object
        Options of `read_table`.
    """
    overrides = halfseen.Schema.read_overrides(schema) if schema is not None else None
    file = read_all(expand(source), partial(read_table, schema=overrides, **reading))
    reporter.show("read", f"{file.source}: {file.table.num_rows:,} rows, {file.table.num_columns:,} columns")
    for note in file.notes:
        reporter.note(note)
    return as_training(file, name, task, reporter)


def as_training(file: TableFile, name: str, task: str, reporter: Reporter) -> TrainingTable:
    """Return the rows of a table whose target is known; report what is predicted, and the other rows."""
    target = read_target(file.table, name, task)
    reporter.show("target", _target_words(target))
    inputs = file.table.drop_columns([name])
    if inputs.num_columns == 0:
        raise TableError(f"{file.source} has no column besides the target {name!r} to predict from")
    known = np.flatnonzero(target.known)
    n_unknown = len(target.known) - len(known)
    if n_unknown:
        reporter.note(f"{plural(n_unknown, 'row')} without a value of {name!r}: left out")
    settings = {key: value for key, value in file.settings.items() if key != name} or None
    kept = Target(name, target.task, target.values[known], target.known[known], target.reason)
    return TrainingTable(file, take_rows(inputs, known), kept, settings, (inputs, target))


def _target_words(target: Target) -> str:
    if target.task == "regression":
        return f"{target.name}: regression ({target.reason}); --task classification predicts classes instead"
    classes = [str(one) for one in target.classes]
    more = ", ..." if len(classes) > _SHOWN_CLASSES else ""
    shown = ", ".join(classes[:_SHOWN_CLASSES]) + more
    return f"{target.name}: classification ({target.reason}: {shown}); use --task to change this"


def _choose(
    request: FitRequest, training: TrainingTable, reporter: Reporter
) -> tuple[str, PredictionComparison | None]:
    """Return the method: the one that was named, or the best one by cross-validation."""
    compared = SAVED if request.method in AVERAGED else (request.method, BASELINE)
    names = (*compared, AVERAGE) if request.method in AVERAGED else compared
    if request.method != Predictor.auto and request.report is None:
        return request.method, None
    budget = math.inf if request.budget is None else request.budget
    n_compared = min(training.inputs.num_rows, MAX_COMPARED)
    with time_limit(math.inf) as limit:  # which learns whether the time decided about the comparison
        comparison = compare_on(
            training.inputs, training.target, names, reporter,
            settings=training.settings, budget=budget, max_rows=MAX_COMPARED, seed=request.seed,
            max_repeats=planned_repeats(n_compared),
        )  # fmt: skip
    if limit.met:
        reporter.note(Note(LIMIT_MET, "harmful"))
    if request.method != Predictor.auto:
        return request.method, comparison
    chosen = choose_method(comparison)
    if chosen is None:
        raise TableError(
            f"no predictor finished within {budget:g} s; give more by --budget, or name one by --method"
        )
    reporter.show("compared", say_best(comparison))
    if comparison.weights:
        reporter.show("average", say_average(comparison) or "")
    expected = say_expected(comparison)
    if expected is not None:
        reporter.show("expect", f"{expected} {say_repeats(comparison)}")
    reporter.show("chosen", chosen, "bold green")
    return chosen, comparison


def _fit(
    request: FitRequest,
    training: TrainingTable,
    method: str,
    comparison: PredictionComparison | None,
    reporter: Reporter,
) -> Any:
    """Fit a predictor; circuits alone also learn from the inputs of rows without a target."""
    task = training.target.task
    inputs, values = training.inputs, training.target.values
    every, target = training.everything
    if method == Predictor.circuit and not target.known.all():
        inputs, values = every, target.values
        if task == "classification":
            values = target.values.astype(object)
            values[~target.known] = None
        n_unknown = plural(int((~target.known).sum()), "row")
        text = f"the circuit also learns from the inputs of {n_unknown} without a target"
        reporter.note(Note(text, "detail"))
    unit = unit_of_progress(method, task)
    settings: dict[str, Any] = {"schema": training.settings, "random_state": request.seed}
    if method == AVERAGE and comparison is not None and comparison.weights:
        settings |= {"predictors": sorted(comparison.weights), "weights": comparison.weights}
    with reporter.progress("fitting", f"{method}, {inputs.num_rows:,} rows", unit or "step") as move:
        if unit is not None:
            settings["callback"] = move
        return build_predictor(method, task, **settings).fit(inputs, values)


def _report(
    request: FitRequest,
    training: TrainingTable,
    comparison: PredictionComparison,
    reporter: Reporter,
) -> None:
    from halfseen.report.compare import render_prediction

    assert request.report is not None
    summary = describe_comparison(
        comparison, training.inputs, training.target, reporter.run_info(training.file.source)
    )
    write_page(request.report, render_prediction(summary))
    reporter.show("report", request.report)
