"""Whole numbers of 16 or more digits, such as those of cards, are not filled by calculations."""

import pyarrow as pa
import pytest

from halfseen.files.recognition import read_columns
from halfseen.files.rules import make_rules

CARDS = [f"900719925474099{number:02d}" for number in range(31, 51)]


def read(cells, **rules):
    table = pa.table({"card": pa.array(cells, pa.large_string())})
    return read_columns(table, make_rules(["card"], **rules), ",")["card"]


def test_card_numbers_are_kept_and_left_empty():
    outcome = read([*CARDS, ""])
    assert outcome.typed.to_pylist() == [*map(int, CARDS), None]
    assert outcome.settings == {"kind": "identifier", "fill": False}
    assert "16 or more digits" in outcome.notes[0]


@pytest.mark.parametrize("cells", [[str(10**14 + i) for i in range(20)], ["1", "2", "3", str(10**16)]])
def test_shorter_numbers_and_single_long_ones_are_numbers(cells):
    assert read(cells).settings == {}


def test_long_codes_that_repeat_are_levels_unless_floats_confuse_them():
    assert read([*["1000000000000000", "2000000000000000"] * 10, ""]).settings == {"kind": "categorical"}
    confused = ["90071992547409931", "90071992547409932"] * 10
    assert read([*confused, ""]).settings == {"kind": "identifier", "fill": False}


def test_a_schema_makes_them_numbers():
    assert read([*CARDS, ""], schema={"card": {"kind": "continuous"}}).settings == {}
