"""Commands on tables that are read in blocks, and need not fit into memory."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

import halfseen
from halfseen.base.catalogue import find_method
from halfseen.cli.describe import show_results
from halfseen.cli.impute import read_overrides
from halfseen.cli.options import EngineOptions
from halfseen.cli.progress import Reporter, RowStep
from halfseen.cli.reading import kept_reading
from halfseen.cli.requests import DescribeRequest, FitRequest, ImputeRequest, PredictRequest
from halfseen.cli.sources import (
    NOT_IN_BLOCKS,
    NOT_IN_UNITS,
    OF_WHOLE_FILES,
    content_size,
    expand,
    given_of,
    largest_in_memory,
)
from halfseen.config import show_size
from halfseen.data.incomplete import SAMPLE_ROWS
from halfseen.data.scan import Scan, scan
from halfseen.data.schema import read_as_numbers
from halfseen.data.summaries import ColumnSummary, Summing, summarise_scan
from halfseen.diagnosis.summary import check_target
from halfseen.distributed import run
from halfseen.distributed.describing import describe
from halfseen.distributed.engines import PassesByEngine, find_engine
from halfseen.distributed.fitting import fit
from halfseen.distributed.manifest import check_new
from halfseen.distributed.outputs import Folder
from halfseen.errors import TableError
from halfseen.files.dialect import parse_delimiter
from halfseen.files.table_file import TableFile
from halfseen.files.writing import check_overwriting, check_report, check_writable
from halfseen.training.progress import time_limit
from halfseen.words import Note, plural

MODEL = "_model.halfseen"
"""The model that was fitted by a run, in the folder of its output, so that the run can be resumed."""


def show_stream(path: str, what: str, reporter: Reporter) -> None:
    """Report that a file is read in blocks because of its size, and what becomes of it."""
    size, limit = show_size(content_size(path)), show_size(largest_in_memory())
    reporter.show("stream", f"{path}: {size}, more than {limit}: {what}")


def impute_in_units(request: ImputeRequest, reporter: Reporter) -> None:
    """Impute a table by an engine, into a folder; see `halfseen.distributed.impute`."""
    _refuse(request)
    with reporter.noting_warnings():
        table = open_scan(request, reporter, request.units.row_id)
        _check_files(request, table, None)
        folder = str(request.output)
        model = request.model
        if model is None and request.units.resume and os.path.isfile(os.path.join(folder, MODEL)):
            model = os.path.join(folder, MODEL)
        elif not request.units.resume:
            check_new(Folder.at(folder))
        imputer = _load(model, reporter) if model is not None else _fit(request, table, reporter)
        if model is None and "://" not in folder:
            os.makedirs(folder, exist_ok=True)
            imputer.save(os.path.join(folder, MODEL))
        if request.save_model is not None:
            imputer.save(request.save_model)
            reporter.show("model", request.save_model)
        seed = request.seed if "seed" in request.given else None
        with counting(reporter, "imputing", table) as progress:
            written = run.impute(
                table, imputer, folder, draws=request.draws, random_state=seed, progress=progress,
                **_engine(request.units),
            )  # fmt: skip
        _show(written, folder, reporter)
    reporter.done()


def predict_in_units(request: PredictRequest, reporter: Reporter) -> None:
    """Predict the rows of a table by an engine, into a folder; see `halfseen.distributed.predict`."""
    _refuse(request)
    with reporter.noting_warnings():
        table = open_scan(request, reporter, None)
        model = _load(request.model, reporter)
        with counting(reporter, "predicting", table) as progress:
            written = run.predict(
                table, model, request.output, level=request.level, progress=progress, **_engine(request.units)
            )
        _show(written, request.output, reporter)
    reporter.done()


def impute_stream(request: ImputeRequest, reporter: Reporter) -> None:
    """Impute one file into another block by block, without reading it into memory."""
    with reporter.noting_warnings():
        path = expand(request.source)[0]
        show_stream(path, "read and written in blocks", reporter)
        table = open_scan(request, reporter, None)
        _check_files(request, table, request.output)
        imputer = (
            _load(request.model, reporter) if request.model is not None else _fit(request, table, reporter)
        )
        if request.save_model is not None:
            imputer.save(request.save_model)
            reporter.show("model", request.save_model)
        with counting(reporter, "imputing", table) as progress:
            run.impute_file(table, imputer, request.destination, progress=progress)
        reporter.show("wrote", f"{request.destination} (means and most probable levels)")
    reporter.done()


class SampledTable:
    """Random rows of a table that is read by an engine, and what all its rows say of the columns.

    Attributes
    ----------
    table : Scan
        The table.
    file : TableFile
        The rows.
    summaries : list of ColumnSummary or None
        Of all columns, by the rows with a target; None if the rows are those of the table.
    """

    def __init__(self, request: FitRequest, reporter: Reporter) -> None:
        _check_readable_in_blocks(request, OF_WHOLE_FILES)
        self.request, self.reporter = request, reporter
        settings = {} if request.schema is None else halfseen.Schema.read_overrides(request.schema)
        table = self.table = open_scan(request, reporter, None)
        check_target(request.target, table.column_names)
        self.numbers = read_as_numbers(table.column_names, settings)
        self.summaries: list[ColumnSummary] | None
        self.summaries, rows = self._go_over(table, request.target)
        if rows.num_rows < table.n_rows:
            some = f"{rows.num_rows:,} of {table.n_rows:,} rows, chosen at random by their numbers"
            reporter.show("sample", f"the predictor is fitted to {some}, kinds of columns to all")
        else:
            self.summaries = None
        self.file = TableFile(rows, request.source, "parquet", settings=settings)

    def summaries_of_inputs(self, *, every_row: bool) -> list[ColumnSummary] | None:
        """Return the summaries of the columns without the target, of rows without a target too if asked."""
        if self.summaries is None or not every_row:
            return self.summaries and [
                one for one in self.summaries if one.column.name != self.request.target
            ]
        names = [name for name in self.table.column_names if name != self.request.target]
        return self._go_over(self.table.select(names), None)[0]

    def _go_over(self, table: Scan, target: str | None) -> tuple[list[ColumnSummary], pa.Table]:
        asked = self.request.sampling
        with counting(self.reporter, "choosing rows", table) as progress:
            passes = PassesByEngine(find_engine(str(asked.engine), asked.address), asked.workers, progress)
            summing = Summing(table, target, self.numbers, SAMPLE_ROWS, 0)
            summaries, chosen = summarise_scan(summing, passes)
        return summaries, table.joined(chosen)


# ------------------------------------------------------------------------------------------ parts


def _check_readable_in_blocks(request: Any, of_whole_tables: Mapping[str, str]) -> None:
    """Raise an error if an option was given that needs the whole table, or standard input is read."""
    found = given_of(request, of_whole_tables)
    if found:
        raise TableError(f"{of_whole_tables[found[0]]} needs the whole table in memory; leave out --engine")
    if request.source == "-":
        raise TableError("--engine reads files, not standard input")


def _refuse(request: Any) -> None:
    _check_readable_in_blocks(request, NOT_IN_UNITS)
    if request.output in (None, "-"):
        raise TableError("--engine writes a folder, not standard output")
    if Path(str(request.output)).is_file():
        raise TableError(f"{request.output}: --engine writes a folder, and this is a file")


def _check_files(request: ImputeRequest, table: Scan, output: str | None) -> None:
    """Raise an error if a file cannot be written, is an input, or would be replaced unasked."""
    outputs = {"--output": output, "--save-model": request.save_model}
    for path in filter(None, outputs.values()):
        check_writable(path)
    inputs = {"IN": table.files, "--schema": request.schema, "--model": request.model}
    resumed = ("--save-model",) if request.units.resume else ()
    check_overwriting(inputs, outputs, resumed=resumed, overwrite=request.overwrite)


def open_scan(request: Any, reporter: Reporter, row_id: str | None) -> Scan:
    """Open the files of a request, and report how much they hold and by which rules they are read."""
    delimiter = request.reading.delimiter
    table = scan(request.source, row_id, delimiter=delimiter and parse_delimiter(delimiter))
    files, rows = plural(len(table.parts), "file"), plural(table.n_rows, "row")
    reporter.show("scan", f"{request.source}: {files}, {rows}, {plural(table.n_columns, 'column')}")
    if any(part.format == "csv" for part in table.parts):
        text = "csv files are read in blocks by plain rules: units, local formats of numbers and dates, and "
        reporter.note(Note(f"{text}codes for missing values other than NA are not recognised", "check"))
    return table


def _load(path: str, reporter: Reporter) -> Any:
    model = halfseen.load(path)
    kept = kept_reading(model)
    columns = kept.get("columns", {})
    coded = [name for name, entry in columns.items() if entry.get("null") or entry.get("placeholder")]
    if kept.get("nulls") or coded:
        where = f"in column {coded[0]!r}" if coded else f"({kept['nulls'][0]!r})"
        raise TableError(
            f"{path}: the model was fitted to a file with codes for missing values {where}, which are not "
            "recognised in blocks; replace them in the files, and fit the model without them"
        )
    reporter.show("model", f"{path}: {type(model).__name__}, fitted before and not fitted again")
    return model


def _fit(request: ImputeRequest, table: Scan, reporter: Reporter) -> Any:
    """Return an imputer that is fitted to a random part of the rows."""
    unit = find_method(request.method).steps or "step"
    asked = request.max_seconds if request.method == "auto" else None
    seconds = float("inf") if asked is None else asked
    with reporter.progress("fitting", request.named_method, unit) as callback, time_limit(seconds):
        units = request.units
        imputer = fit(
            request.build_imputer(read_overrides(request), callback), table,
            engine=str(units.engine or "local"), address=units.address,
            n_workers=1 if units.engine is None else units.workers,
        )  # fmt: skip
    used = imputer.rows_used_
    if used["sample"] < used["table"]:
        some = f"{used['sample']:,} of {used['table']:,} rows, chosen at random by their numbers"
        all_rows = used["parameters"] == used["table"]
        rest = f"margins to {some}, the rest to all" if all_rows else f"to {some}, kinds of columns to all"
        reporter.show("fitted", rest)
    return imputer


def _engine(units: EngineOptions) -> dict[str, Any]:
    return {
        "engine": str(units.engine or "local"),
        "address": units.address,
        "n_workers": units.workers,
        "layout": str(units.layout or "parts"),
        "resume": units.resume,
    }


@contextmanager
def counting(reporter: Reporter, what: str, table: Scan) -> Iterator[Callable[[int, int], None]]:
    """Show how many rows are done, how many in a second, and the time that is left."""
    began = time.monotonic()
    with reporter.progress(what, plural(table.n_rows, "row"), "row") as move:

        def show(n_done: int, n_rows: int) -> None:
            move(RowStep(n_done, n_rows, time.monotonic() - began))

        yield show


def _show(written: run.WrittenFiles, folder: str, reporter: Reporter) -> None:
    again = f"; {plural(written.n_resumed, 'unit')} of an earlier run" if written.n_resumed else ""
    what = f"{plural(len(written.files), 'file')} of {plural(written.n_rows, 'row')}{again}"
    reporter.show("wrote", f"{folder} ({what})")


def describe_in_blocks(request: DescribeRequest, reporter: Reporter) -> None:
    """Describe a table without reading it into memory; see `halfseen.distributed.describe`."""
    _check_readable_in_blocks(request, NOT_IN_BLOCKS)
    check_report(request.report)
    asked = request.counting
    with reporter.noting_warnings():
        if asked.engine is None:
            show_stream(expand(request.source)[0], "read in blocks", reporter)
        table = open_scan(request, reporter, None)
        check_overwriting({"IN": table.files}, {"--report": request.report}, overwrite=request.overwrite)
        with counting(reporter, "counting", table) as progress:
            diagnosis = describe(
                table, request.target, engine=str(asked.engine or "local"), address=asked.address,
                n_workers=1 if asked.engine is None else asked.workers, random_state=request.seed,
                progress=progress,
            )  # fmt: skip
    show_results(request, reporter, diagnosis, request.source)
    reporter.done()
