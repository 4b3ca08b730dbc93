"""Time: a budget that is divided among tasks, and a limit at which training stops with its best result."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_end: ContextVar[float | None] = ContextVar("end of training", default=None)


class TimeBudget:
    """An amount of time that starts to run when the object is created.

    Parameters
    ----------
    seconds : float
        The amount of time; infinite by default.
    clock : callable
        Returns the current time in seconds.
    """

    def __init__(self, seconds: float = math.inf, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self.clock = clock
        self.started = clock()

    @property
    def elapsed(self) -> float:
        """The seconds since the start."""
        return self.clock() - self.started

    @property
    def left(self) -> float:
        """The seconds that are left, at least 0."""
        return max(0.0, self.seconds - self.elapsed)

    def part(self, share: float) -> "TimeBudget":
        """Returns a budget that is a fraction of the remaining time."""
        return TimeBudget(share * self.left, self.clock)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Ends every training within a ``with`` statement after the given time, with the best weights so far.

    The time is checked after each epoch or iteration of EM, and between columns where columns are fitted
    one by one. Results depend on the speed of the computer only if the limit is reached. A limit within
    another cannot be later.

    Examples
    --------
    >>> with time_limit(0.0):
    ...     is_over()
    True
    >>> is_over()
    False
    """
    here, end = _end.get(), time.monotonic() + seconds
    token = _end.set(end if here is None else min(here, end))
    try:
        yield
    finally:
        _end.reset(token)


def is_over() -> bool:
    """Returns whether the time of training is over; without a limit it never is."""
    return seconds_left() <= 0.0


def seconds_left() -> float:
    """Returns the time that is left for training; without a limit it is infinite."""
    end = _end.get()
    return math.inf if end is None else end - time.monotonic()
