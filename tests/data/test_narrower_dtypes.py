"""A column that is narrower in `transform` than it was in `fit`: filled cells fit the dtype at hand."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from halfseen import GaussianImputer

FLOATS = [0.25, 1.75, 3.5, 2.25, 0.5, 1.25]
OTHER = [1.0, 2.0, 3.0, 2.0, 1.0, 2.0]


def _imputer(frame, cells=FLOATS):
    return GaussianImputer(random_state=0).fit(frame({"a": cells, "b": OTHER[: len(cells)]}))


@pytest.mark.parametrize("dtype", ["Int64", "UInt8", "boolean", "int64[pyarrow]", "bool[pyarrow]", "Float32"])
def test_floats_in_fit_fill_nullable_columns_of_pandas(dtype):
    holed = pd.DataFrame({"a": pd.array([1, None, 0], dtype=dtype), "b": [1.0, 2.0, 3.0]})
    filled = _imputer(pd.DataFrame).transform(holed)
    assert filled["a"].dtype == holed["a"].dtype
    assert filled["a"].notna().all()
    assert filled["a"][[0, 2]].tolist() == holed["a"][[0, 2]].tolist()


def test_filled_whole_numbers_are_rounded_not_cut():
    cells = [1.7, 1.8, 1.7, 1.8, 1.7, 1.8]
    whole = {"a": [None, 5, 6], "b": [1.5, 2.0, 3.0]}
    for frame, holed in [
        (pl.DataFrame, pl.DataFrame(whole)),
        (pa.table, pa.table(whole)),
        (pd.DataFrame, pd.DataFrame(whole).astype({"a": "Int64"})),
    ]:
        filled = _imputer(frame, cells).transform(holed)
        assert int(next(iter(filled["a"]))) == 2


def test_numbers_beyond_a_narrower_dtype_become_its_bounds():
    fitted = _imputer(pl.DataFrame, [1e300, 1.1e300, 1.2e300, 1.3e300, 1.25e300, 1.15e300])
    for dtype, bound in [(pl.Int8, 127), (pl.Float32, np.finfo(np.float32).max), (pl.UInt64, 2**64 - 2048)]:
        holed = pl.DataFrame({"a": pl.Series([None, 1], dtype=dtype), "b": [1.0, 2.0]})
        assert fitted.transform(holed)["a"][0] == bound


def test_numbers_beyond_a_narrower_array_become_its_bounds():
    table = np.array([[1e300, 1.0], [2e300, 2.0], [3e300, 4.0], [1.5e300, 3.0]])
    fitted = GaussianImputer(random_state=0).fit(table)
    filled = fitted.transform(np.array([[np.nan, 2.0], [1.0, 1.0]], dtype=np.float32))
    assert filled[0, 0] == np.finfo(np.float32).max


def test_moments_beyond_a_narrower_dtype_become_its_bounds():
    years = np.array(["9000-01-01", "9500-01-01", "9700-01-01", "9900-01-01"], dtype="datetime64[us]")
    fitted = GaussianImputer(random_state=0).fit(pl.DataFrame({"a": years, "b": OTHER[:4]}))
    holed = pl.DataFrame({"a": pl.Series([None, 0], dtype=pl.Datetime("ns")), "b": [1.0, 2.0]})
    assert fitted.transform(holed)["a"].dt.year()[0] == 2261
