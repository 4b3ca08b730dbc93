"""The PhysioNet challenge of 2012: stays in intensive care as sequences on a grid of steps."""

import os
from dataclasses import dataclass
from typing import Any, Literal

import narwhals as nw
import numpy as np
import numpy.typing as npt

from halfseen.datasets.loaders import load

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
