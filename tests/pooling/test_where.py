"""Which cells are drawn: missing cells that stay empty, observed cells that are drawn beside the data."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import stats
from tolerances import FAILURE_RATE

import halfseen


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    x = rng.normal(size=100)
    frame = pd.DataFrame(
        {
            "x": x,
            "level": np.where(x + rng.normal(size=100) > 0, "a", "b"),
            "whole": pd.array(rng.poisson(3, 100), dtype="Int64"),
            "y": x + 0.5 * rng.normal(size=100),
        },
        index=np.arange(100)[::-1],
    )
    return frame.mask(rng.random(frame.shape) < 0.2)


def _impute(table, where, **options):
    imputer = halfseen.ChainedImputer(n_cycles=2)
    return halfseen.multiple_imputation(table, imputer, n_draws=3, where=where, random_state=0, **options)


def _pandas(table):
    return table if isinstance(table, pd.DataFrame) else table.to_pandas()


@pytest.mark.parametrize("convert", [lambda f: f, pl.from_pandas, pa.Table.from_pandas])
def test_only_the_cells_that_were_asked_for_are_drawn(table, convert):
    shown = convert(table.reset_index(drop=True))
    where = np.random.default_rng(1).random(table.shape) < 0.5
    missing = table.isna().to_numpy()
    usual, tables = _impute(shown, None), _impute(shown, where)
    assert usual.overimputed is None
    for one, drawn, other in zip(tables, tables.overimputed, usual, strict=True):
        assert type(one) is type(drawn) is type(shown)
        first, beside, whole = (_pandas(t).astype(object).to_numpy() for t in (one, drawn, other))
        np.testing.assert_array_equal(pd.isna(first), missing & ~where)
        kept = ~missing | where
        np.testing.assert_array_equal(first[kept], whole[kept])
        np.testing.assert_array_equal(beside[kept & ~(where & ~missing)], whole[kept & ~(where & ~missing)])
        over = where & ~missing & [True, False, False, True]  # the numbers, which are drawn from a density
        assert (beside[over] != whole[over]).all()
        assert set(beside[where[:, 1], 1]) == {"a", "b"}


def test_an_observed_cell_is_drawn_given_the_rest_of_its_row_but_not_its_value(table):
    changed = table.copy()
    changed.iloc[0, [0, 3]] = 0.5, 1.0
    where = np.zeros(table.shape, dtype=bool)
    where[0, 3] = True
    imputer = halfseen.ChainedImputer(5, n_cycles=2, random_state=0).fit(changed)
    from halfseen.pooling.multiple import draw_observed

    ids = np.arange(100)
    drawn = []
    for value in (1.0, 9.0):
        changed.iloc[0, 3] = value
        tables = imputer.sample(changed, 5, row_ids=ids)
        drawn.append([t.iloc[0, 3] for t in draw_observed(imputer, changed, tables, where, ids)])
        assert all(t.iloc[0, 3] == value for t in tables)
    assert drawn[0] == drawn[1]


def test_draws_of_observed_cells_are_calibrated():
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    X = np.column_stack([x, x + rng.normal(size=400)])
    X[:40, 0] = np.nan
    where = np.zeros(X.shape, dtype=bool)
    where[40:, 1] = True
    tables = halfseen.multiple_imputation(X, n_draws=99, where=where, random_state=0)
    assert np.isnan(tables[0][:40, 0]).all()
    np.testing.assert_array_equal(tables[0][40:], X[40:])
    over = np.stack(tables.overimputed)[:, 40:, 1]
    rank = ((over < X[40:, 1]).sum(axis=0) + 0.5) / 100
    assert stats.kstest(rank, "uniform").pvalue > FAILURE_RATE


def test_where_may_be_a_frame_in_any_order_of_its_columns(table):
    where = np.random.default_rng(1).random(table.shape) < 0.5
    frame = pd.DataFrame(where, columns=table.columns)[["y", "x", "whole", "level"]]
    for one, other in zip(_impute(table, where), _impute(table, frame), strict=True):
        pd.testing.assert_frame_equal(one, other)
        assert one.index.equals(table.index)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (np.ones((3, 4), dtype=bool), r"with the shape \(100, 4\) of the table, got the shape \(3, 4\)"),
        (np.ones((100, 4)), "got the shape .* and the type float64"),
        (pd.DataFrame({"x": [True]}), "where must have the columns of the table, got x"),
    ],
)
def test_cells_that_cannot_be_read_are_explained(table, where, message):
    with pytest.raises(ValueError, match=message):
        _impute(table, where)


def test_observed_cells_of_columns_that_are_left_empty_are_not_drawn(table):
    where = np.ones(table.shape, dtype=bool)
    imputer = halfseen.ChainedImputer(2, n_cycles=1, schema={"x": {"fill": False}})
    with pytest.raises(
        ValueError, match="draws of observed cells of column 'x', which ChainedImputer leaves"
    ):
        halfseen.multiple_imputation(table, imputer, n_draws=2, where=where, random_state=0)


@pytest.mark.parametrize("imputer", [None, halfseen.ChainedImputer(n_cycles=2), halfseen.GaussianImputer()])
def test_draws_that_are_added_later_are_those_of_one_call(table, imputer):
    where = np.ones(table.shape, dtype=bool) & table.isna().to_numpy()
    where[:5] = False
    few = halfseen.multiple_imputation(table, imputer, n_draws=2, where=where)
    more = few.extended(table, 4)
    assert len(more) == 4
    assert more.extended(table, 4)[3].equals(more[3])
    for one, other in zip(few, more, strict=False):
        pd.testing.assert_frame_equal(one, other, rtol=1e-6)
    asked = halfseen.multiple_imputation(
        table, imputer, n_draws=4, where=where, random_state=few.imputer.seed_
    )
    for one, other in zip(asked, more, strict=True):
        pd.testing.assert_frame_equal(one, other)
    with pytest.raises(ValueError, match="n_draws must be"):
        few.extended(table, 1)
