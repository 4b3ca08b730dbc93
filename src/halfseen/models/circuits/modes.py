r"""Local modes of the density of missing cells given the observed ones."""

import torch
from torch import Tensor

from halfseen.data.incomplete import Incomplete
from halfseen.distributions.leaves import GaussianLeaf
from halfseen.models.circuits.circuit import Circuit


@torch.no_grad()
def local_modes(
    circuit: Circuit, batch: Incomplete, *, max_steps: int = 100, tolerance: float = 1e-8
) -> tuple[Tensor, Tensor]:
    r"""Returns completed rows (N, D) at a local maximum of their density, and its logarithm (N).

    .. math:: x_j \leftarrow \frac{\sum_d g_{ld} \, q_{dj} \mu_{dj}}{\sum_d g_{ld} \, q_{dj}}

    for the missing cells, where :math:`g_{ld}` is the probability of component :math:`d` of leaf :math:`l`
    given the completed row, and :math:`q` are precisions. This is an EM step, which never decreases the
    density. The ascent starts from the conditional mean and from both completions of `Circuit.most_probable`,
    and the best result is kept. It need not be the global maximum, which is hard to find.

    Parameters
    ----------
    circuit : Circuit
        All of its columns must be Gaussian.
    batch : Incomplete
        The rows.
    max_steps : int
        The maximum number of steps from each start.
    tolerance : float
        The ascent stops when no row improves by more than this.
    """
    if not all(isinstance(leaf, GaussianLeaf) for leaf in circuit.leaves.observation.leaves):
        raise ValueError("Local modes need circuits whose columns are all Gaussian.")
    starts = [
        circuit.conditional_mean(batch),
        *(circuit.most_probable(batch, kind)[0] for kind in ("integrated", "joint")),
    ]
    ends = [_ascend(circuit, batch, start, max_steps, tolerance) for start in starts]
    values = torch.stack([log_prob for _, log_prob in ends])  # (starts, N)
    best = values.argmax(dim=0)
    rows = torch.arange(len(batch))
    return torch.stack([x for x, _ in ends])[best, rows], values[best, rows]


def _ascend(
    circuit: Circuit, batch: Incomplete, x: Tensor, max_steps: int, tolerance: float
) -> tuple[Tensor, Tensor]:
    """Returns where the ascent from completed rows ends, and the log density there."""
    leaves = circuit.leaves
    mean, variance = (of(leaves.theta) for of in (leaves.observation.mean, leaves.observation.variance))
    everything = torch.ones_like(batch.observed)
    log_prob = circuit(Incomplete(x, everything))
    for _ in range(max_steps):
        weights = circuit.responsibilities(Incomplete(x, everything))
        total = leaves.expectation(weights, variance.reciprocal())
        centre = leaves.expectation(weights, mean / variance) / total
        x = torch.where(batch.observed, batch.x, centre.to(x.dtype))
        before, log_prob = log_prob, circuit(Incomplete(x, everything))
        if (log_prob - before).max() <= tolerance:
            break
    return x, log_prob
