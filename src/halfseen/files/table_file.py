"""A table that was read from a file, and what is needed to write it back in its own style."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from halfseen.files.cells import Style
from halfseen.files.dialect import Dialect
from halfseen.files.preamble import Preamble
from halfseen.files.rules import Rules
from halfseen.files.texts import CellTexts

Format = Literal["csv", "parquet", "feather", "jsonl", "xlsx"]


@dataclass(frozen=True)
class Surroundings:
    """What a text file contains besides the rows of its table.

    Parameters
    ----------
    header : tuple of str
        The names of the columns as they are written.
    preamble : Preamble
        The lines above the header.
    footer : str
        The lines below the table, as they are written.
    """

    header: tuple[str, ...]
    preamble: Preamble = field(default_factory=Preamble)
    footer: str = ""


@dataclass(frozen=True)
class SheetOrigin:
    """Where a table was in a workbook.

    Parameters
    ----------
    workbook : bytes or None
        The content of the file, of which an output is a copy; None if it cannot be.
    title : str
        The name of the sheet.
    header_row : int
        The row of the names, counted from 1; the rows of the table follow it.
    columns : dict of str to int
        The columns of the sheet, counted from 1.
    kinds : dict of str to numpy.ndarray
        What each cell is, as in `halfseen.files.sheet_cells`.
    texts : frozenset of str
        The columns whose cells are mostly text, even if it can be read as numbers or dates.
    """

    workbook: bytes | None
    title: str
    header_row: int
    columns: dict[str, int]
    kinds: dict[str, npt.NDArray[np.int8]]
    texts: frozenset[str]


@dataclass(frozen=True)
class TableFile:
    """A table that was read, and what is needed to write it back in its own style.

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
    notes : tuple of str
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
    """

    table: pa.Table
    source: str
    format: Format
    dialect: Dialect = field(default_factory=Dialect)
    text: CellTexts | None = None
    styles: dict[str, Style] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    kept: dict[str, pa.Array] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    rules: Rules = field(default_factory=Rules)
    surroundings: Surroundings | None = None
    placeholders: dict[str, pa.Array] = field(default_factory=dict)
    literals: CellTexts | None = None
    sheet: SheetOrigin | None = None
    held: dict[str, pa.Array] = field(default_factory=dict)

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
