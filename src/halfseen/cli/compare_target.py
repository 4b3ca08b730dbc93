"""The steps of ``halfseen compare --target``: read, cross-validate predictors, print, write."""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

from halfseen._files import plain_json
from halfseen.cli.errors import one_line
from halfseen.cli.predictors import BASELINE, COMPARED, build_compared, treatments
from halfseen.cli.progress import Reporter, Step
from halfseen.data.target import Target
from halfseen.errors import TableError
from halfseen.evaluation.averaging import AVERAGE
from halfseen.evaluation.coded import CodedTable
from halfseen.evaluation.prediction import PredictionRecord
from halfseen.evaluation.prediction_result import PredictionComparison
from halfseen.evaluation.repetitions import MAX_REPEATS, compare_predictors
from halfseen.files.atomic import check_apart, check_report, check_writable, write_atomically, write_page
from halfseen.report.prediction import show_score, summarize_prediction
from halfseen.report.run_info import RunInfo
from halfseen.report.shown_cells import take_rows

RATES = (0.0, 0.1, 0.3, 0.5)
"""Shares of the known values of test rows that are removed before predicting."""

_WIDE = 140


@dataclass(frozen=True)
class CompareTargetRequest:
    """What a user asked for; see ``halfseen compare --help``."""

    source: str
    target: str
    methods: tuple[str, ...] = tuple(COMPARED)
    task: str = "auto"
    n_splits: int = 5
    max_repeats: int = MAX_REPEATS
    rates: tuple[float, ...] = RATES
    budget: float = 300.0
    max_rows: int = 5_000
    seed: int = 0
    output: str | None = None
    report: str | None = None
    schema: str | None = None
    command: str = ""
    reading: dict[str, Any] = field(default_factory=dict)


def run_compare_target(request: CompareTargetRequest, reporter: Reporter) -> PredictionComparison:
    """Compare predictors of a column of a table file; print the result, write what was asked for.

    Parameters
    ----------
    request : CompareTargetRequest
        The table, the target, the methods, and the output.
    reporter : Reporter
        The reporter of progress.
    """
    from halfseen.cli.fit import read_training

    _check(request)
    with reporter.noting_warnings():
        training = read_training(
            request.source, request.target, request.task, reporter, request.schema, **request.reading
        )
        comparison = compare_on(
            training.inputs, training.target, request.methods, reporter,
            settings=training.settings, budget=request.budget - reporter.elapsed,
            max_rows=request.max_rows, seed=request.seed, n_splits=request.n_splits,
            max_repeats=request.max_repeats, rates=request.rates,
        )  # fmt: skip
    summary = describe_comparison(
        comparison, training.inputs, training.target,
        reporter.run_info(training.file.source, request.command), budget=request.budget,
    )  # fmt: skip
    if not reporter.quiet:
        print_prediction(summary)
    _write(request, reporter, summary)
    reporter.done()
    return comparison


def compare_on(
    inputs: pa.Table,
    target: Target,
    names: Sequence[str],
    reporter: Reporter,
    *,
    settings: dict[str, Any] | None,
    budget: float,
    max_rows: int,
    seed: int,
    n_splits: int = 5,
    max_repeats: int = MAX_REPEATS,
    rates: Sequence[float] = (0.0,),
) -> PredictionComparison:
    """Cross-validate predictors of a target that is known in all rows, and their average if it is named."""
    if inputs.num_rows > max_rows:
        rows = np.sort(np.random.default_rng(seed).permutation(inputs.num_rows)[:max_rows])
        reporter.note(f"{max_rows:,} of {inputs.num_rows:,} rows are compared (a random subsample)")
        inputs = take_rows(inputs, rows)
        target = Target(target.name, target.task, target.values[rows], target.known[rows], target.reason)
    table = CodedTable.read(inputs, settings)
    single = [name for name in names if name != AVERAGE]
    averaged = [name for name in single if name != BASELINE] if AVERAGE in names else []
    n_runs, done = len(single) * n_splits, 0
    with reporter.progress("running", f"{n_splits} folds of {', '.join(names)}", "run") as move:

        def count(record: PredictionRecord) -> None:
            nonlocal done
            done += 1
            move(Step(done, n_runs * (1 + record.fold // n_splits)))

        return compare_predictors(
            table, target, build_compared(single, target.task), n_splits=n_splits, rates=rates,
            budget=budget, max_repeats=max_repeats, averaged=averaged, random_state=seed, callback=count,
        )  # fmt: skip


def describe_comparison(
    comparison: PredictionComparison,
    inputs: pa.Table,
    target: Target,
    run: RunInfo,
    *,
    budget: float = math.inf,
) -> dict[str, Any]:
    """Return the summary of a comparison for the terminal and the report."""
    return summarize_prediction(
        comparison,
        target=target.name,
        classes=target.classes,
        shape=inputs.shape,
        n_missing=sum(column.null_count for column in inputs.columns),
        treatments=treatments(comparison.methods),
        descriptions={name: COMPARED[name].description for name in comparison.methods},
        budget=budget,
        run=run,
    )


def _check(request: CompareTargetRequest) -> None:
    wrong = [rate for rate in request.rates if not 0 <= rate < 1]
    if wrong:
        raise TableError(f"--rates must be at least 0 and below 1, got {wrong[0]:g}")
    if request.budget <= 0:
        raise TableError(f"--budget must be positive, got {request.budget:g}")
    check_report(request.report)
    if request.output is not None:
        check_writable(request.output)
    check_apart(
        {"IN": request.source, "--schema": request.schema},
        {"--report": request.report, "--output": request.output},
    )


def print_prediction(summary: dict[str, Any]) -> None:
    """Print the table of a comparison of predictors, then what it means, on standard output."""
    terminal = Console(file=sys.stdout)
    console = terminal if terminal.is_terminal else Console(file=sys.stdout, width=_WIDE)
    console.print(prediction_table(summary))
    console.print(
        Text("* best mean   = statistically tied with the best (95% CI of the paired difference includes 0)"),
        soft_wrap=True,
    )
    for sentence in summary["sentences"]:
        console.print(Text(one_line(sentence)), soft_wrap=True, highlight=False)
    stopped = [method["name"] for method in summary["methods"] if method["n_stopped"]]
    if stopped:
        text = f"Out of time before all folds: {', '.join(stopped)}; --budget gives more."
        console.print(Text(text, style="yellow"), soft_wrap=True)
    for method in summary["methods"]:
        for error, times in method["errors"].items():
            text = f"  {method['name']} failed in {times} of {method['n_folds']} folds: {one_line(error)}"
            console.print(Text(text, style="red"), soft_wrap=True)


def prediction_table(summary: dict[str, Any]) -> Table:
    """Return the table: a line per method, the scores, the main score with more values missing, the cost."""
    main = next((score for score in summary["scores"] if score["main"]), None)
    title = f"Predicting {one_line(summary['target'])} ({summary['task']})"
    times = f"{summary['n_repeats']} repetitions of " if summary["n_repeats"] > 1 else ""
    title += f": mean and 95% CI over {times}{summary['n_splits']} folds"
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    table.add_column("method", no_wrap=True)
    for score in summary["scores"]:
        table.add_column(score["label"], justify="right", no_wrap=True)
    later = summary["rates"][1:]
    for rate in later:
        table.add_column(f"{rate:.0%} removed", justify="right")
    for label in ("s", "MiB", "folds"):
        table.add_column(label, justify="right")
    for method in summary["methods"]:
        cells = [_cell(method, score) for score in summary["scores"]]
        cells += [
            Text(show_score(main["name"] if main else "", one["mean"])) for one in method["by_rate"][1:]
        ]
        seconds, memory = method["fit_seconds"], method["mebibytes"]
        cost = ["\N{EN DASH}" if seconds is None else f"{seconds:.2f}"]
        cost.append("\N{EN DASH}" if memory is None else f"{memory:.0f}")
        folds = f"{method['n_done']}/{method['n_folds']}"
        folds += f", {method['n_failed']} failed" if method["n_failed"] else ""
        style = "bold red" if method["n_failed"] else ""
        table.add_row(method["name"], *cells, *cost, Text(folds, style=style))
    return table


def _cell(method: dict[str, Any], score: dict[str, Any]) -> Text:
    one = method["scores"][score["name"]]
    mark = "*" if method["best"] else "=" if method["tied"] else ""
    text = Text(f"{mark if score['main'] else ''}{show_score(score['name'], one['mean'])}")
    if score["main"] and method["best"]:
        text.stylize("bold green")
    if score["main"] and one["low"] is not None:
        text.append(f" \N{PLUS-MINUS SIGN}{(one['high'] - one['low']) / 2:.3f}", style="dim")
    return text


def _write(request: CompareTargetRequest, reporter: Reporter, summary: dict[str, Any]) -> None:
    if request.output is not None:
        with write_atomically(request.output) as file:
            file.write(json.dumps(plain_json(summary), indent=1, allow_nan=False).encode())
        reporter.show("wrote", request.output)
    if request.report is not None:
        from halfseen.report.prediction import render_prediction

        write_page(request.report, render_prediction(summary))
        reporter.show("report", request.report)
