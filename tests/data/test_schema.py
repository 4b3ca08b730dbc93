"""Kinds inferred for the right reason, every setting of users, codes that obey them, and plain JSON."""

import datetime as dt
import json
import time
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from data.round_trip import fill
from hypothesis import given
from hypothesis import strategies as st

from halfseen.data._inference import DAY
from halfseen.data.frames import Table
from halfseen.data.schema import KINDS, Column, Schema
from halfseen.errors import HalfseenWarning, SchemaError

WEEK = pd.date_range("2020-01-01", periods=7, freq="D")


def infer(cells, said=None, name="c", dtype=None):
    frame = pd.DataFrame({name: pd.Series(cells, dtype=dtype)})
    return Schema.infer(Table(frame), None if said is None else {name: said}).columns[0]


def encode(column, cells, dtype=None):
    return column.encode(Table(pd.DataFrame({column.name: pd.Series(cells, dtype=dtype)})).column(0)).tolist()


# ------------------------------------------------------------------------------------------- inference


@pytest.mark.parametrize(
    ("cells", "kind", "reason"),
    [
        ([0.5, -1.0, None], "continuous", "Numbers."),
        ([3.0, -1.0, 7.0], "continuous", "Whole numbers."),
        ([0.5, 1.0, None], "positive", "Numbers, all positive."),
        ([0.5, 0.0, 1.0], "continuous", "Numbers."),
        ([3, 0, 7], "count", "Whole numbers, none negative."),
        ([3.0, None, 7.0, 8.0], "count", "Whole numbers, none negative."),
        ([1e300, 2e300, 5e300], "positive", "Numbers, all positive."),  # every float beyond 2**53 is whole
        ([0, 1, 1], "binary", "Two distinct values."),
        ([1.5, 2.5], "positive", "Numbers, all positive."),  # two measurements, not two codes
        ([1.5, 2.5] * 5, "binary", "Two distinct values."),
        ([True, False, None], "binary", "Two distinct values."),
        (["m", "f", None], "binary", "Two distinct values."),
        (["a", "b", "c"], "categorical", "Text with 3 distinct values."),
        ([f"name {i}" for i in range(30)], "identifier", "Text with 30 distinct values in 30 cells."),
        ([f"name {i}" for i in range(4)], "identifier", "Text with 4 distinct values in 4 cells."),
        ([f"name {i}" for i in range(3)], "categorical", "Text with 3 distinct values."),
        (["a", "a", "b", "c", "d"], "categorical", "Text with 4 distinct values."),
        (
            [f"The parcel was left with neighbour number {i}." for i in range(4)],
            "text",
            "Sentences with 4 distinct values in 4 cells.",
        ),
        (
            [f"I agree with the statement to degree {i}" for i in range(3)] * 4,
            "categorical",
            "Text with 3 distinct values.",
        ),
        ([b"1", b"2", None], "unsupported", "Values of type object (bytes)."),
        (
            pd.Categorical(["a", "b"], categories=["c", "b", "a"]),
            "categorical",
            "Declared by the column's dtype.",
        ),
        (pd.Categorical(["a"], categories=["b", "a"]), "binary", "Declared by the column's dtype."),
        (
            pd.Categorical(["a", "b"], categories=["c", "b", "a"], ordered=True),
            "ordinal",
            "Declared by the column's dtype.",
        ),
        (WEEK, "datetime", "Dates or times."),
        (WEEK - WEEK[0], "duration", "Durations."),
        ([5.0, None, 5.0], "constant", "One distinct value."),
        (["x", None], "constant", "One distinct value."),
        ([None, None], "all-missing", "No value was seen."),
        ([], "all-missing", "No value was seen."),
    ],
)
def test_kinds_are_inferred_for_a_reason(cells, kind, reason):
    column = infer(cells)
    assert (column.kind, column.reason) == (kind, reason)


@pytest.mark.parametrize(
    ("name", "cells", "kind"),
    [
        ("user_id", range(100, 130), "identifier"),
        ("userId", [*range(100, 130), None], "identifier"),
        ("customerID", range(100, 130), "identifier"),
        ("ID", range(100, 130), "identifier"),
        ("Unnamed: 0", range(30), "identifier"),
        ("anything", range(30), "identifier"),  # counts the rows
        ("anything", range(1, 31), "identifier"),
        ("anything", range(100, 130), "count"),
        ("paid", range(100, 130), "count"),
        ("body mass index", [20, 23, 21, *range(30, 60)], "count"),
        ("user_id", range(100, 110), "count"),  # too few to say
        ("user_id", [*range(100, 130)] * 2, "count"),  # repeats: not a name of rows
        ("zip", [1012, 9021, 1012, 5000] * 6, "categorical"),
        ("home_postcode", [1012, 9021, 1012, 5000] * 6, "categorical"),
        ("zip_code", [7 * i for i in range(40)], "identifier"),
        ("PLZ", [7 * i for i in range(40)], "identifier"),
        ("country_code", [3, 7, 40, 81] * 10, "categorical"),
        ("decode", [3, 7, 40, 81] * 10, "count"),
        ("Phone", [9_810_000_000 + 77 * i for i in range(40)], "identifier"),
        ("order_no", [5000 + 2 * i for i in range(40)], "identifier"),
        ("Rechnungsnummer", [5000 + 2 * i for i in range(40)], "identifier"),
        ("phone", [0, 1, 2, 3] * 10, "count"),  # how many there are
        ("zipper", [1012, 9021, 1012, 5000] * 6, "count"),
    ],
)
def test_names_distinguish_identifiers_and_codes_from_counts(name, cells, kind):
    assert infer(list(cells), name=name).kind == kind


def test_names_of_array_columns_are_not_used_for_inference():
    array = np.column_stack([np.arange(30.0), np.arange(30.0) + 7])
    assert [column.kind for column in Schema.infer(Table(array))] == ["count", "count"]


@pytest.mark.parametrize(
    ("cells", "step"),
    [
        (WEEK, DAY),
        (WEEK + pd.Timedelta("3h"), DAY / 24),
        (WEEK + pd.Timedelta("3min"), 60e6),
        (WEEK + pd.Timedelta("3s"), 1e6),
        (WEEK + pd.Timedelta("3us"), None),
        (WEEK - WEEK[0], DAY),
        ([date.date() for date in WEEK], DAY),
    ],
)
def test_times_are_as_coarse_as_what_was_seen(cells, step):
    column = infer(cells)
    assert column.step == step
    if step is not None:
        assert column.constrain(np.array([1.7e15 + 0.3]))[0] % step == 0


# ------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("cells", "said", "expected"),
    [
        ([1.5, 2.0, None], "continuous", {"kind": "continuous", "minimum": None}),
        ([1.5, 2.0, None], {"kind": "continuous"}, {"kind": "continuous", "reason": "Set by the user."}),
        ([4.0, 2.5], "positive", {"kind": "positive", "minimum": 1.25}),
        ([3.0, 2.0] * 5, "count", {"kind": "count", "minimum": 0.0, "integer": True}),
        ([0.0, 2.5], {"kind": "count", "integer": False}, {"kind": "count", "integer": False}),
        ([3, 1, 2], "categorical", {"kind": "categorical", "levels": (1, 2, 3)}),
        ([3, 1, 2], "ordinal", {"kind": "ordinal", "levels": (1, 2, 3)}),
        ([3, 1, 2], {"levels": [3, 1, 2, 9]}, {"kind": "categorical", "levels": (3, 1, 2, 9)}),
        ([0.5, 1.5], {"kind": "binary"}, {"kind": "binary", "levels": (0.5, 1.5)}),
        (["lo", "hi"], {"kind": "ordinal", "levels": ["lo", "mid", "hi"]}, {"levels": ("lo", "mid", "hi")}),
        (["lo", "hi"], {"levels": ("lo", "hi")}, {"kind": "binary", "levels": ("lo", "hi")}),
        (["2", "10", None], "continuous", {"kind": "continuous", "integer": True, "levels": None}),
        (["2.5", "1e1"], "positive", {"kind": "positive", "minimum": 1.25, "integer": False}),
        ([1.5, 2.0], {"minimum": 1, "maximum": 3}, {"minimum": 1.0, "maximum": 3.0, "kind": "positive"}),
        ([100.0, 200.0, 300.0], {"maximum": 100}, {"minimum": 0.0, "maximum": 100.0}),
        ([100.5, 200.0, 300.0], {"minimum": 300}, {"minimum": 300.0, "maximum": None}),
        ([1.5, 2.5], {"integer": True}, {"integer": True}),
        ([1.0, 2.0], {"integer": False}, {"integer": False, "kind": "count"}),
        (
            [5.0, 6.0] * 9,
            {"maximum": 10},
            {"kind": "count", "maximum": 10.0},
        ),  # not two codes: bounded numbers
        (
            [True, False],
            "continuous",
            {"kind": "continuous", "minimum": 0.0, "maximum": 1.0, "integer": True},
        ),
        ([1.5, 2.5], "identifier", {"kind": "identifier", "fill_code": 0.0, "levels": (1.5,)}),
        ([2.5, None, 2.5], "constant", {"kind": "constant", "levels": (2.5,)}),
        (WEEK, {"minimum": "2020-01-02"}, {"minimum": 1577923200e6, "kind": "datetime"}),
        (WEEK, {"maximum": dt.date(2020, 1, 2)}, {"maximum": 1577923200e6}),
        (WEEK, {"maximum": "2020-01-02T02:00:00+02:00"}, {"maximum": 1577923200e6}),
        (WEEK, {"kind": "ordinal"}, {"kind": "ordinal", "levels": tuple(WEEK.as_unit("us").asi8.tolist())}),
        (WEEK - WEEK[0], {"maximum": dt.timedelta(days=9)}, {"maximum": 9 * DAY}),
        ([None, None], {"kind": "count"}, {"kind": "all-missing", "reason": "No value was seen."}),
        ([None, None], {"minimum": 5}, {"kind": "all-missing", "fill_code": 5.0}),
        ([1.5, 2.5], {"kind": None, "minimum": None, "levels": None}, {"kind": "positive", "minimum": 0.75}),
    ],
)
def test_settings_of_users_come_first(cells, said, expected):
    dtype = "float64" if list(cells) == [None, None] else None
    column = infer(cells, said, dtype=dtype)
    assert {key: getattr(column, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("cells", "said", "message"),
    [
        ([1.5, 2.5], "number", r"Column 'c': unknown kind 'number'; known are continuous, positive"),
        ([1.5, 2.5], {"min": 3}, r"Column 'c': unknown setting 'min'; known are kind, minimum"),
        ([1.5, 2.5], 3, r"Column 'c': expected a kind or a mapping of settings, got 3"),
        ([1.5, 2.5], {"minimum": "low"}, r"Column 'c': minimum must be a number, got 'low'"),
        ([1.5, 2.5], {"minimum": float("nan")}, r"Column 'c': minimum must be a number, got nan"),
        ([1.5, 2.5], {"maximum": True}, r"Column 'c': maximum must be a number, got True"),
        ([1.5, 2.5], {"integer": "yes"}, r"Column 'c': integer must be true or false, got 'yes'"),
        ([1.5, 2.5], {"minimum": 3, "maximum": 1}, r"Column 'c': minimum 3 is above maximum 1"),
        (
            [1.5, 2.5],
            {"minimum": 2.6},
            r"minimum 2\.6 is above all observed values, of which the largest is 2\.5",
        ),
        (
            [1.5, 2.5],
            {"maximum": 1.4},
            r"maximum 1\.4 is below all observed values, of which the smallest is 1\.5",
        ),
        (WEEK, {"minimum": "2030-01-01"}, r"minimum 2030-01-01.* is above all observed values"),
        ([1, 2], {"minimum": 0.2, "maximum": 0.8}, r"Column 'c' needs multiples of 1; between 0.2 and 0.8"),
        ([1, 2, 3], {"integer": False}, r"Column 'c' of dtype int64 can only contain integers"),
        (["a", "b"], {"maximum": 1}, r"Column 'c' is binary: maximum does not apply to levels"),
        ([1, 2, 3], {"levels": [1, 2]}, r"Column 'c' contains 3, which is not among the levels \(1, 2\)"),
        (["a", "b"], {"levels": "ab"}, r"Column 'c': levels must be a list of values, got 'ab'"),
        (["a", "b"], {"levels": []}, r"Column 'c': levels must be a list of values, got \[\]"),
        (["a", "b"], {"levels": ["a", "b", "a"]}, r"Column 'c': levels must differ, got \['a', 'b', 'a'\]"),
        (["a", "b", "c"], "binary", r"Column 'c' cannot be binary: it has 3 levels"),
        (["1", "two"], "continuous", r"Column 'c' cannot be numbers: it contains 'two'"),
        (["1", "inf"], "continuous", r"Column 'c' cannot be numbers: it contains 'inf'"),
        (["1", "1_000"], "continuous", r"Column 'c' cannot be numbers: it contains '1_000'"),
        (["a", "b"], "datetime", r"Column 'c' of dtype (str|object) cannot be datetime; convert it first"),
        ([1.5, 2.5], "duration", r"Column 'c' of dtype float64 cannot be duration; convert it first"),
        (WEEK, "continuous", r"cannot be continuous; its kind can only be datetime or one with levels"),
        (WEEK, {"integer": True}, r"does not contain numbers, so the setting integer does not apply"),
        (WEEK, {"minimum": "yesterday"}, r"minimum must be a number, or a date in ISO form, got 'yesterday'"),
        ([1.5, 2.5], "all-missing", r"Column 'c' is not all-missing: 2 of its cells have a value"),
        (
            pd.Categorical(["a", "b"]),
            {"levels": ["a", "b", "c"]},
            r"its dtype does not declare the level 'c'",
        ),
    ],
)
def test_settings_that_cannot_hold_are_refused(cells, said, message):
    with pytest.raises(SchemaError, match=message):
        infer(cells, said)


@pytest.mark.parametrize(
    ("cells", "said", "message"),
    [
        ([2.5, None, 0.0], "positive", r"be positive, .* it contains 0 in row 2 \(1 of 2"),
        ([2.5, -1.0, -2.0], "positive", r"be positive, .* it contains -1 in row 1 \(2 of 3"),
        ([2, -3, 4], "count", r"be a count, .* it contains -3 in row 1 \(1 of 3"),
        ([2.0, None, 2.5], "count", r"be a count, .* it contains 2.5 in row 2 \(1 of 2"),
        ([-2.0, 2.5], {"kind": "count", "integer": False}, r"be a count, .* it contains -2 in row 0"),
        ([None, 1.5, 1.5, 2], "constant", r"be constant, .* besides 1.5 it contains 2 in row 3 \(1 of 3"),
        (["b", "b", "a"], "constant", r"be constant, .* besides 'b' it contains 'a' in row 2"),
        (WEEK, "constant", r"be constant, .* besides 2020-01-01 it contains 2020-01-02 in row 1"),
    ],
)
def test_settings_that_a_value_contradicts_are_refused_with_the_value_and_its_row(cells, said, message):
    with pytest.raises(SchemaError, match=rf"Column 'c' cannot .*{message}"):
        infer(cells, said)


@given(
    cells=st.lists(st.none() | st.integers(-9, 9).map(lambda i: i / 2), min_size=1, max_size=25),
    name=st.sampled_from(["c", "user_id", "zip"]),
)
def test_what_was_inferred_is_never_contradicted_by_its_own_table(cells, name):
    table = Table(pd.DataFrame({name: pd.Series(cells, dtype="float64")}))
    found = Schema.infer(table).columns[0]
    said = {"kind": found.kind, "minimum": found.minimum, "maximum": found.maximum, "integer": found.integer}
    again = Schema.infer(table, {name: said}).columns[0]
    assert (again.kind, again.code_bounds(), again.code_step) == (
        found.kind, found.code_bounds(), found.code_step
    )  # fmt: skip


def test_a_bound_without_a_zone_is_in_utc_wherever_the_program_runs(monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert infer(WEEK, {"minimum": "2020-01-02"}).minimum == 1577923200e6
    finally:
        monkeypatch.undo()
        time.tzset()


def test_settings_find_columns_by_name_then_by_position():
    frame = pd.DataFrame([[1.5, 2.5, 3.5]] * 2 + [[2.5, 3.5, 4.5]], columns=[2, 0, "a"])
    kinds = [column.kind for column in Schema.infer(Table(frame), {2: "categorical", np.int64(1): "ordinal"})]
    assert kinds == ["categorical", "ordinal", "positive"]  # 2 is a name, 1 is not
    array = Schema.infer(Table(frame.to_numpy()), {"x0": "continuous", 2: "ordinal"})
    assert [column.kind for column in array] == ["continuous", "positive", "ordinal"]
    for key in ("b", 7, -1):
        with pytest.raises(SchemaError, match=f"refers to column '{key}', which is not in the table"):
            Schema.infer(Table(frame), {key: "count"})


def test_a_schema_must_be_a_mapping():
    with pytest.raises(SchemaError, match=r"must map column names to settings, got 'schema.json'"):
        Schema.infer(Table(pd.DataFrame({"a": [1]})), "schema.json")


def test_settings_are_read_from_json_by_name_or_from_a_saved_schema(tmp_path):
    path = tmp_path / "schema.json"
    path.write_text('{"columns": {"ä": {"kind": "count", "maximum": 9}}}', encoding="utf-8")
    assert Schema.read_overrides(path) == {"ä": {"kind": "count", "maximum": 9}}
    table = Table(every_kind())
    schema = Schema.infer(table)
    path.write_text(json.dumps(schema.to_dict()))
    again = Schema.infer(table, Schema.read_overrides(path))
    assert [(c.kind, c.levels, c.code_bounds(), c.code_step) for c in again] == [
        (c.kind, c.levels, c.code_bounds(), c.code_step) for c in schema
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "There is no schema file '.*schema.json'"),
        (b"{", "schema.json' cannot be read: Expecting"),
        (b"\xff", "schema.json' cannot be read: .*codec"),
        (b"[]", r'must contain {"columns": {name: settings}}'),
        (b'{"columns": [{"kind": "count"}]}', r'must contain {"columns": {name: settings}}'),
        (b'{"columns": 3}', r'must contain {"columns": {name: settings}}'),
    ],
)
def test_schema_files_without_content_are_refused(tmp_path, content, message):
    path = tmp_path / "schema.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SchemaError, match=message):
        Schema.read_overrides(path)


# ------------------------------------------------------------------------------------------- text, JSON


def every_kind():
    n = 40
    return pd.DataFrame(
        {
            "continuous": np.linspace(-1, 1, n),
            "positive": np.linspace(0.5, 1, n),
            "count": pd.Series([*range(5, n + 4), None], dtype="Int64"),
            "binary": [True, False] * (n // 2),
            "two numbers": [1.5, 2.5] * (n // 2),
            "categorical": list("abcd") * (n // 4),
            "ordinal": pd.Categorical(["lo", "hi"] * (n // 2), ["lo", "mid", "hi"], ordered=True),
            "intervals": pd.cut(np.arange(n), 3),
            "datetime": pd.date_range("2020-01-01", periods=n),
            "duration": pd.timedelta_range("1s", periods=n),
            "constant": "x",
            "all-missing": np.nan,
            "identifier": [f"n{i}" for i in range(n)],
            "text": [f"This is the sentence with number {i}." for i in range(n)],
            "unsupported": [[i] for i in range(n)],
        }
    )


def test_every_kind_goes_through_json():
    schema = Schema.infer(Table(every_kind()))
    assert {column.kind for column in schema} == set(KINDS)
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict(), allow_nan=False))) == schema
    said = {"count": {"minimum": np.int64(1)}, "two numbers": {"levels": [np.float64(1.5), np.float64(2.5)]}}
    schema = Schema.infer(Table(every_kind()), said)
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema


def test_a_schema_of_a_later_version_is_read_without_what_is_unknown():
    content = {
        "columns": [{"name": "a", "kind": "count", "dtype": "int64", "storage": "number", "colour": 1}]
    }
    assert Schema.from_dict(content).columns == (Column("a", "count", "int64", "number"),)


def test_a_schema_reads_as_one_line_per_column():
    said = {"t": {"maximum": "2021-01-01"}, "s": {"minimum": dt.timedelta(seconds=1)}}
    frame = pd.DataFrame(
        {"a\nb": [1.5, None, 2.0], "t": pd.to_datetime(["2020-01-01", "2020-01-02", None]), "c": list("xyz")}
    )
    frame["s"] = frame["t"] - frame["t"][0]
    frame["k"] = "one"
    assert str(Schema.infer(Table(frame), said)).splitlines() == [
        r"'a\nb': positive [>= 0.75], 1 missing. Numbers, all positive. Imputed values may exceed the "
        "observed range: 1 to 2.5.",
        "t: datetime [<= 2021-01-01], 1 missing. Dates or times; maximum set by user. Imputed values lie "
        "within 2020-01-01 and 2021-01-01.",
        "c: categorical [3 levels: x, y, z], 0 missing. Text with 3 distinct values.",
        "s: duration [>= 0:00:01], 1 missing. Durations; minimum set by user. Imputed values may exceed the "
        "observed range: 0:00:01 to 2 days, 0:00:00.",
        "k: constant [1 level: one], 0 missing. One distinct value.",
    ]
    many = infer([f"level {i % 9}" for i in range(40)]).one_line()
    assert "9 levels: level 0, level 1, level 2, level 3, level 4, level 5, ..." in many


# ------------------------------------------------------------------------------------------- codes


def test_a_level_never_seen_is_ignored_as_evidence_and_stays_in_the_table():
    frame = pd.DataFrame({"c": ["a", "b", "c", None]})
    schema, _ = fill(frame)
    assert np.isnan(encode(schema.columns[0], ["new"]))[0]
    assert encode(schema.columns[0], ["c", "new", None, "a"])[::3] == [2.0, 0.0]
    _, filled = fill(pd.DataFrame({"c": ["new", None, "c", "c"]}), schema=schema)
    assert filled["c"].tolist() == ["new", "b", "c", "c"]


@pytest.mark.parametrize(
    ("fitted", "now", "message"),
    [
        (
            [1.5, 2.5],
            ["a"],
            "Column 'c' contained numbers when the model was fitted, but now it contains 'a'",
        ),
        ([True, False], ["yes"], "contained numbers .* now it contains 'yes'"),
        (["a", "b"], [1.5], "Column 'c' contained text when the model was fitted, but now it contains 1.5"),
        (["1", "2"], [1], "contained text .* now it contains 1.0"),
        (WEEK, [1.5], "contained dates .* now it contains 1.5"),
        ([1.5, 2.5], WEEK, "contained numbers .* now it contains '2020-01-01T"),
        (["a", "b"], WEEK, "contained text .* now it contains '2020-01-01T"),
        (WEEK, WEEK - WEEK[0] + pd.Timedelta("1s"), "contained dates .* now it contains 1000000"),
    ],
)
def test_a_column_that_changes_its_type_is_refused(fitted, now, message):
    with pytest.raises(SchemaError, match=message):
        encode(infer(fitted), now)


@pytest.mark.parametrize(
    ("fitted", "now", "codes"),
    [
        ([True, False], [1.0, 0.0, None], [1.0, 0.0]),
        ([0, 1], [True, False], [1.0, 0.0]),
        (pd.Categorical([3, 1]), [1, 3], [0.0, 1.0]),
        ([1.5, 2.5], pd.Categorical([2.5, 1.5]), [2.5, 1.5]),
        ([1.5, 2.5], pd.Series([2.5, 1.5], dtype=object), [2.5, 1.5]),
        (["a", "b"], pd.Categorical(["b", "a"], categories=["z", "b", "a"]), [1.0, 0.0]),
    ],
)
def test_equal_values_of_another_dtype_have_equal_codes(fitted, now, codes):
    assert encode(infer(fitted), now)[: len(codes)] == codes


@pytest.mark.parametrize(
    "empty", [pd.Categorical([None, None], categories=["z"]), [None, None], [np.nan, np.nan]]
)
@pytest.mark.parametrize("fitted", [[1.5, 2.5], ["a", "b"], WEEK, [True, False]])
def test_an_empty_column_of_any_dtype_is_missing(fitted, empty):
    assert np.isnan(encode(infer(fitted), empty)).all()


def test_bounds_bind_imputed_cells_and_leave_observed_ones():
    frame = pd.DataFrame({"a": [5.5, 50.0, None], "t": pd.to_datetime(["2020-01-01", "2020-06-01", None])})
    said = {"a": {"minimum": 1, "maximum": 6.9, "integer": True}, "t": {"minimum": "2020-05-31"}}
    _, filled = fill(frame, said)
    assert filled["a"].tolist() == [5.5, 50.0, 6.0]
    assert filled["t"][2] == pd.Timestamp("2020-05-31")
    assert filled["t"][:2].equals(frame["t"][:2])


def test_numbers_in_text_are_modelled_as_numbers_and_written_as_text():
    frame = pd.DataFrame({"n": ["4", None, "8"], "x": ["1.5", None, "4.5"]})
    schema, filled = fill(frame, {"n": "count", "x": {"kind": "continuous", "maximum": 1.75}})
    assert encode(schema.columns[0], ["10", "4"]) == [10.0, 4.0]
    assert filled["n"].tolist() == ["4", "4", "8"]
    assert filled["x"].tolist() == ["1.5", "1.75", "4.5"]
    with pytest.raises(SchemaError, match="Column 'n' cannot be numbers: it contains 'many'"):
        encode(schema.columns[0], ["many"])


def test_times_with_levels_are_written_as_times():
    column = infer(WEEK, "categorical")
    assert encode(column, WEEK[[3, 0]]) == [3.0, 0.0]
    np.testing.assert_array_equal(column.decode(np.array([3.0])), WEEK.to_numpy()[[3]])


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        ("int8", -128, 127), ("UInt8", 0, 255), ("uint8[pyarrow]", 0, 255), ("Int16", -(2**15), 2**15 - 1),
        ("int64", -(2**63), 2**63 - 1024), ("UInt64", 0, 2**64 - 2048), ("uint64[pyarrow]", 0, 2**64 - 2048),
        ("float32", -3.4028234663852886e38, 3.4028234663852886e38), ("halffloat[pyarrow]", -65504, 65504),
        ("float[pyarrow]", -3.4028234663852886e38, 3.4028234663852886e38),
        ("Float64", -np.finfo(float).max, np.finfo(float).max), ("decimal128(4, 2)[pyarrow]", -99.99, 99.99),
        ("Decimal(precision=4, scale=2)", -99.99, 99.99),
    ],
)  # fmt: skip
def test_codes_never_leave_what_the_dtype_can_store(dtype, low, high):
    column = Column("c", "continuous", dtype, "number", integer="int" in dtype.lower())
    codes = column.constrain(np.array([-np.inf, -1e308, 1e308, np.inf]))
    np.testing.assert_allclose(codes[[0, 3]], [low, high], rtol=0)
    assert np.isfinite(column.decode(codes).astype(float)).all()
    if column.integer:
        assert column.decode(codes[[0, 0]]).tolist() == [low, low]
        assert column.decode(codes[[3, 3]]).tolist() == [high, high]


@pytest.mark.parametrize("unit", ["ns", "us", "s"])
def test_dates_far_out_are_brought_back_to_what_can_be_written(unit):
    frame = pd.DataFrame({"t": pd.Series([*WEEK, pd.NaT]).astype(f"datetime64[{unit}]")})
    settings = {"t": {"minimum": "0001-01-01", "maximum": "9999-12-31"}}
    column = Schema.infer(Table(frame), settings).columns[0]
    for far in (-1e30, 1e30):
        value = column.decode(column.constrain(np.array([far])))
        filled = Table(frame).filled({0: (np.array([7]), value)})
        assert filled["t"].dtype == frame["t"].dtype
        assert abs(filled["t"][7].year - 2000) > 200


bounds = st.one_of(st.none(), st.floats(-1e6, 1e6))


@given(
    low=bounds,
    high=bounds,
    integer=st.booleans(),
    dtype=st.sampled_from(["float64", "float32", "int8", "UInt16", "int64", "object"]),
    codes=st.lists(st.floats(allow_nan=False), min_size=1, max_size=9),
)
def test_constrained_numbers_are_allowed_and_stay(low, high, integer, dtype, codes):
    integer = integer or "int" in dtype.lower()
    column = Column("c", "continuous", dtype, "number", minimum=low, maximum=high, integer=integer)
    least, greatest = column.code_bounds()
    if np.ceil(least) > np.floor(greatest):
        return  # inference refuses such bounds
    result = column.constrain(np.array(codes))
    assert ((result >= least) & (result <= greatest)).all()
    assert np.isfinite(result).all()
    assert not integer or (result == np.round(result)).all()
    np.testing.assert_array_equal(column.constrain(result), result)
    inside = [code for code in codes if least <= code <= greatest and (not integer or code == round(code))]
    np.testing.assert_array_equal(column.constrain(np.array(inside)), inside)
    np.testing.assert_array_equal(column.decode(result).astype(float), result)


@given(n_levels=st.integers(1, 9), codes=st.lists(st.floats(allow_nan=False), max_size=9))
def test_constrained_levels_are_levels(n_levels, codes):
    levels = tuple("abcdefghi"[:n_levels])
    column = Column("c", "ordinal", "str", "label", levels=levels)
    result = column.constrain(np.array(codes))
    assert set(column.decode(result)) <= set(levels)
    np.testing.assert_array_equal(column.constrain(result), result)


@given(code=st.floats(-1e18, 1e18), step=st.sampled_from([DAY, 3600e6, 1e6, None]))
def test_constrained_times_are_whole_steps(code, step):
    column = Column("t", "datetime", "datetime64[us]", "time", step=step)
    result = column.constrain(np.array([code]))
    assert step is None or result[0] % step == 0
    np.testing.assert_array_equal(column.constrain(result), result)


def test_levels_are_compared_as_often_as_there_are_levels_not_with_each_other():
    """With 100,000 levels, comparing each with all would take minutes."""
    compared = []

    class Watched(str):
        def __eq__(self, other):
            compared.append(other)
            return str(self) == str(other)

        __hash__ = str.__hash__

    cells = [f"level {i}" for i in range(300)] * 2
    column = infer(cells, {"kind": "categorical", "levels": [Watched(cell) for cell in cells[:300]]})
    assert len(column.levels) == 300
    assert len(compared) < 3000


def test_a_level_that_cannot_be_a_level_is_refused():
    with pytest.raises(SchemaError, match=r"Column 'c' contains 'a', which is not among the levels"):
        infer(["a", "b"] * 20, {"kind": "categorical", "levels": [["a"], "b"]})


def test_text_that_no_model_sees_but_that_looks_like_numbers_is_announced():
    prices = [f"${number},{number % 7}00.50" for number in range(1, 40)]
    frame = pd.DataFrame({"price": [*prices, None], "name": [f"item {number}" for number in range(40)]})
    with pytest.warns(
        HalfseenWarning, match=r"Column 'price' is text.* like numbers, such as '\$1,100.50'. Convert"
    ):
        schema = Schema.infer(Table(frame))
    assert schema.columns[0].kind == "identifier"


@pytest.mark.parametrize(
    ("cells", "overrides"),
    [
        ([f"{number}.50" for number in range(1, 40)], {"x": "identifier"}),
        ([f"0{number}" for number in range(100, 140)], {}),
        ([f"1.2.{number}" for number in range(40)], {}),
        ([*map(str, range(10, 40)), "a", "b", "c", "d"], {}),
    ],
)
def test_names_and_codes_are_not_taken_for_numbers(cells, overrides):
    with warnings.catch_warnings():
        warnings.simplefilter("error", HalfseenWarning)
        Schema.infer(Table(pd.DataFrame({"x": cells})), overrides)


def test_a_dictionary_with_infinity_as_a_level_is_refused_by_the_name_of_its_column():
    cells = pd.Categorical([1.0, 2.0, None] * 5, categories=[1.0, 2.0, np.inf])
    with pytest.raises(SchemaError, match="Column 'c' has the category infinity"):
        Schema.infer(Table(pd.DataFrame({"c": cells})))


def test_nan_in_a_dictionary_is_missing():
    codes, levels = pa.array([0, 1, 2, None]), pa.array([1.0, 2.0, float("nan")])
    table = Table(pa.table({"c": pa.DictionaryArray.from_arrays(codes, levels)}))
    column = Schema.infer(table).columns[0]
    assert column.levels == (1.0, 2.0)
    assert column.n_missing == 2
