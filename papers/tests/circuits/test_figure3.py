"""Figure 3a: the paper's 48 numbers, masks of the test, and networks that do not see the mask."""

import numpy as np
import pytest

from papers import run
from papers.circuits.figure3 import (
    ANY_RATE,
    EXPERIMENT,
    MASKS,
    RATES,
    SQUARES,
    TABLE,
    make_task,
    published,
    rate_metric,
    trained_at,
)
from papers.circuits.rivals import LeNet, Masks


def test_the_table_is_the_papers():
    assert (len(MASKS), len(TABLE)) == (8, 48)
    assert TABLE[trained_at(0.25), rate_metric(0.25)] == pytest.approx(0.989)
    assert TABLE[trained_at(0.5), rate_metric(0.25)] == pytest.approx(0.991)
    assert TABLE[trained_at(0.99), rate_metric(0.99)] == pytest.approx(0.313)
    assert TABLE[ANY_RATE, rate_metric(0.9)] == pytest.approx(0.876)
    assert TABLE[SQUARES, rate_metric(0.99)] == pytest.approx(0.175)
    assert published({"images": 10_000}, SQUARES, rate_metric(0.9)).other
    assert not published({"images": 60_000}, SQUARES, rate_metric(0.9)).other


def test_test_images_are_the_same_at_every_rate(shared_data):
    task = make_task({"images": 50, "tested": 50, "epochs": 1}, 0)
    assert task.train.shape == (50, 28, 28)
    for rate in RATES:
        images = task.test[rate_metric(rate)]
        assert np.isnan(images).mean() == pytest.approx(rate, abs=0.02)
    first, second = (task.test[rate_metric(rate)] for rate in (0.25, 0.5))
    both = ~np.isnan(first) & ~np.isnan(second)
    np.testing.assert_array_equal(first[both], second[both])


def test_a_network_that_does_not_see_the_mask_takes_missing_pixels_for_black():
    rng = np.random.default_rng(0)
    images, digits = rng.integers(0, 256, (40, 28, 28)).astype(float), np.arange(40) % 10
    blind = LeNet(1, Masks(0.5, squares=False), sees_mask=False).fit(images, digits)
    shown = np.where(rng.random(images.shape) < 0.5, np.nan, images)
    np.testing.assert_array_equal(blind.predict(shown), blind.predict(np.nan_to_num(shown)))
    assert blind._inputs(shown).shape == (40, 1, 28, 28)
    assert LeNet(1, Masks())._inputs(shown).shape == (40, 2, 28, 28)


@pytest.mark.slow
def test_the_smallest_scale_runs(tmp_path, shared_data):
    results = run(EXPERIMENT, "smoke", tmp_path)
    assert not any(cell.failed for cell in results.cells)
