"""The steps of ``halfseen impute``: read, fit, fill, write, report."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

import halfseen
from halfseen.cli.applying import NewRows, load_model, naming, read_new_rows
from halfseen.cli.atomic import check_apart, check_report, check_writable, is_same_file, write_atomically
from halfseen.cli.errors import debugging, explain, is_expected
from halfseen.cli.methods import DEFAULT_METHOD, build, method_of, offered
from halfseen.cli.progress import Reporter
from halfseen.cli.reading import describe_reading
from halfseen.cli.sources import plan_outputs, read_all
from halfseen.cli.tables import TableError, TableFile, check_cells, check_output, read_table, write_tables
from halfseen.data.skip_rules import why_empty
from halfseen.estimators.catalogue import find_method

EVALUATED_ROWS, EVALUATED_RATE, EVALUATION_REPEATS = 1000, 0.1, 3
"""The self-evaluation of a report: rows that take part, the share of cells hidden, and how often."""

REPORT_DRAWS = 20
"""Draws behind the bands of a report when none were asked for; a quarter of them for a large table."""

_LARGE = 5_000_000
_SHOWN_NAMES = 6


@dataclass(frozen=True)
class Request:
    """What a user asked for; see ``halfseen impute --help``."""

    source: str
    output: str
    method: str = DEFAULT_METHOD.value
    max_seconds: float = 120.0
    missingness: str | None = None
    draws: int | None = None
    seed: int = 0
    schema: str | None = None
    report: str | None = None
    evaluate: bool = False
    level: float = 0.9
    reading: dict[str, Any] = field(default_factory=dict)
    output_format: str | None = None
    model: str | None = None
    checkpoint: str | None = None
    in_place: bool = False
    fill_all: bool = False
    derived: tuple[str, ...] = ()
    skip_rules: bool = True
    command: str = ""
    saved: str | None = None
    new_seed: bool = False

    @property
    def named_method(self) -> str:
        """The method, with its assumption about missingness if that is not the method's default."""
        assumed = self.missingness or offered(self.method)[0]
        return self.method if assumed == offered(self.method)[0] else f"{self.method}:{assumed}"

    @property
    def draws_parameter(self) -> str | None:
        """The parameter that makes draws proper for multiple imputation, if the method has one."""
        return find_method(self.method).draws_parameter if self.named_method == self.method else None


def build_imputer(request: Request, overrides: dict[str, Any] | None, callback: Callable[[Any], None]) -> Any:
    """Return the imputer of a method, set up as asked."""
    common: dict[str, Any] = {"schema": overrides, "random_state": request.seed}
    if request.draws_parameter is not None:
        common[request.draws_parameter] = request.draws or 0
    if find_method(request.method).steps is not None:
        common["callback"] = callback
    if request.method == "auto":
        common["max_seconds"] = request.max_seconds
    return build(request.named_method, **common)


def parse_derived(text: str) -> tuple[str, str]:
    """Return the column and the formula of ``"bmi = weight / height ** 2"``.

    Examples
    --------
    >>> parse_derived("bmi = weight / height ** 2")
    ('bmi', 'weight / height ** 2')
    """
    name, equals, formula = (part.strip() for part in text.partition("="))
    if not name or not equals or not formula:
        raise TableError(f"--derived {text!r} is not of the form 'bmi = weight / height ** 2'")
    return name.strip("`"), formula


def read_overrides(request: Request) -> dict[str, Any] | None:
    """Return the settings of columns: those of the schema file, and what options say of every column."""
    overrides = halfseen.Schema.read_overrides(request.schema) if request.schema is not None else {}
    for text in request.derived:
        name, formula = parse_derived(text)
        overrides[name] = (dict(overrides.get(name, {})) if name in overrides else {}) | {"derived": formula}
    every = {"fill": True} if request.fill_all else {}
    every |= {} if request.skip_rules else {"skip": False}
    return (overrides | {"*": every | overrides.get("*", {})} if every else overrides) or None


def impute(request: Request, reporter: Reporter) -> None:
    """Impute the missing values of a table file.

    Parameters
    ----------
    request : Request
        What to read, how to fill it, and where to write.
    reporter : Reporter
        The reporter of progress.
    """
    started = time.perf_counter()
    planned = [(request.source, request.output)]
    if not request.in_place:
        planned = plan_outputs(request.source, request.output, "imputed", request.output_format)
    if len(planned) > 1:
        _impute_several(request, planned, reporter)
        reporter.say("done", f"in {time.perf_counter() - started:.1f} s", "bold green")
        return
    request = replace(request, source=planned[0][0], output=planned[0][1])
    _check_targets(request)
    with reporter.noting_warnings():
        work = _fit(request, reporter) if request.saved is None else _load(request, reporter)
        with naming(work.file.source) if work.rows is not None else nullcontext():
            completed = _complete(request, reporter, work.imputer, work.table)
        whole = completed if work.rows is None else [work.rows.completed(one) for one in completed]
        _write(request, reporter, work.file, whole)
        if request.model is not None:
            with _after_the_table("the model", request):
                work.imputer.reading_ = describe_reading(work.file)
                work.imputer.save(request.model)
            reporter.say("model", request.model)
        if request.report is not None:
            with _after_the_table("the report", request):
                page = _make_page(request, reporter, work, completed, started)
                with write_atomically(request.report) as target:
                    target.write(page.encode("utf-8"))
            reporter.say("report", request.report)
    reporter.say("done", f"in {time.perf_counter() - started:.1f} s", "bold green")


def _impute_several(request: Request, planned: Sequence[tuple[str, str]], reporter: Reporter) -> None:
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
            imputer = _fit_together(request, [source for source, _ in planned], reporter)
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
            reporter.say("model", request.model)


def _fit_together(request: Request, sources: Sequence[str], reporter: Reporter) -> Any:
    """Return an imputer that is fitted to the rows of all files."""
    overrides = read_overrides(request)
    file = read_all(sources, lambda source: _read(replace(request, source=source), overrides, reporter))
    unit = find_method(request.method).steps or "step"
    with reporter.progress("fitting", f"{request.named_method}, {file.source}", unit) as callback:
        imputer = build_imputer(request, file.settings or None, callback).fit(file.table)
    imputer.reading_ = describe_reading(file)
    return imputer


@dataclass(frozen=True)
class Work:
    """A fitted imputer, the file, the table that it imputes, and how new rows match a saved model."""

    imputer: Any
    file: TableFile
    table: pa.Table
    method: str
    proper: bool
    rows: NewRows | None = None
    seconds: float = 0.0  # of fitting


def _fit(request: Request, reporter: Reporter) -> Work:
    """Read a file and fit an imputer to it."""
    file = _read(request, read_overrides(request), reporter)
    check_cells(file.table, request.output, request.output_format)
    unit = find_method(request.method).steps or "step"
    kept = nullcontext() if request.checkpoint is None else halfseen.checkpoints(request.checkpoint)
    with kept, reporter.progress("fitting", request.named_method, unit) as callback:
        started = time.perf_counter()
        imputer = build_imputer(request, file.settings or None, callback).fit(file.table)
        seconds = time.perf_counter() - started
    _say_kinds(imputer.schema_.columns, reporter)
    if hasattr(imputer, "reason_"):
        reporter.say("chosen", imputer.reason_)
    proper = request.draws_parameter is not None and request.draws is not None
    return Work(imputer, file, file.table, request.named_method, proper, seconds=seconds)


def _load(request: Request, reporter: Reporter) -> Work:
    """Load an imputer and read a file as the one that it was fitted to."""
    return _apply(request, _load_imputer(request, reporter), reporter)


def _load_imputer(request: Request, reporter: Reporter) -> Any:
    assert request.saved is not None
    imputer = load_model(request.saved, "transform", "not an imputer; `halfseen predict` applies predictors")
    if request.new_seed:
        imputer.seed_ = request.seed
    reporter.say("model", f"{request.saved}: {type(imputer).__name__}, fitted before and not fitted again")
    return imputer


def _apply(request: Request, imputer: Any, reporter: Reporter) -> Work:
    method = method_of(imputer)
    rows = read_new_rows(request.source, imputer, reporter, **request.reading)
    check_cells(rows.file.table, request.output, request.output_format)
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


def _complete(request: Request, reporter: Reporter, imputer: Any, table: pa.Table) -> Sequence[pa.Table]:
    """Return what is to be written: the requested draws, or one table with means and most probable levels."""
    if request.draws is not None:
        with reporter.progress("drawing", f"{request.draws:,} tables"):
            drawn = imputer.sample(table, n_draws=request.draws)
        for sentence in getattr(drawn, "reservations", ()):
            reporter.note(sentence)
        return drawn
    with reporter.progress("imputing", "means and most probable levels"):
        return [imputer.transform(table)]


@contextmanager
def _after_the_table(what: str, request: Request) -> Iterator[None]:
    """Say of a failure that it cost nothing of the table, which was written before."""
    written = f"the table was written to {_where(request)}"
    try:
        yield
    except KeyboardInterrupt as interruption:
        interruption.add_note(written)
        raise
    except Exception as error:  # raised again, as it is or as what a user can read
        if debugging() and not is_expected(error):
            raise
        raise TableError(f"{what} could not be made: {explain(error)[0]}; {written}") from error


def _check_targets(request: Request) -> None:
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


def _read(request: Request, overrides: dict[str, Any] | None, reporter: Reporter) -> TableFile:
    file = read_table(request.source, overrides=overrides, **request.reading)
    n_rows, n_columns = file.table.shape
    if file.n_missing == n_rows * n_columns:
        raise TableError(f"{file.source}: every cell is missing: there is nothing to learn from")
    layout = (
        f"csv, {file.dialect.delimiter_name}, {file.dialect.encoding}"
        if file.format == "csv"
        else file.format
    )
    share = file.n_missing / (n_rows * n_columns)
    reporter.say("read", f"{file.source} ({layout}): {n_rows:,} rows, {n_columns:,} columns")
    reporter.say("missing", f"{file.n_missing:,} cells ({share:.1%})" if file.n_missing else "no cells")
    for note in file.notes:
        reporter.note(note)
    return file


def _say_kinds(columns: Sequence[Any], reporter: Reporter) -> None:
    kinds: dict[str, list[str]] = {}
    for column in columns:
        kinds.setdefault(column.kind, []).append(column.name)
    for kind, names in kinds.items():
        more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
        reporter.say("columns", f"{kind}: {', '.join(names[:_SHOWN_NAMES])}{more}")


def _make_page(
    request: Request,
    reporter: Reporter,
    work: Work,
    completed: Sequence[pa.Table],
    started: float,
) -> str:
    """Return the report; its packages are imported here, for who has not installed them."""
    from halfseen.report.render import render
    from halfseen.report.shown_cells import choose_cells
    from halfseen.report.summarize import summarize

    imputer, table = work.imputer, work.table
    shown = choose_cells(table, request.seed)
    some = shown.take(table)  # of a large table few rows suffice for pictures
    n_draws = REPORT_DRAWS if some.num_rows * some.num_columns <= _LARGE else REPORT_DRAWS // 4
    with reporter.progress("drawing", "draws and intervals for the report"):
        if request.draws is None:
            filled, draws = completed[0], imputer.sample(some, n_draws=n_draws)
        else:
            filled, draws = imputer.transform(table), [shown.take(one) for one in completed]
        low, high = imputer.interval(some, level=request.level)
        probabilities = imputer.top_probabilities(some)
    check = _check_fill(request, reporter, work)
    summary = summarize(
        table,
        filled,
        draws,
        low,
        high,
        imputer.schema_,
        shown=shown,
        probabilities=probabilities,
        left=why_empty(imputer.schema_.columns),
        method=work.method,
        command=request.command,
        seconds=time.perf_counter() - started,
        notes=reporter.notes,
        source=Path(work.file.source).name,
        seed=getattr(imputer, "seed_", request.seed),
        level=request.level,
        version=halfseen.__version__,
        proper=work.proper,
        training_drift=None if work.rows is None else work.rows.drift.to_dict(),
        structure=_structure(imputer),
        check=None if check is None else check.to_dict(),
        reason=getattr(imputer, "reason_", ""),
    )
    if not request.evaluate:
        return render(summary)
    comparison, panel = _evaluate(request, reporter, work.file)
    return render(summary, comparison, panel)


def _structure(imputer: Any) -> dict[str, Any] | None:
    """Return the structure of a circuit for the report; None of other imputers."""
    from halfseen.report.circuit_tree import summarize_structure

    structure = getattr(imputer, "structure_", None)
    if structure is None:
        return None
    return summarize_structure(structure, [column.name for column in imputer.schema_ if column.modelled])


def _check_fill(request: Request, reporter: Reporter, work: Work) -> Any:
    """Return how well hidden known values are filled; a saved model is not fitted again."""
    from halfseen.cli.known_values import MAX_SECONDS, check_known_values

    quick = replace(request, max_seconds=min(request.max_seconds, MAX_SECONDS))
    seconds = min(work.seconds, MAX_SECONDS) if request.method == "auto" else work.seconds

    def build(settings: dict[str, Any]) -> Any:
        return build_imputer(quick, settings or None, _ignore)

    with reporter.progress("checking", "hidden known values"):
        return check_known_values(
            work.table, work.imputer.schema_.columns, build if work.rows is None else None, work.imputer,
            seconds=seconds, settings=work.file.settings, seed=request.seed, level=request.level,
        )  # fmt: skip


def _ignore(step: Any) -> None:
    """Take no notice of a step of fitting."""


def _evaluate(request: Request, reporter: Reporter, file: TableFile) -> tuple[dict[str, Any], Any]:
    """Compare the method with simple ones on hidden cells of at most EVALUATED_ROWS rows."""
    from halfseen.cli.compare import Request as CompareRequest
    from halfseen.cli.compare import run_comparison, thin_rows
    from halfseen.report.compare import render_scores, summarize_comparison

    methods = tuple(dict.fromkeys((request.named_method, "mean", "median", "iterative")))
    asked = CompareRequest(
        request.source, methods, rate=EVALUATED_RATE, repeats=EVALUATION_REPEATS, seed=request.seed,
        level=request.level, max_rows=EVALUATED_ROWS,
    )  # fmt: skip
    part = thin_rows(file.table, asked)
    comparison = run_comparison(asked, part, file.settings or None, reporter)
    summary = summarize_comparison(comparison, version=halfseen.__version__)
    summary |= {"n_rows": part.num_rows}
    return summary, render_scores(summary)


def _write(request: Request, reporter: Reporter, file: TableFile, tables: Sequence[pa.Table]) -> None:
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
    reporter.say("wrote", f"{_where(request)} ({what}{f'; {left:,} cells left missing' if left else ''})")


def _where(request: Request) -> str:
    return "standard output" if request.output == "-" else request.output
