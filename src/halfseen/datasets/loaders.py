"""Public data sets from files that are already there: found, checked, read."""

import hashlib
import os
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from halfseen.datasets.registry import DataSet, DataSetError, describe_dataset
from halfseen.datasets.tables import choose_backend, read_csv, read_parquet

VARIABLE = "HALFSEEN_DATA"
"""The environment variable that names the folder of data sets."""

_PIECE = 2**20
_verified: set[tuple[str, int, int]] = set()  # path, size and time of files whose checksum was right


def load(name: str, data_home: str | os.PathLike[str] | None = None, backend: str | None = None) -> Any:
    """Returns a public data set from a folder of files, after checking the SHA-256 of its file.

    Nothing is fetched from the network: the licences of several sets forbid passing them on. The folder holds
    one sub-folder for each set; `describe_dataset` names the file and the source of the data.

    Parameters
    ----------
    name : str
        One of `names()`, such as ``"adult"`` or ``"mice_sets/nhanes"``.
    data_home : path, optional
        The folder; by default the one that the variable ``HALFSEEN_DATA`` names.
    backend : {"pandas", "polars", "pyarrow"}, optional
        The library of a table; by default the first that is installed.

    Returns
    -------
    DataFrame, Table or dict of numpy arrays
        A table, missing cells as the library has them; a dict for a file of arrays.

    Raises
    ------
    DataSetError
        If the name is unknown, or the folder or file is missing or not what it should be.

    Examples
    --------
    >>> load("adult", data_home="/nowhere")
    Traceback (most recent call last):
      ...
    halfseen.datasets.registry.DataSetError: The folder '/nowhere', given by data_home, does not exist.
    """
    known = describe_dataset(name)
    chosen = choose_backend(backend, "load", find_spec) if known.is_table or backend is not None else ""
    path = locate(known, data_home)
    verify(path, known)
    if not known.is_table:
        with np.load(path, allow_pickle=False) as archive:
            return dict(archive)
    read = read_parquet if path.suffix == ".parquet" else read_csv
    return read(str(path), chosen)


def locate(known: DataSet, data_home: str | os.PathLike[str] | None = None) -> Path:
    """Returns the path of a data set's file, which must exist."""
    folder = _folder(data_home)
    path = folder / known.path
    if not path.is_file():
        raise DataSetError(
            f"Data set {known.name!r} needs the file {known.path}, which is not in {str(folder)!r}. "
            f"halfseen does not download it; its source is {known.source} ({known.licence})."
        )
    return path


def is_present(known: DataSet, data_home: str | os.PathLike[str] | None = None) -> bool:
    """Returns whether a data set's file is there; its checksum is not verified."""
    try:
        return locate(known, data_home).is_file()
    except DataSetError:
        return False


def check_present(names: Iterable[str], purpose: str) -> None:
    """Raises one error that names all data sets that are not there, and where their files belong.

    Parameters
    ----------
    names : iterable of str
        Names that `load` knows.
    purpose : str
        What needs them, as the beginning of a sentence.
    """
    lost = [known for known in map(describe_dataset, dict.fromkeys(names)) if not is_present(known)]
    if not lost:
        return
    named = os.environ.get(VARIABLE)
    files = ", ".join(f"{known.path} ({known.name})" for known in lost)
    where = f"the folder {named!r}, which {VARIABLE} names" if named else f"a folder and set {VARIABLE} to it"
    raise DataSetError(
        f"{purpose} needs data sets that are not available. Put these files into {where}: {files}. "
        "`halfseen datasets NAME` shows the source of each."
    )


def _folder(data_home: str | os.PathLike[str] | None) -> Path:
    named = os.environ.get(VARIABLE) if data_home is None else data_home
    if not named:
        raise DataSetError(
            f"The folder of the data sets is not known: set the environment variable {VARIABLE}, or pass "
            "data_home."
        )
    folder = Path(named).expanduser()
    if not folder.is_dir():
        origin = VARIABLE if data_home is None else "data_home"
        raise DataSetError(f"The folder {str(named)!r}, given by {origin}, does not exist.")
    return folder


def verify(path: Path, known: DataSet) -> None:
    """Raises unless the SHA-256 of a file is correct; a file that has not changed since is not read again."""
    status = path.stat()
    state = (str(path.resolve()), status.st_size, status.st_mtime_ns)
    if state in _verified:
        return
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    if digest.hexdigest() != known.sha256:
        raise DataSetError(
            f"{path} is not the file that data set {known.name!r} needs: its SHA-256 begins with "
            f"{digest.hexdigest()[:12]}, and should begin with {known.sha256[:12]}. Replace the file."
        )
    _verified.add(state)
