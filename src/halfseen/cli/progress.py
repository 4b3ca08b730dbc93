"""What the command line says while it works: on standard error, so that standard output carries data only."""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from halfseen.errors import HalfseenWarning


def one_line(text: str) -> str:
    """Return a text as one printable line, whatever a file or column name holds."""
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in " ".join(text.split())
    )


class Reporter:
    """Says what is done, one line each; warnings too.

    In a terminal a line appears at once. Elsewhere lines wait for `release`, so that a run that fails says
    one thing only: why.

    Parameters
    ----------
    quiet : bool
        Whether to say nothing at all.
    console : rich.console.Console, optional
        Where to say it; standard error if not given.
    """

    def __init__(self, *, quiet: bool = False, console: Console | None = None) -> None:
        self.quiet = quiet
        self.console = console or Console(stderr=True)
        self.notes: list[str] = []
        self._waiting: list[Text] | None = None if self.console.is_terminal else []

    def say(self, what: str, text: str, style: str = "bold") -> None:
        """Say one line: a word that is made to stand out, and the rest."""
        line = Text.assemble((f"{what:>8}", style), "  ", one_line(text))
        if self.quiet:
            return
        if self._waiting is None:
            self._print(line)
        else:
            self._waiting.append(line)

    def note(self, text: str, style: str = "yellow") -> None:
        """Say something that belongs into the report too; what was said already is not repeated."""
        text = one_line(text)
        if text not in self.notes:
            self.notes.append(text)
            self.say("note", text, style)

    def release(self) -> None:
        """Say what was held back, and from now on everything at once."""
        lines, self._waiting = self._waiting or [], None
        for line in lines:
            self._print(line)

    def _print(self, line: Text) -> None:
        self.console.print(line, highlight=False, soft_wrap=True)

    @contextmanager
    def noting_warnings(self) -> Iterator[None]:
        """Turn the library's own warnings into notes; others go their usual way."""
        with warnings.catch_warnings():
            warnings.simplefilter("always", HalfseenWarning)
            usual = warnings.showwarning

            def show(
                message: Warning | str,
                category: type[Warning],
                filename: str,
                lineno: int,
                file: TextIO | None = None,
                line: str | None = None,
            ) -> None:
                if issubclass(category, HalfseenWarning):
                    self.note(str(message))
                elif not self.quiet:
                    usual(message, category, filename, lineno, file, line)

            warnings.showwarning = show
            yield

    @contextmanager
    def progress(self, title: str) -> Iterator[Callable[[Any], None]]:
        """Show a bar in a terminal; yields the callback that moves it, given a record of an epoch."""
        if self.quiet or not self.console.is_terminal:
            yield lambda record: None
            return
        columns = (
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(),
            TextColumn("{task.fields[detail]}"), TimeElapsedColumn(), TimeRemainingColumn(),
        )  # fmt: skip
        with Progress(*columns, console=self.console, transient=True) as bar:
            task = bar.add_task(title, total=None, detail="")

            def move(record: Any) -> None:
                detail = f"{record.epoch}/{record.max_epochs}"
                bar.update(task, completed=record.epoch, total=record.max_epochs, detail=detail)

            yield move


def print_error(message: str) -> None:
    """Print the one line that a user error gets."""
    print(f"halfseen: error: {one_line(message)}", file=sys.stderr)
