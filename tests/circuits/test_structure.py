"""Structures: what they refuse, what they print, and how images and columns are arranged."""

import numpy as np
import pytest

from halfseen.circuits.structure import NOTHING, Level, Structure, pair_columns


def test_the_network_of_the_paper_for_digits_has_its_number_of_weights():
    structure = Structure.image((28, 28), 32, [64, 128, 256, 512], n_classes=10)
    assert structure.n_weights == 1_586_176
    assert [level.n_regions for level in structure.levels] == [256, 64, 16, 4]
    assert [level.n_weight_sets for level in structure.levels] == [4, 64, 16, 4]
    assert "level 4   4 regions, 512 sums in each, multiplied to 1 region" in str(structure)


def test_every_pixel_is_in_one_patch_and_the_border_is_shared_out_evenly():
    structure = Structure.image((2, 5, 6), 2, [2])
    seen = [column for window in structure.windows for column in window if column != NOTHING]
    assert sorted(seen) == list(range(60))
    assert structure.n_trees == 1
    assert {len(window) for window in structure.windows} == {8}


def test_regions_of_an_image_are_multiplied_with_their_neighbours():
    structure = Structure.image((4, 4), 2, [2], patch=1)
    groups = [{structure.windows[u][0] for u in group} for group in structure.levels[0].groups]
    assert sorted(map(sorted, groups)) == [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]


def test_an_image_of_one_row_is_halved_along_it():
    structure = Structure.image((1, 8), 2, [2], patch=1)
    assert [len(level.groups) for level in structure.levels] == [4, 2, 1]


def test_columns_that_depend_most_are_paired_first_and_all_trees_are_equally_deep():
    affinity = np.ones((5, 5))
    affinity[1, 4] = affinity[4, 1] = 3.0
    affinity[0, 2] = affinity[2, 0] = 2.0
    levels = pair_columns(affinity)
    assert levels == [((1, 4), (0, 2), (3,)), ((0, 1), (2,)), ((0, 1),)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_channels": 0, "groups": ((0,),)}, "n_channels must be at least 1, or None, got 0"),
        ({"n_channels": 1, "groups": ((0,), (0, 1))}, "Each region must belong to one group"),
        ({"n_channels": 1, "groups": ((0, 1), (2, 3)), "sharing": "place"}, "groups of one size"),
        ({"n_channels": 1, "groups": ((0,),), "sharing": "some"}, "sharing must be one of none, place, all"),
    ],
)
def test_impossible_levels_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Level(**arguments)


def test_impossible_structures_are_refused():
    window, parts = ((0, 1),), (0, 1)
    with pytest.raises(ValueError, match="Level 1 multiplies regions that share columns"):
        Structure(window, parts, (0, 0, 1), 2, (Level(2, ((0, 1), (2,))),))
    with pytest.raises(ValueError, match="must cover all columns"):
        Structure(window, parts, (0, 1), 2, (Level(2, ((0,), (1,))),))
    with pytest.raises(ValueError, match="Level 1 groups 3 regions of 2"):
        Structure(window, parts, (0, 1), 2, (Level(2, ((0, 1, 2),)),))
    with pytest.raises(ValueError, match="n_leaves must be at least 1, got 0"):
        Structure.shallow(2, 0, 3)
    with pytest.raises(ValueError, match="Every tree needs 3 levels"):
        Structure.trees(4, [pair_columns(np.ones((4, 4)))], 2, [2, 2, 2])
