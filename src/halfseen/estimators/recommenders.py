"""AutoRec, a recommender by autoencoders of rows of ratings."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from halfseen.data.sparse import SparseRows
from halfseen.estimators._documented import documented_by
from halfseen.estimators._parameters import check_number
from halfseen.estimators._rating_network import AT_ONCE, NETWORK_DESCRIPTIONS, RatingNetwork
from halfseen.estimators._ratings import Floats, Positions
from halfseen.models.autorec import SparseAutoencoder
from halfseen.nn.weights import module_weights
from halfseen.objectives.ratings import PartialRatingError, RatingError
from halfseen.training.progress import Progress

PENALTY_PER_UNIT = 0.12


@documented_by(
    {
        **NETWORK_DESCRIPTIONS,
        "rows": (
            '{"item", "user"}',
            "Whether the autoencoder reads the ratings of an item or those of a user. Items give the smaller "
            "errors; users give predictions for new users by one forward pass.",
        ),
        "alpha": (
            'float or "auto"',
            'The exponent of the normalisation. ``"auto"`` is 1 without centring, which keeps the mean of '
            "hidden units from drifting with the number of ratings, and 1/2 with centring, which keeps their "
            "variance.",
        ),
        "centre": (
            'bool or "auto"',
            "Whether the mean rating is subtracted from the ratings that the encoder reads. Otherwise the "
            'encoder also learns from which entries are rated. ``"auto"`` subtracts it in rows of users and '
            "not in rows of items.",
        ),
        "subsets": (
            "bool",
            "Whether each training step shows the encoder a random part of the ratings of each row, three "
            "quarters on average, and predicts all of them, which makes errors smaller. The published "
            "AutoRec always reads all.",
        ),
        "penalty": (
            'float or "auto"',
            "The weight of half the sum of squared weights in the loss, in addition to the sum of squared "
            'errors. ``"auto"`` is 0.12 for each hidden unit, times the square root of the number of ratings '
            "in units of 100,000 if there are more.",
        ),
        "batch_size": (
            'int or "auto"',
            'Rows per training step. ``"auto"`` is an eighth of the rows, but at least 128 and at most 512; '
            "it is a quarter of the rows, but at least 8, if there are fewer than 512.",
        ),
    }
)
@dataclass(eq=False, repr=False)
class AutoRec(RatingNetwork):
    r"""Rating prediction by an autoencoder of the observed ratings of each item or each user.

    .. math:: \hat r_{ij} = b_j + W_j^\top
              \operatorname{sigmoid}\Big(\mu + s(c_i) \sum_{k \in o_i} V_k (r_{ik} - \bar r)\Big)

    where row :math:`i` is an item and :math:`k` are the :math:`c_i` users who rated it, or the other way
    round. With Sparsity Normalization :math:`s(c) = (K / c)^\alpha`, so that rows with many ratings do not
    have larger hidden units for this reason alone. Time and memory are proportional to the number of
    ratings. Ratings are assumed to be missing at random given the observed ratings of the row.

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

    _epochs, _steps, _largest_batch = 60, 600, 512
    _penalty_per_unit = PENALTY_PER_UNIT

    rows: str = "item"
    _: KW_ONLY
    sparsity_norm: bool = True
    alpha: float | str = "auto"
    centre: bool | str = "auto"
    subsets: bool = True
    n_hidden: int = 500
    penalty: float | str = "auto"
    max_epochs: int | str = "auto"
    batch_size: int | str = "auto"
    learning_rate: float = 1e-3
    patience: int = 15
    validation_fraction: float = 0.05
    rating_range: tuple[float, float] | None = None
    callback: Callable[[Progress], None] | None = None
    random_state: Any = None

    def _build(self, rows: SparseRows) -> SparseAutoencoder:
        return SparseAutoencoder(
            rows.n_columns,
            self.n_hidden,
            mean_count=self._mean_count(rows),
            alpha=(0.5 if self._centred else 1.0) if self.alpha == "auto" else float(self.alpha),
            centre=float(rows.values.double().mean()) if self._centred else 0.0,
        )

    def _objective(self) -> RatingError | PartialRatingError:
        return PartialRatingError() if self.subsets else RatingError()

    @property
    def _centred(self) -> bool:
        return self.rows == "user" if self.centre == "auto" else bool(self.centre)

    def _score_entries(self, rows: Positions, columns: Positions) -> Floats:
        """Returns predictions of entries, some at a time; in float64, so that none depends on others."""
        module = self.module_
        predicted = torch.empty(len(rows), dtype=torch.float64)
        for start in range(0, len(rows), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            hidden, column = self._hidden[torch.from_numpy(rows[part])], torch.from_numpy(columns[part])
            product = (hidden.double() * module.decoder[column].double()).sum(dim=1)
            predicted[part] = product + module.output_bias[column].double()
        return predicted.numpy()

    def _score_items(self, user: int) -> Tensor:
        """Returns the predicted ratings of all items by one user: one product of a matrix and a vector."""
        if self.rows == "user":
            return self._decode_row(self._hidden[user])
        module = self.module_
        scores: Tensor = self._hidden @ module.decoder[user] + module.output_bias[user]
        return scores

    def _decode_row(self, hidden: Tensor) -> Tensor:
        scores: Tensor = self.module_.decoder @ hidden + self.module_.output_bias
        return scores

    def _usual_scores(self) -> Tensor:
        module = self.module_
        scores: Tensor = self._hidden @ module.decoder.mean(dim=0) + module.output_bias.mean()
        return scores

    def _check_parameters(self) -> None:
        if self.centre not in (True, False, "auto"):
            raise ValueError(f"centre must be True, False or 'auto', got {self.centre!r}.")
        if self.subsets not in (True, False):
            raise ValueError(f"subsets must be True or False, got {self.subsets!r}.")
        if self.alpha != "auto":
            check_number("alpha", self.alpha, lambda v: 0 <= v < np.inf, "'auto' or a number of at least 0")
        super()._check_parameters()

    def _empty_module(self, state: Mapping[str, Tensor]) -> SparseAutoencoder:
        _, n_columns = self._shape
        if module_weights(state)["encoder"].shape != (n_columns, self.n_hidden):
            raise ValueError(f"n_hidden={self.n_hidden!r} does not fit the saved weights.")
        return SparseAutoencoder(n_columns, self.n_hidden)
