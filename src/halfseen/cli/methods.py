"""The imputers of halfseen that commands know by name."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import halfseen
from halfseen.cli.errors import TableError


class Method(StrEnum):
    """The imputers that the command line offers."""

    gaussian = "gaussian"
    mixture = "mixture"
    mean = "mean"
    probit = "probit"
    mvae = "mvae"
    miwae = "miwae"
    not_miwae = "not-miwae"
    missvae = "missvae"
    misssvae = "misssvae"
    missiwae = "missiwae"
    misssiwae = "misssiwae"
    demissvae = "demissvae"


TRAINED = frozenset(Method) - {Method.gaussian, Method.mean, Method.probit}
"""Those that train by gradients, and tell of each epoch."""

RIVALS = ("median", "knn", "iterative")
"""Imputers of scikit-learn that take part in comparisons."""

COMPARED = (*(method.value for method in Method), *RIVALS)
QUICK = ("gaussian", "mixture", "mean", *RIVALS)
"""What is compared if nothing is named: networks take minutes."""


def build(method: str, **settings: Any) -> Any:
    """Return the imputer of a method.

    Examples
    --------
    >>> build("miwae", random_state=1)
    MIWAEImputer(random_state=1)
    """
    makers: dict[str, Callable[..., Any]] = {
        Method.gaussian: halfseen.GaussianImputer,
        Method.mixture: halfseen.MixtureImputer,
        Method.mean: halfseen.MeanImputer,
        Method.probit: lambda **given: halfseen.GaussianImputer(missingness="probit", **given),
        Method.mvae: halfseen.MVAEImputer,
        Method.miwae: halfseen.MIWAEImputer,
        Method.not_miwae: halfseen.NotMIWAEImputer,
        Method.missvae: halfseen.MissVAEImputer,
        Method.misssvae: halfseen.MissSVAEImputer,
        Method.missiwae: halfseen.MissIWAEImputer,
        Method.misssiwae: halfseen.MissSIWAEImputer,
        Method.demissvae: halfseen.DeMissVAEImputer,
    }
    return makers[method](**settings)


def parse_methods(text: str) -> tuple[str, ...]:
    """Return the names in a list with commas, or say which is unknown."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in COMPARED]
    if unknown:
        raise TableError(f"unknown method {unknown[0]!r}; choose from {', '.join(COMPARED)}")
    if not names:
        raise TableError(f"--methods is empty; choose from {', '.join(COMPARED)}")
    return names
