"""Schedules of the learning rate."""

import math
from typing import Literal

Schedule = Literal["constant", "cosine", "linear", "step"]

LATE = 0.8
"""The share of the steps after which the schedules "linear" and "step" change the learning rate."""


def rate_factor(schedule: Schedule, share: float) -> float:
    """Returns by what the learning rate is multiplied after a share of the steps.

    Examples
    --------
    >>> [round(rate_factor("linear", share), 2) for share in (0.0, 0.8, 0.9, 1.0)]
    [1.0, 1.0, 0.5, 0.0]
    >>> [rate_factor("step", share) for share in (0.79, 0.8)]
    [1.0, 0.1]
    """
    if schedule == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * share))
    if schedule == "constant" or share < LATE:
        return 1.0
    return 0.1 if schedule == "step" else (1.0 - share) / (1.0 - LATE)
