"""Atomic writing of files, and conversion to values that JSON can represent."""

import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, BinaryIO


def plain_json(value: Any) -> Any:
    """Returns dataclasses as dicts, sequences as lists, and numbers that JSON does not have as None.

    Examples
    --------
    >>> plain_json({"a": (1.5, float("nan"))})
    {'a': [1.5, None]}
    """
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if is_dataclass(value):
        return {field.name: plain_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: plain_json(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain_json(one) for one in value]
    return value


@contextmanager
def write_atomically(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Opens a temporary file next to `path`, which is renamed if the block succeeds and removed otherwise."""
    target = Path(os.path.realpath(path))
    is_special = target.exists() and not target.is_file()  # a pipe or a device has no name to swap
    try:
        with target.open("wb") if is_special else _swapping(target) as file:
            yield file
    except OSError as error:
        if error.filename is None and error.errno is not None:  # as when the disk is full
            error.filename = os.fspath(path)
        raise


@contextmanager
def _swapping(target: Path) -> Iterator[BinaryIO]:
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(target.stat().st_mode & 0o777 if target.exists() else _default_mode())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _default_mode() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
