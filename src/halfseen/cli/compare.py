"""The steps of ``halfseen compare``: read, remove known values, compare, print, write."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

import halfseen
from halfseen.cli.main import one_line
from halfseen.cli.options import build, parse_methods
from halfseen.cli.progress import Reporter, Step, method_table
from halfseen.cli.requests import CompareRequest
from halfseen.evaluation.candidates import OnNumbers
from halfseen.evaluation.comparison import RESULT_FILES, RUNS, Comparison
from halfseen.evaluation.protocol import compare
from halfseen.evaluation.trial import Record
from halfseen.files.tables import TableError, read_table
from halfseen.files.writing import check_overwriting, check_report, write_page
from halfseen.missingness import MCAR, Learned
from halfseen.report.compare import render_comparison, show, summarize_comparison, verdict
from halfseen.report.result import take_rows
from halfseen.words import Note, plural, shape_words

MAX_ITERATIVE_FEATURES = 80
RIVALS: dict[str, Callable[[], Any]] = {
    "median": lambda: SimpleImputer(strategy="median", keep_empty_features=True),
    "knn": lambda: KNNImputer(keep_empty_features=True),
    "iterative": lambda: OnNumbers(
        IterativeImputer(keep_empty_features=True), max_features=MAX_ITERATIVE_FEATURES
    ),
}
MECHANISMS = ("mcar", "learned")
PARTS = {"out": "new rows", "in": "rows used in fitting"}
ARROWS = {"low": "\N{DOWNWARDS ARROW}", "high": "\N{UPWARDS ARROW}", "level": ""}
FEW_CELLS = 50
MAX_ROWS = 10_000
"""Longer tables are subsampled to this many rows, unless --max-rows says otherwise."""

_WIDE = 150


def build_methods(names: Sequence[str]) -> dict[str, Any]:
    """Return the imputers of the names."""
    return {name: RIVALS[name]() if name in RIVALS else build(name) for name in names}


def build_mechanism(request: CompareRequest, table: Any) -> Any:
    """Return what hides cells."""
    if request.mechanism == "mcar":
        return MCAR(rate=request.rate)
    if not any(column.null_count for column in table.columns):
        raise TableError(f"{request.source}: nothing is missing, so there is no mechanism to learn; use mcar")
    return Learned()


def run_compare(request: CompareRequest, reporter: Reporter) -> Comparison:
    """Compare imputers on the hidden cells of a table file; print the table, write what was asked for."""
    methods = parse_methods(request.methods)
    _check(request)
    comparison = run_comparison(request, methods, *_read(request, reporter), reporter)
    summary = summarize_comparison(comparison, reporter.run_info(request.source))
    if not reporter.quiet:
        print_comparison(summary)
    _write(request, reporter, comparison, summary)
    reporter.done()
    return comparison


def run_comparison(
    request: CompareRequest,
    methods: Sequence[str],
    table: Any,
    schema: dict[str, Any] | None,
    reporter: Reporter,
) -> Comparison:
    """Hide known cells of a table and let the methods fill them."""
    n_runs = len(methods) * request.repeats
    done: list[Record] = []
    with reporter.noting_warnings(), reporter.progress("running", f"{n_runs:,} runs", "run") as move:

        def count(record: Record) -> None:
            done.append(record)
            move(Step(len(done), n_runs))

        comparison = compare(
            table,
            build_methods(methods),
            mechanism=build_mechanism(request, table),
            n_repeats=request.repeats,
            test_fraction=request.test_fraction,
            n_draws=request.draws,
            level=request.level,
            schema=schema,
            random_state=request.seed,
            n_jobs=request.jobs,
            folder=request.output,
            callback=count,
        )
    hidden = comparison.settings["n_hidden"]
    reporter.show("hidden", hidden_words(hidden))
    if min(hidden) < FEW_CELLS:
        removed = "only 1 value was" if min(hidden) == 1 else f"as few as {min(hidden)} values were"
        text = f"{removed} removed, too few to distinguish good methods"
        reporter.note(Note(text, "harmful"))
    resumed = sum(record.resumed for record in done)
    if resumed:
        reporter.show("resumed", f"{resumed} of {n_runs} runs were finished before")
    return comparison


def hidden_words(hidden: Sequence[int]) -> str:
    """Return how many values were hidden in the repetitions.

    Examples
    --------
    >>> hidden_words([561]), hidden_words([560, 571])
    ('561 known values', '560 to 571 known values in each of 2 repetitions')
    """
    low, high = min(hidden), max(hidden)
    values = plural(low, "known value") if low == high else f"{low:,} to {high:,} known values"
    return values if len(hidden) == 1 else f"{values} in each of {len(hidden)} repetitions"


def _check(request: CompareRequest) -> None:
    fractions = {"--level": request.level, "--test-fraction": request.test_fraction, "--rate": request.rate}
    for name, value in fractions.items():
        if not 0 < value < 1:
            raise TableError(f"{name} must be between 0 and 1, got {value:g}")
    if request.jobs == 0:
        raise TableError("--jobs must not be 0; -1 means one per processor")
    if request.mechanism not in MECHANISMS:
        raise TableError(f"unknown mechanism {request.mechanism!r}; choose from {', '.join(MECHANISMS)}")
    check_report(request.report)
    if request.output is not None:
        folder = Path(request.output)
        if folder.exists() and not folder.is_dir():
            raise TableError(f"{request.output}: cannot write: this is a file, not a directory")
        nearest = next(place for place in (folder, *folder.resolve().parents) if place.exists())
        if not os.access(nearest, os.W_OK):
            raise TableError(f"{request.output}: cannot write: permission denied")
    folder = Path(request.output or "")
    results = {f"--output ({name})": str(folder / name) for name in RESULT_FILES if request.output}
    check_overwriting(
        {"IN": request.source, "--schema": request.schema},
        {"--report": request.report, **results},
        resumed=results if (folder / RUNS).is_dir() else (),
        overwrite=request.overwrite,
    )


def _read(request: CompareRequest, reporter: Reporter) -> tuple[Any, dict[str, Any] | None]:
    overrides = halfseen.Schema.read_overrides(request.schema) if request.schema is not None else None
    file = read_table(request.source, schema=overrides, **request.reading.to_arguments())
    table = file.table
    reporter.show("read", f"{file.source}: {shape_words(*table.shape)}")
    for note in file.notes:
        reporter.note(note)
    thinned = thin_rows(table, request)
    if thinned.num_rows < table.num_rows:
        reporter.note(
            f"{thinned.num_rows:,} of {table.num_rows:,} rows are used (a random subsample); "
            "--max-rows changes this"
        )
    return thinned, file.settings or None


def thin_rows(table: Any, request: CompareRequest) -> Any:
    """Return a random subsample of rows, in their order."""
    max_rows = request.max_rows or MAX_ROWS
    if table.num_rows <= max_rows:
        return table
    rows = np.random.default_rng(request.seed).permutation(table.num_rows)[:max_rows]
    return take_rows(table, np.sort(rows))


def print_comparison(summary: dict[str, Any]) -> None:
    """Print the table of a comparison on standard output."""
    terminal = Console(file=sys.stdout)
    console = terminal if terminal.is_terminal else Console(file=sys.stdout, width=_WIDE)
    for part in reversed(summary["parts"]):
        console.print(comparison_table(summary, part, narrow=console.width < 120))
    console.print(
        Text("* best mean   = statistically tied with the best (95% CI of the paired difference includes 0)"),
        soft_wrap=not console.is_terminal,
    )
    console.print(Text(f"Best on {PARTS[summary['main']]}:"))
    for score in summary["scores"]:
        console.print(
            Text(f"  {one_line(verdict(score))}"), soft_wrap=not console.is_terminal, highlight=False
        )
    for method in summary["methods"]:
        for error, times in method["errors"].items():
            what = "is not applicable" if method["n_skipped"] else f"failed in {times} of "
            what += "" if method["n_skipped"] else f"{summary['settings']['n_repeats']} repetitions"
            text = f"  {method['name']} {what}: {one_line(error)}"
            console.print(Text(text, style="red"), soft_wrap=not console.is_terminal)


def comparison_table(summary: dict[str, Any], part: str, *, narrow: bool = False) -> Table:
    """Return the table of one part: a line per method, a column per score, mean and half interval."""
    settings = summary["settings"]
    times = plural(settings["n_repeats"], "repetition")
    title = f"Removed values of {PARTS[part]}: mean and 95% CI over {times}"
    table = method_table(title, narrow)
    for score in summary["scores"]:
        near = f" {settings['level']:.0%}" if score["direction"] == "level" else ""
        table.add_column(f"{score['label']}{near} {ARROWS[score['direction']]}".strip(), justify="right")
    table.add_column("s" if narrow else "seconds", justify="right")
    table.add_column("failed" if narrow else "failures", justify="right")
    for place, method in enumerate(summary["methods"]):
        cells = [_cell(score, score["parts"][part][place], narrow) for score in summary["scores"]]
        took = "\N{EN DASH}" if method["seconds"] is None else f"{method['seconds']:.2f}"
        failed = "n/a" if method["n_skipped"] else f"{method['n_failed']}/{settings['n_repeats']}"
        table.add_row(
            method["name"], *cells, took, Text(failed, style="bold red" if method["n_failed"] else "")
        )
    return table


def _cell(score: dict[str, Any], one: dict[str, Any], narrow: bool) -> Text:
    style = "bold green" if one["best"] else ""
    mark = "*" if one["best"] else "=" if one["tied"] else ""
    text = Text(f"{mark}{show(score, one['mean'])}", style=style)
    if one["low"] is not None:
        half = show(score, (one["high"] - one["low"]) / 2).removesuffix("%")
        text.append(f"{chr(10) if narrow else ' '}\N{PLUS-MINUS SIGN}{half}", style="dim")
    return text


def _write(
    request: CompareRequest, reporter: Reporter, comparison: Comparison, summary: dict[str, Any]
) -> None:
    if request.output is not None:
        try:
            written = comparison.save(request.output)
        except OSError as error:
            raise TableError(f"{request.output}: cannot write: {(error.strerror or '').lower()}") from error
        reporter.show("wrote", ", ".join(str(path) for path in written))
    if request.report is not None:
        write_page(request.report, render_comparison(summary))
        reporter.show("report", request.report)
