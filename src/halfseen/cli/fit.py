"""The steps of ``halfseen fit``: read, choose a predictor, fit it, save it."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import halfseen
from halfseen.cli.compare_target import compare_on, describe_comparison
from halfseen.cli.options import Predictor
from halfseen.cli.predictors import BASELINE, SAVED, build_predictor, unit_of_progress
from halfseen.cli.progress import Reporter
from halfseen.cli.reading import describe_reading
from halfseen.cli.sources import expand, read_all
from halfseen.data.target import Target, read_target
from halfseen.evaluation.averaging import AVERAGE, choose_method
from halfseen.evaluation.prediction_result import PredictionComparison
from halfseen.evaluation.prediction_words import say_average, say_best, say_expected, say_repeats
from halfseen.evaluation.repetitions import MAX_REPEATS
from halfseen.files.atomic import check_apart, check_report, check_writable, write_page
from halfseen.files.tables import TableError, TableFile, read_table
from halfseen.report.shown_cells import take_rows
from halfseen.words import plural

MAX_ROWS = 5_000
"""Longer tables are subsampled to choose a predictor; it is then fitted to all rows."""

AVERAGED = (Predictor.auto.value, Predictor.average.value)
"""The methods for which the average of all others is compared with them."""

_SHOWN_CLASSES = 6


@dataclass(frozen=True)
class FitRequest:
    """What a user asked for; see ``halfseen fit --help``."""

    source: str
    target: str
    model: str
    method: str = Predictor.auto.value
    task: str = "auto"
    budget: float = 120.0
    report: str | None = None
    seed: int = 0
    schema: str | None = None
    command: str = ""
    reading: dict[str, Any] = field(default_factory=dict)


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
    check_writable(request.model)
    check_report(request.report)
    check_apart(
        {"IN": request.source, "--schema": request.schema},
        {"--save-model": request.model, "--report": request.report},
    )
    with reporter.noting_warnings():
        training = read_training(
            request.source, request.target, request.task, reporter, request.schema, **request.reading
        )
        method, comparison = _choose(request, training, reporter)
        model = _fit(request, training, method, comparison, reporter)
        model.reading_ = describe_reading(training.file) | {"target": request.target}
        model.save(request.model)
        reporter.show("model", f"{request.model}: {type(model).__name__}")
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
    file = read_all(expand(source), partial(read_table, overrides=overrides, **reading))
    reporter.show("read", f"{file.source}: {file.table.num_rows:,} rows, {file.table.num_columns:,} columns")
    for note in file.notes:
        reporter.note(note)
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
    comparison = compare_on(
        training.inputs, training.target, names, reporter,
        settings=training.settings, budget=request.budget, max_rows=MAX_ROWS, seed=request.seed,
        max_repeats=MAX_REPEATS,
    )  # fmt: skip
    if request.method != Predictor.auto:
        return request.method, comparison
    chosen = choose_method(comparison)
    if chosen is None:
        raise TableError(
            f"no predictor finished within {request.budget:g} s; give more by --budget, or name one by "
            "--method"
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
        reporter.note(f"the circuit also learns from the inputs of {n_unknown} without a target")
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
    from halfseen.report.prediction import render_prediction

    assert request.report is not None
    summary = describe_comparison(
        comparison, training.inputs, training.target,
        reporter.run_info(training.file.source, request.command),
    )  # fmt: skip
    write_page(request.report, render_prediction(summary))
    reporter.show("report", request.report)
