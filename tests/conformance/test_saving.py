"""Laws of model files: a loaded model gives the same answers in another process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conformance.fitted import fitted
from conformance.registry import ESTIMATORS
from conformance.tables import ARRAY, NASTY, PENGUINS, hashes_of_answers

import halfseen

CASES = (ARRAY, PENGUINS, NASTY)
ROOT = Path(__file__).resolve().parents[2]


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
            estimator = fitted(row, case)
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
