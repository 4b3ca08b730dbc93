r"""Initialisation of circuits: leaves spread over each column, and sums that resemble rows of the table.

A channel of a level represents one row, the same in all regions of a group: its weights are the probabilities
of the channels below given the observed cells of that row. Even before training, a channel is therefore large
for similar rows, and all regions of a product represent the same row.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

from halfseen._random import choose_rows
from halfseen.circuits.circuit import Circuit
from halfseen.circuits.layers import Messages, SumLayer
from halfseen.data.incomplete import Incomplete
from halfseen.data.margins import inverse_softplus
from halfseen.distributions.leaves import GaussianLeaf, open_uniforms
from halfseen.distributions.leaves_counts import CategoricalLeaf
from halfseen.distributions.leaves_pixels import MIN_LOG_SCALE, DiscretisedLogisticLeaf

EVEN_SHARE = 0.2  # share of each sum's weights that is spread evenly over all channels
CHANGE = 0.02  # share of spread weights of an unpaired region, which is initially unchanged
OWN_LEVEL = 3.0  # additional log odds of the level that a component represents
MIN_SPREAD = 0.05  # minimum scale of a component, in standard deviations of the column
MOST_IMAGES, MOST_PATCHES, LLOYD_STEPS = 1000, 20_000, 15  # limits of k-means
MOST_VALUES = 100_000  # of which quantiles are computed, chosen by a hash; a guess
MOST_CERTAIN = 0.98  # largest mean of a binary pixel in a cluster, on the scale from -1 to 1
LEAST_SPREAD = 0.02  # minimum scale of a grey level in a cluster, on the scale from -1 to 1
NOISE = 0.01  # noise of other parameters, because equal components have equal gradients


@torch.no_grad()
def spread_leaves(circuit: Circuit, batch: Incomplete, generator: torch.Generator) -> None:
    """Puts the components of the leaves of a table at quantiles of numbers, and at one level each.

    Parameters
    ----------
    circuit : Circuit
        Over a table: its structure has a single window.
    batch : Incomplete
        Training rows (N, D).
    generator : torch.Generator
        Used for likelihoods that have no rule of their own.
    """
    leaves = circuit.leaves
    theta, observation = leaves.theta, leaves.observation
    parts = []
    for leaf, own, parameters in zip(
        observation.leaves, observation.own_features(), observation.split(theta), strict=True
    ):
        if isinstance(leaf, GaussianLeaf):
            loc, scale = _quantile_components(batch, own, len(theta))
            raw = inverse_softplus((scale - leaf.std_floor).clamp(min=1e-3))
            parts.append(torch.cat([loc, raw], dim=1))
        elif isinstance(leaf, CategoricalLeaf):
            chosen = torch.arange(len(theta))[:, None] % torch.tensor(leaf.widths)[leaf.block_of]
            first = leaf.slots[:, 0][leaf.block_of]
            is_own = torch.arange(leaf.width) - first == chosen
            parts.append(leaf.neutral_parameters() + OWN_LEVEL * is_own)
        else:
            parts.append(parameters + NOISE * torch.randn(parameters.shape, generator=generator))
    theta.copy_(torch.cat([part.to(theta.dtype) for part in parts], dim=1))


def _quantile_components(batch: Incomplete, features: Tensor, n_components: int) -> tuple[Tensor, Tensor]:
    """Returns locations and scales (M, J): quantiles of each number, and half the distance to neighbours."""
    levels = (torch.arange(n_components, dtype=torch.float64) + 0.5) / n_components
    loc = torch.zeros(n_components, len(features), dtype=torch.float64)
    for number, feature in enumerate(features.tolist()):
        values = batch.x[batch.observed[:, feature], feature].double()
        if len(values):
            if len(values) > MOST_VALUES:
                values = values[choose_rows([values.numpy()], len(values), MOST_VALUES)]
            loc[:, number] = torch.quantile(values, levels)
    if n_components == 1:
        return loc, torch.ones_like(loc)
    gaps = loc.diff(dim=0)
    before, after = torch.cat([gaps[:1], gaps]), torch.cat([gaps, gaps[-1:]])
    return loc, ((before + after) / 2).clamp(min=MIN_SPREAD)


@torch.no_grad()
def resemble_rows(
    circuit: Circuit, batch: Incomplete, generator: torch.Generator, classes: Tensor | None = None
) -> None:
    """Sets the weights of all sums from random rows, drawn without replacement if there are enough.

    Parameters
    ----------
    circuit : Circuit
        Its leaves have been initialised.
    batch : Incomplete
        Training rows (N, D).
    generator : torch.Generator
        Chooses the rows.
    classes : Tensor, optional
        The class (N) of each row, -1 if unknown; needed for more than one class.
    """
    most = max([1, *(level.n_channels or 1 for level in circuit.structure.levels)])
    order = torch.randperm(len(batch), generator=generator)
    rows = order.repeat(-(-most // len(order)))[:most]
    values = circuit.messages(batch[rows])
    levels = circuit.structure.levels
    for number, (layer, product) in enumerate(zip(circuit.sums, circuit.products, strict=True)):
        if isinstance(layer, SumLayer):
            weights = _weights_of_rows(layer, values.values)
            if number > 0 and weights.shape[1] == weights.shape[2] and levels[number].sharing == "none":
                alone = [group[0] for group in levels[number].groups if len(group) == 1]
                same = torch.eye(weights.shape[1], dtype=weights.dtype)
                weights[alone] = (1.0 - CHANGE) * same + CHANGE / len(same)
            layer.set_weights(weights)
        values = product(layer(Messages(values.values, torch.zeros_like(values.shift))))
    sample = order[: 20 * circuit.root.logits.shape[1]]
    labels = None if classes is None else classes[sample]
    circuit.root.set_weights(_root_weights(circuit, batch[sample], labels))


def _weights_of_rows(layer: SumLayer, values: Tensor) -> Tensor:
    """Returns weights (S, I, O): the posterior of the inputs given row o, averaged over regions of a set."""
    n_sets, n_inputs, n_outputs = layer.logits.shape
    posterior = values[:, :n_outputs].softmax(dim=-1)  # (R, O, I)
    by_set = posterior.reshape(n_sets, -1, n_outputs, n_inputs).mean(dim=1).transpose(1, 2)
    return torch.lerp(by_set, torch.full_like(by_set, 1.0 / n_inputs), EVEN_SHARE)


def _root_weights(circuit: Circuit, batch: Incomplete, classes: Tensor | None) -> Tensor:
    """Returns weights (1, I, K): how often each channel is the most probable one, by class."""
    n_inputs, n_classes = circuit.root.logits.shape[1:]
    posterior = circuit.top_channels(batch).softmax(dim=-1)  # (N, I)
    counts = posterior.new_full((n_inputs, n_classes), EVEN_SHARE * len(batch) / n_inputs / n_classes)
    if classes is None:
        counts = counts + posterior.sum(dim=0)[:, None]
    else:
        known = classes >= 0
        counts.index_add_(1, classes[known], posterior[known].T)
    return (counts / counts.sum(dim=0))[None]


@torch.no_grad()
def random_weights(circuit: Circuit, generator: torch.Generator) -> None:
    """Draws the weights of every sum uniformly from the simplex (a Dirichlet distribution)."""
    for layer in (*circuit.sums, circuit.root):
        if isinstance(layer, SumLayer):
            uniforms = torch.rand(layer.logits.shape, generator=generator)
            layer.logits.copy_(open_uniforms(uniforms, torch.float32).log().neg().log())


@torch.no_grad()
def cluster_patches(circuit: Circuit, batch: Incomplete, generator: torch.Generator) -> None:
    """Puts the components of Gaussian or Bernoulli patches at clusters of the observed patches (k-means).

    Parameters
    ----------
    circuit : Circuit
        Over images: all leaves share one set of components.
    batch : Incomplete
        Training images (N, D).
    generator : torch.Generator
        Chooses images and the first centres.
    """
    leaves = circuit.leaves
    chosen = torch.randperm(len(batch), generator=generator)[:MOST_IMAGES]
    windows = leaves.windows(batch[chosen])
    whole = windows.observed.all(dim=-1)
    patches = windows.x[whole]  # (Q, F)
    if len(patches) == 0:  # no patch is completely observed
        patches = windows.filled(0.0).flatten(end_dim=1)
    patches = patches[torch.randperm(len(patches), generator=generator)[:MOST_PATCHES]]
    centres, spread = _clusters(patches, len(leaves.theta), generator)
    leaf = leaves.observation.leaves[0]
    if isinstance(leaf, GaussianLeaf):
        raw = inverse_softplus((spread - leaf.std_floor).clamp(min=1e-3))
        leaves.theta.copy_(torch.cat([centres, raw], dim=1))
    elif isinstance(leaf, DiscretisedLogisticLeaf):
        scale = spread.clamp(min=LEAST_SPREAD) * math.sqrt(3.0) / math.pi
        raw = inverse_softplus(scale.log() - MIN_LOG_SCALE) + MIN_LOG_SCALE
        leaves.theta.copy_(torch.cat([centres, raw], dim=1))
    else:  # the log odds of the greater value of a binary pixel, which is 1, the other -1
        leaves.theta.copy_(2.0 * torch.atanh(centres.clamp(-MOST_CERTAIN, MOST_CERTAIN)))


def _clusters(patches: Tensor, n_clusters: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Returns centres and standard deviations (M, F) of clusters of patches (Q, F), by Lloyd's iterations."""
    distinct = patches.unique(dim=0)
    first = torch.randperm(len(distinct), generator=generator)
    centres = distinct[first.repeat(-(-n_clusters // len(first)))[:n_clusters]].clone()
    for _ in range(LLOYD_STEPS):
        member = functional.one_hot(torch.cdist(patches, centres).argmin(dim=1), n_clusters).to(patches)
        counts = member.sum(dim=0)[:, None]
        centres = torch.where(counts > 0, member.mT @ patches / counts.clamp(min=1), centres)
    second = member.mT @ patches.square() / counts.clamp(min=1)
    variance = torch.where(counts > 1, second - (member.mT @ patches / counts.clamp(min=1)).square(), 0.0)
    return centres, variance.clamp(min=0.0).sqrt()
