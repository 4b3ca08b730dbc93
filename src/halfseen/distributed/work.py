"""What a worker does with a unit: it reads blocks, answers them by the model, and writes the files."""

import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from halfseen.base.model_file import load
from halfseen.data.scan import Scan
from halfseen.distributed.outputs import Folder
from halfseen.distributed.units import Unit
from halfseen.errors import HalfseenWarning, RepeatedIdsWarning, SchemaError, TableError

Operation = Literal["impute", "predict"]

BLOCKS_AT_ONCE = 4
"""Blocks that are answered together: measured, blocks of 65,536 rows cost 10% more than 250,000 rows."""

PREDICTION = "prediction"
"""The name of the first new column; the others begin with it, or with ``probability``."""


@dataclass(frozen=True)
class Job:
    """What all units of a run share."""

    scan: Scan  # the table
    operation: Operation  # what is asked
    model: bytes = field(repr=False)  # the content of the model file
    digest: str  # its digest
    folder: Folder  # the folder of the output
    block_rows: int  # the number of rows in a block
    seed: int | None = None  # the seed of draws; that of the model if None
    draws: int | None = None  # the number of draws; means and most probable levels if None
    level: float = 0.9  # the probability of intervals of predictions


@dataclass(frozen=True)
class Done:
    """What a worker reports of a unit: the sizes of its files, and the notes of the model."""

    files: Mapping[str, int]
    notes: tuple[str, ...] = ()


def output_names(unit: Unit, draws: int | None) -> list[str]:
    """Returns the files of a unit: one, or one in the folder of each draw.

    Examples
    --------
    >>> output_names(Unit("part-00000.parquet", 0, 10), 2)
    ['draw=1/part-00000.parquet', 'draw=2/part-00000.parquet']
    """
    return [unit.name] if draws is None else [f"draw={draw + 1}/{unit.name}" for draw in range(draws)]


def run_unit(job: Job, unit: Unit, progress: Callable[[int, int], None] | None = None) -> Done:
    """Answers the rows of a unit and writes its files, each under a temporary name until it is complete.

    Parameters
    ----------
    job : Job
        What all units share.
    unit : Unit
        The unit.
    progress : callable, optional
        Called with the number of rows that are done and of all rows of the unit.
    """
    model = load_job_model(job)
    names = output_names(unit, job.draws)
    schema = output_schema(job, model)
    for name in names:
        job.folder.create(name)
    n_done = 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", HalfseenWarning)
        with ExitStack() as stack:
            writers = []
            for name in names:
                file = stack.enter_context(job.folder.write(name))
                writer = pa.parquet.ParquetWriter(
                    file, schema, compression="zstd", use_dictionary=repetitive(schema)
                )
                writers.append(stack.enter_context(writer))
            for tables in answer_rows(job, unit, model):
                for writer, table in zip(writers, tables, strict=True):
                    writer.write_table(conform(table, schema), row_group_size=max(1, table.num_rows))
                n_done += tables[0].num_rows
                if progress is not None:
                    progress(n_done, unit.stop - unit.start)
    # Ids that repeat were looked for in all units.
    messages = (one.message for one in caught if not isinstance(one.message, RepeatedIdsWarning))
    notes = dict.fromkeys(str(message) for message in messages if isinstance(message, HalfseenWarning))
    sizes = {name: job.folder.size_of(name) or 0 for name in names}
    return Done(sizes, tuple(notes))


def repetitive(schema: pa.Schema) -> list[str]:
    """Returns the columns that are written with dictionaries: all but floating-point numbers.

    These have so many values, after imputation at the latest, that a dictionary is begun and given up again,
    which takes time and space.
    """
    return [one.name for one in schema if not pa.types.is_floating(one.type)]


def answer_rows(job: Job, unit: Unit, model: Any) -> Iterator[Sequence[pa.Table]]:
    """Yields the completed rows of a unit in order: one table, or one for each draw.

    Whole blocks are answered, also if the unit begins or ends within one, so that the answers to its rows are
    those of the whole table.
    """
    size = job.block_rows * (BLOCKS_AT_ONCE if job.draws is None else 1)
    first = unit.start // job.block_rows * job.block_rows
    last = -(-unit.stop // job.block_rows) * job.block_rows
    for start, table in job.scan.blocks(first, last, n_rows=size):
        try:
            answers = answer(job, model, start, table)
        except SchemaError as error:
            raise TableError(f"{_file_of(job.scan, start)}: {error}") from error
        low, high = max(unit.start - start, 0), min(unit.stop - start, table.num_rows)
        if low < high:
            yield [one.slice(low, high - low) for one in answers]


def answer(job: Job, model: Any, start: int, table: pa.Table) -> Sequence[pa.Table]:
    """Returns a table of whole blocks with the answers of a model in place of, or after, its columns."""
    inputs = table.select([str(name) for name in model.feature_names_in_])
    if job.operation == "predict":
        for name, cells in predicted_columns(model, inputs, job.level).items():
            table = table.append_column(free_name(name, table.column_names), cells)
        return [table]
    if job.draws is None:
        return [_replaced(table, model.transform(inputs))]
    ids = job.scan.row_ids(start, table)
    return [_replaced(table, one) for one in model.sample(inputs, job.draws, row_ids=ids)]


def _replaced(table: pa.Table, completed: pa.Table) -> pa.Table:
    places = {name: place for place, name in enumerate(table.column_names)}
    for name in completed.column_names:
        if name in places:
            table = table.set_column(places[name], name, completed[name])
        else:  # an indicator of missing values
            table = table.append_column(name, completed[name])
    return table


def predicted_columns(model: Any, inputs: pa.Table, level: float) -> dict[str, pa.Array]:
    """Returns the prediction of each row, and probabilities of classes or the ends of an interval.

    Parameters
    ----------
    model : fitted predictor
        The model.
    inputs : pyarrow.Table
        The columns of the model, in its order.
    level : float
        The probability of intervals.
    """
    predicted = np.asarray(model.predict(inputs))
    columns = {PREDICTION: pa.array(predicted.tolist())}
    if model.capabilities.predicts == "classes":
        probabilities = model.predict_proba(inputs)
        for place, label in enumerate(model.classes_.tolist()):
            columns[f"probability_{label}"] = pa.array(probabilities[:, place])
    else:
        low, high = model.predict_interval(inputs, level=level)
        columns |= {f"{PREDICTION}_low": pa.array(low), f"{PREDICTION}_high": pa.array(high)}
    return columns


def free_name(name: str, taken: Sequence[str]) -> str:
    """Returns the name of a new column; a name that is taken gets a number.

    Examples
    --------
    >>> free_name("prediction", ["a", "prediction"])
    'prediction_2'
    """
    candidates = (name, *(f"{name}_{number}" for number in range(2, len(taken) + 3)))
    return next(one for one in candidates if one not in taken)


def output_schema(job: Job, model: Any) -> pa.Schema:
    """Returns the columns that are written, which all units share: those of the table, then new ones."""
    empty = job.scan.schema.empty_table()
    if job.operation == "predict":
        one = answer(job, model, 0, _one_row(job.scan))[0]
        new = [field for field in one.schema if field.name not in empty.column_names]
    else:
        answered = model.transform(empty.select([str(name) for name in model.feature_names_in_]))
        new = [field for field in answered.schema if field.name not in empty.column_names]
        new = new if job.draws is None else []
    return pa.schema([*empty.schema, *new])


def _one_row(scan: Scan) -> pa.Table:
    """Returns a row in which everything is missing."""
    return pa.table([pa.nulls(1, one.type) for one in scan.schema], schema=scan.schema)


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns a table in the types of a schema; completed columns keep theirs, so that this rarely casts."""
    columns = [
        column if column.type == one.type else column.cast(one.type)
        for column, one in zip(table.columns, schema, strict=True)
    ]
    return pa.table(columns, schema=schema)


def _file_of(scan: Scan, row: int) -> str:
    end = 0
    for part in scan.parts:
        end += part.n_rows
        if row < end:
            return part.path
    return scan.parts[-1].path


# ------------------------------------------------------------------------------------------ models

_loaded: dict[tuple[str, int | None], Any] = {}  # the model of the job that this process works on


def load_job_model(job: Job) -> Any:
    """Returns the model of a job, which a process loads once."""
    key = (job.digest, job.seed)
    if key not in _loaded:
        handle, path = tempfile.mkstemp(suffix=".halfseen")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(job.model)
            model = load(path)
        finally:
            Path(path).unlink(missing_ok=True)
        if job.seed is not None:
            model.seed_ = job.seed
        _loaded.clear()
        _loaded[key] = model
    return _loaded[key]
