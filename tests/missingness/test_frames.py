"""Frames keep their library, index, order and dtypes; only cells are lost. Any type is read as numbers."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from conformance.tables import nasty_pandas, nasty_polars, nasty_pyarrow

from halfseen import missingness as ms
from halfseen.data.frames import put_nulls
from halfseen.datasets import load_penguins

NASTY = {"pandas": nasty_pandas, "polars": nasty_polars, "pyarrow": nasty_pyarrow}


def columns_of(frame):
    if isinstance(frame, pa.Table):
        return {name: frame[name].to_pylist() for name in frame.column_names}
    return {name: list(frame[name]) for name in frame.columns}


def dtypes_of(frame):
    return list(frame.schema.types) if isinstance(frame, pa.Table) else list(frame.dtypes)


def gone(value):
    return (
        value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and np.isnan(value))
    )


MECHANISMS = {
    "MCAR": lambda: ms.MCAR(0.4),
    "rows": lambda: ms.MCAR(0.4, unit="rows"),
    "MAR": lambda: ms.MARLogistic(0.4),
    "self-masking": lambda: ms.LogisticSelfMasking(0.4),
    "censoring": lambda: ms.QuantileCensoring(0.4),
    "dropout": lambda: ms.MonotoneDropout(0.4),
    "learned": lambda: ms.Learned(),
    "by column": lambda: ms.ByColumn({"größe": ms.MCAR(0.4), ("visits", "grade"): ms.Threshold()}),
    "probit": lambda: ms.ProbitSelfMasking(0.4),
    "bump": lambda: ms.GaussianSelfMasking(0.4),
    "limit": lambda: ms.DetectionLimit(lower=170.0, columns=["größe"]),
    "skip": lambda: ms.SkipPattern(["größe", "town"], when="grade", equals=["low"]),
    "sector": lambda: ms.AngularSector(["größe", "温度 °C"], centre=(170.0, 0.0)),
    "deletion": lambda: ms.FeatureDeletion(n=2, columns=["größe", "visits", "flag"]),
    "compose": lambda: ms.Compose([ms.LogisticSelfMasking(0.2), ms.Threshold(columns=["visits"])]),
}
MET = [  # all of them by one library, the others by turns
    (name, library)
    for place, name in enumerate(MECHANISMS)
    for library in ("pandas", ("polars", "pyarrow")[place % 2])
]


@pytest.mark.parametrize(("name", "library"), MET)
def test_everything_users_have_loses_cells_and_nothing_else(name, library):
    frame = NASTY[library]()
    before = columns_of(frame)
    mechanism = MECHANISMS[name]().fit(frame)
    observed = mechanism.sample(frame, random_state=0)
    holed = mechanism.amputate(frame, random_state=0)
    assert type(holed) is type(frame)
    after = columns_of(holed)
    assert list(after) == list(before)
    hidden = 0
    for j, column in enumerate(before):
        for i, value in enumerate(before[column]):
            assert observed[i, j] == (not gone(after[column][i]))
            if observed[i, j]:
                assert after[column][i] == value
            hidden += int(gone(after[column][i]) and not gone(value))
    assert hidden > 0
    if library == "pandas":
        pd.testing.assert_index_equal(holed.index, frame.index)
        changed = {str(a): str(b) for a, b in zip(frame.dtypes, holed.dtypes, strict=True) if a != b}
        assert changed in ({}, {"int64": "Int64"})
    else:
        assert dtypes_of(holed) == dtypes_of(frame)
    assert columns_of(frame).keys() == before.keys()
    assert all(str(columns_of(frame)[column]) == str(before[column]) for column in before)
    if name != "learned":
        assert np.isfinite(mechanism.log_prob(observed, frame)).all()


def test_whole_numbers_and_booleans_of_pandas_become_nullable_in_affected_columns_only():
    frame = pd.DataFrame(
        {
            "big": np.array([2**62 + 1, 2, 3], dtype=np.int64),
            "byte": np.array([1, 2, 3], dtype=np.uint8),
            "flag": [True, False, True],
            "kept": [1, 2, 3],
            "real": np.array([1, 2, 3], dtype=np.float32),
        }
    )
    columns = ["big", "byte", "flag", "real"]
    none = ms.MCAR(0.0, columns=columns).fit(frame).amputate(frame)
    every = ms.MCAR(1.0, columns=columns).fit(frame).amputate(frame)
    assert [str(dtype) for dtype in none.dtypes] == ["Int64", "UInt8", "boolean", "int64", "float32"]
    pd.testing.assert_series_equal(none.dtypes, every.dtypes)
    assert none["big"].tolist() == [2**62 + 1, 2, 3]
    assert every.drop(columns="kept").isna().all().all()


def test_arrays_lists_and_tensors():
    X = np.arange(12).reshape(4, 3)
    mechanism = ms.MCAR(0.5).fit(X)
    holed = mechanism.amputate(X, random_state=0)
    assert holed.dtype == np.float64
    assert X.dtype == np.int64
    assert mechanism.amputate(X.astype(np.float32), random_state=0).dtype == np.float32
    np.testing.assert_array_equal(mechanism.amputate(X.tolist(), random_state=0), holed)
    tensor = mechanism.amputate(torch.from_numpy(X).float(), random_state=0)
    assert tensor.dtype == torch.float32
    np.testing.assert_array_equal(tensor.numpy(), holed.astype(np.float32))
    observed = mechanism.sample(torch.from_numpy(X), random_state=0)
    assert observed.dtype == torch.bool
    np.testing.assert_array_equal(observed.numpy(), ~np.isnan(holed))


def test_the_same_table_in_any_library_gets_the_same_mask():
    masks = []
    for library in ("pandas", "polars", "pyarrow"):
        frame = load_penguins(library)
        for make in (
            lambda: ms.LogisticSelfMasking(0.3),
            lambda: ms.MARLogistic(0.3),
            lambda: ms.Threshold(),
        ):
            masks.append(make().fit(frame).sample(frame, random_state=0))
    for i in range(3):
        np.testing.assert_array_equal(masks[i], masks[i + 3])
        np.testing.assert_array_equal(masks[i], masks[i + 6])


def test_text_counts_as_the_position_of_its_level():
    size = pd.Categorical(
        ["small", "large", "medium"] * 20, categories=["small", "medium", "large"], ordered=True
    )
    frame = pd.DataFrame({"size": size, "town": ["b", "c", "a"] * 20})
    observed = ms.Threshold().fit(frame).sample(frame)
    assert set(frame["size"][~observed[:, 0]]) == {"large"}
    assert set(frame["town"][~observed[:, 1]]) == {"c"}


def test_a_level_never_seen_in_fit_counts_as_the_mean():
    frame = pd.DataFrame({"town": ["a", "b"] * 20, "x": np.arange(40.0)})
    mechanism = ms.MARLogistic(0.5, predictors="town", columns="x", steepness=3.0).fit(frame)
    p = mechanism.probability(pd.DataFrame({"town": ["a", "zzz", "b"], "x": [0.0, 0.0, 0.0]}))[:, 1]
    assert min(p[0], p[2]) < p[1] < max(p[0], p[2])


def test_what_is_missing_already_keeps_its_own_sign_of_it():
    frame = pd.DataFrame({"a": pd.Series([None, "x", np.nan], dtype=object), "b": [1.0, np.nan, 2.0]})
    holed = ms.MCAR(1.0).fit(frame).amputate(frame)
    assert holed["a"][0] is None
    assert holed.isna().all().all()
    floats = pl.DataFrame({"a": [float("nan"), None, 1.0], "b": [1.0, 2.0, 3.0]})
    mechanism = ms.LogisticSelfMasking(1.0).fit(floats)
    assert mechanism.sample(floats, random_state=0)[:, 0].tolist() == [False, False, False]
    assert str(mechanism.amputate(floats)["a"].to_list()) == "[nan, None, None]"
    assert ms.MCAR(0.0).fit(floats).sample(floats)[:, 0].tolist() == [False, False, True]


def test_names_of_rows_are_left_out_or_refused():
    frame = pd.DataFrame({"name": [f"n{i}" for i in range(50)], "x": np.arange(50.0)})
    assert ms.LogisticSelfMasking(0.3).fit(frame).columns_.tolist() == [1]
    assert ms.MCAR(0.3).fit(frame).columns_.tolist() == [0, 1]
    assert ms.MARLogistic(0.3).fit(frame).predictors_.tolist() == [1]
    with pytest.raises(ValueError, match="Column 'name' is text with a different value in nearly every row"):
        ms.LogisticSelfMasking(0.3, columns=["name"]).fit(frame)
    with pytest.raises(ValueError, match="predictors names 'name', text with a different value"):
        ms.MARLogistic(0.3, predictors="name").fit(frame)
    with pytest.raises(ValueError, match="dropout cannot depend on it"):
        ms.MonotoneDropout(0.3, steepness=1.0).fit(frame)
    with pytest.raises(ValueError, match="when names 'name', which has a value for every row"):
        ms.SkipPattern("x", when="name", equals="n1").fit(frame)


def test_columns_that_nobody_reads_may_hold_anything():
    frame = pl.DataFrame({"x": [1.0, 2.0, float("inf")], "list": [[1], [2], [3]], "y": [1.0, 2.0, 3.0]})
    holed = ms.LogisticSelfMasking(0.5, columns="y").fit(frame).amputate(frame, random_state=0)
    assert holed["list"].to_list() == [[1], [2], [3]]
    assert ms.MCAR(1.0).fit(frame).amputate(frame)["list"].null_count() == 3


@pytest.mark.parametrize(
    ("column", "equals", "rows"),
    [
        ("answer", "no", [0, 3]),
        ("answer", ["no", "maybe"], [0, 2, 3]),
        ("flag", True, [1, 2]),
        ("count", 7, [3]),
        ("day", datetime.date(2024, 1, 2), [1]),
        ("day", "2024-01-02", [1]),
    ],
)
@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_questions_are_skipped_by_a_value_of_any_type(library, column, equals, rows):
    table = pa.table(
        {
            "answer": ["no", "yes", "maybe", "no", None],
            "flag": [False, True, True, False, None],
            "count": [1, 2, 3, 7, None],
            "day": [datetime.datetime(2024, 1, d) for d in (1, 2, 3, 4)] + [None],
            "x": [1.0, 2.0, 3.0, 4.0, 5.0],
        }
    )
    frame = {"pandas": table.to_pandas, "polars": lambda: pl.from_arrow(table), "pyarrow": lambda: table}[
        library
    ]()
    hidden = ~ms.SkipPattern("x", when=column, equals=equals).fit(frame).sample(frame)[:, 4]
    assert np.flatnonzero(hidden).tolist() == rows


def test_detection_limits_are_in_the_units_of_the_table():
    frame = pd.DataFrame({"lead": [0.1, 0.5, 0.9], "code": [3, 7, 3], "same": [4.0, 4.0, 4.0]})
    mechanism = ms.DetectionLimit(lower={"lead": 0.5}, upper={"code": 5, "same": 3.9}).fit(frame)
    observed = mechanism.sample(frame)
    np.testing.assert_array_equal(observed, [[0, 1, 0], [1, 0, 0], [1, 1, 0]])


def test_columns_by_name_and_position():
    frame = pd.DataFrame(np.zeros((5, 3)), columns=["a", "b", 0])
    assert ms.MCAR(0.3, columns="b").fit(frame).columns_.tolist() == [1]
    assert ms.MCAR(0.3, columns=["b", "a"]).fit(frame).columns_.tolist() == [1, 0]
    assert ms.MCAR(0.3, columns=0).fit(frame).columns_.tolist() == [2]  # a name comes first
    assert ms.MCAR(0.3, columns=-2).fit(frame).columns_.tolist() == [1]
    assert ms.MCAR(0.3, columns=np.array([1, 2])).fit(np.zeros((5, 3))).columns_.tolist() == [1, 2]


def test_another_table_than_the_fitted_one_is_refused():
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]})
    mechanism = ms.LogisticSelfMasking(0.3).fit(frame)
    with pytest.raises(ValueError, match="Column 0 of X is 'b'; in fit it was 'a'"):
        mechanism.sample(frame[["b", "a"]])
    with pytest.raises(ValueError, match="X has 1 columns; in fit it had 2"):
        mechanism.sample(frame[["a"]])
    with pytest.raises(ValueError, match="Column 'a' contained numbers in fit, but now it contains 'x'"):
        mechanism.sample(frame.assign(a=["x", "y"]))
    with pytest.raises(ValueError, match="lazy frame"):
        ms.MCAR(0.3).fit(pl.LazyFrame({"a": [1]}))


@pytest.mark.parametrize("dtype", [pa.binary_view(), pa.string_view(), pa.binary(), pa.binary(2)], ids=str)
def test_views_of_bytes_and_text_can_lose_cells(dtype):
    cells = [b"ab", b"cd", b"ef"] if dtype != pa.string_view() else ["ab", "cd", "ef"]
    table = pa.table({"x": pa.array(cells, dtype)})
    holed = put_nulls(table, np.array([[True], [False], [False]]), [0])
    assert holed["x"].type == dtype
    assert holed["x"].to_pylist() == [None, *cells[1:]]
