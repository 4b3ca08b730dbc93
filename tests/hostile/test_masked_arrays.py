"""Masked arrays of numpy mean the same as arrays with NaN, in everything that takes an array."""

import numpy as np
import pytest
from conformance.registry import PREDICTORS
from sklearn.linear_model import LinearRegression

from halfseen import missingness, pool
from halfseen.data.incomplete import unmask
from halfseen.diagnosis.little import little_test
from halfseen.evaluation import scores

RNG = np.random.default_rng(0)
COMPLETE = RNG.normal(size=(60, 3)) @ RNG.normal(size=(3, 3))
GONE = RNG.random(COMPLETE.shape) < 0.2
HOLED = np.where(GONE, np.nan, COMPLETE)
MASKED = np.ma.array(np.where(GONE, -999.0, COMPLETE), mask=GONE)
TARGET = COMPLETE.sum(axis=1)


@pytest.mark.parametrize("row", PREDICTORS, ids=str)
def test_a_masked_target_is_refused(row):
    y = np.ma.array(row.target(TARGET), mask=GONE[:, 0])
    with pytest.raises(ValueError, match=r"Input y contains NaN: \d+ of its 60 values are masked"):
        row.make(random_state=0).fit(HOLED, y)


@pytest.mark.parametrize("row", [row for row in PREDICTORS if "neumiss" in row.name], ids=str)
def test_masked_weights_are_refused(row):
    weights = np.ma.array(np.ones(60), mask=GONE[:, 0])
    with pytest.raises(ValueError, match="Input sample_weight contains NaN"):
        row.make(random_state=0).fit(HOLED, row.target(TARGET), sample_weight=weights)


def test_a_mechanism_takes_masked_cells_for_missing_ones():
    for mechanism in (missingness.MCAR(0.3), missingness.MARLogistic(0.3)):
        expected = mechanism.fit(HOLED).amputate(HOLED, random_state=0)
        np.testing.assert_array_equal(mechanism.fit(MASKED).amputate(MASKED, random_state=0), expected)


def test_evaluation_takes_masked_cells_for_missing_ones():
    assert little_test(MASKED) == little_test(HOLED)
    np.testing.assert_array_equal(scores.Scale.fit(MASKED).loc, scores.Scale.fit(HOLED).loc)
    assert np.isnan(scores.rmse(np.ma.array([1.0, 2.0], mask=[True, False]), [1.0, 2.0]))


def test_pooling_refuses_a_masked_target():
    with pytest.raises(ValueError, match=r"Input y contains NaN: \d+ of its 60 values are masked"):
        pool(LinearRegression(), [COMPLETE, COMPLETE], np.ma.array(TARGET, mask=GONE[:, 0]))


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, bool, object, "U3"])
def test_masked_cells_of_every_dtype_become_missing(dtype):
    cells = unmask(
        np.ma.array(np.array([[1, 0], [1, 1]]).astype(dtype), mask=[[False, True], [False, False]])
    )
    assert cells[0, 1] != cells[0, 1]
    assert not isinstance(cells, np.ma.MaskedArray)
    assert cells[1].tolist() == np.array([1, 1]).astype(dtype).tolist()


def test_a_list_of_masked_rows_keeps_its_masks():
    rows = [np.ma.array([1.0, -9.0], mask=[False, True]), np.ma.array([2.0, 3.0])]
    np.testing.assert_array_equal(unmask(rows), [[1.0, np.nan], [2.0, 3.0]])


def test_the_array_that_was_masked_stays_as_it_was():
    masked = np.ma.array([[1.0, -999.0]], mask=[[False, True]])
    unmask(masked)
    assert masked.data.tolist() == [[1.0, -999.0]]
