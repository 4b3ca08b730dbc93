"""Texts that stand for quantities: which formats are recognised, and which texts are none of them."""

import re
from datetime import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import halfseen
from halfseen.files.numbers import split_numbers
from halfseen.files.text_formats import are_numbered_dates, find_text_format, looks_like_number

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


@pytest.mark.parametrize("layout", ["%Y%m%d", "%Y%m%d%H%M", "%Y%m%d%H%M%S"])
def test_numbers_are_dates_where_the_calendar_has_them(layout):
    generator = np.random.default_rng(0)
    for low, high in ((16000101, 22000101), (99000101, 100000101)):
        days = generator.integers(low, high, 300)
        clocks = generator.integers(0, 260_000, 300)  # hours, minutes and seconds, some beyond their limits
        for day, clock in zip(days.tolist(), clocks.tolist(), strict=True):
            text = f"{day}{clock:06d}"[: len(datetime(2000, 1, 1).strftime(layout))]
            known = text if not text[4:8] == "0229" else f"2024{text[4:]}"  # leap years are not looked at
            try:
                is_date = datetime.strptime(known, layout).strftime(layout) == known
            except ValueError:
                is_date = False
            assert are_numbered_dates(np.array([int(text)]), np.ones(1, dtype=np.int64), 1) == is_date


def test_dates_as_numbers_in_a_frame_stay_empty_and_predict_other_columns():
    days = pd.date_range("2023-01-01", periods=120)
    generator = np.random.default_rng(0)
    trend = np.arange(120) / 10 + generator.normal(size=120)
    table = pd.DataFrame({"day": days.strftime("%Y%m%d").astype(float), "trend": trend})
    table.loc[3:5, "day"] = table.loc[110:, "trend"] = np.nan
    with pytest.warns(halfseen.HalfseenWarning, match=r"'day' contains dates that are stored as numbers"):
        imputer = halfseen.GaussianImputer(random_state=0).fit(table)
    complete = imputer.transform(table)
    assert complete["day"].isna().sum() == 3
    assert (
        np.abs(complete["trend"][110:] - trend[110:]).mean()
        < np.abs(trend[:110].mean() - trend[110:]).mean() / 2
    )
    asked = halfseen.GaussianImputer(schema={"day": {"fill": True}}, random_state=0).fit(table)
    assert asked.transform(table)["day"].notna().all()
    amounts = table.assign(day=np.arange(120) * 100 + 20_230_000.0)
    assert not halfseen.GaussianImputer(random_state=0).fit(amounts).columns_left_
