"""The experiment on classifiers that meet missing values after training."""

import numpy as np
import pandas as pd
import pytest

from papers.circuits import tables as circuit_classifier
from papers.circuits.tables import (
    RATES,
    BoostedTrees,
    accuracy,
    calibration,
    make_task,
    score,
)


@pytest.fixture(name="task")
def small_task(monkeypatch):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=400), "word": rng.choice(["a", "b"], 400), "split": "train"})
    frame["income"] = np.where((frame["x"] > 0) == (frame["word"] == "a"), "high", "low")
    monkeypatch.setattr(circuit_classifier, "load", lambda name: pd.concat([frame] * 30, ignore_index=True))
    return make_task({"table": "adult"}, 0)


def test_training_rows_are_complete_and_test_rows_lose_a_share_of_their_cells(task):
    assert len(task.train) == len(task.train_labels) == 8400
    assert list(task.train) == ["x", "word"]
    assert not task.train.isna().any(axis=None)
    for rate, rows in task.test.items():
        # 7,200 cells: five standard errors of the rate are 0.03
        assert rows.isna().to_numpy().mean() == pytest.approx(rate, abs=0.03)


@pytest.mark.parametrize("filled", [False, True])
def test_boosted_trees_are_scored_at_every_rate(task, filled):
    found = score(BoostedTrees(filled=filled), task)
    assert found.keys() == {of(rate) for rate in RATES for of in (accuracy, calibration)}
    assert found[accuracy(0.0)] > 0.98
    assert found[calibration(0.0)] < 0.02
    assert found[accuracy(0.7)] < 0.8  # one missing input of the two leaves nothing to say
