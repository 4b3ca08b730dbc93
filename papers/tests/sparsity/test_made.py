"""The experiment on MADE: binarisation, scores in nats, and the variant that is no likelihood."""

import numpy as np
import pytest

from papers.sparsity import made as sparsity_made
from papers.sparsity.made import EXPERIMENT, LEAKY, NLL, PLAIN, make_task, score


@pytest.fixture
def digits(monkeypatch):
    images = np.zeros((80, 3, 3), dtype=np.uint8)
    images[:, 1:] = 255
    images[:40, 0] = 51
    monkeypatch.setattr(sparsity_made, "load", lambda name: {"x_train": images, "x_test": images[:20]})


def test_pixels_are_ones_with_the_probability_of_their_shade_in_one_fixed_draw(digits):
    task = make_task({"orderings": 1, "images": 60, "epochs": 1}, 0)
    again = make_task({"orderings": 1, "images": 60, "epochs": 1}, 5)
    np.testing.assert_array_equal(task.train, again.train)
    assert (len(task.train), len(task.test)) == (60, 20)
    assert task.train[:, 1:].all()
    assert 0.05 < task.train[:40, 0].mean() < 0.35  # 120 pixels with probability 1/5
    assert not task.train[40:, 0].any()


def test_scores_are_negative_log_likelihoods_and_the_named_exception_does_not_warn(digits):
    task = make_task({"orderings": 1, "images": 60, "epochs": 1}, 0)
    for name in (PLAIN, LEAKY):
        model = EXPERIMENT.models[name]().set_params(width=5)
        found = score(model, task)
        assert found[NLL] == pytest.approx(-model.score(task.test))
        assert found[NLL] > 0
