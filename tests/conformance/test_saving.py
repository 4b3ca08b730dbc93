"""Laws of model files: a loaded model is the saved one, in this process and in another."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conformance.fitted import fitted
from conformance.registry import ESTIMATORS, PREDICTORS
from conformance.tables import ARRAY, NASTY, PENGUINS, hashes_of_answers

import halfseen

CASES = (ARRAY, PENGUINS, NASTY)
ROOT = Path(__file__).resolve().parents[2]


def trained(row, case):
    if row not in PREDICTORS:
        return fitted(row, case)
    table = case.make()
    target = row.target(np.random.default_rng(0).normal(size=len(table)))
    return row.make(random_state=0).fit(table, target)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("row", ESTIMATORS, ids=str)
def test_a_loaded_model_is_the_saved_one(row, case, tmp_path):
    estimator, table = trained(row, case), case.make()
    estimator.save(tmp_path / "model")
    loaded = halfseen.load(tmp_path / "model")
    assert type(loaded) is type(estimator)
    assert loaded.get_params() == estimator.get_params()
    assert loaded.schema_ == estimator.schema_
    assert vars(loaded).keys() == vars(estimator).keys()
    assert hashes_of_answers(loaded, table) == hashes_of_answers(estimator, table)
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()


NEW_PROCESS = """
import json, sys
import halfseen
from skeletons.imputer import DiagonalImputer
from conformance.tables import CASES_BY_NAME, hashes_of_answers
for name in json.loads(sys.argv[2]):
    table = CASES_BY_NAME[name.split(".")[1]].make()
    print(json.dumps(hashes_of_answers(halfseen.load(f"{sys.argv[1]}/{name}"), table)))
"""


@pytest.mark.parametrize("everyone", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_model_gives_the_same_answers_in_a_new_process_also_from_a_path_in_any_script(everyone, tmp_path):
    folder = tmp_path / "Modelle größer 模型"
    folder.mkdir()
    expected = {}
    for number, row in enumerate(ESTIMATORS):
        chosen = (CASES[number % len(CASES)],) if everyone else ()
        for case in CASES if row.name == "gaussian" else chosen:
            estimator = trained(row, case)
            estimator.save(folder / f"{row.name}.{case.name}")
            expected[f"{row.name}.{case.name}"] = hashes_of_answers(estimator, case.make())
    source = Path(halfseen.__file__).parents[1]
    paths = os.pathsep.join(str(path) for path in (source, ROOT / "tests", ROOT / "docs"))
    run = subprocess.run(
        [sys.executable, "-c", NEW_PROCESS, str(folder), json.dumps(list(expected))],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found = [json.loads(line) for line in run.stdout.splitlines()]
    assert dict(zip(expected, found, strict=True)) == expected
