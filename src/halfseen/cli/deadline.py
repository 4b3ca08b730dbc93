"""The time of ``halfseen impute`` with the method auto: how much of it fitting and the report may take."""

import math
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

REPORT_SHARE = 0.25
"""The part of the time that is kept for the pictures of a report."""

SMALLEST_SHARE = 0.2
"""The part of the time that fitting has in any case, however long it took to read the file."""

TRIED_ROWS = 50
"""Rows that are drawn to see how long it takes; so many are shown in any case."""


class Deadline:
    """The end of a time that begins now.

    Parameters
    ----------
    seconds : float
        The time; infinite for methods that are not limited.
    clock : callable
        Returns the current time in seconds.
    """

    def __init__(self, seconds: float = math.inf, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds = seconds
        self.clock = clock
        self.started = clock()

    @property
    def elapsed(self) -> float:
        """The seconds since the beginning."""
        return self.clock() - self.started

    @property
    def left(self) -> float:
        """The seconds that are left, at least 0."""
        return max(0.0, self.seconds - self.elapsed)

    def of_fit(self, *, report: bool) -> float:
        """Return the seconds for fitting and imputing: writing is expected to take as long as reading did."""
        left = self.left - self.elapsed
        return max(left * (1 - REPORT_SHARE if report else 1.0), SMALLEST_SHARE * self.seconds)


def choose_shown(table: pa.Table, ask: Callable[[pa.Table], Any], deadline: Deadline, seed: int = 0) -> Any:
    """Return the cells that a report shows, so few that asking a model for them ends in time.

    Parameters
    ----------
    table : pyarrow.Table
        The incomplete table.
    ask : callable
        Asks the model for everything that the report shows of some rows.
    deadline : Deadline
        The end of the time. Half of what is left may be used.
    seed : int
        The seed of which cells are shown.

    Returns
    -------
    ShownCells
    """
    from halfseen.report.shown_cells import choose_cells, take_rows

    shown = choose_cells(table, seed)
    if math.isinf(deadline.seconds) or len(shown.rows) <= TRIED_ROWS:
        return shown
    before = deadline.clock()
    ask(take_rows(table, shown.rows[:TRIED_ROWS]))
    expected = (deadline.clock() - before) / TRIED_ROWS * len(shown.rows)
    if expected <= deadline.left / 2:
        return shown
    n_rows = int(len(shown.rows) * deadline.left / 2 / expected)
    return choose_cells(table, seed, max_rows=max(TRIED_ROWS, n_rows))
