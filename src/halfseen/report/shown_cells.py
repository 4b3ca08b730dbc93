"""The missing cells that the figures of a report show: all of them, or a random sample."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from halfseen.missingness.reading import takeable_type

MAX_SHOWN = 2_000
"""Missing cells of a column that its picture shows; more take time and hardly change the picture."""


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
