"""Runs an experiment: each finished run is stored at once, and not run again unless it failed."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import numpy.typing as npt

from halfseen._machine import plain_json, write_atomically
from halfseen.datasets.loaders import check_present
from halfseen.evaluation.protocol import code_digest, provenance
from papers.claims import Cell, Published, Setting, Verdict, show_setting
from papers.spec import Experiment

EXPERIMENTS_FOLDER = Path(__file__).parent
_BETWEEN = " "  # a run and the name of an array of it; names have none


@dataclass(frozen=True)
class Row:
    """One line of the table of results: a model on a setting, over seeds."""

    setting: Setting
    model: str
    metric: str
    mean: float
    sd: float
    n_runs: int
    n_failed: int
    seconds: float
    published: Published | None


@dataclass(frozen=True)
class Results:
    """The runs of an experiment at a scale, with where they came from."""

    experiment: Experiment
    scale: str
    cells: Sequence[Cell]
    provenance: Mapping[str, Any]
    path: Path
    n_reused: int = 0

    @property
    def n_of_other_code(self) -> int:
        """The number of runs that were made by source code other than the present."""
        return sum(cell.code != code_digest() for cell in self.cells)

    def published(self, setting: Setting, model: str, metric: str) -> Published | None:
        """Returns the paper's number for a model on a setting, if it has one."""
        return self.experiment.numbers(setting, model, metric)

    def sign(self, metric: str) -> int:
        """Returns 1 if more of the metric is better, -1 if less is."""
        return -1 if self.experiment.metrics[metric] == "lower" else 1

    def rows(self) -> list[Row]:
        """Returns the table of results; a mean is over the runs that did not fail.

        A model that never has a metric has no line of it.
        """
        groups: dict[tuple[str, str], list[Cell]] = {}
        for cell in self.cells:
            groups.setdefault((show_setting(cell.setting), cell.model), []).append(cell)
        return [
            self._row(cells, metric)
            for cells in groups.values()
            for metric in self.experiment.metrics
            if any(cell.failed or metric in cell.scores for cell in cells)
        ]

    def verdicts(self) -> list[Verdict]:
        """Returns the verdict on each claim, in their order."""
        return [claim.judge(self) for claim in self.experiment.claims]

    def _row(self, cells: Sequence[Cell], metric: str) -> Row:
        cells = [cell for cell in cells if cell.failed or metric in cell.scores]
        first, good = cells[0], [cell for cell in cells if not cell.failed]
        scores = [cell.scores[metric] for cell in good]
        return Row(
            setting=first.setting,
            model=first.model,
            metric=metric,
            mean=fmean(scores) if scores else float("nan"),
            sd=stdev(scores) if len(scores) > 1 else float("nan"),
            n_runs=len(cells),
            n_failed=len(cells) - len(good),
            seconds=fmean(cell.seconds for cell in cells),
            published=self.published(first.setting, first.model, metric),
        )


def run(
    experiment: Experiment,
    scale: str = "smoke",
    output: str | os.PathLike[str] = "results",
    *,
    fresh: bool = False,
    only: Sequence[str] = (),
    callback: Callable[[Cell, int, int], None] | None = None,
) -> Results:
    """Runs an experiment and returns its results.

    Each run is stored with the commit of the library and the experiments that made it. After each run, all
    results so far are in ``output/NAME-SCALE.json``, and arrays, if runs have any, are
    in ``output/NAME-SCALE.npz``. Stored runs are not repeated unless they failed, so that an interrupted
    experiment continues where it stopped.

    Parameters
    ----------
    experiment : Experiment
        What to run.
    scale : {"smoke", "small", "paper"}
        How much of it.
    output : path, default="results"
        The folder of the result file; it is created if it does not exist.
    fresh : bool, default=False
        Whether to forget stored runs, for instance because the code has changed.
    only : sequence of str, default=()
        Texts of which one must occur in the model or setting of a run, as in ``default on rows = 300``; other
        runs are not started, and stay if they are stored. By default all runs are meant.
    callback : callable, optional
        Called after each run with the run, its number (from 1) and how many there are.

    Raises
    ------
    DataSetError
        Before anything is run, if data sets are not there.
    """
    planned = experiment.cells(scale)
    folder = Path(output)
    path = folder / f"{experiment.name}-{scale}.json"
    meant = {_key(cell) for cell in planned if not only or any(text in describe_run(cell) for text in only)}
    again = meant if fresh else frozenset()
    stored = {
        _key(cell): cell for cell in _read(path, experiment) if not (cell.failed and _key(cell) in meant)
    }
    done = {key: stored[key] for key in map(_key, planned) if key in stored and key not in again}
    n_reused = len(done)
    missing = [cell for cell in planned if _key(cell) in meant and _key(cell) not in done]
    # Without a new run only the verdicts are computed again: the results are still those of the old commit.
    old = not missing and path.exists()
    origin = json.loads(path.read_text("utf-8"))["provenance"] if old else provenance(EXPERIMENTS_FOLDER)

    def results() -> Results:
        ordered = [done[key] for key in map(_key, planned) if key in done]
        return Results(experiment, scale, ordered, origin, path, n_reused)

    needed = (name for cell in missing for name in experiment.data_sets(cell.setting))
    check_present(needed, f"Experiment {experiment.name!r} at scale {scale!r}")
    folder.mkdir(parents=True, exist_ok=True)
    for cell in experiment.run_cells(missing):
        done[_key(cell)] = replace(cell, code=code_digest(), commit=origin["commit"])
        _write(results())
        if callback is not None:
            callback(cell, len(done), len(planned))
    _write(results())
    return results()


def describe_run(cell: Cell) -> str:
    """Returns the model and the setting of a run as one line."""
    return f"{cell.model} on {show_setting(cell.setting)}"


def stored_runs(experiment: Experiment, scale: str, output: str | os.PathLike[str] = "results") -> list[Cell]:
    """Returns the stored runs of an experiment without their arrays, also those that failed."""
    return _read_cells(Path(output) / f"{experiment.name}-{scale}.json", experiment)


def judge_stored(
    experiment: Experiment, scale: str, output: str | os.PathLike[str] = "results"
) -> Results | None:
    """Judges all stored runs of an experiment by its present claims, and runs nothing.

    Verdicts and summaries are written again, beside the paper's numbers as they are now; the runs stay as
    they are, also those that are no longer planned. Returns None if nothing is stored.
    """
    path = Path(output) / f"{experiment.name}-{scale}.json"
    stored = stored_runs(experiment, scale, output)
    if not stored:
        return None
    origin = json.loads(path.read_text(encoding="utf-8"))["provenance"]
    results = Results(experiment, scale, stored, origin, path, len(stored))
    _write_summary(results)
    return results


def _read(path: Path, experiment: Experiment) -> list[Cell]:
    """Returns the runs of a result file that belong to this version of the experiment, with their arrays."""
    cells = _read_cells(path, experiment)
    arrays = _read_arrays(path.with_suffix(".npz")) if cells else {}
    return [replace(cell, arrays=arrays.get(_key(cell), {})) for cell in cells]


def _read_cells(path: Path, experiment: Experiment) -> list[Cell]:
    """Returns all runs of a result file, without arrays, if it is of this version of the experiment."""
    if not path.exists():
        return []
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if (stored["experiment"], stored["version"]) != (experiment.name, experiment.version):
            return []
        origin = {"commit": stored["provenance"].get("commit")}  # of runs that do not name their own
        return [Cell(**(origin | fields)) for fields in stored["cells"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a result file of an experiment; move it away first.") from error


def _read_arrays(path: Path) -> dict[str, dict[str, npt.NDArray[Any]]]:
    """Returns the arrays of each run."""
    found: dict[str, dict[str, npt.NDArray[Any]]] = {}
    if path.exists():
        with np.load(path, allow_pickle=False) as archive:
            for name, array in archive.items():
                key, _, short = name.rpartition(_BETWEEN)
                found.setdefault(key, {})[short] = array
    return found


def _write(results: Results) -> None:
    _write_arrays(results)
    _write_summary(results)


def _write_summary(results: Results) -> None:
    """Writes all of the results but arrays."""
    content = {
        "experiment": results.experiment.name,
        "version": results.experiment.version,
        "scale": results.scale,
        "question": results.experiment.question,
        "paper": results.experiment.paper,
        "provenance": dict(results.provenance),
        "verdicts": [asdict(verdict) for verdict in results.verdicts()],
        "summary": [_plain(asdict(row)) for row in results.rows()],
        "cells": [_plain(_fields(cell)) for cell in results.cells],
    }
    with write_atomically(results.path) as file:
        file.write(json.dumps(content, indent=1, allow_nan=False).encode())


def _write_arrays(results: Results) -> None:
    arrays = {
        f"{_key(cell)}{_BETWEEN}{name}": array
        for cell in results.cells
        for name, array in cell.arrays.items()
    }
    path = results.path.with_suffix(".npz")
    if not arrays:
        path.unlink(missing_ok=True)  # of runs that are forgotten
        return
    with write_atomically(path) as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def _fields(cell: Cell) -> dict[str, Any]:
    """Returns all of a run but its arrays."""
    fields = asdict(replace(cell, arrays={}))
    del fields["arrays"]
    return fields


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """Replaces numbers that JSON does not have by null; a run with such a score becomes a failed one."""
    lost = [
        name
        for name, score in fields.get("scores", {}).items()
        if score != score or abs(score) == float("inf")
    ]
    if lost:
        fields["error"] = fields["error"] or f"not a finite number: {', '.join(lost)}"
        fields["scores"] = {name: score for name, score in fields["scores"].items() if name not in lost}
    content: dict[str, Any] = plain_json(fields)
    return content


def _key(cell: Cell) -> str:
    return json.dumps([dict(cell.setting), cell.model, cell.seed], sort_keys=True)
