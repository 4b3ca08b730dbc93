"""Going uphill by steps that never lose, with extrapolation: what every EM here shares."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from torch import Tensor

from halfseen.training.time_limit import is_over

PointT = TypeVar("PointT")


@dataclass(frozen=True)
class AscentSettings:
    """When to stop.

    Parameters
    ----------
    max_iterations : int
        The maximum number of steps.
    tolerance : float
        Stop when a step gains less than this for each feature.
    """

    max_iterations: int = 200
    tolerance: float = 2e-5


@dataclass(frozen=True)
class Ascent(Generic[PointT]):
    """Where the steps led, and the objective at every accepted one, never falling."""

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
    """Follows `step`, which returns the objective at a point and the next point.

    After every two plain steps a point further along is tried, and kept only if the objective does not fall.
    When the time of training is over, no further step is taken.
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
    """Returns a point beyond three on a path, the farthest that can be rebuilt; None if there is none.

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
