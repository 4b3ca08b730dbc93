"""Extreme columns through the library and the command: filled, reported, written, never a traceback."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather
import pyarrow.parquet
import pytest
from hostile.extreme_columns import COLUMNS, table_with

from halfseen import GaussianImputer
from halfseen.cli.main import main
from halfseen.data.frames import Table
from halfseen.errors import HalfseenWarning

pytestmark = pytest.mark.filterwarnings("ignore::halfseen.errors.HalfseenWarning")


def _n_missing(column):
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return pc.sum(pc.is_null(column, nan_is_null=True)).as_py()


def _run(folder, column, *options, format="feather"):
    write = pa.feather.write_feather if format == "feather" else pa.parquet.write_table
    write(table_with(column), folder / f"in.{format}")
    out = folder / f"out.{format}"
    arguments = ["impute", folder / f"in.{format}", "-o", out, *options]
    assert main([str(argument) for argument in arguments]) == 0
    read = pa.feather.read_table if format == "feather" else pa.parquet.read_table
    return read(out)


@pytest.mark.parametrize("name", COLUMNS)
def test_an_extreme_column_is_filled_and_reported(tmp_path, capfd, name):
    report = tmp_path / "report.html"
    filled = _run(tmp_path, COLUMNS[name], "--report", report)["extreme"]
    assert "<svg" in report.read_text(encoding="utf-8")
    assert "Warning" not in capfd.readouterr().err
    assert _n_missing(filled) == 0
    before = COLUMNS[name]
    seen = ~pc.is_null(before, nan_is_null=True).to_numpy(zero_copy_only=False)
    if pa.types.is_dictionary(before.type):
        before, filled = before.cast(before.type.value_type), filled.cast(filled.type.value_type)
        seen &= before.is_valid().to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(seen)
    assert [filled[int(row)] for row in rows] == [before[int(row)] for row in rows]


@pytest.mark.parametrize("name", COLUMNS)
def test_draws_of_an_extreme_column_are_written(tmp_path, name):
    drawn = _run(tmp_path, COLUMNS[name], "--draws", "2")
    assert drawn.num_rows == 2 * len(COLUMNS[name])
    assert _n_missing(drawn["extreme"]) == 0


def test_nan_in_a_file_is_announced_as_missing(tmp_path, capfd):
    _run(tmp_path, COLUMNS["NaN"], format="parquet")
    assert "9 cells" in capfd.readouterr().err


def test_nan_in_a_parquet_file_is_filled_in_the_csv_too(tmp_path):
    pa.parquet.write_table(table_with(COLUMNS["NaN"]), tmp_path / "in.parquet")
    assert main(["impute", str(tmp_path / "in.parquet"), "-o", str(tmp_path / "out.csv")]) == 0
    assert "nan" not in (tmp_path / "out.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["the least floats", "denormal floats"])
def test_no_zero_is_written_into_a_positive_column(name):
    table = table_with(COLUMNS[name])
    imputer = GaussianImputer(random_state=0).fit(table)
    tables = [imputer.transform(table), *imputer.sample(table, n_draws=50), *imputer.interval(table)]
    assert min(pc.min(one["extreme"]).as_py() for one in tables) > 0


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (np.array([6e-8, 1.2e-7, 3e-7], np.float16), pa.float16()),
        (np.array([1.4e-45, 2.8e-45, 9e-45], np.float32), pa.float32()),
    ],
)
def test_the_least_numbers_of_a_narrow_dtype_are_not_halved_to_zero(values, dtype):
    table = table_with(pa.array([*np.tile(values, 4), None, None], dtype))
    imputer = GaussianImputer(random_state=0).fit(table)
    drawn = [np.asarray(one["extreme"].to_pylist()) for one in imputer.sample(table, n_draws=50)]
    assert np.min(drawn) > 0


def test_days_beyond_the_range_of_microseconds_are_read_as_what_they_are():
    column = pa.array([0, 200_000_000, None], pa.int32()).view(pa.date32())
    values = Table(pa.table({"day": column})).column(0).values
    np.testing.assert_array_equal(values, [0.0, 200_000_000 * 86_400e6, np.nan])


def test_seconds_beyond_the_range_of_microseconds_are_read_as_what_they_are():
    column = pa.array([0, 5 * 10**13, None], pa.int64()).view(pa.timestamp("s"))
    values = Table(pa.table({"moment": column})).column(0).values
    np.testing.assert_array_equal(values, [0.0, 5e19, np.nan])


def test_whole_numbers_that_floats_merge_stay_within_their_dtype():
    table = table_with(COLUMNS["whole numbers at both ends"])
    with pytest.warns(HalfseenWarning, match="cannot be distinguished from others"):
        imputer = GaussianImputer(random_state=0).fit(table)
    tables = imputer.sample(table, n_draws=20)
    drawn = {value for one in tables for value in one["extreme"].to_pylist()[-2:]}
    assert drawn == {-(2**63), 2**63 - 1024}
