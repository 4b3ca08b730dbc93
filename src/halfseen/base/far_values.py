"""A warning about imputed values that lie far outside the observed ones."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from halfseen.data.columns import Column
from halfseen.errors import warn_user

FAR = 4.0  # observed ranges between an imputed value and the observed values, from which the user is warned
NAMED = 5  # columns that are named in separate warnings; the others are counted


class FarValues:
    """Counts the values of models that lie far outside the observed values, in one call of an imputer."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = columns
        self.counts: dict[int, int] = {}

    def add(self, j: int, codes: npt.NDArray[np.float64]) -> None:
        """Counts the codes of column j that a model returned, before they are limited to its range."""
        low, high = self.columns[j].observed_low, self.columns[j].observed_high
        if low is None or high is None or not len(codes):
            return
        if low == high:  # one observed value has no range by which a distance could be judged
            return
        with np.errstate(over="ignore"):
            reach = FAR * (np.float64(high) - np.float64(low))
            n_far = int(((codes < low - reach) | (codes > high + reach)).sum())
        if n_far:
            self.counts[j] = self.counts.get(j, 0) + n_far

    def warn(self) -> None:
        """Warns about each column with such values."""
        for j, count in list(self.counts.items())[:NAMED]:
            warn_user(_sentence(self.columns[j], count))
        if len(self.counts) > NAMED:
            warn_user(
                f"{len(self.counts) - NAMED} more columns have values more than {FAR:g} observed ranges "
                "outside their observed values. The model does not fit this table: choose another method."
            )


def _sentence(column: Column, count: int) -> str:
    assert column.observed_low is not None
    assert column.observed_high is not None
    low, high = (column.show(end) for end in (column.observed_low, column.observed_high))
    what = "1 value lies" if count == 1 else f"{count} values lie"
    limited = column.codes is not None or column.least is not None or column.greatest is not None
    done = (
        "Such values are limited to the range from {} to {}".format(
            *(column.show(end) for end in column.imputed_bounds())
        )
        if limited
        else "Such values are not limited, because of the bounds in the schema"
    )
    if column.derived is not None:
        done = "Such values follow from the formula of the column"
    return (
        f"Column {column.name!r}: {what} more than {FAR:g} observed ranges outside the observed values, "
        f"{low} to {high}. {done}. The model does not fit these rows: check them, or choose another method."
    )
