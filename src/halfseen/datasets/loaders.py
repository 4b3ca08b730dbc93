"""Public data sets from files that are already there: found, checked, read.

The PhysioNet challenge of 2012 is read as sequences: stays in intensive care on a grid of steps.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import narwhals as nw
import numpy as np
import numpy.typing as npt


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


BACKENDS = ("pandas", "polars", "pyarrow")


def choose_backend(backend: str | None, caller: str, find: Callable[[str], Any] = find_spec) -> str:
    """Returns the library to read with: the one asked for, or the first that is installed."""
    if backend is not None and backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}.")
    installed = [name for name in BACKENDS if find(name) is not None]
    if backend is None and not installed:
        raise ImportError(f"{caller} needs one of {', '.join(BACKENDS)}; install one of them.")
    return backend or installed[0]


def read_csv(path: str, backend: str) -> Any:
    """Returns the table of a csv file, plain or gzipped."""
    chosen: Any = backend
    return nw.read_csv(path, backend=chosen, **_csv_options(backend)).to_native()


def read_parquet(path: str, backend: str) -> Any:
    """Returns the table of a parquet file."""
    chosen: Any = backend
    return nw.read_parquet(path, backend=chosen).to_native()


def _csv_options(backend: str) -> dict[str, Any]:
    """Returns what makes a library read empty fields as missing, and texts such as NA or None as texts."""
    if backend == "pandas":
        return {"keep_default_na": False, "na_values": [""]}
    if backend == "polars":
        return {"infer_schema_length": None}  # the first rows of a column do not determine its type
    from pyarrow.csv import ConvertOptions

    return {"convert_options": ConvertOptions(null_values=[""], strings_can_be_null=True)}


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
    halfseen.datasets.loaders.DataSetError: The folder '/nowhere', given by data_home, does not exist.
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


MINUTES = 48 * 60
NOT_KNOWN = -1.0  # how the files write a value that is missing
VARIABLES = (
    "Albumin", "ALP", "ALT", "AST", "Bilirubin", "BUN", "Cholesterol", "Creatinine", "DiasABP", "FiO2", "GCS",
    "Glucose", "HCO3", "HCT", "HR", "K", "Lactate", "Mg", "MAP", "Na", "NIDiasABP", "NIMAP", "NISysABP",
    "PaCO2", "PaO2", "pH", "Platelets", "RespRate", "SaO2", "SysABP", "Temp", "TroponinI", "TroponinT",
    "Urine", "WBC",
)  # fmt: skip
"""The 35 variables: all time series of the challenge but weight and mechanical ventilation."""


@dataclass(frozen=True)
class Stays:
    """Stays in intensive care.

    Attributes
    ----------
    X : array of shape (n_stays, n_steps, n_variables)
        The measurements, NaN where there are none.
    y : array of shape (n_stays,)
        1 if the patient died in hospital.
    ids : array of shape (n_stays,)
        The number of the record.
    variables : tuple of str
        What the last axis of `X` is.
    """

    X: npt.NDArray[np.float64]
    y: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int64]
    variables: tuple[str, ...]


def load_physionet2012(
    part: Literal["a", "b", "c"] = "a",
    *,
    minutes: int = 10,
    data_home: str | os.PathLike[str] | None = None,
) -> Stays:
    """Returns the first 48 hours of 4,000 stays in intensive care, with 35 variables on a grid of steps.

    If a variable was measured several times within a step, the last measurement is taken. Values are those
    of the files; impossible ones are not corrected.

    Parameters
    ----------
    part : {"a", "b", "c"}
        The set of the challenge.
    minutes : int, default=10
        The length of a step, a divisor of 2,880; 10 gives 288 steps, 60 gives 48.
    data_home : path, optional
        The folder of the data sets; by default the one that the variable ``HALFSEEN_DATA`` names.

    Raises
    ------
    DataSetError
        If the files are not there or are not what they should be.

    References
    ----------
    Silva, Moody, Scott, Celi & Mark (2012), Predicting in-hospital mortality of ICU patients: the
    PhysioNet/Computing in Cardiology challenge 2012.
    """
    if part not in ("a", "b", "c"):
        raise ValueError(f"part must be 'a', 'b' or 'c', got {part!r}.")
    if not isinstance(minutes, int) or minutes < 1 or MINUTES % minutes:
        raise ValueError(f"minutes must be a divisor of {MINUTES}, got {minutes!r}.")
    outcomes = nw.from_native(
        load(f"physionet2012_set_{part}/outcomes", data_home=data_home), eager_only=True
    )
    events = nw.from_native(load(f"physionet2012_set_{part}/events", data_home=data_home), eager_only=True)
    ids = outcomes["RecordID"].to_numpy().astype(np.int64)
    X = grid_events(events, ids, minutes)
    return Stays(X, outcomes["In-hospital_death"].to_numpy().astype(np.int64), ids, VARIABLES)


def grid_events(events: Any, ids: npt.NDArray[np.int64], minutes: int) -> npt.NDArray[np.float64]:
    """Returns measurements on a grid (n_stays, n_steps, 35), from a long table in the order of time.

    Parameters
    ----------
    events : narwhals DataFrame
        The columns record_id, minute, parameter and value.
    ids : array of shape (n_stays,)
        The records, in the order of the result.
    minutes : int
        The length of a step.
    """
    n_steps = MINUTES // minutes
    names = events["parameter"].cast(nw.String).to_numpy()
    known, codes = np.unique(names.astype(str), return_inverse=True)
    place = np.array([VARIABLES.index(name) if name in VARIABLES else -1 for name in known])[codes]
    value = events["value"].to_numpy().astype(np.float64)
    kept = (place >= 0) & (value != NOT_KNOWN)
    order = np.argsort(ids)
    stay = order[np.searchsorted(ids, events["record_id"].to_numpy()[kept], sorter=order)]
    step = np.minimum(events["minute"].to_numpy()[kept] // minutes, n_steps - 1)
    X = np.full((len(ids), n_steps, len(VARIABLES)), np.nan)
    X[stay, step, place[kept]] = value[kept]  # of equal positions the last is written last
    return X
