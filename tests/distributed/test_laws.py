"""Every estimator of tables answers files, and is fitted to them, as the whole table, bit by bit.

The rows of the conformance suite are the estimators. Each is fitted once in memory. Files end within blocks;
units go to this process, or to two others that live as long as the tests.
"""

import functools
import itertools
import multiprocessing
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conformance.registry import CLASSIFIERS, IMPUTERS, PREDICTORS

import halfseen
from halfseen import distributed
from halfseen.data import incomplete as blocks
from halfseen.data.summaries import with_target
from halfseen.distributed.local import one_thread

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

N, BLOCK = 700, 256
CUTS = {"some": (0, 100, 101, 600, N), "others": (0, 0, 333, N)}


def make_table():
    """Numbers, whole numbers, levels and two targets, of which one in ten is unknown."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=(N, 2)) @ rng.normal(size=(2, 6))
    values = common + rng.normal(size=(N, 6))
    columns = {f"x{j}": pa.array(values[:, j], mask=rng.random(N) < 0.3) for j in range(4)}
    columns["whole"] = pa.array(np.exp(values[:, 4]).round(), mask=rng.random(N) < 0.2)
    columns["level"] = pa.array(np.where(values[:, 5] > 0, "high", "low"), mask=rng.random(N) < 0.2)
    table = pa.table(columns)
    numbers = common[:, 0] + rng.normal(size=N)
    targets = {"number": numbers, "label": np.where(numbers > 0, "yes", "no")}
    unknown = rng.random(N) < 0.1
    return table, {name: pa.array(values, mask=unknown) for name, values in targets.items()}


TABLE, TARGETS = make_table()
WHOLE = TABLE.append_column("number", TARGETS["number"]).append_column("label", TARGETS["label"])


def target_of(row):
    return "label" if row in CLASSIFIERS else "number"


@pytest.fixture(scope="module", autouse=True)
def small_blocks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "MOST_ROWS", BLOCK)
        patch.setattr(blocks, "BLOCKS_IN_RUN", 1)
        patch.setattr("halfseen.distributed.units.ROWS_IN_UNIT", BLOCK)
        yield


def prepare():
    blocks.MOST_ROWS, blocks.BLOCKS_IN_RUN = BLOCK, 1
    one_thread()


def call(task):
    function, job, unit = task
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return unit, function(job, unit)


class TwoProcesses:
    """An engine of two processes that are not ended with a run."""

    name = "two"

    def __init__(self, pool):
        self.pool = pool

    def run(self, function, job, units, n_workers):
        yield from self.pool.imap_unordered(call, [(function, job, unit) for unit in reversed(units)])


@pytest.fixture(scope="module")
def two():
    with multiprocessing.get_context("spawn").Pool(2, prepare) as pool:
        yield TwoProcesses(pool)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The table in two folders: of the inputs alone, and with the targets."""
    folder = tmp_path_factory.mktemp("laws")
    for name, (kind, table) in itertools.product(CUTS, {"inputs": TABLE, "all": WHOLE}.items()):
        (folder / kind / name).mkdir(parents=True)
        for number, (low, high) in enumerate(itertools.pairwise(CUTS[name])):
            path = folder / kind / name / f"f{number}.parquet"
            pq.write_table(table.slice(low, high - low), path, row_group_size=70)
    return folder


def fitted(row):
    """The estimator of a row, fitted in memory."""
    return _fitted(row.name)


@functools.cache
def _fitted(name):
    row = next(one for one in (*IMPUTERS, *PREDICTORS) if one.name == name)
    model = row.make(random_state=0)
    if row in IMPUTERS:
        return model.fit(TABLE)
    known = with_target(WHOLE, target_of(row))
    return model.fit(known.select(TABLE.column_names), known[target_of(row)].to_numpy(zero_copy_only=False))


def read(written):
    return pa.concat_tables([pq.ParquetFile(path).read() for path in written.files])


def joined(tables):
    return pa.concat_tables(list(tables))


@pytest.mark.parametrize("row", IMPUTERS, ids=str)
def test_an_imputer_answers_files_as_the_whole_table(row, files, tmp_path, two):
    imputer = fitted(row)
    completed, drawn = imputer.transform(TABLE), joined(imputer.sample(TABLE, 2, row_ids=np.arange(N)))
    settings = [("some", "parts", "local"), ("others", "files", "local"), ("others", "parts", two)]
    for number, (name, layout, engine) in enumerate(settings[-1:] if row.slow else settings):
        impute = functools.partial(
            distributed.impute, files / "inputs" / name, imputer, engine=engine, n_workers=1, layout=layout
        )
        assert read(impute(tmp_path / f"{number}")).equals(completed)
        assert read(impute(tmp_path / f"{number} drawn", draws=2)).equals(drawn)


@pytest.mark.parametrize("row", PREDICTORS, ids=str)
def test_a_predictor_answers_files_as_the_whole_table(row, files, tmp_path, two):
    model = fitted(row)
    expected = {"prediction": model.predict(TABLE)}
    if row in CLASSIFIERS:
        names = [f"probability_{name}" for name in model.classes_]
        expected |= dict(zip(names, model.predict_proba(TABLE).T, strict=True))
    else:
        ends = model.predict_interval(TABLE, level=0.9)
        expected |= dict(zip(["prediction_low", "prediction_high"], ends, strict=True))
    settings = [("some", "parts", "local"), ("others", "files", "local"), ("others", "parts", two)]
    for number, (name, layout, engine) in enumerate(settings[-1:] if row.slow else settings):
        found = read(
            distributed.predict(
                files / "inputs" / name, model, tmp_path / f"{number}", engine=engine, n_workers=1,
                layout=layout,
            )
        )  # fmt: skip
        assert found.select(TABLE.column_names).equals(TABLE)
        for column, values in expected.items():
            assert (found[column].to_numpy(zero_copy_only=False) == values).all()


@pytest.mark.parametrize("row", IMPUTERS, ids=str)
def test_an_imputer_answers_a_scan_as_the_whole_table(row, files):
    imputer, rows = fitted(row), halfseen.scan(files / "inputs" / "some")
    assert joined(imputer.transform(rows)).equals(imputer.transform(TABLE))
    expected = imputer.sample(TABLE, 2, row_ids=np.arange(N))
    found = [joined(part) for part in zip(*imputer.sample(rows, 2), strict=True)]
    assert all(one.equals(other) for one, other in zip(found, expected, strict=True))
    ends = [joined(parts) for parts in zip(*imputer.interval(rows, level=0.8), strict=True)]
    assert all(map(pa.Table.equals, ends, imputer.interval(TABLE, level=0.8)))
    if imputer.capabilities.density:
        assert (imputer.score_samples(rows) == imputer.score_samples(TABLE)).all()
        assert imputer.score(rows) == imputer.score(TABLE)


@pytest.mark.parametrize("row", PREDICTORS, ids=str)
def test_a_predictor_answers_a_scan_as_the_whole_table(row, files):
    model, rows = fitted(row), halfseen.scan(files / "inputs" / "some")
    assert (model.predict(rows) == model.predict(TABLE)).all()
    if row in CLASSIFIERS:
        for name in ("predict_proba", "predict_log_proba"):
            assert (getattr(model, name)(rows) == getattr(model, name)(TABLE)).all()
    else:
        for found, end in zip(model.predict_interval(rows), model.predict_interval(TABLE), strict=True):
            assert (found == end).all()


@pytest.mark.parametrize("row", [*IMPUTERS, *PREDICTORS], ids=str)
def test_a_fit_to_files_is_that_of_the_table_or_of_the_same_rows(row, files, tmp_path, two):
    kind, target = ("inputs", None) if row in IMPUTERS else ("all", target_of(row))
    source = halfseen.scan(files / kind / "some")
    other = "label" if target == "number" else "number"
    names = [name for name in source.column_names if name != other]
    whole = distributed.fit(row.make(random_state=0), source.select(names), target=target)
    answer = fitted(row).transform if target is None else fitted(row).predict
    found = whole.transform(TABLE) if target is None else whole.predict(TABLE)
    assert found.equals(answer(TABLE)) if target is None else (found == answer(TABLE)).all()
    if row.slow:
        return
    for name, engine in (("some", "local"), ("others", two)):
        table = halfseen.scan(files / kind / name).select(names)
        model = distributed.fit(
            row.make(random_state=0), table, target=target, n_rows=300, engine=engine, n_workers=1
        )
        model.save(tmp_path / name)
        assert model.rows_used_["sample"] < 400 < model.rows_used_["kinds"]
        assert model.schema_ == fitted(row).schema_
    assert (tmp_path / "some").read_bytes() == (tmp_path / "others").read_bytes()
