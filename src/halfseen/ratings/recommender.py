"""The base class of recommenders: reading, prediction, recommendation, new users or items, and losses.

Losses are squared errors of observed entries, and the ordinal cost of levels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from halfseen._arrays import Booleans, Floats
from halfseen._random import seed_from, torch_generator
from halfseen._threads import task_threads
from halfseen.base.model_file import Saveable
from halfseen.base.parameters import Descriptions, TypesAndTexts, all_or_nothing, check_whole, finite_answer
from halfseen.ratings.table import (
    Identifiers,
    Positions,
    Ratings,
    SparseRows,
    check_rating_range,
    read_ratings,
)
from halfseen.training.loop import SMALLEST_SPLIT
from halfseen.training.step import WithoutNoise

PRIOR = 5.0  # number of pseudo-ratings at the mean that a row or column has
PASSES = 10


@dataclass(frozen=True)
class RatingOffsets:
    r"""The regularised sum of a mean, an offset of the row and an offset of the column.

    .. math:: \hat r_{ij} = \bar r + a_i + b_j, \qquad
              a_i = \frac{\sum_{j \in o_i} (r_{ij} - \bar r - b_j)}{c_i + \kappa}

    and likewise :math:`b_j`; a row or column without ratings has the offset 0.
    """

    mean: float
    row: Floats
    column: Floats
    row_counts: Positions
    column_counts: Positions

    @classmethod
    def fit(cls, ratings: SparseRows) -> "RatingOffsets":
        """Learns the offsets by a few passes of alternating means."""
        rows, columns = ratings.rows.numpy(), ratings.columns.long().numpy()
        values = ratings.values.double().numpy()
        row_counts = np.bincount(rows, minlength=len(ratings))
        column_counts = np.bincount(columns, minlength=ratings.n_columns)
        mean = float(values.mean())
        row, column = np.zeros(len(ratings)), np.zeros(ratings.n_columns)
        for _ in range(PASSES):
            rest = values - mean - row[rows]
            column = np.bincount(columns, rest, ratings.n_columns) / (column_counts + PRIOR)
            rest = values - mean - column[columns]
            row = np.bincount(rows, rest, len(ratings)) / (row_counts + PRIOR)
        return cls(mean, row, column, row_counts, column_counts)

    def predict(self, rows: Positions, columns: Positions) -> Floats:
        """Returns predictions of entries; positions of -1 are rows or columns that are not known."""
        row = np.where(rows >= 0, self.row[rows], 0.0)
        return self.mean + row + np.where(columns >= 0, self.column[columns], 0.0)

    def predict_new_row(self, columns: Positions, values: Floats) -> Floats:
        """Returns predictions of all columns in a row that was not in `fit`, with these entries."""
        rest = values - self.mean - self.column[columns]
        new: Floats = self.mean + float(rest.sum()) / (len(values) + PRIOR) + self.column
        return new

    def predict_new_column(self, rows: Positions, values: Floats) -> Floats:
        """Returns predictions of all rows in a column that was not in `fit`, with these entries."""
        rest = values - self.mean - self.row[rows]
        new: Floats = self.mean + float(rest.sum()) / (len(values) + PRIOR) + self.row
        return new

    def is_warm(self, rows: Positions, columns: Positions) -> Booleans:
        """Returns for which entries both the row and the column have ratings."""
        warm: Booleans = (self.row_counts[rows] > 0) & (self.column_counts[columns] > 0)
        return warm


ROWS = ("item", "user")
MIN_RATINGS = 5
"""The fewest ratings of an item that is recommended before others: as many as `PRIOR`, because the estimated
offset of an item with fewer depends less on its own ratings than on the prior. Not tuned."""
MOST_HELD_OUT = (
    10_000  # the standard error of their error is below 1%; the others are better used in training
)

RATING_DESCRIPTIONS: Descriptions = {
    "rating_range": (
        "pair of float",
        "The ends of the rating scale. By default those of the ratings in `fit`. Predictions stay within "
        "them.",
    )
}
"""Parameters that all recommenders share."""

RATING_ATTRIBUTES: TypesAndTexts = {
    "users_, items_": ("arrays", "The identifiers of `fit`, sorted."),
    "rating_range_": ("tuple of float", "The ends of the rating scale."),
}
"""The fitted attributes of all recommenders."""


@dataclass(eq=False, repr=False, kw_only=True)
class Recommender(Saveable, BaseEstimator):
    """The base class of recommenders.

    A subclass has ``rows``, "user" or "item", as a parameter or as an attribute of the class. It declares

    - `_check_parameters`, which raises on a parameter out of range;
    - `_train(ratings, generator)`, which learns from `SparseRows` of users or of items;
    - `_score_entries(rows, columns)`, which predicts entries of these rows;
    - `_score_items(user)`, which predicts the ratings of all items by one user;
    - `_fold_in(rated, values)`, which predicts those of a new user.
    """

    _saved: ClassVar[tuple[str, ...]] = ("rating_range_", "_identifiers")

    rows: str = field(init=False)
    rating_range: tuple[float, float] | None = None
    random_state: Any = None

    @all_or_nothing
    @task_threads()
    def fit(self, ratings: Any, y: Any = None) -> Self:
        """Learns from observed ratings.

        Parameters
        ----------
        ratings : pandas, polars or pyarrow table, or scipy sparse matrix of shape (n_users, n_items)
            A table has the columns ``user``, ``item`` and ``rating``, other columns are ignored; users and
            items are whole numbers or text. In a matrix each stored entry is a rating, also a stored zero.
        y : ignored
            Present for the scikit-learn interface.
        """
        self._check_parameters()
        read = read_ratings(ratings)
        self.rating_range_ = check_rating_range(read.matrix.data, self.rating_range)
        self._identifiers = {"user": list(read.users.values), "item": list(read.items.values)}
        self.seed_ = seed_from(self.random_state)
        self._read_identifiers()
        self._train_on(read, torch_generator(self.seed_))
        return self

    @property
    def users_(self) -> npt.NDArray[Any]:
        """The users of `fit`, sorted."""
        return self._known["user"].array()

    @property
    def items_(self) -> npt.NDArray[Any]:
        """The items of `fit`, sorted."""
        return self._known["item"].array()

    @property
    def item_counts_(self) -> Positions:
        """The number of ratings of each of ``items_`` in `fit`."""
        return self._offsets.column_counts if self.rows == "user" else self._offsets.row_counts

    @task_threads()
    @torch.no_grad()
    @finite_answer
    def predict(self, users: Any, items: Any) -> Floats:
        """Returns the predicted rating of each pair of a user and an item.

        The two arguments have the same length, or one of them is a single identifier. A user or item without
        ratings in `fit` gets the mean of the other, or the mean of all ratings.
        """
        check_is_fitted(self)
        user, item = self._positions("user", users), self._positions("item", items)
        if len(user) != len(item) and 1 not in (len(user), len(item)):
            raise ValueError(
                f"There are {len(user)} users and {len(item)} items: give equally many, or one of them."
            )
        return self._clipped(self._predict_pairs(*np.broadcast_arrays(user, item)))

    @task_threads()
    @torch.no_grad()
    def recommend(
        self, user: Any, k: int = 10, *, min_ratings: int = MIN_RATINGS
    ) -> tuple[npt.NDArray[Any], Floats]:
        """Returns the items with the highest predicted ratings that a user has not rated, best first.

        Parameters
        ----------
        user : int or str
            A user of `fit`.
        k : int, default=10
            The number of items.
        min_ratings : int, default=5
            Items with fewer ratings in `fit` come after all others, whatever their predicted ratings, because
            one or two high ratings say little about an item. 0 orders all items by their predicted ratings.

        Returns
        -------
        items : array of at most `k` identifiers
        ratings : array of their predicted ratings
        """
        check_whole("k", k, 1)
        check_whole("min_ratings", min_ratings, 0)
        check_is_fitted(self)
        position = self._positions("user", user)
        if len(position) != 1:
            raise ValueError(f"recommend takes one user, got {len(position)}.")
        if position[0] < 0:
            raise ValueError(
                f"User {user!r} has no rating in fit. Use recommend_new with ratings of "
                "the user, or fit again."
            )
        predicted = self._clipped(self._predict_items(int(position[0])))
        return self._best(predicted, self._rated_items(int(position[0])), k, min_ratings)

    @task_threads()
    @torch.no_grad()
    def predict_new(self, items: Any, ratings: Any) -> Floats:
        """Returns the predicted ratings of all ``items_`` for a new user who gave these ratings.

        Nothing is refitted.
        """
        check_is_fitted(self)
        rated = self._positions("item", items)
        given = np.asarray(ratings, dtype=np.float64).reshape(-1)
        self._check_new(items, rated, given)
        order = np.argsort(rated)
        return self._clipped(self._fold_in(torch.from_numpy(rated[order]), torch.from_numpy(given[order])))

    def recommend_new(
        self, items: Any, ratings: Any, k: int = 10, *, min_ratings: int = MIN_RATINGS
    ) -> tuple[npt.NDArray[Any], Floats]:
        """Returns the best items for a new user who gave these ratings, and their predicted ratings.

        Items are in the order of `recommend`.
        """
        check_whole("k", k, 1)
        check_whole("min_ratings", min_ratings, 0)
        predicted = self.predict_new(items, ratings)
        return self._best(predicted, self._positions("item", items), k, min_ratings)

    def score(self, ratings: Any, y: Any = None) -> float:
        """Returns the negative root mean squared error of predictions of other ratings; larger is better."""
        check_is_fitted(self)
        other = read_ratings(ratings)
        entries = other.matrix.tocoo()
        users, items = other.users.array()[entries.row], other.items.array()[entries.col]
        return -float(np.sqrt(np.mean((self.predict(users, items) - entries.data) ** 2)))

    def _check_parameters(self) -> None:
        raise NotImplementedError

    def _train(self, ratings: SparseRows, generator: torch.Generator) -> None:
        raise NotImplementedError

    def _score_entries(self, rows: Positions, columns: Positions) -> Floats:
        raise NotImplementedError

    def _score_items(self, user: int) -> Tensor:
        raise NotImplementedError

    def _fold_in(self, rated: Tensor, values: Tensor) -> Floats:
        raise NotImplementedError

    def _train_on(self, read: Ratings, generator: torch.Generator) -> None:
        oriented = read.matrix if self.rows == "user" else scipy.sparse.csr_array(read.matrix.T)
        oriented.sort_indices()
        ratings = SparseRows.from_scipy(oriented)
        self._train(ratings, generator)
        self._keep_ratings(ratings)

    def _keep_ratings(self, ratings: SparseRows) -> None:
        """Stores the ratings and their means, which predictions need."""
        self._ratings = ratings
        self._offsets = RatingOffsets.fit(ratings)

    def _read_identifiers(self) -> None:
        self._known = {what: Identifiers(tuple(ids), what) for what, ids in self._identifiers.items()}

    def _positions(self, what: str, asked: Any) -> Positions:
        return self._known[what].positions(asked)

    def _oriented(self, user: Any, item: Any) -> tuple[Any, Any]:
        """Returns rows and columns of users and items."""
        return (user, item) if self.rows == "user" else (item, user)

    def _predict_pairs(self, user: Positions, item: Positions) -> Floats:
        """Returns predictions of pairs; a position of -1 is an unknown user or item."""
        predicted = self._offsets.predict(*self._oriented(user, item))
        known = (user >= 0) & (item >= 0)
        rows, columns = self._oriented(user[known], item[known])
        warm = self._offsets.is_warm(rows, columns)
        predicted[np.flatnonzero(known)[warm]] = self._score_entries(rows[warm], columns[warm])
        return predicted

    def _predict_items(self, user: int) -> Floats:
        """Returns the predicted ratings of all items by one user."""
        items = np.arange(len(self._known["item"]))
        entries = self._oriented(np.full(len(items), user), items)
        warm = self._offsets.is_warm(*entries)
        return np.where(warm, self._score_items(user).double().numpy(), self._offsets.predict(*entries))

    def _rated_items(self, user: int) -> Positions:
        if self.rows == "user":
            return self._ratings[user : user + 1].columns.long().numpy()
        starts, rows, _ = self._ratings.transposition
        return rows[starts[user] : starts[user + 1]].long().numpy()

    def _best(
        self, predicted: Floats, rated: Positions, k: int, min_ratings: int
    ) -> tuple[npt.NDArray[Any], Floats]:
        candidates = np.setdiff1d(np.arange(len(predicted)), rated)
        has_few = self.item_counts_[candidates] < min_ratings
        order = candidates[np.lexsort((-predicted[candidates], has_few))][:k]
        return self.items_[order], predicted[order]

    def _clipped(self, predicted: Floats) -> Floats:
        return np.clip(predicted, *self.rating_range_)

    def _check_new(self, items: Any, rated: Positions, given: Floats) -> None:
        if len(rated) != len(given):
            raise ValueError(f"There are {len(rated)} items and {len(given)} ratings: give one of each.")
        if (rated < 0).any():
            unknown = np.asarray(items, dtype=object).reshape(-1)[rated < 0][0]
            raise ValueError(f"Item {unknown!r} has no rating in fit. Leave it out, or fit again.")
        if len(np.unique(rated)) < len(rated):
            raise ValueError("An item has more than one rating. Keep one rating of each.")
        empty = np.flatnonzero(np.isnan(given))
        if len(empty):
            item = np.asarray(items, dtype=object).reshape(-1)[empty[0]]
            raise ValueError(f"The rating of item {item!r} is missing. Leave out items without a rating.")
        check_rating_range(given, self.rating_range_)

    @property
    def _shape(self) -> tuple[int, int]:
        """The number of rows and columns."""
        n_rows, n_columns = self._oriented(len(self._known["user"]), len(self._known["item"]))
        return n_rows, n_columns

    def _rating_state(self) -> dict[str, Tensor]:
        """Returns the tensors of the ratings, for the model file."""
        names = ("starts", "columns", "values")
        return {f"ratings.{name}": getattr(self._ratings, name) for name in names}

    def _restore_ratings(self, state: Any) -> None:
        """Restores identifiers and ratings from the file."""
        self._check_parameters()
        _check_identifiers(self._identifiers)
        self._read_identifiers()
        starts, columns, values = (state[f"ratings.{name}"] for name in ("starts", "columns", "values"))
        ratings = SparseRows.checked(starts, columns, values, self._shape)
        self.rating_range_ = check_rating_range(ratings.values.double().numpy(), self.rating_range_)
        self._keep_ratings(ratings)


def _check_identifiers(identifiers: Mapping[str, Sequence[Any]]) -> None:
    """Raises a ValueError unless a file has users and items, each sorted: 64-bit whole numbers or text."""
    if identifiers.keys() != {"user", "item"}:
        raise ValueError(f"there are identifiers of {sorted(identifiers)}")
    for what, ids in identifiers.items():
        numbers = all(type(one) is int and -(2**63) <= one < 2**63 for one in ids)
        if not numbers and not all(isinstance(one, str) for one in ids):
            raise ValueError(f"the identifiers of {what}s are neither whole numbers nor text")
        if list(ids) != sorted(ids):
            raise ValueError(f"the identifiers of {what}s are not sorted")


def hold_out(
    ratings: SparseRows, fraction: float, generator: torch.Generator
) -> tuple[SparseRows, SparseRows | None]:
    """Returns ratings to train on and some held out, chosen at random; none of fewer than 50 ratings."""
    n_ratings = len(ratings.values)
    n_held = min(round(fraction * n_ratings), MOST_HELD_OUT)
    if n_held == 0 or n_ratings < SMALLEST_SPLIT:
        return ratings, None
    held = torch.zeros(n_ratings, dtype=torch.bool)
    held[torch.randperm(n_ratings, generator=generator)[:n_held]] = True
    return ratings.select(~held), ratings.select(held)


class RatingModel(Protocol):
    """A module that predicts entries of sparse rows."""

    def __call__(self, rows: SparseRows, wanted: SparseRows) -> Tensor:
        """Returns predictions of the entries of `wanted`."""
        ...


class PartialModel(RatingModel, Protocol):
    """A module that predicts in another way in training."""

    training: bool


class OrdinalModel(PartialModel, Protocol):
    """A module that scores the levels of entries of sparse rows."""

    def scores(self, rows: SparseRows, wanted: SparseRows) -> Tensor:
        """Returns scores (M, S) of the levels of the entries of `wanted`."""
        ...

    def level(self, ratings: Tensor) -> Tensor:
        """Returns the level of each rating."""
        ...


@dataclass(frozen=True)
class RatedRows:
    """Rows that a model sees, and the entries of the same rows that it predicts."""

    inputs: SparseRows
    targets: SparseRows

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, rows: slice | Tensor) -> "RatedRows":
        inputs = self.inputs[rows]
        return RatedRows(inputs, inputs if self.targets is self.inputs else self.targets[rows])


@dataclass(frozen=True)
class RatingError(WithoutNoise):
    r"""Computes the squared error of observed entries.

    .. math:: \ell_i = \sum_{j \in o_i} (\hat r_{ij} - r_{ij})^2
    """

    def __call__(self, module: RatingModel, batch: RatedRows, noise: tuple[Tensor, ...]) -> Tensor:
        """Returns the loss (N) of each row."""
        errors = (module(batch.inputs, batch.targets) - batch.targets.values).square()
        return errors.new_zeros(len(batch)).index_add(0, batch.targets.rows, errors)


@dataclass(frozen=True)
class PartialRatingError:
    r"""Computes the squared error of all ratings of a row, given a random part of them.

    Each rating of a row is shown with a probability that is drawn for the row, uniform on [1/2, 1]. Outside
    of training the loss is that of `RatingError`, given all inputs.
    """

    def draw_noise(self, batch: RatedRows, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Returns a number in [0, 1) for each entry, and one for each row."""
        sizes = len(batch.inputs.values), len(batch)
        return tuple(torch.rand(size, generator=generator) for size in sizes)

    def __call__(self, module: PartialModel, batch: RatedRows, noise: tuple[Tensor, ...]) -> Tensor:
        """Returns the loss (N) of each row."""
        if not module.training:
            return RatingError()(module, batch, ())
        keys, shares = noise
        is_shown = keys < (0.5 + 0.5 * shares).index_select(0, batch.inputs.rows)
        return RatingError()(module, RatedRows(batch.inputs.select(is_shown), batch.targets), ())


@dataclass(frozen=True)
class OrdinalError:
    r"""Computes the ordinal cost of ratings given random subsets of the other ratings of their row.

    Of a row with :math:`D` ratings, :math:`d` at random are shown, with :math:`d` uniform on 0 to
    :math:`D - 1`, and the others are predicted:

    .. math:: \ell = \frac{D}{D - d} \sum_{t} C(r_t)

    with the cost of `ordinal_cost`. Outside of training the loss is the squared error of the targets, given
    all inputs.

    References
    ----------
    Zheng, Tang, Ding & Zhou (2016), A neural autoregressive approach to collaborative filtering.
    """

    def draw_noise(self, batch: RatedRows, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Returns a number in [0, 1) for each entry, and one for each row."""
        sizes = len(batch.inputs.values), len(batch)
        return tuple(torch.rand(size, generator=generator, dtype=torch.float64) for size in sizes)

    def __call__(self, module: OrdinalModel, batch: RatedRows, noise: tuple[Tensor, ...]) -> Tensor:
        """Returns the loss (N) of each row."""
        if not module.training:
            return RatingError()(module, batch, ())
        is_shown, factor = choose_shown(batch.inputs, *noise)
        shown, wanted = batch.inputs.select(is_shown), batch.inputs.select(~is_shown)
        costs = ordinal_cost(module.scores(shown, wanted), module.level(wanted.values))
        loss = costs.new_zeros(len(batch)).index_add(0, wanted.rows, costs)
        return loss * factor.to(loss.dtype)


def ordinal_cost(scores: Tensor, level: Tensor) -> Tensor:
    r"""Returns the cost (M) of levels (M) under scores (M, S): how far the ranking of levels is from theirs.

    .. math:: C(k) = -\sum_{j \le k} \log \frac{e^{s_j}}{\sum_{l \le j} e^{s_l}}
                     -\sum_{j \ge k} \log \frac{e^{s_j}}{\sum_{l \ge j} e^{s_l}}

    It is the negative log-likelihood, in the model of Plackett and Luce, of the rankings
    :math:`k, k - 1, \dots, 1` and :math:`k, k + 1, \dots, S`.

    Examples
    --------
    >>> ordinal_cost(torch.zeros(1, 3), torch.tensor([2]))  # log 3!
    tensor([1.7918])
    """
    below = scores - scores.logcumsumexp(dim=1)
    above = scores - scores.flip(1).logcumsumexp(dim=1).flip(1)
    position, own = torch.arange(scores.shape[1], device=scores.device), level.unsqueeze(-1)
    counted = torch.where(position <= own, below, 0.0) + torch.where(position >= own, above, 0.0)
    return -counted.sum(dim=1)


def choose_shown(rows: SparseRows, keys: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Returns which entries are shown, and the factor (N) of the loss of each row."""
    order = torch.argsort(rows.rows + keys)  # a random order within each row
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order), device=order.device) - rows.starts[:-1].long()[rows.rows]
    n_shown = (shares * rows.counts).floor().long()
    factor = rows.counts / (rows.counts - n_shown).clamp(min=1)
    return rank < n_shown[rows.rows], factor
