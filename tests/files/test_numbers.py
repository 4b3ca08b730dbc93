"""Numbers in text files: what decides how they are read, exceptions, options and detection limits."""

import re

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halfseen.files.formats import format_cells
from halfseen.files.recognition import read_columns
from halfseen.files.rules import Rules
from halfseen.files.tables import TableError
from halfseen.files.writing import write_tables


def parse(cells, delimiter=","):
    return read_columns(pa.table({"x": pa.array(cells, pa.large_string())}), Rules(), delimiter)["x"]


def values(cells, delimiter=","):
    return parse(cells, delimiter).typed.to_pylist()


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
    file = read(text, number_format=[option])
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
        {"number_format": ["p=1,234.56"]},
        {"schema": {"p": {"number_format": "1234.56"}}},
        {"schema": {"p": "positive"}},
        {"schema": {"p": {"maximum": 50}}},
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
    assert "if this means missing, use --null 'income=see the annex'; --number-format income=1234.56" in note
    few = read("size,x\n" + "".join(f"{cell},1\n" for cell in [*[36, 38, 40] * 10, *["unsure"] * 12]))
    assert few.notes == ()  # three numbers among words are levels


def test_limits_beyond_which_all_exact_numbers_lie_are_kept_as_text(read, tmp_path):
    cells = ["0.12", "<0.5", "0.2", "", "0.31", "<0.5", "0.4"]
    file = read("v,x\n" + "".join(f"{cell},1\n" for cell in cells))
    assert file.table["v"].to_pylist() == [0.12, None, 0.2, None, 0.31, None, 0.4]
    assert not file.settings
    assert file.n_missing == 1
    (note,) = file.notes
    assert note.startswith("column 'v': no exact number is within the limits of cells such as '<0.5'")
    filled = file.table.set_column(0, "v", pa.array([0.12, 0.3, 0.2, 0.25, 0.31, 0.3, 0.4]))
    write_tables([filled], str(tmp_path / "out.csv"), file)
    assert (tmp_path / "out.csv").read_text().split()[2:5] == ["<0.5,1", "0.2,1", "0.25,1"]


def test_a_word_beside_numbers_with_a_unit_is_named_with_the_option_that_makes_it_missing(read):
    weights = [f"{50 + 1.5 * i:.1f} kg" for i in range(40)]
    file = read("w,x\n" + "".join(f"{cell},1\n" for cell in [*weights, *["bortfall"] * 6]))
    (note,) = file.notes
    assert "contains numbers except for 'bortfall' in line 42 and 5 more" in note
    assert "if this means missing, use --null w=bortfall; --number-format" in note
    read_again = read(
        "w,x\n" + "".join(f"{cell},1\n" for cell in [*weights, "bortfall"]), null=["w=bortfall"]
    )
    assert read_again.n_missing == 1


def test_a_column_with_exceptions_is_imputed_if_the_schema_fills_all_columns(read):
    text = "d,x\n05/06/2021,1\n06/03/2021,2\n"
    assert read(text, schema={"*": {"fill": True}}).settings["d"] == {"kind": "text"}


def test_columns_with_levels_in_the_schema_stay_text(read):
    file = read(
        "p,q,x\n5 kg,1 m,1\n7 kg,2 m,2\n", schema={"p": "categorical", "q": {"levels": ["1 m", "2 m"]}}
    )
    assert [str(dtype) for dtype in file.table.schema.types] == ["string", "string", "int64"]


# ------------------------------------------------------------------------------------------ options


def test_a_format_for_the_file_decides_where_cells_do_not(read):
    file = read("a;b\n1.577;1.5\n2.340;2.5\n", number_format=["1.234,56"])
    assert file.table["a"].to_pylist() == [1577, 2340]
    assert file.table["b"].to_pylist() == [1.5, 2.5]
    assert not any("could also be" in note for note in file.notes)


def test_a_column_is_kept_as_text_on_request(read):
    file = read("a,b\n1,2\n2,3\n", number_format=["a=text"])
    assert file.table["a"].to_pylist() == ["1", "2"]
    assert read("a,b\n1,2\n", schema={"a": {"number_format": "text"}}).table["a"].to_pylist() == ["1"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"number_format": ["q=1.234,56"]}, "no column 'q'; there are 'a', 'b'"),
        ({"number_format": ["a=12"]}, "'12' is not understood; write the number 1234.56"),
        ({"number_format": ["1.234.56"]}, "is not understood"),
        ({"number_format": ["text"]}, "needs a column"),
        ({"date_order": ["a=ydm"]}, "'ydm' is not understood; use dmy, mdy or ymd"),
        ({"date_order": ["q=dmy"]}, "no column 'q'"),
        ({"schema": {"a": {"number_format": "x"}}}, "schema of column 'a': .*not understood"),
    ],
)
def test_options_that_cannot_be_understood_are_refused(read, options, reason):
    with pytest.raises(TableError, match=reason):
        read("a,b\n1,2\n", **options)


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
    file = read("x,y\n<5,1\n7,2\n9,3\n11,4\nfoo,5\n>9000000000000000000,6\n", number_format=["x=1234"])
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
