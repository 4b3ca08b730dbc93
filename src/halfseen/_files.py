"""Atomic writing of files, and conversion to values that JSON can represent."""

import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, BinaryIO

_NAME_START = 40  # characters, of at most four bytes each; file systems allow names of 255 bytes


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
    is_special = os.path.exists(path) and not os.path.isfile(path)  # a pipe or a device has no name to swap
    try:
        with open(path, "wb") if is_special else _swapping(Path(os.path.realpath(path))) as file:
            yield file
    except OSError as error:
        if error.filename is None and error.errno is not None:  # as when the disk is full
            error.filename = os.fspath(path)
        raise


@contextmanager
def _swapping(target: Path) -> Iterator[BinaryIO]:
    # A part of the name, as the name of the temporary file must not be longer than the file system allows.
    start = target.name[:_NAME_START]
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{start}.", suffix=".part")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            _keep_owner(temporary, target.stat())
        else:
            temporary.chmod(_default_mode())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _keep_owner(temporary: Path, old: os.stat_result) -> None:
    """Gives a file the permissions of the one that it replaces, and its owner and group if possible."""
    if can_keep_owner(old) and hasattr(os, "chown"):
        os.chown(temporary, old.st_uid, old.st_gid)
    temporary.chmod(old.st_mode & 0o777)


def can_keep_owner(old: os.stat_result) -> bool:
    """Returns whether this process may give a new file the owner and the group of an old one."""
    if not hasattr(os, "geteuid") or os.geteuid() == 0:
        return True
    return old.st_uid == os.geteuid() and old.st_gid in (os.getegid(), *os.getgroups())


def _default_mode() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
