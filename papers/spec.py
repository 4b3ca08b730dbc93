"""The description of an experiment: question, settings, models, budget, claims and published numbers."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from papers.claims import Cell, Claim, Published, Setting, show_setting

SCALES = ("smoke", "small", "paper")
"""The scales of an experiment: a quick check, a run on a laptop, the whole protocol of the paper."""


@dataclass(frozen=True)
class Budget:
    """What a scale runs: every model on every setting with seeds 0, 1, ..., n_seeds - 1.

    With `models` it is only those. Two budgets add up to one that runs both.

    Examples
    --------
    >>> both = Budget.grid(n_seeds=5, d=[10, 20]) + Budget.grid(n_seeds=2, models=["fast"], d=[50])
    >>> [(len(part.settings), part.n_seeds, part.models) for part in both.parts]
    [(2, 5, None), (1, 2, ('fast',))]
    """

    settings: tuple[Setting, ...]
    n_seeds: int
    models: tuple[str, ...] | None = None
    more: tuple["Budget", ...] = ()

    def __add__(self, other: "Budget") -> "Budget":
        return replace(self, more=(*self.more, *other.parts))

    @property
    def parts(self) -> tuple["Budget", ...]:
        """The budgets that this one is the sum of."""
        return (replace(self, more=()), *self.more)

    @classmethod
    def grid(cls, n_seeds: int, *, models: Sequence[str] | None = None, **choices: Sequence[Any]) -> "Budget":
        """Returns a budget of all combinations of the choices.

        Examples
        --------
        >>> len(Budget.grid(n_seeds=2, mechanism=["mcar", "mar"], d=[10, 20]).settings)
        4
        """
        combinations = product(*choices.values())
        settings = tuple(dict(zip(choices, values, strict=True)) for values in combinations)
        return cls(settings, n_seeds, None if models is None else tuple(models))


@dataclass(frozen=True)
class Experiment:
    """A question, how to answer it, and what is expected.

    Attributes
    ----------
    name : str
        As ``python -m papers`` takes it, and in the name of the result file.
    question : str
        The question of the experiment, in one sentence.
    paper : str
        The paper whose protocol and numbers these are.
    make_data : callable
        From a setting and a seed to whatever `score` needs; called once for all models.
    models : mapping of str to callable
        Makes a fresh model for each run.
    score : callable
        From a fresh model and the data to a mapping of metrics, and of arrays to draw pictures from.
    metrics : mapping of str to {"higher", "lower"}
        What is scored, and which way is better.
    budgets : mapping of str to Budget
        One for each of `SCALES`.
    claims : sequence of claims
        Declared before anything runs.
    numbers : callable
        From a setting, a model and a metric to the paper's number, or None.
    data_sets : callable
        From a setting to the names of the public data sets that it cannot do without.
    version : int
        Raised when a change makes stored results incomparable; they are then run again.
    """

    name: str
    question: str
    paper: str
    make_data: Callable[[Setting, int], Any]
    models: Mapping[str, Callable[[], Any]]
    score: Callable[[Any, Any], Mapping[str, Any]]
    metrics: Mapping[str, str]
    budgets: Mapping[str, Budget]
    claims: Sequence[Claim]
    numbers: Callable[[Setting, str, str], Published | None] = field(default=lambda *_: None)
    data_sets: Callable[[Setting], Sequence[str]] = field(default=lambda setting: ())
    version: int = 1

    def budget(self, scale: str) -> Budget:
        """Returns what a scale runs."""
        if scale not in self.budgets:
            raise ValueError(f"scale must be one of {', '.join(self.budgets)}, got {scale!r}.")
        return self.budgets[scale]

    def cells(self, scale: str) -> list[Cell]:
        """Returns the runs of a scale, not yet run; those on the same data follow each other."""
        return [
            Cell(setting, model, seed)
            for part in self.budget(scale).parts
            for setting, seed in product(part.settings, range(part.n_seeds))
            for model in (self.models if part.models is None else part.models)
        ]

    def run_cells(self, cells: Sequence[Cell]) -> Iterator[Cell]:
        """Yields each run with its scores, or with the error that ended it."""
        made: tuple[str, Any] = ("", None)
        for cell in cells:
            key = f"{show_setting(cell.setting)} #{cell.seed}"
            began = time.perf_counter()
            try:
                if made[0] != key:
                    made = (key, self.make_data(cell.setting, cell.seed))
                    began = time.perf_counter()
                found = dict(self.score(self.models[cell.model](), made[1]))
                error = None
            except Exception as problem:  # a failed run is a result, whatever failed
                found, error = {}, f"{type(problem).__name__}: {problem}"
            arrays = {name: value for name, value in found.items() if isinstance(value, np.ndarray)}
            scores = {name: value for name, value in found.items() if name not in arrays}
            seconds = time.perf_counter() - began
            yield replace(cell, scores=scores, error=error, seconds=seconds, arrays=arrays)
