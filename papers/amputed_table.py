"""Tables and arrays, known cells of which are hidden, and the scores of an imputer on these cells."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from halfseen.datasets.loaders import load
from halfseen.evaluation.candidates import Candidate, CodedTable
from halfseen.evaluation.scores import Scale
from halfseen.evaluation.trial import CellScorer

LEVEL = 0.9
"""The probability of the intervals whose coverage is measured."""

N_DRAWS = 20
"""The number of draws for CRPS and energy distance."""


def read_source(name: str, dropped: Sequence[str], max_rows: int | None) -> CodedTable:
    """Returns a table without some columns; at most `max_rows` rows are drawn, always the same ones."""
    frame = load(name).drop(columns=list(dropped))
    if max_rows is not None:
        frame = frame.sample(min(len(frame), max_rows), random_state=0)
    return CodedTable.read(frame)


@dataclass(frozen=True)
class AmputedTable:
    """A table, and which of its known cells are hidden.

    Shapes
    ------
    hidden : (N, C)
    """

    table: CodedTable
    hidden: npt.NDArray[np.bool_]
    seed: int

    @property
    def shown(self) -> npt.NDArray[np.float64]:
        """The codes with NaN for missing values."""
        return np.where(self.hidden, np.nan, self.table.codes)

    def scores(
        self, candidate: Candidate, rows: npt.NDArray[np.int64], scale: Scale, names: Mapping[str, str]
    ) -> dict[str, float]:
        """Returns the scores of a fitted candidate on the hidden cells of some rows.

        Parameters
        ----------
        candidate : Candidate
            The fitted imputer.
        rows : array of int
            The rows to impute.
        scale : Scale
            The standard deviations in which errors are expressed.
        names : mapping of str to str
            From the names of the result to the scores of `CellScorer`; those that do not apply are left out.
        """
        shown = self.shown[rows]
        answer = candidate.answer(shown, candidate.fill(shown), N_DRAWS, LEVEL)
        scorer = CellScorer(self.table, self.table.codes[rows], self.hidden[rows], scale, LEVEL, self.seed)
        found = scorer.scores(answer)
        return {name: found[key] for name, key in names.items() if key in found}


@dataclass(frozen=True)
class AmputedArray:
    """An array (N, D) without missing values, and which of its cells are hidden."""

    X: npt.NDArray[np.float64]
    missing: npt.NDArray[np.bool_]

    @property
    def incomplete(self) -> npt.NDArray[np.float64]:
        """The array with NaN for missing values."""
        return np.where(self.missing, np.nan, self.X)
