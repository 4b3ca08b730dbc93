"""The steps of ``halfseen predict``: load, read new rows, predict, write."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import halfseen
from halfseen.cli.applying import NewRows, check_model, naming, read_new_rows
from halfseen.cli.progress import Reporter
from halfseen.cli.ratings import predict_pairs
from halfseen.cli.reading import ColumnFormats, kept_reading, training_rules
from halfseen.cli.requests import PredictRequest
from halfseen.cli.sources import plan_outputs
from halfseen.distributed.work import PREDICTION, free_name, predicted_columns
from halfseen.errors import TableError
from halfseen.files.distinct import kind_of
from halfseen.files.formats import NUMBERS, Style, decimal_of, format_cells, style_of, with_decimal
from halfseen.files.tables import EXTENSIONS, TableFile, find_format, read_table
from halfseen.files.writing import (
    check_apart,
    check_cells,
    check_output,
    check_report,
    write_page,
    write_tables,
)
from halfseen.ratings.recommender import Recommender
from halfseen.report import svg
from halfseen.words import plural

NEXT, GAIN = "next_measurement", "next_measurement_gain"
"""The missing column that is most informative about the class, and its information gain in nats."""


def predict(request: PredictRequest, reporter: Reporter) -> None:
    """Predict the target of the rows of a table file by a saved model.

    Parameters
    ----------
    request : PredictRequest
        The model, the new rows, and where to write.
    reporter : Reporter
        The reporter of progress.
    """
    planned = plan_outputs(request.source, request.output, "predicted", request.output_format)
    requests = [replace(request, source=source, output=output) for source, output in planned]
    if request.report is not None and len(requests) > 1:
        raise TableError(f"--report describes one table, and {request.source} names {len(requests)} files")
    check_report(request.report)
    for one in requests:
        check_output(one.output, one.output_format)
        check_apart({"IN": one.source, "MODEL": one.model}, {"--output": one.output, "--report": one.report})
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
