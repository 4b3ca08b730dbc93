"""Quantiles of weighted mixtures: of atoms, and of distributions of columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import torch
from torch import Tensor

from halfseen.distributions.observation_model import ObservationModel

TOLERANCE = 1e-3  # of the last step, in standard deviations; the remaining error is about its square
MAX_STEPS = 100
THREE_POINTS = ((-(3.0**0.5), 1 / 6), (0.0, 2 / 3), (3.0**0.5, 1 / 6))  # Gaussian moments


def weighted_quantiles(atoms: Tensor, weights: Tensor, probabilities: Sequence[float]) -> Tensor:
    """Returns quantiles (Q, *) of weighted atoms (A, *), with steps at the atoms smoothed to lines.

    Examples
    --------
    >>> weighted_quantiles(torch.tensor([3.0, 1.0, 2.0]), torch.ones(3), [0.5])
    tensor([2.])
    """
    ordered, order = atoms.movedim(0, -1).sort(dim=-1)  # (*, A)
    share = weights.movedim(0, -1).gather(-1, order)
    cumulated = share.cumsum(dim=-1)
    middle = ((cumulated - 0.5 * share) / cumulated[..., -1:]).contiguous()
    wanted = torch.tensor(probabilities, dtype=atoms.dtype).expand(*middle.shape[:-1], -1).contiguous()
    after = torch.searchsorted(middle, wanted).clamp(1, max(1, middle.shape[-1] - 1))
    if middle.shape[-1] == 1:
        return ordered.expand_as(wanted).movedim(-1, 0)
    low, high = middle.gather(-1, after - 1), middle.gather(-1, after)
    gap = (high - low).clamp(min=torch.finfo(atoms.dtype).tiny)
    part = ((wanted - low) / gap).clamp(0.0, 1.0)
    start, stop = ordered.gather(-1, after - 1), ordered.gather(-1, after)
    return (start + part * (stop - start)).movedim(-1, 0)


def lower_quantiles(values: Tensor, weights: Tensor, levels: Tensor) -> Tensor:
    """Returns (L, T): the smallest of values (N, T) up to which rows have each share of the weight (N)."""
    ordered, order = values.sort(dim=0)
    share = weights[order].cumsum(dim=0) / weights.sum()  # (N, T)
    place = torch.searchsorted(share.T.contiguous(), levels.expand(values.shape[1], -1).contiguous())
    return ordered.gather(0, place.T.clamp(max=len(values) - 1))


def mixture_quantiles(
    observation: ObservationModel,
    parameters: Tensor,
    weights: Tensor,
    probabilities: Sequence[float],
    *,
    tolerance: float = TOLERANCE,
) -> Tensor:
    r"""Returns the quantiles of each column of numbers, :math:`\sum_a \alpha_a F_j(x \mid z_a) = p`.

    Each distribution is first approximated by three atoms, whose quantiles are the starting points. Secant
    steps follow, within a bracket given by Cantelli's inequality, :math:`\mu - \sigma \sqrt{(1 - p) / p} \le
    x \le \mu + \sigma \sqrt{p / (1 - p)}`. Each row stops when its last step is below `tolerance` standard
    deviations, independently of other rows.

    Shapes
    ------
    parameters : :math:`(A, N, P)`, or :math:`(A, 1, P)` if they are those of all rows
    weights : :math:`(A, N)`, or :math:`(A, N, J)` where columns have their own; they sum to 1 over A
    output : :math:`(Q, N, J)`, of the columns `observation.numeric`
    """
    by_column = weights if weights.dim() == 3 else weights.unsqueeze(-1)  # (A, N, J) or (A, N, 1)
    mixture = _NumberMixture(observation, parameters, by_column, tolerance)
    starts = mixture.approximate(probabilities)
    found = [mixture.solve(level, x) for level, x in zip(probabilities, starts, strict=True)]
    return torch.stack(found) if found else starts


@dataclass(frozen=True)
class _NumberMixture:
    """The numbers of some rows: for each, a mixture of the distributions at its draws."""

    observation: ObservationModel
    parameters: Tensor
    weights: Tensor
    tolerance: float

    def approximate(self, probabilities: Sequence[float]) -> Tensor:
        """Returns approximate quantiles (Q, N, J), with each distribution replaced by three atoms."""
        means, stds = self._each
        atoms = torch.cat([means + place * stds for place, _ in THREE_POINTS])
        shares = torch.cat([share * self.weights for _, share in THREE_POINTS])
        size = (len(shares), *self.weights.shape[1:-1], atoms.shape[-1])  # (3A, N, J)
        return weighted_quantiles(atoms.expand(size), shares.expand(size), probabilities)

    def solve(self, level: float, x: Tensor) -> Tensor:
        """Returns quantiles (N, J), from a start."""
        centre, spread = self._moments()
        odds = (level / (1.0 - level)) ** 0.5
        margin = 1e-6 * spread
        low, high = centre - spread / odds - margin, centre + spread * odds + margin
        x = torch.maximum(torch.minimum(x, high), low)
        slope = torch.full_like(x, NormalDist().pdf(NormalDist().inv_cdf(level))) / spread
        last_x, last_below = x, torch.zeros_like(x)
        active = torch.arange(len(x))
        for step in range(MAX_STEPS):
            here = x[active]
            below = self._below(here, active) - level
            if step > 0:  # the secant, where it rises
                rise = (below - last_below) / (here - last_x)
                slope = torch.where(rise > 0, rise, slope)  # NaN, of a cell that stays, is not above 0
            low[active] = torch.where(below < 0, here, low[active])
            high[active] = torch.where(below < 0, high[active], here)
            new = here - below / slope
            inside = (new >= low[active]) & (new <= high[active])
            new = torch.where(inside, new, (low[active] + high[active]) / 2)
            x[active] = new
            go_on = ((new - here).abs() > self.tolerance * spread[active]).any(dim=-1)
            active, last_x, last_below, slope = active[go_on], here[go_on], below[go_on], slope[go_on]
            if len(active) == 0:
                break
        return x

    def _moments(self) -> tuple[Tensor, Tensor]:
        """Returns mean and standard deviation (N, J) of the mixtures."""
        means, stds = self._each
        centre = (self.weights * means).sum(dim=0)
        second = stds.square() + (means - centre).square()
        return centre, (self.weights * second).sum(dim=0).sqrt()

    def _below(self, x: Tensor, rows: Tensor) -> Tensor:
        """Returns the distribution function (M, J) of some rows."""
        everyone, shared = len(rows) == self.weights.shape[1], self.parameters.shape[1] == 1
        parameters = self.parameters if everyone or shared else self.parameters[:, rows]
        weights = self.weights if everyone else self.weights[:, rows]
        return (weights * self.observation.cdf(parameters, x)).sum(dim=0)

    @cached_property
    def _each(self) -> tuple[Tensor, Tensor]:
        """The mean and standard deviation (A, N, J) of each distribution."""
        means = self.observation.mean(self.parameters)[..., self._numbers]
        return means, self.observation.variance(self.parameters)[..., self._numbers].sqrt()

    @cached_property
    def _numbers(self) -> list[int]:
        owners = self.observation.columns_of_features.tolist()
        return [owners.index(column) for column in self.observation.numeric]
