"""Recommenders: estimators of ratings that users have not given yet."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from halfseen._random import seed_from, torch_generator
from halfseen._threads import task_threads
from halfseen.data.sparse import SparseRows
from halfseen.estimators._holdout import SMALLEST_SPLIT
from halfseen.estimators._parameters import check_number, check_training, check_whole
from halfseen.estimators._ratings import (
    Floats,
    Identifiers,
    Positions,
    check_rating_range,
    read_ratings,
)
from halfseen.estimators._transaction import all_or_nothing
from halfseen.estimators.model_file import Saveable
from halfseen.models.autorec import SparseAutoencoder
from halfseen.models.rating_offsets import RatingOffsets
from halfseen.nn.weights import load_module, module_state, module_weights
from halfseen.objectives.ratings import RatedRows, RatingError
from halfseen.training.loop import TrainingSettings, fit_module
from halfseen.training.progress import Progress

ROWS = ("item", "user")
PENALTY_PER_UNIT = 0.12
BATCH, SMALLEST_BATCH, EPOCHS = 128, 8, 40  # if "auto"
FEW_ROWS, STEPS = 512, 600  # with fewer rows there are more epochs, for this many steps
AT_ONCE = 8192  # entries that are decoded together


class AutoRec(Saveable, BaseEstimator):
    r"""Rating prediction by an autoencoder of the observed ratings of each item or each user.

    .. math:: \hat r_{ij} = b_j + W_j^\top
              \operatorname{sigmoid}\Big(\mu + s(c_i) \sum_{k \in o_i} V_k (r_{ik} - \bar r)\Big)

    where row :math:`i` is an item and :math:`k` are the :math:`c_i` users who rated it, or the other way
    round. With Sparsity Normalization :math:`s(c) = (K / c)^\alpha`, so that rows with many ratings do not
    have larger hidden units for this reason alone. Time and memory are proportional to the number of
    ratings. Ratings are assumed to be missing at random given the observed ratings of the row.

    Parameters
    ----------
    rows : {"item", "user"}, default="item"
        Whether the autoencoder reads the ratings of an item or those of a user. Items give the smaller
        errors; users give predictions for new users by one forward pass.
    sparsity_norm : bool, default=True
        Whether rows are normalised by their number of ratings.
    alpha : float or "auto", default="auto"
        The exponent of the normalisation. ``"auto"`` is 1 without centring, which keeps the mean of hidden
        units from drifting with the number of ratings, and 1/2 with centring, which keeps their variance.
    centre : bool or "auto", default="auto"
        Whether the mean rating is subtracted from the ratings that the encoder reads. Without, the encoder
        also learns from which entries are rated. ``"auto"`` subtracts it in rows of users and not in rows
        of items.
    n_hidden : int, default=500
        The number of hidden units.
    penalty : float or "auto", default="auto"
        The weight of half the sum of squared weights in the loss, beside the sum of squared errors.
        ``"auto"`` is 0.12 for each hidden unit.
    max_epochs : int or "auto", default="auto"
        Maximum number of epochs. ``"auto"`` is 40, and more with fewer than 512 rows, for about 600 steps.
    batch_size : int or "auto", default="auto"
        Rows per training step. ``"auto"`` is 128, or a quarter of the rows if there are fewer than 512.
    learning_rate : float, default=1e-3
        Initial learning rate; it falls to zero along half a cosine.
    patience : int, default=15
        Training stops after this many epochs without an improvement on held-out ratings.
    validation_fraction : float, default=0.05
        The fraction of ratings held out; fewer than 50 ratings hold out none.
    rating_range : pair of float, optional
        The ends of the rating scale. By default those of the ratings in `fit`. Predictions stay inside.
    callback : callable, optional
        Called with a progress record after each epoch.
    random_state : int, numpy generator or None, default=None
        Seeds held-out ratings, starts and batches.

    Attributes
    ----------
    users_, items_ : arrays
        The identifiers of `fit`, sorted.
    rating_range_ : tuple of float
        The ends of the rating scale.
    module_ : SparseAutoencoder
        The trained network.
    history_ : History
        The loss after each epoch, and why training stopped.

    References
    ----------
    Sedhain, Menon, Sanner & Xie (2015), AutoRec: autoencoders meet collaborative filtering. Yi, Lee, Kim,
    Hwang & Yang (2020), Why not to use zero imputation? Correcting sparsity bias in training neural
    networks.

    Examples
    --------
    >>> import pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> pairs = rng.choice(30 * 20, size=300, replace=False)
    >>> user, item = pairs // 20, pairs % 20
    >>> ratings = pd.DataFrame({"user": user, "item": item, "rating": np.clip(1 + user % 3 + item % 3, 1, 5)})
    >>> model = AutoRec(n_hidden=20, random_state=0).fit(ratings)
    >>> model.predict([0, 1], [5, 5]).shape
    (2,)
    >>> items, predicted = model.recommend(3, k=4)
    >>> len(items)
    4
    """

    _saved: ClassVar[tuple[str, ...]] = ("rating_range_", "_identifiers")

    def __init__(
        self,
        rows: str = "item",
        *,
        sparsity_norm: bool = True,
        alpha: float | str = "auto",
        centre: bool | str = "auto",
        n_hidden: int = 500,
        penalty: float | str = "auto",
        max_epochs: int | str = "auto",
        batch_size: int | str = "auto",
        learning_rate: float = 1e-3,
        patience: int = 15,
        validation_fraction: float = 0.05,
        rating_range: tuple[float, float] | None = None,
        callback: Callable[[Progress], None] | None = None,
        random_state: Any = None,
    ) -> None:
        self.rows = rows
        self.sparsity_norm = sparsity_norm
        self.alpha = alpha
        self.centre = centre
        self.n_hidden = n_hidden
        self.penalty = penalty
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.rating_range = rating_range
        self.callback = callback
        self.random_state = random_state

    @all_or_nothing
    @task_threads()
    def fit(self, ratings: Any, y: Any = None) -> "AutoRec":
        """Trains the autoencoder on observed ratings.

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
        generator = torch_generator(self.seed_)
        oriented = read.matrix if self.rows == "user" else scipy.sparse.csr_array(read.matrix.T)
        oriented.sort_indices()
        every = SparseRows.from_scipy(oriented)
        train, held = _hold_out(every, self.validation_fraction, generator)
        module = self._build(train)
        module.reset_parameters(train, generator)
        self.history_ = fit_module(
            module,
            RatingError(),
            RatedRows(train, train),
            generator=generator,
            validation=None if held is None else RatedRows(train, held),
            settings=self._settings(len(train)),
            callback=self.callback,
        )
        self._keep(module, every)
        return self

    @property
    def users_(self) -> npt.NDArray[Any]:
        """The users of `fit`, sorted."""
        return np.array(self._identifiers["user"])

    @property
    def items_(self) -> npt.NDArray[Any]:
        """The items of `fit`, sorted."""
        return np.array(self._identifiers["item"])

    @task_threads()
    @torch.no_grad()
    def predict(self, users: Any, items: Any) -> Floats:
        """Returns the predicted rating of each pair of a user and an item.

        The two arguments have the same length, or one of them is a single identifier. A user or item without
        ratings in `fit` gets the mean of the other, or the mean of all ratings.
        """
        check_is_fitted(self)
        user, item = self._positions("user", users), self._positions("item", items)
        if len(user) != len(item) and 1 not in (len(user), len(item)):
            raise ValueError(
                f"There are {len(user)} users and {len(item)} items: give as many of both, or one."
            )
        user, item = np.broadcast_arrays(user, item)
        predicted = self._offsets.predict(*self._oriented(user, item))
        known = (user >= 0) & (item >= 0)
        rows, columns = self._oriented(user[known], item[known])
        warm = self._offsets.is_warm(rows, columns)
        place = np.flatnonzero(known)[warm]
        predicted[place] = self._decode(rows[warm], columns[warm])
        return self._clipped(predicted)

    @task_threads()
    @torch.no_grad()
    def recommend(self, user: Any, k: int = 10) -> tuple[npt.NDArray[Any], Floats]:
        """Returns the items with the highest predicted ratings that a user has not rated, best first.

        Returns
        -------
        items : array of at most `k` identifiers
        ratings : array of their predicted ratings
        """
        check_whole("k", k, 1)
        check_is_fitted(self)
        position = self._positions("user", user)
        if len(position) != 1:
            raise ValueError(f"recommend takes one user, got {len(position)}.")
        if position[0] < 0:
            raise ValueError(
                f"User {user!r} has no rating in fit. Use recommend_new with ratings of "
                "the user, or fit again."
            )
        predicted = self._predict_items(int(position[0]))
        return self._best(predicted, self._rated_items(int(position[0])), k)

    @task_threads()
    def predict_new(self, items: Any, ratings: Any) -> Floats:
        """Returns the predicted ratings of all ``items_`` for a new user who gave these ratings.

        Nothing is refitted. With rows of users this is one forward pass. With rows of items the user's
        weights are the solution of a ridge regression on the hidden units of the rated items, around the
        mean weights of known users.
        """
        check_is_fitted(self)
        rated = self._positions("item", items)
        given = np.asarray(ratings, dtype=np.float64).reshape(-1)
        self._check_new(items, rated, given)
        order = np.argsort(rated)
        values = torch.from_numpy(given[order]).to(torch.float32)
        predicted = self._fold_in(torch.from_numpy(rated[order]), values)
        return self._clipped(predicted.double().numpy())

    def recommend_new(self, items: Any, ratings: Any, k: int = 10) -> tuple[npt.NDArray[Any], Floats]:
        """Returns the best items for a new user who gave these ratings, and their predicted ratings."""
        check_whole("k", k, 1)
        predicted = self.predict_new(items, ratings)
        return self._best(predicted, self._positions("item", items), k)

    def score(self, ratings: Any, y: Any = None) -> float:
        """Returns the negative root mean squared error of predictions of other ratings; larger is better."""
        check_is_fitted(self)
        other = read_ratings(ratings)
        entries = other.matrix.tocoo()
        users, items = other.users.array()[entries.row], other.items.array()[entries.col]
        return -float(np.sqrt(np.mean((self.predict(users, items) - entries.data) ** 2)))

    def _positions(self, what: str, asked: Any) -> Positions:
        return self._known[what].positions(asked)

    def _oriented(self, user: Positions, item: Positions) -> tuple[Positions, Positions]:
        """Returns rows and columns of the autoencoder."""
        return (user, item) if self.rows == "user" else (item, user)

    def _predict_items(self, user: int) -> Floats:
        """Returns the predicted ratings of all items by one user: one product of a matrix and a vector."""
        items = np.arange(len(self._known["item"]))
        entries = self._oriented(np.full(len(items), user), items)
        module = self.module_
        if self.rows == "item":
            scores = self._hidden @ module.decoder[user] + module.output_bias[user]
        else:
            scores = module.decoder @ self._hidden[user] + module.output_bias
        warm = self._offsets.is_warm(*entries)
        return self._clipped(np.where(warm, scores.double().numpy(), self._offsets.predict(*entries)))

    def _rated_items(self, user: int) -> Positions:
        if self.rows == "user":
            return self._ratings[user : user + 1].columns.long().numpy()
        return self._ratings.rows[self._ratings.columns == user].numpy()

    def _decode(self, rows: Positions, columns: Positions) -> Floats:
        """Returns predictions of entries, some at a time; in float64, so that none depends on others."""
        module = self.module_
        predicted = torch.empty(len(rows), dtype=torch.float64)
        for start in range(0, len(rows), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            hidden, column = self._hidden[torch.from_numpy(rows[part])], torch.from_numpy(columns[part])
            product = (hidden.double() * module.decoder[column].double()).sum(dim=1)
            predicted[part] = product + module.output_bias[column].double()
        return predicted.numpy()

    @torch.no_grad()
    def _fold_in(self, rated: Tensor, values: Tensor) -> Tensor:
        """Returns predictions (n_items) for a user with these ratings."""
        module = self.module_
        if self.rows == "user":
            starts = torch.tensor([0, len(rated)], dtype=torch.int32)
            hidden = module.hidden(SparseRows(starts, rated.int(), values, len(self.items_)))
            return (hidden @ module.decoder.T)[0] + module.output_bias
        usual = self._hidden @ module.decoder.mean(dim=0) + module.output_bias.mean()
        seen = self._hidden[rated]
        kernel = seen @ seen.T + 0.5 * self._penalty * torch.eye(len(rated))
        return usual + self._hidden @ (seen.T @ torch.linalg.solve(kernel, values - usual[rated]))

    def _best(self, predicted: Floats, rated: Positions, k: int) -> tuple[npt.NDArray[Any], Floats]:
        candidates = np.setdiff1d(np.arange(len(predicted)), rated)
        order = candidates[np.argsort(-predicted[candidates], kind="stable")][:k]
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
        check_rating_range(given, self.rating_range_)

    def _build(self, rows: SparseRows) -> SparseAutoencoder:
        counts = rows.counts[rows.counts > 0].double()
        return SparseAutoencoder(
            rows.n_columns,
            self.n_hidden,
            mean_count=float(counts.mean()) if self.sparsity_norm else None,
            alpha=(0.5 if self._centred else 1.0) if self.alpha == "auto" else float(self.alpha),
            centre=float(rows.values.double().mean()) if self._centred else 0.0,
        )

    @property
    def _centred(self) -> bool:
        return self.rows == "user" if self.centre == "auto" else bool(self.centre)

    def _keep(self, module: SparseAutoencoder, ratings: SparseRows) -> None:
        """Sets what predictions need: the network, all ratings, their means and the hidden units of rows."""
        self.module_ = module.requires_grad_(False)
        self._ratings = ratings
        self._known = {what: Identifiers(tuple(ids), what) for what, ids in self._identifiers.items()}
        self._offsets = RatingOffsets.fit(ratings)
        with torch.no_grad():
            self._hidden = module.hidden(ratings)  # (N, K)

    @property
    def _penalty(self) -> float:
        return PENALTY_PER_UNIT * self.n_hidden if self.penalty == "auto" else float(self.penalty)

    def _settings(self, n_rows: int) -> TrainingSettings:
        few = n_rows < FEW_ROWS
        fitting = max(SMALLEST_BATCH, n_rows // 4) if few else BATCH
        size = fitting if self.batch_size == "auto" else int(self.batch_size)
        epochs = max(EPOCHS, STEPS * size // n_rows) if few else EPOCHS
        return TrainingSettings(
            max_epochs=epochs if self.max_epochs == "auto" else int(self.max_epochs),
            batch_size=size,
            learning_rate=self.learning_rate,
            schedule="cosine",
            patience=self.patience,
            penalties=dict.fromkeys(("encoder", "decoder"), self._penalty / n_rows),
            min_improvement=0.0,
            compile=False,
        )

    def _check_parameters(self) -> None:
        if self.rows not in ROWS:
            raise ValueError(f"rows must be 'item' or 'user', got {self.rows!r}.")
        if self.centre not in (True, False, "auto"):
            raise ValueError(f"centre must be True, False or 'auto', got {self.centre!r}.")
        if self.alpha != "auto":
            check_number("alpha", self.alpha, lambda v: 0 <= v < np.inf, "'auto' or a number of at least 0")
        check_whole("n_hidden", self.n_hidden, 1)
        for name, lowest in {"max_epochs": 0, "batch_size": 1}.items():
            check_whole(name, getattr(self, name), lowest, auto=True)
        if self.penalty != "auto":
            check_number("penalty", self.penalty, lambda v: 0 < v < np.inf, "positive and finite")
        check_training(self)

    def _state(self) -> dict[str, Tensor]:
        return module_state(self.module_) | {
            "ratings.starts": self._ratings.starts,
            "ratings.columns": self._ratings.columns,
            "ratings.values": self._ratings.values,
        }

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        self._check_parameters()
        n_users, n_items = len(self._identifiers["user"]), len(self._identifiers["item"])
        shape = (n_users, n_items) if self.rows == "user" else (n_items, n_users)
        entries = [state[f"ratings.{name}"] for name in ("starts", "columns", "values")]
        ratings = SparseRows.checked(entries[0], entries[1], entries[2], shape)
        if module_weights(state)["encoder"].shape != (shape[1], self.n_hidden):
            raise ValueError(f"n_hidden={self.n_hidden!r} does not fit the saved weights.")
        module = load_module(SparseAutoencoder(shape[1], self.n_hidden), state)
        self.rating_range_ = check_rating_range(ratings.values.double().numpy(), self.rating_range_)
        self._keep(module, ratings)


def _hold_out(
    ratings: SparseRows, fraction: float, generator: torch.Generator
) -> tuple[SparseRows, SparseRows | None]:
    """Returns ratings to train on and ratings held out, chosen at random; None of fewer than 50."""
    n_ratings = len(ratings.values)
    n_held = round(fraction * n_ratings)
    if n_held == 0 or n_ratings < SMALLEST_SPLIT:
        return ratings, None
    held = torch.zeros(n_ratings, dtype=torch.bool)
    held[torch.randperm(n_ratings, generator=generator)[:n_held]] = True
    return ratings.select(~held), ratings.select(held)
