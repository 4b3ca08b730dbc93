"""Iterative fits: how they ascend, when they end, and what they report.

A limit of time is one at which training stops with its best result; a budget of time is divided among tasks.
Callbacks of training receive a record after each epoch, and its history is kept. Those who watch a long
answer, such as a table to impute, are told the share of it that is done.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

if TYPE_CHECKING:  # commands import this module, and torch takes seconds
    from torch import Tensor

LOGGER = logging.getLogger(__name__)

PointT = TypeVar("PointT")


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


@dataclass(frozen=True)
class AscentSettings:
    """The stopping rule of an ascent."""

    max_iterations: int = 200  # the maximum number of steps
    # The ascent stops when a step improves the objective by less than this per feature.
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
    first: "Tensor", second: "Tensor", third: "Tensor", rebuild: "Callable[[Tensor], PointT | None]"
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


Stopped = Literal["max_epochs", "patience", "time"]


@dataclass(frozen=True)
class Progress:
    """What a progress callback receives after each epoch; the library itself prints nothing.

    Parameters
    ----------
    epoch, max_epochs : int
        Epochs done so far, and the most there may be.
    train_loss : float
        The mean loss of the epoch's batches.
    validation_loss : float or None
        The mean loss of the held-out rows; None without any.
    best_loss : float
        The lowest loss so far of the rows that decide when to stop.
    learning_rate : float
        The rate at the beginning of the epoch.
    seconds : float
        Since this call of ``fit_module`` began.
    """

    epoch: int
    max_epochs: int
    train_loss: float
    validation_loss: float | None
    best_loss: float
    learning_rate: float
    seconds: float


@dataclass(frozen=True)
class EMProgress:
    """What a progress callback receives after each iteration of EM."""

    # Iterations done so far, each a pass over the table, and the most there may be.
    epoch: int
    max_epochs: int
    objective: float  # the penalised log-likelihood per row before the iteration


@dataclass(frozen=True)
class Backoff:
    """A return to the last good state, because of `reason`, after `epoch` epochs were done."""

    epoch: int
    learning_rate: float
    reason: str


@dataclass(frozen=True)
class History:
    """What happened in a training run, one entry per epoch; equal runs have equal histories.

    Parameters
    ----------
    train_loss, validation_loss, learning_rate : tuple of float
        One entry per epoch; ``validation_loss`` is empty without held-out rows.
    best_epoch : int or None
        The index of the epoch whose weights were kept; None if no epoch was finished.
    stopped : str
        ``"max_epochs"``, ``"patience"`` or ``"time"``.
    backoffs : tuple of Backoff
        Every time a value was not finite, and the learning rate was halved.
    compiled : bool
        Whether the steps ran as one compiled graph to the end.
    seconds : tuple of float
        The time of each epoch; not compared.
    """

    train_loss: tuple[float, ...] = ()
    validation_loss: tuple[float, ...] = ()
    learning_rate: tuple[float, ...] = ()
    best_epoch: int | None = None
    stopped: Stopped = "max_epochs"
    backoffs: tuple[Backoff, ...] = ()
    compiled: bool = False
    seconds: tuple[float, ...] = field(default=(), compare=False)

    @property
    def monitored(self) -> tuple[float, ...]:
        """The losses that decide when to stop: of the held-out rows, or without any, of training."""
        return self.validation_loss or self.train_loss

    def to_dict(self) -> dict[str, Any]:
        """Returns plain lists, numbers and strings, ready for JSON."""
        record = asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in record.items()}

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> "History":
        """Returns the history that ``to_dict`` described."""
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in record.items()
        }
        fields["backoffs"] = tuple(Backoff(**backoff) for backoff in record["backoffs"])
        return cls(**fields)


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


def in_parts(items: Sequence[ItemT], end: float = 1.0) -> Iterator[ItemT]:
    """Yields items, each of which is used to compute an equal part of the answer up to the share `end`.

    Examples
    --------
    >>> with watch_answers(print):
    ...     computed = [abs(item) for item in in_parts([-1, -2], end=0.5)]
    0.25
    0.5
    """
    step = end / max(1, len(items))
    for position, item in enumerate(items):
        with part_of_answer(position * step, (position + 1) * step, divisible=True):
            yield item


def report_share(share: float) -> None:
    """Reports the share of the answer, or of the part that is being computed, that is done."""
    show = _watcher.get()
    if show is not None:
        show(share)
