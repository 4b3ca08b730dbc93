"""The predictors that commands accept by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sklearn.dummy import DummyClassifier, DummyRegressor

from halfseen.base.catalogue import N_DRAWS, build_named, catalogue_name, find_method
from halfseen.cli.options import COMPARED_PREDICTORS, Predictor
from halfseen.data.target import Task
from halfseen.errors import TableError
from halfseen.evaluation.averaging import AVERAGE
from halfseen.evaluation.prediction_words import Treatment

_KINDS: dict[Task, str] = {"classification": "classifier", "regression": "regressor"}


BASELINE = "baseline"
"""The method that ignores the inputs; it is no part of an average."""

SAVED = tuple(one.value for one in Predictor if one not in (Predictor.auto, Predictor.average))
"""The single predictors, all of which can be saved."""


@dataclass(frozen=True)
class Entry:
    """A method of a comparison: what it does with missing values, and in words."""

    treatment: Treatment
    description: str


_ENTRIES = {
    BASELINE: Entry(Treatment.BASELINE, "the mean, or the shares of the classes, whatever the inputs"),
    "constant+linear": Entry(Treatment.CONSTANT, "column means and missingness indicators, linear model"),
    "boosting": Entry(Treatment.NONE, "boosted trees in which missing values are a branch"),
    "constant+boosting": Entry(Treatment.CONSTANT, "column means and missingness indicators, boosted trees"),
    "gaussian+linear": Entry(Treatment.IMPUTED, "Gaussian imputation and indicators, linear model"),
    "gaussian+boosting": Entry(Treatment.IMPUTED, "Gaussian imputation and indicators, boosted trees"),
    "multiple+linear": Entry(
        Treatment.IMPUTED, f"{N_DRAWS} Gaussian draws, a linear model for each, predictions averaged"
    ),
    "multiple+boosting": Entry(
        Treatment.IMPUTED, f"{N_DRAWS} Gaussian draws, boosted trees for each, predictions averaged"
    ),
    "sparsity-norm": Entry(Treatment.NONE, "a network with rows normalised by their known values"),
    "neumiss": Entry(Treatment.NONE, "a Gaussian prediction for each pattern, corrected by networks"),
    "circuit": Entry(Treatment.NONE, "a probabilistic circuit, exact for each pattern"),
    AVERAGE: Entry(
        Treatment.AVERAGE, "a weighted average of the predictions of the other methods, except the baseline"
    ),
}
COMPARED = {name: _ENTRIES[name] for name in COMPARED_PREDICTORS}
"""What ``halfseen compare --target`` compares, in the order of its runs."""


def build_predictor(name: str, task: Task, **settings: Any) -> Any:
    """Return a predictor by its name.

    Examples
    --------
    >>> build_predictor("boosting", "regression", random_state=0)
    BoostingRegressor(random_state=0)
    """
    return build_named(name, _KINDS[task], **settings)


def unit_of_progress(name: str, task: Task) -> str | None:
    """Return what a predictor counts while it is fitted; None if it is fitted in one step."""
    return find_method(catalogue_name(name, _KINDS[task])).steps


def build_compared(names: Sequence[str], task: Task) -> dict[str, Any]:
    """Return the methods of a comparison."""
    return {name: _build(name, task) for name in names}


def treatments(names: Sequence[str]) -> Mapping[str, Treatment]:
    """Return what each method does with missing values."""
    return {name: COMPARED[name].treatment for name in names}


def parse_predictors(text: str) -> tuple[str, ...]:
    """Return the names in a list with commas; raise an error if one is unknown."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in COMPARED]
    if unknown or not names:
        what = f"unknown method {unknown[0]!r}" if unknown else "--methods is empty"
        raise TableError(f"{what}; with --target choose from {', '.join(COMPARED)}")
    if AVERAGE in names and len([name for name in names if name not in (AVERAGE, BASELINE)]) < 2:
        raise TableError(f"--methods has {AVERAGE}, which needs at least two methods to average")
    return names


def _build(name: str, task: Task) -> Any:
    if name != BASELINE:
        return build_predictor(name, task)
    return DummyRegressor() if task == "regression" else DummyClassifier(strategy="prior")
