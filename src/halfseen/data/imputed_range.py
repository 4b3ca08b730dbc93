"""The values that may be imputed in a column of numbers, judged by its observed values.

A missing value of a column is either one of its observed values or a new one. The probability that it is a
new one is about the share of cells whose value occurs once (the Good-Turing estimate). If this share is
small, there is no reason to impute anything but observed codes (whole numbers with few distinct values), or
values outside the observed range (other numbers). If it is large, as in a column of measurements, the
observed extremes are no limits: a further value lies beyond them now and then, and models may extrapolate,
but not far.
"""

from collections.abc import Container
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from halfseen.data.columns import NUMERIC, Column
from halfseen.data.frames import Floats

MOST_NEW = 0.1  # probability of a new value up to which none is imputed; chosen: intervals are often at 90%
MOST_CODES = 40  # distinct whole numbers that can be codes, as many as are modelled by thresholds
ROOM = 1.0  # observed ranges beyond the observed values within which values are imputed; chosen so that a
# model of values that are missing because they are large can reach the half of a distribution that it misses


def with_imputed_range(
    column: Column, distinct: Floats, counts: npt.NDArray[np.int64], given: Container[str]
) -> Column:
    """Returns a column of numbers, dates or durations with limits of its imputed values; others unchanged.

    Parameters
    ----------
    column : Column
        A column with its bounds.
    distinct, counts : arrays of shape (V,)
        The distinct observed values in ascending order, and their counts.
    given : container of str
        The settings of the user. Bounds and detection limits of the user take precedence.
    """
    numbers = column.kind in (*NUMERIC, "datetime", "duration") and column.levels is None
    if not numbers or not len(distinct):
        return column
    low, high = float(distinct[0]), float(distinct[-1])
    column = replace(column, observed_low=low, observed_high=high)
    if column.derived is not None:
        return column
    share_of_new = float((counts == 1).sum() / counts.sum())
    bounds = ("minimum", "maximum", "censored_below", "censored_above")
    free = not any(name in given for name in bounds)
    if column.integer and share_of_new <= MOST_NEW and len(distinct) <= MOST_CODES and free:
        return replace(column, codes=tuple(distinct.tolist()))
    if column.firm and free:  # natural limits, which the reason of the kind states
        return column
    room = ROOM if share_of_new > MOST_NEW and column.kind != "datetime" else 0.0
    least, greatest = _widened(low, high, room)
    is_below = "minimum" in given or "censored_below" in given
    is_above = "maximum" in given or "censored_above" in given
    if column.minimum is not None and column.minimum > greatest:
        is_above = True  # the user's bound excludes all observed values
    if column.maximum is not None and column.maximum < least:
        is_below = True
    return replace(
        column,
        least=None if is_below else least,
        greatest=None if is_above else greatest,
        extrapolated=room > 0 and not (is_below and is_above),
    )


def _widened(low: float, high: float, room: float) -> tuple[float, float]:
    """Returns a range with room on both sides, without negative numbers unless there are some.

    Numbers that are never negative are mostly amounts, which cannot be. There is no such reason for numbers
    that are never positive: they may be those values of a centred column that are not missing.
    """
    largest = float(np.finfo(np.float64).max)
    width = min(high / 2 - low / 2, largest / 4) * 2 * room  # twice the half, which cannot overflow
    least, greatest = max(low - width, -largest), min(high + width, largest)
    return max(least, 0.0) if low >= 0 else least, greatest
