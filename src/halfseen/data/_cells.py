"""What narwhals does not do: level codes of a column, and writing single cells without changing a dtype.

One small function per library for each of the two.
"""

from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt

from halfseen.errors import SchemaError

Codes = npt.NDArray[np.int64]
Factors = tuple[Codes, list[Any], bool, bool]


def factorize(series: nw.Series[Any]) -> Factors:
    """Returns codes (-1 if missing), labels, whether the dtype declares the labels, and their order.

    Labels that no dtype declares come sorted.
    """
    native = series.to_native()
    if series.implementation.is_pandas_like():
        return _factorize_pandas(native)
    if series.implementation.is_polars():
        return _factorize_polars(native)
    if series.implementation.is_pyarrow():
        return _factorize_pyarrow(native)
    raise SchemaError(f"Tables of {series.implementation} are not supported; convert to pandas or polars.")


def write_cells(
    series: nw.Series[Any], rows: npt.NDArray[np.int64], values: npt.NDArray[Any]
) -> nw.Series[Any]:
    """Returns the series with `values` in the given rows, its dtype unchanged.

    Values are numbers, booleans, labels, or for dates and durations whole microseconds.
    """
    native = series.to_native()
    if series.implementation.is_pandas_like():
        native = _write_pandas(native, series.dtype, rows, values)
    elif series.implementation.is_polars():
        native = _write_polars(native, rows, values)
    else:
        native = _write_pyarrow(native, rows, values)
    written: nw.Series[Any] = nw.from_native(native, series_only=True).alias(series.name)
    return written


def _sorted(codes: Codes, labels: list[Any]) -> Factors:
    try:
        order = sorted(range(len(labels)), key=lambda i: labels[i])
    except TypeError:  # labels of several types have no order; the caller reports or keeps them as found
        order = list(range(len(labels)))
    rank = np.empty(len(labels) + 1, dtype=np.int64)
    rank[order] = np.arange(len(labels))
    rank[-1] = -1  # position -1, missing, stays missing
    return rank[codes], [labels[i] for i in order], False, False


def _factorize_pandas(native: Any) -> Factors:
    if hasattr(native.dtype, "categories"):
        codes = native.cat.codes.to_numpy().astype(np.int64)
        return codes, list(native.cat.categories), True, bool(native.cat.ordered)
    codes, labels = native.factorize()
    return _sorted(np.asarray(codes, dtype=np.int64), list(labels))


def _factorize_polars(native: Any) -> Factors:
    declared = hasattr(native.dtype, "categories") and type(native.dtype).__name__ == "Enum"
    text = native.cast(_polars().String) if type(native.dtype).__name__ in ("Enum", "Categorical") else native
    labels = (
        list(native.dtype.categories) if declared else text.drop_nulls().unique(maintain_order=True).to_list()
    )
    if not labels:
        return np.full(len(native), -1), [], declared, False
    codes = text.replace_strict(labels, list(range(len(labels))), default=None, return_dtype=_polars().Int64)
    codes = codes.fill_null(-1).to_numpy().astype(np.int64)
    return (codes, labels, True, False) if declared else _sorted(codes, labels)


def _factorize_pyarrow(native: Any) -> Factors:
    import pyarrow as pa

    declared = pa.types.is_dictionary(native.type)
    ordered = declared and bool(native.type.ordered)
    encoded = (native if declared else native.dictionary_encode()).unify_dictionaries().combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):  # zero chunks
        return np.empty(0, dtype=np.int64), [], declared, ordered
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    labels = encoded.dictionary.to_pylist()
    return (codes, labels, True, ordered) if declared else _sorted(codes, labels)


def _write_pandas(native: Any, dtype: Any, rows: npt.NDArray[np.int64], values: npt.NDArray[Any]) -> Any:
    import pandas as pd

    new = native.copy()
    cells: Any = values
    if isinstance(dtype, nw.Datetime):
        moments = pd.Series(values.astype("datetime64[us]"))
        moments = moments if dtype.time_zone is None else moments.dt.tz_localize("UTC")
        cells = moments.astype(native.dtype).array
    elif isinstance(dtype, nw.Duration):
        cells = pd.Series(values.astype("timedelta64[us]")).astype(native.dtype).array
    elif isinstance(dtype, nw.Date):
        days = [moment.date() for moment in values.astype("datetime64[us]").tolist()]
        cells = pd.Series(days).astype(native.dtype).array
    elif hasattr(native.dtype, "categories"):
        unknown = [value for value in dict.fromkeys(values.tolist()) if value not in native.cat.categories]
        new = new.cat.add_categories(unknown) if unknown else new
    elif dtype.is_numeric():
        cells = pd.Series(values).astype(native.dtype).array
    new.iloc[rows] = cells
    return new


def _write_polars(native: Any, rows: npt.NDArray[np.int64], values: npt.NDArray[Any]) -> Any:
    pl = _polars()
    kind = type(native.dtype).__name__
    if kind in ("Datetime", "Date", "Duration"):
        unit = pl.Duration("us") if kind == "Duration" else pl.Datetime("us")
        new = pl.Series(values.astype(np.int64)).cast(unit)
        zone = getattr(native.dtype, "time_zone", None)
        new = new.dt.replace_time_zone("UTC").dt.convert_time_zone(zone) if zone else new
        return native.scatter(rows, new.cast(native.dtype))
    if kind in ("Enum", "Categorical"):
        return native.cast(pl.String).scatter(rows, pl.Series(values.tolist())).cast(native.dtype)
    return native.clone().scatter(rows, pl.Series(values.tolist()).cast(native.dtype))


def _write_pyarrow(native: Any, rows: npt.NDArray[np.int64], values: npt.NDArray[Any]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    array = native.combine_chunks() if isinstance(native, pa.ChunkedArray) else native
    holes = np.zeros(len(array), dtype=bool)
    holes[rows] = True
    mask, ranked = pa.array(holes), values[np.argsort(rows)]
    if pa.types.is_dictionary(array.type):
        position = {label: i for i, label in enumerate(array.dictionary.to_pylist())}
        new = pa.array([position[value] for value in ranked.tolist()], type=array.indices.type)
        indices = pc.replace_with_mask(array.indices, mask, new)
        filled = pa.DictionaryArray.from_arrays(indices, array.dictionary, ordered=array.type.ordered)
        return pa.chunked_array([filled])
    if pa.types.is_temporal(array.type):
        span = pa.types.is_duration(array.type)
        unit = pa.duration("us") if span else pa.timestamp("us", tz=getattr(array.type, "tz", None))
        new = pa.array(ranked.astype(np.int64)).cast(unit).cast(array.type, safe=False)
    elif pa.types.is_decimal(array.type):
        new = pa.array(ranked.astype(np.float64)).cast(array.type, safe=False)
    else:
        new = pa.array(ranked.tolist()).cast(array.type)
    return pa.chunked_array([pc.replace_with_mask(array, mask, new)])


def _polars() -> Any:
    import polars

    return polars
