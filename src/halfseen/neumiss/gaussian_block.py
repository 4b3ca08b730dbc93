r"""A layer that computes the conditional Gaussian of every row, under MAR or Gaussian self-masking."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional

from halfseen.data.incomplete import Incomplete
from halfseen.data.margins import inverse_softplus
from halfseen.neumiss.masked_solve import Solver, masked_log_prob, masked_solve, masked_variance

MIN_VARIANCE = 1e-6
"""Added to the diagonal of every covariance: it stays positive definite throughout training."""

MIN_CHANCE = 1e-6
"""The smallest initial height of a masking curve, and the smallest distance of its height from 1."""


@dataclass(frozen=True)
class Conditional:
    r"""The conditional Gaussian of each row, as a Gaussian block returns it.

    Shapes
    ------
    h : :math:`(N, D)`, the solution of the row's system, on which a linear layer can predict.
    mean : :math:`(N, D)`, the conditional mean; observed cells are the values themselves.
    observed : :math:`(N, D)`
    covariance, precision : :math:`(D, D)` and :math:`(D)`, of the block.
    """

    h: Tensor
    mean: Tensor
    observed: Tensor
    covariance: Tensor
    precision: Tensor

    @cached_property
    def variance(self) -> Tensor:
        """The conditional variance (N, D) of each cell, zero where observed; computed on first access."""
        return masked_variance(self.covariance, self.observed, self.precision)


class GaussianBlock(nn.Module):
    r"""A Gaussian of incomplete rows with learned parameters: a NeuMiss block that cannot diverge.

    The rows are :math:`X \sim \mathcal{N}(\mu, C)` with :math:`C = F F^\top + \mathrm{diag}(v)` and
    :math:`v > 0`. Missing cells are ignorable (MAR), or with `self_masking` they are missing with probability

    .. math:: P(k \text{ missing} \mid X) = K_k \exp\left(-\tfrac12 p_k (X_k - t_k)^2\right)

    (MNAR). In both cases the block solves one positive definite system per row,
    :math:`(C + \mathrm{diag}(n)) \, h = r`, where an observed cell has :math:`n_k = 0, r_k = x_k - \mu_k` and
    a missing one :math:`n_k = 1 / p_k, r_k = t_k - \mu_k`. Then :math:`\mathrm{E}[X \mid x_o, o] = \mu +
    C h`, so the Bayes predictor of a linear response is one linear function of :math:`h` for every pattern.

    Parameters
    ----------
    n_features : int
        The number of features :math:`D`.
    self_masking : bool
        Whether the probability that a cell is missing depends on its value; otherwise :math:`p_k = 0`.
    solver : {"neumann", "chebyshev", "cholesky", "cg"}
        The solver of the system, see `masked_solve`.
    depth : int
        The number of steps of a solver that is not "cholesky".

    Shapes
    ------
    batch : :math:`(N, D)`, of the type of the parameters; entries of `x` where `observed` is False are never
        read.

    Notes
    -----
    It is initialised as a standard normal with wide masking curves around the mean; `set_gaussian` sets the
    parameters to estimates. Features should be standardised.

    References
    ----------
    Le Morvan et al. (2020), NeuMiss networks, propositions 2.1 and 2.2. We write :math:`1 / p_k` and
    :math:`t_k` for their :math:`\tilde\sigma_k^2` and :math:`\tilde\mu_k`, and read the factor of a missing
    cell as a pseudo-observation; the paper approximates what is exact here.

    Examples
    --------
    >>> block = GaussianBlock(n_features=2)
    >>> block.set_gaussian(torch.zeros(2), torch.tensor([[1.0, 0.8], [0.8, 1.0]]))
    >>> batch = Incomplete(torch.tensor([[1.0, torch.nan]]), torch.tensor([[True, False]]))
    >>> conditional = block(batch)
    >>> conditional.mean
    tensor([[1.0000, 0.8000]], grad_fn=<WhereBackward0>)
    >>> conditional.variance
    tensor([[0.0000, 0.3600]], grad_fn=<WhereBackward0>)
    """

    def __init__(
        self, n_features: int, *, self_masking: bool = False, solver: Solver = "cholesky", depth: int = 20
    ) -> None:
        super().__init__()
        if n_features < 1:
            raise ValueError(f"n_features must be at least 1, got {n_features!r}.")
        self.n_features = n_features
        self.self_masking = self_masking
        self.solver: Solver = solver
        self.depth = depth

        self.loc = nn.Parameter(torch.zeros(n_features))  # (D,)
        self.factor = nn.Parameter(torch.zeros(n_features, n_features))  # (D, D)
        self.raw_variance = nn.Parameter(torch.zeros(n_features))  # (D,)
        if self_masking:
            self.centre = nn.Parameter(torch.zeros(n_features))  # (D,)
            self.log_precision = nn.Parameter(torch.full((n_features,), 0.1).log())  # (D,)
            self.logit_height = nn.Parameter(torch.zeros(n_features))  # (D,)
        self.set_gaussian(torch.zeros(n_features), torch.eye(n_features))

    def extra_repr(self) -> str:
        """Returns the arguments of the constructor."""
        return (
            f"n_features={self.n_features}, self_masking={self.self_masking}, "
            f"solver={self.solver!r}, depth={self.depth}"
        )

    def covariance(self) -> Tensor:
        """Returns the covariance, of shape (D, D)."""
        variance = MIN_VARIANCE + functional.softplus(self.raw_variance)
        return self.factor @ self.factor.mT + torch.diag(variance)

    def precision(self) -> Tensor:
        """Returns the precision (D) of pseudo-observations of missing cells; zero without self-masking."""
        return self.log_precision.exp() if self.self_masking else torch.zeros_like(self.loc)

    def forward(self, batch: Incomplete) -> Conditional:
        """Returns the conditional Gaussian of each row."""
        covariance, precision = self.covariance(), self.precision()
        h = masked_solve(
            covariance, batch.observed, self._residual(batch), precision, solver=self.solver, depth=self.depth
        )
        mean = batch.filled(self.loc + h @ covariance)

        return Conditional(h, mean, batch.observed, covariance, precision)

    def log_prob(self, batch: Incomplete) -> Tensor:
        r"""Returns the log density (N) of the observed cells; with `self_masking`, of them and the mask.

        .. math::
            \log p(x_o, o) = \log \mathcal{N}(r; 0, C + \mathrm{diag}(n))
            + \sum_{k \in m} \log\left(K_k \sqrt{2\pi / p_k}\right)
            + \sum_{k \in o} \log\left(1 - K_k e^{-p_k (x_k - t_k)^2 / 2}\right)

        It is exact, regardless of the solver.
        """
        residual = self._residual(batch)
        log_prob = masked_log_prob(self.covariance(), batch.observed, residual, self.precision())
        if not self.self_masking:
            return log_prob

        distance = 0.5 * self.precision() * (batch.filled(self.centre) - self.centre).square()
        height = self.logit_height.sigmoid()
        # 1 - K exp(-q) = (1 - K) + K (1 - exp(-q)): a sum of positive numbers, in which no digit is lost.
        chance_seen = (-self.logit_height).sigmoid() - height * torch.expm1(-distance)
        log_mask = torch.where(batch.observed, chance_seen.log(), functional.logsigmoid(self.logit_height))
        return log_prob + log_mask.sum(dim=-1)

    @torch.no_grad()
    def set_gaussian(
        self,
        loc: Tensor,
        covariance: Tensor,
        centre: Tensor | None = None,
        precision: Tensor | None = None,
        height: Tensor | None = None,
    ) -> None:
        r"""Sets the parameters to these values; masking curves that are None stay as they are.

        If the covariance is singular or nearly so, its diagonal is increased by at most about `MIN_VARIANCE`.

        Parameters
        ----------
        loc, covariance : Tensor
            :math:`\mu` and :math:`C`, of shapes :math:`(D)` and :math:`(D, D)`.
        centre, precision, height : Tensor, optional
            :math:`t`, :math:`p > 0` and :math:`0 \leq K \leq 1`, each of shape :math:`(D)`.

        Raises
        ------
        ValueError
            If masking curves are given to a block without `self_masking`, or a precision is not positive.
        """
        root, variance = _split_covariance(covariance.double())
        above = variance - MIN_VARIANCE
        self.loc.copy_(loc)
        self.factor.copy_(root)
        self.raw_variance.copy_(inverse_softplus(above))
        if not self.self_masking and not (centre is None and precision is None and height is None):
            raise ValueError("centre, precision and height need a block with self_masking=True.")
        if centre is not None:
            self.centre.copy_(centre)
        if precision is not None:
            if not (precision > 0).all():
                raise ValueError(f"precision must be positive, got {precision.min().item()!r}.")
            self.log_precision.copy_(precision.log())
        if height is not None:
            self.logit_height.copy_(torch.logit(height.double(), eps=MIN_CHANCE))

    def _residual(self, batch: Incomplete) -> Tensor:
        """Returns observed values, or pseudo-observations of missing ones, minus the mean."""
        return batch.filled(self.centre if self.self_masking else self.loc) - self.loc


def _split_covariance(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Splits a covariance into a square root and a diagonal that is half of the largest possible."""
    spread = covariance.diagonal().clamp(min=MIN_VARIANCE).sqrt()
    correlation = covariance / (spread * spread.unsqueeze(-1))
    share = 0.5 * torch.linalg.eigvalsh(correlation)[0]
    variance = (share * spread.square()).clamp(min=2.0 * MIN_VARIANCE)
    eigenvalues, vectors = torch.linalg.eigh(covariance - torch.diag(variance))
    return vectors * eigenvalues.clamp(min=0.0).sqrt() @ vectors.mT, variance
