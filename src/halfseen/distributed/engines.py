"""Engines: what runs a function over units, on one machine or on a cluster.

An engine has one method, `run`. Ray and Dask start a worker again that was killed, and repeat its unit.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from halfseen._machine import count_processors
from halfseen.distributed.local import RETRIES, LocalEngine, WorkersLostError
from halfseen.distributed.units import Unit
from halfseen.errors import HalfseenWarning, warn_user
from halfseen.words import plural

ENGINES = ("local", "ray", "dask")
LOOPBACK = "127.0.0.1"


class Engine(Protocol):
    """Runs a function over units, with retries if workers are killed."""

    name: str

    def run(
        self, function: Callable[[Any, Any], Any], job: Any, units: Sequence[Any], n_workers: int | None
    ) -> Iterator[tuple[Any, Any]]:
        """Yields each unit with ``function(job, unit)``, in any order.

        An exception of the function is raised again; it is not retried, because it would occur again.
        """
        ...


Progress = Callable[[int, int], None]

MOST_NOTES = 10  # warnings of models that are issued; the others are counted


@dataclass(frozen=True)
class PassesByEngine:
    """Goes over the rows of a table by an engine; see `halfseen.data.incomplete.Passes`."""

    engine: Engine  # what runs the units
    n_workers: int | None = None  # the number of workers
    progress: Progress | None = None  # called with the number of rows that are done and of all rows

    def __call__(
        self, function: Callable[[Any, int, int], Any], job: Any, runs: Sequence[tuple[int, int]]
    ) -> Iterator[Any]:
        """Yields ``function(job, start, stop)`` of each run, in their order."""
        units = [Unit(f"rows from {start:,}", start, stop) for start, stop in runs]
        if not units:
            return
        early: dict[int, Any] = {}
        notes: dict[str, int] = {}
        n_given = n_done = 0
        with closing(self.engine.run(run_pass, (function, job), units, self.n_workers)) as answers:  # type: ignore[type-var]
            for unit, (result, found) in answers:
                early[unit.start] = result
                notes |= dict.fromkeys(found, 1)
                n_done += unit.stop - unit.start
                if self.progress is not None:
                    self.progress(n_done, runs[-1][1])
                while n_given < len(units) and units[n_given].start in early:
                    yield early.pop(units[n_given].start)
                    n_given += 1
        warn_once(notes)


def run_pass(job: tuple[Callable[[Any, int, int], Any], Any], unit: Unit) -> tuple[Any, tuple[str, ...]]:
    """Returns the result of a function of a run of rows, and the warnings that it issued."""
    function, of_function = job
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", HalfseenWarning)
        result = function(of_function, unit.start, unit.stop)
    texts = dict.fromkeys(str(one.message) for one in caught if isinstance(one.message, HalfseenWarning))
    return result, tuple(texts)


def warn_once(notes: dict[str, int]) -> None:
    """Issues each warning of the workers once, and the number of those beyond ``MOST_NOTES``."""
    for note in list(notes)[:MOST_NOTES]:
        warn_user(note)
    if len(notes) > MOST_NOTES:
        warn_user(f"{plural(len(notes) - MOST_NOTES, 'further warning')} of the model in other rows.")


def find_engine(engine: str | Engine, address: str | None = None) -> Engine:
    """Returns an engine by its name.

    Parameters
    ----------
    engine : {"local", "ray", "dask"} or Engine
        The name, or the engine itself.
    address : str, optional
        The address of a cluster; without one, Ray and Dask start workers on this machine, and end them.
    """
    if not isinstance(engine, str):
        return engine
    if engine == "ray":
        return RayEngine(address)
    if engine == "dask":
        return DaskEngine(address)
    if engine != "local":
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}.")
    if address is not None:
        raise ValueError("The engine 'local' has no address: use engine='ray' or engine='dask'.")
    return LocalEngine()


def import_extra(package: str, extra: str) -> Any:
    """Imports a package of an extra; an error says how to install it."""
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        message = f"this engine needs the package {package}: pip install 'halfseen[{extra}]'"
        raise ModuleNotFoundError(message, name=package) from None


def keep_running(
    units: Sequence[Any],
    width: int,
    start: Callable[[Any, list[Any]], Any],
    wait: Callable[[list[Any]], Iterable[Any]],
) -> Iterator[tuple[Any, Any]]:
    """Yields each unit with its task when it is finished; at most `width` tasks are unfinished at a time.

    Parameters
    ----------
    units : sequence
        The units, which are started in this order.
    width : int
        The number of tasks.
    start : callable
        Starts the task of a unit, given the unfinished ones.
    wait : callable
        Waits for at least one of the tasks, and returns those that are finished.
    """
    running: dict[Any, Any] = {}
    waiting = list(reversed(units))
    while waiting or running:
        while waiting and len(running) < width:
            unit = waiting.pop()
            running[start(unit, list(running))] = unit
        for task in list(wait(list(running))):
            yield running.pop(task), task


class RayEngine:
    """Runs units as tasks of Ray, one processor each.

    Parameters
    ----------
    address : str, optional
        The address of a cluster, ``"auto"`` for that of this machine. By default the cluster to which this
        process is connected already, else one that is started on this machine and ended.
    """

    name = "ray"

    def __init__(self, address: str | None = None) -> None:
        self.address = address

    def run(
        self, function: Callable[[Any, Any], Any], job: Any, units: Sequence[Any], n_workers: int | None
    ) -> Iterator[tuple[Any, Any]]:
        """Yields each unit with its result, in the order in which they are finished; see `Engine`."""
        ray = import_extra("ray", "ray")
        begun = not ray.is_initialized()
        if begun and self.address is not None:
            ray.init(address=self.address, log_to_driver=False)
        elif begun:
            start_on_loopback(ray, n_workers)
        try:
            shared = ray.put(job)
            task = ray.remote(num_cpus=1, max_retries=RETRIES)(function)
            width = n_workers or 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
            started = keep_running(
                units,
                width,
                lambda unit, _: task.remote(shared, unit),
                lambda running: ray.wait(running, num_returns=1)[0],
            )
            for unit, reference in started:
                yield unit, self._result(ray, reference)
        finally:
            if begun:
                ray.shutdown()

    def _result(self, ray: Any, reference: Any) -> Any:
        try:
            return ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            raise (error.cause if isinstance(error.cause, Exception) else error) from None
        except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
            raise WorkersLostError(f"a worker of Ray was lost again and again: {error}") from error


def start_on_loopback(ray: Any, n_workers: int | None) -> None:
    """Starts Ray on this machine so that it listens on the loopback address only.

    On Linux, Ray replaces a loopback address by one that other machines can reach, and listens on all. On
    Windows and macOS it does not, as long as clusters are not enabled; here it starts in the same way. The
    public way is the variable ``RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0``, but it is read once, when Ray is
    imported, and would hold as well for clusters that this process connects to later. So the constant that is
    read from it is set for a moment, and it is checked on what Ray listens.
    """
    constants: Any = import_module("ray._private.ray_constants")
    usual = getattr(constants, "ENABLE_RAY_CLUSTER", True)
    constants.ENABLE_RAY_CLUSTER = False
    try:
        ray.init(
            address="local", num_cpus=n_workers, include_dashboard=False, log_to_driver=False,
            _node_ip_address=LOOPBACK,
        )  # fmt: skip
    finally:
        constants.ENABLE_RAY_CLUSTER = usual
    found = [node["NodeManagerAddress"] for node in ray.nodes()]
    if found != [LOOPBACK]:
        ray.shutdown()
        raise RuntimeError(
            f"Ray {ray.__version__} listens on {', '.join(found)} and not on {LOOPBACK} only: set the "
            "variable RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER to 0, start a cluster and pass its address, or use "
            "engine='local'"
        )


def hold(job: Any) -> Any:
    """Returns what all units share: a task of Dask, which can be repeated."""
    return job


class DaskEngine:
    """Runs units as futures of Dask.

    Parameters
    ----------
    address : str, optional
        The address of a scheduler; by default workers are started on this machine and ended.
    """

    name = "dask"

    def __init__(self, address: str | None = None) -> None:
        self.address = address

    def run(
        self, function: Callable[[Any, Any], Any], job: Any, units: Sequence[Any], n_workers: int | None
    ) -> Iterator[tuple[Any, Any]]:
        """Yields each unit with its result, in the order in which they are finished; see `Engine`."""
        dask = import_extra("distributed", "dask")
        cluster: Any = None
        where: Any = self.address
        if where is None:
            cluster = dask.LocalCluster(
                n_workers=n_workers or count_processors(), threads_per_worker=1, host=LOOPBACK,
                dashboard_address=None, worker_dashboard_address=None,
            )  # fmt: skip
            where = cluster
        client = dask.Client(where, set_as_default=False)
        try:
            shared = client.submit(hold, job, pure=False)  # data that is scattered is lost with its worker
            finished = dask.as_completed([], loop=client.loop)
            place_of: dict[Any, str] = {}

            def start(unit: Any, running: list[Any]) -> Any:
                # A worker keeps a result until the client has it. Each worker gets its next unit only then,
                # so that a worker that is killed never takes a finished unit with it.
                workers = client.scheduler_info(n_workers=-1)["workers"]
                load = Counter(place_of[future] for future in running)
                place = min(workers, key=lambda name: load[name] / workers[name]["nthreads"], default=None)
                future = client.submit(
                    function, shared, unit, pure=False, workers=place, allow_other_workers=place is not None
                )
                place_of[future] = place or ""
                finished.add(future)
                return future

            width = n_workers or max(1, sum(client.nthreads().values()))
            for unit, future in keep_running(units, width, start, lambda _: [next(finished)]):
                result = future.result()
                del place_of[future]
                future.release()
                yield unit, result
        except dask.KilledWorker as error:
            raise WorkersLostError(f"a worker of Dask was lost again and again: {error}") from error
        finally:
            client.close()
            if cluster is not None:
                cluster.close()
