"""Tables that imputers meet, and ways to take rows, hide cells and compare cells that know every library."""

import hashlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from halfseen import HalfseenWarning
from halfseen.datasets import load_penguins


@dataclass(frozen=True)
class Case:
    """A table, the columns whose missing cells stay empty, and those that do not apply to every row."""

    name: str
    make: Callable[[], Any]
    left: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    repeats: bool = False  # the cells of another case, or easier ones

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


def _nasty_columns(n_rows=260, seed=1):
    """Columns as lists with None: everything users were seen to have, in one table."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n_rows)
    town = rng.permutation(np.r_[np.arange(100), rng.integers(0, 10, n_rows - 100)])
    grade = np.array(["low", "mid", "high"])[np.digitize(z + rng.normal(size=n_rows), [-0.5, 0.5])]
    start = datetime(2024, 1, 1)
    columns = {
        "größe": (170 + 10 * z + rng.normal(size=n_rows)).tolist(),
        "温度 °C": (3 * z + rng.normal(size=n_rows)).astype(np.float32).tolist(),
        "always 7.5": [7.5] * n_rows,
        "empty": [None] * n_rows,
        "empty text": [None] * n_rows,
        "row_id": list(range(1000, 1000 + 3 * n_rows, 3)),
        "code": [f"#{i:04x}" for i in rng.permutation(n_rows)],
        "when": [start + timedelta(seconds=int(s)) for s in rng.integers(0, 10**7, n_rows)],
        "grade": grade.tolist(),
        "flag": (z + 0.5 * rng.normal(size=n_rows) > 0).tolist(),
        "town": [f"Ort-{i:02d}-é" for i in town],
        "visits": rng.poisson(np.exp(0.5 * z) + 1).tolist(),
    }
    for name, values in columns.items():
        if name != "row_id":
            columns[name] = [None if hole else v for v, hole in zip(values, rng.random(n_rows) < 0.15)]  # noqa: B905
    return columns


GRADES = ["low", "mid", "high", "top"]  # the last is declared, and never seen


def nasty_pandas():
    columns = _nasty_columns()
    frame = pd.DataFrame(
        {
            "größe": pd.array(columns["größe"], dtype="Float64"),
            "温度 °C": pd.array(columns["温度 °C"], dtype="Float32").astype("float32"),
            "always 7.5": pd.Series(columns["always 7.5"], dtype="float64"),
            "empty": pd.Series(columns["empty"], dtype="float64"),
            "empty text": pd.Series(columns["empty text"], dtype=object),
            "row_id": columns["row_id"],
            "code": pd.Series(columns["code"], dtype="str"),
            "when": pd.Series(columns["when"], dtype="datetime64[ns]"),
            "grade": pd.Categorical(columns["grade"], categories=GRADES, ordered=True),
            "flag": pd.Series(columns["flag"], dtype=object),
            "town": pd.Series(columns["town"], dtype=object),
            "visits": pd.array(columns["visits"], dtype="Int64"),
        }
    )
    frame.index = pd.Index([f"Zeile {i}" for i in range(len(frame))][::-1], name="nummer")
    return frame


def nasty_polars():
    types = {
        "温度 °C": pl.Float32,
        "empty": pl.Float64,
        "empty text": pl.String,
        "when": pl.Datetime("us", "Europe/Zurich"),
        "grade": pl.Enum(GRADES),
        "town": pl.Categorical,
        "visits": pl.UInt16,
    }
    return pl.DataFrame(
        {
            name: pl.Series(name, values, dtype=types.get(name), strict=False)
            for name, values in _nasty_columns().items()
        }
    )


def nasty_pyarrow():
    columns = _nasty_columns()
    position = {grade: i for i, grade in enumerate(GRADES)}
    codes = pa.array([None if v is None else position[v] for v in columns["grade"]], type=pa.int8())
    types = {"温度 °C": pa.float32(), "empty": pa.float64(), "empty text": pa.string(), "visits": pa.int32()}
    arrays = {name: pa.array(values, type=types.get(name)) for name, values in columns.items()}
    arrays["grade"] = pa.DictionaryArray.from_arrays(codes, pa.array(GRADES), ordered=True)
    return pa.table(arrays)


def clinic(n_rows=150, seed=3):
    """A table in which men have no pregnancy, and who is not pregnant no weeks; with lists and a checkbox."""
    rng = np.random.default_rng(seed)
    man = rng.random(n_rows) < 0.5
    pregnant = np.where(man, None, np.where(rng.random(n_rows) < 0.5, "yes", "no"))
    frame = pd.DataFrame(
        {
            "sex": np.where(man, "m", "f"),
            "hb": rng.normal(14 + man, 1).round(1),
            "height": rng.normal(165 + 12 * man, 8),
            "weight": rng.normal(65 + 12 * man, 9),
            "age": rng.normal(40, 9, n_rows),
            "pregnant": pd.Series(pregnant, dtype=object),
            "weeks": np.where(pregnant == "yes", rng.integers(4, 40, n_rows), np.nan),
            "codes": [[1, 2] if i % 3 else None for i in range(n_rows)],
            "smoker": pd.Series(["yes" if i % 4 else None for i in range(n_rows)], dtype=object),
        }
    )
    holes = rng.random((n_rows, 2)) < 0.1
    return frame.assign(sex=frame["sex"].mask(holes[:, 0]), hb=frame["hb"].mask(holes[:, 1]))


LEFT = ("empty", "empty text", "row_id", "code")
ARRAY = Case("array", gaussian_array)
PENGUINS = Case("penguins-pandas", lambda: load_penguins("pandas"), repeats=True)
NASTY = Case("nasty-pandas", nasty_pandas, LEFT)
TABLES = (
    ARRAY,
    PENGUINS,
    Case("penguins-polars", lambda: load_penguins("polars"), repeats=True),
    Case("penguins-pyarrow", lambda: load_penguins("pyarrow"), repeats=True),
    NASTY,
    Case("nasty-polars", nasty_polars, LEFT, repeats=True),
    Case("nasty-pyarrow", nasty_pyarrow, LEFT, repeats=True),
    Case("clinic-pandas", clinic, ("codes", "smoker"), ("pregnant", "weeks")),
)
CASES_BY_NAME = {case.name: case for case in TABLES}


def names(table):
    if isinstance(table, np.ndarray):
        return [f"x{j}" for j in range(table.shape[1])]
    return table.column_names if isinstance(table, pa.Table) else list(table.columns)


def cells(table):
    """The columns as lists of plain values, None where missing."""
    if isinstance(table, np.ndarray):
        columns = [table[:, j].tolist() for j in range(table.shape[1])]
    elif isinstance(table, pa.Table):
        columns = [column.to_pylist() for column in table.columns]
    elif isinstance(table, pl.DataFrame):
        columns = [table[name].to_list() for name in table.columns]
    else:
        columns = [table[name].tolist() for name in table.columns]
    return [[None if v is None or v is pd.NA or v is pd.NaT or v != v else v for v in c] for c in columns]


def bits(table):
    """The columns as lists in which two cells are equal only if they are of one type and identical."""
    return [[v.hex() if isinstance(v, float) else (type(v), v) for v in column] for column in cells(table)]


def missing(table):
    """Which cells are missing, as a boolean array (N, P)."""
    return np.array([[v is None for v in column] for column in cells(table)]).T.reshape(len(table), -1)


def dtypes(table):
    if isinstance(table, np.ndarray):
        return table.dtype
    return table.schema if isinstance(table, pa.Table | pl.DataFrame) else table.dtypes.to_dict()


def index(table):
    return list(table.index) if isinstance(table, pd.DataFrame) else list(range(len(table)))


def take(table, rows):
    if isinstance(table, pd.DataFrame):
        return table.iloc[list(rows)]
    if isinstance(table, pa.Table):
        return table.take(pa.array(list(rows), type=pa.int64()))
    return table[list(rows)]


def hide(table, where):
    """Returns the table with the cells of a boolean array (N, P) missing, as each library would have it."""
    where = np.broadcast_to(where, (len(table), len(names(table))))
    if isinstance(table, np.ndarray):
        return np.where(where, np.nan, table)
    if isinstance(table, pl.DataFrame):
        return table.with_columns(
            pl.when(pl.Series(~where[:, j])).then(pl.col(name)).otherwise(None).alias(name)
            for j, name in enumerate(table.columns)
        )
    if isinstance(table, pa.Table):
        arrays = [_hide_arrow(column, where[:, j]) for j, column in enumerate(table.columns)]
        return pa.table(dict(zip(table.column_names, arrays, strict=True)))
    return pd.DataFrame({name: table[name].mask(where[:, j]) for j, name in enumerate(table.columns)})


def _hide_arrow(column, where):
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    if pa.types.is_dictionary(array.type):
        codes = _hide_arrow(pa.chunked_array([array.indices]), where)
        return pa.DictionaryArray.from_arrays(codes, array.dictionary, ordered=array.type.ordered)
    return pa.compute.if_else(pa.array(where), pa.scalar(None, type=array.type), array)


def fingerprint(table):
    """A hash of every cell, equal in another process."""
    return hashlib.sha256(repr(cells(table)).encode()).hexdigest()


def hashes_of_answers(estimator, table):
    """Hashes of everything that an estimator says of a table."""
    if hasattr(estimator, "predict"):
        more = "predict_proba" if hasattr(estimator, "predict_proba") else "predict_interval"
        arrays = [estimator.predict(table), *getattr(estimator, more)(table)]
        return [array.tobytes().hex() for array in arrays]
    tables = [estimator.transform(table), *estimator.sample(table, n_draws=2), *estimator.interval(table)]
    probabilities = [array.tobytes().hex() for array in estimator.class_probabilities(table).values()]
    if hasattr(estimator, "score_samples"):
        probabilities.append(estimator.score_samples(table).tobytes().hex())
    return [*(fingerprint(each) for each in tables), *probabilities]


def scores(imputer, table):
    """The scores of rows; none if the imputer has no density."""
    return imputer.score_samples(table) if hasattr(imputer, "score_samples") else np.zeros(len(table))


def assert_close(actual, expected, rtol=1e-9):
    """Numbers agree to `rtol` of the largest of their column, moments to a microsecond, the rest exactly."""
    for a, e in zip(cells(actual), cells(expected), strict=True):
        if any(isinstance(v, float) for v in e):
            np.testing.assert_allclose(
                np.array(a, dtype=float),
                np.array(e, dtype=float),
                rtol=0,
                atol=rtol * max(abs(v) for v in e if v is not None),
            )
        elif any(isinstance(v, datetime) for v in e):
            spans = [abs(p - q) for p, q in zip(a, e, strict=True) if p is not None]
            assert max(spans, default=timedelta()) <= timedelta(microseconds=1000)
        else:
            assert a == e


def stays_empty(imputer, table, answer):
    """Which cells (N, P) should be missing in an answer: of columns that are left, and where rules hold."""
    rows = dict(zip(names(answer), cells(answer), strict=True))
    expected = missing(table)
    for j, name in enumerate(names(table)):
        rule = imputer.skip_rules_.get(name)
        if rule is not None:
            expected[:, j] &= [value is None or value in rule.values for value in rows[rule.column]]
        elif name not in imputer.columns_left_:
            expected[:, j] = False
    return expected


def fit_quietly(imputer, table):
    """Fits, and does not mind warnings of columns that are left empty."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HalfseenWarning)
        return imputer.fit(table)
