r"""Bayesian regressions of a column on others: draws of their parameters, and what they predict.

Each chain of chained equations has a completed table of its own, so the regression of a column is repeated
for every chain, with the same rows and the same prior. All functions are vectorised over chains. The first
column of a design matrix Z is 1, the others are standardised.

Shapes everywhere: ``S`` chains, ``N`` rows, ``P`` inputs including the constant, ``K`` levels.

References
----------
van Buuren (2018), Flexible Imputation of Missing Data, chapter 3; Gelman et al. (2008), A weakly informative
default prior distribution for logistic and other regression models; Andrieu, Lee & Vihola (2018), Uniform
ergodicity of the iterated conditional SMC, for the choice among proposals.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.special import ndtr, ndtri

# The precision of linear coefficients, in rows of the table, is `PRIOR_ROWS`, or with few rows for each
# coefficient, `CROWDED_ROWS` divided by this number. Both are compromises, chosen on tables of 30 and 60 rows
# of the experiment on pooled intervals (`papers/library/inference_tables.py`): with half as much, estimates
# vary more, and with twice as much they are shrunk more. New tables of 30 rows with values missing completely
# at random, which the choice had not seen, confirm bias and coverage; those missing at random have not run.
PRIOR_ROWS = 0.1
CROWDED_ROWS = 5.0
FLAT = 1e-6  # rows; a prior precision up to it only keeps matrices regular, and passes for no prior
# Standard deviation of logistic coefficients. Chosen by simulation: with the 2.5 of Gelman et al., strong
# coefficients are shrunk noticeably in tables of a few hundred rows, and analyses of the draws are biased.
PRIOR_SCALE = 5.0
N_PROPOSALS = 10  # of the coefficients of a logistic regression; a guess, well above the one of Metropolis
ENOUGH_ROWS = 200  # per coefficient, from which on a logistic posterior passes for normal; a guess
CONSTANT_SCALE = 10.0  # of the constants of logistic regressions, as in Gelman et al.
COLD_STEPS = 50  # Newton steps at most before the first cycle; 5 to 10 suffice without separation
WARM_STEPS = 2  # per cycle: few cells changed since the last one, so that the first step is nearly exact
CONVERGED = 1e-6  # change of a coefficient per step, in units of log odds per standard deviation
MOST_HALVINGS = 20  # of a Newton step that does not increase the posterior density
FEW_ROWS = 2.0  # rows per coefficient below which the prior is conjugate and chosen by its evidence
PRIOR_FREEDOM = 4.0  # rows that the prior of the residual variance is worth then; a guess
LEAST_FREEDOM = 3  # degrees of freedom of a residual variance, with which its draws have a mean
PRIOR_VARIANCE = 0.5  # of the residual, of a column of unit variance; a guess
SMALLEST_GAP = 1e-6  # between thresholds that were drawn, which have to increase
SMALLEST_MASS = 1e-300  # of a level, so that its logarithm is finite
EDGE = 1e-15  # uniforms stay this far from 0 and 1, where normal quantiles are infinite


class Noise:
    """Random numbers with one generator per chain, so that a chain does not depend on the others.

    Parameters
    ----------
    seed : int
        The seed of the fit.
    chains : sequence of int
        The numbers of the chains.
    """

    def __init__(self, seed: int, chains: Sequence[int]) -> None:
        self.generators = [np.random.default_rng([seed, chain]) for chain in chains]

    def normals(self, *shape: int) -> Tensor:
        """Returns standard normals (S, *shape)."""
        return self._stack([one.standard_normal(shape) for one in self.generators])

    def uniforms(self, *shape: int) -> Tensor:
        """Returns uniforms (S, *shape) in [0, 1)."""
        return self._stack([one.random(shape) for one in self.generators])

    def chi_squared(self, freedom: Tensor) -> Tensor:
        """Returns draws (S) of chi-squared distributions with these degrees of freedom (S)."""
        drawn = [one.chisquare(df) for one, df in zip(self.generators, freedom.tolist(), strict=True)]
        return torch.tensor(drawn, dtype=torch.float64)

    @staticmethod
    def _stack(arrays: Sequence[npt.NDArray[np.float64]]) -> Tensor:
        return torch.from_numpy(np.stack(arrays))


@dataclass(frozen=True)
class LinearDraw:
    """Coefficients (S, P) and residual standard deviations (S) of linear regressions."""

    coefficients: Tensor
    scale: Tensor


def expected(design: Tensor, places: Tensor, coefficients: Tensor) -> Tensor:
    """Returns the linear predictor (S, N) of a design (S, N, D), whose columns `places` have coefficients.

    The other columns have the coefficient 0, because selecting columns would copy the design.
    """
    every = design.new_zeros(len(coefficients), design.shape[-1])
    every[:, places] = coefficients
    return (design @ every.unsqueeze(-1)).squeeze(-1)


def draw_linear(
    gram: Tensor,
    design: Tensor,
    places: Tensor,
    target: Tensor,
    observed: Tensor,
    prior: Tensor,
    noise: Noise,
) -> LinearDraw:
    r"""Draws from the posterior of a linear regression with a normal prior of the coefficients.

    .. math::
        A = Z^T Z + \operatorname{diag}(\lambda), \quad b = A^{-1} Z^T y, \quad
        \sigma^2 \sim S / \chi^2_\nu, \quad \beta \sim \mathcal{N}(b, \sigma^2 A^{-1})

    with :math:`S = \lVert y - Z b \rVert^2 + b^T \operatorname{diag}(\lambda) b` and :math:`\nu = n - n_0`,
    where :math:`n_0` is the number of coefficients with :math:`\lambda = 0`. This is the posterior under
    :math:`\beta \sim \mathcal{N}(0, \sigma^2 \operatorname{diag}(\lambda)^{-1})` and Jeffreys' prior of
    :math:`\sigma`. As in the posterior of a joint normal, the degrees of freedom are the number of rows minus
    one: with those of a flat prior of the coefficients, imputed values of small tables vary too much, which
    biases coefficients towards zero. If rows are few (`are_few`), the prior of :math:`\sigma^2` is proper,
    with :math:`\nu_0 s_0^2` added to S and :math:`\nu_0` to :math:`\nu`; see `PRIOR_FREEDOM` and
    `PRIOR_VARIANCE`.

    Shapes
    ------
    gram : (S, P, P), :math:`Z^T Z` of the observed rows.
    design : (S, N, D), of which the regression uses some columns.
    places : (P), the positions of these columns.
    target : (S, N), arbitrary where it is not observed.
    observed : (N) or (S, N), the rows of the regression.
    prior : (P), :math:`\lambda`, in rows.
    """
    y = torch.where(observed, target, 0.0)
    factor = torch.linalg.cholesky(gram + torch.diag(prior))
    cross = (y.unsqueeze(1) @ design)[..., places].mT
    fitted = torch.cholesky_solve(cross, factor)
    residual = torch.where(observed, y - expected(design, places, fitted.squeeze(-1)), 0.0)
    squares, n_rows, width = residual.square().sum(dim=1), observed.sum(dim=-1), gram.shape[-1]
    squares = squares + fitted.squeeze(-1).square() @ prior
    freedom = (n_rows - (prior <= FLAT).sum()).to(torch.float64).expand_as(squares)
    if are_few(int(n_rows.min()), width):
        squares, freedom = squares + PRIOR_FREEDOM * PRIOR_VARIANCE, freedom + PRIOR_FREEDOM
    scale = (squares / noise.chi_squared(freedom)).sqrt()
    step = torch.linalg.solve_triangular(factor.mT, noise.normals(width, 1), upper=True)
    return LinearDraw((fitted + scale[:, None, None] * step).squeeze(-1), scale)


def are_few(n_rows: int, width: int) -> bool:
    """Returns whether there are so few rows that a regression depends on the prior of its coefficients."""
    return n_rows < max(FEW_ROWS * width, width + LEAST_FREEDOM)


def choose_prior_rows(design: Tensor, target: Tensor, candidates: Sequence[float]) -> float:
    r"""Returns the precision of coefficients, in rows, with the greatest marginal likelihood.

    Under :math:`\beta \sim \mathcal{N}(0, \sigma^2 / \lambda)` and Jeffreys' prior of :math:`\sigma`, with
    centred columns (empirical Bayes):

    .. math::
        \log p(y \mid \lambda) = \tfrac{1}{2} \sum_k \log \frac{\lambda}{\lambda + d_k^2}
        - \tfrac{n - 1}{2} \log\Bigl(\lVert y \rVert^2 - \sum_k \frac{d_k^2 u_k^2}{\lambda + d_k^2}\Bigr)

    with the singular values d of the design and the projections :math:`u = U^T y`.

    Shapes
    ------
    design : (N, P), without the constant.
    target : (N)
    """
    left, size, _ = torch.linalg.svd(design - design.mean(dim=0), full_matrices=False)
    y = target - target.mean()
    part, total, spread = (left.mT @ y).square(), y.square().sum(), size.square()

    def evidence(rows: float) -> float:
        left_over = (total - (spread * part / (rows + spread)).sum()).clamp(min=1e-12 * total + 1e-300)
        return float(0.5 * (rows / (rows + spread)).log().sum() - 0.5 * (len(y) - 1) * left_over.log())

    return max(candidates, key=evidence)


def draw_between(mean: Tensor, scale: Tensor, low: Tensor, high: Tensor, uniforms: Tensor) -> Tensor:
    """Returns draws of normal distributions between two limits, either of which may be infinite.

    Examples
    --------
    >>> mean, one = torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    >>> draw_between(mean, one, one * 8, one * torch.inf, torch.tensor([0.01, 0.99])) > 8
    tensor([True, True])
    """
    below, above = (low - mean) / scale, (high - mean) / scale
    flipped = below > 0  # small probabilities are exact on the left side only
    left, right = torch.where(flipped, -above, below), torch.where(flipped, -below, above)
    start, end = ndtr(left), ndtr(right)
    drawn = ndtri((start + uniforms * (end - start)).clamp(SMALLEST_MASS, 1 - EDGE))
    drawn = torch.maximum(torch.minimum(drawn, right), left)
    found: Tensor = mean + scale * torch.where(flipped, -drawn, drawn)
    return found


@dataclass(frozen=True)
class LogisticPosterior:
    """The mode (S, Q) of the coefficients, and the Cholesky factor (S, Q, Q) of the precision there."""

    mode: Tensor
    factor: Tensor

    def draw(self, noise: Noise) -> Tensor:
        """Returns coefficients (S, Q) drawn from the normal approximation at the mode."""
        normals = noise.normals(self.mode.shape[1], 1)
        step: Tensor = torch.linalg.solve_triangular(self.factor.mT, normals, upper=True)
        return self.mode + step.squeeze(-1)

    def choose(self, model: "Model", design: Tensor, current: Tensor | None, noise: Noise) -> Tensor:
        r"""Returns coefficients (S, Q) drawn from the posterior itself.

        With few rows, a logistic posterior is skewed: its mean is further from zero than its mode, and draws
        from the normal approximation would be too close to zero. Therefore several proposals are drawn from
        the approximation q, and one of them or the current coefficients :math:`\beta` is chosen with
        probabilities proportional to :math:`p(\beta \mid y) / q(\beta)`, which leaves the posterior
        invariant (iterated sampling importance resampling).

        Parameters
        ----------
        model : Model
            The posterior density.
        design : Tensor
            (S, N, P)
        current : Tensor or None
            (S, Q), the coefficients that were drawn before.
        noise : Noise
            The random numbers of each chain.
        """
        normals = noise.normals(N_PROPOSALS, self.mode.shape[1])
        steps = torch.linalg.solve_triangular(self.factor.mT, normals.mT, upper=True).mT  # (S, K, Q)
        if current is not None:
            own = (current - self.mode).unsqueeze(1)
            steps, normals = torch.cat([own, steps], dim=1), torch.cat([own @ self.factor, normals], dim=1)
        proposed: Tensor = self.mode.unsqueeze(1) + steps
        logs = model.log_density(design, proposed.flatten(0, 1)).unflatten(0, (-1, proposed.shape[1]))
        logs = (logs + 0.5 * normals.square().sum(dim=-1)).nan_to_num(nan=-torch.inf, neginf=-torch.inf)
        logs = torch.where(logs.amax(dim=1, keepdim=True).isinf(), 0.0, logs)  # no proposal is possible
        reached = noise.uniforms(1) >= torch.softmax(logs, dim=1).cumsum(dim=1)[:, :-1]
        return proposed[torch.arange(len(proposed)), reached.sum(dim=1)]


class MultinomialModel:
    r"""A multinomial logistic regression; the last level is the reference.

    .. math:: \log \frac{p(y = k \mid z)}{p(y = K \mid z)} = z^T \beta_k, \qquad
        \beta_{kj} \sim \mathcal{N}(0, s_j^2)

    Coefficients are stored as (S, (K - 1) P), level by level.

    Parameters
    ----------
    levels : Tensor
        (N) or (S, N), the level of each row, -1 where it is missing.
    n_levels : int
        The number of levels K.
    prior : Tensor
        (P), the precisions :math:`1 / s_j^2`.
    """

    def __init__(self, levels: Tensor, n_levels: int, prior: Tensor) -> None:
        self.n_free = n_levels - 1
        levels = levels if levels.ndim == 2 else levels[None]
        self.observed = (levels >= 0).to(torch.float64)
        self.n_rows = int(self.observed[0].sum())
        self.indicators = (levels.unsqueeze(-1) == torch.arange(self.n_free)).to(torch.float64)
        self.prior = prior.repeat(self.n_free)
        self.levels = levels.clamp(min=0)

    def start(self) -> Tensor:
        """Returns the coefficients (1, Q) of no dependence on the inputs: log odds of the frequencies."""
        counts = torch.cat([self.indicators.sum(dim=(0, 1)), self.observed.sum()[None]])
        counts[-1] -= counts[:-1].sum()
        shares = (counts / len(self.observed) + 0.5).log()
        found = torch.zeros(self.n_free, len(self.prior) // self.n_free, dtype=torch.float64)
        found[:, 0] = shares[:-1] - shares[-1]
        return found.reshape(1, -1)

    def log_density(self, design: Tensor, coefficients: Tensor) -> Tensor:
        """Returns the log posterior density (S), up to a constant; (S K) for K coefficients per chain."""
        logits = _multinomial_logits(design, coefficients)
        own = logits.gather(1, _repeated(self.levels, len(logits)).unsqueeze(1)).squeeze(1)
        of_rows = ((own - logits.logsumexp(dim=1)) * _repeated(self.observed, len(logits))).sum(dim=1)
        return of_rows - 0.5 * coefficients.square() @ self.prior

    def gradient(self, design: Tensor, coefficients: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the gradient (S, Q) of the log posterior density, and the probabilities (S, N, K)."""
        shares = multinomial(design, coefficients)
        residual = (self.indicators - shares[..., :-1]) * self.observed.unsqueeze(-1)
        return (residual.mT @ design).flatten(1) - self.prior * coefficients, shares

    def precision(self, design: Tensor, shares: Tensor) -> Tensor:
        """Returns the negative second derivatives (S, Q, Q)."""
        n_chains, _, width = design.shape
        found = design.new_empty(n_chains, self.n_free, width, self.n_free, width)
        for one in range(self.n_free):
            for other in range(one + 1):
                weight = shares[..., one] * (float(one == other) - shares[..., other]) * self.observed
                block = (design * weight.unsqueeze(-1)).mT @ design
                found[:, one, :, other] = block
                found[:, other, :, one] = block.mT
        return found.reshape(n_chains, len(self.prior), len(self.prior)) + torch.diag(self.prior)


def indices(design: Tensor, coefficients: Tensor) -> Tensor:
    """Returns linear predictors (S J, K, N) of designs (S, N, P), from coefficients (S J, K, P).

    The J coefficients of a chain are next to each other. The design is not copied for each of them.
    """
    n_parts = coefficients.shape[1]
    by_chain = coefficients.unflatten(0, (len(design), -1)).flatten(1, 2)  # (S, J K, P)
    found: Tensor = (by_chain @ design.mT).unflatten(1, (-1, n_parts))
    return found.flatten(0, 1)


def _repeated(rows: Tensor, n_repeated: int) -> Tensor:
    """Returns (S J, N) what is known of the rows of chains (S, N), or of all chains (1, N)."""
    if len(rows) == 1:
        return rows.expand(n_repeated, -1)
    return rows.repeat_interleave(n_repeated // len(rows), dim=0)


def multinomial(design: Tensor, coefficients: Tensor) -> Tensor:
    """Returns the probabilities (S, N, K) of levels, from coefficients (S, (K - 1) P).

    There may be several coefficients for each chain, one after the other; see `indices`.
    """
    shares = torch.softmax(_multinomial_logits(design, coefficients), dim=1)
    return shares.clamp(min=SMALLEST_MASS).mT


def _multinomial_logits(design: Tensor, coefficients: Tensor) -> Tensor:
    """Returns the logits (S, K, N) of levels; operations over few levels are fast along long rows."""
    logits = indices(design, coefficients.unflatten(1, (-1, design.shape[-1])))
    return torch.nn.functional.pad(logits, (0, 0, 0, 1))


class OrderedModel:
    r"""A proportional-odds regression of ordered levels.

    .. math:: p(y \le k \mid z) = \operatorname{logistic}(\theta_k - z^T \beta)

    The coefficients (S, K - 1 + P - 1) are the thresholds, then those of the inputs without the constant.

    Parameters
    ----------
    levels, n_levels : Tensor, int
        As of `MultinomialModel`.
    prior : Tensor
        (P), the precisions of the inputs; that of the constant is the precision of each threshold.
    """

    def __init__(self, levels: Tensor, n_levels: int, prior: Tensor) -> None:
        self.n_free = n_levels - 1
        levels = levels if levels.ndim == 2 else levels[None]
        self.observed = (levels >= 0).to(torch.float64)
        self.n_rows = int(self.observed[0].sum())
        self.levels = levels.clamp(min=0)
        self.prior = torch.cat([prior[:1].expand(self.n_free), prior[1:]])
        steps = torch.arange(self.n_free)
        self.upper = (self.levels.unsqueeze(-1) == steps).to(torch.float64)  # (S, N, K - 1)
        self.lower = (self.levels.unsqueeze(-1) - 1 == steps).to(torch.float64)

    def start(self) -> Tensor:
        """Returns the coefficients (1, Q) of no dependence on the inputs: logits of cumulated frequencies."""
        counts = torch.zeros(self.n_free + 1, dtype=torch.float64)
        counts = counts.index_add(0, self.levels.flatten(), self.observed.flatten()) / len(self.levels) + 0.5
        shares = counts.cumsum(0)[:-1] / counts.sum()
        return torch.cat([torch.logit(shares), torch.zeros_like(self.prior[self.n_free :])])[None]

    def _ends(self, design: Tensor, coefficients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the distances (S, N) from the index to both thresholds of a level, and its probability."""
        thresholds, slopes = coefficients[:, : self.n_free], coefficients[:, self.n_free :]
        index = indices(design[..., 1:], slopes.unsqueeze(1)).squeeze(1)
        padded = torch.nn.functional.pad(thresholds, (1, 1))
        padded[:, 0], padded[:, -1] = -torch.inf, torch.inf
        levels = _repeated(self.levels, len(padded))
        low, high = padded.gather(1, levels) - index, padded.gather(1, levels + 1) - index
        flipped = low > 0  # differences of numbers near 1 lose digits
        below, above = torch.where(flipped, -high, low), torch.where(flipped, -low, high)
        mass = (torch.sigmoid(above) - torch.sigmoid(below)).clamp(min=SMALLEST_MASS)
        return low, high, mass

    def log_density(self, design: Tensor, coefficients: Tensor) -> Tensor:
        """Returns the log posterior density (S), up to a constant; minus infinity if thresholds fall.

        It is (S K) for K coefficients per chain.
        """
        mass = self._ends(design, coefficients)[2]
        falls = (torch.diff(coefficients[:, : self.n_free], dim=1) <= 0).any(dim=1)
        of_rows = (mass.log() * _repeated(self.observed, len(mass))).sum(dim=1)
        density = of_rows - 0.5 * coefficients.square() @ self.prior
        return torch.where(falls, -torch.inf, density)

    def gradient(self, design: Tensor, coefficients: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the gradient (S, Q) of the log posterior density, and its parts by rows (2, S, N)."""
        low, high, mass = self._ends(design, coefficients)
        rise = torch.stack([_logistic_density(high), -_logistic_density(low)]) / mass * self.observed
        by_threshold = _sums(rise[0], self.upper) + _sums(rise[1], self.lower)
        by_input = -(rise.sum(dim=0).unsqueeze(1) @ design[..., 1:]).squeeze(1)
        return torch.cat([by_threshold, by_input], dim=1) - self.prior * coefficients, torch.stack(
            [low, high, mass]
        )

    def precision(self, design: Tensor, ends: Tensor) -> Tensor:
        """Returns the negative second derivatives (S, Q, Q)."""
        low, high, mass = ends
        first, last = _logistic_density(low) / mass, _logistic_density(high) / mass
        both = -first * last
        at_high = (last.square() - last * _logistic_slope(high)) * self.observed
        at_low = (first.square() + first * _logistic_slope(low)) * self.observed
        both = both * self.observed
        inputs = design[..., 1:]
        found = design.new_zeros(len(design), len(self.prior), len(self.prior))
        n = self.n_free
        cross = (self.upper * both.unsqueeze(-1)).mT @ self.lower
        own = _sums(at_high, self.upper) + _sums(at_low, self.lower)
        found[:, :n, :n] = torch.diag_embed(own) + cross + cross.mT
        mixed = (
            self.upper.mT * (at_high + both).unsqueeze(1) + self.lower.mT * (at_low + both).unsqueeze(1)
        ) @ inputs
        found[:, :n, n:], found[:, n:, :n] = -mixed, -mixed.mT
        weight = (at_high + at_low + 2 * both).unsqueeze(-1)
        found[:, n:, n:] = (inputs * weight).mT @ inputs
        return found + torch.diag(self.prior)


def ordered(design: Tensor, coefficients: Tensor) -> Tensor:
    """Returns the probabilities (S, N, K) of ordered levels, from coefficients (S, K - 1 + P - 1)."""
    n_free = coefficients.shape[1] - design.shape[-1] + 1
    thresholds, slopes = coefficients[:, None, :n_free], coefficients[:, n_free:]
    gaps = torch.diff(thresholds, dim=-1).clamp(min=SMALLEST_GAP)  # draws of rare levels may cross
    increasing = torch.cat([thresholds[..., :1], thresholds[..., :1] + gaps.cumsum(-1)], dim=-1)
    reached = torch.sigmoid(increasing - design[..., 1:] @ slopes.unsqueeze(-1))
    return torch.diff(torch.nn.functional.pad(reached, (1, 0)), append=torch.ones_like(reached[..., :1]))


class PoissonModel:
    r"""A Poisson regression, :math:`\log \mathrm{E}[y \mid z] = z^T \beta`.

    Parameters
    ----------
    counts : Tensor
        (S, N), all of them known.
    prior : Tensor
        (P), the precisions of the coefficients.
    """

    def __init__(self, counts: Tensor, prior: Tensor) -> None:
        self.counts, self.prior = counts, prior

    def start(self) -> Tensor:
        """Returns the coefficients (1, P) of no dependence on the inputs."""
        found = torch.zeros(1, len(self.prior), dtype=torch.float64)
        found[0, 0] = (self.counts.mean() + 1e-3).log()
        return found

    def log_density(self, design: Tensor, coefficients: Tensor) -> Tensor:
        """Returns the log posterior density (S), up to a constant; (S K) for K coefficients per chain."""
        index = indices(design, coefficients.unsqueeze(1)).squeeze(1)
        of_rows = (_repeated(self.counts, len(index)) * index - index.exp()).sum(dim=1)
        return of_rows - 0.5 * coefficients.square() @ self.prior

    def gradient(self, design: Tensor, coefficients: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the gradient (S, P) of the log posterior density, and the expected counts (S, N)."""
        mean = (design @ coefficients.unsqueeze(-1)).squeeze(-1).exp()
        return _sums(self.counts - mean, design) - self.prior * coefficients, mean

    def precision(self, design: Tensor, mean: Tensor) -> Tensor:
        """Returns the negative second derivatives (S, P, P)."""
        return (design * mean.unsqueeze(-1)).mT @ design + torch.diag(self.prior)


class Model(Protocol):
    """A posterior density of coefficients with its derivatives."""

    def start(self) -> Tensor:
        """Returns coefficients (1, Q) where Newton's method starts."""

    def log_density(self, design: Tensor, coefficients: Tensor) -> Tensor:
        """Returns the log posterior density (S), up to a constant; (S K) for K coefficients per chain."""

    def gradient(self, design: Tensor, coefficients: Tensor) -> tuple[Tensor, Tensor]:
        """Returns its gradient (S, Q), and what `precision` needs."""

    def precision(self, design: Tensor, parts: Tensor, /) -> Tensor:
        """Returns the negative second derivatives (S, Q, Q)."""


def find_mode(model: Model, design: Tensor) -> Tensor:
    """Returns the mode (S, Q) of a posterior by Newton's method, with steps that increase the density."""
    mode = model.start().expand(len(design), -1)
    density = model.log_density(design, mode)
    for _ in range(COLD_STEPS):
        slope, parts = model.gradient(design, mode)
        factor = torch.linalg.cholesky(model.precision(design, parts))
        step = torch.cholesky_solve(slope.unsqueeze(-1), factor).squeeze(-1)
        for _ in range(MOST_HALVINGS):
            now = model.log_density(design, mode + step)
            worse = (now < density) | now.isnan()
            if not bool(worse.any()):
                break
            step = torch.where(worse[:, None], 0.5 * step, step)
        mode, density = mode + step, now
        if float(step.abs().max()) < CONVERGED:
            break
    return mode


def follow_mode(
    model: Model, design: Tensor, before: LogisticPosterior, *, refresh: bool
) -> LogisticPosterior:
    """Returns the posterior of a table in which few cells have changed.

    The second derivatives, which cost most, are those of before unless `refresh` is true. The mode is the
    same; only the convergence to it and the covariance of draws depend on them, and both change little.
    """
    mode, factor = before.mode.expand(len(design), -1), before.factor
    slope, parts = model.gradient(design, mode)
    if refresh:
        factor = torch.linalg.cholesky(model.precision(design, parts))
    for number in range(WARM_STEPS):
        if number:
            slope, _ = model.gradient(design, mode)
        mode = mode + torch.cholesky_solve(slope.unsqueeze(-1), factor).squeeze(-1)
    return LogisticPosterior(mode, factor)


def _sums(weights: Tensor, indicators: Tensor) -> Tensor:
    """Returns the sums (S, K) of weights (S, N) by indicators (S or 1, N, K)."""
    return (weights.unsqueeze(1) @ indicators).squeeze(1)


def _logistic_density(x: Tensor) -> Tensor:
    """Returns the derivative of the logistic function; 0 at infinity."""
    return torch.sigmoid(x) * torch.sigmoid(-x)


def _logistic_slope(x: Tensor) -> Tensor:
    """Returns the logarithmic derivative of the logistic density."""
    return torch.sigmoid(-x) - torch.sigmoid(x)
