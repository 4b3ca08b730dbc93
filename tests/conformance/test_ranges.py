"""Laws of every imputer: frames and arrays of codes, and warnings about values far from the observed ones."""

import numpy as np
import pandas as pd
import pytest

from halfseen.errors import HalfseenWarning
from halfseen.testing.checks import codes_and_measurements

NAMES = ["rating", "group", "size", "spent", "lost", "visits", "rounded", "measured"]


def frame():
    return pd.DataFrame(codes_and_measurements(), columns=NAMES)


def test_a_frame_is_completed_as_an_array_is(row):
    imputer = row.make(random_state=0).fit(frame())
    expected = row.make(random_state=0).fit(codes_and_measurements())
    np.testing.assert_array_equal(imputer.transform(frame()), expected.transform(codes_and_measurements()))
    # Of values that occur again and again, unless the observed ones do not show how far the others reach.
    assert imputer.schema_.columns[6].extrapolated == imputer.capabilities.models_missingness


@pytest.fixture(scope="module")
def runaway(row):
    """An imputer whose model answers with numbers a million away from the observed ones."""
    imputer = row.make(random_state=0).fit(frame()[["rating", "measured"]])
    complete = type(imputer)._by_piece

    def run_away(*arguments):
        return [[codes, 1e6 + numbers] for codes, numbers in complete(imputer, *arguments)]

    imputer._by_piece = run_away
    return imputer


@pytest.mark.parametrize("answer", ["transform", "sample", "interval"])
def test_values_far_outside_the_observed_ones_are_announced_by_column_and_count(runaway, answer):
    table = frame()[["rating", "measured"]]
    n_missing = int(table["measured"].isna().sum()) * (1 if answer == "transform" else 2)
    ask = {"sample": lambda: runaway.sample(table, n_draws=2)}.get(
        answer, lambda: getattr(runaway, answer)(table)
    )
    with pytest.warns(
        HalfseenWarning, match=rf"'measured': {n_missing} values lie more than 4 observed ranges"
    ):
        ask()
