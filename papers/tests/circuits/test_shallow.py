"""The shallow circuit has the paper's form."""

from papers import EXPERIMENTS
from papers.circuits.shallow import EXPERIMENT, SHALLOW


def test_the_shallow_circuit_multiplies_all_patches_once():
    model = EXPERIMENT.models[SHALLOW]()
    model.image_planes_ = (1, 28, 28)
    structure = model._structure(10)
    assert [level.n_channels for level in structure.levels] == [800]
    assert (structure.n_trees, len(structure.regions)) == (1, 196)
    assert EXPERIMENTS["convac-shallow"] is EXPERIMENT
