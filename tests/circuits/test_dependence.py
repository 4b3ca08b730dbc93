"""The dependence of columns and the trees made of it, against obvious twins that go pair by pair."""

import itertools

import numpy as np
import pytest

from halfseen import CircuitImputer
from halfseen.circuits import fitting as dependence
from halfseen.circuits.structure import pair_columns


def obvious_information(codes):
    """The same pair by pair, from frequencies."""
    n_columns = codes.shape[1]
    result = np.zeros((n_columns, n_columns))
    for i, j in itertools.permutations(range(n_columns), 2):
        both = ~np.isnan(codes[:, [i, j]]).any(axis=1)
        joint = np.histogram2d(codes[both, i], codes[both, j], bins=4)[0] / both.sum()
        entropy = [-(p[p > 0] * np.log(p[p > 0])).sum() for p in (joint.sum(1), joint.sum(0), joint)]
        result[i, j] = (entropy[0] + entropy[1] - entropy[2]) / np.sqrt(entropy[0] * entropy[1])
    return result


@pytest.mark.parametrize("block", [1, 1 << 22])
def test_information_is_that_of_each_pair_whatever_the_blocks(block, monkeypatch):
    monkeypatch.setattr(dependence, "BLOCK", block)
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 4, size=(120, 7)).astype(float)
    codes[:, 1] = np.where(rng.random(120) < 0.7, codes[:, 0], codes[:, 1])
    codes[rng.random(codes.shape) < 0.2] = np.nan
    found = dependence.normalised_information(codes)
    np.testing.assert_allclose(found, obvious_information(codes), atol=1e-12)


def obvious_pairs(affinity):
    """The next best pair, until none is left; then means over pairs."""
    levels = []
    while len(affinity) > 1:
        free, groups = set(range(len(affinity))), []
        while len(free) > 1:
            pair = max(itertools.combinations(sorted(free), 2), key=lambda pair: affinity[pair])
            groups.append(pair)
            free -= set(pair)
        groups += [(region,) for region in free]
        affinity = np.array([[affinity[np.ix_(a, b)].mean() for b in groups] for a in groups])
        levels.append(tuple(groups))
    return levels


@pytest.mark.parametrize("n_columns", [2, 3, 8, 13])
@pytest.mark.parametrize("most", [1, 3, 1000])
def test_the_most_dependent_columns_are_paired_first(n_columns, most):
    """Also if many pairs are equally dependent: the first of them come first."""
    affinity = np.random.default_rng(n_columns).integers(0, most, size=(n_columns, n_columns)).astype(float)
    affinity += affinity.T
    assert pair_columns(affinity) == obvious_pairs(affinity)


def test_rows_of_one_kind_at_regular_distances_do_not_decide_the_tree():
    """Columns 0 and 1 are equal in every second row only: at most 20,000 of the 30,000 rows are compared."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 4, size=(30_000, 4)).astype(float)
    codes[::2, 1] = codes[::2, 0]
    strong = rng.random(len(codes)) < 0.9
    codes[:, 2] = np.where(strong, codes[:, 1], codes[:, 2])
    imputer = CircuitImputer(n_trees=1, n_leaves=2, n_channels=2)
    settings = dependence.CircuitSettings.of(imputer, len(codes))
    structure = settings.build(codes, 0)
    assert structure == settings.build(codes[rng.permutation(len(codes))], 0)
    assert {1, 2} in map(set, structure.levels[0].groups)
