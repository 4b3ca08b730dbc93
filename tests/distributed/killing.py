"""Functions that workers of the tests of engines run; a module, so that other processes can import it."""

import ipaddress
import os
import signal
from pathlib import Path

import halfseen
from halfseen import distributed
from halfseen.distributed import run, units
from halfseen.distributed.work import run_unit
from halfseen.errors import TableError


def impute_by(engine, function, source, model, out):
    """Imputes by an engine, in units of one block that a function of this module answers."""
    before = units.ROWS_IN_UNIT, run.run_unit
    units.ROWS_IN_UNIT, run.run_unit = 1 << 16, globals()[function]
    try:
        distributed.impute(source, model, out, engine=engine, n_workers=2, draws=2)
    except TableError as error:
        return f"TableError: {error}"
    finally:
        units.ROWS_IN_UNIT, run.run_unit = before
    return "done"


def fit_by(engine, source, out, names):
    """Fits imputers that take their parameters from all rows by an engine, and saves them."""
    for name in names:
        imputer = imputers()[name]
        distributed.fit(imputer, source, n_rows=5_000, engine=engine, n_workers=2)
        imputer.save(f"{out}.{name}")
    return "done"


def imputers():
    """Returns imputers that take their parameters from all rows of a scan."""
    small = {"n_leaves": 2, "n_channels": 2, "max_epochs": 1, "random_state": 0}
    return {
        "gaussian": halfseen.GaussianImputer(random_state=0),
        "mean": halfseen.MeanImputer(random_state=0),
        "circuit": halfseen.CircuitImputer(algorithm="em", **small),
    }


def refuse(job, unit):
    """Answers all units except one."""
    if unit.name == "part-00001.parquet":
        raise TableError(f"{unit.name}: refused")
    return run_unit(job, unit)


def die_before(job, unit):
    """Answers a unit; the first worker that has the unit in the file ``victim`` dies before it answers."""
    _note(job, unit)
    _die_once(job, unit, "before")
    return run_unit(job, unit)


def die_after(job, unit):
    """Answers a unit; the first worker that has the unit in the file ``victim`` dies before it reports."""
    _note(job, unit)
    done = run_unit(job, unit)
    _die_once(job, unit, "after")
    return done


def note_listeners(job, unit):
    """Answers a unit, and notes the addresses on which anything in this network accepts connections."""
    with open(f"{job.folder.path}.listening", "a", encoding="utf-8") as file:
        for name in ("tcp", "tcp6"):
            for line in Path("/proc/self/net", name).read_text(encoding="utf-8").splitlines()[1:]:
                _, local, _, state, *_ = line.split()
                if state == "0A":
                    raw = bytes.fromhex(local.partition(":")[0])
                    words = [raw[start : start + 4][::-1] for start in range(0, len(raw), 4)]
                    print(ipaddress.ip_address(b"".join(words)), file=file)
    return run_unit(job, unit)


def always_die(job, unit):
    """Dies."""
    os.kill(os.getpid(), signal.SIGKILL)


def _note(job, unit):
    """Counts how often a unit was begun."""
    with open(f"{job.folder.path}.begun", "a", encoding="utf-8") as file:
        file.write(f"{unit.name}\n")


def _die_once(job, unit, when):
    mark = Path(f"{job.folder.path}.{when}")
    if unit.name == "part-00001.parquet" and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
