"""Conversion of a frame or an array to numbers ("codes") with a mask, by a schema.

The code of a cell is the number by which it is encoded: the number itself, the position of its level, or the
time since a reference. Texts and numbers such as 999 that mean missing in a file are a different matter; see
`halfseen.files.missing_codes`. Estimators, the evaluation of imputers and the diagnosis of missing values all
use this module.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from halfseen.data.columns import NUMERIC
from halfseen.data.frames import Floats, RawColumn, Table, is_frame
from halfseen.data.incomplete import unmask
from halfseen.data.relations import find_groupings
from halfseen.data.schema import Column, Schema, infer_columns
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
    """Opens a frame of any library or an array of numbers; raises if it has no rows or no columns."""
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
    cells = _Cells(table, sum(column.modelled for column in schema))
    for j, column in enumerate(schema):
        cells.add(table.column(j), column, censored=censored)
    return cells.codes()


def infer_codes(
    table: Table, overrides: Mapping[Any, Any] | None = None, *, censored: bool = True
) -> tuple[Schema, Codes]:
    """Infers a schema and reads the codes by it, each column of the table once; see `Schema.infer`.

    In a data frame, columns of numbers that group rows are read again, as categories or identifiers.
    """
    cells = _Cells(table, len(table.names))
    columns = []
    for raw, column in infer_columns(table, overrides):
        cells.add(raw, column, censored=censored)
        columns.append(column)
    schema, codes = Schema.of(columns), cells.codes()
    if not table.named:
        return schema, codes
    grouped = _with_groups(table, schema, codes)
    if all(one.kind == other.kind for one, other in zip(grouped, schema, strict=True)):
        return grouped, codes
    return grouped, read_codes(table, grouped, censored=censored)


def _with_groups(table: Table, schema: Schema, codes: Codes) -> Schema:
    """Returns the schema in which columns that group rows are described as such, and are not numbers."""
    columns = list(schema)
    modelled = [j for j, column in enumerate(columns) if column.modelled]
    for found in find_groupings(codes.columns, codes.values, codes.observed):
        j = modelled[found.position]
        column = columns[j]
        if column.kind != found.kind:
            settings = {"kind": found.kind, "fill": column.fill, "skip": column.skip}
            ((_, column),) = infer_columns(table, {column.name: settings}, [j])
            column = replace(column, set_by_user=False)
        columns[j] = found.described(column)
    return Schema.of(columns)


class _Cells:
    """The codes of the columns of a table, of which at most `n_modelled` are modelled."""

    def __init__(self, table: Table, n_modelled: int) -> None:
        self.missing = np.empty((table.n_rows, len(table.names)), dtype=bool)
        self.values = np.empty((table.n_rows, n_modelled))
        self.columns: list[Column] = []
        self.n_read = 0

    def add(self, raw: RawColumn, column: Column, *, censored: bool) -> None:
        """Adds the next column."""
        self.missing[:, self.n_read] = np.isnan(raw.values)
        self.n_read += 1
        if not column.modelled:
            return
        code = column.encode(raw)
        if not censored:
            code = np.where(column.is_censored(code), np.nan, code)
        self.values[:, len(self.columns)] = code
        self.columns.append(column)

    def codes(self) -> Codes:
        """Returns the codes of all columns."""
        values = np.ascontiguousarray(self.values[:, : len(self.columns)])
        observed = ~np.isnan(values)
        values[~observed] = 0.0  # in place: a table can be large
        return Codes(tuple(self.columns), values, observed, self.missing)


def code_settings(columns: Sequence[Column]) -> dict[int, dict[str, Any]]:
    """Returns schema settings with which an estimator reads an array of codes as columns of their kinds."""
    return {j: _code_settings(column) for j, column in enumerate(columns)}


def _code_settings(column: Column) -> dict[str, Any]:
    if column.levels is not None:
        return {"kind": column.kind, "levels": list(range(len(column.levels)))}
    settings: dict[str, Any] = {"kind": column.kind if column.kind in NUMERIC else "continuous"}
    if column.kind in NUMERIC:
        names = ("minimum", "maximum", "firm", "integer")
        settings |= {name: getattr(column, name) for name in names}
    return {key: value for key, value in settings.items() if value is not None}
