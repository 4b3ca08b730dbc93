"""Fixtures of the whole suite: where shared data lies, and that nobody moves the global generators."""

import os
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch

pytest.register_assert_rewrite("halfseen.testing")
from conformance.design import suites  # noqa: E402
from conformance.tables import Case  # noqa: E402

collect_ignore = ["tests/strict_device.py"]  # has no doctests, and its device can be registered once only

hypothesis.settings.register_profile("halfseen", deadline=None, derandomize=True, max_examples=15)
hypothesis.settings.load_profile("halfseen")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Sorts tests of registered estimators into suites, by the rule of tests/conformance/design.py."""
    kept, dropped = [], []
    for item in items:
        values = item.callspec.params.values() if hasattr(item, "callspec") else ()
        row = next((value for value in values if hasattr(value, "slow")), None)
        case = next((value for value in values if isinstance(value, Case)), None)
        found = {"fast", "laws"} if row is None else suites(row, case)
        (kept if found else dropped).append(item)
        _mark(item, found)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


def _mark(item, found):
    """Gives a test the markers of its suites; the laws are the tests of tests/conformance."""
    is_law, decorated = "conformance" in item.path.parts, item.get_closest_marker("slow")
    if "laws" in found and is_law and not decorated:
        item.add_marker(pytest.mark.laws)
    if "fast" in found or decorated:
        return
    item.add_marker(pytest.mark.laws_only if found == {"laws"} and is_law else pytest.mark.slow)


@pytest.fixture
def two_threads(monkeypatch):
    """Two threads of torch during a test, and processors for them."""
    monkeypatch.setattr("halfseen._threads.count_processors", lambda: 2)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


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
def doctests_write_into_a_folder_of_their_own(request):
    """Examples name files without a folder; what they write does not stay in the repository."""
    if isinstance(request.node, pytest.DoctestItem):
        request.getfixturevalue("monkeypatch").chdir(request.getfixturevalue("tmp_path"))


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
