"""The mean of the target by level: without leakage, shrunk, and saved with the trees."""

import numpy as np
import pandas as pd
import pytest
import torch

import halfseen
from halfseen.trees.target_statistics import (
    PRIOR_ROWS,
    TargetStatistics,
    as_indicators,
    fit_without_leakage,
)


def test_statistics_are_means_by_level_shrunk_towards_that_of_all_rows():
    levels = np.array([[0.0], [0.0], [2.0], [np.nan]])
    target = np.array([[1.0, 0.0], [3.0, 0.0], [8.0, 1.0], [0.0, 1.0]])
    found = TargetStatistics.fit(levels, {5: 3}, target)
    mean = target.mean(axis=0)
    expected = (2 * target[:2].mean(axis=0) + PRIOR_ROWS * mean) / (2 + PRIOR_ROWS)
    np.testing.assert_allclose(found.values(levels)[0], expected)
    np.testing.assert_allclose(found.values(np.array([[1.0], [np.nan]])), [mean, mean])  # not seen, missing


def test_no_row_sees_its_own_target():
    """If one target changes, the statistics of its own row do not."""
    rng = np.random.default_rng(0)
    levels, target = rng.integers(12, size=(200, 1)).astype(float), rng.normal(size=(200, 1))
    _, others = fit_without_leakage(levels, {0: 12}, target, seed=1)
    for row in (0, 77, 199):
        changed = target.copy()
        changed[row] += 100.0
        _, found = fit_without_leakage(levels, {0: 12}, changed, seed=1)
        assert found[row, 0] == others[row, 0]
        assert (found != others).any()


def test_indicators_are_of_the_second_class_or_of_the_most_frequent_ones():
    np.testing.assert_array_equal(as_indicators(np.array([0, 1, 1]), 2), [[0], [1], [1]])
    place = np.repeat(np.arange(8), [9, 1, 8, 7, 6, 5, 2, 1])
    found = as_indicators(place, 8)
    assert found.shape == (39, 5)
    np.testing.assert_array_equal(found.sum(axis=0), [9, 8, 7, 6, 5])


def many_levels(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    level, effect = rng.integers(150, size=n_rows), np.random.default_rng(9).normal(size=150)
    x = rng.normal(size=n_rows)
    frame = pd.DataFrame({"maker": [f"m{one:03d}" for one in level], "x": x})
    frame.loc[rng.random(n_rows) < 0.1, "maker"] = None
    return frame, effect[level] + 0.5 * x + 0.3 * rng.normal(size=n_rows)


def test_columns_with_many_levels_predict_and_are_saved(tmp_path):
    """Without them, predictions explain what x does: the error is that of the levels, about 1."""
    X, y = many_levels(1_500)
    new, truth = many_levels(400, seed=1)
    model = halfseen.BoostingRegressor(max_iter=60, random_state=0).fit(X, y)
    known = new["maker"].notna().to_numpy()
    assert np.sqrt(((model.predict(new) - truth)[known] ** 2).mean()) < 0.75
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(halfseen.load(tmp_path / "model").predict(new), model.predict(new))
    classifier = halfseen.BoostingClassifier(max_iter=60, random_state=0).fit(X, y > 0)
    assert (classifier.predict(new) == (truth > 0))[known].mean() > 0.75


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"statistics.0": torch.zeros(3, 1).double()}, "no mean of all rows"),
        (
            {"statistics.prior": torch.zeros(1).double(), "statistics.0": torch.zeros(4, 1).double()},
            "column 0",
        ),
        (
            {"statistics.prior": torch.zeros(1).double(), "statistics.x": torch.zeros(3, 1).double()},
            "column x",
        ),
        ({"statistics.prior": torch.zeros(1).double(), "statistics.0": torch.zeros(3, 1)}, "column 0"),
    ],
    ids=["no prior", "levels", "name", "type"],
)
def test_statistics_that_do_not_fit_the_columns_are_refused(state, message):
    with pytest.raises(ValueError, match=message):
        TargetStatistics.from_state(state, [3])
    assert TargetStatistics.from_state({}, [3]).n_values == 0  # of earlier versions
