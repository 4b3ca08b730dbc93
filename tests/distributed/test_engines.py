"""Every engine writes the same bits, also if workers are killed, and the driver may be killed and resumed."""

import ipaddress
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import halfseen
from halfseen import distributed
from halfseen.data import incomplete as blocks
from halfseen.distributed import run, units
from halfseen.distributed.engines import DaskEngine
from halfseen.distributed.local import LocalEngine, WorkersLostError
from halfseen.distributed.units import Unit
from halfseen.errors import TableError

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
N, BLOCK = 300_000, 1 << 16  # five blocks


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    common = rng.normal(size=N)
    return pa.table(
        {
            "a": pa.array(common, mask=rng.random(N) < 0.2),
            "b": pa.array(common + rng.normal(size=N), mask=rng.random(N) < 0.2),
            "k": pa.array(np.where(common > rng.normal(size=N), "high", "low"), mask=rng.random(N) < 0.1),
        }
    )


@pytest.fixture(scope="module")
def expected(table, tmp_path_factory):
    """The folder of the input, the model, and what one process writes."""
    folder = tmp_path_factory.mktemp("expected")
    (folder / "in").mkdir()
    for number, (low, high) in enumerate([(0, 100_000), (100_000, 100_001), (100_001, N)]):
        pq.write_table(
            table.slice(low, high - low), folder / "in" / f"f{number}.parquet", row_group_size=30_000
        )
    imputer = halfseen.GaussianImputer(random_state=3).fit(table.slice(0, 5_000))
    imputer.save(folder / "model")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(units, "ROWS_IN_UNIT", BLOCK)
        distributed.impute(folder / "in", folder / "model", folder / "out", n_workers=1, draws=2)
    return folder


@pytest.fixture(autouse=True)
def small_units(monkeypatch):
    """Units of one block."""
    monkeypatch.setattr(units, "ROWS_IN_UNIT", BLOCK)


@pytest.fixture
def importable(monkeypatch):
    """Lets other processes import the functions that die."""
    monkeypatch.syspath_prepend(str(HERE))
    paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    import killing

    return killing


def content(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file()
    }


def impute(expected, out, **options):
    return distributed.impute(expected / "in", expected / "model", out, draws=2, **options)


def test_processes_write_the_same_bits_as_one(expected, tmp_path, table):
    written = impute(expected, tmp_path / "out", n_workers=3)
    assert content(tmp_path / "out") == content(expected / "out")
    imputer = halfseen.load(expected / "model")
    drawn = imputer.sample(table, 2, row_ids=np.arange(N))
    for draw in (0, 1):
        files = written.files[5 * draw : 5 * draw + 5]
        assert pa.concat_tables([pq.ParquetFile(path).read() for path in files]).equals(drawn[draw])


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_is_killed_repeats_one_unit(expected, tmp_path, monkeypatch, importable, when):
    monkeypatch.setattr(run, "run_unit", getattr(importable, f"die_{when}"))
    out = tmp_path / "out"
    impute(expected, out, n_workers=2)
    assert content(out) == content(expected / "out")
    begun = Counter(Path(f"{out}.begun").read_text().split())
    assert begun == Counter({f"part-{number:05d}.parquet": 1 + (number == 1) for number in range(5)})


def test_a_unit_that_kills_its_worker_again_and_again_is_given_up(expected, tmp_path, importable):
    units_ = [Unit(f"unit {number}", 0, 1) for number in range(2)]
    with pytest.raises(
        WorkersLostError, match="the worker was killed 4 times; if memory is short, use fewer"
    ):
        list(LocalEngine().run(importable.always_die, None, units_, 2))


def test_an_error_in_a_process_is_raised_here_and_ends_the_others(expected, tmp_path):
    scan = halfseen.scan(expected / "in")
    out = tmp_path / "out"
    broken = tmp_path / "in"
    broken.mkdir()
    for path in scan.files:
        (broken / Path(path).name).write_bytes(Path(path).read_bytes())
    scan = halfseen.scan(broken)
    (broken / "f2.parquet").write_bytes(b"PAR1")
    with pytest.raises(TableError, match=r"f2\.parquet: not a readable parquet file"):
        distributed.impute(scan, expected / "model", out, n_workers=2, draws=2)
    assert not [path for path in out.rglob("*") if path.name.endswith(".part")]


DRIVER = """
import os, signal, sys
from halfseen import distributed
from halfseen.data import incomplete as blocks
from halfseen.distributed import units
from halfseen.distributed.manifest import Manifest

def write_and_die(manifest, *arguments, usual=Manifest.write):
    usual(manifest, *arguments)
    if len(manifest.finished) == 2:
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    units.ROWS_IN_UNIT = 1 << 16
    Manifest.write = write_and_die
    source, model, out, n_workers = sys.argv[1:]
    distributed.impute(source, model, out, draws=2, n_workers=int(n_workers), resume=True)
"""


@pytest.mark.parametrize("n_workers", [1, 2])
def test_a_driver_that_is_killed_is_resumed_and_finished_files_are_not_touched(expected, tmp_path, n_workers):
    out = tmp_path / "out"
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    source, model = str(expected / "in"), str(expected / "model")
    driver = subprocess.run([sys.executable, str(script), source, model, str(out), str(n_workers)])
    assert driver.returncode == -signal.SIGKILL
    assert b'"complete": false' in _manifest(out)
    time.sleep(3 if n_workers > 1 else 0)  # workers end after the unit that they have
    finished = json.loads(_manifest(out))["finished"]
    before = {name: (out / name).stat().st_mtime_ns for files in finished.values() for name in files}
    assert before
    written = impute(expected, out, n_workers=1, resume=True)
    assert written.n_resumed == len(finished)
    assert {name: (out / name).stat().st_mtime_ns for name in before} == before
    assert content(out) == content(expected / "out")


def _manifest(out):
    return (out / "_manifest.json").read_bytes() if (out / "_manifest.json").exists() else b""


# ------------------------------------------------------------------------------------------ clusters


class IsolatedRay:
    """Runs `cluster.py`, which imputes by Ray, in a network of its own, in which nobody else listens."""

    def impute(self, function, source, model, out):
        pytest.importorskip("ray", reason="Ray is not installed: pip install 'halfseen[ray]'")
        isolated = next(
            (one for one in (["unshare", "-n"], ["unshare", "-rn"]) if _succeeds([*one, "true"])), None
        )
        if isolated is None:
            pytest.skip("no network namespace can be made (unshare -n)")
        command = [
            *isolated,
            sys.executable,
            str(HERE / "cluster.py"),
            function,
            *map(str, (source, model, out)),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout.strip().splitlines()[-1]


def _succeeds(command):
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.fixture
def dask_engine():
    """Dask on this machine only; the engine starts and ends its own workers."""
    pytest.importorskip("distributed", reason="Dask is not installed: pip install 'halfseen[dask]'")
    return DaskEngine()


@pytest.fixture(params=["dask", "ray"])
def cluster(request, monkeypatch, importable):
    """A function that imputes by a cluster and returns the message of the error, or ``done``."""
    if request.param == "ray":
        return IsolatedRay().impute
    pytest.importorskip("distributed", reason="Dask is not installed: pip install 'halfseen[dask]'")

    def by_dask(function, source, model, out):
        return importable.impute_by(DaskEngine(), function, source, model, out)

    return by_dask


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_writes_the_same_bits_as_one_process(expected, tmp_path, cluster):
    assert cluster("run_unit", expected / "in", expected / "model", tmp_path / "out") == "done"
    assert content(tmp_path / "out") == content(expected / "out")


@pytest.fixture(scope="module")
def fitted(expected):
    """What one process fits to all rows: the names and contents of the model files."""
    sys.path.insert(0, str(HERE))
    import killing

    sys.path.remove(str(HERE))
    names = list(killing.imputers())
    killing.fit_by("local", expected / "in" / "f0.parquet", expected / "fitted", names)
    used = [halfseen.load(f"{expected}/fitted.{name}").rows_used_["parameters"] for name in names]
    assert used == [100_000] * len(names)
    return {name: Path(f"{expected}/fitted.{name}").read_bytes() for name in names}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ["local", "dask", "ray"])
def test_every_engine_fits_the_same_bits_as_one_process(
    expected, fitted, tmp_path, monkeypatch, importable, engine
):
    monkeypatch.setattr(blocks, "BLOCKS_IN_RUN", 1)  # two runs, of which each worker has one
    source = expected / "in" / "f0.parquet"
    names = list(fitted) if engine == "local" else ["gaussian"]  # a cluster is started for each pass
    if engine == "ray":
        assert IsolatedRay().impute("fit", source, "gaussian", tmp_path / "fitted") == "done"
    else:
        if engine == "dask":
            pytest.importorskip("distributed", reason="Dask is not installed: pip install 'halfseen[dask]'")
        importable.fit_by(engine, source, tmp_path / "fitted", names)
    for name in names:
        assert Path(f"{tmp_path}/fitted.{name}").read_bytes() == fitted[name], name


def test_ray_that_is_started_here_listens_on_the_loopback_address_only(expected, tmp_path):
    if shutil.which("ip") is None:
        pytest.skip("the command ip, which gives a network a further address, is not installed")
    out = tmp_path / "out"
    assert IsolatedRay().impute("note_listeners", expected / "in", expected / "model", out) == "done"
    found = [ipaddress.ip_address(line) for line in Path(f"{out}.listening").read_text().split()]
    assert len(found) > 5
    for address in found:
        assert (getattr(address, "ipv4_mapped", None) or address).is_loopback, address


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_of_a_cluster_that_is_killed_repeats_its_unit(expected, tmp_path, cluster, when):
    out = tmp_path / "out"
    assert cluster(f"die_{when}", expected / "in", expected / "model", out) == "done"
    assert content(out) == content(expected / "out")
    begun = Counter(Path(f"{out}.begun").read_text().split())
    assert begun["part-00001.parquet"] == 2
    assert sum(begun.values()) == 6


@pytest.mark.filterwarnings("ignore")
def test_an_error_in_a_cluster_is_raised_here(expected, tmp_path, cluster):
    message = cluster("refuse", expected / "in", expected / "model", tmp_path / "out")
    assert message == "TableError: part-00001.parquet: refused"
    assert not [path for path in (tmp_path / "out").rglob("*") if path.name.endswith(".part")]
