"""The command `halfseen ampute`: cells are hidden at the rate asked for, and the rest is as it was."""

import csv
import gzip
import os
from importlib.resources import files

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from halfseen.cli.ampute import MECHANISMS
from halfseen.cli.main import main
from halfseen.cli.options import MechanismName
from halfseen.files.tables import read_table

PENGUINS = str(files("halfseen.data") / "samples" / "penguins.csv")


@pytest.fixture
def run(capfd, tmp_path, monkeypatch):
    """Runs the command line in an empty directory; returns exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        code = main(["ampute", *(str(argument) for argument in arguments)])
        out, err = capfd.readouterr()
        return code, out, err

    return run


def read_rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    lines = ["name;size;x;y"]
    for i in range(2000):
        size = ["small", "NA", "large"][i % 3]
        lines.append(f'"n;{i}";{size};{rng.lognormal():.3f}0;{i * 37 % 100}.50')
    path = tmp_path / "in.csv"
    path.write_bytes("\r\n".join([*lines, ""]).encode("utf-8"))
    return path


@pytest.mark.parametrize("mechanism", [name.value for name in MechanismName])
def test_every_mechanism_removes_the_given_fraction_and_keeps_the_text_of_the_rest(run, table, mechanism):
    code, out, err = run(table, "-o", "out.csv", "--mechanism", mechanism, "--rate", 0.4, "--columns", "x,y")
    assert (code, out) == (0, "")
    before, after = (path.read_bytes().split(b"\r\n") for path in (table, table.with_name("out.csv")))
    assert before[0] == after[0]
    assert len(before) == len(after)
    hidden = np.zeros(2, dtype=int)
    for old, new in zip(before[1:-1], after[1:-1], strict=True):
        old_cells, new_cells = old.rsplit(b";", 2), new.rsplit(b";", 2)
        assert old_cells[0] == new_cells[0]
        for j in (1, 2):
            assert new_cells[j] in (old_cells[j], b"")
            hidden[j - 1] += new_cells[j] == b""
    wanted = 0.4 * np.ones(2) if mechanism != "dropout" else np.array([0.0, 0.4])
    assert np.all(np.abs(hidden / 2000 - wanted) <= 4 * np.sqrt(wanted * (1 - wanted) / 2000))
    words = [line.split()[0] for line in err.splitlines()]
    assert words[:2] == ["read", "removed"]
    assert words[-2:] == ["wrote", "done"]
    assert f"x: {hidden[0] / 2000:.1%} removed, {wanted[0]:.1%} expected" in err


def test_all_mechanisms_are_offered():
    assert set(MECHANISMS) == {name.value for name in MechanismName}


def test_the_seed_decides(run, tmp_path):
    for mechanism in ("mcar", "mar"):
        for name, seed in (("a.csv", 1), ("b.csv", 1), ("c.csv", 2)):
            arguments = ("-o", name, "--seed", seed, "--mechanism", mechanism, "-q", "--overwrite")
            assert run(PENGUINS, *arguments) == (0, "", "")
        a, b, c = ((tmp_path / name).read_bytes() for name in ("a.csv", "b.csv", "c.csv"))
        assert a == b
        assert a != c


def test_what_was_missing_keeps_its_text(run, tmp_path):
    (tmp_path / "in.csv").write_text("x,y\nNA,1\n2.50,?\n3,4\n")
    assert run("in.csv", "-o", "out.csv", "--rate", 1, "-q")[0] == 0
    assert (tmp_path / "out.csv").read_text() == "x,y\nNA,\n,?\n,\n"
    assert run("in.csv", "-o", "same.csv", "--rate", 0, "-q")[0] == 0
    assert (tmp_path / "same.csv").read_bytes() == (tmp_path / "in.csv").read_bytes()


def test_a_table_of_one_column_can_be_read_again(run, tmp_path):
    (tmp_path / "in.csv").write_text("x\n1\n2\n")
    assert run("in.csv", "-o", "out.csv", "--rate", 1, "-q")[0] == 0
    assert read_table(str(tmp_path / "out.csv")).n_missing == 2


def test_parquet_keeps_its_types_and_metadata(run, tmp_path):
    schema = pa.schema(
        [pa.field("a", pa.int16(), nullable=False), pa.field("b", pa.dictionary(pa.int8(), pa.string()))],
        metadata={"origin": "here"},
    )
    source = pa.table([pa.array([1, 2, 3], pa.int16()), pa.array(["x", "y", "x"]).dictionary_encode().cast(
        pa.dictionary(pa.int8(), pa.string()))], schema=schema)  # fmt: skip
    pyarrow.parquet.write_table(source, tmp_path / "in.parquet")
    assert run("in.parquet", "-o", "out.parquet", "--rate", 1, "--columns", "a", "-q")[0] == 0
    result = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert result.schema.field("a").type == pa.int16()
    assert result["a"].null_count == 3
    assert result["b"].to_pylist() == ["x", "y", "x"]
    assert result.schema.metadata[b"origin"] == b"here"


def test_formats_delimiters_and_streams(run, tmp_path):
    code, out, _ = run(PENGUINS, "-o", "-", "--rate", 0, "-q")
    assert code == 0
    with open(PENGUINS, encoding="utf-8") as file:
        assert out == file.read()
    assert run(PENGUINS, "-o", "out.tsv.gz", "--columns", "sex, 1", "--rate", 1, "-q")[0] == 0
    rows = gzip.decompress((tmp_path / "out.tsv.gz").read_bytes()).decode().splitlines()
    assert rows[1].split("\t")[0] == ""
    (tmp_path / "in.dat").write_bytes("é|x\na|1\n".encode("latin-1"))
    options = ["--delimiter", "|", "--encoding", "latin-1", "--from", "csv", "--to", "csv"]
    assert run("in.dat", "-o", "out.dat", "--rate", 0, *options, "-q")[0] == 0
    assert (tmp_path / "out.dat").read_bytes() == (tmp_path / "in.dat").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rate", "1.5"], "rate must be a number between 0 and 1, got 1.5."),
        (["--columns", "sex,wings"], "penguins.csv: no column 'wings'; there are 'species', 'island'"),
        (["--columns", "sex,sex"], "columns names 'sex' more than once."),
        (["--mechanism", "magic"], "magic"),
        (["--mechanism", "dropout", "--columns", "sex"], "MonotoneDropout needs at least two columns"),
        (["--from", "excel"], "'excel' is not one of 'csv', 'parquet', 'feather'"),
    ],
)
def test_an_error_is_one_line_and_leaves_nothing_behind(run, tmp_path, arguments, message):
    code, out, err = run(PENGUINS, "-o", "out.csv", *arguments)
    assert (code, out) == (2, "")
    assert message in err.splitlines()[-1]
    assert err.count("halfseen: error: ") == 1
    assert os.listdir(tmp_path) == []


def test_missing_files_and_infinity(run, tmp_path):
    assert run("none.csv", "-o", "out.csv")[2] == "halfseen: error: none.csv: no such file\n"
    pyarrow.parquet.write_table(pa.table({"x": [1.0, float("inf")]}), tmp_path / "in.parquet")
    code, _, err = run("in.parquet", "-o", "out.csv", "--mechanism", "self-masking-logistic")
    assert code == 2
    assert "Column 'x' contains infinity" in err
