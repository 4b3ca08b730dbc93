"""Columns described from summaries of parts: equal to the description of the whole, however it is divided."""

from dataclasses import fields

import numpy as np
import pyarrow as pa
import pytest

from halfseen._random import value_keys
from halfseen.data import summaries
from halfseen.data._inference import describe_column
from halfseen.data.frames import RawColumn, Table
from halfseen.data.schema import Schema
from halfseen.data.summaries import ColumnSummary, most_distinct

N = 3000


def make_table(seed=0):
    rng = np.random.default_rng(seed)
    days = rng.integers(0, 9000, N).astype("datetime64[D]").astype("datetime64[us]")
    columns = {
        "id": np.arange(N),
        "shuffled id": rng.permutation(N),
        "number": rng.normal(size=N),
        "positive": rng.exponential(size=N),
        "count": rng.poisson(3.0, N),
        "share": rng.beta(3, 0.3, N).round(2),
        "percent": rng.integers(0, 101, N),
        "late negative": np.r_[np.ones(N - 1), -1.0],
        "late fraction": np.r_[np.arange(N - 1) % 9, 0.5],
        "zip": rng.integers(1000, 1300, N),
        "two": rng.integers(3, 5, N),
        "one": np.full(N, 7.5),
        "time": days,
        "duration": rng.integers(0, 9, N).astype("timedelta64[h]").astype("timedelta64[us]"),
        "flag": rng.random(N) < 0.5,
        "level": np.array(list("abcdefg"))[rng.integers(0, 7, N)],
        "rare level": np.array(["x"] * (N - 1) + ["a"]),
        "name": np.array([f"name {k}" for k in rng.permutation(N)]),
        "sentence": np.array([f"this is the sentence with number {k}" for k in range(N)]),
        "pressure": np.array([f"{k % 90 + 60}/80" for k in range(N)]),
    }
    masked = {name: pa.array(one, mask=rng.random(N) < 0.1) for name, one in columns.items()}
    masked["late"] = pa.array([None] * (N - 2) + [1.5, 2.5])
    masked["late text"] = pa.array([None] * (N - 3) + ["q", "q", "p"])
    masked["empty"] = pa.nulls(N, pa.float64())
    return pa.table(masked)


def cut(rng, n_parts):
    places = np.sort(rng.integers(0, N + 1, n_parts - 1))  # parts may be empty
    return list(zip([0, *places], [*places, N], strict=True))


def of_parts(table, parts):
    total = []
    for start, stop in parts:
        read = Table(table.slice(start, stop - start))
        part = [ColumnSummary.of(read.column(j), len(read.names)) for j in range(len(read.names))]
        total = [one.merged(after) for one, after in zip(total, part, strict=True)] if total else part
    return total


def content(summary):
    values = {field.name: getattr(summary, field.name) for field in fields(summary)}
    raw = values.pop("column")
    return repr(values | {"counts": values["counts"].tolist()}), repr(raw.values.tolist()), raw.labels


@pytest.fixture(params=[None, 50], ids=["all values", "50 values"])
def limit(request, monkeypatch):
    """Whether all distinct values are kept, or the 50 with the smallest hashes."""
    if request.param is not None:
        monkeypatch.setattr(summaries, "most_distinct", lambda storage, n_columns: request.param)
        monkeypatch.setattr(summaries, "FIRST_LABELS", 20)


@pytest.mark.parametrize("seed", range(3))
def test_summaries_of_parts_add_up_to_that_of_the_whole(limit, seed):
    table, rng = make_table(seed), np.random.default_rng(seed)
    whole = of_parts(table, [(0, N)])
    for n_parts in (2, 5, 40):
        merged = of_parts(table, cut(rng, n_parts))
        for one, other in zip(merged, whole, strict=True):
            assert content(one) == content(other), one.column.name


def test_columns_are_described_as_those_of_the_table_in_memory(limit):
    table = make_table()
    expected = Schema.infer(Table(table))
    merged = of_parts(table, cut(np.random.default_rng(0), 7))
    found = [describe_column(one, {}, named=True) for one in merged]
    assert found == list(expected)
    kinds = {column.name: column.kind for column in found}
    assert kinds["id"] == "identifier"
    assert kinds["late negative"] == "binary"
    assert kinds["late text"] == "binary"


@pytest.mark.parametrize("rows", ["in order", "shuffled"])
def test_many_distinct_numbers_are_counted_nearly(rows):
    """The share of 20,000 kept hashes has a relative standard error of .7%; four of them are allowed."""
    rng = np.random.default_rng(0)
    values = np.repeat(rng.normal(size=60_000), 2)
    values = rng.permutation(values) if rows == "shuffled" else values
    n_columns = summaries.CELLS_OF_NUMBERS // 20_000
    summary = ColumnSummary.of(RawColumn("x", "double", "number", values), n_columns)
    assert not summary.is_complete
    assert len(summary.values) == most_distinct("number", n_columns) == 20_068
    assert (summary.counts == 2).all()
    distinct = np.unique(values)
    hashes = value_keys(distinct)
    assert (summary.values == distinct[hashes <= np.sort(hashes)[20_067]]).all()
    assert not summary.all_differ
    assert abs(summary.n_distinct / 60_000 - 1) < 4 * 20_000**-0.5
    assert summary.ends == (values.min(), values.max())


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        ([1.0, -2.0], "positive", r"'x' cannot be positive, .* it contains -2. Change"),
        ([1.0, -2.0], "count", r"'x' cannot be a count, .* it contains -2. Change"),
        ([1.0, 2.5], "count", r"'x' cannot be a count, .* it contains 2.5. Change"),
        ([1.0, 2.0], "constant", r"'x' cannot be constant, .* besides 1 it contains 2. Change"),
        ([1.0, np.inf], "continuous", r"'x' contains infinity"),
    ],
)
def test_values_that_contradict_the_schema_are_named_without_a_row(values, kind, message):
    summary = ColumnSummary.of(RawColumn("x", "double", "number", np.array(values)), 1)
    with pytest.raises(ValueError, match=message):
        describe_column(summary, {"kind": kind}, named=True)


def test_texts_with_too_many_levels_are_identifiers_and_never_levels(monkeypatch):
    monkeypatch.setattr(summaries, "most_distinct", lambda storage, n_columns: 50)
    raw = Table(pa.table({"x": [f"t{k}" for k in range(60)] * 10})).column(0)
    summary = ColumnSummary.of(raw, 1)
    column = describe_column(summary, {}, named=True)
    assert (column.kind, column.left) == ("identifier", "identifier")
    assert column.reason == "Text with more than 50 distinct values in 600 cells."
    with pytest.raises(ValueError, match="'x' cannot be categorical: it has more than 50 distinct values"):
        describe_column(summary, {"kind": "categorical"}, named=True)
