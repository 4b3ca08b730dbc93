"""How much memory the content of a compressed or encoded file may take, checked before it is unpacked.

A file of a few kilobytes may unpack to more than a machine can hold. So sizes are taken from the footer of a
Parquet file, the buffers of an Arrow file and the directory of a workbook, and gzip is unpacked step by step.
"""

import gzip
import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from halfseen._processors import count_memory
from halfseen.config import read_size, show_size
from halfseen.errors import TableError

SHARE = 8
"""By default the content of a file may take the memory of the machine divided by this number.

A guess: reading keeps up to four copies of a column for a while, and the model needs memory too.
"""

_STEP = 1 << 20  # bytes that are unpacked at once
_CELL = 16  # bytes of a cell besides its text: where the text begins, and the value
_XML = 12  # bytes of memory for a byte of the XML of a workbook; reading and copying measured 8 to 11
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}
_VIEW = 16  # bytes of a reference to a text of Arrow's type string_view
_RECORD_BATCH, _DICTIONARY_BATCH = 3, 2  # kinds of Arrow messages


@dataclass(frozen=True)
class Expansion:
    """A bound on the memory that the content of a file may take.

    Parameters
    ----------
    source : str
        The name of the file, for messages.
    limit : int
        The bound in bytes.
    """

    source: str
    limit: int

    @classmethod
    def of(cls, source: str, given: str | int | None) -> "Expansion":
        """Return the bound that the user gave, such as ``"8 GB"``, or the default one."""
        if given is None:
            return cls(source, count_memory() // SHARE)
        try:
            return cls(source, read_size(given))
        except ValueError:
            raise TableError(f"--max-expansion {given!r} is not a size such as '8 GB'") from None

    def check(self, n_bytes: int) -> None:
        """Raise an error if the content takes more memory than is allowed."""
        if n_bytes > self.limit:
            raise TableError(
                f"{self.source}: its content takes {show_size(n_bytes)} of memory or more, and "
                f"{show_size(self.limit)} are allowed; if the file can be trusted, raise this by "
                f"--max-expansion '{show_size(2 * n_bytes)}'"
            )


def unpack_gzip(data: bytes, bound: Expansion) -> bytes:
    """Return the content of a gzip file, whose cells are counted while it is unpacked."""
    parts, size = [], 0
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            while part := file.read(_STEP):
                n_marks = sum(part.count(mark) for mark in (b"\n", b",", b";", b"\t"))
                size += len(part) + _CELL * n_marks
                bound.check(size)
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

    The footer states the size of numbers, and of texts as they are encoded. A text that occurs in many rows
    may be stored once, so columns of text are read with their dictionaries if they could exceed the bound.
    """
    file = pa.parquet.ParquetFile(pa.BufferReader(data))
    chunks = list(_chunks(file.metadata))
    size = sum(chunk.width * chunk.n_values + chunk.n_bytes * chunk.is_text for chunk in chunks)
    bound.check(max(size, file.metadata.num_rows * file.metadata.num_columns))
    texts = [
        chunk for chunk in chunks if chunk.repeats and chunk.n_bytes * chunk.n_values > bound.limit - size
    ]
    encoded = pa.parquet.ParquetFile(
        pa.BufferReader(data), read_dictionary=sorted({chunk.path for chunk in texts})
    )
    for chunk in texts:
        if chunk.is_prefixed:  # no value is longer than all of them are when encoded
            n_rows = max(1, (bound.limit - size) // max(1, chunk.n_bytes))
            tables = file.iter_batches(n_rows, [chunk.group], [chunk.path], use_threads=False)
        else:
            tables = iter([encoded.read_row_group(chunk.group, [chunk.path])])
        for table in tables:
            size += sum(_expanded_size(column) for column in table.columns)
            bound.check(size)


@dataclass(frozen=True)
class _Chunk:
    """What the footer of a Parquet file states about a column of a group of rows."""

    path: str
    group: int
    n_values: int
    n_bytes: int
    width: int
    is_text: bool
    repeats: bool
    is_prefixed: bool


def _chunks(footer: Any) -> Iterator[_Chunk]:
    for group in range(footer.num_row_groups):
        for place in range(footer.num_columns):
            held = footer.row_group(group).column(place)
            is_text = held.physical_type == "BYTE_ARRAY"
            is_prefixed = is_text and "DELTA_BYTE_ARRAY" in held.encodings
            yield _Chunk(
                held.path_in_schema,
                group,
                held.num_values,
                held.total_uncompressed_size,
                _WIDTHS.get(held.physical_type) or footer.schema.column(place).length,
                is_text,
                is_prefixed or (is_text and held.has_dictionary_page),
                is_prefixed,
            )


# ------------------------------------------------------------------------------------------ Arrow


def check_arrow(data: bytes, bound: Expansion) -> None:
    """Raise an error if the buffers of an Arrow file or stream take more memory than is allowed."""
    start = 8 if data.startswith(b"ARROW1") else 0
    size = 0
    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(data).slice(start)):
        size += _unpacked_size(message)
        bound.check(size)


def _unpacked_size(message: Any) -> int:
    """Return the bytes of the buffers of a batch: a compressed one begins with its unpacked size.

    The metadata is a flatbuffer: a table begins with the distance to the places of its fields.
    """
    header = message.metadata.to_pybytes()
    root = _follow(header, 0)
    kind, batch = _field(header, root, 1), _field(header, root, 2)
    if kind is None or batch is None or header[kind] not in (_RECORD_BATCH, _DICTIONARY_BATCH):
        return 0
    batch = _follow(header, batch)
    if header[kind] == _DICTIONARY_BATCH:
        inner = _field(header, batch, 1)
        assert inner is not None
        batch = _follow(header, inner)
    n_rows, nodes, buffers = (_field(header, batch, number) for number in range(3))
    size = 0 if n_rows is None or nodes is None else struct.unpack_from("<q", header, n_rows)[0]
    size *= 1 if nodes is None else struct.unpack_from("<i", header, _follow(header, nodes))[0]
    if buffers is None:
        return size
    held = _follow(header, buffers)
    places = np.frombuffer(header, "<i8", 2 * struct.unpack_from("<i", header, held)[0], held + 4)
    packed = _field(header, batch, 3) is not None
    for offset, length in places.reshape(-1, 2).tolist():
        known = -1
        if packed and length >= 8:
            known = struct.unpack("<q", message.body.slice(offset, 8).to_pybytes())[0]
        size += length if known < 0 else known
    return size


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
