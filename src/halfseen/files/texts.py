"""The cells of a file as they are written, kept compressed from reading to writing."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

CELLS_AT_ONCE = 1 << 20  # whose texts are expanded together when the table is written
_EMPTY = pa.scalar("", pa.large_string())


@dataclass(frozen=True)
class CellTexts:
    """The cells of a table as they are written.

    They take more memory than the values and are needed again only when the table is written. So they are
    kept compressed, and a column or a block of rows at a time is expanded.

    Parameters
    ----------
    packed : dict of str to tuple of pyarrow.Buffer
        The compressed cells of each column, `block_rows` rows in each buffer.
    n_rows : int
        The number of rows of the file.
    block_rows : int
        The number of rows that are expanded together.
    aside : pyarrow.Array or None
        Which rows of the file are not records of the table, if there are such rows.

    Examples
    --------
    >>> texts = CellTexts.of(pa.table({"a": pa.array(["1.50", "Total"], pa.large_string())}), [False, True])
    >>> texts["a"].to_pylist()
    ['1.50']
    """

    packed: dict[str, tuple[pa.Buffer, ...]]
    n_rows: int
    block_rows: int
    aside: pa.Array | None = None

    @classmethod
    def of(cls, rows: pa.Table, aside: Iterable[bool] | None = None) -> "CellTexts":
        """Compress the cells of all rows of a file."""
        block_rows = max(1, CELLS_AT_ONCE // max(1, rows.num_columns))
        packed = {name: _pack(rows[name], block_rows) for name in rows.column_names}
        return cls(packed, rows.num_rows, block_rows, None if aside is None else pa.array(aside))

    @property
    def column_names(self) -> list[str]:
        """The names of the columns."""
        return list(self.packed)

    @cached_property
    def _is_record(self) -> pa.Array | None:
        return None if self.aside is None else pc.invert(self.aside)

    def __getitem__(self, name: str) -> pa.Array:
        """Return the cells of a column in the records of the table."""
        cells = pa.concat_arrays(
            [_unpack(buffer) for buffer in self.packed[name]] or [pa.array([], _EMPTY.type)]
        )
        return cells if self._is_record is None else cells.filter(self._is_record)

    def with_columns(self, columns: Mapping[str, pa.Array]) -> "CellTexts":
        """Return the cells with further or other columns, of which the cells in the records are given."""
        packed = dict(self.packed)
        for name, cells in columns.items():
            if self._is_record is not None:
                others = pa.repeat(_EMPTY, self.n_rows)
                if name in packed:
                    others = pa.concat_arrays([_unpack(buffer) for buffer in packed[name]])
                cells = pc.replace_with_mask(others, self._is_record, cells)
            packed[name] = _pack(cells, self.block_rows)
        return replace(self, packed=packed)

    def without(self, names: Iterable[str]) -> "CellTexts":
        """Return the cells without some columns."""
        left_out = set(names)
        return replace(self, packed={name: one for name, one in self.packed.items() if name not in left_out})

    def blocks(self) -> Iterator["TextBlock"]:
        """Yield consecutive rows of the file."""
        first = 0
        for number, start in enumerate(range(0, self.n_rows, self.block_rows)):
            cells = {name: _unpack(buffers[number]) for name, buffers in self.packed.items()}
            n_rows = min(self.block_rows, self.n_rows - start)
            is_record = None if self._is_record is None else self._is_record.slice(start, n_rows)
            last = first + (n_rows if is_record is None else is_record.true_count)
            yield TextBlock(cells, slice(first, last), is_record)
            first = last


@dataclass(frozen=True)
class TextBlock:
    """Some consecutive rows of a file as they are written.

    Parameters
    ----------
    cells : dict of str to pyarrow.Array
        The cells by column.
    records : slice
        The records of the table that these rows are.
    is_record : pyarrow.Array or None
        Which of the rows are records, if some are not.
    """

    cells: dict[str, pa.Array]
    records: slice
    is_record: pa.Array | None = None

    def of_records(self, name: str) -> pa.Array:
        """Return the cells of a column in the records."""
        return self.cells[name] if self.is_record is None else self.cells[name].filter(self.is_record)

    def with_records(self, name: str, cells: pa.Array) -> pa.Array:
        """Return the cells of a column in all rows, those in the records replaced."""
        return (
            cells if self.is_record is None else pc.replace_with_mask(self.cells[name], self.is_record, cells)
        )


def _pack(cells: pa.Array | pa.ChunkedArray, block_rows: int) -> tuple[pa.Buffer, ...]:
    return tuple(_pack_block(cells[start : start + block_rows]) for start in range(0, len(cells), block_rows))


def _pack_block(cells: pa.Array | pa.ChunkedArray) -> pa.Buffer:
    whole = cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells
    batch = pa.record_batch([whole], names=["cells"])
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1), use_threads=False)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _unpack(buffer: pa.Buffer) -> pa.Array:
    return pa.ipc.open_stream(buffer).read_next_batch().column(0)
