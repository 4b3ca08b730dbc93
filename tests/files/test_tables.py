"""Reading and writing table files: what was observed comes back as it was written."""

import csv
import gzip
import io
import os
import string

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from halfseen.files.dialect import cut_rows, parse_delimiter, sniff_delimiter
from halfseen.files.formats import Style, format_cells
from halfseen.files.missing_codes import MISSING_WORDS
from halfseen.files.recognition import read_columns
from halfseen.files.rules import Rules
from halfseen.files.tables import DEFAULT_NULLS, TableError, read_table
from halfseen.files.writing import check_output, write_tables


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def rows_of(path, delimiter=",", encoding="utf-8"):
    with open(path, newline="", encoding=encoding) as file:
        return list(csv.reader(file, delimiter=delimiter))


def fill(table):
    """Fills each missing cell with the first observed value of its column."""
    columns = [
        pc.fill_null(column, column.drop_null()[0]) if 0 < column.null_count < len(column) else column
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)


def parse(cells, delimiter=","):
    """What becomes of one column."""
    return read_columns(pa.table({"x": pa.array(cells, pa.large_string())}), Rules(), delimiter)["x"]


def types_of(file):
    return [str(dtype) for dtype in file.table.schema.types]


# ------------------------------------------------------------------------------------------ text is kept

CELLS = st.one_of(
    st.sampled_from(
        ["39.10", "007", "1e5", "-0", "+3", " 4", "TRUE", "2020-01-31", "5,5", 'a"b', "x\ny", *DEFAULT_NULLS]
    ),
    st.sampled_from(
        [
            "$5",
            "($1,577)",
            "1.577,37",
            "<0.05",
            ">= 7",
            "12 %",
            "72.9 kg",
            "28.05.2021",
            "05/28/2021 3:45 PM",
            "May 28, 2021",
            "28-Foo-2021",
            "99/99/9999",
            "(5",
            "1.2.3",
            "5 x",
            "Fr. 5",
            "\u202f",
            *MISSING_WORDS[:14],
        ]
    ),
    st.text(alphabet=string.ascii_letters + string.digits + " ,;|\t\"'.\n-é€", max_size=6),
    st.integers().map(str),
    st.floats(allow_nan=False).map(repr),
)


@st.composite
def text_tables(draw):
    width = draw(st.integers(1, 4))
    rows = draw(st.lists(st.lists(CELLS, min_size=width, max_size=width), min_size=1, max_size=8))
    return [[f"name {place}" for place in range(width)], *rows]


@settings(max_examples=60, deadline=None)
@given(
    rows=text_tables(),
    delimiter=st.sampled_from([",", ";", "\t", "|"]),
    newline=st.sampled_from(["\n", "\r\n"]),
)
@example(rows=[["name 0"], ["1"], [""], ["2"]], delimiter=",", newline="\n")
def test_the_text_of_every_observed_cell_comes_back_as_it_was(tmp_path_factory, rows, delimiter, newline):
    folder = tmp_path_factory.mktemp("round")
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter, lineterminator=newline).writerows(rows)
    file = read_table(write(folder / "in.csv", text.getvalue()), delimiter=delimiter)
    write_tables([fill(file.table)], str(folder / "out.csv"), file)
    back = rows_of(folder / "out.csv", delimiter)
    assert back[0] == rows[0]
    assert len(back) == len(rows)
    for before, after in zip(rows[1:], back[1:], strict=True):
        for old, new in zip(before, after, strict=True):
            assert new == old or old.strip() in DEFAULT_NULLS or old.strip().lower() in MISSING_WORDS


def test_a_file_without_special_cells_comes_back_byte_for_byte(tmp_path):
    content = "id,when,x,flag\r\n007,2020-01-31,39.10,TRUE\r\n012,2021-02-28,1e5,FALSE\r\n"
    file = read_table(write(tmp_path / "a.csv", content))
    write_tables([file.table], str(tmp_path / "b.csv"), file)
    assert (tmp_path / "b.csv").read_bytes() == content.encode()
    assert types_of(file) == ["string", "date32[day]", "double", "bool"]
    assert "begin with 0" in file.notes[0]


def test_a_null_text_that_stays_missing_keeps_its_spelling(tmp_path):
    file = read_table(write(tmp_path / "a.csv", "x,y\n1,NA\n2,?\n"))
    write_tables([file.table], str(tmp_path / "b.csv"), file)
    assert (tmp_path / "b.csv").read_text() == "x,y\n1,NA\n2,?\n"


@pytest.mark.parametrize(
    ("encoding", "found"),
    [
        ("utf-8", "utf-8"),
        ("utf-8-sig", "utf-8-sig"),
        ("utf-16", "utf-16"),
        ("latin-1", "cp1252"),
        ("cp1252", "cp1252"),
    ],
)
def test_encodings_are_found_and_kept(tmp_path, encoding, found):
    content = "stadt;größe\nKöln;1\nNîmes;\n"
    file = read_table(write(tmp_path / "a.csv", content.encode(encoding)))
    assert file.dialect.encoding == found
    assert file.table.column_names == ["stadt", "größe"]
    assert bool(file.notes) == (found == "cp1252")
    write_tables([fill(file.table)], str(tmp_path / "b.csv"), file)
    assert (tmp_path / "b.csv").read_bytes() == (content[:-1] + "1\n").encode(encoding)


def test_a_given_encoding_is_used(tmp_path):
    path = write(tmp_path / "a.csv", "имя,x\nЖ,1\n".encode("koi8-r"))
    assert read_table(path, encoding="koi8-r").table.column_names == ["имя", "x"]
    with pytest.raises(TableError, match="unknown encoding 'klingon'"):
        read_table(path, encoding="klingon")
    with pytest.raises(TableError, match=r"not valid utf-8 \(byte 0\)"):
        read_table(path, encoding="utf-8")


# ------------------------------------------------------------------------------------------ delimiters


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|", "^", "~", ":", "\x1f"])
def test_delimiters_are_found(tmp_path, delimiter):
    lines = [delimiter.join(row) for row in (["a", "b", "c"], ["1", "2", ""], ["3", "4", "5"])]
    file = read_table(write(tmp_path / "a.csv", "\n".join(lines)))
    assert file.dialect.delimiter == delimiter
    assert file.table.shape == (2, 3)


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("a;b\n1,5;2,5\n3,0;4,0\n", ";"),
        ('a,b\n"x;y;z",1\n"u;v;w",2\n', ","),
        ("time,x\n12:30,1\n13:45,2\n", ","),
        ("time\n12:30\n13:45\n", None),
        ("city\nNew York\nSan Jose\n", None),
        ("a b c\n1 2 3\n4 5 6\n", " "),
        ("a,b,c\n1,2,3\n4,5\n", ","),
    ],
)
def test_the_sniffer_is_not_fooled(text, delimiter):
    assert sniff_delimiter(text) == delimiter


LONG = 140_000  # characters: more than the csv module accepts in a cell, and than the sample of a file has
ROWS = ["1{d}2", "{d}3", "4{d}5", "3{d}3"]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize(
    ("name", "above"),
    [("b" * LONG, ""), ("b" * LONG, "# made by a program{n}"), ('"b{d} ""' + "c{n}" * LONG + '"', "")],
    ids=["one name", "below a comment", "quoted with line ends"],
)
def test_a_header_of_any_length_comes_back_as_it_was(tmp_path, name, above, delimiter, newline):
    lines = [f"a{{d}}{name}", *ROWS, ""]
    text = (above + newline.join(lines)).replace("{d}", delimiter).replace("{n}", newline)
    source, target = tmp_path / "a.csv", tmp_path / "b.csv"
    source.write_bytes(text.encode())
    file = read_table(str(source))
    assert file.table.shape == (4, 2)
    assert file.table.columns[0].to_pylist() == [1, None, 4, 3]
    write_tables([file.table], str(target), file)
    assert target.read_bytes() == source.read_bytes()


def test_a_header_with_many_names_comes_back_as_it_was(tmp_path):
    names = [f"{'column ' * 40}{place:05d}" for place in range(500)]
    rows = [",".join(str(place * row % 7) for place in range(500)) for row in (1, 2, 3)]
    source, target = tmp_path / "a.csv", tmp_path / "b.csv"
    source.write_text("\n".join([",".join(names), *rows, ""]))
    file = read_table(str(source))
    assert file.table.column_names == names
    write_tables([file.table], str(target), file)
    assert target.read_bytes() == source.read_bytes()


def test_a_row_of_the_wrong_width_below_a_long_header_is_named(tmp_path):
    (tmp_path / "a.csv").write_text(f"a,{'b' * LONG}\n1,2\n,3,4\n4,5\n")
    with pytest.raises(TableError, match=r"line 3 has 3 cells, the header has 2 \(delimiter: comma\)"):
        read_table(str(tmp_path / "a.csv"))


def test_a_row_that_is_longer_than_a_block_of_the_parser_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("halfseen.files.csv_tables.BLOCK", 1 << 12)
    (tmp_path / "a.csv").write_text(f"a,{'b' * LONG}\n1,2\n,3\n4,{'c' * LONG}\n")
    assert read_table(str(tmp_path / "a.csv")).table["a"].to_pylist() == [1, None, 4]


@settings(max_examples=80, deadline=None)
@given(
    rows=st.lists(
        st.lists(st.text('ab",; \n\r', max_size=5), min_size=1, max_size=4), min_size=1, max_size=4
    ),
    delimiter=st.sampled_from(",;"),
    newline=st.sampled_from(["\n", "\r\n"]),
)
def test_rows_with_long_cells_are_cut_as_the_csv_module_cuts_others(rows, delimiter, newline):
    buffer = io.StringIO(newline="")
    csv.writer(buffer, delimiter=delimiter, lineterminator=newline).writerows(rows)
    text = buffer.getvalue()
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    expected = [(reader.line_num, row) for row in reader]
    ends = [line for line, _ in expected]
    cut = list(cut_rows(text, delimiter))
    assert [row for _, row in cut] == [row for _, row in expected]
    assert [line for line, _ in cut] == [1, *(end + 1 for end in ends[:-1])]


def test_words_for_delimiters():
    assert [parse_delimiter(word) for word in ("tab", "\\t", "comma", ";")] == ["\t", "\t", ",", ";"]
    for bad in ("", "ab", '"', "é"):
        with pytest.raises(TableError, match="one ASCII character"):
            parse_delimiter(bad)


def test_a_tsv_gets_tabs_and_a_csv_made_of_a_tsv_gets_commas(tmp_path):
    file = read_table(write(tmp_path / "a.csv", "a;b\n1;x,y\n"))
    write_tables([file.table], str(tmp_path / "b.tsv"), file)
    assert (tmp_path / "b.tsv").read_text() == "a\tb\n1\tx,y\n"
    again = read_table(str(tmp_path / "b.tsv"))
    write_tables([again.table], str(tmp_path / "c.csv"), again)
    assert (tmp_path / "c.csv").read_text() == 'a,b\n1,"x,y"\n'


# ------------------------------------------------------------------------------------------ types and styles


@pytest.mark.parametrize(
    ("cells", "dtype"),
    [
        (["1", "", "+3", "-4"], "int64"),
        (["1", "2.5", ".5", "1e-3"], "double"),
        (["1", "inf"], "double"),
        (["true", "FALSE"], "bool"),
        (["2020-02-29", ""], "date32[day]"),
        (["2020-02-30", ""], "string"),
        (["2020-02-29 10:00", "2020-02-29 10:00:01.5"], "timestamp[us]"),
        (["2020-02-29T10:00Z", "2020-02-29T10:00+02:00"], "timestamp[us, tz=UTC]"),
        (["007", "12"], "string"),
        (["123456789012345678901234567890", "1"], "string"),
        (["1", "x"], "string"),
        (["yes", "no"], "string"),
        (["", "NA"], "double"),
        ([" 1", "2 "], "int64"),
    ],
)
def test_types_are_found(cells, dtype):
    typed = parse(cells).typed
    assert str(typed.type) == dtype
    assert typed.null_count == sum(cell.strip() in DEFAULT_NULLS for cell in cells)


def test_decimal_commas_are_read_and_written(tmp_path):
    file = read_table(write(tmp_path / "a.csv", "x;y\n1,25;1\n3,75;\n;2\n"))
    assert file.table["x"].to_pylist() == [1.25, 3.75, None]
    assert "decimal commas" in file.notes[0]
    write_tables([fill(file.table)], str(tmp_path / "b.csv"), file)
    assert (tmp_path / "b.csv").read_text() == "x;y\n1,25;1\n3,75;1\n1,25;2\n"


def spell(cells, values, delimiter=","):
    column = parse(cells, delimiter)
    return format_cells(pa.array(values, column.typed.type), column.style).to_pylist()


@pytest.mark.parametrize(
    ("cells", "values", "texts"),
    [
        (["39.10", "40.25"], [41.23456, 7.0, -0.5], ["41.23", "7.00", "-0.50"]),
        (["181.0", "190.0"], [200.91], ["200.9"]),
        (["0.30000000000000004", "1.7", "5.25"], [1 / 3], ["0.33333"]),
        (["1e5", "2.5e6"], [1234567.891], ["1.23457e+06"]),
        (["0.01", "0.02"], [0.001234, 0.0, -0.0], ["0.0012", "0.00", "0.00"]),
        (["3", "4"], [5], ["5"]),
        (["True", "False", "False"], [True, False], ["True", "False"]),
        (["TRUE"], [True, False], ["TRUE", "FALSE"]),
        (["true", "True", "True", "false"], [True, False], ["True", "false"]),
        (["2020-01-01"], [18262], ["2020-01-01"]),
        (["2020-01-01T10:00"], [1577872800_000000], ["2020-01-01T10:00"]),
        (["2020-01-01 10:00:00"], [1577872800_900000], ["2020-01-01 10:00:00"]),
        (["2020-01-01 10:00:00.250"], [1577872800_900000], ["2020-01-01 10:00:00.900"]),
        (["2020-01-01T10:00:00Z"], [1577872800_000000], ["2020-01-01T10:00:00Z"]),
        (["2020-01-01T10:00:00+02:00"], [1577872800_000000], ["2020-01-01T12:00:00+02:00"]),
    ],
)
def test_filled_cells_are_written_like_their_neighbours(cells, values, texts):
    if texts[0].startswith("1.23457"):
        assert [float(text) for text in spell(cells, values)] == [1234570.0]
    else:
        assert spell(cells, values) == texts


@given(st.floats(-1e9, 1e9), st.integers(0, 6))
def test_fixed_decimals_agree_with_python(value, decimals):
    text = format_cells(pa.array([value]), Style("float", decimals=decimals))[0].as_py()
    if abs(value) * 10**decimals >= 1:
        assert abs(float(text) - value) <= 0.5000001 * 10.0**-decimals + 1e-15 * abs(value)
        assert len(text.partition(".")[2]) == decimals


@pytest.mark.parametrize("value", [5e-324, 1.23e-320, 4.5678e-310, 2.2e-308, -1e-315])
def test_the_smallest_numbers_do_not_become_zero_by_rounding(value):
    for style in (Style("float"), Style("float", decimals=2)):
        assert float(format_cells(pa.array([value]), style)[0].as_py()) == pytest.approx(value, rel=0.1)


@given(st.floats(allow_nan=False, allow_infinity=False), st.none() | st.integers(0, 12))
def test_no_float_is_written_with_many_digits_or_loses_its_sign(value, decimals):
    text = format_cells(pa.array([value]), Style("float", decimals=decimals))[0].as_py()
    if value:
        assert np.sign(float(text)) == np.sign(value)
    mantissa = text.lower().partition("e")[0].lstrip("-").replace(".", "").strip("0")
    assert len(mantissa) <= 17


# ------------------------------------------------------------------------------------------ nulls


def test_null_texts_can_be_added_and_the_defaults_left_out(tmp_path):
    path = write(tmp_path / "a.csv", "x,y\n1,NA\n-99,b\n3,\n")
    assert read_table(path).n_missing == 2
    assert read_table(path, null=["-99"]).table["x"].to_pylist() == [1, None, 3]
    bare = read_table(path, default_nulls=False)
    assert bare.table["y"].to_pylist() == ["NA", "b", None]


# ------------------------------------------------------------------------------------------ formats


@pytest.mark.parametrize("name", ["b.parquet", "b.feather", "b.arrow", "b.csv", "b.csv.gz", "b.tsv"])
def test_formats_go_round(tmp_path, name):
    file = read_table(write(tmp_path / "a.csv", "x,s,b\n1.50,u,true\n,v,\n2.25,,false\n"))
    write_tables([fill(file.table)], str(tmp_path / name), file)
    back = read_table(str(tmp_path / name))
    assert back.table.to_pydict() == fill(file.table).to_pydict()
    assert (tmp_path / name).read_bytes().startswith(b"\x1f\x8b") == name.endswith(".gz")


def test_gzip_output_does_not_depend_on_the_clock(tmp_path):
    file = read_table(write(tmp_path / "a.csv", "x,y\n1,2\n"))
    write_tables([file.table], str(tmp_path / "b.csv.gz"), file)
    assert (tmp_path / "b.csv.gz").read_bytes()[4:8] == bytes(4)


def test_gzip_is_known_by_its_content(tmp_path):
    assert read_table(write(tmp_path / "a.csv", gzip.compress(b"x,y\n1,2\n"))).table.shape == (1, 2)


def test_an_arrow_stream_is_read(tmp_path):
    sink = pa.BufferOutputStream()
    table = pa.table({"x": [1, None]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    assert read_table(write(tmp_path / "a.arrow", sink.getvalue().to_pybytes())).table.equals(table)


def test_parquet_to_csv_spells_values_out(tmp_path):
    when = pa.array([0, None, 86_400], pa.timestamp("s"))
    label = pa.array(["u", None, "v"]).dictionary_encode()
    pa.parquet.write_table(
        pa.table({"x": [1.5, None, 2.25], "when": when, "s": label}), tmp_path / "a.parquet"
    )
    file = read_table(str(tmp_path / "a.parquet"))
    filled = pa.table({"x": [1.5, 3.14159, 2.25], "when": pc.fill_null(when, when[2]), "s": ["u", "u", "v"]})
    write_tables([filled], str(tmp_path / "b.csv"), file)
    assert rows_of(tmp_path / "b.csv")[1:] == [
        ["1.5", "1970-01-01 00:00:00", "u"],
        ["3.14", "1970-01-02 00:00:00", "u"],
        ["2.25", "1970-01-02 00:00:00", "v"],
    ]


def test_draws_are_stacked_and_numbered(tmp_path):
    file = read_table(write(tmp_path / "a.csv", "x\n1\n\n"))
    draws = [pa.table({"x": [1, value]}) for value in (5, 6)]
    write_tables(draws, str(tmp_path / "b.csv"), file, draw="draw")
    assert rows_of(tmp_path / "b.csv") == [["draw", "x"], ["1", "1"], ["1", "5"], ["2", "1"], ["2", "6"]]
    write_tables(draws, str(tmp_path / "b.parquet"), file, draw="draw")
    assert read_table(str(tmp_path / "b.parquet")).table.to_pydict() == {
        "draw": [1, 1, 2, 2],
        "x": [1, 5, 1, 6],
    }


# ------------------------------------------------------------------------------------------ refusals

BAD_FILES = {
    "empty.csv": (b"", "the file is empty"),
    "blank.csv": (b"\n \n", "the file is empty"),
    "header.csv": (b"a,b\n", "a header but no rows"),
    "ragged.csv": (b"a,b\n1,2\n3\n", "line 3 has 1 cell, the header has 2"),
    "wide.csv": (b'a,b\n"x\ny",2\n3,4,5\n', "line 4 has 3 cells, the header has 2"),
    "mixed.csv": (b"a,b\n1;2\n3;4\n", "seems to use a semicolon"),
    "twice.csv": (b"a,b,a\n1,2,3\n", "columns 1 and 3 are both called 'a'"),
    "nul.csv": (b"a,b\n1,\x00\n", "NUL byte"),
    "junk.csv": (bytes(range(1, 256)) * 4, "not a text table"),
    "picture.csv": (b"\x89PNG\r\n\x1a\n" + bytes(40), "not a text table but a PNG image"),
    "control.csv": (b"a,b\n\x01\x02,\x03\n", "control characters"),
    "quote.csv": (b'a,b\n1,2\n3,"open\n4,5\n', "quote opened in line 3 is never closed"),
    "cut.csv.gz": (gzip.compress(b"a,b\n" + b"1,2\n" * 1000)[:-12], "gzip file is truncated"),
    "broken.csv.gz": (b"\x1f\x8b\x08\x00" + bytes(6) + b"\xff" * 40, "gzip file is damaged"),
    "plain.csv.gz": (b"a,b\n1,2\n", "the content is not gzip"),
    "parquet.csv": (b"PAR1" + bytes(20), "use --from parquet"),
    "sheet.csv": (b"PK\x03\x04" + bytes(20), "spreadsheet"),
    "bad.parquet": (b"PAR1junkPAR1", "not a readable parquet file"),
    "bad.feather": (b"ARROW1junk", "not a readable feather file"),
    "table.xls": (b"PK", "unknown extension '.xls'"),
    "table": (b"a,b\n1,2\n", "no extension"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_are_refused_in_one_line(tmp_path, name):
    content, reason = BAD_FILES[name]
    path = write(tmp_path / name, content)
    with pytest.raises(TableError, match=reason.replace("(", r"\(")) as caught:
        read_table(path)
    assert str(caught.value).startswith(path)
    assert len(str(caught.value).splitlines()) == 1


def test_a_wrong_delimiter_is_refused_with_a_hint(tmp_path):
    path = write(tmp_path / "a.csv", "a,b\n1,2\n")
    with pytest.raises(TableError, match="with a semicolon every line is one cell, a comma would fit"):
        read_table(path, delimiter=";")


def test_missing_files_and_directories_are_refused(tmp_path):
    with pytest.raises(TableError, match="no such file"):
        read_table(str(tmp_path / "none.csv"))
    with pytest.raises(TableError, match="this is a directory"):
        read_table(str(tmp_path))


@pytest.mark.parametrize(
    "cells", [[[1], None], [{"a": 1}, None], [b"1", None]], ids=["list", "struct", "bytes"]
)
def test_cells_that_a_csv_cannot_hold_are_refused_there_and_written_elsewhere(tmp_path, cells):
    table = pa.table({"x": cells})
    for name, write in {"a.parquet": pa.parquet.write_table, "a.feather": pa.feather.write_feather}.items():
        write(table, tmp_path / name)
        file = read_table(str(tmp_path / name))
        assert file.table.equals(table)
        write_tables([table], str(tmp_path / f"out_{name}"), file)
        assert read_table(str(tmp_path / f"out_{name}")).table.equals(table)
    with pytest.raises(
        TableError, match=r"column 'x' has the type .*, which a csv file cannot store; write parquet or"
    ):
        write_tables([table], str(tmp_path / "out.csv"), file)
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("none/b.csv", "does not exist"),
        ("a.csv/b.csv", "is not a directory"),
        ("folder.csv", "this is a directory"),
        ("b.xyz", "unknown extension"),
        ("b.parquet.gz", "only csv is written through gzip"),
    ],
)
def test_outputs_that_cannot_be_written_are_refused(tmp_path, name, reason):
    write(tmp_path / "a.csv", "x\n1\n")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(TableError, match=reason):
        check_output(str(tmp_path / name))


# ------------------------------------------------------------------------------------------ atomic


def test_a_failed_write_leaves_nothing_and_keeps_the_old_file(tmp_path, monkeypatch):
    file = read_table(write(tmp_path / "a.csv", "x\n1\n2\n"))

    def tables():
        yield file.table
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_tables(tables(), str(tmp_path / "a.csv"), file)
    assert os.listdir(tmp_path) == ["a.csv"]
    assert (tmp_path / "a.csv").read_text() == "x\n1\n2\n"

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(TableError, match="no space left on device"):
        write_tables([file.table], str(tmp_path / "b.csv"), file)
    assert os.listdir(tmp_path) == ["a.csv"]


def test_a_file_may_be_replaced_by_its_own_result_and_keeps_its_mode(tmp_path):
    path = write(tmp_path / "a.csv", "x,y\n1,2\n,3\n")
    os.chmod(path, 0o640)
    file = read_table(path)
    write_tables([fill(file.table)], path, file)
    assert (tmp_path / "a.csv").read_text() == "x,y\n1,2\n1,3\n"
    assert os.stat(path).st_mode & 0o777 == 0o640
