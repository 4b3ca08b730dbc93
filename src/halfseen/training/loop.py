"""The optimisation loop of all models that are trained by gradients."""

import hashlib
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, get_args

import torch
from torch import Tensor, nn

from halfseen._threads import find_device, moved
from halfseen.errors import TrainingError, warn_user
from halfseen.training.checkpoint import (
    Checkpoint,
    Tensors,
    are_kept,
    checkpoint_path,
    digest_rows,
    read_checkpoint,
    write_checkpoint,
)
from halfseen.training.gradients import (
    InLowerPrecision,
    any_process,
    check_shared,
    gradient_plan,
    is_first,
    own_pieces,
)
from halfseen.training.progress import Backoff, History, Progress, Stopped, is_over, seconds_left
from halfseen.training.step import Objective, Optimiser, Rows
from halfseen.words import Note

LOGGER = logging.getLogger(__name__)

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


class EarlyStopping:
    """Monitors a loss and decides when to stop.

    The best epoch is that with the lowest loss; patience is renewed only by an improvement of at least
    `min_improvement`. The state depends on the losses alone, so that a resumed run can replay them.

    Parameters
    ----------
    patience : int
        Epochs without such an improvement after which to stop.
    min_improvement : float
        How much lower the loss must be to renew the patience.

    Examples
    --------
    >>> stopping = EarlyStopping(patience=2, min_improvement=0.1)
    >>> [stopping.update(loss) for loss in (1.0, 0.5, 0.45, 0.6)]
    [True, True, True, False]
    >>> stopping.best_epoch, stopping.best_loss, stopping.exhausted
    (2, 0.45, True)
    """

    def __init__(self, patience: int, min_improvement: float) -> None:
        self.patience = patience
        self.min_improvement = min_improvement
        self.n_epochs = 0
        self.best_loss = math.inf
        self.best_epoch: int | None = None
        self._reference = math.inf
        self._waited = 0

    def update(self, loss: float) -> bool:
        """Takes the loss of the next epoch; returns whether it is the lowest so far."""
        is_best = loss < self.best_loss
        if is_best:
            self.best_loss, self.best_epoch = loss, self.n_epochs
        if loss < self._reference - self.min_improvement:
            self._reference, self._waited = loss, 0
        else:
            self._waited += 1
        self.n_epochs += 1
        return is_best

    @property
    def exhausted(self) -> bool:
        """Whether the patience has run out."""
        return self._waited >= self.patience


ModuleT = TypeVar("ModuleT", bound=nn.Module)
RowsT = TypeVar("RowsT", bound=Rows)

SMALLEST_SPLIT = 50  # with fewer rows, holding some out costs more than it gains


def split_rows(rows: RowsT, fraction: float, generator: torch.Generator) -> tuple[RowsT, RowsT | None]:
    """Returns rows to train on and rows held out, chosen at random.

    With fewer than `SMALLEST_SPLIT` rows, nothing is held out and the second value is None.
    """
    n_held_out = math.ceil(fraction * len(rows))
    if n_held_out == 0 or len(rows) < SMALLEST_SPLIT:
        return rows, None
    order = torch.randperm(len(rows), generator=generator)
    return rows[order[n_held_out:]], rows[order[:n_held_out]]


COMPILE_FROM_STEPS = 20_000
"""Planned steps from which ``compile="auto"`` compiles: compiling costs as much as some 10,000 steps."""

CHECKPOINT_SECONDS = 10.0
"""A checkpoint is written at most this often, and always at the end; it never changes the results."""


@dataclass(frozen=True)
class TrainingSettings:
    """The settings of ``fit_module``.

    Parameters
    ----------
    max_epochs : int
        The maximum number of passes over the data.
    batch_size : int
        The maximum number of rows in a batch. All batches of an epoch have one size; the few
        remaining rows, fewer than there are batches, are not used in this epoch.
    learning_rate : float
        The initial learning rate.
    schedule : {"constant", "cosine", "linear", "step"}
        Whether the rate is constant; falls to zero along half a cosine over ``max_epochs``; or is constant
        for four fifths of the steps and then falls linearly to zero, or is reduced to a tenth.
    weight_decay : float
        The decoupled weight decay of AdamW.
    penalties : mapping of str to float
        The weight of half the sum of squares of a parameter, by its name, in place of the decay; losses are
        reported without it.
    gradient_clip : float or None
        The largest norm of the gradient; None for no bound.
    patience : int
        Epochs without an improvement after which training stops.
    min_improvement : float
        How much lower the mean loss of a row must be to count as an improvement.
    max_backoffs : int
        How often the learning rate is halved, after a value that is not finite, before giving up.
    compile : bool or "auto"
        Whether a whole step is compiled to one graph. ``"auto"`` compiles if ``COMPILE_FROM_STEPS`` steps are
        planned and there is no time limit, which may end training long before: this depends on the sizes
        and never on a measured time, so results can be repeated.
    device : str
        Where the steps are computed: ``"cpu"``, the name of another device of torch, or ``"auto"``, as in
        `find_device`. Rows stay in the memory of the CPU and random numbers are drawn there, so they are the
        same for each device; batches are copied to the device. Steps on other devices are not compiled.
    """

    max_epochs: int = 500
    batch_size: int = 1024
    learning_rate: float = 1e-3
    schedule: Schedule = "constant"
    weight_decay: float = 0.0
    penalties: Mapping[str, float] = field(default_factory=dict)
    gradient_clip: float | None = None
    patience: int = 20
    min_improvement: float = 1e-4
    max_backoffs: int = 5
    compile: bool | Literal["auto"] = "auto"
    device: str = "cpu"

    @classmethod
    def of(cls, estimator: Any, **others: Any) -> "TrainingSettings":
        """Creates the settings that are parameters of every trained estimator, and others."""
        shared = ("max_epochs", "batch_size", "learning_rate", "patience", "device")
        return cls(**({name: getattr(estimator, name) for name in shared} | others))

    def __post_init__(self) -> None:
        lowest = {"max_epochs": 0, "batch_size": 1, "patience": 1, "max_backoffs": 0}
        lowest |= {"weight_decay": 0, "min_improvement": 0}
        for name, bound in lowest.items():
            if not getattr(self, name) >= bound:
                raise ValueError(f"{name} must be at least {bound}, got {getattr(self, name)!r}.")
        for name in ("learning_rate", "gradient_clip"):
            value = getattr(self, name)
            if value is not None and not 0.0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {value!r}.")
        if self.schedule not in get_args(Schedule):
            names = ", ".join(get_args(Schedule))
            raise ValueError(f"schedule must be one of {names}, got {self.schedule!r}.")
        if self.compile not in (True, False, "auto"):
            raise ValueError(f"compile must be True, False or 'auto', got {self.compile!r}.")


_DEFAULTS = TrainingSettings()


def fit_module(
    module: ModuleT,
    objective: Objective[ModuleT, RowsT],
    train: RowsT,
    *,
    generator: torch.Generator,
    validation: RowsT | None = None,
    criterion: Callable[[ModuleT, RowsT], float] | None = None,
    settings: TrainingSettings = _DEFAULTS,
    callback: Callable[[Progress], None] | None = None,
    checkpoint: Path | None = None,
) -> History:
    """Minimises the mean of an objective over rows that are held in memory.

    Training stops when the mean loss of `validation` (with the same noise each time), or without it the
    training loss, has not improved for a while; the weights of the best epoch are restored and the module is
    left in evaluation mode on the CPU, whatever the device of the training. A value that is not finite sends
    training back to the end of the last good epoch with half the learning rate, and warns. An interruption is
    raised, after a last checkpoint.

    Parameters
    ----------
    module : nn.Module
        Changed in place.
    objective : Objective
        The loss per row.
    train, validation : Rows
        Anything with a length that can be indexed by rows, such as ``Incomplete``.
    generator : torch.Generator
        The only source of randomness: shuffles, and the noise of the objective.
    criterion : callable, optional
        The criterion for `validation` instead of the mean loss, lower is better; a dataclass, so that a
        checkpoint can distinguish it from others.
    settings : TrainingSettings
        How to train.
    callback : callable, optional
        Called with a ``Progress`` after each epoch.
    checkpoint : Path, optional
        If the file exists, training continues from it; the result is bit for bit that of a run without
        interruption. The file is kept up to date. Only ``max_epochs`` may differ, under a constant schedule.
        By default it is a file in the folder of `halfseen.checkpoints`, if the call is within one.

    Returns
    -------
    History
        The losses of each epoch and why training stopped.

    Raises
    ------
    TrainingError
        If values stay non-finite after ``max_backoffs`` halvings; the module keeps the best weights so far.
    ModelFileError
        If `checkpoint` is damaged or belongs to another run.

    Examples
    --------
    >>> from halfseen.data.incomplete import Incomplete
    >>> from halfseen.mixtures.imputer import DiagonalMixture
    >>> from halfseen.base.density import NegativeLogLikelihood
    >>> generator = torch.Generator().manual_seed(0)
    >>> x = torch.randn(100, 2, generator=generator, dtype=torch.float64)
    >>> batch = Incomplete(x, torch.rand(100, 2, generator=generator) < 0.7)
    >>> model = DiagonalMixture(n_features=2, n_components=2).double()
    >>> model.reset_parameters(batch, generator)
    >>> settings = TrainingSettings(max_epochs=50, learning_rate=0.05)
    >>> history = fit_module(model, NegativeLogLikelihood(), batch, generator=generator, settings=settings)
    >>> history.train_loss[history.best_epoch] < history.train_loss[0]
    True
    """
    for name, rows in (("train", train), ("validation", validation)):
        if rows is not None and len(rows) == 0:
            raise ValueError(f"{name} has no rows.")
    device = find_device(settings.device, module)
    try:
        module.to(device)
        run = _Run(module, objective, train, generator, validation, settings, checkpoint, criterion, device)
        try:
            return run.execute(callback)
        finally:
            module.load_state_dict(run.state.best)
            module.eval()
    finally:
        module.to("cpu")


class _Run(Generic[ModuleT, RowsT]):
    """A training run; ``state``, its last good state, is replaced as a whole, for safe interruption."""

    def __init__(
        self,
        module: ModuleT,
        objective: Objective[ModuleT, RowsT],
        train: RowsT,
        generator: torch.Generator,
        validation: RowsT | None,
        settings: TrainingSettings,
        path: Path | None,
        criterion: Callable[[ModuleT, RowsT], float] | None,
        device: torch.device,
    ) -> None:
        self.module, self.generator, self.device = module, generator, device
        self.objective, self.loss, self.criterion = objective, moved(objective, device), criterion
        self.held_out = None if criterion is None else moved(validation, device)
        self.train, self.settings, self.path = train, settings, path
        self.n_batches = math.ceil(len(train) / settings.batch_size)
        self.size = len(train) // self.n_batches
        self.n_steps = settings.max_epochs * self.n_batches
        worth_compiling = self.n_steps >= COMPILE_FROM_STEPS and seconds_left() == math.inf
        wanted = worth_compiling if settings.compile == "auto" else settings.compile is True
        self.plan = gradient_plan()
        check_shared(getattr(objective, "resumable", True))
        loss: Any = InLowerPrecision(self.loss, device.type) if self.plan.lower_precision else self.loss
        self.optimiser: Optimiser[ModuleT, RowsT] = Optimiser(
            module,
            loss,
            weight_decay=settings.weight_decay,
            gradient_clip=settings.gradient_clip,
            penalties=settings.penalties,
            compiled=wanted and device.type == "cpu" and not self.plan.facts(),
        )
        self.fingerprint = self._fingerprint(validation)
        self.failed_to_write = False
        if path is None and getattr(objective, "resumable", True):
            self.path = path = checkpoint_path(self.fingerprint)
        self.validation = self._with_noise(validation)
        weights = _weights(module)
        self.state = self._capture(weights, weights, settings.learning_rate, History())
        found = None if path is None else read_checkpoint(path, self.fingerprint)
        if found is not None:
            self.state = found
            self._load(self.state)
            generator.set_state(self.state.generator)
        self.stopping = EarlyStopping(settings.patience, settings.min_improvement)
        for loss in self.state.history.monitored:
            self.stopping.update(loss)

    def execute(self, callback: Callable[[Progress], None] | None) -> History:
        """Runs epochs until one of the reasons to stop; writes a last checkpoint."""
        began = written = time.monotonic()
        stopped: Stopped = "max_epochs"
        try:
            while len(self.state.history.train_loss) < self.settings.max_epochs:
                if self.stopping.exhausted:
                    stopped = "patience"
                    break
                if self.state.history.train_loss and any_process(is_over()):
                    stopped = "time"
                    break
                if self._advance() and callback is not None:
                    callback(self._progress(time.monotonic() - began))
                if time.monotonic() - written > CHECKPOINT_SECONDS:
                    self._write()
                    written = time.monotonic()
        except KeyboardInterrupt:
            self._write()
            raise
        self._write()
        return replace(self.state.history, stopped=stopped)

    def _advance(self) -> bool:
        """Trains for one epoch; returns False if the epoch had to be undone."""
        began = time.monotonic()
        history, base = self.state.history, self.state.learning_rate
        rate = self._rate(len(history.train_loss) * self.n_batches)
        train_loss = self._train_epoch()
        validation_loss = self._validate() if math.isfinite(train_loss) else ()
        reason = self._failure(train_loss, *validation_loss)
        if reason is not None:
            self._back_off(reason)
            return False

        history = replace(
            history,
            train_loss=(*history.train_loss, train_loss),
            validation_loss=(*history.validation_loss, *validation_loss),
            learning_rate=(*history.learning_rate, rate),
            seconds=(*history.seconds, time.monotonic() - began),
            compiled=self.optimiser.compiled,
        )
        LOGGER.debug("Epoch %d: the loss is %.6g.", len(history.train_loss), history.monitored[-1])
        is_best = self.stopping.update(history.monitored[-1])
        history = replace(history, best_epoch=self.stopping.best_epoch)
        weights = _weights(self.module)
        self.state = self._capture(weights, weights if is_best else self.state.best, base, history)
        return True

    def _train_epoch(self) -> float:
        """Returns the mean loss of the batches, or the first that is not finite."""
        self.module.train()
        rows = self.train
        if self.n_batches > 1:  # shuffled once and then sliced: far cheaper than gathering each batch
            rows = rows[torch.randperm(len(rows), generator=self.generator)]
        first_step = len(self.state.history.train_loss) * self.n_batches
        total = 0.0
        for index in range(self.n_batches):
            batch = rows[index * self.size : (index + 1) * self.size]
            loss = self._step(batch, self._rate(first_step + index))
            if not math.isfinite(loss):
                return loss
            total += loss
        return total / self.n_batches

    def _step(self, batch: RowsT, rate: float) -> float:
        """Takes a step; returns the mean loss of the batch. Each process draws the noise of all pieces."""
        if not self.plan.n_pieces:
            noise = self.objective.draw_noise(batch, self.generator)
            return self.optimiser.step(*moved((batch, noise), self.device), rate)
        slices = self.plan.pieces(len(batch))
        pieces = [(batch[one], self.objective.draw_noise(batch[one], self.generator)) for one in slices]
        own = [moved(pieces[number], self.device) for number in own_pieces(slices)]
        return self.optimiser.step_in_pieces(own, len(batch), rate)

    @torch.no_grad()
    def _validate(self) -> tuple[float, ...]:
        """Returns the mean loss of the held-out rows, or an empty tuple if there are none."""
        if not self.validation:
            return ()
        self.module.eval()
        if self.criterion is not None and self.held_out is not None:
            return (self.criterion(self.module, self.held_out),)
        total = sum(float(self.loss(self.module, *part).sum()) for part in self.validation)
        return (total / sum(len(batch) for batch, _ in self.validation),)

    def _with_noise(self, rows: RowsT | None) -> list[tuple[RowsT, tuple[Tensor, ...]]]:
        """Divides held-out rows into batches with fixed noise, so that losses of epochs are comparable."""
        if rows is None:
            return []
        size = self.settings.batch_size
        batches = [rows[start : start + size] for start in range(0, len(rows), size)]
        return [
            moved((batch, self.objective.draw_noise(batch, self.generator)), self.device) for batch in batches
        ]

    def _rate(self, step: int) -> float:
        return self.state.learning_rate * rate_factor(self.settings.schedule, step / max(1, self.n_steps))

    def _failure(self, train_loss: float, validation_loss: float = 0.0) -> str | None:
        if not math.isfinite(train_loss):
            return f"the training loss was {train_loss}"
        if not self.optimiser.is_finite():
            return "a gradient was not finite"
        if not math.isfinite(validation_loss):
            return f"the validation loss was {validation_loss}"
        return None

    def _back_off(self, reason: str) -> None:
        """Returns to the last good state with half the learning rate and another shuffle."""
        history, rate = self.state.history, self.state.learning_rate
        epoch = len(history.train_loss)
        if len(history.backoffs) >= self.settings.max_backoffs:
            raise TrainingError(
                f"In epoch {epoch + 1} {reason}, although the learning rate was halved to {rate:g}. Check "
                "the data for extreme or infinite values, or use a learning rate below "
                f"{self.settings.learning_rate:g}."
            )
        text = (
            f"In epoch {epoch + 1} {reason}: training returned to the last good state and continues with the "
            f"learning rate {rate / 2:g} instead of {rate:g}."
        )
        warn_user(Note(text))
        backoff = Backoff(epoch=epoch, learning_rate=rate / 2, reason=reason)
        self._load(self.state)
        self.state = replace(
            self.state,
            generator=self.generator.get_state(),
            learning_rate=rate / 2,
            history=replace(history, backoffs=(*history.backoffs, backoff)),
        )

    def _capture(self, weights: Tensors, best: Tensors, learning_rate: float, history: History) -> Checkpoint:
        return Checkpoint(
            module=weights,
            best=best,
            optimiser=self.optimiser.state(),
            generator=self.generator.get_state(),
            learning_rate=learning_rate,
            history=history,
        )

    def _load(self, state: Checkpoint) -> None:
        self.module.load_state_dict(state.module)
        self.optimiser.load_state(state.optimiser)

    def _write(self) -> None:
        """Writes a checkpoint; training is worth more than it, so it goes on if that fails."""
        if self.path is None or not is_first():
            return
        try:
            write_checkpoint(self.path, self.state, self.fingerprint)
        except OSError as error:
            if not self.failed_to_write:
                reason = (error.strerror or str(error)).lower()
                warn_user(
                    f"The checkpoint {str(self.path)!r} cannot be written ({reason}). Training continues; if "
                    "it is interrupted, it resumes from the last checkpoint that was written, or from the "
                    "start if there is none."
                )
            self.failed_to_write = True

    def _progress(self, seconds: float) -> Progress:
        history = self.state.history
        return Progress(
            epoch=len(history.train_loss),
            max_epochs=self.settings.max_epochs,
            train_loss=history.train_loss[-1],
            validation_loss=history.validation_loss[-1] if history.validation_loss else None,
            best_loss=self.stopping.best_loss,
            learning_rate=history.learning_rate[-1],
            seconds=seconds,
        )

    def _fingerprint(self, validation: RowsT | None) -> dict[str, Any]:
        """What must be the same for a resumed run to equal one that never stopped."""
        facts = asdict(self.settings) | {"compile": self.optimiser.compiled} | self.plan.facts()
        if self.device.type == "cpu":
            del facts["device"]
        else:
            facts["device"] = self.device.type  # sums differ in their last bits
        if self.settings.schedule == "constant":
            del facts["max_epochs"]  # a run may be made longer
        if self.criterion is not None:
            facts["criterion"] = repr(self.criterion)
        entry = self.generator.get_state().numpy().tobytes()
        weights, objective = self.module.state_dict().items(), self.objective
        return facts | {
            "objective": repr(objective) if is_dataclass(objective) else type(objective).__name__,
            "module": {name: f"{tuple(value.shape)} {value.dtype}" for name, value in weights},
            "train rows": len(self.train),
            "data": digest_rows(self.train) if self.path is not None or are_kept() else "",
            "validation rows": 0 if validation is None else len(validation),
            "generator": hashlib.sha256(entry).hexdigest()[:16],
        }


def _weights(module: nn.Module) -> Tensors:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}
