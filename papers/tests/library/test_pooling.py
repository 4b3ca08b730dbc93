"""The experiment on pooled intervals: its data are what it says, and its draws are those of public calls."""

import numpy as np
import pytest
import statsmodels.api as sm

import halfseen
from papers.library.pooling import COVERAGE, N_DRAWS, Task, draw_properly, make_task, score


def test_a_third_of_x_is_missing_where_y_is_large_and_its_coefficient_is_one():
    table = np.concatenate([make_task({"rows": 20_000}, seed).table for seed in range(2)])
    missing = np.isnan(table[:, 0])
    assert missing.mean() == pytest.approx(0.3, abs=0.03)
    assert table[missing, 2].mean() > table[~missing, 2].mean() + 1
    assert not np.isnan(table[:, 1:]).any()


def test_the_interval_is_that_of_least_squares_if_nothing_is_missing():
    rng = np.random.default_rng(0)
    z = rng.normal(size=60)
    x = z + rng.normal(size=60)
    table = np.column_stack([x, z, x + z + rng.normal(size=60)])
    found = score(lambda task: np.stack([task.table] * 3), Task(table, 0))
    fit = sm.OLS(table[:, 2], sm.add_constant(table[:, :2])).fit()
    low, high = fit.conf_int()[1]
    assert found["width"] == pytest.approx(high - low, rel=0.01)  # pooled degrees of freedom are fewer
    assert found["bias"] == pytest.approx(fit.params[1] - 1)
    assert found[COVERAGE] == float(low <= 1 <= high)


def test_draws_for_pooling_are_those_of_the_gaussian():
    task = make_task({"rows": 200}, 3)
    expected = halfseen.GaussianImputer(n_posterior_draws=N_DRAWS, random_state=3).fit(task.table)
    np.testing.assert_array_equal(draw_properly(task), expected.sample(task.table, n_draws=N_DRAWS))
