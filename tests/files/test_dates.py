"""Dates in text files: orders, layouts, years of two digits, and what decides between them."""

import datetime

import pyarrow as pa
import pyarrow.parquet
import pytest
from corpus.workbooks import pack, sheet

from halfseen.files.formats import format_cells
from halfseen.files.recognition import read_columns
from halfseen.files.rules import Rules
from halfseen.files.tables import read_table
from halfseen.files.writing import write_tables


def parse(cells, delimiter=","):
    return read_columns(pa.table({"x": pa.array(cells, pa.large_string())}), Rules(), delimiter)["x"]


def values(cells, delimiter=","):
    return parse(cells, delimiter).typed.to_pylist()


@pytest.mark.parametrize(
    ("cells", "first"),
    [
        (["28/05/2021", "01/06/2021"], datetime.date(2021, 5, 28)),
        (["05/28/2021", "06/01/2021"], datetime.date(2021, 5, 28)),
        (["28.5.2021", "1.6.2021"], datetime.date(2021, 5, 28)),
        (["01.06.2021", "02.06.2021"], datetime.date(2021, 6, 1)),
        (["28-May-2021", "1-Jun-2021"], datetime.date(2021, 5, 28)),
        (["28 MAY 2021", "01 JUN 2021"], datetime.date(2021, 5, 28)),
        (["May 28, 2021", "June 1, 2021"], datetime.date(2021, 5, 28)),
        (["2021/05/28", "2021/06/01"], datetime.date(2021, 5, 28)),
        (["2021-5-28", "2021-12-01"], datetime.date(2021, 5, 28)),
        (["28.05.71", "01.06.21"], datetime.date(1971, 5, 28)),
        (["28 mai 2021", "1 août 2021"], datetime.date(2021, 5, 28)),
        (["28.05.2021 23:59", "01.06.2021 0:05"], datetime.datetime(2021, 5, 28, 23, 59)),
        (["28.05.2021 23:59:01.250", "01.06.2021 00:05:00.000"],
         datetime.datetime(2021, 5, 28, 23, 59, 1, 250_000)),
        (["5/28/2021 12:05 am", "6/1/2021 1:05 pm"], datetime.datetime(2021, 5, 28, 0, 5)),
    ],
)  # fmt: skip
def test_dates_in_common_orders_are_read_and_written_alike(cells, first):
    column = parse(cells)
    assert column.typed.to_pylist()[0] == first
    assert format_cells(column.typed, column.style).to_pylist() == cells


def test_dates_with_an_ambiguous_order_stay_text_until_the_user_states_it(read):
    text = "d,x\n05/06/2021,1\n06/03/2021,2\n"
    assert read(text).settings["d"] == {"kind": "text", "fill": False}
    assert read(text, date_order=["mdy"]).table["d"].to_pylist()[0] == datetime.date(2021, 5, 6)
    assert read(text, date_order=["d=dmy"]).table["d"].to_pylist()[0] == datetime.date(2021, 6, 5)
    said = {"d": {"date_order": "dmy"}}
    assert read(text, schema=said).table["d"].to_pylist()[0] == datetime.date(2021, 6, 5)


POINTS = [f"{1 + k % 28:02d}.{1 + k % 12:02d}.2021" for k in range(85)]


def date_column(others, name="d"):
    return f"{name};x\n" + "".join(f"{cell};{k}\n" for k, cell in enumerate([*POINTS, *others, ""]))


def test_dates_of_two_layouts_are_read_and_filled_like_most(read, tmp_path):
    others = [f"2021-{1 + k % 12:02d}-{1 + k % 28:02d}" for k in range(15)]
    file = read(date_column(others))
    days = file.table["d"].to_pylist()
    assert days[:2] == [datetime.date(2021, 1, 1), datetime.date(2021, 2, 2)]
    assert days[85:87] == [datetime.date(2021, 1, 1), datetime.date(2021, 2, 2)]
    assert file.notes == (
        "column 'd' contains dates (day first)",
        "column 'd': 85 cells are written like '01.01.2021' (day first) and 15 cells like '2021-01-01' (year "
        "first): all are read as dates, and missing cells are filled like the first",
    )
    filled = pa.array([*days[:-1], datetime.date(2021, 3, 4)])
    write_tables([file.table.set_column(0, "d", filled)], str(tmp_path / "out.csv"), file)
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[:-1] == (tmp_path / "in.csv").read_text().splitlines()[:-1]
    assert lines[-1] == "04.03.2021;100"


@pytest.mark.parametrize(
    ("others", "last"),
    [
        (["28/05/2021", "03/04/2021"], datetime.date(2021, 4, 3)),
        (["05/28/2021", "03/04/2021"], datetime.date(2021, 3, 4)),
        (["28.05.21"], datetime.date(2021, 5, 28)),
        (["May 28, 2021"], datetime.date(2021, 5, 28)),
        (["28-May-2021", "2021/05/28"], datetime.date(2021, 5, 28)),
        (["28.05.2021 10:30"], datetime.datetime(2021, 5, 28, 10, 30)),
        (["2021-05-28 10:30"], datetime.datetime(2021, 5, 28, 10, 30)),
    ],
)
def test_dates_of_another_layout_are_read_if_their_cells_prove_the_order(read, others, last):
    assert read(date_column(others)).table["d"].to_pylist()[-2] == last


def test_the_order_of_one_layout_is_not_concluded_from_another(read):
    text = date_column(["03/04/2021"] * 20)
    file = read(text)
    assert file.settings["d"] == {"kind": "text", "fill": False}
    (note,) = file.notes
    assert "dates such as '03/04/2021', in which the order of day and month is ambiguous" in note
    read_days = {
        order: read(text, date_order=[f"d={order}"]).table["d"].to_pylist() for order in ("dmy", "mdy")
    }
    assert [days[-2] for days in read_days.values()] == [datetime.date(2021, 4, 3), datetime.date(2021, 3, 4)]


def test_another_column_decides_the_order_of_one_layout_and_a_note_says_so(read):
    rows = "".join(f"{cell};28/05/2021\n" for cell in [*POINTS, "03/04/2021"])
    file = read("d;e\n" + rows)
    assert file.table["d"].to_pylist()[-1] == datetime.date(2021, 4, 3)
    assert any("1 cell like '03/04/2021' (day first, as in the other columns)" in note for note in file.notes)


def test_dates_with_the_day_and_with_the_month_first_stay_text(read):
    cells = ["28/05/2021"] * 10 + ["05/28/2021"] * 8 + ["03/04/2021"] * 4
    file = read("d;x\n" + "".join(f"{cell};1\n" for cell in cells))
    assert file.settings["d"] == {"kind": "text", "fill": False}
    assert "'28/05/2021' with the day first and '05/28/2021' with the month first" in file.notes[0]


def test_years_of_two_digits_are_near_the_years_of_four_digits_in_the_column(read):
    cells = [f"14.07.{1955 + k % 14}" for k in range(20)] + ["14.07.61", "14.07.68"]
    file = read("d;x\n" + "".join(f"{cell};1\n" for cell in cells))
    assert [day.year for day in file.table["d"].to_pylist()[-2:]] == [1961, 1968]
    assert "2 cells like '14.07.61' (day first, with years from 1961 to 1968)" in file.notes[1]


def test_cells_that_are_not_dates_keep_their_text_if_the_order_is_given(read):
    file = read("d,x\n05/06/2021,1\nsoon,2\n", date_order=["d=dmy"])
    assert file.table["d"].to_pylist() == [datetime.date(2021, 6, 5), None]
    assert file.kept["d"].to_pylist() == [False, True]


# ------------------------------------------------------------------------------------- dates of eight digits


def test_dates_of_eight_digits_are_read_and_filled_as_dates(read, tmp_path):
    file = read("d;x\n20240131;1\n20240229;2\n;3\n00000000;4\n20240301;5\n99991231;6\n" * 5)
    days = file.table["d"].to_pylist()
    assert days[:6] == [
        datetime.date(2024, 1, 31), datetime.date(2024, 2, 29), None, None, datetime.date(2024, 3, 1), None,
    ]  # fmt: skip
    assert "column 'd' contains dates like '20240131'" in file.notes
    assert any("5 cells contain '00000000', read as missing" in note for note in file.notes)
    filled = pa.array([datetime.date(2024, 2, 3) if day is None else day for day in days])
    write_tables([file.table.set_column(0, "d", filled)], str(tmp_path / "out.csv"), file)
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[1:7] == ["20240131;1", "20240229;2", "20240203;3", "20240203;4", "20240301;5", "99991231;6"]


@pytest.mark.parametrize(
    "cells",
    [
        ["20240131", "20240229", "20240230", "20240231"],  # there is no 30 February
        ["20240131", "20240229"],  # two numbers are no evidence
        ["20240131", "20241301", "20240229", "20240301"],
        ["12040131", "31240229", "45240301"],
    ],
)
def test_other_numbers_of_eight_digits_are_numbers(read, cells):
    file = read("d;x\n" + "".join(f"{cell};{k}\n" for k, cell in enumerate(cells * 5)))
    assert file.columns["d"].kind == "integer"


def test_the_schema_decides_whether_eight_digits_are_numbers(read):
    text = "d;x\n20240131;1\n20240229;2\n;3\n20240301;4\n"
    assert read(text, schema={"d": "count"}).columns["d"].kind == "integer"
    assert read(text, number_format={"d": "1234.56"}).columns["d"].kind == "integer"
    assert read(text.replace("20240301", "20240229"), date_order={"d": "ymd"}).columns["d"].kind == "date"


def test_times_of_fourteen_digits_are_not_imputed(read):
    file = read("t;x\n" + "".join(f"202401{1 + k:02d}{k:02d}3000;{k}\n" for k in range(20)) + ";3\n")
    assert file.settings == {"t": {"fill": False}}
    assert "contains dates that are stored as numbers, such as 20240101003000: not imputed" in file.notes[0]


@pytest.mark.parametrize("zone", ["", "Z", "+02:00", " +0200", " UTC", " GMT", " -05:30"])
def test_times_with_zones_are_read_and_filled_in_their_zone(read, tmp_path, zone):
    file = read("t;x\n" + "".join(f"2024-06-{k:02d} 10:15:00{zone};{k}\n" for k in range(1, 29)) + ";3\n")
    times = file.table["t"].combine_chunks()
    hours = {"+02:00": 8.25, " +0200": 8.25, " -05:30": 15.75}.get(zone, 10.25)
    assert times[0].as_py().replace(tzinfo=None) == datetime.datetime(2024, 6, 1) + datetime.timedelta(
        hours=hours
    )
    filled = file.table.set_column(0, "t", times.fill_null(times[2]))
    write_tables([filled], str(tmp_path / "out.csv"), file)
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[1:-1] == (tmp_path / "in.csv").read_text().splitlines()[1:-1]
    assert lines[-1] == f"2024-06-03 10:15:00{zone};3"


def test_times_of_several_zones_are_filled_in_that_of_greenwich(read, tmp_path):
    zones = [" +0100", " +0200"]
    file = read(
        "t;x\n" + "".join(f"2024-06-{k:02d} 10:15{zones[k % 2]};{k}\n" for k in range(1, 29)) + ";3\n"
    )
    times = file.table["t"].combine_chunks()
    write_tables([file.table.set_column(0, "t", times.fill_null(times[0]))], str(tmp_path / "out.csv"), file)
    assert (tmp_path / "out.csv").read_text().splitlines()[-1] == "2024-06-01 08:15+00:00;3"


def test_dates_that_a_workbook_stores_as_numbers_are_not_imputed(tmp_path):
    rows = [[None if i == 3 else 20240110 + i, i % 4] for i in range(12)]
    (tmp_path / "in.xlsx").write_bytes(pack({"data": sheet([["d", "x"], *rows])}))
    file = read_table(str(tmp_path / "in.xlsx"))
    pyarrow.parquet.write_table(file.table, tmp_path / "in.parquet")
    typed = read_table(str(tmp_path / "in.parquet"))
    assert (typed.settings, typed.notes) == (file.settings, file.notes)
    assert read_table(str(tmp_path / "in.parquet"), schema={"d": "count"}).notes == ()
    assert file.settings == {"d": {"fill": False}}
    assert "contains dates that are stored as numbers, such as 20240110: not imputed" in file.notes[0]
