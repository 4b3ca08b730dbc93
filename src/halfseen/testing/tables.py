"""Tables that estimators meet, and ways to take rows, hide cells and compare cells in any library."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import narwhals as nw
import numpy as np

from halfseen.datasets import load_penguins
from halfseen.errors import HalfseenWarning


@dataclass(frozen=True)
class Case:
    """A table, the columns whose missing cells stay empty, and those that do not apply to every row."""

    name: str
    make: Callable[[], Any]
    left: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    def __str__(self):
        return self.name


def gaussian_array(n_rows=200, n_columns=4, rate=0.2, seed=0):
    """Correlated Gaussian numbers on different scales, with cells missing completely at random."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n_columns, n_columns))
    array = (rng.normal(size=(n_rows, n_columns)) @ root + rng.normal(size=n_columns)) * 10.0 ** np.arange(
        n_columns
    )
    array[rng.random(array.shape) < rate] = np.nan
    return array


ARRAY = Case("array", gaussian_array)
PENGUINS = Case("penguins", load_penguins)
TABLES = {case.name: case for case in (ARRAY, PENGUINS)}
"""The tables of `check_imputer` and `check_predictor`: numbers in an array, and a mixed frame."""


def names(table):
    """The names of columns; x0, x1, ... of an array."""
    if isinstance(table, np.ndarray):
        return [f"x{j}" for j in range(table.shape[1])]
    return nw.from_native(table, eager_only=True).columns


def cells(table):
    """The columns as lists of plain values, None where missing."""
    if isinstance(table, np.ndarray):
        columns = [table[:, j].tolist() for j in range(table.shape[1])]
    else:
        frame = nw.from_native(table, eager_only=True)
        columns = [frame[name].to_list() for name in frame.columns]
    return [[None if _is_missing(value) else value for value in column] for column in columns]


def _is_missing(value):
    return value is None or type(value).__name__ == "NAType" or value != value


def bits(table):
    """The columns as lists in which two cells are equal only if they are of one type and identical."""
    return [[v.hex() if isinstance(v, float) else (type(v), v) for v in column] for column in cells(table)]


def missing(table):
    """Which cells are missing, as a boolean array (N, P)."""
    return np.array([[v is None for v in column] for column in cells(table)]).T.reshape(len(table), -1)


def dtypes(table):
    """The types of columns as the library has them."""
    if isinstance(table, np.ndarray):
        return table.dtype
    return table.dtypes.to_dict() if _library(table) == "pandas" else table.schema


def index(table):
    """The labels of rows."""
    return list(table.index) if _library(table) == "pandas" else list(range(len(table)))


def take(table, rows):
    """The rows at some positions, in the given order and number."""
    if isinstance(table, np.ndarray):
        return table[list(rows)]
    if _library(table) == "pyarrow":
        return table.take(np.array(list(rows), dtype=np.int64))
    return table.iloc[list(rows)] if _library(table) == "pandas" else table[list(rows)]


def hide(table, where):
    """Returns the table with the cells of a boolean array (N, P) missing, as each library would have it."""
    where = np.broadcast_to(where, (len(table), len(names(table))))
    if isinstance(table, np.ndarray):
        return np.where(where, np.nan, table)
    if _library(table) == "pandas":
        hidden = {name: table[name].mask(where[:, j]) for j, name in enumerate(table.columns)}
        return type(table)(hidden)
    if _library(table) == "polars":
        import polars as pl

        return table.with_columns(
            pl.when(pl.Series(~where[:, j])).then(pl.col(name)).otherwise(None).alias(name)
            for j, name in enumerate(table.columns)
        )
    arrays = [_hide_arrow(column, where[:, j]) for j, column in enumerate(table.columns)]
    return type(table).from_pydict(dict(zip(table.column_names, arrays, strict=True)))


def _hide_arrow(column, where):
    import pyarrow as pa
    import pyarrow.compute as pc

    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    if pa.types.is_dictionary(array.type):
        codes = _hide_arrow(pa.chunked_array([array.indices]), where)
        return pa.DictionaryArray.from_arrays(codes, array.dictionary, ordered=array.type.ordered)
    return pc.if_else(pa.array(where), pa.scalar(None, type=array.type), array)


def _library(table):
    return type(table).__module__.partition(".")[0]


def assert_close(actual, expected, rtol=1e-9):
    """Numbers agree to `rtol` of the largest of their column, moments to a millisecond, the rest exactly."""
    for name, a, e in zip(names(expected), cells(actual), cells(expected), strict=True):
        if any(isinstance(v, float) for v in e):
            np.testing.assert_allclose(
                np.array(a, dtype=float),
                np.array(e, dtype=float),
                rtol=0,
                atol=rtol * max(abs(v) for v in e if v is not None),
                err_msg=f"column {name!r}",
            )
        elif any(isinstance(v, datetime) for v in e):
            spans = [abs(p - q) for p, q in zip(a, e, strict=True) if p is not None]
            assert max(spans, default=timedelta()) <= timedelta(milliseconds=1), f"column {name!r}"
        else:
            assert a == e, f"column {name!r}: {a} instead of {e}"


def assert_identical(actual, expected):
    """Two lists of tables, or of arrays with any number of axes, are the same bit by bit."""
    assert len(actual) == len(expected), f"{len(actual)} answers instead of {len(expected)}"
    for one, other in zip(actual, expected, strict=True):
        same = bits(as_table(one)) == bits(as_table(other))
        assert same, f"{cells(as_table(one))} instead of {cells(as_table(other))}"


def as_table(answer):
    """Arrays with any number of axes as arrays of two axes; tables as they are."""
    return answer.reshape(len(answer), -1) if isinstance(answer, np.ndarray) and answer.size else answer


def answers(imputer, table, n_draws=2):
    """Every table that an imputer makes of another."""
    found = [imputer.transform(table)]
    if hasattr(imputer, "sample"):
        found.extend(imputer.sample(table, n_draws=n_draws))
    if hasattr(imputer, "interval"):
        found.extend(imputer.interval(table, level=0.8))
    return found


def scores(imputer, table):
    """The scores of rows; zeros if the imputer has no density."""
    return imputer.score_samples(table) if hasattr(imputer, "score_samples") else np.zeros(len(table))


def stays_empty(imputer, table, answer):
    """Which cells (N, P) should be missing in an answer: of columns that are left, and where rules hold."""
    rows = dict(zip(names(answer), cells(answer), strict=True))
    rules, left = getattr(imputer, "skip_rules_", {}), getattr(imputer, "columns_left_", {})
    expected = missing(table)
    for j, name in enumerate(names(table)):
        rule = rules.get(name)
        if rule is not None:
            expected[:, j] &= [value is None or value in rule.values for value in rows[rule.column]]
        elif name not in left:
            expected[:, j] = False
    return expected


def fit_quietly(estimator, *content, **arguments):
    """Fits, and does not mind warnings, such as those about columns that are left empty."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HalfseenWarning)
        return estimator.fit(*content, **arguments)
