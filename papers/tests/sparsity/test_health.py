"""The experiment on health examinations: its parts, the inputs of its controls, and its scores."""

import numpy as np
import pytest
import torch

from papers.sparsity import health as sparsity_health
from papers.sparsity.health import (
    AUROC,
    CALIBRATION,
    MARKED,
    NORMALISED,
    SCALED,
    ZEROS,
    calibration_by_count,
    make_task,
    read_inputs,
    score,
)
from papers.sparsity.series import DRIFT

SETTING = {"mechanism": "mcar", "disease": "cardiovascular", "people": 400, "dropout": 0.5}


def test_people_are_in_one_part_each_and_a_quarter_is_for_the_test():
    task = make_task(SETTING, 0)
    parts = [task.train[0], task.held[0], task.test[0]]
    assert [len(part) for part in parts] == [270, 30, 100]
    rows = np.nan_to_num(np.concatenate(parts), nan=-1.0)
    assert len(np.unique(rows, axis=0)) > 380  # people without any examination look alike


def test_inputs_are_zeros_with_one_factor_or_beside_their_mask():
    rows = np.array([[0.5, np.nan, 0.25]])
    torch.testing.assert_close(read_inputs(rows, SCALED, 2.0).filled(), torch.tensor([[1.0, 0.0, 0.5]]))
    marked = read_inputs(rows, MARKED, 2.0)
    torch.testing.assert_close(marked.filled(), torch.tensor([[0.5, 0.0, 0.25, 1.0, 0.0, 1.0]]))
    assert marked.observed.all()
    assert read_inputs(rows, ZEROS, 2.0).observed.tolist() == [[True, False, True]]


def test_calibration_is_judged_by_the_number_of_known_values(monkeypatch):
    monkeypatch.setattr(sparsity_health, "N_GROUPS", 2)
    X = np.array([[np.nan, 1.0], [np.nan, 1.0], [1.0, 1.0], [1.0, 1.0]])
    y = np.array([0.0, 0.0, 1.0, 1.0])
    assert calibration_by_count(X, y, np.array([0.1, 0.3, 0.8, 0.8])) == pytest.approx(0.2)
    assert calibration_by_count(X, y, np.full(4, 0.5)) == pytest.approx(0.5)  # right only on average


def test_a_run_has_all_scores(monkeypatch):
    monkeypatch.setattr(sparsity_health, "EPOCHS", 2)
    found = score(NORMALISED, make_task(SETTING, 0))
    assert {AUROC, CALIBRATION, DRIFT} <= set(found)
    assert 0 < found[AUROC] < 1
