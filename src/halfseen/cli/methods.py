"""The imputers of the catalogue that commands accept by name."""

from enum import StrEnum
from typing import Any

from halfseen.base.catalogue import CATALOGUE, Family, find_method
from halfseen.errors import TableError
from halfseen.vocabulary import Missingness, check_missingness

OFFERED = {
    method.name: method
    for method in CATALOGUE
    if method.on_command_line and method.family == Family.TABLE_IMPUTER
}
Method = StrEnum("Method", {name.replace("-", "_"): name for name in OFFERED})  # type: ignore[misc]
"""The imputers that the command line offers, as it lists them."""

DEFAULT_METHOD = Method("auto")

RIVALS = ("median", "knn", "iterative")
"""Imputers of scikit-learn that take part in comparisons."""

COMPARED = (
    *OFFERED,
    *(f"{name}:{word}" for name, method in OFFERED.items() for word in method.missingness[1:]),
    *RIVALS,
)
QUICK = (*(name for name, method in OFFERED.items() if method.quick), *RIVALS)
"""What is compared if nothing is named: networks take minutes."""


def offered(name: str) -> tuple[Missingness, ...]:
    """Return the assumptions about missingness that a method offers, the default first."""
    return find_method(name).missingness


def missingness_help() -> str:
    """Return a sentence that lists the methods which offer more than their default assumption."""
    several = [method for method in OFFERED.values() if len(method.missingness) > 1]
    lists = [
        f"{method.name} offers {method.missingness[0]} (its default), {', '.join(method.missingness[1:])}"
        for method in several
    ]
    return f"The assumed reason for missing values: {'; '.join(lists)}; all other methods assume mar."


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
    name, _, named = method.partition(":")
    default = offered(name)[0]
    assumed = missingness or named or default.value
    check_missingness(assumed, offered(name), besides=f" with the method {name}")
    if assumed != default:
        settings["missingness"] = assumed
    return find_method(name).estimator(**settings)


def parse_methods(text: str) -> tuple[str, ...]:
    """Return the names in a list with commas; raise an error if one is unknown."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in COMPARED]
    if unknown:
        raise TableError(f"unknown method {unknown[0]!r}; choose from {', '.join(COMPARED)}")
    if not names:
        raise TableError(f"--methods is empty; choose from {', '.join(COMPARED)}")
    return names


def method_of(model: Any) -> str:
    """Return the name of a fitted imputer, with its assumption about missingness if it is not the default.

    Examples
    --------
    >>> method_of(build("gaussian:self-masking-probit"))
    'gaussian:self-masking-probit'
    """
    entry = next((one for one in CATALOGUE if one.class_name == type(model).__name__), None)
    if entry is None:
        raise TableError(f"{type(model).__name__} is not a method of this library, so it has no report")
    assumed = getattr(model, "missingness", entry.missingness[0])
    return entry.name if assumed == entry.missingness[0] else f"{entry.name}:{assumed}"
