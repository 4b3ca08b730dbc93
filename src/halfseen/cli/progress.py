"""Messages of the command line: on standard error, so that standard output carries data only."""

import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

import halfseen
from halfseen._machine import in_thread
from halfseen.cli.main import one_line
from halfseen.errors import HalfseenWarning
from halfseen.training.progress import watch_answers
from halfseen.words import Note, as_note, by_severity, plural

if TYPE_CHECKING:
    from halfseen.report.result import RunInfo

BEATS = (1.0, 3.0, 10.0)
"""Without a terminal, a running step reports after this many seconds, and then every ten seconds."""


_PARTS = 1000
"""The number of steps of the progress bar of an imputation; a guess, finer than any bar is wide."""


@dataclass(frozen=True)
class Step:
    """The progress of a step that does not count epochs."""

    epoch: int
    max_epochs: int


@dataclass(frozen=True)
class RowStep(Step):
    """The progress of a step that counts rows, and the seconds since it began."""

    seconds: float


MOST_NOTES = 5
"""The number of notes that are printed without being asked for, beside the harmful ones; a guess."""

_LABEL = 8  # the width of the words before the lines; the longest are "checking" and "imputing"


class Reporter:
    """Prints progress as it occurs, and notes in the order of what they matter.

    Harmful notes are printed at once, so that a user may stop the command; all others at its end.

    Parameters
    ----------
    quiet : bool
        Whether to print nothing.
    verbose : bool
        Whether to print all notes, rather than the harmful ones and a few others.
    command : str
        The command line, for reports.
    console : rich.console.Console, optional
        Where to print; standard error if not given.
    """

    def __init__(
        self,
        *,
        quiet: bool = False,
        verbose: bool = False,
        command: str = "",
        console: Console | None = None,
    ) -> None:
        self.quiet = quiet
        self.verbose = verbose
        self.command = command
        self.console = console or Console(stderr=True)
        self.notes: list[Note] = []
        self._waiting: list[Note] = []
        self.started = time.perf_counter()

    @property
    def elapsed(self) -> float:
        """The seconds since the command started."""
        return time.perf_counter() - self.started

    def done(self) -> None:
        """Print the notes that are left, that the command is finished, and how long it took."""
        self.show_notes()
        self.show("done", f"in {self.elapsed:.1f} s", "bold green")

    def run_info(self, source: str) -> "RunInfo":
        """Return what a report shows about the command and the file that it read."""
        from halfseen.report.result import RunInfo  # loads Arrow, which --help does not need

        notes = by_severity(self.notes)
        return RunInfo(Path(source).name, self.command, self.elapsed, notes, halfseen.__version__)

    def show(self, what: str, text: str, style: str = "bold") -> None:
        """Print a highlighted word and the text: in a terminal wrapped at words, otherwise as one line."""
        if self.quiet:
            return
        lines = [one_line(text)]
        if self.console.is_terminal:
            lines = wrap_words(lines[0], self.console.width - _LABEL - 2)
        for label, line in zip(chain([what], repeat("")), lines, strict=False):
            shown = Text.assemble((f"{label:>{_LABEL}}", style), "  ", line)
            self.console.print(shown, highlight=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """Print a note if it is harmful, otherwise keep it for the end; a note is never repeated.

        Parameters
        ----------
        text : str
            A `Note`, or a sentence that users may want to check.
        """
        note = Note(one_line(text), as_note(text).severity)
        if note in self.notes:
            return
        self.notes.append(note)
        if note.severity == "harmful":
            self.show("warning", note, "bold yellow")
        else:
            self._waiting.append(note)

    def show_notes(self) -> None:
        """Print the notes that were kept for the end, or a few of them and the number of the others."""
        waiting, self._waiting = by_severity(self._waiting), []
        shown = waiting if self.verbose else waiting[:MOST_NOTES]
        for note in shown:
            self.show("note", note, "yellow" if note.severity == "check" else "dim")
        if len(waiting) > len(shown):
            self.show("note", f"{plural(len(waiting) - len(shown), 'more note')}: --verbose", "dim")

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
                if isinstance(message, HalfseenWarning):
                    self.note(message.note)
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
                detail = f"{share:.0%}" if unit is None else f"{record.epoch:,}/{record.max_epochs:,}"
                bar.update(task, completed=record.epoch, total=record.max_epochs, detail=detail)

            yield move

    @contextmanager
    def _beating(self, what: str, unit: str | None) -> Iterator[Callable[[Any], None]]:
        """Print from a separate thread how far the step is, so that a long epoch is not silent."""
        last: list[Any] = []
        began = time.monotonic()

        def beat(ended: threading.Event) -> None:
            for moment in chain(BEATS, count(2 * BEATS[-1], BEATS[-1])):
                if ended.wait(max(0.0, began + moment - time.monotonic())):
                    return
                self.show(what, f"{_count(last[0], unit) if last else ''}{moment:,.0f} s so far")

        def move(record: Any) -> None:
            last[:] = [record]

        with in_thread(beat, "halfseen progress"):
            yield move


def method_table(title: str, narrow: bool) -> Table:
    """Return a table with a column for the names of methods; a narrow one has no space around its cells."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="bold",
        padding=(0, 0) if narrow else (0, 1),
    )
    table.add_column("method", no_wrap=True)
    return table


def wrap_words(text: str, width: int) -> list[str]:
    """Return the lines of a text, of which only those of a single longer word exceed the width.

    Examples
    --------
    >>> wrap_words("use --null income=-999 for the column", 15)
    ['use --null', 'income=-999 for', 'the column']
    """
    lines: list[str] = []
    for word in text.split():
        if lines and cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines or [""]


def _count(record: Any, unit: str | None) -> str:
    """Return how far a step is, as the beginning of a line."""
    if unit is None:
        return f"{record.epoch / max(1, record.max_epochs):.0%} done, "
    if isinstance(record, RowStep):
        rate = record.epoch / max(record.seconds, 1e-9)
        left = (record.max_epochs - record.epoch) / max(rate, 1e-9)
        return f"{record.epoch:,} of {record.max_epochs:,} rows, {rate:,.0f} rows/s, {left:,.0f} s left, "
    return f"{unit} {record.epoch:,} of {record.max_epochs:,}, "
