"""The service of examples/service.py under load: 200 single rows a second for a minute.

Half of the requests impute a row by `GaussianImputer`, half predict one by `BoostingRegressor`. Requests are
sent at fixed times, whether or not earlier ones were answered, by a few connections that stay open. Printed
are the latencies, the errors, the memory of the service at the beginning and at the end, and the processor
time to load models; ``--store`` writes them to results/ and into the guide.
"""

import argparse
import http.client
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
from harness import ROOT, clock, find_commit, print_results, store_with_table

import halfseen

N_CONNECTIONS = 4
PAGE = ROOT / "docs" / "guide" / "serving.md"
LIMITS = {
    "errors": 0,
    "latency_ms_p99": 100.0,
    "memory_growth": 0.05,
    "load_cpu_seconds": 2.0,
    "lateness": 1.02,  # the time for all requests over the time in which they were sent
}


def make_models(folder):
    """Fits and stores the models of the service, and the default imputer; returns rows to ask about."""
    penguins = halfseen.datasets.load_penguins("pyarrow")
    known = penguins.filter(penguins["body_mass_g"].is_valid())
    inputs = known.drop_columns(["body_mass_g"])
    halfseen.GaussianImputer(random_state=0).fit(penguins).save(folder / "imputer.half")
    mass = known["body_mass_g"].to_numpy()
    halfseen.BoostingRegressor(random_state=0).fit(inputs, mass).save(folder / "predictor.half")
    halfseen.AutoImputer(random_state=0).fit(penguins).save(folder / "auto.half")
    return {"/impute": penguins.to_pylist(), "/predict": inputs.to_pylist()}


def load_seconds(path):
    """Processor time to load a model, in a process that has imported what it needs."""
    halfseen.load(path)
    return clock(lambda: halfseen.load(path))["cpu_seconds"]


def start(folder):
    """Starts the service on a free port of this computer; returns its process and port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    models = [folder / "imputer.half", folder / "predictor.half"]
    command = [sys.executable, ROOT / "examples" / "service.py", *models, "--port", str(port)]
    process = subprocess.Popen(list(map(str, command)))
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return process, port
        except OSError:
            time.sleep(0.1)
    process.kill()
    raise RuntimeError("the service did not start within a minute")


class Client(threading.Thread):
    """Sends every N-th request at its time over one connection, and keeps latencies and errors."""

    def __init__(self, port, bodies, first, n_requests, rate, begin):
        super().__init__()
        self.port, self.bodies, self.begin = port, bodies, begin
        self.numbers, self.rate = range(first, n_requests, N_CONNECTIONS), rate
        self.latencies, self.errors = [], 0

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        for number in self.numbers:
            due = self.begin + number / self.rate
            time.sleep(max(0.0, due - time.perf_counter()))
            path, body = self.bodies[number % len(self.bodies)]
            try:
                connection.request("POST", path, body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                answer.read()
                self.errors += answer.status != 200
            except (OSError, http.client.HTTPException):
                self.errors += 1
                connection.close()
            self.latencies.append(time.perf_counter() - due)  # from when it was due: queues count


def ask(port, bodies, rate, seconds):
    """Sends requests for some seconds; returns latencies in milliseconds, errors, and the time needed."""
    n_requests, begin = int(rate * seconds), time.perf_counter() + 0.1
    clients = [Client(port, bodies, first, n_requests, rate, begin) for first in range(N_CONNECTIONS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    latencies = np.array([latency for client in clients for latency in client.latencies])
    return 1e3 * latencies, sum(client.errors for client in clients), time.perf_counter() - begin


def measure(rate, seconds):
    """Returns the numbers of one run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = make_models(folder)
        bodies = [(path, json.dumps([row])) for pair in zip(*rows.values(), strict=False)
                  for path, row in zip(rows, pair, strict=True)]  # fmt: skip
        loads = {path.stem: load_seconds(path) for path in sorted(folder.glob("*.half"))}
        process, port = start(folder)
        try:
            ask(port, bodies, rate, 5)  # until caches are filled
            before = psutil.Process(process.pid).memory_info().rss
            latencies, errors, needed = ask(port, bodies, rate, seconds)
            after = psutil.Process(process.pid).memory_info().rss
        finally:
            process.terminate()
            process.wait()
    judged = {
        "errors": errors,
        "latency_ms_p99": float(np.quantile(latencies, 0.99)),
        "memory_growth": after / before - 1,
        "load_cpu_seconds": max(loads.values()),
        "lateness": needed / seconds,
    }
    return {
        "commit": find_commit(),
        "rate": rate,
        "seconds": seconds,
        "requests": len(latencies),
        "latency_ms": {f"p{q}": float(np.quantile(latencies, q / 100)) for q in (50, 90, 99, 100)},
        "memory_mb": {"before": before / 2**20, "after": after / 2**20},
        "load_cpu_seconds": loads,
        "judged": judged,
        "limits": LIMITS,
    }


def table(results):
    """Returns the lines of the table of the guide."""
    latency, memory = results["latency_ms"], results["memory_mb"]
    yield "| what | number |"
    yield "|---|---|"
    yield f"| requests a second, for {results['seconds']:g} s | {results['rate']:g} |"
    yield f"| requests that failed | {results['judged']['errors']} of {results['requests']:,} |"
    yield f"| latency, median and 99th percentile | {latency['p50']:.1f} and {latency['p99']:.1f} ms |"
    yield f"| memory before and after | {memory['before']:.0f} and {memory['after']:.0f} MB |"
    loads = (f"{name} {seconds:.2f}" for name, seconds in results["load_cpu_seconds"].items())
    yield f"| processor time of `halfseen.load`, in seconds | {', '.join(loads)} |"
    yield f"| commit | {results['commit']} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--store", action="store_true", help="write results/serving.json")
    given = parser.parse_args()
    results = measure(given.rate, given.seconds)
    print_results(results)
    if given.store:
        store_with_table("serving", results, PAGE, "\n".join(table(results)))


if __name__ == "__main__":
    main()
