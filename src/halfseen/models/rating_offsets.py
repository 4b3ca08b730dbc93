"""Ratings predicted by offsets of rows and columns: the fallback of recommenders."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from halfseen.data.sparse import SparseRows

Floats = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

PRIOR = 5.0  # number of pseudo-ratings at the mean that a row or column has
PASSES = 10


@dataclass(frozen=True)
class RatingOffsets:
    r"""The regularised sum of a mean, an offset of the row and an offset of the column.

    .. math:: \hat r_{ij} = \bar r + a_i + b_j, \qquad
              a_i = \frac{\sum_{j \in o_i} (r_{ij} - \bar r - b_j)}{c_i + \kappa}

    and likewise :math:`b_j`; a row or column without ratings has the offset 0.
    """

    mean: float
    row: Floats
    column: Floats
    row_counts: Positions
    column_counts: Positions

    @classmethod
    def fit(cls, ratings: SparseRows) -> "RatingOffsets":
        """Learns the offsets by a few passes of alternating means."""
        rows, columns = ratings.rows.numpy(), ratings.columns.long().numpy()
        values = ratings.values.double().numpy()
        row_counts = np.bincount(rows, minlength=len(ratings))
        column_counts = np.bincount(columns, minlength=ratings.n_columns)
        mean = float(values.mean())
        row, column = np.zeros(len(ratings)), np.zeros(ratings.n_columns)
        for _ in range(PASSES):
            rest = values - mean - row[rows]
            column = np.bincount(columns, rest, ratings.n_columns) / (column_counts + PRIOR)
            rest = values - mean - column[columns]
            row = np.bincount(rows, rest, len(ratings)) / (row_counts + PRIOR)
        return cls(mean, row, column, row_counts, column_counts)

    def predict(self, rows: Positions, columns: Positions) -> Floats:
        """Returns predictions of entries; positions of -1 are rows or columns that are not known."""
        row = np.where(rows >= 0, self.row[rows], 0.0)
        return self.mean + row + np.where(columns >= 0, self.column[columns], 0.0)

    def is_warm(self, rows: Positions, columns: Positions) -> npt.NDArray[np.bool_]:
        """Returns for which entries both the row and the column have ratings."""
        warm: npt.NDArray[np.bool_] = (self.row_counts[rows] > 0) & (self.column_counts[columns] > 0)
        return warm
