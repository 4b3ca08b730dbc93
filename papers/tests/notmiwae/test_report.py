"""The report's own configuration: its mask network, its disc, the map of its mask, and its numbers."""

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss
from tolerances import EXACT

from papers import run
from papers.notmiwae.report import (
    CONSTANT,
    EXPERIMENT,
    FOREST,
    GAUSSIAN,
    LOSS,
    MAP,
    MODELS,
    NOT,
    OFF,
    RELU,
    RING,
    RMSE,
    ReluMask,
    hide_disc,
    make_task,
    missing_probability,
    score,
)
from papers.notmiwae.toys import Task
from papers.problems.toys import CorrelatedGaussian


def quick(name, **choices):
    return MODELS[name]().set_params(max_epochs=3, n_imputation_draws=20, **choices)


def small_task(seed=0):
    law = CorrelatedGaussian()
    return Task(law, law.sample(120, seed), seed)


def test_the_mask_network_is_its_formula_with_rectified_units():
    mask, x = ReluMask(2, hidden=5), torch.randn(7, 2, generator=torch.Generator().manual_seed(0))
    hidden = (x @ mask.inner.weight.T + mask.inner.bias).clamp(min=0.0)
    torch.testing.assert_close(mask.logits(x), hidden @ mask.weight.T + mask.bias)


@pytest.mark.parametrize("name", [NOT, RELU])
def test_the_models_are_those_of_the_report(name):
    model = quick(name).fit(small_task().sample.incomplete)
    assert (model.decoder, model.numeric, model.model_.n_latent) == ("linear", "shared-gaussian", 1)
    assert type(model.model_.mask_model).__name__ == {NOT: "LinearMask", RELU: "ReluMask"}[name]


def test_probabilities_of_the_map_are_those_of_the_mask_model_in_the_units_of_the_table():
    task = small_task()
    model = quick(NOT).fit(task.sample.incomplete)
    mask, rows = model.model_.mask_model, np.array([[0.3, -0.2], [2.0, 1.0]])
    seen = task.sample.incomplete
    scaled = (rows - np.nanmean(seen, axis=0)) / np.nanstd(seen, axis=0)
    with torch.no_grad():
        expected = torch.sigmoid(-mask.logits(torch.from_numpy(scaled))[:, 0]).numpy()
    np.testing.assert_allclose(missing_probability(model, rows), expected, rtol=0.02)


def test_a_run_has_errors_the_loss_of_the_mask_and_its_map():
    task = small_task()
    model = quick(NOT)
    found = score(model, task)
    assert found[LOSS] == log_loss(task.hidden, missing_probability(model, task.sample.X))
    assert found[MAP].shape == (41, 41)
    filled = np.asarray(model.transform(task.to_fill))
    truth = task.sample.X[task.hidden]
    assert found[RMSE] == pytest.approx(np.sqrt(np.mean((filled - truth)[:, 0] ** 2)), abs=EXACT)
    assert found[OFF] == np.median(task.law.distance(filled))
    assert MAP not in score(quick(NOT), small_task(seed=1))


def test_constant_probabilities_have_the_stated_loss():
    for toy, share in ((GAUSSIAN, 0.5), (RING, 0.25)):
        assert CONSTANT[toy] == pytest.approx(
            -share * np.log(share) - (1 - share) * np.log(1 - share), abs=5e-4
        )


def test_dark_and_bright_pixels_of_the_disc_are_missing():
    images = np.zeros((2, 28, 28), dtype=np.uint8)
    images[1, 13, 13], images[1, 14, 14], images[1, 13, 14] = 255, 128, 60  # 1, 0.004 and -0.53
    task = hide_disc(images)
    missing = task.missing.reshape(images.shape)
    rows, columns = np.indices((28, 28))
    disc = (rows - 13.5) ** 2 + (columns - 13.5) ** 2 <= 25
    np.testing.assert_array_equal(missing[0], disc)
    disc[14, 14] = False
    np.testing.assert_array_equal(missing[1], disc)
    assert (task.X.min(), task.X.max()) == (-1.0, 1.0)


def test_numbers_are_those_of_table_1_and_claims_are_about_models_that_run():
    assert EXPERIMENT.numbers({"toy": RING}, FOREST, RMSE).mean == 4.034
    cells = {(cell.setting["toy"], cell.model) for cell in EXPERIMENT.cells("paper")}
    for claim in EXPERIMENT.claims:
        assert {
            (claim.where["toy"], name) for name in (claim.model, getattr(claim, "other", claim.model))
        } <= cells
    assert make_task({"toy": RING}, 0).law.variance == 0.5


@pytest.mark.slow
def test_the_smallest_scale_runs(tmp_path):
    results = run(EXPERIMENT, "smoke", tmp_path)
    assert not any(cell.failed for cell in results.cells)
