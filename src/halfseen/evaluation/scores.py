r"""Scores of imputed values: single values, levels, draws and intervals.

Every function takes only the values that were removed and imputed; including observed values would improve
the scores of every method. Columns have different units, so values are standardised first, by the observed
*training* values only (`Scale`).

Imputers are also scored by the accuracy of a predictor that is trained on the completed table.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr
from sklearn.base import clone, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import KFold, StratifiedKFold

from halfseen._arrays import Floats, Integers
from halfseen._random import seed_from
from halfseen.base.parameters import check_level
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete, check_not_masked, unmask
from halfseen.evaluation.candidates import CodedTable, enter

SMALLEST_PROBABILITY = float(np.finfo(np.float64).eps)
ROUNDING = 1e-6  # by which a probability in single precision may exceed 1


@dataclass(frozen=True)
class Scale:
    r"""Location and scale per column, learned from the observed cells of the training rows.

    .. math:: z_{ij} = (x_{ij} - \mu_j) / \sigma_j

    The scale of a constant column is 1.

    Examples
    --------
    >>> scale = Scale.fit(np.array([[1.0, 5.0], [3.0, np.nan], [np.nan, 5.0]]))
    >>> scale.forward(np.array([[5.0, 6.0]]))
    array([[3., 1.]])
    """

    loc: Floats
    scale: Floats

    @classmethod
    def fit(cls, train: npt.ArrayLike) -> "Scale":
        """Learns mean and standard deviation of the values that are not NaN."""
        array = np.asarray(unmask(train), dtype=np.float64)
        seen = ~np.isnan(array)
        total = np.maximum(seen.sum(axis=0), 1)
        loc = np.where(seen, array, 0.0).sum(axis=0) / total
        loc = loc + np.where(seen, array - loc, 0.0).sum(axis=0) / total  # what was rounded
        spread = np.sqrt((np.where(seen, array - loc, 0.0) ** 2).sum(axis=0) / total)
        low, high = (
            np.where(seen, array, loc).min(axis=0, initial=np.inf),
            np.where(seen, array, loc).max(axis=0, initial=-np.inf),
        )
        return cls(loc, np.where((high > low) & (spread > 0), spread, 1.0))

    def forward(self, x: npt.ArrayLike) -> Floats:
        """Standardises values (*, D)."""
        standardised: Floats = (np.asarray(unmask(x), dtype=np.float64) - self.loc) / self.scale
        return standardised


def rmse(truth: npt.ArrayLike, filled: npt.ArrayLike) -> float:
    r"""Returns the root mean squared error of single values; best for the conditional mean.

    .. math:: \sqrt{\tfrac1n \sum_i (\hat z_i - z_i)^2}

    If values are standardised by `Scale`, imputing column means has an error of about 1.

    Examples
    --------
    >>> rmse([0.0, 1.0], [0.0, 3.0]) == 2**0.5
    True
    """
    error = _pair(truth, filled)
    return float(np.sqrt(np.mean(error**2))) if len(error) else float("nan")


def mae(truth: npt.ArrayLike, filled: npt.ArrayLike) -> float:
    r"""Returns the mean absolute error of single values; best for the conditional median.

    .. math:: \tfrac1n \sum_i |\hat z_i - z_i|

    Examples
    --------
    >>> mae([0.0, 1.0], [0.0, 3.0])
    1.0
    """
    error = _pair(truth, filled)
    return float(np.mean(np.abs(error))) if len(error) else float("nan")


def accuracy(truth: npt.ArrayLike, filled: npt.ArrayLike) -> float:
    """Returns the fraction of levels that were imputed correctly.

    Examples
    --------
    >>> accuracy([0, 1, 2, 2], [0, 1, 2, 0])
    0.75
    """
    right = _pair(truth, filled) == 0
    return float(right.mean()) if len(right) else float("nan")


def level_log_losses(truth: npt.ArrayLike, probabilities: npt.ArrayLike) -> Floats:
    """Returns the log-loss of each cell; see `log_loss`."""
    codes = np.asarray(unmask(truth))
    chances = np.asarray(unmask(probabilities), dtype=np.float64)
    if chances.ndim != 2 or len(chances) != len(codes):
        raise ValueError(f"Expected probabilities of shape ({len(codes)}, n_levels), got {chances.shape}.")
    known = np.isin(codes, np.arange(chances.shape[1]))
    if not known.all():
        wrong = codes[~known][0]
        raise ValueError(f"Level {wrong!r} is outside the {chances.shape[1]} levels that have a probability.")
    if not ((chances >= 0) & (chances <= 1 + ROUNDING)).all():
        raise ValueError("Probabilities must be between 0 and 1.")
    chosen = chances[np.arange(len(codes)), codes.astype(np.int64)]
    losses: Floats = -np.log(np.clip(chosen, SMALLEST_PROBABILITY, 1.0))
    return losses


def log_loss(truth: npt.ArrayLike, probabilities: npt.ArrayLike) -> float:
    r"""Returns the mean negative log probability of the true levels, in nats.

    .. math:: -\tfrac1n \sum_i \log p_i(z_i)

    Parameters
    ----------
    truth : array-like of shape (n_cells,)
        Positions among the levels of the schema.
    probabilities : array-like of shape (n_cells, n_levels)
        In the order of the schema, as from `class_probabilities`; 0 is replaced by the machine
        epsilon, so that a level with probability 0 costs 36 nats instead of infinity.

    Examples
    --------
    >>> round(log_loss([0, 1], [[0.5, 0.5], [0.25, 0.75]]), 4)
    0.4904
    """
    losses = level_log_losses(truth, probabilities)
    return float(losses.mean()) if len(losses) else float("nan")


def crps_draws(truth: npt.ArrayLike, draws: npt.ArrayLike, *, fair: bool = True) -> Floats:
    r"""Returns the continuous ranked probability score of each cell, from draws of its distribution.

    .. math::
        \frac1S \sum_s |x_s - z| - \frac{1}{2 S (S - 1)} \sum_{s, t} |x_s - x_t|
        \quad\text{(fair; plain: } S^2 \text{ in place of } S(S-1)\text{)}

    It is in the units of the cell, lower is better, and for a single draw it is the absolute error. The
    fair form has the expectation of the score of the distribution itself, whatever the number of draws; the
    plain form is the score of the empirical distribution of the S draws, which penalises few draws.

    Parameters
    ----------
    truth : array-like of shape (n_cells,)
        The true values.
    draws : array-like of shape (n_draws, n_cells)
        Draws of each cell.
    fair : bool, default=True
        Whether to remove the bias of few draws.

    References
    ----------
    Gneiting & Raftery (2007), JASA 102, eq. 21; Ferro (2014), QJRMS 140, for the fair form.

    Examples
    --------
    >>> crps_draws([1.0], [[0.0], [2.0]]), crps_draws([1.0], [[0.0], [2.0]], fair=False)
    (array([0.]), array([0.5]))
    """
    z = np.asarray(unmask(truth), dtype=np.float64)
    x = np.asarray(unmask(draws), dtype=np.float64)
    if x.ndim != 2 or x.shape[1] != len(z):
        raise ValueError(f"Expected draws of shape (n_draws, {len(z)}), got {x.shape}.")
    n_draws = len(x)
    if n_draws == 0:
        raise ValueError("CRPS needs at least one draw.")
    error = np.abs(x - z).mean(axis=0)
    # Over sorted draws the sum of |x_s - x_t| over all pairs is 2 sum_s (2s - S - 1) x_(s), s from 1.
    weights = 2.0 * np.arange(1, n_draws + 1) - n_draws - 1
    pairs = 2 * weights @ np.sort(x, axis=0)
    count = n_draws * (n_draws - 1) if fair else n_draws**2
    scores: Floats = error - pairs / (2 * max(count, 1))
    return scores


def crps_gaussian(truth: npt.ArrayLike, loc: npt.ArrayLike, scale: npt.ArrayLike) -> Floats:
    r"""Returns the continuous ranked probability score of each cell under a Gaussian, in closed form.

    .. math:: \sigma \left[ w (2 \Phi(w) - 1) + 2 \varphi(w) - 1 / \sqrt{\pi} \right],
        \qquad w = (z - \mu) / \sigma

    Where the scale is 0 it is the absolute error. A location or scale may be one number for all cells.

    References
    ----------
    Gneiting et al. (2005), Monthly Weather Review 133, eq. 5.

    Examples
    --------
    >>> crps_gaussian(0.0, 0.0, 1.0).round(4)
    np.float64(0.2337)
    """
    z, mean, spread = _alike(truth, loc, scale)
    if (spread < 0).any():
        raise ValueError(f"scale must not be negative, got {spread.min():g}.")
    safe = np.where(spread > 0, spread, 1.0)
    w = (z - mean) / safe
    density = np.exp(-0.5 * w**2) / np.sqrt(2 * np.pi)
    exact = safe * (w * (2 * ndtr(w) - 1) + 2 * density - 1 / np.sqrt(np.pi))
    scores: Floats = np.where(spread > 0, exact, np.abs(z - mean))[()]
    return scores


def coverage(truth: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike) -> float:
    """Returns the fraction of true values within their intervals, ends included; it should equal the level.

    It is NaN if a true value or an end is.

    Examples
    --------
    >>> coverage([1.0, 2.0, 9.0, 4.0], [0.0, 2.0, 3.0, 3.0], [1.0, 3.0, 4.0, 5.0])
    0.75
    """
    z, lower, upper = _intervals(truth, low, high)
    inside = np.where(np.isnan(z + lower + upper), np.nan, (lower <= z) & (z <= upper))
    return float(inside.mean()) if len(inside) else float("nan")


def width(low: npt.ArrayLike, high: npt.ArrayLike) -> float:
    """Returns the mean width of intervals; at the same coverage, narrower is better.

    Examples
    --------
    >>> width([0.0, 1.0], [1.0, 4.0])
    2.0
    """
    _, lower, upper = _intervals(low, low, high)
    return float((upper - lower).mean()) if len(lower) else float("nan")


def interval_score(
    truth: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike, *, level: float = 0.9
) -> float:
    r"""Returns the mean interval score: the width plus a penalty for values outside of the interval.

    .. math:: (u - l) + \frac{2}{1 - c} \left[(l - z)_+ + (z - u)_+\right]

    for level c. Unlike coverage and width, it is a proper score.

    References
    ----------
    Gneiting & Raftery (2007), JASA 102, eq. 43.

    Examples
    --------
    >>> round(interval_score([1.0, 5.0], [0.0, 0.0], [2.0, 4.0], level=0.9), 6)
    13.0
    """
    check_level(level)
    z, lower, upper = _intervals(truth, low, high)
    missed = np.maximum(lower - z, 0) + np.maximum(z - upper, 0)
    scores = upper - lower + 2 / (1 - level) * missed
    return float(scores.mean()) if len(scores) else float("nan")


def r2_minus_bayes(y: npt.ArrayLike, predicted: npt.ArrayLike, bayes: npt.ArrayLike) -> float:
    r"""Returns the difference between the R2 of a prediction and that of the Bayes predictor; 0 is optimal.

    .. math:: R^2(y, \hat y) - R^2(y, y^\ast)
        = \frac{\sum_i (y_i - y^\ast_i)^2 - \sum_i (y_i - \hat y_i)^2}{\sum_i (y_i - \bar y)^2}

    Parameters
    ----------
    y, predicted, bayes : array-like of shape (n_samples,)
        The target, the prediction, and the Bayes predictor's prediction from the same incomplete rows.

    References
    ----------
    Le Morvan et al. (2020), NeuMiss networks, section 5.

    Examples
    --------
    >>> round(r2_minus_bayes([0.0, 1.0, 2.0, 3.0], [0.5, 1.0, 2.0, 2.5], [0.0, 1.0, 2.0, 3.0]), 6)
    -0.1
    """
    target = np.asarray(unmask(y), dtype=np.float64)
    total = float(((target - target.mean()) ** 2).sum())
    if total == 0:
        raise ValueError("R2 is undefined: the target has one value only.")
    return (float((_pair(target, bayes) ** 2).sum()) - float((_pair(target, predicted) ** 2).sum())) / total


def _pair(truth: npt.ArrayLike, filled: npt.ArrayLike) -> Floats:
    """Returns filled minus truth, both one-dimensional and of one length."""
    z, guess = np.asarray(unmask(truth), dtype=np.float64), np.asarray(unmask(filled), dtype=np.float64)
    if z.ndim != 1 or z.shape != guess.shape:
        raise ValueError(f"Expected cells of one shape (n_cells,), got {z.shape} and {guess.shape}.")
    difference: Floats = guess - z
    return difference


def _intervals(
    truth: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike
) -> tuple[Floats, Floats, Floats]:
    """Returns true values and the ends of their intervals; raises if an interval ends before it begins."""
    z, lower, upper = _alike(truth, low, high)
    crossed = np.flatnonzero(lower > upper)
    if len(crossed):
        first = crossed[0]
        raise ValueError(f"Interval {first} ends before it begins: {lower[first]:g} > {upper[first]:g}.")
    return z, lower, upper


def _alike(*cells: npt.ArrayLike) -> list[Floats]:
    """Returns arrays of one shape, from arrays that have it and single numbers."""
    arrays = [np.asarray(unmask(one), dtype=np.float64) for one in cells]
    if len({one.shape for one in arrays if one.ndim}) > 1:
        raise ValueError(f"Expected cells of one shape, got {', '.join(str(one.shape) for one in arrays)}.")
    return list(np.broadcast_arrays(*arrays))


def expected_calibration_error(y: npt.ArrayLike, probabilities: npt.ArrayLike, n_bins: int = 15) -> float:
    r"""Returns the expected calibration error: the mean difference between probabilities and frequencies.

    .. math:: \sum_{b=1}^B \frac{n_b}{n} \left| \frac1{n_b} \sum_{i \in b} a_i - \frac1{n_b}
        \sum_{i \in b} c_i \right|, \qquad i \in b \iff \tfrac{b - 1}B < c_i \le \tfrac bB

    where :math:`c_i` is the probability given to an event and :math:`a_i` is 1 if it happened, else 0. With
    one column the event is class 1. With one column per class it is that the likeliest class is the true one
    (the top label, the first of equals); other classes are ignored. It is not a proper score: predicting the
    frequency of each class for every row has no error. It is biased upwards by chance, the more so with more
    bins and fewer rows. The log-loss has neither problem.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        The classes, 0, 1, ...
    probabilities : array-like of shape (n_samples,) or (n_samples, n_classes)
        Of class 1, or of each class.
    n_bins : int, default=15
        The number B of bins, all of one width.

    References
    ----------
    Naeini, Cooper & Hauskrecht (2015), AAAI; Guo, Pleiss, Sun & Weinberger (2017), On calibration of modern
    neural networks, eq. 3.

    Examples
    --------
    >>> round(expected_calibration_error([0, 1, 1, 1], [0.2, 0.3, 0.8, 0.9], n_bins=2), 6)
    0.2
    """
    classes, chances = np.asarray(unmask(y)), np.asarray(unmask(probabilities), dtype=np.float64)
    if n_bins < 1:
        raise ValueError(f"n_bins must be at least 1, got {n_bins!r}.")
    if classes.ndim != 1 or chances.ndim not in (1, 2) or len(chances) != len(classes):
        raise ValueError(f"Expected a probability for each of y, {classes.shape}, got {chances.shape}.")
    if not ((chances >= 0) & (chances <= 1)).all():
        raise ValueError("Probabilities must be between 0 and 1.")
    n_classes = 2 if chances.ndim == 1 else chances.shape[1]
    if not np.isin(classes, np.arange(n_classes)).all():
        wrong = classes[~np.isin(classes, np.arange(n_classes))][0]
        raise ValueError(f"Class {wrong!r} is outside the {n_classes} classes that have a probability.")
    if not len(classes):
        return float("nan")
    event = classes == (1 if chances.ndim == 1 else chances.argmax(axis=1))
    confidence = chances if chances.ndim == 1 else chances.max(axis=1)
    place = np.searchsorted(np.linspace(0, 1, n_bins + 1)[1:-1], confidence)
    return float(np.abs(np.bincount(place, weights=event - confidence)).sum() / len(classes))


@dataclass(frozen=True)
class Downstream:
    """Scores of a predictor per fold; higher is better."""

    without: Floats  # using the completed columns only
    # Using the completed columns and a missingness indicator for each column that is incomplete in training.
    with_indicators: Floats

    @property
    def gain(self) -> float:
        """The mean gain by the missingness indicators."""
        return float((self.with_indicators - self.without).mean())


def downstream_score(
    estimator: Any,
    imputer: Any,
    X: Any,
    y: npt.ArrayLike,
    *,
    scoring: Any = None,
    n_splits: int = 5,
    schema: Any = None,
    random_state: Any = 0,
) -> Downstream:
    """Cross-validates a predictor on the completed table, with and without missingness indicators.

    In each fold the imputer and the predictor are fitted on training rows only; the target is never imputed
    and never seen by the imputer. The predictor gets standardised numbers and indicators of levels.

    Parameters
    ----------
    estimator : scikit-learn regressor or classifier
        The predictor that is trained on the completed table.
    imputer : imputer
        As in `halfseen.evaluation.protocol.compare`.
    X : pandas, polars or pyarrow table, or array-like of shape (n_samples, n_features)
        The incomplete table, without the target.
    y : array-like of shape (n_samples,)
        The target, without missing values.
    scoring : str or callable, optional
        As in scikit-learn: R2 or accuracy if not given.
    n_splits : int, default=5
        The number of folds, which are stratified for a classifier.
    schema : mapping, optional
        Column kinds, as in the imputers.
    random_state : int, numpy generator or None, default=0
        Seeds folds and imputer.

    References
    ----------
    Le Morvan & Varoquaux (2024), Imputation for prediction, arXiv 2407.19804.

    Examples
    --------
    >>> from sklearn.impute import SimpleImputer
    >>> from sklearn.linear_model import LinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 2))
    >>> y = X[:, 0] + 2.0 * (X[:, 0] > 1)
    >>> X[X[:, 0] > 1, 0] = np.nan
    >>> downstream_score(LinearRegression(), SimpleImputer(), X, y).gain > 0.1
    True
    """
    table = CodedTable.read(X, schema)
    target = np.asarray(check_not_masked(y, "y"))
    if len(target) != len(table.codes):
        raise ValueError(f"X has {len(table.codes)} rows, y has {len(target)}.")
    seed = seed_from(random_state)
    fold = StratifiedKFold if is_classifier(estimator) else KFold
    splits = fold(n_splits, shuffle=True, random_state=seed % 2**31).split(table.codes, target)
    scores = [
        _score_fold(estimator, imputer, table, target, *split, scoring=scoring, seed=seed) for split in splits
    ]
    without, with_indicators = np.array(scores).T
    return Downstream(without, with_indicators)


def _score_fold(
    estimator: Any,
    imputer: Any,
    table: CodedTable,
    y: npt.NDArray[Any],
    train: Integers,
    test: Integers,
    *,
    scoring: Any,
    seed: int,
) -> tuple[float, float]:
    candidate = enter(imputer, table, seed)
    candidate.fit(table.codes[train])
    filled = [Incomplete.from_array(candidate.fill(table.codes[rows])) for rows in (train, test)]
    features = FeatureMap.fit(table.columns, filled[0], all_indicators=True)
    design = [features.encode(one).to_array() for one in filled]
    missing = np.isnan(table.codes)
    varying = missing[train].any(axis=0)
    marked = [np.c_[x, missing[rows][:, varying]] for x, rows in zip(design, (train, test), strict=True)]
    scores = []
    for x_train, x_test in (design, marked):
        model = clone(estimator).fit(x_train, y[train])
        scores.append(float(check_scoring(model, scoring)(model, x_test, y[test])))
    return scores[0], scores[1]
