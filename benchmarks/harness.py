"""What benchmarks share: clocks, the commit, limits, and where results are stored."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT))  # for `papers`, which is not installed


def find_commit() -> str:
    """The commit of the working tree, abbreviated."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout.strip()


def clock(task: Callable[[], object]) -> dict[str, float]:
    """Seconds of a task by the clock and of processor time."""
    wall, cpu = time.perf_counter(), time.process_time()
    task()
    return {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}


def cpu_milliseconds(task: Callable[[], object], repetitions: int) -> float:
    """Median processor time of a task, after one that is not counted."""
    task()
    return 1e3 * median(clock(task)["cpu_seconds"] for _ in range(repetitions))


def print_results(results: Mapping[str, Any]) -> None:
    """Prints results, and a line for each number of ``judged`` that is above its limit in ``limits``."""
    print(json.dumps(results, indent=2))
    for name, found in results.get("judged", {}).items():
        if found > results["limits"][name]:
            print(f"{name}: {found:.3g} is above {results['limits'][name]:g}")


def stored_runs(name: str, *, again: bool = False) -> list[dict[str, Any]]:
    """The runs in ``results/<name>.json``, which an interrupted benchmark continues; none if done again."""
    path = ROOT / "results" / f"{name}.json"
    if again or not path.exists():
        return []
    runs: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["runs"]
    return runs


def store(name: str, results: Mapping[str, Any]) -> None:
    """Writes results to ``results/<name>.json``."""
    folder = ROOT / "results"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def store_with_table(name: str, results: Mapping[str, Any], page: Path, table: str) -> None:
    """Writes results, and their table between the markers of this name on a page."""
    store(name, results)
    begin, end = f"<!-- results/{name}.json -->", f"<!-- end of results/{name}.json -->"
    before, rest = page.read_text(encoding="utf-8").split(begin)
    page.write_text(f"{before}{begin}\n{table}\n{end}{rest.split(end)[1]}", encoding="utf-8")
