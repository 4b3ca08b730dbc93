"""A column of a text table while it is being read: the column, decisions of the file, and the outcome."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from halfseen.files.cells import CellKind, Style
from halfseen.files.dates import Dates, Order
from halfseen.files.distinct import Integers
from halfseen.files.numbers import Numbers
from halfseen.files.rules import ColumnRules


@dataclass(frozen=True)
class Draft:
    """What is known about a column before the whole file has been considered.

    Parameters
    ----------
    name : str
        Its name.
    cells, trimmed : pyarrow.Array
        Its texts; and without blanks around them, null where missing.
    rules : ColumnRules
        The settings of the user.
    kind : str
        What it is if it is written the plain way.
    words : tuple
        Texts that mean missing, with their counts.
    spellings : tuple
        Texts that the user declared as missing in other spellings, with their counts.
    texts : pyarrow.DictionaryArray or None
        The cells as distinct texts, if they may be numbers or dates in disguise.
    counts : numpy.ndarray
        How many cells hold each.
    numbers : Numbers or None
        These texts as numbers.
    dates : tuple of Dates
        These texts as dates, by layouts.
    """

    name: str
    cells: pa.Array
    trimmed: pa.Array
    rules: ColumnRules
    kind: CellKind = "text"
    words: tuple[tuple[str, int], ...] = ()
    spellings: tuple[tuple[str, int], ...] = ()
    texts: pa.DictionaryArray | None = None
    counts: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    numbers: Numbers | None = None
    dates: tuple[Dates, ...] = ()


def line_below(row: int) -> int:
    """Return the line of a row in a file whose header is its first line and whose cells have no line ends."""
    return row + 2


@dataclass(frozen=True)
class Decision:
    """How the whole file determines the reading of a column.

    Parameters
    ----------
    decimal : str or None
        The decimal mark that columns agree on, or the user specifies.
    order : str or None
        The order of dates that the user specifies.
    delimiter : str
        What separates the cells.
    line_of : callable
        Returns the line of the file in which a row begins.
    declared_decimal : bool
        Whether the user specifies it.
    orders : dict of str to frozenset of str
        The orders of dates that the cells of each column prove.
    as_written : bool
        Whether numbers are as somebody wrote them. If they come from a format that has numbers, a point in
        them is a decimal point.
    """

    decimal: str | None
    order: Order | None
    delimiter: str
    line_of: Callable[[int], int]
    declared_decimal: bool = False
    orders: Mapping[str, frozenset[Order]] = field(default_factory=dict)
    as_written: bool = False

    def order_beside(self, name: str) -> Order | None:
        """Return the order of dates that the columns other than one agree on."""
        proved = {order for other, orders in self.orders.items() if other != name for order in orders}
        return proved.pop() if len(proved) == 1 else None


@dataclass(frozen=True)
class Outcome:
    """The result of reading a column.

    Parameters
    ----------
    typed : pyarrow.Array
        Its values; null where missing, or where models must not see the cell.
    style : Style
        How its cells are written.
    kept : pyarrow.Array or None
        The cells whose text stays although models do not see it.
    placeholders : pyarrow.Array or None
        Values that models do not see, such as 999 or 9999-12-31; null elsewhere.
    settings : dict
        Its settings of the schema.
    formats : tuple of str
        What is unusual about its cells, in words.
    notes : tuple of str
        Sentences about it.
    words : tuple
        Texts that are read as missing although nobody said so, with their counts.
    """

    typed: pa.Array
    style: Style
    kept: pa.Array | None = None
    placeholders: pa.Array | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    formats: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    words: tuple[tuple[str, int], ...] = ()
