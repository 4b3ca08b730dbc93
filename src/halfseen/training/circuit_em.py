r"""EM for the sum weights of a circuit: monotone, without a learning rate."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from halfseen.data.incomplete import Incomplete
from halfseen.models.circuits.circuit import Circuit
from halfseen.objectives.circuits import UNKNOWN
from halfseen.training.progress import EMProgress

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
    n_rows: int = 2048,
    callback: Callable[[EMProgress], None] | None = None,
) -> list[float]:
    r"""Improves the sum weights of a circuit by EM; its leaves and the class prior are not changed.

    .. math:: w_{io} \leftarrow \frac{n_{io} + \alpha}{\sum_{i'} (n_{i'o} + \alpha)}, \quad
              n_{io} = \sum_n \frac{\partial \log p(x_{n,o}, y_n)}{\partial \log w_{io}}

    where the derivative treats the weights as unconstrained numbers; it is the expected number of rows that
    use the weight. Rows may be incomplete and labels unknown.

    Parameters
    ----------
    circuit : Circuit
        Changed in place.
    batch : Incomplete
        Rows (N, D).
    classes : Tensor, optional
        Their classes (N), -1 where unknown; without them none is known.
    max_steps : int
        The maximum number of passes over all rows.
    tolerance : float
        EM stops when a pass improves the log density by less than this per row.
    smoothing : float
        The pseudo-count :math:`\alpha` of every weight.
    n_rows : int
        The number of rows in memory at once; the result does not depend on it.
    callback : callable, optional
        Called with an ``EMProgress`` after each step.

    Returns
    -------
    list of float
        The mean penalised log density of the rows, with their known classes, before each step and at the
        end. It never decreases, except for the effect of the minimum weight.
    """
    if classes is None:
        classes = torch.full((len(batch),), UNKNOWN)
    parts = [*zip(batch.chunks(n_rows), classes.split(n_rows), strict=True)]
    course = [_objective(circuit, parts, smoothing)]
    for step in range(1, max_steps + 1):
        counts = [layer.weights.new_full(layer.weights.shape, smoothing) for layer in circuit.sum_layers]
        for rows, labels in parts:
            for total, found in zip(counts, circuit.expected_counts(rows, labels), strict=True):
                total += found
        for layer, total in zip(circuit.sum_layers, counts, strict=True):
            layer.set_weights(total / total.sum(dim=1, keepdim=True))
        course.append(_objective(circuit, parts, smoothing))
        if callback is not None:
            callback(EMProgress(step, max_steps, course[-1]))
        if course[-1] - course[-2] < tolerance:
            break
    return course


def _objective(circuit: Circuit, parts: Sequence[tuple[Incomplete, Tensor]], smoothing: float) -> float:
    """Returns the mean log density of rows and known classes, plus the log prior of weights per row."""
    total = torch.zeros((), dtype=torch.float64)
    for rows, classes in parts:
        scores, shift = circuit.class_scores(rows)
        of_class = scores.gather(1, classes.clamp(min=0)[:, None]).squeeze(1)
        log_prob = torch.where(classes >= 0, of_class, scores.logsumexp(dim=-1))
        total += (log_prob.double() + shift).sum()
    prior = sum(layer.weights.log().sum().item() for layer in circuit.sum_layers)
    return (total.item() + smoothing * prior) / sum(len(rows) for rows, _ in parts)
