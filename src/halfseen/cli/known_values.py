"""The check behind verdicts: known values are hidden in a bounded number of rows, and filled."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from halfseen.data.columns import LEVELLED, NUMERIC
from halfseen.report.fill_check import FillCheck, check_fill, choose_rows

CHECKED = (*NUMERIC, *LEVELLED, "datetime", "duration")

Build = Callable[[dict[str, Any]], Any]
"""Returns an imputer that is not fitted, with the given settings of columns."""


def check_known_values(
    table: pa.Table,
    columns: Iterable[Any],
    build: Build | None,
    fitted: Any = None,
    *,
    intervals: bool = True,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    level: float = 0.9,
    method: str = "",
) -> FillCheck | None:
    """Check on hidden known values how well each column with missing values is filled.

    Parameters
    ----------
    table : pyarrow.Table
        The incomplete table.
    columns : iterable
        Has ``name`` and ``kind`` of each column.
    build : callable or None
        Builds an imputer, to be fitted without the hidden values.
    fitted : imputer, optional
        An imputer like it that is fitted. It fills the hidden values if `build` is None; the check is then
        optimistic if the imputer was fitted to this table.
    intervals : bool
        Whether the intervals of hidden numbers are checked too.
    settings : mapping, optional
        The settings of columns that the user gave.
    seed : int
        The seed of which values are hidden.
    level : float
        The level of the intervals.
    method : str
        The name of the method, for a page about something else.

    Returns
    -------
    FillCheck or None
        None if the method cannot be fitted to what remains.
    """
    rows = choose_rows(table, seed)
    kinds = {column.name: column.kind for column in columns if column.kind in CHECKED}
    settings = _with_kinds(kinds, settings)
    incomplete = {name: kind for name, kind in kinds.items() if table[name].null_count}

    def fill(shown: pa.Table) -> tuple[pa.Table, pa.Table | None, pa.Table | None]:
        imputer = fitted if build is None else build(settings).fit(shown)
        low, high = imputer.interval(shown, level=level) if intervals else (None, None)
        return imputer.transform(shown), low, high

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit to the whole table has given its warnings
        try:
            return check_fill(
                rows, incomplete, fill, refitted=build is not None, seed=seed, level=level, method=method
            )
        except ValueError:  # a sample, with values hidden, may leave too little to fit; the page shows this
            return None


def _with_kinds(kinds: Mapping[str, str], settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the user's settings and the kinds that were inferred, which a sample might not show."""
    given = dict(settings or {})
    for name, kind in kinds.items():
        given[name] = {"kind": kind} | given.get(name, {})
    return given
