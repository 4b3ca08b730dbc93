"""Output files: checked before the work begins, never written over an input, and written atomically."""

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import BinaryIO

from halfseen import _files
from halfseen.errors import TableError

STANDARD_OUTPUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
"""Names of standard output, to which is written as it is, also if it appends to a file."""


def check_writable(path: str) -> None:
    """Raise an error if a path cannot be written, before the work begins."""
    target = Path(path)
    if target.is_dir():
        raise TableError(f"{path}: cannot write: this is a directory")
    if target.exists() and not target.is_file():  # a pipe or a device, which is not replaced by another file
        if not os.access(target, os.W_OK):
            raise TableError(f"{path}: cannot write: permission denied")
        return
    folder = target.parent
    if not folder.exists():
        raise TableError(f"{path}: cannot write: the directory {str(folder)!r} does not exist")
    if not folder.is_dir():
        raise TableError(f"{path}: cannot write: {str(folder)!r} is not a directory")
    if not os.access(folder, os.W_OK) or (target.exists() and not os.access(target, os.W_OK)):
        raise TableError(f"{path}: cannot write: permission denied")


def check_in_place(path: str) -> None:
    """Raise an error if a file would not stay what it is when another one takes its place.

    A file is replaced as a whole, so that it is never half-written. Other names of it would keep the old
    content, and a file of another user would change its owner.
    """
    status = os.stat(path)
    if status.st_nlink > 1:
        raise TableError(
            f"{path}: --in-place: the file has other names (hard links), which would keep the old content; "
            "use --output"
        )
    if not _files.can_keep_owner(status):
        raise TableError(
            f"{path}: --in-place: the file belongs to another user or group, which a new file cannot; "
            "use --output"
        )


def check_report(path: str | None) -> None:
    """Raise an error if a report could not be made or written, before the work begins."""
    if path is not None:
        check_writable(path)
        import_module("jinja2")  # of an extra; if it is missing, `main` names what to install


def check_apart(
    inputs: Mapping[str, str | None], outputs: Mapping[str, str | None], *, in_place: bool = False
) -> None:
    """Raise an error if an output is one of the inputs or another output, however its path is written.

    Files are compared, not names, so that links and other spellings of a path are recognised.

    Parameters
    ----------
    inputs, outputs : dict of str to str or None
        Paths, by the argument or option that named them; ``-`` is a standard stream. None was not given.
    in_place : bool
        Whether ``--output`` may be ``IN``.
    """
    known = [(option, path, 0) for option, path in inputs.items() if path is not None]
    for option, path in outputs.items():
        if path is None:
            continue
        for other, taken, stream in known:
            if (in_place and (option, other) == ("--output", "IN")) or not is_same_file(path, taken, stream):
                continue
            hint = ", or --in-place to replace it" if (option, other) == ("--output", "IN") else ""
            what = "the input" if other == "IN" else f"the file of {other}"
            raise TableError(f"{path}: {option} would overwrite {what}: give another name{hint}")
        known.append((option, path, 1))


def is_same_file(output: str, other: str, stream: int = 0) -> bool:
    """Return whether an output is another file; `stream` is the standard stream that ``-`` means there."""
    if output == other == "-":
        return stream == 1
    one, two = _status(output, 1), _status(other, stream)
    if one is not None and two is not None:
        regular = stat.S_ISREG(one.st_mode)  # devices and pipes may be named twice
        return regular and os.path.samestat(one, two)
    if one is not None or two is not None or "-" in (output, other):
        return False
    paths = [Path(os.path.realpath(path)) for path in (output, other)]
    # Neither is there yet, and whether the file system distinguishes upper and lower case is not known.
    return paths[0].parent == paths[1].parent and paths[0].name.casefold() == paths[1].name.casefold()


def _status(path: str, stream: int) -> os.stat_result | None:
    try:
        return os.fstat(stream) if path == "-" else os.stat(path)
    except OSError:
        return None


@contextmanager
def write_atomically(path: str) -> Iterator[BinaryIO]:
    """Open a temporary file, which is renamed when the block succeeds; failures are TableErrors.

    ``-`` is standard output, and so is ``/dev/stdout``.
    """
    name = "standard output" if path == "-" else path
    try:
        if path in STANDARD_OUTPUT:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
            return
        with _files.write_atomically(path) as file:
            yield file
    except BrokenPipeError:
        raise  # nobody reads on
    except OSError as error:
        raise TableError(f"{name}: cannot write: {(error.strerror or str(error)).lower()}") from error


def write_page(path: str, page: str) -> None:
    """Write a report; characters of file names that are not UTF-8 become question marks."""
    with write_atomically(path) as file:
        file.write(page.encode("utf-8", errors="replace"))
