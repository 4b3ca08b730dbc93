"""Tables of every kind that users were seen to have, in every library of frames."""

import hashlib
from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from halfseen.datasets import load_penguins
from halfseen.testing.tables import ARRAY, Case, cells


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
PENGUINS = Case("penguins-pandas", lambda: load_penguins("pandas"))
NASTY = Case("nasty-pandas", nasty_pandas, LEFT)
REPEATED = (
    Case("penguins-polars", lambda: load_penguins("polars")),
    Case("penguins-pyarrow", lambda: load_penguins("pyarrow")),
    Case("nasty-polars", nasty_polars, LEFT),
    Case("nasty-pyarrow", nasty_pyarrow, LEFT),
)
"""The cells of other tables in the frames of other libraries."""
CLINIC = Case("clinic-pandas", clinic, ("codes", "smoker"), ("pregnant", "weeks"))
TABLES = (PENGUINS, ARRAY, NASTY, CLINIC, *REPEATED)
CASES_BY_NAME = {case.name: case for case in TABLES}


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
