"""Lazy tables of other libraries, which are read as streams of Arrow: polars, DuckDB and Dask.

Nothing is imported from these libraries; a table is recognised by its class. Rows are identified by their
numbers, so that a stream must give them in the same order whenever it is read.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from halfseen.errors import TableError
from halfseen.words import plural

STREAM_ROWS = 1 << 16  # rows of a batch of a stream, as in the largest block


@dataclass
class Stream:
    """A table that can be read from its beginning as often as needed, but not from the middle."""

    name: str  # what it is, for messages
    schema: Any  # pyarrow.Schema: its columns
    open: Callable[[], Iterator[pa.Table]]  # returns an iterator over its rows, as tables

    def __post_init__(self) -> None:
        self._place = 0
        self._rest: pa.Table | None = None
        self._reader: Iterator[pa.Table] | None = None

    def __reduce__(self) -> Any:
        raise TableError(
            f"a {self.name} is read by one process: use the engine 'local' with n_workers=1, or write the "
            "table to Parquet files"
        )

    def count(self) -> int:
        """Returns the number of rows, for which the table is read once."""
        return sum(table.num_rows for table in self.open())

    def read(self, start: int, stop: int, n_rows: int) -> Iterator[pa.Table]:
        """Yields the rows from `start` to before `stop`, from where the last call ended if that is before.

        Parameters
        ----------
        start, stop : int
            The rows.
        n_rows : int
            The number of rows of the table, of which fewer are an error.
        """
        if self._reader is None or self._place > start:
            self._reader, self._place, self._rest = self.open(), 0, None
        while self._place < stop:
            table = self._rest if self._rest is not None else self._next()
            if table is None:
                raise TableError(
                    f"the {self.name} had {plural(n_rows, 'row')} when it was counted, and has "
                    f"{self._place:,} now"
                )
            low, high = max(start - self._place, 0), min(stop - self._place, table.num_rows)
            self._rest = table.slice(high) if high < table.num_rows else None
            self._place += min(high, table.num_rows)
            if low < high:
                yield table.slice(low, high - low)

    def _next(self) -> pa.Table | None:
        assert self._reader is not None
        try:
            return next(self._reader, None)
        except Exception as error:  # each library has its own
            self._reader = None
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise TableError(f"the {self.name} cannot be read: {reason}") from error


def find_stream(source: Any) -> Stream | None:
    """Returns the stream of a lazy table of another library; None if it is none.

    Parameters
    ----------
    source : object
        What a user gave to `halfseen.scan`.
    """
    library, name = type(source).__module__.partition(".")[0], type(source).__name__
    if library == "polars" and name == "LazyFrame":
        return _of_polars(source)
    if library in ("duckdb", "_duckdb") and name == "DuckDBPyRelation":
        return _of_duckdb(source)
    if library in ("dask", "dask_expr") and name == "DataFrame":
        return _of_dask(source)
    if library == "ray" and name in ("Dataset", "MaterializedDataset"):
        raise TableError(
            "the order of the rows of a Ray Dataset is not fixed, so that answers would depend on it: write "
            "it by its method write_parquet, and scan the files"
        )
    return None


def _of_polars(frame: Any) -> Stream:
    if not hasattr(frame, "collect_batches"):
        raise TableError("a scan of a polars LazyFrame needs polars 1.34 or later, or use its sink_parquet")

    def batches() -> Iterator[pa.Table]:
        for batch in frame.collect_batches(chunk_size=STREAM_ROWS, maintain_order=True):
            yield batch.to_arrow()

    empty = frame.head(0).collect().to_arrow()
    return Stream("polars LazyFrame", empty.schema, batches)


def _of_duckdb(relation: Any) -> Stream:
    setting = relation.query("relation", "SELECT current_setting('preserve_insertion_order')")
    if not setting.fetchall()[0][0]:
        raise TableError(
            "the setting preserve_insertion_order of DuckDB is false, so that the order of rows is not "
            "fixed: set it to true, or scan files"
        )

    def reader() -> Any:
        of = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
        return of(STREAM_ROWS)

    def batches() -> Iterator[pa.Table]:
        for batch in reader():
            yield pa.Table.from_batches([batch])

    return Stream("relation of DuckDB", reader().schema, batches)


def _of_dask(frame: Any) -> Stream:
    def batches() -> Iterator[pa.Table]:
        for number in range(frame.npartitions):
            part = frame.partitions[number].compute(scheduler="synchronous")
            yield pa.Table.from_pandas(part, preserve_index=False)

    first = pa.Table.from_pandas(frame._meta_nonempty.head(0), preserve_index=False)
    return Stream("Dask DataFrame", first.schema, batches)
