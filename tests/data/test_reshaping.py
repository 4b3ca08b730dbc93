"""to_wide and to_long: one is undone by the other, in every library; errors name column and value."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import halfseen

LIBRARIES = {
    "pandas": lambda columns: pd.DataFrame(columns),
    "polars": lambda columns: pl.DataFrame(columns),
    "pyarrow": lambda columns: pa.table(columns),
}


def columns_of(table):
    """The columns of a table of any library, with None for missing values."""
    if isinstance(table, pd.DataFrame):
        assert list(table.index) == list(range(len(table)))
        return {name: [None if pd.isna(v) else v for v in table[name]] for name in table}
    found = table.to_dict(as_series=False) if isinstance(table, pl.DataFrame) else table.to_pydict()
    return {name: list(values) for name, values in found.items()}


LONG = {
    "id": ["b", "b", "a", "a", "c", "c"],
    "wave": [1, 2, 1, 2, 1, 2],
    "sex": ["f", "f", "m", "m", None, None],
    "y": [1.0, 2.0, None, 4.0, 5.0, 6.0],
    "smokes": ["no", "yes", "no", None, "no", "no"],
}
WIDE = {
    "id": ["b", "a", "c"],
    "sex": ["f", "m", None],
    "y_1": [1.0, None, 5.0],
    "smokes_1": ["no", "no", "no"],
    "y_2": [2.0, 4.0, 6.0],
    "smokes_2": ["yes", None, "no"],
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_long_tables_become_wide_and_long_again(library):
    long = LIBRARIES[library](LONG)
    wide = halfseen.to_wide(long, groups="id", time="wave")
    assert type(wide) is type(long)
    assert columns_of(wide) == WIDE
    again = halfseen.to_long(wide, groups="id", time="wave", columns=["y", "smokes"])
    assert type(again) is type(long)
    assert columns_of(again) == LONG


def test_rows_in_any_order_give_the_same_values():
    long = pd.DataFrame(LONG).sample(frac=1, random_state=3)
    wide = halfseen.to_wide(long, "id", "wave").set_index("id").loc[WIDE["id"]].reset_index()
    assert columns_of(wide[list(WIDE)]) == WIDE


@pytest.mark.parametrize("library", LIBRARIES)
def test_times_without_a_row_are_missing(library):
    short = LIBRARIES[library]({name: values[:-1] for name, values in LONG.items()})
    wide = columns_of(halfseen.to_wide(short, "id", "wave"))
    assert wide["y_2"] == [2.0, 4.0, None]
    assert wide["smokes_2"] == ["yes", None, None]


def test_a_constant_column_takes_the_value_of_any_row_in_which_it_is_observed():
    long = pd.DataFrame(
        {"id": [1, 1, 2, 2], "t": [0, 1, 0, 1], "age": [np.nan, 40, 50, np.nan], "y": range(4)}
    )
    assert halfseen.to_wide(long, "id", "t")["age"].tolist() == [40, 50]


def test_columns_that_do_not_vary_may_be_spread_on_request():
    wide = halfseen.to_wide(pd.DataFrame(LONG), "id", "wave", ["sex", "y", "smokes"], sep=".")
    assert "sex.1" in wide
    assert "sex" not in wide


@pytest.mark.parametrize(
    ("times", "expected"), [([0.5, 1.0], [0.5, 1.0]), (["pre", "post"], ["post", "pre"]), ([7, 30], [7, 30])]
)
def test_times_come_back_as_numbers_or_texts(times, expected):
    long = pd.DataFrame({"id": [1, 1, 2, 2], "t": times * 2, "y": range(4)})
    again = halfseen.to_long(halfseen.to_wide(long, "id", "t"), "id", "t", ["y"])
    assert again["t"].tolist() == expected * 2


def test_names_that_begin_alike_are_told_apart():
    wide = pd.DataFrame({"id": [1], "y_1": [1.0], "y_low_1": [2.0]})
    long = halfseen.to_long(wide, "id", "t", ["y", "y_low"])
    assert columns_of(long) == {"id": [1], "t": [1], "y": [1.0], "y_low": [2.0]}


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        ({}, ("person", "wave"), "groups refers to column 'person', which is not in the table"),
        ({}, ("id", "day"), "time refers to column 'day', which is not in the table"),
        ({}, ("id", "id"), "groups and time are the same column 'id'"),
        ({"wave": 1}, ("id", "wave"), "Two rows have 'id' = 'b' and 'wave' = 1"),
        ({"id": ["b", None, *"aacc"]}, ("id", "wave"), "Column 'id' is missing in row 1"),
        ({"wave": pd.date_range("2020", periods=6)}, ("id", "wave"), "Column 'wave' has the time .*2020"),
        ({}, ("id", "wave", "y"), "columns must be a list of names, got 'y'"),
        ({}, ("id", "wave", ["z"]), "columns refers to column 'z'"),
        ({}, ("id", "wave", ["y"]), "Column 'smokes' varies within a value of 'id'"),
        ({"y_1": 1}, ("id", "wave"), "There is a column 'y_1' already: choose another sep than '_'"),
    ],
)
def test_wrong_arguments_of_to_wide_are_named(change, arguments, message):
    with pytest.raises(halfseen.SchemaError, match=message):
        halfseen.to_wide(pd.DataFrame(LONG).assign(**change), *arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("person", "wave", ["y"]), "groups refers to column 'person'"),
        (
            ("id", "sex", ["y", "smokes"]),
            "There is a column 'sex' already: choose another name for the times",
        ),
        (("id", "wave", "y"), "columns must be a list of names, got 'y'"),
        (("id", "wave", ["z"]), "There is no column 'z_...': columns are named without their times"),
        (("id", "wave", ["y", "sex"]), "There is no column 'sex_1', the time '1' of 'sex'"),
    ],
)
def test_wrong_arguments_of_to_long_are_named(arguments, message):
    with pytest.raises(halfseen.SchemaError, match=message):
        halfseen.to_long(pd.DataFrame(WIDE), *arguments)


def test_arrays_are_refused():
    with pytest.raises(halfseen.SchemaError, match="Expected a table with named columns, got ndarray"):
        halfseen.to_wide(np.eye(3), "x0", "x1")
