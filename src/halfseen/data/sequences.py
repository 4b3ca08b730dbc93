"""The NaN boundary of sequences: arrays (n, T, d) with NaN are converted to values with a mask."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from halfseen.data.incomplete import Incomplete, unmask

PAD = "Pad all sequences with NaN to one number of steps, and pass the number of steps of each as lengths."


@dataclass(frozen=True)
class Sequences:
    r"""Sequences of steps with features: values, which of them were observed, and where each sequence ends.

    A value that is missing and a step after the end are both not observed; `lengths` distinguishes them.

    Shapes
    ------
    values : :math:`(N, T, D)`; nothing is observed after the end of a sequence.
    lengths : :math:`(N)`, whole numbers from 1 to :math:`T`.

    Examples
    --------
    >>> sequences = read_sequences([[[1.0], [np.nan], [0.0]], [[2.0], [3.0], [4.0]]], lengths=[2, 3])
    >>> sequences.inside
    tensor([[ True,  True, False],
            [ True,  True,  True]])
    >>> sequences.values.observed[..., 0]
    tensor([[ True, False, False],
            [ True,  True,  True]])
    """

    values: Incomplete
    lengths: Tensor

    @property
    def n_steps(self) -> int:
        """The number of steps T, that of the longest sequence or more."""
        return self.values.x.shape[1]

    @property
    def n_features(self) -> int:
        """The number of features D."""
        return self.values.n_features

    @property
    def inside(self) -> Tensor:
        """The steps (N, T) that belong to their sequence; the others are padding."""
        return torch.arange(self.n_steps, device=self.lengths.device) < self.lengths[:, None]

    @property
    def counts(self) -> Tensor:
        """The number (N) of observed values of each sequence."""
        return self.values.observed.sum(dim=(1, 2))

    @property
    def steps(self) -> Incomplete:
        """All steps (N * T, D) as rows, for what is learned of each feature over all steps."""
        return Incomplete(self.values.x.flatten(0, 1), self.values.observed.flatten(0, 1))

    def with_values(self, x: Tensor) -> "Sequences":
        """Returns the sequences with other values (N, T, D), such as standardised ones."""
        return Sequences(Incomplete(x, self.values.observed), self.lengths)

    def shown(self, kept: Tensor) -> "Sequences":
        """Returns the sequences with only those observed values that a boolean tensor (N, T, D) keeps."""
        return Sequences(Incomplete(self.values.x, self.values.observed & kept), self.lengths)

    def to(self, dtype: torch.dtype) -> "Sequences":
        """Returns the sequences with values of another precision."""
        return Sequences(self.values.to(dtype), self.lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, rows: slice | Tensor) -> "Sequences":
        return Sequences(self.values[rows], self.lengths[rows])


def read_sequences(X: Any, lengths: Any = None, *, n_features: int | None = None) -> Sequences:
    """Reads an array of sequences; raises a ValueError that describes the problem and a remedy.

    Parameters
    ----------
    X : array-like of shape (n_sequences, n_steps, n_features)
        Missing values are NaN, None, or masked. What lies after the end of a sequence is never read.
    lengths : array-like of shape (n_sequences,), optional
        The number of steps of each sequence; all of them if not given.
    n_features : int, optional
        The number of features that a fitted estimator expects. If it is not given, as in `fit`, there must be
        at least one observed value.
    """
    array = _as_numbers(X)
    if array.ndim != 3:
        hint = " For sequences of one feature pass X[:, :, None]." if array.ndim == 2 else ""
        raise ValueError(
            "X must have three dimensions (n_sequences, n_steps, n_features), got an array of shape "
            f"{array.shape}.{hint}"
        )
    if 0 in array.shape[1:] or (n_features is None and len(array) == 0):
        raise ValueError(f"X must have at least one sequence, step and feature, got the shape {array.shape}.")
    if n_features not in (None, array.shape[2]):
        raise ValueError(f"X has {array.shape[2]} features, but the estimator was fitted to {n_features}.")
    counts = _read_lengths(lengths, *array.shape[:2])
    inside = np.arange(array.shape[1]) < counts[:, None]
    observed = ~np.isnan(array) & inside[..., None]
    values = np.where(observed, array, 0.0)
    if np.isinf(values).any():
        i, t, d = np.argwhere(np.isinf(values))[0].tolist()
        raise ValueError(
            f"Sequence {i} holds {values[i, t, d]} at step {t}, feature {d}. Replace infinity by a "
            "number, or by NaN if the value is not known."
        )
    if n_features is None and not observed.any():
        raise ValueError(
            f"All {inside.sum() * array.shape[2]} values of X are missing: nothing can be learned."
        )
    return Sequences(
        Incomplete(torch.from_numpy(values), torch.from_numpy(observed)), torch.from_numpy(counts)
    )


def _as_numbers(X: Any) -> npt.NDArray[np.float64]:
    """Returns an array of float64, with NaN for None."""
    try:
        array = np.asarray(unmask(X))
    except ValueError as error:
        raise ValueError(f"{_describe_ragged(X)} {PAD}") from error
    if array.dtype.kind not in "biufO":
        raise ValueError(f"X must hold numbers, got an array of dtype {array.dtype}.")
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"X must hold numbers, or None where a value is missing ({error}). {PAD}") from error


def _describe_ragged(X: Any) -> str:
    n_steps = [len(sequence) for sequence in X if hasattr(sequence, "__len__")]
    if min(n_steps, default=0) < max(n_steps, default=0):
        return f"The sequences of X have different numbers of steps, from {min(n_steps)} to {max(n_steps)}."
    return "The steps of X have different numbers of features."


def _read_lengths(lengths: Any, n_sequences: int, n_steps: int) -> npt.NDArray[np.int64]:
    if lengths is None:
        return np.full(n_sequences, n_steps, dtype=np.int64)
    counts = np.asarray(lengths)
    if counts.shape != (n_sequences,):
        raise ValueError(
            f"lengths must have one number per sequence, shape ({n_sequences},), got shape {counts.shape}."
        )
    if counts.dtype.kind not in "iuf":
        raise ValueError(f"lengths must be whole numbers, got an array of dtype {counts.dtype}.")
    wrong = np.flatnonzero((counts < 1) | (counts > n_steps) | (counts != np.trunc(counts)))
    if len(wrong):
        i = int(wrong[0])
        raise ValueError(
            f"lengths must be whole numbers from 1 to {n_steps}, the number of steps of X; sequence {i} has "
            f"{counts[i].item()!r}."
        )
    return counts.astype(np.int64)
