"""The registry of public data sets: path, checksum, shape and licence of each."""

import json
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any


class DataSetError(ValueError):
    """Raised if a data set is unknown, is not available, or is not the expected file."""


@dataclass(frozen=True)
class DataSet:
    """One file of a public data set.

    Attributes
    ----------
    name : str
        As `halfseen.datasets.load` takes it; ``folder/table`` where a set has several files.
    group : str
        images, ratings, complete (tables), incomplete (tables), counts or synthetic.
    path : str
        Below the data folder.
    sha256 : str
        The checksum of the file.
    shape : str
        Rows and columns, target and identifiers included.
    missing : int or None
        The number of cells that are missing by nature; None where a file holds arrays.
    target : tuple of str
        The columns (or arrays) that one usually predicts; may be empty.
    arrays : mapping of str to tuple of int
        Names and shapes of the arrays of an npz file; empty for a table.
    licence, source, note : str
        Terms of use with the place of origin, the repository or package the file was taken from, and remarks.
    """

    name: str
    group: str
    path: str
    sha256: str
    shape: str
    missing: int | None
    target: tuple[str, ...]
    licence: str
    source: str
    note: str
    arrays: MappingProxyType[str, tuple[int, ...]]

    @property
    def is_table(self) -> bool:
        """Whether the file holds a table, and not arrays."""
        return not self.arrays


def names() -> list[str]:
    """Returns the names of the data sets that `load` knows, sorted.

    Examples
    --------
    >>> len(names()), names()[:3]
    (114, ['abalone', 'adult', 'airfoil'])
    """
    return sorted(_registry())


def describe_dataset(name: str) -> DataSet:
    """Returns the description of a data set.

    Examples
    --------
    >>> adult = describe_dataset("adult")
    >>> adult.shape, adult.target, adult.missing
    ('48842 x 16', ('income',), 6465)
    """
    known = _registry()
    if name in known:
        return known[name]
    parts = [other for other in sorted(known) if other.startswith(f"{name}/")]
    if parts:
        raise DataSetError(f"{name!r} has several files; ask for one of {', '.join(parts)}.")
    close = get_close_matches(str(name), known, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    raise DataSetError(f"There is no data set {name!r}.{hint} `halfseen datasets` lists those there are.")


@cache
def _registry() -> MappingProxyType[str, DataSet]:
    text = (files("halfseen.datasets") / "registry.json").read_text(encoding="utf-8")
    return MappingProxyType({name: _entry(name, fields) for name, fields in json.loads(text).items()})


def _entry(name: str, fields: dict[str, Any]) -> DataSet:
    arrays = {key: tuple(shape) for key, shape in fields.get("arrays", {}).items()}
    known = {**fields, "target": tuple(fields["target"]), "arrays": MappingProxyType(arrays)}
    return DataSet(name=name, **known)
