"""Texts, numbers and dates that mean missing: which are found, and which the user declares."""

import datetime
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from halfseen.files.missing_codes import find_number_codes
from halfseen.files.tables import read_table
from halfseen.files.writing import write_tables


def test_words_in_a_column_of_numbers_or_dates_are_missing_and_replaced(read, tmp_path):
    file = read("x,d\n1.5,2021-05-28\nn.a.,unknown\n2.5,-\n")
    assert file.n_missing == 3
    filled = pa.table({"x": [1.5, 2.0, 2.5], "d": pa.array([18775, 18776, 18777], pa.date32())})
    write_tables([filled], str(tmp_path / "out.csv"), file)
    assert (tmp_path / "out.csv").read_text() == "x,d\n1.5,2021-05-28\n2.0,2021-05-29\n2.5,2021-05-30\n"


@pytest.mark.parametrize("word", ["N/D", "Saknas", "não informado", "brak danych", "Non disponible"])
def test_words_of_several_languages_mean_missing_in_a_column_of_numbers(read, word):
    file = read(f"x,y\n1.5,1\n{word},2\n2.5,3\n")
    assert file.table["x"].to_pylist() == [1.5, None, 2.5]
    assert any(word in note for note in file.notes)


def test_words_that_are_the_greater_part_of_a_column_are_levels(read):
    assert read("x,y\nnone,1\nnone,2\n5,3\n").table["x"].to_pylist() == ["none", "none", "5"]


def test_without_default_nulls_words_are_no_missing_cells(read):
    file = read("x,y\n1.5,1\n-,2\n2.5,3\n", default_nulls=False)
    assert file.table["x"].to_pylist() == ["1.5", "-", "2.5"]


def test_a_null_text_may_belong_to_one_column(read):
    file = read("age,x\n34,999\n999,1\n999.0,2\n", null=["age=999"])
    assert file.table["age"].to_pylist() == [34.0, None, None]
    assert file.table["x"].to_pylist() == [999, 1, 2]


def test_a_null_text_with_an_equals_sign_and_no_such_column_is_a_plain_one(read):
    file = read("s,x\nk=v,1\nw,2\n", null=["k=v"])
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
    file = read(text, null=options)
    assert file.table["job"].to_pylist() == [*cells, *[None] * 83]
    assert file.notes == ("column 'job': 2 cells contain 'k.a.', missing by --null, which ignores case",)


def test_spellings_of_a_code_among_numbers_are_counted_together(read):
    text = "x;y\n" + "".join(f"{cell};1\n" for cell in [*[f"{k}.5" for k in range(100)], *SPELLINGS])
    file = read(text)
    assert file.table["x"].null_count == 83
    assert file.notes == (
        "column 'x': 80 cells contain 'k.A.' (78) or 'k.a.' (2), 3 contain 'KEINE ANGABE', read as missing",
    )


@pytest.mark.parametrize("options", [{"null": ["weiß nicht"]}, {"schema": {"s": {"null": ["Weiss Nicht"]}}}])
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
    file = read("s,x\n" + "".join(f"{cell},1\n" for cell in cells), null=["s=UNKNOWN"])
    assert file.table["s"].to_pylist() == ["1 kg", "2 kg", None, None, "tiny", "small", "-"]


@pytest.mark.parametrize("code", ["1900-01-01", "9999-12-31"])
@pytest.mark.parametrize("form", ["%Y-%m-%d", "%d.%m.%Y", "%d.%m.%Y 00:00"])
def test_the_option_of_a_note_on_dates_removes_them(read, tmp_path, code, form):
    days = [datetime.date(2021, 1, 1 + k % 28) for k in range(60)]
    codes = [datetime.date.fromisoformat(code)] * 3
    text = "d;x\n" + "".join(f"{day.strftime(form)};1\n" for day in [*days, *codes])
    notes = " ".join(read(text).notes)
    (option,) = re.findall(r"--null '?(d=[^;']+?)'?(?= makes|$)", notes)
    assert read(text, null=[option]).table["d"].null_count == 3
    stamps = pa.table({"d": pa.array([*days, *codes]).cast(pa.timestamp("us"))})
    pyarrow.parquet.write_table(stamps, tmp_path / "a.parquet")
    assert read_table(str(tmp_path / "a.parquet"), null=[f"d={code}"]).table["d"].null_count == 3


def test_the_longest_name_before_an_equals_sign_counts(read):
    file = read("a,a=b\nb=1,1\n2,2\n", null=["a=b=1"])
    assert file.table["a=b"].to_pylist() == [None, 2]
    assert file.table["a"].to_pylist() == ["b=1", "2"]


def test_codes_of_a_parquet_file_become_missing(tmp_path):
    table = pa.table({"age": [34, 999, 51], "x": [999.0, 1.5, None], "s": ["a", "999", "b"]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    one = read_table(str(tmp_path / "a.parquet"), null=["age=999"]).table
    assert one.to_pydict() == {"age": [34, None, 51], "x": [999.0, 1.5, None], "s": ["a", "999", "b"]}
    all_columns = read_table(str(tmp_path / "a.parquet"), null=["999"]).table
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
