"""A comparison of predictors, repeated with other folds while the choice is not clear and time is left.

The weighted average of all methods is a further method. It costs little, because all have predicted.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from halfseen._arrays import Floats, Integers
from halfseen._random import seed_from
from halfseen.auto.mixing_weights import weigh_classes, weigh_numbers
from halfseen.evaluation.candidates import CodedTable
from halfseen.evaluation.prediction import (
    PredictionRecord,
    Repetition,
    Target,
    run_folds,
    score_predictions,
    true_class_probabilities,
)
from halfseen.evaluation.prediction_result import AVERAGE, PredictionComparison
from halfseen.training.progress import decide_by_clock


@dataclass(frozen=True)
class OutOfFold:
    """What decides about weights: predictions of each row by methods that were not fitted to it.

    Shapes
    ------
    deviations : (M, N), errors of predicted numbers, or probabilities of the true classes
    fold : (N), the number of the fold in which a row is a test row
    """

    members: tuple[str, ...]
    deviations: Floats
    fold: Integers
    target: Target

    @classmethod
    def of(cls, done: Repetition, members: Sequence[str], target: Target) -> "OutOfFold":
        """Returns the predictions of methods that finished all folds, where no more values are missing."""
        parts, folds = [], []
        for fold in done.folds:
            truth = target.values[fold.test]
            predicted = [done.predictions[name, fold.number][0] for name in members]
            parts.append(np.stack([_deviations(one, target, truth) for one in predicted]))
            folds.append(np.full(len(fold.test), fold.number))
        return cls(tuple(members), np.concatenate(parts, axis=1), np.concatenate(folds), target)

    def weights(self, *, without: int | None = None) -> Floats:
        """Returns the weights (M) by the test rows of all folds, or of all but one."""
        deviations = self.deviations if without is None else self.deviations[:, self.fold != without]
        return _weigh(deviations, self.target)


def average_folds(done: Repetition, members: Sequence[str], target: Target) -> tuple[PredictionRecord, ...]:
    """Returns the records of the average; its weights in a fold come from the other folds.

    Parameters
    ----------
    done : Repetition
        The runs of the methods.
    members : sequence of str
        The methods to average, all of which finished all folds.
    target : Target
        The target.
    """
    found = OutOfFold.of(done, members, target)
    records = {(record.method, record.fold): record for record in done.records}
    averaged = []
    for fold in done.folds:
        weights = found.weights(without=fold.number)
        kept = {name: weight for name, weight in zip(members, weights, strict=True) if weight > 0}
        predictions = {name: done.predictions[name, fold.number] for name in kept}
        truth = target.values[fold.test]
        used = [records[name, fold.number] for name in kept]
        scores = [
            score_predictions(
                average_predictions({name: one[rate] for name, one in predictions.items()}, kept),
                target, truth,
            )
            for rate in range(len(fold.shown))
        ]  # fmt: skip
        averaged.append(
            PredictionRecord(
                AVERAGE, fold.number, "ok",
                fit_seconds=sum(one.fit_seconds for one in used),
                predict_seconds=sum(one.predict_seconds for one in used),
                memory=max(one.memory for one in used),
                scores=tuple(scores),
            )
        )  # fmt: skip
    return tuple(averaged)


def find_common_weights(repetitions: Sequence[OutOfFold]) -> dict[str, float]:
    """Returns the weights of the methods that all repetitions have, by all of them; without those of zero."""
    common = [name for name in repetitions[-1].members if all(name in one.members for one in repetitions)]
    deviations = [one.deviations[[one.members.index(name) for name in common]] for one in repetitions]
    weights = _weigh(np.concatenate(deviations, axis=1), repetitions[0].target)
    return {name: float(weight) for name, weight in zip(common, weights, strict=True) if weight > 0}


def average_predictions(predictions: Mapping[str, Any], weights: Mapping[str, float]) -> Floats:
    """Returns the weighted average of predictions, for the methods that have a weight."""
    parts = [weight * np.asarray(predictions[name]) for name, weight in weights.items()]
    total: Floats = np.sum(parts, axis=0)
    return total


def choose_method(comparison: PredictionComparison) -> str | None:
    """Returns the method to fit, None if none finished.

    It is the average unless another method is clearly better: the best of many similar scores is often best
    by chance. An average of one method is that method.
    """
    places = comparison.places()
    if not places:
        return None
    preferred = any(place.method == AVERAGE and (place.best or place.tied) for place in places)
    if not preferred:
        return places[0].method
    return AVERAGE if len(comparison.weights) > 1 else next(iter(comparison.weights))


def _deviations(predicted: Floats, target: Target, truth: npt.NDArray[Any]) -> Floats:
    if target.task == "regression":
        errors: Floats = predicted - truth
        return errors
    return true_class_probabilities(predicted, target, truth)


def _weigh(deviations: Floats, target: Target) -> Floats:
    with threadpool_limits(1):  # sums of other threads would change the last digits
        return weigh_numbers(deviations) if target.task == "regression" else weigh_classes(deviations)


MAX_REPEATS = 5
MARGIN = 1.1  # a repetition may take longer than the one before
STAGE_ROWS = 100  # test rows after which methods without a weight in the average are left out; a guess


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
    staged: bool = False,
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
    staged : bool
        Whether to leave out methods from the fold on by which they have no weight in the average of all, and
        are not the best: they cost time and would not be used.
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
            decide_by_clock()
            break
        run = partial(
            run_folds, table, target, n_splits=n_splits, rates=rates, random_state=_seed_of(seed, repeat),
            first=repeat * n_splits, callback=callback,
        )  # fmt: skip
        n_first = math.ceil(STAGE_ROWS * n_splits / len(table.codes))
        if staged and not repeat and n_first < n_splits:
            done = _run_in_stages(run, running, averaged, target, n_first, left)
        else:
            done = run(running, budget=left)
        stopped = {record.method for record in done.records if record.status == "out of budget"}
        if stopped:
            decide_by_clock()
        if repeat and stopped:
            break
        comparison = _extended(comparison, done, target, averaged, kept)
        last = {record.method for record in done.records if record.fold == done.folds[-1].number}
        again = (_contenders(comparison) & last) - stopped
        running = {name: methods[name] for name in running if name in again}
        if len(running) < 2:
            break
        expected = sum(_seconds(record) for record in done.records if record.method in running)
    return comparison


def _run_in_stages(
    run: Callable[..., Repetition],
    methods: Mapping[str, Any],
    averaged: Sequence[str],
    target: Target,
    n_first: int,
    budget: float,
) -> Repetition:
    """Runs all methods in the first folds, and in the others those that the average of all may use."""
    started = time.perf_counter()
    first = run(methods, budget=budget, part=slice(n_first))
    left_out = _without_weight(first, averaged, target)
    kept = {name: method for name, method in methods.items() if name not in left_out}
    left = budget - (time.perf_counter() - started)
    rest = run(kept, budget=left, part=slice(n_first, None))
    return Repetition(
        first.folds + rest.folds, first.records + rest.records, first.predictions | rest.predictions
    )


def _without_weight(done: Repetition, averaged: Sequence[str], target: Target) -> set[str]:
    """Returns the methods that have no weight in the average of all, and are not the best."""
    numbers = [fold.number for fold in done.folds]
    members = [name for name in averaged if all((name, number) in done.predictions for number in numbers)]
    if len(members) < 2:
        return set()
    found = OutOfFold.of(done, members, target)
    numeric = target.task == "regression"
    losses = found.deviations**2 if numeric else -np.log(found.deviations)
    best = int(losses.mean(axis=1).argmin())
    weights = found.weights()
    return {name for m, name in enumerate(members) if weights[m] == 0 and m != best}


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
