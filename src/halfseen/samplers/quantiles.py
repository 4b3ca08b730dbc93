"""Quantiles of weighted mixtures: of atoms, and of distributions of columns."""

from collections.abc import Sequence

import torch
from torch import Tensor

from halfseen.distributions.observation import Observation

TOLERANCE = 1e-10  # of a quantile, in standard deviations
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

    Newton steps within a bracket that begins with Cantelli's inequality, :math:`\mu - \sigma \sqrt{(1 - p) /
    p} \le x \le \mu + \sigma \sqrt{p / (1 - p)}`. Each cell stops by itself, so it does not depend on others.

    Shapes
    ------
    parameters : :math:`(A, N, P)`
    weights : :math:`(A, N)`, which sum to 1
    output : :math:`(Q, N, J)`, of the columns `observation.numeric`
    """
    owners = observation.columns_of_features.tolist()
    columns = list(observation.numeric)
    numbers = [owners.index(column) for column in columns]
    share = weights[..., None]
    means = observation.mean(parameters)[..., numbers]
    centre = (share * means).sum(dim=0)  # (N, J)
    second = observation.variance(parameters)[..., numbers] + (means - centre).square()
    spread = (share * second).sum(dim=0).sqrt()

    filler = observation.filler().to(parameters.dtype).expand(len(centre), -1)
    index = torch.tensor(numbers, dtype=torch.long)

    def excess(x: Tensor, level: float) -> tuple[Tensor, Tensor]:
        """Returns the distribution function less the level, and the density."""
        below = (share * observation.cdf(parameters, x)).sum(dim=0) - level
        features = filler.index_copy(-1, index, x)
        density = share * observation.log_prob(parameters, features)[..., columns].exp()
        return below, density.sum(dim=0)

    found = [_solve(excess, level, centre, spread) for level in probabilities]
    return torch.stack(found) if found else centre.new_empty(0, *centre.shape)


def _solve(excess, level: float, centre: Tensor, spread: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
    odds = (level / (1.0 - level)) ** 0.5
    low, high = centre - spread / odds - 1e-9 * spread, centre + spread * odds + 1e-9 * spread
    score = torch.special.ndtri(torch.tensor(level, dtype=centre.dtype))
    x = torch.maximum(torch.minimum(centre + score * spread, high), low)
    done = torch.zeros_like(x, dtype=torch.bool)
    for _ in range(MAX_STEPS):
        below, density = excess(x, level)
        low, high = torch.where(below < 0, x, low), torch.where(below < 0, high, x)
        step = x - below / density.clamp(min=torch.finfo(x.dtype).tiny)
        step = torch.where((step > low) & (step < high), step, (low + high) / 2)
        moved = (step - x).abs()
        x = torch.where(done, x, step)
        done = done | (moved <= TOLERANCE * spread)
        if bool(done.all()):
            break
    return x
