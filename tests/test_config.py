"""Settings of the library: a memory budget for the process, or within a context."""

import threading

import pytest

from halfseen import config


@pytest.fixture(autouse=True)
def settings_are_put_back():
    before = config.get()
    yield
    config.set(**before)


@pytest.mark.parametrize(
    ("size", "n_bytes"),
    [
        (2**25, 2**25),
        ("64 MiB", 64 * 2**20),
        ("1.5GiB", 3 * 2**29),
        ("20 MB", 20_000_000),
        ("99999999 B", 99999999),
    ],
)
def test_a_budget_is_bytes_or_a_size_with_a_unit(size, n_bytes):
    config.set(memory_budget=size)
    assert config.get() == {"memory_budget": n_bytes}


def test_the_budget_is_512_mebibytes_unless_changed():
    assert config.memory_budget() == 512 * 2**20


@pytest.mark.parametrize("size", [0, -1, 1000, True, 1e9, None, "64", "MiB", "64 mb", "15 MiB"])
def test_what_is_no_size_or_too_small_is_refused(size):
    with pytest.raises(
        ValueError, match=r"memory_budget must be a number of bytes or a size such as .* got "
    ):
        config.set(memory_budget=size)
    with pytest.raises(ValueError, match="of at least 16 MiB"), config.context(memory_budget=size):
        pass


def test_a_context_ends_with_its_statement_also_after_an_error():
    def fail():
        assert config.memory_budget() == 2**25
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), config.context(memory_budget="32 MiB"):
        fail()
    assert config.memory_budget() == 512 * 2**20


def test_a_context_is_of_its_thread_and_a_setting_of_the_process():
    found = []
    config.set(memory_budget="48 MiB")
    with config.context(memory_budget="32 MiB"):
        thread = threading.Thread(target=lambda: found.append(config.memory_budget()))
        thread.start()
        thread.join()
    assert found == [48 * 2**20]
