"""Names that a package offers and imports when they are first used (PEP 562): torch alone takes seconds."""

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any


def import_quietly(module: str) -> ModuleType:
    """Imports a module and keeps the state of Python's global generator.

    scikit-learn imports rich, which draws random numbers when it is imported.
    """
    before = random.getstate()
    value = import_module(module)
    if random.getstate() != before:
        random.setstate(before)
    return value


def import_name(module: str, name: str) -> Any:
    """Imports a name from a module of halfseen, given relative to the package, such as "latent.presets".

    pyarrow, which names that read and write files need, is optional; an error says how to install it.
    """
    try:
        return getattr(import_quietly(f"halfseen.{module}"), name)
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        message = f"halfseen.{name} needs pyarrow: pip install 'halfseen[cli]'"
        raise ModuleNotFoundError(message, name="pyarrow") from None


def lazy_names(
    package: str, modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns the functions ``__getattr__`` and ``__dir__`` of a package.

    Parameters
    ----------
    package : str
        The package's ``__name__``.
    modules : dict of sequences
        The names, by the module of the package that defines them.

    Examples
    --------
    >>> find, names = lazy_names("halfseen.gaussian", {"imputer": ["GaussianImputer"]})
    >>> find("GaussianImputer")()
    GaussianImputer()
    >>> find("Nothing")
    Traceback (most recent call last):
    ...
    AttributeError: module 'halfseen.gaussian' has no attribute 'Nothing'
    """
    module_of = {name: module for module, names in modules.items() for name in names}
    room = package.removeprefix("halfseen.")

    def find(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = import_name(f"{room}.{module_of[name]}", name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return find, names
