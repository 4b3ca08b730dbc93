"""The base class of all imputers: everything except the model."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight
from torch import Tensor

from halfseen._answer_progress import part_of_answer
from halfseen._freed import give_back_memory
from halfseen._random import Keys, content_keys, row_keys
from halfseen._threads import task_threads
from halfseen.base.completion import TabularCompletion, TabularModel
from halfseen.base.draws import DrawnArray, DrawnTables
from halfseen.base.far_values import FarValues
from halfseen.base.model_file import BROKEN, check_rows, explained
from halfseen.base.parameters import all_or_nothing, check_whole
from halfseen.base.table import COPIES, ReadTable, TableEstimator, rows_at_once
from halfseen.config import rows_within_budget
from halfseen.data.columns import Column, SkipRule
from halfseen.data.derived import derive_cells, used_columns
from halfseen.data.features import MAX_INDICATORS
from halfseen.data.grouping import group_announcements
from halfseen.data.incomplete import Incomplete, check_not_masked
from halfseen.data.leaving import announcements, explain_left
from halfseen.data.reliability import ColumnCheck, leave_unreliable
from halfseen.data.schema import Schema
from halfseen.data.skip_rules import Applicability, FoundRules, find_rules, rule_announcements
from halfseen.errors import warn_user


def repeat_rows(codes: Incomplete, sample_weight: Any) -> Incomplete:
    """Returns rows repeated by their weights; all rows once if there are no weights.

    Examples
    --------
    >>> codes = Incomplete(torch.tensor([[1.0], [2.0]]), torch.ones(2, 1, dtype=torch.bool))
    >>> repeat_rows(codes, [0, 2]).x.ravel()
    tensor([2., 2.])
    """
    if sample_weight is None:
        return codes
    weights = _check_sample_weight(
        check_not_masked(sample_weight, "sample_weight"),
        np.empty((len(codes), 1)),
        dtype=np.float64,
        ensure_non_negative=True,
    )
    odd = np.flatnonzero(weights != np.round(weights))
    if len(odd):
        raise ValueError(
            f"sample_weight must hold whole numbers, the numbers of times that rows count, got "
            f"{weights[odd[0]]:g} in row {odd[0]}. Pass survey weights to the analysis: halfseen.pool(..., "
            "weights=...)."
        )
    if not weights.any():
        raise ValueError("sample_weight must not be zero for all rows.")
    return codes[torch.repeat_interleave(torch.arange(len(codes)), torch.from_numpy(weights).long())]


Floats = npt.NDArray[np.float64]
DerivedCells: TypeAlias = tuple[npt.NDArray[np.int64], Floats]  # rows, and their values


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


def _has_density(imputer: "BaseImputer") -> bool:
    if not imputer._density:
        raise AttributeError(
            f"{type(imputer).__name__} has no density of rows: its conditional distributions are not those "
            "of one joint distribution. GaussianImputer, MixtureImputer and CircuitImputer have a density."
        )
    return True


DERIVED_DRAWS = 200  # of the inputs of derived columns, for the ends of their intervals

INDICATOR = "missingindicator_"  # before the names of columns of `add_indicator`, as in scikit-learn


class BaseImputer(OneToOneFeatureMixin, TransformerMixin, TableEstimator):
    """Fits a model to an incomplete table and imputes missing values of tables with the same columns.

    A subclass defines its parameters, a method `_fit_model(codes)` that returns a `TabularCompletion`, and a
    method `_model_from_state` that rebuilds the model from saved tensors. A subclass whose `model_` is not a
    `TabularCompletion` overrides `_fit_codes`, `_answers`, `_state` and `_restore`. `transform` never refits,
    and observed values are returned unchanged.

    In a data frame, some missing values are left empty: those in the columns of `columns_left_`, and those
    to which the column does not apply by a rule of `skip_rules_`. Numeric arrays are imputed
    completely.
    """

    model_: Any
    _density: bool = True  # whether there is one, so that rows can be scored
    _reports_rows: bool = False  # whether the model reports its progress through the rows of a chunk
    _draws_one_by_one: bool = False  # whether the model needs no more memory for several draws than for one

    @property
    def _holds_out_rows(self) -> bool:
        """Whether `fit` holds out rows, which must then not be repeated."""
        return hasattr(self, "validation_fraction")

    @all_or_nothing
    @task_threads()
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> "BaseImputer":
        """Infers the kinds of the columns and fits the model.

        Parameters
        ----------
        X : pandas, polars or pyarrow table, or array-like of shape (n_samples, n_features)
            The incomplete table. Missing values are None, NaN, NaT, NA or null.
        y : ignored
            Not used; present for compatibility with scikit-learn.
        sample_weight : array-like of shape (n_samples,), optional
            Integers that state how often each row counts: a weight of 2 is equivalent to a row that occurs
            twice. Rows with zero weight are used for schema inference only.

        Returns
        -------
        self
            The fitted imputer.
        """
        if not isinstance(self.add_indicator, bool | np.bool_):
            raise ValueError(f"add_indicator must be True or False, got {self.add_indicator!r}.")
        if self.add_indicator and self._takes_images:
            raise ValueError("Images have no columns for missing-indicators: add_indicator must be False.")
        read = self._read(X, reset=True)
        self._find_rules_and_announce(read)
        self._fit_codes(repeat_rows(read.codes, sample_weight))
        return self

    @property
    def columns_left_(self) -> dict[str, str]:
        """The columns whose missing values are left empty: a dict from their names to the reasons."""
        return {column.name: explain_left(column) for column in self.schema_ if column.left is not None}

    @property
    def skip_rules_(self) -> dict[str, SkipRule]:
        """The columns that do not apply to all rows: a dict from their names to the rules."""
        return {column.name: column.skip for column in self.schema_ if isinstance(column.skip, SkipRule)}

    def transform(self, X: Any) -> Any:
        """Imputes each missing value by its conditional mean or its most probable level.

        Parameters
        ----------
        X : table or array-like of shape (n_samples, n_features)
            A table with the columns of the training table.

        Returns
        -------
        table or array
            The completed table, of the same type as `X`. Observed values are unchanged. With `add_indicator`,
            indicator columns are appended: True and False in a data frame, 1 and 0 in an array.
        """
        read = self._read(X, reset=False)
        point = self._point(read)
        empty = self._rules(read).empty_cells(point)
        derived = derive(self.schema_.columns, read, point, empty)
        read = read.without_codes()
        far = FarValues(self.schema_.columns)
        filled = fill_cells(self.schema_.columns, read, point, empty, derived, far=far)
        far.warn()
        if not self.add_indicator:
            return read.restored(filled)
        marked = self._indicated
        return read.table.appended(
            filled, [INDICATOR + self.schema_.columns[j].name for j in marked], read.missing[:, marked]
        )

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[Any]:
        """Returns the names of the columns that `transform` returns.

        Parameters
        ----------
        input_features : array-like of str, optional
            The names of the input columns; those of `fit` if not given.
        """
        names = super().get_feature_names_out(input_features)
        if not self.add_indicator:
            return names
        return np.array([*names, *(f"{INDICATOR}{names[j]}" for j in self._indicated)], dtype=object)

    @property
    def _indicated(self) -> list[int]:
        """The positions of the columns that have missing values in `fit`."""
        return [j for j, column in enumerate(self.schema_) if column.n_missing]

    def sample(self, X: Any, n_draws: int = 1) -> Any:
        """Draws completed tables from the conditional distribution of the missing values.

        The missing values of a row are drawn jointly. The draws of a row depend on the seed, on the values of
        the row and on the number of equal rows before it, but not on the other rows.

        Parameters
        ----------
        X : table or array-like of shape (n_samples, n_features)
            A table with the columns of the training table.
        n_draws : int, default=1
            The number of completed tables.

        Returns
        -------
        list of tables, or array of shape (n_draws, n_samples, n_features)
            Tables of the same type as `X`; an array if `X` is an array.
        """
        return self._sample(X, n_draws, row_keys)

    def _sample_by_content(self, X: Any, n_draws: int) -> Any:
        """Draws as `sample` does, except that equal rows have equal draws: those of the row alone."""
        return self._sample(X, n_draws, content_keys)

    def _sample(self, X: Any, n_draws: int, make_keys: Callable[[npt.NDArray[np.float64], int], Keys]) -> Any:
        check_whole("n_draws", n_draws, 1)
        read = self._read(X, reset=False)
        keys = make_keys(read.codes.to_array(), self.seed_)
        drawn = self._by_chunk(
            read, n_draws, lambda model, codes, rows: model.draws(codes, keys[rows], n_draws)
        )
        rules = self._rules(read)
        reservations = [*group_announcements(self.schema_.columns), *self._pooling_reservations(n_draws)]
        far = FarValues(self.schema_.columns)
        completed_tables = (
            fill_cells(self.schema_.columns, read, one, rules.empty_cells(one), far=far) for one in drawn
        )
        if read.table.named:
            drawn_tables = DrawnTables(completed_tables, reservations)
            far.warn()
            return drawn_tables
        tables = np.empty((n_draws, *read.missing.shape), dtype=read.table.native.dtype)
        for s, completed in enumerate(completed_tables):
            tables[s] = completed
        far.warn()
        return DrawnArray.of(read.restored(tables), reservations)

    def interval(self, X: Any, level: float = 0.9) -> tuple[Any, Any]:
        """Returns, for each missing value separately, an interval that contains it with probability `level`.

        Parameters
        ----------
        X : table or array-like of shape (n_samples, n_features)
            A table with the columns of the training table.
        level : float, default=0.9
            The probability, between 0 and 1.

        Returns
        -------
        low, high : tables of the same type as `X`
            The lower and upper ends. Both contain the observed value where there is one, and both are empty
            where `transform` leaves a value empty. In a column with levels both contain the most probable
            level (see `class_probabilities`), or levels on both sides of it if the model uses their order.
            The ends of integer columns are rounded to integers, which does not reduce the probability.
        """
        if not 0 < level < 1:
            raise ValueError(f"level must be between 0 and 1, got {level!r}.")
        ends = ((1 - level) / 2, (1 + level) / 2)
        read = self._read(X, reset=False)
        quantiles = self._by_chunk(read, 2, lambda model, codes, rows: model.quantiles(codes, ends))
        rules = self._rules(read)
        empty = rules.empty_cells(self._point(read) if rules.undecided else quantiles[0])
        derived: Sequence[Any] = (None, None)
        if any(column.derived is not None for column in self.schema_):
            derived = self._derived_ends(read, ends)
        far = FarValues(self.schema_.columns)
        low, high = (
            read.restored(fill_cells(self.schema_.columns, read, completed, empty, cells, far=far))
            for completed, cells in zip(quantiles, derived, strict=True)
        )
        far.warn()
        return low, high

    @task_threads()
    def class_probabilities(self, X: Any) -> dict[str, npt.NDArray[np.float64]]:
        """Returns the probabilities of all levels, for each column with levels.

        Returns
        -------
        dict of str to array of shape (n_samples, n_levels)
            The levels are in the order of ``schema_``. The probabilities of an observed value are 0 and 1.
        """
        read = self._read(X, reset=False)
        model = self._answers
        found = {
            c: np.empty((read.table.n_rows, len(column.levels)))
            for c, column in enumerate(self._modelled)
            if column.levels is not None
        }
        if model is None or not found:
            return {}
        size = rows_at_once(self._width + max(answer.shape[1] for answer in found.values()))
        for start in range(0, read.table.n_rows, size):
            with explained(self):
                probabilities = model.level_probabilities(read.codes[start : start + size])
            for c, answer in found.items():
                answer[start : start + size] = probabilities[c].dense().numpy()
        for answer in found.values():
            check_rows(answer, f"{type(self).__name__}.class_probabilities")
        modelled = self._modelled
        return {modelled[c].name: answer for c, answer in found.items()}

    @task_threads()
    def top_probabilities(self, X: Any) -> dict[str, npt.NDArray[np.float64]]:
        """Returns the probability of the most probable level, for each column with levels.

        This is the maximum of each row of `class_probabilities`, computed without the memory for all levels.

        Returns
        -------
        dict of str to array of shape (n_samples,)
            The probability is 1 where the value was observed.
        """
        read = self._read(X, reset=False)
        model = self._answers
        if model is None:
            return {}
        levelled = [c for c, column in enumerate(self._modelled) if column.levels is not None]
        found = {c: np.ones(read.table.n_rows) for c in levelled}
        rows = np.flatnonzero(~read.codes.observed[:, levelled].all(dim=1).numpy())
        for part in self._parts(rows):
            probabilities = model.level_probabilities(read.codes[torch.from_numpy(part)])
            for c, answer in found.items():
                answer[part] = probabilities[c].top().numpy()
        modelled = self._modelled
        return {modelled[c].name: answer for c, answer in found.items()}

    @available_if(_has_density)
    @task_threads()
    def score_samples(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the log density of the observed values of each row, in the units of the table.

        Missing values are integrated out. Columns that are not modelled (constant, identifier or empty
        columns) and levels that did not occur in `fit` are ignored.

        Returns
        -------
        array of shape (n_samples,)
        """
        read = self._read(X, reset=False)
        model = cast("TabularModel | None", self._answers)
        if model is None:
            return np.zeros(read.table.n_rows)
        scores = np.empty(read.table.n_rows)
        for rows in self._parts(np.arange(read.table.n_rows)):
            with explained(self):
                scores[rows] = model.log_prob(read.codes[torch.from_numpy(rows)]).numpy()
        check_rows(scores, f"{type(self).__name__}.score_samples", log_density=True)
        return scores

    @available_if(_has_density)
    def score(self, X: Any, y: Any = None) -> float:
        """Returns the mean of `score_samples`, so that parameters can be chosen by cross-validation."""
        scores = self.score_samples(X)
        if len(scores) == 0:
            raise ValueError("The score is a mean over rows: X must have at least one row, but it has none.")
        return float(scores.mean())

    def _pooling_reservations(self, n_draws: int) -> list[str]:
        """Returns sentences with reasons why intervals pooled over draws may be wrong."""
        return [
            f"The draws of {type(self).__name__} ignore that its parameters are uncertain, so pooled "
            "intervals may be too narrow; use halfseen.multiple_imputation(X, imputer)."
        ]

    def _fit_codes(self, codes: Incomplete) -> None:
        """Fits the model to the codes of the modelled columns; if there are none, there is no model."""
        self.model_ = self._fit_model(codes) if self._modelled else None

    def _check_saveable(self) -> None:
        """Raises if a parameter of the imputer cannot be written to a file."""

    @property
    def _answers(self) -> TabularCompletion | None:
        """The fitted model that completes the codes of tables."""
        model: TabularCompletion | None = self.model_
        return model

    def _fit_model(self, codes: Incomplete) -> TabularCompletion:
        raise NotImplementedError(f"{type(self).__name__} must implement `_fit_model`.")

    def _model_from_state(self, state: Mapping[str, Tensor]) -> TabularCompletion:
        raise NotImplementedError(f"{type(self).__name__} must implement `_model_from_state`.")

    def _state(self) -> dict[str, Tensor]:
        return {} if self.model_ is None else dict(self.model_.state())

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        self.model_ = self._model_from_state(state) if self._modelled else None

    @property
    def _width(self) -> int:
        """An upper bound on the number of features per row, for planning memory."""
        sizes = [(column.kind, len(column.levels or "1")) for column in self._modelled]
        return sum(n if kind == "ordinal" else min(n, MAX_INDICATORS + 1) for kind, n in sizes)

    def _parts(self, rows: npt.NDArray[np.int64], n_draws: int = 1) -> Iterator[npt.NDArray[np.int64]]:
        """Yields chunks of rows that fit into the memory budget."""
        size = rows_within_budget(self._numbers_per_row(n_draws))
        for start in range(0, len(rows), size):
            yield rows[start : start + size]

    def _numbers_per_row(self, n_draws: int) -> int:
        """Returns how many numbers are in memory for each row at the peak of an answer with some draws."""
        if self._draws_one_by_one:
            return COPIES * (self._width + n_draws * len(self._modelled))
        return COPIES * max(1, self._width) * n_draws

    @task_threads()
    def _by_chunk(
        self,
        read: ReadTable,
        n_draws: int,
        complete: Callable[[TabularCompletion, Incomplete, npt.NDArray[np.int64]], Tensor],
    ) -> list[list[npt.NDArray[np.float64]]]:
        """Completes incomplete rows in chunks, and keeps only the codes of their missing cells.

        `complete` takes the model, the codes of some rows and the positions of these rows, and returns (S, N,
        C). The result has, for each draw, a list of the codes of missing cells of each modelled column.
        """
        model = self._answers
        if model is None:
            return [[] for _ in range(n_draws)]
        modelled = [j for j, column in enumerate(self.schema_) if column.modelled]
        missing = read.missing[:, modelled]  # (N, C)
        kept = [np.empty((n_draws, n_missing)) for n_missing in missing.sum(axis=0)]
        done = np.zeros(len(modelled), dtype=np.int64)
        incomplete = np.flatnonzero(missing.any(axis=1))
        parts = list(self._parts(incomplete, n_draws))
        n_rows = 0
        for rows in parts:
            start, end = n_rows / len(incomplete), (n_rows + len(rows)) / len(incomplete)
            with part_of_answer(start, end, divisible=self._reports_rows), explained(self):
                completed = complete(model, read.codes[torch.from_numpy(rows)], rows).numpy()
            n_rows += len(rows)
            for c, values in enumerate(kept):
                of_column = completed[:, missing[rows, c], c]
                if np.isnan(of_column).any():  # infinite ones are limited to what the column can hold
                    raise self._broken_column(modelled[c])
                values[:, done[c] : done[c] + of_column.shape[1]] = of_column
                done[c] += of_column.shape[1]
        if len(parts) > 1:
            del completed, of_column
            give_back_memory()  # before the answer is written into a copy of the table
        return [[values[s] for values in kept] for s in range(n_draws)]

    def _broken_column(self, position: int) -> ValueError:
        """Returns the error of a model that fills a column with NaN."""
        name = self.schema_.columns[position].name
        return ValueError(f"{type(self).__name__} has no values for column {name!r}. {BROKEN}")

    def _point(self, read: ReadTable) -> list[npt.NDArray[np.float64]]:
        (completed,) = self._by_chunk(read, 1, lambda model, codes, rows: model.point(codes)[None])
        return completed

    def _derived_ends(self, read: ReadTable, ends: tuple[float, float]) -> Sequence[Any]:
        """Returns the ends of the intervals of derived cells, from draws of the columns they follow from."""
        keys, rules = content_keys(read.codes.to_array(), self.seed_), self._rules(read)
        drawn = self._by_chunk(
            read, DERIVED_DRAWS, lambda model, codes, rows: model.draws(codes, keys[rows], DERIVED_DRAWS)
        )
        cells = [derive(self.schema_.columns, read, one, rules.empty_cells(one)) for one in drawn]
        point = self._point(read)
        return enclose(derive(self.schema_.columns, read, point, rules.empty_cells(point)), cells, ends)

    def _leave_unreliable(
        self, checks: Mapping[str, ColumnCheck], min_skill: float | None, at_chance: Collection[str] = ()
    ) -> None:
        """Leaves columns empty from now on that are filled unreliably, and warns; see `leave_unreliable`."""
        before = self.schema_
        self.schema_ = Schema(leave_unreliable(before.columns, checks, min_skill, at_chance))
        for member in getattr(self, "members_", ()):
            member.schema_ = self.schema_
        changed = [now for now, old in zip(self.schema_, before, strict=True) if now.left != old.left]
        for sentence in announcements(changed, named=True):
            warn_user(sentence)

    def _rules(self, read: ReadTable) -> Applicability:
        return Applicability.of(self.schema_.columns, read.table, read.missing)

    def _find_rules_and_announce(self, read: ReadTable) -> None:
        """Adds the skip rules found in a data frame to the schema, and warns about columns left empty."""
        named = read.table.named and not self._takes_images
        found = FoundRules({}, {})
        if named:
            found = find_rules(self.schema_.columns, read.missing, read.codes)
        self.schema_ = Schema(tuple(replace(c, skip=found.rules.get(c.name, c.skip)) for c in self.schema_))
        left = announcements(self.schema_.columns, named=read.table.named)
        for sentence in [*left, *rule_announcements(self._rules(read), found)]:
            warn_user(sentence)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
