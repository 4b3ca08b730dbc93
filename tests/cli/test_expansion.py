"""Files whose content is far larger than they are: refused in one line before the content is unpacked."""

import gzip
import io
import itertools
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from halfseen._machine import count_memory
from halfseen.config import read_size, show_size
from halfseen.errors import TableError
from halfseen.files import spreadsheet, tables
from halfseen.files.expansion import SHARE, Expansion
from halfseen.files.parquet_pages import count_prefixes, iterate_pages
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
    "prefixes in a list": (
        lambda: pa.table({"s": [[LONG + str(row) for row in range(60)]]}),
        {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"},
    ),
    "prefixes in structures in lists, second version": (
        lambda: pa.table({"s": [None, [{"t": LONG + str(row)} for row in range(60)], []]}),
        {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY", "data_page_version": "2.0"},
    ),
    "numbers": (lambda: pa.table({"x": np.zeros(5_000_000)}), {}),
    "truth values in lists": (
        lambda: pa.table({"s": [[None] * 1_000_000]}, pa.schema([("s", pa.list_(pa.bool_()))])),
        {},
    ),
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


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
def test_the_lengths_of_prefixes_are_those_of_the_texts(compression, version):
    rng = np.random.default_rng(0)
    texts = sorted("x" * rng.integers(200) + str(rng.integers(10**6)) for _ in range(5000))
    column = pa.array([texts[: 4000 - 1], None, [], [*texts[4000:], None]])
    file = io.BytesIO()
    pa.parquet.write_table(
        pa.table({"s": column}), file, compression=compression, use_dictionary=False,
        column_encoding="DELTA_BYTE_ARRAY", data_page_version=version, data_page_size=20_000,
    )  # fmt: skip
    data = file.getvalue()
    held = pa.parquet.ParquetFile(file).metadata.row_group(0).column(0)
    pages = list(iterate_pages(memoryview(data), held.data_page_offset, held.total_compressed_size))
    assert sum(page.n_values for page in pages) == held.num_values
    assert sum(page.n_bytes for page in pages) <= held.total_uncompressed_size
    counted = sum(count_prefixes(page, held.compression, (1, 3)) for page in pages)
    values = texts[:3999] + texts[4000:]
    shared = [
        sum(itertools.takewhile(bool, (a == b for a, b in zip(*pair, strict=False))))
        for pair in itertools.pairwise(values)
    ]
    starts = sum(shared) - counted  # the first text of each page has no prefix
    assert 0 <= starts <= 210 * (len(pages) - 1)


def test_a_parquet_file_whose_footer_states_other_encodings_and_sizes_is_refused(tmp_path):
    file = io.BytesIO()
    pa.parquet.write_table(
        pa.table({"s": [LONG + str(row) for row in range(60)]}), file, compression="zstd",
        use_dictionary=False, column_encoding="DELTA_BYTE_ARRAY",
    )  # fmt: skip
    data = file.getvalue()
    length = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - length : -8]
    assert footer.count(bytes([0x19, 0x25, 6, 14])) == 1  # the list of encodings: RLE and DELTA_BYTE_ARRAY
    footer = footer.replace(bytes([0x19, 0x25, 6, 14]), bytes([0x19, 0x25, 6, 0]))  # RLE and PLAIN
    (tmp_path / "t.parquet").write_bytes(data[: -8 - length] + footer + data[-8:])
    assert pa.parquet.ParquetFile(tmp_path / "t.parquet").read().nbytes > 60_000_000
    with pytest.raises(TableError, match=f"t.parquet: {REFUSED}"):
        read_table(str(tmp_path / "t.parquet"), max_expansion="20 MB")


def forge_footer(data, shift=8):
    """Return an Arrow file whose stream ends before its first batch, while the footer lists the batch."""
    stream = pa.py_buffer(data).slice(8)
    source = pa.BufferReader(stream)
    pa.ipc.read_message(source)
    first = 8 + source.tell()
    length = int.from_bytes(data[-10:-6], "little")
    content, footer = data[: -10 - length], data[-10 - length :]
    assert footer.count(struct.pack("<q", first)) == 1
    footer = footer.replace(struct.pack("<q", first), struct.pack("<q", first + shift))
    return content[:first] + b"\xff\xff\xff\xff\0\0\0\0" + content[first:] + footer


def test_an_arrow_file_whose_footer_lists_batches_outside_of_its_stream_is_refused(tmp_path, call):
    file = io.BytesIO()
    table = pa.table({"x": np.zeros(5_000_000)})
    pa.feather.write_feather(table, file, compression="zstd", chunksize=len(table))
    data = forge_footer(file.getvalue())
    assert pa.feather.read_table(pa.BufferReader(data)).num_rows == 5_000_000
    (tmp_path / "t.feather").write_bytes(data)
    code, _, err = call("describe", "t.feather", "--max-expansion", "20 MB")
    assert code == 2
    assert "t.feather: its content takes 45 MB of memory or more" in err
    assert len(err.splitlines()) == 1


def test_an_arrow_file_whose_footer_points_outside_of_it_is_refused(tmp_path):
    file = io.BytesIO()
    pa.feather.write_feather(pa.table({"x": np.zeros(50)}), file)
    data = forge_footer(file.getvalue(), shift=10**9)
    (tmp_path / "t.feather").write_bytes(data)
    with pytest.raises(TableError, match="the footer points outside of the file"):
        read_table(str(tmp_path / "t.feather"))


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_files_of_polars_are_read_though_they_contain_no_stream(compression, tmp_path):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"x": [1.0, None, 3.0], "s": ["a", None, "c"], "n": [1, 2, 3]})
    frame.write_ipc(tmp_path / "t.arrow", compression=compression, compat_level=polars.CompatLevel.oldest())
    table = read_table(str(tmp_path / "t.arrow")).table
    assert table.to_pydict() == frame.to_dict(as_series=False)
    with pytest.raises(TableError, match=r"t.arrow: its content takes"):
        read_table(str(tmp_path / "t.arrow"), max_expansion="50 B")


def test_dictionaries_that_grow_from_batch_to_batch_are_counted_once_for_each(tmp_path):
    kind = pa.dictionary(pa.int32(), pa.string())
    levels = ["x" * 1000 + str(level) for level in range(400)]
    options = pa.ipc.IpcWriteOptions(compression="zstd", emit_dictionary_deltas=True)
    with pa.ipc.new_stream(tmp_path / "t.arrow", pa.schema([("s", kind)]), options=options) as writer:
        for n_levels in range(4, 401, 4):
            one = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), pa.array(levels[:n_levels]))
            writer.write_batch(pa.record_batch([one], ["s"]))
    assert read_table(str(tmp_path / "t.arrow"), max_expansion="40 MB").table.num_rows == 100
    with pytest.raises(TableError, match=r"t.arrow: its content takes"):
        read_table(str(tmp_path / "t.arrow"), max_expansion="10 MB")


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
    for name in ("open_stream", "open_file"):
        monkeypatch.setattr(pa.ipc, name, lambda buffer: pytest.fail("it was decoded"))
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


@pytest.mark.parametrize(
    "content",
    [b"0,0\n" * 600_000, b"x" * 21_000_000, b"0,0\n" * 9 + b"x" * 2_500_000 + b"\n" + b"0,0\n" * 9],
    ids=["cells", "one text", "one long line"],
)
def test_a_gzip_file_is_unpacked_only_as_far_as_is_allowed(content, tmp_path):
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a,b\n" + content))
    with pytest.raises(TableError, match=f"t.csv.gz: {REFUSED}"):
        read_table(str(tmp_path / "t.csv.gz"), max_expansion="20 MB")


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peaks are measured on Linux only")
def test_reading_takes_less_than_the_memory_of_which_content_may_take_an_eighth(tmp_path):
    limit = 20_000_000
    script = Path(__file__).parents[1] / "files" / "expansion_peak.py"
    command = [sys.executable, script, str(limit), str(tmp_path)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = [line.split("\t") for line in out.splitlines()]
    assert {answer for _, answer, _ in found} == {"read", "refused"}
    too_much = {(kind, answer): int(peak) for kind, answer, peak in found if int(peak) > 7 * limit}
    assert not too_much


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
    assert Expansion("t").limit == count_memory() // SHARE
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
