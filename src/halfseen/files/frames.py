"""Frames of pandas, polars and pyarrow: what a table that was read becomes, and what is written again."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Literal

import narwhals as nw
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from halfseen.errors import TableError

Backend = Literal["pandas", "polars", "pyarrow"]

_BACKENDS = ("pandas", "polars", "pyarrow")


def check_backend(backend: str | None) -> None:
    """Refuse a library of frames that is unknown or not installed."""
    if backend is not None and backend not in _BACKENDS:
        raise TableError(f"unknown backend {backend!r}; choose from {', '.join(_BACKENDS)}")
    if backend is not None and find_spec(backend) is None:
        raise TableError(f"backend {backend!r} is not installed; pip install {backend}")


def check_names(names: Sequence[str], source: str) -> None:
    """Refuse names of columns that are not unique."""
    places: dict[str, int] = {}
    for place, name in enumerate(names, start=1):
        if name in places:
            raise TableError(
                f"{source}: duplicate column names: columns {places[name]} and {place} are both called "
                f"{name!r}; names must be unique"
            )
        places[name] = place


def to_frame(table: pa.Table, backend: Backend | None) -> Any:
    """Return a table as a frame of a library; by default of pandas if it is installed, else of pyarrow.

    pandas has no missing values in its usual columns of integers and booleans. Such columns become
    ``Int64`` and ``boolean`` if cells are missing, because a conversion to floats would change whole numbers
    beyond 2**53. Dates become ``datetime64``.
    """
    check_backend(backend)
    if backend is None:
        backend = "pandas" if find_spec("pandas") is not None else "pyarrow"
    if backend == "pyarrow":
        return table
    if backend == "polars":
        import polars as pl

        return pl.DataFrame(table)
    import pandas as pd

    columns = {
        name: column.to_pandas(date_as_object=False, types_mapper=_nullable if column.null_count else None)
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    return pd.DataFrame(columns, index=pd.RangeIndex(table.num_rows))


def _nullable(dtype: pa.DataType) -> Any:
    """Return the dtype of pandas with missing values for integers and booleans, None for other types."""
    import pandas as pd

    if pa.types.is_boolean(dtype):
        return pd.BooleanDtype()
    if pa.types.is_integer(dtype):
        name = str(dtype)
        return pd.api.types.pandas_dtype(
            name.replace("uint", "UInt") if name[0] == "u" else name.capitalize()
        )
    return None


def to_arrow(frame: Any) -> pa.Table:
    """Return a frame of a user as a table of pyarrow, without the index of pandas."""
    if isinstance(frame, pa.Table):
        return frame
    names = list(getattr(frame, "columns", ()))
    check_names(names, "the table")  # before narwhals, which names no positions
    try:
        eager = nw.from_native(frame, eager_only=True)
    except TypeError:
        raise TableError(
            f"a table must be a frame of pandas, polars or pyarrow, got {type(frame).__name__}"
        ) from None
    if not eager.implementation.is_pandas_like():
        return eager.to_arrow()
    for name in names:
        if not isinstance(name, str):
            raise TableError(f"column {name!r} of the frame has no text as its name; rename it")
    arrays = []
    for place, name in enumerate(names):
        try:
            arrays.append(pa.Array.from_pandas(frame.iloc[:, place]))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise TableError(
                f"column {name!r} of the frame holds values of several types: {str(error).splitlines()[0]}"
            ) from None
    return pa.Table.from_arrays(arrays, names=names)


def has_other_rows(frame: Any, rows: npt.NDArray[np.int64]) -> bool:
    """Return whether the index of a pandas frame shows that its rows are not those of a file in their order.

    Frames of polars and pyarrow, and a pandas frame whose index was made anew, do not show it.

    Parameters
    ----------
    frame : frame
        The frame of a user.
    rows : numpy.ndarray
        The rows of the file.
    """
    if not nw.from_native(frame, eager_only=True).implementation.is_pandas_like():
        return False
    labels = np.asarray(frame.index)
    if labels.dtype.kind not in "iu" or len(labels) != len(rows):
        return False  # the user set another index, such as names; a number of rows is compared elsewhere
    return not np.array_equal(labels, rows) and not np.array_equal(labels, np.arange(len(labels)))
