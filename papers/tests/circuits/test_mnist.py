"""The experiment on digits with missing pixels: its masks, its rivals, and a run."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from halfseen.training.supervised import Labelled
from papers import run
from papers.circuits import mnist as convac_mnist
from papers.circuits.mnist import (
    BITS,
    EXPERIMENT,
    MANY_MISSING,
    PLANS,
    make_task,
    mask_digests,
    of_pixels,
    of_squares,
)
from papers.circuits.rivals import Imputed, MaskedCrossEntropy, Masks, NearestObserved

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(name="task")
def small_task(monkeypatch):
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 10
    images = rng.integers(0, 255, (400, 28, 28)).astype(np.uint8)
    arrays = {"x_train": images, "y_train": labels, "x_test": images, "y_test": labels}
    monkeypatch.setattr(convac_mnist, "load", lambda name: arrays)
    return make_task({"plan": "smoke"}, 0)


def test_every_metric_has_a_masked_copy_of_the_same_images(task):
    assert task.test.keys() == EXPERIMENT.metrics.keys() - {BITS}
    assert set(MANY_MISSING) <= task.test.keys()
    complete = task.test[of_pixels(0.0)]
    assert not np.isnan(complete).any()
    for images in task.test.values():
        same = complete[: len(images)]
        np.testing.assert_array_equal(np.where(np.isnan(images), same, images), same)
    # 20 images of 784 pixels: five standard errors of the rate are 0.012
    assert np.isnan(task.test[of_pixels(0.9)]).mean() == pytest.approx(0.9, abs=0.012)
    assert (np.isnan(task.test[of_squares(1, 15)]).sum(axis=(1, 2)) == 225).all()


@pytest.mark.slow
@pytest.mark.usefixtures("shared_data")
def test_the_masks_of_stored_results_are_drawn_again():
    stored = json.loads((ROOT / "results" / "convac-mnist-small-masks.json").read_text())
    assert mask_digests(make_task({"plan": stored["plan"]}, stored["seed"])) == stored["masks"]


def test_neighbours_are_compared_on_observed_pixels_alone(task):
    neighbours = NearestObserved().fit(np.repeat(task.train[:6], 5, axis=0), np.repeat(np.arange(6), 5))
    hidden = task.train[:6].copy()
    hidden[:, 10:] = np.nan
    np.testing.assert_array_equal(neighbours.predict(hidden), np.arange(6))


def test_the_rival_that_is_trained_on_masks_sees_pixels_and_squares():
    images = Labelled(torch.ones(400, 2, 28, 28), torch.zeros(400), torch.ones(400))
    (kept,) = MaskedCrossEntropy(Masks()).draw_noise(images, torch.Generator().manual_seed(0))
    flips = (kept[:, :, 1:] != kept[:, :, :-1]).sum(dim=(1, 2))
    few_edges = flips <= 2 * 15 * 3  # an image whose squares are missing has at most two edges in 45 rows
    assert 0.4 < few_edges.float().mean() < 0.65
    assert (~kept[few_edges]).float().mean() < 0.5


def test_masks_of_one_kind_have_its_pixels_or_squares():
    generator = torch.Generator().manual_seed(0)
    single = Masks(0.75, squares=False).draw(50, generator)
    assert (~single).float().mean().item() == pytest.approx(0.75, abs=0.02)  # 39,200 pixels: nine errors
    squares = (~Masks(pixels=False).draw(50, generator)).sum(dim=(1, 2))
    assert (squares >= 49).all()
    assert (squares <= 3 * 225).all()


def test_only_missing_pixels_are_replaced_before_a_classifier_sees_them():
    class Brightness:
        def predict(self, images):
            return images.sum(axis=(1, 2)).astype(int)

    class Ones:
        def transform(self, rows):
            return np.where(np.isnan(rows), 1.0, rows)

    images = np.full((1, 28, 28), 2.0)
    images[0, :2] = np.nan
    seen = 26 * 28 * 2
    assert Imputed(Brightness(), np.full((28, 28), 3.0)).predict(images) == [seen + 56 * 3]
    assert Imputed(Brightness(), Ones()).predict(images) == [seen + 56]


def test_scales_grow():
    sizes = [(plan.n_train, plan.n_test, plan.circuit_epochs) for plan in PLANS.values()]
    assert sizes == sorted(sizes)


@pytest.mark.slow
def test_the_smallest_scale_runs(shared_data, tmp_path):
    results = run(EXPERIMENT, "smoke", tmp_path)
    assert not any(cell.failed for cell in results.cells)
    assert results.cells[0].arrays["drawn"].shape == (10, 8, 28, 28)
