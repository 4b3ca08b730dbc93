"""The densities over incomplete features that the laws of test_density.py meet: a row for each.

A new density is a new row, with random parameters and a way to reorder its features.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from halfseen.circuits.circuit import Circuit
from halfseen.circuits.structure import Structure, pair_columns
from halfseen.data.incomplete import Incomplete
from halfseen.distributions.leaves import GaussianLeaf
from halfseen.distributions.leaves_counts import CategoricalLeaf
from halfseen.distributions.observation_model import ObservationModel, Part
from halfseen.gaussian.distribution import Gaussian
from halfseen.gaussian.low_rank import LowRankGaussian
from halfseen.gaussian.mask_factors import GaussianMaskFactor
from halfseen.gaussian.self_masked import SelfMaskedGaussian
from halfseen.mixtures.imputer import DiagonalMixture
from skeletons.model import DiagonalGaussian


@dataclass(frozen=True)
class Density:
    """A density over incomplete features as the laws see it: four questions, and its layout.

    Shapes: batches (N, D); `quantile` and `draw` return (N, D) with the observed cells in place. `log_odds`
    is given where the density is one of values and mask together: for values (N, D), the log odds that each
    is missing. Without it, values are missing at random.
    """

    log_prob: Callable[[Incomplete], Tensor]
    mean: Callable[[Incomplete], Tensor]
    quantile: Callable[[Incomplete, float], Tensor]
    draw: Callable[[Incomplete, torch.Generator], Tensor]
    permuted: Callable[[list[int]], "Density"]  # the same density of features in another order
    n_features: int
    blocks: tuple[tuple[int, int], ...] = ()  # ranges of features that are one-hot codes, seen together
    parameters: tuple[Tensor, ...] = field(default=())
    log_odds: Callable[[Tensor], Tensor] = torch.zeros_like


@dataclass(frozen=True)
class DensityRow:
    """A density with random parameters: `make(seed)` gives a small one."""

    name: str
    make: Callable[[int], Density]
    scores_the_mask: bool = False  # the density is one of values and mask together
    slow: bool = False  # as for estimators: no density shares all its code with another

    def __str__(self):
        return self.name


def _gaussian(seed, n_features=3):
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(n_features, n_features, generator=generator, dtype=torch.float64)
    loc = torch.randn(n_features, generator=generator, dtype=torch.float64)
    return _wrap_gaussian(loc, root @ root.T + 0.3 * torch.eye(n_features, dtype=torch.float64))


def _low_rank(seed, n_features=4, rank=2):
    generator = torch.Generator().manual_seed(seed)
    loadings = torch.randn(n_features, rank, generator=generator, dtype=torch.float64)
    loc = torch.randn(n_features, generator=generator, dtype=torch.float64)
    noise = 0.3 + torch.rand(n_features, generator=generator, dtype=torch.float64)
    return _wrap_gaussian(loc, loadings, noise, make=LowRankGaussian)


def _wrap_gaussian(loc, *shape, make=Gaussian):
    """A Gaussian by its mean and what else its class takes."""
    parameters = [value.detach().requires_grad_() for value in (loc, *shape)]
    gaussian = make(*parameters)

    def quantile(batch, level):
        score = math.sqrt(2) * torch.erfinv(torch.tensor(2 * level - 1, dtype=torch.float64))
        return gaussian.conditional_mean(batch) + score * gaussian.conditional_variance(batch).sqrt()

    def draw(batch, generator):
        noise = torch.randn(batch.x.shape, generator=generator, dtype=torch.float64)
        return gaussian.complete(batch.x, batch.observed, noise)

    def permuted(order):
        moved = [value[order] for value in parameters]
        if make is Gaussian:
            moved[1] = moved[1][:, order]
        return _wrap_gaussian(*moved, make=make)

    return Density(
        log_prob=gaussian.log_prob,
        mean=gaussian.conditional_mean,
        quantile=quantile,
        draw=draw,
        permuted=permuted,
        n_features=len(loc),
        parameters=tuple(parameters),
    )


def _self_masked(seed, n_features=3):
    generator = torch.Generator().manual_seed(seed)
    parts = [parameter.detach() for parameter in _gaussian(seed, n_features).parameters]
    coefficients = torch.randn(n_features, 3, generator=generator, dtype=torch.float64)
    return _wrap_self_masked(*parts, coefficients.clamp(-1.5, 1.5))


def _wrap_self_masked(*parts):
    """A Gaussian whose features hide by bumps, from its mean, its covariance and the bumps' coefficients."""
    parameters = loc, covariance, coefficients = [value.detach().requires_grad_() for value in parts]
    mask = GaussianMaskFactor(torch.ones(len(loc), dtype=torch.bool), coefficients)
    density = SelfMaskedGaussian(Gaussian(loc, covariance), mask)

    def quantile(batch, level):
        mean, variance = density.moments(batch)
        return mean + variance.sqrt() * torch.special.ndtri(torch.tensor(level, dtype=torch.float64))

    def draw(batch, generator):
        noise = torch.randn(batch.x.shape, generator=generator, dtype=torch.float64)
        return density.complete(batch.x, batch.observed, noise)

    def permuted(order):
        return _wrap_self_masked(loc[order], covariance[order][:, order], coefficients[order])

    def log_odds(values):
        """From the definition of a bump."""
        hidden = mask.height.log() - 0.5 * mask.precision * (values - mask.centre) ** 2
        return hidden - torch.log1p(-hidden.exp())

    return Density(
        log_prob=density.log_prob,
        mean=density.conditional_mean,
        quantile=quantile,
        draw=draw,
        permuted=permuted,
        n_features=len(loc),
        parameters=tuple(parameters),
        log_odds=log_odds,
    )


def _randomize(module, generator):
    """Random parameters; scales stay within what a grid resolves."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(noise.clamp(-1.5, 1.5) if "scale" in name else noise)
    return module


def _noise(module, batch, generator):
    """The uniforms that a draw of each row takes."""
    return torch.rand(len(batch), module.n_noise, generator=generator, dtype=torch.float64).clamp(min=1e-12)


def _mixture(seed, n_features=3, blocks=(), n_components=3):
    generator = torch.Generator().manual_seed(seed)
    return _wrap_mixture(_randomize(DiagonalMixture(n_features, n_components, blocks).double(), generator))


def _wrap_mixture(module):
    def draw(batch, generator):
        return module.conditional_draw(batch, _noise(module, batch, generator))

    def permuted(order):
        """Columns of parameters follow their features: numbers by position, levels by block."""
        position = {feature: new for new, feature in enumerate(order)}
        blocks = [(min(new := [position[d] for d in range(a, b)]), max(new) + 1) for a, b in module.blocks]
        other = DiagonalMixture(module.n_features, module.n_components, blocks).double()
        old_numbers = module.gaussian.tolist()
        numbers = [old_numbers.index(order[new]) for new in other.gaussian.tolist()]
        old_levels = [d for a, b in module.blocks for d in range(a, b)]
        levels = [old_levels.index(order[new]) for a, b in other.blocks for new in range(a, b)]
        with torch.no_grad():
            other.logits.copy_(module.logits)
            other.loc.copy_(module.loc[:, numbers])
            other.raw_scale.copy_(module.raw_scale[:, numbers])
            other.level_logits.copy_(module.level_logits[:, levels])
        return _wrap_mixture(other)

    return Density(
        log_prob=module,
        mean=module.conditional_mean,
        quantile=module.conditional_quantile,
        draw=draw,
        permuted=permuted,
        n_features=module.n_features,
        blocks=module.blocks,
        parameters=tuple(module.parameters()),
    )


def _diagonal(seed, n_features=3):
    generator = torch.Generator().manual_seed(seed)
    return _wrap_diagonal(_randomize(DiagonalGaussian(n_features).double(), generator))


def _wrap_diagonal(module):
    def permuted(order):
        other = DiagonalGaussian(module.n_features).double()
        with torch.no_grad():
            other.loc.copy_(module.loc[order])
            other.log_scale.copy_(module.log_scale[order])
        return _wrap_diagonal(other)

    return Density(
        log_prob=module,
        mean=module.conditional_mean,
        quantile=module.conditional_quantile,
        draw=lambda batch, generator: module.conditional_draw(batch, _noise(module, batch, generator)),
        permuted=permuted,
        n_features=module.n_features,
        parameters=tuple(module.parameters()),
    )


def _circuit(seed, widths=(1, 1, 1), n_trees=1):
    """A circuit over columns with the given numbers of features: a number, or a block of indicators."""
    generator = torch.Generator().manual_seed(seed)
    affinity = torch.rand(n_trees, len(widths), len(widths), generator=generator).numpy()
    pairings = [pair_columns(matrix + matrix.T) for matrix in affinity]
    structure = Structure.trees(len(widths), pairings, 3, [3, 2, 2, 2][: len(pairings[0])], n_classes=2)
    return _wrap_circuit(_randomize(Circuit(structure, _columns(widths)).double(), generator), widths)


def _columns(widths):
    """The likelihood of columns whose features lie one after the other."""
    starts = np.cumsum([0, *widths])
    numbers = [c for c, width in enumerate(widths) if width == 1]
    levels = [c for c, width in enumerate(widths) if width > 1]
    parts = [Part(GaussianLeaf(len(numbers), std_floor=0.2), numbers, [int(starts[c]) for c in numbers])]
    if levels:
        features = [d for c in levels for d in range(starts[c], starts[c + 1])]
        parts.append(Part(CategoricalLeaf([widths[c] for c in levels]), levels, features))
    return ObservationModel(parts)


def _wrap_circuit(circuit, widths):
    starts = np.cumsum([0, *widths]).tolist()

    def draw(batch, generator):
        noise = torch.rand(len(batch), circuit.n_noise, generator=generator, dtype=torch.float64)
        return circuit.conditional_draw(batch, noise)

    def permuted(order):
        """The leaves follow their columns; regions read them where they now are."""
        columns = [c for d in order for c in range(len(widths)) if starts[c] == d]
        moved = [widths[c] for c in columns]
        regions = tuple(columns.index(region) for region in circuit.structure.regions)
        other = Circuit(replace(circuit.structure, regions=regions), _columns(moved)).double()
        other.load_state_dict(circuit.state_dict())
        old, new = (_parameters_by_column(given) for given in (widths, moved))
        with torch.no_grad():
            for position, column in enumerate(columns):
                other.leaves.theta[:, new[position]] = circuit.leaves.theta[:, old[column]]
        return _wrap_circuit(other, moved)

    return Density(
        log_prob=circuit,
        mean=circuit.conditional_mean,
        quantile=circuit.conditional_quantile,
        draw=draw,
        permuted=permuted,
        n_features=circuit.leaves.n_features,
        blocks=tuple((starts[c], starts[c + 1]) for c, width in enumerate(widths) if width > 1),
        parameters=tuple(circuit.parameters()),
    )


def _parameters_by_column(widths):
    """The positions of each column's parameters: locations, then scales, then the logits of levels."""
    n_numbers = sum(width == 1 for width in widths)
    numbers, start, found = 0, 2 * n_numbers, []
    for width in widths:
        if width == 1:
            found.append([numbers, n_numbers + numbers])
            numbers += 1
        else:
            found.append(list(range(start, start + width)))
            start += width
    return found


DENSITIES = (
    DensityRow("gaussian", _gaussian),
    DensityRow("gaussian-wide", partial(_gaussian, n_features=6)),
    DensityRow("low-rank", _low_rank),
    DensityRow("self-masked", _self_masked, scores_the_mask=True),
    DensityRow("mixture", _mixture),
    DensityRow("mixture-blocks", partial(_mixture, n_features=7, blocks=((4, 6), (1, 4)))),
    DensityRow("circuit", _circuit),
    DensityRow("circuit-trees", partial(_circuit, widths=(1, 3, 1, 2), n_trees=2)),
    DensityRow("skeleton", _diagonal),
)
