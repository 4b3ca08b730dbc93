"""Fixtures of the whole suite: where shared data lies, and that nobody moves the global generators."""

import os
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch

hypothesis.settings.register_profile("halfseen", deadline=None, derandomize=True, max_examples=15)
hypothesis.settings.load_profile("halfseen")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Sorts tests of registered estimators into the fast and the slow suite, by the rows and the tables.

    Every law meets every estimator: in the fast suite on an array and on one frame of everything, and the
    first imputer on the frames of all libraries; those of the others, and estimators that share all their
    code with others, are slow. Of both at once there would be too many.
    """
    kept, dropped = [], []
    for item in items:
        values = item.callspec.params.values() if hasattr(item, "callspec") else ()
        names = [value.name for value in values if hasattr(value, "name")]
        slow = any(getattr(value, "slow", False) for value in values)
        repeats = any(getattr(value, "repeats", False) for value in values) and "gaussian" not in names
        if slow or repeats:
            item.add_marker(pytest.mark.slow)
        (dropped if slow and repeats else kept).append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


@pytest.fixture
def generator():
    """A fresh torch generator; every test starts from the same one."""
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def shared_data():
    """The folder of data sets that are not bundled, from the variable HALFSEEN_DATA."""
    folder = os.environ.get("HALFSEEN_DATA")
    if not folder:
        pytest.skip("HALFSEEN_DATA is not set: it names the folder of data sets that are not bundled")
    if not Path(folder).is_dir():
        pytest.skip(f"HALFSEEN_DATA={folder} is not a folder")
    return Path(folder)


@pytest.fixture(autouse=True)
def defects_are_raised(monkeypatch):
    """The command line turns no defect into one line; a test of what users see deletes the variable."""
    monkeypatch.setenv("HALFSEEN_DEBUG", "1")


@pytest.fixture(autouse=True)
def global_generators_stay_where_they_are(request):
    """Fails a test after which the next number of torch's or numpy's global generator differs."""
    torch_before, numpy_before = torch.random.get_rng_state(), np.random.get_state()  # noqa: NPY002
    yield
    if request.node.get_closest_marker("global_random"):
        torch.random.set_rng_state(torch_before)
        np.random.set_state(numpy_before)  # noqa: NPY002
        return
    assert torch.equal(torch.random.get_rng_state(), torch_before), "the global torch generator was used"
    numpy_after = np.random.get_state()  # noqa: NPY002
    assert np.array_equal(numpy_after[1], numpy_before[1]), "the global numpy generator was used"
    assert numpy_after[2:] == numpy_before[2:], "the global numpy generator was used"
