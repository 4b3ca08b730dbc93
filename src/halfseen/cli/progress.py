"""Messages of the command line: on standard error, so that standard output carries data only."""

import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
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

import halfseen
from halfseen._answer_progress import watch_answers
from halfseen.cli.errors import one_line
from halfseen.errors import HalfseenWarning
from halfseen.report.run_info import RunInfo

BEATS = (1.0, 3.0, 10.0)
"""Without a terminal, a running step reports after this many seconds, and then every ten seconds."""


_PARTS = 1000
"""Into so many equal steps the progress of an answer is divided."""


@dataclass(frozen=True)
class Step:
    """The progress of a step that does not count epochs."""

    epoch: int
    max_epochs: int


class Reporter:
    """Prints progress and warnings, one line each, as they occur.

    Parameters
    ----------
    quiet : bool
        Whether to print nothing.
    console : rich.console.Console, optional
        Where to print; standard error if not given.
    """

    def __init__(self, *, quiet: bool = False, console: Console | None = None) -> None:
        self.quiet = quiet
        self.console = console or Console(stderr=True)
        self.notes: list[str] = []
        self.started = time.perf_counter()

    @property
    def elapsed(self) -> float:
        """The seconds since the command started."""
        return time.perf_counter() - self.started

    def done(self) -> None:
        """Print that the command is finished, and how long it took."""
        self.show("done", f"in {self.elapsed:.1f} s", "bold green")

    def run_info(self, source: str, command: str) -> RunInfo:
        """Return what a report shows about the command and the file that it read."""
        return RunInfo(Path(source).name, command, self.elapsed, self.notes, halfseen.__version__)

    def show(self, what: str, text: str, style: str = "bold") -> None:
        """Print one line: a highlighted word, and the text."""
        if not self.quiet:
            line = Text.assemble((f"{what:>8}", style), "  ", one_line(text))
            self.console.print(line, highlight=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """Print a note that the report contains as well; a note that was printed already is not repeated."""
        text = one_line(text)
        if text not in self.notes:
            self.notes.append(text)
            self.show("note", text, "yellow")

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
    def progress(self, what: str, title: str, unit: str | None = "epoch") -> Iterator[Callable[[Any], None]]:
        """Show the progress of a step: by a bar in a terminal, otherwise by occasional lines.

        Parameters
        ----------
        what, title : str
            The step, as in ``fitting``, ``miwae``.
        unit : str or None
            What its records count; None to show percentages.

        Yields
        ------
        callable
            Takes a record with ``epoch`` and ``max_epochs``, whatever the step counts.
        """
        if self.quiet:
            yield lambda record: None
        elif self.console.is_terminal:
            with self._bar(f"{what} {title}", unit) as move:
                yield move
        else:
            self.show(what, title)
            with self._beating(what, unit) as move:
                yield move

    @contextmanager
    def answering(self, what: str, title: str) -> Iterator[None]:
        """Show which share of the answer of an imputer is ready; see `progress`."""
        most = 0

        with self.progress(what, title, None) as move:

            def show(share: float) -> None:
                nonlocal most
                most = max(most, round(_PARTS * share))  # an answer may begin again with less
                move(Step(most, _PARTS))

            with watch_answers(show):
                yield

    @contextmanager
    def _bar(self, title: str, unit: str | None) -> Iterator[Callable[[Any], None]]:
        columns = (
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(),
            TextColumn("{task.fields[detail]}"), TimeElapsedColumn(), TimeRemainingColumn(),
        )  # fmt: skip
        with Progress(*columns, console=self.console, transient=True) as bar:
            task = bar.add_task(title, total=None, detail="")

            def move(record: Any) -> None:
                share = record.epoch / max(1, record.max_epochs)
                detail = f"{share:.0%}" if unit is None else f"{record.epoch}/{record.max_epochs}"
                bar.update(task, completed=record.epoch, total=record.max_epochs, detail=detail)

            yield move

    @contextmanager
    def _beating(self, what: str, unit: str | None) -> Iterator[Callable[[Any], None]]:
        """Print from a separate thread how far the step is, so that a long epoch is not silent."""
        last: list[Any] = []
        ended = threading.Event()
        began = time.monotonic()

        def beat() -> None:
            for moment in chain(BEATS, count(2 * BEATS[-1], BEATS[-1])):
                if ended.wait(max(0.0, began + moment - time.monotonic())):
                    return
                self.show(what, f"{_count(last[0], unit) if last else ''}{moment:,.0f} s so far")

        def move(record: Any) -> None:
            last[:] = [record]

        thread = threading.Thread(target=beat, name="halfseen progress", daemon=True)
        thread.start()
        try:
            yield move
        finally:
            ended.set()
            thread.join()


def _count(record: Any, unit: str | None) -> str:
    """Return how far a step is, as the beginning of a line."""
    if unit is None:
        return f"{record.epoch / max(1, record.max_epochs):.0%} done, "
    return f"{unit} {record.epoch:,} of {record.max_epochs:,}, "
