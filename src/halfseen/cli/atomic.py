"""Files that appear whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from halfseen.cli.errors import TableError


def check_writable(path: str) -> None:
    """Refuse a path that cannot be written, before hours are spent on what should go there."""
    target = Path(path)
    if target.is_dir():
        raise TableError(f"{path}: cannot write: this is a directory")
    folder = target.parent
    if not folder.exists():
        raise TableError(f"{path}: cannot write: the directory {str(folder)!r} does not exist")
    if not folder.is_dir():
        raise TableError(f"{path}: cannot write: {str(folder)!r} is not a directory")
    if not os.access(folder, os.W_OK) or (target.exists() and not os.access(target, os.W_OK)):
        raise TableError(f"{path}: cannot write: permission denied")


@contextmanager
def write_atomically(path: str) -> Iterator[BinaryIO]:
    """Open a file beside `path` that takes its name when the block ends well, and vanishes otherwise."""
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():  # a pipe or a device has no name to swap
        with target.open("wb") as file:
            yield file
        return
    temporary: str | None = None
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
        with os.fdopen(handle, "wb") as file:
            yield file
        os.chmod(temporary, target.stat().st_mode & 0o777 if target.exists() else _default_mode())
        os.replace(temporary, target)
        temporary = None
    except OSError as error:
        raise TableError(f"{path}: cannot write: {(error.strerror or str(error)).lower()}") from error
    finally:
        if temporary is not None:
            with suppress(FileNotFoundError):
                os.unlink(temporary)


def _default_mode() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
