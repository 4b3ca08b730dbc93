"""From a user's table to codes: the one way from a frame or an array to numbers with a mask, by a schema.

Estimators, the evaluation of imputers and the diagnosis of missing values all read tables here.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halfseen.data.frames import Floats, Table, is_frame
from halfseen.data.masked import unmask
from halfseen.data.schema import Column, Schema
from halfseen.errors import SchemaError

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Codes:
    """The cells of a table by a schema: values, positions among levels, microseconds.

    Shapes
    ------
    values : (N, C), of the modelled columns; 0 where not observed.
    observed : (N, C); a level that the schema does not know is not observed, though it is not missing.
    missing : (N, P), of all columns: the cells that the user left empty.
    """

    columns: tuple[Column, ...]
    values: Floats
    observed: Bools
    missing: Bools

    @property
    def with_nan(self) -> Floats:
        """The values (N, C) with NaN where they are not observed."""
        return np.where(self.observed, self.values, np.nan)


def open_table(X: Any) -> Table:
    """Opens a frame of any library or an array of numbers; refuses one without rows or columns."""
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


def read_codes(table: Table, schema: Schema, *, censored: bool = True) -> Codes:
    """Reads each column of a table once, by a schema.

    Parameters
    ----------
    table : Table
        The table, with the columns of the schema.
    schema : Schema
        What the columns are.
    censored : bool
        Whether cells that are known only to lie beyond a limit count as observed.

    Examples
    --------
    >>> import pandas as pd
    >>> table = Table(pd.DataFrame({"x": [1.5, None, 2.5], "s": ["b", "a", "b"], "one": [1, 1, 1]}))
    >>> read_codes(table, Schema.infer(table)).with_nan
    array([[1.5, 1. ],
           [nan, 0. ],
           [2.5, 1. ]])
    """
    columns = tuple(column for column in schema if column.modelled)
    missing = np.empty((table.n_rows, len(table.names)), dtype=bool)
    values = np.empty((table.n_rows, len(columns)))
    position = 0
    for j, column in enumerate(schema):
        raw = table.column(j)
        missing[:, j] = np.isnan(raw.values)
        if not column.modelled:
            continue
        code = column.encode(raw)
        if not censored:
            code = np.where(column.is_censored(code), np.nan, code)
        values[:, position] = code
        position += 1
    observed = ~np.isnan(values)
    values[~observed] = 0.0  # in place: a table can be large
    return Codes(columns, values, observed, missing)
