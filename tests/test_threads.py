"""Tasks in threads: results in order, few waiting, torch's own threads given back."""

import threading

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from halfseen import _threads
from halfseen._machine import count_processors
from halfseen._threads import map_in_threads, n_workers, one_openmp_thread, task_threads, torch_defaults


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


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_tasks_have_the_gradient_and_inference_modes_of_the_caller(two_threads, mode):
    def modes(_):
        return torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    with task_threads(), mode():
        assert set(map_in_threads(modes, range(10))) == {modes(None)}
    assert torch.is_grad_enabled()


def test_tasks_have_the_error_state_of_the_caller(two_threads):
    def division(_):
        return np.array(1.0) / np.array(0.0)

    with task_threads(), np.errstate(divide="ignore"):
        assert list(map_in_threads(division, range(3))) == [np.inf] * 3
    with task_threads(), np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        list(map_in_threads(division, range(3)))


def test_a_task_neither_starts_threads_nor_lets_an_operation_have_several(two_threads):
    def inner(_):
        me = threading.get_ident()
        others = set(map_in_threads(lambda _: threading.get_ident(), range(10)))
        return torch.get_num_threads(), others == {me}

    with task_threads():
        assert set(map_in_threads(inner, range(10))) == {(1, True)}


def test_there_are_no_more_workers_than_processors_are_granted(two_threads, monkeypatch):
    monkeypatch.setattr(_threads, "count_processors", lambda: 1)
    with task_threads():
        assert n_workers() == 1
    assert torch.get_num_threads() == 2


def test_no_more_tasks_run_at_a_time_than_there_is_memory_for(two_threads):
    main = threading.get_ident()
    with task_threads():
        assert set(map_in_threads(lambda _: threading.get_ident(), range(10), at_most=0)) == {main}
        assert set(map_in_threads(lambda _: threading.get_ident(), range(10), at_most=1)) == {main}
        assert main not in set(map_in_threads(lambda _: threading.get_ident(), range(10), at_most=2))


def openmp_threads():
    return {found["num_threads"] for found in threadpool_info() if found["user_api"] == "openmp"}


def test_libraries_that_use_openmp_get_one_thread_and_then_theirs_back():
    with threadpool_limits(2, user_api="openmp"):
        with one_openmp_thread():
            assert openmp_threads() == {1}
        assert openmp_threads() == {2}


def in_new_thread(function):
    """Returns what a function gives in a thread that begins now."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_threads_that_begin_after_overlapping_calls_have_as_many_as_before(two_threads):
    first_has_begun, second_has_begun, first_has_ended = (threading.Event() for _ in range(3))
    seen = {}

    def first():
        with task_threads():
            first_has_begun.set()
            second_has_begun.wait(60)
        seen["first"] = torch.get_num_threads()
        first_has_ended.set()

    def second():
        first_has_begun.wait(60)
        with task_threads():  # in a thread that begins while torch has one
            second_has_begun.set()
            first_has_ended.wait(60)
            seen["workers"] = n_workers()
            seen["tasks"] = set(map_in_threads(lambda _: torch.get_num_threads(), range(10)))
        seen["second"] = torch.get_num_threads()

    threads = [threading.Thread(target=one) for one in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {"first": 2, "second": 2, "workers": min(2, count_processors()), "tasks": {1}}
    assert in_new_thread(torch.get_num_threads) == 2


def test_a_thread_keeps_the_number_that_it_was_given_while_others_call(two_threads):
    def three():
        torch.set_num_threads(3)
        with task_threads():
            pass
        return torch.get_num_threads()

    with task_threads():
        assert in_new_thread(three) == 3
    assert torch.get_num_threads() == 2


@pytest.fixture
def double_precision():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("error", [None, ZeroDivisionError, KeyboardInterrupt])
def test_the_modes_and_defaults_of_torch_are_those_of_a_new_process_and_then_the_users(
    double_precision, error
):
    def state():
        new = torch.empty(0)
        return new.dtype, new.device.type, new.is_inference(), torch.is_grad_enabled()

    with torch.device("meta"), torch.inference_mode():
        before = state()
        try:
            with torch_defaults(), task_threads():
                inside = state()
                if error is not None:
                    raise error
        except (ZeroDivisionError, KeyboardInterrupt):
            pass
        assert state() == before == (torch.float64, "meta", True, False)
    assert inside == (torch.float32, "cpu", False, True)


def test_the_default_type_of_torch_is_given_back_by_the_last_of_overlapping_calls(double_precision):
    first_has_begun, second_has_begun, first_has_ended = (threading.Event() for _ in range(3))
    seen = []

    def first():
        with torch_defaults():
            first_has_begun.set()
            second_has_begun.wait(60)
        first_has_ended.set()

    def second():
        first_has_begun.wait(60)
        with torch_defaults():
            second_has_begun.set()
            first_has_ended.wait(60)
            seen.append(torch.get_default_dtype())

    threads = [threading.Thread(target=one) for one in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [torch.float32]
    assert torch.get_default_dtype() == torch.float64
