"""A circuit by enumeration: the sum over all latent assignments, one row at a time."""

import math
from itertools import product

import torch

from halfseen.circuits.layers import SumLayer


def component_tensor(circuit, of_class):
    """The probability of each assignment of components to the bottom regions, by tree: a list of tensors.

    Each has one axis of length M for every bottom region of its tree, in order. The recursion goes over
    regions and channels and never looks at rows.
    """
    structure = circuit.structure
    regions = [torch.eye(structure.n_leaves, dtype=torch.float64) for _ in structure.regions]
    names = [[number] for number in range(len(structure.regions))]
    for level, layer in zip(structure.levels, circuit.sums, strict=True):
        if isinstance(layer, SumLayer):
            weights = layer.of_regions(level.n_regions).detach()
            regions = [torch.einsum("i...,io->o...", t, w) for t, w in zip(regions, weights, strict=True)]
        merged, merged_names = [], []
        for group in level.groups:
            tensor = regions[group[0]]
            for region in group[1:]:
                other = regions[region]
                tensor = tensor.reshape(*tensor.shape, *[1] * (other.ndim - 1))
                other = other.reshape(len(other), *[1] * (tensor.ndim - other.ndim), *other.shape[1:])
                tensor = tensor * other
            merged.append(tensor)
            merged_names.append([name for region in group for name in names[region]])
        regions, names = merged, merged_names
    root = circuit.root.weights.detach()[0, :, of_class].view(structure.n_trees, -1)
    tensors = []
    for tensor, weights, order in zip(regions, root, names, strict=True):
        mixed = torch.einsum("o...,o->...", tensor, weights)
        tensors.append(mixed.permute(*torch.tensor(order).argsort().tolist()))
    return tensors


def assignments(circuit, batch, of_class):
    """Yields the joint probability (N) of the observed cells and each latent assignment, given a class.

    With it goes the assignment: which component each bottom region of which tree has.
    """
    structure = circuit.structure
    trees = structure.tree_of_regions()
    terms = circuit.leaves(batch).detach()  # (L, N, M)
    for tree, tensor in enumerate(component_tensor(circuit, of_class)):
        leaves = [leaf for leaf, of in zip(structure.regions, trees, strict=True) if of == tree]
        for choice in product(range(structure.n_leaves), repeat=len(leaves)):
            log_prob = sum(terms[leaf, :, d] for leaf, d in zip(leaves, choice, strict=True))
            yield tensor[choice] * log_prob.exp(), tree, dict(zip(leaves, choice, strict=True))


def likelihood(circuit, batch, of_class):
    """Returns the density (N) of the observed cells given a class."""
    return sum(probability for probability, _, _ in assignments(circuit, batch, of_class))


def greatest_joint(circuit, values):
    """Returns the greatest log of p(y, latents) plus leaf values (L, N, M), over classes and all latents."""
    structure = circuit.structure
    trees = structure.tree_of_regions()
    best = torch.full(values.shape[1:2], -math.inf, dtype=torch.float64)
    for tree, of_class in product(range(structure.n_trees), range(structure.n_classes)):
        leaves = [leaf for leaf, of in zip(structure.regions, trees, strict=True) if of == tree]
        for choice in product(range(structure.n_leaves), repeat=len(leaves)):
            total = sum(values[leaf, :, d] for leaf, d in zip(leaves, choice, strict=True))
            best = torch.maximum(best, total + _greatest_weight(circuit, of_class, tree, choice))
    return best


def _greatest_weight(circuit, of_class, tree, choice):
    """The greatest log product of weights over the channels between the root and chosen components."""
    structure = circuit.structure
    chosen = iter(choice)
    values = []
    for of in structure.tree_of_regions():
        row = torch.full((structure.n_leaves,), -math.inf, dtype=torch.float64)
        if of == tree:
            row[next(chosen)] = 0.0
        values.append(row)
    for level, layer in zip(structure.levels, circuit.sums, strict=True):
        if isinstance(layer, SumLayer):
            weights = layer.of_regions(level.n_regions).detach().log()
            values = [(v[:, None] + w).amax(0) for v, w in zip(values, weights, strict=True)]
        values = [sum(values[u] for u in group) for group in level.groups]
    root = circuit.root.weights.detach()[0, :, of_class].log()
    return (torch.cat(values) + root).max() + circuit.log_prior[of_class]
