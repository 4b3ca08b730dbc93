"""Users' tables, read column by column and written back cell by cell, in their own library and dtypes.

pandas, polars and pyarrow come through narwhals; numpy arrays and nested lists are tables of numbers.
Missing is None, NaN, NaT, pd.NA and polars null alike. Only cells that were missing are ever written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import narwhals as nw
import numpy as np
import numpy.typing as npt

from halfseen.data._cells import factorize, write_cells
from halfseen.errors import SchemaError

Floats = npt.NDArray[np.float64]
Storage = Literal["number", "boolean", "label", "time", "span", "nothing"]


@dataclass(frozen=True)
class RawColumn:
    """One column as numbers: values, microseconds, or positions in `labels`; NaN where missing."""

    name: str
    dtype: str
    storage: Storage
    values: Floats
    labels: tuple[Any, ...] = ()
    declared: bool = False  # the labels are levels that the dtype declares
    ordered: bool = False
    whole: bool = False  # the dtype holds whole numbers, or whole days, only


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

    @property
    def named(self) -> bool:
        """Whether the columns have names of the user's."""
        return self._frame is not None

    def column(self, position: int) -> RawColumn:
        """Returns one column as numbers."""
        name = self.names[position]
        if self._frame is None:
            return RawColumn(
                name, str(self.native.dtype), "number", self.native[:, position].astype(np.float64)
            )
        return _read_series(self._frame[:, position], name)

    def filled(self, cells: Mapping[int, tuple[npt.NDArray[np.int64], npt.NDArray[Any]]]) -> Any:
        """Returns a copy of the table with the given (rows, values) written into the given columns."""
        if self._frame is None:
            array = self.native.copy()
            for position, (rows, values) in cells.items():
                array[rows, position] = values
            return array
        changed = [
            write_cells(self._frame[:, position], rows, values) for position, (rows, values) in cells.items()
        ]
        return self._frame.with_columns(*changed).to_native() if changed else self._frame.clone().to_native()


def is_frame(native: Any) -> bool:
    """Tells whether narwhals knows the object as an eager or lazy table."""
    return isinstance(nw.from_native(native, pass_through=True), nw.DataFrame | nw.LazyFrame)


def _as_frame(native: Any) -> nw.DataFrame[Any]:
    names = [str(name) for name in getattr(native, "columns", ())]
    if hasattr(native, "column_names"):
        names = list(native.column_names)
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        listed = ", ".join(f"{name!r} ({names.count(name)} times)" for name in repeated[:5])
        raise SchemaError(f"Column names must differ, but these repeat: {listed}. Rename the columns.")
    frame = nw.from_native(native, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        raise SchemaError("A lazy frame cannot be used; call .collect() first.")
    if not isinstance(frame, nw.DataFrame):
        raise SchemaError(f"Expected a pandas, polars or pyarrow table, got {type(native).__name__}.")
    return frame


def _read_series(series: nw.Series[Any], name: str) -> RawColumn:
    dtype, shown = series.dtype, str(getattr(series.to_native(), "dtype", series.dtype))
    if dtype.is_numeric():
        values = series.cast(nw.Float64).to_numpy().astype(np.float64)
        return RawColumn(name, shown, "number", values, whole=dtype.is_integer())
    if dtype == nw.Boolean:
        return RawColumn(name, shown, "boolean", series.cast(nw.Float64).to_numpy().astype(np.float64))
    if isinstance(dtype, nw.Datetime | nw.Date):
        moments = series.cast(nw.Datetime("us")) if dtype == nw.Date else series
        values = moments.dt.timestamp("us").cast(nw.Float64).to_numpy().astype(np.float64)
        return RawColumn(name, shown, "time", values, whole=dtype == nw.Date)
    if isinstance(dtype, nw.Duration):
        values = series.dt.total_microseconds().cast(nw.Float64).to_numpy().astype(np.float64)
        return RawColumn(name, shown, "span", values)
    if not isinstance(dtype, nw.String | nw.Categorical | nw.Enum | nw.Object | nw.Unknown):
        raise SchemaError(
            f"Column {name!r} has dtype {shown}, which cannot be imputed. Drop it, or turn it into "
            "numbers, text, booleans or dates."
        )
    return _read_labels(series, name, shown)


def _read_labels(series: nw.Series[Any], name: str, shown: str) -> RawColumn:
    codes, labels, declared, ordered = factorize(series)
    values = np.where(codes < 0, np.nan, codes.astype(np.float64))
    kinds = {_sort_of(label) for label in labels}
    if not declared and not labels:
        return RawColumn(name, shown, "nothing", values)
    if not declared and kinds == {"boolean"}:
        return RawColumn(name, shown, "boolean", _look_up(values, [float(label) for label in labels]))
    if not declared and kinds == {"number"}:
        return RawColumn(name, shown, "number", _look_up(values, [float(label) for label in labels]))
    if not declared and len(kinds) > 1:
        example = {_sort_of(label): label for label in labels}
        listed = " and ".join(f"{kind} ({value!r})" for kind, value in sorted(example.items()))
        raise SchemaError(f"Column {name!r} mixes {listed}. Make all its values of one type.")
    return RawColumn(name, shown, "label", values, tuple(labels), declared, ordered)


def _sort_of(label: Any) -> str:
    if isinstance(label, bool | np.bool_):
        return "boolean"
    if isinstance(label, int | float | np.number) or type(label).__name__ == "Decimal":
        return "number"
    return "text" if isinstance(label, str) else type(label).__name__


def _look_up(codes: Floats, numbers: Sequence[float]) -> Floats:
    table = np.append(np.array(numbers, dtype=np.float64), np.nan)
    return table[np.where(np.isnan(codes), len(numbers), codes).astype(np.int64)]
