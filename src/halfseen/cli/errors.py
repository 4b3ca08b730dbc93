"""Errors of the command line: one line with an exit code for every error."""

import json
import os
import sys

EXTRAS = {
    "typer": "cli",
    "rich": "cli",
    "pyarrow": "cli",
    "jinja2": "report",
    "markupsafe": "report",
    "matplotlib": "report",
}
"""Packages that only an extra installs, and which."""

FAILED, INTERNAL = 2, 70
"""Exit codes: for what a user can mend, and for a defect of this program."""

_NO_MEMORY = ("can't allocate memory", "not enough memory")  # torch raises a RuntimeError


def debugging() -> bool:
    """Return whether errors are raised with their traceback instead of being turned into one line."""
    return bool(os.environ.get("HALFSEEN_DEBUG"))


def explain_error(error: BaseException) -> tuple[str, int]:
    """Return the message for an error, and the exit code."""
    code = FAILED
    if isinstance(error, ModuleNotFoundError) and _package(error) in EXTRAS:
        package = _package(error)
        message = f"this needs the package {package}: pip install 'halfseen[{EXTRAS[package]}]'"
    elif isinstance(error, OSError):
        reason = (error.strerror or str(error)).lower()
        message = f"{error.filename}: {reason}" if error.filename is not None else reason
    elif is_ours(error):
        message = str(error)
    elif isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY):
        message = "there is not enough memory; request fewer draws, or pass only some of the rows"
    elif isinstance(error, ValueError) or _is_of_arrow(error):
        message = f"{error or type(error).__name__} (HALFSEEN_DEBUG=1 shows where)"
    else:
        message = f"internal error, please report it: {type(error).__name__}: {error} "
        message += "(HALFSEEN_DEBUG=1 shows the traceback)"
        code = INTERNAL
    notes: list[str] = getattr(error, "__notes__", [])
    return "; ".join([message, *notes]), code


def is_ours(error: BaseException) -> bool:
    """Return whether an error is one of this library, whose message is meant for users."""
    return type(error).__module__.partition(".")[0] == "halfseen"


def is_expected(error: BaseException) -> bool:
    """Return whether an error is expected, so that its traceback is not needed."""
    return is_ours(error) or isinstance(error, OSError) or _package(error) in EXTRAS


def _package(error: BaseException) -> str:
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    return (name or "").partition(".")[0]


def _is_of_arrow(error: BaseException) -> bool:
    arrow = sys.modules.get("pyarrow")
    return arrow is not None and isinstance(error, arrow.ArrowException)


def one_line(text: str) -> str:
    """Return a text as one printable line, whatever a file or column name holds."""
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in " ".join(text.split())
    )


def printable(text: str) -> str:
    """Return lines of text without control characters, such as those that change the state of a terminal."""
    return "".join(
        letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}" for letter in text
    )


def escape_json(text: str) -> str:
    """Return JSON in which characters that are not printable are escaped: those that it allows in strings."""
    return "".join(
        letter if letter.isprintable() or letter in "\n\r\t" else json.dumps(letter)[1:-1] for letter in text
    )


def print_error(message: str) -> None:
    """Print the one-line message of an error."""
    print(f"halfseen: error: {one_line(message)}", file=sys.stderr)
