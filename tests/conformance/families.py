"""Small data for each family of estimators of other data than tables, and how they are asked."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from halfseen.base.catalogue import Family

QUESTIONS = ("predict", "predict_proba", "transform", "score_samples")


@dataclass(frozen=True)
class ArrayData:
    """An array whose first axis is rows, a class for each row, and what else belongs to the rows."""

    X: np.ndarray
    y: np.ndarray
    extra: dict[str, np.ndarray] = field(default_factory=dict)  # further arguments, such as lengths

    def fit(self, estimator):
        return estimator.fit(self.X, self.y, **self.extra)

    def ask(self, estimator, questions=QUESTIONS):
        """All answers, with the rows on their first axis."""
        asked = [name for name in questions if hasattr(estimator, name)]
        return {name: np.asarray(getattr(estimator, name)(self.X, **self.extra)) for name in asked}

    def take(self, rows):
        return ArrayData(
            self.X[rows], self.y[rows], {name: value[rows] for name, value in self.extra.items()}
        )

    def copy(self):
        return copy.deepcopy(self)

    def broken(self, estimator):
        """What `fit` refuses: infinity, and a target that is too short where there is one."""
        infinite = self.X.copy()
        infinite.flat[0] = np.inf
        short = [replace(self, y=self.y[:-1])] if hasattr(estimator, "predict") else []
        return [replace(self, X=infinite), *short]

    def cells(self):
        return [self.X, self.y, *self.extra.values()]


@dataclass(frozen=True)
class RatingData:
    """Ratings as a frame; the rows are the pairs whose ratings are predicted."""

    frame: pd.DataFrame

    def fit(self, estimator):
        return estimator.fit(self.frame)

    def ask(self, estimator, questions=("predict",)):
        return {"predict": np.asarray(estimator.predict(self.frame["user"], self.frame["item"]))}

    def take(self, rows):
        return RatingData(self.frame.iloc[rows])

    def copy(self):
        return RatingData(self.frame.copy())

    def broken(self, estimator):
        return [RatingData(self.frame.assign(rating=np.nan))]

    def cells(self):
        return [self.frame[name].to_numpy() for name in self.frame]


def sequences(seed=0, n_rows=60):
    """Sequences of unequal lengths; the first feature is never missing, and decides the class at the end."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 5, 2)) * [1.0, 100.0]
    lengths = rng.integers(2, 6, size=n_rows)
    X[rng.random(X.shape) < [0.0, 0.3]] = np.nan
    y = np.where(X[np.arange(n_rows), lengths - 1, 0] > 0, "up", "down")
    X[np.arange(5) >= lengths[:, None]] = np.nan
    return ArrayData(X, y, {"lengths": lengths})


def images(seed=0, n_rows=24):
    """Dark and bright images of 8 x 8 pixels in 4 shades; the first row of pixels is never missing."""
    rng = np.random.default_rng(seed)
    bright = rng.random(n_rows) < 0.5
    X = np.clip(rng.integers(0, 3, size=(n_rows, 8, 8)) + bright[:, None, None], 0, 3).astype(float)
    X[:, 1:][rng.random((n_rows, 7, 8)) < 0.3] = np.nan
    return ArrayData(X, np.where(bright, "bright", "dark"))


def binary(seed=0, n_rows=60):
    rng = np.random.default_rng(seed)
    X = (rng.random((n_rows, 5)) < [0.1, 0.5, 0.5, 0.9, 0.3]).astype(float)
    return ArrayData(X, X[:, 0])


def expression(seed=0, n_rows=30):
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((n_rows, 6)) < 0.4, 0.0, rng.gamma(5.0, size=(n_rows, 6)))
    return ArrayData(X, X[:, 0])


def ratings(seed=0, n_rows=80):
    """Ratings of ten items or, of more than a thousand rows, of as many items as a user rates on average."""
    rng = np.random.default_rng(seed)
    n_items = 10 if n_rows <= 1000 else round(n_rows**0.5)
    n_users = 12 if n_rows <= 1000 else 10 * n_items
    pairs = rng.permutation(n_users * n_items)[:n_rows]
    users, items = pairs // n_items, pairs % n_items
    rating = np.clip(np.round(3 + 2 * items / n_items - 1 + rng.normal(size=n_rows)), 1, 5)
    return RatingData(
        pd.DataFrame({"user": [f"u{u}" for u in users], "item": [f"i{i}" for i in items], "rating": rating})
    )


DATA: dict[Family, Callable[..., Any]] = {
    Family.IMAGES: images,
    Family.RATINGS: ratings,
    Family.SEQUENCES: sequences,
    Family.BINARY: binary,
    Family.EXPRESSION: expression,
}
