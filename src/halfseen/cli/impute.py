"""The steps of ``halfseen impute``: read, fit, fill, write, report."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import pyarrow as pa

import halfseen
from halfseen._freed import give_back_memory
from halfseen.base.catalogue import find_method
from halfseen.cli.applying import load_model, naming, read_new_rows
from halfseen.cli.errors import debugging, explain_error, is_expected
from halfseen.cli.impute_report import Work, make_page
from halfseen.cli.impute_request import ImputeRequest, build_imputer, read_overrides, seconds_for_fit
from halfseen.cli.methods import method_of
from halfseen.cli.progress import Reporter
from halfseen.cli.reading import describe_reading
from halfseen.cli.row_weights import describe_weights, read_weights
from halfseen.cli.sources import plan_outputs, read_all
from halfseen.cli.verdict import act_on, check_filled
from halfseen.files.atomic import (
    check_apart,
    check_in_place,
    check_report,
    check_writable,
    is_same_file,
    write_page,
)
from halfseen.files.tables import TableError, TableFile, check_cells, check_output, read_table, write_tables
from halfseen.training.time_limit import TimeBudget, time_limit

_SHOWN_NAMES = 6


def impute(request: ImputeRequest, reporter: Reporter) -> None:
    """Impute the missing values of a table file.

    Parameters
    ----------
    request : ImputeRequest
        What to read, how to fill it, and where to write.
    reporter : Reporter
        The reporter of progress.
    """
    limited = request.method == "auto" and request.saved is None
    budget = TimeBudget(request.max_seconds) if limited else TimeBudget()
    planned = [(request.source, request.output)]
    if not request.in_place:
        planned = plan_outputs(request.source, request.output, "imputed", request.output_format)
    if len(planned) > 1:
        _impute_several(request, planned, reporter, budget)
        reporter.done()
        return
    request = replace(request, source=planned[0][0], output=planned[0][1])
    _check_targets(request)
    with reporter.noting_warnings():
        work = _fit(request, reporter, budget) if request.saved is None else _load(request, reporter)
        give_back_memory()
        with naming(work.file.source) if work.rows is not None else nullcontext():
            completed = _complete(request, reporter, work.imputer, work.table)
        whole = completed if work.rows is None else [work.rows.completed(one) for one in completed]
        give_back_memory()
        _write(request, reporter, work.file, whole)
        if request.model is not None:
            with _after_the_table("the model", request):
                work.imputer.reading_ = describe_reading(work.file)
                work.imputer.save(request.model)
            reporter.show("model", request.model)
        if request.report is not None:
            give_back_memory()
            with _after_the_table("the report", request):
                page = make_page(request, reporter, work, completed, budget)
                write_page(request.report, page)
            reporter.show("report", request.report)
    reporter.done()


def _impute_several(
    request: ImputeRequest, planned: Sequence[tuple[str, str]], reporter: Reporter, budget: TimeBudget
) -> None:
    """Impute several files by one imputer: a saved one, or one that is fitted to all of them together."""
    if request.report is not None:
        raise TableError(f"--report describes one table, and {request.source} names {len(planned)} files")
    each = [replace(request, source=source, output=output, model=None) for source, output in planned]
    for one in each:
        _check_targets(one)
    if request.model is not None:
        check_writable(request.model)
    with reporter.noting_warnings():
        if request.saved is None:
            imputer = _fit_together(request, [source for source, _ in planned], reporter, budget)
        else:
            imputer = _load_imputer(request, reporter)
        for one in each:
            work = _apply(one, imputer, reporter)
            with naming(work.file.source):
                completed = _complete(one, reporter, imputer, work.table)
            assert work.rows is not None
            _write(one, reporter, work.file, [work.rows.completed(table) for table in completed])
        if request.model is not None:
            with _after_the_table("the model", request):
                imputer.save(request.model)
            reporter.show("model", request.model)


def _fit_together(
    request: ImputeRequest, sources: Sequence[str], reporter: Reporter, budget: TimeBudget
) -> Any:
    """Return an imputer that is fitted to the rows of all files."""
    overrides = read_overrides(request)
    file = read_all(sources, lambda source: _read(replace(request, source=source), overrides, reporter))
    unit = find_method(request.method).steps or "step"
    title, seconds = f"{request.named_method}, {file.source}", seconds_for_fit(budget, report=False)
    with reporter.progress("fitting", title, unit) as callback, time_limit(seconds):
        imputer = build_imputer(request, file.settings or None, callback).fit(file.table)
    act_on(
        check_filled(request, reporter, imputer, file.table, file.settings, new=True),
        request,
        reporter,
        imputer,
    )
    imputer.reading_ = describe_reading(file)
    return imputer


def _fit(request: ImputeRequest, reporter: Reporter, budget: TimeBudget) -> Work:
    """Read a file and fit an imputer to it; if nothing is missing and no model is saved, the simplest one."""
    file = _read(request, read_overrides(request), reporter)
    check_cells(file.table, request.output, request.output_format, request.draws or 1)
    if not file.n_missing and request.model is None and not request.evaluate:
        reporter.note("no cell is missing: nothing is imputed, so methods are not compared")
        request = replace(request, method="mean", missingness=None, checkpoint=None)
    unit = find_method(request.method).steps or "step"
    kept = nullcontext() if request.checkpoint is None else halfseen.checkpoints(request.checkpoint)
    limit = time_limit(seconds_for_fit(budget, report=request.report is not None))
    with kept, reporter.progress("fitting", request.named_method, unit) as callback, limit:
        imputer = build_imputer(request, file.settings or None, callback).fit(file.table)
    _show_kinds(imputer.schema_.columns, reporter)
    if hasattr(imputer, "reason_"):
        reporter.show("chosen", imputer.reason_)
    check = check_filled(request, reporter, imputer, file.table, file.settings, new=True)
    act_on(check, request, reporter, imputer)
    proper = request.draws_parameter is not None and request.draws is not None
    return Work(imputer, file, file.table, request.named_method, proper, check=check)


def _load(request: ImputeRequest, reporter: Reporter) -> Work:
    """Load an imputer and read a file as the one that it was fitted to."""
    return _apply(request, _load_imputer(request, reporter), reporter)


def _load_imputer(request: ImputeRequest, reporter: Reporter) -> Any:
    assert request.saved is not None
    imputer = load_model(request.saved, "transform", "not an imputer; `halfseen predict` applies predictors")
    if request.new_seed:
        imputer.seed_ = request.seed
    reporter.show("model", f"{request.saved}: {type(imputer).__name__}, fitted before and not fitted again")
    return imputer


def _apply(request: ImputeRequest, imputer: Any, reporter: Reporter) -> Work:
    method = method_of(imputer)
    rows = read_new_rows(request.source, imputer, reporter, **request.reading)
    check_cells(rows.file.table, request.output, request.output_format, request.draws or 1)
    if request.weights is not None:
        weights = read_weights(rows.file.table, request.weights, rows.file.source)
        reporter.show("weights", describe_weights(request.weights, weights))
    parameter = find_method(method.partition(":")[0]).draws_parameter
    n_proper = getattr(imputer, parameter, 0) if parameter is not None else 0
    if request.draws is not None and n_proper < request.draws:
        reporter.note(
            f"the model was saved with {n_proper} draws of its parameters, so {request.draws} draws do not "
            "include their uncertainty; `halfseen impute --draws M --save-model` keeps such draws where the "
            "method has them"
        )
    proper = request.draws is not None and n_proper >= request.draws
    return Work(imputer, rows.file, rows.inputs, method, proper, rows)


def _complete(
    request: ImputeRequest, reporter: Reporter, imputer: Any, table: pa.Table
) -> Sequence[pa.Table]:
    """Return what is to be written: the requested draws, or one table with means and most probable levels."""
    if request.draws is not None:
        with reporter.answering("drawing", f"{request.draws:,} tables"):
            drawn = imputer.sample(table, n_draws=request.draws)
        for sentence in getattr(drawn, "reservations", ()):
            reporter.note(sentence)
        return drawn
    with reporter.answering("imputing", "means and most probable levels"):
        return [imputer.transform(table)]


@contextmanager
def _after_the_table(what: str, request: ImputeRequest) -> Iterator[None]:
    """Add to an error that the table was written before it occurred."""
    written = f"the table was written to {_where(request)}"
    try:
        yield
    except KeyboardInterrupt as interruption:
        interruption.add_note(written)
        raise
    except Exception as error:  # raised again, as it is or as what a user can read
        if debugging() and not is_expected(error):
            raise
        raise TableError(f"{what} could not be made: {explain_error(error)[0]}; {written}") from error


def _check_targets(request: ImputeRequest) -> None:
    if request.evaluate and request.report is None:
        raise TableError("--evaluate adds a section to the report: use it together with --report")
    check_output(request.output, request.output_format)
    check_report(request.report)
    if request.model is not None:
        check_writable(request.model)
    if request.in_place and not is_same_file(request.output, request.source):
        raise TableError(
            f"{request.output}: --in-place writes to the input, {request.source}: leave out --output, "
            "or --in-place"
        )
    check_apart(
        {"IN": request.source, "--schema": request.schema, "--model": request.saved},
        {"--output": request.output, "--report": request.report, "--save-model": request.model},
        in_place=request.in_place,
    )
    if request.in_place:
        check_in_place(request.source)


def _read(request: ImputeRequest, overrides: dict[str, Any] | None, reporter: Reporter) -> TableFile:
    file = read_table(request.source, overrides=overrides, **request.reading)
    give_back_memory()
    n_rows, n_columns = file.table.shape
    if file.n_missing == n_rows * n_columns:
        raise TableError(f"{file.source}: every cell is missing: there is nothing to learn from")
    layout = (
        f"csv, {file.dialect.delimiter_name}, {file.dialect.encoding}"
        if file.format == "csv"
        else file.format
    )
    share = file.n_missing / (n_rows * n_columns)
    reporter.show("read", f"{file.source} ({layout}): {n_rows:,} rows, {n_columns:,} columns")
    reporter.show("missing", f"{file.n_missing:,} cells ({share:.1%})" if file.n_missing else "no cells")
    for note in file.notes:
        reporter.note(note)
    if request.weights is not None:
        weights = read_weights(file.table, request.weights, file.source)
        reporter.show("weights", describe_weights(request.weights, weights))
    return file


def _show_kinds(columns: Sequence[Any], reporter: Reporter) -> None:
    kinds: dict[str, list[str]] = {}
    for column in columns:
        kinds.setdefault(column.kind, []).append(column.name)
    for kind, names in kinds.items():
        more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
        reporter.show("columns", f"{kind}: {', '.join(names[:_SHOWN_NAMES])}{more}")


def _write(request: ImputeRequest, reporter: Reporter, file: TableFile, tables: Sequence[pa.Table]) -> None:
    draw = None
    if request.draws is not None:
        names = file.table.column_names
        candidates = ("draw", *(f"draw_{number}" for number in range(len(names) + 1)))
        draw = next(name for name in candidates if name not in names)
    write_tables(tables, request.output, file, format=request.output_format, draw=draw)
    left = sum(column.null_count for column in tables[0].columns)
    what = (
        f"{len(tables)} draws below each other, numbered in column {draw!r}"
        if draw
        else "means and most probable levels"
    )
    reporter.show("wrote", f"{_where(request)} ({what}{f'; {left:,} cells left missing' if left else ''})")


def _where(request: ImputeRequest) -> str:
    return "standard output" if request.output == "-" else request.output
