"""Time: a budget that is divided among tasks, and a limit at which training stops with its best result."""

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

LOGGER = logging.getLogger(__name__)


class TimeLimit:
    """A moment at which training ends, and whether it was met, so that a result depends on the clock.

    Parameters
    ----------
    end : float
        The moment.
    outer : TimeLimit, optional
        The limit around this one, which is met if this one is.
    """

    def __init__(self, end: float, outer: "TimeLimit | None" = None) -> None:
        self.end = end
        self.outer = outer
        self.met = False

    def meet(self) -> None:
        """Records that the clock decided about the result, here and in the limits around this one."""
        if not self.met:
            LOGGER.info("A time limit was met: less is done than without it.")
        self.met = True
        if self.outer is not None:
            self.outer.meet()


_limit: ContextVar[TimeLimit | None] = ContextVar("limit of training", default=None)


class TimeBudget:
    """An amount of time that starts to run when the object is created.

    Parameters
    ----------
    seconds : float
        The amount of time; infinite by default.
    clock : callable, optional
        Returns the current time in seconds; by default ``time.monotonic``.
    """

    def __init__(self, seconds: float = math.inf, clock: Callable[[], float] | None = None) -> None:
        self.seconds = seconds
        self.clock = time.monotonic if clock is None else clock
        self.started = self.clock()

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
def time_limit(seconds: float) -> Iterator[TimeLimit]:
    """Ends every training within a ``with`` statement after the given time, with the best weights so far.

    The time is checked after each epoch or iteration of EM, and between columns where columns are fitted
    one by one. Results depend on the speed of the computer only if the limit is reached, which the limit
    that is yielded then knows. A limit within another cannot be later.

    Examples
    --------
    >>> with time_limit(0.0) as limit:
    ...     is_over()
    True
    >>> limit.met
    True
    >>> is_over()
    False
    """
    outer, end = _limit.get(), time.monotonic() + seconds
    limit = TimeLimit(end if outer is None else min(outer.end, end), outer)
    token = _limit.set(limit)
    try:
        yield limit
    finally:
        _limit.reset(token)


def is_over() -> bool:
    """Returns whether the time of training is over; without a limit it never is.

    Ask only where the answer decides what is done: a limit that is over counts as met.
    """
    over = seconds_left() <= 0.0
    if over:
        decide_by_clock()
    return over


def decide_by_clock() -> None:
    """Records that a result depends on the speed of the computer: less was done than without a limit."""
    limit = _limit.get()
    if limit is not None:
        limit.meet()


def seconds_left() -> float:
    """Returns the time that is left for training; without a limit it is infinite."""
    limit = _limit.get()
    return math.inf if limit is None else limit.end - time.monotonic()
