"""The table that an imputer returns: the codes of missing cells, decoded and written into it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from halfseen.data.columns import Column
from halfseen.estimators._derived import DerivedCells, derive
from halfseen.estimators._far_values import FarValues
from halfseen.estimators._table import ReadTable


def fill_cells(
    columns: Sequence[Column],
    read: ReadTable,
    completed: Sequence[npt.NDArray[np.float64]],
    empty: Mapping[int, npt.NDArray[np.bool_]],
    derived: Mapping[int, DerivedCells] | None = None,
    *,
    far: FarValues,
) -> Any:
    """Returns the table with decoded values in its missing cells.

    Parameters
    ----------
    columns : sequence of Column
        All columns. Those that are left empty stay so.
    read : ReadTable
        The table.
    completed : sequence of arrays
        The codes of the missing cells of each modelled column.
    empty : mapping of int to array (N)
        The rows that stay empty, by position of the column.
    derived : mapping of int to tuple of arrays, optional
        The missing cells of derived columns; computed from the completed columns if not given.
    far : FarValues
        Counts values that lie far outside the observed ones.

    Returns
    -------
    table or array
        Of the type of the table that was read.
    """
    cells = {}
    position = -1
    for j, column in enumerate(columns):
        position += column.modelled
        if column.left is not None or column.derived is not None:
            continue
        rows = np.flatnonzero(read.missing[:, j])
        codes = completed[position] if column.modelled else np.full(len(rows), column.fill_code)
        if j in empty:
            applies = ~empty[j][rows]
            rows, codes = rows[applies], codes[applies]
        if column.modelled:
            far.add(j, codes)
            codes = column.constrain(codes)
        if len(rows):
            cells[j] = rows, column.decode(codes)
    given = derive(columns, read, completed, empty) if derived is None else derived
    for j, (rows, values) in given.items():
        known = ~np.isnan(values)
        if known.any():
            far.add(j, values[known])
            cells[j] = rows[known], columns[j].decode(values[known])
    return read.table.filled(cells)
