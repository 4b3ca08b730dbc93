r"""How a predictor reacts to the number of known inputs, whatever they are: the variable sparsity problem."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import torch
from scipy.stats import spearmanr

from halfseen._arrays import Floats, Integers
from halfseen._random import seed_from
from halfseen.base.parameters import check_level
from halfseen.missingness.reading import OpenTable

SMALL_INDEX = 0.1  # a drift below this share of the standard deviation is small


@dataclass(frozen=True)
class VSPCurve:
    """Predictions of the same rows when only a part of their known values is shown.

    Attributes
    ----------
    shares : array of shape (n_levels,)
        The share of each row's known values that was shown.
    means, lows, highs : arrays of shape (n_levels,)
        The mean prediction over rows and draws, and its bootstrap interval over rows.
    spreads : array of shape (n_levels,)
        The standard deviation of predictions between draws of the same row, averaged over rows.
    slope, slope_interval : float and pair of float
        The slope of `means` on `shares`, by least squares, and its interval.
    index, index_interval : float and pair of float
        The range of `means`, divided by the standard deviation of the predictions of complete rows (or of the
        targets, if they were given); and its interval.
    correlation : float
        The rank correlation of `means` with `shares`; 0 if the mean does not change at all.
    n_rows, n_draws, level : int, int and float
        The number of rows, the draws of each row and share, and the level of the intervals.
    """

    shares: Floats
    means: Floats
    lows: Floats
    highs: Floats
    spreads: Floats
    slope: float
    slope_interval: tuple[float, float]
    index: float
    index_interval: tuple[float, float]
    correlation: float
    n_rows: int
    n_draws: int
    level: float

    @property
    def drifts(self) -> bool:
        """Whether the drift is clear (its interval excludes 0) and large enough to matter."""
        low, high = self.slope_interval
        return (low > 0 or high < 0) and self.index >= SMALL_INDEX

    @property
    def sentence(self) -> str:
        """A summary of the curve in one sentence, for readers who do not know the model."""
        first, last = self.means[0], self.means[-1]
        numbers = (
            f"with {self.shares[0]:.0%} of the known values, the mean prediction is {first:.3g}, "
            f"with all of them {last:.3g}"
        )
        if not self.drifts:
            return f"The mean prediction does not clearly depend on the number of known values: {numbers}."
        way = "rises" if self.slope > 0 else "falls"
        return (
            f"The mean prediction {way} when more values of the same rows become known, whatever their size: "
            f"{numbers}; this drift is {self.index:.0%} of a standard deviation."
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns the curve as values that JSON can represent."""
        plain = {
            name: np.asarray(value).tolist() if isinstance(value, np.ndarray | tuple) else value
            for name, value in vars(self).items()
        }
        return plain | {"drifts": self.drifts, "sentence": self.sentence}


def vsp_curve(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    output: Any = None,
    n_levels: int = 10,
    n_draws: int = 20,
    n_rows: int = 100,
    level: float = 0.95,
    n_bootstraps: int = 1000,
    random_state: Any = 0,
) -> VSPCurve:
    r"""Measures how the predictions of a model drift with the number of known inputs.

    For a share :math:`q` of the known values of a row, subsets of this size are drawn at random, the rest is
    removed, and the row is predicted. A model whose predictions are right on average given any subset of the
    values, missing completely at random, has the same mean prediction for all :math:`q`, because the mean of
    conditional means is the mean. A network that reads missing values as zeros usually does not: this is the
    variable sparsity problem.

    Parameters
    ----------
    model : estimator or callable
        A fitted regressor or classifier of any library that accepts missing values, a function from a table
        to predictions, or a fitted recommender, whose mean prediction for a new user is followed.
    X : data frame, array-like of shape (n_samples, n_features), or array (n_samples, n_steps, n_features)
        Rows, or sequences, to predict, with NaN, None or null where values are missing. For a recommender
        an array of ratings, with a row for each user and a column for each of its ``items_``.
    y : array-like of shape (n_samples,), optional
        Numeric targets, of which the standard deviation scales the index. By default it is that of the
        predictions.
    output : int or class label, optional
        The class whose probability is followed, by default the last of two; or the column of predictions with
        more than one target.
    n_levels, n_draws, n_rows : int
        The number of shares, of subsets for each row and share, and the largest number of rows, which are
        chosen at random.
    level : float, default=0.95
        The level of the bootstrap intervals, over rows.
    n_bootstraps : int, default=1000
        The number of bootstrap samples.
    random_state : int, numpy generator or None, default=0
        Seeds rows, subsets and bootstrap samples.

    Returns
    -------
    VSPCurve

    References
    ----------
    Yi, Lee, Kim, Hwang & Yang (2020), Why not to use zero imputation?, figure 1.

    Examples
    --------
    >>> X = np.random.default_rng(0).uniform(size=(50, 8))
    >>> curve = vsp_curve(lambda rows: np.nan_to_num(rows).sum(axis=1), X)
    >>> bool(3 < curve.slope < 5), curve.drifts
    (True, True)
    >>> vsp_curve(lambda rows: np.nanmean(rows, axis=1), X).drifts
    False
    """
    _check_parameters(n_levels, n_draws, n_rows, level)
    rng = np.random.default_rng(seed_from(random_state))
    predict = _predictor(model, output)
    if isinstance(X, np.ndarray) and X.ndim == 3:
        X, predict = X.reshape(len(X), -1), _flat(predict, X.shape[1:])
    chosen = _choose_rows(X, n_rows, rng)
    shares = np.linspace(1 / n_levels, 1.0, n_levels)
    drawn = _draw(predict, _take(X, chosen), shares, n_draws, rng)  # (R, L, S)
    reference = predict(X) if y is None else np.asarray(y, dtype=np.float64)
    scale = float(np.std(reference)) or 1.0
    by_row = drawn.mean(axis=2)  # (R, L)
    resampled = by_row[rng.integers(len(by_row), size=(n_bootstraps, len(by_row)))].mean(axis=1)  # (B, L)
    means = by_row.mean(axis=0)
    ends = [(1 - level) / 2, (1 + level) / 2]
    lows, highs = np.quantile(resampled, ends, axis=0)
    slopes, ranges = _slopes(shares, resampled), np.ptp(resampled, axis=1) / scale
    constant = np.ptp(means) < 1e-12 * scale
    return VSPCurve(
        shares=shares,
        means=means,
        lows=lows,
        highs=highs,
        spreads=drawn.std(axis=2).mean(axis=0),
        slope=float(_slopes(shares, means[None])[0]),
        slope_interval=_pair(np.quantile(slopes, ends)),
        index=float(np.ptp(means) / scale),
        index_interval=_pair(np.quantile(ranges, ends)),
        correlation=0.0 if constant else float(spearmanr(shares, means).statistic),
        n_rows=len(by_row),
        n_draws=n_draws,
        level=level,
    )


def _check_parameters(n_levels: int, n_draws: int, n_rows: int, level: float) -> None:
    lowest = {"n_levels": (n_levels, 2), "n_draws": (n_draws, 1), "n_rows": (n_rows, 1)}
    for name, (value, bound) in lowest.items():
        if value < bound:
            raise ValueError(f"{name} must be at least {bound}, got {value!r}.")
    check_level(level)


def _predictor(model: Any, output: Any) -> Callable[[Any], Floats]:
    """Returns a function from tables to one number per row."""
    if hasattr(model, "predict_new"):
        return lambda X: _mean_ratings(model, np.asarray(X, dtype=np.float64))
    if hasattr(model, "predict_proba"):
        classes = list(model.classes_)
        if output is None and len(classes) != 2:
            raise ValueError(f"The model has {len(classes)} classes: give one of {classes} as output.")
        if output is not None and output not in classes:
            raise ValueError(f"output must be one of the classes {classes}, got {output!r}.")
        place = 1 if output is None else classes.index(output)
        return lambda X: np.asarray(model.predict_proba(X), dtype=np.float64)[:, place]
    if not hasattr(model, "predict") and not callable(model):
        raise ValueError(f"model must have predict or be a function, got {type(model).__name__}.")
    ask = getattr(model, "predict", model)

    def predict(X: Any) -> Floats:
        answer = np.asarray(ask(X), dtype=np.float64)
        if answer.ndim == 1:
            return answer
        if output is None and answer.shape[1] != 1:
            raise ValueError(f"The model has {answer.shape[1]} targets: give the position of one as output.")
        return answer[:, output or 0]

    return predict


def _mean_ratings(model: Any, ratings: Floats) -> Floats:
    """Returns the mean prediction of a recommender, over all items, for new users with these ratings."""
    if ratings.ndim != 2 or ratings.shape[1] != len(model.items_):
        raise ValueError(
            f"X must have a column for each of the {len(model.items_)} items of the recommender, in "
            f"the order of items_, got the shape {ratings.shape}."
        )
    known = ~np.isnan(ratings)
    return np.array(
        [
            model.predict_new(model.items_[of_row], row[of_row]).mean()
            for row, of_row in zip(ratings, known, strict=True)
        ]
    )


def _flat(predict: Callable[[Any], Floats], shape: tuple[int, ...]) -> Callable[[Any], Floats]:
    """Returns a predictor of sequences as one of rows, in which the values of all steps are side by side."""
    return lambda rows: predict(np.asarray(rows).reshape(-1, *shape))


def _choose_rows(X: Any, n_rows: int, rng: np.random.Generator) -> Integers:
    """Returns the positions of rows with at least two known values."""
    known = OpenTable(X).present().sum(dim=1).numpy()
    candidates = np.flatnonzero(known >= 2)
    if not len(candidates):
        raise ValueError("No row of X has two known values, so there is nothing to remove.")
    return np.sort(rng.permutation(candidates)[:n_rows])


def _draw(
    predict: Callable[[Any], Floats], rows: Any, shares: Floats, n_draws: int, rng: np.random.Generator
) -> Floats:
    """Returns predictions (R, L, S) of rows with random subsets of their known values."""
    present = OpenTable(rows).present().numpy()  # (R, D)
    n_rows, n_features = present.shape
    known = present.sum(axis=1)
    drawn = np.empty((n_rows, len(shares), n_draws))
    repeated = np.repeat(np.arange(n_rows), n_draws)
    table = OpenTable(_take(rows, repeated))
    for place, share in enumerate(shares):
        keys = np.where(present[repeated], rng.random((len(repeated), n_features)), 2.0)
        rank = keys.argsort(axis=1).argsort(axis=1)
        kept = np.maximum(1, np.round(share * known)).astype(np.int64)[repeated]
        hidden = present[repeated] & (rank >= kept[:, None])
        part = table.with_missing(torch.from_numpy(hidden), np.arange(n_features))
        drawn[:, place] = predict(part).reshape(n_rows, n_draws)
    return drawn


def _take(X: Any, rows: Integers) -> Any:
    frame = nw.from_native(X, pass_through=True)
    return frame[rows].to_native() if isinstance(frame, nw.DataFrame) else np.asarray(X)[rows]


def _slopes(shares: Floats, means: Floats) -> Floats:
    """Returns the slope (B) of means (B, L) on shares (L), by least squares."""
    centred = shares - shares.mean()
    slopes: Floats = (means - means.mean(axis=1, keepdims=True)) @ centred / (centred @ centred)
    return slopes


def _pair(ends: Floats) -> tuple[float, float]:
    return float(ends[0]), float(ends[1])
