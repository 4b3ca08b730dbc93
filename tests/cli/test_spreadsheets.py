"""Spreadsheets: which sheet is read, what a copy of a workbook keeps, and what new workbooks hold."""

import datetime
import re

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet
import pytest
from corpus.workbooks import formula, number, pack, sheet, text, unpack

from halfseen.files.tables import TableError, read_table
from halfseen.files.writing import write_tables

PLAIN = sheet([["x", "y", "s"], *([i / 2, None if i == 3 else i, "ab"[i % 2]] for i in range(30))])
NOTES = sheet([["Explanations"], ["Measured by hand"], ["Not for publication"]])


def save(tmp_path, data, name="t.xlsx"):
    (tmp_path / name).write_bytes(data)
    return str(tmp_path / name)


def fill(file):
    """The table of a file with its missing cells replaced by the last observed value of the column."""
    columns = [
        pa.array(column.combine_chunks().fill_null(column.drop_null()[-1]))
        if 0 < column.null_count < len(column)
        else column
        for column in file.table.columns
    ]
    return pa.table(columns, names=file.table.column_names)


def copy(tmp_path, data, **options):
    """Read a workbook, fill it, write it; return its path and that of the copy."""
    source, target = save(tmp_path, data), str(tmp_path / "copy.xlsx")
    file = read_table(source, **options)
    write_tables([fill(file)], target, file)
    return source, target


def cells_of(path, part="xl/worksheets/1.xml"):
    """The markup of the cells of a sheet, by their addresses."""
    xml = unpack(path)[part].decode()
    found = re.findall(r'<c r="([A-Z]+\d+)"((?:[^>]*/>)|(?:.*?</c>))', xml, re.DOTALL)
    return dict(found)


def values_of(path, title=None, **options):
    book = openpyxl.load_workbook(path, **options)
    return [list(row) for row in (book[title] if title else book.active).iter_rows(values_only=True)]


# ------------------------------------------------------------------------------------------ which sheet


def test_the_sheet_that_holds_a_table_is_read_and_named(run, tmp_path):
    save(tmp_path, pack({"about": NOTES, "data": PLAIN, "empty": sheet([])}))
    code, _, err = run("impute", "t.xlsx", "-o", "u.csv")
    assert code == 0, err
    assert "sheet 'data' is read; the 2 other sheets are not" in err
    assert (tmp_path / "u.csv").read_text().startswith("x,y,s\n0,0,a\n")


def test_several_tables_are_listed_and_one_is_asked_for(run, tmp_path):
    save(tmp_path, pack({"first": PLAIN, "about": NOTES, "second": PLAIN, "third": PLAIN}, hidden=["third"]))
    code, _, err = run("impute", "t.xlsx", "-o", "u.csv")
    assert code == 2
    assert (
        err.strip()
        == "halfseen: error: t.xlsx: 2 sheets hold tables, 'first', 'second': choose one by --sheet"
    )
    assert not (tmp_path / "u.csv").exists()
    for command in (["impute", "t.xlsx", "-o", "u.csv"], ["describe", "t.xlsx"]):
        code, _, err = run(*command, "--sheet", "third")
        assert code == 0, err


@pytest.mark.parametrize(
    ("name", "title", "message"),
    [
        ("t.xlsx", "dta", "no sheet 'dta'; there are 'data', 'plot'"),
        ("t.xlsx", "plot", "sheet 'plot' is a chart and has no cells"),
        ("t.csv", "data", "--sheet 'data' names a sheet of an xlsx file, and this is a csv file"),
    ],
)
def test_a_sheet_that_is_not_there_is_refused(tmp_path, name, title, message):
    save(tmp_path, pack({"data": PLAIN, "plot": "<chartsheet/>"}, charts=["plot"]))
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    with pytest.raises(TableError, match=re.escape(message)):
        read_table(str(tmp_path / name), sheet=title)


def test_titles_above_the_table_are_not_read_and_stay_in_the_copy(tmp_path):
    rows = [["Sales by region"], [], ["region", "year", "sales"], *(["north", 2000 + i, i] for i in range(9))]
    rows[5][2] = None
    source, target = copy(tmp_path, pack({"data": sheet(rows)}))
    file = read_table(source)
    assert file.table.column_names == ["region", "year", "sales"]
    assert any("above row 3" in note for note in file.notes)
    assert values_of(target)[0][0] == "Sales by region"
    assert values_of(target)[5] == ["north", 2002, 8]


# ------------------------------------------------------------------------------------------ a copy


def test_a_copy_differs_from_the_workbook_in_the_missing_cells_only(tmp_path):
    rows = [["id", "when", "amount", "code", "double", "ok"]]
    for i in range(2, 22):
        hole = i % 5 == 0
        rows.append([
            number(str(90071992547409931 + i)),
            None if hole else number(43831 + i, 1),
            number("", 6).replace("<v></v>", "") if hole else number(f"{i}.10000000000000042e+3", 6),
            None if hole else f"00{i % 3}",
            formula(f"C{i}*2", "", 't="str"') if hole else formula(f"C{i}*2", 2 * i),
            None if hole else i % 2 == 0,
        ])  # fmt: skip
    widths = '<cols><col min="1" max="1" width="30" customWidth="1"/></cols>'
    data = pack({"data": sheet(rows, before=widths, after="<!-- kept -->"), "about": NOTES}, charts=["plot"])
    source, target = copy(tmp_path, data)
    before, after = unpack(source), unpack(target)
    assert list(before) == list(after)
    assert {name for name in before if before[name] != after[name]} == {
        "xl/worksheets/1.xml",
        "xl/workbook.xml",
    }
    assert b'<calcPr fullCalcOnLoad="1"/>' in after["xl/workbook.xml"]
    old, new = cells_of(source), cells_of(target)
    filled = {f"{column}{row}" for column in "BCDF" for row in (5, 10, 15, 20)}
    assert {address for address in new if new[address] != old.get(address)} == filled
    assert set(old) <= set(new)
    assert new["B5"] == ' s="1"><v>43852</v></c>'
    assert new["C5"] == ' s="6"><v>21100</v></c>'
    assert new["D5"] == ' t="inlineStr"><is><t xml:space="preserve">000</t></is></c>'
    assert new["F5"] == ' t="b"><v>0</v></c>'
    assert values_of(target, "data")[4][4] == "=C5*2"
    assert b"<!-- kept -->" in after["xl/worksheets/1.xml"]


def test_a_copy_of_a_workbook_keeps_styles_widths_and_other_sheets(run, tmp_path):
    book = openpyxl.Workbook()
    for row in [
        ["x", "y", "day"],
        *([i / 3, None if i == 3 else i, datetime.date(2020, 1, 1 + i)] for i in range(25)),
    ]:
        book.active.append(row)
    book.active["A1"].font = openpyxl.styles.Font(bold=True, color="FF0000")
    book.active.column_dimensions["B"].width = 41
    book.active["C6"].value = None
    other = book.create_sheet("prices")
    other["B2"] = "=SUM(1,2)"
    other.merge_cells("C3:D4")
    book.save(tmp_path / "t.xlsx")
    code, _, err = run("impute", "t.xlsx", "-o", "u.xlsx")
    assert code == 0, err
    copied = openpyxl.load_workbook(tmp_path / "u.xlsx")
    assert copied.sheetnames == ["Sheet", "prices"]
    assert copied["prices"]["B2"].value == "=SUM(1,2)"
    assert str(copied["prices"].merged_cells) == "C3:D4"
    assert copied["Sheet"].column_dimensions["B"].width == 41
    assert copied["Sheet"]["A1"].font.b
    assert copied["Sheet"]["A1"].font.color.rgb == "00FF0000"
    assert isinstance(copied["Sheet"]["B5"].value, int)
    assert isinstance(copied["Sheet"]["C6"].value, datetime.datetime)
    given = openpyxl.load_workbook(tmp_path / "t.xlsx")["Sheet"]
    for row, cells in enumerate(given.iter_rows(values_only=True), start=1):
        for column, value in enumerate(cells, start=1):
            if value is not None:
                assert copied["Sheet"].cell(row, column).value == value


def test_a_workbook_can_be_completed_in_place(run, tmp_path):
    path = save(tmp_path, pack({"data": PLAIN, "about": NOTES}))
    before = unpack(path)
    code, _, err = run("impute", "t.xlsx", "--in-place")
    assert code == 0, err
    after = unpack(path)
    assert {name for name in before if before[name] != after[name]} == {"xl/worksheets/1.xml"}
    assert read_table(path).n_missing == 0


def test_text_that_looks_like_numbers_stays_text_and_is_filled_as_text(tmp_path):
    cards = [f"45566778899001{i:02d}" for i in range(12)]
    amounts = [f"{i},5{i % 10}" for i in range(12)]
    rows = [["card", "amount"], *([text(c), text(a)] for c, a in zip(cards, amounts, strict=True))]
    rows[4], rows[7][1] = [None, text("1,25")], None
    source, target = copy(tmp_path, pack({"data": sheet(rows)}))
    old, new = cells_of(source), cells_of(target)
    assert {a for a in new if new[a] != old.get(a)} == {"A5", "B8"}
    assert 't="inlineStr"' in new["A5"]
    assert ",51</t>" in new["B8"]
    file = read_table(source)
    write_tables([fill(file)], str(tmp_path / "t.parquet"), file)
    table = pa.parquet.read_table(tmp_path / "t.parquet")
    assert table["card"].to_pylist()[:2] == cards[:2]
    assert table["amount"].to_pylist()[1] == "1,51"


def test_levels_are_filled_as_the_cells_that_hold_them_are_stored(tmp_path):
    rows = [["code", "time"]]
    rows += [[number(1 + i % 2) if i % 3 else text("other"), number(0.25 * (i % 4), 3)] for i in range(20)]
    rows[5], rows[9][1] = [None, 0], None
    rows[20][0] = number(2)
    file = read_table(save(tmp_path, pack({"data": sheet(rows)})), number_format=["code=text"])
    assert file.table["time"].to_pylist()[:3] == ["00:00:00", "06:00:00", "12:00:00"]
    write_tables([fill(file)], str(tmp_path / "u.xlsx"), file)
    new = cells_of(str(tmp_path / "u.xlsx"))
    assert new["A6"] == ' t="n"><v>2</v></c>'
    assert new["B10"] == ' s="3" t="n"><v>0.75</v></c>'


def test_new_columns_are_written_to_the_right_of_the_table(call, tmp_path):
    save(tmp_path, pack({"data": PLAIN, "about": NOTES}))
    command = ["fit", "t.xlsx", "--target", "y", "--save-model", "m.half", "--method", "constant+linear"]
    assert call(*command)[0] == 0
    code, _, err = call("predict", "m.half", "t.xlsx", "-o", "u.xlsx")
    assert code == 0, err
    rows = values_of(tmp_path / "u.xlsx", "data")
    assert rows[0] == ["x", "y", "s", "prediction", "prediction_low", "prediction_high"]
    assert rows[4][1] is None
    assert isinstance(rows[4][3], float)
    assert len(openpyxl.load_workbook(tmp_path / "u.xlsx").sheetnames) == 2


@pytest.mark.parametrize("styled", [True, False])
def test_dates_of_a_column_without_any_are_shown_as_dates(call, tmp_path, styled):
    rows = [["x", "when"], *([float(i), number(43831 + i, 1)] for i in range(1, 31))]
    save(tmp_path, pack({"data": sheet(rows)}), "train.xlsx")
    command = ["impute", "train.xlsx", "-o", "u.xlsx", "--method", "gaussian", "--save-model", "m.half"]
    assert call(*command)[0] == 0
    plain = {} if styled else {"xl/styles.xml": "<styleSheet/>"}
    rows = [["x", "when"], *([float(i), None] for i in range(1, 9))]
    save(tmp_path, pack({"data": sheet(rows)}, others=plain), "new.xlsx")
    code, _, err = call("impute", "new.xlsx", "-o", "v.xlsx", "--model", "m.half")
    assert code == 0, err
    cell = cells_of(tmp_path / "v.xlsx")["B2"]
    assert re.fullmatch(r' s="1"><v>\d{5}</v></c>' if styled else r".*<t .*>20\d\d-\d\d-\d\d</t>.*", cell)


@pytest.mark.parametrize("step", [60, 0.25])
@pytest.mark.parametrize("suffix", ["xlsx", "csv", "parquet"])
def test_imputed_times_are_times_that_a_sheet_can_hold(tmp_path, suffix, step):
    start = datetime.datetime(2020, 1, 1, 10)
    times = [start + datetime.timedelta(seconds=step * i) for i in range(20)]
    table = pa.table({"when": [None if i == 4 else one for i, one in enumerate(times)], "x": range(20)})
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    file = read_table(str(tmp_path / "t.parquet"))
    if suffix != "parquet":
        write_tables([file.table], str(tmp_path / f"t.{suffix}"), file)
        file = read_table(str(tmp_path / f"t.{suffix}"))
    imputed = [start.replace(microsecond=750_123) if i == 4 else one for i, one in enumerate(times)]
    column = pa.array(imputed, file.table["when"].type)
    write_tables([file.table.set_column(0, "when", column)], str(tmp_path / "u.xlsx"), file)
    written = openpyxl.load_workbook(tmp_path / "u.xlsx").active["A"][1:]
    imputed[4] = start.replace(microsecond=0 if step == 60 else 750_000)
    assert [cell.value for cell in written] == imputed


def test_amputed_and_drawn_tables_are_new_workbooks_with_the_same_values(run, tmp_path):
    rows = [["id", "card", "when"]]
    rows += [[number(str(2**60 + i)), text(f"1{i:03d}"), number(43831 + i + 0.25, 2)] for i in range(30)]
    rows[3][1] = None
    path = save(tmp_path, pack({"data": sheet(rows)}))
    code, _, err = run("impute", "t.xlsx", "-o", "u.xlsx", "--draws", "2")
    assert code == 0, err
    drawn = values_of(tmp_path / "u.xlsx")
    assert len(drawn) == 61
    assert drawn[0] == ["draw", "id", "card", "when"]
    assert drawn[1] == [1, str(2**60), "1000", datetime.datetime(2020, 1, 1, 6)]
    assert drawn[1][1:] == drawn[31][1:]
    code, _, err = run("ampute", "t.xlsx", "-o", "v.xlsx", "--rate", "0.4")
    assert code == 0, err
    given, holed = read_table(path), read_table(str(tmp_path / "v.xlsx"))
    for name in given.table.column_names:
        pairs = zip(given.table[name].to_pylist(), holed.table[name].to_pylist(), strict=True)
        assert all(after in (None, before) for before, after in pairs)
    assert holed.n_missing > given.n_missing


# ------------------------------------------------------------------------------------------ formulas, rows


def formulas(result, kind=""):
    rows = [["a", "b"], *([i, formula(f"A{i + 2}*2", 2 * i)] for i in range(20))]
    rows[7][1] = formula("A8*2", result, kind)
    return pack({"data": sheet(rows)})


@pytest.mark.parametrize("result", [None, ""])
def test_a_formula_without_a_stored_result_is_refused_by_its_cell(run, tmp_path, result):
    save(tmp_path, formulas(result))
    code, _, err = run("impute", "t.xlsx", "-o", "u.xlsx")
    assert code == 2
    assert "t.xlsx: sheet 'data', cell B8: a formula without a stored result" in err
    assert not (tmp_path / "u.xlsx").exists()


def test_formulas_of_a_program_that_stores_no_results_are_refused(tmp_path):
    book = openpyxl.Workbook()
    for row in [["a", "b"], *([i, f"=A{i + 2}*2"] for i in range(5))]:
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    with pytest.raises(
        TableError, match=r"sheet 'Sheet', cell B2 \(and 4 more\): a formula without a stored"
    ):
        read_table(str(tmp_path / "t.xlsx"))


@pytest.mark.parametrize(("result", "kind"), [("", 't="str"'), ("#DIV/0!", 't="e"'), ("n/a", 't="str"')])
def test_a_formula_whose_result_is_missing_is_never_imputed(run, tmp_path, result, kind):
    path = save(tmp_path, formulas(result, kind))
    file = read_table(path)
    assert file.table["b"].to_pylist()[5:8] == [10, None, 14]
    assert file.n_missing == 0
    assert any("1 cell without a value is the result of a formula" in note for note in file.notes)
    for output in ("u.xlsx", "u.csv", "u.parquet"):
        code, _, err = run("impute", "t.xlsx", "-o", output)
        assert code == 0, err
    assert cells_of(tmp_path / "u.xlsx") == cells_of(path)
    assert (tmp_path / "u.csv").read_text().splitlines()[7] == f"6,{result}"
    assert pa.parquet.read_table(tmp_path / "u.parquet")["b"].to_pylist()[6] is None


def test_blank_rows_stay_blank_and_keep_the_others_in_their_places(run, tmp_path):
    rows = [["a", "b"], *([i, None if i == 12 else 2 * i] for i in range(1, 31))]
    rows[6] = []
    path = save(tmp_path, pack({"data": sheet(rows)}))
    file = read_table(path)
    assert file.table["a"].to_pylist()[4:7] == [5, None, 7]
    assert "row 7 is blank: kept and not imputed; --fill-all imputes it" in file.notes
    assert file.n_missing == 1
    for output in ("u.xlsx", "u.csv", "u.parquet"):
        code, _, err = run("impute", "t.xlsx", "-o", output)
        assert code == 0
        assert "left missing" not in err  # the blank row is no missing cell, as `n_missing` says
        table = read_table(str(tmp_path / output)).table
        assert table["a"].to_pylist()[4:7] == [5, None, 7]
        assert table["b"].null_count == 1
    assert run("impute", "t.xlsx", "-o", "all.xlsx", "--fill-all")[0] == 0
    assert all(None not in row for row in values_of(tmp_path / "all.xlsx"))


def test_a_blank_cell_of_the_only_column_is_filled(run, tmp_path):
    save(tmp_path, pack({"data": sheet([["a"], *([None if i == 5 else i] for i in range(20))])}))
    assert run("impute", "t.xlsx", "-o", "u.xlsx")[0] == 0
    assert values_of(tmp_path / "u.xlsx")[6][0] is not None


def test_cells_that_are_merged_with_others_are_not_filled(tmp_path):
    rows = [["region", "x"], *([("north", None, None, "south", None)[i % 5], i] for i in range(20))]
    merged = '<mergeCells count="1"><mergeCell ref="A2:A4"/></mergeCells>'
    source, target = copy(tmp_path, pack({"data": sheet(rows, after=merged)}))
    assert [row[0] for row in values_of(target)][1:7] == ["north", None, None, "south", "south", "north"]
    assert any("part of merged cells, such as A3" in note for note in read_table(source).notes)


# ------------------------------------------------------------------------------------------ new workbooks


def test_a_new_workbook_holds_every_value_of_a_table(tmp_path):
    when = datetime.datetime(2021, 5, 28, 10, 30, 15, 250_000)
    table = pa.table({
        "=name": ["=1+1", "+2", "<&>", " a_x0041_\r\nb\t"],
        "id": [90071992547409931, 90071992547409933, None, -1],
        "x": [0.1 + 0.2, 1e-320, -1.7976931348623157e308, 1 / 3],
        "ms": [when, None, datetime.datetime(9999, 12, 31), datetime.datetime(1900, 3, 1)],
        "zone": pa.array([when] * 4, pa.timestamp("us", "Europe/Berlin")),
        "fine": [when.replace(microsecond=250_001)] * 4,
        "old": [datetime.date(1850, 1, 2), datetime.date(2020, 1, 1), None, None],
        "time": [datetime.time(6, 30), datetime.time(23, 59, 59, 999_000), None, datetime.time(0)],
        "yes": [True, False, None, True],
        "took": [datetime.timedelta(days=2, seconds=1), None, datetime.timedelta(0), None],
    })  # fmt: skip
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    file = read_table(str(tmp_path / "t.parquet"))
    write_tables([file.table], str(tmp_path / "u.xlsx"), file)
    cells = openpyxl.load_workbook(tmp_path / "u.xlsx").active
    assert [cell.data_type for cell in cells["A"]] == ["s"] * 5
    again = read_table(str(tmp_path / "u.xlsx"), number_format=["=name=text"]).as_written().table
    assert again.column_names == table.column_names
    for name in ("=name", "x", "ms", "yes", "id"):
        assert again[name].to_pylist() == table[name].to_pylist(), name
    assert again["zone"].cast(table["zone"].type).equals(table["zone"])
    assert again["fine"].to_pylist() == table["fine"].to_pylist()
    assert [cell.value for cell in cells["G"]][1:3] == ["1850-01-02", "2020-01-01"]
    assert [cell.value for cell in cells["H"]][1:] == table["time"].to_pylist()
    assert [cell.value for cell in cells["J"]][1:] == table["took"].to_pylist()


def test_texts_of_a_csv_that_are_no_numbers_reach_a_workbook(run, tmp_path):
    lines = [
        "lab,id,when",
        *(f"{i}.5,A{i},2021-05-{i:02d}T10:00:00+02:00" for i in range(10, 29)),
        "<0.05,NA,",
        "3,x,",
    ]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    code, _, err = run("impute", "t.csv", "-o", "u.xlsx")
    assert code == 0, err
    rows = values_of(tmp_path / "u.xlsx")
    assert rows[1] == [10.5, "A10", "2021-05-10T10:00:00+02:00"]
    assert rows[20][0] == "<0.05"
    assert rows[21][0] == 3


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            pa.array(["a", "b" * 32_768]),
            "u.xlsx: column 'c', row 2: the text has 32,768 characters, and a cell",
        ),
        (
            pa.array(["a", "\N{GRINNING FACE}" * 16_384]),
            "row 2: the text has 32,768 characters, and a cell of an",
        ),
        (pa.array(["a\x01", "b"]), "u.xlsx: column 'c', row 1: the text contains a control character"),
        (
            pa.array(["a\x01", "b"]).dictionary_encode(),
            "column 'c', row 1: the text contains a control character",
        ),
        (pa.array([1, 2], pa.duration("us")), "column 'c' contains durations with microseconds"),
    ],
)
def test_what_a_workbook_cannot_hold_is_refused_before_the_work(call, tmp_path, column, message, monkeypatch):
    def fail(*_):
        raise AssertionError("the work has begun")

    monkeypatch.setattr("halfseen.cli.requests.ImputeRequest.build_imputer", fail)
    pa.parquet.write_table(pa.table({"c": column, "x": [1.0, None]}), tmp_path / "t.parquet")
    code, _, err = call("impute", "t.parquet", "-o", "u.xlsx")
    assert code == 2, err
    assert message in err
    assert not (tmp_path / "u.xlsx").exists()


@pytest.mark.parametrize(
    ("word", "message"), [("a\x02", "control character"), ("b" * 40_000, "40,000 characters")]
)
def test_an_exception_that_a_workbook_cannot_hold_leaves_no_file(run, tmp_path, word, message):
    lines = [*(f"{i},{i % 7}" for i in range(100, 160)), f"{word},3", "161,"]
    (tmp_path / "t.csv").write_text("x,y\n" + "\n".join(lines) + "\n")
    code, _, err = run("impute", "t.csv", "-o", "u.xlsx", "--number-format", "x=1234.56")
    assert code == 2, err
    assert message in err
    assert not (tmp_path / "u.xlsx").exists()


def test_more_rows_than_a_sheet_has_are_refused_before_the_work(call, tmp_path, monkeypatch):
    monkeypatch.setattr("halfseen.files.spreadsheet_output.MAX_ROWS", 100)
    pa.parquet.write_table(pa.table({"x": [*np.arange(40.0), None], "y": range(41)}), tmp_path / "t.parquet")
    code, _, err = call("impute", "t.parquet", "-o", "u.xlsx", "--draws", "3")
    assert code == 2
    assert (
        "u.xlsx: 124 rows and 3 columns are too many for a sheet of an xlsx file, which has 100 rows" in err
    )
    assert "fitting" not in err


def test_equal_tables_give_equal_workbooks(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,x\n2,y\n")
    file = read_table(str(tmp_path / "t.csv"))
    for name in ("u.xlsx", "v.xlsx"):
        write_tables([file.table], str(tmp_path / name), file)
    assert (tmp_path / "u.xlsx").read_bytes() == (tmp_path / "v.xlsx").read_bytes()


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ([["Summe", 400, 800]], "row 32 holds a total"),
        ([[], ["Total", 400, 800], [], ["Source: the register of 2021"]], "row 33 holds a total"),
        (
            [[], ["Source: the register of 2021"], ["Note: all values are estimates"]],
            "rows 33, 34 hold remarks",
        ),
    ],
)
def test_totals_and_remarks_below_a_table_are_kept_and_not_read(tmp_path, end, said):
    records = [[f"item {i % 7}", None if i == 3 else i, 2 * i] for i in range(30)]
    data = pack({"data": sheet([["item", "x", "y"], *records, *end])})
    source, target = copy(tmp_path, data)
    file = read_table(source)
    assert file.table.num_rows == 30
    assert any(
        note.startswith(f"{said}: kept in a copy of the workbook, but not read") for note in file.notes
    )
    expected = values_of(source)
    expected[4][1] = 29
    assert values_of(target) == expected


@pytest.mark.parametrize(
    ("groups", "names"),
    [
        ([None, "Pressure", None], ["patient", "systolic", "diastolic"]),
        (["patient", "Pressure", None], [None, "systolic", "diastolic"]),
    ],
)
def test_names_of_groups_of_columns_are_kept_and_not_read(tmp_path, groups, names):
    records = [[f"P{i}", 100 + i, None if i == 3 else 60 + i] for i in range(20)]
    source, target = copy(tmp_path, pack({"data": sheet([groups, names, *records])}))
    file = read_table(source)
    assert file.table.column_names == ["patient", "systolic", "diastolic"]
    assert file.table.num_rows == 20
    expected = values_of(source)
    expected[5][2] = 79
    assert values_of(target) == expected


def test_a_first_record_of_words_is_a_record(tmp_path):
    records = [["P", "new", "old"], *([f"P{i}", i, 2 * i] for i in range(20))]
    file = read_table(save(tmp_path, pack({"data": sheet([["patient", "x", "y"], *records])})))
    assert file.table.num_rows == 21


def test_totals_between_records_are_kept_and_not_read(tmp_path):
    groups = {name: [[name, i, None if i == 3 else i / 2] for i in range(10)] for name in "abc"}
    rows = [row for name, group in groups.items() for row in [*group, [f"{name} Total", 45, 99.5]]]
    rows.append(["Grand Total", 135, 299.5])
    source, target = copy(tmp_path, pack({"data": sheet([["group", "x", "y"], *rows])}))
    file = read_table(source)
    assert file.table.column("x").to_pylist() == [*range(10)] * 3
    assert "rows 12, 23, 34, 35 hold totals: kept in a copy of the workbook, but not read" in file.notes
    expected = values_of(source)
    for row in (4, 15, 26):
        expected[row][2] = 4.5
    assert values_of(target) == expected


def test_a_word_that_only_looks_like_a_total_is_a_record(tmp_path):
    records = [["mean" if i % 3 else "sum", i, 2 * i] for i in range(30)]
    file = read_table(save(tmp_path, pack({"data": sheet([["kind", "x", "y"], *records])})))
    assert file.table.num_rows == 30
