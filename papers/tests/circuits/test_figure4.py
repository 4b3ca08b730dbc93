"""Figure 4a: the shallow circuit has the paper's form, and models are trained and scored."""

import pytest

from halfseen.circuits.convac import ConvACClassifier
from papers import EXPERIMENTS, run
from papers.circuits.figure4 import EXPERIMENT, MODELS, ZERO, make_task


def test_the_shallow_circuit_multiplies_all_patches_once():
    model = ConvACClassifier(n_channels=800, structure="shallow")
    model.image_planes_ = (1, 28, 28)
    structure = model._structure(10)
    assert [level.n_channels for level in structure.levels] == [800]
    assert (structure.n_trees, len(structure.regions)) == (1, 196)
    assert EXPERIMENTS["convac-figure4"] is EXPERIMENT


def test_imputations_share_one_network_that_was_trained_on_complete_images(shared_data):
    task = make_task({"images": 30, "tested": 10, "epochs": 1}, 0)
    assert all(len(images) == 10 for images in task.test.values())
    assert MODELS[ZERO](task).classifier is MODELS[ZERO](task).classifier


@pytest.mark.slow
def test_the_smallest_scale_runs(tmp_path, shared_data):
    results = run(EXPERIMENT, "smoke", tmp_path)
    assert not any(cell.failed for cell in results.cells)
