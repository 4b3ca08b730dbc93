"""Threads for whole tasks, instead of threads inside each small operation.

The operations of this library are small. Threads that share an operation wait for each other thousands of
times per second, and on a busy machine each wait can cost a time slice, so that a fit of one second takes a
minute. Tasks of some milliseconds that each run on one thread are not slowed down on a busy machine, and are
as fast on an idle one.

Where gradients are computed is the device of the training: its name, whether it is available, and what is
copied to it.
"""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from dataclasses import fields, is_dataclass, replace
from functools import cache, partial
from itertools import chain, islice
from threading import Lock, RLock
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor, nn

from halfseen._machine import count_processors

AUTOMATIC = ("cuda", "mps")  # the devices that "auto" looks for, in this order
KINDS = (*AUTOMATIC, "xpu")  # the devices that an error message may offer beside the CPU
WITHOUT_DOUBLE = ("mps",)  # devices without numbers in double precision


def find_device(name: Any, module: nn.Module | None = None) -> torch.device:
    """Returns the device with a name, for a module that is to be trained on it.

    Parameters
    ----------
    name : str
        ``"cpu"``, the name of another device such as ``"cuda"``, ``"cuda:1"`` or ``"mps"``, or ``"auto"``,
        which is the first of CUDA and MPS that is available and can train the module, and otherwise the CPU.
    module : nn.Module, optional
        The module. One with numbers in double precision cannot be trained on MPS.

    Raises
    ------
    ValueError
        If there is no such device, or it cannot train the module.

    Examples
    --------
    >>> find_device("cpu")
    device(type='cpu')
    >>> find_device("gpu")
    Traceback (most recent call last):
    ...
    ValueError: device must be 'auto' or the name of a device of torch, here 'cpu', got 'gpu'.
    """
    parts = [] if module is None else [*module.parameters(), *module.buffers()]
    is_double = any(part.dtype == torch.float64 for part in parts)
    excluded = WITHOUT_DOUBLE if is_double else ()
    if isinstance(name, str) and name == "auto":
        usable = [kind for kind in AUTOMATIC if kind not in excluded and _n_devices(kind)]
        return torch.device(usable[0] if usable else "cpu")
    here = " and ".join(repr(kind) for kind in ("cpu", *KINDS) if _n_devices(kind))
    try:
        device = torch.device(name if isinstance(name, str) else str(name))
    except RuntimeError:
        raise ValueError(
            f"device must be 'auto' or the name of a device of torch, here {here}, got {name!r}."
        ) from None
    if (device.index or 0) >= _n_devices(device.type):
        raise ValueError(f"The device {str(name)!r} is not available: torch finds {here} on this machine.")
    if device.type in excluded:
        raise ValueError(
            f"The device {str(name)!r} has no double precision, which this model needs: use device='cpu'."
        )
    return device


def _n_devices(kind: str) -> int:
    """Returns the number of devices of a kind that can be used."""
    if kind == "cpu":
        return 1
    if kind == "mps":
        return int(torch.backends.mps.is_available())
    backend = getattr(torch, kind, None)
    return int(backend.device_count()) if backend is not None and hasattr(backend, "device_count") else 0


@runtime_checkable
class Movable(Protocol):
    """Rows that know which of their parts are needed on the device of the training."""

    def moved(self, move: Callable[[Tensor], Tensor]) -> Any:
        """Returns the rows after `move` of the tensors that a step computes with."""
        ...


ValueT = TypeVar("ValueT")


def moved(value: ValueT, device: torch.device) -> ValueT:
    """Returns a tensor, or a tuple or dataclass that contains tensors, on a device; unchanged on the CPU.

    On a device without double precision, tensors have single precision.

    Examples
    --------
    >>> moved((torch.zeros(2), "other"), torch.device("meta"))
    (tensor(..., device='meta', size=(2,)), 'other')
    """
    if device.type == "cpu":
        return value

    def move(tensor: Tensor) -> Tensor:
        return tensor.to(device, widest(device) if tensor.dtype == torch.float64 else tensor.dtype)

    return cast(ValueT, _moved(value, move))


def widest(device: torch.device) -> torch.dtype:
    """Returns the most precise type of numbers that a device has.

    Examples
    --------
    >>> widest(torch.device("cpu")), widest(torch.device("mps"))
    (torch.float64, torch.float32)
    """
    return torch.float32 if device.type in WITHOUT_DOUBLE else torch.float64


def _moved(value: Any, move: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return move(value)
    if isinstance(value, Movable):
        return value.moved(move)
    if isinstance(value, tuple):
        parts = [_moved(part, move) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: _moved(getattr(value, one.name), move) for one in fields(value)})
    return value


ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

warning_filters = RLock()
"""Held by a task while it, or scikit-learn within it, changes the filters of warnings.

The filters belong to the whole process: of two threads that change and restore them at the same time, one
restores what the other has changed, so that the filters of the user are lost.
"""

_workers: ContextVar[int] = ContextVar("workers", default=1)
_reserved: ContextVar[bool] = ContextVar("reserved", default=False)  # whether within `task_threads`


@contextmanager
def task_threads() -> Iterator[None]:
    """Reserves torch's threads for `map_in_threads`; within, operations run on the thread that calls them.

    There are no more threads than processors that the process may use: torch does not know of quotas. Within
    such a context, `torch_defaults` hold and a further one changes nothing.
    """
    if _reserved.get():
        yield
        return
    n_threads = _lent.take()
    tokens = _workers.set(min(n_threads, count_processors())), _reserved.set(True)
    try:
        with torch_defaults():
            yield
    finally:
        _workers.reset(tokens[0])
        _reserved.reset(tokens[1])
        _lent.give_back(n_threads)


@contextmanager
def torch_defaults() -> Iterator[None]:
    """Computes as in a process in which nobody has changed torch's modes and defaults.

    These are the gradient and inference modes, the default device and the default type of numbers, by which
    results would differ or a model could not be trained. The last belongs to the whole process.

    Examples
    --------
    >>> with torch.inference_mode(), torch_defaults():
    ...     torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    (True, False)
    """
    new = torch.empty(0)
    on_cpu = new.device.type == "cpu"
    usual = on_cpu and new.dtype == torch.float32 and torch.is_grad_enabled() and not new.is_inference()
    if usual and not _precision.n_calls:
        yield
        return
    with torch.inference_mode(False), nullcontext() if on_cpu else torch.device("cpu"), _precision.single():
        yield


class _Precision:
    """Torch's default type of numbers, while calls in several threads of the user need single precision.

    The first of the calls that overlap changes it and the last one restores it. Meanwhile it has changed for
    other threads as well, which matters only where it was another one.
    """

    def __init__(self) -> None:
        self.lock = Lock()
        self.n_calls = 0
        self.dtype = torch.float32  # before the first of the calls that overlap

    @contextmanager
    def single(self) -> Iterator[None]:
        """Makes single precision the default."""
        with self.lock:
            self.n_calls += 1  # before the change: who sees single precision then knows that it is lent
            if self.n_calls == 1:
                self.dtype = torch.get_default_dtype()
                torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            with self.lock:
                if self.n_calls == 1:
                    torch.set_default_dtype(self.dtype)
                self.n_calls -= 1


_precision = _Precision()


class _LentThreads:
    """Torch's number of threads, while calls in several threads of the user set it to one and back.

    Torch has a number for each thread, and one for threads that are yet to begin; setting the first sets the
    second as well. A thread that begins during a call in another thread therefore has one, and must not take
    this for the number to give back.
    """

    def __init__(self) -> None:
        self.lock = Lock()
        self.n_calls = 0
        self.n_threads = 1  # before the first of the calls that overlap

    def take(self) -> int:
        """Lets the calling thread have one, and returns the number to give back."""
        with self.lock:
            found = torch.get_num_threads()
            if self.n_calls == 0:
                self.n_threads = found
            elif found == 1:
                found = self.n_threads
            self.n_calls += 1
            torch.set_num_threads(1)
        return found

    def give_back(self, n_threads: int) -> None:
        """Lets the calling thread, and those that begin later, have a number again."""
        with self.lock:
            self.n_calls -= 1
            torch.set_num_threads(n_threads)


_lent = _LentThreads()


@contextmanager
def one_openmp_thread() -> Iterator[None]:
    """Lets libraries that use OpenMP, such as scikit-learn, run on the thread that calls them.

    The number of OpenMP threads belongs to the calling thread, so this must be entered within a task. Results
    then do not depend on the number of threads either: sums of several threads are rounded differently.
    """
    with _controller("sklearn.ensemble" in sys.modules).limit(limits=1, user_api="openmp"):
        yield


@cache
def _controller(with_trees: bool) -> ThreadpoolController:  # it finds only libraries that are loaded by now
    return ThreadpoolController()


def n_workers() -> int:
    """Returns how many tasks `map_in_threads` runs at a time."""
    return _workers.get()


def map_in_threads(
    function: Callable[[ItemT], ResultT], items: Iterable[ItemT], *, at_most: int | None = None
) -> Iterator[ResultT]:
    """Yields the results in the order of the items, with few of them waiting at any time.

    A task runs under the caller's gradient and inference modes and in a copy of its context variables, among
    them numpy's error state, because a new thread would start with the defaults of torch and Python. Tasks
    within tasks run on the same thread.

    Parameters
    ----------
    function : callable
        The task.
    items : iterable
        What the task is called with; items are taken as they are needed.
    at_most : int, optional
        The number of tasks for which there is memory at a time.

    Examples
    --------
    >>> with task_threads():
    ...     list(map_in_threads(abs, [-1, 2, -3]))
    [1, 2, 3]
    """
    remaining = iter(items)
    first_two = list(islice(remaining, 2))
    width = n_workers() if at_most is None else min(n_workers(), at_most)
    if width <= 1 or len(first_two) < 2:
        yield from map(function, chain(first_two, remaining))
        return
    run = _in_the_callers_state(function)
    # A call that ends in another thread of the user would let tasks that begin later have several.
    with ThreadPoolExecutor(width, initializer=partial(torch.set_num_threads, 1)) as executor:
        waiting: deque[Future[ResultT]] = deque()
        for item in chain(first_two, remaining):
            waiting.append(executor.submit(copy_context().run, run, item))
            if len(waiting) > 2 * width:
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
