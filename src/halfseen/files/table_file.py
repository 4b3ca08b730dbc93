"""A table that was read from a file, with the texts of its cells, and what is needed to write it back.

It becomes a frame of pandas, polars or pyarrow, and frames of these become tables again.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from typing import Any, Literal

import narwhals as nw
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from halfseen.errors import TableError
from halfseen.files.dialect import Dialect, Preamble
from halfseen.files.distinct import EMPTY, kind_of
from halfseen.files.formats import Style
from halfseen.files.rules import Rules
from halfseen.words import Note

Backend = Literal["pandas", "polars", "pyarrow"]

_BACKENDS = ("pandas", "polars", "pyarrow")


def check_backend(backend: str | None) -> None:
    """Refuse a library of frames that is unknown or not installed."""
    if backend is not None and backend not in _BACKENDS:
        raise TableError(f"unknown backend {backend!r}; choose from {', '.join(_BACKENDS)}")
    if backend is not None and find_spec(backend) is None:
        raise TableError(f"backend {backend!r} is not installed; pip install {backend}")


def check_names(names: Sequence[str], source: str) -> None:
    """Refuse names of columns that are not unique."""
    places: dict[str, int] = {}
    for place, name in enumerate(names, start=1):
        if name in places:
            raise TableError(
                f"{source}: duplicate column names: columns {places[name]} and {place} are both called "
                f"{name!r}; names must be unique"
            )
        places[name] = place


def to_frame(table: pa.Table, backend: Backend | None) -> Any:
    """Return a table as a frame of a library; by default of pandas if it is installed, else of pyarrow.

    pandas has no missing values in its usual columns of integers and booleans. Such columns become
    ``Int64`` and ``boolean`` if cells are missing, because a conversion to floats would change whole numbers
    beyond 2**53. Dates become ``datetime64``.
    """
    check_backend(backend)
    if backend is None:
        backend = "pandas" if find_spec("pandas") is not None else "pyarrow"
    if backend == "pyarrow":
        return table
    if backend == "polars":
        import polars as pl

        return pl.DataFrame(table)
    import pandas as pd

    columns = {
        name: column.to_pandas(date_as_object=False, types_mapper=_nullable if column.null_count else None)
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    return pd.DataFrame(columns, index=pd.RangeIndex(table.num_rows))


def _nullable(dtype: pa.DataType) -> Any:
    """Return the dtype of pandas with missing values for integers and booleans, None for other types."""
    import pandas as pd

    if pa.types.is_boolean(dtype):
        return pd.BooleanDtype()
    if pa.types.is_integer(dtype):
        name = str(dtype)
        return pd.api.types.pandas_dtype(
            name.replace("uint", "UInt") if name[0] == "u" else name.capitalize()
        )
    return None


def to_arrow(frame: Any) -> pa.Table:
    """Return a frame of a user as a table of pyarrow, without the index of pandas."""
    if isinstance(frame, pa.Table):
        return frame
    names = list(getattr(frame, "columns", ()))
    check_names(names, "the table")  # before narwhals, which names no positions
    try:
        eager = nw.from_native(frame, eager_only=True)
    except TypeError:
        raise TableError(
            f"a table must be a frame of pandas, polars or pyarrow, got {type(frame).__name__}"
        ) from None
    if not eager.implementation.is_pandas_like():
        return eager.to_arrow()
    for name in names:
        if not isinstance(name, str):
            raise TableError(f"column {name!r} of the frame has no text as its name; rename it")
    arrays = []
    for place, name in enumerate(names):
        try:
            arrays.append(pa.Array.from_pandas(frame.iloc[:, place]))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise TableError(
                f"column {name!r} of the frame holds values of several types: {str(error).splitlines()[0]}"
            ) from None
    return pa.Table.from_arrays(arrays, names=names)


def has_other_rows(frame: Any, rows: npt.NDArray[np.int64]) -> bool:
    """Return whether the index of a pandas frame shows that its rows are not those of a file in their order.

    Frames of polars and pyarrow, and a pandas frame whose index was made anew, do not show it.

    Parameters
    ----------
    frame : frame
        The frame of a user.
    rows : numpy.ndarray
        The rows of the file.
    """
    if not nw.from_native(frame, eager_only=True).implementation.is_pandas_like():
        return False
    labels = np.asarray(frame.index)
    if labels.dtype.kind not in "iu" or len(labels) != len(rows):
        return False  # the user set another index, such as names; a number of rows is compared elsewhere
    return not np.array_equal(labels, rows) and not np.array_equal(labels, np.arange(len(labels)))


# ----------------------------------------------------------------------------- the cells as they are written

CELLS_AT_ONCE = 1 << 20  # cells whose texts are expanded together when a table is written; a guess


@dataclass(frozen=True)
class CellTexts:
    """The cells of a table as they are written.

    They take more memory than the values and are needed again only when the table is written. So they are
    kept compressed, and a column or a block of rows at a time is expanded.

    Parameters
    ----------
    packed : dict of str to tuple of pyarrow.Buffer or pyarrow.Array
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

    packed: dict[str, tuple[pa.Buffer | pa.Array, ...]]
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
            [_unpack(buffer) for buffer in self.packed[name]] or [pa.array([], EMPTY.type)]
        )
        return cells if self._is_record is None else cells.filter(self._is_record)

    def with_columns(self, columns: Mapping[str, pa.Array]) -> "CellTexts":
        """Return the cells with further or other columns, of which the cells in the records are given."""
        packed = dict(self.packed)
        for name, cells in columns.items():
            if self._is_record is not None:
                others = pa.repeat(EMPTY, self.n_rows)
                if name in packed:
                    others = pa.concat_arrays([_unpack(buffer) for buffer in packed[name]])
                cells = pc.replace_with_mask(others, self._is_record, cells)
            packed[name] = _pack(cells, self.block_rows)
        return replace(self, packed=packed)

    def select(self, names: Iterable[str]) -> "CellTexts":
        """Return the cells of some columns, in the order given."""
        return replace(self, packed={name: self.packed[name] for name in names})

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
    """Some consecutive rows of a file as they are written."""

    cells: dict[str, pa.Array]  # the cells by column
    records: slice  # the records of the table that these rows are
    is_record: pa.Array | None = None  # which of the rows are records, if some are not

    def of_records(self, name: str) -> pa.Array:
        """Return the cells of a column in the records."""
        return self.cells[name] if self.is_record is None else self.cells[name].filter(self.is_record)

    def with_records(self, name: str, cells: pa.Array) -> pa.Array:
        """Return the cells of a column in all rows, those in the records replaced."""
        return (
            cells if self.is_record is None else pc.replace_with_mask(self.cells[name], self.is_record, cells)
        )


SMALL_COLUMN = 1 << 14
"""Columns of at most this many bytes are kept as they are. A guess: compression saves little here, and with
thousands of short columns it takes most of the time of reading."""


def _pack(cells: pa.Array | pa.ChunkedArray, block_rows: int) -> tuple[pa.Buffer | pa.Array, ...]:
    if cells.nbytes <= SMALL_COLUMN:
        whole = cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells
        return tuple(whole[start : start + block_rows] for start in range(0, len(whole), block_rows))
    return tuple(_pack_block(cells[start : start + block_rows]) for start in range(0, len(cells), block_rows))


def _pack_block(cells: pa.Array | pa.ChunkedArray) -> pa.Buffer:
    whole = cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells
    batch = pa.record_batch([whole], names=["cells"])
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1), use_threads=False)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _unpack(packed: pa.Buffer | pa.Array) -> pa.Array:
    if isinstance(packed, pa.Array):
        return packed
    return pa.ipc.open_stream(packed).read_next_batch().column(0)


# ------------------------------------------------------------------------------------------ the table

Format = Literal["csv", "parquet", "feather", "jsonl", "xlsx"]


@dataclass(frozen=True)
class Surroundings:
    """What a text file contains besides the rows of its table."""

    header: tuple[str, ...]  # the names of the columns as they are written
    preamble: Preamble = field(default_factory=Preamble)  # the lines above the header
    footer: str = ""  # the lines below the table, as they are written


@dataclass(frozen=True)
class SheetOrigin:
    """Where a table was in a workbook."""

    workbook: bytes | None  # the content of the file, of which an output is a copy; None if it cannot be
    title: str  # the name of the sheet
    header_row: int  # the row of the names, counted from 1
    rows: npt.NDArray[np.int64]  # the rows of the records, counted from 1
    columns: dict[str, int]  # the columns of the sheet, counted from 1
    kinds: dict[str, npt.NDArray[np.int8]]  # what each cell is, as in `halfseen.files.spreadsheet`
    # The columns whose cells are mostly text, even if it can be read as numbers or dates.
    texts: frozenset[str]


@dataclass(frozen=True)
class FileColumn:
    """What was recognised about a column of a file.

    Parameters
    ----------
    name : str
        Its name.
    kind : {"integer", "float", "boolean", "date", "timestamp", "text"}
        What its cells are.
    example : str or None
        The first of its cells with a value, as it is written; None if there is none.
    style : Style or None
        The format in which its cells are written: decimals, separators, currency or unit, the order of dates
        and so on. None in a file whose columns have types.
    n_missing : int
        The number of missing cells.
    missing_codes : dict of str to int
        The texts that were read as missing, with the number of cells that hold each; without empty cells.
    kept : dict of str to int
        The texts of cells that are null in the frame although they are not missing: placeholders such as 999,
        and cells that are no numbers in a column of numbers. No model sees them and `write_table` writes them
        again.
    """

    name: str
    kind: str
    example: str | None
    style: Style | None
    n_missing: int
    missing_codes: dict[str, int]
    kept: dict[str, int]


@dataclass(frozen=True)
class TableFile:
    """A table that was read from a file, what was recognised in it, and what is needed to write it back.

    `read_table` returns it. ``frame`` is the table; ``columns`` is what was recognised about each column.

    Parameters
    ----------
    table : pyarrow.Table
        The typed columns; a missing cell is null.
    source : str
        The name of the file, or ``standard input``.
    format : {"csv", "parquet", "feather", "jsonl", "xlsx"}
        What the file was.
    dialect : Dialect
        How its text was laid out; the default one for a binary format.
    text : CellTexts or None
        The cells as they were written, for a csv.
    styles : dict of str to Style
        How the cells of each column of a csv are written.
    notes : tuple of Note
        What was decided while reading.
    kept : dict of str to pyarrow.Array
        Cells that are null in the table but not missing: no model sees them, and they stay as written.
    settings : dict of str to object
        The schema settings for models: what was found while reading, overridden by what the user specified.
    rules : Rules
        How the user wants cells to be read.
    surroundings : Surroundings or None
        What else the text of a csv holds.
    placeholders : dict of str to pyarrow.Array
        Values that are kept and that no model sees, such as 999 or 9999-12-31; null elsewhere.
    literals : CellTexts or None
        The values of JSON lines as they are written in JSON; null where a key is absent.
    sheet : SheetOrigin or None
        Where the table was in a workbook.
    held : dict of str to pyarrow.Array
        Missing cells that stay empty whatever a model says: results of formulas, merged cells, blank rows.
    erased : dict of str to pyarrow.Array
        Cells that had a value which the user removed; `write_table` knows them.
    backend : {"pandas", "polars", "pyarrow"} or None
        The library of ``frame``.
    rows : numpy.ndarray or None
        The rows of the file that `take` has taken.
    """

    table: pa.Table
    source: str
    format: Format
    dialect: Dialect = field(default_factory=Dialect)
    text: CellTexts | None = None
    styles: dict[str, Style] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    kept: dict[str, pa.Array] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    rules: Rules = field(default_factory=Rules)
    surroundings: Surroundings | None = None
    placeholders: dict[str, pa.Array] = field(default_factory=dict)
    literals: CellTexts | None = None
    sheet: SheetOrigin | None = None
    held: dict[str, pa.Array] = field(default_factory=dict)
    erased: dict[str, pa.Array] = field(default_factory=dict)
    backend: Backend | None = None
    rows: npt.NDArray[np.int64] | None = None

    def __repr__(self) -> str:
        n_rows, n_columns = self.table.shape
        return f"<TableFile {self.source!r} ({self.format}): {n_rows:,} rows, {n_columns:,} columns>"

    @cached_property
    def frame(self) -> Any:
        """The table as a frame of ``backend``; null where a cell is missing, or where no model may see it."""
        return to_frame(self.table, self.backend)

    @cached_property
    def columns(self) -> dict[str, FileColumn]:
        """What was recognised about each column, by name."""
        return {name: self._describe_column(name) for name in self.table.column_names}

    def _describe_column(self, name: str) -> FileColumn:
        values = self.table[name].combine_chunks()
        missing, kept = values.is_null(), self.kept.get(name)
        if kept is not None:
            missing = pc.and_not(missing, kept)
        if self.text is not None:
            texts = pc.utf8_trim_whitespace(pc.fill_null(self.text[name], ""))
        else:  # the codes of typed columns were values, of which placeholders alone are left
            shown = pc.coalesce(self.placeholders[name], values) if name in self.placeholders else values
            texts = _spell_values(shown)
        observed = texts.filter(values.is_valid())
        style = self.styles.get(name)
        return FileColumn(
            name,
            kind_of(values.type) if style is None else style.kind,
            observed[0].as_py() if len(observed) else None,
            style,
            missing.true_count,
            _count_texts(texts.filter(missing)),
            {} if kept is None else _count_texts(texts.filter(kept)),
        )

    def take(self, rows: Sequence[int]) -> "TableFile":
        """Return some rows of the file, in the order given, with the formats of all.

        A frame from which rows were removed, or whose rows were sorted, is written with
        ``write_table(frame, path, like=file.take(rows))``. Lines that are not records stay behind, and a
        spreadsheet is written as a new one.

        Parameters
        ----------
        rows : sequence of int
            The positions of the rows in the file, from 0: for a frame of pandas, its index.
        """
        places = pa.array(np.asarray(rows, dtype=np.int64))
        if len(places) and not 0 <= pc.min(places).as_py() <= pc.max(places).as_py() < self.table.num_rows:
            raise TableError(f"rows must be from 0 to {self.table.num_rows - 1:,}, the rows of {self.source}")
        masks: dict[str, Any] = {
            key: {name: cells.take(places) for name, cells in getattr(self, key).items()}
            for key in ("kept", "placeholders", "held", "erased")
        }
        texts, literals = (
            None if cells is None else CellTexts.of(
                pa.table([cells[name].take(places) for name in cells.column_names], names=cells.column_names)
            )
            for cells in (self.text, self.literals)
        )  # fmt: skip
        return replace(
            self,
            table=self.table.take(places),
            text=texts,
            literals=literals,
            sheet=None,
            rows=places.to_numpy(),
            **masks,
        )

    @property
    def n_missing(self) -> int:
        """The number of missing cells."""
        n_kept = sum(cells.true_count for cells in (*self.kept.values(), *self.held.values()))
        return sum(column.null_count for column in self.table.columns) - n_kept

    @property
    def decimal_mark(self) -> str | None:
        """What separates decimals in all columns of a csv that have them; None if no column has."""
        styles = [style for style in self.styles.values() if style.kind == "float"]
        marks = {"." if style.number is None else style.number.decimal for style in styles}
        return "," if marks == {","} else "." if marks else None

    def to_write(self, table: pa.Table) -> pa.Table:
        """Return a completed table with the values that no model sees, and without those that stay empty."""
        for name, cells in self.held.items():
            place = table.column_names.index(name)
            values = pc.if_else(cells, pa.scalar(None, table[name].type), table[name])
            table = table.set_column(place, name, values)
        return self.with_placeholders(table)

    def with_placeholders(self, table: pa.Table) -> pa.Table:
        """Return a table of these columns with the values that no model sees."""
        for name, values in self.placeholders.items():
            place = table.column_names.index(name)
            table = table.set_column(place, name, pc.coalesce(values, table[name]))
        return table

    def keeps_texts(self, name: str) -> bool:
        """Return whether a column has cells to keep that only text can hold."""
        if self.sheet is not None and name in self.sheet.texts:
            return True
        kept, values = self.kept.get(name), self.placeholders.get(name)
        if kept is None:
            return False
        return kept.true_count > (0 if values is None else len(values) - values.null_count)

    def as_written(self) -> "TableFile":
        """Return the file with a table in which placeholders such as 9999-12-31 are values like others."""
        kept = {
            name: pc.and_not(kept, self.placeholders[name].is_valid()) if name in self.placeholders else kept
            for name, kept in self.kept.items()
        }
        return replace(self, table=self.with_placeholders(self.table), kept=kept, placeholders={})


def _spell_values(values: pa.Array) -> pa.Array:
    """Return typed values as texts, null where they have none, such as lists and bytes."""
    values = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    try:
        return values.cast(pa.large_string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return pa.nulls(len(values), pa.large_string())


def _count_texts(texts: pa.Array) -> dict[str, int]:
    """Return how many cells hold each text, the most frequent first, without the empty text and null."""
    counts = Counter(text for text in texts.to_pylist() if text)
    return dict(counts.most_common())
