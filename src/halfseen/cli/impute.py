"""The steps of ``halfseen impute``: read, fit, fill, write, report."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import halfseen
from halfseen._machine import give_back_memory
from halfseen.base.catalogue import find_method
from halfseen.cli.applying import load_model, naming, read_new_rows
from halfseen.cli.impute_report import Work, make_page
from halfseen.cli.main import debugging, explain_error, is_expected
from halfseen.cli.options import Method, method_of, parse_setting
from halfseen.cli.progress import Reporter
from halfseen.cli.reading import describe_reading
from halfseen.cli.requests import ImputeRequest
from halfseen.cli.sources import plan_outputs, read_all
from halfseen.data.frames import Table
from halfseen.data.leaving import MIN_CELLS, SOME_SKILL, ColumnCheck
from halfseen.data.skip_rules import never_filled
from halfseen.errors import TableError
from halfseen.files.tables import TableFile, read_table
from halfseen.files.writing import (
    check_cells,
    check_in_place,
    check_output,
    check_overwriting,
    check_report,
    check_writable,
    is_same_file,
    write_page,
    write_tables,
)
from halfseen.report.result import FILLED, RowWeights
from halfseen.training.progress import TimeBudget, time_limit
from halfseen.words import Note, names_words, plural, shape_words

AT_CHANCE = ("binary",)
"""Kinds that are left empty by default if they are filled no better than by the most frequent level."""

BASELINES = "the mean or the most frequent level"
"""What hidden values are also filled with, for comparison."""

_SHOWN = 6

REPORT_SHARE = 0.25
"""The part of the time that is kept for the pictures of a report."""

MAX_COLUMNS = 2_000
"""Wider tables are not checked: fewer than 200 rows would say little, and more would take long."""

SMALLEST_SHARE = 0.2
"""The part of the time that fitting has in any case, however long it took to read the file."""


def impute(request: ImputeRequest, reporter: Reporter) -> None:
    """Impute the missing values of a table file."""
    limited = request.method == "auto" and request.model is None and request.max_seconds is not None
    budget = TimeBudget(request.max_seconds or math.inf) if limited else TimeBudget()
    planned = [(request.source, request.destination)]
    if not request.in_place:
        planned = plan_outputs(request.source, request.destination, "imputed", request.output_format)
    if len(planned) > 1:
        _impute_several(request, planned, reporter, budget)
        reporter.done()
        return
    request = replace(request, source=planned[0][0], output=planned[0][1])
    _check_targets(request, [request.source])
    with reporter.noting_warnings():
        work = _fit(request, reporter, budget) if request.model is None else _load(request, reporter)
        give_back_memory()
        with naming(work.file.source) if work.rows is not None else nullcontext():
            completed = _complete(request, reporter, work.imputer, work.table)
        whole = completed if work.rows is None else [work.rows.completed(one) for one in completed]
        give_back_memory()
        _write(request, reporter, work.file, whole)
        if request.save_model is not None:
            with _after_the_table("the model", request):
                work.imputer.reading_ = describe_reading(work.file)
                work.imputer.save(request.save_model)
            reporter.show("model", request.save_model)
        if request.report is not None:
            give_back_memory()
            with _after_the_table("the report", request):
                if work.rows is not None:
                    check = check_filled(
                        request, reporter, work.imputer, work.table, work.file.settings, new=False
                    )
                    work = replace(work, check=check)
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
    each = [replace(request, source=source, output=output, save_model=None) for source, output in planned]
    sources = [source for source, _ in planned]
    for one in each:
        _check_targets(one, sources)
    if request.save_model is not None:
        check_writable(request.save_model)
        check_overwriting({"IN": sources}, {"--save-model": request.save_model}, overwrite=request.overwrite)
    with reporter.noting_warnings():
        if request.model is None:
            imputer = _fit_together(request, [source for source, _ in planned], reporter, budget)
        else:
            imputer = _load_imputer(request, reporter)
        for one in each:
            work = _apply(one, imputer, reporter)
            with naming(work.file.source):
                completed = _complete(one, reporter, imputer, work.table)
            assert work.rows is not None
            _write(one, reporter, work.file, [work.rows.completed(table) for table in completed])
        if request.save_model is not None:
            with _after_the_table("the model", request):
                imputer.save(request.save_model)
            reporter.show("model", request.save_model)


def _fit_together(
    request: ImputeRequest, sources: Sequence[str], reporter: Reporter, budget: TimeBudget
) -> Any:
    """Return an imputer that is fitted to the rows of all files."""
    overrides = read_overrides(request)
    file = read_all(sources, lambda source: _read(replace(request, source=source), overrides, reporter))
    unit = find_method(request.method).steps or "step"
    title, seconds = f"{request.named_method}, {file.source}", seconds_for_fit(budget, report=False)
    with reporter.progress("fitting", title, unit) as callback, time_limit(seconds):
        imputer = request.build_imputer(file.settings or None, callback).fit(file.table)
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
    weights = _row_weights(request, file, reporter)
    check_cells(file.table, request.destination, request.output_format, request.draws or 1)
    if not file.n_missing and request.save_model is None and not request.evaluate:
        reporter.note("no cell is missing: nothing is imputed, so methods are not compared")
        request = replace(request, method=Method("mean"), missingness=None, checkpoint=None)
    unit = find_method(request.method).steps or "step"
    kept = nullcontext() if request.checkpoint is None else halfseen.checkpoints(request.checkpoint)
    limit = time_limit(seconds_for_fit(budget, report=request.report is not None))
    with kept, reporter.progress("fitting", request.named_method, unit) as callback, limit:
        imputer = request.build_imputer(file.settings or None, callback).fit(file.table)
    _show_kinds(imputer.schema_.columns, reporter)
    if imputer.capabilities.compares_methods:
        reporter.show("chosen", _choice(imputer, reporter))
    check = check_filled(request, reporter, imputer, file.table, file.settings, new=True)
    act_on(check, request, reporter, imputer)
    proper = request.draws_parameter is not None and request.draws is not None
    return Work(imputer, file, file.table, request.named_method, proper, weights=weights, check=check)


def _load(request: ImputeRequest, reporter: Reporter) -> Work:
    """Load an imputer and read a file as the one that it was fitted to."""
    return _apply(request, _load_imputer(request, reporter), reporter)


def _load_imputer(request: ImputeRequest, reporter: Reporter) -> Any:
    assert request.model is not None
    imputer = load_model(request.model, "transform", "not an imputer; `halfseen predict` applies predictors")
    if "seed" in request.given:
        imputer.seed_ = request.seed
    reporter.show("model", f"{request.model}: {type(imputer).__name__}, fitted before and not fitted again")
    return imputer


def _apply(request: ImputeRequest, imputer: Any, reporter: Reporter) -> Work:
    method = method_of(imputer)
    rows = read_new_rows(request.source, imputer, reporter, **request.reading.to_arguments())
    check_cells(rows.file.table, request.destination, request.output_format, request.draws or 1)
    weights = _row_weights(request, rows.file, reporter)
    parameter = find_method(method.partition(":")[0]).draws_parameter
    n_proper = imputer.get_params()[parameter] if parameter is not None else 0
    if request.draws is not None and n_proper < request.draws:
        text = (
            f"the model was saved with {n_proper} draws of its parameters, so {request.draws} draws do not "
            "include their uncertainty; `halfseen impute --draws M --save-model` keeps such draws where the "
            "method has them"
        )
        reporter.note(Note(text, "harmful"))
    proper = request.draws is not None and n_proper >= request.draws
    return Work(imputer, rows.file, rows.inputs, method, proper, rows, weights)


def _complete(
    request: ImputeRequest, reporter: Reporter, imputer: Any, table: pa.Table
) -> Sequence[pa.Table]:
    """Return what is to be written: the requested draws, or one table with means and most probable levels."""
    if request.draws is not None:
        with reporter.answering("drawing", f"{request.draws:,} tables"):
            drawn = imputer.sample(table, n_draws=request.draws)
        for sentence in getattr(drawn, "reservations", ()):
            reporter.note(Note(sentence, "harmful"))
        return drawn
    with reporter.answering("imputing", "means and most probable levels"):
        return [imputer.transform(table)]


def check_filled(
    request: ImputeRequest, reporter: Reporter, imputer: Any, table: pa.Table, settings: Any, *, new: bool
) -> Any:
    """Return how well hidden known values are filled, None if that cannot be checked.

    If values were hidden to choose the method, the check is made of these. Otherwise the method is fitted
    again without the hidden values, unless it is trained by gradients, which takes long, or was loaded; the
    fitted imputer then fills them, and the check is optimistic.

    Parameters
    ----------
    request : ImputeRequest
        The method, the seed, and whether there is a report, which shows intervals too.
    reporter : Reporter
        Shows progress.
    imputer : imputer
        Fitted.
    table : pyarrow.Table
        The incomplete table.
    settings : mapping
        The settings of columns that the user gave.
    new : bool
        Whether the imputer was fitted to this table, rather than loaded.
    """
    from halfseen.report.fills import CHECKED, MOST_HIDDEN, check_hidden, check_known_values

    columns = imputer.schema_.columns
    empty = never_filled(columns, Table(table))
    filled = [one for one in columns if one.kind in CHECKED and one.left is None and one.name not in empty]
    incomplete = [column.name for column in filled if table[column.name].null_count]
    most_known = max((table.num_rows - table[name].null_count for name in incomplete), default=0)
    if MOST_HIDDEN * most_known < MIN_CELLS or table.num_columns > MAX_COLUMNS:
        return None
    if new and imputer.capabilities.compares_methods and imputer.hidden_cells_.n_rows:
        return check_hidden(imputer.hidden_cells_, incomplete, level=request.level)
    method = "gaussian" if request.method == "auto" else request.method  # what auto is without a comparison
    again = new and find_method(method).steps != "epoch"

    def build(settings: dict[str, Any]) -> Any:
        return request.for_check(method).build_imputer(settings or None, _ignore)

    with reporter.progress("checking", "hidden known values"):
        return check_known_values(
            table, filled, build if again else None, imputer, settings=settings, seed=request.seed,
            level=request.level, intervals=request.report is not None,
        )  # fmt: skip


def _ignore(step: Any) -> None:
    """Take no notice of a step of fitting."""


@contextmanager
def _after_the_table(what: str, request: ImputeRequest) -> Iterator[None]:
    """Add to an error that the table was written before it occurred."""
    written = f"the table was written to {_where(request)}"
    try:
        yield
    except KeyboardInterrupt as interruption:
        interruption.add_note(written)
        raise
    except Exception as error:  # raised again, unchanged or with an explanation
        if debugging() and not is_expected(error):
            raise
        raise TableError(f"{what} could not be made: {explain_error(error)[0]}; {written}") from error


def _check_targets(request: ImputeRequest, sources: Sequence[str]) -> None:
    if request.evaluate and request.report is None:
        raise TableError("--evaluate adds a section to the report: use it together with --report")
    check_output(request.destination, request.output_format)
    check_report(request.report)
    if request.save_model is not None:
        check_writable(request.save_model)
    if request.in_place and not is_same_file(request.destination, request.source):
        raise TableError(
            f"{request.destination}: --in-place writes to the input, {request.source}: leave out --output, "
            "or --in-place"
        )
    check_overwriting(
        {"IN": sources, "--schema": request.schema, "--model": request.model},
        {"--output": request.destination, "--report": request.report, "--save-model": request.save_model},
        in_place=request.in_place,
        overwrite=request.overwrite,
    )
    if request.in_place:
        check_in_place(request.source)


def _read(request: ImputeRequest, overrides: dict[str, Any] | None, reporter: Reporter) -> TableFile:
    file = read_table(request.source, schema=overrides, **request.reading.to_arguments())
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
    reporter.show("read", f"{file.source} ({layout}): {shape_words(n_rows, n_columns)}")
    reporter.show(
        "missing", f"{plural(file.n_missing, 'cell')} ({share:.1%})" if file.n_missing else "no cells"
    )
    for note in file.notes:
        reporter.note(note)
    return file


def _show_kinds(columns: Sequence[Any], reporter: Reporter) -> None:
    kinds: dict[str, list[str]] = {}
    for column in columns:
        kinds.setdefault(column.kind, []).append(column.name)
    for kind, names in kinds.items():
        reporter.show("columns", f"{kind}: {names_words(names, _SHOWN)}")


def _write(request: ImputeRequest, reporter: Reporter, file: TableFile, tables: Sequence[pa.Table]) -> None:
    draw = None
    if request.draws is not None:
        names = file.table.column_names
        candidates = ("draw", *(f"draw_{number}" for number in range(len(names) + 1)))
        draw = next(name for name in candidates if name not in names)
    write_tables(tables, request.destination, file, format=request.output_format, draw=draw)
    left = sum(_count_missing(tables[0][name], file.held.get(name)) for name in tables[0].column_names)
    what = (
        f"{len(tables)} draws below each other, numbered in column {draw!r}"
        if draw
        else "means and most probable levels"
    )
    rest = f"; {plural(left, 'cell')} left missing" if left else ""
    reporter.show("wrote", f"{_where(request)} ({what}{rest})")


def _count_missing(cells: pa.ChunkedArray, held: pa.Array | None) -> int:
    """Return the number of missing cells, without those that stay empty in any case, such as blank rows."""
    if held is None:
        return int(cells.null_count)
    return int(pc.sum(pc.and_not(cells.is_null(), held)).as_py() or 0)


def _where(request: ImputeRequest) -> str:
    return "standard output" if request.destination == "-" else request.destination


# ---------------------------------------------------------------------------------------------- settings


def seconds_for_fit(budget: TimeBudget, *, report: bool) -> float:
    """Return the seconds for fitting and imputing; writing is expected to take as long as reading did."""
    left = budget.left - budget.elapsed
    return max(left * (1 - REPORT_SHARE if report else 1.0), SMALLEST_SHARE * budget.seconds)


def read_overrides(request: ImputeRequest) -> dict[str, Any] | None:
    """Return the settings of columns, from the schema file and from options that concern every column."""
    overrides = halfseen.Schema.read_overrides(request.schema) if request.schema is not None else {}
    for text in request.derived or ():
        name, formula = parse_setting("--derived", text, "'bmi = weight / height ** 2'")
        name = name.strip("`")
        overrides[name] = dict(overrides.get(name, {})) | {"derived": formula}
    overrides = with_weights(overrides, request.weights)
    every = {"fill": True} if request.fill_all else {}
    every |= {"skip": False} if request.no_skip_rules else {}
    return (overrides | {"*": every | overrides.get("*", {})} if every else overrides) or None


# ----------------------------------------------------------------------------------------------- weights


def read_weights(table: pa.Table, name: str, source: str) -> npt.NDArray[np.float64]:
    """Return the weights (N) of the rows of a table; raise an error unless all are positive and finite.

    Parameters
    ----------
    table : pyarrow.Table
        The table.
    name : str
        The column of weights.
    source : str
        The name of the file, for errors.

    Examples
    --------
    >>> read_weights(pa.table({"w": [0.5, 2.0]}), "w", "a.csv")
    array([0.5, 2. ])
    """
    if name not in table.column_names:
        columns = names_words([repr(one) for one in table.column_names], 8)
        raise TableError(f"{source} has no column {name!r} for --weights; it has {columns}")
    column = table[name]
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        first = pc.drop_null(column)[0].as_py() if column.null_count < len(column) else None
        raise TableError(
            f"{source}: column {name!r} of --weights contains values such as {first!r}, which are not numbers"
        )
    weights = np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights > 0)))
    if len(wrong):
        found = "no weight" if np.isnan(weights[wrong[0]]) else f"the weight {weights[wrong[0]]:g}"
        others = plural(len(wrong) - 1, "other row")
        more = f", and {others} cannot be used either" if len(wrong) > 1 else ""
        raise TableError(
            f"{source}: column {name!r} of --weights has {found} in row {wrong[0] + 1:,} of the table{more}; "
            "weights must be positive and finite. Leave out rows without a weight"
        )
    return weights


def _row_weights(request: ImputeRequest, file: TableFile, reporter: Reporter) -> RowWeights | None:
    """Return the weights of the rows of a file, and report their range; None if there are none."""
    if request.weights is None:
        return None
    weights = read_weights(file.table, request.weights, file.source)
    reporter.show("weights", describe_weights(request.weights, weights))
    return RowWeights(request.weights, weights)


def describe_weights(name: str, weights: npt.NDArray[np.float64]) -> str:
    """Return the range of weights, and how many rows of equal weight would estimate a mean as precisely.

    The number is that of Kish, which holds for values that do not depend on the weights.

    Examples
    --------
    >>> describe_weights("w", np.array([1.0, 1.0, 4.0]))
    "column 'w', from 1 to 4: means are about as precise as those of 2 rows of equal weight"
    """
    scaled = weights / weights.max()
    effective = scaled.sum() ** 2 / (scaled**2).sum()
    return (
        f"column {name!r}, from {weights.min():g} to {weights.max():g}: means are about as precise as those "
        f"of {effective:,.0f} rows of equal weight"
    )


def _choice(imputer: Any, reporter: Reporter) -> str:
    """Return what the imputer chose, and why if all notes are asked for or there was no comparison."""
    if reporter.verbose or imputer.time_limit_met_ or not imputer.scores_:
        return str(imputer.reason_)
    from halfseen.auto.reason import explain_briefly  # other methods do not need it

    return f"{explain_briefly(imputer.chosen_, imputer.scores_)} --verbose tells more"


def with_weights(overrides: dict[str, Any], name: str | None) -> dict[str, Any]:
    """Return the settings of columns, where the weights are numbers that predict the other columns."""
    if name is None:
        return overrides
    own = overrides.get(name, {})
    return {
        **overrides,
        name: {"kind": "continuous"} | ({"kind": own} if isinstance(own, str) else dict(own)),
    }


# ---------------------------------------------------------------------------------------------- verdicts


def act_on(check: Any, request: ImputeRequest, reporter: Reporter, imputer: Any) -> None:
    """Show the verdicts, and leave columns empty by them.

    By default these are columns with two levels that are filled no better than by the most frequent level.
    Draws fill them too, because draws vary as the observed values do; and so does the method that fills with
    the most frequent level, which nobody expects to do better.
    """
    if check is None:
        return
    show_verdicts(list(check.columns.values()), reporter)
    min_skill = SOME_SKILL if request.leave_unreliable else None
    guesses = request.draws is None and request.method != "mean"
    imputer._leave_unreliable(check.columns, min_skill, AT_CHANCE if guesses else ())


def show_verdicts(checks: Sequence[ColumnCheck], reporter: Reporter) -> None:
    """Print a line for each verdict in the words of reports, the least reliable columns of it first."""
    if checks:
        reporter.show("checked", f"on known values that were hidden, against {BASELINES}")
    for verdict, words in FILLED.items():
        alike = (one for one in checks if one.verdict == verdict)
        members = sorted(alike, key=lambda one: one.skill)
        if members:
            names = names_words([f"{one.name} ({_brief(one)})" for one in members], _SHOWN)
            style = "bold" if verdict in ("good", "fair") else "yellow"
            reporter.show("verdict", f"{words.format(baseline=BASELINES)}: {names}", style)


def _brief(check: ColumnCheck) -> str:
    """Return the measure of a column and, after it, that of the mean or the most frequent level."""
    if check.measure == "error":
        return f"error {check.value:.2f} against {check.baseline:.2f} sd"
    return f"{check.value:.0%} correct against {check.baseline:.0%}"
