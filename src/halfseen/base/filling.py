"""Tables whose missing cells are filled by what a model returned, and a warning about far values."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from halfseen.base.table import ReadTable
from halfseen.data.columns import Column
from halfseen.data.relations import derive_cells, used_columns
from halfseen.errors import warn_user

Floats = npt.NDArray[np.float64]
DerivedCells: TypeAlias = tuple[npt.NDArray[np.int64], Floats]  # rows, and their values

FAR = 4.0  # observed ranges between an imputed value and the observed values, from which the user is warned
NAMED = 5  # columns that are named in separate warnings; the others are counted


class FarValues:
    """Counts the values of models that lie far outside the observed values, in one call of an imputer."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = columns
        self.counts: dict[int, int] = {}

    def add(self, j: int, codes: npt.NDArray[np.float64]) -> None:
        """Counts the codes of column j that a model returned, before they are limited to its range."""
        low, high = self.columns[j].observed_low, self.columns[j].observed_high
        if low is None or high is None or not len(codes):
            return
        if low == high:  # one observed value has no range by which a distance could be judged
            return
        with np.errstate(over="ignore"):
            reach = FAR * (np.float64(high) - np.float64(low))
            n_far = int(((codes < low - reach) | (codes > high + reach)).sum())
        if n_far:
            self.counts[j] = self.counts.get(j, 0) + n_far

    def warn(self) -> None:
        """Warns about each column with such values."""
        for j, count in list(self.counts.items())[:NAMED]:
            warn_user(_sentence(self.columns[j], count))
        if len(self.counts) > NAMED:
            warn_user(
                f"{len(self.counts) - NAMED} more columns have values more than {FAR:g} observed ranges "
                "outside their observed values. The model does not fit this table: choose another method."
            )


def _sentence(column: Column, count: int) -> str:
    assert column.observed_low is not None
    assert column.observed_high is not None
    low, high = (column.show(end) for end in (column.observed_low, column.observed_high))
    what = "1 value lies" if count == 1 else f"{count} values lie"
    limited = column.codes is not None or column.least is not None or column.greatest is not None
    done = (
        "Such values are limited to the range from {} to {}".format(
            *(column.show(end) for end in column.imputed_bounds())
        )
        if limited
        else "Such values are not limited, because of the bounds in the schema"
    )
    if column.derived is not None:
        done = "Such values follow from the formula of the column"
    return (
        f"Column {column.name!r}: {what} more than {FAR:g} observed ranges outside the observed values, "
        f"{low} to {high}. {done}. The model does not fit these rows: check them, or choose another method."
    )


def derive(
    columns: Sequence[Column],
    read: ReadTable,
    completed: Sequence[Floats],
    empty: Mapping[int, npt.NDArray[np.bool_]],
) -> dict[int, DerivedCells]:
    """Returns the missing cells of derived columns, by position of the column.

    Parameters
    ----------
    columns : sequence of Column
        All columns.
    read : ReadTable
        The table.
    completed : sequence of arrays
        The codes of the missing cells of each modelled column.
    empty : mapping of int to array (N)
        The rows that stay empty, by position of the column.
    """
    modelled = [j for j, column in enumerate(columns) if column.modelled]
    numbers = {}
    for j in used_columns(columns):
        position = modelled.index(j)
        values = np.where(read.codes.observed[:, position], read.codes.x[:, position], np.nan)
        if columns[j].left is None:
            values[read.missing[:, j]] = columns[j].constrain(completed[position])
        if j in empty:
            values[empty[j] & read.missing[:, j]] = np.nan
        numbers[j] = values
    return derive_cells(columns, numbers, read.missing)


def enclose(
    point: Mapping[int, DerivedCells], draws: Sequence[Mapping[int, DerivedCells]], ends: Sequence[float]
) -> list[dict[int, DerivedCells]]:
    """Returns for each end of an interval the quantiles of draws, moved so that they enclose the point."""
    found: list[dict[int, DerivedCells]] = [{}, {}]
    for j, (rows, middle) in point.items():
        spread = np.stack([one[j][1] for one in draws])
        low, high = np.quantile(np.where(np.isnan(spread), middle, spread), ends, axis=0)
        found[0][j] = rows, np.fmin(low, middle)
        found[1][j] = rows, np.fmax(high, middle)
    return found


def fill_cells(
    columns: Sequence[Column],
    read: ReadTable,
    completed: Sequence[npt.NDArray[np.float64]],
    empty: Mapping[int, npt.NDArray[np.bool_]],
    derived: Mapping[int, DerivedCells] | None = None,
    *,
    far: FarValues,
) -> Any:
    """Returns the table with decoded values in its missing cells.

    Parameters
    ----------
    columns : sequence of Column
        All columns. Those that are left empty stay so.
    read : ReadTable
        The table.
    completed : sequence of arrays
        The codes of the missing cells of each modelled column.
    empty : mapping of int to array (N)
        The rows that stay empty, by position of the column.
    derived : mapping of int to tuple of arrays, optional
        The missing cells of derived columns; computed from the completed columns if not given.
    far : FarValues
        Counts values that lie far outside the observed ones.

    Returns
    -------
    table or array
        Of the type of the table that was read.
    """
    cells = {}
    position = -1
    for j, column in enumerate(columns):
        position += column.modelled
        if column.left is not None or column.derived is not None:
            continue
        rows = np.flatnonzero(read.missing[:, j])
        codes = completed[position] if column.modelled else np.full(len(rows), column.fill_code)
        if j in empty:
            applies = ~empty[j][rows]
            rows, codes = rows[applies], codes[applies]
        if column.modelled:
            far.add(j, codes)
            codes = column.constrain(codes)
        if len(rows):
            cells[j] = rows, column.decode(codes)
    given = derive(columns, read, completed, empty) if derived is None else derived
    for j, (rows, values) in given.items():
        known = ~np.isnan(values)
        if known.any():
            far.add(j, values[known])
            cells[j] = rows[known], columns[j].decode(values[known])
    return read.table.filled(cells)


class DrawnTables(list[Any]):
    """A list of completed data frames, with reservations about pooling them.

    Attributes
    ----------
    reservations : tuple of str
        Reasons why intervals pooled over these tables may be wrong; empty if nothing is known
        against them.
    analysis : str or None
        The formula of the analysis with which the draws are compatible, if there is one.

    Examples
    --------
    >>> draws = DrawnTables(["first", "second"], ["The model did not converge."])
    >>> draws[:1].reservations
    ('The model did not converge.',)
    """

    def __init__(
        self, tables: Iterable[Any] = (), reservations: Sequence[str] = (), analysis: str | None = None
    ) -> None:
        super().__init__(tables)
        self.reservations = tuple(reservations)
        self.analysis = analysis

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return DrawnTables(found, self.reservations, self.analysis) if isinstance(index, slice) else found


class DrawnArray(np.ndarray[Any, np.dtype[Any]]):
    """An array of completed tables (n_draws, n_samples, n_features), with reservations about pooling them.

    Slices of the same number of axes keep the reservations; single tables and results of calculations are
    plain arrays.

    Attributes
    ----------
    reservations : tuple of str
        As in `DrawnTables`.

    Examples
    --------
    >>> draws = DrawnArray.of(np.zeros((2, 3, 1)), ["The model did not converge."])
    >>> draws[:, :2].reservations
    ('The model did not converge.',)
    >>> [type(found).__name__ for found in (draws[0], draws + 1, draws.mean(axis=0), next(iter(draws)))]
    ['ndarray', 'ndarray', 'ndarray', 'ndarray']
    """

    reservations: tuple[str, ...]

    @classmethod
    def of(cls, tables: npt.NDArray[Any], reservations: Sequence[str]) -> "DrawnArray":
        """Returns a view of an array that has these reservations."""
        view = tables.view(cls)
        view.reservations = tuple(reservations)
        return view

    def __array_finalize__(self, source: Any) -> None:
        self.reservations = getattr(source, "reservations", ())

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        plain = np.asarray(array)
        return plain[()] if return_scalar or plain.ndim == 0 else plain

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return found if np.ndim(found) == self.ndim else np.asarray(found)[()]

    def __iter__(self) -> Any:
        return iter(np.asarray(self))

    def __repr__(self) -> str:
        return repr(np.asarray(self))
