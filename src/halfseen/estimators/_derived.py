"""The missing cells of derived columns, from the columns that an imputer completes."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from halfseen.data.columns import Column
from halfseen.data.derived import derive_cells, used_columns
from halfseen.estimators._table import ReadTable

Floats = npt.NDArray[np.float64]
DerivedCells: TypeAlias = tuple[npt.NDArray[np.int64], Floats]  # rows, and their values


def derive(
    columns: Sequence[Column],
    read: ReadTable,
    completed: Sequence[Floats],
    empty: Mapping[int, npt.NDArray[np.bool_]],
) -> dict[int, DerivedCells]:
    """Returns the missing cells of derived columns, by position of the column.

    Parameters
    ----------
    columns : sequence of Column
        All columns.
    read : ReadTable
        The table.
    completed : sequence of arrays
        The codes of the missing cells of each modelled column.
    empty : mapping of int to array (N)
        The rows that stay empty, by position of the column.
    """
    modelled = [j for j, column in enumerate(columns) if column.modelled]
    numbers = {}
    for j in used_columns(columns):
        position = modelled.index(j)
        values = np.where(read.codes.observed[:, position], read.codes.x[:, position], np.nan)
        if columns[j].left is None:
            values[read.missing[:, j]] = columns[j].constrain(completed[position])
        if j in empty:
            values[empty[j] & read.missing[:, j]] = np.nan
        numbers[j] = values
    return derive_cells(columns, numbers, read.missing)


def enclose(
    point: Mapping[int, DerivedCells], draws: Sequence[Mapping[int, DerivedCells]], ends: Sequence[float]
) -> list[dict[int, DerivedCells]]:
    """Returns for each end of an interval the quantiles of draws, moved so that they enclose the point."""
    found: list[dict[int, DerivedCells]] = [{}, {}]
    for j, (rows, middle) in point.items():
        spread = np.stack([one[j][1] for one in draws])
        low, high = np.quantile(np.where(np.isnan(spread), middle, spread), ends, axis=0)
        found[0][j] = rows, np.fmin(low, middle)
        found[1][j] = rows, np.fmax(high, middle)
    return found
