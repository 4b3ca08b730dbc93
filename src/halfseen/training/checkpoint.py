"""A run on disk: one safetensors file with JSON in its header, never pickle, never half-written."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from halfseen._files import write_atomically
from halfseen.errors import ModelFileError
from halfseen.training.progress import History

FORMAT = "halfseen checkpoint 1"

Tensors = dict[str, Tensor]
Fingerprint = Mapping[str, Any]
"""Names and JSON values that two runs must share for one to go on where the other stopped."""


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run at the end of an epoch: enough to go on as if it had never stopped.

    Parameters
    ----------
    module, best : dict of Tensor
        The current weights, and those of the best epoch.
    optimiser : dict of Tensor
        The moments and step counts.
    generator : Tensor
        The state of the generator.
    learning_rate : float
        The base rate, after any halving.
    history : History
        Of the epochs done.
    """

    module: Tensors
    best: Tensors
    optimiser: Tensors
    generator: Tensor
    learning_rate: float
    history: History


def write_checkpoint(path: Path, checkpoint: Checkpoint, fingerprint: Fingerprint) -> None:
    """Writes a file that is the old one or the new one, never a part."""
    groups = {"module": checkpoint.module, "best": checkpoint.best, "optimiser": checkpoint.optimiser}
    # Copied, as the format refuses tensors that share memory, and the best weights may be the current ones.
    tensors = {
        f"{group}/{name}": value.clone() for group, part in groups.items() for name, value in part.items()
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


def read_checkpoint(path: Path, fingerprint: Fingerprint) -> Checkpoint:
    """Reads a checkpoint of the run that `fingerprint` describes.

    Raises
    ------
    ModelFileError
        If the file is no checkpoint, is damaged, or belongs to another run.
    """
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("halfseen", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # no mapping
    except (SafetensorError, json.JSONDecodeError) as error:
        raise ModelFileError(
            f"{path} is no checkpoint or is damaged ({error}); delete it to begin anew."
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
