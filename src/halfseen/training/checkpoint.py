"""Checkpoints of training: safetensors files with JSON in their header, written atomically."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from halfseen._machine import write_atomically
from halfseen.errors import ModelFileError
from halfseen.training.progress import History

FORMAT = "halfseen checkpoint 1"

Tensors = dict[str, Tensor]
Fingerprint = Mapping[str, Any]
"""Names and JSON values that two runs must share for one to go on where the other stopped."""


@dataclass
class _Folder:
    """Where checkpoints are kept, those of the trainings so far, and whether the folder was made for them."""

    path: Path
    used: set[Path]
    is_new: bool

    @classmethod
    def opened(cls, path: Path) -> "_Folder":
        folder = cls(path, set(), False)
        folder.make()
        return folder

    def make(self) -> None:
        """Makes the folder, also if another run has removed it since."""
        if not self.path.is_dir():
            self.path.mkdir(parents=True, exist_ok=True)
            self.is_new = True

    def clear(self) -> None:
        """Removes the files of this run and, if it was made for them and is empty, the folder."""
        for path in self.used:
            path.unlink(missing_ok=True)
        if self.is_new and self.path.is_dir() and not any(self.path.iterdir()):
            # Another run may write into the folder or remove it at this moment: it is not ours then.
            with suppress(OSError):
                self.path.rmdir()


_current: ContextVar[_Folder | None] = ContextVar("checkpoints", default=None)


@contextmanager
def checkpoints(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Keep checkpoints of every gradient training within a ``with`` statement, so that it can be resumed.

    Each training stores its state in a file of the folder, at least every half minute and when it is
    interrupted. If the same code is run again with the same data, settings and integer `random_state`, every
    training continues where it stopped, and the result is bit for bit that of a run without interruption.
    The files are removed when the block ends without an error. The first phase of `DeMissVAEImputer` is not
    resumed but starts again. Several runs can share a folder. If a file cannot be written, for instance
    because the disk is full, training continues with a warning, and an earlier checkpoint remains.

    Parameters
    ----------
    folder : path
        Where to keep the files; it is created if it does not exist.

    Examples
    --------
    >>> import halfseen, tempfile
    >>> X = [[1.0, 2.0], [2.0, None], [None, 6.0], [4.0, 8.0]] * 20
    >>> with halfseen.checkpoints(tempfile.mkdtemp()):
    ...     imputer = halfseen.MIWAEImputer(max_epochs=2, random_state=0).fit(X)
    """
    here = _Folder.opened(Path(folder))
    token = _current.set(here)
    try:
        yield
    finally:
        _current.reset(token)
    here.clear()


def checkpoint_path(fingerprint: Fingerprint) -> Path | None:
    """Return where the checkpoint of a run belongs, None outside of `checkpoints`."""
    here = _current.get()
    if here is None:
        return None
    name = hashlib.sha256(json.dumps(dict(fingerprint), sort_keys=True).encode()).hexdigest()[:20]
    path = here.path / f"{name}.checkpoint"
    here.used.add(path)
    return path


def are_kept() -> bool:
    """Return whether checkpoints are kept here."""
    return _current.get() is not None


def digest_rows(rows: Any) -> str:
    """Return a digest of all tensors of some rows, which are a tensor or a dataclass of them."""
    found = hashlib.sha256()
    pending = [rows]
    while pending:
        value = pending.pop()
        if isinstance(value, Tensor):
            found.update(f"{tuple(value.shape)}{value.dtype}".encode())
            found.update(value.detach().contiguous().numpy().data)
        elif is_dataclass(value):
            pending += [getattr(value, field.name) for field in fields(value)]
    return found.hexdigest()[:16]


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run at the end of an epoch, from which it can continue as if it had never stopped."""

    # The current weights, and those of the best epoch.
    module: Tensors
    best: Tensors
    optimiser: Tensors  # the moments and step counts
    generator: Tensor  # the state of the generator
    learning_rate: float  # the base rate, after any halving
    history: History  # of the epochs done


def write_checkpoint(path: Path, checkpoint: Checkpoint, fingerprint: Fingerprint) -> None:
    """Writes a checkpoint atomically: the file is always the complete old or the complete new one."""
    here = _current.get()
    if here is not None and path in here.used:
        here.make()
    groups = {"module": checkpoint.module, "best": checkpoint.best, "optimiser": checkpoint.optimiser}
    # Copied, as the format refuses tensors that share memory, and the best weights may be the current ones.
    tensors = {
        f"{group}/{name}": value.to("cpu", copy=True)
        for group, part in groups.items()
        for name, value in part.items()
    }
    tensors["generator"] = checkpoint.generator
    header = {
        "format": FORMAT,
        "fingerprint": dict(fingerprint),
        "learning_rate": checkpoint.learning_rate,
        "history": checkpoint.history.to_dict(),
    }
    with write_atomically(path) as file:
        file.write(save(tensors, metadata={"halfseen": json.dumps(header)}))


def read_checkpoint(path: Path, fingerprint: Fingerprint) -> Checkpoint | None:
    """Reads a checkpoint of the run that `fingerprint` describes; returns None if there is no such file.

    Raises
    ------
    ModelFileError
        If the file is not a checkpoint, is damaged, or belongs to another run.
    """
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("halfseen", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # no mapping
    except FileNotFoundError:  # an equal run ended at this moment and removed it
        return None
    except (SafetensorError, json.JSONDecodeError) as error:
        raise ModelFileError(
            f"{path} is not a checkpoint or is damaged ({error}); delete it to start again."
        ) from error
    if header.get("format") != FORMAT:
        raise ModelFileError(f"{path} has the format {header.get('format')!r}, not {FORMAT!r}.")
    _check_same_run(path, header["fingerprint"], fingerprint)
    return Checkpoint(
        module=_group(tensors, "module"),
        best=_group(tensors, "best"),
        optimiser=_group(tensors, "optimiser"),
        generator=tensors["generator"],
        learning_rate=header["learning_rate"],
        history=History.from_dict(header["history"]),
    )


def _check_same_run(path: Path, theirs: Fingerprint, ours: Fingerprint) -> None:
    ours = json.loads(json.dumps(dict(ours)))  # as it would be read back: tuples become lists
    differences = [
        f"{name} was {theirs.get(name)!r} and is {ours.get(name)!r}"
        for name in sorted({*theirs, *ours})
        if theirs.get(name) != ours.get(name)
    ]
    if differences:
        raise ModelFileError(
            f"{path} is the checkpoint of another run: {'; '.join(differences)}. "
            "Use the same settings, data and seed, or another path."
        )


def _group(tensors: Tensors, group: str) -> Tensors:
    prefix = f"{group}/"
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
