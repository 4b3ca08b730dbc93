"""Which files of halfseen does a command execute? The walk of a newcomer who follows it through the code.

Counts the functions and methods that run, and the files that define them, without those that only run while a
module is imported. An example:

    python benchmarks/walk.py impute src/halfseen/data/samples/penguins.csv --method gaussian -o out.csv
"""

import sys
import threading
from collections import Counter
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import halfseen
from halfseen.cli.main import main

ROOT = Path(halfseen.__file__).parent


def walk(arguments: list[str]) -> tuple[int, Counter[str]]:
    """Run a command; return its exit code, and how many functions of each file it called."""
    called: set[CodeType] = set()
    importing: dict[int, int] = {}  # by thread: how many modules are being imported

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        code, thread = frame.f_code, threading.get_ident()
        if code.co_name == "<module>" and event in ("call", "return"):
            importing[thread] = importing.get(thread, 0) + (1 if event == "call" else -1)
        elif event == "call" and code.co_flags & CO_OPTIMIZED and not importing.get(thread):
            called.add(code)  # optimised code is that of functions, rather than of classes or modules

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        exit_code = main(arguments)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    paths = (Path(code.co_filename) for code in called)
    return exit_code, Counter(str(path.relative_to(ROOT)) for path in paths if path.is_relative_to(ROOT))


if __name__ == "__main__":
    code, found = walk(sys.argv[1:])
    for path, n_functions in sorted(found.items()):
        print(f"{n_functions:>5}  {path}")
    print(f"{sum(found.values()):>5}  functions in {len(found)} files")
    sys.exit(code)
