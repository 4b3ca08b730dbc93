"""The imputers of halfseen that commands know by name."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import halfseen
from halfseen.cli.errors import TableError
from halfseen.vocabulary import Missingness, check_missingness


class Method(StrEnum):
    """The imputers that the command line offers."""

    gaussian = "gaussian"
    mixture = "mixture"
    mean = "mean"
    mvae = "mvae"
    miwae = "miwae"
    not_miwae = "not-miwae"
    missvae = "missvae"
    misssvae = "misssvae"
    missiwae = "missiwae"
    misssiwae = "misssiwae"
    demissvae = "demissvae"


TRAINED = frozenset(Method) - {Method.mean}
"""Those that are fitted step by step and tell of each: an epoch, or an iteration of EM."""

MODELLED: dict[str, tuple[Missingness, ...]] = {
    Method.gaussian: (Missingness.MAR, Missingness.PROBIT, Missingness.GAUSSIAN),
    Method.not_miwae: (
        Missingness.LOGISTIC,
        Missingness.MONOTONE,
        Missingness.SHARED_SLOPE,
        Missingness.FLEXIBLE,
        Missingness.LINEAR,
        Missingness.NONLINEAR,
    ),
}
"""The assumptions about missingness that a method offers, the default first; all others assume MAR."""

RIVALS = ("median", "knn", "iterative")
"""Imputers of scikit-learn that take part in comparisons."""

COMPARED = (
    *(method.value for method in Method),
    *(f"{method}:{word}" for method, words in MODELLED.items() for word in words[1:]),
    *RIVALS,
)
QUICK = ("gaussian", "mixture", "mean", *RIVALS)
"""What is compared if nothing is named: networks take minutes."""


def offered(method: str) -> tuple[Missingness, ...]:
    """Return the assumptions about missingness that a method offers, the default first."""
    return MODELLED.get(method, (Missingness.MAR,))


def build(method: str, missingness: str | None = None, **settings: Any) -> Any:
    """Return the imputer of a method.

    A method and the assumption that it makes about missingness may be given as one name, with a colon.

    Examples
    --------
    >>> build("miwae", random_state=1)
    MIWAEImputer(random_state=1)
    >>> build("gaussian:self-masking-probit")
    GaussianImputer(missingness='self-masking-probit')
    """
    method, _, named = method.partition(":")
    assumed = missingness or named or offered(method)[0].value
    check_missingness(assumed, offered(method), besides=f" with the method {method}")
    if assumed != offered(method)[0]:
        settings["missingness"] = assumed
    makers: dict[str, Callable[..., Any]] = {
        Method.gaussian: halfseen.GaussianImputer,
        Method.mixture: halfseen.MixtureImputer,
        Method.mean: halfseen.MeanImputer,
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
