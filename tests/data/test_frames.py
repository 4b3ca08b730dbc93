"""Tables of every library and dtype: read, filled, and otherwise unchanged to the bit."""

import datetime as dt
import sys
from collections import Counter
from decimal import Decimal

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from data.round_trip import assert_same_frame, fill, holes, same_bits

from halfseen.data._cells import readable
from halfseen.data.frames import Table, is_frame
from halfseen.data.schema import Schema
from halfseen.errors import HalfseenWarning, SchemaError

MORNING = dt.datetime(2021, 3, 4, 5, 6, 7)
MOMENTS = [MORNING, None, MORNING + dt.timedelta(days=3), MORNING + dt.timedelta(days=-900, seconds=59)]
DAYS = [None if moment is None else moment.date() for moment in MOMENTS]
SPANS = [None if moment is None else moment - MORNING for moment in MOMENTS]
NUMBERS, WHOLE = [1.5, None, -0.0, 2.25], [1, None, 0, 100]
TEXT, FLAGS = ["b", None, "ä\n", "a"], [True, None, False, True]
DECIMALS = [Decimal("1.50"), None, Decimal("2.25"), Decimal("-3.10")]

PANDAS = {
    "float32": pd.Series(NUMBERS, dtype="float32"),
    "float64": pd.Series(NUMBERS, dtype="float64"),
    "int64": pd.Series([2**53 + 1, 2, -(2**62) - 1], dtype="int64"),
    "bool": pd.Series([True, False]),
    "object text": pd.Series(TEXT, dtype=object),
    "object text with NaN": pd.Series(["b", np.nan, "a", pd.NA], dtype=object),
    "object bool": pd.Series(FLAGS, dtype=object),
    "object int": pd.Series([3, None, 5, 2**60 + 1], dtype=object),
    "object Decimal": pd.Series(DECIMALS, dtype=object),
    "object int and Decimal": pd.Series([Decimal("1.5"), None, 2, 3.5], dtype=object),
    "object date": pd.Series(DAYS, dtype=object),
    "object datetime": pd.Series(MOMENTS, dtype=object),
    "object Timestamp": pd.Series(pd.to_datetime(MOMENTS), dtype=object),
    "object timedelta": pd.Series(SPANS, dtype=object),
    "object None": pd.Series([None, None], dtype=object),
    "str": pd.Series(TEXT, dtype="str"),
    "string[python]": pd.Series(TEXT, dtype="string[python]"),
    "string[pyarrow]": pd.Series(TEXT, dtype="string[pyarrow]"),
    **{
        name: pd.Series(WHOLE, dtype=name)
        for name in ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")
    },
    "Int64 above 2**53": pd.Series([2**53 + 1, None, 2**62 + 3, -(2**61) - 1], dtype="Int64"),
    "UInt64 near its end": pd.Series([2**64 - 1, None, 2**64 - 3, 1], dtype="UInt64"),
    "UInt64 all near its end": pd.Series([2**64 - 1, None, 2**64 - 3], dtype="UInt64"),
    "Float32": pd.Series(NUMBERS, dtype="Float32"),
    "Float64": pd.Series(NUMBERS, dtype="Float64"),
    "boolean": pd.Series(FLAGS, dtype="boolean"),
    "category": pd.Series(TEXT, dtype="category"),
    "category of one": pd.Series(["a", None, "a"], dtype="category"),
    "category int": pd.Series(pd.Categorical([3, None, 1, 2])),
    "category float": pd.Series(pd.Categorical([1.5, None, 2.5, 3.0])),
    "category bool": pd.Series(pd.Categorical([True, None, False])),
    "category mixed": pd.Series(pd.Categorical(["a", None, 1])),
    "category of times": pd.Series(pd.Categorical(pd.to_datetime(MOMENTS))),
    "category of intervals": pd.cut(pd.Series([1.0, None, 5.0, 9.0]), 3),
    "ordered": pd.Series(pd.Categorical(["lo", None, "hi"], categories=["lo", "mid", "hi"], ordered=True)),
    "unused and unsorted levels": pd.Series(pd.Categorical(["b", None, "a"], categories=list("zbqa"))),
    **{
        f"datetime64[{unit}]": pd.Series(MOMENTS).astype(f"datetime64[{unit}]")
        for unit in ("ns", "us", "ms", "s")
    },
    **{
        f"timedelta64[{unit}]": pd.Series(SPANS).astype(f"timedelta64[{unit}]")
        for unit in ("ns", "us", "ms", "s")
    },
    **{
        f"zone {zone}": pd.Series(pd.to_datetime(MOMENTS)).dt.tz_localize(zone)
        for zone in ("UTC", "Europe/Amsterdam", "America/New_York", "Etc/GMT+3", "+05:30")
    },
}
ARROW = {
    **{str(t): (t, WHOLE) for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64())},
    "int64 above 2**53": (pa.int64(), [2**53 + 1, None, 2**62 + 3, -(2**61) - 1]),
    "halffloat": (pa.float16(), [np.float16(1.5), None, np.float16(0.25), np.float16(2)]),
    "float": (pa.float32(), NUMBERS),
    "double": (pa.float64(), NUMBERS),
    "bool": (pa.bool_(), FLAGS),
    "string": (pa.string(), TEXT),
    "large_string": (pa.large_string(), TEXT),
    "date32": (pa.date32(), DAYS),
    "date64": (pa.date64(), DAYS),
    **{f"timestamp[{unit}]": (pa.timestamp(unit), MOMENTS) for unit in ("ns", "us", "ms", "s")},
    "timestamp with zone": (pa.timestamp("ms", "America/New_York"), MOMENTS),
    **{f"duration[{unit}]": (pa.duration(unit), SPANS) for unit in ("ns", "us", "ms", "s")},
    "decimal128": (pa.decimal128(10, 2), DECIMALS),
    "decimal256": (pa.decimal256(40, 2), DECIMALS),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), TEXT),
    "dictionary of int": (pa.dictionary(pa.int32(), pa.int64()), WHOLE),
    "null": (pa.null(), [None, None, None]),
}
POLARS = {
    **{str(t): (t, WHOLE) for t in (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.Int128, pl.UInt8, pl.UInt64)},
    "Int64 above 2**53": (pl.Int64, [2**53 + 1, None, 2**62 + 3, -(2**61) - 1]),
    "Float32": (pl.Float32, [*NUMBERS, float("nan")]),
    "Float64": (pl.Float64, [*NUMBERS, float("nan")]),
    "Boolean": (pl.Boolean, FLAGS),
    "String": (pl.String, TEXT),
    "Categorical": (pl.Categorical, TEXT),
    "Enum": (pl.Enum(["z", "ä\n", "b", "a"]), TEXT),
    "Date": (pl.Date, DAYS),
    **{f"Datetime {unit}": (pl.Datetime(unit), MOMENTS) for unit in ("ns", "us", "ms")},
    **{f"Duration {unit}": (pl.Duration(unit), SPANS) for unit in ("ns", "us", "ms")},
    "Decimal": (pl.Decimal(10, 2), DECIMALS),
    "Null": (pl.Null, [None, None]),
}


def arrow_table(arrow_type, cells, n_chunks=1):
    """A table whose first column is complete, so that it must stay the same object."""
    cut = len(cells) // 2 if n_chunks == 2 else len(cells)
    chunks = [pa.array(part, type=arrow_type) for part in (cells[:cut], cells[cut:])[:n_chunks]]
    column = pa.chunked_array(chunks, type=arrow_type)
    schema = pa.schema(
        [pa.field("whole", pa.int64()), pa.field("c", arrow_type, metadata={"unit": "m"})], {"made": "here"}
    )
    return pa.table([pa.array(range(len(column)), type=pa.int64()), column], schema=schema)


def cases():
    index = pd.MultiIndex.from_tuples([(1, "x"), (1, "x"), (0, "y"), (2, "z")])
    for name, series in PANDAS.items():
        frame = pd.DataFrame({"c": series, 7: range(len(series))})
        frame.attrs["unit"] = "m"
        yield pytest.param(frame, id=f"pandas {name}")
        yield pytest.param(frame.set_axis([5, 5, 3, 9][: len(frame)]), id=f"pandas {name}, repeated index")
        yield pytest.param(frame.set_axis(index[: len(frame)]), id=f"pandas {name}, MultiIndex")
    for name, (dtype, cells) in ARROW.items():
        array = pd.arrays.ArrowExtensionArray(pa.array(cells, type=dtype))
        yield pytest.param(
            pd.DataFrame({"c": array}, index=range(9, 9 + len(cells))), id=f"pandas arrow {name}"
        )
        for n_chunks in (0, 1, 2):
            yield pytest.param(arrow_table(dtype, cells, n_chunks), id=f"pyarrow {name}, {n_chunks} chunks")
    for name, (dtype, cells) in POLARS.items():
        yield pytest.param(
            pl.DataFrame({"c": pl.Series(cells, dtype=dtype), "é": range(len(cells))}), id=f"polars {name}"
        )
    zoned = pl.Series(MOMENTS).dt.replace_time_zone("UTC").dt.convert_time_zone("America/New_York")
    yield pytest.param(pl.DataFrame({"c": zoned}), id="polars with zone")
    array = np.array([[1.5, 2.0, -0.0], [np.nan, 3.0, 5e-324], [1e300, np.nan, np.nan]])
    for dtype in (np.float32, np.float64):
        with np.errstate(over="ignore"):
            cells = np.where(array > 1e38, 1e38, array).astype(dtype)
        for order in "CF":
            yield pytest.param(np.array(cells, order=order), id=f"numpy {dtype.__name__} {order}")
        yield pytest.param(
            np.repeat(cells[:, ::-1], 2, axis=1)[:, ::-2], id=f"numpy {dtype.__name__} strided"
        )


def deep_copy(frame):
    if isinstance(frame, pd.DataFrame | np.ndarray):
        return frame.copy()
    return frame.clone() if isinstance(frame, pl.DataFrame) else frame


@pytest.mark.filterwarnings("ignore:Column 'c' contains integers beyond:halfseen.HalfseenWarning")
@pytest.mark.parametrize("frame", list(cases()))
def test_missing_cells_are_filled_and_nothing_else_changes(frame):
    before = deep_copy(frame)
    missing = holes(frame)

    _, filled = fill(frame)

    assert_same_frame(frame, before)  # the input was not written to
    assert type(filled) is type(frame)
    for j in range(missing.shape[1]):
        part = filled[:, [j]] if isinstance(frame, np.ndarray) else column(filled, j)
        whole = frame[:, [j]] if isinstance(frame, np.ndarray) else column(frame, j)
        assert_same_frame(part, whole, rows=~missing[:, j])
    still_empty = (
        missing.all(axis=0) if not isinstance(frame, np.ndarray) else np.zeros(missing.shape[1], bool)
    )
    assert not holes(filled)[:, ~still_empty].any()


def column(frame, j):
    if isinstance(frame, pd.DataFrame):
        return frame.iloc[:, [j]]
    return frame[:, [j]] if isinstance(frame, pl.DataFrame) else frame.select([j])


@pytest.mark.filterwarnings("ignore:Column 'c' contains integers beyond:halfseen.HalfseenWarning")
@pytest.mark.parametrize("frame", list(cases()))
def test_a_table_without_rows_and_a_table_of_one_row_keep_their_dtypes(frame):
    schema, _ = fill(frame)
    for stop in (0, 1):
        part = frame[:stop] if not isinstance(frame, pa.Table) else frame.slice(0, stop)
        _, filled = fill(part, schema=schema)
        assert_same_frame(filled, part)  # the first row is complete everywhere
        fill(part)  # and can be inferred from


def whole_numbers(cells):
    """Yields the same whole numbers as every library holds them."""
    yield pd.DataFrame({"c": pd.Series(cells, dtype="Int64")})
    yield pd.DataFrame({"c": pd.Series(cells, dtype="int64[pyarrow]")})
    yield pd.DataFrame({"c": pd.Series(cells, dtype=object)})
    yield pl.DataFrame({"c": pl.Series(cells, dtype=pl.Int64)})
    yield pa.table({"c": pa.array(cells, type=pa.int64())})


@pytest.mark.parametrize(
    ("cells", "n_merged"),
    [
        ([*(2**60 + i for i in range(120)), None], 119),
        ([-(2**60), -(2**60) - 1, 5, None], 1),
        ([2**53, 2**53 + 1, None], 1),  # the first pair that has one float
    ],
)
def test_whole_numbers_that_floats_do_not_distinguish_are_warned_of_once(cells, n_merged):
    message = rf"Column 'c' contains integers beyond 2\*\*53, .* exactly: {n_merged} of its distinct values"
    for frame in whole_numbers(cells):
        with pytest.warns(HalfseenWarning, match=message) as caught:
            schema = Schema.infer(Table(frame))
        assert len(caught) == 1
        fill(frame, schema=schema)  # what was warned of in fit is no news later


@pytest.mark.parametrize(
    "cells",
    [[2**60, 2**60 + 256, 2**60, None], [2**53 - 1, 2**53, None], [2**53 + 1, 2**53 + 1], [None, None]],
)
def test_huge_whole_numbers_that_floats_distinguish_are_read_without_a_warning(cells):
    distinct = set(cells) - {None}
    for frame in whole_numbers(cells):
        schema = Schema.infer(Table(frame))  # warnings are errors
        assert schema.columns[0].n_observed == len(cells) - cells.count(None)
        assert len(np.unique(Table(frame).column(0).values[: len(cells) - cells.count(None)])) == len(
            distinct
        )


@pytest.mark.parametrize(
    ("cells", "value"),
    [
        (pd.Series([True, None, False, True, True], dtype=object), True),
        (pd.Series([Decimal("1.50"), None, Decimal("2.50")], dtype=object), Decimal("1.33")),
        (pd.Series([dt.date(2020, 1, 1), None, dt.date(2020, 1, 9)], dtype=object), dt.date),
        (pd.Series([3, None, 9], dtype=object), 4),
    ],
)
def test_object_columns_receive_objects_of_their_own_type(cells, value):
    filled = fill(pd.DataFrame({"c": cells}))[1]["c"][1]
    assert type(filled) is (value if isinstance(value, type) else type(value))
    if not isinstance(value, type):
        assert filled == value


def test_a_missing_level_is_filled_with_a_level_of_its_own_type():
    frame = pd.DataFrame({"c": pd.cut(pd.Series([1.0, None, 5.0, 9.0]), 3)})
    filled = fill(frame)[1]["c"]
    assert isinstance(filled[1], pd.Interval)
    assert filled.dtype == frame["c"].dtype


@pytest.mark.parametrize("backed", [False, True])
def test_string_views_are_filled_though_arrow_cannot_take_from_them(backed):
    array = pa.array(TEXT, type=pa.string_view())
    frame = pd.DataFrame({"c": pd.arrays.ArrowExtensionArray(array)}) if backed else pa.table({"c": array})
    filled = fill(frame)[1]["c"]
    assert (filled.tolist() if backed else filled.to_pylist()) == ["b", "b", "ä\n", "a"]
    assert filled.dtype == frame["c"].dtype if backed else filled.type == array.type


def test_null_inside_a_dictionary_is_missing_and_equal_entries_are_one_level():
    encoded = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3, 0]), pa.array(["x", None, "y", "x"]))
    raw = Table(pa.table({"c": encoded})).column(0)
    np.testing.assert_array_equal(raw.values, [0, np.nan, 1, 0, 0])
    assert raw.labels == ("x", "y")
    assert fill(pa.table({"c": encoded}))[1]["c"].to_pylist() == ["x", "x", "y", "x", "x"]


def test_each_chunk_may_have_its_own_dictionary():
    chunks = [pa.array(["b", None]).dictionary_encode(), pa.array(["c", "b"]).dictionary_encode()]
    raw = Table(pa.table({"c": pa.chunked_array(chunks)})).column(0)
    assert [None if np.isnan(v) else raw.labels[int(v)] for v in raw.values] == ["b", None, "c", "b"]


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_labels_are_sorted_whatever_the_order_of_rows(make):
    assert Table(make({"c": ["b", "c", None, "a", "b"]})).column(0).labels == ("a", "b", "c")


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_declared_levels_keep_their_order(library):
    levels = ["z", "b", "a"]
    frame = {
        "pandas": lambda: pd.DataFrame({"c": pd.Categorical(["b", None], categories=levels, ordered=True)}),
        "polars": lambda: pl.DataFrame({"c": pl.Series(["b", None], dtype=pl.Enum(levels))}),
        "pyarrow": lambda: pa.table(
            {"c": pa.DictionaryArray.from_arrays(pa.array([1, None]), pa.array(levels))}
        ),
    }[library]()
    raw = Table(frame).column(0)
    assert raw.declared
    assert raw.labels == tuple(levels)
    assert raw.values[0] == 1


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_times_are_microseconds_in_utc(make):
    moment = dt.datetime(2020, 1, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    frame = make({"t": [moment.astimezone(dt.UTC)], "s": [dt.timedelta(seconds=2)]})
    table = Table(frame)
    assert table.column(0).values.tolist() == [moment.timestamp() * 1e6]
    assert table.column(1).values.tolist() == [2e6]


def test_a_zone_does_not_move_the_moments_that_are_written():
    local = pd.DataFrame(
        {"t": pd.to_datetime(["2020-07-01", None, "2020-07-03"]).tz_localize("America/New_York")}
    )
    table = Table(local)
    rows, values = np.array([1]), np.array(["2020-07-02T04:00"], dtype="datetime64[us]")
    expected = pd.Timestamp("2020-07-02", tz="America/New_York")
    assert table.filled({0: (rows, values)})["t"][1] == expected
    for other in (
        pl.from_pandas(local),
        pa.Table.from_pandas(local),
        local.convert_dtypes(dtype_backend="pyarrow"),
    ):
        filled = Table(other).filled({0: (rows, values)})["t"]
        assert (filled[1].as_py() if isinstance(other, pa.Table) else filled[1]) == expected


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_every_missing_cell_receives_its_own_value_whatever_their_order(make):
    frame = make(
        {"x": [0.5, None, None, None], "s": ["a", None, None, None], "t": [MORNING, None, None, None]}
    )
    rows = np.array([3, 1])
    moments = np.array(["2020-01-03", "2020-01-01"], dtype="datetime64[us]")
    cells = [np.array([3.0, 1.0]), np.array(["c", "b"], dtype=object), moments]
    filled = Table(frame).filled({j: (rows, values) for j, values in enumerate(cells)})
    values = [Table(filled).column(j).values for j in range(3)]
    np.testing.assert_array_equal(values[0], [0.5, 1.0, np.nan, 3.0])
    np.testing.assert_array_equal(values[1], [0.0, 1.0, np.nan, 2.0])
    np.testing.assert_array_equal(values[2][[1, 3]], moments[::-1].astype(np.int64))
    assert np.isnan(values[2][2])


@pytest.mark.parametrize("library", ["pandas", "pandas arrow", "polars", "pyarrow"])
def test_every_missing_cell_of_a_category_receives_its_own_level(library):
    cells = pd.DataFrame({"c": pd.Categorical(["a", None, "b", None, "c"])})
    frame = {
        "pandas": lambda: cells,
        "pandas arrow": lambda: cells.astype(pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))),
        "polars": lambda: pl.from_pandas(cells),
        "pyarrow": lambda: pa.Table.from_pandas(cells),
    }[library]()
    filled = Table(frame).filled({0: (np.array([3, 1]), np.array(["c", "b"], dtype=object))})["c"]
    assert (filled.to_pylist() if library == "pyarrow" else filled.to_list()) == ["a", "b", "b", "c", "c"]


@pytest.mark.parametrize("empty", [np.nan, None])
@pytest.mark.parametrize(
    "make", [pd.DataFrame, pl.DataFrame, lambda d: pa.table({k: pa.array(v) for k, v in d.items()})]
)
def test_a_column_that_is_missing_as_a_whole_takes_what_it_is_filled_with(make, empty):
    train = make(
        {
            "s": ["a", "b", None],
            "t": [dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 9), None],
            "x": [1.5, 2.0, 3.0],
        }
    )
    schema, _ = fill(train)
    _, filled = fill(make({"s": [empty], "t": [empty], "x": [empty]}), schema=schema)
    first = (
        filled.to_pylist()[0]
        if isinstance(filled, pa.Table)
        else filled.to_dict(
            **({"as_series": False} if isinstance(filled, pl.DataFrame) else {"orient": "list"})
        )
    )
    row = {name: cells[0] if isinstance(cells, list) else cells for name, cells in first.items()}
    assert row["s"] in ("a", "b")
    assert isinstance(row["t"], dt.datetime)
    assert isinstance(row["x"], float)


def test_a_level_of_training_that_a_new_table_does_not_declare_is_added():
    schema, _ = fill(pd.DataFrame({"c": pd.Categorical(["a", "b", "b", "b", None])}))
    _, filled = fill(pd.DataFrame({"c": pd.Categorical([None, None], categories=["c"])}), schema=schema)
    assert filled["c"].cat.categories.tolist() == ["c", "a"]
    encoded = pa.DictionaryArray.from_arrays(pa.array([None, 0], pa.int8()), pa.array(["c"]))
    _, filled = fill(pa.table({"c": encoded}), schema=schema)
    assert filled["c"].to_pylist() == ["a", "c"]
    assert filled["c"].type == encoded.type


def test_an_enum_without_a_level_of_training_is_refused():
    schema, _ = fill(pl.DataFrame({"c": pl.Series(["a", "b", None], dtype=pl.Enum(["a", "b"]))}))
    with pytest.raises(SchemaError, match="Column 'c': its Enum lacks 'a'"):
        fill(pl.DataFrame({"c": pl.Series([None], dtype=pl.Enum(["z"]))}), schema=schema)


def test_values_that_a_partly_seen_column_cannot_hold_are_refused():
    table = Table(pd.DataFrame({"c": [1.5, None]}))
    with pytest.raises(SchemaError, match="Column 'c' of dtype float64 cannot hold 'a'"):
        table.filled({0: (np.array([1]), np.array(["a"], dtype=object))})


def test_labels_of_columns_may_be_anything_pandas_allows():
    names = [7, "é", "a\nb", None, pd.Timestamp("2020-01-01"), ("t", 1)]
    frame = pd.DataFrame([[1.5] * 6, [None] * 6, [2.5] * 6], columns=pd.Index(names, dtype=object))
    _, filled = fill(frame)
    assert filled.columns.equals(frame.columns)
    assert Table(frame).names[:3] == ("7", "é", "a\nb")
    assert not holes(filled).any()


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), r"these repeat: 'a' \(2 times\). Rename"),
        (pd.DataFrame([[1, 2]], columns=[1, "1"]), r"these repeat: '1' \(2 times\)"),
        (pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), r"these repeat: 'a' \(2 times\)"),
        (
            pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("a", 1), ("a", 2)])),
            "The columns are a MultiIndex. Flatten it",
        ),
        (pl.DataFrame({"a": [1]}).lazy(), r"A lazy frame cannot be used; call .collect\(\)"),
        ({"a": [1]}, "Expected a pandas, polars or pyarrow table, got dict"),
    ],
)
def test_tables_that_cannot_be_read_are_refused(frame, message):
    with pytest.raises(SchemaError, match=message):
        Table(frame)


def table_of(cells):
    make = {pd.Series: pd.DataFrame, pl.Series: pl.DataFrame}.get(type(cells), pa.table)
    return Table(make({"c": cells}))


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (pd.Series(pd.arrays.SparseArray([1.0, np.nan])), "Column 'c' is sparse"),
        (pd.Series(["a", None, 1], dtype=object), r"Column 'c' mixes number \(1\) and text \('a'\)"),
        (pd.Series([True, None, 1], dtype=object), r"Column 'c' mixes boolean \(True\) and number \(1\)"),
        (pd.Series(["a", None, [1]], dtype=object), r"Column 'c' mixes list \(\[1\]\) and text \('a'\)"),
        (pd.Series([10**400, 1], dtype=object), "Column 'c' contains a number beyond the range"),
        (pd.Series([dt.datetime(2020, 1, 1, tzinfo=dt.UTC)], dtype=object), "objects with a time zone"),
    ],
)
def test_dtypes_that_cannot_be_imputed_are_named_with_their_column(cells, message):
    with pytest.raises(SchemaError, match=message):
        table_of(cells).column(0)


@pytest.mark.parametrize(
    ("cells", "dtype"),
    [
        (pl.Series([[1], None]), "List(Int64)"),
        (pl.Series([{"a": 1}, None]), "Struct"),
        (pl.Series([b"a", None]), "Binary"),
        (pl.Series([dt.time(1), None]), "Time"),
        (pl.Series([object(), None], dtype=pl.Object), "Object"),
        (pa.array([[1], None]), "list<"),
        (pa.array([{"a": 1}, None]), "Struct"),
        (pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())), "map<"),
        (pa.array([b"a", None]), "Binary"),
        (pa.array([b"a", None], pa.large_binary()), "large_binary"),
        (pa.array([dt.time(1), None]), "Time"),
        (pd.Series([1j, np.nan]), "complex128"),
        (pd.Series(pd.PeriodIndex(["2020-01-01", None], freq="D")), "period[D]"),
        (pd.Series(pd.arrays.IntervalArray([pd.Interval(0, 1), None])), "interval"),
        (pd.Series([[1], None]), "object (list)"),
        (pd.Series([b"a", None], dtype=object), "object (bytes)"),
        (pd.Series([dt.time(1), None]), "object (time)"),
    ],
)
def test_columns_that_no_model_can_see_are_read_as_observed_or_missing(cells, dtype):
    column = table_of(cells).column(0)
    assert column.storage == "other"
    assert dtype.lower() in column.dtype.lower()
    np.testing.assert_array_equal(column.values, [0.0, np.nan])


@pytest.mark.parametrize("value", [np.inf, -np.inf])
@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_infinity_is_refused_with_column_value_and_row(make, value):
    frame = make({"a": [1.0, 2.0], "b": [1.5, value]})
    with pytest.raises(SchemaError, match=rf"Column 'b' contains infinity \({value} in row 1, 1 in all\)"):
        Schema.infer(Table(frame))
    schema = Schema.infer(Table(make({"a": [1.0, 2.0], "b": [1.5, 2.5]})))
    with pytest.raises(SchemaError, match="Column 'b' contains infinity"):
        schema.columns[1].encode(Table(frame).column(1))


@pytest.mark.parametrize("cells", [[1e300, None, 3e300], [1e-300, None, 5e-324], [-1.7e308, None, 1.7e308]])
@pytest.mark.parametrize("dtype", ["float64", "Float64"])
def test_huge_and_tiny_numbers_stay(cells, dtype):
    frame = pd.DataFrame({"a": pd.Series(cells, dtype=dtype)})
    _, filled = fill(frame)
    assert filled["a"].tolist()[::2] == cells[::2]
    assert np.isfinite(filled["a"][1])


def test_a_table_without_columns_stays_as_it_is():
    for frame in (pd.DataFrame(index=[1, 2]), pl.DataFrame(), pa.table({})):
        assert fill(frame)[1].shape == frame.shape


def test_a_read_only_memmap_is_read_and_never_written(tmp_path):
    cells = np.array([[1.5, np.nan], [np.nan, 2.5], [0.5, 1.0]])
    np.save(tmp_path / "a.npy", cells)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    _, filled = fill(mapped)
    assert not np.isnan(filled).any()
    filled[0, 0] = 9.0  # the answer is the caller's own memory
    same_bits(np.load(tmp_path / "a.npy"), cells)


@pytest.mark.parametrize("make", [pd.DataFrame, np.array])
def test_writing_to_the_answer_does_not_reach_the_input(make):
    cells = np.array([[1.5, np.nan], [np.nan, 2.5], [0.5, 1.0]])
    frame = make(cells.copy())
    _, filled = fill(frame)
    complete = Table(filled).filled({})
    for answer in (filled, complete):
        target = answer.iloc if isinstance(answer, pd.DataFrame) else answer
        target[2, 0] = 77.0
    np.testing.assert_array_equal(np.asarray(frame), cells)


def test_only_frames_are_frames():
    repeated = pd.DataFrame([[1, 2]], columns=["a", "a"])
    for frame in (pd.DataFrame(), pl.DataFrame(), pa.table({}), pl.LazyFrame(), repeated):
        assert is_frame(frame)
    for other in (np.zeros((1, 1)), [[1.0]], pd.Series([1.0]), None):
        assert not is_frame(other)


def test_an_arrow_column_is_wrapped_again_only_if_its_type_changes():
    """Wrapping costs more than reading a short column, and a wide table has thousands of them."""
    columns = {
        "number": pa.array([1.5, None]),
        "text": pa.array(["a"] * 2),
        "decimal": pa.array([Decimal(1)] * 2),
    }
    read = {s.name: readable(s) is s for s in nw.from_native(pa.table(columns)).iter_columns()}
    assert read == {"number": True, "text": True, "decimal": False}


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_empty_cells_are_found_without_reading_the_values(library):
    cells = {
        "x": [1.5, float("nan"), None],
        "n": [1, None, 3],
        "s": ["a", None, "b"],
        "t": [None, True, False],
    }
    table = Table(library.DataFrame(cells))
    expected = np.column_stack([np.isnan(table.column(j).values) for j in range(4)])
    assert expected.sum() == 5
    np.testing.assert_array_equal(table.missing(), expected)
    np.testing.assert_array_equal(Table(np.array([[1.0, np.nan]])).missing(), [[False, True]])


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "pyarrow"])
def test_flags_are_appended_in_the_library_of_the_table(make):
    native = make({"a": [1.0, 2.0], "b": ["x", "y"]})
    if isinstance(native, pd.DataFrame):
        native.index = [7, 5]
    flags = np.array([[True], [False]])
    found = Table(native).appended(native, ["missing_a"], flags)
    assert type(found) is type(native)
    assert list(Table(found).names) == ["a", "b", "missing_a"]
    assert Table(found).column(2).storage == "boolean"
    assert Table(found).column(2).values.tolist() == [1, 0]
    with pytest.raises(SchemaError, match="The table has a column 'b' already"):
        Table(native).appended(native, ["b"], flags)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "pyarrow"])
def test_many_columns_are_filled_and_appended_at_once(make):
    """One column after the other, each call would copy what describes all columns."""
    n = 300
    native = make({f"c{j}": [1.0, float("nan")] for j in range(n)})
    cells = {j: (np.array([1]), np.array([float(j)])) for j in range(n)}
    flags = np.tile([[False], [True]], n)
    calls = Counter()

    def count(frame, event, function):
        name = function.__name__ if event == "c_call" else frame.f_code.co_name
        calls[name] += event in ("call", "c_call")

    sys.setprofile(count)
    table = Table(native)
    whole = table.appended(table.filled(cells), [f"m{j}" for j in range(n)], flags)
    sys.setprofile(None)
    assert list(Table(whole).names) == [*(f"c{j}" for j in range(n)), *(f"m{j}" for j in range(n))]
    assert Table(whole).column(n - 1).values.tolist() == [1.0, n - 1.0]
    assert Table(whole).column(n).values.tolist() == [0, 1]
    assert sum(calls[name] for name in ("isetitem", "_set_item", "_iset_item", "insert")) < n / 10


def test_a_pandas_frame_of_many_columns_keeps_its_attributes_and_shares_no_memory_that_can_be_written():
    native = pd.DataFrame({"a": [1.0, np.nan], "b": [3.0, 4.0]}, index=[5, 5])
    native.attrs["source"] = "here"
    native.columns.name = "columns"
    filled = Table(native).filled({0: (np.array([1]), np.array([2.0]))})
    assert filled.attrs == {"source": "here"}
    assert filled.columns.name == "columns"
    filled.iloc[0, 1] = 9.0
    assert native.iloc[0, 1] == 3.0
