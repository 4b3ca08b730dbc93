"""The verdict of ``halfseen impute`` on what it fills, and the columns that are left empty by it."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from halfseen.base.catalogue import find_method
from halfseen.cli.impute_request import ImputeRequest, build_imputer
from halfseen.cli.progress import Reporter
from halfseen.data.frames import Table
from halfseen.data.reliability import MIN_CELLS, SOME_SKILL, ColumnCheck, Grade
from halfseen.data.skip_rules import never_filled
from halfseen.words import names_words

MAX_COLUMNS = 2_000
"""Wider tables are not checked: fewer than 200 rows would say little, and more would take long."""

AT_CHANCE = ("binary",)
"""Kinds that are left empty by default if they are filled no better than by the most frequent level."""

CLASSES: dict[Grade, str] = {"good": "reliable", "fair": "weak", "poor": "no better than chance"}
_SHOWN = 6


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
    from halfseen.cli.known_values import CHECKED, check_known_values
    from halfseen.report.fill_check import MOST_HIDDEN, check_hidden

    columns = imputer.schema_.columns
    empty = never_filled(columns, Table(table))
    filled = [one for one in columns if one.kind in CHECKED and one.left is None and one.name not in empty]
    incomplete = [column.name for column in filled if table[column.name].null_count]
    most_known = max((table.num_rows - table[name].null_count for name in incomplete), default=0)
    if MOST_HIDDEN * most_known < MIN_CELLS or table.num_columns > MAX_COLUMNS:
        return None
    hidden = getattr(imputer, "hidden_cells_", None)
    if new and hidden is not None and hidden.n_rows:
        return check_hidden(hidden, incomplete, level=request.level)
    method = "gaussian" if request.method == "auto" else request.method  # auto without a choice is Gaussian
    again = new and find_method(method).steps != "epoch"

    def build(settings: dict[str, Any]) -> Any:
        return build_imputer(request.for_check(method), settings or None, _ignore)

    with reporter.progress("checking", "hidden known values"):
        return check_known_values(
            table, filled, build if again else None, imputer, settings=settings, seed=request.seed,
            level=request.level, intervals=request.report is not None,
        )  # fmt: skip


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
    """Print a line for each class of columns, the least reliable columns of a class first."""
    for grade, label in CLASSES.items():
        members = sorted((one for one in checks if one.grade == grade), key=lambda one: one.skill)
        if members:
            names = names_words([f"{one.name} ({_brief(one)})" for one in members], _SHOWN)
            reporter.show("verdict", f"{label}: {names}", "yellow" if grade == "poor" else "bold")


def _brief(check: ColumnCheck) -> str:
    """Return the measure of a column and, after it, that of the mean or the most frequent level."""
    if check.measure == "error":
        return f"error {check.value:.2f} against {check.baseline:.2f} sd"
    return f"{check.value:.0%} correct against {check.baseline:.0%}"


def _ignore(step: Any) -> None:
    """Take no notice of a step of fitting."""
