"""The result of a comparison of predictors: means, intervals, the best method, and whether it is clear."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student_t

from halfseen.data.target import Task
from halfseen.evaluation.comparison import Estimate
from halfseen.evaluation.prediction import PredictionRecord
from halfseen.evaluation.trial import count_errors

Floats = npt.NDArray[np.float64]

SCORES = {
    "r2": ("R\N{SUPERSCRIPT TWO}", "high"),
    "rmse": ("RMSE", "low"),
    "mae": ("MAE", "low"),
    "log_loss": ("log-loss", "low"),
    "accuracy": ("accuracy", "high"),
    "auc": ("AUC", "high"),
}
"""Name and direction of each score."""

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
    x = np.asarray(values, dtype=np.float64)
    x = x[~np.isnan(x)]
    n = len(x)
    mean = float(x.mean()) if n else math.nan
    if n < 2:
        return Estimate(mean, math.nan, math.nan, n)
    error = math.sqrt((1 / n + test_ratio) * x.var(ddof=1))
    half = float(student_t.ppf((1 + level) / 2, n - 1)) * error
    return Estimate(mean, mean - half, mean + half, n)


@dataclass(frozen=True)
class Place:
    """The result of a method.

    Attributes
    ----------
    method : str
        Its name.
    estimate : Estimate
        Its main score, with a 95% interval.
    gap : Estimate
        How much worse it is than the best, over the folds that both finished, with a 95% interval; positive
        is worse, in the units of the main score.
    best, tied : bool
        Whether it is the best; whether the interval of the gap includes zero.
    """

    method: str
    estimate: Estimate
    gap: Estimate
    best: bool
    tied: bool


@dataclass(frozen=True)
class PredictionComparison:
    """All runs of a comparison of predictors, and what follows from them.

    Attributes
    ----------
    task : {"classification", "regression"}
        What is predicted.
    methods : tuple of str
        In the order in which they were given.
    records : tuple of PredictionRecord
        One per method and fold, including failures.
    rates : tuple of float
        The shares of known values that were removed from test rows; the first is 0.
    n_splits : int
        The number of folds of each repetition.
    n_repeats : int
        The number of repetitions, each with other folds; those of repetition r have the numbers from
        r * n_splits on.
    weights : dict of str to float
        The weights of the methods in their average; empty if it was not computed.
    """

    task: Task
    methods: tuple[str, ...]
    records: tuple[PredictionRecord, ...]
    rates: tuple[float, ...]
    n_splits: int
    n_repeats: int = 1
    weights: dict[str, float] = field(default_factory=dict)

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
        return tuple(score for score in SCORES if score in found)

    def values(self, score: str, rate: int = 0) -> dict[str, Floats]:
        """Returns a score by method and fold, at a rate by its position; NaN where a run did not finish."""
        found = {method: np.full(self.n_folds, math.nan) for method in self.methods}
        for record in self.records:
            if record.status == "ok":
                found[record.method][record.fold] = record.scores[rate].get(score, math.nan)
        return found

    def losses(self, rate: int = 0) -> dict[str, Floats]:
        """Returns the main score by method and fold, with the sign for which smaller is better."""
        sign = -1.0 if SCORES[self.main][1] == "high" else 1.0
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
