"""Reads tables of any library as numbers with a mask, for mechanisms.

Arrays and tensors are numbers already. In a frame, numbers count as themselves, booleans as 0 and 1, dates
and durations as microseconds, and text and categories as the position of their level: in the order that the
dtype declares, else sorted. Levels are learned in `fit`; a level that did not occur there has no number.
"""

import datetime
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from halfseen._arrays import Floats, Integers
from halfseen.data.columns import Column, check_finite
from halfseen.data.frames import RawColumn, Table, is_frame, put_nulls
from halfseen.data.incomplete import unmask
from halfseen.data.schema import infer_columns
from halfseen.errors import SchemaError
from halfseen.missingness.calibration import LARGEST, SMALLEST

Columns = str | int | Sequence[str | int]
Positions = Integers


class OpenTable:
    """A user's frame, array or tensor, opened for a mechanism.

    Parameters
    ----------
    X : frame, array-like or tensor
        Two axes, rows and columns; arrays and tensors with `batched` may have more, of which the last is the
        columns and the others count as rows.
    batched : bool, default=False
        Whether more or fewer than two axes are allowed.
    """

    def __init__(self, X: Any, *, batched: bool = False) -> None:
        X = unmask(X)
        self.native = X
        self.framed = not isinstance(X, Tensor | np.ndarray) and is_frame(X)
        if self.framed:
            self._table = Table(X)
            self.names = self._table.names
            self.batch: tuple[int, ...] = (self._table.n_rows,)
            self._values = None
        else:
            values = _as_values(X)
            if values.ndim != 2 and not (batched and values.ndim):
                raise ValueError(f"X must have two axes, rows and columns, got shape {tuple(values.shape)}.")
            self.batch = tuple(values.shape[:-1])
            self._values = values.reshape(-1, values.shape[-1])
            self.names = tuple(f"x{j}" for j in range(values.shape[-1]))
        self.n_rows = int(np.prod(self.batch))
        self.n_features = len(self.names)

    def present(self) -> Tensor:
        """Returns which values are not missing, (N, D)."""
        if self._values is not None:
            return ~self._values.isnan()
        return torch.from_numpy(~self._table.missing())

    def numbers(self) -> Tensor | None:
        """Returns the values of an array or tensor as they are, (N, D); None for a frame."""
        return self._values

    def raw(self, position: int) -> RawColumn:
        """Returns one column of a frame as it was read."""
        return self._table.column(position)

    def labelled(self, positions: Sequence[int]) -> dict[int, Column]:
        """Returns what those of some columns of a frame are that contain text or categories."""
        texts = [j for j in positions if self.framed and self.raw(j).storage == "label"]
        found = infer_columns(self._table, positions=texts) if texts else ()
        return {j: column for j, (_, column) in zip(texts, found, strict=True)}

    def wrap(self, result: Tensor) -> Any:
        """Returns a result in the caller's library: a tensor for a tensor, else a numpy array."""
        shaped = result.reshape((*self.batch, *result.shape[1:]))
        return shaped if isinstance(self.native, Tensor) else shaped.detach().cpu().numpy()

    def with_missing(self, hidden: Tensor, affected: Positions) -> Any:
        """Returns a copy of the table in which some values are missing."""
        if self.framed:
            return put_nulls(self.native, hidden.cpu().numpy(), affected.tolist())
        if isinstance(self.native, Tensor):
            values = self.native if self.native.is_floating_point() else self.native.to(torch.float64)
            return torch.where(hidden.reshape(values.shape), torch.nan, values)
        array = np.asarray(self.native)
        dtype = array.dtype if array.dtype.kind == "f" else np.dtype(np.float64)
        return np.where(hidden.cpu().numpy(), dtype.type(np.nan), array.astype(dtype))

    def positions(self, columns: Columns, parameter: str = "columns") -> Positions:
        """Returns the positions of columns that are given by name or position; names come first."""
        listed = [columns] if isinstance(columns, str | int | np.integer) else list(columns)
        found = [self._position(column, parameter) for column in listed]
        repeated = [self.names[j] for j in found if found.count(j) > 1]
        if repeated:
            raise ValueError(f"{parameter} names {repeated[0]!r} more than once.")
        return np.array(found, dtype=np.int64)

    def _position(self, column: Any, parameter: str) -> int:
        if self.framed and str(column) in self.names:
            return self.names.index(str(column))
        if isinstance(column, int | np.integer) and not isinstance(column, bool):
            if -self.n_features <= column < self.n_features:
                return int(column) % self.n_features
            raise ValueError(f"{parameter} contains {column!r}, but X has {self.n_features} columns.")
        what = (
            f"columns {', '.join(map(repr, self.names[:8]))}" if self.framed else "no names, only positions"
        )
        raise ValueError(f"{parameter} contains {column!r}, but X has {what}.")


class Coder:
    """Converts the columns of the fitted table to numbers.

    Parameters
    ----------
    table : OpenTable
        The table that a mechanism is fitted on.
    needed : iterable of int
        The columns whose values the mechanism reads; the others are zeros.

    Attributes
    ----------
    unreadable : frozenset of int
        Columns among `needed` whose text has no useful order, because nearly every row has a different value.
    fill : array of shape (D,)
        The mean of each column that is read.
    """

    def __init__(self, table: OpenTable, needed: Iterable[int]) -> None:
        self.names, self.framed, self.n_features = table.names, table.framed, table.n_features
        wanted = sorted({int(j) for j in needed})
        self.labelled = table.labelled(wanted)
        self.unreadable = frozenset(
            j for j, column in self.labelled.items() if column.kind in ("identifier", "text")
        )
        self.needed = [j for j in wanted if j not in self.unreadable]
        self.fill = np.zeros(self.n_features)
        self.fill = np.array([_mean(values) for values in self.codes(table).detach().cpu().numpy().T])

    def check(self, table: OpenTable) -> None:
        """Raises unless a table has the columns that the mechanism was fitted on."""
        if table.n_features != self.n_features:
            raise SchemaError(f"X has {table.n_features} columns; in fit it had {self.n_features}.")
        if table.framed and self.framed:
            for j, (now, before) in enumerate(zip(table.names, self.names, strict=True)):
                if now != before:
                    raise SchemaError(f"Column {j} of X is {now!r}; in fit it was {before!r}.")

    def codes(self, table: OpenTable) -> Tensor:
        """Returns the columns that are read as numbers (N, D), NaN where missing; 0 in other columns."""
        self.check(table)
        numbers = table.numbers()
        if numbers is not None:
            for j in self.needed:
                check_finite(_as_column(numbers[:, j], table.names[j]))
            return numbers
        codes = np.zeros((table.n_rows, self.n_features))
        for j in self.needed:
            codes[:, j] = self._code(j, table.raw(j))
        return torch.from_numpy(codes)

    def code_of(self, position: int, value: Any, parameter: str) -> float:
        """Returns the number of a value that a user gave for a column."""
        column = self.labelled.get(position)
        if column is not None:
            levels = column.levels or ()
            for i, level in enumerate(levels):
                if level == value or str(level) == str(value):
                    return float(i)
            shown = ", ".join(map(repr, levels[:8]))
            raise ValueError(
                f"{parameter}: column {self.names[position]!r} has no {value!r}; it has {shown}."
            )
        if isinstance(value, datetime.timedelta):
            return value / datetime.timedelta(microseconds=1)
        try:
            if isinstance(value, str | datetime.date | np.datetime64):
                return float(np.array(value, dtype="datetime64[us]").astype(np.int64))
            return float(value)
        except (TypeError, ValueError):
            name = self.names[position]
            raise ValueError(f"{parameter}: column {name!r} cannot be compared with {value!r}.") from None

    def _code(self, position: int, raw: RawColumn) -> Floats:
        column = self.labelled.get(position)
        if column is not None:
            return column.encode(raw)
        check_finite(raw)
        if raw.storage == "label":
            raise SchemaError(
                f"Column {raw.name!r} contained numbers in fit, but now it contains {raw.labels[0]!r}."
            )
        return raw.values


def _as_values(X: Any) -> Tensor:
    if isinstance(X, Tensor):
        return X if X.is_floating_point() else X.to(torch.float64)
    try:
        array = np.asarray(X)
        return torch.from_numpy(np.array(array, dtype=np.float64))
    except (TypeError, ValueError):
        kind = type(X).__name__
        raise ValueError(
            f"X must contain numbers, or be a data frame; a {kind} with other values cannot be read."
        ) from None


def _as_column(values: Tensor, name: str) -> RawColumn:
    array = values.detach().cpu().numpy()
    return RawColumn(name, str(array.dtype), "number", array)


def check_not_extreme(values: Tensor, name: str) -> None:
    """Raises if the squares of a column, which some mechanisms compute, would overflow."""
    largest = float(values.nan_to_num(0.0).abs().max()) if len(values) else 0.0
    if largest > LARGEST or 0.0 < largest < SMALLEST:
        raise SchemaError(
            f"Column {name!r} contains numbers up to {largest:.3g} in size, but this mechanism computes with "
            f"numbers from {SMALLEST:g} to {LARGEST:g}. Express the column in another unit."
        )


def _mean(values: Floats) -> float:
    seen = values[~np.isnan(values)]
    with np.errstate(over="ignore", invalid="ignore"):  # for numbers with which no mechanism computes
        return float(seen.mean()) if len(seen) else 0.0
