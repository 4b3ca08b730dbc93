"""What all imputers share: everything but the model."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from torch import Tensor

from halfseen._random import row_keys
from halfseen._threads import task_threads
from halfseen.data.columns import SkipRule
from halfseen.data.features import MAX_INDICATORS
from halfseen.data.incomplete import Incomplete
from halfseen.data.leaving import announcements, explain
from halfseen.data.schema import Schema
from halfseen.data.skip_rules import Applicability, find_rules, rule_announcements
from halfseen.errors import warn_user
from halfseen.estimators._parameters import check_whole
from halfseen.estimators._table import ReadTable, TableEstimator, rows_at_once
from halfseen.estimators._transaction import all_or_nothing
from halfseen.models.tabular import TabularModel


class BaseImputer(OneToOneFeatureMixin, TransformerMixin, TableEstimator):
    """Fits a model to a table with holes and fills holes of any table with the same columns.

    A subclass has parameters, `_fit_model(codes)` that returns a `TabularModel`, and `_model_from_state` that
    rebuilds it from saved tensors. `transform` never refits; observed cells come back unchanged, exactly.

    In a data frame, missing cells stay empty where no value would be sensible: in the columns of
    `columns_left_`, and where a rule of `skip_rules_` says that a column does not apply. An array of numbers
    is filled completely.
    """

    @all_or_nothing
    @task_threads()
    def fit(self, X: Any, y: Any = None) -> "BaseImputer":
        """Learns the columns' kinds and the model from a table.

        Parameters
        ----------
        X : pandas, polars or pyarrow table, or array-like of shape (n_samples, n_features)
            Missing cells are None, NaN, NaT, NA or null.
        y : ignored
            Present for the scikit-learn interface; an imputer never looks at it.
        """
        read = self._read(X, reset=True)
        self._find_rules_and_announce(read)
        self.model_ = self._fit_model(read.codes) if self._modelled else None
        return self

    @property
    def columns_left_(self) -> dict[str, str]:
        """The columns whose missing cells are left empty, in `fit` and later: from their names to why."""
        return {column.name: explain(column) for column in self.schema_ if column.left is not None}

    @property
    def skip_rules_(self) -> dict[str, SkipRule]:
        """The columns that do not apply to all rows: from their names to the values of another column."""
        return {column.name: column.skip for column in self.schema_ if isinstance(column.skip, SkipRule)}

    def transform(self, X: Any) -> Any:
        """Returns the table with holes filled by their best single value: mean, or most probable level."""
        read = self._read(X, reset=False)
        point = self._point(read)
        return self._write(read, point, self._rules(read).empty_cells(point))

    def sample(self, X: Any, n_draws: int = 1) -> Any:
        """Draws completed tables; cells of a row are drawn jointly.

        A draw depends on the seed, the content of the row and how many equal rows came before it, not on the
        other rows.

        Returns
        -------
        list of tables, or array of shape (n_draws, n_samples, n_features)
            Tables in the library of `X`; an array if `X` is one.
        """
        check_whole("n_draws", n_draws, 1)
        read = self._read(X, reset=False)
        keys = row_keys(read.codes.to_array(), self.seed_)
        drawn = self._by_chunk(
            read, n_draws, lambda model, codes, rows: model.draws(codes, keys[rows], n_draws)
        )
        rules = self._rules(read)
        if read.table.named:
            return [self._write(read, completed, rules.empty_cells(completed)) for completed in drawn]
        tables = np.empty((n_draws, *read.missing.shape), dtype=read.table.native.dtype)
        for s, completed in enumerate(drawn):
            tables[s] = self._write(read, completed, rules.empty_cells(completed))
        return tables

    def interval(self, X: Any, level: float = 0.9) -> tuple[Any, Any]:
        """Returns two tables that enclose each missing cell with probability `level`, each cell by itself.

        Where a cell was observed, both hold its value. For a column with levels, both hold the most probable
        one (see `class_probabilities`), or levels on both sides of it where the model knows their order.
        Bounds of whole-number columns are rounded, so that they hold as much as the unrounded ones or more of
        the numbers that round to them. Both are empty where `transform` leaves a cell empty.
        """
        if not 0 < level < 1:
            raise ValueError(f"level must be between 0 and 1, got {level!r}.")
        ends = ((1 - level) / 2, (1 + level) / 2)
        read = self._read(X, reset=False)
        quantiles = self._by_chunk(read, 2, lambda model, codes, rows: model.quantiles(codes, ends))
        rules = self._rules(read)
        empty = rules.empty_cells(self._point(read) if rules.undecided else quantiles[0])
        low, high = (self._write(read, completed, empty) for completed in quantiles)
        return low, high

    @task_threads()
    def class_probabilities(self, X: Any) -> dict[str, npt.NDArray[np.float64]]:
        """Returns for each column with levels the probability of each, of shape (n_samples, n_levels).

        Levels are in the order of ``schema_``; where a cell was observed the probability is 0 or 1.
        """
        read = self._read(X, reset=False)
        if self.model_ is None:
            return {}
        found = {
            c: np.empty((read.table.n_rows, len(column.levels)))
            for c, column in enumerate(self._modelled)
            if column.levels is not None
        }
        if not found:
            return {}
        size = rows_at_once(self._width + max(answer.shape[1] for answer in found.values()))
        for start in range(0, read.table.n_rows, size):
            probabilities = self.model_.level_probabilities(read.codes[start : start + size])
            for c, answer in found.items():
                answer[start : start + size] = probabilities[c].dense().numpy()
        return {self._modelled[c].name: answer for c, answer in found.items()}

    @task_threads()
    def top_probabilities(self, X: Any) -> dict[str, npt.NDArray[np.float64]]:
        """Returns for each column with levels the probability (n_samples,) of the most probable one.

        That is the maximum of each row of `class_probabilities`, without the memory for all levels; where a
        cell was observed it is 1.
        """
        read = self._read(X, reset=False)
        if self.model_ is None:
            return {}
        levelled = [c for c, column in enumerate(self._modelled) if column.levels is not None]
        found = {c: np.ones(read.table.n_rows) for c in levelled}
        rows = np.flatnonzero(~read.codes.observed[:, levelled].all(dim=1).numpy())
        for part in self._parts(rows):
            probabilities = self.model_.level_probabilities(read.codes[torch.from_numpy(part)])
            for c, answer in found.items():
                answer[part] = probabilities[c].top().numpy()
        return {self._modelled[c].name: answer for c, answer in found.items()}

    @task_threads()
    def score_samples(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the log density of the observed cells of each row, in the units of the table.

        Missing cells are integrated out. Columns that no model sees (constants, identifiers, empty ones) and
        levels never seen in `fit` do not count.
        """
        read = self._read(X, reset=False)
        if self.model_ is None:
            return np.zeros(read.table.n_rows)
        scores = np.empty(read.table.n_rows)
        for rows in self._parts(np.arange(read.table.n_rows)):
            scores[rows] = self.model_.log_prob(read.codes[torch.from_numpy(rows)]).numpy()
        return scores

    def score(self, X: Any, y: Any = None) -> float:
        """Returns the mean of `score_samples`: higher is better, so models can be searched over."""
        scores = self.score_samples(X)
        if len(scores) == 0:
            raise ValueError("The score is a mean over rows: X must have at least one row, got none.")
        return float(scores.mean())

    def _fit_model(self, codes: Incomplete) -> TabularModel:
        raise NotImplementedError(f"{type(self).__name__} does not say how its model is fitted.")

    def _model_from_state(self, state: Mapping[str, Tensor]) -> TabularModel:
        raise NotImplementedError(f"{type(self).__name__} does not say how its model is rebuilt.")

    def _state(self) -> dict[str, Tensor]:
        return {} if self.model_ is None else self.model_.state()

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        self.model_ = self._model_from_state(state) if self._modelled else None

    @property
    def _width(self) -> int:
        """An upper bound of the features per row, for planning memory; ordered levels may be all in use."""
        most = [MAX_INDICATORS + 1 if column.kind != "ordinal" else math.inf for column in self._modelled]
        return sum(
            int(min(len(column.levels or "1"), many))
            for column, many in zip(self._modelled, most, strict=True)
        )

    def _parts(self, rows: npt.NDArray[np.int64], n_draws: int = 1) -> Iterator[npt.NDArray[np.int64]]:
        """Yields so many rows at a time as fit in the memory budget."""
        size = rows_at_once(self._width, n_draws)
        for start in range(0, len(rows), size):
            yield rows[start : start + size]

    @task_threads()
    def _by_chunk(
        self,
        read: ReadTable,
        n_draws: int,
        complete: Callable[[TabularModel, Incomplete, npt.NDArray[np.int64]], Tensor],
    ) -> list[list[npt.NDArray[np.float64]]]:
        """Completes rows that have missing cells, some at a time, and keeps the codes of these cells alone.

        `complete` gets the model, the codes of some rows, and which rows they are; it returns (S, N, C).
        For each draw there is a list with the codes of the missing cells of each modelled column.
        """
        if self.model_ is None:
            return [[] for _ in range(n_draws)]
        modelled = [j for j, column in enumerate(self.schema_) if column.modelled]
        missing = read.missing[:, modelled]  # (N, C)
        kept = [np.empty((n_draws, n_missing)) for n_missing in missing.sum(axis=0)]
        done = np.zeros(len(modelled), dtype=np.int64)
        for rows in self._parts(np.flatnonzero(missing.any(axis=1)), n_draws):
            completed = complete(self.model_, read.codes[torch.from_numpy(rows)], rows).numpy()
            for c, values in enumerate(kept):
                of_column = completed[:, missing[rows, c], c]
                values[:, done[c] : done[c] + of_column.shape[1]] = of_column
                done[c] += of_column.shape[1]
        return [[values[s] for values in kept] for s in range(n_draws)]

    def _point(self, read: ReadTable) -> list[npt.NDArray[np.float64]]:
        (completed,) = self._by_chunk(read, 1, lambda model, codes, rows: model.point(codes)[None])
        return completed

    def _rules(self, read: ReadTable) -> Applicability:
        return Applicability.of(self.schema_.columns, read.table, read.missing)

    def _write(
        self,
        read: ReadTable,
        completed: Sequence[npt.NDArray[np.float64]],
        empty: Mapping[int, npt.NDArray[np.bool_]],
    ) -> Any:
        """Writes codes of each modelled column into the cells that were missing, as values it may take.

        Columns that are left as they are stay missing, and so do cells (N) that are `empty`, by position.
        """
        cells = {}
        position = -1
        for j, column in enumerate(self.schema_):
            position += column.modelled
            if column.left is not None:
                continue
            rows = np.flatnonzero(read.missing[:, j])
            codes = completed[position] if column.modelled else np.full(len(rows), column.fill_code)
            if j in empty:
                applies = ~empty[j][rows]
                rows, codes = rows[applies], codes[applies]
            if len(rows):
                cells[j] = rows, column.decode(column.constrain(codes) if column.modelled else codes)
        return read.table.filled(cells)

    def _find_rules_and_announce(self, read: ReadTable) -> None:
        """Adds the skip rules that a data frame shows to the schema, and says what was decided."""
        named = read.table.named and self._may_have_rules
        found = find_rules(self.schema_.columns, read.missing, read.codes) if named else {}
        self.schema_ = Schema(
            tuple(replace(c, skip=found[c.name]) if c.name in found else c for c in self.schema_)
        )
        for sentence in announcements(self.schema_.columns, named=read.table.named):
            warn_user(sentence)
        for sentence in rule_announcements(self._rules(read), found):
            warn_user(sentence)

    @property
    def _may_have_rules(self) -> bool:
        """Whether the columns of a data frame may not apply to some rows."""
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
