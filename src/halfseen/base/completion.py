"""The interface of models over the codes of a table or of images, and tables that are filled by them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from halfseen._arrays import Booleans, Floats, Integers
from halfseen._random import Keys
from halfseen.base.table import ReadTable
from halfseen.data.columns import Column
from halfseen.data.features import Block, FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.relations import derive_cells, used_columns
from halfseen.errors import warn_user


@dataclass(frozen=True)
class LevelProbabilities:
    r"""The probability of each level of a column in each row, stored by groups because levels can be many.

    Shapes
    ------
    groups : :math:`(N, G)`, the probability of each group
    block : of the levels
    observed_level : :math:`(N)`, the level that was observed, -1 where the cell is missing
    """

    groups: Tensor
    block: Block
    observed_level: Tensor

    @classmethod
    def of_levels(cls, probabilities: Tensor, codes: Incomplete, column: int) -> "LevelProbabilities":
        """Takes a probability (N, L) for each level, where levels are few."""
        alone = torch.arange(probabilities.shape[1])
        block = Block(column, 0, len(alone), alone, torch.ones(len(alone), dtype=probabilities.dtype))
        return cls(probabilities, block, _observed_levels(codes, column))

    def dense(self) -> Tensor:
        """Returns the probability (N, L) of each level; 0 and 1 where the cell was observed."""
        result = self.groups[:, self.block.group] * self.block.share
        rows = (self.observed_level >= 0).nonzero().squeeze(1)
        result[rows] = 0.0
        result[rows, self.observed_level[rows]] = 1.0
        return result

    def top(self) -> Tensor:
        """Returns the probability (N) of the most probable level; 1 where the cell was observed."""
        return torch.where(self.observed_level >= 0, 1.0, self.block.of_leaders(self.groups).amax(dim=1))


MEAN_LEVELS = tuple((k + 0.5) / 20 for k in range(20))
"""Quantiles whose average is the mean of a number that has a margin."""


class TabularCompletion(Protocol):
    """Completes codes (N, C) in several ways; observed codes are always returned exactly.

    Codes are the numbers of `halfseen.data.schema.Column`: values, or positions among levels. A model need
    not round or bound them, because the estimator does this for all models.
    """

    def point(self, codes: Incomplete) -> Tensor:
        """Returns the best single completion (N, C): means and most probable levels."""
        ...

    def draws(self, codes: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        """Returns joint draws (S, N, C) whose noise is determined by the keys of the rows."""
        ...

    def quantiles(self, codes: Incomplete, probabilities: Sequence[float]) -> Tensor:
        """Returns quantiles (Q, N, C) of each cell separately; most probable levels without an order.

        A quantile does not depend on the other probabilities that are asked for, and does not decrease with
        its probability.
        """
        ...

    def interval(self, codes: Incomplete, level: float) -> Tensor:
        """Returns the ends (2, N, C) of an interval of each cell separately that has a probability.

        They may differ from the quantiles at `central(level)`: where single values have positive
        probabilities, no central interval has exactly the probability `level`; and an interval of more than
        half of the probability may be extended to the value that `point` returns (see `enclosing`).
        """
        ...

    def level_probabilities(self, codes: Incomplete) -> dict[int, LevelProbabilities]:
        """Returns the probability of each level, for every column with levels."""
        ...


class TabularModel(TabularCompletion, Protocol):
    """A density of tables: it completes codes (N, C) by its conditional distributions."""

    def log_prob(self, codes: Incomplete) -> Tensor:
        """Returns the log density (N) of the observed cells, in the units of the table."""
        ...


def central(level: float) -> tuple[float, float]:
    """Returns the probabilities of the ends of a central interval."""
    return (1 - level) / 2, (1 + level) / 2


def enclosing(ends: Tensor, point: Tensor, level: float) -> Tensor:
    """Returns ends (2, N, C) of intervals, extended to the point (N, C) if they hold most of the probability.

    The mean of a skewed distribution may be outside a central interval. Narrow intervals are about the
    median, and to extend them to the mean would make them much more probable than `level`.
    """
    if level <= 0.5:
        return ends
    return torch.stack([torch.minimum(ends[0], point), torch.maximum(ends[1], point)])


def mean_numbers(features: FeatureMap, mean: Tensor, quantiles: Tensor) -> Tensor:
    """Returns expected numbers (N, n_numeric): from expected features (N, D), or from quantiles with margins.

    `quantiles` (Q, N, D) are those of the features at `MEAN_LEVELS`.
    """
    numbers, average = features.numbers(mean), features.numbers(quantiles).mean(dim=0)
    for i, _ in features.transformed():
        numbers[:, i] = average[:, i]
    return numbers


def decode_mean(
    features: FeatureMap, codes: Incomplete, mean: Tensor, numbers: Tensor | None = None
) -> Tensor:
    """Returns codes (N, C) completed by expected features (N, D), or by expected numbers if given."""
    result = codes.x.clone()
    result[:, list(features.numeric)] = features.numbers(mean) if numbers is None else numbers
    for block in features.blocks:
        levels = block.likeliest(features.group_probabilities(mean, block))
        result[:, block.column] = levels.to(result.dtype)
    return torch.where(codes.observed, codes.x, result)


def level_probabilities(
    features: FeatureMap, codes: Incomplete, mean: Tensor
) -> dict[int, LevelProbabilities]:
    """Returns the level probabilities of each column with a block, from expected features (N, D)."""
    return {
        block.column: LevelProbabilities(
            features.group_probabilities(mean, block), block, _observed_levels(codes, block.column)
        )
        for block in features.blocks
    }


def log_level(probabilities: LevelProbabilities) -> Tensor:
    """Returns the log probability (N) of the level observed in a column; 0 where it is missing."""
    block, level = probabilities.block, probabilities.observed_level.clamp(min=0)
    chosen = probabilities.groups.gather(1, block.group[level][:, None]).squeeze(1) * block.share[level]
    return torch.where(probabilities.observed_level >= 0, chosen.log(), 0.0)


def _observed_levels(codes: Incomplete, column: int) -> Tensor:
    return torch.where(codes.observed[:, column], codes.x[:, column], -1.0).long()


@dataclass(frozen=True)
class PixelModel:
    """A model over the codes of pixels; a subclass computes means and quantiles of their features."""

    columns: Sequence[Column]  # the D pixels, all of one kind, in the order (C, H, W)
    features: FeatureMap  # from codes (N, D) to features (N, D), as `pixel_features` makes it

    @torch.no_grad()
    def point(self, codes: Incomplete) -> Tensor:
        """Returns codes (N, D) completed by expectations; of binary pixels, probabilities to be rounded."""
        return self._completed(codes, self._mean(codes))

    @torch.no_grad()
    def quantiles(self, codes: Incomplete, probabilities: Sequence[float]) -> Tensor:
        """Returns quantiles (Q, N, D) of shades and numbers; the more probable value of binary pixels."""
        if self._is_binary:
            return self.point(codes).expand(len(probabilities), -1, -1)
        return self._completed(codes, self._feature_quantiles(codes, probabilities))

    def interval(self, codes: Incomplete, level: float) -> Tensor:
        """Returns the ends (2, N, D) of central intervals; the more probable value of binary pixels."""
        return self.quantiles(codes, central(level))

    def level_probabilities(self, codes: Incomplete) -> dict[int, LevelProbabilities]:
        """Returns the probability of both values of binary pixels."""
        if not self._is_binary:
            return {}
        high = self.point(codes)
        pairs = torch.stack([1.0 - high, high], dim=-1)  # (N, D, 2)
        return {c: LevelProbabilities.of_levels(pairs[:, c], codes, c) for c in range(len(self.columns))}

    def _mean(self, codes: Incomplete) -> Tensor:
        """Returns the expected features (N, D)."""
        raise NotImplementedError

    def _feature_quantiles(self, codes: Incomplete, probabilities: Sequence[float]) -> Tensor:
        """Returns quantiles (Q, N, D) of features."""
        raise NotImplementedError

    @property
    def _is_binary(self) -> bool:
        return self.columns[0].levels is not None

    def _completed(self, codes: Incomplete, features: Tensor) -> Tensor:
        return torch.where(codes.observed, codes.x, self.features.numbers(features.double()))


DerivedCells: TypeAlias = tuple[Integers, Floats]  # rows, and their values

FAR = 4.0  # observed ranges between an imputed value and the observed values, from which the user is warned
NAMED = 5  # columns that are named in separate warnings; the others are counted


class FarValues:
    """Counts the values of models that lie far outside the observed values, in one call of an imputer."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = columns
        self.counts: dict[int, int] = {}

    def add(self, j: int, codes: Floats) -> None:
        """Counts the codes of column j that a model returned, before they are limited to its range."""
        low, high = self.columns[j].observed_low, self.columns[j].observed_high
        if low is None or high is None or not len(codes):
            return
        if low == high:  # one observed value has no range by which a distance could be judged
            return
        greatest = self.columns[j].greatest  # further away if an outcome implies it (`widen_range`)
        with np.errstate(over="ignore"):
            reach = FAR * (np.float64(high) - np.float64(low))
            most = high + reach if greatest is None else max(high + reach, greatest)
            n_far = int(((codes < low - reach) | (codes > most)).sum())
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
    empty: Mapping[int, Booleans],
) -> dict[int, DerivedCells]:
    """Returns the missing cells of derived columns, by position; the parameters are those of `fill_cells`."""
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
    completed: Sequence[Floats],
    empty: Mapping[int, Booleans],
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
