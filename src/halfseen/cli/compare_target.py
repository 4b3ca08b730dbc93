"""``halfseen compare --target``: the predictors that commands accept by name, and their cross-validation."""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text
from sklearn.dummy import DummyClassifier, DummyRegressor

from halfseen._machine import plain_json
from halfseen.base.catalogue import N_DRAWS, build_named, catalogue_name, find_method
from halfseen.cli.main import one_line
from halfseen.cli.options import COMPARED_PREDICTORS, Predictor, parse_rates
from halfseen.cli.progress import Reporter, Step, method_table
from halfseen.cli.requests import CompareRequest
from halfseen.cli.sources import expand
from halfseen.errors import TableError
from halfseen.evaluation.candidates import CodedTable
from halfseen.evaluation.prediction import PredictionRecord, Target, Task
from halfseen.evaluation.prediction_result import AVERAGE, PredictionComparison, Treatment
from halfseen.evaluation.repetitions import MAX_REPEATS, compare_predictors
from halfseen.files.writing import (
    check_overwriting,
    check_report,
    check_writable,
    write_atomically,
    write_page,
)
from halfseen.report.compare import show_score, summarize_prediction
from halfseen.report.result import RunInfo, take_rows
from halfseen.words import similar_words

_KINDS: dict[Task, str] = {"classification": "classifier", "regression": "regressor"}


BASELINE = "baseline"
"""The method that ignores the inputs; it is no part of an average."""

SAVED = tuple(one.value for one in Predictor if one not in (Predictor.auto, Predictor.average))
"""The single predictors, all of which can be saved."""


@dataclass(frozen=True)
class Entry:
    """A method of a comparison: what it does with missing values, and in words."""

    treatment: Treatment
    description: str


_ENTRIES = {
    BASELINE: Entry(Treatment.BASELINE, "the mean, or the shares of the classes, whatever the inputs"),
    "constant+linear": Entry(Treatment.CONSTANT, "column means and missingness indicators, linear model"),
    "boosting": Entry(Treatment.NONE, "boosted trees in which missing values are a branch"),
    "constant+boosting": Entry(Treatment.CONSTANT, "column means and missingness indicators, boosted trees"),
    "gaussian+linear": Entry(Treatment.IMPUTED, "Gaussian imputation and indicators, linear model"),
    "gaussian+boosting": Entry(Treatment.IMPUTED, "Gaussian imputation and indicators, boosted trees"),
    "multiple+linear": Entry(
        Treatment.IMPUTED, f"{N_DRAWS} Gaussian draws, a linear model for each, predictions averaged"
    ),
    "multiple+boosting": Entry(
        Treatment.IMPUTED, f"{N_DRAWS} Gaussian draws, boosted trees for each, predictions averaged"
    ),
    "sparsity-norm": Entry(Treatment.NONE, "a network with rows normalised by their known values"),
    "neumiss": Entry(Treatment.NONE, "a Gaussian prediction for each pattern, corrected by networks"),
    "circuit": Entry(Treatment.NONE, "a probabilistic circuit, exact for each pattern"),
    AVERAGE: Entry(
        Treatment.AVERAGE, "a weighted average of the predictions of the other methods, except the baseline"
    ),
}
COMPARED = {name: _ENTRIES[name] for name in COMPARED_PREDICTORS}
"""What ``halfseen compare --target`` compares, in the order of its runs."""


def build_predictor(name: str, task: Task, **settings: Any) -> Any:
    """Return a predictor by its name.

    Examples
    --------
    >>> build_predictor("boosting", "regression", random_state=0)
    BoostingRegressor(random_state=0)
    """
    return build_named(name, _KINDS[task], **settings)


def unit_of_progress(name: str, task: Task) -> str | None:
    """Return what a predictor counts while it is fitted; None if it is fitted in one step."""
    return find_method(catalogue_name(name, _KINDS[task])).steps


def build_compared(names: Sequence[str], task: Task) -> dict[str, Any]:
    """Return the methods of a comparison."""
    return {name: _build(name, task) for name in names}


def treatments(names: Sequence[str]) -> Mapping[str, Treatment]:
    """Return what each method does with missing values."""
    return {name: COMPARED[name].treatment for name in names}


def parse_predictors(text: str) -> tuple[str, ...]:
    """Return the names in a list with commas; raise an error if one is unknown."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in COMPARED]
    if unknown or not names:
        what = f"unknown method {unknown[0]!r}" if unknown else "--methods is empty"
        similar = similar_words(COMPARED, unknown[0]) if unknown else ""
        raise TableError(f"{what}; with --target choose from {', '.join(COMPARED)}{similar}")
    if AVERAGE in names and len([name for name in names if name not in (AVERAGE, BASELINE)]) < 2:
        raise TableError(f"--methods has {AVERAGE}, which needs at least two methods to average")
    return names


def _build(name: str, task: Task) -> Any:
    if name != BASELINE:
        return build_predictor(name, task)
    return DummyRegressor() if task == "regression" else DummyClassifier(strategy="prior")


MAX_ROWS = 5_000
"""Longer tables are subsampled to this many rows, unless --max-rows says otherwise."""

_WIDE = 140

_BROAD = 120  # a terminal that holds all columns of the table with blanks between them


def run_compare_target(request: CompareRequest, reporter: Reporter) -> PredictionComparison:
    """Compare predictors of a column of a table file; print the result, write what was asked for."""
    from halfseen.cli.fit import read_training

    assert request.target is not None
    methods = COMPARED_PREDICTORS if request.methods is None else parse_predictors(request.methods)
    rates = parse_rates(request.rates)
    _check(request, rates)
    with reporter.noting_warnings():
        training = read_training(
            request.source, request.target, request.task, reporter, request.schema,
            **request.reading.to_arguments(),
        )  # fmt: skip
        comparison = compare_on(
            training.inputs, training.target, methods, reporter,
            settings=training.settings, budget=request.budget - reporter.elapsed,
            max_rows=request.max_rows or MAX_ROWS, seed=request.seed, n_splits=request.folds,
            max_repeats=request.repeats, rates=rates,
        )  # fmt: skip
    summary = describe_comparison(
        comparison, training.inputs, training.target,
        reporter.run_info(training.file.source), budget=request.budget,
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
    staged: bool = False,
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
            budget=budget, max_repeats=max_repeats, averaged=averaged, staged=staged,
            random_state=seed, callback=count,
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


def _check(request: CompareRequest, rates: Sequence[float]) -> None:
    wrong = [rate for rate in rates if not 0 <= rate < 1]
    if wrong:
        raise TableError(f"--rates must be at least 0 and below 1, got {wrong[0]:g}")
    if request.budget <= 0:
        raise TableError(f"--budget must be positive, got {request.budget:g}")
    check_report(request.report)
    if request.output is not None:
        check_writable(request.output)
    check_overwriting(
        {"IN": expand(request.source), "--schema": request.schema},
        {"--report": request.report, "--output": request.output},
        overwrite=request.overwrite,
    )


def print_prediction(summary: dict[str, Any]) -> None:
    """Print the table of a comparison of predictors, then what it means, on standard output."""
    terminal = Console(file=sys.stdout)
    console = terminal if terminal.is_terminal else Console(file=sys.stdout, width=_WIDE)
    console.print(prediction_table(summary, narrow=console.width < _BROAD))
    console.print(
        Text("* best mean   = statistically tied with the best (95% CI of the paired difference includes 0)"),
        soft_wrap=not console.is_terminal,
    )
    for sentence in summary["sentences"]:
        console.print(Text(one_line(sentence)), soft_wrap=not console.is_terminal, highlight=False)
    stopped = [method["name"] for method in summary["methods"] if method["n_stopped"]]
    if stopped:
        text = f"Out of time before all folds: {', '.join(stopped)}; --budget gives more."
        console.print(Text(text, style="yellow"), soft_wrap=not console.is_terminal)
    for method in summary["methods"]:
        for error, times in method["errors"].items():
            text = f"  {method['name']} failed in {times} of {method['n_folds']} folds: {one_line(error)}"
            console.print(Text(text, style="red"), soft_wrap=not console.is_terminal)


def prediction_table(summary: dict[str, Any], *, narrow: bool = False) -> Table:
    """Return the table: a line per method, the scores, the main score with more values missing, the cost.

    A narrow one has no column of memory, and none of folds if all were finished.
    """
    main = next((score for score in summary["scores"] if score["main"]), None)
    title = f"Predicting {one_line(summary['target'])} ({summary['task']})"
    times = f"{summary['n_repeats']} repetitions of " if summary["n_repeats"] > 1 else ""
    title += f": mean and 95% CI over {times}{summary['n_splits']} folds"
    table = method_table(title, narrow)
    for score in summary["scores"]:
        table.add_column(score["label"], justify="right", no_wrap=True)
    later = summary["rates"][1:]
    for rate in later:
        table.add_column(f"{rate:.0%} removed", justify="right")
    unfinished = any(method["n_done"] < method["n_folds"] for method in summary["methods"])
    costs = ["s", *([] if narrow else ["MiB"]), *(["folds"] if unfinished or not narrow else [])]
    for label in costs:
        table.add_column(label, justify="right")
    for method in summary["methods"]:
        cells = [_cell(method, score, summary["methods"][0], narrow) for score in summary["scores"]]
        cells += [
            Text(show_score(main["name"] if main else "", one["mean"])) for one in method["by_rate"][1:]
        ]
        table.add_row(method["name"], *cells, *(_cost(method)[label] for label in costs))
    return table


def _cost(method: dict[str, Any]) -> dict[str, Text]:
    seconds, memory = method["fit_seconds"], method["mebibytes"]
    folds = f"{method['n_done']}/{method['n_folds']}"
    folds += f", {method['n_failed']} failed" if method["n_failed"] else ""
    return {
        "s": Text("\N{EN DASH}" if seconds is None else f"{seconds:.2f}"),
        "MiB": Text("\N{EN DASH}" if memory is None else f"{memory:.0f}"),
        "folds": Text(folds, style="bold red" if method["n_failed"] else ""),
    }


def _cell(method: dict[str, Any], score: dict[str, Any], best: dict[str, Any], narrow: bool) -> Text:
    scale = best["scores"][score["name"]]["mean"]
    one = method["scores"][score["name"]]
    mark = "*" if method["best"] else "=" if method["tied"] else ""
    text = Text(f"{mark if score['main'] else ''}{show_score(score['name'], one['mean'], scale)}")
    if score["main"] and method["best"]:
        text.stylize("bold green")
    if score["main"] and one["low"] is not None:
        half = f"{(one['high'] - one['low']) / 2:.3f}"
        text.append(f"{chr(10) if narrow else ' '}\N{PLUS-MINUS SIGN}{half}", style="dim")
    return text


def _write(request: CompareRequest, reporter: Reporter, summary: dict[str, Any]) -> None:
    if request.output is not None:
        with write_atomically(request.output) as file:
            file.write(json.dumps(plain_json(summary), indent=1, allow_nan=False).encode())
        reporter.show("wrote", request.output)
    if request.report is not None:
        from halfseen.report.compare import render_prediction

        write_page(request.report, render_prediction(summary))
        reporter.show("report", request.report)
