"""The experiment on single-cell expression: what is hidden, the baselines, and a run."""

import numpy as np
import pytest

from papers.sparsity import cells as sparsity_cells
from papers.sparsity.cells import (
    EXPERIMENT,
    NORMALISED,
    RMSE,
    Task,
    gene_means,
    make_task,
    score,
    smooth,
)
from papers.sparsity.series import DRIFT


@pytest.fixture
def counts(monkeypatch):
    made = np.random.default_rng(0).poisson(4.0, size=(12, 40))
    monkeypatch.setattr(sparsity_cells, "load", lambda name: {"counts": made})


def test_a_share_of_the_detected_values_is_hidden(counts):
    task = make_task({"data": "blakeley", "hidden": 0.5}, 0)
    assert task.hidden.sum() == (task.truth > 0).sum() // 2
    assert (task.truth[task.hidden] > 0).all()
    assert (task.shown[task.hidden] == 0).all()
    np.testing.assert_array_equal(task.shown[~task.hidden], task.truth[~task.hidden])


def test_baselines_use_detected_values_only():
    shown = np.array([[2.0, 0.0], [4.0, 0.0], [0.0, 0.0], [6.0, 8.0]])
    np.testing.assert_allclose(gene_means(shown)[0], [4.0, 8.0])
    two_kinds = np.repeat([[1.0, 9.0, 5.0], [9.0, 1.0, 5.0]], 8, axis=0) + 0.01 * np.arange(16)[:, None]
    hidden = two_kinds.copy()
    hidden[0, 0] = 0.0
    assert smooth(hidden)[0, 0] == pytest.approx(1.0, abs=0.5)  # as cells of its kind, and not the mean of 5


def test_a_run_has_the_error_of_hidden_values_and_a_drift(counts):
    task = make_task({"data": "blakeley", "hidden": 0.3}, 0)
    found = score(EXPERIMENT.models[NORMALISED]().set_params(n_hidden=3, max_epochs=1), task)
    assert found[RMSE] > 0
    assert found[DRIFT] == abs(found["slope"])
    exact = Task(task.truth, task.shown, task.hidden, 0)
    assert score(lambda shown: task.truth, exact) == {RMSE: 0.0}
