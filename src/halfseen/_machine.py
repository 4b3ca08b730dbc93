"""The processors and the memory that this process may use, which may be less than the machine has."""

import ctypes
import math
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePosixPath


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
