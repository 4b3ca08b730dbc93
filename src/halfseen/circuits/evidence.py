"""What the observed part of a row says: calibration by its share, and the value of further measurements.

The weight of the log-likelihood of a row depends on its observed fraction. The expected information gain of
a missing column is that about the class.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from halfseen.circuits.circuit import Circuit
from halfseen.circuits.objectives import UNKNOWN, HybridLikelihood, LabelledRows
from halfseen.data.incomplete import Incomplete
from halfseen.distributions.leaves import GaussianLeaf, Leaf, normal_log_prob
from halfseen.distributions.leaves_counts import LevelLeaf
from halfseen.distributions.leaves_pixels import BernoulliLeaf
from halfseen.distributions.observation_model import ObservationModel
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


PANELS = (-8.0, -5.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 5.0, 8.0)  # of a quadrature, in deviations
N_NODES = 4  # Gauss-Legendre nodes in each panel


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
