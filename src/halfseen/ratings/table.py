"""The boundary of recommenders: tables of ratings are converted to identifiers and a sparse matrix.

Sparse rows, of which only the observed entries are stored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch
from torch import Tensor

from halfseen._arrays import Floats, Integers
from halfseen.data.frames import RawColumn, Table, is_frame
from halfseen.errors import SchemaError


@dataclass(frozen=True)
class SparseRows:
    r"""Rows of which the observed entries are stored, in the layout of a CSR matrix.

    Stored entries are observed, also if their value is zero. Rows stay sparse when they are indexed, so a
    rating matrix never becomes dense.

    Parameters
    ----------
    starts : Tensor of shape (N + 1,), int32
        Where the entries of each row begin.
    columns : Tensor of shape (number of entries,), int32
        The columns of the entries.
    values : Tensor of shape (number of entries,)
        The observed values.
    n_columns : int
        The number of columns :math:`D`.

    Examples
    --------
    >>> rows = SparseRows.from_scipy(scipy.sparse.csr_array([[0.0, 2.0], [3.0, 4.0], [0.0, 0.0]]))
    >>> rows.counts
    tensor([1, 2, 0], dtype=torch.int32)
    >>> rows[torch.tensor([1, 0])].values
    tensor([3., 4., 2.])
    """

    starts: Tensor
    columns: Tensor
    values: Tensor
    n_columns: int

    @classmethod
    def from_scipy(cls, matrix: scipy.sparse.csr_array, dtype: torch.dtype = torch.float32) -> "SparseRows":
        """Reads a CSR matrix, with its stored zeros; the memory is not shared."""
        return cls(
            torch.tensor(matrix.indptr, dtype=torch.int32),
            torch.tensor(matrix.indices, dtype=torch.int32),
            torch.tensor(matrix.data, dtype=dtype),
            matrix.shape[1],
        )

    @cached_property
    def counts(self) -> Tensor:
        """The number (N) of observed entries of each row."""
        return self.starts[1:] - self.starts[:-1]

    @cached_property
    def rows(self) -> Tensor:
        """The row of each entry, as int64."""
        return torch.repeat_interleave(torch.arange(len(self), device=self.starts.device), self.counts)

    @cached_property
    def _matrix(self) -> scipy.sparse.csr_array:
        """The same entries for scipy, whose rows are chosen by one pass over their entries."""
        layout = (self.values.numpy(), self.columns.numpy(), self.starts.numpy())
        return scipy.sparse.csr_array(layout, shape=(len(self), self.n_columns))

    @cached_property
    def transposition(self) -> tuple[Tensor, Tensor, Tensor]:
        """The layout of the transposed matrix: starts (D + 1), rows by column, and the order of entries."""
        if self.columns.device.type != "cpu":
            columns, places = self.columns.sort(stable=True)
            ends = torch.arange(self.n_columns + 1, device=columns.device, dtype=columns.dtype)
            starts = torch.searchsorted(columns, ends, out_int32=True)
            return starts, self.rows.index_select(0, places).to(torch.int32), places
        n_entries = len(self.values)
        order = np.arange(n_entries, dtype=np.int32)
        shape = (len(self), self.n_columns)
        layout = (order, self.columns.numpy(), self.starts.numpy())
        turned = scipy.sparse.csr_array(layout, shape=shape).tocsc()
        as_tensor = torch.from_numpy
        return (
            as_tensor(turned.indptr.astype(np.int32, copy=False)),
            as_tensor(turned.indices.astype(np.int32, copy=False)),
            as_tensor(turned.data).long(),
        )

    @classmethod
    def checked(cls, starts: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> "SparseRows":
        """Returns rows built from untrusted tensors; raises a ValueError if these are inconsistent."""
        n_rows, n_columns = shape
        is_layout = starts.dtype == columns.dtype == torch.int32 and values.dtype == torch.float32
        if not is_layout or starts.shape != (n_rows + 1,) or columns.shape != values.shape != ():
            raise ValueError(f"the entries do not describe {n_rows} sparse rows")
        if starts[0] != 0 or starts[-1] != len(values) or bool((starts.diff() < 0).any()):
            raise ValueError("the entries of the sparse rows do not follow each other")
        if len(values) and not 0 <= int(columns.min()) <= int(columns.max()) < n_columns:
            raise ValueError(f"a sparse row has an entry outside its {n_columns} columns")
        return cls(starts, columns, values, n_columns)

    def select(self, chosen: Tensor) -> "SparseRows":
        """Returns the rows with only those entries that a boolean tensor selects."""
        counts = self.starts.new_zeros(len(self)).index_add_(0, self.rows, chosen.int())
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0, dtype=torch.int32)])
        return SparseRows(starts, self.columns[chosen], self.values[chosen], self.n_columns)

    def with_values(self, values: Tensor) -> "SparseRows":
        """Returns rows with the same observed entries and other values."""
        return SparseRows(self.starts, self.columns, values, self.n_columns)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, rows: slice | Tensor) -> "SparseRows":
        if isinstance(rows, slice):
            first, last, step = rows.indices(len(self))
            if step != 1:
                return self[torch.arange(len(self))[rows]]
            if (first, last) == (0, len(self)):
                return self  # with what it has computed already
            starts = self.starts[first : max(first, last) + 1]
            part = slice(int(starts[0]), int(starts[-1]))
            return SparseRows(starts - starts[0], self.columns[part], self.values[part], self.n_columns)
        chosen = self._matrix[rows.numpy()]
        starts, columns, values = (
            torch.from_numpy(part) for part in (chosen.indptr, chosen.indices, chosen.data)
        )
        return SparseRows(starts.int(), columns.int(), values, self.n_columns)


NAMES = {
    "user": ("user", "user_id", "userId", "user_id:token"),
    "item": ("item", "item_id", "itemId", "movieId", "movie_id", "item_id:token"),
    "rating": ("rating", "rating:float"),
}
"""The names that the columns of a table of ratings may have."""

Positions = Integers


@dataclass(frozen=True)
class Identifiers:
    """Users or items, sorted: whole numbers or text.

    Examples
    --------
    >>> identifiers = Identifiers((3, 7, 9), "user")
    >>> identifiers.positions([9, 4, 3])
    array([ 2, -1,  0])
    """

    values: tuple[int | str, ...]
    what: str

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def _position(self) -> Mapping[Any, int]:
        return {value: position for position, value in enumerate(self.values)}

    def positions(self, asked: Any) -> Positions:
        """Returns the position of each identifier; -1 for those that were not in `fit`.

        Raises a ValueError for the text of a whole number that was in `fit`, or the reverse.
        """
        identifiers = read_identifiers(asked, self.what)
        kind = str if isinstance(self.values[0], str) else int
        for one in (other for other in identifiers if not isinstance(other, kind)):
            twin = str(one) if kind is str else int(one) if str(one).isdecimal() else None
            if twin in self._position and str(twin) == str(one):  # not so "007"
                raise ValueError(f"There is no {self.what} {one!r} in fit, but {twin!r}: convert its type.")
        return np.array([self._position.get(one, -1) for one in identifiers], dtype=np.int64)

    def array(self) -> npt.NDArray[Any]:
        """Returns the identifiers as an array, of int64 or of text."""
        return np.array(self.values)


@dataclass(frozen=True)
class Ratings:
    """Observed ratings: identifiers, and a CSR matrix of users by items with sorted columns."""

    users: Identifiers
    items: Identifiers
    matrix: scipy.sparse.csr_array


def read_ratings(ratings: Any) -> Ratings:
    """Reads a data frame with columns user, item and rating, or a sparse matrix of users by items."""
    if scipy.sparse.issparse(ratings):
        return _from_matrix(ratings)
    if is_frame(ratings):
        return _from_frame(Table(ratings))
    raise SchemaError(
        "Ratings must be a data frame with the columns user, item and rating, or a scipy sparse matrix of "
        f"users by items, got {type(ratings).__name__}."
    )


def read_identifiers(asked: Any, what: str) -> Sequence[int | str]:
    """Returns identifiers as whole numbers or text; raises if one is missing or of another kind."""
    if isinstance(asked, str | int | np.integer):
        asked = [asked]
    series = nw.from_native(asked, series_only=True, pass_through=True)
    values = series.to_list() if isinstance(series, nw.Series) else np.asarray(asked, dtype=object).tolist()
    if all(type(value) is int for value in values):
        return values
    return [_identifier(value, what) for value in values]


def check_rating_range(values: Floats, rating_range: Any) -> tuple[float, float]:
    """Returns the range of ratings: the given one, which must contain all values, or that of the values."""
    if rating_range is None:
        return float(values.min()), float(values.max())
    try:
        low, high = (float(end) for end in rating_range)
    except (TypeError, ValueError) as error:
        raise ValueError(f"rating_range must be a pair of numbers, got {rating_range!r}.") from error
    if not low < high:
        raise ValueError(f"rating_range must be a pair of increasing numbers, got {rating_range!r}.")
    outside = values[(values < low) | (values > high)]
    if len(outside):
        raise ValueError(
            f"{len(outside)} ratings are outside rating_range={rating_range!r}, the first is {outside[0]:g}. "
            "Correct them, or give the range of the scale."
        )
    return low, high


def _identifier(value: Any, what: str) -> int | str:
    """Returns one identifier as a whole number or text."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return int(value)
    if value is None or value != value:
        raise SchemaError(f"A {what} is missing. Leave out ratings without a {what}.")
    raise SchemaError(
        f"The {what} {value!r} is neither a whole number nor text. Write identifiers as integers or as text."
    )


def _from_matrix(matrix: Any) -> Ratings:
    matrix = matrix.tocsr()
    entries = matrix.tocoo()
    pairs = entries.row.astype(np.int64) * matrix.shape[1] + entries.col
    if len(np.unique(pairs)) < len(pairs):  # scipy would add them up
        raise SchemaError("The matrix stores an entry twice. Decide which ratings to keep.")
    matrix = scipy.sparse.csr_array(matrix.astype(np.float64))
    matrix.sort_indices()
    _check_values(matrix.data)
    users, items = (tuple(range(n)) for n in matrix.shape)
    return Ratings(Identifiers(users, "user"), Identifiers(items, "item"), matrix)


def _from_frame(table: Table) -> Ratings:
    positions = {what: find_column(table.names, what) for what in NAMES}
    values = table.column(positions["rating"])
    if values.storage != "number":
        raise SchemaError(f"Column {values.name!r} ({values.dtype}) must hold numbers, the ratings.")
    _check_values(values.values)
    users, rows = _codes(table.column(positions["user"]), "user")
    items, columns = _codes(table.column(positions["item"]), "item")
    _check_pairs(users, items, rows, columns)
    matrix = scipy.sparse.csr_array((values.values, (rows, columns)), shape=(len(users), len(items)))
    matrix.sort_indices()
    return Ratings(users, items, matrix)


def find_column(names: Sequence[str], what: str) -> int:
    """Returns the position of the column of users, items or ratings in a table; raises if there is none."""
    found = [position for position, name in enumerate(names) if name in NAMES[what]]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(map(repr, names[:8]))
    if all(name.replace(".", "", 1).isdigit() for name in names):
        raise SchemaError(
            f"The columns are named {listed}, so the table seems to have no header. Name the columns "
            "user, item and rating."
        )
    many = "more than one" if found else "no"
    raise SchemaError(f"The table has {many} column for the {what}s. Name it {what!r}; there are {listed}.")


def _check_values(values: Floats) -> None:
    if not len(values):
        raise SchemaError("There are no ratings: found 0 rows.")
    broken = np.flatnonzero(~np.isfinite(values))
    if len(broken):
        raise SchemaError(
            f"{len(broken)} of {len(values)} ratings are missing or infinite, the first in row {broken[0]}. "
            "Leave these rows out."
        )


def _codes(column: RawColumn, what: str) -> tuple[Identifiers, Positions]:
    """Returns the identifiers of a column, sorted, and the position of each row among them."""
    missing = np.flatnonzero(np.isnan(column.values))
    if len(missing):
        raise SchemaError(
            f"Column {column.name!r} is missing in {len(missing)} rows, the first is row {missing[0]}. Leave "
            f"out ratings without a {what}."
        )
    if column.storage == "label" and all(isinstance(label, str) for label in column.labels):
        used, codes = np.unique(column.values.astype(np.int64), return_inverse=True)
        labels = np.array(column.labels, dtype=object)[used]
        order = np.argsort(labels, kind="stable")
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        return Identifiers(tuple(labels[order].tolist()), what), place[codes]
    if column.storage != "number":
        raise SchemaError(
            f"Column {column.name!r} ({column.dtype}) is neither whole numbers nor text. Write the "
            f"{what}s as integers or as text."
        )
    if column.n_merged:
        raise SchemaError(f"Column {column.name!r} holds numbers above 2**53. Write the {what}s as text.")
    broken = column.values[column.values != np.round(column.values)]
    if len(broken):
        raise SchemaError(
            f"Column {column.name!r} holds {broken[0]:g}, which is not a whole number. Write the {what}s as "
            "integers or as text."
        )
    used, codes = np.unique(column.values.astype(np.int64), return_inverse=True)
    return Identifiers(tuple(used.tolist()), what), codes.astype(np.int64)


def _check_pairs(users: Identifiers, items: Identifiers, rows: Positions, columns: Positions) -> None:
    _, first, counts = np.unique(rows * len(items) + columns, return_index=True, return_counts=True)
    repeated = np.flatnonzero(counts > 1)
    if len(repeated):
        place = first[repeated].min()
        raise SchemaError(
            f"{len(repeated)} pairs of user and item have more than one rating, for example user "
            f"{users.values[rows[place]]!r} and item {items.values[columns[place]]!r}. Keep one of them."
        )
