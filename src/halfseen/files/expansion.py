"""How much memory the content of a compressed or encoded file may take, checked before it is unpacked.

A file of a few kilobytes may unpack to more than a machine can hold. So sizes are taken from the pages of a
Parquet file, the buffers of an Arrow file and the directory of a workbook, and gzip is unpacked step by step.
"""

import gzip
import io
import itertools
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from halfseen._machine import count_memory
from halfseen.config import read_size, show_size
from halfseen.errors import TableError
from halfseen.files.parquet_pages import (
    DICTIONARY_ENCODINGS,
    PREFIX_ENCODING,
    Page,
    count_prefixes,
    iterate_pages,
)

SHARE = 8
"""By default the content of a file may take the memory of the machine divided by this number.

A guess: reading keeps up to six copies of a column for a while (at most 5.4 were measured, of texts that are
stored by prefixes, see tests/files/expansion_peak.py), and the model needs memory too.
"""

_STEP = 1 << 20  # bytes that are unpacked at once
_CELL = 16  # bytes of a cell besides its text: where the text begins, and the value
_LINE = 16  # times that the longest line counts: blocks of text grow until it fits into one; a guess
_IN_LIST = 24  # bytes of a value in a list besides itself, for levels that are kept; measured 11 to 24
_XML = 12  # bytes of memory for a byte of the XML of a workbook; reading and copying measured 8 to 11
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}
_VIEW = 16  # bytes of a reference to a text of Arrow's type string_view
_RECORD_BATCH, _DICTIONARY_BATCH = 3, 2  # kinds of Arrow messages


@dataclass(frozen=True)
class Expansion:
    """A bound on the memory that the content of a file may take."""

    source: str  # the name of the file, for messages
    given: int | None = None  # the bound in bytes; by default a share of the memory

    @classmethod
    def of(cls, source: str, given: str | int) -> "Expansion":
        """Return the bound that the user gave, such as ``"8 GB"``."""
        try:
            return cls(source, read_size(given))
        except ValueError:
            raise TableError(f"--max-expansion {given!r} is not a size such as '8 GB'") from None

    @cached_property
    def limit(self) -> int:
        """The bound in bytes."""
        return count_memory() // SHARE if self.given is None else self.given

    def check(self, n_bytes: int) -> None:
        """Raise an error if the content takes more memory than is allowed."""
        if n_bytes > self.limit:
            raise TableError(
                f"{self.source}: its content takes {show_size(n_bytes)} of memory or more, and "
                f"{show_size(self.limit)} are allowed; if the file can be trusted, raise this by "
                f"--max-expansion '{show_size(2 * n_bytes)}'"
            )


def unpack_gzip(data: bytes, bound: Expansion) -> bytes:
    """Return the content of a gzip file, whose cells are counted while it is unpacked.

    The parser needs a whole line at once, so that a long line takes more memory than several short ones.
    """
    parts, size, begun, longest = [], 0, 0, 0
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            while part := file.read(_STEP):
                n_marks = sum(part.count(mark) for mark in (b"\n", b",", b";", b"\t"))
                size += len(part) + _CELL * n_marks
                end = part.find(b"\n")
                begun += len(part) if end < 0 else end
                longest = max(longest, begun)
                begun = begun if end < 0 else len(part) - 1 - part.rfind(b"\n")
                bound.check(size + _LINE * longest)
                parts.append(part)
    except EOFError:
        raise TableError(f"{bound.source}: the gzip file is truncated") from None
    except (zlib.error, gzip.BadGzipFile) as error:
        raise TableError(f"{bound.source}: the gzip file is damaged ({error})") from None
    return b"".join(parts)


def check_workbook(archive: zipfile.ZipFile, bound: Expansion) -> None:
    """Raise an error if the parts of a workbook take more memory than is allowed.

    The directory of the archive is enough: no more than it states is unpacked.
    """
    bound.check(_XML * sum(part.file_size for part in archive.infolist()))


def check_cells(n_rows: int, n_columns: int, bound: Expansion) -> None:
    """Raise an error if a table with this many cells, empty or not, takes more memory than is allowed."""
    bound.check(_CELL * n_rows * n_columns)


# ------------------------------------------------------------------------------------------ Parquet


def check_parquet(data: bytes, bound: Expansion) -> None:
    """Raise an error if the columns of a Parquet file take more memory than is allowed.

    The headers of the pages state the size of numbers, and of texts as they are encoded. A text that occurs
    in many rows may be stored once: columns of text with a dictionary are read with it if they could exceed
    the bound, and of texts that are encoded by prefixes, the lengths of the prefixes are read.
    """
    file = pa.parquet.ParquetFile(pa.BufferReader(data))
    bound.check(file.metadata.num_rows * file.metadata.num_columns)
    bound.check(sum(held.num_values * _width(file, place) for _, place, held in _chunks(file)))
    size, repeated = 0, []
    for group, place, held in _chunks(file):
        for page in _pages(data, held):
            size += _page_size(file, place, held, page, bound.limit - size)
            bound.check(size)
        if held.physical_type == "BYTE_ARRAY":
            repeated.append((group, held.path_in_schema, _repeated_size(data, held)))
    read = [(group, path) for group, path, most in repeated if most > bound.limit - size]
    encoded = pa.parquet.ParquetFile(
        pa.BufferReader(data), read_dictionary=sorted({path for _, path in read})
    )
    for group, path in read:
        table = encoded.read_row_group(group, [path], use_threads=False)
        size += sum(_expanded_size(column) for column in table.columns)
        bound.check(size)


def _chunks(file: Any) -> Iterator[tuple[int, int, Any]]:
    """Yield what the footer states about each column of each group of rows."""
    for group in range(file.metadata.num_row_groups):
        for place in range(file.metadata.num_columns):
            yield group, place, file.metadata.row_group(group).column(place)


def _pages(data: bytes, held: Any) -> Iterator[Page]:
    start = held.data_page_offset
    if held.dictionary_page_offset is not None and 0 < held.dictionary_page_offset < start:
        start = held.dictionary_page_offset
    return iterate_pages(memoryview(data), start, held.total_compressed_size)


def _width(file: Any, place: int) -> int:
    """Return the bytes of a value of a column besides its text."""
    column = file.schema.column(place)
    width = int(_WIDTHS.get(column.physical_type) or column.length)
    return width + (_IN_LIST if column.max_repetition_level else 0)


def _page_size(file: Any, place: int, held: Any, page: Page, left: int) -> int:
    """Return the bytes of the values of a page, without what values of a dictionary take in each row."""
    if held.physical_type != "BYTE_ARRAY":
        return 0 if page.is_dictionary else max(page.n_values * _width(file, place), page.n_bytes)
    size = page.n_values * _width(file, place) + page.n_bytes
    if page.encoding != PREFIX_ENCODING or size > left or page.n_values * page.n_bytes <= left - size:
        return size  # no text is longer than all of them are when encoded
    column = file.schema.column(place)
    levels = (column.max_repetition_level, column.max_definition_level)
    prefixes = count_prefixes(page, held.compression, levels)
    return size + (page.n_values * page.n_bytes if prefixes is None else prefixes)


def _repeated_size(data: bytes, held: Any) -> int:
    """Return at most how many bytes the texts of a dictionary take when each is stored where it occurs."""
    pages = list(_pages(data, held))
    longest = max((page.n_bytes for page in pages if page.is_dictionary), default=0)
    return longest * sum(
        page.n_values for page in pages if not page.is_dictionary and page.encoding in DICTIONARY_ENCODINGS
    )


# ------------------------------------------------------------------------------------------ Arrow


def read_arrow(data: bytes, bound: Expansion) -> pa.Table:
    """Return the table of an Arrow file or stream, or raise an error if it takes more memory than is allowed.

    The messages of a stream follow each other. The footer of a file states where its messages are, which need
    not be a stream: Polars leaves out its first message. So the messages that the footer lists are checked.
    """
    is_file = data.startswith(b"ARROW1")
    buffer = pa.py_buffer(data)
    size = 0
    dictionaries: dict[int, int] = {}
    for message in _listed_messages(data) if is_file else pa.ipc.MessageReader.open_stream(buffer):
        size += _message_size(message, dictionaries)
        bound.check(size)
    return (pa.ipc.open_file(buffer) if is_file else pa.ipc.open_stream(buffer)).read_all()


def _listed_messages(data: bytes) -> Iterator[Any]:
    """Yield the messages that the footer of an Arrow file lists: dictionaries, then batches of rows."""
    length = int.from_bytes(data[-10:-6], "little")
    footer = data[max(0, len(data) - 10 - length) : -10]
    try:
        root = _follow(footer, 0)
        blocks = [_read_vector(footer, root, number, 3) for number in (2, 3)]
    except (struct.error, IndexError, ValueError):
        raise pa.ArrowInvalid("the footer is damaged") from None
    for place, _, _ in itertools.chain(*blocks):  # and the lengths of the parts of the message
        if not 0 <= place < len(data):
            raise pa.ArrowInvalid("the footer points outside of the file")
        yield pa.ipc.read_message(pa.py_buffer(data).slice(place))


def _message_size(message: Any, dictionaries: dict[int, int]) -> int:
    """Return the bytes that the content of a message takes, and add it to the sizes of the dictionaries.

    The metadata is a flatbuffer: a table begins with the distance to the places of its fields. Values that
    are added to a dictionary are stored beside a copy of all before, because batches before keep the old one.
    """
    header = message.metadata.to_pybytes()
    root = _follow(header, 0)
    kind, content = _field(header, root, 1), _field(header, root, 2)
    if kind is None or content is None or header[kind] not in (_RECORD_BATCH, _DICTIONARY_BATCH):
        return 0
    table = _follow(header, content)
    if header[kind] == _RECORD_BATCH:
        return _batch_size(message, header, table)
    number, batch, is_added = (_field(header, table, place) for place in range(3))
    assert batch is not None
    name = 0 if number is None else struct.unpack_from("<q", header, number)[0]
    size = _batch_size(message, header, _follow(header, batch))
    if is_added is not None and header[is_added]:
        size += dictionaries.get(name, 0)
    dictionaries[name] = size
    return size


def _batch_size(message: Any, header: bytes, batch: int) -> int:
    """Return the bytes of the buffers of a batch: a compressed one begins with its unpacked size."""
    # A byte for each value, nulls included.
    size = sum(length for length, _ in _read_vector(header, batch, 1, 2))
    packed = _field(header, batch, 3) is not None
    for offset, length in _read_vector(header, batch, 2, 2):
        known = -1
        if packed and length >= 8:
            known = struct.unpack("<q", message.body.slice(offset, 8).to_pybytes())[0]
        size += length if known < 0 else known
    return size


def _read_vector(header: bytes, table: int, number: int, width: int) -> list[list[int]]:
    """Return a field of a flatbuffer table that contains structures of `width` integers."""
    field = _field(header, table, number)
    if field is None:
        return []
    held = _follow(header, field)
    numbers = np.frombuffer(header, "<i8", width * struct.unpack_from("<i", header, held)[0], held + 4)
    return numbers.reshape(-1, width).tolist()


def _follow(header: bytes, place: int) -> int:
    return place + int(struct.unpack_from("<i", header, place)[0])


def _field(header: bytes, table: int, number: int) -> int | None:
    """Return where a field of a flatbuffer table is; None if it is not there."""
    places = table - int(struct.unpack_from("<i", header, table)[0])
    if 4 + 2 * number >= struct.unpack_from("<H", header, places)[0]:
        return None
    distance = int(struct.unpack_from("<H", header, places + 4 + 2 * number)[0])
    return table + distance if distance else None


# ------------------------------------------------------------------------------------------ values


def check_values(table: pa.Table, bound: Expansion) -> None:
    """Raise an error if the values of a table, without dictionaries, take more memory than is allowed."""
    bound.check(sum(_expanded_size(column) for column in table.columns))


def _expanded_size(column: pa.ChunkedArray | pa.Array) -> int:
    """Return the bytes of a column in which each value is stored where it occurs."""
    if isinstance(column, pa.ChunkedArray):
        return sum(_expanded_size(chunk) for chunk in column.chunks)
    if pa.types.is_dictionary(column.type):
        counts = np.bincount(
            column.indices.drop_null().to_numpy(zero_copy_only=False), minlength=len(column.dictionary)
        )
        return int(counts @ _value_sizes(column.dictionary))
    if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
        return _VIEW * len(column) + int(_view_lengths(column).sum())
    if pa.types.is_struct(column.type):
        return sum(_expanded_size(part) for part in column.flatten())
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return 8 * len(column) + _expanded_size(column.flatten())
    return int(column.nbytes)


def _value_sizes(values: pa.Array) -> np.ndarray:
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    if any(is_kind(values.type) for is_kind in kinds):
        lengths = pc.fill_null(pc.binary_length(values), 0)
        return lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    return np.full(len(values), -(-values.nbytes // max(1, len(values))), dtype=np.int64)


def _view_lengths(values: pa.Array) -> np.ndarray:
    """Return the lengths of texts that refer to buffers: the first four bytes of each reference."""
    lengths = np.frombuffer(values.buffers()[1], "<i4", _VIEW // 4 * (values.offset + len(values)))
    lengths = lengths[:: _VIEW // 4][values.offset :].astype(np.int64)
    return np.where(values.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
