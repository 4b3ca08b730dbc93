"""CF-NADE, a recommender by an autoregressive network of ordinal ratings."""

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
from halfseen.ratings.recommender import OrdinalError
from halfseen.ratings.table import SparseRows

PRIOR = 5.0  # number of pseudo-ratings of a column, with the usual frequencies of levels


class OrdinalAutoregression(nn.Module):
    r"""Creates the CF-NADE network, which predicts the levels of some ratings of a row from others.

    .. math:: h = \tanh\Big(c_0 + s(d) \sum_{j \in o} W^{r_j}_j\Big), \qquad
              p(r_t = k) \propto \exp(b_t^k + V_t^k \cdot h)

    where :math:`o` are the :math:`d` entries that are shown and :math:`s(d)` is :math:`(K / d)^\alpha` with
    Sparsity Normalization and 1 without. Levels share no weights. Entries are assumed to be missing at random
    given the observed entries of the row.

    Parameters
    ----------
    n_columns : int
        The number of columns :math:`D`.
    n_hidden : int
        The number of hidden units :math:`H`.
    levels : Tensor of shape (S,)
        The possible ratings, in increasing order.
    mean_count : float or None
        The constant of Sparsity Normalization; None for none.
    alpha : float
        The exponent of Sparsity Normalization.

    Shapes
    ------
    rows : :math:`(N, D)`, sparse; `hidden` returns :math:`(N, H)`, `scores` :math:`(M, S)` for the :math:`M`
    entries that are wanted.

    References
    ----------
    Zheng, Tang, Ding & Zhou (2016), A neural autoregressive approach to collaborative filtering; Yi et al.
    (2020), Why not to use zero imputation?, for the normalisation.

    Examples
    --------
    >>> rows = SparseRows(torch.tensor([0, 2]).int(), torch.tensor([0, 2]).int(), torch.tensor([4.0, 5.0]), 3)
    >>> model = OrdinalAutoregression(3, 2, levels=torch.tensor([4.0, 5.0]))
    >>> model.reset_parameters(rows, torch.Generator().manual_seed(0))
    >>> model.scores(rows, rows).shape, model(rows, rows).shape
    (torch.Size([2, 2]), torch.Size([2]))
    """

    levels: Tensor
    mean_count: Tensor
    alpha: Tensor

    def __init__(
        self,
        n_columns: int,
        n_hidden: int,
        *,
        levels: Tensor,
        mean_count: float | None = None,
        alpha: float = 1.0,
    ) -> None:
        super().__init__()
        n_codes = n_columns * len(levels)
        self.encoder = nn.Parameter(torch.zeros(n_codes, n_hidden))  # W (D S, H)
        self.decoder = nn.Parameter(torch.zeros(n_codes, n_hidden))  # V (D S, H)
        self.hidden_bias = nn.Parameter(torch.zeros(n_hidden))  # (H,)
        self.output_bias = nn.Parameter(torch.zeros(n_codes))  # b (D S,)
        self.register_buffer("levels", levels)
        self.register_buffer("mean_count", torch.tensor(mean_count or 0.0))
        self.register_buffer("alpha", torch.tensor(float(alpha)))

    def reset_parameters(self, rows: SparseRows, generator: torch.Generator) -> None:
        """Draws small weights; output biases start at the log frequencies of the levels of each column."""
        for weight in (self.encoder, self.decoder):
            bound = (6.0 / sum(weight.shape)) ** 0.5
            weight.data.copy_(bound * (2.0 * torch.rand(weight.shape, generator=generator) - 1.0))
        self.hidden_bias.data.zero_()
        n_levels = len(self.levels)
        counts = torch.bincount(self._codes(rows), minlength=len(self.output_bias)).view(-1, n_levels)
        usual = (counts.sum(dim=0) + 1.0) / (counts.sum() + n_levels)
        frequencies = (counts + PRIOR * usual) / (counts.sum(dim=1, keepdim=True) + PRIOR)
        self.output_bias.data.copy_(frequencies.log().flatten())

    def hidden(self, rows: SparseRows) -> Tensor:
        """Returns the hidden units (N, H) of rows."""
        chosen = SparseRows(
            rows.starts, self._codes(rows).int(), torch.ones_like(rows.values), len(self.encoder)
        )
        total = sparse_linear(chosen, self.encoder)
        if bool(self.mean_count > 0):
            factor = count_factor(rows.counts.to(total.dtype), self.mean_count, self.alpha)
            total = total * factor.unsqueeze(-1)
        return torch.tanh(total + self.hidden_bias)

    def scores(self, rows: SparseRows, wanted: SparseRows) -> Tensor:
        """Returns the scores (M, S) of the levels of the entries of `wanted`, given the entries of `rows`."""
        n_levels = len(self.levels)
        level = torch.arange(n_levels, dtype=torch.int32, device=wanted.columns.device)
        codes = (wanted.columns.unsqueeze(-1) * n_levels + level).flatten()
        values = wanted.values.new_zeros(len(codes))
        pattern = SparseRows(wanted.starts * n_levels, codes, values, len(self.decoder))
        product = sampled_product(pattern, self.hidden(rows), self.decoder)
        return (product + self.output_bias[codes]).view(-1, n_levels)

    def expected(self, scores: Tensor) -> Tensor:
        """Returns the mean rating (M) under scores (M, S) of the levels."""
        return torch.softmax(scores, dim=-1) @ self.levels.to(scores.dtype)

    def forward(self, rows: SparseRows, wanted: SparseRows) -> Tensor:
        """Returns the mean ratings of the entries of `wanted`, in their order, from the entries of `rows`."""
        return self.expected(self.scores(rows, wanted))

    def level(self, ratings: Tensor) -> Tensor:
        """Returns the position of each rating among the levels: of the level nearest to it."""
        between = (self.levels[1:] + self.levels[:-1]) / 2
        return torch.bucketize(ratings, between.to(ratings.dtype))

    def _codes(self, rows: SparseRows) -> Tensor:
        return rows.columns.long() * len(self.levels) + self.level(rows.values)


MOST_LEVELS = 20


@documented_by(
    {
        **NETWORK_DESCRIPTIONS,
        "rows": (
            '{"user", "item"}',
            "Whether the network reads the ratings of a user or those of an item.",
        ),
        "alpha": "The exponent of the normalisation.",
        "penalty": (
            'float or "auto"',
            "The weight of half the sum of squared weights in the loss, in addition to the sum of costs. "
            '``"auto"`` is 0.06 for each hidden unit, times the square root of the number of ratings in '
            "units of 100,000 if there are more.",
        ),
    },
    NETWORK_ATTRIBUTES,
)
@dataclass(eq=False, repr=False)
class CFNADE(RatingNetwork):
    r"""Rating prediction by an autoregressive network of the ratings of each user or each item.

    .. math:: h = \tanh\Big(c_0 + s(d) \sum_{j \in o} W^{r_j}_j\Big), \qquad
              p(r_t = k) \propto \exp(b_t^k + V_t^k \cdot h), \qquad \hat r_t = \sum_k k \, p(r_t = k)

    where :math:`o` are the :math:`d` observed ratings of the row. In training random subsets of them are
    shown and the others are predicted, under an ordinal cost. With Sparsity Normalization
    :math:`s(d) = (K / d)^\alpha`. Each level of the scale has its own weights, so the model is larger than
    that of `AutoRec` by a factor equal to the number of levels. Ratings are assumed to be missing at random
    given the observed ratings of the row.

    Attributes
    ----------
    levels_ : list of float
        The distinct ratings in `fit`, in ascending order.
    module_ : OrdinalAutoregression
        The trained network.

    References
    ----------
    Zheng, Tang, Ding & Zhou (2016), A neural autoregressive approach to collaborative filtering. Yi, Lee,
    Kim, Hwang & Yang (2020), Why not to use zero imputation? Correcting sparsity bias in training neural
    networks.

    Examples
    --------
    >>> import pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> user, item = np.divmod(rng.choice(600, size=300, replace=False), 20)
    >>> ratings = pd.DataFrame({"user": user, "item": item, "rating": np.clip(1 + user % 3 + item % 3, 1, 5)})
    >>> model = CFNADE(n_hidden=20, max_epochs=5, random_state=0).fit(ratings)
    >>> model.predict([0, 1], [5, 5]).shape
    (2,)
    """

    _saved = ("levels_",)
    _epochs, _steps, _largest_batch = 60, 600, 128
    _penalty_per_unit = 0.06

    rows: str = "user"
    _: KW_ONLY
    alpha: float = 1.0
    patience: int = 30

    def _build(self, rows: SparseRows) -> OrdinalAutoregression:
        return OrdinalAutoregression(
            rows.n_columns,
            self.n_hidden,
            levels=torch.tensor(self.levels_),
            mean_count=self._mean_count(rows),
            alpha=float(self.alpha),
        )

    def _train(self, ratings: SparseRows, generator: torch.Generator) -> None:
        self.levels_ = ratings.values.unique().tolist()
        if len(self.levels_) > MOST_LEVELS:
            raise ValueError(
                f"There are {len(self.levels_)} different ratings, but CFNADE has weights for each level of "
                f"the scale and takes at most {MOST_LEVELS}. Round the ratings to a scale, or use AutoRec."
            )
        super()._train(ratings, generator)

    def _objective(self) -> OrdinalError:
        return OrdinalError()

    @property
    def _outputs_per_entry(self) -> int:
        return len(self.levels_)

    def _decode(self, hidden: Tensor, columns: Tensor) -> Tensor:
        decoder, bias = self._by_column()
        scores = (decoder[columns].double() * hidden.unsqueeze(1)).sum(dim=2)
        return self._expected(scores + bias[columns].double())

    def _decode_items(self, user: int) -> Tensor:
        if self.rows == "user":
            return self._decode_row(self._hidden[user])
        decoder, bias = self._by_column()
        return self._expected(self._hidden @ decoder[user].T + bias[user])

    def _decode_row(self, hidden: Tensor) -> Tensor:
        scores = self.module_.decoder @ hidden + self.module_.output_bias
        return self._expected(scores.view(-1, len(self.levels_)))

    def _mean_column_scores(self) -> Tensor:
        decoder, bias = self._by_column()
        return self._expected(self._hidden @ decoder.mean(dim=0).T + bias.mean(dim=0))

    def _expected(self, scores: Tensor) -> Tensor:
        expected: Tensor = self.module_.expected(scores)
        return expected

    def _by_column(self) -> tuple[Tensor, Tensor]:
        """Returns decoder (D, S, H) and biases (D, S)."""
        shape = (-1, len(self.levels_))
        return self.module_.decoder.view(*shape, self.n_hidden), self.module_.output_bias.view(shape)

    def _check_parameters(self) -> None:
        check_number("alpha", self.alpha, lambda v: 0 <= v < np.inf, "a number of at least 0")
        super()._check_parameters()

    def _empty_module(self, state: Mapping[str, Tensor]) -> OrdinalAutoregression:
        _, n_columns = self._shape
        if module_weights(state)["encoder"].shape != (n_columns * len(self.levels_), self.n_hidden):
            raise ValueError(f"n_hidden={self.n_hidden!r} does not fit the saved weights.")
        return OrdinalAutoregression(n_columns, self.n_hidden, levels=torch.tensor(self.levels_))
