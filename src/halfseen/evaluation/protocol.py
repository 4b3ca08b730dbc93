"""Comparison of imputers: known values are removed, imputed by each method and scored, repeatedly.

Each repetition splits the rows and removes values with its own seed, which is stored. All imputers see the
same missing values. They are fitted to the training rows only and impute both the training rows ("in") and
the new rows ("out"). A run that raises an error counts as a failure.

Removed values are known values. If values are missing because of their own size (MNAR), no comparison on
known values shows how well they are imputed, and even under MAR, values removed completely at random differ
from those that are missing (Näf, Grzesiak & Scornet 2025, arXiv 2507.11297). Use a mechanism similar to the
one of the table, or see `halfseen.evaluation.energy`.

The settings of a comparison are stored with hashes of the content, versions and the commit; finished runs are
stored in a folder.
"""

import hashlib
import json
import os
import platform
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from halfseen._machine import count_processors, write_atomically
from halfseen._random import seed_from
from halfseen.base.parameters import check_level
from halfseen.data.incomplete import unmask
from halfseen.errors import SchemaError
from halfseen.evaluation.candidates import CodedTable
from halfseen.evaluation.comparison import RUNS, Comparison
from halfseen.evaluation.trial import Record, Trial, run_trial

PACKAGE = Path(__file__).parents[1]
PACKAGES = ("halfseen", "joblib", "numpy", "scikit-learn", "scipy", "torch")
_ABOVE = ("cli", "report")  # layers that cannot change a result
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def digest(content: Any) -> str:
    """Returns a hash of plain data.

    Examples
    --------
    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    True
    """
    text = json.dumps(content, sort_keys=True, allow_nan=True)
    return hashlib.sha256(text.encode()).hexdigest()


def describe_parameters(thing: Any) -> Any:
    """Returns an object as plain data that is equal for equal settings, in every process.

    Examples
    --------
    >>> from sklearn.impute import KNNImputer
    >>> describe_parameters(KNNImputer(n_neighbors=3))["parameters"]["n_neighbors"]
    3
    """
    if thing is None or isinstance(thing, bool | int | float | str):
        return thing
    if isinstance(thing, np.generic):
        return thing.item()
    if isinstance(thing, np.ndarray):
        content = hashlib.sha256(np.ascontiguousarray(thing).tobytes()).hexdigest()
        return f"array {thing.dtype} {thing.shape} {content}"
    if isinstance(thing, Mapping):
        return {str(key): describe_parameters(value) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [describe_parameters(value) for value in thing]
    name = f"{type(thing).__module__}.{type(thing).__qualname__}"
    if hasattr(thing, "get_params"):
        return {"class": name, "parameters": describe_parameters(thing.get_params(deep=False))}
    if is_dataclass(thing) and not isinstance(thing, type):
        return {
            "class": name,
            "parameters": {f.name: describe_parameters(getattr(thing, f.name)) for f in fields(thing)},
        }
    if callable(thing):
        return f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', repr(type(thing)))}"
    return _ADDRESS.sub("", repr(thing))


@cache
def code_digest() -> str:
    """Returns a hash of the source below the command line: other code may give other results."""
    content = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        if place.parts[0] not in _ABOVE:
            content.update(place.as_posix().encode() + b"\0" + path.read_bytes())
    return content.hexdigest()


def provenance(*folders: Path) -> dict[str, Any]:
    """Returns when, where and by which code something was computed: the library and further folders."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {name: version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "code": code_digest(),
        "commit": commit(*folders),
    }


def commit(*folders: Path) -> str | None:
    """Returns the last commit of the library and of further folders of its repository.

    It ends with a plus if files were changed since, and is None outside of git.
    """
    places = [".", *map(str, folders)]
    last = _git("log", "-1", "--format=%H", "--", *places)
    if not last:
        return None
    return last + ("+" if _git("status", "--porcelain", "--", *places) else "")


def _git(*arguments: str) -> str:
    quiet = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            ["git", "-C", str(PACKAGE), *arguments], capture_output=True, text=True, timeout=10, env=quiet
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


@dataclass(frozen=True)
class StoredRuns:
    """A folder of finished runs, one small file each, named by a hash of everything that determines it.

    Files are complete or absent, so that an interrupted comparison can be resumed. Failures are stored, and
    run again.
    """

    folder: Path

    def get(self, key: str) -> Record | None:
        """Returns a finished run; None if there is none, or the file is damaged."""
        try:
            content = json.loads((self.folder / f"{key}.json").read_text(encoding="utf-8"))
            record = Record(**{**content, "warnings": tuple(content["warnings"]), "resumed": True})
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return record if record.status != "failed" else None

    def put(self, key: str, record: Record) -> None:
        """Stores a run."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with write_atomically(self.folder / f"{key}.json") as file:
            file.write(json.dumps(asdict(record)).encode())


PROCESS_BYTES = 450 * 2**20  # memory of a worker process with its libraries
COPIES = 6  # number of arrays of the size of the table in a run, without draws


def compare(
    X: Any,
    imputers: Mapping[str, Any],
    *,
    mechanism: Any,
    n_repeats: int = 5,
    test_fraction: float = 0.3,
    n_draws: int = 20,
    level: float = 0.9,
    schema: Any = None,
    reference: Any = None,
    random_state: Any = 0,
    n_jobs: int = 1,
    memory_budget: int | None = None,
    folder: str | Path | None = None,
    callback: Callable[[Record], None] | None = None,
) -> Comparison:
    """Compares imputers on known values that are removed from a table.

    Parameters
    ----------
    X : pandas, polars or pyarrow table, or array-like of shape (n_samples, n_features)
        The table. Its own missing values are never scored.
    imputers : mapping of str to object
        Imputers of halfseen, or any objects with `fit` and `transform` for numeric arrays, such as those of
        scikit-learn (`candidates.ArrayCandidate` describes how they read a mixed table). They are copied,
        and the `random_state` of the copies is the seed of the repetition.
    mechanism : object with fit and sample
        The mechanism that removes values, see `halfseen.missingness`. It is calibrated once, on the whole
        table; ``mechanism.fit(X).sample(X, random_state=seed)`` is a boolean array, True for values that
        stay.
    n_repeats : int, default=5
        The number of repetitions.
    test_fraction : float, default=0.3
        The fraction of rows held out from fitting; 0 to compare on fitted rows only.
    n_draws : int, default=20
        The number of draws for CRPS and energy distance.
    level : float, default=0.9
        The level of the intervals whose coverage is measured.
    schema : mapping, optional
        Column kinds, as in the imputers.
    reference : table, optional
        The table that the mechanism reads instead of `X`: a completed copy, for a mechanism that needs
        complete rows.
    random_state : int, numpy generator or None, default=0
        Seeds everything.
    n_jobs : int, default=1
        The number of parallel processes; -1 for one per processor. Times are comparable only with 1.
    memory_budget : int, optional
        The number of bytes that all parallel runs together may use; by default half of the free memory. Fewer
        processes run if necessary.
    folder : path, optional
        A folder in which finished runs are stored, so that an interrupted comparison can be resumed. Runs are
        repeated if the data, seeds, settings, parameters or code have changed.
    callback : callable, optional
        Called with the `Record` of each run when it is done.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> from sklearn.impute import KNNImputer, SimpleImputer
    >>> class Coin:
    ...     def fit(self, X):
    ...         return self
    ...     def sample(self, X, random_state):
    ...         return np.random.default_rng(random_state).random(X.shape) < 0.8
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 1)) + 0.1 * rng.normal(size=(200, 3))
    >>> comparison = compare(X, {"mean": SimpleImputer(), "knn": KNNImputer()}, mechanism=Coin(), n_repeats=3)
    >>> comparison.difference("knn", "mean", "rmse").high < 0
    True
    """
    _check(imputers, n_repeats, test_fraction, n_draws, level)
    X, reference = unmask(X), unmask(reference)
    table = CodedTable.read(X, schema)
    seed = seed_from(random_state)
    trials = plan_trials(
        X if reference is None else reference, table, mechanism, n_repeats, test_fraction, seed
    )
    settings = {
        "n_rows": len(table.codes),
        "n_columns": len(table.columns),
        "n_missing": int(np.isnan(table.codes).sum()),
        "n_hidden": [int(trial.hidden.sum()) for trial in trials],
        "n_repeats": n_repeats,
        "test_fraction": test_fraction,
        "n_draws": n_draws,
        "level": level,
        "random_state": seed,
        "seeds": [trial.seed for trial in trials],
        "mechanism": describe_parameters(mechanism),
        "methods": {name: describe_parameters(imputer) for name, imputer in imputers.items()},
    }
    about = {**provenance(), "data": table.digest()}
    runs = [
        Run(name, imputer, trial, n_draws, level, _key(table, trial, imputer, n_draws, level))
        for trial in trials
        for name, imputer in imputers.items()
    ]
    n_jobs = plan_jobs(n_jobs, table.codes.shape, n_draws, memory_budget)
    stored = None if folder is None else StoredRuns(Path(folder) / RUNS)
    records = []
    for record in _run_all(runs, table, stored, n_jobs):
        records.append(record)
        if callback is not None:
            callback(record)
    order = {name: place for place, name in enumerate(imputers)}
    records.sort(key=lambda record: (record.repeat, order[record.method]))
    return Comparison(tuple(imputers), tuple(records), settings, about)


@dataclass(frozen=True)
class Run:
    """One imputer in one repetition, and the name of its result."""

    method: str
    imputer: Any
    trial: Trial
    n_draws: int
    level: float
    key: str


def plan_trials(
    X: Any, table: CodedTable, mechanism: Any, n_repeats: int, test_fraction: float, seed: int
) -> list[Trial]:
    """Returns the removed values and the held-out rows of each repetition."""
    n_rows = len(table.codes)
    known = ~np.isnan(table.codes)
    fitted = mechanism.fit(X)
    n_test = round(test_fraction * n_rows)
    if n_rows - n_test < 2:
        raise SchemaError(f"A table of {n_rows} rows is too short for test_fraction={test_fraction}.")
    trials = []
    for repeat, child in enumerate(np.random.SeedSequence(seed).spawn(n_repeats)):
        own, split, mask = (int(one) for one in child.generate_state(3, np.uint32))
        observed = np.asarray(fitted.sample(X, random_state=mask))
        if observed.dtype != np.bool_ or observed.ndim != 2 or len(observed) != n_rows:
            raise ValueError(
                f"{type(mechanism).__name__}.sample must return a boolean array with {n_rows} rows, "
                f"got {observed.dtype} of shape {observed.shape}."
            )
        hidden = known & ~observed[:, list(table.positions)]
        if not hidden.any():
            raise SchemaError(
                "No value was removed, so there is nothing to score. Increase the rate, or add rows."
            )
        test = np.zeros(n_rows, dtype=bool)
        test[np.random.default_rng(split).permutation(n_rows)[:n_test]] = True
        trials.append(Trial(repeat, own, hidden, test))
    return trials


def plan_jobs(n_jobs: int, shape: tuple[int, ...], n_draws: int, memory_budget: int | None = None) -> int:
    """Returns how many runs may go on at a time within the memory.

    Examples
    --------
    >>> plan_jobs(8, (1_000_000, 50), 20, memory_budget=40 * 2**30)
    2
    """
    if n_jobs == 0:
        raise ValueError("n_jobs must not be 0; -1 means one per processor.")
    processors = count_processors()
    wanted = n_jobs if n_jobs > 0 else max(1, processors + 1 + n_jobs)
    needed = PROCESS_BYTES + 8 * int(np.prod(shape)) * (2 * n_draws + COPIES)
    budget = _free_memory() // 2 if memory_budget is None else memory_budget
    return max(1, min(wanted, budget // needed))


def _free_memory() -> int:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not every system reports it
        return 4 * 2**30


def _run_all(runs: list[Run], table: CodedTable, stored: StoredRuns | None, n_jobs: int) -> Iterable[Record]:
    left = []
    for run in runs:
        kept = stored.get(run.key) if stored is not None else None
        if kept is None:
            left.append(run)
        else:  # a method may have another name by now
            yield Record(**{**vars(kept), "method": run.method, "repeat": run.trial.repeat})
    if n_jobs == 1 or len(left) < 2:
        yield from (_run_one(run, table, stored) for run in left)
        return
    parallel = Parallel(n_jobs=min(n_jobs, len(left)), return_as="generator_unordered")
    yield from parallel(delayed(_run_one)(run, table, stored) for run in left)


def _run_one(run: Run, table: CodedTable, stored: StoredRuns | None) -> Record:
    record = run_trial(run.method, run.imputer, table, run.trial, n_draws=run.n_draws, level=run.level)
    if stored is not None:
        stored.put(run.key, record)
    return record


def _key(table: CodedTable, trial: Trial, imputer: Any, n_draws: int, level: float) -> str:
    """Returns a hash of all that decides the result of a run."""
    return digest(
        {
            "code": code_digest(),
            "data": table.digest(),
            "seed": trial.seed,
            "hidden": describe_parameters(np.packbits(trial.hidden)),
            "test": describe_parameters(np.packbits(trial.test)),
            "imputer": describe_parameters(imputer),
            "n_draws": n_draws,
            "level": level,
        }
    )


def _check(
    imputers: Mapping[str, Any], n_repeats: int, test_fraction: float, n_draws: int, level: float
) -> None:
    if not imputers:
        raise ValueError("There is no imputer to compare: methods is empty.")
    if n_repeats < 1:
        raise ValueError(f"n_repeats must be at least 1, got {n_repeats!r}.")
    if not 0 <= test_fraction < 1:
        raise ValueError(f"test_fraction must be at least 0 and below 1, got {test_fraction!r}.")
    if n_draws < 1:
        raise ValueError(f"n_draws must be at least 1, got {n_draws!r}.")
    check_level(level)
