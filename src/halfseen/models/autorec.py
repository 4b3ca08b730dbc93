"""The autoencoder of sparse rows for rating prediction."""

import torch
from torch import Tensor, nn

from halfseen.data.sparse import SparseRows
from halfseen.nn.sparse import sampled_product, sparse_linear
from halfseen.nn.sparsity import count_factor

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
