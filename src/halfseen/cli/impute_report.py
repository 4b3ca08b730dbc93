"""What ``halfseen impute`` reports: a page with what was filled, and how well."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import halfseen
from halfseen._machine import give_back_memory
from halfseen.cli.applying import NewRows
from halfseen.cli.progress import Reporter
from halfseen.cli.requests import CompareRequest, ImputeRequest
from halfseen.data.skip_rules import why_empty
from halfseen.files.tables import TableFile
from halfseen.report.result import ImputationResult, RowWeights, choose_cells, take_rows
from halfseen.training.progress import TimeBudget

EVALUATED_ROWS, EVALUATED_RATE, EVALUATION_REPEATS = 1000, 0.1, 3
"""The self-evaluation of a report: rows that take part, the share of cells hidden, and how often."""

REPORT_DRAWS = 20
"""Draws behind the bands of a report when none were asked for; a quarter of them for a large table."""

_LARGE = 5_000_000

TRIED_ROWS = 50
"""Rows that are drawn to measure the time; at least this many are shown."""


@dataclass(frozen=True)
class Work:
    """A fitted imputer, the file, the table that it imputes, and how new rows match a saved model."""

    imputer: Any
    file: TableFile
    table: pa.Table
    method: str
    proper: bool
    rows: NewRows | None = None
    weights: RowWeights | None = None
    check: Any = None  # of how well hidden known values are filled, if the imputer was fitted to the table

    @property
    def kept(self) -> dict[str, pa.Array]:
        """The cells of the table that are kept and that no model sees; see `TableFile`."""
        return self.file.kept if self.rows is None else self.rows.kept


def make_page(
    request: ImputeRequest,
    reporter: Reporter,
    work: Work,
    completed: Sequence[pa.Table],
    budget: TimeBudget,
) -> str:
    """Return the report; its packages are imported here, because they are optional."""
    from halfseen.report.render import render
    from halfseen.report.summarize import summarize

    imputer, table = work.imputer, work.table
    with reporter.progress("drawing", "draws and intervals for the report"):
        shown, answers = _ask_for_pictures(request, work, budget)
        filled, draws = completed[0], answers.draws
        if request.draws is not None:
            filled, draws = imputer.transform(table), [shown.take(one) for one in completed]
    give_back_memory()
    check = work.check
    compared = imputer.capabilities.compares_methods
    summary = summarize(
        ImputationResult(
            table=table, filled=filled, schema=imputer.schema_, draws=draws, low=answers.low,
            high=answers.high, shown=shown, probabilities=answers.probabilities,
            left=why_empty(imputer.schema_.columns), kept=work.kept, method=work.method,
            seed=imputer.seed_, level=request.level, proper=work.proper,
            training_drift=None if work.rows is None else work.rows.drift.to_dict(),
            structure=_structure(imputer), check=None if check is None else check.to_dict(),
            reason=imputer.reason_ if compared else "",
            time_limit_met=compared and imputer.time_limit_met_, weights=work.weights,
            run=reporter.run_info(work.file.source),
        )
    )  # fmt: skip
    if not request.evaluate:
        return render(summary)
    comparison, panel = _evaluate(request, reporter, work.file)
    return render(summary, comparison, panel)


@dataclass(frozen=True)
class _Pictured:
    """What the pictures of a report show of some rows: draws, ends of intervals, probabilities of levels."""

    draws: Sequence[pa.Table]
    low: pa.Table
    high: pa.Table
    probabilities: Mapping[str, Any]


def _ask_for_pictures(request: ImputeRequest, work: Work, budget: TimeBudget) -> tuple[Any, _Pictured]:
    """Return the shown cells (a sample of a large table), and the answers of the imputer for their rows."""
    imputer, table = work.imputer, work.table

    def ask(some: pa.Table) -> _Pictured:
        n_draws = REPORT_DRAWS if some.num_rows * some.num_columns <= _LARGE else REPORT_DRAWS // 4
        draws = imputer.sample(some, n_draws=n_draws) if request.draws is None else ()
        low, high = imputer.interval(some, level=request.level)
        return _Pictured(draws, low, high, imputer.top_probabilities(some))

    shown = choose_shown(table, ask, budget, request.seed, work.kept)
    return shown, ask(shown.take(table))


def _structure(imputer: Any) -> dict[str, Any] | None:
    """Return the structure of a circuit for the report; None of other imputers."""
    from halfseen.report.render import summarize_structure

    if not isinstance(imputer, halfseen.CircuitImputer) or imputer.structure_ is None:
        return None
    return summarize_structure(
        imputer.structure_, [column.name for column in imputer.schema_ if column.modelled]
    )


def _evaluate(request: ImputeRequest, reporter: Reporter, file: TableFile) -> tuple[dict[str, Any], Any]:
    """Compare the method with simple ones on hidden cells of at most EVALUATED_ROWS rows."""
    from halfseen.cli.compare import run_comparison, thin_rows
    from halfseen.report.compare import render_scores, summarize_comparison

    methods = tuple(dict.fromkeys((request.named_method, "mean", "median", "iterative")))
    asked = CompareRequest(
        source=request.source, rate=EVALUATED_RATE, repeats=EVALUATION_REPEATS, seed=request.seed,
        level=request.level, max_rows=EVALUATED_ROWS,
    )  # fmt: skip
    part = thin_rows(file.table, asked)
    comparison = run_comparison(asked, methods, part, file.settings or None, reporter)
    summary = summarize_comparison(comparison)
    summary |= {"n_rows": part.num_rows}
    return summary, render_scores(summary)


def choose_shown(
    table: pa.Table,
    ask: Callable[[pa.Table], Any],
    budget: TimeBudget,
    seed: int = 0,
    kept: Mapping[str, pa.Array] | None = None,
) -> Any:
    """Return the cells that a report shows, so few that asking a model for them ends in time.

    Parameters
    ----------
    table : pyarrow.Table
        The incomplete table.
    ask : callable
        Asks the model for everything that the report shows of some rows.
    budget : TimeBudget
        The time of the command. Half of what is left may be used.
    seed : int
        The seed of which cells are shown.
    kept : mapping of str to pyarrow.Array, optional
        Per column: cells that are null in the table but not missing.

    Returns
    -------
    ShownCells
    """
    shown = choose_cells(table, seed, kept=kept)
    if math.isinf(budget.seconds) or len(shown.rows) <= TRIED_ROWS:
        return shown
    before = budget.clock()
    ask(take_rows(table, shown.rows[:TRIED_ROWS]))
    expected = (budget.clock() - before) / TRIED_ROWS * len(shown.rows)
    if expected <= budget.left / 2:
        return shown
    n_rows = int(len(shown.rows) * budget.left / 2 / expected)
    return choose_cells(table, seed, max_rows=max(TRIED_ROWS, n_rows), kept=kept)
