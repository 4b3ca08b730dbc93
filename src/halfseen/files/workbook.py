"""Workbooks (xlsx): archives of XML parts, read as far as tables need it and copied with some parts replaced.

The parts are read and changed as they are written. A library that builds objects from a workbook and writes
it again rounds numbers, drops the stored results of formulas and loses what it does not know, such as charts.
"""

import io
import lzma
import posixpath
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, BinaryIO, Literal
from xml.parsers import expat

import pyarrow as pa
import pyarrow.compute as pc

from halfseen.errors import TableError
from halfseen.files.expansion import Expansion, check_workbook

CellFormat = Literal["", "date", "time", "duration"]
"""What a number format makes of a number; empty if it remains a number."""

_KNOWN: dict[int, CellFormat] = {
    **dict.fromkeys((14, 15, 16, 17, 22, *range(27, 37), *range(50, 59)), "date"),
    **dict.fromkeys((18, 19, 20, 21, 45, 47), "time"),
    46: "duration",
}
"""The formats of dates and times that have a number in every workbook (ECMA-376, 18.8.30)."""

_LITERALS = re.compile(r'"[^"]*"|\\.|[_*].')
_ELAPSED = re.compile(r"\[(h+|m+|s+)\]", re.IGNORECASE)
_ESCAPED = re.compile("_x(?![Dd][89A-Fa-f])([0-9A-Fa-f]{4})_")  # halves of pairs stay as they are
_START_TAG = re.compile(rb"""<[^\s/>]+(?:"[^"]*"|'[^']*'|[^>"'])*>""")
_RECALCULATION = re.compile(rb"""\s+fullCalcOnLoad\s*=\s*(?:"[^"]*"|'[^']*')""")
_BEFORE_CALCULATION = ("sheets", "functionGroups", "externalReferences", "definedNames")
_FORMULA = re.compile(rb"<(?:\w+:)?f[\s/>]")
_WIDE = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"<\0", "utf-16-le"), (b"\0<", "utf-16-be"))
_DAMAGES = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, NotImplementedError, RuntimeError,
    ValueError, OSError,
)  # fmt: skip
"""What the reader of archives raises for damaged, encrypted or unusually compressed ones."""

MS_PER_DAY = 86_400_000
DAYS_1900, DAYS_1904 = 25_569, 24_107
"""The number of 1970-01-01 in workbooks that count days from 1900 or from 1904."""

FIRST_DAY, LAST_DAY = 61, 2_958_465
"""1900-03-01, before which the counting of days includes a day that did not exist, and 9999-12-31."""


@dataclass(frozen=True)
class Sheet:
    """A sheet of a workbook."""

    title: str  # its name
    part: str | None  # the part of the archive that holds it; None if the workbook does not say which
    is_chart: bool  # whether it consists of a chart, without cells
    hidden: bool  # whether spreadsheet programs do not show it


@dataclass(frozen=True)
class Workbook:
    """An open workbook."""

    source: str  # the name of the file, for messages
    archive: zipfile.ZipFile  # its parts
    main: str  # the part that lists the sheets
    sheets: tuple[Sheet, ...]  # the sheets in their order
    from_1904: bool  # whether days are counted from 1904 instead of 1900
    others: dict[str, str]  # further parts by the last word of their type: `styles` and `sharedStrings`

    def part(self, name: str) -> bytes:
        """Return the content of a part, in an encoding that contains ASCII."""
        return read_part(self.archive, name, self.source)

    @cached_property
    def strings(self) -> pa.Array:
        """The texts that cells share."""
        found: list[str] = []
        if "sharedStrings" in self.others:
            name = self.others["sharedStrings"]
            reader = _Strings(found)
            parse_xml(self.part(name), f"{self.source}: {name}", reader.start, reader.end, reader.text)
        return unescape(pa.array(found, pa.large_string()))

    @cached_property
    def formats(self) -> tuple[CellFormat, ...]:
        """What each style of cells makes of a number."""
        codes: dict[str, str] = {}
        numbers: list[str] = []
        inside: list[str] = []

        def start(name: str, attributes: dict[str, str]) -> None:
            inside.append(local(name))
            if inside[-1] == "numFmt":
                codes[attributes["numFmtId"]] = attributes["formatCode"]
            elif inside[-2:] == ["cellXfs", "xf"]:
                numbers.append(attributes.get("numFmtId", "0"))

        if "styles" in self.others:
            name = self.others["styles"]
            parse_xml(self.part(name), f"{self.source}: {name}", start, lambda _: inside.pop())
        return tuple(classify_format(int(number), codes.get(number)) for number in numbers)

    def to_recalculate(self) -> dict[str, bytes]:
        """Return the part to replace so that programs calculate formulas again; none without formulas."""
        parts = [sheet.part for sheet in self.sheets if sheet.part is not None and not sheet.is_chart]
        if not any(_FORMULA.search(self.part(part)) for part in parts):
            return {}
        data, found = self.part(self.main), _Places()
        parse_xml(data, f"{self.source}: {self.main}", found.start, found.end, watch=found.watch)
        if "calcPr" in found.starts:
            tag = start_tag(data, found.starts["calcPr"])
            start, stop = found.starts["calcPr"], found.starts["calcPr"] + len(tag)
            head = _RECALCULATION.sub(b"", tag).rstrip(b"/>")
            new = head + b' fullCalcOnLoad="1"' + (b"/>" if tag.endswith(b"/>") else b">")
        else:
            last = [name for name in _BEFORE_CALCULATION if name in found.starts][-1]
            start = stop = element_end(data, found.starts[last], found.ends[last])
            new = b'<%scalcPr fullCalcOnLoad="1"/>' % found.prefix.encode()
        return {self.main: data[:start] + new + data[stop:]}

    def write_copy(self, file: BinaryIO, parts: Mapping[str, bytes]) -> None:
        """Write the archive with some parts replaced; all others are copied."""
        replaced = {name.lower(): content for name, content in parts.items()}
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as copy:
            for member in self.archive.infolist():
                content = replaced.get(member.filename.lower())
                if content is None:
                    content = _read(self.archive, member, self.source)
                entry = zipfile.ZipInfo(member.filename, member.date_time)
                entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, member.external_attr
                copy.writestr(entry, content)
        file.write(buffer.getvalue())


def open_workbook(data: bytes, source: str, bound: Expansion | None = None) -> Workbook:
    """Open the content of an xlsx file; every part is read through `read_part`.

    Parameters
    ----------
    data, source : bytes, str
        The content of the file, and its name for messages.
    bound : Expansion, optional
        What its parts may take; None if this has been checked.
    """
    if data.startswith(b"\xd0\xcf\x11\xe0"):
        raise TableError(
            f"{source}: an old or password-protected workbook; save it as xlsx without a password"
        )
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except _DAMAGES as error:
        raise TableError(f"{source}: not a readable xlsx file ({error})") from None
    if bound is not None:
        check_workbook(archive, bound)
    start = _relations(archive, "", source)
    main = next((target for kind, target in start.values() if kind == "officeDocument"), None)
    if main is None:
        raise TableError(f"{source}: not a readable xlsx file (no workbook in it)")
    listed: list[dict[str, str]] = []
    settings: dict[str, str] = {}

    def begin(name: str, attributes: dict[str, str]) -> None:
        if local(name) == "sheet":
            listed.append({local(key): value for key, value in attributes.items()})
        elif local(name) == "workbookPr":
            settings.update(attributes)

    parse_xml(read_part(archive, main, source), f"{source}: {main}", begin)
    related = _relations(archive, main, source)
    sheets = tuple(_describe_sheet(one, related) for one in listed)
    if not sheets:
        raise TableError(f"{source}: the workbook has no sheets")
    others = {kind: target for kind, target in related.values() if kind in ("styles", "sharedStrings")}
    return Workbook(source, archive, main, sheets, settings.get("date1904") in ("1", "true"), others)


def _describe_sheet(entry: dict[str, str], related: Mapping[str, tuple[str, str]]) -> Sheet:
    kind, part = related.get(entry.get("id", ""), ("worksheet", None))
    return Sheet(entry.get("name", ""), part, kind != "worksheet", entry.get("state", "visible") != "visible")


def _relations(archive: zipfile.ZipFile, part: str, source: str) -> dict[str, tuple[str, str]]:
    """Return the parts that a part refers to: the last word of their types and their names, by identifier."""
    folder, name = posixpath.split(part)
    found: dict[str, tuple[str, str]] = {}

    def start(element: str, attributes: dict[str, str]) -> None:
        if local(element) == "Relationship" and attributes.get("TargetMode") != "External":
            target = posixpath.normpath(posixpath.join("/", folder, attributes["Target"])).lstrip("/")
            found[attributes["Id"]] = (attributes["Type"].rpartition("/")[2], target)

    path = posixpath.join(folder, "_rels", f"{name}.rels")
    parse_xml(read_part(archive, path, source), f"{source}: {path}", start)
    return found


def read_part(archive: zipfile.ZipFile, name: str, source: str) -> bytes:
    """Return the content of a part of an archive; the names of parts do not distinguish case."""
    members = {member.filename.lower(): member for member in archive.infolist()}
    if name.lower() not in members:
        raise TableError(f"{source}: not a readable xlsx file (it has no part {name!r})")
    data = _read(archive, members[name.lower()], source)
    for mark, encoding in _WIDE:
        if data.startswith(mark):
            try:
                text = data.decode(encoding)
            except UnicodeDecodeError as error:
                raise TableError(f"{source}: {name} is damaged ({error.reason})") from None
            return re.sub(r"encoding=([\"'])[^\"']*\1", 'encoding="UTF-8"', text, count=1).encode()
    return data


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo, source: str) -> bytes:
    try:
        return archive.read(member)
    except _DAMAGES as error:
        raise TableError(f"{source}: the part {member.filename!r} cannot be unpacked ({error})") from None


def parse_xml(
    data: bytes,
    where: str,
    start: Callable[[str, dict[str, str]], Any],
    end: Callable[[str], Any] | None = None,
    text: Callable[[str], Any] | None = None,
    watch: Callable[[Any], Any] | None = None,
) -> None:
    """Pass the elements of a part to functions.

    Parameters
    ----------
    data : bytes
        The part.
    where : str
        The file and the part, for messages.
    start, end, text : callable
        Called for the begin of an element, its end, and text.
    watch : callable, optional
        Receives the parser, which knows the place of each element.
    """

    def refuse(*_: Any) -> None:
        raise TableError(f"{where} declares a document type, which no spreadsheet program writes: refused")

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = refuse  # entities could expand without bound
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text
    if watch is not None:
        watch(parser)
    try:
        parser.Parse(data, True)
    except TableError:
        raise
    except KeyError as error:
        raise TableError(f"{where} is damaged (an element has no attribute {error})") from None
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise TableError(f"{where} is damaged ({error})") from None


def local(name: str) -> str:
    """Return the name of an element without the prefix of its namespace."""
    return name.rpartition(":")[2]


def start_tag(data: bytes, start: int) -> bytes:
    """Return the start tag of an element that begins at a place of a part that has been parsed."""
    found = _START_TAG.match(data, start)
    assert found is not None
    return found[0]


def element_end(data: bytes, start: int, end: int) -> int:
    """Return where an element ends, given where its start tag begins and where its end was reported."""
    tag = start_tag(data, start)
    return start + len(tag) if tag.endswith(b"/>") else data.index(b">", end) + 1


class _Places:
    """Collects where elements begin and end."""

    def __init__(self) -> None:
        self.starts: dict[str, int] = {}
        self.ends: dict[str, int] = {}
        self.parser: Any = None
        self.prefix = ""

    def watch(self, parser: Any) -> None:
        self.parser = parser

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if local(name) == "sheets":
            self.prefix = name.removesuffix("sheets")
        self.starts[local(name)] = self.parser.CurrentByteIndex

    def end(self, name: str) -> None:
        self.ends[local(name)] = self.parser.CurrentByteIndex


class _Strings:
    """Collects the texts that cells share, without the pronunciation of Japanese ones."""

    def __init__(self, found: list[str]) -> None:
        self.found = found
        self.parts: list[str] = []
        self.reads = self.is_phonetic = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        tag = local(name)
        if tag == "si":
            self.parts = []
        self.is_phonetic |= tag == "rPh"
        self.reads = tag == "t" and not self.is_phonetic

    def text(self, text: str) -> None:
        if self.reads:
            self.parts.append(text)

    def end(self, name: str) -> None:
        tag = local(name)
        self.reads = False
        if tag == "rPh":
            self.is_phonetic = False
        elif tag == "si":
            self.found.append("".join(self.parts))


def unescape(texts: pa.Array) -> pa.Array:
    r"""Return texts with the characters that XML cannot hold, which are written as ``_x000D_``.

    Examples
    --------
    >>> unescape(pa.array(["a_x000D_b", "_x005F_x000D_"])).to_pylist()
    ['a\rb', '_x000D_']
    """
    held = pc.fill_null(pc.match_substring_regex(texts, "_x[0-9A-Fa-f]{4}_"), False)
    if not pc.any(held).as_py():
        return texts
    plain = [
        _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text) for text in texts.filter(held).to_pylist()
    ]
    return pc.replace_with_mask(texts, held, pa.array(plain, texts.type))


def classify_format(number: int, code: str | None = None) -> CellFormat:
    """Return what a number format makes of a number.

    Parameters
    ----------
    number : int
        The number of a format that every program knows.
    code : str, optional
        The format itself, if the workbook defines it.

    Examples
    --------
    >>> classify_format(164, "dd/mm/yyyy"), classify_format(165, '#,##0.00 "days"'), classify_format(46)
    ('date', '', 'duration')
    """
    if code is None:
        return _KNOWN.get(number, "")
    first = _LITERALS.sub("", code).partition(";")[0]
    if _ELAPSED.search(first):
        return "duration"
    letters = re.sub(r"\[[^\]]*\]", "", first).lower().replace("general", "")
    letters = re.sub(r"(s)\.0+", r"\1", letters)
    if re.search(r"[0#?]", letters):
        return ""
    if re.search("[dy]", letters) or ("m" in letters and not re.search("[hs]", letters)):
        return "date"
    return "time" if re.search("[hs]", letters) else ""
