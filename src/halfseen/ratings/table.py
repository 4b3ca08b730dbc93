"""The boundary of recommenders: tables of ratings are converted to identifiers and a sparse matrix."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt
import scipy.sparse

from halfseen.data.frames import RawColumn, Table, is_frame
from halfseen.errors import SchemaError

NAMES = {
    "user": ("user", "user_id", "userId", "user_id:token"),
    "item": ("item", "item_id", "itemId", "movieId", "movie_id", "item_id:token"),
    "rating": ("rating", "rating:float"),
}
"""The names that the columns of a table of ratings may have."""

Floats = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]


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
        """Returns the position of each identifier; -1 for those that were not in `fit`."""
        found = [self._position.get(value, -1) for value in read_identifiers(asked, self.what)]
        return np.array(found, dtype=np.int64)

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
