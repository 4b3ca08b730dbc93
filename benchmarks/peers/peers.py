"""halfseen beside other tools on real tables: ``make bench-peers``.

Each tool has an environment and a process of its own and reads the same files. Ten tables, of which at most
some rows are used, lose 30% of their values completely at random, at random given other columns, or by their
own size; 70% of the rows are fitted. A tool that crashes or needs more than its processor time has failed.
Tools that draw from a fitted model then draw more often, so that their CRPS depends less on chance; this time
does not count, and without these draws the CRPS is that of the few.
At the end it prints, for each table, how far AutoImputer is behind the best of the others.
"""

import argparse
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import psutil
from exchange import MANY_DRAWS, N_DRAWS

from halfseen.datasets import load
from halfseen.evaluation.candidates import Answer, CodedTable, take_rows
from halfseen.evaluation.scores import Scale, crps_draws
from halfseen.evaluation.trial import CellScorer
from halfseen.missingness import MCAR, LogisticSelfMasking, MARLogistic

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(ROOT / "docs"))

from peers_table import behind_table  # noqa: E402, which is beside the pages that show the table

RATE, TEST, SEED = 0.3, 0.3, 0
LEVEL = (N_DRAWS - 1) / (N_DRAWS + 1)
TABLES = (
    "abalone", "adult", "airfoil", "auto_mpg", "bank_marketing", "concrete", "credit_approval", "diabetes",
    "energy_efficiency", "winequality_red",
)  # fmt: skip
MECHANISMS = {
    "MCAR": lambda: MCAR(rate=RATE),
    "MAR": lambda: MARLogistic(rate=RATE, predictor_share=0.3, random_state=SEED),
    "self-masking": lambda: LogisticSelfMasking(rate=RATE),
}
SCALES = {"smoke": (("airfoil",), 300, 30), "small": (TABLES, 600, 120), "large": (TABLES, 2000, 120)}
"""The tables, how many rows of them, and the seconds of processor time for one answer."""

MORE_TIME = 5  # times the processor time end a process that makes further draws, which are not timed
PATIENCE = 20  # times the processor time pass on the clock before a tool that waits for something is stopped
WAIT = 1.0  # second between looks at the processor time of a tool
SCORES = ("rmse", "crps", "coverage", "energy", "accuracy")
TORCH = "torch==2.13.0"
ENVIRONMENTS = {
    "scikit-learn": (["scikit-learn==1.9.1"], ["mean", "KNNImputer", "IterativeImputer"]),
    "miceforest": (["miceforest==6.0.5", "lightgbm<4.6", "pandas<3", "scikit-learn"], ["miceforest"]),
    "missforest": (["MissForest==4.2.3", "pandas<3", "lightgbm", "scikit-learn", "tqdm"], ["MissForest"]),
    "gcimpute": (["gcimpute==0.0.4", "numpy<2", "pandas<3"], ["gcimpute"]),
    "hyperimpute": (
        ["hyperimpute==0.1.17", "numpy<2", "pandas<3", "scikit-learn<1.6", TORCH],
        ["HyperImpute"],
    ),
}
OURS = ("GaussianImputer", "MixtureImputer", "CircuitImputer", "TreeImputer", "AutoImputer")


def build_environment(folder, name, packages):
    """Return the interpreter of a tool's environment, or the reason why there is none."""
    home = folder / name
    python = home / "bin" / "python"
    if not (home / ".installed").exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        done = subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", *packages],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return None, f"does not install: {done.stderr.strip().splitlines()[-1][:200]}"
        (home / ".installed").touch()
    return python, ""


def make_task(name, mechanism, max_rows, folder):
    """Write the task of a table and a mechanism; return what is needed to score answers."""
    frame = load(name)
    generator = np.random.default_rng(SEED)
    rows = np.sort(generator.permutation(len(frame))[:max_rows])
    table = CodedTable.read(take_rows(frame, rows))
    codes = table.codes
    test = np.zeros(len(codes), dtype=bool)
    test[generator.permutation(len(codes))[: round(TEST * len(codes))]] = True
    process = MECHANISMS[mechanism]().fit(codes[~test])
    hidden = np.zeros(codes.shape, dtype=bool)
    for part, chosen in enumerate((~test, test)):
        hidden[chosen] = ~process.sample(codes[chosen], random_state=SEED + 1 + part) & ~np.isnan(
            codes[chosen]
        )
    shown = np.where(hidden, np.nan, codes)
    n_levels = np.array([n or 0 for n in table.n_levels])
    path = folder / f"{name}-{mechanism}.npz"
    kinds = [column.kind if column.levels is not None else "continuous" for column in table.columns]
    np.savez(path, train=shown[~test], test=shown[test], n_levels=n_levels, kinds=np.array(kinds), seed=SEED)
    digest = hashlib.sha256(np.packbits(hidden).tobytes()).hexdigest()[:16]
    return path, table, hidden, test, digest


def score(table, hidden, test, path):
    """Return scores in and out of sample of an answer, and what it cost."""
    with np.load(path, allow_pickle=False) as file:
        answer = {name: file[name] for name in file.files}
    shown = np.where(hidden, np.nan, table.codes)
    scale = Scale.fit(shown[~test])
    found = {"seconds": float(answer["seconds"]), "megabytes": float(answer["megabytes"]), "cells": {}}
    for part, chosen in (("train", ~test), ("test", test)):
        if part not in answer:
            continue
        rows = np.flatnonzero(chosen)
        within = np.flatnonzero(hidden[rows].any(axis=1))
        draws = answer.get(f"{part}_draws")
        draws = None if draws is None else draws[:, within]
        ends = (None, None) if draws is None else (draws.min(axis=0), draws.max(axis=0))
        scorer = CellScorer(table, table.codes[rows[within]], hidden[rows[within]], scale, LEVEL, SEED)
        point = answer[part][within]
        if np.isnan(point[hidden[rows[within]]]).any():
            raise ValueError("left hidden values empty")
        scores = scorer.scores(Answer(point, draws, *ends))
        if draws is None:
            scores.pop("crps")
        numeric = hidden[rows][:, table.numeric].sum()
        found["cells"][part] = {"numbers": int(numeric), "levels": int(hidden[rows].sum() - numeric)}
        found[part] = {name: float(scores[name]) for name in SCORES if name in scores}
        many = answer.get(f"{part}_many")
        if many is not None and numeric:
            found[part] |= score_draws(scorer, many[:, within])
    return found


def score_draws(scorer, draws):
    """Return the CRPS of many draws, and by how much that of as few as tools must make varies around it."""
    cells = scorer.hidden & scorer.table.numeric
    truth, drawn = scorer.scale.forward(scorer.truth)[cells], scorer.scale.forward(draws)[:, cells]
    parts = [crps_draws(truth, part).mean() for part in np.split(drawn, len(drawn) // N_DRAWS)]
    return {"crps": float(crps_draws(truth, drawn).mean()), "crps_error": float(np.std(parts, ddof=1))}


def answer_task(python, program, method, task, target, seconds):
    """Run a tool on a task in a process of its own; return an error, or nothing."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [str(python), str(HERE / program), method, str(task), str(target)]
    with tempfile.TemporaryFile("w+") as errors:
        run = psutil.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=environment)
        started = time.monotonic()
        while True:
            try:
                code = run.wait(timeout=WAIT)
                break
            except psutil.TimeoutExpired:
                answered = Path(target).exists()  # then it makes further draws, which are not timed
                if processor_time(run) > (MORE_TIME if answered else 1) * seconds:
                    end(run)
                    return "" if answered else f"not finished after {seconds} s of processor time"
                if time.monotonic() - started > PATIENCE * seconds:
                    end(run)
                    return "" if answered else f"not finished after {PATIENCE * seconds} s"
        errors.seek(0)
        lines = errors.read().strip().splitlines() or [f"exit code {code}"]
    return f"crashed: {lines[-1][:200]}" if code else ""


def processor_time(run):
    """Return the seconds of processor time of a process and its children."""
    total = 0.0
    for process in (run, *run.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended, and counts for its parent
            used = process.cpu_times()
            total += used.user + used.system + used.children_user + used.children_system
    return total


def end(run):
    """End a process and its children."""
    for process in (*run.children(recursive=True), run):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    run.wait()


def entries(folder):
    """Yield each method with its tool, interpreter, program, and the reason why it cannot run."""
    for name in OURS:
        yield name, "halfseen", sys.executable, "run_halfseen.py", ""
    for tool, (packages, methods) in ENVIRONMENTS.items():
        python, reason = build_environment(folder, tool, packages)
        for method in methods:
            yield method, tool, python, f"run_{tool.replace('-', '_')}.py", reason


def run_all(scale, folder, output, only, mechanisms, again):
    tables, max_rows, timeout = SCALES[scale]
    results = json.loads(output.read_text()) if output.exists() else {"records": []}
    done = set() if again else {identify(record) for record in results["records"]}
    methods = [entry for entry in entries(folder) if not only or entry[0] in only]
    commit = current_commit()
    with tempfile.TemporaryDirectory() as scratch:
        for mechanism in mechanisms:
            for table_name in tables:
                todo = [entry for entry in methods if (table_name, mechanism, entry[0]) not in done]
                if not todo:
                    continue
                task, table, hidden, test, digest = make_task(table_name, mechanism, max_rows, Path(scratch))
                for method, tool, python, program, reason in todo:
                    target = Path(scratch) / "answer.npz"
                    target.unlink(missing_ok=True)
                    record = {"table": table_name, "mechanism": mechanism, "method": method, "tool": tool,
                              "mask": digest, "commit": commit}  # fmt: skip
                    record["error"] = reason or answer_task(python, program, method, task, target, timeout)
                    if not record["error"]:
                        try:
                            record |= score(table, hidden, test, target)
                        except (ValueError, KeyError) as error:
                            record["error"] = f"bad answer: {error}"
                    kept = [one for one in results["records"] if identify(one) != identify(record)]
                    results["records"] = [*kept, record]
                    rmse = record.get("test", {}).get("rmse")
                    shown = record["error"] or f"{record['seconds']:.1f} s, {rmse}"
                    print(table_name, mechanism, method, shown, flush=True)
                    write(results, scale, output, commit)
    return results


def identify(record):
    return record["table"], record["mechanism"], record["method"]


def current_commit():
    """Return the commit of this repository, with which each record is stored."""
    command = ["git", "rev-parse", "HEAD"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def write(results, scale, output, commit):
    results |= {
        "experiment": "peers",
        "scale": scale,
        "commit": commit,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": {"tables": list(SCALES[scale][0]), "max_rows": SCALES[scale][1],
                     "processor_seconds": SCALES[scale][2], "rate": RATE, "test_fraction": TEST,
                     "n_draws": N_DRAWS, "many_draws": MANY_DRAWS, "seed": SEED},
        "requirements": {tool: packages for tool, (packages, _) in ENVIRONMENTS.items()},
    }  # fmt: skip
    output.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", choices=SCALES, default="small")
    parser.add_argument("--environments", type=Path, default=ROOT / ".venv-peers")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--only", nargs="*", default=(), help="methods to run; by default all")
    parser.add_argument("--mechanisms", nargs="*", choices=MECHANISMS, default=tuple(MECHANISMS))
    parser.add_argument("--again", action="store_true", help="replace stored results of these methods")
    given = parser.parse_args()
    output = given.output or ROOT / "results" / f"peers-{given.scale}.json"
    only = set(given.only)
    results = run_all(given.scale, given.environments, output, only, given.mechanisms, given.again)
    print(behind_table(results))


if __name__ == "__main__":
    main()
