"""The time that methods take: measured on some rows, and extrapolated to more rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """The time that a method took.

    Parameters
    ----------
    fit : float
        Seconds for fitting.
    n_fitted : int
        The number of rows to which the method was fitted.
    answer : float
        Seconds per row for imputing single values, in a table with many rows.
    """

    fit: float
    n_fitted: int
    answer: float

    def rows_within(self, seconds: float, n_rows: int) -> int:
        """Returns the number of rows to which the method can be fitted in time, at least that of before."""
        if self.fit * n_rows <= seconds * self.n_fitted:
            return n_rows
        return min(n_rows, max(self.n_fitted, int(self.n_fitted * seconds / self.fit)))


def seconds_per_row(n_rows: Sequence[int], seconds: Sequence[float]) -> float:
    """Returns the time per additional row, from the times for a few rows and for more rows after them.

    The difference does not contain the constant cost of a call. It is assumed to be at least a quarter of the
    mean time, because the first rows may be slow by chance.
    """
    if not n_rows:
        return 0.0
    most = max(range(len(n_rows)), key=lambda i: n_rows[i])
    mean = seconds[most] / n_rows[most]
    if n_rows[most] == n_rows[0]:
        return mean
    return max((seconds[most] - seconds[0]) / (n_rows[most] - n_rows[0]), mean / 4)


def too_costly(
    costs: Sequence[Cost], weights: Mapping[int, float], n_rows: int, seconds: float
) -> int | None:
    """Returns the method to give up if all together take too long to impute rows; else None.

    It is the one that takes the most time for its weight, so that the main method is not given up for a
    quick one of which little is used. A single method is never too costly.
    """
    expected = {m: costs[m].answer * n_rows for m in weights}
    if len(expected) < 2 or sum(expected.values()) <= seconds:
        return None
    return max(expected, key=lambda m: expected[m] / weights[m])
