"""Columns of Arrow types and values at the edge of what their type holds, the last two cells missing."""

import datetime

import numpy as np
import pyarrow as pa

N = 12


def _holed(values, dtype=None):
    return pa.array([*values, None, None], dtype)


def _stored(values, dtype):
    """Returns moments from the whole numbers that are stored, which no check of Arrow sees."""
    width = pa.int32() if pa.types.is_date32(dtype) else pa.int64()
    return pa.array([*values, None, None], width).view(dtype)


def _days(*years):
    first = [datetime.date(2020, 1, 1 + day) for day in range(N - len(years))]
    return _holed([*first, *(datetime.date(year, 12, 31) for year in years)])


STEPS = range(N)
COLUMNS = {
    "a sentinel in 9999": _days(9999),
    "a day in the year 1": _days(1),
    "days beyond the year 9999": _stored([step * 100_000_000 for step in STEPS], pa.date32()),
    "seconds beyond the year 9999": _stored([step * 10**12 for step in STEPS], pa.timestamp("s")),
    "nanoseconds": _stored([1_600_000_000_000_000_001 + 777 * step for step in STEPS], pa.timestamp("ns")),
    "nanoseconds in a zone": _stored(
        [1_600_000_000_000_000_001 + 777 * step for step in STEPS], pa.timestamp("ns", "America/New_York")
    ),
    "nanoseconds of 1678": _stored([-92 * 10**17 + step * 10**16 for step in STEPS], pa.timestamp("ns")),
    "milliseconds of a day": _holed([step * 86_400_000 for step in STEPS], pa.date64()),
    "durations in nanoseconds": _stored([1 + 777 * step for step in STEPS], pa.duration("ns")),
    "the longest durations": _stored([(-1) ** s * 9 * 10**18 - s for s in STEPS], pa.duration("us")),
    "durations beyond microseconds": _stored([(-1) ** s * 9 * 10**17 - s for s in STEPS], pa.duration("s")),
    "a range of 1e308": _holed([(-1) ** step * 1e308 * (1 + step / 30) for step in STEPS]),
    "numbers near 1.6e308": _holed([1.6e308 * (1 - step / 30) for step in STEPS]),
    "numbers close together near 1.6e308": _holed([1.6e308 * (1 - step * 1e-12) for step in STEPS]),
    "a constant of 1e300": _holed([1e300] * N),
    "a constant of 2**70": _holed([2.0**70] * N),
    "whole numbers from 2**53": _holed([2**53 + 1 + step for step in STEPS]),
    "whole numbers up to 2**63": _holed([2**63 - 1 - step for step in STEPS]),
    "whole numbers up to 2**64": _holed([2**64 - 1 - step for step in STEPS], pa.uint64()),
    "whole numbers at both ends": _holed([(-1) ** step * (2**63 - 1 - step) for step in STEPS]),
    "the least floats": _holed([5e-324 * (1 + step) for step in STEPS]),
    "denormal floats": _holed([1e-310 * (1 + step) for step in STEPS]),
    "half floats": _holed(np.linspace(60_000, 65_504, N).astype(np.float16), pa.float16()),
    "single floats": _holed(np.linspace(-3.4e38, 3.4e38, N).astype(np.float32), pa.float32()),
    "NaN": pa.array([1.5, 2.5, np.nan] * 4 + [3.0, np.nan]),
    "views of text": _holed(["a", "b", "c"] * 4, pa.string_view()),
    "a dictionary with a null": pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 2] * 4 + [None, 2]), pa.array(["x", "y", None])
    ),
    "a dictionary of numbers": _holed([1, 2, 3] * 4).dictionary_encode(),
    "wide decimals": _holed([10**37 - step * 10**35 for step in STEPS], pa.decimal128(38, 0)),
    "positive and negative zero": _holed([-0.0, 0.0] * 6),
}


def table_with(column):
    """Returns a table with an extreme column and a plain one that lacks cells too."""
    plain = pa.array([float(row % 5) if row % 4 else None for row in range(len(column))])
    return pa.table({"extreme": column, "plain": plain})
