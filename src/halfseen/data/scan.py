"""Tables that are read in blocks of rows: files that together are one table, and need not fit into memory."""

import glob as globbing
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs

from halfseen._arrays import Integers
from halfseen._random import Keys, id_keys
from halfseen.data.incomplete import SAMPLE_ROWS, Passes, in_this_process, rows_in_block, runs_of
from halfseen.data.scan_files import (
    FORMATS,
    ScanFile,
    format_of,
    inspect_file,
    merge_types,
    plain_schema,
    read_pieces,
    typed,
)
from halfseen.data.scan_streams import Stream, find_stream
from halfseen.errors import RepeatedIdsWarning, TableError, warn_user
from halfseen.words import plural

_OF_SAMPLES = 0x53414D504C45  # so that a sample does not depend on the noise of draws with the same seed

RowIds = npt.NDArray[Any]


@dataclass(frozen=True)
class Scan:
    """A table in files, of which rows are read when they are needed; made by `scan`.

    Rows are numbered across the files, in the order of the names of the files. They are computed in blocks by
    this number, so that answers do not depend on how the rows are distributed over files.

    Parameters
    ----------
    parts : tuple of ScanFile
        The files.
    filesystem : pyarrow.fs.FileSystem
        Where they are.
    schema : pyarrow.Schema
        The columns. Dictionaries are read as their values.
    row_id : str or None
        The column that identifies rows; None if their numbers do.
    """

    parts: tuple[ScanFile, ...]
    filesystem: Any
    schema: Any
    row_id: str | None = None

    def __repr__(self) -> str:
        rows, columns = plural(self.n_rows, "row"), plural(self.n_columns, "column")
        return f"Scan({plural(len(self.parts), 'file')}, {rows}, {columns})"

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return sum(part.n_rows for part in self.parts)

    @property
    def n_columns(self) -> int:
        """The number of columns."""
        return len(self.schema)

    @property
    def column_names(self) -> list[str]:
        """The names of the columns."""
        return list(self.schema.names)

    @property
    def block_rows(self) -> int:
        """The number of rows in a block, which depends on the number of columns only."""
        return rows_in_block(self.n_columns)

    @property
    def files(self) -> list[str]:
        """The paths of the files, in the order of their rows."""
        return [part.path for part in self.parts]

    def select(self, names: Sequence[str]) -> "Scan":
        """Returns the scan of some of the columns.

        Parameters
        ----------
        names : sequence of str
            The columns. A column that identifies rows need not be among them.
        """
        for name in names:
            if name not in self.schema.names:
                raise TableError(f"{self.parts[0].path}: there is no column {name!r}")
        return replace(self, schema=pa.schema([self.schema.field(name) for name in names]))

    def is_text(self, name: str) -> bool:
        """Returns whether a column holds text."""
        dtype = self.schema.field(name).type
        return bool(pa.types.is_string(dtype) or pa.types.is_large_string(dtype))

    def with_text(self, names: Sequence[str]) -> "Scan":
        """Returns the scan with some of the columns of csv files read as text, whatever their cells hold."""
        if any(part.format != "csv" for part in self.parts):
            return self
        fields = [pa.field(one.name, pa.string()) if one.name in names else one for one in self.schema]
        return replace(self, schema=pa.schema(fields))

    def blocks(
        self, start: int = 0, stop: int | None = None, *, n_rows: int | None = None
    ) -> Iterator[tuple[int, pa.Table]]:
        """Yields runs of rows, each with the number of its first row, whatever the files and row groups.

        Parameters
        ----------
        start, stop : int
            The rows; by default all.
        n_rows : int, optional
            The rows of a run; by default those of a block. The last run may be shorter.
        """
        size = n_rows or self.block_rows
        stop = self.n_rows if stop is None else min(stop, self.n_rows)
        waiting: list[pa.Table] = []
        n_waiting = 0
        for table in self._pieces(start, stop):
            while n_waiting + table.num_rows >= size:
                used = size - n_waiting
                yield start, pa.concat_tables([*waiting, table.slice(0, used)]).combine_chunks()
                table, waiting, n_waiting, start = table.slice(used), [], 0, start + size
            waiting, n_waiting = [*waiting, table], n_waiting + table.num_rows
        if n_waiting:
            yield start, pa.concat_tables(waiting).combine_chunks()

    def read(self, start: int = 0, stop: int | None = None) -> pa.Table:
        """Returns rows as a table in memory; by default all."""
        stop = self.n_rows if stop is None else stop
        return self.joined(self._pieces(start, stop))

    def _pieces(self, start: int, stop: int) -> Iterator[pa.Table]:
        end = 0
        for part in self.parts:
            begin, end = end, end + part.n_rows
            if end > start and begin < stop:
                low, high = max(start - begin, 0), min(stop - begin, part.n_rows)
                yield from read_pieces(part, self.filesystem, low, high, self.schema)

    def row_ids(self, start: int, table: pa.Table) -> RowIds:
        """Returns what identifies rows of the scan: their numbers, or the values of a column.

        Parameters
        ----------
        start : int
            The number of the first row.
        table : pyarrow.Table
            The rows.
        """
        if self.row_id is None:
            return np.arange(start, start + table.num_rows, dtype=np.int64)
        column = table[self.row_id]
        if column.null_count:
            place = column.is_null().to_numpy(zero_copy_only=False).argmax()
            raise TableError(
                f"column {self.row_id!r} identifies rows, but row {start + place:,} has no value"
            )
        ids: RowIds = column.to_numpy()
        return ids

    def warn_of_repeated_ids(self, passes: Passes = in_this_process) -> None:
        """Issues a warning if the column that identifies rows repeats values, for which it is read once.

        Parameters
        ----------
        passes : Passes
            What goes over the rows.
        """
        if self.row_id is None:
            return
        found = IdSample.empty()
        for part in passes(sample_ids, self.select([self.row_id]), runs_of(self.n_rows, 1)):
            found = found.merged(part)
        repeated = np.flatnonzero(found.counts > 1)
        if len(repeated):
            example, n_rows = found.ids[repeated[:1]].tolist()[0], int(found.counts[repeated[0]])
            n_compared = plural(len(found.counts), "id")
            warn_user(
                f"Column {self.row_id!r} identifies rows, but {example!r} is the id of {n_rows:,} rows, and "
                f"{len(repeated):,} of {n_compared} that were compared repeat: rows with equal ids have the "
                "same random numbers, so that their draws vary together. Name a column that differs in each "
                "row, or none, by which rows are identified by their numbers.",
                RepeatedIdsWarning,
            )

    def sample(
        self, n_rows: int = SAMPLE_ROWS, random_state: int = 0, *, passes: Passes = in_this_process
    ) -> pa.Table:
        """Returns about `n_rows` random rows, or all if there are no more, in their order.

        Whether a row is chosen depends on its number and the seed only, not on the files.

        Parameters
        ----------
        n_rows : int
            The expected number of rows.
        random_state : int
            The seed.
        passes : Passes
            What goes over the rows.
        """
        if n_rows >= self.n_rows:
            return self.read()
        runs = runs_of(self.n_rows, self.n_columns)
        return self.joined(passes(choose_rows, (self, n_rows, random_state), runs))

    def joined(self, parts: Iterable[pa.Table]) -> pa.Table:
        """Returns rows of the scan, in parts, as one table."""
        return pa.concat_tables([self.schema.empty_table(), *parts]).combine_chunks()

    def choose(self, start: int, table: pa.Table, n_rows: int, random_state: int = 0) -> pa.Table:
        """Returns those rows of a run of rows that are in the sample of `n_rows` rows of the whole table.

        Parameters
        ----------
        start, table : int, pyarrow.Table
            As of `row_ids`.
        n_rows, random_state : int
            As of `sample`.
        """
        if n_rows >= self.n_rows:
            return table
        limit = np.uint64(int(n_rows / self.n_rows * 2**64))
        numbers = np.arange(start, start + table.num_rows, dtype=np.int64)
        return table.filter(pa.array(id_keys(numbers, random_state ^ _OF_SAMPLES) < limit))


@dataclass(frozen=True)
class StreamedScan(Scan):
    """A lazy table of another library, which is read from its beginning; made by `scan`.

    Parameters
    ----------
    parts, filesystem, schema, row_id
        As of `Scan`; the one part stands for the table.
    stream : Stream
        What reads its rows.
    """

    stream: Stream | None = None

    def __repr__(self) -> str:
        assert self.stream is not None
        rows, columns = plural(self.n_rows, "row"), plural(self.n_columns, "column")
        return f"Scan({self.stream.name}, {rows}, {columns})"

    def _pieces(self, start: int, stop: int) -> Iterator[pa.Table]:
        assert self.stream is not None
        for table in self.stream.read(start, stop, self.n_rows):
            yield typed(table.select(self.schema.names), self.schema, self.stream.name)


def _streamed(stream: Stream, row_id: str | None) -> StreamedScan:
    """Returns the scan of a stream, which is read once to count its rows."""
    schema = plain_schema(stream.schema)
    # Its content is not known, so that an interrupted run is never taken for one of the same input.
    part = ScanFile(stream.name, "parquet", schema, 0, f"unknown {uuid.uuid4()}", (stream.count(),))
    return StreamedScan((part,), pa.fs.LocalFileSystem(), schema, row_id, stream)


IDS_COMPARED = 1 << 16
"""Different ids of which it is counted how often they occur: few enough to be sent for each run of rows. If
one of 10,000 ids repeats, as many contain one that does with a probability of .998."""


@dataclass(frozen=True)
class IdSample:
    """Those ids of some rows that have the smallest hashes, and how many rows have them.

    What is merged is the sample of all rows, and its counts are exact: an id that is among the smallest of
    all is among those of each part.
    """

    keys: Keys
    ids: RowIds
    counts: Integers

    @classmethod
    def empty(cls) -> "IdSample":
        """Returns the sample of no rows."""
        return cls(np.empty(0, np.uint64), np.empty(0, object), np.empty(0, np.int64))

    @classmethod
    def of(cls, keys: Keys, ids: RowIds, n_each: Integers) -> "IdSample":
        """Returns the sample of ids with these hashes, which may repeat and have these numbers of rows."""
        distinct, first, place = np.unique(keys, return_index=True, return_inverse=True)
        counts = np.zeros(len(distinct), dtype=np.int64)
        np.add.at(counts, place, n_each)
        return cls(distinct[:IDS_COMPARED], ids[first][:IDS_COMPARED], counts[:IDS_COMPARED])

    def merged(self, other: "IdSample") -> "IdSample":
        """Returns the sample of the rows of both."""
        ids = np.concatenate([self.ids.astype(object), other.ids.astype(object)])
        counts = np.concatenate([self.counts, other.counts])
        return self.of(np.concatenate([self.keys, other.keys]), ids, counts)


def sample_ids(table: Scan, start: int, stop: int) -> IdSample:
    """Returns the sample of the ids of a run of rows of a table whose rows have ids."""
    ids = table.row_ids(start, table.read(start, stop))
    return IdSample.of(id_keys(ids, 0), ids, np.ones(len(ids), dtype=np.int64))


def choose_rows(job: tuple[Scan, int, int], start: int, stop: int) -> pa.Table:
    """Returns those rows of a run of rows that are in a sample of a table; see `Scan.sample`."""
    table, n_rows, random_state = job
    chosen = [table.choose(first, block, n_rows, random_state) for first, block in table.blocks(start, stop)]
    return table.joined(chosen)


def scan(
    source: Any, row_id: str | None = None, *, filesystem: Any = None, delimiter: str | None = None
) -> Scan:
    r"""Opens csv, Parquet and Feather files, or a lazy table, as one table, without reading it into memory.

    A csv is read once, to find the places of its records and the types of its columns: a column is text
    unless all its cells are numbers, dates or booleans. Cells such as ``NA`` and empty ones are missing.

    Parameters
    ----------
    source : str, path, sequence of them, pyarrow.dataset.Dataset, or lazy table
        A file, a folder (with its subfolders), or a pattern with ``*``; also an address such as
        ``s3://bucket/folder``. Rows are numbered in the order of the sorted paths; those of a sequence or of
        a dataset keep its order. A lazy table is a polars LazyFrame, a relation of DuckDB or a Dask
        DataFrame. It is read from its beginning whenever its rows are needed, and once more to count them,
        by one process, and must give its rows in the same order each time.
    row_id : str, optional
        A column of integers or texts that identifies rows, from which draws are derived. By default rows are
        identified by their numbers, so that draws change if rows are inserted before them.
    filesystem : pyarrow.fs.FileSystem or fsspec file system, optional
        Where the files are; by default found from the address.
    delimiter : str, optional
        What separates the cells of a csv; by default found in its text.

    Returns
    -------
    Scan
        The table.

    Raises
    ------
    TableError
        A ValueError: a file cannot be read, or has other columns than the first.

    Examples
    --------
    >>> from pathlib import Path
    >>> import halfseen
    >>> _ = Path("scan-1.csv").write_text("a,b\n1,x\n2,\n"), Path("scan-2.csv").write_text("a,b\n,y\n")
    >>> table = halfseen.scan("scan-*.csv")
    >>> table
    Scan(2 files, 3 rows, 2 columns)
    >>> table.read(1, 3).to_pylist()
    [{'a': 2, 'b': None}, {'a': None, 'b': 'y'}]
    """
    stream = find_stream(source)
    if stream is not None:
        found: Scan = _streamed(stream, row_id)
    else:
        paths, filesystem = _find(source, filesystem)
        parts = tuple(inspect_file(path, filesystem, delimiter) for path in paths)
        found = Scan(parts, filesystem, _one_schema(parts), row_id)
    schema = found.schema
    if row_id is not None:
        if row_id not in schema.names:
            raise TableError(f"{found.files[0]}: there is no column {row_id!r} for row_id")
        dtype = schema.field(row_id).type
        if not (pa.types.is_integer(dtype) or pa.types.is_string(dtype) or pa.types.is_large_string(dtype)):
            raise TableError(f"column {row_id!r} is {dtype}; rows are identified by integers or texts")
    return found


def _one_schema(parts: Sequence[ScanFile]) -> pa.Schema:
    """Returns the columns of all files; raises an error that names the first file that differs."""
    merged = parts[0].schema
    for part in parts[1:]:
        names = set(part.schema.names)
        lacking = [name for name in merged.names if name not in names]
        extra = [name for name in part.schema.names if name not in set(merged.names)]
        if lacking or extra:
            what = f"lacks the column {lacking[0]!r}" if lacking else f"has a further column {extra[0]!r}"
            raise TableError(f"{part.path}: the file {what}, unlike {parts[0].path}; they are not one table")
        both_text = part.format == "csv" and parts[0].format == "csv"
        for field in merged:
            other = part.schema.field(field.name).type
            empty = pa.types.is_null(field.type) or pa.types.is_null(other)
            if field.type != other and not both_text and not empty:
                raise TableError(
                    f"{part.path}: column {field.name!r} is {other}, but {field.type} in {parts[0].path}; "
                    "they are not one table"
                )
        merged = merge_types(merged, part.schema)
    return merged


# ------------------------------------------------------------------------------------------ files


def _find(source: Any, filesystem: Any) -> tuple[list[str], Any]:
    """Returns the paths of files and their file system."""
    if isinstance(source, pa.dataset.FileSystemDataset):
        return list(source.files), source.filesystem
    if isinstance(source, pa.dataset.Dataset):
        raise TableError(f"a scan reads datasets of files, got {type(source).__name__}")
    if not isinstance(source, str | os.PathLike):
        if not isinstance(source, Sequence) or not source:
            raise TableError(
                "a scan reads a path, a pattern, a sequence of paths, a dataset or a lazy table, got "
                f"{source!r:.60}"
            )
        found = [_find(one, filesystem) for one in source]
        return [path for paths, _ in found for path in paths], found[0][1]
    address = os.fspath(source)
    place, filesystem = resolve(address, filesystem)
    if globbing.has_magic(place) and not _exists(filesystem, place):
        paths = _match(filesystem, place)
        if not paths:
            raise TableError(f"{address}: no file matches")
        return paths, filesystem
    info = filesystem.get_file_info(place)
    if info.type == pa.fs.FileType.Directory:
        paths = [path for path in _list(filesystem, place) if _is_table(path, place)]
        if not paths:
            raise TableError(f"{address}: the folder has no table files; known are {' '.join(FORMATS)}")
        return paths, filesystem
    if info.type == pa.fs.FileType.NotFound:
        raise TableError(f"{address}: there is no such file")
    format_of(place)
    return [place], filesystem


def resolve(address: str, filesystem: Any = None) -> tuple[str, Any]:
    """Returns the path and the file system of an address: that of a machine's own files, unless it says so.

    Parameters
    ----------
    address : str
        A path, or an address such as ``s3://bucket/folder``.
    filesystem : pyarrow.fs.FileSystem or fsspec file system, optional
        The file system, if it is known.
    """
    if filesystem is not None:
        if isinstance(filesystem, pa.fs.FileSystem):
            return address, filesystem
        return address, pa.fs.PyFileSystem(pa.fs.FSSpecHandler(filesystem))
    scheme, separator, rest = address.partition("://")
    if not separator:
        return address, pa.fs.LocalFileSystem()
    if scheme == "file":
        return rest, pa.fs.LocalFileSystem()
    try:
        found, path = pa.fs.FileSystem.from_uri(address)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        try:
            from fsspec.core import url_to_fs

            other, path = url_to_fs(address)
        except (ImportError, ValueError) as error:
            raise TableError(f"{address}: {str(error).splitlines()[0]}") from error
        found = pa.fs.PyFileSystem(pa.fs.FSSpecHandler(other))
    return path, found


def _exists(filesystem: Any, path: str) -> bool:
    return bool(filesystem.get_file_info(path).type != pa.fs.FileType.NotFound)


def _list(filesystem: Any, folder: str) -> list[str]:
    selector = pa.fs.FileSelector(folder, recursive=True)
    try:
        found = [info.path for info in filesystem.get_file_info(selector) if info.is_file]
    except OSError as error:
        raise TableError(f"{folder}: the files cannot be listed: {str(error).splitlines()[0]}") from error
    if isinstance(filesystem, pa.fs.LocalFileSystem):  # which passes over links to nothing
        every = (os.path.join(place, name) for place, _, names in os.walk(folder) for name in names)
        found += [path for path in every if not os.path.exists(path)]
    return sorted(found)


def _is_table(path: str, folder: str) -> bool:
    """Whether a file of a folder is a table; names that begin with a dot or an underscore are not."""
    names = PurePosixPath(path[len(folder) :]).parts
    return PurePosixPath(path.lower()).suffix in FORMATS and not any(name[0] in "._" for name in names)


def _match(filesystem: Any, pattern: str) -> list[str]:
    if isinstance(filesystem, pa.fs.LocalFileSystem):
        return sorted(path for path in globbing.glob(pattern, recursive=True) if not os.path.isdir(path))
    # not by the parts of a path, which has no two slashes as in http://
    plain = takewhile(lambda part: not globbing.has_magic(part), pattern.split("/"))
    found = _list(filesystem, "/".join(plain))
    return [path for path in found if PurePosixPath(path).match(pattern)]
