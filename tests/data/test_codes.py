"""Tables become codes in one place, which reads each column once."""

import numpy as np
import pandas as pd
import pytest

from halfseen import GaussianImputer
from halfseen.data.frames import Table
from halfseen.data.schema import Schema, open_table, read_codes
from halfseen.diagnosis.cells import Cells
from halfseen.errors import SchemaError
from halfseen.evaluation.candidates import CodedTable

FRAME = pd.DataFrame(
    {
        "x": [1.5, None, 2.5, 9.25] * 5,
        "one": [7.0] * 20,
        "s": ["b", "a", None, "b"] * 5,
    }
)


@pytest.fixture
def read_columns(monkeypatch):
    """The positions of the columns that were read, in this order."""
    read, usual = [], Table.column

    def column(self, position):
        read.append(position)
        return usual(self, position)

    monkeypatch.setattr(Table, "column", column)
    return read


def test_each_column_is_read_once(read_columns):
    table = open_table(FRAME)
    schema = Schema.infer(table)
    read_columns.clear()
    read_codes(table, schema)
    assert read_columns == [0, 1, 2]


def test_an_imputer_reads_each_column_once_in_fit_and_in_each_answer(read_columns):
    imputer = GaussianImputer(random_state=0).fit(FRAME)
    assert read_columns == [0, 1, 2]
    read_columns.clear()
    imputer.interval(FRAME)
    assert sorted(read_columns) == [0, 1, 2]


@pytest.mark.parametrize("read", [Cells.read, CodedTable.read])
def test_diagnosis_and_evaluation_read_each_column_once(read, read_columns):
    read(FRAME)
    assert read_columns == [0, 1, 2]


def test_estimators_evaluation_and_diagnosis_have_the_same_codes():
    table = open_table(FRAME)
    codes = read_codes(table, Schema.infer(table))
    assert [column.name for column in codes.columns] == ["x", "s"]
    np.testing.assert_array_equal(CodedTable.read(FRAME).codes, codes.with_nan)
    cells = Cells.read(FRAME)
    np.testing.assert_array_equal(cells.x[:, [0, 2]], codes.values)
    np.testing.assert_array_equal(cells.observed, ~codes.missing)
    read = GaussianImputer().fit(FRAME)._read(FRAME, reset=False)
    np.testing.assert_array_equal(read.codes.to_array(), codes.with_nan)
    np.testing.assert_array_equal(read.missing, codes.missing)


def test_a_level_that_the_schema_does_not_know_is_not_observed_though_not_missing():
    schema = Schema.infer(open_table(FRAME))
    new = FRAME.assign(s=["c", "a", None, "b"] * 5)
    codes = read_codes(open_table(new), schema)
    assert codes.observed[:4, 1].tolist() == [False, True, False, True]
    assert codes.missing[:4, 2].tolist() == [False, False, True, False]


def test_censored_cells_are_observed_only_for_who_knows_limits():
    table = open_table(FRAME)
    schema = Schema.infer(table, {"x": {"censored_above": 9.0}})
    assert read_codes(table, schema).observed[:4, 0].tolist() == [True, False, True, True]
    assert read_codes(table, schema, censored=False).observed[:4, 0].tolist() == [True, False, True, False]


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (np.ones(3), r"two-dimensional array, got shape \(3,\)"),
        (np.ones((0, 3)), "The table has 0 rows and 3 columns"),
        (FRAME[[]], "The table has 20 rows and 0 columns"),
    ],
)
def test_what_is_no_table_is_refused(given, match):
    with pytest.raises(SchemaError, match=match):
        open_table(given)
