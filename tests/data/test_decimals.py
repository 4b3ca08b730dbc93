"""Decimal columns of every library: bounds are those of the type, filled cells have its scale."""

from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from halfseen import GaussianImputer
from halfseen.data._cells import dtype_bounds
from halfseen.data.frames import Table
from halfseen.data.schema import Schema

SALARIES = ["2000000.25", "1900000", None, "2100000", None, "1950000.5", "2050000"]
SMALL = ["-5", "12", None, "40", "-7", None, "31", "22"]


def _decimals(texts: list[str | None]) -> list[Decimal | None]:
    return [None if text is None else Decimal(text) for text in texts]


def _arrow(texts: list[str | None], dtype: pa.DataType) -> pa.Table:
    return pa.table({"a": pa.array(_decimals(texts), dtype), "b": np.arange(len(texts), dtype=np.float64)})


def _pandas(texts: list[str | None], dtype: pa.DataType) -> pd.DataFrame:
    return _arrow(texts, dtype).to_pandas(types_mapper=pd.ArrowDtype)


def _polars(texts: list[str | None], dtype: pa.DataType) -> pl.DataFrame:
    column = pl.Series(_decimals(texts), dtype=pl.Decimal(dtype.precision, dtype.scale))
    return pl.DataFrame({"a": column, "b": np.arange(len(texts), dtype=np.float64)})


def _objects(texts: list[str | None], dtype: pa.DataType) -> pd.DataFrame:
    return pd.DataFrame({"a": _decimals(texts), "b": np.arange(len(texts), dtype=np.float64)})


def _filled(frame: Any, texts: list[str | None]) -> list[Decimal]:
    cells = list(GaussianImputer(random_state=0).fit(frame).transform(frame)["a"])
    values = [cell.as_py() if isinstance(cell, pa.Scalar) else cell for cell in cells]
    assert [value for value, text in zip(values, texts, strict=True) if text is not None] == [
        Decimal(text) for text in texts if text is not None
    ]
    return [value for value, text in zip(values, texts, strict=True) if text is None]


@pytest.mark.parametrize("build", [_arrow, _pandas, _polars, _objects])
def test_salaries_of_two_million_in_a_decimal_column_are_filled_with_such_salaries(build: Any) -> None:
    filled = _filled(build(SALARIES, pa.decimal128(38, 9)), SALARIES)
    assert all(1_900_000 < value < 2_100_000 for value in filled)


@pytest.mark.parametrize("build", [_arrow, _pandas, _polars, _objects])
def test_small_whole_numbers_with_eighteen_places_are_filled_near_their_mean(build: Any) -> None:
    filled = _filled(build(SMALL, pa.decimal128(38, 18)), SMALL)
    assert all(5 < value < 30 and value == int(value) for value in filled)


@pytest.mark.parametrize(
    "dtype",
    [
        pa.decimal128(9, 2),
        pa.decimal128(38, 30),
        pa.decimal256(50, 9),
        pa.decimal256(76, 60),
        pa.decimal32(9, 2),
        pa.decimal64(18, 4),
    ],
    ids=str,
)
@pytest.mark.parametrize("build", [_arrow, _pandas])
def test_decimals_of_every_width_keep_their_type_and_are_filled(build: Any, dtype: pa.DataType) -> None:
    frame = build(SALARIES, dtype)
    filled = _filled(frame, SALARIES)
    assert all(1_900_000 < value < 2_100_000 for value in filled)
    assert all(-int(value.as_tuple().exponent) == dtype.scale for value in filled)
    if isinstance(frame, pa.Table):
        assert GaussianImputer(random_state=0).fit(frame).transform(frame)["a"].type == dtype


@pytest.mark.parametrize(
    "dtype",
    [pa.decimal128(p, s) for p in (1, 5, 15, 16, 17, 28, 38) for s in (0, 1, 5, 9, 18, 37) if s <= p]
    + [pa.decimal256(76, s) for s in (0, 40, 76)],
    ids=str,
)
def test_the_bounds_of_a_decimal_are_the_largest_floats_that_it_can_hold(dtype: pa.DataType) -> None:
    largest = Decimal((0, (9,) * dtype.precision, -dtype.scale))
    low, high = dtype_bounds("number", str(dtype))
    assert low == -high
    assert float(largest) * (1 - 1e-15) <= high <= float(largest)
    empty = _arrow([None, None], dtype)
    written = Table(empty).filled({0: (np.array([0, 1]), np.array([low, high]))})["a"].to_pylist()
    assert written[1] <= largest
    assert written[0] == written[1].copy_negate()
    assert written[1] >= largest * Decimal("0.999999999999999")


@pytest.mark.parametrize("dtype", [pl.Decimal(38, 18), pl.Decimal(38, 0), pl.Decimal(20, 3)], ids=str)
def test_polars_decimals_hold_their_bounds(dtype: pl.Decimal) -> None:
    frame = pl.DataFrame({"a": pl.Series([None, None], dtype=dtype)})
    bounds = np.array(dtype_bounds("number", str(dtype)))
    written = Table(frame).filled({0: (np.arange(2), bounds)})["a"].to_list()
    assert np.allclose([float(value) for value in written], bounds, rtol=1e-9)


def test_decimals_are_read_to_the_nearest_float() -> None:
    texts = ["0.1", "12", "-7", "0.3", "1234567.891", None]
    for dtype in (pa.decimal128(38, 9), pa.decimal256(76, 40)):
        values = Table(_arrow(texts, dtype)).column(0).values
        assert values[:-1].tolist() == [0.1, 12.0, -7.0, 0.3, 1234567.891]
        assert np.isnan(values[-1])


def test_decimal_objects_with_more_than_28_digits_are_filled() -> None:
    texts = ["1234567.0000000000000000000000000000001", "7654321", None, "5000000"]
    [filled] = _filled(_objects(texts, pa.decimal128(38, 31)), texts)
    assert 1_234_567 < filled < 7_654_321


def test_decimal_objects_of_absurd_exponents_are_filled_with_a_bounded_number_of_digits() -> None:
    texts = ["1e-99999", "3", None, "5e3"]
    [filled] = _filled(_objects(texts, pa.decimal128(38, 9)), texts)
    assert len(filled.as_tuple().digits) < 400


def test_the_schema_of_a_decimal_column_names_its_type() -> None:
    schema = Schema.infer(Table(_arrow(SMALL, pa.decimal256(76, 40))))
    assert schema.columns[0].dtype == "decimal256(76, 40)"
