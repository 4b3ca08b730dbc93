"""A user's table as diagnosis sees it: which cells were seen, and the numbers in them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halfseen.data.frames import Floats, Table, is_frame
from halfseen.data.masked import unmask
from halfseen.data.schema import Column, Schema
from halfseen.errors import SchemaError

Bools = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Cells:
    """Every column of a table, with the codes of those whose values say something.

    Shapes
    ------
    x : (N, P), codes; 0 where not observed and in columns that are constant, empty or identifiers.
    observed : (N, P), True where the table has a value.

    Examples
    --------
    >>> cells = Cells.read(np.array([[1.0, np.nan], [2.0, 5.0], [4.0, 7.0]]))
    >>> cells.names, cells.observed.sum(axis=0).tolist()
    (('x0', 'x1'), [3, 2])
    """

    columns: tuple[Column, ...]
    x: Floats
    observed: Bools

    @classmethod
    def read(cls, X: Any) -> "Cells":
        """Reads a pandas, polars or pyarrow table, or an array of numbers with NaN."""
        table = open_table(X)
        columns = Schema.infer(table).columns
        x = np.zeros((table.n_rows, len(columns)), order="F")
        observed = np.empty(x.shape, dtype=bool, order="F")
        for j, column in enumerate(columns):
            raw = table.column(j)
            observed[:, j] = ~np.isnan(raw.values)
            if column.modelled:
                np.copyto(x[:, j], column.encode(raw), where=observed[:, j])
        return cls(columns, x, observed)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def n_rows(self) -> int:
        """The number of rows N."""
        return len(self.observed)


def open_table(X: Any) -> Table:
    """Opens a frame of any library or an array; refuses one without rows or columns."""
    if is_frame(X):
        table = Table(X)
    else:
        array = np.asarray(unmask(X), dtype=np.float64)
        if array.ndim != 2:
            raise SchemaError(f"Expected a table or a two-dimensional array, got shape {array.shape}.")
        table = Table(array)
    if table.n_rows == 0 or not table.names:
        raise SchemaError(f"The table has {table.n_rows} rows and {len(table.names)} columns.")
    return table


def read_observed(table: Table) -> Bools:
    """Returns which cells (N, P) of a table hold a value."""
    observed = np.empty((table.n_rows, len(table.names)), dtype=bool, order="F")
    for j in range(len(table.names)):
        observed[:, j] = ~np.isnan(table.column(j).values)
    return observed


def thin(rows: Integers, n_wanted: int, generator: np.random.Generator) -> Integers:
    """Returns at most so many of the rows, chosen at random, in their order."""
    if len(rows) <= n_wanted:
        return rows
    return np.sort(generator.choice(rows, n_wanted, replace=False))
