"""Operations that narwhals lacks: level codes of a column, and writing cells without changing a dtype.

Each operation has one small function per library. Columns of pandas of dtype object come first: the type of
their Python objects, and new cells of the same type.
"""

import datetime
import re
from collections.abc import Mapping
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Any, Literal, cast

import narwhals as nw
import numpy as np
import numpy.typing as npt

from halfseen.errors import SchemaError

_INTEGER = re.compile(r"(u?)int(8|16|32|64|128)(\[pyarrow\])?")
_HALF = re.compile(r"(float16|halffloat)(\[pyarrow\])?")
_SINGLE = re.compile(r"(float32|float\[pyarrow\])")
_DECIMAL = re.compile(r"decimal\d*\((?:precision=)?(\d+), (?:scale=)?(-?\d+)\)(\[pyarrow\])?")
_NANOSECONDS = re.compile(r"[\['\"]ns\b")
_YEARS_1_TO_9999 = (-62_135_596_800e6, 253_402_300_799e6)


@lru_cache
def dtype_bounds(storage: str, dtype: str) -> tuple[float, float]:
    """Returns the range of codes that a dtype can store."""
    kind = dtype.lower()
    if storage == "boolean":
        return 0.0, 1.0
    if storage in ("time", "duration"):
        if _NANOSECONDS.search(kind):
            return -9.2e15, 9.2e15  # the years 1678 to 2261
        return _YEARS_1_TO_9999 if storage == "time" else (-9.2e18, 9.2e18)
    if width := _INTEGER.fullmatch(kind):
        bits, signed = int(width[2]), not width[1]
        high = 2.0 ** (bits - signed)
        return -high if signed else 0.0, high * (1 - 2**-53) if bits >= 64 else high - 1
    if decimal := _DECIMAL.fullmatch(kind):
        high = _largest_decimal(int(decimal[1]), int(decimal[2]))
        return -high, high
    largest = 65504.0 if _HALF.fullmatch(kind) else float(np.finfo(np.float32).max)
    largest = largest if _HALF.fullmatch(kind) or _SINGLE.fullmatch(kind) else float(np.finfo(np.float64).max)
    return -largest, largest


@lru_cache
def smallest_positive(dtype: str) -> float:
    """Returns the least positive number that a dtype can store."""
    kind = dtype.lower()
    if decimal := _DECIMAL.fullmatch(kind):
        return float(f"1e{-int(decimal[2])}")
    if _INTEGER.fullmatch(kind):
        return 1.0
    if _HALF.fullmatch(kind):
        return 2.0**-24
    return 2.0**-149 if _SINGLE.fullmatch(kind) else 2.0**-1074


def storable(values: npt.NDArray[Any], storage: str, dtype: str) -> npt.NDArray[Any]:
    """Returns the nearest values that a dtype can store: within its range, rounded for integer dtypes."""
    low, high = dtype_bounds(storage, dtype)
    if storage in ("time", "duration"):
        return np.clip(values.astype(np.int64), int(low), int(high)).astype(values.dtype)
    near = np.clip(values.astype(np.float64), low, high)
    if storage == "boolean":
        return np.round(near).astype(bool)
    width = _INTEGER.fullmatch(dtype.lower())
    if width is None or int(width[2]) > 64:
        return near if width is None else np.round(near)
    return np.round(near).astype(np.uint64 if width[1] else np.int64)


def _largest_decimal(precision: int, scale: int) -> float:
    """Returns the largest float that a decimal of this many digits, `scale` of them fractional, can hold."""
    nearest = float(f"{'9' * precision}e{-scale}")
    return min(nearest, float(np.nextafter(float(f"1e{precision - scale}"), 0.0)))


ObjectKind = Literal["number", "boolean", "label", "time", "duration", "other"]

_OBJECT_KINDS: dict[str, ObjectKind] = {
    "string": "label", "empty": "label", "boolean": "boolean", "integer": "number", "floating": "number",
    "mixed-integer-float": "number", "decimal": "number", "date": "time", "datetime": "time",
    "datetime64": "time", "timedelta": "duration", "timedelta64": "duration",
}  # fmt: skip

SMALLEST_EXPONENT = -324  # of a float
DIGITS = 700  # enough for a float with all digits down to that; the default context has 28
_MODELLED = {"number", "boolean", "text", "date", "datetime", "Timestamp", "timedelta", "Timedelta"}


def read_objects(native: Any, name: str) -> tuple[ObjectKind, npt.NDArray[np.float64]]:
    """Returns the type of the objects of a column and, unless they are text, their values as numbers.

    Objects that models cannot use (lists, dicts, bytes) have the type ``"other"``, with 0 for every value. A
    mix of types of which one could be used, such as numbers and text, raises an error, because it is usually
    a mistake.
    """
    import pandas as pd

    observed = native.notna().to_numpy()
    present = native.to_numpy()[observed]
    inferred = pd.api.types.infer_dtype(present, skipna=False) if len(present) else "empty"
    sort = _OBJECT_KINDS.get(inferred) or _kind_of_mixed(present, name)
    values = np.full(len(native), np.nan)
    if sort in ("number", "boolean"):
        try:
            values[observed] = present.astype(np.float64)
        except OverflowError as error:
            raise SchemaError(
                f"Column {name!r} contains a number beyond the range of floating-point numbers."
            ) from error
    elif sort == "other":
        values[observed] = 0.0
    elif sort != "label":
        if any(getattr(moment, "tzinfo", None) is not None for moment in present):
            raise SchemaError(
                f"Column {name!r} contains objects with a time zone ({present[0]!r}). Turn them into a "
                "column "
                "of times, for example with pandas.to_datetime(..., utc=True)."
            )
        values[observed] = present.astype("datetime64[us]" if sort == "time" else "timedelta64[us]").astype(
            np.int64
        )
    return sort, values


def objects_like(native: Any, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns values as objects of the type that an object column holds."""
    import pandas as pd

    present = native.to_numpy()[native.notna().to_numpy()]
    example = present[0] if len(present) else None
    cells = np.empty(len(values), dtype=object)
    cells[:] = values.tolist()
    if isinstance(example, Decimal):
        cells[:] = _as_decimals(values, min(int(number.as_tuple().exponent) for number in _decimals(present)))
    elif isinstance(example, pd.Timestamp | np.datetime64):
        cells[:] = [pd.Timestamp(value) for value in values]
    elif isinstance(example, pd.Timedelta | np.timedelta64):
        cells[:] = [pd.Timedelta(value) for value in values]
    elif isinstance(example, datetime.date) and not isinstance(example, datetime.datetime):
        cells[:] = [moment.date() for moment in values.tolist()]
    return cells


def _as_decimals(values: npt.NDArray[Any], exponent: int) -> list[Decimal]:
    """Returns numbers as decimals with digits down to this exponent, within the precision of floats."""
    unit = Decimal((0, (1,), min(max(exponent, SMALLEST_EXPONENT), 0)))
    with localcontext(prec=DIGITS):
        return [Decimal(repr(value)).quantize(unit) for value in values.tolist()]


def _decimals(present: npt.NDArray[Any]) -> list[Decimal]:
    return [number for number in present if isinstance(number, Decimal)]


def _kind_of_mixed(present: npt.NDArray[Any], name: str) -> ObjectKind:
    examples: dict[str, Any] = {}
    for value in present:
        examples.setdefault(_type_of(value), value)
    if set(examples) == {"number"}:
        return "number"
    if len(examples) == 1 or not examples.keys() & _MODELLED:
        return "other"
    listed = " and ".join(f"{kind} ({value!r})" for kind, value in sorted(examples.items())[:3])
    raise SchemaError(f"Column {name!r} mixes {listed}. Make all its values of one type.")


def type_name(native: Any) -> str:
    """Returns the name of the type of the first object of a column."""
    return _type_of(native.to_numpy()[native.notna().to_numpy()][0])


def _type_of(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "boolean"
    if isinstance(value, int | float | np.integer | np.floating | Decimal):
        return "number"
    return "text" if isinstance(value, str) else type(value).__name__


Codes = npt.NDArray[np.int64]
Factors = tuple[Codes, list[Any], bool, bool]

MICROSECONDS = {"D": 86_400e6, "s": 1e6, "ms": 1e3, "us": 1.0}
EXACT_INTEGERS = 2.0**53  # beyond, floats do not represent all whole numbers
MAX_SORTED = 100_000  # more labels than this that no dtype declares stay in the order they were found


def readable(series: nw.Series[Any]) -> nw.Series[Any]:
    """Returns the same cells in a dtype that narwhals supports, if it does not support their own."""
    native = series.to_native()
    if series.implementation.is_pandas_like() and _is_arrow_backed(native):
        return nw.from_native(_simplified(_arrow_of(native)), series_only=True)
    if series.implementation.is_pandas_like() and getattr(native.dtype, "tz", None) is not None:
        # For zones such as America/New_York.
        return nw.from_native(native.dt.tz_convert("UTC"), series_only=True)
    if series.implementation.is_pyarrow() and (simplified := _simplified(native)) is not native:
        return nw.from_native(simplified, series_only=True)
    return series


def floats(series: nw.Series[Any]) -> npt.NDArray[np.float64]:
    """Returns a column of numbers or booleans as float64, NaN where missing."""
    native = series.to_native()
    if series.implementation.is_pyarrow():
        return np.asarray(native.cast("float64", safe=False).to_numpy())  # also whole numbers above 2**53
    if not series.implementation.is_pandas_like():
        return np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)
    blank = {} if isinstance(native.dtype, np.dtype) else {"na_value": np.nan}
    return np.asarray(native.to_numpy(dtype=np.float64, **blank))


def microseconds(series: nw.Series[Any]) -> npt.NDArray[np.float64]:
    """Returns a column of dates (since 1970, in UTC) or durations as float64, NaN where missing."""
    counts, missing, unit = _counts(series)
    if unit == "ns":  # whole microseconds, without the detour over floats that hold fewer digits
        moments = (counts // 1000).astype(np.float64)
    else:
        moments = counts.astype(np.float64) * MICROSECONDS[unit]
    return np.where(missing, np.nan, moments)


def _counts(series: nw.Series[Any]) -> tuple[Codes, npt.NDArray[np.bool_], str]:
    """Returns the stored integers of dates or durations, which of them are missing, and their unit."""
    native, dtype = series.to_native(), cast(Any, series.dtype)
    unit = "D" if isinstance(dtype, nw.Date) else dtype.time_unit
    if series.implementation.is_pandas_like():
        kind = "timedelta64" if isinstance(dtype, nw.Duration) else "datetime64"
        moments = native.to_numpy(dtype=f"{kind}[{unit}]")
        return moments.astype(np.int64), np.isnat(moments), unit
    missing = series.is_null().to_numpy()
    if series.implementation.is_polars():
        return native.to_physical().fill_null(0).cast(_polars().Int64).to_numpy(), missing, unit
    width = "int32" if unit == "D" else "int64"
    return native.cast(width).fill_null(0).to_numpy().astype(np.int64), missing, unit


def show_dtype(series: nw.Series[Any]) -> str:
    """Returns the name of a column's dtype, which determines its range."""
    native = series.to_native()
    if series.implementation.is_pyarrow() and str(native.type).startswith("decimal"):
        return str(native.type)  # narwhals has one width only
    return str(getattr(native, "dtype", series.dtype))


def factorize(series: nw.Series[Any]) -> Factors:
    """Returns codes (-1 if missing), labels, whether the dtype declares the labels, and their order.

    Labels that are not declared by a dtype are sorted.
    """
    native = series.to_native()
    if series.implementation.is_pandas_like():
        return _factorize_pandas(native)
    if series.implementation.is_polars():
        return _factorize_polars(native)
    if series.implementation.is_pyarrow():
        return _factorize_pyarrow(native)
    raise SchemaError(f"Tables of {series.implementation} are not supported; convert to pandas or polars.")


def plain(label: Any) -> Any:
    """Returns a label as a JSON value: text, an integer, a number or a boolean; anything else as text."""
    if isinstance(label, str | bool):
        return label
    if isinstance(label, int | np.integer):
        return int(label)
    if isinstance(label, float | np.floating):
        number = float(label)
        return int(number) if number.is_integer() and abs(number) < EXACT_INTEGERS else number
    return bool(label) if isinstance(label, np.bool_) else str(label)


def write_cells(series: nw.Series[Any], rows: npt.NDArray[np.int64], values: npt.NDArray[Any]) -> Any:
    """Returns the native column with `values` in the given rows, its dtype unchanged.

    Values are numbers, booleans, labels, ``datetime64[us]`` (UTC) or ``timedelta64[us]``. If all cells of a
    column are missing and its dtype cannot hold the values (such as float for text), the dtype is changed.
    Numbers and times outside the range of a dtype that is narrower than in `fit` are replaced by the nearest
    value within it. If a pandas category or pyarrow dictionary lacks a label, the label is added.
    """
    native = series.to_native()
    library = series.implementation
    dtype = readable(series).dtype
    if not _holds(dtype, values):
        if len(rows) < len(series):
            raise SchemaError(f"Column {series.name!r} of dtype {native.dtype} cannot hold {values[0]!r}.")
        return _fresh(series, values[np.argsort(rows)])
    storage = _storage(dtype)
    if storage is not None:
        values = storable(values, storage, show_dtype(series))
    if library.is_pandas_like():
        return _write_pandas(native, rows, values)
    return (
        _write_polars(native, rows, values) if library.is_polars() else _write_pyarrow(native, rows, values)
    )


def put_columns(frame: nw.DataFrame[Any], columns: Mapping[int, Any]) -> Any:
    """Returns a native table with other native columns at the given positions.

    It is made at once: changing one column after the other takes a time that grows with the square of their
    number.
    """
    native = frame.to_native()
    if frame.implementation.is_pandas_like():
        import pandas as pd

        lazily = int(pd.__version__.split(".")[0]) >= 3  # pandas 2 would share memory that a user may write
        parts = {j: columns[j] if j in columns else native.iloc[:, j] for j in range(native.shape[1])}
        whole = native._constructor(parts, index=native.index, copy=not lazily)
        whole.columns = native.columns
        return whole.__finalize__(native)
    if frame.implementation.is_polars():
        named = [column.alias(native.columns[position]) for position, column in columns.items()]
        return native.with_columns(named) if named else native.clone()
    if not columns:
        return native  # it cannot be changed by a user
    import pyarrow as pa

    fields, arrays = list(native.schema), native.columns
    for position, column in columns.items():
        fields[position] = fields[position].with_type(column.type)  # with its metadata
        arrays[position] = column
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, native.schema.metadata))


def _holds(dtype: Any, values: npt.NDArray[Any]) -> bool:
    """Returns whether a column of a narwhals dtype can hold values of this type."""
    sort = values.dtype.kind
    if sort == "O":
        sort = "U" if len(values) and isinstance(values[0], str) else "f"
    if isinstance(dtype, nw.Datetime | nw.Date):
        return sort == "M"
    if isinstance(dtype, nw.Duration):
        return sort == "m"
    if isinstance(dtype, nw.String):
        return sort == "U"
    if dtype.is_numeric() or isinstance(dtype, nw.Boolean):
        return sort in "biuf"
    return not isinstance(dtype, nw.Unknown)


def _storage(dtype: Any) -> str | None:
    """Returns the storage type of a narwhals dtype with a range, None for labels and objects."""
    if isinstance(dtype, nw.Datetime | nw.Date):
        return "time"
    if isinstance(dtype, nw.Duration | nw.Boolean):
        return "duration" if isinstance(dtype, nw.Duration) else "boolean"
    return "number" if dtype.is_numeric() else None


def _fresh(series: nw.Series[Any], values: npt.NDArray[Any]) -> Any:
    cells = values.tolist() if values.dtype == object else values
    if series.implementation.is_pandas_like():
        import pandas as pd

        native = series.to_native()
        return pd.Series(cells, index=native.index, name=native.name)
    if series.implementation.is_polars():
        return _polars().Series(cells)
    import pyarrow as pa

    return pa.chunked_array([pa.array(cells)])


def _sorted(codes: Codes, labels: list[Any]) -> Factors:
    if len(labels) > MAX_SORTED:
        return codes, labels, False, False
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
    pl = _polars()
    declared = isinstance(native.dtype, pl.Enum)
    if declared:
        labels, levelled = native.dtype.categories.to_list(), native
    else:
        text = native.cast(pl.String)
        labels = text.drop_nulls().unique(maintain_order=True).to_list()
        levelled = text.cast(pl.Enum(labels))
    codes = levelled.to_physical().cast(pl.Int64).fill_null(-1).to_numpy()
    return (codes, labels, True, False) if declared else _sorted(codes, labels)


def _factorize_pyarrow(native: Any) -> Factors:
    import pyarrow as pa

    declared = pa.types.is_dictionary(native.type)
    ordered = declared and bool(native.type.ordered)
    if not len(native):
        return np.empty(0, dtype=np.int64), [], declared, ordered
    encoded = _one_array(native if declared else native.dictionary_encode())
    indices = encoded.indices.cast(pa.int64())  # those of polars are unsigned
    codes = indices.fill_null(-1).to_numpy(zero_copy_only=False)
    labels: dict[Any, int] = {}  # a dictionary may hold null or NaN, or a value twice
    new = [
        -1 if v is None or v != v else labels.setdefault(v, len(labels))
        for v in encoded.dictionary.to_pylist()
    ]
    codes = np.array([*new, -1], dtype=np.int64)[codes]
    return (codes, list(labels), True, ordered) if declared else _sorted(codes, list(labels))


def _write_pandas(native: Any, rows: npt.NDArray[np.int64], values: npt.NDArray[Any]) -> Any:
    import pandas as pd

    if _is_arrow_backed(native):
        array = pd.arrays.ArrowExtensionArray(_write_pyarrow(_arrow_of(native), rows, values))
    elif hasattr(native.dtype, "categories"):
        array = _write_categories(native, rows, values)
    else:
        array = native.array.copy()
        array[rows] = _pandas_cells(native, values)
    return pd.Series(array, index=native.index, name=native.name, dtype=array.dtype, copy=False)


def _pandas_cells(native: Any, values: npt.NDArray[Any]) -> Any:
    import pandas as pd

    if native.dtype == np.dtype(object):
        return objects_like(native, values)
    if getattr(native.dtype, "tz", None) is not None:
        return pd.Series(values).dt.tz_localize("UTC").astype(native.dtype).array
    cells = values.tolist() if values.dtype == object else values
    return (
        np.asarray(cells, native.dtype)
        if isinstance(native.dtype, np.dtype)
        else pd.array(cells, native.dtype)
    )


def _write_categories(native: Any, rows: npt.NDArray[np.int64], values: npt.NDArray[Any]) -> Any:
    import pandas as pd

    old: Any = native.array
    position = {plain(label): i for i, label in enumerate(old.categories)}
    found, labels = pd.factorize(values)
    added = [label for label in labels if label not in position]
    position |= {label: len(old.categories) + i for i, label in enumerate(added)}
    codes = old.codes.astype(np.int64)
    codes[rows] = np.array([position[label] for label in labels], dtype=np.int64)[found]
    return pd.Categorical.from_codes(codes, dtype=(old.add_categories(added) if added else old).dtype)


def _write_polars(native: Any, rows: npt.NDArray[np.int64], values: npt.NDArray[Any]) -> Any:
    pl = _polars()
    new = pl.Series(values.tolist() if values.dtype == object else values)
    if isinstance(native.dtype, pl.Enum):
        unknown = [label for label in new.unique().to_list() if label not in native.dtype.categories]
        if unknown:
            raise SchemaError(
                f"Column {native.name!r}: its Enum lacks {unknown[0]!r}, a level the model was fitted with. "
                "Declare the same levels as in fit."
            )
    if isinstance(native.dtype, pl.Enum | pl.Categorical):
        return native.cast(pl.String).scatter(rows, new).cast(native.dtype)
    zone = getattr(native.dtype, "time_zone", None)
    new = new.dt.replace_time_zone("UTC").dt.convert_time_zone(zone) if zone else new
    return native.clone().scatter(rows, new.cast(native.dtype))


def _write_pyarrow(native: Any, rows: npt.NDArray[np.int64], values: npt.NDArray[Any]) -> Any:
    import pyarrow as pa

    array = _one_array(native)
    new = pa.array(values.tolist() if values.dtype == object else values)
    if pa.types.is_dictionary(array.type):
        return pa.chunked_array([_write_dictionary(array, rows, new)])
    if getattr(array.type, "tz", None) is not None:
        new = new.cast(pa.timestamp("us", tz="UTC"))
    if pa.types.is_string_view(array.type):  # has no kernel
        return pa.chunked_array([_put(array.cast(pa.string()), rows, new).cast(array.type)])
    if pa.types.is_decimal(array.type) and pa.types.is_integer(new.type):
        new = new.cast(pa.float64(), safe=False)  # whole numbers are refused where 19 digits have no room
    return pa.chunked_array([_put(array, rows, new.cast(array.type, safe=False))])


def _write_dictionary(array: Any, rows: npt.NDArray[np.int64], new: Any) -> Any:
    import pyarrow as pa

    encoded = new.dictionary_encode()
    labels = array.dictionary.to_pylist()
    position = {plain(label): i for i, label in reversed(list(enumerate(labels)))}  # the first of equals
    added = [label for label in encoded.dictionary.to_pylist() if label not in position]
    position |= {label: len(labels) + i for i, label in enumerate(added)}
    table = np.array([position[label] for label in encoded.dictionary.to_pylist()], dtype=np.int64)
    codes = pa.array(table[encoded.indices.to_numpy()]).cast(array.indices.type)
    dictionary = array.dictionary
    if added:
        dictionary = pa.concat_arrays([dictionary, pa.array(added).cast(dictionary.type)])
    indices = _put(array.indices, rows, codes)
    return pa.DictionaryArray.from_arrays(indices, dictionary, ordered=array.type.ordered)


def _put(array: Any, rows: npt.NDArray[np.int64], new: Any) -> Any:
    """Returns an arrow array with some cells replaced; `replace_with_mask` does not support all types."""
    import pyarrow as pa

    taken = np.arange(len(array))
    taken[rows] = len(array) + np.arange(len(rows))
    return pa.concat_arrays([array, new]).take(pa.array(taken))


def _one_array(native: Any) -> Any:
    import pyarrow as pa

    if not isinstance(native, pa.ChunkedArray):
        return native
    chunks = native.unify_dictionaries().chunks if pa.types.is_dictionary(native.type) else native.chunks
    return pa.concat_arrays(chunks) if chunks else pa.array([], type=native.type)


def _simplified(native: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_date64(native.type):
        return native.cast(pa.date32())
    if pa.types.is_decimal(native.type):  # the direct way multiplies by an inexact 0.1**scale
        return native.cast(pa.string()).cast(pa.float64())
    if pa.types.is_dictionary(native.type) and not _has_labels(native.type.value_type):
        chunks = [chunk.dictionary_decode() for chunk in native.chunks]
        return pa.chunked_array(chunks, native.type.value_type)
    return native.cast(pa.string()) if pa.types.is_string_view(native.type) else native


def _has_labels(dtype: Any) -> bool:
    """Returns whether the values of a pyarrow dictionary can be the levels of a column."""
    import pyarrow as pa

    binary = (
        pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary,
    )  # fmt: skip
    return not pa.types.is_nested(dtype) and not any(is_kind(dtype) for is_kind in binary)


def _is_arrow_backed(native: Any) -> bool:
    return type(native.dtype).__name__ == "ArrowDtype"


def _arrow_of(native: Any) -> Any:
    import pyarrow as pa

    array = pa.array(native.array)
    return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])


def _polars() -> Any:
    import polars

    return polars
