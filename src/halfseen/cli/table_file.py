"""A table that was read from a file, and what is needed to write it back in its own style."""

from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from halfseen.cli.cells import Style
from halfseen.cli.dialect import Dialect
from halfseen.cli.preamble import Preamble
from halfseen.cli.rules import Rules

Format = Literal["csv", "parquet", "feather"]


@dataclass(frozen=True)
class Surroundings:
    """What a text file holds beside the records of its table.

    Parameters
    ----------
    header : tuple of str
        The names of the columns as they are written.
    preamble : Preamble
        The lines above the header.
    rows : pyarrow.Table or None
        All rows of the file as they are written, if some are not records.
    aside : pyarrow.Array or None
        Which of these are not records.
    """

    header: tuple[str, ...]
    preamble: Preamble = field(default_factory=Preamble)
    rows: pa.Table | None = None
    aside: pa.Array | None = None


@dataclass(frozen=True)
class TableFile:
    """A table that was read, and what is needed to write it back in its own style.

    Parameters
    ----------
    table : pyarrow.Table
        The typed columns; a missing cell is null.
    source : str
        The name of the file, or ``standard input``.
    format : {"csv", "parquet", "feather"}
        What the file was.
    dialect : Dialect
        How its text was laid out; the default one for a binary format.
    text : pyarrow.Table or None
        The cells of the records as they were written, for a csv.
    styles : dict of str to Style
        How the cells of each column of a csv are written.
    notes : tuple of str
        What was decided while reading.
    kept : dict of str to pyarrow.Array
        Cells of a csv that are null in the table but not missing: no model sees them, and their text stays.
    settings : dict of str to object
        The schema settings for models: what was found while reading, under what the user said.
    rules : Rules
        What the user said about cells.
    surroundings : Surroundings or None
        What else the text of a csv holds.
    """

    table: pa.Table
    source: str
    format: Format
    dialect: Dialect = field(default_factory=Dialect)
    text: pa.Table | None = None
    styles: dict[str, Style] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    kept: dict[str, pa.Array] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    rules: Rules = field(default_factory=Rules)
    surroundings: Surroundings | None = None

    @property
    def n_missing(self) -> int:
        """The number of missing cells."""
        n_kept = sum(kept.true_count for kept in self.kept.values())
        return sum(column.null_count for column in self.table.columns) - n_kept
