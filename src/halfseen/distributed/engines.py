"""Engines: what runs a function over units, on one machine or on a cluster.

An engine has one method, `run`. Ray and Dask start a worker again that was killed, and repeat its unit.
"""

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, Protocol

from halfseen._machine import count_processors
from halfseen.distributed.local import RETRIES, LocalEngine, WorkersLostError

ENGINES = ("local", "ray", "dask")


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
        if begun:
            ray.init(**self._place(n_workers), log_to_driver=False)
        try:
            shared = ray.put(job)
            task = ray.remote(num_cpus=1, max_retries=RETRIES)(function)
            running: dict[Any, Any] = {}
            waiting = list(reversed(units))
            width = n_workers or 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
            while waiting or running:
                while waiting and len(running) < width:
                    unit = waiting.pop()
                    running[task.remote(shared, unit)] = unit
                finished, _ = ray.wait(list(running), num_returns=1)
                for one in finished:
                    yield running.pop(one), self._result(ray, one)
        finally:
            if begun:
                ray.shutdown()

    def _place(self, n_workers: int | None) -> dict[str, Any]:
        """Returns where Ray runs: in a cluster, or in one that is started on this machine."""
        if self.address is not None:
            return {"address": self.address}
        return {"num_cpus": n_workers, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}

    def _result(self, ray: Any, reference: Any) -> Any:
        try:
            return ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            raise (error.cause if isinstance(error.cause, Exception) else error) from None
        except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
            raise WorkersLostError(f"a worker of Ray was lost again and again: {error}") from error


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
                n_workers=n_workers or count_processors(), threads_per_worker=1, host="127.0.0.1",
                dashboard_address=None, worker_dashboard_address=None,
            )  # fmt: skip
            where = cluster
        client = dask.Client(where, set_as_default=False)
        try:
            shared = client.submit(hold, job, pure=False)  # data that is scattered is lost with its worker
            futures = [client.submit(function, shared, unit, pure=False) for unit in units]
            unit_of = {future.key: unit for future, unit in zip(futures, units, strict=True)}
            finished = dask.as_completed(futures, loop=client.loop, with_results=True)
            del futures  # or results that are known already would be computed again if their worker is lost
            for future, result in finished:
                yield unit_of[future.key], result
        except dask.KilledWorker as error:
            raise WorkersLostError(f"a worker of Dask was lost again and again: {error}") from error
        finally:
            client.close()
            if cluster is not None:
                cluster.close()
