"""The experiment on skewed and discrete columns: its data are what it says, and its scores can be trusted."""

import numpy as np
import pytest
from scipy import stats

from papers.library.margins import AUTO, EXPERIMENT, GAUSSIAN, MEANS, make_task, score


@pytest.mark.parametrize("shape", MEANS)
def test_the_first_column_has_the_mean_and_the_correlation_that_are_asked_for(shape):
    tasks = [make_task({"shape": shape, "mechanism": "mcar"}, seed) for seed in range(10)]
    column = np.concatenate([task.complete[:, 0] for task in tasks])
    assert column.mean() == pytest.approx(MEANS[shape], rel=0.05)
    others = np.concatenate([task.complete[:, 1] for task in tasks])
    assert stats.spearmanr(column, others).statistic == pytest.approx(0.58, abs=0.04)


@pytest.mark.parametrize("mechanism", ["mcar", "mar"])
def test_a_third_of_the_first_column_is_missing_and_nothing_else(mechanism):
    task = make_task({"shape": "beta", "mechanism": mechanism}, 0)
    assert np.isnan(task.shown[:, 0]).mean() == pytest.approx(0.3, abs=0.06)
    assert not np.isnan(task.shown[:, 1:]).any()
    gap = task.complete[task.hidden, 1].mean() - task.complete[~task.hidden, 1].mean()
    assert (gap > 0.5) == (mechanism == "mar")


def test_margins_score_better_than_none_on_a_log_normal_column():
    task = make_task({"shape": "log-normal", "mechanism": "mcar"}, 0)
    ours, theirs = (score(EXPERIMENT.models[name](), task) for name in (AUTO, GAUSSIAN))
    assert ours["CRPS"] < theirs["CRPS"]
    assert abs(ours["median"]) < 0.04 < theirs["median"]
