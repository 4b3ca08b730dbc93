"""Estimators and tables in files (`halfseen.scan`): fits to random rows, and answers block by block.

Nothing is imported from `halfseen.data.scan`, because it needs pyarrow.
"""

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np

from halfseen.base.parameters import all_or_nothing
from halfseen.data.blocks import Passes, in_this_process, rows_in_block, runs_of
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.errors import SchemaError, TableError

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
    chosen = {} if n_rows is None else {"n_rows": n_rows}
    rows = table.sample(random_state=random_state, passes=passes, **chosen)
    if target is None:
        estimator.fit(rows)
    else:
        if target not in rows.column_names:
            raise TableError(f"{table.files[0]}: there is no column {target!r} to predict")
        rows = rows.filter(rows[target].is_valid())
        estimator.fit(rows.drop_columns([target]), rows[target].to_numpy(zero_copy_only=False))
    n_parameters = rows.num_rows
    if target is None and n_parameters < table.n_rows and estimator._refit(table, passes):
        n_parameters = table.n_rows
    estimator.rows_used_ = {"kinds": rows.num_rows, "parameters": n_parameters, "table": table.n_rows}
    return estimator


@dataclass(frozen=True)
class EncodedRows:
    """The rows of a table in files, as the features by which a fitted estimator sees them.

    Parameters
    ----------
    table : Scan
        The table.
    estimator : fitted estimator of tables
        What reads its columns.
    features : FeatureMap
        From codes to features, the number of which decides the size of blocks.
    """

    table: Any
    estimator: Any
    features: FeatureMap

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
