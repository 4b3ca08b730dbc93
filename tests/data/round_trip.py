"""Fills the missing cells of any table with the middle of each column, and compares tables."""

import numpy as np
import pandas as pd
import polars as pl

from halfseen.data.frames import Table
from halfseen.data.schema import Schema


def fill(frame, overrides=None, schema=None):
    """Returns the schema and the completed table."""
    table = Table(frame)
    schema = schema or Schema.infer(table, overrides)
    cells = {}
    for j, column in enumerate(schema):
        raw = table.column(j)
        rows = np.flatnonzero(np.isnan(raw.values))
        if not len(rows) or (not column.modelled and column.fill_code is None):
            continue
        code = np.nan_to_num(np.nanmean([*column.encode(raw), 0.0])) if column.modelled else column.fill_code
        codes = np.full(len(rows), code)
        cells[j] = rows, column.decode(column.constrain(codes) if column.modelled else codes)
    return schema, table.filled(cells)


def holes(frame):
    """Returns which cells are missing, by the library's own account: (N, P)."""
    if isinstance(frame, np.ndarray):
        return np.isnan(frame)
    if isinstance(frame, pd.DataFrame):
        return frame.isna().to_numpy()
    if isinstance(frame, pl.DataFrame):
        return np.column_stack(
            [
                (c.is_null() | c.is_nan().fill_null(True) if c.dtype.is_float() else c.is_null()).to_numpy()
                for c in frame.iter_columns()
            ]
        )
    return np.column_stack([c.is_null(nan_is_null=True).to_numpy() for c in frame.columns])


def assert_same_frame(actual, expected, rows=None):
    """Asserts that tables are equal to the bit, with equal dtypes, names and index, in the given rows."""
    rows = np.arange(len(expected)) if rows is None else np.flatnonzero(rows)
    if isinstance(expected, pd.DataFrame):
        assert type(actual) is type(expected)
        assert actual.attrs == expected.attrs
        assert (actual.dtypes == expected.dtypes).all()
        actual, expected = actual.iloc[rows], expected.iloc[rows]
        pd.testing.assert_frame_equal(
            actual, expected, check_exact=True, check_column_type=True, check_freq=True
        )
        for j, dtype in enumerate(expected.dtypes):
            if dtype == np.dtype(object):
                cells = zip(actual.iloc[:, j], expected.iloc[:, j], strict=True)
                assert all(type(a) is type(b) and (a is b or a == b or a != a) for a, b in cells)
            if isinstance(dtype, np.dtype) and dtype.kind == "f":
                same_bits(actual.iloc[:, j].to_numpy(), expected.iloc[:, j].to_numpy())
    elif isinstance(expected, pl.DataFrame):
        assert actual.schema == expected.schema
        assert actual[rows].equals(expected[rows], null_equal=True)
        for a, b in zip(actual[rows].iter_columns(), expected[rows].iter_columns(), strict=True):
            if b.dtype.is_float() and not b.null_count():
                same_bits(a.to_numpy(), b.to_numpy())
    elif isinstance(expected, np.ndarray):
        assert actual.dtype == expected.dtype
        same_bits(actual[rows], expected[rows])
    else:
        assert actual.schema.equals(expected.schema, check_metadata=True)
        assert repr(actual.take(rows).to_pylist()) == repr(expected.take(rows).to_pylist())  # -0.0 is not 0.0


def same_bits(actual, expected):
    assert np.ascontiguousarray(actual).tobytes() == np.ascontiguousarray(expected).tobytes()
