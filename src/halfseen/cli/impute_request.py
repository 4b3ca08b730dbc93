"""What ``halfseen impute`` was asked for: the request, its imputer, and the settings of columns."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

import halfseen
from halfseen.base.catalogue import find_method
from halfseen.cli.methods import DEFAULT_METHOD, build, offered
from halfseen.cli.row_weights import with_weights
from halfseen.errors import TableError
from halfseen.training.time_limit import TimeBudget


@dataclass(frozen=True)
class ImputeRequest:
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
    weights: str | None = None
    skip_rules: bool = True
    leave_unreliable: bool = False
    command: str = ""
    saved: str | None = None
    new_seed: bool = False

    def for_check(self, method: str) -> "ImputeRequest":
        """Return the request for the imputer that fills hidden values: a single table, by this method."""
        return replace(self, method=method, draws=None, checkpoint=None)

    @property
    def named_method(self) -> str:
        """The method, with its assumption about missingness if that is not the method's default."""
        assumed = self.missingness or offered(self.method)[0]
        return self.method if assumed == offered(self.method)[0] else f"{self.method}:{assumed}"

    @property
    def draws_parameter(self) -> str | None:
        """The parameter that makes draws proper for multiple imputation, if the method has one."""
        return find_method(self.method).draws_parameter if self.named_method == self.method else None


def build_imputer(
    request: ImputeRequest, overrides: dict[str, Any] | None, callback: Callable[[Any], None]
) -> Any:
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


def read_overrides(request: ImputeRequest) -> dict[str, Any] | None:
    """Return the settings of columns, from the schema file and from options that concern every column."""
    overrides = halfseen.Schema.read_overrides(request.schema) if request.schema is not None else {}
    for text in request.derived:
        name, formula = parse_derived(text)
        overrides[name] = (dict(overrides.get(name, {})) if name in overrides else {}) | {"derived": formula}
    overrides = with_weights(overrides, request.weights)
    every = {"fill": True} if request.fill_all else {}
    every |= {} if request.skip_rules else {"skip": False}
    return (overrides | {"*": every | overrides.get("*", {})} if every else overrides) or None


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
