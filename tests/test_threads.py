"""Tasks in threads: results in order, few waiting, torch's own threads given back."""

import threading

import pytest
import torch

from halfseen._threads import map_in_threads, task_threads


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_results_come_in_the_order_of_the_items(two_threads):
    with task_threads():
        assert list(map_in_threads(lambda i: i * i, range(100))) == [i * i for i in range(100)]


def test_tasks_run_in_other_threads_only_within_the_context(two_threads):
    main = threading.get_ident()
    outside = set(map_in_threads(lambda _: threading.get_ident(), range(10)))
    with task_threads():
        inside = set(map_in_threads(lambda _: threading.get_ident(), range(10)))
        alone = set(map_in_threads(lambda _: threading.get_ident(), range(1)))
    assert outside == alone == {main}
    assert main not in inside


def test_torch_gets_its_threads_back_also_after_an_error(two_threads):
    with pytest.raises(ZeroDivisionError), task_threads():
        list(map_in_threads(lambda i: torch.get_num_threads() // i, [1, 0, 1]))
    assert torch.get_num_threads() == 2


def test_a_nested_context_keeps_the_workers(two_threads):
    main = threading.get_ident()
    with task_threads():
        with task_threads():
            assert main not in set(map_in_threads(lambda _: threading.get_ident(), range(10)))
        assert torch.get_num_threads() == 1


def test_items_are_taken_as_they_are_needed(two_threads):
    """A plan of many buckets must not pile up in memory."""
    taken = []

    def items():
        for i in range(1000):
            taken.append(i)
            yield i

    with task_threads():
        results = map_in_threads(lambda i: i, items())
        next(results)
        assert len(taken) < 20
        results.close()
