"""Replaces values of a frame by nulls; library, index, names, order and nullable dtypes are kept.

Two kinds of pandas dtypes have no null: numpy integers become the nullable dtype of the same width (``int64``
to ``Int64``), which keeps them exact, and booleans become ``boolean``.
"""

from collections.abc import Sequence
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt

Cells = npt.NDArray[np.bool_]


def put_nulls(native: Any, hidden: Cells, affected: Sequence[int]) -> Any:
    """Returns a copy of a frame in which some values are null.

    The dtypes depend on `affected`, not on which values are removed, so that training and test tables agree.

    Parameters
    ----------
    native : pandas, polars or pyarrow table
        The frame, which is not modified.
    hidden : array of shape (N, D)
        True for values that are removed.
    affected : sequence of int
        The columns in which values may be removed.

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
        incomplete = column.cast(takeable_type(column.type)).take(taken).cast(column.type)
        native = native.set_column(j, native.schema.field(j).with_nullable(True), incomplete)
    return native


def takeable_type(arrow_type: Any) -> Any:
    """Returns the Arrow type of the same values that supports `take`, as views of text and bytes do not."""
    import pyarrow as pa

    return {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(arrow_type, arrow_type)
