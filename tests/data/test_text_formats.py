"""Texts that stand for quantities: which formats are recognised, and which texts are none of them."""

import re

import numpy as np
import pyarrow as pa
import pytest

from halfseen.files.numbers import split_numbers
from halfseen.files.text_formats import find_text_format, looks_like_number

DURATIONS, UNITS = "times or durations", "numbers with different units"


@pytest.mark.parametrize(
    ("texts", "form"),
    [
        (["1:30", "0:45", "12:05"], DURATIONS),
        (["1:30:00", "100:45:59.5"], DURATIONS),
        (["2h 15m", "45m", "3 h"], DURATIONS),
        (["90 min", "2 hours", "1 day, 3 hours"], DURATIONS),
        (["PT1H30M", "P2DT3H"], DURATIONS),
        (["2021-Q3", "2020 Q1", "2019Q4"], "quarters"),
        (["Q3 2021", "q1 20", "4Q19"], "quarters"),
        (["2021-07", "1999-12"], "months"),
        (["07/2021", "1/2020"], "months"),
        (["120/80", "135 / 90", "99.5/60"], "pairs of numbers"),
        (["5 kg", "300 g", "1,5 kg"], UNITS),
        (["12 m", "3 km"], UNITS),
        (["72.9 kg", "80kg"], "numbers with a unit"),
        (["12 m", "30 m"], "numbers with a unit"),
        (["120/80"] * 9 + ["unknown"], "pairs of numbers"),
        (["120/80"] * 8 + ["unknown", "refused"], None),
        (["C017", "C018"], None),
        (["1234A", "5678B"], None),
        (["555-1234", "555-9876"], None),
        (["1:75", "2:99"], None),
        (["P", "PT"], None),
        (["2021-Q5"], None),
        (["Bern", "Thun"], None),
        ([""], None),
    ],
)
def test_texts_have_the_format_that_nine_tenths_of_them_share(texts, form):
    assert find_text_format(texts) == form


@pytest.mark.parametrize(
    "text",
    [
        "1", "-1", "+1.5", "1,5", "1.577,37", "1,577.37", "1 577,37", "1'577.37", "12,34,567.5", "$1,577",
        "($5)", "($5", "5-",
        "EUR 5", "1.577 \u20ac", "29,8 %", "<0.05", "\u2265 3", "1e5", ".5", "007", "C17",
        "1.2.3", "1,23,4", "a", "",
        "12-3", "5 apples", "2021-05-28", "--5",
    ],
)  # fmt: skip
def test_frames_and_files_agree_on_what_a_number_looks_like(text):
    numbers = split_numbers(pa.array([text], pa.large_string()), np.ones(1, dtype=np.int64))
    fits = any(one[0] for one in numbers.fits.values())
    has_unit = fits and re.search(r"[a-z]{3,}$", text) is not None  # a unit only beside others like it
    assert looks_like_number(text) == (fits and not has_unit)
