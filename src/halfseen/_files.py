"""Files that appear whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def write_atomically(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Opens a file beside `path` that takes its name when the block ends well, and vanishes otherwise."""
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
