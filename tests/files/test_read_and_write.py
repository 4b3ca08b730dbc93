"""`halfseen.read_table` and `halfseen.write_table`: what users of Python get, and what is written again."""

import csv
import datetime
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from corpus.expected_workbooks import WORKBOOKS

import halfseen
from halfseen import read_table, write_table

CORPUS = Path(__file__).parent.parent / "corpus"
TEXTS = sorted(path for path in CORPUS.rglob("*") if path.suffix in (".csv", ".tsv"))
LINES = sorted(CORPUS.rglob("*.jsonl"))
BACKENDS = ["pandas", "polars", "pyarrow"]
PRICES = "id;price;day;note\n007;1.577,30;28.05.2021;a\n008;;31.05.2021;\n009;2.340,00;;b\n"


@pytest.fixture
def read(tmp_path):
    def read(text, name="in.csv", **options):
        (tmp_path / name).write_bytes(text.encode())
        return read_table(tmp_path / name, **options)

    return read


@pytest.fixture
def write(tmp_path):
    def write(frame, name="out.csv", **options):
        write_table(frame, tmp_path / name, **options)
        return (tmp_path / name).read_bytes().decode()

    return write


# ------------------------------------------------------------------------------------------ round trips


def without_quotes(content, like):
    """The content of a csv with quotes only where they are needed: the writer does not keep others."""
    out = io.StringIO()
    text = content.decode(like.dialect.encoding)
    delimiter, newline = like.dialect.delimiter, like.dialect.newline
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    csv.writer(out, delimiter=delimiter, lineterminator=newline).writerows(rows)
    return out.getvalue()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("path", TEXTS, ids=[path.name for path in TEXTS])
def test_a_text_file_is_written_as_it_was_if_nothing_changed(path, backend, tmp_path):
    file = read_table(path, backend=backend)
    out = tmp_path / path.name
    write_table(file.frame, out, like=file)
    before, after = path.read_bytes(), out.read_bytes()
    if before != after:
        assert b'"' in before
        assert without_quotes(before, file) == without_quotes(after, file)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("path", LINES, ids=[path.name for path in LINES])
def test_json_lines_keep_their_values_as_they_are_written(path, backend, tmp_path):
    file = read_table(path, backend=backend)
    write_table(file.frame, tmp_path / "out.jsonl", like=file)
    again = read_table(tmp_path / "out.jsonl")
    assert again.literals.column_names == file.literals.column_names
    for name in file.literals.column_names:
        assert again.literals[name].to_pylist() == file.literals[name].to_pylist()
    write_table(again.frame, tmp_path / "again.jsonl", like=again)
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", WORKBOOKS)
def test_a_workbook_is_copied_if_nothing_changed(name, backend, tmp_path):
    (tmp_path / "in.xlsx").write_bytes(WORKBOOKS[name].make())
    file = read_table(tmp_path / "in.xlsx", backend=backend, sheet=WORKBOOKS[name].title)
    write_table(file.frame, tmp_path / "out.xlsx", like=file)
    for sheet in openpyxl.load_workbook(tmp_path / "in.xlsx"):
        other = openpyxl.load_workbook(tmp_path / "out.xlsx")[sheet.title]
        cells, others = (
            [(cell.coordinate, cell.value, cell.style_id) for row in one.iter_rows() for cell in row]
            for one in (sheet, other)
        )
        assert cells == others


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("suffix", ["parquet", "feather"])
def test_a_typed_file_keeps_values_and_types(suffix, backend, tmp_path):
    table = pa.table(
        {
            "whole": pa.array([2**53 + 1, None, 3]),
            "small": pa.array([1, 2, None], pa.int8()),
            "day": pa.array([datetime.date(2020, 2, 29), None, datetime.date(1890, 1, 1)]),
            "flag": pa.array([True, None, False]),
            "word": pa.array(["a", None, "\u00e9"]),
            "part": pa.array([0.1, float("inf"), None]),
            "level": pa.array(["x", None, "y"]).dictionary_encode(),
        }
    )
    store = pa.parquet.write_table if suffix == "parquet" else pa.feather.write_feather
    store(table, tmp_path / f"in.{suffix}")
    file = read_table(tmp_path / f"in.{suffix}", backend=backend)
    write_table(file.frame, tmp_path / f"out.{suffix}", like=file)
    load = pa.parquet.read_table if suffix == "parquet" else pa.feather.read_table
    again = load(tmp_path / f"out.{suffix}")
    assert again.to_pylist() == table.to_pylist()
    assert [str(dtype) for dtype in again.schema.types] == [str(dtype) for dtype in table.schema.types]


# ------------------------------------------------------------------------------------------ reading


@pytest.mark.parametrize(
    ("backend", "kind"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame), ("pyarrow", pa.Table)]
)
def test_the_frame_is_of_the_library_that_was_asked_for(read, backend, kind):
    file = read(PRICES, backend=backend)
    assert isinstance(file.frame, kind)
    assert file.frame is file.frame
    assert file.frame["price"][0] in (1577.3, pa.scalar(1577.3))


def test_the_frame_is_of_pandas_by_default(read):
    frame = read("a,b,c\n9007199254740993,true,x\n,,\n1,false,y\n").frame
    assert frame.dtypes.astype(str).to_list() == ["Int64", "boolean", "str"]
    assert frame["a"][0] == 2**53 + 1
    assert frame.isna().sum().to_list() == [1, 1, 1]


def test_the_frame_is_of_pyarrow_without_pandas(read, monkeypatch):
    monkeypatch.setattr(
        "halfseen.files.table_file.find_spec", lambda name: None if name == "pandas" else name
    )
    assert isinstance(read(PRICES).frame, pa.Table)
    with pytest.raises(ValueError, match="'pandas' is not installed"):
        read(PRICES, backend="pandas")


def test_an_unknown_library_is_refused(read):
    with pytest.raises(ValueError, match="unknown backend 'numpy'"):
        read(PRICES, backend="numpy")


def test_columns_list_what_was_recognised(read):
    file = read("age;kg\n34;72,9 kg\nNA;68,1 kg\n999;k.A.\nNA;\n41;70,4 kg\n35;75,0 kg\n999;71,2 kg\n")
    age, weight = file.columns["age"], file.columns["kg"]
    assert (age.kind, age.example, age.n_missing) == ("integer", "34", 2)
    assert (age.missing_codes, age.kept) == ({"NA": 2}, {"999": 2})
    assert (weight.kind, weight.example, weight.n_missing) == ("float", "72,9 kg", 2)
    assert weight.missing_codes == {"k.A.": 1}
    assert (weight.style.number.decimal, weight.style.number.after) == (",", " kg")
    assert any("the unit kg" in note for note in file.notes)
    assert repr(file).endswith("(csv): 7 rows, 2 columns>")


def test_columns_of_a_typed_file_list_placeholders(tmp_path):
    pa.parquet.write_table(pa.table({"x": [1.5, 2.5, 3.0, 4.0, None, -999.0]}), tmp_path / "a.parquet")
    column = read_table(tmp_path / "a.parquet").columns["x"]
    assert (column.kind, column.example, column.style, column.n_missing) == ("float", "1.5", None, 1)
    assert column.kept == {"-999": 1}


@pytest.mark.parametrize("null", [{"age": 999}, {"age": ["999"]}, "age=999", ["age=999"]])
def test_codes_of_one_column_are_given_by_a_mapping_or_a_text(read, null):
    frame = read("age,pay\n34,999\n999,1\n", null=null).frame
    assert frame["age"].isna().to_list() == [False, True]
    assert frame["pay"].isna().sum() == 0


def test_codes_of_all_columns_may_be_numbers(read):
    assert read("age,pay\n34,-99.5\n-99.5,1\n", null=-99.5).frame.isna().sum().to_list() == [1, 1]


def test_formats_are_given_by_a_mapping_or_a_text(read):
    text = "a;d\n1.577;05/06/2021\n2.340;07/08/2021\n"
    for options in (
        {"number_format": "1.234,56", "date_order": "mdy"},
        {"number_format": {"a": "1.234,56"}, "date_order": {"d": "mdy"}},
    ):
        frame = read(text, **options).frame
        assert frame["a"].to_list() == [1577, 2340]
        assert frame["d"][0] == pd.Timestamp(2021, 5, 6)
    assert read(text, number_format={"a": "text"}).frame["a"].to_list() == ["1.577", "2.340"]


@pytest.mark.parametrize("option", ["null", "number_format", "date_order"])
def test_a_mapping_with_an_unknown_column_is_refused(read, option):
    with pytest.raises(ValueError, match="no column 'x'; there are 'id', 'price'"):
        read(PRICES, **{option: {"x": "dmy"}})


def test_settings_serve_as_the_schema_of_an_imputer(read):
    rows = [f"{'<0.05' if row % 7 == 0 else 0.05 + row / 50:},{row}" for row in range(40)]
    file = read("lead,x\n" + "\n".join([*rows, ",3"]) + "\n")
    imputer = halfseen.GaussianImputer(schema=file.settings).fit(file.frame)
    assert next(iter(imputer.schema_)).censored_below == 0.05


def test_a_file_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"nothing\.csv: no such file"):
        read_table(tmp_path / "nothing.csv")


def test_equal_names_are_refused(read):
    with pytest.raises(ValueError, match="columns 1 and 3 are both called 'a'"):
        read("a,b,a\n1,2,3\n")


def test_a_file_without_rows_is_refused(read):
    with pytest.raises(ValueError, match="a header but no rows"):
        read("a,b\n")


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_row_and_a_column_without_values_are_read_and_written(read, write, backend):
    text = "\u540d\u524d,empty\nZo\u00eb \U0001f600,\n"
    file = read(text, backend=backend)
    assert file.columns["empty"].n_missing == 1
    assert file.columns["empty"].example is None
    assert list(file.columns) == ["\u540d\u524d", "empty"]
    assert write(file.frame, like=file) == text


def test_the_reader_imports_neither_torch_nor_scikit_learn():
    code = "import sys; from halfseen.files import read_table, write_table; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "pyarrow" in modules.split()
    assert not {"torch", "sklearn", "pandas", "polars", "scipy"} & set(modules.split())


# ------------------------------------------------------------------------------------------ writing


@pytest.mark.parametrize("backend", BACKENDS)
def test_filled_cells_are_written_in_the_format_of_their_column(read, write, backend):
    file = read(PRICES, backend="pandas")
    frame = file.frame.copy()
    frame["price"] = frame["price"].fillna(1234567.891)
    frame["day"] = frame["day"].fillna(pd.Timestamp(2021, 6, 1))
    frame["note"] = frame["note"].fillna("c")
    frame = {"pandas": frame, "polars": pl.from_pandas(frame), "pyarrow": pa.Table.from_pandas(frame)}[
        backend
    ]
    expected = PRICES.replace("008;;", "008;1.234.567,89;").replace("2021;\n", "2021;c\n")
    assert write(frame, like=file) == expected.replace("00;;b", "00;01.06.2021;b")


def test_changed_cells_are_written_in_the_format_of_their_column_and_others_keep_their_text(read, write):
    file = read("id;price\n007;1.577,3\n008; 12,50\n009;2.340,00\n")
    frame = file.frame.copy()
    frame.loc[0, "price"] = 3000.0
    frame.loc[2, "id"] = "010"
    assert write(frame, like=file) == "id;price\n007;3.000,00\n008; 12,50\n010;2.340,00\n"


def test_erased_cells_become_empty(read, write, tmp_path):
    file = read(PRICES)
    frame = file.frame.copy()
    frame.loc[0, ["price", "note"]] = None
    assert write(frame, like=file) == PRICES.replace("1.577,30", "").replace("2021;a", "2021;")
    lines = read('{"a": 1, "b": "x"}\n{"a": 2, "b": null}\n', "in.jsonl")
    frame = lines.frame.copy()
    frame.loc[0, "b"], frame.loc[1, "b"] = None, "y"
    assert write(frame, "out.jsonl", like=lines) == '{"a": 1, "b": null}\n{"a": 2, "b": "y"}\n'


def test_changed_and_erased_cells_of_a_workbook_keep_their_styles(tmp_path):
    book = openpyxl.Workbook()
    for row in (["name", "x"], ["a", 1.5], ["b", 2.5], ["c", 3.5]):
        book.active.append(row)
    for row in (2, 3, 4):
        book.active.cell(row, 2).number_format = "0.00"
    book.save(tmp_path / "in.xlsx")
    file = read_table(tmp_path / "in.xlsx")
    frame = file.frame.copy()
    frame.loc[0, "x"], frame.loc[1, "x"] = 9.0, None
    write_table(frame, tmp_path / "out.xlsx", like=file)
    after = openpyxl.load_workbook(tmp_path / "out.xlsx").active
    assert [after.cell(row, 2).value for row in (1, 2, 3, 4)] == ["x", 9, None, 3.5]
    assert {after.cell(row, 2).number_format for row in (2, 3, 4)} == {"0.00"}
    write_table(frame.drop(columns="name"), tmp_path / "part.xlsx", like=file)
    part = openpyxl.load_workbook(tmp_path / "part.xlsx").active
    assert [[cell.value for cell in row] for row in part.iter_rows()] == [["x"], [9], [None], [3.5]]


def test_cells_that_no_model_sees_are_written_as_they_were(read, write):
    text = "age,x\n" + "".join(f"{age},1\n" for age in (34, 999, 41, 35, 28, 51, 999)) + ",2\n"
    file = read(text)
    assert file.frame["age"].isna().sum() == 3
    assert write(file.frame.fillna({"age": 40}), like=file) == text.replace("\n,2", "\n40,2")


def test_a_fraction_in_a_column_of_whole_numbers_is_not_rounded(read, write):
    file = read("n,x\n1,1\n,1\n2,1\n")
    frame = file.frame.astype({"n": "float64"})
    assert write(frame.fillna(1.5), like=file) == "n,x\n1,1\n1.5,1\n2,1\n"


def test_columns_may_be_removed_added_and_moved(read, write):
    file = read("# title\nid;price;old\n007;1,50;x\n008;2,50;y\nSource: own\n")
    frame = file.frame.assign(double=file.frame["price"] * 2.25)[["double", "price", "id"]]
    expected = "# title\ndouble;price;id\n3.375;1,50;007\n5.625;2,50;008\nSource: own\n"
    assert write(frame, like=file) == expected


def test_rows_may_be_taken(read, write):
    file = read(PRICES)
    frame = file.frame.sort_values("id", ascending=False).iloc[:2]
    with pytest.raises(ValueError, match=r"other rows than .*in\.csv, which had 3"):
        write(frame, like=file)
    with pytest.raises(ValueError, match="or another order"):
        write(file.frame.iloc[::-1], like=file)
    expected = "id;price;day;note\n009;2.340,00;;b\n008;;31.05.2021;\n"
    assert write(frame, like=file.take(frame.index)) == expected
    polars = pl.from_pandas(frame)
    assert write(polars, like=file.take([2, 1]), overwrite=True) == expected
    with pytest.raises(ValueError, match="rows must be from 0 to 2"):
        file.take([3])


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet", "feather", "xlsx", "csv.gz"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_frame_without_a_file_is_written_in_plain_formats(suffix, backend, tmp_path):
    table = pa.table(
        {
            "n": [1, None, 2],
            "x": [0.1, None, 2.0],
            "d": [datetime.date(2020, 2, 29), datetime.date(2020, 3, 1), None],
            "w": ["a,b", "c", None],
        }
    )
    frame = {"pandas": table.to_pandas(), "polars": pl.from_arrow(table), "pyarrow": table}[backend]
    write_table(frame, tmp_path / f"t.{suffix}")
    again = read_table(tmp_path / f"t.{suffix}", backend="pyarrow").frame
    assert again.column_names == ["n", "x", "d", "w"]
    assert [again[name][0].as_py() for name in "xdw"] == [0.1, datetime.date(2020, 2, 29), "a,b"]
    assert [column.null_count for column in again.columns] == [1, 1, 1, 1]


def test_a_frame_without_rows_is_written(write):
    assert write(pd.DataFrame({"a": [], "b": []})) == "a,b\n"


def test_an_existing_file_is_replaced_only_if_asked(read, write):
    file = read(PRICES)
    write(file.frame, like=file)
    with pytest.raises(ValueError, match=r"out\.csv: the file exists; use overwrite=True"):
        write(file.frame.iloc[:, :1], like=file)
    assert write(file.frame[["id"]], like=file, overwrite=True) == "id\n007\n008\n009\n"


def test_nothing_is_left_if_a_file_cannot_be_written(read, write, tmp_path):
    frame = pd.DataFrame({"a": [1, 2], "b": [b"x", b"y"]})
    with pytest.raises(ValueError, match="column 'b' has the type binary"):
        write(frame)
    with pytest.raises(ValueError, match="does not exist"):
        write(frame[["a"]], "nowhere/out.csv")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("frame", "match"),
    [
        ([[1, 2]], "frame of pandas, polars or pyarrow, got list"),
        (np.zeros((2, 2)), "frame of pandas, polars or pyarrow, got ndarray"),
        (pd.DataFrame([[1, 2]]), "column 0 of the frame has no text as its name"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "columns 1 and 2 are both called 'a'"),
        (pd.DataFrame({"a": [1, "x"]}), "column 'a' of the frame holds values of several types"),
        (pd.DataFrame(index=[1, 2]), "no columns"),
    ],
)
def test_frames_that_cannot_be_written_are_refused(write, frame, match):
    with pytest.raises(ValueError, match=re.escape(match)):
        write(frame)


def test_changing_the_frame_does_not_change_what_was_read(read, write):
    file = read(PRICES)
    file.frame.loc[0, "price"] = 1.0
    assert file.table["price"][0].as_py() == 1577.3
    assert write(file.frame, like=file) == PRICES.replace("1.577,30", "1,00")
