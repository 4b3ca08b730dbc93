"""Threads for whole tasks, instead of threads inside each small operation.

The operations of this library are small. Threads that share an operation wait for each other thousands of
times per second, and on a busy machine each wait can cost a time slice, so that a fit of one second takes a
minute. Tasks of some milliseconds that each run on one thread are not slowed down on a busy machine, and are
as fast on an idle one.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from itertools import chain, islice
from typing import TypeVar

import torch

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

_workers: ContextVar[int] = ContextVar("workers", default=1)


@contextmanager
def task_threads() -> Iterator[None]:
    """Reserves torch's threads for `map_in_threads`; within, operations run on the thread that calls them."""
    n_threads = torch.get_num_threads()
    token = _workers.set(max(n_threads, _workers.get()))  # nested, torch has given its threads already
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)
        _workers.reset(token)


def n_workers() -> int:
    """Returns how many tasks `map_in_threads` runs at a time."""
    return _workers.get()


def map_in_threads(function: Callable[[ItemT], ResultT], items: Iterable[ItemT]) -> Iterator[ResultT]:
    """Yields the results in the order of the items, with few of them waiting at any time.

    A task runs under the caller's gradient and inference modes and in a copy of its context variables, among
    them numpy's error state, because a new thread would start with the defaults of torch and Python. Tasks
    within tasks run on the same thread.

    Examples
    --------
    >>> with task_threads():
    ...     list(map_in_threads(abs, [-1, 2, -3]))
    [1, 2, 3]
    """
    remaining = iter(items)
    first_two = list(islice(remaining, 2))
    if n_workers() == 1 or len(first_two) < 2:
        yield from map(function, chain(first_two, remaining))
        return
    run = _in_the_callers_state(function)
    with ThreadPoolExecutor(n_workers()) as executor:
        waiting: deque[Future[ResultT]] = deque()
        for item in chain(first_two, remaining):
            waiting.append(executor.submit(copy_context().run, run, item))
            if len(waiting) > 2 * n_workers():
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _in_the_callers_state(function: Callable[[ItemT], ResultT]) -> Callable[[ItemT], ResultT]:
    """Returns the function with the state of the calling thread around it, for use in other threads."""
    with_gradients, is_inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    def run(item: ItemT) -> ResultT:
        _workers.set(1)  # in the task's own copy of the context
        with torch.inference_mode(is_inference), torch.set_grad_enabled(with_gradients):
            return function(item)

    return run
