"""Data sets: a bundled table and loaders of public data sets."""

from importlib.resources import as_file, files
from importlib.util import find_spec
from typing import Any

from halfseen.datasets.corpora import Norb, Utterance, phoneme_windows, read_norb, read_timit
from halfseen.datasets.loaders import (
    DataSet,
    DataSetError,
    Stays,
    choose_backend,
    describe_dataset,
    load,
    load_physionet2012,
    names,
    read_csv,
)

__all__ = [
    "DataSet",
    "DataSetError",
    "Norb",
    "Stays",
    "Utterance",
    "describe_dataset",
    "load",
    "load_penguins",
    "load_physionet2012",
    "names",
    "phoneme_windows",
    "read_norb",
    "read_timit",
]


def load_penguins(backend: str | None = None) -> Any:
    """Returns the Palmer penguins: 344 birds, 8 columns of mixed types, 19 cells naturally missing.

    Parameters
    ----------
    backend : {"pandas", "polars", "pyarrow"}, optional
        The library of the table; by default the first that is installed.

    Returns
    -------
    DataFrame or Table
        species, island, bill length and depth, flipper length, body mass, sex, year.

    References
    ----------
    Horst, Hill & Gorman (2020), palmerpenguins; data by K. Gorman and the Palmer Station LTER, CC0.

    Examples
    --------
    >>> load_penguins("pandas").shape
    (344, 8)
    """
    chosen = choose_backend(backend, "load_penguins", find_spec)
    with as_file(files("halfseen.data") / "samples" / "penguins.csv") as path:
        return read_csv(str(path), chosen)
