"""What it costs to impute a table in blocks, as ratios of processor time within one run.

Makes Parquet files of mixed columns of which 12% of the cells are missing, fits a `GaussianImputer` to some
rows, and measures, each in a process of its own: reading and writing the files without doing anything,
imputing them in one process, by two processes, by Ray and by Dask with two workers, fitting an imputer to
them in one process, and describing them in one process. The tasks whose names contain "few" do the same with
a tenth of the rows. Processor time is that of all processes of a task, from their start; memory is the
largest resident size of any of them. Prints a line of JSON and, for each ratio above its limit, a line that
says so::

    python benchmarks/scale.py --rows 8000000
    python benchmarks/scale.py --rows 2000000 --tasks bare,one,two
    python benchmarks/scale.py --rows 20000000 --files /data/twenty

With ``--files`` the table is kept in a folder, and is not made again if it is there.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from harness import find_commit, print_results

RATE, IN_FILE = 0.12, 1_000_000
TASKS = ("few", "bare", "one", "two", "ray", "dask", "fit few", "fit", "describe few", "describe")
FITTED = 600_000  # cells to which margins are fitted
LIMITS = {
    "transform / bare": 3.5,
    "memory of a worker, GB": 1.2,
    "memory / that of a tenth of the rows": 1.1,
    "ray / two processes": 1.35,
    "dask / two processes": 1.6,
    "fit of a row / transform of a row": 0.6,
    "memory of describe, GB": 1.2,
    "memory of describe / that of a tenth of the rows": 1.1,
}
LOOK = 0.1  # seconds between looks at the processes of a task


def write_files(folder: str, n_rows: int, n_columns: int) -> None:
    """Writes the table and its first tenth, unless the folder has them, and the model of its first rows."""
    import halfseen

    first = Path(folder, "in", "f000.parquet")
    if not first.exists():
        write_tables(folder, n_rows, n_columns)
    some = pq.ParquetFile(first).read().slice(0, FITTED // n_columns)
    halfseen.GaussianImputer(random_state=0).fit(some).save(f"{folder}/model")


def write_tables(folder: str, n_rows: int, n_columns: int) -> None:
    """Writes the table in files of a million rows, and its first tenth."""
    for name in ("in", "few"):
        (Path(folder) / name).mkdir(parents=True)
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(4, n_columns - 1))
    for number, start in enumerate(range(0, n_rows, IN_FILE)):
        n = min(IN_FILE, n_rows - start)
        factors = rng.normal(size=(n, 4))
        values = factors @ weights + rng.normal(size=(n, n_columns - 1))
        columns = {f"x{j}": pa.array(values[:, j], mask=rng.random(n) < RATE) for j in range(n_columns - 1)}
        levels = np.array(["low", "middle", "high"])[np.digitize(factors[:, 0], [-0.5, 0.5])]
        columns["level"] = pa.array(levels, mask=rng.random(n) < RATE)
        table = pa.table(columns)
        name = f"f{number:03d}.parquet"
        pq.write_table(table, f"{folder}/in/{name}", compression="zstd")
        n_few = max(1, n_rows // 10) - start
        if n_few > 0:
            pq.write_table(table.slice(0, n_few), f"{folder}/few/{name}", compression="zstd")


def run_task(task: str, folder: str) -> None:
    """Does one of the tasks, in this process."""
    out = f"{folder}/out-{task}"
    if task == "bare":
        pa.set_cpu_count(1)
        os.mkdir(out)
        for path in sorted(Path(folder, "in").iterdir()):
            file = pq.ParquetFile(path)
            with pq.ParquetWriter(f"{out}/{path.name}", file.schema_arrow, compression="zstd") as writer:
                for batch in file.iter_batches(1 << 16, use_threads=False):
                    writer.write_batch(batch)
        return
    from halfseen import distributed

    source = f"{folder}/{'few' if task.endswith('few') else 'in'}"
    if task.startswith("fit"):
        import halfseen

        table = halfseen.scan(source)
        n_rows = FITTED // table.n_columns
        distributed.fit(halfseen.GaussianImputer(random_state=0), table, n_rows=n_rows)
        return
    if task.startswith("describe"):
        distributed.describe(source, n_workers=1)
        return
    engine = task if task in ("ray", "dask") else "local"
    n_workers = 1 if task in ("few", "one") else 2
    distributed.impute(source, f"{folder}/model", out, engine=engine, n_workers=n_workers)


def measure(task: str, folder: str) -> dict[str, float]:
    """Returns the processor seconds of all processes of a task, and the memory of the largest."""
    command = [sys.executable, __file__, "--task", task, "--folder", folder]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    seconds: dict[tuple[int, float], float] = {}
    largest = 0
    while process.poll() is None:
        try:
            main = psutil.Process(process.pid)
            family = [main, *main.children(recursive=True)]
        except psutil.NoSuchProcess:
            break
        for one in family:
            try:
                times, key = one.cpu_times(), (one.pid, one.create_time())
                seconds[key] = max(seconds.get(key, 0.0), times.user + times.system)
                largest = max(largest, one.memory_info().rss)
            except psutil.NoSuchProcess:
                continue
        time.sleep(LOOK)
    if process.wait():
        raise RuntimeError(f"the task {task} failed")
    return {
        "cpu_seconds": round(sum(seconds.values()), 2),
        "seconds": round(time.perf_counter() - began, 2),
        "largest_GB": round(largest / 1e9, 3),
        "processes": len(seconds),
    }


def extrapolate(found: dict[str, dict[str, float]], n_rows: int) -> dict[str, float]:
    """Returns processor seconds for a million rows without those of the start, and hours for a billion rows.

    The start is taken to cost the same for all and for a tenth of the rows, all rows to cost the same, and
    reading and writing to be as fast as here. Meaningful for millions of rows only.
    """
    if not {"few", "one"} <= found.keys():
        return {}
    further = n_rows - max(1, n_rows // 10)
    million = (found["one"]["cpu_seconds"] - found["few"]["cpu_seconds"]) / further * 1e6
    return {
        "cpu_seconds_for_a_million_rows": round(million, 3),
        "cpu_hours_for_a_billion_rows": round(million * 1000 / 3600, 2),
    }


def judge(found: dict[str, dict[str, float]]) -> dict[str, float]:
    """Returns the ratios of what was measured."""
    judged = {}
    if {"bare", "one"} <= found.keys():
        judged["transform / bare"] = found["one"]["cpu_seconds"] / found["bare"]["cpu_seconds"]
    if "one" in found:
        judged["memory of a worker, GB"] = found["one"]["largest_GB"]
    if {"few", "one"} <= found.keys():
        ratio = found["one"]["largest_GB"] / found["few"]["largest_GB"]
        judged["memory / that of a tenth of the rows"] = ratio
    if {"few", "one", "fit few", "fit"} <= found.keys():
        fit, transform = (
            found[task]["cpu_seconds"] - found[few]["cpu_seconds"]
            for task, few in (("fit", "fit few"), ("one", "few"))
        )
        judged["fit of a row / transform of a row"] = fit / transform
    if {"describe few", "describe"} <= found.keys():
        memory, few = found["describe"]["largest_GB"], found["describe few"]["largest_GB"]
        judged["memory of describe, GB"] = memory
        judged["memory of describe / that of a tenth of the rows"] = memory / few
    for engine in ("ray", "dask"):
        if {"two", engine} <= found.keys():
            ratio = found[engine]["cpu_seconds"] / found["two"]["cpu_seconds"]
            judged[f"{engine} / two processes"] = ratio
    return {name: round(value, 3) for name, value in judged.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=8_000_000)
    parser.add_argument("--columns", type=int, default=12)
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--files")
    parser.add_argument("--task")
    parser.add_argument("--folder")
    given = parser.parse_args()
    if given.task is not None:
        run_task(given.task, given.folder)
        return
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as own:
        folder = given.files or own
        writer = get_context("spawn").Process(target=write_files, args=(folder, given.rows, given.columns))
        writer.start()
        writer.join()
        found = {}
        for task in given.tasks.split(","):
            found[task] = measure(task, folder)
            shutil.rmtree(f"{folder}/out-{task}", ignore_errors=True)
    judged = judge(found)
    print_results(
        {
            "commit": find_commit(), "rows": given.rows, "columns": given.columns, "missing": RATE,
            "load_average": round(load, 1), "processors": os.cpu_count(), "tasks": found,
            "extrapolated": extrapolate(found, given.rows),
            "judged": judged, "limits": LIMITS,
        }
    )  # fmt: skip


if __name__ == "__main__":
    main()
