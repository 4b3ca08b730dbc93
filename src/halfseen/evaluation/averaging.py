"""The average of all methods of a comparison, as a further method: cheap, because all have predicted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halfseen.auto.mixing_weights import weigh_classes, weigh_numbers
from halfseen.data.target import Target
from halfseen.evaluation.prediction import (
    PredictionRecord,
    Repetition,
    score_predictions,
    true_class_probabilities,
)
from halfseen.evaluation.prediction_result import PredictionComparison

Floats = npt.NDArray[np.float64]

AVERAGE = "average"
"""The name of the average in a comparison."""


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
    fold: npt.NDArray[np.int64]
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
    return weigh_numbers(deviations) if target.task == "regression" else weigh_classes(deviations)
