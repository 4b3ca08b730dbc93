"""A scan reads the same rows whatever the files, row groups and formats, and names the file of an error."""

import itertools
import pickle
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

import halfseen
from halfseen.data import incomplete as blocks
from halfseen.data import scan_files
from halfseen.data.scan import _match
from halfseen.data.scan_files import inspect_file
from halfseen.errors import TableError

N = 1000


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    numbers = pa.array(rng.normal(size=N), mask=rng.random(N) < 0.2)
    whole = pa.array(rng.integers(-5, 5, N), mask=rng.random(N) < 0.1)
    texts = pa.array(rng.choice(["x", "y, z", 'a "quote"', "two\nlines"], N), mask=rng.random(N) < 0.1)
    return pa.table({"a": numbers, "b": whole, "c": texts})


def write_parts(table, folder, cuts, write):
    folder.mkdir()
    for number, (low, high) in enumerate(pairwise(cuts)):
        write(table.slice(low, high - low), folder, number)
    return folder


def write_parquet(table, folder, number):
    pq.write_table(table, folder / f"f{number}.parquet", row_group_size=37)


def write_feather(table, folder, number):
    pa.feather.write_feather(table, folder / f"f{number}.feather", chunksize=41)


def write_csv(table, folder, number):
    pa.csv.write_csv(table, folder / f"f{number}.csv")


@pytest.mark.parametrize("write", [write_parquet, write_feather, write_csv])
@pytest.mark.parametrize("cuts", [[0, N], [0, 0, 1, 500, 501, N]])
def test_rows_are_read_whatever_the_files_and_formats(table, tmp_path, monkeypatch, write, cuts):
    monkeypatch.setattr(scan_files, "TEXT_IN_PIECE", 777)
    monkeypatch.setattr(blocks, "MOST_ROWS", 256)
    scan = halfseen.scan(write_parts(table, tmp_path / "in", cuts, write))
    assert scan.n_rows == N
    assert scan.schema.equals(table.schema)
    assert scan.read().equals(table)
    assert scan.read(499, 777).equals(table.slice(499, 278))
    assert scan.read(3, 3).num_rows == 0
    found = list(scan.blocks())
    assert [start for start, _ in found] == [0, 256, 512, 768]
    assert [one.num_rows for _, one in found] == [256, 256, 256, 232]
    assert pa.concat_tables([one for _, one in found]).equals(table)
    assert pa.concat_tables([one for _, one in scan.blocks(512, 768, n_rows=100)]).equals(
        table.slice(512, 256)
    )
    assert pickle.loads(pickle.dumps(scan)).read(5, 9).equals(table.slice(5, 4))


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("a\n1\n2\n3\n", [pa.int64()]),
        ("a\n1\n\n2\n3.5\n", [pa.float64()]),
        ("a\r\n1\r\n2\r\nNA\r\n", [pa.int64()]),
        ("\ufeffa;b\n1;x\n2;3\n", [pa.int64(), pa.string()]),
        ("a,b\n1,2021-01-01\n,\n", [pa.int64(), pa.date32()]),
        ("a,b\n1,2021-01-01\n,never", [pa.int64(), pa.string()]),
        ('"a\nb",c\n1,"x\n\ny"\n2,z\n', [pa.int64(), pa.string()]),
    ],
)
def test_the_types_of_a_csv_are_those_of_all_its_cells_whatever_the_pieces(
    tmp_path, monkeypatch, text, types
):
    (tmp_path / "f.csv").write_bytes(text.encode())
    whole = halfseen.scan(tmp_path / "f.csv")
    monkeypatch.setattr(scan_files, "TEXT_IN_PIECE", 3)
    pieces = halfseen.scan(tmp_path / "f.csv")
    assert whole.schema.types == types
    assert pieces.schema == whole.schema
    assert len(pieces.parts[0].piece_rows) > 1
    assert pieces.read().equals(whole.read())
    assert pieces.parts[0].digest == whole.parts[0].digest


def test_a_sample_depends_on_the_numbers_of_rows_only(table, tmp_path):
    one = halfseen.scan(write_parts(table, tmp_path / "one", [0, N], write_parquet))
    two = halfseen.scan(write_parts(table, tmp_path / "two", [0, 7, 600, N], write_feather))
    sample = one.sample(300)
    assert sample.equals(two.sample(300))
    assert 240 < sample.num_rows < 360
    assert not sample.equals(one.sample(300, random_state=1))
    assert one.sample(N).equals(table)


def test_ids_are_numbers_of_rows_or_a_column(table, tmp_path):
    folder = write_parts(
        table.append_column("id", pa.array(range(N, 2 * N))), tmp_path / "in", [0, N], write_csv
    )
    scan = halfseen.scan(folder)
    assert scan.row_ids(7, scan.read(7, 10)).tolist() == [7, 8, 9]
    scan = halfseen.scan(folder, row_id="id")
    assert scan.row_ids(7, scan.read(7, 10)).tolist() == [N + 7, N + 8, N + 9]
    with pytest.raises(TableError, match="no column 'key' for row_id"):
        halfseen.scan(folder, row_id="key")
    with pytest.raises(TableError, match="column 'a' is double; rows are identified by integers or texts"):
        halfseen.scan(folder, row_id="a")
    holes = halfseen.scan(folder, row_id="b")
    with pytest.raises(TableError, match=r"column 'b' identifies rows, but row [\d,]+ has no value"):
        holes.row_ids(0, holes.read())


def test_patterns_datasets_sequences_and_file_systems_name_the_same_rows(table, tmp_path):
    folder = write_parts(table, tmp_path / "in", [0, 300, N], write_parquet)
    (folder / "_notes.csv").write_text("other\n1\n")
    (folder / "manifest.json").write_text("{}")
    for source in (
        folder, str(folder / "*.parquet"), [folder / "f0.parquet", str(folder / "f1.parquet")],
        pa.dataset.dataset([str(folder / f"f{number}.parquet") for number in (0, 1)]), f"file://{folder}",
    ):  # fmt: skip
        assert halfseen.scan(source).read().equals(table), source
    inner = pa.fs.SubTreeFileSystem(str(tmp_path), pa.fs.LocalFileSystem())
    assert halfseen.scan("in/*.parquet", filesystem=inner).read().equals(table)
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.pipe("/scan/f0.parquet", (folder / "f0.parquet").read_bytes())
    assert halfseen.scan("memory://scan/*.parquet").read().equals(table.slice(0, 300))


def test_categories_are_read_as_their_values(tmp_path):
    pq.write_table(pa.table({"c": pa.array(["x", None, "y"]).dictionary_encode()}), tmp_path / "f.parquet")
    assert halfseen.scan(tmp_path / "f.parquet").read().to_pydict() == {"c": ["x", None, "y"]}


def test_a_column_that_is_empty_in_one_file_has_the_type_of_the_others(tmp_path):
    pq.write_table(pa.table({"a": pa.nulls(2)}), tmp_path / "f0.parquet")
    pq.write_table(pa.table({"a": [1.5]}), tmp_path / "f1.parquet")
    assert halfseen.scan(tmp_path).read().equals(pa.table({"a": [None, None, 1.5]}))


def refuse(match, source, **options):
    with pytest.raises(TableError, match=match) as error:
        halfseen.scan(source, **options)
    assert "\n" not in str(error.value)


def test_errors_name_the_file(table, tmp_path):
    folder = write_parts(table, tmp_path / "in", [0, 300, N], write_parquet)
    whole = (folder / "f1.parquet").read_bytes()
    (folder / "f1.parquet").write_bytes(whole[:-200])
    refuse(r"in/f1\.parquet: not a readable parquet file", folder)
    (folder / "f1.parquet").write_bytes(b"")
    refuse(r"in/f1\.parquet: not a readable parquet file", folder)
    pq.write_table(table.drop_columns(["b"]), folder / "f1.parquet")
    refuse(r"in/f1\.parquet: the file lacks the column 'b', unlike .*f0\.parquet", folder)
    pq.write_table(table.append_column("d", table["a"]), folder / "f1.parquet")
    refuse(r"in/f1\.parquet: the file has a further column 'd', unlike", folder)
    pq.write_table(table.set_column(0, "a", table["c"]), folder / "f1.parquet")
    refuse(r"in/f1\.parquet: column 'a' is string, but double in .*f0\.parquet", folder)
    refuse(r"nothing\.parquet: there is no such file", tmp_path / "nothing.parquet")
    refuse(r"nothing\*: no file matches", str(tmp_path / "nothing*"))
    (tmp_path / "empty").mkdir()
    refuse("empty: the folder has no table files", tmp_path / "empty")
    (folder / "manifest.json").write_text("{}")
    refuse("a scan reads csv, Parquet and Feather", folder / "manifest.json")
    refuse("a scan reads a path, a pattern, a sequence of paths, a dataset or a lazy table, got 3", 3)
    refuse("datasets of files, got InMemoryDataset", pa.dataset.dataset(table))
    refuse("nowhere://x: ", "nowhere://x")


def test_a_link_to_nothing_is_named_and_not_passed_over(table, tmp_path):
    pq.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "b.parquet").symlink_to(tmp_path / "nothing.parquet")
    for source in (tmp_path, tmp_path / "*.parquet"):
        with pytest.raises(TableError, match=r"b\.parquet: there is no such file"):
            halfseen.scan(source)


def test_errors_of_text_name_the_file(tmp_path):
    path = tmp_path / "f.csv"
    for text, match in {
        b"": "f.csv: the file is empty",
        b"a,b\n1,2\n3\n": "f.csv: not a readable csv file .*Expected 2 columns, got 1",
        b"a,a\n1,2\n": "the first line must have the names of the columns, but it has the name 'a' twice",
        b"a,\n1,2\n": "but it has a column without a name",
        b"a,b\n1,\xff\n": "f.csv: the cells of column 'b' are not UTF-8",
        b"a,\xff\n1,2\n": "f.csv: not a readable csv file",
        b"PAR1....": "f.csv: this is not a csv, though its name ends like one",
    }.items():
        path.write_bytes(text)
        refuse(match, path)
    (tmp_path / "f.csv.gz").write_bytes(b"\x1f\x8b")
    refuse("a compressed file cannot be read from the middle; unpack it first", tmp_path / "f.csv.gz")


class Listed:
    """A file system whose files have whole addresses, such as that of a server."""

    def __init__(self, *files):
        self.files = files

    def get_file_info(self, selector):
        if selector.base_dir != "http://host/a":
            raise FileNotFoundError(f"no folder {selector.base_dir}")
        return [pa.fs.FileInfo(path, pa.fs.FileType.File) for path in self.files]


def test_the_pattern_of_an_address_keeps_its_two_slashes():
    files = ["http://host/a/f1.parquet", "http://host/a/f2.csv"]
    assert _match(Listed(*files), "http://host/a/*.parquet") == files[:1]
    with pytest.raises(TableError, match="http://host/b: the files cannot be listed: no folder"):
        _match(Listed(), "http://host/b/*.parquet")


class WithoutRanges:
    """A server that sends whole files only."""

    def open_input_file(self, path):
        raise ValueError("the server does not support ranges.\nRead it from the beginning.")


def test_a_server_that_cannot_be_read_from_the_middle_is_an_error_that_names_the_file():
    with pytest.raises(
        TableError, match=r"^a/f\.parquet: not a readable parquet file \(the server .* ranges\)$"
    ):
        inspect_file("a/f.parquet", WithoutRanges())


def test_a_file_that_has_changed_since_it_was_scanned_is_named(table, tmp_path):
    folder = write_parts(table, tmp_path / "in", [0, N], write_parquet)
    scan = halfseen.scan(folder)
    (folder / "f0.parquet").write_bytes(b"PAR1")
    with pytest.raises(TableError, match=r"in/f0\.parquet: not a readable parquet file"):
        scan.read()


def test_a_damaged_page_with_a_checksum_is_an_error_that_names_the_file(tmp_path):
    path = tmp_path / "f.parquet"
    table = pa.table({"a": np.random.default_rng(0).normal(size=3000)})
    pq.write_table(table, path, write_page_checksum=True, use_dictionary=False, compression="none")
    content = bytearray(path.read_bytes())
    content[9000] ^= 255
    path.write_bytes(content)
    for read in (lambda: halfseen.scan(path).read(), lambda: halfseen.read_table(path)):
        with pytest.raises(TableError, match=r"f\.parquet: not a readable parquet file \(.*CRC checksum"):
            read()


CELLS = (
    "5", "0", "1", "-3", "007", "+3", "2020", "1.5", "1e3", "inf", "nan", "99999999999999999999", "true",
    "False", "2020-01-02", "2020-01-02 10:11:12", "2020-01-02T10:11", "2020-01-02 10:11:12.123",
    "2020-01-02T10:11:12Z", "2020-01-02T10:11:12.5Z", "2020-01-02T10:11:12+02:00", "10:11:12", "10:11", "abc",
    "NA", "",
)  # fmt: skip


def test_the_type_of_a_csv_column_does_not_depend_on_the_files(tmp_path):
    """Each pair of cells in one file, and in two files in both orders, as one column for each pair."""
    pairs = [*itertools.combinations_with_replacement(CELLS, 2)]
    names = ",".join(f"c{number}" for number in range(len(pairs))) + "\n"
    firsts, seconds = (",".join(pair[side] for pair in pairs) + "\n" for side in (0, 1))
    found = []
    for name, parts in {"a": [firsts + seconds], "b": [firsts, seconds], "c": [seconds, firsts]}.items():
        (tmp_path / name).mkdir()
        for number, rows in enumerate(parts):
            (tmp_path / name / f"f{number}.csv").write_text(names + rows)
        scan = halfseen.scan(tmp_path / name)
        found.append(scan.schema.types)
        assert scan.read().num_rows == 2
    assert found[0] == found[1] == found[2]
    types = dict(zip(pairs, found[0], strict=True))
    assert types["0", "true"] == pa.string()
    assert types["2020-01-02", "2020-01-02 10:11:12"] == pa.timestamp("s")
    assert types["2020-01-02T10:11:12Z", "2020-01-02T10:11:12.5Z"] == pa.timestamp("ns", "UTC")


def test_text_columns_of_a_csv_may_hold_numbers(tmp_path):
    (tmp_path / "f.csv").write_text("zip,a\n007,1\n010,\n")
    scan = halfseen.scan(tmp_path / "f.csv").with_text(["zip"])
    assert scan.read().to_pydict() == {"zip": ["007", "010"], "a": [1, None]}


def test_without_pyarrow_an_error_says_what_to_install():
    code = "import sys; sys.modules['pyarrow'] = None; import halfseen; halfseen.scan"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "halfseen.scan needs pyarrow: pip install 'halfseen[cli]'" in done.stderr
