"""Reading the table of a user: what an array can hold, and what it cannot."""

import warnings

import numpy as np
import pandas as pd
import pytest

from halfseen import HalfseenWarning, MeanImputer

EXACT = 2**53


@pytest.mark.parametrize(
    ("array", "cell", "returned"),
    [
        (np.array([[1, EXACT + 1], [2, 3]]), EXACT + 1, EXACT),
        (np.array([[1, -EXACT - 1], [2, 3]]), -EXACT - 1, -EXACT),
        (np.array([[1, 2**64 - 1], [2, 3]], dtype=np.uint64), 2**64 - 1, 2**64),
        (np.array([[1, EXACT + 1], [None, 3]], dtype=object), EXACT + 1, EXACT),
        ([[1, EXACT + 1], [None, 3]], EXACT + 1, EXACT),
    ],
    ids=["integers", "negative", "unsigned", "objects", "lists"],
)
def test_integers_that_change_in_an_array_are_warned_of(array, cell, returned):
    with pytest.warns(
        HalfseenWarning, match=rf"Column 'x1' contains {cell} in row 0.* holds as {returned}\."
    ):
        completed = MeanImputer().fit(array).transform(array)
    assert int(completed[0, 1]) == returned


@pytest.mark.parametrize(
    "table",
    [
        np.array([[1, EXACT], [2, -EXACT]]),
        np.array([[1, 2**60], [2, 3]]),
        np.array([[1.0, 1e300], [2.0, 3.0]], dtype=object),
        pd.DataFrame({"a": [1.5, 2.5], "b": [EXACT + 1, 3]}),
    ],
    ids=["small", "power", "floats", "frame"],
)
def test_other_large_numbers_are_kept_without_a_warning(table):
    imputer = MeanImputer()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        completed = imputer.fit(table).transform(table)
    assert np.asarray(completed, dtype=object).tolist() == np.asarray(table, dtype=object).tolist()
