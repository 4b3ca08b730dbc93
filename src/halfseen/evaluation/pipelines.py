"""Predictors on completed tables: constants with indicators, one imputation, or several."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, clone

from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.schema import Column

Floats = npt.NDArray[np.float64]


@dataclass(eq=False, repr=False)
class OnCompleted(BaseEstimator):
    """A predictor of complete rows, after missing values were replaced.

    It takes codes (N, C) with NaN, as `halfseen.evaluation.coded.CodedTable` has them. The predictor gets
    standardised numbers, indicators of levels and, with `indicators`, an indicator of missingness for each
    column that is incomplete in training.

    Parameters
    ----------
    predictor : scikit-learn regressor or classifier
        The predictor of complete rows.
    columns : sequence of Column
        The columns of the codes.
    imputer : imputer, optional
        Completes the codes. Without it, a missing value becomes the mean of its column, or of the indicators
        of its levels.
    indicators : bool, default=True
        Whether the predictor sees which values were missing.
    n_draws : int, default=0
        The number of draws of multiple imputation: for each draw a predictor of its own is fitted to the
        drawn training rows, and the predictions for the drawn new rows are averaged. With 0 there is one
        predictor, of the single values that ``transform`` returns.
    """

    predictor: Any
    columns: Sequence[Column]
    _: KW_ONLY
    imputer: Any = None
    indicators: bool = True
    n_draws: int = 0

    def fit(self, codes: Floats, y: npt.NDArray[Any]) -> "OnCompleted":
        """Fits the imputer to the training rows, then the predictor to the completed rows."""
        self.imputer_ = None if self.imputer is None else clone(self.imputer).fit(codes)
        self.incomplete_ = np.isnan(codes).any(axis=0)
        completed = self._completed(codes)
        first = Incomplete.from_array(codes if self.imputer_ is None else completed[0])
        self.features_ = FeatureMap.fit(self.columns, first, all_indicators=False)
        self.predictors_ = [clone(self.predictor).fit(self._design(one, codes), y) for one in completed]
        return self

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """The classes of a classifier."""
        classes: npt.NDArray[Any] = self.predictors_[0].classes_
        return classes

    def predict(self, codes: Floats) -> npt.NDArray[Any]:
        """Returns the mean prediction over the draws, or the most probable class."""
        if hasattr(self.predictors_[0], "predict_proba"):
            return self.classes_[self.predict_proba(codes).argmax(axis=1)]
        return self._average(codes, "predict")

    def predict_proba(self, codes: Floats) -> Floats:
        """Returns the mean probability of each class over the draws."""
        return self._average(codes, "predict_proba")

    def _average(self, codes: Floats, method: str) -> Floats:
        answers = [
            getattr(predictor, method)(self._design(one, codes))
            for predictor, one in zip(self.predictors_, self._completed(codes), strict=True)
        ]
        mean: Floats = np.mean(answers, axis=0)
        return mean

    def _completed(self, codes: Floats) -> Sequence[Floats]:
        if self.imputer_ is None:
            return [codes]
        if self.n_draws:
            return list(self.imputer_.sample(codes, n_draws=self.n_draws))
        return [self.imputer_.transform(codes)]

    def _design(self, completed: Floats, codes: Floats) -> Floats:
        encoded = self.features_.encode(Incomplete.from_array(completed))
        design: Floats = np.where(encoded.observed.numpy(), encoded.x.numpy(), 0.0)
        return np.c_[design, np.isnan(codes)[:, self.incomplete_]] if self.indicators else design
