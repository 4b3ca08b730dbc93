"""How much memory each call of an estimator takes, measured in a process of its own.

The figure is the peak of resident memory during the call above what was resident before it, less the size of
the answer. The memory of the tests would blur it, so each estimator is measured in a new process, forked from
one that has imported this module and done nothing else.
"""

import ctypes
import gc
import multiprocessing
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
from conformance.families import DATA, QUESTIONS
from conformance.registry import ESTIMATORS, OTHERS, PREDICTORS

import halfseen
from halfseen.base.catalogue import Family
from halfseen.latent.imputer import BaseLatentImputer
from halfseen.testing.tables import gaussian_array

N_COLUMNS, N_DRAWS = 12, 10
LIBRARY = ctypes.CDLL(None)


def resident(entry):
    """The bytes of an entry of the kernel's account of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{entry}:"))


def size_of(answer):
    if isinstance(answer, dict):
        answer = list(answer.values())
    if isinstance(answer, list | tuple):
        return sum(map(size_of, answer))
    return answer.nbytes if isinstance(answer, np.ndarray) else 0


def peak_of(call):
    """The answer of a call, and how far resident memory rose above what it was, less the answer."""
    gc.collect()
    LIBRARY.malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = resident("VmRSS")
    answer = call()
    return answer, resident("VmHWM") - before - size_of(answer)


def calls(estimator, table, target):
    """Each call that the estimator knows, by name."""
    yield "fit", lambda: estimator.fit(table) if target is None else estimator.fit(table, target)
    for name in ("transform", "interval", "score_samples", "class_probabilities", "top_probabilities",
                 "predict", "predict_proba", "predict_interval"):  # fmt: skip
        if hasattr(estimator, name):
            yield name, lambda name=name: getattr(estimator, name)(table)
    if hasattr(estimator, "sample"):
        yield "sample", lambda: estimator.sample(table, n_draws=N_DRAWS)


def tables(n_rows, n_levels):
    """Numbers; if there are to be levels, two columns of them, as codes of one large category."""
    table = gaussian_array(n_rows, N_COLUMNS, seed=n_rows)
    if n_levels:
        rng = np.random.default_rng(n_rows)
        table[:, :2] = rng.integers(0, n_levels, size=(n_rows, 2))
        table[rng.random(table.shape) < 0.1] = np.nan
    return table


def family_calls(estimator, data):
    """Each call of an estimator of other data than tables, by name."""
    yield "fit", lambda: data.fit(estimator)
    for name in ("predict",) if hasattr(data, "frame") else QUESTIONS:
        if hasattr(estimator, name):
            yield name, lambda name=name: data.ask(estimator, (name,))[name]


def measure_family(row, *sizes):
    """Yields the peaks of an estimator of other data than tables; latent-variable models take fewer rows."""
    estimator = row.make(random_state=0)
    for n_rows in (100, *sizes):  # the first are to load code and to start threads
        data = DATA[row.family](n_rows=n_rows)
        for call, answer in family_calls(estimator, data):
            peak = peak_of(answer)[1]
            if n_rows != 100:
                yield {"call": f"{row}.{call}", "n_rows": n_rows, "peak": peak}


def measure_table(row, n_levels, *sizes):
    """Yields the peaks of an estimator of tables."""
    levels = list(range(n_levels))
    schema = {f"x{j}": {"kind": "categorical", "levels": levels} for j in range(2)} if n_levels else None
    estimator = row.make(random_state=0, schema=schema)
    if isinstance(estimator, BaseLatentImputer):  # time depends on these, memory does not
        estimator.set_params(max_epochs=1, n_imputation_draws=16)
    for n_rows in (400, *sizes):  # the first are to load code and to start threads
        table = tables(n_rows, n_levels)
        target = row.target(np.nan_to_num(table[:, -1])) if row in PREDICTORS else None
        for call, answer in calls(estimator, table, target):
            if n_levels and call == "class_probabilities":
                continue
            peak = peak_of(answer)[1]
            if n_rows != 400:
                yield {"call": call, "n_rows": n_rows, "peak": peak}


def measure(name, budget, n_levels, *sizes):
    """Returns the peaks of an estimator of tables, or of all of another family, with two threads."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(2)
    halfseen.config.set(memory_budget=budget)
    if name not in list(Family):
        found = list(measure_table(next(row for row in ESTIMATORS if row.name == name), n_levels, *sizes))
    else:
        rows = [row for row in OTHERS if row.family == name and "skeleton" not in row.name]
        fewer = {row: [size // 30 for size in sizes] if "miwae" in row.name else sizes for row in rows}
        found = [one for row in rows for one in measure_family(row, *fewer[row])]
    assert "torch._dynamo" not in sys.modules, "torch's compiler was loaded, which takes 65 MiB and a second"
    return found


def peaks(name, budget, n_levels, *sizes):
    """Returns what `measure` finds in a new process."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(measure, name, budget, n_levels, *sizes).result()
