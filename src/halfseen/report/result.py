"""What a report is made of: how the command ran, an imputation, and the cells that figures show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from halfseen.data.frames import takeable_type

FILLED = {
    "good": "filled well",
    "fair": "filled roughly",
    "unclear": "not clearly better than {baseline}",
    "poor": "hardly better than {baseline}",
}
"""What reports and commands say of a column by how well its hidden known values are imputed."""
FILLABLE = {
    "good": f"can be {FILLED['good']}",
    "fair": f"can be {FILLED['fair']}",
    "poor": f"{FILLED['poor']}: better left empty",
    "unclear": f"{FILLED['unclear']}: better left empty",
}
"""What a report says of a column that need not be imputed."""

MAX_SHOWN = 2_000
"""Missing cells of a column that its picture shows; more take time and hardly change the picture."""


@dataclass(frozen=True)
class RunInfo:
    """What every report shows about the run that made it."""

    source: str = "table"  # the name of the file that was read
    command: str = ""  # the command line that repeats the run
    seconds: float = 0.0  # the time that it took
    notes: Sequence[str] = ()  # notices and warnings
    version: str = ""  # the version of halfseen

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as values that JSON can represent."""
        return {**vars(self), "seconds": float(self.seconds), "notes": list(self.notes)}


UNKNOWN_RUN = RunInfo()
"""For summaries that are made without a command."""


@dataclass(frozen=True)
class ShownCells:
    """Some rows of a table, and for each column which of them have a missing cell that is shown.

    A row that was chosen for one column is not shown for another: the cells of each column are a simple
    random sample of its missing cells.

    Shapes
    ------
    rows : (R), ascending.
    of_column : by name (R).
    """

    rows: npt.NDArray[np.int64]
    of_column: dict[str, npt.NDArray[np.bool_]]

    def take(self, table: pa.Table) -> pa.Table:
        """Return the rows of a table."""
        return table if len(self.rows) == table.num_rows else take_rows(table, self.rows)


def take_rows(table: pa.Table, rows: npt.NDArray[np.int64]) -> pa.Table:
    """Return some rows of a table; views of text and bytes become text and bytes."""
    fields = [field.with_type(takeable_type(field.type)) for field in table.schema]
    return table.cast(pa.schema(fields)).take(pa.array(rows))


KeptCells = Mapping[str, pa.Array]
"""By column: which cells are null in a table but not missing, such as placeholders."""


def missing_cells(table: pa.Table, name: str, kept: KeptCells | None = None) -> npt.NDArray[np.bool_]:
    """Return which cells of a column are missing: null, and not kept as they are written."""
    missing = np.asarray(pc.is_null(table[name], nan_is_null=True).to_numpy(), dtype=np.bool_)
    if kept is None or name not in kept:
        return missing
    return missing & ~kept[name].to_numpy(zero_copy_only=False)


def choose_cells(
    table: pa.Table,
    seed: int = 0,
    max_shown: int = MAX_SHOWN,
    max_rows: int | None = None,
    kept: KeptCells | None = None,
) -> ShownCells:
    """Return the missing cells to show, at most `max_shown` of each column and in at most `max_rows` rows."""
    order = np.random.default_rng(seed).permutation(table.num_rows)
    missing = {name: missing_cells(table, name, kept) for name in table.column_names}
    if max_rows is not None:
        incomplete = np.any(list(missing.values()), axis=0)
        order = order[incomplete[order]][:max_rows]
    chosen = {}
    for name, of_column in missing.items():
        chosen[name] = order[of_column[order]][:max_shown]  # one order for all: columns share rows
    rows = np.unique(np.concatenate([*chosen.values(), np.empty(0, dtype=np.int64)]))
    return ShownCells(rows, {name: np.isin(rows, some) for name, some in chosen.items()})


@dataclass(frozen=True)
class RowWeights:
    """The name of a column of weights, and the weights (N) of all rows of a table."""

    name: str
    values: np.ndarray


class ColumnLike(Protocol):
    """The attributes of a column that the report uses."""

    name: str
    kind: str
    dtype: str
    levels: tuple[Any, ...] | None
    reason: str


class SchemaLike(Protocol):
    """The attributes of a schema that the report uses."""

    @property
    def columns(self) -> Sequence[Any]:
        """The columns, in the order of the table."""


@dataclass(frozen=True, kw_only=True)
class ImputationResult:
    """An imputation and what is known of it, to be summarized.

    Attributes
    ----------
    table : pyarrow.Table
        The incomplete table.
    filled : pyarrow.Table
        The same table with the best single value in each missing cell.
    schema : Schema
        Has ``columns``, each with ``name``, ``kind``, ``dtype``, ``levels`` and ``reason``.
    draws : sequence of pyarrow.Table
        Completed tables drawn from the model; may be empty. Of the rows of `shown` only, if it is given.
    low, high : pyarrow.Table or None
        The ends of an interval per cell, equal to the cell where it was observed; of the same rows.
    shown : ShownCells, optional
        The missing cells that pictures show; all of them if it is not given.
    probabilities : mapping of str to array
        Per column of levels: the probability of the most probable level in each row, of the same rows.
    left : mapping of str to str
        The reason, for each column with missing cells that were left empty.
    kept : mapping of str to pyarrow.Array, optional
        Per column: cells that are null in `table` but not missing, such as placeholders.
    method : str
        The name of the method.
    seed : int or None
        The seed of the draws.
    level : float
        The level of the intervals.
    proper : bool
        Whether the draws include the uncertainty of the parameters.
    training_drift : dict, optional
        The missing rates compared with those of the training table, if a saved model was applied.
    structure : dict, optional
        The structure of a circuit, made by `halfseen.report.render.summarize_structure`.
    check : mapping, optional
        The outcome of a check on hidden known values: the dict of a `FillCheck`.
    reason : str
        Why the methods were chosen, if they were chosen on the table.
    time_limit_met : bool
        Whether a time limit ended the fit, so that values depend on the speed of the computer.
    weights : RowWeights, optional
        The weights of the rows in means and standard deviations.
    run : RunInfo
        How the report was made.
    """

    table: pa.Table
    filled: pa.Table
    schema: SchemaLike
    draws: Sequence[pa.Table] = ()
    low: pa.Table | None = None
    high: pa.Table | None = None
    shown: ShownCells | None = None
    probabilities: Mapping[str, np.ndarray] = field(default_factory=dict)
    left: Mapping[str, str] = field(default_factory=dict)
    kept: KeptCells | None = None
    method: str = ""
    seed: int | None = None
    level: float = 0.9
    proper: bool = False
    training_drift: dict[str, Any] | None = None
    structure: dict[str, Any] | None = None
    check: Mapping[str, Any] | None = None
    reason: str = ""
    time_limit_met: bool = False
    weights: RowWeights | None = None
    run: RunInfo = UNKNOWN_RUN
