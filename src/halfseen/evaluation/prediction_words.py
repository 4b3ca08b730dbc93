"""A comparison of predictors in sentences: which is best, whether that is clear, and whether to impute."""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum

from halfseen.evaluation.averaging import AVERAGE
from halfseen.evaluation.comparison import Estimate
from halfseen.evaluation.prediction_result import SCORES, PredictionComparison

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
        return f"{words}. All other methods are clearly worse."
    if tied:
        shown = ", ".join(tied[:_SHOWN]) + (f" and {len(tied) - _SHOWN} more" if len(tied) > _SHOWN else "")
        verb = "is" if len(tied) == 1 else "are"
        return f"{words}. Statistically tied with it {verb} {shown}: their differences may be due to chance."
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
    words = f"The average consists of {share_words(comparison.weights)}. "
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


def share_words(weights: Mapping[str, float]) -> str:
    """Returns weights as percentages, the largest first.

    Examples
    --------
    >>> share_words({"boosting": 0.25, "neumiss": 0.75})
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
    label = SCORES[comparison.main][0]
    numbers = f"{label} differs by {abs(gap.mean):.3g}"
    numbers += (
        "" if math.isnan(gap.low) else f" (95% interval of the difference {gap.low:+.3g} to {gap.high:+.3g})"
    )
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
    label = SCORES[comparison.main][0]
    if math.isnan(estimate.low):
        return f"{label} {estimate.mean:.3f}"
    return f"{label} {estimate.mean:.3f} (95% interval {estimate.low:.3f} to {estimate.high:.3f})"
