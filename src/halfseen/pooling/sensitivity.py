"""`sensitivity`: an analysis repeated for a range of departures from missing at random."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from halfseen._arrays import Floats
from halfseen._random import seed_from
from halfseen.base.catalogue import CATALOGUE
from halfseen.base.completion import DrawnTables
from halfseen.base.parameters import check_number, check_whole
from halfseen.gaussian.imputer import GaussianImputer
from halfseen.pooling import pool
from halfseen.pooling.adjustment import (
    N_CANDIDATES,
    Adjustable,
    AdjustedColumn,
    cells,
    draw_candidates,
    find_analysis,
    find_moved,
)
from halfseen.pooling.multiple import properly
from halfseen.pooling.selection import LINKS, SelectionModel, draw_selected
from halfseen.words import Missingness

LIMIT = (
    "The data cannot identify the departure, because the values that would show it are missing. Judge "
    "by subject matter whether the departures that change the conclusion are plausible."
)
SELECTION = ("selection", "selection-logistic")
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
    selection : SelectionModel or None
        The selection model, if it is one.
    """

    missingness: str
    estimate: float
    low: float
    high: float
    delta: float
    selection: SelectionModel | None = None

    @property
    def assumption(self) -> str:
        """What the estimate relies on, as a sentence."""
        if self.missingness == Missingness.MAR:
            return "mar assumes that missingness depends on the observed values of a row only."
        if self.selection is not None:
            return self.selection.assumption
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
                {
                    "missingness": m.missingness,
                    "estimate": m.estimate,
                    "low": m.low,
                    "high": m.high,
                    "delta": None if np.isnan(m.delta) else m.delta,
                    "assumption": m.assumption,
                }
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


METHODS = ("shift", "tilt")
N_HALVINGS = 12  # of the distance between two departures, to find where the conclusion changes
INTERCEPTS = ("(intercept)", "Intercept", "const")


def sensitivity(
    imputer: Any,
    X: Any,
    estimand: Any,
    *,
    columns: Any = None,
    deltas: Sequence[float] | None = None,
    method: str = "shift",
    unit: str = "sd",
    reference: float | str | None = "auto",
    level: float = 0.95,
    coefficient: str | None = None,
    y: Any = None,
    model: Any = None,
    mechanisms: Sequence[str | SelectionModel] = (),
    n_draws: int = 20,
    n_candidates: int = N_CANDIDATES,
    random_state: Any = 0,
) -> Sensitivity:
    r"""Repeats an analysis under departures from MAR, and finds the tipping point.

    For each value :math:`\delta` of the sensitivity parameter, the imputed values of the chosen columns are
    shifted or tilted, all completed tables are analysed, and the results are pooled by Rubin's rules. With
    :math:`\delta = 0`, values are missing at random.

    Parameters
    ----------
    imputer : imputer or None
        The model of the values, under MAR; ``None`` stands for ``GaussianImputer()``. It is cloned and fitted
        to `X` for proper multiple imputation.
    X : pandas, polars or pyarrow table, or array-like of shape (n_samples, n_features)
        The incomplete table.
    estimand : str, scikit-learn model or function
        A column, for its mean; ``"column=level"``, for the share of a level; or what `pool` accepts: a
        formula, a model with `y`, or a function of a completed table.
    columns : str, list of str or dict, optional
        The columns whose imputed values are moved, together. A dict maps a column with levels to the level
        whose log odds are moved; without it, a column with two levels moves the second. By default the column
        of the estimand, if that is a mean or a share.
    deltas : sequence of float, optional
        The departures; by default nine from -1 to 1, in the unit of `method` and `unit`.
    method : {"shift", "tilt"}, default="shift"
        How numbers are moved: ``"shift"`` adds :math:`\delta`; ``"tilt"`` multiplies their conditional
        density by :math:`\exp(\delta x / s)`, with s the standard deviation of observed values, which
        respects bounds and integers. With either method, :math:`\delta` is added to the log odds of a level.
        A tilt is a logistic selection model: given the other columns, in whatever way they matter, the log
        odds of being missing rise by :math:`\delta` per standard deviation of the value, or from other levels
        to this one.
    unit : {"sd", "column"}, default="sd"
        Whether shifts are in standard deviations of the observed values or in the units of the column.
    reference : float, "auto" or None, default="auto"
        The conclusion is whether the interval excludes this value; with None there is no tipping point.
        ``"auto"`` is None for the mean of a column and the share of a level, and 0 otherwise.
    level : float, default=0.95
        The probability of the intervals.
    coefficient : str, optional
        Which estimate to follow if there are several; by default the first that is not an intercept.
    y, model : optional
        As in `pool`.
    mechanisms : sequence of str or SelectionModel, default=()
        Models of missingness to fit as well, out of those that the imputer offers, such as
        ``["self-masking-probit"]``; or, with any imputer and for one column of numbers, ``"selection"`` and
        ``"selection-logistic"``: models of missingness given the value and all other columns. A
        `SelectionModel` may name instruments; with the probit link it is the model of Heckman. By default
        none, because their estimates are only as good as their assumption, and nothing in the data shows
        where that is wrong. Self-masking assumes that the probability of a missing value depends on the
        value alone; selection that residuals are normal.
    n_draws : int, default=20
        The number of completed tables.
    n_candidates : int, default=50
        The number of draws of a row among which a tilt chooses; its error is of the order of one over it.
    random_state : int, numpy generator or None, default=0
        Seeds fits and draws.

    Returns
    -------
    Sensitivity
        The curve, its tipping points, and what they mean in words.

    References
    ----------
    van Buuren, Boshuizen & Knook (1999), Statistics in Medicine 18, for shifts; Scharfstein, Rotnitzky &
    Robins (1999), JASA 94, for tilts; Cro et al. (2020), Statistics in Medicine 39, for tipping points.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(0.5, 1.0, size=(400, 1))
    >>> X[:100] = np.nan
    >>> found = sensitivity(GaussianImputer(margins="gaussian"), X, "x0")
    >>> bool(abs(found.estimate[-1] - found.estimate[4] - 0.25 * np.nanstd(X, ddof=1)) < 1e-9)
    True
    """
    _check(method, METHODS, "method")
    _check(unit, ("sd", "column"), "unit")
    check_whole("n_draws", n_draws, 2)
    check_whole("n_candidates", n_candidates, 1)
    excluded = _check_reference(reference, estimand)
    seed = seed_from(random_state)
    template = GaussianImputer() if imputer is None else imputer
    fitted = properly(template, n_draws).set_params(random_state=seed).fit(X)
    read = fitted._read(X, reset=False)
    moved = find_moved(fitted.schema_, read, estimand, columns, in_sd=unit == "sd" or method == "tilt")
    known = getattr(fitted, "analysis", None)
    study = _Study(find_analysis(fitted.schema_, estimand), y, model, coefficient, level, known)
    if method == "tilt" or moved[0].level is not None:
        adjustable = draw_candidates(fitted, X, n_draws, moved, n_candidates, seed)
    else:
        adjustable = Adjustable(fitted.sample(X, n_draws=n_draws), moved)
    grid = _grid(deltas)
    curve = [study.pooled(adjustable.tables(float(delta))) for delta in grid]
    low, high = np.array([one.low for one in curve]), np.array([one.high for one in curve])
    return Sensitivity(
        name=curve[0].name,
        columns=tuple(column.name for column in moved),
        method=method,
        unit=_unit_words(method, unit, moved),
        delta=grid,
        estimate=np.array([one.estimate for one in curve]),
        low=low,
        high=high,
        level=level,
        reference=excluded,
        tipping_points=_tipping_points(grid, low, high, excluded, study, adjustable),
        mechanisms=_fit_mechanisms(template, X, mechanisms, study, adjustable, seed),
        share_missing=max(len(column.rows) for column in moved) / len(read.missing),
        n_draws=n_draws,
    )


def _check_reference(reference: Any, estimand: Any) -> float | None:
    """Returns the value that an interval may exclude."""
    if reference == "auto":
        return None if isinstance(estimand, str) and "~" not in estimand else 0.0
    if reference is None:
        return None
    check_number("reference", reference, np.isfinite, "a finite number, 'auto' or None")
    return float(reference)


@dataclass(frozen=True)
class _Estimate:
    name: str
    estimate: float
    low: float
    high: float


@dataclass(frozen=True)
class _Study:
    """An analysis, and which of its estimates is followed."""

    analysis: Any
    y: Any
    model: Any
    coefficient: str | None
    level: float
    known: str | None = None  # the formula with which the draws are compatible

    def pooled(self, tables: Sequence[Any]) -> _Estimate:
        """Returns the estimate that is followed, pooled over completed tables."""
        draws = DrawnTables(tables, analysis=self.known)
        found = pool(self.analysis, draws, self.y, model=self.model)
        name = self.coefficient
        if name is None:
            name = next((one for one in found.names if one not in INTERCEPTS), found.names[0])
        if name not in found.names:
            raise ValueError(f"There is no coefficient {name!r}; there are {', '.join(found.names)}.")
        j = found.names.index(name)
        low, high = found.interval(self.level)
        return _Estimate(name, float(found.estimate[j]), float(low[j]), float(high[j]))


def _grid(deltas: Sequence[float] | None) -> Floats:
    """Returns the departures in order, with 0 among them."""
    grid = np.linspace(-1.0, 1.0, 9) if deltas is None else np.asarray(deltas, dtype=np.float64)
    if grid.ndim != 1 or not len(grid) or not np.isfinite(grid).all():
        raise ValueError(f"deltas must be finite numbers, got {deltas!r}.")
    return np.unique(np.append(grid, 0.0))


def _check(value: str, offered: Sequence[str], name: str) -> None:
    if value not in offered:
        raise ValueError(f"{name} must be one of {', '.join(offered)}, got {value!r}.")


def _unit_words(method: str, unit: str, moved: Sequence[AdjustedColumn]) -> str:
    if all(column.level is not None for column in moved):
        return "log odds"
    if method == "tilt":
        return "units of tilt"
    return "standard deviations" if unit == "sd" else "units of the column"


def _tipping_points(
    grid: Floats, low: Floats, high: Floats, reference: float | None, study: _Study, adjustable: Adjustable
) -> tuple[float, ...]:
    """Returns where the conclusion first changes on either side of MAR, by halving the distance."""
    if reference is None:
        return ()
    includes = (low <= reference) & (reference <= high)
    zero = int(np.abs(grid).argmin())
    found = []
    for side in (range(zero - 1, -1, -1), range(zero + 1, len(grid))):
        changed = next((i for i in side if includes[i] != includes[zero]), None)
        if changed is None:
            continue
        outside, inside = float(grid[changed]), float(grid[changed + (1 if changed < zero else -1)])
        for _ in range(N_HALVINGS):
            middle = (outside + inside) / 2
            at = study.pooled(adjustable.tables(middle))
            if (at.low <= reference <= at.high) == includes[zero]:
                inside = middle
            else:
                outside = middle
        found.append(outside)
    return tuple(found)


def _fit_mechanisms(
    template: Any,
    X: Any,
    mechanisms: Sequence[str | SelectionModel],
    study: _Study,
    adjustable: Adjustable,
    seed: int,
) -> tuple[FittedMechanism, ...]:
    """Returns the estimate under each fitted model of missingness."""
    method = next((m for m in CATALOGUE if m.class_name == type(template).__name__), None)
    offered = [str(word) for word in method.missingness] if method is not None else []
    n_draws, fits = len(adjustable.draws), []
    for word in mechanisms:
        selection = _as_selection(word)
        if selection is not None:
            draws = _selected(adjustable, selection, seed)
            at = study.pooled(draws)
            delta = _departure(adjustable, draws)
            fits.append(FittedMechanism(selection.name, at.estimate, at.low, at.high, delta, selection))
            continue
        if word not in offered:
            names = ", ".join([*offered, *SELECTION])
            raise ValueError(f"{type(template).__name__} cannot fit {word!r}; it offers {names}.")
        imputer = properly(clone(template).set_params(missingness=word), n_draws)
        draws = imputer.set_params(random_state=seed).fit(X).sample(X, n_draws=n_draws)
        at = study.pooled(draws)
        delta = _departure(adjustable, draws)
        fits.append(FittedMechanism(str(word), at.estimate, at.low, at.high, delta))
    return tuple(fits)


def _as_selection(mechanism: str | SelectionModel) -> SelectionModel | None:
    """Returns the selection model that is meant; None if it is another mechanism."""
    if isinstance(mechanism, SelectionModel):
        return mechanism
    return SelectionModel(LINKS[SELECTION.index(mechanism)]) if mechanism in SELECTION else None


def _selected(adjustable: Adjustable, selection: SelectionModel, seed: int) -> list[Any]:
    """Returns completed tables whose moved column is drawn by a selection model."""
    (column, *more) = adjustable.columns
    if more or column.level is not None:
        names = ", ".join(one.name for one in adjustable.columns)
        raise ValueError(f"{selection.name} needs one column of numbers, got {names}.")
    rng = np.random.default_rng(seed)
    return draw_selected(adjustable.draws, column.position, column.rows, rng, selection)


def _departure(adjustable: Adjustable, draws: Sequence[Any]) -> float:
    """Returns by how much imputed numbers differ from those under MAR, if that is one shift of one column."""
    (column, *more) = adjustable.columns
    if more or column.level is not None or adjustable.stacks or not len(column.rows):
        return float("nan")

    def mean(tables: Sequence[Any]) -> float:
        return float(np.mean([cells(t, column.position)[column.rows].astype(np.float64) for t in tables]))

    return (mean(draws) - mean(adjustable.draws)) / column.scale
