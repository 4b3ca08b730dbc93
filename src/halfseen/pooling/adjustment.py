r"""Completed tables whose imputed values are moved away from those that MAR implies.

Two adjustments, with a sensitivity parameter :math:`\delta` that is zero under MAR:

- a *shift* of imputed numbers by :math:`\delta` standard deviations (delta adjustment);
- an *exponential tilt* of the conditional distribution of the missing values of a row,
  :math:`p_\delta(x_m \mid x_o) \propto p(x_m \mid x_o) \exp(\delta z)`, with z the number in standard
  deviations, or 1 for a chosen level and 0 for the others. The tilt of a level adds :math:`\delta` to its log
  odds.

Tilted rows are chosen among candidate draws of the row with probability proportional to :math:`\exp(\delta
z)`, so that the missing values of a row stay consistent with each other. The noise of the choice is the same
for all :math:`\delta`, so results change smoothly with it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt

from halfseen._arrays import Floats, Integers
from halfseen.data.frames import is_frame
from halfseen.data.schema import Column, Schema
from halfseen.errors import SchemaError

N_CANDIDATES = 50  # draws of a row among which a tilt chooses
MOST_CELLS = 20_000_000  # of candidate draws that are held at once


@dataclass(frozen=True)
class AdjustedColumn:
    """A column whose imputed values are moved."""

    name: str  # the column; in arrays, columns are named "x0", "x1" and so on
    position: int  # its position in the table
    rows: Integers  # the rows in which it is missing
    # The standard deviation of its observed values, or 1 if shifts are in the units of the column.
    scale: float
    level: Any = None  # for a column with levels, the level whose log odds are moved; None for numbers

    def score(self, values: npt.NDArray[Any]) -> Floats:
        """Returns what a tilt multiplies: numbers in standard deviations, or whether it is the level."""
        if self.level is not None:
            return np.asarray(values == self.level, dtype=np.float64)
        return np.asarray(values, dtype=np.float64) / self.scale


@dataclass(frozen=True)
class Adjustable:
    """Completed tables and, for tilts, further candidate draws of their incomplete rows."""

    draws: Sequence[Any]  # the M completed tables
    columns: Sequence[AdjustedColumn]  # what is moved
    # For tilts, each completed table and, below it, K candidates of its rows with missing values.
    stacks: Sequence[Any] = ()
    rows: Integers | None = None  # the rows (R) that have candidates
    # (M, K, R): what a tilt multiplies, and Gumbel noise of the choices.
    scores: Floats | None = None
    noise: Floats | None = None

    def tables(self, delta: float) -> list[Any]:
        """Returns the M completed tables at a value of the sensitivity parameter."""
        if self.stacks:
            return [self._tilted(m, delta) for m in range(len(self.draws))]
        shifts = {column.position: (column.rows, delta * column.scale) for column in self.columns}
        return [_shifted(table, shifts) for table in self.draws]

    def _tilted(self, m: int, delta: float) -> Any:
        """Returns table m with the chosen candidate in each row that has candidates."""
        assert self.rows is not None
        assert self.scores is not None
        assert self.noise is not None
        chosen = (delta * self.scores[m] + self.noise[m]).argmax(axis=0)
        picked = np.arange(_n_rows(self.draws[m]))
        picked[self.rows] = len(picked) + chosen * len(self.rows) + np.arange(len(self.rows))
        return _take(self.stacks[m], picked)


def draw_candidates(
    imputer: Any, X: Any, n_draws: int, columns: Sequence[AdjustedColumn], n_candidates: int, seed: int
) -> Adjustable:
    """Returns completed tables with candidates; those of table m have the m-th draw of the parameters."""
    rows = np.unique(np.concatenate([column.rows for column in columns]))
    draws = imputer.sample(X, n_draws=n_draws)
    size = max(1, MOST_CELLS // (n_candidates * n_draws * imputer.n_features_in_))
    parts = [rows[start : start + size] for start in range(0, len(rows), size)]
    found: list[list[list[Any]]] = [[] for _ in range(n_draws)]
    for part in parts:
        drawn = imputer.sample(_take(X, part), n_draws=n_draws * n_candidates)
        for m in range(n_draws):
            found[m].append([drawn[s] for s in range(m, len(drawn), n_draws)])
    candidates = [_stack([part[k] for k in range(n_candidates) for part in of_table]) for of_table in found]
    noise = np.random.default_rng(seed).gumbel(size=(n_draws, n_candidates, len(rows)))
    scores = np.zeros_like(noise)
    for m, column in product(range(n_draws), columns):
        values = column.score(cells(candidates[m], column.position)).reshape(scores[m].shape)
        scores[m] += np.where(np.isin(rows, column.rows), np.nan_to_num(values), 0.0)
    stacks = [_stack([draw, of_table]) for draw, of_table in zip(draws, candidates, strict=True)]
    return Adjustable(draws, columns, stacks, rows, scores, noise)


def cells(table: Any, position: int) -> npt.NDArray[Any]:
    """Returns the values of a column."""
    if not is_frame(table):
        return np.asarray(table)[:, position]
    series = nw.from_native(table, eager_only=True)[:, position]
    return np.asarray(series.to_numpy() if series.dtype.is_numeric() else series.to_list())


def _shifted(table: Any, shifts: Mapping[int, tuple[Integers, float]]) -> Any:
    """Returns a table with numbers added to some rows of columns, neither rounded nor clipped."""
    if not is_frame(table):
        moved = np.array(table, dtype=np.float64)
        for position, (rows, shift) in shifts.items():
            moved[rows, position] += shift
        return moved
    frame = nw.from_native(table, eager_only=True)
    for position, (rows, shift) in shifts.items():
        if len(rows):
            numbers = frame[:, position].cast(nw.Float64)
            filled = rows[~np.isnan(numbers.to_numpy()[rows])]  # not those to which the column does not apply
            values = numbers.to_numpy()[filled] + shift
            frame = frame.with_columns(numbers.scatter(filled.tolist(), values.tolist()))
    return frame.to_native()


def _n_rows(table: Any) -> int:
    return len(nw.from_native(table, eager_only=True)) if is_frame(table) else len(table)


def _stack(tables: Sequence[Any]) -> Any:
    if not is_frame(tables[0]):
        return np.concatenate([np.asarray(table) for table in tables])
    return nw.concat([nw.from_native(table, eager_only=True) for table in tables]).to_native()


def _take(table: Any, rows: Integers) -> Any:
    if not is_frame(table):
        return np.asarray(table)[rows]
    return nw.from_native(table, eager_only=True)[rows.tolist(), :].to_native()


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
