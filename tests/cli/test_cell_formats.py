"""Numbers, dates and missing codes in text files: what decides, what options change, what stays."""

import datetime
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halfseen.cli.main import main
from halfseen.files.cells import format_cells
from halfseen.files.recognition import read_columns
from halfseen.files.rules import Rules
from halfseen.files.sentinels import find_number_codes
from halfseen.files.tables import TableError, read_table, write_tables


def parse(cells, delimiter=","):
    return read_columns(pa.table({"x": pa.array(cells, pa.large_string())}), Rules(), delimiter)["x"]


def values(cells, delimiter=","):
    return parse(cells, delimiter).typed.to_pylist()


@pytest.fixture
def read(tmp_path):
    def read(text, **options):
        (tmp_path / "in.csv").write_text(text, encoding="utf-8")
        return read_table(str(tmp_path / "in.csv"), **options)

    return read


# ------------------------------------------------------------------------------------------ numbers


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["1.577,37", "2,5"], [1577.37, 2.5]),
        (["1,577.37", "2.5"], [1577.37, 2.5]),
        (["1 577,37", "2,5"], [1577.37, 2.5]),
        (["1\u202f577,37", "2,5"], [1577.37, 2.5]),
        (["1'577.37", "2.5"], [1577.37, 2.5]),
        (["1\u2019577", "2"], [1577, 2]),
        (["1.577,37-", "2,50"], [-1577.37, 2.5]),
        (["$1,577", "-$5", "$7"], [1577, -5, 7]),
        (["$-5", "$7"], [-5, 7]),
        (["($5)", "$1,000"], [-5, 1000]),
        (["EUR 5", "EUR -7"], [5, -7]),
        (["5 €", "7 €"], [5, 7]),
        (["Fr. 5.50", "Fr. 7.25"], [5.5, 7.25]),
        (["$5M", "$3.2M"], [5.0, 3.2]),
        (["29,8 %", "5,0 %"], [29.8, 5.0]),
        (["72.9 kg", "80 kg"], [72.9, 80.0]),
        (["72.9kg", "80kg"], [72.9, 80.0]),
        (["3 bedrooms", "12 bedrooms"], [3, 12]),
        (["1,5e3", "2,25"], [1500.0, 2.25]),
        (["\u22125.5 m", "2.5 m"], [-5.5, 2.5]),
        ([",5", "2,25"], [0.5, 2.25]),
        (["9,007,199,254,740,993", "12"], [9007199254740993, 12]),
    ],
)
def test_numbers_with_units_and_signs_are_read(cells, numbers):
    assert values(cells) == numbers


@pytest.mark.parametrize(
    "cells",
    [
        ["5'11\"", "6'0\""],
        ["5 kg", "11 lb"],
        ["20s", "30s", "40s"],
        ["Q1", "Q2", "Q3"],
        ["5M", "3M"],
        ["1.2.3", "1.3.0"],
        ["030 123 456", "040 555 666"],
        ["192.168.1.1", "10.0.0.1"],
        ["18-25", "26-35", ">65"],
        ["<30", ">30", "<30"],
        ["NO", "<30", ">30"],
        ["12:30", "13:45"],
        ["($5", "$7)"],
        ["12,34,56", "1,2"],
        ["123,456,789,012,345,678,901,234", "1,000"],
        ["31/02/2021", "30/02/2021"],
    ],
)
def test_text_that_only_resembles_numbers_stays_text(cells):
    column = parse(cells)
    assert column.typed.to_pylist() == cells
    assert not column.settings


@pytest.mark.parametrize(
    ("text", "expected", "why"),
    [
        ("a;b\n1.577;2,5\n2.340;3,5\n", [1577, 2340], "other columns"),
        ("a;b\n1.577;2.5\n2.340;3.5\n", [1.577, 2.34], None),
        ("a;b\n1,577;2.5\n2,340;3.5\n", [1577, 2340], "other columns"),
        ("a;b\n1.577;x\n2.340;y\n", [1.577, 2.34], "the file is ambiguous"),
        ("a;b\n1,577;x\n2,340;y\n", [1.577, 2.34], "the file is ambiguous"),
        ("a;b;c\n1.577;2,5;1.5\n2.340;3,5;2.5\n", [1.577, 2.34], "the file is ambiguous"),
        ('a,b\n"1,577",x\n"2,340",y\n', [1577, 2340], "commas separate the cells"),
        ("a,b\n1.577,x\n2.340,y\n", [1.577, 2.34], None),
        ("a\tb\n$1,577\tx\n$2,340\ty\n", [1577, 2340], "amounts of money"),
        ("a;b\n1.577;2,5\n0.340;3,5\n", [1.577, 0.34], None),
        ("a;b\n1.577;2,5\n15770.5;3,5\n", [1.577, 15770.5], None),
    ],
)
def test_one_separator_before_three_digits_is_read_by_the_evidence_of_the_file(read, text, expected, why):
    file = read(text)
    assert file.table["a"].to_pylist() == expected
    doubts = [note for note in file.notes if "could also be" in note]
    assert bool(doubts) == (why is not None)
    assert why is None or why in doubts[0]


def test_columns_with_the_same_format_share_one_note(read):
    file = read("a;b;c\n1,5;2,5;3,5\n4,25;5,25;6,25\n")
    assert file.notes == ("columns 'a', 'b', 'c' contain numbers with decimal commas",)


def spell(number, decimals, decimal, group):
    return f"{abs(number):,.{decimals}f}".replace(",", "g").replace(".", decimal).replace("g", group)


def read_values(cells, delimiter):
    """Values of a column, its style, and the values by which imputed cells would be written."""
    column = parse(cells, delimiter)
    if column.placeholders is None:
        return column.typed, column.style
    return pc.coalesce(column.placeholders, column.typed), column.style  # such as -9 twice


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(-(10**9), 10**9).map(lambda cents: cents / 100), st.booleans()),
        min_size=2,
        max_size=6,
    ),
    decimal=st.sampled_from(".,"),
    group=st.sampled_from(["", "other", " ", "\u00a0", "'"]),
    before=st.sampled_from(["", "$", "CHF "]),
    after=st.sampled_from(["", " kg", "%", " €"]),
    mixed=st.booleans(),
)
def test_formatted_values_are_read_as_the_same_values(rows, decimal, group, before, after, mixed):
    group = ({".": ",", ",": "."}[decimal]) if group == "other" else group
    numbers = [number for number, _ in rows]
    spelt = [spell(number, 2, decimal, group if grouped or not mixed else "") for number, grouped in rows]
    cells = [
        f"{'-' if number < 0 else ''}{before}{text}{after}"
        for number, text in zip(numbers, spelt, strict=True)
    ]
    values, style = read_values(cells, ";")
    assert values.to_pylist() == pytest.approx(numbers)
    written = format_cells(values, style).to_pylist()
    assert read_values(written, ";")[0].to_pylist() == pytest.approx(numbers)
    if not mixed and 0 not in numbers:
        assert [new.lstrip("-") for new in written] == [old.lstrip("-") for old in cells]


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(1, 10**9), st.booleans()), min_size=2, max_size=8),
    group=st.sampled_from([",", " ", "\u00a0", "'"]),
    before=st.sampled_from(["", "$"]),
)
def test_whole_numbers_with_and_without_separators_are_read_as_the_same_values(rows, group, before):
    numbers = [number for number, _ in rows]
    cells = [before + spell(number, 0, ".", group if grouped else "") for number, grouped in rows]
    values, style = read_values(cells, ",")
    assert values.to_pylist() == numbers
    assert read_values(format_cells(values, style).to_pylist(), ",")[0].to_pylist() == numbers


THOUSANDS = [f"{1 + k % 9},{k * 37 % 1000:03d}" for k in range(1, 201)]


def mixed_column(kind):
    """200 numbers such as 7,954 and one without a separator; or the same with points, or as amounts."""
    cells = [*THOUSANDS, "15770"]
    if kind == "points":
        return [cell.replace(",", ".") for cell in cells]
    return ["$" + cell for cell in cells] if kind == "amounts" else cells


@pytest.mark.parametrize("kind", ["commas", "points", "amounts"])
@pytest.mark.parametrize("delimiter", [",", ";"])
def test_one_number_without_separators_does_not_turn_the_others_into_decimals(read, kind, delimiter):
    cells = mixed_column(kind)
    rows = [f'"{cell}"{delimiter}x' for cell in [*cells, ""]]
    file = read("\n".join([f"a{delimiter}b", *rows, ""]))
    assert file.table["a"].to_pylist()[:1] + file.table["a"].to_pylist()[-2:] == [2037, 15770, None]
    (note,) = [note for note in file.notes if "could also be" in note]
    assert f"200 cells like {cells[0]!r} are read as 2037" in note
    assert f"2.037; 1 cell without a mark, such as {cells[-1]!r}, is of the size of 2037, and 0" in note
    filled = format_cells(pa.array([1234, 12345]), file.styles["a"]).to_pylist()
    assert [cell.lstrip("$").replace(".", ",") for cell in filled] == ["1,234", "12,345"]


def test_the_option_of_the_note_changes_the_reading(read):
    text = "a,b\n" + "".join(f'"{cell}",x\n' for cell in mixed_column("commas"))
    (option,) = re.findall(
        r"--number-format (\S+)$", next(note for note in read(text).notes if "could" in note)
    )
    file = read(text, number_formats=[option])
    assert file.table["a"].to_pylist()[0] == 2.037
    assert not any("could also be" in note for note in file.notes)


def test_points_are_decimal_points_where_other_columns_prove_it_whatever_the_sizes(read):
    rows = "".join(f"{cell},{k}.5\n" for k, cell in enumerate(mixed_column("points")))
    file = read("a,b\n" + rows)
    assert file.table["a"].to_pylist()[0] == 2.037
    (note,) = file.notes
    assert (
        "200 cells like '2.037' are read as 2.037 (as in the other columns), which could also be 2037" in note
    )


def test_codes_for_missing_values_say_nothing_about_separators(read):
    cells = [cell.replace(",", ".") for cell in THOUSANDS]
    file = read("a,b\n" + "".join(f"{cell},x\n" for cell in [*cells, "-9999", "-9999"]))
    assert file.table["a"].to_pylist()[0] == 2.037
    assert not any("could also be" in note for note in file.notes)


def test_thousands_lose_where_they_would_be_far_from_all_other_cells(read):
    cells = [*(f"1.{k:03d}" for k in range(100, 200)), *["2"] * 10, *["3"] * 10]
    file = read("a;b\n" + "".join(f"{cell};2,5\n" for cell in cells))
    assert file.table["a"].to_pylist()[1] == 1.101
    (note,) = [note for note in file.notes if "could also be" in note]
    assert "20 cells without a mark, such as '2', are of the size of 1.1, and 0 of the size of 1100" in note


def test_a_reading_that_few_cells_prove_is_announced(read):
    file = read("a,b\n" + "".join(f'"{cell}",x\n' for cell in [*THOUSANDS, "2.5"]))
    assert file.table["a"].to_pylist()[0] == 2037
    (note,) = [note for note in file.notes if "could also be" in note]
    assert "are read as 2037 (as 1 cell such as '2.5' shows)" in note


def test_the_indian_grouping_is_read_and_written(read):
    file = read('a,b\n"12,34,567",x\n"1,23,456.5",x\n9999.25,x\n"7,50,000",x\n')
    assert file.table["a"].to_pylist() == [1234567.0, 123456.5, 9999.25, 750000.0]
    numbers = pa.array([123.0, 12345.0, 98765432.25])
    assert format_cells(numbers, file.styles["a"]).to_pylist() == ["123.0", "12,345.0", "9,87,65,432.2"]


# ------------------------------------------------------------------------------------------ exceptions

PRICES = [f"{number}.50" for number in range(1, 20)]


def test_a_column_with_a_few_exceptions_is_not_imputed_and_a_note_lists_them(read, tmp_path):
    text = 'p,s\n"1.50","a\nb"\n' + "\n".join(f"{price},x" for price in PRICES) + "\nabout 5,x\n,x\n"
    file = read(text)
    assert file.settings["p"] == {"kind": "text", "fill": False}
    assert any("'about 5' in line 23: left as text" in note for note in file.notes)
    write_tables([file.table], str(tmp_path / "out.csv"), file)
    assert (tmp_path / "out.csv").read_text().endswith("about 5,x\n,x\n")


def test_a_column_of_few_values_with_an_exception_is_categorical(read):
    file = read("d,x\n" + "".join(f"{row % 4},1\n" for row in range(60)) + "4+,1\n4+,1\n")
    assert file.table["d"].type == pa.string()
    assert not file.settings
    assert any("'4+' in line 62 and 1 more: kept as a categorical column" in note for note in file.notes)


@pytest.mark.parametrize(
    "options",
    [
        {"number_formats": ["p=1,234.56"]},
        {"overrides": {"p": {"number_format": "1234.56"}}},
        {"overrides": {"p": "positive"}},
        {"overrides": {"p": {"maximum": 50}}},
    ],
)
def test_an_option_reads_a_column_with_exceptions_as_numbers_and_keeps_their_text(read, tmp_path, options):
    file = read("p,x\n" + "".join(f"{price},1\n" for price in PRICES) + "about 5,2\n,3\n", **options)
    assert file.table["p"].to_pylist()[-3:] == [19.5, None, None]
    assert file.n_missing == 1
    filled = file.table.set_column(0, "p", pa.array([*map(float, PRICES), 7.25, 8.0]))
    write_tables([filled], str(tmp_path / "out.csv"), file)
    assert (tmp_path / "out.csv").read_text().endswith("about 5,2\n8.00,3\n")
    assert any("except for 'about 5' in line 21: kept as text" in note for note in file.notes)


def test_a_few_repeated_words_are_exceptions_even_in_more_than_a_tenth_of_the_cells(read):
    incomes = [f"{1000 + 137 * i}" for i in range(40)]
    file = read("income,x\n" + "".join(f"{cell},1\n" for cell in [*incomes, *["see the annex"] * 12]))
    (note,) = file.notes
    assert note.startswith(
        "column 'income' contains numbers except for 'see the annex' in line 42 and 11 more"
    )
    assert "left as text and not imputed; --number-format income=1234.56 reads the other values" in note
    few = read("size,x\n" + "".join(f"{cell},1\n" for cell in [*[36, 38, 40] * 10, *["unsure"] * 12]))
    assert few.notes == ()  # three numbers among words are levels


def test_a_column_with_exceptions_is_imputed_if_the_schema_fills_all_columns(read):
    text = "d,x\n05/06/2021,1\n06/03/2021,2\n"
    assert read(text, overrides={"*": {"fill": True}}).settings["d"] == {"kind": "text"}


def test_columns_with_levels_in_the_schema_stay_text(read):
    file = read(
        "p,q,x\n5 kg,1 m,1\n7 kg,2 m,2\n", overrides={"p": "categorical", "q": {"levels": ["1 m", "2 m"]}}
    )
    assert [str(dtype) for dtype in file.table.schema.types] == ["string", "string", "int64"]


# ------------------------------------------------------------------------------------------ options


def test_a_format_for_the_file_decides_where_cells_do_not(read):
    file = read("a;b\n1.577;1.5\n2.340;2.5\n", number_formats=["1.234,56"])
    assert file.table["a"].to_pylist() == [1577, 2340]
    assert file.table["b"].to_pylist() == [1.5, 2.5]
    assert not any("could also be" in note for note in file.notes)


def test_a_column_is_kept_as_text_on_request(read):
    file = read("a,b\n1,2\n2,3\n", number_formats=["a=text"])
    assert file.table["a"].to_pylist() == ["1", "2"]
    assert read("a,b\n1,2\n", overrides={"a": {"number_format": "text"}}).table["a"].to_pylist() == ["1"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"number_formats": ["q=1.234,56"]}, "no column 'q'; there are 'a', 'b'"),
        ({"number_formats": ["a=12"]}, "'12' is not understood; write the number 1234.56"),
        ({"number_formats": ["1.234.56"]}, "is not understood"),
        ({"number_formats": ["text"]}, "needs a column"),
        ({"date_orders": ["a=ydm"]}, "'ydm' is not understood; use dmy, mdy or ymd"),
        ({"date_orders": ["q=dmy"]}, "no column 'q'"),
        ({"overrides": {"a": {"number_format": "x"}}}, "schema of column 'a': .*not understood"),
    ],
)
def test_options_that_cannot_be_understood_are_refused(read, options, reason):
    with pytest.raises(TableError, match=reason):
        read("a,b\n1,2\n", **options)


# ------------------------------------------------------------------------------------------ dates


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
    assert read(text, date_orders=["mdy"]).table["d"].to_pylist()[0] == datetime.date(2021, 5, 6)
    assert read(text, date_orders=["d=dmy"]).table["d"].to_pylist()[0] == datetime.date(2021, 6, 5)
    said = {"d": {"date_order": "dmy"}}
    assert read(text, overrides=said).table["d"].to_pylist()[0] == datetime.date(2021, 6, 5)


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
        order: read(text, date_orders=[f"d={order}"]).table["d"].to_pylist() for order in ("dmy", "mdy")
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
    file = read("d,x\n05/06/2021,1\nsoon,2\n", date_orders=["d=dmy"])
    assert file.table["d"].to_pylist() == [datetime.date(2021, 6, 5), None]
    assert file.kept["d"].to_pylist() == [False, True]


# ------------------------------------------------------------------------------------------ limits


def test_limits_on_both_sides_are_replaced_by_numbers_beyond_them():
    column = parse(["<0.1", "0.5", "2", ">10", "3.5"])
    assert column.typed.to_pylist() == [0.05, 0.5, 2.0, 20.0, 3.5]
    assert format_cells(pa.array([0.02, 0.1, 5.0, 11.0]), column.style).to_pylist() == [
        "<0.1",
        "0.1",
        "5.0",
        ">10",
    ]


def test_at_least_three_means_more_than_two_in_whole_numbers():
    column = parse(["0", "1", "2", "≥3", "0", ">=3", "≥3"])
    assert column.typed.to_pylist() == [0, 1, 2, 4, 0, 4, 4]
    assert format_cells(pa.array([2, 3]), column.style).to_pylist() == ["2", "≥3"]


def test_limits_beside_text_and_huge_numbers_are_read_without_a_warning(read):
    file = read("x,y\n<5,1\n7,2\n9,3\n11,4\nfoo,5\n>9000000000000000000,6\n", number_formats=["x=1234"])
    assert file.table["x"].to_pylist()[:5] == [2, 7, 9, 11, None]
    assert file.table["x"].to_pylist()[5] > 9_000_000_000_000_000_000
    assert file.kept["x"].to_pylist() == [False, False, False, False, True, False]


def test_exact_values_beyond_a_limit_are_counted_in_the_note():
    column = parse(["<0.5", "<0.5", "0.3", "1.2", "2.2"])
    assert "like the 1 exact values below it" in column.notes[0]


def test_a_column_with_limits_is_text_in_a_parquet_file(read, tmp_path):
    file = read("x,y\n<0.05,1\n0.1,2\n0.2,3\n0.3,4\n,5\n")
    filled = file.table.set_column(0, "x", pa.array([0.025, 0.1, 0.2, 0.3, 0.01]))
    write_tables([filled], str(tmp_path / "out.parquet"), file)
    back = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert back["x"].to_pylist() == ["<0.05", "0.1", "0.2", "0.3", "<0.05"]
    assert back["y"].type == pa.int64()


def test_draws_below_a_limit_are_as_frequent_as_observations_below_it(tmp_path):
    generator = np.random.default_rng(0)
    latent = generator.normal(size=300)
    values, other = np.exp(latent), 0.6 * latent + 0.8 * generator.normal(size=300)
    cells = np.where(values < 0.5, "<0.5", [f"{value:.2f}" for value in values])
    cells = np.where(generator.random(300) < 0.4, "", cells)
    rows = "".join(f"{cell},{beside:.2f}\n" for cell, beside in zip(cells, other, strict=True))
    (tmp_path / "in.csv").write_text("x,y\n" + rows)
    assert (
        main(["impute", str(tmp_path / "in.csv"), "-o", str(tmp_path / "out.csv"), "--draws", "1", "-q"]) == 0
    )
    lines = (tmp_path / "out.csv").read_text().splitlines()[1:]
    drawn = [line.split(",")[1] for line, cell in zip(lines, cells, strict=True) if not cell]
    # 24% of 120 cells are below the limit; 0.16 is four standard errors, and what is estimated adds little
    assert np.mean(np.array(drawn) == "<0.5") == pytest.approx(np.mean(values < 0.5), abs=0.16)


# ------------------------------------------------------------------------------------------ codes


def test_words_in_a_column_of_numbers_or_dates_are_missing_and_replaced(read, tmp_path):
    file = read("x,d\n1.5,2021-05-28\nn.a.,unknown\n2.5,-\n")
    assert file.n_missing == 3
    filled = pa.table({"x": [1.5, 2.0, 2.5], "d": pa.array([18775, 18776, 18777], pa.date32())})
    write_tables([filled], str(tmp_path / "out.csv"), file)
    assert (tmp_path / "out.csv").read_text() == "x,d\n1.5,2021-05-28\n2.0,2021-05-29\n2.5,2021-05-30\n"


def test_words_that_are_the_greater_part_of_a_column_are_levels(read):
    assert read("x,y\nnone,1\nnone,2\n5,3\n").table["x"].to_pylist() == ["none", "none", "5"]


def test_without_default_nulls_words_are_no_missing_cells(read):
    file = read("x,y\n1.5,1\n-,2\n2.5,3\n", default_nulls=False)
    assert file.table["x"].to_pylist() == ["1.5", "-", "2.5"]


def test_a_null_text_may_belong_to_one_column(read):
    file = read("age,x\n34,999\n999,1\n999.0,2\n", nulls=["age=999"])
    assert file.table["age"].to_pylist() == [34.0, None, None]
    assert file.table["x"].to_pylist() == [999, 1, 2]


def test_a_null_text_with_an_equals_sign_and_no_such_column_is_a_plain_one(read):
    file = read("s,x\nk=v,1\nw,2\n", nulls=["k=v"])
    assert file.table["s"].to_pylist() == [None, "w"]
    assert "no column has a name before '='" in file.notes[0]


SPELLINGS = ["k.A."] * 78 + ["k.a."] * 2 + ["KEINE ANGABE"] * 3


def test_spellings_of_a_code_are_counted_together_and_the_options_of_the_note_remove_all(read):
    cells = [["Koch", "Maler", "Lehrer"][k % 3] for k in range(120)]
    text = "job;x\n" + "".join(f"{cell};{k}\n" for k, cell in enumerate([*cells, *SPELLINGS]))
    (note,) = read(text).notes
    assert "80 cells contain 'k.A.' (78) or 'k.a.' (2), 3 contain 'KEINE ANGABE'; if this means" in note
    options = re.findall(r"--null '?(job=[^']+?)'?(?= --null|$)", note)
    assert options == ["job=k.A.", "job=KEINE ANGABE"]
    file = read(text, nulls=options)
    assert file.table["job"].to_pylist() == [*cells, *[None] * 83]
    assert file.notes == ("column 'job': 2 cells contain 'k.a.', missing by --null, which ignores case",)


def test_spellings_of_a_code_among_numbers_are_counted_together(read):
    text = "x;y\n" + "".join(f"{cell};1\n" for cell in [*[f"{k}.5" for k in range(100)], *SPELLINGS])
    file = read(text)
    assert file.table["x"].null_count == 83
    assert file.notes == (
        "column 'x': 80 cells contain 'k.A.' (78) or 'k.a.' (2), 3 contain 'KEINE ANGABE', read as missing",
    )


@pytest.mark.parametrize(
    "options", [{"nulls": ["weiß nicht"]}, {"overrides": {"s": {"null": ["Weiss Nicht"]}}}]
)
def test_declared_codes_are_compared_without_regard_to_case(read, tmp_path, options):
    cells = ["a", "weiß nicht", "WEISS NICHT", "Weiß Nicht", "b"]
    assert read("s,x\n" + "".join(f"{cell},1\n" for cell in cells), **options).table["s"].to_pylist() == [
        "a", None, None, None, "b",
    ]  # fmt: skip
    pyarrow.parquet.write_table(pa.table({"s": cells}), tmp_path / "a.parquet")
    file = read_table(str(tmp_path / "a.parquet"), **options)
    assert file.table["s"].to_pylist() == ["a", None, None, None, "b"]


def test_a_declared_code_is_missing_beside_words_that_are_levels(read):
    cells = ["1 kg", "2 kg", "unknown", "unknown", "tiny", "small", "-"]
    file = read("s,x\n" + "".join(f"{cell},1\n" for cell in cells), nulls=["s=UNKNOWN"])
    assert file.table["s"].to_pylist() == ["1 kg", "2 kg", None, None, "tiny", "small", "-"]


@pytest.mark.parametrize("code", ["1900-01-01", "9999-12-31"])
@pytest.mark.parametrize("form", ["%Y-%m-%d", "%d.%m.%Y", "%d.%m.%Y 00:00"])
def test_the_option_of_a_note_on_dates_removes_them(read, tmp_path, code, form):
    days = [datetime.date(2021, 1, 1 + k % 28) for k in range(60)]
    codes = [datetime.date.fromisoformat(code)] * 3
    text = "d;x\n" + "".join(f"{day.strftime(form)};1\n" for day in [*days, *codes])
    notes = " ".join(read(text).notes)
    (option,) = re.findall(r"--null '?(d=[^;']+?)'?(?= makes|$)", notes)
    assert read(text, nulls=[option]).table["d"].null_count == 3
    stamps = pa.table({"d": pa.array([*days, *codes]).cast(pa.timestamp("us"))})
    pyarrow.parquet.write_table(stamps, tmp_path / "a.parquet")
    assert read_table(str(tmp_path / "a.parquet"), nulls=[f"d={code}"]).table["d"].null_count == 3


def test_the_longest_name_before_an_equals_sign_counts(read):
    file = read("a,a=b\nb=1,1\n2,2\n", nulls=["a=b=1"])
    assert file.table["a=b"].to_pylist() == [None, 2]
    assert file.table["a"].to_pylist() == ["b=1", "2"]


def test_codes_of_a_parquet_file_become_missing(tmp_path):
    table = pa.table({"age": [34, 999, 51], "x": [999.0, 1.5, None], "s": ["a", "999", "b"]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    one = read_table(str(tmp_path / "a.parquet"), nulls=["age=999"]).table
    assert one.to_pydict() == {"age": [34, None, 51], "x": [999.0, 1.5, None], "s": ["a", "999", "b"]}
    all_columns = read_table(str(tmp_path / "a.parquet"), nulls=["999"]).table
    assert all_columns.to_pydict() == {"age": [34, None, 51], "x": [None, 1.5, None], "s": ["a", None, "b"]}


@pytest.mark.parametrize(
    ("numbers", "codes"),
    [
        ([*range(18, 98), 999, 999], ["999"]),
        ([1, 2, 3, 4, 5, 9, 9], ["9"]),
        ([1, 2, 3, 4, 5, 97, 98, 99, 99], ["97", "98", "99"]),
        ([0.5, 12.25, 3.75, -9, -9], ["-9"]),
        ([0, 5, 80, -99, -99, 9999, 9999], ["-99", "9999"]),
        ([*range(18, 98), 99, 99], []),
        ([*range(1, 9), 9, 9], []),
        ([-20, -9, -9, 5, 7], []),
        ([1, 2, 3, 4, 5, 9], []),
        ([9, 9, 9], []),
        ([1, 2, 3], []),
    ],
)
def test_numbers_of_nines_that_stand_apart_and_are_repeated_are_suspected(numbers, codes):
    found = find_number_codes(pa.array(np.array(numbers)))
    assert [f"{value:g}" for value in (found.counts if found is not None else ())] == codes


@pytest.mark.parametrize(
    ("numbers", "certain"),
    [
        ([*range(18, 98), 999, 999], True),
        ([1, 2, 3, 4, 5, 98, 98], True),
        ([0.5, 12.25, 3.75, -9, -9], True),
        ([0, 1, 2, 3, 4, 5, 6, 9, 9], False),  # a count may be 9
        ([1, 2, 3, 999, 999, 999], False),  # as many as the others: perhaps the column is about them
        ([*range(30), *[-999] * 40], True),
        ([0, 1, 1, -9999, -9999, -9999, -9999], True),
        ([0.5, 1.25, 3.75, *[-999.25] * 4], True),
        ([0.5, 12.25, 3.75, -999], True),  # once, but no other value is negative
        ([0, 5, 80, -9999], True),
        ([5, 80, 7, -99], None),
        ([-20, 5, 7, -999], None),
        ([10, 20, 30, 999], None),
        ([*range(-20, 40), *[-999] * 80], True),  # temperatures
        ([*range(28), *[999] * 600], True),  # days since the last contact, mostly never
        ([*range(18, 98), *[997, 998], *[9999] * 90], True),
        ([*range(12), *[2147483647] * 30], True),
        ([*range(30), *[-99] * 40], False),  # two digits only
        ([*range(30), *[888] * 40], False),
        ([*range(199, 900, 50), *[999] * 30], None),  # prices: not far from the others
        ([*range(400, 520, 10), *[999] * 30], False),  # nor far enough to be no frequent price
        ([-5000, *range(0, 100, 5), *[-9999] * 30], False),  # other values are negative too, and far
        ([*[0] * 500, *range(1, 40)], None),  # zero inflation
        ([*[1000] * 500, *range(1, 40)], None),  # a frequent value that is no code
    ],
)
def test_codes_are_certain_if_they_are_far_from_the_others_and_rare_or_unmistakable(numbers, certain):
    found = find_number_codes(pa.array(np.array(numbers)))
    assert (None if found is None else found.certain) == certain


def test_suspected_codes_are_named_but_never_changed(read, tmp_path):
    text = "age,job\n" + "".join(f"{age},clerk\n" for age in range(20, 60)) + "999,unknown\n999,clerk\n"
    file = read(text)
    assert file.n_missing == 0
    assert "2 cells contain 999, far from the other values (20 to 59)" in file.notes[0]
    assert "1 cell contains 'unknown'" in file.notes[1]
    table = pa.table({"age": [20, 21, 999, 999]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert "2 cells contain 999" in read_table(str(tmp_path / "a.parquet")).notes[0]


# ------------------------------------------------------------------------------------------ commands


def test_every_command_reads_formats_alike(run, tmp_path):
    rows = "".join(f"{row % 7},{row % 5};{row % 3};x{row % 2}\n" for row in range(40))
    (tmp_path / "in.csv").write_text("a;b;c\n;1;x1\n" + rows + "about 1;1;x1\n")
    options = ["--number-format", "a=1234,56", "--null", "b=2"]
    code, _, err = run("impute", "in.csv", "-o", "out.csv", *options)
    assert code == 0
    assert "decimal commas" in err
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[-1] == "about 1;1;x1"
    assert re.fullmatch(r"\d,\d;1;x1", lines[1])
    assert not any(line.split(";")[1] == "2" for line in lines)
    code, out, _ = run("describe", "in.csv", "--json", *options)
    assert code == 0
    assert {column["name"]: column["n_missing"] for column in json.loads(out)["columns"]} == {
        "a": 1,  # "about 1" is not missing
        "b": 13,
        "c": 0,
    }
    code, _, err = run("ampute", "in.csv", "-o", "holes.csv", "--columns", "a", *options)
    assert code == 0
    assert (tmp_path / "holes.csv").read_text().splitlines()[-1] == "about 1;1;x1"
    code, _, err = run("compare", "in.csv", "--methods", "mean", "--repeats", "1", *options)
    assert (code, "decimal commas" in err) == (0, True)


def test_a_schema_file_determines_how_cells_are_read(run, tmp_path):
    (tmp_path / "in.csv").write_text("a;b\n1.577;1\n;2\n2.340;3\n")
    schema = {"columns": {"a": {"number_format": "1.234,56"}, "b": {"null": ["3"]}}}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    code, _, err = run("impute", "in.csv", "-o", "out.csv", "--schema", "schema.json")
    assert code == 0, err


def test_a_format_that_is_not_understood_is_one_line_and_exit_code_two(run, tmp_path):
    (tmp_path / "in.csv").write_text("a,b\n1,2\n,3\n")
    code, _, err = run("impute", "in.csv", "-o", "out.csv", "--number-format", "a=klingon")
    assert code == 2
    assert err.startswith("halfseen: error: --number-format 'klingon' is not understood")
