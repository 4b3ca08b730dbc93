"""A recommender: ratings of items by users, another kind of data without a schema.

It shows the interface of the family: `fit` takes a frame with the columns user, item and rating, and
`predict` takes users and items.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import narwhals as nw
import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from halfseen.base.model_file import Saveable
from halfseen.base.parameters import all_or_nothing, check_number


@dataclass(eq=False, repr=False)
class RatingMeans(Saveable, BaseEstimator):
    r"""Predicts a rating by the mean of its item, shrunk towards the mean of all ratings.

    .. math:: \hat r_{ui} = \frac{\sum_{v} r_{vi} + \lambda \bar r}{n_i + \lambda}

    Valid if ratings are missing completely at random.

    Parameters
    ----------
    shrinkage : float, default=5.0
        The number :math:`\lambda` of pseudo-ratings, with the mean rating, that each item has.
    random_state : int, numpy generator or None, default=None
        Not used: nothing is random.

    Examples
    --------
    >>> import pandas as pd
    >>> ratings = pd.DataFrame({"user": ["a", "b", "b"], "item": ["x", "x", "y"], "rating": [5, 4, 1]})
    >>> RatingMeans(shrinkage=1.0).fit(ratings).predict(["a", "a"], ["y", "unknown"]).round(2)
    array([2.17, 3.33])
    """

    _saved: ClassVar[tuple[str, ...]] = ("items_",)

    shrinkage: float = 5.0
    _: KW_ONLY
    random_state: Any = None

    @all_or_nothing
    def fit(self, ratings: Any, y: Any = None) -> "RatingMeans":
        """Learns the mean of each item from a frame with the columns user, item and rating."""
        check_number("shrinkage", self.shrinkage, lambda v: 0 < v < np.inf, "positive and finite")
        frame = nw.from_native(ratings, eager_only=True)
        absent = [name for name in ("user", "item", "rating") if name not in frame.columns]
        if absent:
            raise ValueError(f"The ratings have no column {absent[0]!r}; they have {frame.columns}.")
        numbers = frame["rating"].to_numpy().astype(np.float64)
        if len(numbers) == 0 or not np.isfinite(numbers).all():
            raise ValueError("Ratings must be finite numbers, and at least one: leave out missing ratings.")
        items, codes = np.unique(frame["item"].to_numpy().astype(str), return_inverse=True)
        totals = np.bincount(codes, weights=numbers) + self.shrinkage * numbers.mean()
        self.items_ = items.tolist()
        means = totals / (np.bincount(codes) + self.shrinkage)
        self._means = torch.from_numpy(np.append(means, numbers.mean()))  # the last is that of unknown items
        return self

    def predict(self, users: Any, items: Any) -> npt.NDArray[np.float64]:
        """Returns the expected rating of each pair; an unknown item has the mean of all ratings."""
        check_is_fitted(self)
        wanted, known = np.asarray(items).astype(str), np.asarray(self.items_)
        if len(wanted) != len(np.asarray(users)):
            raise ValueError(f"There are {len(np.asarray(users))} users for {len(wanted)} items.")
        places = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        expected: npt.NDArray[np.float64] = self._means.numpy()
        return expected[np.where(known[places] == wanted, places, len(known))]

    def _state(self) -> dict[str, Tensor]:
        return {"means": self._means}

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        texts = isinstance(self.items_, list) and all(isinstance(item, str) for item in self.items_)
        if not texts or not self.items_ or self.items_ != sorted(set(self.items_)):
            raise ValueError("the items are not different texts in order")
        if state["means"].shape != (len(self.items_) + 1,) or state["means"].dtype != torch.float64:
            raise ValueError(f"there are {len(state['means'])} means of {len(self.items_)} items")
        self._means = state["means"]
