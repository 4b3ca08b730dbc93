"""A model file of a released version loads, and answers as it did."""

import json
import math
import tomllib
import warnings

import pytest
from model_files.stored import FOLDER, ROOT, ask, is_released, main, names

import halfseen

STORED = sorted(path for folder in FOLDER.iterdir() if folder.is_dir() for path in folder.glob("*.half"))
RELATIVE = 1e-4  # networks compute in single precision, and other processors sum in another order
MOST_BYTES = 3e6  # of a version


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
    assert list(differences([1.0, [2, "a", None]], [1.0 + 1e-9, [2, "a", None]])) == []
    assert list(differences([1.0, [2, "b", None]], [1.1, [2, "a", 1.0]])) == [
        "[0]: 1.0 in place of 1.1",
        "[1][1]: 'b' in place of 'a'",
        "[1][2]: None in place of 1.0",
    ]


def test_every_estimator_is_stored_before_a_release():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    if is_released(version):
        pytest.skip(f"version {version} is released: estimators that are added later belong to the next one")
    if not (FOLDER / version).is_dir():
        pytest.skip(f"nothing is stored for version {version} yet: tests/model_files/stored.py does that")
    stored = {path.stem for path in STORED if path.parent.name == version}
    assert stored == names(), "run PYTHONPATH=tests:docs python tests/model_files/stored.py"


def test_files_of_a_released_version_are_not_replaced(monkeypatch):
    monkeypatch.setattr("model_files.stored.is_released", lambda version: True)
    with pytest.raises(SystemExit, match=r"version 0\.1\.0 is released"):
        main("0.1.0")


@pytest.mark.parametrize("folder", sorted({path.parent for path in STORED}), ids=lambda folder: folder.name)
def test_stored_files_are_small(folder):
    assert sum(path.stat().st_size for path in folder.iterdir()) < MOST_BYTES


@pytest.mark.parametrize("path", STORED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_stored_model_loads_and_answers_as_it_did(path):
    stored = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    estimator = halfseen.load(path)
    assert type(estimator).__name__ == stored["class"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = ask(estimator, stored["question"])
    assert found.keys() >= stored["answers"].keys()
    wrong = [
        line
        for name, expected in stored["answers"].items()
        for line in differences(found[name], expected, name)
    ]
    assert wrong == []
