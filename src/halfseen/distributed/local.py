"""The engine of one machine: processes that work off units one after the other.

A process that is killed is replaced, and the unit that it had is begun again; other units are not touched. If
the process that started them ends, so do the workers, after at most the unit that they have.
"""

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from halfseen._machine import count_processors

RETRIES = 3
"""How often a unit is begun again after its worker was killed; a guess."""

_PATIENCE = 5.0  # seconds that a worker has to end by itself


class WorkersLostError(RuntimeError):
    """Raised if the worker of a unit is killed again and again, as if there is too little memory."""


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection
    unit: Any = None


class LocalEngine:
    """Runs units in processes of this machine, each with one thread; with one worker, in this process."""

    name = "local"

    def run(
        self, function: Callable[[Any, Any], Any], job: Any, units: Sequence[Any], n_workers: int | None
    ) -> Iterator[tuple[Any, Any]]:
        """Yields each unit with ``function(job, unit)``, in the order in which they are finished.

        Parameters
        ----------
        function : callable
            A function of a module, called in the workers.
        job : object
            What all units share.
        units : sequence
            The units.
        n_workers : int or None
            The number of processes; by default that of the processors.
        """
        n_processes = min(n_workers or count_processors(), len(units))
        if n_processes <= 1:
            for unit in units:
                yield unit, function(job, unit)
            return
        pool = _Pool(function, job, n_processes)
        try:
            yield from pool.work_off(units)
        finally:
            pool.end()


class _Pool:
    """Some processes, each with one unit at a time."""

    def __init__(self, function: Callable[[Any, Any], Any], job: Any, n_processes: int) -> None:
        self.context = multiprocessing.get_context("spawn")
        self.function, self.job = function, job
        self.workers = [self.start() for _ in range(n_processes)]

    def start(self) -> _Worker:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=serve, args=(theirs,), daemon=True, name="halfseen worker")
        process.start()
        theirs.close()
        ours.send((self.function, self.job))
        return _Worker(process, ours)

    def work_off(self, units: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        waiting, tries, n_left = deque(units), dict.fromkeys(units, 0), len(units)
        while n_left:
            for worker in self.workers:
                if worker.unit is None and waiting:
                    worker.unit = waiting.popleft()
                    self._hand_over(worker)
            busy = {worker.connection: worker for worker in self.workers if worker.unit is not None}
            for ready in wait(list(busy)):
                worker = busy[ready]  # type: ignore[index]
                unit, answer = worker.unit, _receive(worker)
                if answer is None:
                    tries[unit] += 1
                    if tries[unit] > RETRIES:
                        raise WorkersLostError(
                            f"{getattr(unit, 'name', unit)}: the worker was killed {tries[unit]} times; if "
                            "memory is short, use fewer workers"
                        )
                    waiting.appendleft(unit)
                    self.workers[self.workers.index(worker)] = self.start()
                    _end(worker)
                    continue
                worker.unit = None
                succeeded, result = answer
                if not succeeded:
                    raise result
                n_left -= 1
                yield unit, result

    def _hand_over(self, worker: _Worker) -> None:
        try:
            worker.connection.send(worker.unit)
        except OSError:  # it was killed while it had no unit; that is noticed when its answer is received
            pass

    def end(self) -> None:
        for worker in self.workers:
            worker.connection.close()  # on which a worker without a unit ends
            if worker.unit is not None:
                worker.process.terminate()
        for worker in self.workers:
            _end(worker)


def _receive(worker: _Worker) -> Any:
    """Returns what a worker sent; None if it was killed."""
    try:
        return worker.connection.recv()
    except (EOFError, OSError):
        return None


def _end(worker: _Worker) -> None:
    worker.connection.close()
    worker.process.join(_PATIENCE)
    if worker.process.is_alive():
        worker.process.kill()
        worker.process.join()


def serve(connection: Connection) -> None:
    """Works off the units that come through a connection, until it is closed."""
    one_thread()
    try:
        function, job = connection.recv()
        while True:
            unit = connection.recv()
            try:
                answer = True, function(job, unit)
            except Exception as error:  # sent to the process that raises it
                answer = False, error
            connection.send(answer)
    except (EOFError, OSError, KeyboardInterrupt):
        os._exit(0)  # nobody waits for an answer


def one_thread() -> None:
    """Lets this process compute on one thread: the processors are shared by processes."""
    import pyarrow as pa
    import torch

    torch.set_num_threads(1)
    pa.set_cpu_count(1)
