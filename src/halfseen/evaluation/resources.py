"""The memory that a computation needs, as the operating system sees it."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

INTERVAL = 0.01  # seconds between two looks


@dataclass
class Peak:
    """The growth of the memory of the process at its peak, in bytes; NaN if the system does not report it."""

    bytes: float = float("nan")


@contextmanager
def peak_memory() -> Iterator[Peak]:
    """Measures by how much the resident memory of the process grows, measured every hundredth of a second.

    Memory that was freed before and is used again does not count, so that a second run may appear smaller.

    Examples
    --------
    >>> with peak_memory() as peak:
    ...     values = b"x" * 400_000_000
    >>> bool(peak.bytes > 10_000_000 or peak.bytes != peak.bytes)
    True
    """
    peak, before = Peak(), resident_bytes()
    if before is None:
        yield peak
        return
    highest, ended = [before], threading.Event()

    def look() -> None:
        while not ended.wait(INTERVAL):
            highest.append(max(highest.pop(), resident_bytes() or 0))

    thread = threading.Thread(target=look, name="halfseen memory", daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()
        peak.bytes = float(max(highest[0], resident_bytes() or 0) - before)


def resident_bytes() -> int | None:
    """Returns the resident memory of the process; None where the system does not report it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None
