"""Lines above the table of a text file: comments, titles of reports, the ``sep=;`` of spreadsheets."""

import re
from dataclasses import dataclass

from halfseen.files import dialect as dialects

_MAX_LINES = 30  # a table begins within this many lines, or not at all
_MIN_ROWS = 3  # of the same width, the header with them
_SEPARATOR = re.compile(r"sep=(?P<delimiter>[^\s\"]|\t)\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Preamble:
    """The lines above the header.

    Parameters
    ----------
    text : str
        The lines, as they are written.
    delimiter : str or None
        The delimiter that they declare.
    """

    text: str = ""
    delimiter: str | None = None

    @property
    def n_lines(self) -> int:
        """How many lines there are."""
        return len(_cut_lines(self.text))

    def note(self) -> str:
        """Return the note for the user."""
        lines = "the line above it is" if self.n_lines == 1 else f"the {self.n_lines} lines above it are"
        return f"the table begins in line {self.n_lines + 1}; {lines} copied to a csv output, but not read"

    def written(self, delimiter: str) -> str:
        """Return the lines for an output with this delimiter, which no line may contradict."""
        return "" if self.delimiter not in (None, delimiter) else self.text


def find_preamble(sample: str, delimiter: str | None = None) -> Preamble:
    """Return the lines above the table, judged by the beginning of a file.

    A declared separator and leading lines that begin with ``#`` are not part of a table. Other lines are not
    either if they have fewer cells, or fewer cells with text, than the lines below, which all have the same
    number of cells, and if the first of those below has a name for each column and numbers beneath at least
    one of them.

    Parameters
    ----------
    sample : str
        The first lines of the file.
    delimiter : str, optional
        The delimiter that the user gave.
    """
    lines = _cut_lines(sample)
    declared = _SEPARATOR.fullmatch(lines[0]) if lines else None
    if declared is not None:
        return Preamble(lines[0], declared["delimiter"])
    if _fits(sample, delimiter) and not _is_padded(sample, delimiter):
        return Preamble()
    n_comments = _count_comments(lines)
    if 0 < n_comments < len(lines):
        return Preamble("".join(lines[:n_comments]))
    for number in range(1, min(_MAX_LINES, len(lines))):
        if not lines[number].strip():
            continue
        rest = "".join(lines[number:])
        if _begins_a_table(rest, delimiter):
            return Preamble("".join(lines[:number]))
    return Preamble()


def _cut_lines(text: str) -> list[str]:
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)


def _rows(text: str, delimiter: str | None) -> list[list[str]]:
    chosen = delimiter or dialects.sniff_delimiter(text)
    return dialects.read_rows(text, chosen) if chosen is not None else []


def _fits(text: str, delimiter: str | None) -> bool:
    """Return whether all rows have the same number of cells, two at least."""
    rows = _rows(text, delimiter)
    return bool(rows) and len(rows[0]) > 1 and len({len(row) for row in rows}) == 1


def _is_padded(text: str, delimiter: str | None) -> bool:
    """Return whether the first row is a title or an entry, with empty cells up to the width of the table."""
    rows = _rows(text, delimiter)
    if len(rows) <= _MIN_ROWS or not rows[0][0].strip():
        return False
    n_names = _count_names(rows[0])
    return n_names == 1 or (n_names == 2 < len(rows[0]) - 1 and _holds_more(rows, n_names))


def _count_names(row: list[str]) -> int:
    """Return the number of cells up to the last with text: spreadsheets export empty columns at the end."""
    return max((place + 1 for place, cell in enumerate(row) if cell.strip()), default=0)


def _holds_more(rows: list[list[str]], n_names: int) -> bool:
    """Return whether most of the other rows have text beyond these columns."""
    return sum(_count_names(row) > n_names for row in rows[1:]) > (len(rows) - 1) / 2


def _count_comments(lines: list[str]) -> int:
    """Return the number of leading comment lines, 0 if there are more of them below."""
    number = next((k for k, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return 0 if any(line.startswith("#") for line in lines[number:]) else number


def _begins_a_table(text: str, delimiter: str | None) -> bool:
    rows = _rows(text, delimiter)
    if len(rows) < _MIN_ROWS or not _fits(text, delimiter):
        return False
    names = [name.strip() for name in rows[0][: _count_names(rows[0])]]
    named = len(names) > 1 and all(names) and len(set(names)) == len(names)
    named = named and not _holds_more(rows, len(names))
    return (
        named and not any(map(_is_numeric, names)) and any(_holds_numbers(rows, k) for k in range(len(names)))
    )


def _is_numeric(cell: str) -> bool:
    return re.fullmatch(r"\W*\d[\d\s.,:/'-]*\W*", cell) is not None


def _holds_numbers(rows: list[list[str]], place: int) -> bool:
    cells = [row[place].strip() for row in rows[1:]]
    held = [cell for cell in cells if cell]
    return sum(map(_is_numeric, held)) > len(held) / 2
