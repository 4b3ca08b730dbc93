"""Damaged, unusual and hostile workbooks: a faithful copy, or one clear line and exit code 2."""

import io
import re
import zipfile

import numpy as np
import openpyxl
import pyarrow as pa
import pytest
from corpus.workbooks import MAIN, formula, number, pack, sheet, text, unpack
from hypothesis import given, settings
from hypothesis import strategies as st

from halfseen.files.expansion import Expansion
from halfseen.files.sheet_xml import NewCell, parse_sheet, replace_cells, spell_address
from halfseen.files.spreadsheet import parse_spreadsheet
from halfseen.files.tables import TableError, read_table
from halfseen.files.workbook import classify_format
from halfseen.files.writing import write_tables

ROWS = [["a", "b"], *([i, 2 * i] for i in range(1, 13))]
GOOD = pack({"data": sheet(ROWS)})
LAUGHS = (
    '<!DOCTYPE z [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    f'<worksheet xmlns="{MAIN}"><sheetData><row><c t="str"><v>&b;</v></c></row></sheetData></worksheet>'
)


def with_cell(cell, row=3, column=1):
    """A workbook in which one cell has another markup."""
    rows = [list(cells) for cells in ROWS]
    rows[row - 1][column] = cell
    return pack({"data": sheet(rows)})


def raw(rows):
    """A workbook whose sheet has these rows as XML."""
    return pack({"data": f'<worksheet xmlns="{MAIN}"><sheetData>{rows}</sheetData></worksheet>'})


HOSTILE = {
    "no archive": (b"PK no workbook", "not a readable xlsx file"),
    "cut off": (GOOD[: len(GOOD) // 2], "not a readable xlsx file"),
    "old or encrypted": (b"\xd0\xcf\x11\xe0" + bytes(600), "an old or password-protected workbook"),
    "another archive": (pack({}, others={"_rels/.rels": "<a/>"}), "no workbook in it"),
    "no sheets": (pack({}), "the workbook has no sheets"),
    "an empty sheet": (pack({"data": sheet([])}), "sheet 'data' is empty"),
    "only notes": (pack({"a": sheet([["x"]]), "b": sheet([])}), "none of the sheets 'a', 'b' holds a table"),
    "charts only": (pack({"plot": "<chartsheet/>"}, charts=["plot"]), "the workbook has charts only"),
    "a lacking sheet": (pack({"data": None}), "it has no part 'xl/worksheets/1.xml'"),
    "an unlisted sheet": (
        pack({"data": sheet(ROWS)}, others={"xl/_rels/workbook.xml.rels": "<Relationships/>"}),
        "sheet 'data' is listed in the workbook, but not stored in it",
    ),
    "damaged XML": (pack({"data": sheet(ROWS)[:-40]}), r"sheet 'data' is damaged \(no element found"),
    "damaged styles": (pack({"data": sheet(ROWS)}, others={"xl/styles.xml": "<a"}), "styles.xml is damaged"),
    "entities": (pack({"data": LAUGHS}), "declares a document type"),
    "control characters": (with_cell("x\x01"), r"sheet 'data' is damaged \(not well-formed"),
    "an unknown encoding": (
        pack({"data": sheet(ROWS).replace('"1.0"?', '"1.0" encoding="koi-99"?')}), "sheet 'data' is damaged"
    ),
    "a word as a number": (with_cell(number("abc")), "t.xlsx: sheet 'data', cell B3: 'abc': not a number"),
    "a number that is none": (with_cell(number("nan")), "cell B3: 'nan': not a number"),
    "a large number": (with_cell(number("1e999")), "cell B3: '1e999': too large for a number"),
    "a far date": (with_cell(number("1e12", 1)), "cell B3: '1e12': formatted as a date, but not a day"),
    "an early date": (with_cell(number("-5", 1)), "cell B3: '-5': formatted as a date, but not a day"),
    "29 February 1900": (with_cell(number("60", 1)), "cell B3: '60': formatted as a date, but not a day"),
    "a false boolean": (with_cell('t="b"><v>2</v>'), "cell B3: '2': not a boolean"),
    "a false date": (with_cell('t="d"><v>2021-5-1</v>'), "cell B3: '2021-5-1': not a date"),
    "a lacking text": (with_cell('t="s"><v>7</v>'), "cell B3: '7': there is no text with this number"),
    "a negative text": (with_cell('t="s"><v>-1</v>'), "cell B3: '-1': not the number of a text"),
    "an unknown type": (with_cell('t="x"><v>1</v>'), "sheet 'data' is damaged .the type of cell B3 is 'x'"),
    "an odd style": (with_cell('s="x"><v>1</v>'), "sheet 'data' is damaged"),
    "a false address": (raw('<row r="1"><c r="A2"><v>1</v></c></row>'), "cell A2 in row 1"),
    "no address": (raw('<row r="1"><c r="1A"><v>1</v></c></row>'), "is not the address of a cell"),
    "a cell twice": (raw('<row r="1"><c r="A1"/><c r="A1"/></row>'), "a cell in column 1 after column 1"),
    "a row twice": (raw('<row r="2"/><row r="2"/>'), "row 2 after row 2"),
    "a row too far": (raw('<row r="1048577"/>'), "row 1048577 after row 0"),
    "a column too far": (raw('<row r="1"><c r="XFE1"/></row>'), "a cell in column 16384|column 16385"),
    "a false range": (
        pack({"data": sheet(ROWS, after='<mergeCells><mergeCell ref="A0:B"/></mergeCells>')}),
        "'A0' is not the address of a cell",
    ),
    "equal names": (pack({"data": sheet([["a", "a"], [1, 2]])}), "duplicate column names"),
    "a header alone": (pack({"data": sheet([["a", "b"]])}), "the table has a header but no rows"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_workbook_that_cannot_be_read_is_one_clear_line(call, tmp_path, name):
    data, message = HOSTILE[name]
    (tmp_path / "t.xlsx").write_bytes(data)
    code, out, err = call("impute", "t.xlsx", "-o", "u.xlsx", "--method", "mean")
    assert (code, out) == (2, ""), err
    assert err.count("\n") == 1
    assert re.search(message, err), err
    assert "t.xlsx" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.xlsx"]


def test_a_cell_in_the_last_corner_of_a_sheet_is_named(tmp_path):
    far = '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row></sheetData>'
    (tmp_path / "t.xlsx").write_bytes(pack({"data": sheet(ROWS).replace("</sheetData>", far)}))
    message = r"1,048,575 rows and 3 columns, of which 27 cells are filled; delete .* such as cell XFD1048576"
    with pytest.raises(TableError, match=message):
        read_table(str(tmp_path / "t.xlsx"))


def test_a_styled_empty_corner_does_not_matter(tmp_path):
    far = '<row r="1048576"><c r="XFD1048576" s="1"/></row></sheetData>'
    (tmp_path / "t.xlsx").write_bytes(pack({"data": sheet(ROWS).replace("</sheetData>", far)}))
    assert read_table(str(tmp_path / "t.xlsx")).table.shape == (12, 2)


# ------------------------------------------------------------------------------------------ unusual ones


def copied(tmp_path, data, **options):
    """The typed table of a workbook, and the parts of a copy with a value in its missing cells."""
    (tmp_path / "t.xlsx").write_bytes(data)
    file = read_table(str(tmp_path / "t.xlsx"), **options)
    columns = [column.combine_chunks().fill_null(column.drop_null()[0]) for column in file.table.columns]
    write_tables([pa.table(columns, names=file.table.column_names)], str(tmp_path / "u.xlsx"), file)
    return file.table, unpack(tmp_path / "u.xlsx")["xl/worksheets/1.xml"]


def test_cells_without_addresses_and_with_a_prefix_are_read_and_filled(tmp_path):
    rows = ["<x:row><x:c t='str'><x:v>a</x:v></x:c><x:c t='str'><x:v>b</x:v></x:c></x:row>"]
    rows += [f"<x:row><x:c><x:v>{i}</x:v></x:c><x:c><x:v>{2 * i}</x:v></x:c></x:row>" for i in range(5)]
    rows += ["<x:row><x:c><x:v>9</x:v></x:c></x:row>", "<x:row><x:c/><x:c><x:v>6</x:v></x:c></x:row>"]
    xml = f'<x:worksheet xmlns:x="{MAIN}"><x:sheetData>{"".join(rows)}</x:sheetData></x:worksheet>'
    table, written = copied(tmp_path, pack({"data": xml}))
    assert table["b"].to_pylist() == [0, 2, 4, 6, 8, None, 6]
    assert b'<x:c><x:v>9</x:v></x:c><x:c r="B7"><x:v>0</x:v></x:c></x:row>' in written
    assert b'<x:row><x:c r="A8"><x:v>0</x:v></x:c><x:c><x:v>6</x:v></x:c></x:row>' in written


def test_rows_that_are_not_stored_are_added_in_their_places():
    rows = '<row r="2" spans="1:2"/><row r="5"><c r="C5"/></row>'
    data = f'<worksheet xmlns="{MAIN}"><sheetData>{rows}</sheetData></worksheet>'
    cells = [NewCell(row, 2, "><v>1</v></c>") for row in (6, 5, 3, 2)] + [
        NewCell(5, 4, "/>"),
        NewCell(5, 3, "/>"),
    ]
    new = replace_cells(parse_sheet(data.encode(), "here", blanks=True), cells).decode()
    inner = new.partition("<sheetData>")[2].partition("</sheetData>")[0]
    assert inner == (
        '<row r="2"><c r="B2"><v>1</v></c></row><row r="3"><c r="B3"><v>1</v></c></row><row r="5">'
        '<c r="B5"><v>1</v></c><c r="C5"/><c r="D5"/></row><row r="6"><c r="B6"><v>1</v></c></row>'
    )


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "iso-8859-1"])
def test_sheets_in_other_encodings_are_read_and_filled(tmp_path, encoding):
    rows = [["größe", "b"], *([text("süd"), i] if i != 3 else [None, i] for i in range(12))]
    xml = sheet(rows).replace('"1.0"?', f'"1.0" encoding="{encoding}"?').replace("utf-16-le", "utf-16")
    table, _ = copied(tmp_path, pack({"data": xml.encode(encoding)}))
    assert table["größe"].null_count == 1
    again = openpyxl.load_workbook(tmp_path / "u.xlsx").active
    assert again["A5"].value == again["A2"].value == "süd"


def test_shared_texts_are_read_without_pronunciation_and_with_control_characters(tmp_path):
    strings = "<si><r><t>東</t></r><r><t>京</t></r><rPh><t>トウ</t></rPh></si><si><t>a_x000D_b</t></si><si/>"
    rows = [["city", "b"], *([f't="s"><v>{i % 3}</v>', i] for i in range(9))]
    data = pack(
        {"data": sheet(rows)}, others={"xl/sharedStrings.xml": f'<sst xmlns="{MAIN}">{strings}</sst>'}
    )
    table, written = copied(tmp_path, data)
    assert table["city"].to_pylist()[:3] == ["東京", "a\rb", None]
    assert written.count(b't="s"><v>0</v>') == 6


@pytest.mark.parametrize("from_1904", [False, True])
def test_dates_and_times_are_those_that_spreadsheet_programs_show(tmp_path, from_1904):
    days = [1, 59, 61, 43831, 43831.4375, 43831.000005787, 2958465.5, 0.75]
    rows = [["a", "b"], *([number(repr(day), 2), 1] for day in days)]
    book = '<workbookPr date1904="1"/>' if from_1904 else ""
    (tmp_path / "t.xlsx").write_bytes(pack({"data": sheet(rows)}, book=book))
    if from_1904:
        with pytest.raises(TableError, match=r"cell A8: '2958465.5': formatted as a date"):
            read_table(str(tmp_path / "t.xlsx"))
        rows[7][0] = number("2957003.5", 2)
        (tmp_path / "t.xlsx").write_bytes(pack({"data": sheet(rows)}, book=book))
    table = read_table(str(tmp_path / "t.xlsx"), number_format=["a=text"]).table
    wide = openpyxl.load_workbook(tmp_path / "t.xlsx", data_only=True).active
    expected = [cell.value for cell in wide["A"]][1:]
    assert table["a"].to_pylist()[:-1] == [
        one.isoformat(" ", "milliseconds").removesuffix(".000") for one in expected[:-1]
    ]
    assert table["a"].to_pylist()[-1] == "18:00:00"


@pytest.mark.parametrize(
    "code",
    ["General", "0.00", "#,##0.00 [$€-407]", '0 "days"', "0.00E+00", "@", "[Red]0;[Blue]-0", "yyyy-mm-dd",
     "d/m/yy;@", "mmm-yy", "[$-409]h:mm AM/PM;@", "mm:ss.0", "[h]:mm:ss", "[mm]:ss", '"d"0', r"0\d", "yyyy",
     "hh:mm:ss.000", "_-* #,##0.00_-", "dd/mm/yyyy\\ hh:mm"],
)  # fmt: skip
def test_formats_are_those_of_dates_where_another_reader_says_so(code):
    from openpyxl.styles.numbers import is_date_format, is_timedelta_format

    assert (classify_format(200, code) != "") == (is_date_format(code) or is_timedelta_format(code))
    assert (classify_format(200, code) == "duration") == is_timedelta_format(code)


def test_results_of_a_formula_for_several_cells_are_not_filled(tmp_path):
    rows = [["a", "b"], *([i, 2 * i] for i in range(12))]
    rows[1][1] = '><f t="array" ref="B2:B5">A2:A5*2</f><v>0</v>'
    rows[3][1] = rows[8][1] = None
    table, written = copied(tmp_path, pack({"data": sheet(rows)}))
    assert table["b"].null_count == 2
    assert b'r="B4"' not in written
    assert b'<c r="B9"><v>0</v></c>' in written


# ------------------------------------------------------------------------------------------ properties

numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(str), st.floats(allow_nan=False, allow_infinity=False).map(repr)
)
printable = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn"]), max_size=12)
cells = st.one_of(
    st.none(), numbers.map(number), printable.map(text), st.booleans(),
    st.floats(61, 2958465).map(lambda day: number(repr(day), 2)),
    numbers.map(lambda one: formula("A1&B1", one)),
    printable.map(lambda one: text(f"={one}")), st.just('s="3">'),
)  # fmt: skip


@given(st.lists(st.lists(cells, min_size=3, max_size=3), min_size=2, max_size=12))
@settings(max_examples=20, deadline=None)
def test_cells_that_were_stored_are_copied_byte_by_byte(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("t")
    data = pack({"data": sheet([["a", "b", "=c"], *rows, [1, "x", True]])})
    (folder / "t.xlsx").write_bytes(data)
    file = read_table(str(folder / "t.xlsx"))
    assert file.table.num_rows == len(rows) + 1
    columns = []
    for column in file.table.columns:
        fill = column.drop_null()[0] if column.null_count < len(column) else None
        columns.append(column.combine_chunks().fill_null(fill) if fill is not None else column)
    completed = pa.table(columns, names=file.table.column_names)
    write_tables([completed], str(folder / "u.xlsx"), file)
    before = parse_sheet(unpack(folder / "t.xlsx")["xl/worksheets/1.xml"], "t", blanks=True)
    after = parse_sheet(unpack(folder / "u.xlsx")["xl/worksheets/1.xml"], "u", blanks=True)
    there = {
        (row, column): place
        for place, (row, column) in enumerate(zip(after.rows, after.columns, strict=True))
    }
    for place, where in enumerate(zip(before.rows, before.columns, strict=True)):
        value = before.values[place].as_py()
        if before.formulas[place] or (value and value.strip() and file_has(file, where)):
            other = there[where]
            old = before.data[before.starts[place] : before.ends[place]]
            assert after.data[after.starts[other] : after.ends[other]] == old, spell_address(*where)


def file_has(file, where):
    """Whether a cell of the sheet is an observed value of the table."""
    row, column = where[0] - 2, where[1] - 1
    return row < 0 or file.table.column(column)[row].is_valid


records = st.tuples(numbers.map(float), printable, st.integers(-(2**63), 2**63 - 1))


@given(st.lists(records, min_size=1, max_size=9), printable.filter(str.strip))
@settings(max_examples=20, deadline=None)
def test_a_new_workbook_is_read_as_it_was_written(tmp_path_factory, rows, name):
    folder = tmp_path_factory.mktemp("t")
    x, s, i = zip(*rows, strict=True)
    names = ["x", f"={name}", "i"]
    pa.parquet.write_table(
        pa.table([pa.array(x), pa.array(s), pa.array(i)], names=names), folder / "t.parquet"
    )
    file = read_table(str(folder / "t.parquet"))
    write_tables([file.as_written().table], str(folder / "u.xlsx"), file)
    read = parse_spreadsheet((folder / "u.xlsx").read_bytes(), Expansion("u.xlsx", 10**9))
    assert read.cells.column_names == names
    assert [float(one) for one in read.cells["x"].to_pylist()] == list(x)
    assert [one for one in read.cells[names[1]].to_pylist() if one] == [one for one in s if one.strip()]
    assert [int(one) for one in read.cells["i"].to_pylist()] == list(i)


def outcome_of(data):
    """The message if a workbook is refused, else an empty text; any other error is a defect."""
    try:
        parse_spreadsheet(data, Expansion("t.xlsx", 10**9))
    except TableError as error:
        return str(error)
    return ""


def test_random_damage_of_a_part_is_read_or_refused_with_the_name_of_the_file():
    rng = np.random.default_rng(0)
    rows = [["a", "b"], *([number(43831 + i, 1), formula("A1", i)] for i in range(8))]
    merged = '<mergeCells><mergeCell ref="A2:A3"/></mergeCells>'
    parts = unzip(pack({"data": sheet(rows, after=merged)}))
    outcomes = []
    for _ in range(150):
        name = str(rng.choice(list(parts)))
        content = bytearray(parts[name])
        for place in rng.integers(0, len(content), rng.integers(1, 4)):
            content[place] = rng.choice(list(b'<>/"=&019azAZ: \x00\xff'))
        outcomes.append(outcome_of(zip_parts(parts | {name: bytes(content)})))
    assert sum(map(bool, outcomes)) > 40
    assert all("t.xlsx" in one for one in outcomes if one)


def test_a_damaged_archive_is_read_or_refused_with_the_name_of_the_file():
    rng = np.random.default_rng(1)
    outcomes = []
    for _ in range(100):
        data = bytearray(GOOD)
        for place in rng.integers(0, len(data), rng.integers(1, 6)):
            data[place] = rng.integers(256)
        outcomes.append(outcome_of(bytes(data)))
    assert sum(map(bool, outcomes)) > 20
    assert all("t.xlsx" in one for one in outcomes if one)


def unzip(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zip_parts(parts):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return buffer.getvalue()
