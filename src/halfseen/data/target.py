"""The target column of a prediction, and whether it is predicted as classes or as numbers."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from halfseen.data._cells import plain
from halfseen.data.codes import open_table
from halfseen.data.columns import LEVELLED
from halfseen.data.frames import RawColumn
from halfseen.data.schema import Column, infer_columns
from halfseen.errors import SchemaError
from halfseen.words import absent_words

Task = Literal["classification", "regression"]
TASKS = ("auto", "classification", "regression")

MAX_CLASSES = 100
FEW_VALUES = 10  # whole numbers with so few distinct values may be meant as classes


@dataclass(frozen=True)
class Target:
    """The target column of a table.

    Attributes
    ----------
    name : str
        Its name.
    task : {"classification", "regression"}
        What is to be predicted.
    values : ndarray of shape (n_samples,)
        Classes or numbers; without meaning where they are not known.
    known : ndarray of bool of shape (n_samples,)
        Where the target is known.
    reason : str
        The reason for the task.
    """

    name: str
    task: Task
    values: npt.NDArray[Any]
    known: npt.NDArray[np.bool_]
    reason: str

    @property
    def classes(self) -> list[Any]:
        """The classes, sorted; empty for numbers."""
        return [] if self.task == "regression" else np.unique(self.values[self.known]).tolist()


def read_target(X: Any, name: str, task: str = "auto") -> Target:
    """Reads a column as the target of a prediction.

    Parameters
    ----------
    X : pandas, polars or pyarrow table
        The table.
    name : str
        The column.
    task : {"auto", "classification", "regression"}
        What is to be predicted; "auto" decides by the kind of the column.

    Raises
    ------
    SchemaError
        If there is no such column, or if it can be neither classes nor numbers.

    Examples
    --------
    >>> import pandas as pd
    >>> target = read_target(pd.DataFrame({"y": ["no", "yes", None, "no"], "x": [1, 2, 3, 4]}), "y")
    >>> target.task, target.classes, target.reason
    ('classification', ['no', 'yes'], 'two distinct values')
    """
    if task not in TASKS:
        raise SchemaError(f"task must be one of {', '.join(TASKS)}, got {task!r}.")
    table = open_table(X)
    if name not in table.names:
        raise SchemaError(f"The table has no column {name!r} to predict; {absent_words(table.names, name)}")
    ((raw, column),) = infer_columns(table, None, [table.names.index(name)])
    known = ~np.isnan(raw.values)
    distinct = np.unique(raw.values[known])
    if len(distinct) < 2:
        what = "is empty" if len(distinct) == 0 else "has the same value in every row"
        raise SchemaError(f"Column {name!r} {what}: there is nothing to predict.")
    chosen, reason = _choose_task(raw, column, len(distinct), task)
    if chosen == "regression":
        return Target(name, chosen, np.where(known, raw.values, np.nan), known, reason)
    return Target(name, chosen, _labels(raw, known), known, reason)


def _choose_task(raw: RawColumn, column: Column, n_distinct: int, task: str) -> tuple[Task, str]:
    if raw.storage not in ("number", "boolean", "label"):
        raise SchemaError(
            f"Column {raw.name!r} is of kind {column.kind}: it can be predicted neither as classes nor as "
            "numbers. Convert it to numbers first."
        )
    if task == "regression":
        if raw.storage == "label":
            raise SchemaError(f"Column {raw.name!r} contains text: it cannot be predicted as numbers.")
        return "regression", "set by the user"
    levelled = column.kind in LEVELLED
    if raw.storage == "number" and not levelled and task == "auto":
        seen = raw.values[~np.isnan(raw.values)]
        if n_distinct <= FEW_VALUES and np.equal(seen, np.round(seen)).all():
            return "regression", f"numbers; for the {n_distinct} distinct values as classes, set the task"
        return "regression", "numbers"
    if n_distinct > MAX_CLASSES or (task == "auto" and not levelled):
        raise SchemaError(
            f"Column {raw.name!r} has {n_distinct} distinct values, which are too many for classes. Predict "
            "another column, or merge rare values first."
        )
    why = "two distinct values" if n_distinct == 2 else f"{n_distinct} levels"
    return "classification", why if task == "auto" else "set by the user"


def _labels(raw: RawColumn, known: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """Returns the classes of all rows as text, integers, numbers or booleans."""
    if raw.storage == "label":
        labels = np.array([str(plain(label)) for label in raw.labels])
        return labels[np.where(known, raw.values, 0).astype(np.int64)]
    values = np.where(known, raw.values, raw.values[known][0])
    if raw.storage == "boolean":
        return values.astype(bool)
    return values.astype(np.int64) if np.equal(values, np.round(values)).all() else values
