"""Progress: of a training run, whose history is kept, and of a long answer, such as a table to impute.

Callbacks of training receive a record after each epoch. Those who watch an answer are told the share of it
that is done.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeVar

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
    """What a progress callback receives after each iteration of EM.

    Parameters
    ----------
    epoch, max_epochs : int
        Iterations done so far, each a pass over the table, and the most there may be.
    objective : float
        The penalised log-likelihood per row before the iteration.
    """

    epoch: int
    max_epochs: int
    objective: float


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
