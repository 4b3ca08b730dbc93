"""Parquet, Feather and Arrow files: checked types and texts on reading, and what a format can store."""

import io
import sys
from collections.abc import Iterable
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather
import pyarrow.parquet

from halfseen.errors import TableError
from halfseen.files.csv_tables import spell_limits
from halfseen.files.expansion import Expansion, check_arrow, check_parquet, check_values
from halfseen.files.table_file import Format, TableFile


def read_binary(data: bytes, kind: Format, bound: Expansion) -> pa.Table:
    """Return the table of a file whose columns have types.

    Parameters
    ----------
    data : bytes
        The content of the file.
    kind : {"parquet", "feather"}
        Its format; Arrow files and streams count as feather.
    bound : Expansion
        The name of the file, and the memory that its content may take.
    """
    buffer = pa.BufferReader(data)
    try:
        if kind == "parquet":
            check_parquet(data, bound)
            table = pa.parquet.read_table(buffer)
        elif data.startswith(b"FEA1"):
            table = pa.feather.read_table(buffer)
        else:
            check_arrow(data, bound)
            is_file = data.startswith(b"ARROW1")
            table = pa.feather.read_table(buffer) if is_file else pa.ipc.open_stream(buffer).read_all()
        names = table.column_names
    except UnicodeDecodeError as error:
        raise TableError(
            f"{bound.source}: the name of a column, {error.object[:40]!r}, is not UTF-8; rename the column"
        ) from None
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise TableError(f"{bound.source}: not a readable {kind} file ({reason})") from None
    check_values(table, bound)
    for name, column in zip(names, table.columns, strict=True):
        _check_zone(column.type, name, bound.source)
        _check_texts(column, name, bound.source)
    return table


def _check_zone(dtype: pa.DataType, name: str, source: str) -> None:
    """Refuse times of a zone that is not in the database of time zones."""
    dtype = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
    if not pa.types.is_timestamp(dtype) or dtype.tz is None:
        return
    try:
        pc.hour(pa.array([0], pa.int64()).cast(dtype))
    except pa.ArrowInvalid:
        raise TableError(
            f"{source}: column {name!r} has the time zone {dtype.tz!r}, which is not known on this machine; "
            "convert the column to UTC"
        ) from None


def _check_texts(column: pa.ChunkedArray, name: str, source: str) -> None:
    """Refuse texts that are not UTF-8, and values that lie outside of their buffers."""
    if pa.types.is_primitive(column.type):
        return
    start = 0
    for chunk in column.chunks:
        reason = _find_fault(chunk)
        if reason is not None:
            raise TableError(f"{source}: column {name!r}{_explain_fault(chunk, start, reason)}")
        start += len(chunk)


def _explain_fault(chunk: pa.Array, start: int, reason: str) -> str:
    """Return the end of a sentence about a column: which row has a fault, and which."""
    if "UTF8" not in reason:
        return f" is damaged ({reason})"
    if pa.types.is_nested(chunk.type):  # the values of all rows are validated together
        return " contains a text that is not UTF-8"
    row, held = _first_fault(chunk)
    return f", row {start + row + 1:,} (counted from 1): the text {held!r:.60} is not UTF-8"


def _find_fault(array: pa.Array) -> str | None:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        return str(error).splitlines()[0].rstrip(".")
    return None


def _first_fault(array: pa.Array) -> tuple[int, bytes]:
    """Return the first row whose text is not UTF-8, and its bytes."""
    if pa.types.is_dictionary(array.type):
        place, held = _first_fault(array.dictionary)
        return max(0, pc.index(array.indices, pa.scalar(place, array.indices.type)).as_py()), held
    low, high = 0, len(array)  # of the first faulty row, by halves
    while high - low > 1:
        middle = (low + high) // 2
        if _find_fault(array.slice(low, middle - low)) is None:
            low = middle
        else:
            high = middle
    return low, array.slice(low, 1).cast(pa.large_binary())[0].as_py()


def find_unstorable(schema: pa.Schema, kind: Format) -> pa.Field | None:
    """Return the first column whose type a format cannot store, if there is one."""
    if kind == "feather" or (kind == "parquet" and _fits_parquet(schema)):
        return None
    for field in schema:
        dtype = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if kind == "parquet":
            storable = _fits_parquet(pa.schema([field]))
        elif kind == "jsonl":
            storable = not _has_bytes(dtype) and (pa.types.is_nested(dtype) or _has_text(dtype))
        else:
            storable = not _has_bytes(dtype) and not pa.types.is_nested(dtype) and _has_text(dtype)
        if not storable:
            return field
    return None


def _fits_parquet(schema: pa.Schema) -> bool:
    levels = [dtype.value_type for dtype in schema.types if pa.types.is_dictionary(dtype)]
    if any(pa.types.is_nested(dtype) for dtype in levels):  # noticed only when there are values
        return False
    try:
        pa.parquet.write_table(schema.empty_table(), io.BytesIO())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return False
    return True


def _has_text(dtype: pa.DataType) -> bool:
    """Return whether the values of a type can be written as texts."""
    try:
        pa.array([], dtype).cast(pa.large_string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return False
    return True


def _has_bytes(dtype: pa.DataType) -> bool:
    kinds = (
        pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary,
    )  # fmt: skip
    inner = [dtype.field(place).type for place in range(dtype.num_fields)]
    return any(is_kind(dtype) for is_kind in kinds) or any(_has_bytes(one) for one in inner)


def write_binary(
    tables: Iterable[pa.Table], file: BinaryIO, like: TableFile, kind: Format, draw: str | None
) -> None:
    """Write completed tables with their types, one below the other; `draw` names a first column."""
    whole = []
    for number, table in enumerate(tables, start=1):
        table = spell_limits(table, like)
        if draw is not None:
            table = table.add_column(0, draw, pa.repeat(pa.scalar(number, pa.int32()), table.num_rows))
        whole.append(table)
    stacked = pa.concat_tables(whole, promote_options="permissive").unify_dictionaries()
    if draw is None and like.table.schema.metadata:
        stacked = stacked.replace_schema_metadata(like.table.schema.metadata)
    whole_file = file is not sys.stdout.buffer and file.seekable()
    sink = file if whole_file else io.BytesIO()  # the writers seek and tell
    if kind == "parquet":
        pa.parquet.write_table(stacked, sink, compression="zstd")
    else:
        pa.feather.write_feather(stacked, sink, compression="zstd")
    if isinstance(sink, io.BytesIO):
        file.write(sink.getvalue())
