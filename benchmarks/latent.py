"""What latent-variable models cost: a training step of MIWAE, one of DeMissVAE beside MVAE's, fit, answers.

Steps are those of the mixture-of-Gaussians study: batches of 64 rows of 5 features, both networks of 3
residual blocks of 200 units, 2 latents, 5 of them decoded for each row, one thread. Methods take turns of
some steps, and medians are taken, by the clock and of processor time, which a busy machine lengthens less. A
compiled step is timed after those that compile it. The fit is of MIWAE with its defaults to the table
california with 30% of its cells hidden at random, if the table is there. Answers are those of MIWAE, trained
for a while on 8,000 rows of 9 numbers and 2 columns with levels, of which 30% of the cells are hidden, with
two threads: with as many draws as each row needs, beside all draws and a proposal of its own for every row,
in turns; with them the error in standard deviations and how often intervals of 90% cover. Limits that are
not kept are named; they are for a machine that does nothing else. Writes results/latent.json. Run with `make
bench`; `--quick` takes fewer steps and rows, compiles nothing, fits no table, and stores nothing; `--answers`
measures answers only.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import pandas as pd
import torch
from harness import clock, find_commit, print_results, store

from halfseen._random import torch_generator
from halfseen.datasets.loaders import describe_dataset, is_present, load
from halfseen.latent.importance import ImportanceSampler
from halfseen.latent.presets import MIWAEImputer
from halfseen.training.step import Optimiser
from papers.missvae.methods import LatentMethod, build, rows_of
from papers.missvae.mixtures import DEMISSVAE, METHODS, MIWAE, MVAE, PLANS, Task, make_task

BATCH, N_PASSES = 64, 5
N_STEPS = 20  # of a method at a time: its weights are near the processor, as in training
N_WARM = 20  # steps before the clock starts: memory is found, or graphs are compiled
RATE = 0.3
TABLE = "california_housing"
N_ROWS, N_EPOCHS, COVERED_ROWS = 8000, 40, 2000
LIMITS = {
    "MIWAE step, milliseconds": 8.0,
    "DeMissVAE / MVAE": 1.8,
    "MIWAEImputer, seconds": 60.0,
    "transform, adaptive / fixed": 0.5,
}


@dataclass
class Runner:
    """A method at work on the rows of the study."""

    method: LatentMethod
    task: Task
    compiled: bool = False

    def __post_init__(self) -> None:
        generator = torch_generator(0)
        self.generator = generator
        model = build(self.method, self.task.train.n_features, PLANS["paper"], generator)
        self.objective = self.method.objective(model)
        self.rows = rows_of(self.method, self.task.train, model, generator)
        self.optimiser = Optimiser(model, self.objective, gradient_clip=10.0, compiled=self.compiled)
        self.seconds: list[tuple[float, float]] = []

    def steps(self, n_steps: int, n_warm: int) -> None:
        """Takes the next batches, and keeps how long all but the first took."""
        for number in range(n_steps + n_warm):
            start = (len(self.seconds) * BATCH) % (len(self.rows) - BATCH)
            began, worked = time.perf_counter(), time.process_time()
            batch = self.rows[start : start + BATCH]
            self.optimiser.step(batch, self.objective.draw_noise(batch, self.generator), 1e-3)
            if number >= n_warm:
                self.seconds.append((time.perf_counter() - began, time.process_time() - worked))

    def medians(self) -> dict[str, float]:
        """Milliseconds of a step, by the clock and of the processor."""
        clock, processor = zip(*self.seconds, strict=True)
        return {"milliseconds": 1e3 * median(clock), "cpu_milliseconds": 1e3 * median(processor)}


def time_steps(runners: Mapping[str, Runner], n_rounds: int) -> dict[str, dict[str, float]]:
    """Times some steps of each in turn, so that a busy moment of the machine hits all alike."""
    for turn in range(n_rounds):
        for runner in runners.values():
            runner.steps(N_STEPS, N_WARM if turn == 0 else 2)
    return {name: runner.medians() for name, runner in runners.items()}


def fit_seconds() -> dict[str, float] | None:
    """Seconds of a fit with defaults, or None without the table."""
    if not is_present(describe_dataset(TABLE)):
        return None
    frame = load(TABLE)
    hidden = np.random.default_rng(0).uniform(size=frame.shape) < RATE
    return clock(lambda: MIWAEImputer(random_state=0).fit(frame.mask(hidden)))


def mixed_table(n_rows: int) -> pd.DataFrame:
    """Makes a table whose 9 numbers bend with 3 factors, and whose 2 other columns have 4 and 2 levels."""
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(n_rows, 3))
    bent = np.tanh(factors @ rng.normal(size=(3, 9))) + 0.5 * factors @ rng.normal(size=(3, 9))
    table = pd.DataFrame(bent + 0.4 * rng.normal(size=bent.shape), columns=[f"x{j}" for j in range(9)])
    scores = factors @ rng.normal(size=(3, 4)) + rng.gumbel(size=(n_rows, 4))
    table["site"] = np.array(["north", "east", "south", "west"])[scores.argmax(axis=1)]
    table["smoker"] = np.where(factors[:, 0] + rng.logistic(size=n_rows) > 0, "yes", "no")
    return table


def fixed_effort(imputer: MIWAEImputer) -> MIWAEImputer:
    """Returns the imputer with all draws and a proposal of its own for every row."""
    other = copy(imputer)
    assert isinstance(imputer.sampler_, ImportanceSampler)
    other.sampler_ = replace(imputer.sampler_, effort="fixed")
    return other


def time_answers(n_rows: int, n_epochs: int, n_rounds: int) -> dict[str, dict[str, float]]:
    """Times `transform` in turns, and compares what it and `interval` return with what was hidden."""
    torch.set_num_threads(2)
    table = mixed_table(n_rows)
    hidden = np.random.default_rng(1).uniform(size=table.shape) < RATE
    holes = table.mask(hidden)
    imputer = MIWAEImputer(max_epochs=n_epochs, random_state=0).fit(holes)
    imputers = {"adaptive": imputer, "fixed": fixed_effort(imputer)}
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in imputers}
    results: dict[str, dict[str, float]] = {}
    for name, one in list(imputers.items()) * n_rounds:
        began, worked = time.perf_counter(), time.process_time()
        filled = one.transform(holes)
        seconds[name].append((time.perf_counter() - began, time.process_time() - worked))
        clock, processor = (min(times) for times in zip(*seconds[name], strict=True))
        results[name] = {"seconds": clock, "cpu_seconds": processor} | errors(table, holes, filled)
    for name, one in imputers.items():
        ends = one.interval(holes[:COVERED_ROWS], level=0.9)
        results[name]["coverage"] = coverage(table[:COVERED_ROWS], holes[:COVERED_ROWS], *ends)
    torch.set_num_threads(1)
    return results


def errors(table: pd.DataFrame, holes: pd.DataFrame, filled: pd.DataFrame) -> dict[str, float]:
    """Returns the error of hidden numbers in standard deviations, and how many hidden levels were found."""
    numbers = table.select_dtypes("number")
    others = table.columns.difference(numbers.columns)
    distances = ((filled[numbers.columns] - numbers) / numbers.std()).to_numpy()
    hits = (filled == table)[others].to_numpy()
    return {
        "rmse": float(np.sqrt(np.mean(distances[holes[numbers.columns].isna()] ** 2))),
        "accuracy": float(hits[holes[others].isna()].mean()),
    }


def coverage(table: pd.DataFrame, holes: pd.DataFrame, low: pd.DataFrame, high: pd.DataFrame) -> float:
    """Returns the share of hidden numbers within their intervals."""
    names = table.select_dtypes("number").columns
    within = (low[names] <= table[names]) & (table[names] <= high[names])
    return float(within.to_numpy()[holes[names].isna()].mean())


def main() -> None:
    """Times everything, prints it, and stores it unless it was quick."""
    quick = "--quick" in sys.argv
    torch.set_num_threads(1)
    answers = time_answers(500, 5, 1) if quick else time_answers(N_ROWS, N_EPOCHS, 2)
    ratio = {
        "transform, adaptive / fixed": answers["adaptive"]["cpu_seconds"] / answers["fixed"]["cpu_seconds"]
    }
    if "--answers" in sys.argv:
        print(json.dumps(answers | ratio, indent=2))
        return
    task = make_task({"plan": "paper"}, 0)
    methods = {name: replace(METHODS[name], n_passes=N_PASSES) for name in (MIWAE, MVAE, DEMISSVAE)}
    runners = {name: Runner(method, task) for name, method in methods.items()}
    if not quick:
        runners[f"{MIWAE}, compiled"] = Runner(methods[MIWAE], task, compiled=True)
    steps = time_steps(runners, 3 if quick else 30)
    fit = None if quick else fit_seconds()
    judged = {
        "MIWAE step, milliseconds": min(
            found["milliseconds"] for name, found in steps.items() if MIWAE in name
        ),
        "DeMissVAE / MVAE": steps[DEMISSVAE]["cpu_milliseconds"] / steps[MVAE]["cpu_milliseconds"],
    } | ({} if fit is None else {"MIWAEImputer, seconds": fit["seconds"]})
    judged |= ratio
    results = {
        "commit": find_commit(),
        "processors": os.cpu_count(),
        "a training step": steps,
        "fit of MIWAEImputer to california": fit,
        "transform of MIWAEImputer": answers,
        "judged": judged,
        "limits": LIMITS,
    }
    print_results(results)
    if not quick:
        store("latent", results)


if __name__ == "__main__":
    main()
