"""Tables for diagnosis: numeric codes, and which values are observed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halfseen.data.codes import Bools, infer_codes, open_table
from halfseen.data.frames import Floats, Table
from halfseen.data.schema import Column

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Cells:
    """The columns of a table as numeric codes, with the mask.

    Shapes
    ------
    x : (N, P), codes; 0 where not observed and in columns that are constant, empty or identifiers.
    observed : (N, P), True where a cell is not missing.
    known : (N, P), True where the table has a value; a placeholder such as 999 is neither missing nor known.

    Examples
    --------
    >>> cells = Cells.read(np.array([[1.0, np.nan], [2.0, 5.0], [4.0, 7.0]]))
    >>> cells.names, cells.observed.sum(axis=0).tolist()
    (('x0', 'x1'), [3, 2])
    """

    columns: tuple[Column, ...]
    x: Floats
    observed: Bools
    known: Bools

    @classmethod
    def read(cls, X: Any, kept: Mapping[str, Any] | None = None) -> "Cells":
        """Reads a pandas, polars or pyarrow table, or an array of numbers with NaN.

        `kept` has the mask (N), by column, of cells that are empty in the table but not missing.
        """
        table = open_table(X)
        schema, codes = infer_codes(table)
        x = np.zeros(codes.missing.shape, order="F")
        x[:, [column.modelled for column in schema]] = codes.values
        known = np.asfortranarray(~codes.missing)
        observed = known.copy(order="F") if kept else known
        for j, column in enumerate(schema):
            if kept and column.name in kept:
                observed[:, j] |= np.asarray(kept[column.name], dtype=bool)
        return cls(schema.columns, x, observed, known)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def n_rows(self) -> int:
        """The number of rows N."""
        return len(self.observed)


def read_observed(table: Table) -> Bools:
    """Returns which values (N, P) of a table are observed."""
    observed = np.empty((table.n_rows, len(table.names)), dtype=bool, order="F")
    for j in range(len(table.names)):
        observed[:, j] = ~np.isnan(table.column(j).values)
    return observed


def thin(rows: Integers, n_wanted: int, generator: np.random.Generator) -> Integers:
    """Returns a random subsample of rows, in their order, of at most the given size."""
    if len(rows) <= n_wanted:
        return rows
    return np.sort(generator.choice(rows, n_wanted, replace=False))
