"""Scales on which estimates are closer to normal than on their own: logarithm, logit and Fisher's z."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, logit

from halfseen._arrays import Booleans, Floats


@dataclass(frozen=True)
class Transformation:
    """A monotone function of an estimate."""

    name: str  # its name, or that of the link of a model
    # The function and its derivative; None if only the way back is needed.
    forward: Callable[[Any], Any] | None
    derivative: Callable[[Any], Any] | None
    # The way back and its derivative.
    inverse: Callable[[Any], Any]
    inverse_derivative: Callable[[Any], Any]
    domain: str = "all numbers"  # which estimates have a value, in words


def _squared_correlation(z: Floats) -> Floats:
    """Returns R-squared; the end of an interval below zero is zero."""
    return np.tanh(np.maximum(z, 0.0)) ** 2


def _slope_of_squared_correlation(z: Floats) -> Floats:
    root = np.tanh(np.maximum(z, 0.0))
    return 2 * root * (1 - root**2)


TRANSFORMATIONS = {
    one.name: one
    for one in (
        Transformation("log", np.log, lambda q: 1 / q, np.exp, np.exp, "positive"),
        Transformation(
            "logit", logit, lambda q: 1 / (q * (1 - q)), expit, lambda z: expit(z) * expit(-z), "in (0, 1)"
        ),
        Transformation(
            "fisher",
            np.arctanh,
            lambda q: 1 / (1 - q**2),
            np.tanh,
            lambda z: 1 - np.tanh(z) ** 2,
            "in (-1, 1)",
        ),
        Transformation(
            "fisher-root",
            lambda q: np.arctanh(np.sqrt(q)),
            lambda q: 1 / (2 * np.sqrt(q) * (1 - q)),
            _squared_correlation,
            _slope_of_squared_correlation,
            "in (0, 1)",
        ),
        Transformation(
            "cloglog",
            lambda q: np.log(-np.log(q)),
            lambda q: 1 / (q * np.log(q)),
            lambda z: np.exp(-np.exp(z)),
            lambda z: -np.exp(z - np.exp(z)),
            "in (0, 1)",
        ),
    )
}
_INSIDE: dict[str, Callable[[Floats], Booleans]] = {
    "positive": lambda q: q > 0,
    "in (0, 1)": lambda q: (q > 0) & (q < 1),
    "in (-1, 1)": lambda q: np.abs(q) < 1,
}


def find_transformation(name: str) -> Transformation:
    """Returns a transformation by its name."""
    if name not in TRANSFORMATIONS:
        raise ValueError(f"transform must be one of {', '.join(TRANSFORMATIONS)}, got {name!r}.")
    return TRANSFORMATIONS[name]


def transformed(estimates: Floats, variances: Floats, name: str) -> tuple[Floats, Floats]:
    """Returns estimates (M, K) on another scale, and their variances or covariances by the delta method."""
    chosen = find_transformation(name)
    assert chosen.forward is not None
    assert chosen.derivative is not None
    wrong = np.argwhere(~_INSIDE[chosen.domain](estimates))
    if len(wrong):
        table, place = wrong[0]
        raise ValueError(
            f"transform={name!r} needs estimates that are {chosen.domain}, but estimate {place} of table "
            f"{table} is {estimates[table, place]:.4g}."
        )
    slope = chosen.derivative(estimates)
    scaling = slope**2 if variances.ndim == 2 else slope[:, :, None] * slope[:, None, :]
    return chosen.forward(estimates), variances * scaling
