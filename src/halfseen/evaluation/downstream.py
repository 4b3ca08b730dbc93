"""Scores of imputers by the accuracy of a predictor that is trained on the completed table."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import KFold, StratifiedKFold

from halfseen._random import seed_from
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete, check_not_masked
from halfseen.evaluation.candidates import CodedTable, enter

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Downstream:
    """Scores of a predictor per fold; higher is better.

    Attributes
    ----------
    without : ndarray of shape (n_splits,)
        Using the completed columns only.
    with_indicators : ndarray of shape (n_splits,)
        Using the completed columns and a missingness indicator for each column that is incomplete in
        training.
    """

    without: Floats
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
    train: npt.NDArray[np.int64],
    test: npt.NDArray[np.int64],
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
