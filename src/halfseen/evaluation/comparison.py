"""The result of a comparison of imputers: all runs, their means, and confidence intervals."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student_t

from halfseen._arrays import Floats
from halfseen._machine import plain_json, write_atomically
from halfseen._random import seed_from
from halfseen.base.parameters import check_level
from halfseen.evaluation.trial import PARTS, Record, count_errors

Direction = Literal["low", "high", "level"]

SCORES: dict[str, tuple[str, Direction]] = {
    "rmse": ("RMSE", "low"),
    "mae": ("MAE", "low"),
    "accuracy": ("accuracy", "high"),
    "log_loss": ("log-loss", "low"),
    "crps": ("CRPS", "low"),
    "coverage": ("coverage", "level"),
    "width": ("width", "low"),
    "interval_score": ("interval score", "low"),
    "energy": ("energy", "low"),
    "sliced_wasserstein": ("sliced W", "low"),
}
"""Name and direction of each score; coverage is best near the level of the intervals."""

RESULT_FILES = ("results.json", "results.parquet")
"""What `Comparison.save` writes into a folder."""
RUNS = "runs"
"""The folder of finished runs, in that of the results."""

N_RESAMPLES = 2_000


@dataclass(frozen=True)
class Estimate:
    """A mean over repetitions with its confidence interval, which is NaN for a single repetition."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def half(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Standing:
    """The result of one method in one score.

    Attributes
    ----------
    estimate : Estimate
        The mean over repetitions. Coverage is ranked by its distance from the level.
    best : bool
        Whether no method without failures has a better mean.
    tied : bool
        Whether the interval of the paired difference from the best includes zero.
    """

    method: str
    estimate: Estimate
    best: bool = False
    tied: bool = False


def estimate_mean(
    values: npt.ArrayLike,
    *,
    level: float = 0.95,
    method: Literal["t", "bootstrap"] = "t",
    random_state: object = 0,
) -> Estimate:
    r"""Returns a mean with its confidence interval, NaN values left out.

    .. math:: \bar x \pm t_{n - 1, (1 + c) / 2} \, s / \sqrt{n}

    or, with ``method="bootstrap"``, the quantiles of the means of resampled values. For a paired comparison
    pass the differences, so that the difficulty of a repetition cancels. Repetitions remove different values
    of the same table: the interval describes how much the choice of values matters, not how the result would
    be on another table.

    Examples
    --------
    >>> e = estimate_mean([1.0, 2.0, 3.0])
    >>> e.mean, round(e.low, 3), round(e.high, 3), e.n
    (2.0, -0.484, 4.484, 3)
    """
    check_level(level)
    if method not in ("t", "bootstrap"):
        raise ValueError(f"method must be 't' or 'bootstrap', got {method!r}.")

    def by_t(x: Floats) -> tuple[float, float]:
        half = float(student_t.ppf((1 + level) / 2, len(x) - 1) * x.std(ddof=1) / math.sqrt(len(x)))
        return float(x.mean()) - half, float(x.mean()) + half

    def by_resampling(x: Floats) -> tuple[float, float]:
        rng = np.random.default_rng(seed_from(random_state))
        means = x[rng.integers(len(x), size=(N_RESAMPLES, len(x)))].mean(axis=1)
        low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
        return float(low), float(high)

    return estimate_known(values, by_t if method == "t" else by_resampling)


def estimate_known(values: npt.ArrayLike, interval: Callable[[Floats], tuple[float, float]]) -> Estimate:
    """Returns the mean of the values that are not NaN, with an interval if there are two of them or more."""
    x = np.asarray(values, dtype=np.float64)
    x = x[~np.isnan(x)]
    low, high = interval(x) if len(x) >= 2 else (math.nan, math.nan)
    return Estimate(float(x.mean()) if len(x) else math.nan, low, high, len(x))


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`: all runs, with settings and provenance.

    Attributes
    ----------
    methods : tuple of str
        In the order in which they were given.
    records : tuple of Record
        One per method and repetition, including failures.
    settings : dict
        Repetitions, rates, seeds, level of the intervals, mechanism, and the parameters of each method.
    provenance : dict
        Time, versions, commit, hash of the data.
    """

    methods: tuple[str, ...]
    records: tuple[Record, ...]
    settings: dict[str, Any]
    provenance: dict[str, Any]

    def values(self, score: str, part: str = "out") -> dict[str, Floats]:
        """Returns the scores of each method by repetition; NaN if the run failed or has no such score."""
        _check_part(part)
        n_repeats = self.settings["n_repeats"]
        found = {method: np.full(n_repeats, math.nan) for method in self.methods}
        for record in self.records:
            if record.status != "ok":
                continue
            value = record.seconds if score == "seconds" else (record.scores or {}).get(part, {}).get(score)
            found[record.method][record.repeat] = math.nan if value is None else value
        return found

    def difference(
        self,
        first: str,
        second: str,
        score: str,
        part: str = "out",
        *,
        level: float = 0.95,
        method: Literal["t", "bootstrap"] = "t",
    ) -> Estimate:
        """Returns the mean of first minus second over common repetitions, with its interval."""
        values = self.values(score, part)
        for name in (first, second):
            if name not in values:
                raise ValueError(
                    f"There is no method {name!r} in this comparison; the methods are "
                    f"{', '.join(self.methods)}."
                )
        return estimate_mean(values[first] - values[second], level=level, method=method)

    def standings(self, score: str, part: str = "out", *, level: float = 0.95) -> list[Standing]:
        """Returns the result of each method in a score; a method with a failure is never the best."""
        values = self.values(score, part)
        losses = {name: self._loss(score, one) for name, one in values.items()}
        whole = {name: one.mean() for name, one in losses.items() if len(one) and not np.isnan(one).any()}
        best = min(whole, key=lambda name: whole[name]) if whole else None
        found = []
        for name in self.methods:
            tied = False
            if best is not None and name != best and not np.isnan(losses[name]).all():
                gap = estimate_mean(losses[name] - losses[best], level=level)
                tied = gap.mean <= 0 or gap.low <= 0 or gap.n < 2
            found.append(Standing(name, estimate_mean(values[name], level=level), name == best, tied))
        return found

    def scores(self, part: str = "out") -> list[str]:
        """Returns the scores that at least one method has."""
        return [
            score
            for score in SCORES
            if any(np.isfinite(one).any() for one in self.values(score, part).values())
        ]

    def count(self, method: str, status: str = "failed") -> int:
        """Returns the number of repetitions with a status: "ok", "failed" or "not applicable"."""
        return sum(record.method == method and record.status == status for record in self.records)

    def errors(self, method: str) -> dict[str, int]:
        """Returns the errors of a method, with their counts."""
        return count_errors(self.records, method)

    def by_column(self, part: str = "out") -> dict[str, dict[str, dict[str, float]]]:
        """Returns the mean scores of each column and method over the repetitions."""
        _check_part(part)
        gathered: dict[str, dict[str, dict[str, list[float]]]] = {}
        for record in self.records:
            for column, scores in ((record.columns or {}).get(part) or {}).items():
                for score, value in scores.items():
                    place = gathered.setdefault(column, {}).setdefault(record.method, {})
                    place.setdefault(score, []).append(value)
        return {
            column: {
                method: {score: float(np.mean(values)) for score, values in scores.items()}
                for method, scores in methods.items()
            }
            for column, methods in gathered.items()
        }

    def rows(self) -> list[dict[str, Any]]:
        """Returns one row per run, part and score: a long table, failures with a NaN and their reason."""
        found = []
        for record in self.records:
            common = {key: getattr(record, key) for key in ("method", "repeat", "seed", "status", "error")}
            found.append({**common, "part": "", "score": "seconds", "value": record.seconds})
            for part in PARTS:
                scores: Mapping[str, float] = (record.scores or {}).get(part) or {"rmse": math.nan}
                found += [{**common, "part": part, "score": score, "value": v} for score, v in scores.items()]
        return found

    def save(self, folder: str | Path) -> list[Path]:
        """Writes ``results.json`` (everything) and, with pyarrow, ``results.parquet`` (the long table)."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        as_json, as_table = (target / name for name in RESULT_FILES)
        with write_atomically(as_json) as file:
            file.write(json.dumps(plain_json(asdict(self)), indent=1, allow_nan=False).encode())
        try:
            import pyarrow as pa
            import pyarrow.parquet as parquet
        except ImportError:
            return [as_json]
        about = {"halfseen": json.dumps({"settings": self.settings, "provenance": self.provenance})}
        table = pa.Table.from_pylist(self.rows()).replace_schema_metadata(about)
        with write_atomically(as_table) as file:
            parquet.write_table(table, file, compression="zstd")
        return [as_json, as_table]

    @classmethod
    def load(cls, folder: str | Path) -> "Comparison":
        """Reads a comparison that was written by `save`."""
        content = json.loads((Path(folder) / RESULT_FILES[0]).read_text(encoding="utf-8"))
        records = []
        for entry in content["records"]:
            seconds = math.nan if entry["seconds"] is None else entry["seconds"]
            scores = entry["scores"] and {
                part: {k: math.nan if v is None else v for k, v in one.items()}
                for part, one in entry["scores"].items()
            }
            messages = tuple(entry["warnings"])
            records.append(Record(**{**entry, "seconds": seconds, "scores": scores, "warnings": messages}))
        return cls(tuple(content["methods"]), tuple(records), content["settings"], content["provenance"])

    def _loss(self, score: str, values: Floats) -> Floats:
        direction = SCORES[score][1] if score in SCORES else "low"
        if direction == "high":
            return -values
        return np.abs(values - self.settings["level"]) if direction == "level" else values


def _check_part(part: str) -> None:
    if part not in PARTS:
        raise ValueError(f"part must be 'in' (rows that were fitted) or 'out' (new rows), got {part!r}.")
