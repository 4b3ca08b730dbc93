"""Lines below the table of a text file: sources, footnotes, the date of an export."""

import csv
import re

_MAX_BYTES = 1 << 14
_BEGINNING = re.compile(
    r"\W*(sources?|notes?|footnotes?|remarks?|copyright|legend|disclaimer|quellen?|hinweise?|anmerkungen?|"
    r"fu(ß|ss)noten?|stand|legende|remarques?|légende|fuentes?|notas?|fonti?|fontes?|bron|"
    r"(last )?updated|(data |report )?(exported|generated|retrieved|downloaded)|erstellt)\b",
    re.IGNORECASE,
)


def find_footer(text: bytes, delimiter: str, n_columns: int) -> str:
    r"""Return the lines below a table, as they are written.

    They are at the end of the file, have words, and have fewer cells than the table, which has three columns
    at least. They follow an empty line, or the first of them begins with a word such as "Source": a record
    that is cut off is no footer.

    Parameters
    ----------
    text : bytes
        The content of the file, in UTF-8.
    delimiter : str
        The delimiter of the table.
    n_columns : int
        The number of its columns.

    Examples
    --------
    >>> find_footer(b"a,b,c\n1,2,3\nSource: own survey\n", ",", 3)
    'Source: own survey\n'
    >>> find_footer(b"a,b,c\n1,2,3\nown survey\n", ",", 3)
    ''
    """
    if n_columns < 3:
        return ""
    end = text[-_MAX_BYTES:].decode("utf-8", errors="ignore")
    lines = re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", end)[1:]  # at least the header is above
    first = len(lines)
    while first and _is_outside(lines[first - 1], delimiter, n_columns):
        first -= 1
    found = lines[first:]
    if not any(line.strip() for line in found):
        return ""
    return "".join(found) if not found[0].strip() or _BEGINNING.match(found[0]) else ""


def _is_outside(line: str, delimiter: str, n_columns: int) -> bool:
    """Return whether a line is empty, or has words but fewer cells than the table."""
    if not line.strip():
        return True
    if line.count('"') % 2 or not re.search(r"[^\W\d_]{2,}", line):
        return False
    return len(next(csv.reader([line], delimiter=delimiter))) < n_columns


def note_footer(footer: str) -> str:
    """Return the note for the user."""
    n_lines = len(footer.strip().splitlines())
    lines = "the last line is no record" if n_lines == 1 else f"the last {n_lines} lines are no records"
    return f"{lines}: copied to a csv output, but not read"
