"""Newton steps that maximise many small problems at once, one for each feature."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

DAMPING = 1e-8  # relative to the mean curvature; allows directions without curvature
HALVINGS = 20
ENOUGH = 0.2  # minimum gain relative to that predicted by the slope; a full Newton step has 0.5


def newton_step(gradient: Tensor, curvature: Tensor) -> Tensor:
    """Returns the Newton steps (D, P) of concave functions, with very little damping.

    Examples
    --------
    >>> newton_step(torch.tensor([[2.0]]), torch.tensor([[[4.0]]]))
    tensor([[0.5000]])
    """
    size = curvature.diagonal(dim1=1, dim2=2).mean(dim=1).clamp(min=1e-12)
    damping = DAMPING * size[:, None, None] * torch.eye(gradient.shape[1], dtype=gradient.dtype)
    step: Tensor = torch.linalg.solve(curvature + damping, gradient)
    return step


@dataclass(frozen=True)
class SearchPath:
    """A path: from lengths (D, 1) to points (D, P), and how steeply the value (D) rises at its start."""

    point: Callable[[Tensor], Tensor]
    slope: Tensor


def straight_path(start: Tensor, gradient: Tensor, curvature: Tensor) -> SearchPath:
    """Returns the straight path to the Newton step from a point (D, P)."""
    step = newton_step(gradient, curvature)
    return SearchPath(lambda length: start + length * step, (gradient * step).sum(dim=1))


def line_search(value: Callable[[Tensor], Tensor], start: Tensor, path: SearchPath) -> Tensor:
    """Returns, for each feature, the first point on a path that improves enough; the start if none does.

    Step lengths start at one and are halved. Any improvement is not enough: a step to the other side of the
    maximum, to nearly the same height, could be repeated without end.
    """
    best = value(start)
    reached, length = start, torch.ones(len(start), 1, dtype=start.dtype)
    searching = torch.ones(len(start), dtype=torch.bool)
    for _ in range(HALVINGS):
        trial = torch.where(searching[:, None], path.point(length), reached)
        gained = searching & (value(trial) >= best + ENOUGH * length[:, 0] * path.slope.clamp(min=0.0))
        reached = torch.where(gained[:, None], trial, reached)
        searching = searching & ~gained
        if not bool(searching.any()):
            break
        length = length / 2
    return reached
