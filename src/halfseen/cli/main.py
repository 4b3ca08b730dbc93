"""The program ``halfseen``: runs a command, and turns errors into one line and an exit code."""

import json
import os
import re
import shlex
import shutil
import signal
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

from halfseen._machine import count_processors
from halfseen.words import similar_words

EXTRAS = {
    "typer": "cli",
    "rich": "cli",
    "pyarrow": "cli",
    "jinja2": "report",
    "markupsafe": "report",
    "matplotlib": "report",
    "ray": "ray",
    "distributed": "dask",
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
    """Print the message of an error: as one line, which a terminal shows wrapped at words."""
    if sys.stderr is None:  # of a process that was started without one; print would use standard output
        return
    text = f"halfseen: error: {one_line(message)}"
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
        text = "\n".join(lines)
    print(text, file=sys.stderr)


TERMINATING = ("SIGTERM", "SIGHUP")
"""Signals that end a run as Ctrl-C does: nothing is left half-written. Not every system has both."""

WAIT_POLICY = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""Variables by which users choose how the threads of OpenMP wait for each other."""


class Terminated(KeyboardInterrupt):
    """The process was asked to end by a signal other than that of Ctrl-C."""


def _commands() -> Any:
    from halfseen.cli.app import app

    return app


def main(
    argv: Sequence[str] | None = None, commands: Callable[[], Any] = _commands, program: str = "halfseen"
) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process if not given.
    commands : callable
        Imports and returns the commands, a Typer application; by default those of halfseen.
    program : str
        The name of the program in help texts.

    Returns
    -------
    int
        The exit code: 0 for success; 1 if standard output was closed, or as the command says; 2 for an error
        that the user can correct, described in one line; 70 for a defect; 130 if interrupted, 143 if
        terminated.
    """
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    if sys.platform == "linux":  # where the memory that Arrow freed can be given back, if it is the system's
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    try:
        with _no_foreign_warnings():
            return _call(arguments, commands(), program)
    except KeyboardInterrupt as interruption:
        word = "terminated" if isinstance(interruption, Terminated) else "interrupted"
        print_error("; ".join([word, *getattr(interruption, "__notes__", [])]))
        return 128 + (interruption.args[0] if isinstance(interruption, Terminated) else signal.SIGINT)
    except BrokenPipeError:  # the reader of standard output, such as `head`, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:  # never swallowed: it is raised, or printed and turned into an exit code
        if debugging() and not is_expected(error):
            raise
        message, code = explain_error(error)
        print_error(message)
        return code


def _call(arguments: Sequence[str], app: Any, program: str) -> int:
    import typer

    # Typer carries its own copy of click in some versions and uses the package in others.
    UsageError: Any = typer.BadParameter.__bases__[0]
    command = typer.main.get_command(app)
    try:
        words = shlex.join([program, *arguments])
        with command.make_context(program, list(arguments), obj=words) as context:
            command.invoke(context)
        if sys.stdout is not None:  # None if the process was started without a standard output
            sys.stdout.flush()
    except typer.Exit as end:
        return int(end.exit_code)
    except UsageError as error:
        where = error.ctx.command_path if error.ctx is not None else program
        print_error(f"{_explain_usage(error)} (see {where} --help)")
        return FAILED
    return 0


def _explain_usage(error: Any) -> str:
    """Return the message of Typer for a wrong option, with the value and a similar choice, if any."""
    message: str = error.format_message().replace(": Value error, ", ": ").rstrip(".")
    if "Input should be" in message and hasattr(error.__cause__, "errors"):  # of pydantic, in some versions
        given = error.__cause__.errors()[0]["input"]
        message = message.replace("Input should be", f"{given!r} should be").partition(", unable to parse")[0]
    choices = re.search(r"'([^']*)' is not one of (.*)", message)
    if choices is not None:
        message += similar_words(re.findall(r"'([^']*)'", choices[2]), choices[1])
    if "unexpected extra argument" in message:  # mostly a pattern that the shell has expanded
        message += "; several files are named by a folder, or by a pattern in quotes such as 'data/*.csv'"
    return message


@contextmanager
def _no_foreign_warnings() -> Iterator[None]:
    """Suppress the warnings of other packages, on which users cannot act."""
    with warnings.catch_warnings():
        if not debugging():
            warnings.simplefilter("ignore")
        yield


def _terminate(number: int, frame: Any) -> None:
    raise Terminated(number)


def choose_threads(environment: MutableMapping[str, str]) -> None:
    """Set how libraries use threads, where the user has not: they read this when they are loaded.

    Threads that wait for each other sleep. By default they spin for some milliseconds first, which on a busy
    machine takes the processor from the thread that they wait for. There are no more threads than processors
    that the quota of a container grants, of which libraries do not know.
    """
    if not any(name in environment for name in WAIT_POLICY):
        environment["OMP_WAIT_POLICY"] = "PASSIVE"
    n_processors = count_processors()
    if n_processors < (os.cpu_count() or 1):  # or else the choice of each library is a good one
        environment.setdefault("OMP_NUM_THREADS", str(n_processors))


def run() -> None:
    """Run the command line and leave the process with its exit code."""
    choose_threads(os.environ)
    for name in TERMINATING:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # not under nohup
            signal.signal(number, _terminate)
    sys.exit(main())
