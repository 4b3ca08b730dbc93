r"""Calibration: a weight of the log-likelihood of a row that depends on its observed fraction."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from halfseen.circuits.objectives import UNKNOWN, HybridLikelihood, LabelledRows
from halfseen.data.incomplete import Incomplete
from halfseen.training.logistic import fit_blend


@dataclass(frozen=True)
class EvidenceWeight:
    r"""Multiplies the log-likelihood of a row by a weight that depends on its observed fraction.

    .. math:: p(y \mid x_o) \propto \pi_y \, p(x_o \mid y)^{s(f)}, \qquad s(f) = a f + c (1 - f)

    where :math:`f` is the fraction of observed columns. :math:`1 / s(f)` is a temperature that depends on
    :math:`f` alone: the order of the classes' likelihoods does not change, and the probabilities of a row
    without any observed column are those of the prior. With :math:`a = c = 1` the probabilities are those of
    the circuit.

    Parameters
    ----------
    complete : float
        The weight :math:`a` of a row without missing values.
    empty : float
        The limit :math:`c` of the weight as fewer and fewer columns are observed.

    Examples
    --------
    >>> even = torch.tensor([0.5, 0.5]).log()
    >>> scores = even + torch.tensor([[4.0, 0.0], [4.0, 0.0]])
    >>> weight = EvidenceWeight(complete=1.0, empty=0.5)
    >>> weight(scores, even, torch.tensor([1.0, 0.0])).softmax(dim=1)
    tensor([[0.9820, 0.0180],
            [0.8808, 0.1192]])
    """

    complete: float = 1.0
    empty: float = 1.0

    def __call__(self, scores: Tensor, log_prior: Tensor, fraction: Tensor) -> Tensor:
        """Returns scores (N, K) with weighted evidence, up to a constant of each row.

        Parameters
        ----------
        scores : Tensor
            (N, K), the log of the joint density of class and observed cells, up to a constant of each row.
        log_prior : Tensor
            (K), the log probability of each class.
        fraction : Tensor
            (N), the observed fraction of each row.
        """
        weight = self.complete * fraction + self.empty * (1.0 - fraction)
        return scores + (weight - 1.0).unsqueeze(-1) * (scores - log_prior)

    def state(self) -> dict[str, Tensor]:
        """Returns both weights as a tensor."""
        return {"evidence_weight": torch.tensor([self.complete, self.empty], dtype=torch.float64)}

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> "EvidenceWeight":
        """Reads what `state` returned."""
        complete, empty = state["evidence_weight"].tolist()
        return cls(complete, empty)


def observed_fraction(batch: Incomplete, owners: Tensor) -> Tensor:
    """Returns the fraction (N) of the columns that are observed, in float64.

    Parameters
    ----------
    batch : Incomplete
        The rows (N, D).
    owners : Tensor
        The column (D) of each feature; all features of a column are observed, or none.
    """
    sizes = torch.bincount(owners).double()
    share = sizes.reciprocal()[owners] / len(sizes)
    return batch.observed.double() @ share


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
