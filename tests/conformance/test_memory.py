"""The memory law: no call takes more than the budget beside its table and its answer, with two threads."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conformance.registry import ESTIMATORS, IMPUTERS, OTHERS

BUDGET = 128 * 2**20
N_ROWS = 5_000
N_LEVELS = 3_000

linux = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the kernel must tell peaks")


def peaks(name, n_levels, *sizes):
    """What each call of an estimator takes, in a process of its own."""
    folders = [folder for folder in sys.path if Path(folder, "conformance").is_dir()]
    folders += [folder for folder in sys.path if Path(folder, "skeletons").is_dir()]
    paths = os.pathsep.join([*folders, os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-W", "ignore", "-m", "conformance.peaks", name, f"{BUDGET} B", str(n_levels)]
    run = subprocess.run(
        [*command, *map(str, sizes)],
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


def beyond(found):
    return [
        f"{one['call']} on {one['n_rows']} rows: {one['peak'] >> 20} MiB"
        for one in found
        if one["peak"] > BUDGET
    ]


SLOW_ROWS = 150
"""Of presets of "latent", which are slow; larger than what they handle at a time are four times as many."""


@linux
@pytest.mark.slow
@pytest.mark.parametrize("row", ESTIMATORS, ids=str)
def test_every_call_stays_within_the_budget_whatever_the_number_of_rows(row):
    n_rows = SLOW_ROWS if row.slow else N_ROWS
    found = peaks(row.name, 0, n_rows, 4 * n_rows)
    assert {one["n_rows"] for one in found} == {n_rows, 4 * n_rows}
    assert beyond(found) == []


@linux
@pytest.mark.slow
@pytest.mark.parametrize("family", sorted({row.family for row in OTHERS}))
def test_calls_on_other_data_than_tables_stay_within_the_budget(family):
    found = peaks(family, 0, 4 * N_ROWS)
    measured = {one["call"].partition(".")[0] for one in found}
    assert measured == {row.name for row in OTHERS if row.family == family and "skeleton" not in row.name}
    assert beyond(found) == []


@linux
@pytest.mark.slow
@pytest.mark.parametrize("row", [row for row in IMPUTERS if row.name in ("gaussian", "mixture")], ids=str)
def test_every_call_stays_within_the_budget_whatever_the_number_of_levels(row):
    """All rows with all levels would take 480 MB for a column."""
    assert beyond(peaks(row.name, N_LEVELS, 4 * N_ROWS)) == []


@linux
def test_the_measure_of_memory_sees_what_a_call_takes():
    from conformance.peaks import peak_of

    kept, peak = peak_of(lambda: b"x" * (50 * 2**20))
    assert len(kept) <= peak < 60 * 2**20
