"""The NaN boundary of estimators: tables of users are converted to codes with a mask, and back.

Tables in files (`halfseen.scan`) enter here too: estimators are fitted to random rows of them, and answer
block by block. Nothing is imported from `halfseen.data.scan`, because it needs pyarrow.
"""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import wraps
from itertools import pairwise
from types import FunctionType
from typing import Any, TypeVar, cast, get_args

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from halfseen._machine import count_memory
from halfseen._random import seed_from
from halfseen._threads import map_in_threads
from halfseen.base.capabilities import Capabilities
from halfseen.base.model_file import Saveable, wrong_type
from halfseen.base.parameters import all_or_nothing
from halfseen.base.targets import Fitted
from halfseen.config import show_size, tasks_within_budget
from halfseen.data.columns import KINDS, LEVELLED, NUMERIC, with_room
from halfseen.data.features import FeatureMap
from halfseen.data.frames import Storage, Table, array_of_numbers, is_frame
from halfseen.data.incomplete import (
    PIECE_BYTES,
    SAMPLE_ROWS,
    Incomplete,
    Passes,
    check_not_masked,
    in_this_process,
    rows_in_block,
    rows_in_piece,
    runs_of,
    unmask,
)
from halfseen.data.pixels import ImageLayout, image_planes, pixel_schema, read_images
from halfseen.data.relations import check_derived, group_announcements
from halfseen.data.schema import Column, Schema, infer_codes, read_as_numbers, read_codes
from halfseen.data.summaries import ColumnSummary, Summing, summarise_scan, with_target
from halfseen.errors import SchemaError, TableError, warn_user

SCAN = "halfseen.data.scan"

STREAMED = ("transform", "interval")
"""Methods that return whole tables; of a scan they return an iterator over those of its blocks."""

GATHERED = ("predict", "predict_proba", "predict_log_proba", "predict_interval", "score_samples")
"""Methods that return few numbers for each row; of a scan they return those of all rows."""


def is_scan(X: Any) -> bool:
    """Returns whether a table is in files."""
    return type(X).__module__ == SCAN


def match(table: Any, model: Any) -> Any:
    """Returns a table in files whose columns can be given to a model; raises an error if it lacks one."""
    if not hasattr(model, "feature_names_in_"):
        raise TableError(
            f"{type(model).__name__} was fitted to an array without column names, so the columns of a file "
            "cannot be matched; fit it to a data frame or a file"
        )
    for name in map(str, model.feature_names_in_):
        if name not in table.column_names:
            raise TableError(f"{table.files[0]}: there is no column {name!r}, which the model needs")
    for column in model.schema_:
        if table.is_text(column.name) and column.storage in ("number", "boolean", "time", "duration"):
            raise TableError(
                f"{table.files[0]}: column {column.name!r} contains text, and {column.dtype} in training"
            )
    return table.with_text([column.name for column in model.schema_ if column.storage == "label"])


def fit_to_rows(
    estimator: Any,
    table: Any,
    target: str | None = None,
    n_rows: int | None = None,
    random_state: int = 0,
    passes: Passes = in_this_process,
) -> Any:
    """Fits an estimator to random rows of a table in files; see `halfseen.distributed.fit`."""
    if target is not None and target not in table.column_names:
        raise TableError(f"{table.files[0]}: there is no column {target!r} to predict")
    n_rows = SAMPLE_ROWS if n_rows is None else n_rows
    is_sample = n_rows < table.n_rows
    rows, summaries = _read_rows(estimator, table, target, n_rows, random_state, passes)
    inputs = rows if target is None else with_target(rows, target)
    n_kinds = n_parameters = n_sample = inputs.num_rows
    values = () if target is None else (inputs[target].to_numpy(zero_copy_only=False),)
    inputs = inputs if target is None else inputs.drop_columns([target])
    if summaries:
        n_kinds = summaries[0].n_rows
    fit_with_summaries(estimator, summaries, inputs, *values)
    if is_sample and target is None and estimator._refit(table, passes):
        n_parameters = table.n_rows
    counts = {"kinds": n_kinds, "sample": n_sample, "parameters": n_parameters, "table": table.n_rows}
    estimator.rows_used_ = counts
    return estimator


def fit_with_summaries(estimator: Any, summaries: Sequence[ColumnSummary] | None, *values: Any) -> Any:
    """Fits an estimator to some rows of a table, whose columns are what these summaries of all rows say."""
    estimator._summaries = summaries
    try:
        return estimator.fit(*values)
    finally:
        vars(estimator).pop("_summaries", None)


def _read_rows(
    estimator: Any, table: Any, target: str | None, n_rows: int, random_state: int, passes: Passes
) -> tuple[Any, list[ColumnSummary] | None]:
    """Returns random rows of a table and, unless they are all, the summaries of the columns of all rows."""
    if n_rows >= table.n_rows or estimator.capabilities.images:
        return table.sample(n_rows, random_state, passes=passes), None
    names = [name for name in table.column_names if name != target]
    numbers = read_as_numbers(names, estimator._overrides)
    summaries, chosen = summarise_scan(Summing(table, target, numbers, n_rows, random_state), passes)
    return table.joined(chosen), [one for one in summaries if one.column.name != target]


@dataclass(frozen=True)
class EncodedRows:
    """The rows of a table in files, as the features by which a fitted estimator sees them."""

    table: Any  # Scan: the table
    estimator: Any  # fitted estimator of tables: what reads its columns
    features: FeatureMap  # from codes to features, the number of which decides the size of blocks

    @classmethod
    def of(cls, estimator: Any, table: Any, features: FeatureMap) -> "EncodedRows":
        """Returns the rows by the columns of an estimator, which can be sent to other processes."""
        alone = copy(estimator)
        alone.callback = None
        return cls(table.select([str(name) for name in estimator.feature_names_in_]), alone, features)

    @property
    def runs(self) -> list[tuple[int, int]]:
        """The runs of blocks of the table."""
        return runs_of(self.table.n_rows, self.features.n_features)

    def blocks(self, start: int, stop: int) -> Iterator[Incomplete]:
        """Yields the features of the blocks of a run of rows."""
        n_rows = rows_in_block(self.features.n_features)
        for _, block in self.table.blocks(start, stop, n_rows=n_rows):
            yield self.features.encode(self.estimator._read(block, reset=False).codes)


@all_or_nothing
def _fit(estimator: Any, table: Any, y: Any = None, sample_weight: Any = None) -> Any:
    if sample_weight is not None:
        raise SchemaError("sample_weight must be None if X is a scan, whose rows are not in memory.")
    if not estimator.capabilities.predicts:
        return fit_to_rows(estimator, table)
    if not isinstance(y, str):
        raise SchemaError(
            f"y must be the name of the column to predict if X is a scan, got {type(y).__name__}."
        )
    return fit_to_rows(estimator, table, y)


def _blocks(model: Any, table: Any) -> Iterator[tuple[Any, Any]]:
    """Yields the ids of the rows of a block, and its columns that the model knows, in its order."""
    names = [str(name) for name in model.feature_names_in_]
    for start, block in table.blocks(n_rows=rows_in_block(len(names))):
        yield table.row_ids(start, block), block.select(names)


def _stream(method: Callable[..., Any], model: Any, table: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
    table = match(table, model)
    return (method(model, block, *args, **kwargs) for _, block in _blocks(model, table))


def _sample(
    method: Callable[..., Any], model: Any, table: Any, n_draws: int = 1, row_ids: Any = None
) -> Iterator[Any]:
    if row_ids is not None:
        raise SchemaError("row_ids must be None for a scan: name their column by halfseen.scan(row_id=...).")
    table = match(table, model)
    table.warn_of_repeated_ids()
    return (method(model, block, n_draws, row_ids=ids) for ids, block in _blocks(model, table))


def _gather(method: Callable[..., Any], model: Any, table: Any, *args: Any, **kwargs: Any) -> Any:
    answers = list(_stream(method, model, table, *args, **kwargs))
    if not answers:
        nothing = match(table, model).read(0, 0).select(list(map(str, model.feature_names_in_)))
        return method(model, nothing, *args, **kwargs)
    if isinstance(answers[0], tuple):
        return tuple(np.concatenate(parts) for parts in zip(*answers, strict=True))
    return np.concatenate(answers)


HANDLERS: Mapping[str, Callable[..., Any]] = {
    "fit": lambda method, *args, **kwargs: _fit(*args, **kwargs),
    "sample": _sample,
    **dict.fromkeys(STREAMED, _stream),
    **dict.fromkeys(GATHERED, _gather),
}
"""What happens if a method of an estimator of tables is given a scan, by its name."""


def takes_scans(method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a method of an estimator of tables that also takes a scan in the place of its table."""
    handler = HANDLERS[method.__name__]

    @wraps(method)
    def answer(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        return handler(method, self, X, *args, **kwargs) if is_scan(X) else method(self, X, *args, **kwargs)

    answer.takes_scans = True  # type: ignore[attr-defined]
    return answer


ResultT = TypeVar("ResultT")
LOGGER = logging.getLogger(__name__)

COPIES = 24  # arrays of the size of the features that an operation keeps alive at its peak
CELL_BYTES = 9  # of a number in double precision, and whether it is observed
STORAGES = get_args(Storage)
LIMITS = (
    "minimum", "maximum", "step", "observed_low", "observed_high", "least", "greatest", "censored_below",
    "censored_above",
)  # fmt: skip
"""The fields of a column that are finite numbers, or None."""


@dataclass(frozen=True)
class ReadTable:
    """A user's table as an estimator sees it.

    Shapes
    ------
    missing : (N, P), cells that the user left empty.
    codes : (N, C), the modelled columns; unseen levels are not observed, though not missing.
    """

    table: Table
    missing: npt.NDArray[np.bool_]
    codes: Incomplete
    images: ImageLayout | None = None

    def without_codes(self) -> "ReadTable":
        """Returns the table without its codes, which take as much memory as the table."""
        return replace(self, codes=Incomplete.from_array(np.empty((0, self.codes.n_features))))

    def restored(self, answer: Any) -> Any:
        """Returns a table, or arrays (..., N, P), in the layout of the user's images."""
        return answer if self.images is None or self.table.named else self.images.restore(answer)


@dataclass(eq=False, repr=False, kw_only=True)
class TableEstimator(Saveable, BaseEstimator):
    """Converts tables of any library into codes, by a schema that is inferred in `fit` and saved.

    Its fields are the parameters that all estimators of tables have. A subclass that is a dataclass adds its
    own; what is set in `fit` is declared as ``field(init=False)``, or without an annotation.
    """

    schema: Any = None
    random_state: Any = None

    image_shape = cast(Any, None)  # a parameter of estimators that take images
    _summaries = cast(
        "Sequence[ColumnSummary] | None", None
    )  # of a table of which only some rows are in memory
    _features: FeatureMap = field(init=False)  # of predictors, from codes to the inputs of the model
    image_planes_: tuple[int, int, int] = field(init=False)  # the shape (C, H, W) of images, if X holds them

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Lets methods of subclasses take tables in files (`halfseen.scan`), by `HANDLERS`."""
        # Methods of base classes that know nothing of tables, such as `WithClasses`, are wrapped as well.
        for name in HANDLERS:
            method = getattr(cls, name, None)
            if isinstance(method, FunctionType) and not hasattr(method, "takes_scans"):
                setattr(cls, name, takes_scans(method))
        super().__init_subclass__(**kwargs)

    def _refit(self, table: Any, passes: Passes) -> bool:
        """Fits the parameters to all rows of a table in files after a fit to some; returns whether it can."""
        return False

    @property
    def capabilities(self) -> Capabilities:
        """What the estimator can do with the parameters that it has."""
        return Capabilities(tables=True)

    @property
    def _overrides(self) -> Any:
        """The column settings that the user passed."""
        return self.schema

    def _read(self, X: Any, *, reset: bool) -> ReadTable:
        if not reset:
            check_is_fitted(self)
        X, images = self._flatten_images(X, reset=reset) if self.capabilities.images else (X, None)
        table = self._open(X, reset=reset)
        if reset and images is None:
            self.schema_, codes = infer_codes(
                table, self._overrides, censored=self.capabilities.limits, summaries=self._summaries
            )
            if self.capabilities.models_missingness:
                self.schema_ = Schema(tuple(map(with_room, self.schema_)))
        else:
            self.schema_ = pixel_schema(table) if reset else self.schema_
            codes = read_codes(table, self.schema_, censored=self.capabilities.limits)
        if reset:
            self.seed_ = seed_from(self.random_state)
            if LOGGER.isEnabledFor(logging.DEBUG):
                for column in self.schema_:
                    bounds = column.imputed_bounds() if column.kind in NUMERIC else (column.levels or ())
                    LOGGER.debug(
                        "Column %r is %s, with the bounds or levels %s.", column.name, column.kind, bounds
                    )
            for sentence in group_announcements(self.schema_.columns):
                warn_user(sentence)
        batch = Incomplete(torch.from_numpy(codes.values), torch.from_numpy(codes.observed))
        return ReadTable(table, codes.missing, batch, images)

    def _read_target(self, y: Any, n_rows: int, weights: Tensor) -> tuple[Any, Fitted]:
        """Returns the targets of the rows with a positive weight, for a predictor, and fitted attributes."""
        raise NotImplementedError(f"{type(self).__name__} must implement `_read_target`.")

    def _flatten_images(self, X: Any, *, reset: bool) -> tuple[Any, ImageLayout]:
        """Returns a table of pixels, and the layout of the user's images, which is learned in `fit`."""
        if reset and self.schema is not None:
            raise ValueError("With image_shape all columns are pixels of one kind: schema must be None.")
        if not reset and (is_frame(X) or np.ndim(X) == 2):
            return X, ImageLayout(self.image_planes_)  # the number of columns is checked by their names
        X, images = read_images(X, self.image_shape if reset else self.image_planes_)
        if reset:
            self.image_planes_ = images.planes
        return X, images

    def _open(self, X: Any, *, reset: bool) -> Table:
        X = unmask(X)
        if is_scan(X):
            raise SchemaError(
                f"{X!r} is not a table in memory, which this method needs: give it rows that scan.read, "
                "scan.blocks or scan.sample returns."
            )
        if is_frame(X):
            table = Table(X)
            validate_data(self, X, reset=reset, skip_check_array=True)
            if reset and (table.n_rows == 0 or not table.names):
                shape = (table.n_rows, len(table.names))
                raise SchemaError(
                    f"Found a table with {shape[0]} sample(s) and {shape[1]} feature(s), shape={shape}."
                )
            return table
        array = validate_data(
            self,
            array_of_numbers(X),
            reset=reset,
            dtype=(np.float64, np.float32),
            ensure_all_finite=False,  # infinity is refused by the schema, which can name the column
            ensure_min_samples=1 if reset else 0,
        )
        return Table(array)

    @property
    def _modelled(self) -> Sequence[Column]:
        return [column for column in self.schema_ if column.modelled]

    def _nothing_to_learn(self, n_rows: int) -> ValueError:
        """Returns the error of a table without a column that can be modelled."""
        return ValueError(
            f"{type(self).__name__} needs a column that varies: all columns are constant, empty or "
            f"identifiers in these rows (n_samples={n_rows})."
        )

    def _entries(self) -> dict[str, Any]:
        planes = {"image_planes": list(self.image_planes_)} if self.capabilities.images else {}
        return {"schema": self.schema_.to_dict()} | planes

    def _restore_entries(self, description: Mapping[str, Any]) -> None:
        if "schema" not in description:
            raise ValueError("its description lacks 'schema'")
        self.schema_ = Schema.from_dict(description["schema"])
        _check_schema(self.schema_, self.n_features_in_)
        if self.capabilities.images:
            self.image_planes_ = image_planes(description["image_planes"], self.n_features_in_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags


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
    with np.errstate(over="ignore"):
        n_rows = float(weights.sum())
    memory = count_memory()
    if n_rows * codes.n_features * CELL_BYTES > memory:
        raise ValueError(
            f"sample_weight adds up to {n_rows:.10g} rows, which is how often rows are repeated, and so many "
            f"do not fit into the {show_size(memory)} of memory. Use smaller weights, or fit to rows that "
            "are drawn with probabilities in proportion to them."
        )
    return codes[torch.repeat_interleave(torch.arange(len(codes)), torch.from_numpy(weights).long())]


def rows_at_once(n_columns: int, n_features: int, n_draws: int = 1) -> int:
    """Returns how many rows of a table an operation processes at once: a power of two that divides a block.

    It depends on the number of columns of the table and on what the operation needs for each row, so that an
    answer depends neither on the memory budget nor on how a table is split between blocks.
    """
    return rows_in_piece(n_columns, COPIES * max(1, n_features) * max(1, n_draws))


def map_pieces(function: Callable[[Incomplete], ResultT], rows: Incomplete, size: int) -> list[ResultT]:
    """Returns the answers about pieces of at most `size` rows, in their order; about no rows, one answer.

    Pieces are computed by several threads, as many as fit into the memory budget, each on one thread.
    """
    starts = range(0, len(rows), size) if len(rows) else [0]
    pieces = (rows[torch.arange(start, min(start + size, len(rows)))] for start in starts)
    return list(map_in_threads(function, pieces, at_most=tasks_within_budget(PIECE_BYTES)))


def _check_schema(schema: Schema, n_features: Any) -> None:
    """Raises if the description of columns does not have the format of `Schema.to_dict`."""
    if n_features != len(schema):
        raise ValueError(f"it has {len(schema)} columns and n_features_in_ is {n_features!r}")
    check_derived(schema.columns)
    for column in schema:
        for name, kinds in {"name": str, "dtype": str, "reason": str, "integer": bool}.items():
            if not isinstance(getattr(column, name), kinds):
                raise TypeError(f"a column has the {name} {getattr(column, name)!r:.60}")
        if column.kind not in KINDS or column.storage not in STORAGES:
            raise ValueError(f"column {column.name!r:.60} is {column.kind!r:.60} of {column.storage!r:.60}")
        for level in column.levels or ():
            if not isinstance(level, str | int | float):
                raise TypeError(f"column {column.name!r:.60} has the level {level!r:.60}")
        for name in LIMITS:
            value = getattr(column, name)
            if value is not None and not (type(value) in (int, float) and math.isfinite(value)):
                raise ValueError(f"column {column.name!r:.60} has the {name} {value!r:.60}")
        if column.codes is not None and not _are_ascending(column.codes):
            raise ValueError(f"column {column.name!r:.60} has the codes {column.codes!r:.60}")
        wrong = wrong_type(Column, vars(column))
        if wrong is not None:
            raise TypeError(f"column {column.name!r:.60} has the {wrong[0]} {wrong[1]!r:.60}")
        _check_values(column)


def _check_values(column: Column) -> None:
    """Raises a ValueError if limits, levels or counts of a column contradict each other."""
    for low, high in (("minimum", "maximum"), ("observed_low", "observed_high"), ("least", "greatest")):
        ends = getattr(column, low), getattr(column, high)
        if None not in ends and ends[0] > ends[1]:
            raise ValueError(
                f"column {column.name!r:.60} has the {low} {ends[0]!r} and the {high} {ends[1]!r}"
            )
    if column.step is not None and column.step <= 0:
        raise ValueError(f"column {column.name!r:.60} has the step {column.step!r}")
    if column.kind in LEVELLED and not column.levels:
        raise ValueError(f"column {column.name!r:.60} is {column.kind} and has no levels")
    if column.levels is not None and column.kind in (*NUMERIC, "datetime", "duration"):
        raise ValueError(f"column {column.name!r:.60} is {column.kind} and has levels")
    texts = any(isinstance(level, str) for level in column.levels or ())
    if texts and column.storage not in ("label", "other"):
        raise ValueError(
            f"column {column.name!r:.60} of {column.storage} has the levels {column.levels!r:.60}"
        )
    if len(set(column.levels or ())) < len(column.levels or ()):
        raise ValueError(f"column {column.name!r:.60} has a level twice")
    if min(column.n_observed, column.n_missing) < 0:
        raise ValueError(f"column {column.name!r:.60} has a negative number of cells")


def _are_ascending(codes: tuple[Any, ...]) -> bool:
    """Returns whether there are codes, and all are finite numbers in ascending order."""
    numbers = all(isinstance(code, int | float) and math.isfinite(code) for code in codes)
    return bool(codes) and numbers and all(one < other for one, other in pairwise(codes))


def predictor_positions(
    predictors: Mapping[str, Sequence[str]] | None, schema: Schema
) -> dict[int, npt.NDArray[np.int64]]:
    """Returns the positions of the predictors that the user names for columns, among the modelled columns."""
    if predictors is None:
        return {}
    if not isinstance(predictors, Mapping):
        raise ValueError(f"predictors must be a dict of lists of column names, got {predictors!r}.")
    found = {}
    for name, several in predictors.items():
        if isinstance(several, str) or not isinstance(several, Sequence):
            raise ValueError(f"The predictors of column {name!r} must be a list of names, got {several!r}.")
        if name in several:
            raise ValueError(f"Column {name!r} cannot predict itself: remove it from its predictors.")
        places = {_position(one, schema) for one in several}
        found[_position(name, schema)] = np.array(sorted(places), dtype=np.int64)
    return found


def _position(name: str, schema: Schema) -> int:
    """Returns the position of a column among the modelled ones."""
    column = next((one for one in schema if one.name == name), None)
    if column is None:
        raise ValueError(f"predictors refers to column {name!r}, which is not in the table.")
    if not column.modelled:
        why = f"which is not modelled ({column.kind}): {column.reason}"
        raise ValueError(f"predictors refers to column {name!r}, {why}")
    return [one.name for one in schema if one.modelled].index(name)
