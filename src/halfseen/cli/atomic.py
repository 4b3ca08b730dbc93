"""Output files: refused early if they cannot be written, and never half-written."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from halfseen import _files
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
    """Open a file that takes its name when the block ends well; what goes wrong is a TableError."""
    try:
        with _files.write_atomically(path) as file:
            yield file
    except OSError as error:
        raise TableError(f"{path}: cannot write: {(error.strerror or str(error)).lower()}") from error
