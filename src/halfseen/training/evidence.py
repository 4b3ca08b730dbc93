"""Calibration of the class probabilities of a circuit by the observed fraction of a row."""

from collections.abc import Callable

import torch
from torch import Tensor

from halfseen.data.incomplete import Incomplete
from halfseen.models.circuits.evidence import EvidenceWeight, observed_fraction
from halfseen.objectives.circuits import UNKNOWN, HybridLikelihood, LabelledRows
from halfseen.training.logistic import fit_blend

MASKED_COPIES = 4  # number of masked copies of every held-out row, besides the row itself
MOST_HIDDEN = 0.95  # maximum share of masked columns of a copy; each copy has its own rate
MOST_ROWS = 5000  # maximum number of rows and copies together
FEWEST_ROWS = 30  # with fewer labelled held-out rows, probabilities are not calibrated


@torch.no_grad()
def fit_evidence_weight(
    scores_of: Callable[[Incomplete], Tensor],
    log_prior: Tensor,
    held: LabelledRows | None,
    owners: Tensor,
    generator: torch.Generator,
    *,
    blocks: Tensor | None = None,
) -> EvidenceWeight:
    r"""Returns the evidence weight that predicts held-out rows under random masks best.

    .. math:: \min_{a, c} \; -\sum_n \omega_n \log \mathrm{softmax}(\log \pi + s(f_n) \, e_n)_{y_n}
              + 2 \left((a - 1)^2 + (c - 1)^2\right)

    where :math:`e_n` is the log-likelihood of row n under each class and :math:`s(f) = a f + c (1 - f)`.
    Every row is used unchanged and with several masks. The penalty keeps the weights near 1 if there are few
    rows.

    Parameters
    ----------
    scores_of : callable
        Returns the scores (N, K) of rows: log joint densities, up to a constant of each row.
    log_prior : Tensor
        (K), the log probability of each class.
    held : LabelledRows, optional
        Rows that were not trained on. With none, or too few with a known class, both weights are 1.
    owners : Tensor
        The column (D) of each feature; a column is masked as a whole.
    generator : torch.Generator
        For the masks.
    blocks : Tensor, optional
        A region (D) of each feature; in every second row, whole regions are masked instead of columns.
    """
    if held is None:
        return EvidenceWeight()
    held = held[held.target != UNKNOWN]
    if len(held) < FEWEST_ROWS:
        return EvidenceWeight()
    held = held[: MOST_ROWS // (1 + MASKED_COPIES)]
    masks = HybridLikelihood(0.0, owners, MOST_HIDDEN, blocks)
    rows, observed = held.rows, [held.rows.observed]
    for _ in range(MASKED_COPIES):
        observed.append(rows.observed & masks.draw_noise(held, generator)[0])
    copies = [Incomplete(rows.x, seen) for seen in observed]
    log_prior = log_prior.double()
    evidence = torch.cat([scores_of(copy).double() for copy in copies]) - log_prior
    fraction = torch.cat([observed_fraction(copy, owners) for copy in copies]).unsqueeze(-1)
    complete, empty = fit_blend(
        fraction * evidence,
        (1.0 - fraction) * evidence,
        held.target.repeat(len(copies)),
        weights=held.weight.double().repeat(len(copies)) / len(copies),
        offset=log_prior,
    )
    return EvidenceWeight(complete, empty)
