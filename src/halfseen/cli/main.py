"""The program ``halfseen``: runs a command, and turns errors into one line and an exit code."""

import os
import shlex
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

from halfseen._processors import count_processors
from halfseen.cli.errors import FAILED, debugging, explain_error, is_expected, print_error

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
        sys.stdout.flush()
    except typer.Exit as end:
        return int(end.exit_code)
    except UsageError as error:
        where = error.ctx.command_path if error.ctx is not None else program
        print_error(f"{error.format_message()} (see {where} --help)")
        return FAILED
    return 0


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
