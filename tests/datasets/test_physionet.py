"""The stays of the PhysioNet challenge of 2012: the grid, and the documented counts of its three sets."""

import narwhals as nw
import numpy as np
import pandas as pd
import pytest

from halfseen.datasets import DataSetError, load_physionet2012
from halfseen.datasets.loaders import VARIABLES, grid_events


def test_the_last_value_of_a_step_counts_and_unknown_variables_and_values_do_not():
    events = pd.DataFrame(
        [(9, 0, "HR", 80), (9, 29, "HR", 90), (9, 30, "HR", 70), (7, 2880, "pH", 7.4), (7, 0, "Weight", 60)],
        columns=["record_id", "minute", "parameter", "value"],
    )
    unknown = pd.DataFrame([(7, 0, "Temp", -1)], columns=events.columns)
    X = grid_events(nw.from_native(pd.concat([events, unknown])), np.array([9, 7]), 30)
    assert X.shape == (2, 96, 35)
    place = VARIABLES.index("HR"), VARIABLES.index("pH")
    assert X[0, :2, place[0]].tolist() == [90, 70]
    assert X[1, 95, place[1]] == 7.4
    assert np.isfinite(X).sum() == 3


def test_wrong_arguments_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"part must be 'a', 'b' or 'c', got 'd'\."):
        load_physionet2012("d")
    with pytest.raises(ValueError, match=r"minutes must be a divisor of 2880, got 7\."):
        load_physionet2012("a", minutes=7)
    with pytest.raises(DataSetError, match="needs the file physionet2012_set_a/outcomes"):
        load_physionet2012("a", data_home=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "deaths", "known", "empty"), [("a", 554, 386.6, 3), ("b", 568, 352.2, 7), ("c", 585, 387.8, 3)]
)
def test_the_sets_have_the_documented_numbers_of_deaths_and_of_known_cells(
    shared_data, part, deaths, known, empty
):
    """Known cells per stay; another copy of set a, with fewer laboratory values, is known to have 367.5."""
    stays = load_physionet2012(part)
    assert stays.X.shape == (4000, 288, 35)
    assert stays.y.sum() == deaths
    seen = np.isfinite(stays.X).sum(axis=(1, 2))
    assert seen.mean() == pytest.approx(known, abs=0.05)
    assert (seen == 0).sum() == empty
