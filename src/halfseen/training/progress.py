"""The records of a training run: what a callback receives after each epoch, and the history at the end."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

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
