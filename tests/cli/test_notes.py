"""Notes know how much they matter; the terminal shows the most harmful first, and wraps at words."""

import io
import pickle
import warnings
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from halfseen.cli.main import main
from halfseen.cli.progress import MOST_NOTES, Reporter, wrap_words
from halfseen.data.frames import Table
from halfseen.data.leaving import announcements
from halfseen.data.relations import group_announcements
from halfseen.data.schema import Schema
from halfseen.errors import HalfseenWarning, warn_user
from halfseen.files.tables import read_table
from halfseen.words import Note, by_severity

FOLDER = Path(__file__).parent.parent / "corpus"


def reporting(width=None, **settings):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=width is not None, width=width, color_system=None)
    return Reporter(console=console, **settings), screen


def test_a_note_is_its_text_and_keeps_its_severity():
    note = Note("a", "harmful")
    assert note == "a"
    assert pickle.loads(pickle.dumps(note)).severity == "harmful"
    assert [one.severity for one in by_severity(["b", note])] == ["harmful", "check"]
    with pytest.raises(ValueError, match=r"severity must be one of .* got 'bad'"):
        Note("a", "bad")


def test_harmful_notes_are_printed_at_once_and_the_others_at_the_end_in_order():
    reporter, screen = reporting()
    for note in (Note("d", "detail"), Note("c"), Note("h1", "harmful"), "plain", Note("h2", "harmful")):
        reporter.note(note)
    reporter.note(Note("h1", "harmful"))
    assert screen.getvalue().split() == ["warning", "h1", "warning", "h2"]
    reporter.show_notes()
    reporter.show_notes()
    assert screen.getvalue().split()[4:] == ["note", "c", "note", "plain", "note", "d"]
    assert reporter.run_info("a.csv").notes == ["h1", "h2", "c", "plain", "d"]


@pytest.mark.parametrize("verbose", [False, True])
def test_few_harmless_notes_are_printed_unless_all_are_asked_for(verbose):
    reporter, screen = reporting(verbose=verbose)
    for number in range(MOST_NOTES + 3):
        reporter.note(Note(f"detail {number}", "detail"))
        reporter.note(Note(f"harm {number}", "harmful"))
    reporter.done()
    said = screen.getvalue()
    assert said.count("harm ") == MOST_NOTES + 3  # never left out
    assert said.count("detail ") == (MOST_NOTES + 3 if verbose else MOST_NOTES)
    assert ("3 more notes: --verbose" in said) != verbose


@pytest.mark.parametrize("width", [50, 79, 120])
def test_a_terminal_wraps_at_words_and_a_file_does_not(width):
    text = "column '收入' is read as numbers except for --null 'a-very-long-name-of-a-column=TEXT': " * 4
    reporter, screen = reporting(width)
    reporter.note(Note(text, "harmful"))
    lines = screen.getvalue().splitlines()
    assert len(lines) > 1
    assert all(cell_len(line) <= width for line in lines)
    assert " ".join(screen.getvalue().split()) == f"warning {text.strip()}"
    assert all(line.startswith(10 * " ") for line in lines[1:])
    plain, file = reporting()
    plain.note(Note(text, "harmful"))
    assert len(file.getvalue().splitlines()) == 1


def test_a_word_that_is_too_long_has_its_own_line():
    assert wrap_words("see /a/very/long/path now", 8) == ["see", "/a/very/long/path", "now"]
    assert wrap_words("", 8) == [""]


def test_warnings_are_harmful_unless_they_say_otherwise():
    reporter, _ = reporting(quiet=True)
    with reporter.noting_warnings():
        warn_user("values far outside")
        warn_user(Note("not compiled", "detail"))
        warnings.warn("by an imputer of somebody else", HalfseenWarning, stacklevel=1)
    assert [note.severity for note in reporter.notes] == ["harmful", "detail", "harmful"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("visits.csv", "could also be 4.416"),
        ("quantities.csv", "left as text"),
        ("formats/thousands_unknown.csv", "could also be"),
        ("formats/dates_ambiguous.csv", "order of day and month is ambiguous"),
    ],
)
def test_what_may_be_misread_or_is_not_imputed_is_harmful(name, words):
    found = [note for note in read_table(str(FOLDER / name)).notes if words in note]
    assert found
    assert {note.severity for note in found} == {"harmful"}


def test_doubtful_codes_are_harmful_and_certain_ones_are_to_be_checked(tmp_path):
    for code, severity in ((99, "harmful"), (-999, "check")):
        values = [*range(20, 75), code, code]
        (tmp_path / "a.csv").write_text("x,y\n" + "".join(f"{v},{i % 5}\n" for i, v in enumerate(values)))
        (note,) = [one for one in read_table(str(tmp_path / "a.csv")).notes if "'x'" in one]
        assert note.severity == severity, note


def test_columns_left_empty_are_harmful_and_constants_are_to_be_checked(tmp_path):
    import pandas as pd

    table = pd.DataFrame({"none": [None] * 6, "one": [1.0, None] * 3, "x": [1.0, 2, 3, 4, 5, None]})
    columns = Schema.infer(Table(table)).columns
    found = {note.split("'")[1]: note.severity for note in announcements(columns, named=True)}
    assert found == {"none": "harmful", "one": "check"}
    assert group_announcements(columns) == []


def test_notes_are_printed_before_an_error_ends_the_command(tmp_path, capsys):
    source = tmp_path / "a.csv"
    source.write_text("x;y\n" + "1,5;2,5\n3,5;\n" * 5)
    assert main(["impute", str(source), "-o", str(tmp_path / "o.csv"), "--weights", "z"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("halfseen: error:")
    assert lines[-2].startswith("    note  columns 'x', 'y' contain numbers with decimal commas")
