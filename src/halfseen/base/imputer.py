"""The base class of all imputers: everything except the model."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.metaestimators import available_if
from torch import Tensor

from halfseen._machine import give_back_memory
from halfseen._random import Keys, content_keys, id_keys, row_keys
from halfseen._threads import map_in_threads, task_threads
from halfseen.base.capabilities import Capabilities
from halfseen.base.completion import (
    DrawnArray,
    DrawnTables,
    FarValues,
    TabularCompletion,
    TabularModel,
    central,
    derive,
    enclose,
    fill_cells,
)
from halfseen.base.near_copies import NearCopy, WithNearCopies, relate_near_copies
from halfseen.base.parameters import BROKEN, all_or_nothing, check_level, check_rows, check_whole, explained
from halfseen.base.table import COPIES, ReadTable, TableEstimator, repeat_rows, rows_at_once, takes_scans
from halfseen.config import tasks_within_budget
from halfseen.data.columns import SkipRule
from halfseen.data.features import MAX_INDICATORS
from halfseen.data.incomplete import PIECE_BYTES, Incomplete, blocks_of, rows_in_piece
from halfseen.data.leaving import ColumnCheck, announcements, explain_left, leave_unreliable
from halfseen.data.relations import group_announcements
from halfseen.data.schema import Schema
from halfseen.data.skip_rules import Applicability, FoundRules, find_rules, rule_announcements
from halfseen.errors import RepeatedIdsWarning, warn_user
from halfseen.training.progress import part_of_answer, report_share
from halfseen.words import Note


def _has_density(imputer: "BaseImputer") -> bool:
    if not imputer.capabilities.density:
        raise AttributeError(
            f"{type(imputer).__name__} has no density of rows: its conditional distributions are not those "
            "of one joint distribution. GaussianImputer, MixtureImputer and CircuitImputer have a density."
        )
    return True


def _keys_of_ids(row_ids: Any, n_rows: int, seed: int) -> Keys:
    keys = id_keys(row_ids, seed)
    if len(keys) != n_rows:
        raise ValueError(f"row_ids must have one id for each row: got {len(keys)} ids for {n_rows} rows.")
    _, first, counts = np.unique(keys, return_index=True, return_counts=True)
    if (counts > 1).any():
        row = int(first[counts > 1].min())
        repeated = np.asarray(row_ids).tolist()[row]
        n_rows = int(counts[first == row][0])
        warn_user(
            f"{repeated!r} in row_ids is the id of {n_rows:,} rows: rows with equal ids have the same random "
            "numbers, so their draws vary together. Pass an id of each row, such as its number.",
            RepeatedIdsWarning,
        )
    return keys


DERIVED_DRAWS = 200  # of the inputs of derived columns, for the ends of their intervals

INDICATOR = "missingindicator_"  # before the names of columns of `add_indicator`, as in scikit-learn


@dataclass(eq=False, repr=False, kw_only=True)
class BaseImputer(OneToOneFeatureMixin, TransformerMixin, TableEstimator):
    """Fits a model to an incomplete table and imputes missing values of tables with the same columns.

    A subclass defines its parameters, a method `_fit_model(codes)` that returns a `TabularCompletion`, and a
    method `_model_from_state` that rebuilds the model from saved tensors. A subclass whose `model_` is not a
    `TabularCompletion` overrides `_fit_codes`, `_fitted_model`, `_state` and `_restore`. Its `capabilities`
    say what distinguishes it, such as that it has no density or is trained in epochs. `transform` never
    refits, and observed values are returned unchanged.

    In a data frame, some missing values are left empty: those in the columns of `columns_left_`, and those
    to which the column does not apply by a rule of `skip_rules_`. Numeric arrays are imputed
    completely.

    Numbers that are nearly copies of each other are imputed by a linear relation where the fitted model has
    far wider intervals; see `halfseen.base.near_copies`.
    """

    add_indicator: bool = False

    model_: Any = field(init=False)
    _near_copies = cast("Sequence[NearCopy]", ())

    @property
    def capabilities(self) -> Capabilities:
        """What the imputer can do with the parameters that it has."""
        return replace(super().capabilities, imputes=True, density=True, relates_near_copies=True)

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
        if self.add_indicator and self.capabilities.images:
            raise ValueError("Images have no columns for missing-indicators: add_indicator must be False.")
        read = self._read(X, reset=True)
        self._find_rules_and_announce(read)
        self._fit_codes(repeat_rows(read.codes, sample_weight))
        self._relate_near_copies(read.codes)
        return self

    @property
    def columns_left_(self) -> dict[str, str]:
        """The columns whose missing values are left empty: a dict from their names to the reasons."""
        return {column.name: explain_left(column) for column in self.schema_ if column.left is not None}

    @property
    def near_copies_(self) -> dict[str, list[str]]:
        """The columns that are imputed from near-copies by a linear relation, where these are observed.

        A dict from their names to the names of the other columns, the nearest first.
        """
        modelled, found = self._modelled, dict[str, list[str]]()
        for copy in self._near_copies:
            found.setdefault(modelled[copy.target].name, []).append(modelled[copy.source].name)
        return found

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

    def sample(self, X: Any, n_draws: int = 1, row_ids: Any = None) -> Any:
        """Draws completed tables from the conditional distribution of the missing values.

        The missing values of a row are drawn jointly. The draws of a row depend on the seed, on the values of
        the row and on its id or, without ids, on the number of equal rows before it, but not on the other
        rows.

        Parameters
        ----------
        X : table or array-like of shape (n_samples, n_features)
            A table with the columns of the training table.
        n_draws : int, default=1
            The number of completed tables.
        row_ids : array-like of shape (n_samples,), optional
            Integers or strings that name the rows, such as their positions in a larger table or the values
            of a key column. Give them if a table is completed in parts: equal rows in different parts then
            have different draws, and the parts have the draws of the whole table. Rows with equal ids share
            their random numbers.

        Returns
        -------
        list of tables, or array of shape (n_draws, n_samples, n_features)
            Tables of the same type as `X`; an array if `X` is an array.
        """
        if row_ids is None:
            return self._sample(X, n_draws, row_keys)
        return self._sample(X, n_draws, lambda cells, seed: _keys_of_ids(row_ids, len(cells), seed))

    def _sample_by_content(self, X: Any, n_draws: int) -> Any:
        """Draws as `sample` does, except that equal rows have equal draws: those of the row alone."""
        return self._sample(X, n_draws, content_keys)

    def _sample(self, X: Any, n_draws: int, make_keys: Callable[[npt.NDArray[np.float64], int], Keys]) -> Any:
        check_whole("n_draws", n_draws, 1)
        read = self._read(X, reset=False)
        keys = make_keys(read.codes.to_array(), self.seed_)
        drawn = self._by_piece(
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
        check_level(level)
        read = self._read(X, reset=False)
        ends = self._by_piece(read, 2, lambda model, codes, rows: model.interval(codes, level))
        rules = self._rules(read)
        empty = rules.empty_cells(self._point(read) if rules.undecided else ends[0])
        derived: Sequence[Any] = (None, None)
        if any(column.derived is not None for column in self.schema_):
            derived = self._derived_ends(read, level)
        far = FarValues(self.schema_.columns)
        low, high = (
            read.restored(fill_cells(self.schema_.columns, read, completed, empty, cells, far=far))
            for completed, cells in zip(ends, derived, strict=True)
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
        model = self._fitted_model
        found = {
            c: np.empty((read.table.n_rows, len(column.levels)))
            for c, column in enumerate(self._modelled)
            if column.levels is not None
        }
        if model is None or not found:
            return {}
        width = self._width + max(shares.shape[1] for shares in found.values())
        size = rows_at_once(len(self.schema_), width)
        for start in range(0, read.table.n_rows, size):
            rows = torch.arange(start, min(start + size, read.table.n_rows))
            with explained(self):
                probabilities = model.level_probabilities(read.codes[rows])
            for c, shares in found.items():
                shares[start : start + size] = probabilities[c].dense().numpy()
        for shares in found.values():
            check_rows(shares, f"{type(self).__name__}.class_probabilities")
        modelled = self._modelled
        return {modelled[c].name: shares for c, shares in found.items()}

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
        model = self._fitted_model
        if model is None:
            return {}
        levelled = [c for c, column in enumerate(self._modelled) if column.levels is not None]
        found = {c: np.ones(read.table.n_rows) for c in levelled}
        rows = np.flatnonzero(~read.codes.observed[:, levelled].all(dim=1).numpy())
        for part in self._pieces(rows, read.table.n_rows):
            probabilities = model.level_probabilities(read.codes[torch.from_numpy(part)])
            for c, shares in found.items():
                shares[part] = probabilities[c].top().numpy()
        modelled = self._modelled
        return {modelled[c].name: shares for c, shares in found.items()}

    @available_if(_has_density)
    @takes_scans
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
        model = cast("TabularModel | None", self._fitted_model)
        if model is None:
            return np.zeros(read.table.n_rows)
        scores = np.empty(read.table.n_rows)
        for rows in self._pieces(np.arange(read.table.n_rows), read.table.n_rows):
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

    def _relate_near_copies(self, codes: Incomplete) -> None:
        """Finds near-copies that the model draws too widely, and says so; parts of other imputers do not."""
        self._near_copies = ()
        model = self._fitted_model
        if model is None or not self.capabilities.relates_near_copies:
            return
        self._near_copies = relate_near_copies(self._modelled, model, codes)
        if self._near_copies:
            first, modelled = self._near_copies[0], self._modelled
            names = (repr(modelled[c].name) for c in sorted((first.source, first.target)))
            more = " Other columns are as well; see near_copies_." if len(self.near_copies_) > 2 else ""
            warn_user(
                Note(
                    f"Columns {' and '.join(names)} are nearly copies of each other.{more} Where one is "
                    "observed, the other is imputed from it by a linear relation, because the model of "
                    f"{type(self).__name__} would draw it too widely."
                )
            )

    def _check_saveable(self) -> None:
        """Raises if a parameter of the imputer cannot be written to a file."""

    @property
    def _fitted_model(self) -> TabularCompletion | None:
        """The fitted model that completes the codes of tables."""
        model: TabularCompletion | None = self.model_
        return model

    @property
    def _completion(self) -> TabularCompletion | None:
        """The fitted model, with the linear relations between near-copies."""
        model = self._fitted_model
        return WithNearCopies(model, self._near_copies) if model is not None and self._near_copies else model

    def _entries(self) -> dict[str, Any]:
        copies = [copy.to_dict() for copy in self._near_copies]
        return super()._entries() | ({"near_copies": copies} if copies else {})

    def _restore_entries(self, description: Mapping[str, Any]) -> None:
        super()._restore_entries(description)
        modelled = self._modelled
        self._near_copies = [NearCopy.from_dict(one, modelled) for one in description.get("near_copies", ())]

    def _fit_model(self, codes: Incomplete) -> TabularCompletion:
        raise NotImplementedError(f"{type(self).__name__} must implement `_fit_model`.")

    def _model_from_state(self, state: Mapping[str, Tensor]) -> TabularCompletion:
        raise NotImplementedError(f"{type(self).__name__} must implement `_model_from_state`.")

    def _state(self) -> dict[str, Tensor]:
        return {} if self.model_ is None else dict(self.model_.state())

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        self.model_ = self._model_from_state(state) if self._modelled else None

    @property
    def _columns_by_gaussian(self) -> Sequence[str]:
        """The columns that a Gaussian imputes instead of this method."""
        return ()

    @property
    def _width(self) -> int:
        """An upper bound on the number of features per row, for planning memory."""
        sizes = [(column.kind, len(column.levels or "1")) for column in self._modelled]
        return sum(n if kind == "ordinal" else min(n, MAX_INDICATORS + 1) for kind, n in sizes)

    def _pieces(
        self, rows: npt.NDArray[np.int64], n_rows: int, n_draws: int = 1
    ) -> Iterator[npt.NDArray[np.int64]]:
        """Yields some rows of a table, in ascending order, block by block and in pieces of blocks.

        The pieces depend on the rows of their block, on the number of draws and on the model alone.
        """
        size = rows_in_piece(len(self.schema_), self._numbers_per_row(n_draws))
        for block in blocks_of(n_rows, len(self.schema_)):
            some = rows[slice(*np.searchsorted(rows, (block.start, block.stop)))]
            for start in range(0, len(some), size):
                yield some[start : start + size]

    def _numbers_per_row(self, n_draws: int) -> int:
        """Returns how many numbers are in memory for each row at the peak of a completion with some draws."""
        if self.capabilities.draws_one_by_one:
            return COPIES * (self._width + n_draws * len(self._modelled))
        return COPIES * max(1, self._width) * n_draws

    @task_threads()
    def _by_piece(
        self,
        read: ReadTable,
        n_draws: int,
        complete: Callable[[TabularCompletion, Incomplete, npt.NDArray[np.int64]], Tensor],
    ) -> list[list[npt.NDArray[np.float64]]]:
        """Completes incomplete rows in pieces of blocks, and keeps only the codes of their missing cells.

        `complete` takes the model, the codes of some rows and the positions of these rows, and returns (S, N,
        C). The result has, for each draw, a list of the codes of missing cells of each modelled column.
        """
        model = self._completion
        if model is None:
            return [[] for _ in range(n_draws)]
        modelled = [j for j, column in enumerate(self.schema_) if column.modelled]
        missing = read.missing[:, modelled]  # (N, C)
        kept = [np.empty((n_draws, n_missing)) for n_missing in missing.sum(axis=0)]
        done = np.zeros(len(modelled), dtype=np.int64)
        incomplete = np.flatnonzero(missing.any(axis=1))
        pieces = list(self._pieces(incomplete, read.table.n_rows, n_draws))
        run = partial(self._complete_piece, model, read, complete)
        for rows, completed in zip(pieces, self._run_pieces(run, pieces), strict=True):
            for c, values in enumerate(kept):
                of_column = completed[:, missing[rows, c], c]
                if np.isnan(of_column).any():  # infinite ones are limited to what the column can hold
                    raise self._broken_column(modelled[c])
                values[:, done[c] : done[c] + of_column.shape[1]] = of_column
                done[c] += of_column.shape[1]
        if len(pieces) > 1:
            del completed, of_column
            give_back_memory()  # before the completed cells are written into a copy of the table
        return [[values[s] for values in kept] for s in range(n_draws)]

    def _complete_piece(
        self,
        model: TabularCompletion,
        read: ReadTable,
        complete: Callable[[TabularCompletion, Incomplete, npt.NDArray[np.int64]], Tensor],
        rows: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.float64]:
        """Returns completed codes (S, N, C) of the rows of a piece."""
        with explained(self):
            return complete(model, read.codes[torch.from_numpy(rows)], rows).numpy()

    def _run_pieces(
        self,
        run: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.float64]],
        pieces: Sequence[npt.NDArray[np.int64]],
    ) -> Iterator[npt.NDArray[np.float64]]:
        """Yields completed pieces in their order; in several threads, unless a model uses them by itself."""
        total, n_done = sum(map(len, pieces)), 0
        if self.capabilities.reports_rows:
            for rows in pieces:
                with part_of_answer(n_done / total, (n_done + len(rows)) / total, divisible=True):
                    completed = run(rows)
                n_done += len(rows)
                yield completed
            return
        at_most = tasks_within_budget(PIECE_BYTES)
        for rows, completed in zip(pieces, map_in_threads(run, pieces, at_most=at_most), strict=True):
            n_done += len(rows)
            report_share(n_done / total)
            yield completed

    def _broken_column(self, position: int) -> ValueError:
        """Returns the error of a model that fills a column with NaN."""
        name = self.schema_.columns[position].name
        return ValueError(f"{type(self).__name__} has no values for column {name!r}. {BROKEN}")

    def _point(self, read: ReadTable) -> list[npt.NDArray[np.float64]]:
        (completed,) = self._by_piece(read, 1, lambda model, codes, rows: model.point(codes)[None])
        return completed

    def _derived_ends(self, read: ReadTable, level: float) -> Sequence[Any]:
        """Returns the ends of the intervals of derived cells, from draws of the columns they follow from."""
        keys, rules = content_keys(read.codes.to_array(), self.seed_), self._rules(read)
        drawn = self._by_piece(
            read, DERIVED_DRAWS, lambda model, codes, rows: model.draws(codes, keys[rows], DERIVED_DRAWS)
        )
        cells = [derive(self.schema_.columns, read, one, rules.empty_cells(one)) for one in drawn]
        point = self._point(read)
        derived = derive(self.schema_.columns, read, point, rules.empty_cells(point))
        return enclose(derived, cells, central(level))

    def _leave_unreliable(
        self, checks: Mapping[str, ColumnCheck], min_skill: float | None, at_chance: Collection[str] = ()
    ) -> None:
        """Leaves columns empty from now on that are filled unreliably, and warns; see `leave_unreliable`."""
        before = self.schema_
        self._set_schema(Schema(leave_unreliable(before.columns, checks, min_skill, at_chance)))
        changed = [now for now, old in zip(self.schema_, before, strict=True) if now.left != old.left]
        for sentence in announcements(changed, named=True):
            warn_user(sentence)

    def _set_schema(self, schema: Schema) -> None:
        self.schema_ = schema

    def _rules(self, read: ReadTable) -> Applicability:
        return Applicability.of(self.schema_.columns, read.table, read.missing)

    def _find_rules_and_announce(self, read: ReadTable) -> None:
        """Adds the skip rules found in a data frame to the schema, and warns about columns left empty."""
        named = read.table.named and not self.capabilities.images
        found = FoundRules({}, {})
        if named:
            found = find_rules(self.schema_.columns, read.missing, read.codes)
        if found.rules:
            skips = [found.rules.get(c.name, c.skip) for c in self.schema_]
            self.schema_ = Schema(tuple(replace(c, skip=s) for c, s in zip(self.schema_, skips, strict=True)))
        left = announcements(self.schema_.columns, named=read.table.named)
        for sentence in [*left, *map(Note, rule_announcements(self._rules(read), found))]:
            warn_user(sentence)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
