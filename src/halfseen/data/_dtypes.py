"""The range of numbers that a dtype of any library can store."""

import re
from typing import Any

import numpy as np
import numpy.typing as npt

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
