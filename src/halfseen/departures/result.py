"""The result of a sensitivity analysis: a curve, its tipping points, and what they mean in words."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halfseen.vocabulary import Missingness

Floats = npt.NDArray[np.float64]
LIMIT = (
    "The data cannot identify the departure, because the values that would show it are missing. Judge "
    "by subject matter whether the departures that change the conclusion are plausible."
)
_WHOLE_ROW = (Missingness.LINEAR, Missingness.NONLINEAR)


@dataclass(frozen=True)
class FittedMechanism:
    """The same estimand under a fitted model of missingness.

    Attributes
    ----------
    missingness : str
        The assumed mechanism.
    estimate, low, high : float
        The pooled estimate and the ends of its interval.
    delta : float
        The departure of its imputed values from those under MAR, in the units of the sensitivity parameter;
        NaN if there is no such number.
    """

    missingness: str
    estimate: float
    low: float
    high: float
    delta: float

    @property
    def assumption(self) -> str:
        """What the estimate relies on, as a sentence."""
        if self.missingness == Missingness.MAR:
            return "mar assumes that missingness depends on the observed values of a row only."
        if self.missingness in _WHOLE_ROW:
            return (
                f"{self.missingness} assumes that missingness depends on the values of the whole row, and "
                "that the shapes of this dependence and of the distribution of values are known."
            )
        return (
            f"{self.missingness} assumes that, given the value itself, missingness does not depend on any "
            "other column, and that the shapes of this dependence and of the distribution of values are "
            "known. If missingness also depends on other columns, its estimate is biased."
        )


@dataclass(frozen=True)
class Sensitivity:
    """How an estimate depends on the departure of missing values from what MAR implies.

    Attributes
    ----------
    name : str
        The estimand.
    columns : tuple of str
        The columns whose imputed values are moved.
    method : str
        ``"shift"`` or ``"tilt"``.
    unit : str
        The unit of the sensitivity parameter, in words.
    delta, estimate, low, high : ndarray of shape (n_deltas,)
        The sensitivity parameter, 0 under MAR, and the pooled estimate with its interval.
    level : float
        The probability of the intervals.
    reference : float or None
        The value whose place inside or outside the interval is the conclusion.
    tipping_points : tuple of float
        The departures nearest to 0 on either side at which the conclusion changes; at most two.
    mechanisms : tuple of FittedMechanism
        The estimates under fitted models of missingness, if any were requested.
    share_missing : float
        The largest share of missing values among the columns.
    n_draws : int
        The number of completed tables.
    """

    name: str
    columns: tuple[str, ...]
    method: str
    unit: str
    delta: Floats
    estimate: Floats
    low: Floats
    high: Floats
    level: float
    reference: float | None
    tipping_points: tuple[float, ...]
    mechanisms: tuple[FittedMechanism, ...]
    share_missing: float
    n_draws: int

    @property
    def tipping_point(self) -> float | None:
        """The smallest departure, in absolute value, at which the conclusion changes; None if none does."""
        return min(self.tipping_points, key=abs, default=None)

    @property
    def at_mar(self) -> tuple[float, float, float]:
        """The estimate and the ends of its interval under MAR."""
        i = int(np.abs(self.delta).argmin())
        return float(self.estimate[i]), float(self.low[i]), float(self.high[i])

    @property
    def conclusion(self) -> str:
        """One sentence for readers who do not know statistics."""
        estimate, low, high = self.at_mar
        share = f"{100 * self.share_missing:.0f}% of the values of {', '.join(self.columns)} are missing"
        about = self.name if self.name.startswith(("mean of", "share of")) else f"coefficient of {self.name}"
        if self.reference is None:
            return (
                f"If values are missing at random, the {about} is {estimate:.4g} ({self.level:.0%} interval "
                f"{low:.4g} to {high:.4g}). If the missing values depart from this by {self.delta.min():g} "
                f"to {self.delta.max():g} {self.unit}, it is between {self.estimate.min():.4g} and "
                f"{self.estimate.max():.4g} ({share})."
            )
        excluded = not low <= self.reference <= high
        side = "above" if estimate > self.reference else "below"
        claim = f"that the {about} is {side} {self.reference:.4g}"
        first = (
            f"If values are missing at random, the data show {claim}"
            if excluded
            else f"If values are missing at random, the data do not show {claim}"
        )
        if self.tipping_point is None:
            low_end, high_end = float(self.delta.min()), float(self.delta.max())
            return (
                f"{first}, and that stays so for all departures from {low_end:g} to {high_end:g} {self.unit} "
                f"({share})."
            )
        departures = " or ".join(
            f"{point:+.3g} {self.unit}" for point in sorted(self.tipping_points, key=abs)
        )
        return f"{first}, but that changes if the missing values depart from this by {departures} ({share})."

    @property
    def limit(self) -> str:
        """What the data cannot identify."""
        return LIMIT

    def to_frame(self) -> Any:
        """Returns a pandas data frame: a row for each departure, and one for each fitted mechanism."""
        import pandas as pd

        rows = [
            {"assumption": "mar" if d == 0 else self.method, "delta": d, "estimate": e, "low": lo, "high": hi}
            for d, e, lo, hi in zip(self.delta, self.estimate, self.low, self.high, strict=True)
        ]
        rows += [
            {
                "assumption": m.missingness,
                "delta": m.delta,
                "estimate": m.estimate,
                "low": m.low,
                "high": m.high,
            }
            for m in self.mechanisms
        ]
        frame = pd.DataFrame(rows)
        if self.reference is not None:
            inside = (frame["low"] <= self.reference) & (self.reference <= frame["high"])
            frame[f"includes {self.reference:g}"] = inside
        return frame

    def to_dict(self) -> dict[str, Any]:
        """Returns numbers, strings, lists and dicts only: it survives ``json.dumps``."""
        return {
            "name": self.name,
            "columns": list(self.columns),
            "method": self.method,
            "unit": self.unit,
            "delta": self.delta.tolist(),
            "estimate": self.estimate.tolist(),
            "low": self.low.tolist(),
            "high": self.high.tolist(),
            "level": self.level,
            "reference": self.reference,
            "tipping_points": list(self.tipping_points),
            "mechanisms": [
                {**vars(m), "delta": None if np.isnan(m.delta) else m.delta, "assumption": m.assumption}
                for m in self.mechanisms
            ],
            "share_missing": self.share_missing,
            "n_draws": self.n_draws,
            "at_mar": list(self.at_mar),
            "conclusion": self.conclusion,
            "limit": self.limit,
        }

    def plot(self, ax: Any = None) -> Any:
        """Draws estimate and interval against the departure, with tipping points and fitted mechanisms.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; by default on new axes.

        Returns
        -------
        matplotlib axes
        """
        if ax is None:
            import matplotlib.pyplot as plt

            _, ax = plt.subplots(layout="constrained")
        ax.fill_between(self.delta, self.low, self.high, alpha=0.25, label=f"{self.level:.0%} interval")
        ax.plot(self.delta, self.estimate, marker="o", markersize=3, label="estimate")
        if self.reference is not None:
            ax.axhline(self.reference, color="0.3", linestyle="--", linewidth=1, label="reference")
        ax.axvline(0, color="0.7", linewidth=1)
        for i, point in enumerate(self.tipping_points):
            ax.axvline(point, color="tab:red", linestyle=":", label=None if i else "the conclusion changes")
        for i, mechanism in enumerate(self.mechanisms):
            if np.isfinite(mechanism.delta):
                error = [[mechanism.estimate - mechanism.low], [mechanism.high - mechanism.estimate]]
                ax.errorbar(
                    mechanism.delta, mechanism.estimate, yerr=error, fmt="s", capsize=3, color=f"C{i + 2}",
                    label=mechanism.missingness,
                )  # fmt: skip
        ax.set_xlabel(f"departure of missing {', '.join(self.columns)} from MAR ({self.unit})")
        ax.set_ylabel(self.name)
        ax.legend()
        return ax

    def __str__(self) -> str:
        lines = [f"{self.name}, {self.method} of imputed {', '.join(self.columns)} in {self.unit}"]
        lines.append(f"{'assumption':>24} {'delta':>8} {'estimate':>10} {'low':>10} {'high':>10}")
        for row in self.to_frame().itertuples(index=False):
            lines.append(f"{row[0]:>24} {row[1]:8.3g} {row[2]:10.4g} {row[3]:10.4g} {row[4]:10.4g}")
        assumptions = [mechanism.assumption for mechanism in self.mechanisms]
        return "\n".join([*lines, *assumptions, self.conclusion, self.limit])
