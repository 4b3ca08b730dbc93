"""The steps of ``halfseen fit`` and ``halfseen predict``.

To fit: read, choose a predictor, fit it, save it. To predict: load, read new rows, predict, write.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import halfseen
from halfseen.base.table import fit_with_summaries
from halfseen.cli.applying import NewRows, check_model, naming, read_new_rows
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
from halfseen.cli.ratings import predict_pairs
from halfseen.cli.reading import ColumnFormats, describe_reading, kept_reading, training_rules
from halfseen.cli.requests import FitRequest, PredictRequest
from halfseen.cli.sources import expand, plan_outputs, read_all
from halfseen.data.summaries import ColumnSummary
from halfseen.distributed.work import PREDICTION, free_name, predicted_columns
from halfseen.errors import TableError
from halfseen.evaluation.prediction import Target, read_target
from halfseen.evaluation.prediction_result import (
    AVERAGE,
    PredictionComparison,
    say_average,
    say_best,
    say_expected,
    say_repeats,
)
from halfseen.evaluation.repetitions import MAX_REPEATS, choose_method
from halfseen.files.distinct import kind_of
from halfseen.files.formats import NUMBERS, Style, decimal_of, format_cells, style_of, with_decimal
from halfseen.files.tables import EXTENSIONS, TableFile, find_format, read_table
from halfseen.files.writing import (
    check_cells,
    check_output,
    check_overwriting,
    check_report,
    check_writable,
    write_page,
    write_tables,
)
from halfseen.ratings.recommender import Recommender
from halfseen.report import svg
from halfseen.report.result import take_rows
from halfseen.training.progress import time_limit
from halfseen.words import Note, plural, shape_words

if TYPE_CHECKING:
    from halfseen.cli.units import SampledTable

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
    [5, 2, 1]
    """
    return max(1, min(MAX_REPEATS, REPEATED_ROWS // max(1, n_rows)))


REPEATED_ROWS = 1_000
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
    """Fit a predictor to a table file and save it."""
    assert request.target is not None
    check_writable(request.save_model)
    check_report(request.report)
    check_overwriting(
        {
            "IN": request.source if request.sampling.given() else expand(request.source),
            "--schema": request.schema,
        },
        {"--save-model": request.save_model, "--report": request.report},
        overwrite=request.overwrite,
    )
    with reporter.noting_warnings():
        sampled = None
        if request.sampling.given():
            from halfseen.cli.units import SampledTable

            sampled = SampledTable(request, reporter)
            training = as_training(sampled.file, request.target, request.task, reporter, sampled.summaries)
        else:
            training = read_training(
                request.source, request.target, request.task, reporter, request.schema,
                **request.reading.to_arguments(),
            )  # fmt: skip
        method, comparison = _choose(request, training, reporter)
        model = _fit(request, training, method, comparison, reporter, sampled)
        model.reading_ = describe_reading(training.file) | {"target": request.target}
        model.save(request.save_model)
        reporter.show("model", f"{request.save_model}: {type(model).__name__}")
        if request.report is not None and comparison is not None:
            _report(request, training, method, comparison, reporter)
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
    reporter.show("read", f"{file.source}: {shape_words(*file.table.shape)}")
    for note in file.notes:
        reporter.note(note)
    return as_training(file, name, task, reporter)


def as_training(
    file: TableFile,
    name: str,
    task: str,
    reporter: Reporter,
    summaries: Sequence[ColumnSummary] | None = None,
) -> TrainingTable:
    """Return the rows of a table whose target is known; report what is predicted, and the other rows.

    Parameters
    ----------
    file, name, task, reporter : object
        As of `read_training`.
    summaries : sequence of ColumnSummary, optional
        If these are some of the rows of a table, the summaries of the columns of all.
    """
    target = read_target(file.table, name, task, summaries)
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
            max_repeats=planned_repeats(n_compared), staged=True,
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
    sampled: "SampledTable | None",
) -> Any:
    """Fit a predictor; circuits alone also learn from the inputs of rows without a target."""
    task = training.target.task
    inputs, values = training.inputs, training.target.values
    every, target = training.everything
    with_unknown = method == Predictor.circuit and not target.known.all()
    if with_unknown:
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
        model = build_predictor(method, task, **settings)
        if sampled is None:
            return model.fit(inputs, values)
        summaries = sampled.summaries_of_inputs(every_row=with_unknown)
        fit_with_summaries(model, summaries, inputs, values)
    n_used = inputs.num_rows
    n_kinds = summaries[0].n_rows if summaries else n_used
    n_rows = sampled.table.n_rows
    model.rows_used_ = {"kinds": n_kinds, "sample": n_used, "parameters": n_used, "table": n_rows}
    return model


def _report(
    request: FitRequest,
    training: TrainingTable,
    method: str,
    comparison: PredictionComparison,
    reporter: Reporter,
) -> None:
    from halfseen.report.compare import render_prediction

    assert request.report is not None
    summary = describe_comparison(
        comparison, training.inputs, training.target, reporter.run_info(training.file.source)
    )
    rows = plural(training.inputs.num_rows, "row")
    saved = f"The method {method} was fitted to {rows} with a known target, and saved as "
    saved += f"{Path(request.save_model).name}."
    summary |= {
        "sentences": [saved, *summary["sentences"]],
        "n_short": summary["n_short"] + 1,
        "fitted": True,
    }
    write_page(request.report, render_prediction(summary))
    reporter.show("report", request.report)


NEXT, GAIN = "next_measurement", "next_measurement_gain"
"""The missing column that is most informative about the class, and its information gain in nats."""


def predict(request: PredictRequest, reporter: Reporter) -> None:
    """Predict the target of the rows of a table file by a saved model."""
    planned = plan_outputs(request.source, request.output, "predicted", request.output_format)
    sources = [source for source, _ in planned]
    requests = [replace(request, source=source, output=output) for source, output in planned]
    if request.report is not None and len(requests) > 1:
        raise TableError(f"--report describes one table, and {request.source} names {len(requests)} files")
    check_report(request.report)
    for one in requests:
        check_output(one.output, one.output_format)
        check_overwriting(
            {"IN": sources, "MODEL": one.model},
            {"--output": one.output, "--report": one.report},
            overwrite=request.overwrite,
        )
    if Path(request.model).name.lower().removesuffix(".gz").endswith(tuple(EXTENSIONS)):
        raise TableError(
            f"{request.model} is a table: the model comes first, as in halfseen predict MODEL IN"
        )
    model = halfseen.load(request.model)
    reporter.show("model", f"{request.model}: {type(model).__name__}")
    with reporter.noting_warnings():
        if not isinstance(model, Recommender):
            instead = "not a predictor; `halfseen impute --model` applies imputers"
            check_model(model, request.model, "predict", instead)
        elif request.report is not None:
            raise TableError("--report describes predictions of a table; the model predicts ratings")
        if request.next_measurement and not model.capabilities.information_gain:
            raise TableError(
                "--next-measurement needs a circuit classifier, as fitted by "
                f"`halfseen fit --method circuit`; {request.model} contains {type(model).__name__}"
            )
        for one in requests:
            if isinstance(model, Recommender):
                predict_ratings(one, model, reporter)
            else:
                predict_file(one, model, reporter)
    reporter.done()


def predict_ratings(request: PredictRequest, model: Recommender, reporter: Reporter) -> None:
    """Predict the ratings of pairs of users and items in a file and write it with a new column."""
    read = read_table(request.source, **request.reading.to_arguments())
    reporter.show("read", f"{read.source}: {read.table.num_rows:,} pairs")
    check_cells(read.table, request.output, request.output_format)
    columns = {PREDICTION: predict_pairs(model, read, reporter)}
    file = _with_columns(read, columns, _styles(request, read, columns, None))
    _write(request, file, 1, reporter)


def predict_file(request: PredictRequest, model: Any, reporter: Reporter) -> None:
    """Predict the rows of one file, write it with new columns, and make a report if one is asked for."""
    target = kept_reading(model).get("target")
    rows = read_new_rows(request.source, model, reporter, target=target, **request.reading.to_arguments())
    check_cells(rows.file.table, request.output, request.output_format)
    with naming(rows.file.source), reporter.progress("predicting", plural(rows.inputs.num_rows, "row")):
        columns = predicted_columns(model, rows.inputs, request.level)
        if request.next_measurement:
            columns |= next_measurements(model, rows.inputs)
    styles = _styles(request, rows.file, columns, _target_style(rows, model, target))
    file = _with_columns(_without_dropped(rows), columns, styles)
    _write(request, file, len(columns), reporter)
    score = ""
    if target is not None and target in rows.names:
        score = _score(model, rows, rows.names[target])
        if score:
            reporter.show("score", score)
    if request.report is not None:
        page = _make_page(request, model, rows, columns, score, reporter)
        write_page(request.report, page)
        reporter.show("report", request.report)


def _make_page(
    request: PredictRequest,
    model: Any,
    rows: NewRows,
    columns: Mapping[str, pa.Array],
    score: str,
    reporter: Reporter,
) -> str:
    """Return the report; its packages are imported here, because they are optional."""
    from halfseen.report.predictions import render_predictions, summarize_predictions

    predicted, *more = columns.values()
    classes = model.classes_.tolist() if model.capabilities.predicts == "classes" else []
    others = [cells.to_numpy(zero_copy_only=False) for cells in more[: len(classes) or 2]]
    missing = [pc.is_null(cells, nan_is_null=True).to_numpy() for cells in rows.inputs.columns]
    summary = summarize_predictions(
        predicted.to_pylist(),
        np.stack(missing, axis=1),
        drift=rows.drift.to_dict(),
        classes=classes,
        probabilities=np.stack(others, axis=1) if classes else None,
        ends=(others[0], others[1]) if others and not classes else None,
        level=request.level,
        dropped=rows.dropped,
        score=f"{score}." if score else "",
        target=kept_reading(model).get("target") or "",
        model=type(model).__name__,
        imputing=imputing_parts(model),
        run=reporter.run_info(rows.file.source),
    )
    return render_predictions(summary)


def imputing_parts(model: Any) -> dict[str, float]:
    """Return the parts of a predictor that impute missing inputs before they predict, and their weights.

    The only part of a predictor that is not an average is the predictor itself, with weight 1.
    """
    parts, weights = {type(model).__name__: model}, {type(model).__name__: 1.0}
    if isinstance(model, halfseen.AveragingRegressor | halfseen.AveragingClassifier):
        parts, weights = dict(zip(model.weights_, model.members_, strict=True)), model.weights_
    imputing = (halfseen.ImputeThenRegressor, halfseen.ImputeThenClassifier)
    return {name: weights[name] for name, part in parts.items() if isinstance(part, imputing)}


def next_measurements(model: Any, inputs: pa.Table) -> dict[str, pa.Array]:
    """Return the column to measure next in each row and its information gain; null where none is missing.

    Parameters
    ----------
    model : fitted classifier
        It has an `information_gain`.
    inputs : pyarrow.Table
        The columns of the model, in its order.
    """
    gain = model.information_gain(inputs)
    is_input = [column.modelled for column in model.schema_]
    missing = np.column_stack([column.is_null().to_numpy() for column in inputs.columns]) & is_input
    gain = np.where(missing, gain, -np.inf)
    best = gain.argmax(axis=1)
    nothing = ~missing.any(axis=1)
    names = np.array(inputs.column_names, dtype=object)[best]
    return {
        NEXT: pa.array(names, pa.large_string(), mask=nothing),
        GAIN: pa.array(gain.max(axis=1), mask=nothing),
    }


def _write(request: PredictRequest, file: TableFile, n_new: int, reporter: Reporter) -> None:
    """Write a table and report its new columns, which are the last ones."""
    write_tables([file.table], request.output, file, format=request.output_format)
    where = "standard output" if request.output == "-" else request.output
    names = file.table.column_names[-n_new:]
    reporter.show("wrote", f"{where} (new column{'s' * (n_new > 1)} {', '.join(names)})")


def _score(model: Any, rows: NewRows, target: str) -> str:
    """Return the score of the predictions in rows whose target is known, in words; empty without any."""
    known = rows.file.table[target].is_valid().to_numpy()
    n_known = int(known.sum())
    if n_known < 2:
        return ""
    truth = np.array(rows.file.table[target].filter(pa.array(known)).to_pylist())
    inputs = rows.inputs.filter(pa.array(known))
    if model.capabilities.predicts == "classes":
        share = float((model.predict(inputs).astype(str) == truth.astype(str)).mean())
        return f"{target!r} is known in {plural(n_known, 'row')}: accuracy {share:.1%}"
    if truth.dtype.kind in "if" and np.ptp(truth) > 0:
        errors = model.predict(inputs) - truth
        r2 = 1 - float((errors**2).mean() / truth.var())
        return (
            f"{target!r} is known in {plural(n_known, 'row')}: R\N{SUPERSCRIPT TWO} {r2:.3f}, mean absolute "
            f"error {svg.number(np.abs(errors).mean(), 4)}{', worse than their mean' if r2 < 0 else ''}"
        )
    return ""


def _without_dropped(rows: NewRows) -> TableFile:
    """Return the file with the columns that it had."""
    file, dropped = rows.file, list(rows.dropped)
    text = None if file.text is None else file.text.without(dropped)
    return replace(file, table=file.table.drop_columns(dropped), text=text)


def _target_style(rows: NewRows, model: Any, target: str | None) -> Style | None:
    """Return how the target is written: in the new file if it has values there, else in the training file."""
    if target is None:
        return None
    if target in rows.names and rows.file.table[rows.names[target]].null_count < rows.file.table.num_rows:
        return rows.file.styles.get(rows.names[target])
    return ColumnFormats(rows.file, training_rules(model), model).learned_style(target)


def _styles(
    request: PredictRequest, file: TableFile, columns: Mapping[str, pa.Array], target: Style | None
) -> dict[str, Style]:
    """Return how new columns are written: predictions like the target, with its unit, and others plainly.

    Numbers have six significant digits, unless the target is written with a unit or separated thousands.
    The decimal mark is that of the file, else that of the target.
    """
    is_csv = find_format(request.output, request.output_format, "--to") == "csv"
    decimal = (file.decimal_mark or (target and decimal_of(target)) or ".") if is_csv else "."
    styles = {}
    for name, cells in columns.items():
        style = with_decimal(style_of(kind_of(cells.type), pa.array([], pa.large_string())), decimal)
        if target is not None and is_csv and name.startswith(PREDICTION):
            style = _like_target(style, target)
        styles[name] = style
    return styles


def _like_target(style: Style, target: Style) -> Style:
    if style.kind == target.kind == "boolean":
        return target
    if style.kind not in NUMBERS or target.kind not in NUMBERS or target.number is None:
        return style
    form = target.number
    if not (form.group or form.before or form.after):
        return style
    decimals = target.decimals if target.kind == "float" else None
    return replace(style, number=form, decimals=decimals, exponent=target.exponent)


def _with_columns(file: TableFile, columns: Mapping[str, pa.Array], new: Mapping[str, Style]) -> TableFile:
    """Return a file with further columns in given styles; names that are taken get a number."""
    table, text, styles = file.table, file.text, dict(file.styles)
    for name, cells in columns.items():
        free = free_name(name, table.column_names)
        table = table.append_column(free, cells)
        if text is not None:
            styles[free] = new[name]
            text = text.with_columns({free: format_cells(cells, new[name])})
    return replace(file, table=table, text=text, styles=styles)
