r"""Calibration: a weight of the log-likelihood of a row that depends on its observed fraction."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from halfseen.data.incomplete import Incomplete


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
