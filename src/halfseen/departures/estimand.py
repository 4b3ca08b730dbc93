"""What a sensitivity analysis is about, and which imputed values it moves."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from halfseen.data.schema import Column, Schema
from halfseen.departures.adjustment import AdjustedColumn, cells
from halfseen.errors import SchemaError

NUMBERS = ("continuous", "positive", "count")


def find_analysis(schema: Schema, estimand: Any) -> Any:
    """Returns an analysis for `pool`: of the mean or share that a column names, or the estimand as it is."""
    if not isinstance(estimand, str) or "~" in estimand:
        return estimand
    position, level = _column_and_level(schema, estimand)
    column = schema.columns[position]
    if column.levels is None:
        return mean_of(position, column.name)
    return share_of(position, column.name, _level(column, level))


def find_moved(
    schema: Schema, read: Any, estimand: Any, columns: Any, *, in_sd: bool
) -> list[AdjustedColumn]:
    """Returns the columns whose imputed values are moved; `read` is the table as the imputer sees it."""
    if columns is None:
        if not isinstance(estimand, str) or "~" in estimand:
            raise SchemaError("State in columns whose imputed values to move: the estimand names no column.")
        columns = [estimand]
    named = columns if isinstance(columns, Mapping) else dict.fromkeys(np.atleast_1d(columns).tolist())
    moved = [_moved(schema, read, str(text), level, in_sd) for text, level in named.items()]
    if not moved:
        raise SchemaError("columns is empty: name at least one column whose imputed values are moved.")
    if len({column.level is None for column in moved}) > 1:
        raise SchemaError("Numbers and levels cannot be moved together: they have different units.")
    return moved


def _moved(schema: Schema, read: Any, text: str, level: Any, in_sd: bool) -> AdjustedColumn:
    position, named = _column_and_level(schema, text)
    column = schema.columns[position]
    rows = np.flatnonzero(read.missing[:, position])
    if not column.modelled or column.left is not None:
        raise SchemaError(
            f"Column {column.name!r} is not imputed ({column.reason}), so nothing can be moved."
        )
    if not len(rows):
        raise SchemaError(f"Column {column.name!r} has no missing values, so nothing can be moved.")
    if column.levels is not None:
        return AdjustedColumn(column.name, position, rows, 1.0, _level(column, level or named))
    if column.kind not in NUMBERS:
        raise SchemaError(f"Column {column.name!r} is {column.kind}; only numbers and levels can be moved.")
    modelled = [j for j, one in enumerate(schema.columns) if one.modelled].index(position)
    observed = read.codes.observed[:, modelled]
    scale = float(read.codes.x[observed, modelled].std()) if in_sd else 1.0
    return AdjustedColumn(column.name, position, rows, scale)


def _column_and_level(schema: Schema, text: str) -> tuple[int, str | None]:
    """Returns the position and the level of ``"column"`` or ``"column=level"``."""
    names = [column.name for column in schema.columns]
    name, level = text, None
    if text not in names and "=" in text:
        name, _, level = text.partition("=")
        name, level = name.strip(), level.strip()
    if name not in names:
        raise SchemaError(f"There is no column {name!r}; the table has {', '.join(names)}.")
    return names.index(name), level


def _level(column: Column, level: Any) -> Any:
    """Returns the level of a column that is meant; of two levels the second, if none is named."""
    levels = list(column.levels or ())
    if level is None:
        if len(levels) != 2:
            listed = ", ".join(map(str, levels[:10]))
            raise SchemaError(
                f"Column {column.name!r} has {len(levels)} levels; name one, as in "
                f"'{column.name}={levels[0]}'. They are {listed}."
            )
        return levels[1]
    found = [one for one in levels if one == level or str(one) == str(level)]
    if not found:
        raise SchemaError(
            f"Column {column.name!r} has no level {level!r}; it has {', '.join(map(str, levels))}."
        )
    return found[0]


def mean_of(position: int, name: str) -> Callable[[Any], Any]:
    """Returns an analysis of the mean of a column."""

    def analyse(table: Any) -> dict[str, tuple[float, float]]:
        values = np.asarray(cells(table, position), dtype=np.float64)
        values = values[~np.isnan(values)]  # a column need not apply to all rows
        return {f"mean of {name}": (float(values.mean()), float(values.var(ddof=1) / len(values)))}

    return analyse


def share_of(position: int, name: str, level: Any) -> Callable[[Any], Any]:
    """Returns an analysis of the share of a level of a column."""

    def analyse(table: Any) -> dict[str, tuple[float, float]]:
        values = [value for value in cells(table, position).tolist() if value is not None and value == value]
        is_level = np.array([value == level for value in values], dtype=np.float64)
        share = float(is_level.mean())
        return {f"share of {name}={level}": (share, share * (1 - share) / len(is_level))}

    return analyse
