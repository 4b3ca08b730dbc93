"""What a run writes is a function of rows, model and seed, and equal to the answers in memory."""

import errno
import json
import os
import resource
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

import halfseen
from halfseen import distributed
from halfseen._random import id_keys
from halfseen.data import incomplete as blocks
from halfseen.distributed import units
from halfseen.distributed.outputs import Folder
from halfseen.errors import HalfseenWarning, RepeatedIdsWarning, TableError

N, BLOCK = 3000, 256
MODEL = ["a", "b", "c", "k"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of 256 rows and units of 1,024."""
    monkeypatch.setattr(blocks, "MOST_ROWS", BLOCK)
    monkeypatch.setattr(units, "ROWS_IN_UNIT", 4 * BLOCK)


def make_table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    common = rng.normal(size=n)
    return pa.table(
        {
            "key": pa.array([f"row {number}" for number in range(n)]),
            "a": pa.array(common, mask=rng.random(n) < 0.2),
            "b": pa.array(common + rng.normal(size=n), mask=rng.random(n) < 0.2),
            "c": pa.array(np.round(4 * common + rng.normal(size=n)).astype(int), mask=rng.random(n) < 0.1),
            "k": pa.array(np.where(common > rng.normal(size=n), "high", "low"), mask=rng.random(n) < 0.1),
        }
    )


@pytest.fixture(scope="module")
def table():
    return make_table()


@pytest.fixture(scope="module")
def imputer(table):
    return halfseen.GaussianImputer(random_state=3).fit(table.select(MODEL))


def split(table, folder, cuts, row_group_size=100):
    folder.mkdir(parents=True)
    for number, (low, high) in enumerate(pairwise(cuts)):
        path = folder / f"f{number}.parquet"
        pq.write_table(table.slice(low, high - low), path, row_group_size=row_group_size)
    return folder


@pytest.fixture
def rows(table, tmp_path):
    return split(table, tmp_path / "in", [0, N])


def content(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file() and path.name != "_manifest.json"
    }


def read(files):
    return pa.concat_tables([pq.ParquetFile(path).read() for path in files])


def test_the_output_is_the_transformed_table_whatever_the_files(table, imputer, tmp_path):
    expected = imputer.transform(table.select(MODEL))
    found = []
    for number, cuts in enumerate([[0, N], [0, 1, 1, 300, 2049, N], list(range(0, N + 1, 500))]):
        source = split(table, tmp_path / f"in{number}", cuts, row_group_size=90 * (number + 1))
        written = distributed.impute(source, imputer, tmp_path / f"out{number}", n_workers=1)
        assert written.n_rows == N
        assert written.n_units == 3
        assert [Path(path).name for path in written.files] == [f"part-{n:05d}.parquet" for n in range(3)]
        found.append(content(tmp_path / f"out{number}"))
        completed = read(written.files)
        assert completed.select(MODEL).equals(expected)
        assert completed["key"].equals(table["key"])
    assert found[0] == found[1] == found[2]


def test_other_formats_of_the_same_rows_have_the_same_output(table, imputer, tmp_path, rows):
    (tmp_path / "csv").mkdir()
    pa.csv.write_csv(table.slice(0, 1000), tmp_path / "csv" / "f0.csv")
    pa.csv.write_csv(table.slice(1000), tmp_path / "csv" / "f1.csv")
    pa.feather.write_feather(table, tmp_path / "rows.feather", chunksize=77)
    distributed.impute(rows, imputer, tmp_path / "1", n_workers=1)
    distributed.impute(tmp_path / "csv", imputer, tmp_path / "2", n_workers=1)
    distributed.impute(tmp_path / "rows.feather", imputer, tmp_path / "3", n_workers=1)
    assert content(tmp_path / "1") == content(tmp_path / "2") == content(tmp_path / "3")


def test_a_file_for_each_input_has_the_same_rows(table, imputer, tmp_path):
    source = split(table, tmp_path / "in", [0, 1, 300, 2049, N])
    (source / "f3.parquet").rename(source / "f2_more.parquet")
    (source / "f1.parquet").rename(source / "f1.pq")
    written = distributed.impute(source, imputer, tmp_path / "out", n_workers=1, layout="files")
    names = ["f0.parquet", "f1.parquet", "f2.parquet", "f2_more.parquet"]
    assert [Path(path).name for path in written.files] == names
    assert [pq.read_metadata(path).num_rows for path in written.files] == [1, 299, 1749, 951]
    assert read(written.files).select(MODEL).equals(imputer.transform(table.select(MODEL)))
    pq.write_table(table, source / "f1.parquet")
    with pytest.raises(TableError, match=r"f1\.pq: its output f1\.parquet would be that of .*f1\.parquet"):
        distributed.impute(source, imputer, tmp_path / "other", layout="files")


def test_blocks_of_a_wide_table_are_answered_as_a_whole_whatever_the_files(tmp_path):
    """With 12 columns, the last bits of an answer depend on the rows that are computed together."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(1000, 3)) @ rng.normal(size=(3, 12)) + rng.normal(size=(1000, 12))
    wide = pa.table({f"x{j}": pa.array(values[:, j], mask=rng.random(1000) < 0.3) for j in range(12)})
    model = halfseen.GaussianImputer(random_state=0).fit(wide)
    expected, drawn = model.transform(wide), model.sample(wide, 1, row_ids=np.arange(1000))[0]
    for number, cuts in enumerate([[0, 100, 500, 1000], [0, 1, 999, 1000]]):
        source = split(wide, tmp_path / f"in{number}", cuts)
        for layout in ("parts", "files"):
            out = tmp_path / f"out-{layout}{number}"
            written = distributed.impute(source, model, out, n_workers=1, layout=layout)
            assert read(written.files).equals(expected)
            written = distributed.impute(source, model, f"{out}-drawn", n_workers=1, layout=layout, draws=1)
            assert read(written.files).equals(drawn)


def test_draws_are_those_of_the_row_ids_whatever_the_files(table, imputer, tmp_path, rows):
    other = split(table, tmp_path / "other", [0, 700, 701, N])
    written = distributed.impute(rows, imputer, tmp_path / "1", n_workers=1, draws=2)
    distributed.impute(other, imputer, tmp_path / "2", n_workers=1, draws=2)
    assert content(tmp_path / "1") == content(tmp_path / "2")
    assert written.files[0] == str(tmp_path / "1" / "draw=1" / "part-00000.parquet")
    expected = imputer.sample(table.select(MODEL), 2, row_ids=np.arange(N))
    assert read(written.files[:3]).select(MODEL).equals(expected[0])
    assert read(written.files[3:]).select(MODEL).equals(expected[1])
    keyed = distributed.impute(
        halfseen.scan(rows, row_id="key"), imputer, tmp_path / "3", draws=1, n_workers=1
    )
    expected = imputer.sample(table.select(MODEL), 1, row_ids=table["key"].to_pylist())
    assert read(keyed.files).select(MODEL).equals(expected[0])
    seeded = distributed.impute(rows, imputer, tmp_path / "4", draws=1, n_workers=1, random_state=8)
    assert not read(seeded.files).equals(read(written.files[:3]))


REPEATED = r"'key' identifies rows, but .* is the id of 2 rows, and {} ids that were compared repeat"


def test_ids_that_repeat_in_other_blocks_are_warned_of_once(table, imputer, tmp_path, monkeypatch):
    """By keys that begin anew in the second file, in other blocks, of which no block sees both rows."""
    keys = [f"row {number % 1700}" for number in range(N)]
    repeating = table.set_column(0, "key", pa.array(keys))
    rows = halfseen.scan(split(repeating, tmp_path / "in", [0, 1700, N]), row_id="key")
    smallest = np.argsort(id_keys(keys[:1700], 0))[:100]
    some = f"{(smallest < 1300).sum()} of 100"
    for limit, expected in ((1 << 16, "1,300 of 1,700"), (100, some)):
        monkeypatch.setattr("halfseen.data.scan.IDS_COMPARED", limit)
        folder = tmp_path / f"{limit}"
        with pytest.warns(RepeatedIdsWarning, match=REPEATED.format(expected)) as caught:
            distributed.impute(rows, imputer, folder, n_workers=1, draws=1)
        assert len([one for one in caught if issubclass(one.category, HalfseenWarning)]) == 1
    with pytest.warns(RepeatedIdsWarning, match=REPEATED.format(some)):
        imputer.sample(rows)
    distributed.impute(rows, imputer, tmp_path / "means", n_workers=1)  # has no draws, and no warning


def test_numbers_are_ids_that_are_compared_across_blocks(table, imputer, tmp_path):
    keys = np.arange(N)
    keys[-1] = 5
    table = table.set_column(0, "key", pa.array(keys))
    rows = halfseen.scan(split(table, tmp_path / "in", [0, N]), row_id="key")
    expected = r"'key' identifies rows, but 5 is the id of 2 rows, and 1 of 2,999 ids"
    with pytest.warns(RepeatedIdsWarning, match=expected):
        distributed.impute(rows, imputer, tmp_path / "out", n_workers=1, draws=1)


def test_equal_rows_in_many_files_draw_independently(imputer, tmp_path):
    """The standard error of the mean of 1,000 equal rows in 100 files is that of independent draws."""
    row = pa.table({"a": [0.5], "b": pa.nulls(1, pa.float64()), "c": [2], "k": ["high"]})
    equal = pa.concat_tables([row] * 1000)
    source = split(equal, tmp_path / "in", list(range(0, 1001, 10)))
    written = distributed.impute(source, imputer, tmp_path / "out", draws=1, n_workers=1)
    drawn = read(written.files)["b"].to_numpy()
    assert len(np.unique(drawn)) == 1000
    expected = imputer.sample(equal, 1, row_ids=np.arange(1000))[0]["b"].to_numpy()
    assert (drawn == expected).all()


def test_the_memory_budget_does_not_change_the_output(imputer, tmp_path, rows):
    distributed.impute(rows, imputer, tmp_path / "1", n_workers=1, draws=2)
    with halfseen.config.context(memory_budget="16 MiB"):
        distributed.impute(rows, imputer, tmp_path / "2", n_workers=1, draws=2)
    assert content(tmp_path / "1") == content(tmp_path / "2")


class Backwards:
    """An engine that works off the units from the last to the first, and some twice."""

    name = "backwards"

    def run(self, function, job, units, n_workers):
        function(job, units[0])
        for unit in reversed(units):
            yield unit, function(job, unit)


def test_the_order_of_units_and_their_repetition_do_not_change_the_output(imputer, tmp_path, rows):
    distributed.impute(rows, imputer, tmp_path / "1", n_workers=1)
    distributed.impute(rows, imputer, tmp_path / "2", engine=Backwards())
    assert content(tmp_path / "1") == content(tmp_path / "2")
    manifests = [(tmp_path / name / "_manifest.json").read_bytes() for name in "12"]
    assert manifests[0] == manifests[1]


def test_a_model_file_does_as_the_model_itself(imputer, tmp_path, rows):
    imputer.save(tmp_path / "model.halfseen")
    distributed.impute(rows, imputer, tmp_path / "1", n_workers=1)
    distributed.impute(rows, tmp_path / "model.halfseen", tmp_path / "2", n_workers=1)
    assert content(tmp_path / "1") == content(tmp_path / "2")
    assert (tmp_path / "1" / "_manifest.json").read_bytes() == (
        tmp_path / "2" / "_manifest.json"
    ).read_bytes()


def test_indicators_of_missing_values_are_written_after_the_columns(table, tmp_path, rows):
    marking = halfseen.MeanImputer(add_indicator=True).fit(table.select(MODEL))
    written = distributed.impute(rows, marking, tmp_path / "out", n_workers=1)
    assert (
        read(written.files).select(["missingindicator_a"])[0].to_pylist() == table["a"].is_null().to_pylist()
    )


def test_predictions_are_those_in_memory_whatever_the_files(table, tmp_path, rows):
    target = np.nan_to_num(table["a"].to_numpy(zero_copy_only=False)) + 1.0
    model = halfseen.GaussianRegressor().fit(table.select(["b", "c"]), target)
    other = split(table, tmp_path / "other", [0, 700, 701, N])
    written = distributed.predict(rows, model, tmp_path / "1", n_workers=1, level=0.8)
    distributed.predict(other, model, tmp_path / "2", n_workers=1, level=0.8)
    assert content(tmp_path / "1") == content(tmp_path / "2")
    found = read(written.files)
    assert found.column_names == [*table.column_names, "prediction", "prediction_low", "prediction_high"]
    inputs = table.select(["b", "c"])
    assert (found["prediction"].to_numpy() == model.predict(inputs)).all()
    assert (found["prediction_low"].to_numpy() == model.predict_interval(inputs, level=0.8)[0]).all()
    assert found.select(table.column_names).equals(table)


def test_classes_are_predicted_with_their_probabilities(table, tmp_path, rows):
    labels = np.where(np.arange(N) % 2 == 0, "even", "odd")
    model = halfseen.BoostingClassifier(random_state=0).fit(
        table.select(["b", "c"]).slice(0, 300), labels[:300]
    )
    found = read(distributed.predict(rows, model, tmp_path / "1", n_workers=1).files)
    assert found.column_names[-3:] == ["prediction", "probability_even", "probability_odd"]
    assert found["prediction"].to_pylist() == model.predict(table.select(["b", "c"])).tolist()


# ------------------------------------------------------------------------------------------ resuming


class Interrupted(Exception):
    """As if the driver had been killed."""


class StopsAfter:
    """An engine that breaks off after some units."""

    name = "stops"

    def __init__(self, n_units):
        self.n_units = n_units

    def run(self, function, job, units, n_workers):
        for unit in units[: self.n_units]:
            yield unit, function(job, unit)
        raise Interrupted


def test_a_run_is_resumed_where_it_was_interrupted(imputer, tmp_path, rows):
    distributed.impute(rows, imputer, tmp_path / "whole", n_workers=1, draws=2)
    out = tmp_path / "out"
    with pytest.raises(Interrupted):
        distributed.impute(rows, imputer, out, engine=StopsAfter(2), draws=2)
    (out / "draw=1" / ".part-00002.parquet.abc.part").write_bytes(b"left by a killed worker")
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    assert len(before) == 4
    written = distributed.impute(rows, imputer, out, n_workers=1, draws=2, resume=True)
    assert (written.n_units, written.n_resumed) == (3, 2)
    assert content(out) == content(tmp_path / "whole")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert (out / "_manifest.json").read_bytes() == (tmp_path / "whole" / "_manifest.json").read_bytes()
    again = distributed.impute(rows, imputer, out, n_workers=1, draws=2, resume=True)
    assert again.n_resumed == 3


def test_a_file_that_was_lost_after_it_was_finished_is_written_again(imputer, tmp_path, rows):
    out = tmp_path / "out"
    distributed.impute(rows, imputer, out, n_workers=1)
    expected = content(out)
    (out / "part-00001.parquet").unlink()
    (out / "part-00002.parquet").write_bytes(b"")
    assert distributed.impute(rows, imputer, out, n_workers=1, resume=True).n_resumed == 1
    assert content(out) == expected


def test_resuming_by_another_request_is_refused(table, imputer, tmp_path, rows):
    out = tmp_path / "out"
    distributed.impute(rows, imputer, out, n_workers=1, draws=1)
    expected = content(out)
    other = halfseen.GaussianImputer(random_state=3).fit(table.select(MODEL).slice(0, 500))
    changed = split(make_table(seed=1), tmp_path / "changed" / "in", [0, N])
    keyed = halfseen.scan(rows, row_id="key")
    for words, source, model, options in (
        ("another model", rows, other, {"draws": 1}),
        ("another seed", rows, imputer, {"draws": 1, "random_state": 4}),
        ("other input files", changed, imputer, {"draws": 1}),
        ("other options", rows, imputer, {"draws": 2}),
        ("another layout", rows, imputer, {"draws": 1, "layout": "files"}),
        ("other row ids", keyed, imputer, {"draws": 1}),
    ):
        with pytest.raises(TableError, match=f"_manifest.json: the run cannot be resumed, .* with {words}"):
            distributed.impute(source, model, out, n_workers=1, resume=True, **options)
    with pytest.raises(TableError, match="has the output of a run already; resume it by --resume"):
        distributed.impute(rows, imputer, out, n_workers=1, draws=1)
    assert content(out) == expected
    (out / "_manifest.json").write_text("[]")
    with pytest.raises(TableError, match=r"manifest\.json: not the manifest of a run of this version"):
        distributed.impute(rows, imputer, out, n_workers=1, draws=1, resume=True)


def test_files_that_exist_are_not_overwritten(imputer, tmp_path, rows):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "part-00001.parquet").write_text("mine")
    with pytest.raises(TableError, match=r"part-00001\.parquet: exists already; it is not overwritten"):
        distributed.impute(rows, imputer, tmp_path / "out", n_workers=1)
    assert content(tmp_path / "out") == {"part-00001.parquet": b"mine"}
    with pytest.raises(TableError, match=r"f0\.parquet: the output would overwrite the input"):
        distributed.impute(rows, imputer, rows, n_workers=1, layout="files")


def test_inputs_and_outputs_are_not_mixed_in_one_folder(imputer, tmp_path, rows):
    """The folder of either would be read as a table with the rows of both."""
    within = r"the output lies in the folder of the input; write to another folder"
    for source, out, message in (
        (rows, rows, within),
        (rows, rows / "out", within),
        (f"{rows}/*.parquet", rows, r"f0\.parquet: this input lies in the folder of the output"),
        (rows / "f0.parquet", tmp_path, r"f0\.parquet: this input lies in the folder of the output"),
    ):
        with pytest.raises(TableError, match=message):
            distributed.impute(source, imputer, out, n_workers=1)
    assert [path.name for path in sorted(tmp_path.rglob("*"))] == ["in", "f0.parquet"]
    distributed.impute(rows, imputer, tmp_path / "in-2", n_workers=1)  # which begins like the input


def test_a_file_whose_footer_stays_the_same_is_seen_to_have_changed(table, imputer, tmp_path):
    """Two values of one row group change places: neither its statistics nor its size change."""
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    pq.write_table(table, source / "f.parquet", compression="none", use_dictionary=False)
    before = halfseen.scan(source).parts
    with pytest.raises(Interrupted):
        distributed.impute(source, imputer, out, engine=StopsAfter(1))
    first, second = (table["a"].drop_null()[place].as_py() for place in (0, 1))
    swapped = [{first: second, second: first}.get(cell, cell) for cell in table["a"].to_pylist()]
    changed = table.set_column(1, "a", pa.array(swapped))
    pq.write_table(changed, source / "f.parquet", compression="none", use_dictionary=False)
    assert halfseen.scan(source).parts == before
    with pytest.warns(HalfseenWarning, match=r"f\.parquet: the file was written again after the run began"):
        distributed.impute(source, imputer, out, n_workers=1, resume=True)


# ------------------------------------------------------------------------------------------ errors


def test_a_part_that_becomes_unreadable_is_named_and_nothing_partial_stays(table, imputer, tmp_path):
    source = split(table, tmp_path / "in", [0, 1500, N])
    scan = halfseen.scan(source)
    whole = (source / "f1.parquet").read_bytes()
    (source / "f1.parquet").write_bytes(whole[:100])
    out = tmp_path / "out"
    with pytest.raises(TableError, match=r"f1\.parquet: not a readable parquet file"):
        distributed.impute(scan, imputer, out, n_workers=1)
    assert sorted(path.name for path in out.iterdir()) == ["_manifest.json", "part-00000.parquet"]
    (source / "f1.parquet").write_bytes(whole)
    with pytest.warns(HalfseenWarning, match=r"f1\.parquet: the file was written again"):
        distributed.impute(source, imputer, out, n_workers=1, resume=True)
    assert read(sorted(out.glob("*.parquet"))).select(MODEL).equals(imputer.transform(table.select(MODEL)))


def test_a_full_disk_is_one_line_that_names_the_file(imputer, tmp_path, rows, monkeypatch):
    def full(self, table, row_group_size=None):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(TableError, match=r"part-00000\.parquet: cannot write: no space left on device"):
        distributed.impute(rows, imputer, tmp_path / "out", n_workers=1)
    assert content(tmp_path / "out") == {}


LIMITED = """
import resource, sys
from halfseen import distributed
source, model, out = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    distributed.impute(source, model, out, n_workers=1)
except ValueError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_file_that_the_system_refuses_to_write_leaves_nothing_partial(imputer, tmp_path):
    source = split(make_table(20_000), tmp_path / "in", [0, 20_000])
    before = content(source)
    imputer.save(tmp_path / "model")
    out = tmp_path / "out"
    command = [sys.executable, "-c", LIMITED, str(source), str(tmp_path / "model"), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (
        done.stdout.strip() == f"{out}/part-00000.parquet: cannot write: {os.strerror(errno.EFBIG).lower()}"
    )
    assert content(out) == {}
    assert content(source) == before
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 50_000


def test_inputs_are_not_modified_and_only_outputs_stay(imputer, tmp_path, rows):
    before = content(rows)
    distributed.impute(rows, imputer, tmp_path / "out", n_workers=1)
    assert content(rows) == before
    names = [f"part-{number:05d}.parquet" for number in range(3)]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["_manifest.json", *names]
    assert json.loads((tmp_path / "out" / "_manifest.json").read_text())["complete"]


def test_requests_that_cannot_be_met_are_refused_before_anything_is_written(table, imputer, tmp_path, rows):
    regressor = halfseen.GaussianRegressor().fit(table.select(["b"]), np.arange(N))
    unnamed = halfseen.MeanImputer().fit(np.array([[1.0, 2.0], [np.nan, 1.0]]))
    pq.write_table(table.drop_columns(["b"]), tmp_path / "lacking.parquet")
    pq.write_table(table.set_column(1, "a", table["k"]), tmp_path / "text.parquet")
    out = tmp_path / "out"
    for match, error, source, model, options in (
        ("GaussianRegressor is not an imputer", TableError, rows, regressor, {}),
        ("fitted to an array without column names", TableError, rows, unnamed, {}),
        ("lacking.parquet: there is no column 'b'", TableError, tmp_path / "lacking.parquet", imputer, {}),
        (
            "text.parquet: column 'a' contains text, and Float64 in training",
            TableError,
            tmp_path / "text.parquet",
            imputer,
            {},
        ),
        ("draws must be", ValueError, rows, imputer, {"draws": 0}),
        ("n_workers must be", ValueError, rows, imputer, {"n_workers": 0}),
        ("layout must be 'parts' or 'files'", ValueError, rows, imputer, {"layout": "file"}),
        (
            "engine must be one of local, ray, dask, got 'spark'",
            ValueError,
            rows,
            imputer,
            {"engine": "spark"},
        ),
        ("The engine 'local' has no address", ValueError, rows, imputer, {"address": "auto"}),
    ):
        with pytest.raises(error, match=match):
            distributed.impute(source, model, out, **options)
        assert not out.exists()
    with pytest.raises(TableError, match="GaussianImputer is not a predictor"):
        distributed.predict(rows, imputer, out)


def test_warnings_of_the_model_are_issued_once(table, imputer, tmp_path):
    far = table.set_column(1, "a", pa.array(np.where(np.arange(N) % 7 == 0, np.nan, 1e9)))
    source = split(far, tmp_path / "in", [0, N])
    with pytest.warns(HalfseenWarning) as caught:
        distributed.impute(source, imputer, tmp_path / "out", n_workers=1)
    texts = [str(one.message) for one in caught]
    assert len(texts) == len(set(texts))


def test_progress_counts_rows(imputer, tmp_path, rows):
    seen = []
    distributed.impute(rows, imputer, tmp_path / "out", n_workers=1, progress=lambda *one: seen.append(one))
    assert seen == [(1024, N), (2048, N), (N, N)]


def test_outputs_go_to_other_file_systems(imputer, tmp_path, rows):
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    with pytest.raises(Interrupted):
        distributed.impute(rows, imputer, "memory://runs/out", engine=StopsAfter(1))
    distributed.impute(rows, imputer, "memory://runs/out", n_workers=1, resume=True)
    distributed.impute(rows, imputer, tmp_path / "out", n_workers=1)
    names = sorted(path.rsplit("/", maxsplit=1)[-1] for path in memory.ls("/runs/out", detail=False))
    assert names == ["_manifest.json", *content(tmp_path / "out")]
    for name, expected in content(tmp_path / "out").items():
        assert memory.cat(f"/runs/out/{name}") == expected
    folder = Folder.at("memory://runs/out")
    with pytest.raises(ZeroDivisionError), folder.write("broken"):
        1 / 0  # noqa: B018
    assert sorted(memory.ls("/runs/out", detail=False)) == [f"/runs/out/{name}" for name in names]


def test_a_table_without_rows_has_one_empty_part(table, imputer, tmp_path):
    source = split(table, tmp_path / "in", [0, 0])
    written = distributed.impute(source, imputer, tmp_path / "out", n_workers=1)
    assert read(written.files).equals(table.slice(0, 0))


def test_an_engine_that_is_not_installed_is_named(imputer, tmp_path, rows, monkeypatch):
    for engine, package in {"ray": "ray", "dask": "distributed"}.items():
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(
            ModuleNotFoundError, match=rf"package {package}: pip install 'halfseen\[{engine}\]'"
        ):
            distributed.impute(rows, imputer, tmp_path / engine, engine=engine)


def test_a_failure_of_the_driver_ends_the_engine_before_leftovers_are_removed(imputer, tmp_path, rows):
    events = []

    class Slow:
        name = "slow"

        def run(self, function, job, units, n_workers):
            try:
                for unit in units:
                    yield unit, function(job, unit)
            finally:
                Path(job.folder.join(".part-00001.parquet.x.part")).write_bytes(b"")
                events.append("ended")

    def fail(n_done, n_rows):
        raise Interrupted

    with pytest.raises(Interrupted):
        distributed.impute(rows, imputer, tmp_path / "out", engine=Slow(), progress=fail)
    assert events == ["ended"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "_manifest.json",
        "part-00000.parquet",
    ]


@pytest.mark.parametrize("draws", [None, 2])
def test_other_libraries_read_the_folder_as_one_table(imputer, tmp_path, rows, draws):
    written = distributed.impute(rows, imputer, tmp_path / "out", n_workers=1, draws=draws)
    whole = pq.read_table(tmp_path / "out")
    assert whole.num_rows == (draws or 1) * written.n_rows
    assert ("draw" in whole.column_names) == (draws is not None)


def test_only_columns_that_repeat_values_are_written_with_dictionaries(imputer, tmp_path, rows):
    written = distributed.impute(rows, imputer, tmp_path / "out", n_workers=1)
    group = pq.ParquetFile(written.files[0]).metadata.row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    found = {column.path_in_schema: column.has_dictionary_page for column in columns}
    schema = pq.ParquetFile(written.files[0]).schema_arrow
    assert found == {one.name: not pa.types.is_floating(one.type) for one in schema}
    assert set(found.values()) == {True, False}
