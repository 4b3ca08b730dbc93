"""Checks of the parameters of mechanisms; every message names the parameter and the value."""

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Rate = float | Sequence[float]


def check_number(name: str, value: Any, low: float = -np.inf, high: float = np.inf) -> None:
    """Raises unless `value` is a finite number between `low` and `high`, both included."""
    number: Any = value if not isinstance(value, bool | np.bool_) else None
    if not isinstance(number, Real) or not np.isfinite(float(value)) or not low <= float(value) <= high:
        raise ValueError(f"{name} must be a number{_range(low, high)}, got {value!r}.")


def check_numbers(name: str, value: Any, low: float = -np.inf, high: float = np.inf) -> None:
    """Raises unless `value` is such a number, or a flat sequence of them."""
    if isinstance(value, str) or not hasattr(value, "__len__"):
        check_number(name, value, low, high)
        return
    for i, one in enumerate(value):
        check_number(f"{name}[{i}]", one, low, high)


def check_count(name: str, value: Any, low: int = 1) -> None:
    """Raises unless `value` is an integer of at least `low`."""
    number: Any = value if not isinstance(value, bool) else None
    if not isinstance(number, Integral) or value < low:
        raise ValueError(f"{name} must be a whole number of at least {low}, got {value!r}.")


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raises unless `value` is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")


def check_rate(value: Any) -> None:
    """Raises unless `value` is a rate between 0 and 1, or one rate for each column."""
    check_numbers("rate", value, 0.0, 1.0)


def per_column(name: str, value: Any, n_columns: int) -> Floats:
    """Returns one number for each column, from one number for all of them or one for each."""
    numbers = np.asarray(value, dtype=np.float64)
    if numbers.ndim > 1 or (numbers.ndim == 1 and len(numbers) != n_columns):
        raise ValueError(f"{name} must be one number, or {n_columns} (one per column), got {value!r}.")
    return np.array(np.broadcast_to(numbers, (n_columns,)))


def _range(low: float, high: float) -> str:
    if np.isfinite(low) and np.isfinite(high):
        return f" between {low:g} and {high:g}"
    if np.isfinite(low):
        return f" of at least {low:g}"
    return f" of at most {high:g}" if np.isfinite(high) else ""
