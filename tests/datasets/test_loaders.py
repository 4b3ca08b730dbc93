"""Loaders: files are found, checked and read, and what is wrong is said."""

import gzip
import hashlib
import os
import re
from types import MappingProxyType

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from halfseen.datasets import DataSet, DataSetError, describe_dataset, load, loaders, names
from halfseen.datasets import loaders as registry
from halfseen.datasets.loaders import is_present

TABLE = "number,text,whole\n1.5,NA,1\n,None,2\n2.5,,3\n"


def write(folder, name, content):
    path = (
        folder / name / f"{name}.{'npz' if name == 'arrays' else 'parquet' if name == 'flat' else 'csv.gz'}"
    )
    path.parent.mkdir()
    path.write_bytes(content)
    return path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of three small data sets, and a registry that knows them and one that is not there."""
    frame = pd.DataFrame({"a": [1.0, None], "b": ["x", "y"]})
    frame.to_parquet(tmp_path / "frame")
    np.savez(tmp_path / "arrays.npz", x=np.arange(6).reshape(2, 3), y=np.array([0, 1]))
    paths = {
        "table": write(tmp_path, "table", gzip.compress(TABLE.encode())),
        "flat": write(tmp_path, "flat", (tmp_path / "frame").read_bytes()),
        "arrays": write(tmp_path, "arrays", (tmp_path / "arrays.npz").read_bytes()),
    }
    known = {}
    for name, path in paths.items():
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        shapes = {"x": (2, 3), "y": (2,)} if name == "arrays" else {}
        known[name] = _entry(name, str(path.relative_to(tmp_path)), digest, shapes)
    known["pair/one"] = _entry("pair/one", "pair/one.csv.gz", "0" * 64, {})
    monkeypatch.setattr(registry, "_registry", lambda: MappingProxyType(known))
    monkeypatch.delenv("HALFSEEN_DATA", raising=False)
    return tmp_path


def _entry(name, path, digest, arrays):
    return DataSet(
        name, "complete", path, digest, "2 x 3", 0, (), "CC0", "a/b", "note", MappingProxyType(arrays)
    )


@pytest.mark.parametrize(
    ("backend", "expected"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame), ("pyarrow", pa.Table)]
)
def test_empty_fields_are_missing_and_nothing_else_is(folder, backend, expected):
    table = load("table", folder, backend)
    assert isinstance(table, expected)
    frame = table if backend == "pandas" else table.to_pandas()
    assert frame["number"].isna().tolist() == [False, True, False]
    assert frame["text"].tolist()[:2] == ["NA", "None"]
    assert frame["text"].isna().tolist() == [False, False, True]
    assert frame["whole"].tolist() == [1, 2, 3]


def test_parquet_and_arrays_are_read(folder, monkeypatch):
    assert load("flat", folder, "polars").shape == (2, 2)
    arrays = load("arrays", str(folder))
    np.testing.assert_array_equal(arrays["x"], [[0, 1, 2], [3, 4, 5]])
    assert set(arrays) == {"x", "y"}
    monkeypatch.setattr(loaders, "find_spec", lambda name: None)
    assert set(load("arrays", folder)) == {"x", "y"}  # arrays need no library of tables
    with pytest.raises(ImportError, match="load needs one of pandas, polars, pyarrow"):
        load("table", folder)


def test_the_folder_comes_from_the_variable_unless_named(folder, monkeypatch):
    with pytest.raises(DataSetError, match="set the environment variable HALFSEEN_DATA, or pass data_home"):
        load("table")
    monkeypatch.setenv("HALFSEEN_DATA", str(folder))
    assert load("table").shape == (3, 3)
    assert is_present(describe_dataset("table"))
    assert not is_present(describe_dataset("pair/one"))
    assert not is_present(describe_dataset("table"), folder / "elsewhere")


def test_an_error_names_what_is_not_there(folder, monkeypatch):
    with pytest.raises(DataSetError, match=r"folder '.*elsewhere', given by data_home, does not exist"):
        load("table", folder / "elsewhere")
    monkeypatch.setenv("HALFSEEN_DATA", "/no/such/folder")
    with pytest.raises(
        DataSetError, match=r"folder '/no/such/folder', given by HALFSEEN_DATA, does not exist"
    ):
        load("table")
    with pytest.raises(DataSetError, match=r"needs the file pair/one.csv.gz, .* its source is a/b \(CC0\)"):
        load("pair/one", folder)


def test_a_file_that_is_not_the_right_one_is_refused(folder):
    path = folder / "table" / "table.csv.gz"
    path.write_bytes(gzip.compress(b"other,data\n1,2\n"))
    with pytest.raises(
        DataSetError, match="is not the file that data set 'table' needs: its SHA-256 begins with"
    ):
        load("table", folder)


def test_a_checked_file_is_read_for_its_checksum_again_only_if_it_changed(folder, monkeypatch):
    path = folder / "table" / "table.csv.gz"
    load("table", folder)
    monkeypatch.setattr(hashlib, "sha256", None)
    assert load("table", folder).shape == (3, 3)
    os.utime(path, ns=(1, 1))
    with pytest.raises(TypeError):  # it would be hashed
        load("table", folder)


def test_unknown_names_are_refused_with_a_hint(folder):
    with pytest.raises(DataSetError, match=r"There is no data set 'tables'\. Did you mean table"):
        load("tables", folder)
    with pytest.raises(DataSetError, match="'pair' has several files; ask for one of pair/one"):
        load("pair", folder)
    with pytest.raises(ValueError, match="backend must be one of pandas, polars, pyarrow, got 'numpy'"):
        load("table", folder, "numpy")


@pytest.mark.parametrize("name", names())
def test_the_registry_is_complete(name):
    known = describe_dataset(name)
    assert re.fullmatch(r"[0-9a-f]{64}", known.sha256)
    assert known.path.startswith(name.split("/")[0] + "/")
    assert known.licence
    assert known.source
    assert known.is_table == known.path.endswith((".csv.gz", ".parquet"))
    assert (known.missing is not None) == known.is_table
    assert known.group in {"images", "ratings", "complete", "incomplete", "counts", "synthetic"}
    assert known.group != "complete" or not known.missing or name.endswith("/raw")


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_every_data_set_agrees_with_the_registry(shared_data, name):
    known = describe_dataset(name)
    loaded = load(name, shared_data, "pandas" if known.is_table else None)
    if not known.is_table:
        assert {key: array.shape for key, array in loaded.items()} == dict(known.arrays)
        assert set(known.target) <= set(loaded)
        return
    assert f"{loaded.shape[0]} x {loaded.shape[1]}" == known.shape
    assert int(loaded.isna().sum().sum()) == known.missing
    assert set(known.target) <= set(loaded.columns)


@pytest.mark.parametrize("name", ["adult", "mice_sets/nhanes", "winequality_red"])
def test_public_tables_have_the_same_missing_values_in_every_library(shared_data, name):
    known = describe_dataset(name)
    assert int(load(name, shared_data, "pandas").isna().sum().sum()) == known.missing
    assert int(load(name, shared_data, "polars").null_count().sum_horizontal()[0]) == known.missing
    assert sum(column.null_count for column in load(name, shared_data, "pyarrow").columns) == known.missing
