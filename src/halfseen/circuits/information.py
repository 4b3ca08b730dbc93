r"""The expected information gain about the class from measuring each missing column."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from halfseen.circuits.circuit import Circuit
from halfseen.data.incomplete import Incomplete
from halfseen.distributions.leaf import Leaf
from halfseen.distributions.leaves import GaussianLeaf, normal_log_prob
from halfseen.distributions.leaves_levels import LevelLeaf
from halfseen.distributions.leaves_pixels import BernoulliLeaf
from halfseen.distributions.observation_model import ObservationModel

PANELS = (-8.0, -5.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 5.0, 8.0)  # ends, in standard deviations
N_NODES = 4  # of the rule in each panel


@dataclass(frozen=True)
class _Values:
    """Values that a column may take: their log density (Q, M) and their weight (Q, M) in each component."""

    log_prob: Tensor
    weight: Tensor


@torch.no_grad()
def information_gain(circuit: Circuit, batch: Incomplete) -> Tensor:
    r"""Returns the mutual information (N, C) of the class and each missing column, given the observed cells.

    .. math:: I(y; x_j \mid x_o) = H(y \mid x_o) - \mathrm{E}_{x_j \mid x_o} H(y \mid x_o, x_j)

    in nats; zero for an observed column. It is the expected information gain from measuring that column next.
    Given the components of its leaf, a column is independent of everything else, so the expectation is a sum
    over components and values: exact for levels, by quadrature for Gaussian columns.

    Parameters
    ----------
    circuit : Circuit
        With at least two classes; columns are Gaussian, Bernoulli or have levels.
    batch : Incomplete
        The rows (N, D).
    """
    leaves, n_classes = circuit.leaves, circuit.structure.n_classes
    by_class = torch.stack([circuit.responsibilities(batch, of_class=y) for y in range(n_classes)])
    by_class = by_class.view(n_classes, leaves.n_windows, leaves.n_parts, *by_class.shape[2:])
    classes = circuit.class_probabilities(batch)  # (N, K)
    before = torch.special.entr(classes).sum(dim=-1)
    gain = torch.zeros(len(batch), circuit.structure.n_columns, dtype=classes.dtype)
    for column, values in enumerate(_values(leaves.observation, leaves.theta)):
        part = int(leaves.parts[column])
        for window, columns in enumerate(circuit.structure.windows):
            if columns[column] >= 0:
                given = by_class[:, window, part].movedim(0, 1)  # (N, K, M)
                gain[:, columns[column]] += before - _entropy_after(values, classes, given)
    observed = batch.observed
    if leaves.n_windows == 1:
        observed = leaves.observation.observed_columns(observed)
    return torch.where(observed, 0.0, gain.clamp(min=0.0))


def _entropy_after(values: _Values, classes: Tensor, given: Tensor) -> Tensor:
    """Returns the expected entropy (N) of the class once a column is known."""
    log_prob = values.log_prob
    shift = log_prob.amax(dim=-1, keepdim=True)  # (Q, 1)
    joint = classes.unsqueeze(-1) * (given @ (log_prob - shift).exp().mT)  # (N, K, Q)
    after = joint / joint.sum(dim=1, keepdim=True).clamp(min=torch.finfo(joint.dtype).tiny)
    components = (classes.unsqueeze(-1) * given).sum(dim=1)  # (N, M)
    weight = components @ values.weight.mT  # (N, Q)
    expected: Tensor = (weight * torch.special.entr(after).sum(dim=1)).sum(dim=-1)
    return expected


def _values(observation: ObservationModel, theta: Tensor) -> Iterator[_Values]:
    """Yields the values of each column, in the order of columns."""
    found: dict[int, _Values] = {}
    columns = iter(observation.columns)
    for leaf, parameters in zip(observation.leaves, observation.split(theta), strict=True):
        assert isinstance(leaf, Leaf)
        for position in range(leaf.n_columns):
            found[next(columns)] = _of_column(leaf, parameters, position)
    yield from (found[column] for column in sorted(found))


def _of_column(leaf: Leaf, parameters: Tensor, position: int) -> _Values:
    if isinstance(leaf, LevelLeaf):
        log_prob = leaf.log_probabilities(parameters)[:, leaf.block_of == position].mT  # (levels, M)
        return _Values(log_prob, log_prob.exp())
    if isinstance(leaf, BernoulliLeaf):
        odds = parameters[:, position]
        log_prob = torch.nn.functional.logsigmoid(torch.stack([-odds, odds]))
        return _Values(log_prob, log_prob.exp())
    if isinstance(leaf, GaussianLeaf):
        return _gaussian_values(
            leaf.mean(parameters)[:, position], leaf.variance(parameters)[:, position].sqrt()
        )
    raise ValueError(
        f"The information gain of a column with the likelihood {type(leaf).__name__} is not implemented; "
        "columns must be Gaussian, Bernoulli or have levels."
    )


def _gaussian_values(loc: Tensor, std: Tensor) -> _Values:
    """Gauss-Legendre nodes between the points that lie this many standard deviations from each component."""
    points = (loc[:, None] + std[:, None] * torch.tensor(PANELS, dtype=loc.dtype)).flatten().sort().values
    nodes, weights = (torch.from_numpy(a).to(loc.dtype) for a in np.polynomial.legendre.leggauss(N_NODES))
    half = points.diff()[:, None] / 2
    x = (points[:-1, None] + half * (1 + nodes)).flatten()  # (Q)
    log_prob = normal_log_prob((x[:, None] - loc) / std) - std.log()
    weight = log_prob.exp() * (half * weights).flatten()[:, None]
    return _Values(log_prob, weight / weight.sum(dim=0))
