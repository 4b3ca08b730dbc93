"""The result of a comparison of predictors: means, intervals, the best method, and sentences about them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student_t

from halfseen._arrays import Floats
from halfseen.evaluation.comparison import SCORES, Direction, Estimate, estimate_known
from halfseen.evaluation.prediction import PredictionRecord, Task
from halfseen.evaluation.trial import count_errors
from halfseen.words import minus, names_words

AVERAGE = "average"
"""The name of the average in a comparison."""


PREDICTION_SCORES: dict[str, tuple[str, Direction]] = {
    "r2": ("R\N{SUPERSCRIPT TWO}", "high"),
    **{name: SCORES[name] for name in ("rmse", "mae", "log_loss", "accuracy")},
    "auc": ("AUC", "high"),
}
"""Name and direction of each score, as of scores of imputers."""

MAIN: dict[Task, str] = {"regression": "r2", "classification": "log_loss"}
"""The score that ranks methods."""


def corrected_mean(values: npt.ArrayLike, test_ratio: float, level: float = 0.95) -> Estimate:
    r"""Returns a mean over folds with an interval that allows for training rows that folds share.

    The folds may be those of several repetitions.

    .. math:: \bar d \pm t_{n - 1} \sqrt{\left(\frac1n + \frac{n_\text{test}}{n_\text{train}}\right) s^2}

    NaN values are left out. With one value there is no interval.

    References
    ----------
    Nadeau & Bengio (2003), Inference for the generalization error, section 6; Bouckaert & Frank (2004),
    Evaluating the replicability of significance tests for comparing learning algorithms, for repetitions.

    Examples
    --------
    >>> e = corrected_mean([1.0, 2.0, 3.0], test_ratio=0.5)
    >>> e.mean, round(e.low, 3), round(e.high, 3)
    (2.0, -1.928, 5.928)
    """

    def interval(x: Floats) -> tuple[float, float]:
        error = math.sqrt((1 / len(x) + test_ratio) * x.var(ddof=1))
        half = float(student_t.ppf((1 + level) / 2, len(x) - 1)) * error
        return float(x.mean()) - half, float(x.mean()) + half

    return estimate_known(values, interval)


@dataclass(frozen=True)
class Place:
    """The result of a method."""

    method: str  # its name
    estimate: Estimate  # its main score, with a 95% interval
    # How much worse it is than the best, over the folds that both finished, with a 95% interval; in the
    # units of the main score, positive if it is worse.
    gap: Estimate
    # Whether it is the best; whether the interval of the gap includes zero.
    best: bool
    tied: bool


@dataclass(frozen=True)
class PredictionComparison:
    """All runs of a comparison of predictors, and what follows from them."""

    task: Task  # what is predicted
    methods: tuple[str, ...]  # in the order in which they were given
    records: tuple[PredictionRecord, ...]  # one per method and fold, including failures
    rates: tuple[float, ...]  # the shares of known values that were removed from test rows; the first is 0
    n_splits: int  # the number of folds of each repetition
    n_repeats: int = 1  # each with other folds; those of repetition r have the numbers from r * n_splits on
    weights: dict[str, float] = field(default_factory=dict)  # in their average; empty without one

    @property
    def n_folds(self) -> int:
        """The number of folds of all repetitions."""
        return self.n_splits * self.n_repeats

    @property
    def main(self) -> str:
        """The score that ranks methods."""
        return MAIN[self.task]

    @property
    def scores(self) -> tuple[str, ...]:
        """The scores that there are."""
        found = {score for record in self.records for one in record.scores for score in one}
        return tuple(score for score in PREDICTION_SCORES if score in found)

    def values(self, score: str, rate: int = 0) -> dict[str, Floats]:
        """Returns a score by method and fold, at a rate by its position; NaN where a run did not finish."""
        found = {method: np.full(self.n_folds, math.nan) for method in self.methods}
        for record in self.records:
            if record.status == "ok":
                found[record.method][record.fold] = record.scores[rate].get(score, math.nan)
        return found

    def losses(self, rate: int = 0) -> dict[str, Floats]:
        """Returns the main score by method and fold, with the sign for which smaller is better."""
        sign = -1.0 if PREDICTION_SCORES[self.main][1] == "high" else 1.0
        return {method: sign * values for method, values in self.values(self.main, rate).items()}

    def estimate(self, method: str, score: str, rate: int = 0) -> Estimate:
        """Returns the mean of a score over the folds, with a 95% interval."""
        return corrected_mean(self.values(score, rate)[method], self._ratio)

    def difference(self, first: str, second: str, rate: int = 0) -> Estimate:
        """Returns how much worse the first is in the main score, over common folds; positive is worse."""
        losses = self.losses(rate)
        return corrected_mean(losses[first] - losses[second], self._ratio)

    def places(self, rate: int = 0, among: Sequence[str] | None = None) -> list[Place]:
        """Returns the result of each method with a finished fold, the best first.

        Methods are ranked by their mean difference, over common folds, from the best one of those that
        finished most folds. So a method that ran out of time is compared where it ran; it is the best only if
        it is better by more than chance.
        """
        losses = {name: one for name, one in self.losses(rate).items() if among is None or name in among}
        n_done = {name: int((~np.isnan(one)).sum()) for name, one in losses.items()}
        most = max(n_done.values(), default=0)
        if most == 0:
            return []
        needed = min(2, most)
        whole = [name for name in losses if n_done[name] == most]
        reference = min(whole, key=lambda name: np.nanmean(losses[name]))
        gaps = {
            name: corrected_mean(one - losses[reference], self._ratio)
            for name, one in losses.items()
            if n_done[name] >= needed
        }
        clear = [name for name in gaps if name in whole or gaps[name].high < 0]
        best = min(clear, key=lambda name: gaps[name].mean)
        found = []
        for name in gaps:
            gap = corrected_mean(losses[name] - losses[best], self._ratio)
            tied = name != best and not gap.low > 0
            found.append(Place(name, self.estimate(name, self.main, rate), gap, name == best, tied))
        return sorted(found, key=lambda place: (not place.best, place.gap.mean))

    def after_choice(self) -> Estimate:
        """Returns the main score to expect of the chosen method, without the optimism of choosing.

        In each fold the score is that of the method which is best in the other folds of the repetition.
        """
        losses, places = self.losses(), self.places()
        folds = np.flatnonzero(~np.isnan(losses[places[0].method])) if places else np.zeros(0, dtype=int)
        whole = [name for name, one in losses.items() if not np.isnan(one[folds]).any()]
        values, picked = self.values(self.main), []
        for repeat in range(self.n_repeats):
            own = folds[folds // self.n_splits == repeat]
            if len(own) < 3:
                continue
            table = np.stack([losses[name][own] for name in whole])  # (methods, folds)
            chosen = (table.sum(axis=1, keepdims=True) - table).argmin(axis=0)
            picked += [values[whole[m]][k] for k, m in zip(own, chosen, strict=True)]
        return corrected_mean(picked, self._ratio)

    def count(self, method: str, status: str | None = None) -> int:
        """Returns the number of folds in which a method has a status, or was to be run at all."""
        return sum(record.method == method and status in (None, record.status) for record in self.records)

    def cost(self, method: str) -> dict[str, float]:
        """Returns the mean seconds to fit and to predict a fold, and the largest growth of memory."""
        done = [record for record in self.records if record.method == method and record.status == "ok"]
        if not done:
            return dict.fromkeys(("fit_seconds", "predict_seconds", "memory"), math.nan)
        return {
            "fit_seconds": float(np.mean([record.fit_seconds for record in done])),
            "predict_seconds": float(np.mean([record.predict_seconds for record in done])),
            "memory": float(np.max([record.memory for record in done])),
        }

    def errors(self, method: str) -> dict[str, int]:
        """Returns the errors of a method, with their counts."""
        return count_errors(self.records, method)

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as values that JSON can hold, except NaN."""
        return asdict(self)

    @property
    def _ratio(self) -> float:
        """The rows of a test fold for each training row."""
        return 1 / (self.n_splits - 1)


_SHOWN = 4


class Treatment(StrEnum):
    """What a method does with missing values."""

    NONE = "predicts from the incomplete rows"
    CONSTANT = "fills in constants and adds missingness indicators"
    IMPUTED = "imputes, then predicts"
    AVERAGE = "averages the predictions of other methods"
    BASELINE = "ignores the inputs"


def say_best(comparison: PredictionComparison) -> str:
    """Returns which method is best, and which are statistically indistinguishable from it."""
    places = comparison.places()
    if not places:
        return "No method finished a fold."
    best = places[0]
    words = f"{best.method} predicts best: {score_words(comparison, best.estimate)}"
    tied = [place.method for place in places if place.tied]
    if not tied and len(places) > 1:
        others = "All other methods are" if len(places) > 2 else f"{places[1].method} is"
        return f"{words}. {others} clearly worse."
    if tied:
        verb = "is" if len(tied) == 1 else "are"
        others = names_words(tied, _SHOWN)
        return f"{words}. Statistically tied with it {verb} {others}: their differences may be due to chance."
    return f"{words}."


def say_average(comparison: PredictionComparison) -> str | None:
    """Returns what the average consists of and whether it is worthwhile, None if it was not computed."""
    places = comparison.places()
    average = next((place for place in places if place.method == AVERAGE), None)
    single = next((place for place in places if place.method != AVERAGE), None)
    if average is None or single is None:
        return None
    if len(comparison.weights) == 1:
        return (
            f"The average gives all weight to {next(iter(comparison.weights))}: no other method improves it."
        )
    words = f"The average consists of {weights_words(comparison.weights)}. "
    if average.tied:
        return (
            f"{words}It is statistically tied with {single.method} alone, and is preferred because it "
            "depends less on chance."
        )
    if not average.best:
        return f"{words}It predicts clearly worse than {single.method} alone, so there is no need for it."
    if not single.tied:
        return f"{words}It predicts clearly better than {single.method}, the best single method."
    return (
        f"{words}{single.method} alone is statistically tied with it: use that one if a single method is "
        "easier to apply or to explain."
    )


def weights_words(weights: Mapping[str, float]) -> str:
    """Returns weights as percentages, the largest first.

    Examples
    --------
    >>> weights_words({"boosting": 0.25, "neumiss": 0.75})
    '75% neumiss and 25% boosting'
    """
    ordered = sorted(weights.items(), key=lambda item: -item[1])
    *first, last = [f"{weight:.0%} {name}" for name, weight in ordered]
    return f"{', '.join(first)} and {last}" if first else last


def say_repeats(comparison: PredictionComparison) -> str:
    """Returns how often the folds were drawn."""
    times = f"{comparison.n_repeats} repetition{'s' * (comparison.n_repeats > 1)}"
    return f"Scores are means over {times} of {comparison.n_splits}-fold cross-validation."


def say_whether_to_impute(
    comparison: PredictionComparison, treatments: Mapping[str, Treatment], n_missing: int
) -> str:
    """Returns whether imputing first helps the prediction, does harm, or makes no clear difference."""
    without = [name for name, one in treatments.items() if one in (Treatment.NONE, Treatment.CONSTANT)]
    imputing = [name for name, one in treatments.items() if one == Treatment.IMPUTED]
    best = [next(iter(comparison.places(among=names)), None) for names in (without, imputing)]
    if best[0] is None or best[1] is None:
        return "Whether imputing helps cannot be determined: too few methods finished."
    plain, imputed = best[0].method, best[1].method
    gap = comparison.difference(plain, imputed)
    label = PREDICTION_SCORES[comparison.main][0]
    numbers = f"{label} differs by {abs(gap.mean):.3f}"
    if not math.isnan(gap.low):
        numbers += minus(f" (95% interval of the difference {gap.low:+.3f} to {gap.high:+.3f})")
    if n_missing == 0:
        start = "Nothing is missing in this table, so there is nothing to impute"
        return f"{start}; the methods differ only in how they predict."
    if gap.low > 0:
        return f"Impute first: {imputed} predicts better than {plain}, the best without; {numbers}."
    if gap.high < 0:
        return f"Do not impute for this prediction: {plain} predicts better than {imputed}; {numbers}."
    return (
        f"There is no need to impute for this prediction: {plain} and the best method that imputes, "
        f"{imputed}, do not differ significantly; {numbers}.{_describe_later(comparison, without, imputing)}"
    )


def _describe_later(comparison: PredictionComparison, without: Sequence[str], imputing: Sequence[str]) -> str:
    """Returns a sentence if imputing is clearly better once more values are missing, else nothing."""
    last = len(comparison.rates) - 1
    best = [next(iter(comparison.places(last, names)), None) for names in (without, imputing)]
    if last == 0 or best[0] is None or best[1] is None:
        return ""
    if not comparison.difference(best[0].method, best[1].method, last).low > 0:
        return ""
    return (
        f" But if new rows lack {comparison.rates[last]:.0%} more of their values, impute: then "
        f"{best[1].method} predicts clearly better than {best[0].method}."
    )


def say_missingness(comparison: PredictionComparison) -> str | None:
    """Returns what happens if more values are missing at prediction time, None if that was not tried."""
    if len(comparison.rates) < 2:
        return None
    last = len(comparison.rates) - 1
    first, late = comparison.places(0), comparison.places(last)
    if not first or not late:
        return None
    rate, before = f"{comparison.rates[last]:.0%}", first[0].method
    now = next(place for place in late if place.method == before) if before != late[0].method else late[0]
    lost = score_words(comparison, now.estimate)
    start = f"With {rate} of the known values of new rows removed, {before} has {lost}"
    if late[0].method == before:
        return f"{start} and stays the best."
    if now.tied:
        return f"{start}; {late[0].method} is then ahead, but statistically tied with it."
    better = score_words(comparison, late[0].estimate)
    return f"{start}; {late[0].method} then predicts clearly better, with {better}."


def say_expected(comparison: PredictionComparison) -> str | None:
    """Returns the score to expect of the choice, None if there are too few folds."""
    expected = comparison.after_choice()
    if expected.n == 0:
        return None
    return (
        f"On new rows, expect {score_words(comparison, expected)}: each fold is scored with the method "
        "that is best in the other folds."
    )


def score_words(comparison: PredictionComparison, estimate: Estimate) -> str:
    """Returns the main score with its interval."""
    label = PREDICTION_SCORES[comparison.main][0]
    if math.isnan(estimate.low):
        return f"{label} {estimate.mean:.3f}"
    return f"{label} {estimate.mean:.3f} (95% interval {estimate.low:.3f} to {estimate.high:.3f})"
