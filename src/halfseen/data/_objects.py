"""pandas columns of dtype object: the type of their Python objects, and new cells of the same type."""

import datetime
import re
from decimal import Decimal, localcontext
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from halfseen.errors import SchemaError

_INTEGER = re.compile(r"(u?)int(8|16|32|64|128)(\[pyarrow\])?")
_HALF = re.compile(r"(float16|halffloat)(\[pyarrow\])?")
_SINGLE = re.compile(r"(float32|float\[pyarrow\])")
_DECIMAL = re.compile(r"decimal\d*\((?:precision=)?(\d+), (?:scale=)?(-?\d+)\)(\[pyarrow\])?")
_NANOSECONDS = re.compile(r"[\['\"]ns\b")
_YEARS_1_TO_9999 = (-62_135_596_800e6, 253_402_300_799e6)


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
