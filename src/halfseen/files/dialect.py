"""The layout of a text table: encoding, delimiter, line ends, header, and the lines above and below it."""

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from halfseen.errors import TableError
from halfseen.files.missing_codes import is_missing_word
from halfseen.words import Note

DELIMITERS = (",", "\t", ";", "|", "\x1f", "^", "~", ":")
"""Delimiters that are tried, the likelier first; a blank is tried when none of them fits."""

_SAMPLE_BYTES = 1 << 17
_SAMPLE_ROWS = 200
_LINES_BEYOND = 3  # so that rows follow a header that is longer than the sample
_LONGEST_ROW = 1 << 26  # bytes in which a row beyond the sample must end, or its quotes are no quotes
_LINE_END = re.compile(rb"\r\n|\r|\n")
_MARKS = (  # UTF-32 before UTF-16: the little-endian mark of one begins with that of the other
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_FOREIGN = (
    (b"PAR1", "a Parquet file; use --from parquet"),
    (b"ARROW1", "an Arrow (feather) file; use --from feather"),
    (b"PK\x03\x04", "a zip archive or a spreadsheet; export it as csv first"),
    (b"\xd0\xcf\x11\xe0", "an old spreadsheet; export it as csv first"),
    (b"%PDF", "a PDF document"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd; unpack it first"),
    (b"BZh", "compressed with bzip2; unpack it first"),
    (b"\xfd7zXZ", "compressed with xz; unpack it first"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
)
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\f\v\x1a\x1c\x1d\x1e\x1f"))


@dataclass(frozen=True)
class Dialect:
    """How the cells of a text table are laid out."""

    delimiter: str = ","  # the one character between two cells
    encoding: str = "utf-8"  # the Python name of the encoding; `utf-8-sig` is UTF-8 with a byte-order mark
    newline: str = "\n"  # what ends a line

    @property
    def delimiter_name(self) -> str:
        """The delimiter in words."""
        return name_delimiter(self.delimiter)


def name_delimiter(delimiter: str) -> str:
    """Return the delimiter in words."""
    names = {"\t": "tab", " ": "blank", ",": "comma", ";": "semicolon", "|": "bar", ":": "colon"}
    return names.get(delimiter, repr(delimiter))


def parse_delimiter(given: str) -> str:
    r"""Return the character that a user meant by ``tab``, ``\t``, ``comma`` or the character itself."""
    words = {"\\t": "\t", "tab": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "bar": "|", "space": " "}
    delimiter = words.get(given.lower(), given)
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        raise TableError(
            f"the delimiter must be one ASCII character, got {given!r}; for a tab write --delimiter tab"
        )
    return delimiter


def decode(data: bytes, source: str, encoding: str | None = None) -> tuple[bytes, str, list[Note]]:
    """Return the text as UTF-8 bytes without a mark, the encoding it came in, and notices.

    Without `encoding`: a byte-order mark decides, then UTF-8, then Windows-1252 (whose printable part holds
    Latin-1) with a notice.
    """
    for magic, what in _FOREIGN:
        if data.startswith(magic):
            raise TableError(f"{source}: this is not a text table but {what}")
    notes: list[Note] = []
    if encoding is None:
        encoding = next((name for mark, name in _MARKS if data.startswith(mark)), None)
    if encoding is None:
        encoding, notes = _guess_encoding(data, source)
    try:
        text = data if encoding == "utf-8" else data.decode(encoding).encode("utf-8")
        if encoding == "utf-8":
            data.decode("utf-8")
    except LookupError:
        raise TableError(f"unknown encoding {encoding!r}; try utf-8, utf-16, latin-1 or cp1252") from None
    except UnicodeError as error:
        at = f" (byte {error.start})" if isinstance(error, UnicodeDecodeError) else ""
        raise TableError(f"{source}: the file is not valid {encoding}{at}; try another --encoding") from None
    if (nul := text.find(b"\0")) >= 0:
        raise TableError(f"{source}: this is not a text table: it contains a NUL byte (at byte {nul})")
    if _control_share(text) > 0.01:
        raise TableError(f"{source}: this is not a text table: it contains many control characters")
    return text, encoding, notes


def _control_share(text: bytes) -> float:
    sample = text[:_SAMPLE_BYTES]
    return 1 - len(sample.translate(None, _CONTROL)) / max(len(sample), 1)


def _guess_encoding(data: bytes, source: str) -> tuple[str, list[Note]]:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        bad = data[error.start]
    else:
        return "utf-8", []
    try:
        data.decode("cp1252")
    except UnicodeDecodeError:
        raise TableError(
            f"{source}: this is not a text table, or its encoding is rare (byte 0x{bad:02x} in line {line}); "
            "give --encoding if it is text"
        ) from None
    if _control_share(data) > 0:
        raise TableError(
            f"{source}: this is not a text table: it contains binary data (0x{bad:02x} in line {line})"
        )
    n_other, n_utf8 = _count_encodings(data)
    mixed = (
        f"; {n_utf8:,} other lines are UTF-8, {n_other:,} are not: the file mixes encodings" if n_utf8 else ""
    )
    note = f"not UTF-8 (line {line}), read as Windows-1252 (Latin-1); use --encoding to change this{mixed}"
    return "cp1252", [Note(note, "harmful" if n_utf8 else "detail")]


def _count_encodings(data: bytes) -> tuple[int, int]:
    """Return the number of lines that are not UTF-8, and of those beyond ASCII that are."""
    n_other = n_utf8 = 0
    for line in data.split(b"\n"):
        if not line.isascii():
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                n_other += 1
            else:
                n_utf8 += 1
    return n_other, n_utf8


def first_lines(text: bytes) -> str:
    """Return the first part of the text: whole rows, the first of which may be of any length."""
    return text[: _end_of_sample(text)].decode("utf-8")


def _end_of_sample(text: bytes) -> int:
    """Return the end of the row in which the sample ends, and of a few more; line ends in quotes are none."""
    at, n_beyond, first_end = _SAMPLE_BYTES, 0, None
    inside = text.count(b'"', 0, at) % 2
    for found in _LINE_END.finditer(text, at):
        inside ^= text.count(b'"', at, found.end()) % 2
        at = found.end()
        first_end = first_end or at
        n_beyond += not inside
        if n_beyond > _LINES_BEYOND:
            return at
        if inside and at > _SAMPLE_BYTES + _LONGEST_ROW:
            return first_end
    return len(text)


def find_newline(sample: str) -> str:
    """Return what ends the first line."""
    end = sample.find("\n")
    if end < 0:
        return "\r" if "\r" in sample else "\n"
    return "\r\n" if sample[end - 1 : end] == "\r" else "\n"


def read_rows(text: str, delimiter: str) -> list[list[str]]:
    """Return the first rows of a text, blank lines left out."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        return [row for row in islice(reader, _SAMPLE_ROWS) if row]
    except csv.Error:  # a cell is longer than the limit of that module, which holds for the whole process
        return [row for _, row in islice(cut_rows(text, delimiter), _SAMPLE_ROWS) if row]


def cut_rows(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the line in which a row begins, and its cells of any length; an empty line has none."""
    mark = re.escape(delimiter)
    cell = re.compile(rf'(?:"([^"]*(?:""[^"]*)*)(?:"|\Z))?([^{mark}\r\n]*)({mark}|\r\n|\r|\n|\Z)')
    line, place, row = 1, 0, list[str]()
    start = line
    while place < len(text):
        found = cell.match(text, place)
        assert found is not None  # every part of the pattern may be empty
        quoted, rest, end = found.groups()
        row.append((quoted or "").replace('""', '"') + rest)
        line += len(re.findall(r"\r\n|\r|\n", found[0]))
        place = found.end()
        if end != delimiter:
            yield start, row if row != [""] or quoted is not None else []
            start, row = line, []
    if row:  # the text ends with a delimiter
        yield start, [*row, ""]


def _fit(sample: str, delimiter: str) -> tuple[float, int]:
    """Return how well a delimiter fits: the share of rows as wide as the header, and that width."""
    rows = read_rows(sample, delimiter)
    if not rows or len(rows[0]) < 2:
        return 0.0, 1
    widths = Counter(len(row) for row in rows)
    return widths[len(rows[0])] / len(rows), len(rows[0])


def sniff_delimiter(sample: str) -> str | None:
    """Return the delimiter that cuts the sample best, or None when every line is one cell.

    A delimiter fits when the header has two cells or more and the rows are as wide as the header: a comma
    inside numbers (``1,5;2,5``) or a colon inside times then does not count.
    """
    scores = {delimiter: _fit(sample, delimiter) for delimiter in DELIMITERS}
    perfect = [delimiter for delimiter, (share, _) in scores.items() if share == 1.0]
    if perfect:
        return max(perfect, key=lambda delimiter: scores[delimiter][1])
    share, width = _fit(sample, " ")
    if share == 1.0 and width > 2:
        return " "
    likely = [delimiter for delimiter, (_, width) in scores.items() if width > 1]
    return max(likely, key=lambda delimiter: scores[delimiter], default=None)


def find_ragged_row(text: bytes, delimiter: str, width: int) -> tuple[int, int, str] | None:
    """Return line number, width and start of the first row that is not `width` cells wide."""
    reader = csv.reader(io.StringIO(text.decode("utf-8"), newline=""), delimiter=delimiter)
    previous = 0
    try:
        for row in reader:
            if row and len(row) != width:
                return previous + 1, len(row), delimiter.join(row)
            previous = reader.line_num
    except csv.Error:  # see read_rows
        for line, row in cut_rows(text.decode("utf-8"), delimiter):
            if row and len(row) != width:
                return line, len(row), delimiter.join(row)
    return None


# ------------------------------------------------------------------------------------- lines above the table

_MAX_LINES = 30  # the header is searched for in this many lines; a guess
_MIN_ROWS = 3  # rows of the same width, including the header, that make a table below other lines; a guess
_SEPARATOR = re.compile(r"sep=(?P<delimiter>[^\s\"]|\t)\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Preamble:
    """The lines above the header."""

    text: str = ""  # the lines, as they are written
    delimiter: str | None = None  # the delimiter that they declare

    @property
    def n_lines(self) -> int:
        """How many lines there are."""
        return len(_cut_lines(self.text))

    def note(self) -> Note:
        """Return the note for the user."""
        lines = "the line above it is" if self.n_lines == 1 else f"the {self.n_lines} lines above it are"
        text = f"the table begins in line {self.n_lines + 1}; {lines} copied to a csv output, but not read"
        return Note(text, "detail")

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
    if _fits(sample, delimiter) and _names_groups(_rows(sample, delimiter)):
        return Preamble(lines[0])
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
    chosen = delimiter or sniff_delimiter(text)
    return read_rows(text, chosen) if chosen is not None else []


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


def _names_groups(rows: list[list[str]]) -> bool:
    """Return whether the first row names groups of columns, and the second one the columns.

    This is how merged cells are exported: each name of a group is followed by empty cells. The second row has
    a name below each of them, which no other column has, and at least two of the columns are numbers.
    """
    if len(rows) < _MIN_ROWS:
        return False
    groups, names = ([cell.strip() for cell in row] for row in rows[:2])
    held = [name for name in names if name]
    if (
        not any(groups)
        or len(set(held)) < len(held)
        or any(is_missing_word(pa.array(held, pa.large_string())).to_pylist())
    ):
        return False
    if any(map(_is_numeric, [*held, *groups])) or not all(map(any, zip(groups, names, strict=False))):
        return False
    gaps = [place for place, cell in enumerate(groups[1:], start=1) if not cell]
    numbers = [place for place in range(len(names)) if names[place] and _holds_numbers(rows[1:], place)]
    return len(numbers) > 1 and bool(set(gaps) & set(numbers))


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


_FOOTER_BYTES = 1 << 14  # at the end of a file, in which a footer is searched for; a guess
_FOOTER_BEGINNING = re.compile(
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
    end = text[-_FOOTER_BYTES:].decode("utf-8", errors="ignore")
    lines = re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", end)[1:]  # at least the header is above
    first = len(lines)
    while first and _is_outside(lines[first - 1], delimiter, n_columns):
        first -= 1
    found = lines[first:]
    if not any(line.strip() for line in found):
        return ""
    return "".join(found) if not found[0].strip() or _FOOTER_BEGINNING.match(found[0]) else ""


def _is_outside(line: str, delimiter: str, n_columns: int) -> bool:
    """Return whether a line is empty, or has words but fewer cells than the table."""
    if not line.strip():
        return True
    if line.count('"') % 2 or not re.search(r"[^\W\d_]{2,}", line):
        return False
    return len(next(csv.reader([line], delimiter=delimiter))) < n_columns


def note_footer(footer: str) -> Note:
    """Return the note for the user."""
    n_lines = len(footer.strip().splitlines())
    lines = "the last line is no record" if n_lines == 1 else f"the last {n_lines} lines are no records"
    return Note(f"{lines}: copied to a csv output, but not read", "detail")
