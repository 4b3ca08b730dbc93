"""Which cells multiple imputation draws: missing ones may stay empty, observed ones be drawn beside them."""

from collections.abc import Sequence
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt

from halfseen.data.codes import open_table
from halfseen.data.frames import is_frame

Flags = npt.NDArray[np.bool_]
_MARK = "_halfseen_where"  # a column that exists while cells are replaced


def read_where(where: Any, X: Any) -> Flags:
    """Returns which cells (N, P) of a table are to be drawn; raises a ValueError if that cannot be read."""
    table = open_table(X)
    shape = (table.n_rows, len(table.names))
    if is_frame(where):
        frame = nw.from_native(where, eager_only=True)
        if sorted(frame.columns) != sorted(table.names):
            raise ValueError(
                f"where must have the columns of the table, got {', '.join(map(str, frame.columns))}."
            )
        found = np.column_stack([frame[name].to_numpy() for name in table.names])
    else:
        found = np.asarray(where)
    if found.shape != shape or found.dtype != np.bool_:
        raise ValueError(
            f"where must be an array or a table of True and False with the shape {shape} of the table, got "
            f"the shape {found.shape} and the type {found.dtype}."
        )
    return found


def missing_cells(X: Any) -> Flags:
    """Returns which cells (N, P) of a table are missing."""
    return open_table(X).missing()


def keep_empty(tables: Sequence[Any], X: Any, empty: Flags) -> None:
    """Empties cells (N, P) of completed tables again; the sequence is changed."""
    if not empty.any():
        return
    for number, table in enumerate(tables):
        for j in np.flatnonzero(empty.any(axis=0)):
            table = replace_cells(table, X, int(j), empty[:, j])
        tables[number] = table  # type: ignore[index]


def draw_observed(imputer: Any, X: Any, tables: Sequence[Any], observed: Flags, row_ids: Any) -> list[Any]:
    """Returns completed tables with draws in observed cells (N, P) as well.

    The cells of one column after the other are emptied and drawn, given all other cells of their rows.
    """
    found = [table.copy() if isinstance(table, np.ndarray) else table for table in tables]
    for j in np.flatnonzero(observed.any(axis=0)):
        rows = observed[:, j]
        drawn = imputer.sample(replace_cells(X, None, int(j), rows), n_draws=len(tables), row_ids=row_ids)
        if bool((missing_cells(drawn[0])[:, j] & rows).any()):
            name = open_table(X).names[j]
            raise ValueError(
                f"where asks for draws of observed cells of column {name!r}, which {type(imputer).__name__} "
                "leaves empty: see columns_left_."
            )
        found = [replace_cells(one, other, int(j), rows) for one, other in zip(found, drawn, strict=True)]
    return found


def replace_cells(table: Any, other: Any, position: int, rows: Flags) -> Any:
    """Returns a copy of a table in which the cells of a column in some rows (N) are those of another table.

    Without another table the cells are empty.
    """
    if not is_frame(table):
        array = np.array(table, dtype=np.result_type(np.asarray(table), np.float32))
        array[rows, position] = np.nan if other is None else np.asarray(other)[rows, position]
        return array
    frame = nw.from_native(table, eager_only=True)
    name = frame.columns[position]
    marked = frame.with_columns(_flags(frame, rows).alias(_MARK))
    if other is None:
        chosen = nw.when(~nw.col(_MARK)).then(nw.col(name)).alias(name)
        return marked.with_columns(chosen).drop(_MARK).to_native()
    values = nw.from_native(other, eager_only=True)[name]
    own = frame[name]
    if own.dtype != values.dtype:
        values = values.cast(own.dtype) if not bool(values.is_null().any()) else values
    return frame.with_columns(own.zip_with(~marked[_MARK], values).alias(name)).to_native()


def _flags(frame: nw.DataFrame[Any], flags: Flags) -> nw.Series[Any]:
    """Returns flags (N) as a column that belongs to the rows of a frame."""
    if not frame.implementation.is_pandas_like():
        return nw.new_series(_MARK, flags, backend=frame.implementation)
    import pandas as pd

    return nw.from_native(pd.Series(flags, index=frame.to_native().index), series_only=True)
