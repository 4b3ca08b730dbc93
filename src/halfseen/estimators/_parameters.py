"""Parameters of estimators, checked before anything is fitted: errors name the parameter and its value."""

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np


def check_whole(name: str, value: Any, lowest: int, *, auto: bool = False) -> None:
    """Raises a ValueError unless a parameter is a whole number of at least `lowest`, or "auto" if allowed."""
    if auto and isinstance(value, str) and value == "auto":
        return
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_whole or value < lowest:
        what = ("'auto' or " if auto else "") + ("" if is_whole else "a whole number of ")
        raise ValueError(f"{name} must be {what}at least {lowest}, got {value!r}.")


def check_number(name: str, value: Any, holds: Callable[[float], bool], what: str) -> None:
    """Raises a ValueError unless `holds` is true for a number; `what` describes valid numbers."""
    if isinstance(value, bool) or not isinstance(value, Real) or not holds(float(value)):
        raise ValueError(f"{name} must be {what}, got {value!r}.")


def check_training(estimator: Any) -> None:
    """Raises a ValueError if a parameter that all estimators with networks share is out of range."""
    check_whole("patience", estimator.patience, 1)
    check_number("learning_rate", estimator.learning_rate, lambda v: 0 < v < np.inf, "positive and finite")
    check_number("validation_fraction", estimator.validation_fraction, lambda v: 0 <= v < 1, "in [0, 1)")
