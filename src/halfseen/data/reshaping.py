"""Tables of repeated measurements: from one row per measurement to one row per unit, and back."""

from collections.abc import Sequence
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt

from halfseen.data.frames import is_frame
from halfseen.errors import SchemaError

POSITION = "_halfseen_position"  # of a unit, in the order in which units first occur


def to_wide(X: Any, groups: str, time: str, columns: Sequence[str] | None = None, *, sep: str = "_") -> Any:
    """Turns repeated rows of units into one row per unit, with a column for each time.

    Relations between the times of a unit then are relations between columns, which every imputer models.

    Parameters
    ----------
    X : pandas, polars or pyarrow table
        Several rows per unit, at most one for each time. Columns may have missing values.
    groups : str
        The column that says which unit a row belongs to.
    time : str
        The column of the time of a row: numbers, texts or booleans.
    columns : list of str, optional
        The columns that get one column for each time. By default those that vary within a unit; the others
        are kept once.
    sep : str, default="_"
        What separates the name of a column from the time.

    Returns
    -------
    table of the same type as `X`
        The units in the order in which they first occur. Values at times at which a unit has no row are
        missing. Categories and integers are kept where the library of the table can represent a missing
        value among them.

    Examples
    --------
    >>> import pandas as pd
    >>> long = pd.DataFrame({"id": [1, 1, 2], "wave": [0, 1, 0], "age": [40, 40, 50], "y": [1.0, 2.0, 3.0]})
    >>> to_wide(long, groups="id", time="wave")
       id  age  y_0  y_1
    0   1   40  1.0  2.0
    1   2   50  3.0  NaN
    """
    frame = _open(X)
    _check_known(frame, groups, "groups")
    _check_known(frame, time, "time")
    if groups == time:
        raise SchemaError(f"groups and time are the same column {groups!r}.")
    unit, first = _numbered(frame[groups])
    times, moment = _times(frame[time])
    _check_single(frame, groups, time, unit, moment, len(times))
    others = [name for name in frame.columns if name not in (groups, time)]
    constant = [name for name in others if _is_constant(frame[name], unit)]
    varying = [name for name in others if name not in constant]
    if columns is not None:
        varying = _named(columns, others, "columns")
        stray = next((name for name in others if name not in varying and name not in constant), None)
        if stray is not None:
            raise SchemaError(
                f"Column {stray!r} varies within a value of {groups!r}: name it among columns, or remove it."
            )
    kept = [name for name in others if name not in varying]
    numbered = frame.with_columns(nw.new_series(POSITION, unit, nw.Int64, backend=frame.implementation))
    wide = frame[first].select(groups)
    wide = wide.with_columns(
        nw.new_series(POSITION, np.arange(len(first)), nw.Int64, backend=frame.implementation)
    )
    for name in kept:
        seen = _first_observed(frame[name], unit)
        part = numbered[seen].select(POSITION, name)
        wide = wide.join(part, on=POSITION, how="left")
    for k, label in enumerate(times):
        names = {name: f"{name}{sep}{label}" for name in varying}
        part = numbered[np.flatnonzero(moment == k)].select(POSITION, *varying).rename(names)
        taken = set(names.values()) & set(wide.columns)
        if taken:
            raise SchemaError(f"There is a column {min(taken)!r} already: choose another sep than {sep!r}.")
        wide = wide.join(part, on=POSITION, how="left")
    return wide.sort(POSITION).drop(POSITION).to_native()


def to_long(X: Any, groups: str, time: str, columns: Sequence[str], *, sep: str = "_") -> Any:
    """Turns one row per unit into one row per unit and time: what `to_wide` has done is undone.

    Parameters
    ----------
    X : pandas, polars or pyarrow table
        One row per unit.
    groups : str
        The column that names the units.
    time : str
        The name of the new column of times.
    columns : list of str
        The columns that have one column for each time, without the times: ``["y"]`` for ``y_0`` and ``y_1``.
    sep : str, default="_"
        What separates the name of a column from the time.

    Returns
    -------
    table of the same type as `X`
        A row for each unit and time, units in their order, times in the order of the columns. Times are
        numbers if all of them are written as numbers.

    Examples
    --------
    >>> import pandas as pd
    >>> wide = pd.DataFrame({"id": [1, 2], "age": [40, 50], "y_0": [1.0, 3.0], "y_1": [2.0, 4.0]})
    >>> to_long(wide, groups="id", time="wave", columns=["y"])
       id  wave  age    y
    0   1     0   40  1.0
    1   1     1   40  2.0
    2   2     0   50  3.0
    3   2     1   50  4.0
    """
    frame = _open(X)
    _check_known(frame, groups, "groups")
    if isinstance(columns, str) or not columns:
        raise SchemaError(f"columns must be a list of names, got {columns!r}.")
    labels = _labels(frame, columns, sep)
    used = {f"{name}{sep}{label}" for name in columns for label in labels}
    kept = [name for name in frame.columns if name not in used]
    if time in kept:
        raise SchemaError(f"There is a column {time!r} already: choose another name for the times.")
    times = _as_numbers(labels)
    n_rows, parts = len(frame), list[nw.DataFrame[Any]]()
    for moment, label in zip(times, labels, strict=True):
        part = frame.select(*kept, *(nw.col(f"{name}{sep}{label}").alias(name) for name in columns))
        stamp = nw.new_series(time, [moment] * n_rows, backend=frame.implementation)
        place = np.arange(n_rows) * len(labels) + len(parts)
        number = nw.new_series(POSITION, place, nw.Int64, backend=frame.implementation)
        parts.append(_with_plain_index(part).with_columns(stamp, number))
    ordered = [groups, time, *(name for name in kept if name != groups), *columns]
    return _with_plain_index(nw.concat(parts).sort(POSITION).select(*ordered)).to_native()


def _open(X: Any) -> "nw.DataFrame[Any]":
    if not is_frame(X):
        raise SchemaError(f"Expected a table with named columns, got {type(X).__name__}.")
    return _with_plain_index(nw.from_native(X, eager_only=True))


def _with_plain_index(frame: "nw.DataFrame[Any]") -> "nw.DataFrame[Any]":
    """Returns a frame whose rows are numbered from 0, if its library numbers rows."""
    if not frame.implementation.is_pandas_like():
        return frame
    return nw.from_native(nw.to_native(frame).reset_index(drop=True), eager_only=True)


def _check_known(frame: "nw.DataFrame[Any]", name: str, what: str) -> None:
    if name not in frame.columns:
        raise SchemaError(f"{what} refers to column {name!r}, which is not in the table.")
    missing = _missing(frame[name])
    if missing.any():
        raise SchemaError(f"Column {name!r} is missing in row {int(missing.argmax())}: it must be known.")


def _missing(series: "nw.Series[Any]") -> npt.NDArray[np.bool_]:
    empty = series.is_null()
    if series.dtype.is_float():
        empty = empty | series.is_nan().fill_null(True)
    return np.asarray(empty.to_numpy(), dtype=bool)


def _numbered(series: "nw.Series[Any]") -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Returns the number of the value of each row, by first occurrence, and the rows where they occur."""
    found: dict[Any, int] = {}
    first = list[int]()
    number = np.empty(len(series), dtype=np.int64)
    for row, value in enumerate(series.to_list()):
        if value not in found:
            found[value] = len(first)
            first.append(row)
        number[row] = found[value]
    return number, np.array(first, dtype=np.int64)


def _times(series: "nw.Series[Any]") -> tuple[list[str], npt.NDArray[np.int64]]:
    """Returns the times as texts, ascending, and the position of the time of each row."""
    values = series.to_list()
    wrong = next((value for value in values if not isinstance(value, bool | int | float | str)), None)
    if wrong is not None:
        raise SchemaError(
            f"Column {series.name!r} has the time {wrong!r}; times are numbers, texts or booleans."
        )
    distinct = sorted(set(values))
    place = {value: k for k, value in enumerate(distinct)}
    return [str(value) for value in distinct], np.array([place[value] for value in values], dtype=np.int64)


def _check_single(
    frame: "nw.DataFrame[Any]",
    groups: str,
    time: str,
    unit: npt.NDArray[np.int64],
    moment: npt.NDArray[np.int64],
    n_times: int,
) -> None:
    pairs = unit * n_times + moment
    _, first, counts = np.unique(pairs, return_index=True, return_counts=True)
    if (counts > 1).any():
        row = int(first[counts > 1].min())
        name, moment_of_row = frame[groups].to_list()[row], frame[time].to_list()[row]
        where = f"{groups!r} = {name!r} and {time!r} = {moment_of_row!r}"
        raise SchemaError(f"Two rows have {where}: there must be at most one row for each unit and time.")


def _is_constant(series: "nw.Series[Any]", unit: npt.NDArray[np.int64]) -> bool:
    """Returns whether no two observed values of a unit differ."""
    seen: dict[int, Any] = {}
    values = series.to_list()
    for row in np.flatnonzero(~_missing(series)).tolist():
        if seen.setdefault(int(unit[row]), values[row]) != values[row]:
            return False
    return True


def _first_observed(series: "nw.Series[Any]", unit: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns the row of each unit in which a column is first observed; units without one are left out."""
    rows = np.flatnonzero(~_missing(series))
    _, first = np.unique(unit[rows], return_index=True)
    return rows[first]


def _named(columns: Sequence[str], others: Sequence[str], what: str) -> list[str]:
    if isinstance(columns, str):
        raise SchemaError(f"{what} must be a list of names, got {columns!r}.")
    stray = next((name for name in columns if name not in others), None)
    if stray is not None:
        raise SchemaError(f"{what} refers to column {stray!r}, which is not in the table or cannot vary.")
    return list(columns)


def _labels(frame: "nw.DataFrame[Any]", columns: Sequence[str], sep: str) -> list[str]:
    """Returns the times that are in the names of columns; raises if a column lacks one of them."""
    starts = [f"{columns[0]}{sep}"]
    longer = [f"{name}{sep}" for name in columns if name != columns[0] and name.startswith(starts[0])]
    found = [
        name.removeprefix(starts[0])
        for name in frame.columns
        if name.startswith(starts[0]) and not any(name.startswith(one) for one in longer)
    ]
    if not found:
        raise SchemaError(f"There is no column {starts[0] + '...'!r}: columns are named without their times.")
    for name in columns:
        lacking = next((label for label in found if f"{name}{sep}{label}" not in frame.columns), None)
        if lacking is not None:
            raise SchemaError(
                f"There is no column {f'{name}{sep}{lacking}'!r}, the time {lacking!r} of {name!r}."
            )
    return found


def _as_numbers(labels: Sequence[str]) -> list[Any]:
    """Returns times as whole numbers, as numbers, or as they are if one of them is not a number."""
    for kind in (int, float):
        try:
            numbers = [kind(label) for label in labels]
        except ValueError:
            continue
        if [str(number) for number in numbers] == list(labels):
            return numbers
    return list(labels)
