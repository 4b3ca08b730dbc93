"""The diagnosis of a table in files does not depend on the files, and its counts are those in memory."""

import datetime
import re
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import halfseen
from halfseen import distributed
from halfseen.data import incomplete as blocks
from halfseen.diagnosis import cells, scanned
from halfseen.diagnosis.cells import MissingCounts, group_patterns
from halfseen.errors import SchemaError

N = 3000


class Backwards:
    """An engine that works off units in reverse order."""

    name = "backwards"

    def run(self, function, job, units, n_workers):
        """Yields the last unit first."""
        for unit in reversed(units):
            yield unit, function(job, unit)


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    common = rng.normal(size=N)
    return pa.table({
        "a": pa.array(common, mask=rng.random(N) < 0.2),
        "b": pa.array(common + rng.normal(size=N), mask=common > 1),
        "level": pa.array(rng.choice(["x", "y", "z"], N), mask=rng.random(N) < 0.1),
        "rare": pa.array(np.arange(N) % 5, mask=np.arange(N) == 1234),
        "known": pa.array(common),
    })  # fmt: skip


@pytest.fixture
def files(table, tmp_path, monkeypatch):
    """The same table in two folders, in files that end within blocks."""
    monkeypatch.setattr(blocks, "MOST_ROWS", 256)
    monkeypatch.setattr(blocks, "BLOCKS_IN_RUN", 3)
    for name, cut in {"one": 1, "two": 2500}.items():
        (tmp_path / name).mkdir()
        pq.write_table(table.slice(0, cut), tmp_path / name / "f0.parquet")
        pq.write_table(table.slice(cut), tmp_path / name / "f1.parquet", row_group_size=99)
    return tmp_path / "one", tmp_path / "two"


def test_counts_do_not_depend_on_parts_or_their_order():
    rng = np.random.default_rng(1)
    observed = rng.random((500, 11)) < rng.random(11)
    expected = group_patterns(observed)
    for cuts in ([], [1], [7, 8, 250, 499]):
        parts = []
        for low, high in zip([0, *cuts], [*cuts, 500], strict=True):
            part = MissingCounts.empty(500, 11)
            part.add_rows(low, observed[low:high])
            parts.append(part)
        total = MissingCounts.empty(500, 11)
        for place in rng.permutation(len(parts)):
            total.merge(parts[place])
        found = total.pattern_counts()
        assert (found.observed == expected.observed).all()
        assert (found.counts == expected.counts).all()
        assert (total.missing.sum(axis=0) == (~observed).sum(axis=0)).all()
        assert total.n_complete == observed.all(axis=1).sum()


def test_a_scan_of_few_rows_is_described_as_the_table_in_memory(table, files):
    expected = repr(halfseen.describe(table, "known", table.slice(0, 900)))
    found = halfseen.describe(halfseen.scan(files[1]), "known", table.slice(0, 900))
    assert repr(found) == expected
    assert found.sampled is None


def test_what_is_counted_in_all_rows_equals_the_diagnosis_in_memory(table, files):
    expected = halfseen.describe(table)
    found = distributed.describe(files[0], n_rows=800, n_workers=1)
    for name in ("n_rows", "n_missing", "columns", "patterns"):
        assert getattr(found, name) == getattr(expected, name)
    of_missingness = [
        {
            (p.column, p.other): replace(p, p_adjusted=0.0)
            for p in one.associations.pairs
            if p.about != "value"
        }
        for one in (found, expected)
    ]
    assert of_missingness[0] == of_missingness[1]
    assert len(of_missingness[0]) == 6
    assert abs(found.sampled.n_rows - 800) < 4 * np.sqrt(800 * 0.75)


def test_what_is_sampled_is_the_diagnosis_of_the_sampled_rows_and_says_so(files):
    found = distributed.describe(files[0], n_rows=800, n_workers=1)
    expected = halfseen.describe(halfseen.scan(files[0]).sample(800))
    assert expected.n_rows == found.sampled.n_rows
    assert found.little.statistic == expected.little.statistic
    assert repr(found.predictability) == repr(expected.predictability)
    values = [
        {(p.column, p.other): p.effect for p in one.associations.about("known")} for one in (found, expected)
    ]
    assert values[0] == values[1]
    assert f"{found.sampled.n_rows} sampled rows" in re.sub(",", "", found.readings[0])
    assert "sampled rows" in found.little.notes[0]
    assert found.to_dict()["sampled"] == {"n_rows": found.sampled.n_rows, "n_patterns": None}


def test_kinds_of_columns_are_those_in_memory_although_one_row_decides_them(tmp_path, monkeypatch):
    """What distinguishes each column is in one of 3,000 rows, which is not among the chosen ones."""
    monkeypatch.setattr(blocks, "MOST_ROWS", 256)
    monkeypatch.setattr(blocks, "BLOCKS_IN_RUN", 3)
    rng = np.random.default_rng(2)
    place = 77
    once = np.arange(N) == place
    table = pa.table({
        "binary": pa.array(np.where(once, 2, rng.integers(0, 2, N))),
        "whole": pa.array(np.where(once, 0.5, rng.integers(0, 90, N)), mask=rng.random(N) < 0.1),
        "positive": np.where(once, -1.0, rng.exponential(size=N)),
        "moment": pa.array(np.where(once, 1_000_000, 0), pa.timestamp("us")),
        "late": pa.array(np.arange(N) / 7, mask=~(once | (np.arange(N) == place + 1))),
        "level": [str(k % 7) for k in range(N)],
    })  # fmt: skip
    expected = [one.kind for one in halfseen.describe(table).columns]
    for number, cut in enumerate((1, 2500)):
        (tmp_path / f"{number}").mkdir()
        pq.write_table(table.slice(0, cut), tmp_path / f"{number}" / "f0.parquet", row_group_size=700)
        pq.write_table(table.slice(cut), tmp_path / f"{number}" / "f1.parquet")
        found = distributed.describe(tmp_path / f"{number}", n_rows=100, engine=Backwards())
        assert [one.kind for one in found.columns] == expected
    chosen = halfseen.describe(halfseen.scan(tmp_path / "0").sample(100))
    differs = [one.kind != kind for one, kind in zip(chosen.columns, expected, strict=True)]
    assert differs[0]
    assert all(differs[2:5])


def test_the_diagnosis_does_not_depend_on_files_or_the_order_of_units(files):
    one = distributed.describe(files[0], "known", n_rows=800, n_workers=1)
    two = distributed.describe(files[1], "known", n_rows=800, engine=Backwards())
    assert repr(one) == repr(two)


@pytest.mark.slow
def test_the_diagnosis_does_not_depend_on_the_number_of_workers(files):
    one = distributed.describe(files[0], n_rows=800, n_workers=1)
    two = distributed.describe(files[1], n_rows=800, n_workers=2)
    assert repr(one) == repr(two)


def test_in_one_process_the_default_sample_is_that_of_an_engine(files, monkeypatch):
    monkeypatch.setattr(scanned, "SAMPLE_ROWS", 700)
    monkeypatch.setattr(scanned, "FEWEST_ROWS", 1)
    found = halfseen.describe(halfseen.scan(files[0]))
    assert repr(found) == repr(distributed.describe(files[1], n_workers=1))
    assert found.sampled.n_rows < N
    with pytest.raises(SchemaError, match="against must be None"):
        halfseen.describe(halfseen.scan(files[0]), against=pa.table({"a": [1.0, None]}))


def test_with_too_many_patterns_these_are_sampled_and_the_rest_is_counted(table, files, monkeypatch):
    monkeypatch.setattr(cells, "MOST_PATTERNS", 5)
    monkeypatch.setattr(cells, "FEWEST_PATTERNS", 1)
    found = distributed.describe(files[0], n_rows=800, n_workers=1)
    assert repr(found) == repr(distributed.describe(files[1], n_rows=800, engine=Backwards()))
    expected = halfseen.describe(table)
    assert (found.n_missing, found.columns) == (expected.n_missing, expected.columns)
    assert found.patterns.n_complete_rows == expected.patterns.n_complete_rows
    assert found.patterns.columns == expected.patterns.columns
    assert found.n_pattern_rows == found.sampled.n_rows
    assert found.patterns.rows == halfseen.describe(halfseen.scan(files[0]).sample(800)).patterns.rows
    assert "more than 5 patterns" in found.readings[1]


def test_what_is_missing_is_the_same_for_all_types(tmp_path):
    day = datetime.date(2020, 1, 1)
    table = pa.table({
        "nan": pa.array([1.0, np.nan, None] * 40),
        "float32": pa.array([np.nan, None, 2.0] * 40, pa.float32()),
        "text": ["", None, "NA"] * 40,
        "truth": [True, None, False] * 40,
        "day": [day, day, None] * 40,
        "list": [[1], None, []] * 40,
        "decimal": [Decimal("1.5"), None, Decimal("2.5")] * 40,
        "bytes": [b"a", None, b""] * 40,
        "nothing": pa.nulls(120),
        "number": np.arange(120),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "t.parquet")
    expected = halfseen.describe(table)
    found = distributed.describe(tmp_path / "t.parquet", n_rows=60, n_workers=1)
    assert [one.n_missing for one in found.columns] == [one.n_missing for one in expected.columns]
    assert found.patterns == expected.patterns


def test_errors(files, tmp_path):
    rows = halfseen.scan(files[0])
    with pytest.raises(SchemaError, match="'c' is not a column"):
        halfseen.describe(rows, "c")
    with pytest.raises(SchemaError, match="kept must be None"):
        halfseen.describe(rows, kept={"a": np.zeros(N, dtype=bool)})
    with pytest.raises(ValueError, match="n_rows"):
        distributed.describe(rows, n_rows=0)
    pq.write_table(pa.table({"a": pa.array([], pa.float64())}), tmp_path / "empty.parquet")
    with pytest.raises(SchemaError, match="0 rows"):
        halfseen.describe(halfseen.scan(tmp_path / "empty.parquet"))
