"""The autoregressive network of ordinal ratings, which predicts any rating of a row from any others."""

import torch
from torch import Tensor, nn

from halfseen.data.sparse import SparseRows
from halfseen.nn.sparse import sampled_product, sparse_linear
from halfseen.nn.sparsity import count_factor

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
        codes = (
            wanted.columns.unsqueeze(-1) * n_levels + torch.arange(n_levels, dtype=torch.int32)
        ).flatten()
        values = torch.zeros(len(codes), dtype=wanted.values.dtype)
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
