"""AutoRec, a recommender by autoencoders of rows of ratings."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass

import numpy as np
import torch
from torch import Tensor, nn

from halfseen.base.parameters import check_number, documented_by
from halfseen.nn.sparsity import count_factor
from halfseen.nn.weights import module_weights
from halfseen.ratings.network import (
    NETWORK_ATTRIBUTES,
    NETWORK_DESCRIPTIONS,
    RatingNetwork,
    sampled_product,
    sparse_linear,
)
from halfseen.ratings.recommender import PartialRatingError, RatingError
from halfseen.ratings.table import SparseRows

INITIAL_SPREAD = 0.03


class SparseAutoencoder(nn.Module):
    r"""Creates the AutoRec network, an autoencoder of rows of which few entries are observed.

    .. math:: h = \operatorname{sigmoid}\Big(s(c) \sum_{j \in o} V_j (r_j - \bar r) + \mu\Big), \qquad
              \hat r_j = W_j^\top h + b_j

    where :math:`o` are the observed entries of a row, :math:`c` is their number, and :math:`s(c)` is
    :math:`(K / c)^\alpha` with Sparsity Normalization and 1 without. Encoder and decoder cost time in
    proportion to the observed entries. Entries are assumed to be missing at random given the observed
    entries of the row.

    Parameters
    ----------
    n_columns : int
        The number of columns :math:`D`.
    n_hidden : int
        The number of hidden units :math:`K`.
    mean_count : float or None
        The constant of Sparsity Normalization; None for none.
    alpha : float
        The exponent of Sparsity Normalization.
    centre : float
        The value :math:`\bar r` that is subtracted from observed entries.

    Shapes
    ------
    rows : :math:`(N, D)`, sparse; `hidden` returns :math:`(N, K)`.

    References
    ----------
    Sedhain, Menon, Sanner & Xie (2015), AutoRec: autoencoders meet collaborative filtering; Yi et al.
    (2020), Why not to use zero imputation?, for the normalisation.

    Examples
    --------
    >>> rows = SparseRows(torch.tensor([0, 2]).int(), torch.tensor([0, 2]).int(), torch.tensor([4.0, 5.0]), 3)
    >>> model = SparseAutoencoder(n_columns=3, n_hidden=2, mean_count=2.0)
    >>> model.reset_parameters(rows, torch.Generator().manual_seed(0))
    >>> model(rows, rows).shape
    torch.Size([2])
    """

    mean_count: Tensor
    alpha: Tensor
    centre: Tensor

    def __init__(
        self,
        n_columns: int,
        n_hidden: int,
        *,
        mean_count: float | None = None,
        alpha: float = 1.0,
        centre: float = 0.0,
    ) -> None:
        super().__init__()
        self.encoder = nn.Parameter(torch.zeros(n_columns, n_hidden))  # V (D, K)
        self.decoder = nn.Parameter(torch.zeros(n_columns, n_hidden))  # W (D, K)
        self.hidden_bias = nn.Parameter(torch.zeros(n_hidden))  # (K,)
        self.output_bias = nn.Parameter(torch.zeros(n_columns))  # (D,)
        self.register_buffer("mean_count", torch.tensor(mean_count or 0.0))
        self.register_buffer("alpha", torch.tensor(float(alpha)))
        self.register_buffer("centre", torch.tensor(float(centre)))

    def reset_parameters(self, rows: SparseRows, generator: torch.Generator) -> None:
        """Draws small weights; output biases start at the mean of each column, shrunk to the mean of all."""
        for weight in (self.encoder, self.decoder):
            noise = torch.randn(weight.shape, generator=generator)
            weight.data.copy_(INITIAL_SPREAD * noise.clamp(-2, 2))
        self.hidden_bias.data.zero_()
        columns = rows.columns.long()
        overall = rows.values.mean() if len(rows.values) else rows.values.new_zeros(())
        total = torch.zeros(rows.n_columns).index_add_(0, columns, rows.values - overall)
        count = torch.zeros(rows.n_columns).index_add_(0, columns, torch.ones_like(rows.values))
        self.output_bias.data.copy_(overall + total / (count + 5.0))

    def hidden(self, rows: SparseRows) -> Tensor:
        """Returns the hidden units (N, K) of rows."""
        return torch.sigmoid(self.preactivation(rows) + self.hidden_bias)

    def preactivation(self, rows: SparseRows) -> Tensor:
        """Returns the sums (N, K) of rows that the encoder makes, before the bias."""
        total = sparse_linear(rows, self.encoder, rows.values - self.centre)
        if not bool(self.mean_count > 0):
            return total
        factor = count_factor(rows.counts.to(total.dtype), self.mean_count, self.alpha)
        return total * factor.unsqueeze(-1)

    def forward(self, rows: SparseRows, wanted: SparseRows) -> Tensor:
        """Returns predictions of the entries of `wanted`, in their order, from the entries of `rows`."""
        hidden = self.hidden(rows)
        return sampled_product(wanted, hidden, self.decoder) + self.output_bias.index_select(
            0, wanted.columns
        )


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
            "Whether each training step shows the encoder a random part of the ratings of each row, three "
            "quarters on average, and predicts all of them, which makes errors smaller. The published "
            "AutoRec always reads all."
        ),
        "penalty": (
            'float or "auto"',
            "The weight of half the sum of squared weights in the loss, in addition to the sum of squared "
            'errors. ``"auto"`` is 0.12 for each hidden unit, times the square root of the number of ratings '
            "in units of 100,000 if there are more.",
        ),
    },
    NETWORK_ATTRIBUTES,
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
    module_ : SparseAutoencoder
        The trained network.

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
    alpha: float | str = "auto"
    centre: bool | str = "auto"
    subsets: bool = True

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

    def _decode(self, hidden: Tensor, columns: Tensor) -> Tensor:
        product = (hidden * self.module_.decoder[columns].double()).sum(dim=1)
        return product + self.module_.output_bias[columns].double()

    def _decode_items(self, user: int) -> Tensor:
        """Returns the predicted ratings of all items by one user: one product of a matrix and a vector."""
        if self.rows == "user":
            return self._decode_row(self._hidden[user])
        module = self.module_
        scores: Tensor = self._hidden @ module.decoder[user] + module.output_bias[user]
        return scores

    def _decode_row(self, hidden: Tensor) -> Tensor:
        scores: Tensor = self.module_.decoder @ hidden + self.module_.output_bias
        return scores

    def _mean_column_scores(self) -> Tensor:
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
