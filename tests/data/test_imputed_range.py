"""Which values may be imputed: observed codes, the observed range, or some room beyond it."""

import json

import numpy as np
import pandas as pd
import pytest

from halfseen.data.columns import with_room
from halfseen.data.frames import Table
from halfseen.data.schema import Schema


def infer(values, **settings):
    table = Table(pd.DataFrame({"x": values}))
    return Schema.infer(table, {"x": settings} if settings else None).columns[0]


def constrained(column, *codes):
    return column.constrain(np.array(codes, dtype=float)).tolist()


RATINGS = [1, 2, 2, 3, 3, 3, 4, 4, 5, 5] * 3
MEASURED = np.random.default_rng(0).normal(10, 2, size=50)


def test_whole_numbers_with_few_values_become_the_nearest_observed_one():
    column = infer([1, 2, 3, 5, 25] * 4)
    assert column.codes == (1, 2, 3, 5, 25)
    assert constrained(column, -7, 0.4, 2.4, 3.9, 4.1, 14, 16, 1e9) == [1, 1, 2, 3, 5, 5, 25, 25]
    assert np.isnan(column.constrain(np.array([np.nan]))).all()
    assert "Imputed values are observed ones: 1, 2, 3, 5, 25." in column.one_line()


def test_negative_codes_are_codes():
    assert infer([-1, 0, 1] * 5).codes == (-1, 0, 1)


def test_whole_numbers_that_are_all_different_are_not_codes():
    column = infer([2, 4, 6, 8, None])
    assert column.codes is None
    assert constrained(column, 10, -10, 100) == [10, 0, 14]


def test_many_distinct_whole_numbers_stay_whole_and_within_the_observed_range_if_they_repeat():
    column = infer(list(range(3, 103)) * 5)
    assert column.codes is None
    assert constrained(column, 1, 50.4, 200) == [3, 50, 102]


def test_measurements_may_exceed_the_observed_range_by_its_width():
    column = infer(MEASURED)
    width = MEASURED.max() - MEASURED.min()
    assert column.extrapolated
    assert constrained(column, 1e9)[0] == pytest.approx(MEASURED.max() + width)
    assert "Imputed values may exceed the observed range: " in column.one_line()


def test_columns_without_a_negative_value_stay_so():
    column = infer(np.append(np.zeros(20), np.exp(MEASURED)))
    assert column.constrain(np.array([-1e9, -0.1, 0.1, 1e9])).min() == 0


def test_columns_without_a_positive_value_may_be_those_of_which_the_large_ones_are_missing():
    below = MEASURED - MEASURED.max() - 0.5
    assert infer(below).constrain(np.array([1e9]))[0] == pytest.approx(2 * below.max() - below.min())


def test_dates_stay_within_the_observed_period():
    column = infer(pd.date_range("2020-01-01", periods=9))
    first, last = (pd.Timestamp(day).timestamp() * 1e6 for day in ("2020-01-01", "2020-01-09"))
    assert constrained(column, 0, 1e18) == [first, last]


def test_bounds_of_the_user_take_the_place_of_the_observed_range():
    column = infer(RATINGS, minimum=0, maximum=7)
    assert column.codes is None
    assert constrained(column, -1, 0, 6, 9) == [0, 0, 6, 7]
    one_sided = infer(RATINGS, maximum=7)
    assert constrained(one_sided, -3, 6, 9) == [1, 6, 7]


def test_room_beyond_repeated_values_leaves_codes_dates_and_limits_of_the_user():
    repeated = [0.5, 1.5, 2.5, None] * 9
    assert constrained(infer(repeated), -9, 9) == [0.5, 2.5]
    wider = with_room(infer(repeated))
    assert constrained(wider, -9, 9) == [0.25, 4.5]
    assert "Imputed values may exceed the observed range: 0.25 to 4.5." in wider.one_line()
    assert constrained(with_room(infer(repeated, maximum=3)), -9, 9) == [0.25, 3]
    dates = infer([*pd.date_range("2020-01-01", periods=9), pd.NaT])
    assert with_room(dates) == dates
    for column in (infer([*RATINGS, None]), infer(RATINGS), infer([*MEASURED, None])):
        assert with_room(column) == column


def test_a_detection_limit_lets_values_lie_beyond_it():
    column = infer(MEASURED.round(), censored_below=8.0)
    assert constrained(column, 1.0) == [1.0]


def test_a_natural_limit_is_stated_and_may_be_reached():
    shares = np.append(np.linspace(0.02, 0.97, 100), [0.96] * 5)
    column = infer(shares)
    assert "a natural limit" in column.one_line()
    assert constrained(column, -1, 0.99, 2) == [0, 0.99, 1]


@pytest.mark.parametrize("scale", [1e308, 1e-320, 5e-324])
def test_the_range_of_extreme_numbers_neither_overflows_nor_vanishes(scale):
    column = infer(np.array([1.0, 1.3, 1.7]) * scale)
    assert (np.isfinite(column.constrain(np.array([-np.inf, 0.0, np.inf])))).all()
    assert (column.constrain(np.array([-1.0, 0.0])) > 0).all()


def test_the_limits_survive_a_file():
    schema = Schema.infer(Table(pd.DataFrame({"a": RATINGS, "b": MEASURED[:30]})))
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema
    assert Schema.infer(
        Table(pd.DataFrame({"a": RATINGS})), {"a": {"kind": "count", "minimum": 0.0}}
    ).columns[0].codes == (1, 2, 3, 4, 5)
