"""One run of a comparison: fit on training rows, impute training and new rows, score removed values."""

import time
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from halfseen._arrays import Booleans, Floats
from halfseen.evaluation.candidates import Answer, CodedTable, NotApplicableError, enter
from halfseen.evaluation.energy import energy_distance, row_features, sliced_wasserstein
from halfseen.evaluation.scores import (
    Scale,
    accuracy,
    coverage,
    crps_draws,
    interval_score,
    level_log_losses,
    mae,
    rmse,
    width,
)

PARTS = ("in", "out")
ENERGY_DRAWS = 3  # number of completed tables over which the distance to the truth is averaged
ENERGY_ROWS = 1_000
MAX_WARNINGS = 3
MAX_MESSAGE = 300


@dataclass(frozen=True)
class Trial:
    """The removed values and the held-out rows of one repetition.

    Shapes
    ------
    hidden : (N, C), known values that are removed.
    test : (N), rows that are not fitted.
    """

    repeat: int
    seed: int
    hidden: Booleans
    test: Booleans


@dataclass(frozen=True)
class Record:
    """The result of one method in one repetition, which may be a failure."""

    method: str
    repeat: int
    seed: int
    status: str  # "ok", "failed", "not applicable": what happened
    error: str = ""  # type and message of what was raised, if it failed; the reason, if it is not applicable
    # The time to fit and to impute every row once; draws, intervals and scoring are not included.
    seconds: float = float("nan")
    warnings: tuple[str, ...] = ()
    # By part ("in": rows that were fitted, "out": new rows) and score; NaN where a score does not apply.
    scores: dict[str, dict[str, float]] | None = None
    # By part, column and score: RMSE and MAE of numbers, accuracy and log-loss of levels.
    columns: dict[str, dict[str, dict[str, float]]] | None = None
    resumed: bool = False


def count_errors(records: Iterable[Any], method: str) -> dict[str, int]:
    """Returns the errors in the records of a method, with their counts."""
    return dict(Counter(record.error for record in records if record.method == method and record.error))


def run_trial(
    method: str, imputer: Any, table: CodedTable, trial: Trial, *, n_draws: int, level: float
) -> Record:
    """Returns the record of one method in one repetition; errors of the method are recorded, not raised."""
    record = Record(method, trial.repeat, trial.seed, "ok")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            seconds, scores, columns = _race(imputer, table, trial, n_draws=n_draws, level=level)
        except NotApplicableError as reason:
            return replace(record, status="not applicable", error=_short(str(reason)))
        except Exception as error:  # a candidate may fail in any way, and each is a result
            return replace(record, status="failed", error=_short(f"{type(error).__name__}: {error}"))
    messages = dict.fromkeys(_short(f"{one.category.__name__}: {one.message}") for one in caught)
    return replace(
        record, seconds=seconds, scores=scores, columns=columns, warnings=tuple(messages)[:MAX_WARNINGS]
    )


def _race(imputer: Any, table: CodedTable, trial: Trial, *, n_draws: int, level: float) -> tuple[Any, ...]:
    shown = np.where(trial.hidden, np.nan, table.codes)
    scale = Scale.fit(shown[~trial.test])
    candidate = enter(imputer, table, trial.seed)
    started = time.perf_counter()
    candidate.fit(shown[~trial.test])
    seconds = time.perf_counter() - started
    scores: dict[str, dict[str, float]] = {}
    columns: dict[str, dict[str, dict[str, float]]] = {}
    for part, chosen in zip(PARTS, (~trial.test, trial.test), strict=True):
        rows = np.flatnonzero(chosen & trial.hidden.any(axis=1))
        if len(rows) == 0:
            scores[part], columns[part] = {}, {}
            continue
        started = time.perf_counter()
        point = candidate.fill(shown[rows])
        seconds += time.perf_counter() - started
        answer = candidate.answer(shown[rows], point, n_draws, level)
        scorer = CellScorer(table, table.codes[rows], trial.hidden[rows], scale, level, trial.seed)
        scores[part], columns[part] = scorer.scores(answer), scorer.by_column(answer)
    return seconds, scores, columns


@dataclass(frozen=True)
class CellScorer:
    """Scores imputations of rows from which known values were removed."""

    table: CodedTable
    truth: Floats
    hidden: Booleans
    scale: Scale
    level: float
    seed: int = 0

    def scores(self, answer: Answer) -> dict[str, float]:
        """Returns all scores, over all removed numbers or levels."""
        truth, point = self._numbers(self.truth), self._numbers(answer.point)
        found = {"rmse": rmse(truth, point), "mae": mae(truth, point)}
        # A single value is a distribution too: all of its probability in one place.
        drawn = point[None] if answer.draws is None else np.stack([self._numbers(d) for d in answer.draws])
        found["crps"] = float(crps_draws(truth, drawn).mean()) if len(truth) else float("nan")
        if answer.low is not None and answer.high is not None:
            low, high = self._numbers(answer.low), self._numbers(answer.high)
            found["coverage"] = coverage(truth, low, high)
            found["width"] = width(low, high)
            found["interval_score"] = interval_score(truth, low, high, level=self.level)
        found |= self._level_scores(answer)
        return found | self._row_scores(answer)

    def by_column(self, answer: Answer) -> dict[str, dict[str, float]]:
        """Returns RMSE and MAE of each numeric column, accuracy and log-loss of each column with levels."""
        truth, point = self.scale.forward(self.truth), self.scale.forward(answer.point)
        found: dict[str, dict[str, float]] = {}
        for j, column in enumerate(self.table.columns):
            cells = self.hidden[:, j]
            if not cells.any():
                continue
            if column.levels is None:
                pair = truth[cells, j], point[cells, j]
                found[column.name] = {"rmse": rmse(*pair), "mae": mae(*pair)}
            else:
                found[column.name] = {"accuracy": accuracy(self.truth[cells, j], answer.point[cells, j])}
                if answer.probabilities is not None:
                    found[column.name]["log_loss"] = float(self._log_losses(answer, j).mean())
        return found

    def _numbers(self, codes: Floats) -> Floats:
        """Returns the hidden cells of numeric columns, standardised."""
        cells: Floats = self.scale.forward(codes)[self.hidden & self.table.numeric]
        return cells

    def _level_scores(self, answer: Answer) -> dict[str, float]:
        cells = self.hidden & ~self.table.numeric
        if not cells.any():
            return {}
        found = {"accuracy": accuracy(self.truth[cells], answer.point[cells])}
        if answer.probabilities is not None:
            losses = [self._log_losses(answer, int(j)) for j in np.flatnonzero(~self.table.numeric)]
            found["log_loss"] = float(np.concatenate(losses).mean())
        return found

    def _log_losses(self, answer: Answer, column: int) -> Floats:
        assert answer.probabilities is not None
        cells = self.hidden[:, column]
        return level_log_losses(self.truth[cells, column], answer.probabilities[column][cells])

    def _row_scores(self, answer: Answer) -> dict[str, float]:
        """Returns distances between completed and true rows, over rows whose every cell is known."""
        whole = ~np.isnan(self.truth).any(axis=1) & self.hidden.any(axis=1)
        if whole.sum() < 2:
            return {}
        levels = self.table.n_levels
        truth = row_features(self.truth[whole], levels, self.scale)
        tables = answer.point[None] if answer.draws is None else answer.draws[:ENERGY_DRAWS]
        completed = [row_features(one[whole], levels, self.scale) for one in tables]
        chosen = {"max_rows": ENERGY_ROWS, "random_state": self.seed}
        return {
            "energy": float(np.mean([energy_distance(truth, one, **chosen) for one in completed])),
            "sliced_wasserstein": sliced_wasserstein(truth, completed[0], **chosen),
        }


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_MESSAGE else line[: MAX_MESSAGE - 1] + "\N{HORIZONTAL ELLIPSIS}"
