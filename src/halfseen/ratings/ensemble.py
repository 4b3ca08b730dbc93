"""A weighted sum of recommenders, with weights chosen on held-out ratings."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.optimize
import scipy.sparse
import torch
from sklearn.base import clone
from torch import Tensor

from halfseen.base.parameters import check_number, documented_by
from halfseen.data.sparse import SparseRows
from halfseen.ratings.autorec import AutoRec
from halfseen.ratings.matrix_factorization import MatrixFactorization
from halfseen.ratings.recommender import RATING_ATTRIBUTES, RATING_DESCRIPTIONS, Recommender, hold_out
from halfseen.ratings.table import Floats, Positions, Ratings

PRIOR = 10.0  # held-out ratings that equal weights count as


@documented_by(
    {
        **RATING_DESCRIPTIONS,
        "random_state": (
            "int, numpy generator or None",
            "Seeds the held-out ratings and the recommenders.",
        ),
    },
    RATING_ATTRIBUTES,
)
@dataclass(eq=False, repr=False)
class RatingEnsemble(Recommender):
    r"""Rating prediction by a weighted sum of recommenders.

    .. math:: \hat r_{ui} = \bar r + \sum_m w_m \, (\hat r^{(m)}_{ui} - \bar r), \qquad w_m \ge 0

    The weights are those of least squares on held-out ratings, shrunk slightly towards equal ones; then all
    recommenders are fitted again, on all ratings. Ratings are assumed to be missing at random given the
    observed ratings.

    Parameters
    ----------
    models : list of recommenders, optional
        By default `AutoRec` with rows of items, `AutoRec` with rows of users, and `MatrixFactorization`. The
        networks are not shrunk towards offsets one by one, since the factorisation has offsets and the
        weights shrink all of them.
    validation_fraction : float, default=0.05
        The fraction of ratings held out for the weights, at most 10,000 ratings; with fewer than 50 ratings
        the weights are equal.

    Attributes
    ----------
    weights_ : list of float
        The weight of each recommender.
    members_ : list of recommenders
        Fitted to all ratings. Their users and items are positions in ``users_`` and ``items_``.

    Examples
    --------
    >>> import pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> pairs = rng.choice(30 * 20, size=300, replace=False)
    >>> user, item = pairs // 20, pairs % 20
    >>> ratings = pd.DataFrame({"user": user, "item": item, "rating": np.clip(1 + user % 3 + item % 3, 1, 5)})
    >>> models = [AutoRec(n_hidden=20, max_epochs=5), MatrixFactorization(n_factors=4)]
    >>> model = RatingEnsemble(models, random_state=0).fit(ratings)
    >>> model.weights_[1] > model.weights_[0]
    True
    """

    rows: ClassVar[str] = "user"  # type: ignore[misc]
    _saved: ClassVar[tuple[str, ...]] = ("weights_", "mean_")

    models: Sequence[Recommender] | None = None
    _: KW_ONLY
    validation_fraction: float = 0.05

    def _train_on(self, read: Ratings, generator: torch.Generator) -> None:
        ratings = SparseRows.from_scipy(read.matrix)
        self.mean_ = float(read.matrix.data.mean())
        models = self._models()
        train, held = hold_out(ratings, self.validation_fraction, generator)
        seeds = torch.randint(2**31, (len(models),), generator=generator).tolist()
        self.weights_ = [1.0 / len(models)] * len(models)
        if held is not None:
            members = self._fit_members(models, seeds, train)
            pairs = held.rows.numpy(), held.columns.long().numpy()
            predicted = np.stack([self._clipped(member._predict_pairs(*pairs)) for member in members], axis=1)
            self.weights_ = _find_weights(predicted - self.mean_, held.values.double().numpy() - self.mean_)
        self.members_ = self._fit_members(models, seeds, ratings)
        self._keep_ratings(ratings)

    def _models(self) -> Sequence[Recommender]:
        if self.models is None:
            return [AutoRec("item", shrink=False), AutoRec("user", shrink=False), MatrixFactorization()]
        return self.models

    def _fit_members(
        self, models: Sequence[Recommender], seeds: Sequence[int], ratings: SparseRows
    ) -> list[Recommender]:
        entries = (ratings.values.double().numpy(), ratings.columns.numpy(), ratings.starts.numpy())
        matrix = scipy.sparse.csr_array(entries, shape=(len(ratings), ratings.n_columns))
        return [
            clone(model).set_params(random_state=seed).fit(matrix)
            for model, seed in zip(models, seeds, strict=True)
        ]

    def _weighted(self, predicted: Sequence[Floats]) -> Floats:
        weighted: Floats = self.mean_ + np.tensordot(
            np.array(self.weights_), np.stack([self._clipped(one) for one in predicted]) - self.mean_, axes=1
        )
        return weighted

    def _predict_pairs(self, user: Positions, item: Positions) -> Floats:
        return self._weighted([member._predict_pairs(user, item) for member in self.members_])

    def _predict_items(self, user: int) -> Floats:
        return self._weighted([member._predict_items(user) for member in self.members_])

    def _fold_in(self, rated: Tensor, values: Tensor) -> Floats:
        return self._weighted([member._fold_in(rated, values) for member in self.members_])

    def _check_parameters(self) -> None:
        check_number("validation_fraction", self.validation_fraction, lambda v: 0 <= v < 1, "in [0, 1)")
        if self.models is None:
            return
        if not isinstance(self.models, list | tuple) or not self.models:
            raise ValueError(f"models must be a list of recommenders, got {self.models!r}.")
        for model in self.models:
            if not isinstance(model, Recommender):
                raise ValueError(f"models must be recommenders, got {model!r}.")

    def _entries(self) -> dict[str, Any]:
        return super()._entries() | {"default": self.models is None}

    def _state(self) -> dict[str, Tensor]:
        return self._rating_state()

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        self._restore_ratings(state)

    def _members(self) -> Sequence[Recommender]:
        return self.members_

    def _set_members(self, members: list[Any], description: Mapping[str, Any]) -> None:
        if len(members) != len(self.weights_):
            raise ValueError(f"there are {len(self.weights_)} weights of {len(members)} recommenders")
        if not all(type(weight) in (int, float) and 0 <= weight < np.inf for weight in self.weights_):
            raise ValueError(f"the weights of recommenders are {self.weights_!r:.60}")
        for position, member in enumerate(members):
            if not isinstance(member, Recommender) or member._shape not in (self._shape, self._shape[::-1]):
                raise ValueError(f"recommender {position} is not one of these users and items")
        self.members_ = members
        if not description["default"]:
            self.models = [clone(member).set_params(random_state=None) for member in members]


def _find_weights(predicted: Floats, truth: Floats) -> list[float]:
    """Returns weights of at least 0 by least squares, for predictions (M, n_models), near equal ones."""
    n_models = predicted.shape[1]
    strength = np.sqrt(PRIOR * max(predicted.var(), 1e-12))
    design = np.vstack([predicted, strength * np.eye(n_models)])
    target = np.concatenate([truth, np.full(n_models, strength / n_models)])
    found, _ = scipy.optimize.nnls(design, target)
    return [float(weight) for weight in found]
