"""Reading, checking and converting the targets and sample weights of predictors."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils import assert_all_finite
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_consistent_length,
    column_or_1d,
)
from torch import Tensor

from halfseen.base.capabilities import Capabilities
from halfseen.base.model_file import Saveable
from halfseen.base.parameters import check_rows, finite_answer
from halfseen.data.incomplete import Incomplete, check_not_masked

Fitted = dict[str, Any]  # fitted attributes of an estimator, by name

TIE = 1e-7
"""Scores of classes that differ by less are equal, because rounding differs between batches by as much.

The largest difference that tests met was 7e-9.
"""


@dataclass(frozen=True)
class Classes:
    """The classes of a classifier, sorted, with the type of the user's labels.

    Shapes
    ------
    labels : (K)
    weights : (K), by which probabilities are multiplied in decisions; None if all are equal
    """

    labels: npt.NDArray[Any]
    weights: npt.NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def to_plain(self) -> dict[str, Any]:
        """Returns the classes as values that JSON can represent; times become integers."""
        is_time = self.labels.dtype.kind in "mM"
        plain = {
            "labels": (self.labels.view(np.int64) if is_time else self.labels).tolist(),
            "dtype": self.labels.dtype.str,
        }
        return plain if self.weights is None else plain | {"weights": self.weights.tolist()}

    @classmethod
    def from_plain(cls, content: dict[str, Any]) -> "Classes":
        """Reads what `to_plain` wrote."""
        weights = np.array(content["weights"], dtype=np.float64) if "weights" in content else None
        return cls(np.array(content["labels"], dtype=content["dtype"]), weights)


def read_numbers(y: Any, n_rows: int, estimator: object) -> tuple[Tensor, bool]:
    """Returns numeric targets (N, T), and whether the user passed a one-dimensional array."""
    _require_numbers(y, estimator)
    y = check_not_masked(y, "y")
    array = check_array(y, input_name="y", ensure_2d=False, dtype=np.float64)
    check_consistent_length(np.empty(n_rows), array)
    return torch.from_numpy(array.reshape(n_rows, -1).copy()), array.ndim == 1


def read_number_column(y: Any, n_rows: int, estimator: object) -> Tensor:
    """Returns one numeric target (N); raises if there are several."""
    _require_numbers(y, estimator)
    column = column_or_1d(check_not_masked(y, "y"), warn=True)
    return read_numbers(column, n_rows, estimator)[0][:, 0]


class WithClasses(Saveable):
    """A classifier that stores its classes as plain values, which can be written to a model file.

    A subclass returns the logits (N, K) of new rows by `_logits`. It may have a parameter `class_weight`,
    which changes decisions and not probabilities.
    """

    _saved: ClassVar[tuple[str, ...]] = ("_plain_classes",)
    class_weight: Any = None
    _plain_classes: Any
    _logits: Callable[..., Tensor]

    @property
    def capabilities(self) -> Capabilities:
        """What the estimator can do with the parameters that it has."""
        return replace(super().capabilities, predicts="classes")

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """The classes, sorted."""
        return Classes.from_plain(self._plain_classes).labels

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Returns the class of each row of `X` whose probability, times its weight, is largest."""
        scores = self.predict_proba(X)  # raises an error if nothing is fitted
        weights = Classes.from_plain(self._plain_classes).weights
        if weights is not None:
            with np.errstate(divide="ignore"):  # a class may have no probability at all
                scores = np.log(scores) + np.log(weights)
        return self._labels_of(scores)

    def _labels_of(self, scores: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        """Returns the class with the largest score (N, K); of those within `TIE` of it, the first."""
        check_rows(scores, f"{type(self).__name__}.predict", log_density=True)
        best = scores.max(axis=1, keepdims=True)
        return self.classes_[(scores >= best - TIE).argmax(axis=1)]

    @finite_answer
    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the probability of each class for each row of `X`, in the order of ``classes_``."""
        probabilities: npt.NDArray[np.float64] = self._logits(X).softmax(dim=1).numpy()
        return probabilities

    def predict_log_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the log probability of each class for each row of `X`."""
        logs: npt.NDArray[np.float64] = self._logits(X).log_softmax(dim=1).numpy()
        return logs

    def _read_target(self, y: Any, n_rows: int, weights: Tensor) -> tuple[Tensor, Fitted]:
        return self._read_classes(*read_classes(y, n_rows, self, weights > 0), weights)

    def _read_classes(self, codes: Tensor, classes: Classes, weights: Tensor) -> tuple[Tensor, Fitted]:
        """Returns the class codes of rows with a positive weight, and the classes with their weights."""
        counted = weights > 0
        codes = codes[counted]
        if self.class_weight is not None:
            of_classes = read_class_weights(self.class_weight, classes.labels, codes, weights[counted])
            classes = replace(classes, weights=of_classes.numpy())
        return codes, {"_plain_classes": classes.to_plain()}


def read_classes(
    y: Any, n_rows: int, estimator: object, counted: Tensor | None = None
) -> tuple[Tensor, Classes]:
    """Returns class codes (N) and the classes; raises unless there are at least two and none is missing.

    The classes are those of the rows that are counted (N), by default all. Other rows may have the code -1.
    """
    _require(y, estimator)
    labels = column_or_1d(check_not_masked(y, "y"), warn=True)
    if labels.dtype.kind in "OmM" and any(_is_unknown(label) for label in labels):
        raise ValueError("Input y contains NaN or None: leave out the rows whose class is not known.")
    assert_all_finite(labels, input_name="y")
    check_classification_targets(labels)
    check_consistent_length(np.empty(n_rows), labels)
    used = np.ones(n_rows, dtype=bool) if counted is None else counted.numpy()
    found, inverse = np.unique(labels[used], return_inverse=True)
    codes = np.full(n_rows, -1)
    codes[used] = inverse
    if len(found) < 2:
        only = found.tolist()[0]
        raise ValueError(f"{type(estimator).__name__} needs at least two classes, got 1 class: {only!r}.")
    return torch.from_numpy(codes.astype(np.int64)), Classes(found)


def read_partial_classes(y: Any, weights: Tensor, estimator: object) -> tuple[Tensor, Classes]:
    """Returns class codes (N), -1 where a label is None or NaN, and the classes of the other rows.

    Rows of which the weight (N) is zero have no influence on the classes.
    """
    _require(y, estimator)
    n_rows = len(weights)
    labels = column_or_1d(check_not_masked(y, "y"), warn=True)
    check_consistent_length(np.empty(n_rows), labels)
    present = np.array([not _is_unknown(label) for label in labels], dtype=bool)
    known = present & (weights > 0).numpy()
    if not known.any():
        raise ValueError(f"{type(estimator).__name__} needs labels: all values of y are missing.")
    given = labels[known]
    if labels.dtype.kind == "O" and not present.all():
        given = np.array(given.tolist())  # such as texts beside None, or numbers that pandas kept as objects
    codes, classes = read_classes(given, len(given), estimator)
    every = torch.full((n_rows,), -1)
    every[torch.from_numpy(known)] = codes
    return every, classes


def _is_unknown(label: Any) -> bool:
    """Returns whether a label is None, NaN, NaT or pandas' NA, whose comparison is neither true nor false."""
    return label is None or str(label) == "<NA>" or bool(label != label)


def read_partial_numbers(y: Any, weights: Tensor, estimator: object) -> tuple[Incomplete, bool]:
    """Returns numeric targets (M, T) of the rows with a positive weight (N), and whether y has one dimension.

    Some of the targets may be missing.
    """
    _require(y, estimator)
    n_rows, counted = len(weights), (weights > 0).numpy()
    array = check_array(
        check_not_masked(y, "y"),
        input_name="y",
        ensure_2d=False,
        dtype=np.float64,
        ensure_all_finite="allow-nan",
    )
    check_consistent_length(np.empty(n_rows), array)
    numbers = array.reshape(n_rows, -1)[counted]
    if np.isnan(numbers).all(axis=0).any():
        raise ValueError(f"{type(estimator).__name__} needs targets: all values of y are missing.")
    return Incomplete.from_array(numbers), array.ndim == 1


def read_weights(sample_weight: Any, n_rows: int) -> Tensor:
    """Returns weights (N) whose mean over the rows with a positive weight is one."""
    weights: npt.NDArray[np.float64] = _check_sample_weight(
        check_not_masked(sample_weight, "sample_weight"),
        np.empty((n_rows, 1)),
        dtype=np.float64,
        ensure_non_negative=True,
    )
    relative = torch.from_numpy(weights / weights.max())  # sums of the largest floats overflow
    return relative / relative[relative > 0].mean()


def unequal(weights: Tensor) -> npt.NDArray[np.float64] | None:
    """Returns the weights of rows as an array; None if all are equal, as if there were none."""
    return None if bool((weights == weights[0]).all()) else weights.double().numpy()


def read_class_weights(
    class_weight: Any, classes: npt.NDArray[Any], codes: Tensor, row_weights: Tensor | None = None
) -> Tensor:
    """Returns the weight (K) of each class, 1 for a class without rows; raises unless all are positive.

    The classes of rows are `codes` (N), -1 where they are not known. For ``"balanced"``, rows count by
    their weights (N).
    """
    known = codes >= 0
    rows = torch.ones(len(codes), dtype=torch.float64) if row_weights is None else row_weights.double()
    totals = torch.bincount(codes[known], weights=rows[known], minlength=len(classes)).numpy()
    if isinstance(class_weight, str) and class_weight == "balanced":
        weights = totals.sum() / (len(classes) * np.where(totals > 0, totals, 1.0))
    else:
        weights = compute_class_weight(class_weight, classes=classes, y=classes[codes[known].numpy()])
    weights = np.where(totals > 0, weights, 1.0)
    if not (np.isfinite(weights).all() and (weights > 0).all()):
        raise ValueError(f"class_weight must hold positive numbers, got {class_weight!r}.")
    return torch.from_numpy(np.asarray(weights, dtype=np.float64))


def _require(y: Any, estimator: object) -> None:
    if y is None:
        raise ValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None.")


def _require_numbers(y: Any, estimator: object) -> None:
    """Raises if there is no target, or one of dates or durations, which scikit-learn takes for numbers."""
    _require(y, estimator)
    dtype: Any = getattr(y, "dtype", None)
    dtype = dtype if hasattr(dtype, "kind") else np.asarray(y).dtype  # that of numpy, for polars and lists
    if dtype.kind in "mM":
        raise ValueError(
            f"y has the type {dtype}, but {type(estimator).__name__} predicts numbers. Pass numbers, such as "
            "the days since a date."
        )
