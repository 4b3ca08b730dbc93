"""Quantiles of weighted mixtures: of atoms, and of distributions of columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from halfseen.distributions.observation import Observation
from halfseen.models.latent.mask_term import CellGrid

TOLERANCE = 1e-6  # of the last step in standard deviations; its square is about the error that is left
MAX_STEPS = 100


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


def mixture_quantiles(
    observation: Observation, parameters: Tensor, weights: Tensor, probabilities: Sequence[float]
) -> Tensor:
    r"""Returns the quantiles of each column of numbers, :math:`\sum_a \alpha_a F_j(x \mid z_a) = p`.

    From the quantiles of all distributions on nodes, Newton steps within a bracket that begins with
    Cantelli's inequality, :math:`\mu - \sigma \sqrt{(1 - p) / p} \le x \le \mu + \sigma \sqrt{p / (1 - p)}`.
    Each row stops by itself, so it does not depend on others.

    Shapes
    ------
    parameters : :math:`(A, N, P)`
    weights : :math:`(A, N)`, which sum to 1
    output : :math:`(Q, N, J)`, of the columns `observation.numeric`
    """
    mixture = _NumberMixture(observation, parameters, weights)
    grid = CellGrid.of(observation, parameters)  # (Q, A, N, J)
    atoms = (grid.log_weights.exp() * weights[..., None]).flatten(0, 1)
    starts = weighted_quantiles(grid.values.flatten(0, 1), atoms, probabilities)
    found = [mixture.solve(level, x) for level, x in zip(probabilities, starts, strict=True)]
    return torch.stack(found) if found else starts


@dataclass(frozen=True)
class _NumberMixture:
    """The numbers of some rows: for each, a mixture of the distributions at its draws."""

    observation: Observation
    parameters: Tensor
    weights: Tensor

    def solve(self, level: float, x: Tensor) -> Tensor:
        """Returns quantiles (N, J), from a start."""
        centre, spread = self._moments()
        odds = (level / (1.0 - level)) ** 0.5
        margin = 1e-6 * spread
        low, high = centre - spread / odds - margin, centre + spread * odds + margin
        x = torch.maximum(torch.minimum(x, high), low)
        active = torch.arange(len(x))
        for _ in range(MAX_STEPS):
            below, density = self._excess(x[active], level, active)
            under = below < 0
            low[active] = torch.where(under, x[active], low[active])
            high[active] = torch.where(under, high[active], x[active])
            step = x[active] - below / density.clamp(min=torch.finfo(x.dtype).tiny)
            inside = (step >= low[active]) & (step <= high[active])
            step = torch.where(inside, step, (low[active] + high[active]) / 2)
            moved = (step - x[active]).abs() > TOLERANCE * spread[active]
            x[active] = step
            active = active[moved.any(dim=-1)]
            if len(active) == 0:
                break
        return x

    def _moments(self) -> tuple[Tensor, Tensor]:
        """Returns mean and standard deviation (N, J)."""
        numbers = self._numbers
        share = self.weights[..., None]
        means = self.observation.mean(self.parameters)[..., numbers]
        centre = (share * means).sum(dim=0)
        second = self.observation.variance(self.parameters)[..., numbers] + (means - centre).square()
        return centre, (share * second).sum(dim=0).sqrt()

    def _excess(self, x: Tensor, level: float, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the distribution function less the level, and the density, of some rows."""
        parameters, share = self.parameters[:, rows], self.weights[:, rows, None]
        below = (share * self.observation.cdf(parameters, x)).sum(dim=0) - level
        filler = self.observation.filler().to(x.dtype).expand(len(x), -1)
        features = filler.index_copy(-1, torch.tensor(self._numbers, dtype=torch.long), x)
        density = self.observation.log_prob(parameters, features)[..., list(self.observation.numeric)].exp()
        return below, (share * density).sum(dim=0)

    @cached_property
    def _numbers(self) -> list[int]:
        owners = self.observation.columns_of_features.tolist()
        return [owners.index(column) for column in self.observation.numeric]
