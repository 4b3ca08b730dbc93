"""Lazy tables of other libraries are scanned as the files that hold the same rows."""

import pickle
import sys
from types import ModuleType

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import halfseen
from halfseen import distributed
from halfseen.data import incomplete as blocks
from halfseen.data import scan_streams
from halfseen.errors import TableError

N = 1500


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    common = rng.normal(size=N)
    return pa.table(
        {
            "a": pa.array(common, mask=rng.random(N) < 0.2),
            "n": pa.array(rng.integers(0, 9, N), mask=rng.random(N) < 0.2),
            "k": pa.array(np.where(common > 0, "high", "low"), mask=rng.random(N) < 0.1),
        }
    )


@pytest.fixture
def path(table, tmp_path):
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=400)
    return str(tmp_path / "t.parquet")


def of_polars(path):
    return pl.scan_parquet(path)


def of_duckdb(path):
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install duckdb")
    return duckdb.connect().sql(f"SELECT * FROM '{path}'")


def of_dask(path):
    frames = pytest.importorskip(
        "dask.dataframe", reason="Dask is not installed: pip install 'dask[dataframe]'"
    )
    return frames.from_pandas(pd.read_parquet(path, dtype_backend="pyarrow"), npartitions=4)


LAZY = {"polars LazyFrame": of_polars, "relation of DuckDB": of_duckdb, "Dask DataFrame": of_dask}


@pytest.fixture(params=LAZY)
def lazy(request, path, monkeypatch):
    monkeypatch.setattr(scan_streams, "STREAM_ROWS", 300)
    monkeypatch.setattr(blocks, "MOST_ROWS", 256)
    return LAZY[request.param](path), request.param


def test_a_lazy_table_has_the_rows_of_its_files(lazy, table):
    source, name = lazy
    rows = halfseen.scan(source)
    assert repr(rows) == f"Scan({name}, 1,500 rows, 3 columns)"
    for start, stop in ((0, N), (0, 100), (700, 1300), (600, 601), (1300, N), (10, 20)):
        assert rows.read(start, stop).to_pylist() == table.slice(start, stop - start).to_pylist()
    starts = [start for start, _ in rows.blocks()]
    assert starts == list(range(0, N, 256))
    assert [block.num_rows for _, block in rows.blocks(n_rows=400)] == [400, 400, 400, 300]
    assert rows.select(["k"]).read(5, 7).to_pylist() == table.select(["k"]).slice(5, 2).to_pylist()


def test_a_lazy_table_is_fitted_and_imputed_as_its_files(lazy, path, tmp_path):
    rows, files = halfseen.scan(lazy[0]), halfseen.scan(path)
    for number, source in enumerate((rows, files)):
        distributed.fit(halfseen.GaussianImputer(random_state=0), source, n_rows=500).save(
            tmp_path / f"{number}"
        )
    assert (tmp_path / "0").read_bytes() == (tmp_path / "1").read_bytes()
    for source, out in ((rows, "lazy"), (files, "files")):
        distributed.impute(source, tmp_path / "0", tmp_path / out, n_workers=1, draws=2)
    for draw in (1, 2):
        found, expected = (
            pq.ParquetFile(tmp_path / out / f"draw={draw}" / "part-00000.parquet").read()
            for out in ("lazy", "files")
        )
        assert found.to_pylist() == expected.to_pylist()


def test_rows_that_follow_each_other_are_read_once(path, monkeypatch):
    monkeypatch.setattr(scan_streams, "STREAM_ROWS", 300)
    rows = halfseen.scan(of_polars(path))
    opened = []
    usual = rows.stream.open
    rows.stream.open = lambda: opened.append(1) or usual()
    for start in range(0, N, 250):
        rows.read(start, start + 250)
    assert len(opened) == 1
    rows.read(0, 10)
    assert len(opened) == 2


def test_what_a_lazy_table_cannot_do_is_said(path, table, tmp_path):
    rows = halfseen.scan(of_polars(path))
    with pytest.raises(TableError, match="a polars LazyFrame is read by one process: use the engine 'local'"):
        pickle.dumps(rows)
    imputer = halfseen.MeanImputer().fit(table)
    distributed.impute(rows, imputer, tmp_path / "out", n_workers=1)
    with pytest.raises(TableError, match="the run cannot be resumed, because it was begun with other input"):
        distributed.impute(
            halfseen.scan(of_polars(path)), imputer, tmp_path / "out", n_workers=1, resume=True
        )
    with pytest.raises(TableError, match="there is no column 'z' for row_id"):
        halfseen.scan(of_polars(path), row_id="z")
    rows.stream.open = lambda: iter([table.slice(0, 900)])
    with pytest.raises(TableError, match="had 1,500 rows when it was counted, and has 900 now"):
        rows.read()

    def break_off():
        yield table.slice(0, 900)
        raise OSError("the disk is gone")

    rows.stream.open = break_off
    with pytest.raises(TableError, match="the polars LazyFrame cannot be read: the disk is gone"):
        rows.read()


def test_orders_that_are_not_fixed_are_refused(path):
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install duckdb")
    connection = duckdb.connect()
    connection.execute("SET preserve_insertion_order = false")
    with pytest.raises(TableError, match="preserve_insertion_order of DuckDB is false"):
        halfseen.scan(connection.sql(f"SELECT * FROM '{path}'"))


def test_a_dataset_of_ray_is_refused(monkeypatch):
    module = ModuleType("ray.data.dataset")
    monkeypatch.setitem(sys.modules, "ray.data.dataset", module)
    dataset = type("Dataset", (), {"__module__": "ray.data.dataset"})()
    with pytest.raises(TableError, match="the order of the rows of a Ray Dataset is not fixed"):
        halfseen.scan(dataset)
