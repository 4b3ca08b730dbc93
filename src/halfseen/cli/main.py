"""The program ``halfseen``: runs a command, and turns what goes wrong into one line and an exit code."""

import shlex
import sys
from collections.abc import Sequence
from typing import Any

import typer

from halfseen.cli.app import app
from halfseen.cli.errors import TableError
from halfseen.cli.progress import print_error
from halfseen.errors import SchemaError, TrainingError

# Typer carries its own copy of click in some versions and uses the package in others.
UsageError: Any = typer.BadParameter.__bases__[0]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process if not given.

    Returns
    -------
    int
        The exit code: 0 when all went well, 2 when the user can mend it and one line says what is wrong.
    """
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    try:
        code = app(
            args=arguments,
            prog_name="halfseen",
            standalone_mode=False,
            obj=shlex.join(["halfseen", *arguments]),
        )
    except UsageError as error:
        print_error(f"{error.format_message()} (see halfseen --help)")
    except OSError as error:
        print_error(f"{error.filename}: {(error.strerror or '').lower()}" if error.filename else str(error))
    except (TableError, SchemaError, TrainingError) as error:
        print_error(str(error))
    except (typer.Abort, KeyboardInterrupt):
        print_error("interrupted")
        return 130
    else:
        return int(code or 0)
    return 2


def run() -> None:
    """Run the command line and leave the process with its exit code."""
    sys.exit(main())
