"""The experiment on pairs of digits: its protocol, the paper's numbers, and a run."""

import numpy as np
import pytest

from papers import run
from papers.circuits import digit_pairs as convac
from papers.circuits.digit_pairs import (
    BLACK,
    DELETED,
    EXPERIMENT,
    GOALS,
    KNOWN,
    LINEAR,
    ROBUST,
    UNKNOWN,
    ConvACCandidate,
    accuracy,
    as_black,
    black_as_missing,
    make_task,
    score,
)


@pytest.fixture(name="digits")
def small_digits(monkeypatch):
    """Pictures of ten digits: digit d has rows of pixels from d on that are bright."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(10), 12)
    bright = np.arange(28)[:, None] >= 2 * labels[:, None, None] + 4
    images = np.where(bright, rng.integers(100, 255, (120, 28, 28)), 0).astype(np.uint8)
    arrays = {"x_train": images, "y_train": labels, "x_test": images, "y_test": labels}
    monkeypatch.setattr(convac, "load", lambda name: arrays)


def test_a_seed_is_a_pair_and_a_training_set_and_only_bright_pixels_are_deleted(digits):
    tasks = [make_task({"pairs": 10}, seed) for seed in (1, 11)]
    for task in tasks:
        assert set(task.train_digits) == set(task.test_digits) == {2, 3}
        assert list(task.test) == list(DELETED)
        assert not np.isnan(task.test[0]).any()
        assert (np.isnan(task.test[50]).sum(axis=1) == 50).all()
        assert (task.test[0][np.isnan(task.test[150])] > 0).all()
    assert (tasks[0].train != tasks[1].train).any()
    assert set(make_task({"pairs": 45}, 44).train_digits) == {8, 9}


class Recorder:
    """A classifier that always answers the first digit, and remembers which pixels were missing."""

    def fit(self, X, y):
        self.first, self.missing, self.black = y[0], [], []
        return self

    def predict(self, X):
        self.missing.append(int(np.isnan(X).sum()))
        self.black.append(int((X == 0).sum()))
        return np.full(len(X), self.first)


def test_one_model_is_scored_for_all_numbers_of_deleted_pixels_and_sees_them_by_convention(digits):
    task = make_task({"pairs": 10}, 4)
    known, unknown, black = Recorder(), Recorder(), Recorder()
    for recorder, shown in ((known, np.asarray), (unknown, as_black), (black, black_as_missing)):
        found = score(ConvACCandidate(recorder, shown), task)
        assert found == {accuracy(n): 0.5 for n in DELETED}
    assert known.missing[0] == 0 < known.missing[1]
    assert unknown.missing == [0] * 7
    assert black.black == [0] * 7
    np.testing.assert_array_equal(unknown.black, np.add(known.black, known.missing))
    np.testing.assert_array_equal(black.missing, unknown.black)


def test_circuits_of_a_task_are_one_circuit(digits, monkeypatch):
    monkeypatch.setattr(convac, "ConvACClassifier", lambda **settings: Recorder())
    task = make_task({"pairs": 10}, 0)
    for model in (KNOWN, UNKNOWN, BLACK):
        score(EXPERIMENT.models[model](), task)
    assert len(task.circuit.missing) == 3 * len(DELETED)


def test_the_numbers_of_the_paper_are_beside_their_counterparts():
    setting = EXPERIMENT.budget("small").settings[0]
    assert EXPERIMENT.numbers(setting, KNOWN, accuracy(100)).mean == pytest.approx(0.939)
    assert EXPERIMENT.numbers(setting, ROBUST, accuracy(150)).mean == pytest.approx(0.702)
    assert EXPERIMENT.numbers(setting, LINEAR, accuracy(150)) is None
    assert EXPERIMENT.numbers(setting, KNOWN, accuracy(100)).other == "all 45 pairs"
    assert not EXPERIMENT.numbers({"pairs": 45}, KNOWN, accuracy(100)).other
    assert EXPERIMENT.numbers(setting, UNKNOWN, accuracy(0)) is None
    assert all(EXPERIMENT.numbers(setting, KNOWN, accuracy(n)).mean >= goal for n, goal in GOALS.items())


@pytest.mark.slow
def test_the_smallest_scale_runs(shared_data, tmp_path):
    results = run(EXPERIMENT, "smoke", tmp_path)
    assert not any(cell.failed for cell in results.cells)
