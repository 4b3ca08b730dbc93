"""A model file of a released version loads, and answers as it did."""

import json
import math

import pytest
from model_files.stored import FOLDER, ask, rows

import halfseen

STORED = sorted(path for folder in FOLDER.iterdir() if folder.is_dir() for path in folder.glob("*.half"))
RELATIVE = 1e-4  # networks compute in single precision, and other processors sum in another order
DATA = {name: data for name, _, data in rows()}


def differences(found, expected, place=""):
    """Yields where two nested answers differ by more than rounding."""
    if isinstance(expected, list):
        if not isinstance(found, list) or len(found) != len(expected):
            yield f"{place}: {found!r} in place of {expected!r}"
            return
        for number, pair in enumerate(zip(found, expected, strict=True)):
            yield from differences(*pair, f"{place}[{number}]")
    elif isinstance(expected, float) and isinstance(found, int | float):
        if not math.isclose(found, expected, rel_tol=RELATIVE, abs_tol=RELATIVE):
            yield f"{place}: {found!r} in place of {expected!r}"
    elif found != expected:
        yield f"{place}: {found!r} in place of {expected!r}"


def test_answers_that_differ_are_found():
    assert list(differences([1.0, [2, "a"]], [1.0 + 1e-9, [2, "a"]])) == []
    assert list(differences([1.0, [2, "b"]], [1.1, [2, "a"]])) == [
        "[0]: 1.0 in place of 1.1",
        "[1][1]: 'b' in place of 'a'",
    ]


def test_stored_models_are_of_estimators_that_exist():
    if not STORED:
        pytest.skip("no version has been released: tests/model_files/stored.py stores the models of one")
    assert {path.stem for path in STORED} <= DATA.keys()


@pytest.mark.parametrize("path", STORED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_stored_model_loads_and_answers_as_it_did(path):
    stored = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    estimator = halfseen.load(path)
    assert type(estimator).__name__ == stored["class"]
    found = json.loads(json.dumps(ask(estimator, DATA[path.stem])))
    assert found.keys() == stored["answers"].keys()
    wrong = [line for name in found for line in differences(found[name], stored["answers"][name], name)]
    assert wrong == []
