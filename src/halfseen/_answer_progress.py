"""The share of a long answer, such as the imputation of a table, that is done so far."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

ItemT = TypeVar("ItemT")

_watcher: ContextVar[Callable[[float], None] | None] = ContextVar("watcher of answers", default=None)


@contextmanager
def watch_answers(show: Callable[[float], None]) -> Iterator[None]:
    """Calls a function with the share that is done, from 0 to 1, whenever a part of an answer is ready.

    Examples
    --------
    >>> with watch_answers(print):
    ...     with part_of_answer(0.0, 0.5, divisible=True):
    ...         report_share(0.5)
    0.25
    0.5
    """
    token = _watcher.set(show)
    try:
        yield
    finally:
        _watcher.reset(token)


@contextmanager
def part_of_answer(start: float, end: float, *, divisible: bool) -> Iterator[None]:
    """Computes a part of an answer, which begins and ends at these shares of the whole.

    Parameters
    ----------
    start, end : float
        The shares of the whole, from 0 to 1.
    divisible : bool
        Whether `report_share` is heard within the part, with shares of it.
    """
    show = _watcher.get()
    if show is None:
        yield
        return
    token = _watcher.set((lambda share: show(start + (end - start) * share)) if divisible else None)
    try:
        yield
    finally:
        _watcher.reset(token)
    show(end)


def in_parts(items: Sequence[ItemT], start: float = 0.0, end: float = 1.0) -> Iterator[ItemT]:
    """Yields items, each of which is used to compute an equal part of the answer between two shares.

    Examples
    --------
    >>> with watch_answers(print):
    ...     computed = [abs(item) for item in in_parts([-1, -2], end=0.5)]
    0.25
    0.5
    """
    step = (end - start) / max(1, len(items))
    for position, item in enumerate(items):
        with part_of_answer(start + position * step, start + (position + 1) * step, divisible=True):
            yield item


def report_share(share: float) -> None:
    """Reports the share of the answer, or of the part that is being computed, that is done."""
    show = _watcher.get()
    if show is not None:
        show(share)
