"""The pages of a Parquet file: how many values they state, and how many bytes of text they unpack to.

The footer of a Parquet file repeats what the headers of its pages state, and a reader follows the headers. So
a bound on memory has to be taken from the headers: a footer may be wrong. Headers are structures of Thrift's
compact protocol; the encodings are those of the Parquet specification.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

DICTIONARY_ENCODINGS = (2, 8)  # PLAIN_DICTIONARY and RLE_DICTIONARY
PREFIX_ENCODING = 7  # DELTA_BYTE_ARRAY: a text begins like the one before it
_BIT_PACKED = 4  # an encoding of levels without a length; no longer written
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3  # kinds of pages
_DEPTH = 32  # structures within structures of a header; those of the specification have four
_STEP = 1 << 15  # integers that are unpacked at once, a multiple of 8 so that each step begins with a byte
_BYTES_OF_INTEGER = 10  # an integer of 64 bits in groups of seven


@dataclass(frozen=True)
class Page:
    """What the header of a page of values states."""

    kind: int  # values of rows, in two versions, or the distinct values of a column
    n_values: int  # number of values, missing ones included
    n_bytes: int  # size of the page when it is decompressed
    encoding: int  # number of the encoding of the values
    body: memoryview  # the page as it is stored
    header: dict[int, Any]  # the fields of the header of the kind of page

    @property
    def is_dictionary(self) -> bool:
        """Whether the page contains the distinct values of a column instead of its rows."""
        return self.kind == _DICTIONARY


def iterate_pages(data: memoryview, start: int, length: int) -> Iterator[Page]:
    """Yield the pages of a column of a group of rows, stored in `length` bytes from `start` on."""
    end = min(len(data), start + length)
    try:
        while 0 <= start < end:
            fields, start = _read_structure(data, start, _DEPTH)
            kind, n_bytes, stored = fields[1], fields[2], fields[3]
            if min(n_bytes, stored) < 0:
                raise pa.ArrowInvalid("a page has a negative size")
            body = data[start : start + stored]
            start += stored
            place = {_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}.get(kind)
            if place is None:
                continue
            held = fields[place]
            encoding = held[4] if kind == _DATA_V2 else held[2]
            yield Page(kind, max(0, held[1]), n_bytes, encoding, body, held)
    except pa.ArrowInvalid:  # a ValueError too
        raise
    except (KeyError, IndexError, TypeError, ValueError, struct.error):
        raise pa.ArrowInvalid("the header of a page is damaged") from None


def count_prefixes(page: Page, codec: str, levels: tuple[int, int]) -> int | None:
    """Return the number of bytes of text that a page takes from the texts before; None if that is not known.

    Parameters
    ----------
    page : Page
        A page of rows whose values are encoded by prefixes.
    codec : str
        The name of its compression, as Parquet calls it.
    levels : tuple of int
        The largest repetition level and the largest definition level of the column.

    Notes
    -----
    The lengths of the prefixes are the first part of the values. LZ4 with the framing of Hadoop is the one
    compression that cannot be undone here.
    """
    try:
        # Levels are stored as they are.
        skipped = page.header[5] + page.header[6] if page.kind == _DATA_V2 else 0
        content = page.body[skipped:]
        if codec != "UNCOMPRESSED" and page.header.get(7, True):
            unpacked = _decompress(content, page.n_bytes - skipped, codec)
            if unpacked is None:
                return None
            content = unpacked
        start = 0 if page.kind == _DATA_V2 else _skip_levels(content, page, levels)
        lengths = _read_deltas(content, start, page.n_values)
    except (KeyError, IndexError, TypeError, ValueError, struct.error):
        raise pa.ArrowInvalid("a page of texts is damaged") from None
    return int(np.maximum(lengths, 0).sum(dtype=np.int64))


def _decompress(content: memoryview, n_bytes: int, codec: str) -> memoryview | None:
    try:
        name = "lz4_raw" if codec == "LZ4" else codec.lower()
        return memoryview(pa.decompress(content, n_bytes, name, asbytes=True))
    except (pa.ArrowException, OSError):
        return None


def _skip_levels(content: memoryview, page: Page, levels: tuple[int, int]) -> int:
    """Return where the values of a page of the first version begin: after the levels of lists and nulls."""
    start = 0
    for level, encoding in zip(levels, (page.header[4], page.header[3]), strict=True):
        if not level:
            continue
        if encoding == _BIT_PACKED:
            start += -(-page.n_values * level.bit_length() // 8)
        else:
            start += 4 + struct.unpack_from("<I", content, start)[0]
    return start


def _read_deltas(content: memoryview, start: int, most: int) -> np.ndarray:
    """Return at most `most` integers of the encoding DELTA_BINARY_PACKED: the first value, then differences.

    Arithmetic is modulo 2**32, as in the specification.
    """
    block_size, start = _read_integer(content, start)
    n_parts, start = _read_integer(content, start)
    count, start = _read_integer(content, start)
    first, start = _read_signed(content, start)
    size = block_size // max(1, n_parts)
    if size <= 0 or size % 8:
        raise ValueError("the blocks have no size")
    missing = min(count, most) - 1
    parts = [np.array([first & 0xFFFFFFFF], dtype=np.uint32)][: missing + 1]
    while missing > 0:
        least, start = _read_signed(content, start)
        widths = bytes(content[start : start + n_parts])
        start += n_parts
        if not widths:
            raise ValueError("the block is cut off")
        for width in widths:
            taken = min(size, missing)
            stored = content[start : start + width * size // 8]
            start += width * size // 8
            parts.append(_unpack_bits(stored, width, taken) + np.uint32(least & 0xFFFFFFFF))
            missing -= taken
    return np.cumsum(np.concatenate(parts), dtype=np.uint32).view(np.int32)


def _unpack_bits(stored: memoryview, width: int, count: int) -> np.ndarray:
    """Return integers of `width` bits each, lowest bit first."""
    if width > 32 or 8 * len(stored) < width * count:
        raise ValueError("the block is cut off")
    values = np.zeros(count, dtype=np.uint32)
    powers = np.uint32(1) << np.arange(width, dtype=np.uint32)
    for start in range(0, count if width else 0, _STEP):  # each bit takes four bytes for a while
        taken = values[start : start + _STEP]
        packed = np.frombuffer(stored, np.uint8)[start * width // 8 :][: _STEP * width // 8]
        bits = np.unpackbits(packed, count=width * len(taken), bitorder="little")
        taken[:] = bits.reshape(len(taken), width).astype(np.uint32) @ powers
    return values


# ------------------------------------------------------------------------------------------ Thrift


def _read_structure(data: memoryview, start: int, depth: int) -> tuple[dict[int, Any], int]:
    """Return the fields of a structure by their numbers, and where it ends."""
    fields: dict[int, Any] = {}
    number = 0
    while (mark := data[start]) != 0:
        start += 1
        if mark >> 4:
            number += mark >> 4
        else:
            number, start = _read_signed(data, start)
        fields[number], start = _read_value(data, start, mark & 15, depth)
    return fields, start + 1


def _read_value(data: memoryview, start: int, kind: int, depth: int) -> tuple[Any, int]:
    if depth == 0:
        raise pa.ArrowInvalid("the header of a page is nested too deeply")
    if kind in (1, 2):  # true and false are kinds of fields
        return kind == 1, start
    if kind == 3:
        return data[start], start + 1
    if kind in (4, 5, 6):
        return _read_signed(data, start)
    if kind == 7:
        return struct.unpack_from("<d", data, start)[0], start + 8
    if kind == 8:  # a text, or the bytes of a statistic
        length, start = _read_integer(data, start)
        return None, start + length
    if kind in (9, 10):  # lists and sets; truth values take a byte each there
        size, inner = data[start] >> 4, data[start] & 15
        size, start = _read_integer(data, start + 1) if size == 15 else (size, start + 1)
        for _ in range(size):
            _, start = _read_value(data, start, 3 if inner in (1, 2) else inner, depth - 1)
        return None, start
    if kind == 12:
        return _read_structure(data, start, depth - 1)
    raise pa.ArrowInvalid(f"the header of a page has a field of the unknown kind {kind}")


def _read_integer(data: memoryview, start: int) -> tuple[int, int]:
    value = 0
    for place in range(_BYTES_OF_INTEGER):
        held = data[start + place]
        value |= (held & 127) << (7 * place)
        if held < 128:
            return value, start + place + 1
    raise ValueError("an integer has more than 64 bits")


def _read_signed(data: memoryview, start: int) -> tuple[int, int]:
    value, start = _read_integer(data, start)
    return (value >> 1) ^ -(value & 1), start
