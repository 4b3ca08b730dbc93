"""Memory that was freed, and that the libraries would keep, is given back to the operating system."""

import ctypes
import sys
from contextlib import suppress


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
