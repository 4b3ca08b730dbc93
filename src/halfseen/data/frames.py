"""Reading tables of users by column, and writing cells back in their own library and dtypes.

pandas, polars and pyarrow tables are read through narwhals; numpy arrays and nested lists are tables of
numbers. None, NaN, NaT, pd.NA and polars null all mean missing. Only cells that were missing are written.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import narwhals as nw
import numpy as np
import numpy.typing as npt
from narwhals.exceptions import DuplicateError

from halfseen._arrays import Booleans, Floats, Integers
from halfseen.data._cells import (
    EXACT_INTEGERS,
    factorize,
    floats,
    microseconds,
    put_columns,
    read_objects,
    readable,
    show_dtype,
    storable,
    type_name,
    write_cells,
)
from halfseen.errors import SchemaError, warn_user

Storage = Literal["number", "boolean", "label", "time", "duration", "empty", "other"]


@dataclass(frozen=True)
class RawColumn:
    """One column as numbers: values, microseconds, or positions in `labels`; NaN where missing.

    Lists, structs, bytes and other types that models cannot use have storage ``"other"`` and values of 0.
    """

    name: str
    dtype: str
    storage: Storage
    values: Floats
    labels: tuple[Any, ...] = ()
    declared: bool = False  # the labels are levels that the dtype declares
    ordered: bool = False
    whole: bool = False  # the dtype holds whole numbers, or whole days, only
    n_merged: int = 0  # distinct whole numbers that have the float of another


class Table:
    """A user's table: names, columns as numbers, and a way to write missing cells back.

    Parameters
    ----------
    native : pandas, polars or pyarrow table, or a two-dimensional float array
        Never written to.

    Examples
    --------
    >>> import pandas as pd
    >>> table = Table(pd.DataFrame({"a": [1.0, None], "b": ["x", "y"]}))
    >>> table.column(0).values
    array([ 1., nan])
    >>> table.filled({0: (np.array([1]), np.array([5.0]))})["a"].tolist()
    [1.0, 5.0]
    """

    def __init__(self, native: Any) -> None:
        self.native = native
        if isinstance(native, np.ndarray):
            self._frame = None
            self.n_rows, n_columns = native.shape
            self.names = tuple(f"x{j}" for j in range(n_columns))
        else:
            self._frame = _as_frame(native)
            self.n_rows = len(self._frame)
            self.names = tuple(str(name) for name in self._frame.columns)

    @cached_property
    def _series(self) -> tuple[nw.Series[Any], ...]:
        assert self._frame is not None
        return tuple(self._frame.iter_columns())

    @property
    def named(self) -> bool:
        """Whether the user named the columns."""
        return self._frame is not None

    def column(self, position: int) -> RawColumn:
        """Returns one column as numbers."""
        name = self.names[position]
        if self._frame is None:
            return RawColumn(
                name, str(self.native.dtype), "number", self.native[:, position].astype(np.float64)
            )
        return _read_series(self._series[position], name)

    def missing(self) -> Booleans:
        """Returns which cells (N, P) are missing, without converting the values of the others."""
        if self._frame is None:
            lacking: Booleans = np.isnan(self.native)
            return lacking
        missing = np.empty((self.n_rows, len(self.names)), dtype=bool)
        for position, series in enumerate(self._series):
            empty = series.is_null()
            if series.dtype.is_float():
                empty = empty | series.is_nan().fill_null(True)
            missing[:, position] = empty.to_numpy().astype(bool)
        return missing

    def filled(self, cells: Mapping[int, tuple[Integers, npt.NDArray[Any]]]) -> Any:
        """Returns a copy of the table with the given (rows, values) written into the given columns."""
        if self._frame is None:
            array = np.array(self.native, order="K")
            for position, (rows, values) in cells.items():
                array[rows, position] = storable(values, "number", str(array.dtype))
            return array
        columns = {
            position: write_cells(self._series[position], rows, values)
            for position, (rows, values) in cells.items()
        }
        return put_columns(self._frame, columns)

    def appended(self, native: Any, names: Sequence[str], flags: Booleans) -> Any:
        """Returns a completed copy of the table with columns of flags (N, K) appended.

        In an array, flags are 1 and 0.
        """
        if self._frame is None:
            return np.concatenate([native, flags.astype(native.dtype)], axis=1)
        taken = sorted(set(names) & set(self.names))
        if taken:
            raise SchemaError(
                f"The table has a column {taken[0]!r} already. Rename it, or use no indicators."
            )
        if not names:
            return native
        more = {name: flags[:, k] for k, name in enumerate(names)}
        if self._frame.implementation.is_pandas_like():
            import pandas as pd

            return pd.concat([native, pd.DataFrame(more, index=native.index)], axis=1).__finalize__(native)
        frames = [
            nw.from_native(native, eager_only=True),
            nw.from_dict(more, dict.fromkeys(more, nw.Boolean), backend=self._frame.implementation),
        ]
        return nw.concat(frames, how="horizontal").to_native()

    def replaced(self, values: Floats) -> Any:
        """Returns a frame of the same library, names and index with other numbers (N, P) in all columns."""
        if self._frame is None:
            return values
        library = self._frame.implementation
        columns: dict[int, Any] = {}
        for position, column in enumerate(values.T):
            series = nw.new_series(self.names[position], column, nw.Float64, backend=library)
            columns[position] = column if library.is_pandas_like() else series.to_native()
        return put_columns(self._frame, columns)


def is_frame(native: Any) -> bool:
    """Returns whether the object is an eager or lazy table that narwhals supports."""
    # The most frequent cases, quickly.
    if isinstance(native, np.ndarray) or nw.dependencies.is_into_dataframe(native):
        return not isinstance(native, np.ndarray)
    try:
        frame = nw.from_native(native, pass_through=True)
    except DuplicateError:  # a table, though one for which `Table` raises an error
        return True
    return isinstance(frame, nw.DataFrame | nw.LazyFrame)


def _as_frame(native: Any) -> nw.DataFrame[Any]:
    if not hasattr(native, "collect"):  # the names of a lazy frame may cost a computation
        _check_names(native)
    frame = nw.from_native(native, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        raise SchemaError("A lazy frame cannot be used; call .collect() first.")
    if not isinstance(frame, nw.DataFrame):
        raise SchemaError(f"Expected a pandas, polars or pyarrow table, got {type(native).__name__}.")
    return frame


def _check_names(native: Any) -> None:
    """Raises if column names are not unique; narwhals would raise with a message of its own."""
    columns = native.column_names if hasattr(native, "column_names") else getattr(native, "columns", ())
    if getattr(columns, "nlevels", 1) > 1:
        raise SchemaError(
            "The columns are a MultiIndex. Flatten it first, for example with "
            "frame.columns = frame.columns.to_flat_index().map(str)."
        )
    repeated = [(name, n) for name, n in Counter(str(name) for name in columns).items() if n > 1]
    if repeated:
        listed = ", ".join(f"{name!r} ({n} times)" for name, n in repeated[:5])
        raise SchemaError(f"Column names must differ, but these repeat: {listed}. Rename the columns.")


def _read_series(original: nw.Series[Any], name: str) -> RawColumn:
    native = original.to_native()
    native_dtype = getattr(native, "dtype", None)
    if isinstance(native_dtype, np.dtype) and native_dtype in (np.float64, np.float32):
        # pandas' usual numbers, quickly: what follows is most of the time of a single row
        return RawColumn(name, str(native_dtype), "number", np.asarray(native.to_numpy(dtype=np.float64)))
    shown = show_dtype(original)
    if native_dtype == np.dtype(object):
        storage, values = read_objects(native, name)
        if storage == "label":
            return _read_labels(original, name, shown)
        if storage == "other":
            return RawColumn(name, f"object ({type_name(native)})", storage, values)
        n_merged = _count_merged(original, values) if storage == "number" else 0
        return RawColumn(name, shown, storage, values, n_merged=n_merged)
    if type(native_dtype).__name__ == "SparseDtype":
        raise SchemaError(f"Column {name!r} is sparse ({shown}); make it dense with .sparse.to_dense().")
    series = readable(original)
    dtype = series.dtype
    if dtype.is_numeric():
        values, whole = floats(series), dtype.is_integer()
        n_merged = _count_merged(series, values) if whole else 0
        return RawColumn(name, shown, "number", values, whole=whole, n_merged=n_merged)
    if dtype == nw.Boolean:
        return RawColumn(name, shown, "boolean", floats(series))
    if isinstance(dtype, nw.Datetime | nw.Date):
        return RawColumn(name, shown, "time", microseconds(series), whole=dtype == nw.Date)
    if isinstance(dtype, nw.Duration):
        return RawColumn(name, shown, "duration", microseconds(series))
    if isinstance(dtype, nw.String | nw.Categorical | nw.Enum):
        return _read_labels(series, name, shown)
    if series.null_count() == len(series):  # the dtype null, or any other without a value
        return RawColumn(name, shown, "empty", np.full(len(series), np.nan))
    shown = str(getattr(native, "type", shown))  # narwhals does not know all types of pyarrow
    return RawColumn(name, shown, "other", np.where(series.is_null().to_numpy(), np.nan, 0.0))


def _count_merged(series: nw.Series[Any], values: Floats) -> int:
    seen = values[~np.isnan(values)]
    if np.abs(seen).max(initial=0.0) < EXACT_INTEGERS:
        return 0
    return series.drop_nulls().n_unique() - len(np.unique(seen))


def _read_labels(series: nw.Series[Any], name: str, shown: str) -> RawColumn:
    codes, labels, declared, ordered = factorize(series)
    values = np.where(codes < 0, np.nan, codes.astype(np.float64))
    if not declared and not labels:
        return RawColumn(name, shown, "empty", values)
    return RawColumn(name, shown, "label", values, tuple(labels), declared, ordered)


Cells = Booleans


def put_nulls(native: Any, hidden: Cells, affected: Sequence[int]) -> Any:
    """Returns a copy of a frame in which some values are null.

    The library, index, names, order and nullable dtypes are kept. Two kinds of pandas dtypes have no null:
    numpy integers become the nullable dtype of the same width (``int64`` to ``Int64``), which keeps them
    exact, and booleans become ``boolean``. The dtypes depend on `affected`, not on which values are removed,
    so that training and test tables agree.

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
        return _pandas_with_nulls(native, hidden, affected)
    return (
        _polars_with_nulls(native, hidden, affected)
        if frame.implementation.is_polars()
        else _pyarrow_with_nulls(native, hidden, affected)
    )


def _pandas_with_nulls(native: Any, hidden: Cells, affected: Sequence[int]) -> Any:
    new = native.copy()
    for j in affected:
        series = native.iloc[:, j]
        if isinstance(series.dtype, np.dtype) and series.dtype.kind in "iub":
            series = series.astype(_nullable_dtype(series.dtype))
        new.isetitem(j, series.mask(hidden[:, j]))
    return new


def _nullable_dtype(dtype: np.dtype[Any]) -> str:
    names = {"i": f"Int{8 * dtype.itemsize}", "u": f"UInt{8 * dtype.itemsize}", "b": "boolean"}
    return names[dtype.kind]


def _polars_with_nulls(native: Any, hidden: Cells, affected: Sequence[int]) -> Any:
    import polars as pl

    kept = [pl.when(pl.Series(~hidden[:, j])).then(pl.nth(j)).alias(native.columns[j]) for j in affected]
    return native.with_columns(kept)


def _pyarrow_with_nulls(native: Any, hidden: Cells, affected: Sequence[int]) -> Any:
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


def array_of_numbers(X: Any) -> Any:
    """Returns an array of objects or text as numbers, with NaN for NA and NaT; other arrays unchanged.

    Raises an error for what is no table, and for text; warns of integers that double precision changes.
    """
    dtype = getattr(X, "dtype", None)  # sparse arrays have one, of which some are mappings
    if isinstance(X, Mapping) if dtype is None else getattr(dtype, "names", None):
        raise TypeError(
            "A dict or a structured array is not a table: pass a data frame, pandas.DataFrame(X)."
        )
    array = np.asarray(X) if isinstance(X, list | tuple) else X
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "OSUiu":
        return X
    if array.dtype.kind in "iu":
        _warn_of_rounding(array, array)
        return X
    nothing = np.frompyfunc(_is_nothing, 1, 1)(array).astype(bool)
    cells = np.where(nothing, np.nan, array.astype(object))
    try:
        numbers = cells.astype(np.float64)
    except (OverflowError, TypeError, ValueError) as error:
        row, column = next((i, j) for i, j in np.ndindex(cells.shape) if not _is_number(cells[[i], [j]]))
        raise SchemaError(
            f"Column 'x{column}' contains {cells[row, column]!r} in row {row}, which is not a number that an "
            "array can store. Pass a data frame if columns are text or dates."
        ) from error
    _warn_of_rounding(cells, numbers)
    return numbers


def _warn_of_rounding(cells: npt.NDArray[Any], numbers: npt.NDArray[Any]) -> None:
    """Warns of integers that change in double precision, as which arrays are returned."""
    rows, columns = np.nonzero((numbers >= EXACT_INTEGERS) | (numbers <= -EXACT_INTEGERS))
    changed = np.flatnonzero(np.frompyfunc(_is_rounded, 1, 1)(cells[rows, columns]))
    if len(changed):
        i, j = rows[changed[0]], columns[changed[0]]
        warn_user(
            f"Column 'x{j}' contains {cells[i, j]} in row {i}, which an array of numbers in double precision "
            f"holds as {int(float(cells[i, j]))}. Pass a data frame to keep such integers."
        )


def _is_rounded(cell: Any) -> bool:
    return isinstance(cell, int | np.integer) and int(cell) != int(float(cell))


def _is_nothing(cell: Any) -> bool:
    """Returns whether a cell is NA or NaT of any library; None and NaN become NaN in any case."""
    return not isinstance(cell, float | int | str) and str(cell) in ("<NA>", "NaT")


def _is_number(cell: npt.NDArray[Any]) -> bool:
    try:
        cell.astype(np.float64)
    except (OverflowError, TypeError, ValueError):
        return False
    return True
