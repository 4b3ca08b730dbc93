"""The time that methods take in a choice among them: measured on some rows, and expected for more."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """The time that a method took.

    Parameters
    ----------
    fit : float
        Seconds for fitting.
    n_fitted : int
        The number of rows that it was fitted to.
    answer : float
        Seconds for the single values of a row, among many.
    """

    fit: float
    n_fitted: int
    answer: float

    def rows_within(self, seconds: float, n_rows: int) -> int:
        """Returns to how many of the rows the method can be fitted in time, at least as many as before."""
        if self.fit * n_rows <= seconds * self.n_fitted:
            return n_rows
        return min(n_rows, max(self.n_fitted, int(self.n_fitted * seconds / self.fit)))


def seconds_per_row(n_rows: Sequence[int], seconds: Sequence[float]) -> float:
    """Returns the time for each further row, from the times of a few rows and of more rows after them.

    The difference is free of what is done once for any number of rows; it is taken to be at least a quarter
    of the mean time, for the first rows may be slow by chance.
    """
    if not n_rows:
        return 0.0
    most = max(range(len(n_rows)), key=lambda i: n_rows[i])
    mean = seconds[most] / n_rows[most]
    if n_rows[most] == n_rows[0]:
        return mean
    return max((seconds[most] - seconds[0]) / (n_rows[most] - n_rows[0]), mean / 4)


def too_costly(costs: Sequence[Cost], used: Sequence[int], n_rows: int, seconds: float) -> int | None:
    """Returns the used method that takes longest to impute rows, if all together take too long; else None.

    A single method is never too costly.
    """
    expected = {m: costs[m].answer * n_rows for m in used}
    if len(used) < 2 or sum(expected.values()) <= seconds:
        return None
    return max(expected, key=lambda m: expected[m])
