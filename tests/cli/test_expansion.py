"""Files whose content is far larger than they are: refused in one line before the content is unpacked."""

import gzip
import io
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from halfseen._processors import count_memory
from halfseen.config import read_size, show_size
from halfseen.errors import TableError
from halfseen.files import spreadsheet, tables
from halfseen.files.expansion import SHARE, Expansion
from halfseen.files.tables import read_table

REFUSED = r"its content takes .* of memory or more, and 20 MB are allowed; .* raise this by --max-expansion"
LONG = "x" * 1_000_000


def repeated(n_rows=60):
    """A column of one long text, stored once."""
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n_rows), pa.int8()), pa.array([LONG]))
    return pa.table({"x": pa.array(np.arange(n_rows) * 1.0), "s": text})


def nested(n_rows=60):
    values = repeated(n_rows)["s"].combine_chunks()
    return pa.table({"x": np.arange(3.0), "s": pa.ListArray.from_arrays([0, 20, 40, 60], values)})


PARQUET = {
    "dictionary": (repeated, {"store_schema": False}),
    "Arrow dictionary": (repeated, {}),
    "lists of a dictionary": (nested, {"store_schema": False}),
    "prefixes": (
        lambda: pa.table({"s": [LONG + str(row) for row in range(60)]}),
        {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"},
    ),
    "numbers": (lambda: pa.table({"x": np.zeros(5_000_000)}), {}),
    "nulls": (lambda: pa.table({"x": pa.nulls(25_000_000, pa.bool_())}), {}),
}


@pytest.mark.parametrize("kind", PARQUET)
def test_a_parquet_file_with_too_much_content_is_refused_before_it_is_decoded(kind, tmp_path, monkeypatch):
    make, options = PARQUET[kind]
    path = tmp_path / "t.parquet"
    pa.parquet.write_table(make(), path, compression="zstd", **options)
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(tables.pa.parquet, "read_table", lambda buffer: pytest.fail("it was decoded"))
    with pytest.raises(TableError, match=f"t.parquet: {REFUSED}"):
        read_table(str(path), max_expansion="20 MB")


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_an_arrow_file_with_too_much_content_is_refused_before_it_is_decoded(
    compression, tmp_path, monkeypatch
):
    path = tmp_path / "t.feather"
    pa.feather.write_feather(pa.table({"x": np.zeros(5_000_000)}), path, compression=compression)
    assert path.stat().st_size < 1_000_000
    nothing = pa.Array.from_buffers(pa.null(), 2**31 - 1, [None])  # takes no memory
    with pa.ipc.new_stream(tmp_path / "t.arrow", pa.schema([("x", pa.null())])) as writer:
        writer.write_batch(pa.record_batch([nothing], ["x"]))
    monkeypatch.setattr(tables.pa.feather, "read_table", lambda buffer: pytest.fail("it was decoded"))
    for name in ("t.feather", "t.arrow"):
        with pytest.raises(TableError, match=f"{name}: {REFUSED}"):
            read_table(str(tmp_path / name), max_expansion="20 MB")


@pytest.mark.parametrize("kind", [pa.dictionary(pa.int8(), pa.string()), pa.string_view()])
def test_an_arrow_file_whose_values_share_their_text_is_refused(kind, tmp_path):
    table = repeated()
    if kind == pa.string_view():
        once = pa.array([LONG], pa.string_view()).buffers()
        views = pa.py_buffer(once[1].to_pybytes()[:16] * 60)
        table = table.set_column(1, "s", pa.Array.from_buffers(kind, 60, [None, views, *once[2:]]))
    pa.feather.write_feather(table, tmp_path / "t.feather")
    with pytest.raises(TableError, match=f"t.feather: {REFUSED}"):
        read_table(str(tmp_path / "t.feather"), max_expansion="20 MB")


@pytest.mark.parametrize("content", [b"0,0\n" * 600_000, b"x" * 21_000_000], ids=["cells", "one text"])
def test_a_gzip_file_is_unpacked_only_as_far_as_is_allowed(content, tmp_path):
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a,b\n" + content))
    with pytest.raises(TableError, match=f"t.csv.gz: {REFUSED}"):
        read_table(str(tmp_path / "t.csv.gz"), max_expansion="20 MB")


def test_a_workbook_is_refused_by_the_directory_of_its_archive(tmp_path):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", b"<c/>" * 1_000_000)
    (tmp_path / "t.xlsx").write_bytes(packed.getvalue())
    with pytest.raises(TableError, match=f"t.xlsx: {REFUSED}"):
        read_table(str(tmp_path / "t.xlsx"), max_expansion="20 MB")


def test_a_workbook_whose_cells_share_a_long_text_is_refused_before_it_is_copied(tmp_path, monkeypatch):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet()
    for row in [["x", "s"], *([number, "x" * 30_000] for number in range(800))]:
        sheet.append(row)
    book.save(tmp_path / "t.xlsx")
    monkeypatch.setattr(spreadsheet, "read_cells", lambda *arguments: pytest.fail("it was copied"))
    with pytest.raises(TableError, match=f"t.xlsx: {REFUSED}"):
        read_table(str(tmp_path / "t.xlsx"), max_expansion="20 MB")


def test_json_lines_with_a_key_of_its_own_in_each_line_are_refused(tmp_path):
    (tmp_path / "t.jsonl").write_text("".join(f'{{"k{row}": 1}}\n' for row in range(2000)))
    with pytest.raises(TableError, match=f"t.jsonl: {REFUSED}"):
        read_table(str(tmp_path / "t.jsonl"), max_expansion="20 MB")


def test_ordinary_files_are_read_within_the_default_bound_and_the_option_raises_it(call, tmp_path):
    table = repeated().set_column(1, "s", pa.array(["a", "b"] * 30))
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    pa.feather.write_feather(table, tmp_path / "t.feather")
    for name in ("t.parquet", "t.feather"):
        assert read_table(str(tmp_path / name)).table.equals(table)
        code, _, err = call("describe", name, "--max-expansion", "100 B")
        assert code == 2
        assert f"halfseen: error: {name}: its content takes" in err
        assert len(err.splitlines()) == 1
        assert call("describe", name, "--max-expansion", "1 MB")[0] == 0
    code, _, err = call("describe", "t.parquet", "--max-expansion", "much")
    assert code == 2
    assert "--max-expansion 'much' is not a size such as '8 GB'" in err


def test_the_default_bound_is_a_share_of_the_memory_that_the_cgroups_grant(tmp_path):
    assert Expansion.of("t", None).limit == count_memory() // SHARE
    machine = count_memory(tmp_path)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("4:memory:/a/b\n0::/c\n")
    for path, text in {
        "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712",
        "sys/fs/cgroup/memory.max": "max",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"{text}\n")
    assert count_memory(tmp_path) == machine
    (tmp_path / "sys/fs/cgroup/memory/a/memory.limit_in_bytes").write_text("1000000\n")
    assert count_memory(tmp_path) == 1_000_000
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("5000\n")
    assert count_memory(tmp_path) == 5000


@pytest.mark.parametrize(
    ("size", "n_bytes"), [("8 GB", 8 * 10**9), ("1.5GiB", 3 * 2**29), ("70", 70), (5, 5)]
)
def test_sizes_are_read(size, n_bytes):
    assert read_size(size) == n_bytes
    assert read_size(show_size(n_bytes)) == pytest.approx(n_bytes, rel=0.05)


@pytest.mark.parametrize("size", ["8 XB", "-1 GB", "0", "", True])
def test_what_is_no_size_is_refused(size):
    with pytest.raises(ValueError, match="A size is a number of bytes or a text such as '512 MiB'"):
        read_size(size)
