"""The files of a scan: what is known of each without keeping its rows, and reading runs of its rows.

A file is read in pieces: the row groups of a Parquet file, the record batches of a Feather file, and runs of
whole records of a csv, whose places in the text are found once. So a run of rows is read without the rows
before its first piece.
"""

import csv
import hashlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import PurePosixPath
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from halfseen.errors import TableError
from halfseen.files.dialect import sniff_delimiter

FileFormat = Literal["csv", "parquet", "feather"]

FORMATS: dict[str, FileFormat] = {
    ".csv": "csv", ".tsv": "csv", ".txt": "csv",
    ".parquet": "parquet", ".pq": "parquet",
    ".feather": "feather", ".arrow": "feather", ".ipc": "feather",
}  # fmt: skip
"""The formats that are read in pieces, by the ends of the names of files."""

TEXT_IN_PIECE = 1 << 23  # bytes of a csv that are parsed together; a guess
LONGEST_RECORD = 1 << 26  # bytes in which a record must end, or its quotes are no quotes
SAMPLE = 1 << 17  # bytes in which the delimiter is looked for
_BATCH = 1 << 16  # rows of a row group that are decoded together; the largest block
TRUE, FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")  # not 1 and 0, which are numbers
_QUOTE, _NEWLINE, _MARK = 34, 10, b"\xef\xbb\xbf"


@dataclass(frozen=True)
class ScanFile:
    """A file of a scan."""

    path: str  # its path in the file system of the scan
    format: FileFormat  # its format
    schema: Any  # pyarrow.Schema: its columns; dictionaries are replaced by their values
    n_bytes: int  # its size
    digest: str  # of the footer of a typed file, and of the whole content of a csv
    piece_rows: tuple[int, ...]  # the numbers of rows of its pieces
    offsets: tuple[int, ...] = ()  # for a csv, the places in the text at which its pieces begin, and its end
    delimiter: str = ","  # for a csv, what separates cells

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return sum(self.piece_rows)


def format_of(path: str) -> FileFormat:
    """Returns the format of a file by its name; raises a TableError for one that is not read in pieces."""
    suffix = PurePosixPath(path.lower()).suffix
    if suffix == ".gz":
        raise TableError(f"{path}: a compressed file cannot be read from the middle; unpack it first")
    if suffix not in FORMATS:
        raise TableError(f"{path}: a scan reads csv, Parquet and Feather files ({' '.join(FORMATS)})")
    return FORMATS[suffix]


def inspect_file(path: str, filesystem: Any, delimiter: str | None = None) -> ScanFile:
    """Returns what is known of a file without its rows; a csv is read once to find its records and types."""
    kind = format_of(path)
    try:
        with filesystem.open_input_file(path) as file:
            if kind == "parquet":
                return _inspect_parquet(path, file)
            if kind == "feather":
                return _inspect_feather(path, file)
            return _inspect_csv(path, file, delimiter)
    except TableError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:  # the last one of servers without ranges
        raise unreadable(path, kind, error) from error


def unreadable(path: str, kind: str, error: Exception) -> TableError:
    """Returns the error of a file that cannot be read: one line that names it."""
    if isinstance(error, FileNotFoundError):
        return TableError(f"{path}: there is no such file")
    reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
    return TableError(f"{path}: not a readable {kind} file ({reason})")


def read_pieces(
    part: ScanFile, filesystem: Any, start: int, stop: int, schema: pa.Schema
) -> Iterator[pa.Table]:
    """Yields the rows from `start` to before `stop` of a file, in order, as tables of a schema.

    Parameters
    ----------
    part : ScanFile
        The file.
    filesystem : pyarrow.fs.FileSystem
        Where it is.
    start, stop : int
        The rows of the file.
    schema : pyarrow.Schema
        The columns to read and their types.
    """
    ends = list(accumulate(part.piece_rows))
    try:
        with filesystem.open_input_file(part.path) as file:
            wanted = [
                (piece, end - part.piece_rows[piece])
                for piece, end in enumerate(ends)
                if end > start and end - part.piece_rows[piece] < stop
            ]
            for begin, table in _decode(part, file, wanted, schema):
                low, high = max(start, begin), min(stop, begin + table.num_rows)
                if low < high:
                    yield typed(table.slice(low - begin, high - low), schema, part.path)
    except TableError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise unreadable(part.path, part.format, error) from error


def _decode(
    part: ScanFile, file: Any, wanted: Sequence[tuple[int, int]], schema: pa.Schema
) -> Iterator[tuple[int, pa.Table]]:
    """Yields the tables of pieces, each with the index in the file of its first row."""
    if part.format == "csv":
        for piece, begin in wanted:
            yield begin, _parse(_text(part, file, piece), part, schema)
        return
    if part.format == "feather":
        batches = pa.ipc.open_file(file)
        for piece, begin in wanted:
            yield begin, pa.Table.from_batches([batches.get_batch(piece)]).select(schema.names)
        return
    parquet = pa.parquet.ParquetFile(file, page_checksum_verification=True)  # where it has checksums
    for piece, begin in wanted:
        for batch in parquet.iter_batches(_BATCH, [piece], columns=schema.names, use_threads=False):
            yield begin, pa.Table.from_batches([batch]).select(schema.names)
            begin += batch.num_rows


def typed(table: pa.Table, schema: pa.Schema, path: str) -> pa.Table:
    """Returns a table in the types of a schema; an error names the column and the file."""
    columns = []
    for field, column in zip(schema, table.columns, strict=True):
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except pa.ArrowInvalid as error:
            reason = str(error).splitlines()[0]
            raise TableError(
                f"{path}: column {field.name!r} cannot be read as {field.type} ({reason})"
            ) from error
    return pa.table(columns, schema=schema)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Returns a schema with the values of dictionaries in their place, and without notes of other libraries.

    Dictionaries differ between the pieces of a table, and a piece may lack a level that is imputed in it.
    """
    return pa.schema([pa.field(field.name, _plain_type(field.type)) for field in schema])


def _plain_type(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(dtype):
        return _plain_type(dtype.value_type)
    return pa.large_string() if dtype == pa.string_view() else dtype


# ------------------------------------------------------------------------------------------ typed files


def _inspect_parquet(path: str, file: Any) -> ScanFile:
    size = file.size()
    found = pa.parquet.ParquetFile(file)
    groups = tuple(found.metadata.row_group(place).num_rows for place in range(found.num_row_groups))
    digest = _digest_footer(file, size, last=8, length=4)
    return ScanFile(path, "parquet", plain_schema(found.schema_arrow), size, digest, groups)


def _inspect_feather(path: str, file: Any) -> ScanFile:
    size = file.size()
    found = pa.ipc.open_file(file)
    rows = tuple(found.get_batch(place).num_rows for place in range(found.num_record_batches))
    digest = _digest_footer(file, size, last=10, length=4)
    return ScanFile(path, "feather", plain_schema(found.schema), size, digest, rows)


def _digest_footer(file: Any, size: int, *, last: int, length: int) -> str:
    """Returns the digest of a footer, whose length is stored in the `last` bytes of the file."""
    file.seek(size - last)
    n_bytes = int.from_bytes(file.read(length), "little")
    file.seek(max(0, size - last - n_bytes))
    return hashlib.sha256(file.read(n_bytes + last)).hexdigest()


# ------------------------------------------------------------------------------------------ text


def _inspect_csv(path: str, file: Any, delimiter: str | None) -> ScanFile:
    sample = file.read(SAMPLE)
    begin = len(_MARK) if sample.startswith(_MARK) else 0
    if sample.startswith((b"PAR1", b"ARROW1")):
        raise TableError(f"{path}: this is not a csv, though its name ends like one")
    whole = sample[begin : sample.rfind(b"\n") + 1] if len(sample) == SAMPLE else sample[begin:]
    delimiter = delimiter or sniff_delimiter(whole.decode("utf-8", errors="replace")) or ","
    file.seek(begin)
    digest = hashlib.sha256()
    offsets, rows = [], []
    names: list[str] = []
    found: pa.Schema | None = None
    place = begin
    for text in _records(path, file):
        digest.update(text)
        if not names:
            names, n_header = _header(path, text, delimiter)
            place, text = place + n_header, text[n_header:]
        offsets.append(place)
        place += len(text)
        table = _parse(text, ScanFile(path, "csv", None, 0, "", (), (), delimiter), None, names)
        for field in table.schema:
            if pa.types.is_binary(field.type):
                raise TableError(
                    f"{path}: the cells of column {field.name!r} are not UTF-8; convert the file"
                )
        rows.append(table.num_rows)
        found = table.schema if found is None else merge_types(found, table.schema)
    if found is None:
        raise TableError(f"{path}: the file is empty")
    return ScanFile(path, "csv", found, place, digest.hexdigest(), tuple(rows), (*offsets, place), delimiter)


def _records(path: str, file: Any) -> Iterator[bytes]:
    """Yields runs of whole records. A line end within quotes does not end a record."""
    rest = b""
    while True:
        text = file.read(TEXT_IN_PIECE)
        if not text:
            break
        text = rest + text
        end = _last_end(text)
        if end == 0 and len(text) > LONGEST_RECORD:
            raise TableError(f"{path}: no record ends within {LONGEST_RECORD:,} bytes; check its quotes")
        if end:
            yield text[:end]
        rest = text[end:]
    if rest:
        yield rest


def _last_end(text: bytes) -> int:
    """Returns the end of the last record that ends in a text that begins with a record; 0 if none does."""
    codes = np.frombuffer(text, np.uint8)
    quotes = codes == _QUOTE
    if not quotes.any():
        return text.rfind(b"\n") + 1
    outside = ~np.logical_xor.accumulate(quotes)
    ends = np.flatnonzero((codes == _NEWLINE) & outside)
    return int(ends[-1]) + 1 if len(ends) else 0


def _header(path: str, text: bytes, delimiter: str) -> tuple[list[str], int]:
    """Returns the names in the first record, and the number of its bytes."""
    stream = io.StringIO(text[:LONGEST_RECORD].decode("utf-8", errors="surrogateescape"), newline="")
    lines: list[str] = []

    def remembering() -> Iterator[str]:
        for line in stream:
            lines.append(line)
            yield line

    names = next(csv.reader(remembering(), delimiter=delimiter))
    again = [name for place, name in enumerate(names) if name in names[:place]]
    if again or "" in names:
        what = f"the name {again[0]!r} twice" if again else "a column without a name"
        raise TableError(f"{path}: the first line must have the names of the columns, but it has {what}")
    used = "".join(lines).encode("utf-8", errors="surrogateescape")
    used.decode("utf-8")
    return names, len(used)


def _text(part: ScanFile, file: Any, piece: int) -> bytes:
    file.seek(part.offsets[piece])
    text: bytes = file.read(part.offsets[piece + 1] - part.offsets[piece])
    return text


def _parse(text: bytes, part: ScanFile, schema: pa.Schema | None, names: Sequence[str] = ()) -> pa.Table:
    """Returns the records of a text, in types that are inferred if no schema is given."""
    names = list(names) or part.schema.names
    if not text.strip(b"\r\n"):
        empty = pa.schema([(name, pa.null()) for name in names]) if schema is None else schema
        return empty.empty_table()
    types = {} if schema is None else {field.name: field.type for field in schema}
    table = pa.csv.read_csv(
        pa.BufferReader(text),
        read_options=pa.csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=names),
        parse_options=pa.csv.ParseOptions(delimiter=part.delimiter, newlines_in_values=b'"' in text),
        convert_options=pa.csv.ConvertOptions(
            strings_can_be_null=True,
            true_values=TRUE,
            false_values=FALSE,
            column_types=types,
            include_columns=[*types],
        ),
    )
    return table


def merge_types(one: pa.Schema, other: pa.Schema) -> pa.Schema:
    """Returns the types of columns whose cells are of the types of both: text, if nothing else holds both.

    The result does not depend on the order in which the schemas of the pieces of a text are merged. It is the
    type of the cells in one piece, so that types do not depend on how rows are divided into pieces and files.

    Examples
    --------
    >>> left = pa.schema({"a": pa.int64(), "b": pa.null()})
    >>> merge_types(left, pa.schema({"a": pa.float64(), "b": pa.date32()})).types
    [DataType(double), DataType(date32[day])]
    """
    return pa.schema([(field.name, _wider(field.type, other.field(field.name).type)) for field in one])


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    moments = [pa.timestamp("s") if pa.types.is_date(dtype) else dtype for dtype in (one, other)]
    if not all(map(pa.types.is_timestamp, moments)) or moments[0].tz != moments[1].tz:
        return pa.string()
    return pa.timestamp("ns" if "ns" in (moments[0].unit, moments[1].unit) else "s", moments[0].tz)
