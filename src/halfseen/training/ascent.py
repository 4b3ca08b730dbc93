"""Monotone ascent with extrapolation, which all EM algorithms of the library use."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from torch import Tensor

from halfseen.training.time_limit import is_over

PointT = TypeVar("PointT")


@dataclass(frozen=True)
class AscentSettings:
    """The stopping rule of an ascent.

    Parameters
    ----------
    max_iterations : int
        The maximum number of steps.
    tolerance : float
        The ascent stops when a step improves the objective by less than this per feature.
    """

    max_iterations: int = 200
    tolerance: float = 2e-5


@dataclass(frozen=True)
class Ascent(Generic[PointT]):
    """The final point, and the objective at every accepted step, which never decreases."""

    point: PointT
    objective: tuple[float, ...]
    converged: bool


def ascend(
    step: Callable[[PointT], tuple[float, PointT]],
    start: PointT,
    extrapolate: Callable[[PointT, PointT, PointT], PointT],
    settings: AscentSettings,
    n_features: int,
    callback: Callable[[int, float], None] | None = None,
) -> Ascent[PointT]:
    """Iterates `step`, which returns the objective at a point and the next point.

    After every two plain steps, an extrapolated point is tried and kept only if the objective does not
    decrease. No further step is taken when the time limit of training is reached.
    """
    path = [start]  # the points of the last plain steps
    fallback: PointT | None = None  # where to return to while path is an extrapolation not yet judged
    objective: list[float] = []
    converged = False
    for iteration in range(settings.max_iterations):
        value, following = step(path[-1])
        if callback is not None:
            callback(iteration, value)
        gain = value - objective[-1] if objective else float("inf")
        if not gain >= 0 and fallback is not None:
            path, fallback = [fallback], None
            continue
        fallback = None
        converged = gain < settings.tolerance * n_features
        if gain >= 0:  # a plain step falls by rounding only, and then the top is reached
            objective.append(value)
            path.append(following)
        if converged or is_over():
            break
        if len(path) == 3:
            fallback = path[-1]
            path = [extrapolate(path[0], path[1], path[2])]
    return Ascent(path[-1] if fallback is None else fallback, tuple(objective), converged)


def squared_step(
    first: Tensor, second: Tensor, third: Tensor, rebuild: Callable[[Tensor], PointT | None]
) -> PointT | None:
    """Returns an extrapolation of three points on a path, the farthest valid one; None if there is none.

    References
    ----------
    Varadhan & Roland (2008), Simple and globally convergent methods for accelerating EM, scheme S3.
    """
    step, bend = second - first, third - 2 * second + first
    length = float(step.norm() / bend.norm().clamp(min=1e-300))
    while length > 1.05:
        point = rebuild(first + 2 * length * step + length**2 * bend)
        if point is not None:
            return point
        length = (length + 1) / 2
    return None
