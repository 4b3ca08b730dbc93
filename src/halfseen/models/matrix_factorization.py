"""Bayesian matrix factorisation of sparse rows, by Gibbs sampling."""

from dataclasses import dataclass

import torch
from torch import Tensor

from halfseen.data.sparse import SparseRows
from halfseen.nn.sparse import sampled_product

START = 0.3  # standard deviation of the initial factors
PRIOR_COUNT = 2.0  # number of pseudo-rows in the prior of the mean of factors
NOISE_COUNT = 5.0  # number of pseudo-ratings in the prior of the noise, with half their variance
CELLS = 2**21  # maximum size of the array of factors of a chunk of rows


@dataclass(frozen=True)
class FactorPrior:
    """The Gaussian of the factors of rows, in each draw: means (S, K), precisions (S, K, K), noise (S)."""

    mean: Tensor
    precision: Tensor
    noise: Tensor


@dataclass(frozen=True)
class FactorDraws:
    r"""Draws from the posterior of a matrix factorisation with offsets.

    .. math:: r_{ij} = \mu + a_i + b_j + u_i \cdot v_j + \varepsilon_{ij}, \qquad
              (a_i, u_i) \sim N(m, \Lambda^{-1})

    and likewise :math:`(b_j, v_j)`; the means and precisions of both sides have a Gauss-Wishart prior, and
    the precision of the noise has a gamma prior, so there is nothing to tune. Entries are assumed to be
    missing at random.

    Parameters
    ----------
    rows : Tensor of shape (N, S, K)
        The offset and the factors of each row, in each draw.
    columns : Tensor of shape (D, S, K)
        Those of columns.
    centre : float
        The mean :math:`\mu` of all entries.
    prior : FactorPrior
        The prior of rows, for rows that were not in the data.

    References
    ----------
    Salakhutdinov & Mnih (2008), Bayesian probabilistic matrix factorization using Markov chain Monte Carlo.
    """

    rows: Tensor
    columns: Tensor
    centre: float
    prior: FactorPrior

    def entries(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Returns the mean predictions of entries, as float64."""
        left, right = self.rows[rows].double(), self.columns[columns].double()
        return self.centre + _predict(left, right).mean(dim=-1)

    def row(self, factors: Tensor) -> Tensor:
        """Returns the mean predictions (D) of all columns in a row with factors (S, K), one of each draw."""
        return self.centre + _predict(factors.unsqueeze(0), self.columns).mean(dim=-1)

    def fold_in(self, columns: Tensor, values: Tensor) -> Tensor:
        """Returns the posterior mean (S, K) of the factors of a new row with these entries, in each draw."""
        seen = self.columns[columns].transpose(0, 1)  # (S, M, K)
        design = _as_design(seen)
        rest = values - self.centre - seen[..., 0]
        prior, noise = self.prior, self.prior.noise
        precision = prior.precision + noise[:, None, None] * design.mT @ design
        linear = (prior.precision @ prior.mean.unsqueeze(-1)).squeeze(-1)
        linear = linear + noise[:, None] * (design.mT @ rest.unsqueeze(-1)).squeeze(-1)
        factors: Tensor = torch.linalg.solve(precision, linear)
        return factors


def draw_factors(
    ratings: SparseRows, n_factors: int, n_warmup: int, n_draws: int, generator: torch.Generator
) -> FactorDraws:
    """Samples offsets and factors of rows and columns alternately; draws of the warm-up are discarded."""
    by_row, by_column = _Side(ratings), _Side(_transposed(ratings))
    rows, columns = (
        START * torch.randn(n, n_factors + 1, generator=generator) for n in (len(ratings), ratings.n_columns)
    )
    centre, spread = ratings.values.mean(), ratings.values.var(correction=0)
    usual = max(0.5 * float(spread), 1e-3)
    noise = torch.tensor(1.0 / usual)
    kept: tuple[list[Tensor], ...] = ([], [], [], [], [])
    for sweep in range(n_warmup + n_draws):
        prior = (*_draw_prior(rows, generator), noise)
        rows = by_row.draw(columns, centre, prior, generator)
        columns = by_column.draw(rows, centre, (*_draw_prior(columns, generator), noise), generator)
        noise = _draw_noise(ratings, rows, columns, usual, generator)
        if sweep >= n_warmup:
            for draws, value in zip(kept, (rows, columns, *prior), strict=True):
                draws.append(value)
    prior_draws = FactorPrior(*(torch.stack(draws) for draws in kept[2:]))
    return FactorDraws(torch.stack(kept[0], dim=1), torch.stack(kept[1], dim=1), float(centre), prior_draws)


class _Side:
    """The rows of one side, in chunks of nearly equal numbers of entries, which are padded."""

    def __init__(self, ratings: SparseRows) -> None:
        self.ratings = ratings
        self.order = torch.argsort(ratings.counts, stable=True)

    def draw(
        self, others: Tensor, centre: Tensor, prior: tuple[Tensor, ...], generator: torch.Generator
    ) -> Tensor:
        """Returns a draw (N, K) of the factors of all rows, given those (D, K) of the other side."""
        size = others.shape[1]
        drawn = others.new_empty(len(self.ratings), size)
        end = len(self.order)
        while end > 0:
            longest = max(1, int(self.ratings.counts[self.order[end - 1]]))
            chosen = self.order[max(0, end - max(1, CELLS // (longest * size))) : end]
            noise = torch.randn(len(chosen), size, 1, generator=generator)
            drawn[chosen] = _draw_rows(self.ratings[chosen], longest, others, centre, prior, noise)
            end -= len(chosen)
        return drawn


def _draw_rows(
    rows: SparseRows,
    longest: int,
    others: Tensor,
    centre: Tensor,
    prior: tuple[Tensor, ...],
    normal: Tensor,
) -> Tensor:
    """Returns factors (N, K) of rows from their Gaussian posterior."""
    mean, precision, noise = prior
    place = torch.arange(len(rows.values)) - rows.starts[:-1].long()[rows.rows]
    seen = others[rows.columns.long()]
    design = others.new_zeros(len(rows), longest, others.shape[1])  # padded with zeros
    design[rows.rows, place] = _as_design(seen)
    rest = others.new_zeros(len(rows), longest)
    rest[rows.rows, place] = rows.values - centre - seen[:, 0]
    full = precision + noise * design.mT @ design
    linear = (precision @ mean).unsqueeze(-1) + noise * design.mT @ rest.unsqueeze(-1)
    root = torch.linalg.cholesky(full)
    found: Tensor = torch.cholesky_solve(linear, root) + torch.linalg.solve_triangular(
        root.mT, normal, upper=True
    )
    return found.squeeze(-1)


def _draw_prior(factors: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Returns a mean and a precision from their Gauss-Wishart posterior given factors (N, K)."""
    n_rows, size = factors.shape
    count = n_rows + PRIOR_COUNT
    mean = factors.sum(dim=0) / count
    centred = factors - factors.mean(dim=0)
    usual = factors.mean(dim=0)
    scatter = torch.eye(size) + centred.T @ centred
    scatter = scatter + n_rows * PRIOR_COUNT / count * torch.outer(usual, usual)
    root = torch.linalg.cholesky(torch.linalg.inv(scatter))
    normals = root @ torch.randn(size, n_rows + size, generator=generator)
    precision = normals @ normals.T  # Wishart with n_rows + size degrees of freedom
    spread = torch.linalg.cholesky(count * precision)
    shift = torch.randn(size, 1, generator=generator)
    moved: Tensor = mean + torch.linalg.solve_triangular(spread.mT, shift, upper=True).squeeze(-1)
    return moved, precision


def _draw_noise(
    ratings: SparseRows, rows: Tensor, columns: Tensor, usual: float, generator: torch.Generator
) -> Tensor:
    """Returns the precision of the noise from its gamma posterior, by a chi-squared draw."""
    fitted = sampled_product(ratings, _as_design(rows), columns) + rows[ratings.rows, 0]
    errors = ratings.values - ratings.values.mean() - fitted
    freedom = len(errors) + NOISE_COUNT
    total = errors.square().sum() + NOISE_COUNT * usual
    # The sum of many squares of normals is nearly normal, by its cube root (Wilson and Hilferty).
    spread = 2.0 / (9.0 * freedom)
    root = 1.0 - spread + spread**0.5 * torch.randn((), generator=generator)
    precision: Tensor = freedom * root**3 / total
    return precision


def _transposed(ratings: SparseRows) -> SparseRows:
    starts, rows, order = ratings.transposition
    return SparseRows(starts, rows, ratings.values[order], len(ratings))


def _as_design(factors: Tensor) -> Tensor:
    """Returns factors with 1 in place of the offset, the design matrix of the other side."""
    return torch.cat([torch.ones_like(factors[..., :1]), factors[..., 1:]], dim=-1)


def _predict(left: Tensor, right: Tensor) -> Tensor:
    """Returns the sums of both offsets and the product of factors, over the last dimension."""
    return left[..., 0] + right[..., 0] + (left[..., 1:] * right[..., 1:]).sum(dim=-1)
