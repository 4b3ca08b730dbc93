"""Imputing and predicting a table in units, by an engine, so that an interrupted run can be resumed."""

import hashlib
import os
import tempfile
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from halfseen.base.model_file import load
from halfseen.base.parameters import check_level, check_whole
from halfseen.base.table import match
from halfseen.data.incomplete import rows_in_block
from halfseen.data.scan import Scan, scan
from halfseen.distributed.engines import Engine, PassesByEngine, Progress, find_engine, warn_once
from halfseen.distributed.manifest import MANIFEST, begin, describe_inputs, last_changes
from halfseen.distributed.outputs import Folder
from halfseen.distributed.units import Layout, Unit, plan_units
from halfseen.distributed.work import Done, Job, Operation, output_names, output_schema, run_unit
from halfseen.errors import TableError


@dataclass(frozen=True)
class WrittenFiles:
    """What a run wrote.

    Parameters
    ----------
    files : tuple of str
        The paths of the files, in the order of their rows; those of the first draw first.
    n_rows : int
        The number of rows of the table.
    n_units, n_resumed : int
        The number of units, and how many of them an earlier run had finished.
    """

    files: tuple[str, ...]
    n_rows: int
    n_units: int
    n_resumed: int


def impute(
    source: Any,
    model: Any,
    out: str | os.PathLike[str],
    *,
    engine: str | Engine = "local",
    address: str | None = None,
    n_workers: int | None = None,
    draws: int | None = None,
    random_state: int | None = None,
    layout: Layout = "parts",
    resume: bool = False,
    filesystem: Any = None,
    progress: Progress | None = None,
) -> WrittenFiles:
    """Imputes the missing values of a table that need not fit into memory, by a fitted imputer.

    The output is a folder of Parquet files and a manifest. Values are those of ``model.transform`` of the
    whole table, and draws those of ``model.sample`` with the row ids of the scan, bit by bit, whatever the
    files, the engine, the number of workers and the memory budget.

    Parameters
    ----------
    source : Scan, or what `halfseen.scan` takes
        The table. Columns that the model does not know are copied.
    model : fitted imputer, or path of a model file
        The model, fitted to a table with column names.
    out : str or path
        The folder of the output, which is created; also an address such as ``s3://bucket/folder``.
    engine : {"local", "ray", "dask"} or Engine, default="local"
        What runs the units: processes of this machine, tasks of Ray or futures of Dask. With the engine
        ``"local"`` and several workers, a script must run this function under
        ``if __name__ == "__main__":``.
    address : str, optional
        The address of the cluster of Ray or Dask.
    n_workers : int, optional
        The number of workers; by default as many as processors. One local worker is this process itself.
    draws : int, optional
        The number of draws of each missing value, in the folders ``draw=1``, ``draw=2``, and so on. By
        default, means and most probable levels. If the scan names a column of row ids, this column is read
        first, and a warning is issued if ids repeat: all ids are compared if at most 65,536 of them are
        different, and as many that are chosen by their hashes otherwise.
    random_state : int, optional
        The seed of the draws; by default that of the model.
    layout : {"parts", "files"}, default="parts"
        ``"parts"`` writes files of about a million rows, named by their numbers; ``"files"`` one for each
        input file, with its name. Blocks that lie in several files are then computed for each of them.
    resume : bool, default=False
        Whether to go on with a run that was interrupted. The model, the inputs, the seed and the options must
        be those of that run. Files that it finished are not touched.
    filesystem : pyarrow.fs.FileSystem or fsspec file system, optional
        That of the output; by default found from its address.
    progress : callable, optional
        Called with the number of finished rows and of all rows after each unit.

    Returns
    -------
    WrittenFiles
        The files.

    Raises
    ------
    TableError
        A ValueError: an input cannot be read, an output cannot be written or exists, or a run cannot be
        resumed.

    See Also
    --------
    halfseen.scan : Opens files as one table.

    Examples
    --------
    >>> import pandas as pd
    >>> import halfseen
    >>> table = pd.DataFrame({"a": [1.0, 2.0, 3.0, None], "b": [2.0, 4.0, 6.0, 8.0]})
    >>> table.to_parquet("rows.parquet")
    >>> imputer = halfseen.MeanImputer().fit(table)
    >>> halfseen.distributed.impute("rows.parquet", imputer, "completed", n_workers=1).files
    ('completed/part-00000.parquet',)
    >>> pd.read_parquet("completed/part-00000.parquet")["a"].tolist()
    [1.0, 2.0, 3.0, 2.0]
    """
    if draws is not None:
        check_whole("draws", draws, 1)
    run = _Run(source, model, out, "impute", draws, random_state, layout, filesystem)
    return run.carry_out(find_engine(engine, address), n_workers, resume=resume, progress=progress)


def predict(
    source: Any,
    model: Any,
    out: str | os.PathLike[str],
    *,
    engine: str | Engine = "local",
    address: str | None = None,
    n_workers: int | None = None,
    level: float = 0.9,
    layout: Layout = "parts",
    resume: bool = False,
    filesystem: Any = None,
    progress: Progress | None = None,
) -> WrittenFiles:
    """Predicts the target of the rows of a table that need not fit into memory, by a fitted predictor.

    The output has the columns of the table, followed by ``prediction`` and, for classes, their probabilities,
    for numbers the ends of an interval.

    Parameters
    ----------
    source, model, out, engine, address, n_workers, layout, resume, filesystem, progress
        As of `impute`; the model is a predictor.
    level : float, default=0.9
        The probability of the intervals.

    Returns
    -------
    WrittenFiles
        The files.
    """
    check_level(level)
    run = _Run(source, model, out, "predict", None, None, layout, filesystem, level)
    return run.carry_out(find_engine(engine, address), n_workers, resume=resume, progress=progress)


def impute_file(
    source: Any, model: Any, out: str | os.PathLike[str], *, progress: Progress | None = None
) -> None:
    """Imputes a table that need not fit into memory into one Parquet file, in this process.

    The file has its name once it is complete; an interrupted run begins again.

    Parameters
    ----------
    source, model, progress
        As of `impute`.
    out : str or path
        The file, which is replaced if it exists.
    """
    path = Path(out)
    run = _Run(source, model, path.parent, "impute", None, None, "parts", None)
    unit = Unit(path.name, 0, run.job.scan.n_rows)
    check_apart(run.job.scan, run.job.folder, [unit.name])
    warn_once(dict.fromkeys(run_unit(run.job, unit, progress).notes, 1))


class _Run:
    """What is to be done; see `impute`."""

    def __init__(
        self,
        source: Any,
        model: Any,
        out: str | os.PathLike[str],
        operation: Operation,
        draws: int | None,
        seed: int | None,
        layout: Layout,
        filesystem: Any,
        level: float = 0.9,
    ) -> None:
        self.source = source
        content, estimator = read_model(model, operation)
        table = source if isinstance(source, Scan) else scan(source)
        table = match(table, estimator)
        block_rows = rows_in_block(len(estimator.feature_names_in_))
        folder = Folder.at(out, filesystem)
        digest = hashlib.sha256(content).hexdigest()
        seed = int(estimator.seed_) if seed is None and hasattr(estimator, "seed_") else seed
        self.job = Job(table, operation, content, digest, folder, block_rows, seed, draws, level)
        self.units = plan_units(table, layout, block_rows)
        check_apart(table, folder, self.outputs)
        self.request = {
            "operation": operation,
            "options": {"draws": draws} if operation == "impute" else {"level": level},
            "model": digest,
            "random_state": seed,
            "inputs": describe_inputs(table),
            "changes": last_changes(table),
            "block_rows": block_rows,
            "layout": layout,
            "row_id": table.row_id,
            "version": version("halfseen"),
        }
        output_schema(self.job, estimator)  # raises an error if the columns do not fit the model

    @property
    def outputs(self) -> list[str]:
        return [name for names in zip(*map(self.names, self.units), strict=True) for name in names]

    def names(self, unit: Unit) -> list[str]:
        return output_names(unit, self.job.draws)

    def carry_out(
        self, engine: Engine, n_workers: int | None, *, resume: bool, progress: Progress | None
    ) -> WrittenFiles:
        if n_workers is not None:
            check_whole("n_workers", n_workers, 1)
        folder = self.job.folder
        check_folder(self.job.scan, self.source, folder)
        manifest = begin(self.request, folder, self.units, self.outputs, resume=resume)
        if self.job.draws is not None:
            self.job.scan.warn_of_repeated_ids(PassesByEngine(engine, n_workers))
        left = [unit for unit in self.units if unit.name not in manifest.finished]
        n_resumed = len(self.units) - len(left)
        folder.create(MANIFEST)
        manifest.write(folder, len(self.units))
        n_done = sum(unit.stop - unit.start for unit in self.units if unit.name in manifest.finished)
        notes: dict[str, int] = {}
        try:
            with closing(self._answers(engine, left, n_workers)) as answers:  # workers end before this does
                for unit, done in answers:
                    manifest.finished[unit.name] = dict(done.files)
                    manifest.write(folder, len(self.units))
                    n_done += unit.stop - unit.start
                    for note in done.notes:
                        notes[note] = notes.get(note, 0) + 1
                    if progress is not None:
                        progress(n_done, self.job.scan.n_rows)
        finally:
            for name in [*(name for unit in left for name in self.names(unit)), MANIFEST]:
                folder.remove_partial(name)
        warn_once(notes)
        paths = tuple(folder.join(name) for name in self.outputs)
        return WrittenFiles(paths, self.job.scan.n_rows, len(self.units), n_resumed)

    def _answers(
        self, engine: Engine, units: list[Unit], n_workers: int | None
    ) -> Generator[tuple[Unit, Done], None, None]:
        if units:
            yield from engine.run(run_unit, self.job, units, n_workers)


def read_model(model: Any, operation: Operation) -> tuple[bytes, Any]:
    """Returns the content of a model file and the model; raises an error if it cannot do what is asked."""
    name = type(model).__name__
    if isinstance(model, str | os.PathLike):
        name = os.fspath(model)
        estimator = load(model)
        content = Path(model).read_bytes()
    else:
        estimator = model
        with tempfile.TemporaryDirectory() as folder:
            model.save(os.path.join(folder, "model"))
            content = Path(folder, "model").read_bytes()
    can = estimator.capabilities
    if not can.tables or not (can.imputes if operation == "impute" else can.predicts):
        what = "an imputer" if operation == "impute" else "a predictor"
        raise TableError(f"{name} is not {what} of tables ({type(estimator).__name__})")
    if not hasattr(estimator, "feature_names_in_"):
        raise TableError(
            f"{name}: the model was fitted to an array without column names, so the columns of a file cannot "
            "be matched; fit it to a data frame or a file"
        )
    return content, estimator


def check_folder(table: Scan, source: Any, folder: Folder) -> None:
    """Raises an error if inputs and outputs lie in one folder, which would then be read as one table."""
    if not folder.is_local:
        return
    place = os.path.realpath(folder.path)
    if isinstance(source, str | os.PathLike) and os.path.isdir(source):
        inputs = os.path.realpath(source)
        if os.path.commonpath([inputs, place]) == inputs:
            raise TableError(
                f"{folder.path}: the output lies in the folder of the input; write to another folder"
            )
    for path in table.files:
        if os.path.commonpath([place, os.path.realpath(path)]) == place:
            raise TableError(
                f"{path}: this input lies in the folder of the output, {folder.path}; write to another folder"
            )


def check_apart(table: Scan, folder: Folder, outputs: list[str]) -> None:
    """Raises an error if an output is one of the inputs."""
    if not folder.is_local:
        return
    inputs = {os.path.realpath(path): path for path in table.files}
    for name in outputs:
        path = os.path.realpath(folder.join(name))
        if path in inputs:
            raise TableError(f"{inputs[path]}: the output would overwrite the input; write to another folder")
