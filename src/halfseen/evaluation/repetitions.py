"""A comparison of predictors, repeated with other folds while the choice is not clear and time is left."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from halfseen._random import seed_from
from halfseen.data.target import Target
from halfseen.evaluation.averaging import AVERAGE, OutOfFold, average_folds, find_common_weights
from halfseen.evaluation.coded import CodedTable
from halfseen.evaluation.prediction import PredictionRecord, Repetition, run_folds
from halfseen.evaluation.prediction_result import PredictionComparison

MAX_REPEATS = 5
MARGIN = 1.1  # a repetition may take longer than the one before


def compare_predictors(
    table: CodedTable,
    target: Target,
    methods: Mapping[str, Any],
    *,
    n_splits: int = 5,
    rates: Sequence[float] = (0.0,),
    budget: float = math.inf,
    max_repeats: int = MAX_REPEATS,
    averaged: Sequence[str] = (),
    random_state: Any = 0,
    callback: Callable[[PredictionRecord], None] | None = None,
) -> PredictionComparison:
    """Cross-validates predictors, again with other folds while methods are tied and the budget allows.

    A method that is clearly worse than the best one, and has no weight in the average, is not run again. The
    scores of a given number of repetitions depend on the seed alone; a repetition that the budget stops does
    not count.

    Parameters
    ----------
    table, target, methods, n_splits, rates, callback
        As in `run_folds`.
    budget : float
        Seconds for everything.
    max_repeats : int
        The largest number of repetitions.
    averaged : sequence of str
        The methods whose weighted average is a further method; none if there are fewer than two that finish
        all folds.
    random_state : int, numpy generator or None
        Seeds folds, methods and what is removed.
    """
    seed, deadline = seed_from(random_state), time.perf_counter() + budget
    names = (*methods, AVERAGE) if averaged else tuple(methods)
    comparison = PredictionComparison(target.task, names, (), tuple(rates), n_splits, 0)
    kept: list[OutOfFold] = []
    running = dict(methods)
    expected = 0.0
    for repeat in range(max_repeats):
        left = deadline - time.perf_counter()
        if repeat and left < MARGIN * expected:
            break
        done = run_folds(
            table, target, running, n_splits=n_splits, rates=rates, budget=left,
            random_state=_seed_of(seed, repeat), first=repeat * n_splits, callback=callback,
        )  # fmt: skip
        stopped = {record.method for record in done.records if record.status == "out of budget"}
        if repeat and stopped:
            break
        comparison = _extended(comparison, done, target, averaged, kept)
        again = _contenders(comparison) - stopped
        running = {name: methods[name] for name in running if name in again}
        if len(running) < 2:
            break
        expected = sum(_seconds(record) for record in done.records if record.method in running)
    return comparison


def _extended(
    comparison: PredictionComparison,
    done: Repetition,
    target: Target,
    averaged: Sequence[str],
    kept: list[OutOfFold],
) -> PredictionComparison:
    """Returns a comparison with a further repetition, whose out-of-fold predictions are added to `kept`."""
    numbers = [fold.number for fold in done.folds]
    members = [name for name in averaged if all((name, number) in done.predictions for number in numbers)]
    records, weights = done.records, comparison.weights
    if len(members) > 1:
        kept.append(OutOfFold.of(done, members, target))
        records += average_folds(done, members, target)
        weights = find_common_weights(kept)
    return PredictionComparison(
        comparison.task, comparison.methods, comparison.records + records, comparison.rates,
        comparison.n_splits, comparison.n_repeats + 1, weights,
    )  # fmt: skip


def _contenders(comparison: PredictionComparison) -> set[str]:
    """Returns the methods that are worth another repetition; nothing more than one if the choice is clear."""
    places = comparison.places()
    tied = {place.method for place in places if place.best or place.tied}
    return tied if len(tied) < 2 else tied | comparison.weights.keys()


def _seconds(record: PredictionRecord) -> float:
    """Returns the time of a run, with a prediction at each rate."""
    return float(np.nansum([record.fit_seconds, max(1, len(record.scores)) * record.predict_seconds]))


def _seed_of(seed: int, repeat: int) -> int:
    """Returns the seed of a repetition; the first one has the seed itself."""
    return seed if repeat == 0 else seed_from(np.random.default_rng([seed, repeat]))
