r"""EM for the sum weights of a circuit: monotone, without a learning rate."""

import torch
from torch import Tensor

from halfseen.data.incomplete import Incomplete
from halfseen.models.circuits.circuit import Circuit

SMOOTHING = 0.1
"""The rows that are added to the uses of each weight, as a Dirichlet prior would."""


@torch.no_grad()
def fit_sum_weights(
    circuit: Circuit,
    batch: Incomplete,
    classes: Tensor | None = None,
    *,
    max_steps: int = 100,
    tolerance: float = 1e-6,
    smoothing: float = SMOOTHING,
) -> list[float]:
    r"""Improves the sum weights of a circuit by EM; its leaves and the prior of classes stay.

    .. math:: w_{io} \leftarrow \frac{n_{io} + \alpha}{\sum_{i'} (n_{i'o} + \alpha)}, \quad
              n_{io} = \sum_n \frac{\partial \log p(x_{n,o}, y_n)}{\partial \log w_{io}}

    where the derivative takes the weights as free numbers: it is the expected number of rows that use the
    weight. Rows may be incomplete and labels unknown.

    Parameters
    ----------
    circuit : Circuit
        Changed in place.
    batch : Incomplete
        Rows (N, D).
    classes : Tensor, optional
        Their classes (N), -1 where unknown; without them none is known.
    max_steps : int
        At most so many passes over all rows.
    tolerance : float
        Stop when a pass gains less than this per row.
    smoothing : float
        The pseudo-count :math:`\alpha` of every weight.

    Returns
    -------
    list of float
        The mean penalised log density of the rows, with their known classes, before each step and at the
        end; up to the floor of the weights it never falls.
    """
    course = [_objective(circuit, batch, classes, smoothing)]
    for _ in range(max_steps):
        for layer, counts in zip(circuit.sum_layers, circuit.expected_counts(batch, classes), strict=True):
            smoothed = counts + smoothing
            layer.set_weights(smoothed / smoothed.sum(dim=1, keepdim=True))
        course.append(_objective(circuit, batch, classes, smoothing))
        if course[-1] - course[-2] < tolerance:
            break
    return course


def _objective(circuit: Circuit, batch: Incomplete, classes: Tensor | None, smoothing: float) -> float:
    """Returns the mean log density of rows and known classes, plus the log prior of weights per row."""
    scores, shift = circuit.class_scores(batch)
    log_prob = scores.logsumexp(dim=-1)
    if classes is not None:
        of_class = scores.gather(1, classes.clamp(min=0)[:, None]).squeeze(1)
        log_prob = torch.where(classes >= 0, of_class, log_prob)
    prior = sum(layer.weights.log().sum().item() for layer in circuit.sum_layers)
    return float((log_prob.double() + shift).mean()) + smoothing * prior / len(batch)
