"""The time of ``halfseen impute`` with the method auto: how much of it fitting and the report may take."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from halfseen.training.time_limit import TimeBudget

REPORT_SHARE = 0.25
"""The part of the time that is kept for the pictures of a report."""

SMALLEST_SHARE = 0.2
"""The part of the time that fitting has in any case, however long it took to read the file."""

TRIED_ROWS = 50
"""Rows that are drawn to measure the time; at least this many are shown."""


def seconds_for_fit(budget: TimeBudget, *, report: bool) -> float:
    """Return the seconds for fitting and imputing; writing is expected to take as long as reading did."""
    left = budget.left - budget.elapsed
    return max(left * (1 - REPORT_SHARE if report else 1.0), SMALLEST_SHARE * budget.seconds)


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
    from halfseen.report.shown_cells import choose_cells, take_rows

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
