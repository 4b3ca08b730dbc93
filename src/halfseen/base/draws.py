"""Completed tables that record whether they are suitable for pooling."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


class DrawnTables(list[Any]):
    """A list of completed data frames, with reservations about pooling them.

    Attributes
    ----------
    reservations : tuple of str
        Reasons why intervals pooled over these tables may be wrong; empty if nothing is known
        against them.

    Examples
    --------
    >>> draws = DrawnTables(["first", "second"], ["The model did not converge."])
    >>> draws[:1].reservations
    ('The model did not converge.',)
    """

    def __init__(self, tables: Iterable[Any] = (), reservations: Sequence[str] = ()) -> None:
        super().__init__(tables)
        self.reservations = tuple(reservations)

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return DrawnTables(found, self.reservations) if isinstance(index, slice) else found


class DrawnArray(npt.NDArray[Any]):
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
