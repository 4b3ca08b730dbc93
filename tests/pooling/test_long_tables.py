"""Completed tables below each other, and further draws later."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import halfseen


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    x = rng.normal(size=120)
    frame = pd.DataFrame(
        {"x": x, "g": np.where(x + rng.normal(size=120) > 0, "a", "b"), "k": np.arange(120.0)}
    )
    frame["y"] = np.exp(x + 0.5 * rng.normal(size=120))
    return frame.mask(rng.random(frame.shape) < 0.2)


@pytest.mark.parametrize(
    "convert", [lambda f: f.set_index(f.index[::-1]), pl.from_pandas, pa.Table.from_pandas]
)
def test_completed_tables_are_stacked_below_the_incomplete_one(table, convert):
    shown = convert(table)
    tables = halfseen.multiple_imputation(
        shown, halfseen.ChainedImputer(n_cycles=1), n_draws=3, random_state=0
    )
    long = tables.to_long(shown)
    assert type(long) is type(shown)
    long = long if isinstance(long, pd.DataFrame) else long.to_pandas()
    assert long["draw"].tolist() == np.repeat([0, 1, 2, 3], 120).tolist()
    assert long["row"].tolist() == list(range(120)) * 4
    for number, one in enumerate([shown, *tables]):
        frame = one if isinstance(one, pd.DataFrame) else one.to_pandas()
        part = long[long["draw"] == number]
        np.testing.assert_array_equal(part["y"].to_numpy(float), frame["y"].to_numpy(float))
    assert len(tables.to_long()) == 3 * 120


def test_names_that_are_taken_are_refused(table):
    tables = halfseen.multiple_imputation(table.assign(draw=table["x"]), n_draws=2, random_state=0)
    with pytest.raises(ValueError, match="There is a column 'draw' already: pass other names"):
        tables.to_long()
    assert tables.to_long(draw="m").columns[0] == "m"


def test_arrays_have_no_long_table():
    X = np.random.default_rng(0).normal(size=(60, 2))
    X[:20, 1] = np.nan
    with pytest.raises(ValueError, match="to_long needs tables with named columns"):
        halfseen.multiple_imputation(X, n_draws=2, random_state=0).to_long()


def test_more_draws_of_the_same_seed_begin_with_the_same_tables(table):
    few, many = (
        halfseen.multiple_imputation(table, halfseen.ChainedImputer(n_cycles=2), n_draws=n, random_state=0)
        for n in (3, 12)
    )
    for one, other in zip(few, many, strict=False):
        pd.testing.assert_frame_equal(one, other, rtol=1e-6)
