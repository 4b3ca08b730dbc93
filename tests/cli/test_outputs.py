"""Outputs with long names, devices and links, and names that hold control characters."""

import json
import os
import shutil
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet
import pytest

from halfseen import _machine
from halfseen.files import writing
from halfseen.files.writing import check_in_place

TABLE = "x,y\n" + "".join(f"{i % 7 or ''},{i * 3 % 11}\n" for i in range(30))
posix = pytest.mark.skipif(os.name == "nt", reason="there are no such files")


@pytest.fixture
def impute(call, tmp_path):
    (tmp_path / "t.csv").write_text(TABLE)

    def run(*arguments):
        return call("impute", "t.csv", "--method", "mean", *arguments)

    return run


@pytest.mark.parametrize("length", [242, 243, 255])
def test_an_output_may_have_the_longest_name_that_a_file_can_have(length, impute, tmp_path):
    name = "\u00e9" * 20 + "n" * (length - 44) + ".csv"
    assert len(name.encode()) == length
    code, _, err = impute("-o", name, "--save-model", name.replace(".csv", ".mod"), "-q")
    assert (code, err) == (0, "")
    assert (tmp_path / name).read_text().startswith("x,y\n")


def test_a_name_that_is_too_long_is_refused_before_the_work(impute, tmp_path):
    code, _, err = impute("-o", "n" * 252 + ".csv")
    assert code == 2
    assert "file name too long" in err
    assert len(err.splitlines()) == 1


@posix
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_the_name_of_standard_output_works_as_a_dash_does(kind, impute):
    found = [impute("-o", name, "--to", kind, "-q") for name in ("-", "/dev/stdout")]
    assert found[0] == found[1]
    assert found[0][0] == 0
    assert len(found[0][1].splitlines()) in (30, 31)


@posix
@pytest.mark.slow
def test_a_binary_table_is_appended_to_standard_output(tmp_path):
    (tmp_path / "t.csv").write_text(TABLE)
    command = [sys.executable, "-m", "halfseen", "impute", "t.csv", "--method", "mean", "--to", "parquet"]
    (tmp_path / "log").write_bytes(b"before")
    with open(tmp_path / "log", "ab") as log:
        subprocess.run([*command, "-o", "/dev/stdout", "-q"], cwd=tmp_path, stdout=log, check=True)
    content = (tmp_path / "log").read_bytes()
    assert content.startswith(b"before")
    assert pyarrow.parquet.read_table(pa.BufferReader(content[6:])).num_rows == 30


@posix
def test_a_device_is_written_to_and_not_replaced(impute):
    assert impute("-o", "/dev/null", "--to", "csv", "-q")[0] == 0
    assert not os.path.isfile("/dev/null")


@posix
def test_a_file_is_replaced_with_its_permissions(impute, tmp_path):
    (tmp_path / "t.csv").chmod(0o640)
    assert impute("--in-place", "-q")[0] == 0
    assert (tmp_path / "t.csv").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "t.csv").read_text() != TABLE


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may give files away")
def test_a_file_of_another_user_keeps_its_owner(impute, tmp_path):
    shutil.chown(tmp_path / "t.csv", 12345, 12346)
    assert impute("--in-place", "-q")[0] == 0
    status = (tmp_path / "t.csv").stat()
    assert (status.st_uid, status.st_gid) == (12345, 12346)


@posix
def test_a_file_whose_owner_cannot_be_kept_is_refused_in_place(impute, tmp_path, monkeypatch):
    monkeypatch.setattr(writing._machine, "can_keep_owner", lambda status: False)
    code, _, err = impute("--in-place")
    assert code == 2
    assert "t.csv: --in-place: the file belongs to another user or group" in err
    assert (tmp_path / "t.csv").read_text() == TABLE


@posix
def test_only_root_and_the_owner_can_keep_an_owner(tmp_path, monkeypatch):
    status = tmp_path.stat()
    monkeypatch.setattr(os, "geteuid", lambda: status.st_uid + 1)
    assert _machine.can_keep_owner(status) == (status.st_uid + 1 == 0)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert _machine.can_keep_owner(status)


def test_a_file_with_hard_links_is_refused_in_place_before_the_work(impute, tmp_path):
    check_in_place(str(tmp_path / "t.csv"))
    os.link(tmp_path / "t.csv", tmp_path / "other.csv")
    code, _, err = impute("--in-place")
    assert code == 2
    assert "t.csv: --in-place: the file has other names (hard links), which would keep the old content" in err
    assert len(err.splitlines()) == 1
    assert (tmp_path / "t.csv").samefile(tmp_path / "other.csv")
    assert impute("-o", "u.csv", "-q")[0] == 0


@pytest.mark.parametrize("name", ["red\x1b[31m", "bell\x07", "csi\x9b31m", "back\x08", "delete\x7f"])
def test_control_characters_of_names_and_levels_do_not_reach_the_output(name, call, tmp_path):
    rows = 40
    table = {
        name: pa.array([None if i % 3 == 0 else float(i) for i in range(rows)]),
        "level": pa.array([f"{name}{i % 2}" for i in range(rows)]),
        "y": pa.array([float(i % 5) for i in range(rows)]),
    }
    pyarrow.parquet.write_table(pa.table(table), tmp_path / "t.parquet")
    for command in (
        ["describe", "t.parquet", "--target", "y"],
        ["describe", "t.parquet", "--json"],
        ["impute", "t.parquet", "-o", "u.parquet", "--method", "gaussian"],
        ["compare", "t.parquet", "--methods", "mean", "--repeats", 1],
    ):
        code, out, err = call(*command)
        assert code == 0, err
        wrong = {letter for letter in out + err if not letter.isprintable() and letter != "\n"}
        assert not wrong, command
        if "--json" in command:
            assert json.loads(out)["columns"][0]["name"] == name
