"""Nulls put into a frame: the same library, index, names and order, and dtypes that can hold a null.

Every dtype that can hold a null is kept. Two of pandas cannot: whole numbers of numpy become the nullable
dtype of the same width (``int64`` to ``Int64``), which keeps them exact and whole, and booleans become
``boolean``.
"""

from collections.abc import Sequence
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt

Cells = npt.NDArray[np.bool_]


def put_nulls(native: Any, hidden: Cells, affected: Sequence[int]) -> Any:
    """Returns a copy of a frame without the hidden cells.

    Dtypes depend on `affected`, not on where the holes happen to fall, so that training and test tables
    agree.

    Parameters
    ----------
    native : pandas, polars or pyarrow table
        Never written to.
    hidden : array of shape (N, D)
        True where a cell goes.
    affected : sequence of int
        The columns that may lose cells.

    Examples
    --------
    >>> import pandas as pd
    >>> put_nulls(pd.DataFrame({"a": [1, 2]}), np.array([[True], [False]]), [0])["a"].tolist()
    [<NA>, 2]
    """
    frame = nw.from_native(native, eager_only=True)
    if frame.implementation.is_pandas_like():
        return _pandas(native, hidden, affected)
    return (
        _polars(native, hidden, affected)
        if frame.implementation.is_polars()
        else _pyarrow(native, hidden, affected)
    )


def _pandas(native: Any, hidden: Cells, affected: Sequence[int]) -> Any:
    new = native.copy()
    for j in affected:
        series = native.iloc[:, j]
        if isinstance(series.dtype, np.dtype) and series.dtype.kind in "iub":
            series = series.astype(_nullable(series.dtype))
        new.isetitem(j, series.mask(hidden[:, j]))
    return new


def _nullable(dtype: np.dtype[Any]) -> str:
    names = {"i": f"Int{8 * dtype.itemsize}", "u": f"UInt{8 * dtype.itemsize}", "b": "boolean"}
    return names[dtype.kind]


def _polars(native: Any, hidden: Cells, affected: Sequence[int]) -> Any:
    import polars as pl

    kept = [pl.when(pl.Series(~hidden[:, j])).then(pl.nth(j)).alias(native.columns[j]) for j in affected]
    return native.with_columns(kept)


def _pyarrow(native: Any, hidden: Cells, affected: Sequence[int]) -> Any:
    import pyarrow as pa

    for j in affected:
        column = native.column(j)
        taken = pa.array(np.arange(len(column)), mask=hidden[:, j])
        holed = _takeable(column).take(taken).cast(column.type)
        native = native.set_column(j, native.schema.field(j).with_nullable(True), holed)
    return native


def _takeable(column: Any) -> Any:
    """Returns the same cells in a type from which some can be taken: views of text and bytes lack that."""
    import pyarrow as pa

    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return column.cast(plain.get(column.type, column.type))
