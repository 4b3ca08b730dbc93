"""What the programs of all environments share: numpy only, so that every environment can import it.

A task is a file with the codes of incomplete training and new rows (NaN is missing); an answer is a file with
the completed rows and, if the tool makes them, draws. `run(METHODS)` is the main program of an environment.

Nine draws suffice for coverage, but the CRPS of a table then has a standard error of one to three per cent.
Tools that draw from a fitted model are therefore asked for more draws, after their time has been taken; the
CRPS is an unbiased estimate with any number of draws.
"""

import re
import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

N_DRAWS = (
    9  # the smallest and the largest of nine draws enclose a tenth value, the truth, with probability 8 / 10
)
MANY_DRAWS = 45  # a multiple of N_DRAWS, so that they show how much the CRPS of fewer draws varies


@dataclass
class Task:
    """Incomplete rows; `n_levels` is 0 for a column of numbers."""

    train: np.ndarray
    test: np.ndarray
    n_levels: np.ndarray
    kinds: list
    seed: int

    @property
    def levelled(self):
        return np.flatnonzero(self.n_levels)


@dataclass
class Answer:
    """Completed rows; None for what a tool does not offer.

    `draw` returns that many draws of rows, for tools that can draw from a fitted model as often as wanted.
    """

    train: np.ndarray
    test: np.ndarray | None = None
    train_draws: np.ndarray | None = None
    test_draws: np.ndarray | None = None
    draw: Callable[[np.ndarray, int], np.ndarray] | None = None


def read_task(path):
    with np.load(path, allow_pickle=False) as file:
        kinds = [str(kind) for kind in file["kinds"]]
        return Task(file["train"], file["test"], file["n_levels"], kinds, int(file["seed"]))


class Indicators:
    """Standardised numbers and an indicator for each level, for tools that know numbers only."""

    def __init__(self, task, drop_first):
        self.task, self.drop = task, int(drop_first)
        numbers = np.where(task.n_levels > 0, np.nan, 1) * task.train
        with np.errstate(invalid="ignore"):
            self.loc = np.where(task.n_levels > 0, 0, np.nan_to_num(_mean(numbers)))
            scale = np.sqrt(_mean((numbers - self.loc) ** 2))
        self.scale = np.where(np.nan_to_num(scale) > 0, np.nan_to_num(scale), 1.0)
        self.counts = [
            np.array([np.sum(task.train[:, j] == level) for level in range(n)]) / max(len(task.train), 1)
            for j, n in enumerate(task.n_levels)
        ]

    def encode(self, codes):
        parts = []
        for j, n in enumerate(self.task.n_levels):
            column = codes[:, j]
            if n == 0:
                parts.append(((column - self.loc[j]) / self.scale[j])[:, None])
                continue
            hot = (column[:, None] == np.arange(n)).astype(float)
            hot[np.isnan(column)] = np.nan
            parts.append(hot[:, self.drop :])
        return np.concatenate(parts, axis=1)

    def decode(self, filled, codes):
        """Return codes; of a level the largest indicator, and of equal ones the more frequent level."""
        answer, place = codes.copy(), 0
        for j, n in enumerate(self.task.n_levels):
            width = 1 if n == 0 else n - self.drop
            part = filled[:, place : place + width]
            place += width
            if n == 0:
                value = part[:, 0] * self.scale[j] + self.loc[j]
            else:
                if self.drop:
                    part = np.concatenate([1 - part.sum(axis=1, keepdims=True), part], axis=1)
                value = np.argmax(part + 1e-4 * self.counts[j], axis=1).astype(float)
            answer[:, j] = np.where(np.isnan(codes[:, j]), value, codes[:, j])
        return answer


def _mean(values):
    seen = ~np.isnan(values)
    return np.where(seen, values, 0).sum(axis=0) / np.maximum(seen.sum(axis=0), 1)


def average(draws, n_levels):
    """Return one value for each cell: the mean of the draws, or the most frequent level."""
    answer = draws.mean(axis=0)
    for j in np.flatnonzero(n_levels):
        votes = np.stack([(draws[:, :, j] == level).sum(axis=0) for level in range(n_levels[j])])
        answer[:, j] = votes.argmax(axis=0)
    return answer


def processor_time():
    """Return the seconds of processor time so far; the load of the machine does not change them."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def run(methods):
    """Answer one task: ``program METHOD TASK ANSWER``."""
    method, source, target = sys.argv[1:4]
    task = read_task(source)
    started = processor_time()
    answer = methods[method](task)
    seconds = processor_time() - started
    status = Path("/proc/self/status").read_text()  # unlike getrusage, it does not count the parent's memory
    peak = int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024
    parts = {name: value for name, value in vars(answer).items() if value is not None and name != "draw"}
    parts |= {"seconds": seconds, "megabytes": peak}
    save(target, parts)
    if answer.draw is not None:
        many = {f"{name}_many": answer.draw(getattr(task, name), MANY_DRAWS) for name in ("train", "test")}
        save(target, parts | many)


def save(target, parts):
    """Write an answer at once, so that there is none, or a whole one, when the time is over."""
    unfinished = Path(f"{target}.part.npz")
    np.savez(unfinished, **parts)
    unfinished.replace(target)
