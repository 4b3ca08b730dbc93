"""The machine: processors, memory and threads that this process may use, and files replaced in one step."""

import ctypes
import math
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO


@cache  # single rows are answered within milliseconds; quotas are not expected to change during a run
def count_processors(root: Path = Path("/")) -> int:
    """Returns how many processors the affinity of the process and the quotas of its cgroups grant.

    Containers and services are often limited to a share of the processor time of a machine (a quota of the
    control group, version 1 or 2). The threads of a process that has used up its quota are stopped wherever
    they are, while others wait for them. A part of a processor counts as a whole one.

    Parameters
    ----------
    root : Path
        The folder that holds ``proc`` and ``sys``.
    """
    return max(1, math.ceil(min([float(_count_affinity()), *_quotas(root)])))


def _count_affinity() -> int:
    if hasattr(os, "sched_getaffinity"):  # not on every system
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def count_memory(root: Path = Path("/")) -> int:
    """Returns the bytes of memory that the machine has, or that the cgroups of the process grant.

    Parameters
    ----------
    root : Path
        The folder that holds ``proc`` and ``sys``.
    """
    return min([_count_machine_memory(), *_memory_limits(root)])


def _count_machine_memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not every system reports it
        return 8 * 2**30


def _memory_limits(root: Path) -> Iterator[int]:
    for group in _groups(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):  # of versions 2 and 1
            number = _read(group / name).strip()
            if number.isdecimal():  # not "max"
                yield int(number)


def _quotas(root: Path) -> Iterator[float]:
    """Yields the quotas of the cgroups of the process and of the groups around them, in processors."""
    for group in _groups(root, "cpu"):
        yield from _quota(group)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yields the folders of the cgroups of the process, and of the groups around them."""
    mount = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, name = line.split(":", maxsplit=2)
        if controllers and controller not in controllers.split(","):
            continue
        folders = [mount / controllers, mount / controller] if controllers else [mount, mount / "unified"]
        own = PurePosixPath(name.lstrip("/"))
        for folder in folders:
            # In a container the outermost folder may be its own group, which has another name on the host.
            for group in (own, *own.parents):
                yield folder / group


def _quota(group: Path) -> Iterator[float]:
    """Yields the quota of a group, divided by its period, or nothing if it has none."""
    numbers = _read(group / "cpu.max").split()  # of version 2
    if not numbers:
        numbers = [_read(group / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    if len(numbers) == 2 and all(number.isdecimal() for number in numbers):  # not "max" or -1
        yield int(numbers[0]) / max(1, int(numbers[1]))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):  # no such file, or it may not be read: it states no limit
        return ""


def give_back_memory() -> None:
    """Gives memory that is no longer used back to the operating system.

    Arrow and the C library keep what was freed, in case it is needed again. After a large step, such as
    reading a table, that may be as much as the next step needs. Elsewhere than with the C library of GNU,
    only what Arrow keeps is given back.
    """
    arrow = sys.modules.get("pyarrow")  # estimators work without it
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # there is no such library, or no such function
        ctypes.CDLL("libc.so.6").malloc_trim(0)


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
def in_thread(work: Callable[[threading.Event], None], name: str) -> Iterator[None]:
    """Runs a function in a thread until the block ends, when the event that it is given is set.

    Examples
    --------
    >>> ends = []
    >>> with in_thread(lambda ended: ends.append(ended.wait()), "waiting"):
    ...     pass
    >>> ends
    [True]
    """
    ended = threading.Event()
    thread = threading.Thread(target=work, args=(ended,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


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
