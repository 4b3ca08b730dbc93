"""Short columns are read cell by cell in Python, with the result of the functions of pyarrow."""

import re

import pyarrow as pa
import pytest

from halfseen.files import csv_tables, distinct, formats, missing_codes, recognition
from halfseen.files.recognition import read_columns
from halfseen.files.rules import make_rules

COLUMNS = {
    "whole": ["3", "+4", "", "-12", "NA"],
    "ends": ["9223372036854775807", "1", "2", None, "3"],
    "too_long": ["9223372036854775808", "1", "2", "3", "4"],
    "codes": ["007", "008", "", "012", "100"],
    "ragged": ["1.5", "2", "-.25", "3.", "4.125"],
    "thousands": ["1.234", "2.345", "3.456", "", "4.567"],
    "exponents": ["1.5e+10", "2.5e+11", "", "3.5e+12", "1.0e+10"],
    "mixed_exponents": ["1e5", "2E6", "3", "", "5"],
    "infinite": ["inf", "1", "2", "3", "4"],
    "placeholders": ["-999", "1", "2", "3", "-999"],
    "blanks": [" 1", "2 ", "3", "4", "5"],
    "words": ["1", "unknown", "3", "4", "5"],
    "errors": ["1", "#DIV/0!", "3", "4", "5"],
    "lines": ["1\n", "2", "3", "4", "5"],
    "digits": ["\u0661", "2", "3", "4", "5"],
    "truth": ["true", "FALSE", "True", "", "false"],
    "days": ["2020-01-31", "2021-12-01", "", "2022-02-28", "2020-01-01"],
    "times": ["2020-01-31 10:20", "2021-12-01T10:20:30.5Z", "", "2022-02-28 00:00", "2020-01-01 00:00"],
    "grouped": ["1,234", "12,345,678", "5", "", "2,000"],
    "empty": ["", None, "NA", "", ""],
}


def _shown(outcomes):
    """Return results as text, without the addresses of arrays in memory."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(outcomes))


@pytest.mark.parametrize("as_written", [False, True])
@pytest.mark.parametrize("nulls", [{}, {"null": ["5"]}, {"default_nulls": False}])
def test_short_and_long_columns_are_read_in_the_same_way(monkeypatch, nulls, as_written):
    table = pa.table({name: pa.array(cells, pa.large_string()) for name, cells in COLUMNS.items()})
    rules = make_rules(table.column_names, **nulls)
    short = read_columns(table, rules, ";", as_written=as_written)
    for module in (csv_tables, distinct, formats, missing_codes, recognition):
        monkeypatch.setattr(module, "FEW", -1)
    long = read_columns(table, rules, ";", as_written=as_written)
    assert _shown(short) == _shown(long)


@pytest.mark.parametrize("decimals", [0, 2, 4])
def test_few_numbers_are_written_like_many(monkeypatch, decimals):
    values = pa.array([0.0, -0.001, 0.5, 1.5, 2.5, -0.125, 1.005, 123456.789, -7.0, 1e11])
    style = formats.Style("float", decimals=decimals)
    short = formats.format_cells(values, style)
    monkeypatch.setattr(formats, "FEW", -1)
    assert short.equals(formats.format_cells(values, style))
