"""A limit on the time of training: what is trained within it ends in good order when the time is over."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_end: ContextVar[float | None] = ContextVar("end of training", default=None)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Ends every training within a ``with`` statement after the given time, with the best weights so far.

    The time is looked at after each epoch or iteration of EM, and between columns where columns are fitted
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
    return float("inf") if end is None else end - time.monotonic()
