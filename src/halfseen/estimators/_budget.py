"""The time of a choice among methods: what is left of it, what a method took, and what it will take."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Clock = Callable[[], float]


class Budget:
    """A time that runs out.

    Parameters
    ----------
    seconds : float
        The time, from now on.
    clock : callable
        Returns the current time in seconds.
    """

    def __init__(self, seconds: float, clock: Clock = time.monotonic) -> None:
        self.clock = clock
        self.end = clock() + seconds

    @property
    def left(self) -> float:
        """The seconds that are left, at least 0."""
        return max(0.0, self.end - self.clock())

    def part(self, share: float) -> "Budget":
        """Returns a budget of a share of what is left."""
        return Budget(share * self.left, self.clock)


@dataclass(frozen=True)
class Cost:
    """What a method took.

    Parameters
    ----------
    fit : float
        Seconds for fitting.
    n_fitted : int
        The number of rows that it was fitted to.
    answer : float
        Seconds for the single values of some rows.
    n_answered : int
        The number of these rows.
    """

    fit: float
    n_fitted: int
    answer: float
    n_answered: int

    def answering(self, n_rows: int) -> float:
        """Returns the seconds that the single values of some rows are expected to take."""
        return self.answer * n_rows / max(1, self.n_answered)

    def least(self, n_rows: int) -> float:
        """Returns the seconds to fit the method again, to as many rows, and to impute all rows."""
        return self.fit + self.answering(n_rows)

    def rows_within(self, seconds: float, n_rows: int) -> int:
        """Returns to how many of the rows the method can be fitted in time, at least as many as before."""
        if self.fit * n_rows <= seconds * self.n_fitted:
            return n_rows
        return min(n_rows, max(self.n_fitted, int(self.n_fitted * seconds / self.fit)))


def too_costly(costs: Sequence[Cost], used: Sequence[int], n_rows: int, seconds: float) -> int | None:
    """Returns the used method that takes longest, if all of them together take too long; else None.

    A single method is never too costly.
    """
    expected = {m: costs[m].least(n_rows) for m in used}
    if len(used) < 2 or sum(expected.values()) <= seconds:
        return None
    return max(expected, key=lambda m: expected[m])
