"""Settings of the library: the memory that a call may use in addition to its table and its result.

Rows, draws and levels are processed in pieces of about 32 MiB of working memory, for any number of rows. The
size of pieces never depends on the budget, so that results do not either, bit by bit. The budget limits how
many pieces are computed at the same time by several threads; there is always one, and it may need up to 128
MiB, so that smaller budgets have the effect of that one.

Examples
--------
>>> import halfseen
>>> halfseen.config.get()
{'memory_budget': 536870912}
>>> with halfseen.config.context(memory_budget="64 MiB"):
...     halfseen.config.get()
{'memory_budget': 67108864}
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

DEFAULT_MEMORY_BUDGET = 512 * 2**20
SMALLEST_MEMORY_BUDGET = 16 * 2**20
_UNITS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
_SIZE = re.compile(rf"\s*(\d+(?:\.\d+)?)\s*({'|'.join(_UNITS)})\s*")

_DECIMAL_UNITS = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("KB", 10**3))

_everywhere = {"memory_budget": DEFAULT_MEMORY_BUDGET}
_within: ContextVar[int | None] = ContextVar("memory_budget", default=None)


def get() -> dict[str, int]:
    """Returns the current settings: ``memory_budget``, in bytes."""
    return {"memory_budget": memory_budget()}


def set(*, memory_budget: int | str) -> None:
    """Changes settings for the whole process.

    Parameters
    ----------
    memory_budget : int or str
        The memory that a call may use in addition to its table and its result: a number of bytes, or a size
        such as ``"512 MiB"`` or ``"2 GB"``; at least 16 MiB.
    """
    _everywhere["memory_budget"] = _as_bytes(memory_budget)


@contextmanager
def context(*, memory_budget: int | str) -> Iterator[None]:
    """Changes settings as `set` does, within a ``with`` statement and for this thread only."""
    token = _within.set(_as_bytes(memory_budget))
    try:
        yield
    finally:
        _within.reset(token)


def memory_budget() -> int:
    """Returns the memory budget in bytes."""
    here = _within.get()
    return _everywhere["memory_budget"] if here is None else here


def tasks_within_budget(n_bytes: int) -> int:
    """Returns how many tasks, each with this working memory, may run at a time: at least one.

    Half of the budget is planned; the other half is for what allocators keep and estimates leave out.
    """
    return max(1, memory_budget() // (2 * max(1, n_bytes)))


def _as_bytes(size: int | str) -> int:
    n_bytes = _count_bytes(size)
    if n_bytes is None or n_bytes < SMALLEST_MEMORY_BUDGET:
        raise ValueError(
            "memory_budget must be a number of bytes or a size such as '512 MiB', of at least 16 MiB, "
            f"got {size!r}."
        )
    return n_bytes


def read_size(size: int | str) -> int:
    """Returns the number of bytes of a size such as ``"2 GB"``.

    Examples
    --------
    >>> read_size("1.5 KiB")
    1536
    """
    n_bytes = _count_bytes(size)
    if n_bytes is None or n_bytes <= 0:
        raise ValueError(f"A size is a number of bytes or a text such as '512 MiB' or '2 GB', got {size!r}.")
    return n_bytes


def show_size(n_bytes: int) -> str:
    """Returns a number of bytes as `read_size` reads it, rounded to two digits.

    Examples
    --------
    >>> show_size(5_399_990_000)
    '5.4 GB'
    """
    unit, factor = next((one for one in _DECIMAL_UNITS if n_bytes >= one[1]), ("B", 1))
    number = n_bytes / factor
    return f"{number:.1f} {unit}" if number < 10 and factor > 1 else f"{number:.0f} {unit}"


def _count_bytes(size: int | str) -> int | None:
    if isinstance(size, str):
        found = _SIZE.fullmatch(size) or re.fullmatch(r"\s*(\d+)()\s*", size)
        return int(float(found[1]) * _UNITS[found[2] or "B"]) if found else None
    return size if isinstance(size, int) and not isinstance(size, bool) else None
