"""The losses of the chosen mixture on cells that were hidden in a race."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import betainc

from halfseen.data.reliability import ColumnCheck
from halfseen.data.schema import Column
from halfseen.estimators._race import Race
from halfseen.estimators._race_task import RaceTask
from halfseen.models.tabular_stack import WeightedAtoms

Floats = npt.NDArray[np.float64]
Cells = tuple[Floats, Floats, Floats]


@dataclass(frozen=True)
class ColumnLosses:
    """The losses of the hidden cells of one column.

    Shapes
    ------
    loss : (N), squared errors in variances of the shown values, or 1 for a wrong level
    baseline : (N), of the mean or the most frequent level of the shown values
    below, up_to : (N), the probabilities of lower values, and of values up to the true one; None for levels
    """

    loss: Floats
    baseline: Floats
    below: Floats | None = None
    up_to: Floats | None = None

    def check(self, name: str) -> ColumnCheck | None:
        """Returns how well the column is filled; None if that cannot be judged."""
        return ColumnCheck.of(name, "accuracy" if self.below is None else "error", self.loss, self.baseline)

    def covered(self, level: float) -> npt.NDArray[np.bool_]:
        """Returns which numbers (N) are within their central intervals of a level."""
        assert self.below is not None
        assert self.up_to is not None
        inside: npt.NDArray[np.bool_] = (self.up_to >= (1 - level) / 2) & (self.below <= (1 + level) / 2)
        return inside


@dataclass(frozen=True)
class HiddenCells:
    """The losses of all hidden cells, by name of the column, and the number of rows that have such cells."""

    columns: dict[str, ColumnLosses]
    n_rows: int


def compare_hidden(task: RaceTask, race: Race, weights: Floats, sharpness: float) -> HiddenCells:
    """Returns the losses of a mixture with weights (M, C), sharpened as in `TabularStack`."""
    found = {}
    for c, column in enumerate(task.columns):
        rows = task.scored[task.hidden[task.scored, c]]
        shown = task.shown.x[task.shown.observed[:, c], c].numpy()
        if len(rows) and len(shown):
            truth = task.codes.x[rows, c].numpy()
            used = np.flatnonzero(weights[:, c]).tolist()
            predictions, shares = [race.predictions[m][c] for m in used], weights[used, c]
            if column.levels is None:
                found[column.name] = _compare_numbers(column, truth, shown, predictions, shares, sharpness)
            else:
                found[column.name] = _compare_levels(truth, shown, predictions, shares)
    return HiddenCells(found, len(np.unique(task.row[task.scored.numpy()])))


def _compare_numbers(
    column: Column,
    truth: Floats,
    shown: Floats,
    predictions: Sequence[Cells],
    weights: Floats,
    sharpness: float,
) -> ColumnLosses:
    point = column.constrain(weights @ np.stack([one[0] for one in predictions]))
    largest = float(np.abs(shown).max()) or 1.0
    scale = float((shown / largest).std()) or 1.0
    mean = (shown / largest).mean()
    loss, baseline = (((one - truth / largest) / scale) ** 2 for one in (point / largest, mean))
    ranks = np.stack([_ranks(truth, one[1]) for one in predictions])  # (M, 2, N)
    below, up_to = np.tensordot(weights, ranks, 1)
    if len(predictions) > 1:
        below, up_to = betainc(sharpness, sharpness, np.clip([below, up_to], 0.0, 1.0))
    return ColumnLosses(loss, baseline, below, up_to)


def _compare_levels(
    truth: Floats, shown: Floats, predictions: Sequence[Cells], weights: Floats
) -> ColumnLosses:
    point = predictions[0][0]
    if len(predictions) > 1:
        point = np.tensordot(weights, np.stack([one[2] for one in predictions]), 1).argmax(axis=1)
    levels, counts = np.unique(shown, return_counts=True)
    usual = levels[counts.argmax()]
    return ColumnLosses((point != truth).astype(np.float64), (usual != truth).astype(np.float64))


def _ranks(truth: Floats, quantiles: Floats) -> Floats:
    """Returns the probabilities (2, N) of less than the truth (N) and of up to it, by quantiles (N, K)."""
    n_levels = quantiles.shape[1]
    shares = torch.full((n_levels,), 1.0 / n_levels, dtype=torch.float64)
    atoms = WeightedAtoms.of(torch.from_numpy(quantiles).T, shares)
    return torch.cat(atoms.bounds(torch.from_numpy(truth)[None])).numpy()
