r"""How the gradients of a step are computed: by several processes, or in lower precision.

Both are chosen around calls of ``fit``, as checkpoints are, because they concern where and how fast a model
is trained and not what it is.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch import distributed as processes

from halfseen.errors import TrainingError

PIECES = 8
"""Pieces of a batch by default: processes beyond this number have nothing to do; a guess."""


@dataclass(frozen=True)
class GradientPlan:
    """How the gradients of a step are computed."""

    n_pieces: int = 0  # the number of pieces of a batch; 0 if it is not divided
    lower_precision: bool = False  # whether products of matrices are computed in bfloat16

    def pieces(self, n_rows: int) -> list[slice]:
        """Returns the pieces of a batch, which depend on its size and the number of pieces only.

        Examples
        --------
        >>> GradientPlan(3).pieces(7)
        [slice(0, 3, None), slice(3, 6, None), slice(6, 7, None)]
        """
        size = -(-n_rows // min(self.n_pieces, n_rows))
        return [slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]

    def facts(self) -> dict[str, object]:
        """Returns what distinguishes the steps from those without a plan, for checkpoints."""
        found: dict[str, object] = {"pieces": self.n_pieces} if self.n_pieces else {}
        return found | ({"precision": "bfloat16"} if self.lower_precision else {})


@dataclass(frozen=True)
class InLowerPrecision:
    """An objective whose products of matrices are computed in bfloat16."""

    objective: Any  # Objective: the loss per row
    device: str  # the kind of the device

    def draw_noise(self, batch: Any, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Returns the noise of the objective."""
        noise: tuple[Tensor, ...] = self.objective.draw_noise(batch, generator)
        return noise

    def __call__(self, module: Any, batch: Any, noise: tuple[Tensor, ...]) -> Tensor:
        """Returns the loss of each row, at least in single precision."""
        with torch.autocast(self.device, torch.bfloat16):
            loss: Tensor = self.objective(module, batch, noise)
        return loss.float() if loss.dtype == torch.bfloat16 else loss


_plan: ContextVar[GradientPlan | None] = ContextVar("gradients of training", default=None)


def gradient_plan() -> GradientPlan:
    """Returns how gradients are computed in this context."""
    return _plan.get() or GradientPlan()


@contextmanager
def _planned(plan: GradientPlan) -> Iterator[None]:
    token = _plan.set(plan)
    try:
        yield
    finally:
        _plan.reset(token)


def data_parallel(n_pieces: int = PIECES) -> AbstractContextManager[None]:
    r"""Divides each batch of a training into pieces, whose gradients several processes compute.

    Every process runs the same program on the same table, under ``torchrun`` or any other launcher that
    initialises the default process group of `torch.distributed`. Pieces are dealt out in turn; gradients are
    added over the processes (by gloo on CPUs, NCCL on GPUs), and each process takes the same step, so that
    every process ends with the same model. Without a process group, one process computes all pieces.

    The pieces and their noise depend on `n_pieces` and the seed, and not on the number of processes, so that
    gradients are those of one process up to rounding. Losses of a row must not depend on other rows of its
    batch, and an objective may have no state of its own; one that has is refused.

    Parameters
    ----------
    n_pieces : int, default=8
        The number of pieces of a batch: at least the number of processes, and best a multiple of it.

    Returns
    -------
    context manager

    See Also
    --------
    mixed_precision : Computes gradients in lower precision.

    Examples
    --------
    >>> import numpy as np
    >>> import halfseen
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> with halfseen.data_parallel(n_pieces=4):
    ...     imputer = halfseen.MixtureImputer(max_epochs=2, random_state=0).fit(X)
    """
    if isinstance(n_pieces, bool) or not isinstance(n_pieces, int) or n_pieces < 1:
        raise ValueError(f"n_pieces must be a whole number of at least 1, got {n_pieces!r}.")
    return _planned(replace(gradient_plan(), n_pieces=n_pieces))


def mixed_precision() -> AbstractContextManager[None]:
    """Computes the products of matrices in the gradients of a training in bfloat16; see `torch.autocast`.

    This is faster on GPUs, and on CPUs with instructions for it. Parameters, updates, held-out losses and all
    answers of the fitted model keep their precision. Models in double precision are not affected, and steps
    are not compiled.

    Returns
    -------
    context manager

    See Also
    --------
    data_parallel : Divides batches among processes.

    Examples
    --------
    >>> import numpy as np
    >>> import halfseen
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> with halfseen.mixed_precision():
    ...     imputer = halfseen.MIWAEImputer(max_epochs=2, random_state=0).fit(X)
    """
    return _planned(replace(gradient_plan(), lower_precision=True))


# ------------------------------------------------------------------------------------------ processes


def is_shared() -> bool:
    """Returns whether batches are divided among several processes."""
    grouped = processes.is_available() and processes.is_initialized()
    return bool(gradient_plan().n_pieces and grouped and processes.get_world_size() > 1)


def is_first() -> bool:
    """Returns whether this process is the one that writes checkpoints."""
    return not is_shared() or processes.get_rank() == 0


def own_pieces(pieces: Sequence[slice]) -> list[int]:
    """Returns the numbers of the pieces that this process computes."""
    first, n_processes = (processes.get_rank(), processes.get_world_size()) if is_shared() else (0, 1)
    return list(range(first, len(pieces), n_processes))


def any_process(fact: bool) -> bool:
    """Returns whether something is true of any process, so that all of them do the same."""
    if not is_shared():
        return fact
    found = torch.tensor([float(fact)], device=_meeting_place())
    processes.all_reduce(found)
    return bool(found.item() > 0)


def check_shared(resumable: bool) -> None:
    """Raises an error if an objective has a state that processes would not share."""
    if is_shared() and not resumable:
        raise TrainingError(
            "This model cannot be trained by several processes, because completions of its rows are part of "
            "the training; train it by one process."
        )


def add_over_processes(parameters: Sequence[Tensor], loss: Tensor) -> float:
    """Adds the gradients of parameters, in place, and the loss over all processes; returns the loss.

    A gradient that is None in all processes stays so.
    """
    if not is_shared():
        return float(loss)
    place = _meeting_place()
    absent = [parameter.grad is None for parameter in parameters]
    counts = torch.tensor([float(loss), *(float(not one) for one in absent)], dtype=torch.float64)
    counts = counts.to(place)
    processes.all_reduce(counts)
    used = [parameter for parameter, count in zip(parameters, counts[1:].tolist(), strict=True) if count]
    for dtype in dict.fromkeys(parameter.dtype for parameter in used):
        some = [parameter for parameter in used if parameter.dtype == dtype]
        flat = torch.cat([_gradient_of(parameter).flatten() for parameter in some]).to(place)
        processes.all_reduce(flat)
        for parameter, part in zip(some, flat.split([one.numel() for one in some]), strict=True):
            parameter.grad = part.view_as(parameter).to(parameter.device)
    return float(counts[0])


def _gradient_of(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def _meeting_place() -> torch.device:
    """Returns the device on which processes exchange tensors: their GPU for NCCL, otherwise the CPU."""
    if processes.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
