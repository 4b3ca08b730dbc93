"""Small circuits of every kind with random weights."""

import torch

from halfseen.circuits.circuit import Circuit
from halfseen.circuits.structure import Structure, pair_columns
from halfseen.distributions.leaves import GaussianLeaf
from halfseen.distributions.leaves_counts import CategoricalLeaf
from halfseen.distributions.observation_model import ObservationModel, Part

GENERATOR_SEED = 3


def gaussian(n_columns):
    return ObservationModel([Part(GaussianLeaf(n_columns), range(n_columns), range(n_columns))])


def binary(n_columns):
    return ObservationModel([Part(CategoricalLeaf([2] * n_columns), range(n_columns), range(2 * n_columns))])


def mixed():
    """Column 2 is a number, columns 0, 1 and 3 have two, three and two levels; the number comes first."""
    levels = Part(CategoricalLeaf([2, 3, 2]), [0, 1, 3], range(1, 8))
    return ObservationModel([Part(GaussianLeaf(1), [2], [0]), levels])


def random_pairs(n_columns, seed):
    affinity = torch.rand(n_columns, n_columns, generator=torch.Generator().manual_seed(seed)).numpy()
    return pair_columns(affinity + affinity.T)


def two_trees(n_columns, n_classes=2):
    pairings = [random_pairs(n_columns, seed) for seed in (0, 1)]
    channels = [3, 2, 2][: len(pairings[0])]
    return Structure.trees(n_columns, pairings, 2, channels, n_classes=n_classes)


CIRCUITS = {
    "mixture": lambda: Circuit(Structure.mixture(4, 3, n_classes=2), gaussian(4)),
    "shallow": lambda: Circuit(Structure.shallow(4, 3, 2, n_classes=2), gaussian(4)),
    "shallow-levels": lambda: Circuit(Structure.shallow(4, 2, 3, n_classes=2), mixed()),
    "trees": lambda: Circuit(two_trees(4), mixed()),
    "odd-trees": lambda: Circuit(two_trees(5), gaussian(5)),
    "image": lambda: Circuit(Structure.image((4, 4), 3, [2, 2], n_classes=2), gaussian(4)),
    "small-patches": lambda: Circuit(
        Structure.image((2, 3), 2, [2, 3], patch=1, n_classes=2, n_shared=2), gaussian(1)
    ),
    "colours": lambda: Circuit(Structure.image((2, 2, 3), 2, [2], n_classes=3), gaussian(8)),
    "shallow-image": lambda: Circuit(Structure.shallow_image((3, 4), 3, 2, n_classes=2), gaussian(4)),
}


def random_circuit(name, seed=GENERATOR_SEED, scale=1.0):
    """One of the circuits with random logits, leaves and prior, in float64."""
    circuit = CIRCUITS[name]().double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in circuit.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        prior = torch.rand(circuit.log_prior.shape, generator=generator, dtype=torch.float64)
        circuit.log_prior.copy_((prior / prior.sum()).log())
    return circuit


def complete_rows(circuit, n_rows, seed=0):
    """Rows of numbers and one-hot blocks, for any circuit of this file."""
    generator = torch.Generator().manual_seed(seed)
    leaves = circuit.leaves
    x = torch.randn(n_rows, leaves.n_features, generator=generator, dtype=torch.float64)
    for leaf in leaves.observation.leaves:
        if isinstance(leaf, CategoricalLeaf):
            start = leaves.n_features - leaf.width
            for width in leaf.widths:
                level = torch.randint(width, (n_rows,), generator=generator)
                x[:, start : start + width] = torch.nn.functional.one_hot(level, width)
                start += width
    return x


def column_masks(circuit, observed_columns):
    """Which features (N, D) are observed, from which columns (N, C) are."""
    owners = circuit.leaves.observation.columns_of_features
    if circuit.leaves.n_windows > 1:
        return observed_columns
    return observed_columns[:, owners]
