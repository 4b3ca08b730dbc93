"""A Gaussian whose covariance is of low rank plus a diagonal, for tables with many columns, and its fit.

The fit maximises a penalised likelihood by exact EM.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from math import log, pi

import torch
from torch import Tensor

from halfseen._threads import map_in_threads
from halfseen.data.incomplete import Incomplete, Standardizer, add_in_tree
from halfseen.gaussian.distribution import Bucket, Gaussian, without_overflow
from halfseen.training.progress import Ascent, AscentSettings, ascend, is_over, squared_step

WORKING_BYTES = 32 * 2**20  # of one block of rows


class LowRankGaussian(Gaussian):
    r"""A factor analysis: :math:`x = \mu + W z + \varepsilon` with K standard normal factors z.

    .. math:: x \sim \mathcal{N}(\mu, W W^\top + \operatorname{diag}(\psi))

    All results are exactly those of a `Gaussian` with that covariance, by the Woodbury identity: a row costs
    :math:`D K^2` operations for every pattern, and no D x D matrix is created unless `covariance` is
    accessed.

    Parameters
    ----------
    loc : Tensor
        (D), the mean.
    loadings : Tensor
        (D, K), the matrix W.
    noise : Tensor
        (D), the variances :math:`\psi`, all positive.

    References
    ----------
    Rubin & Thayer (1982), EM algorithms for ML factor analysis.

    Examples
    --------
    >>> loadings, noise = torch.tensor([[0.8], [0.8]]), torch.tensor([0.36, 0.36])
    >>> gaussian = LowRankGaussian(torch.zeros(2), loadings, noise)
    >>> batch = Incomplete(torch.tensor([[1.0, 0.0]]), torch.tensor([[True, False]]))
    >>> gaussian.conditional_mean(batch)
    tensor([[1.0000, 0.6400]])
    """

    loadings: Tensor
    noise: Tensor

    def __init__(self, loc: Tensor, loadings: Tensor, noise: Tensor) -> None:
        for name, value in (("loc", loc), ("loadings", loadings), ("noise", noise)):
            object.__setattr__(self, name, value)

    @classmethod
    def checked_factors(cls, loc: Tensor, loadings: Tensor, noise: Tensor) -> "LowRankGaussian":
        """Returns the distribution; raises a ValueError unless tensors fit and variances are positive."""
        fits = loc.ndim == 1 and loadings.ndim == 2 and loadings.shape[:1] == loc.shape == noise.shape
        if not fits or not loc.dtype == loadings.dtype == noise.dtype:
            raise ValueError("The mean, loadings and noise of a Gaussian do not fit together.")
        if not bool((noise > 0).all()):
            raise ValueError("The noise of a Gaussian is not positive.")
        return cls(loc, loadings, noise)

    @cached_property
    def covariance(self) -> Tensor:
        """The covariance (D, D)."""
        return self.loadings @ self.loadings.T + self.noise.diag()

    @cached_property
    def variance(self) -> Tensor:
        """The variances (D)."""
        return self.loadings.square().sum(dim=1) + self.noise

    def covariance_of(self, features: Tensor) -> Tensor:
        """Returns the covariances (F, D) of some features with all."""
        covariance = self.loadings[features] @ self.loadings.T
        covariance[torch.arange(len(features)), features] += self.noise[features]
        return covariance

    def without(self, noise: Tensor) -> Gaussian:
        """Returns the distribution with independent noise of variances (D) subtracted."""
        return LowRankGaussian(self.loc, self.loadings, self.noise - noise)

    @cached_property
    def weighted(self) -> Tensor:
        r"""The loadings divided by the noise, (D, K): :math:`\Psi^{-1} W`."""
        return self.loadings / self.noise[:, None]

    @cached_property
    def root(self) -> tuple[Tensor, Tensor]:
        r"""Vectors Q (D, K) and s (K) with :math:`(I + Q s Q^\top)^2 = \Psi^{-1/2} \Sigma \Psi^{-1/2}`."""
        scaled = self.loadings / self.noise.sqrt()[:, None]
        values, rotation = torch.linalg.eigh(scaled.T @ scaled)
        values = values.clamp(min=1e-30)
        return scaled @ (rotation / values.sqrt()), (1 + values).sqrt() - 1

    def log_prob(self, batch: Incomplete) -> Tensor:
        """Returns the log density (N) of the observed cells; 0 for a row without observed cells."""
        products = self.products()
        parts = [self.factors(part, products)[2] for part in batch.chunks(self.block_rows)]
        return torch.cat(parts) if parts else batch.x.new_zeros(0)

    def _about(
        self, joint: Tensor | None, x: Tensor, observed: Tensor, buckets: Iterable[Bucket] | None
    ) -> Tensor:
        joint = torch.zeros_like(x) if joint is None else joint
        residual = torch.where(observed, x - self.loc - joint, 0.0)
        right, products = residual @ self.weighted, self.products()
        factors = torch.empty_like(right)  # (*, N, K)
        for rows in torch.arange(len(observed)).split(self.block_rows):
            inner = self._inner(observed[rows], products)
            factors[..., rows, :] = torch.cholesky_solve(right[..., rows, :, None], inner).squeeze(-1)
        return torch.where(observed, x, self.loc + joint + factors @ self.loadings.T)

    def moments(self, batch: Incomplete) -> tuple[Tensor, Tensor]:
        """Returns the conditional mean and variance (N, D) of each cell."""
        mean = self.conditional_mean(batch)
        variance, products = torch.empty_like(mean), self.products()
        for rows in torch.arange(len(batch)).split(self.block_rows):
            spread = torch.cholesky_inverse(self._inner(batch.observed[rows], products))  # (R, K, K)
            variance[rows] = pack(2 * spread - torch.diag_embed(spread.diagonal(dim1=1, dim2=2))) @ products.T
        variance = (variance + 1) * self.noise
        return mean, torch.where(batch.observed, 0.0, variance)

    def factors(self, batch: Incomplete, products: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns mean (N, K) and covariance (N, K, K) of the factors given each row, and its log density."""
        residual = torch.where(batch.observed, batch.x - self.loc, 0.0)
        inner = self._inner(batch.observed, products)
        right = residual @ self.weighted
        mean = torch.cholesky_solve(right.unsqueeze(-1), inner).squeeze(-1)
        log_det = batch.observed.to(batch.x.dtype) @ self.noise.log()
        log_det = log_det + 2 * inner.diagonal(dim1=1, dim2=2).log().sum(dim=1)
        distance = without_overflow((residual.square() / self.noise).sum(dim=1) - (right * mean).sum(dim=1))
        n_observed = batch.observed.sum(dim=1).to(batch.x.dtype)
        log_prob = -0.5 * (n_observed * log(2 * pi) + log_det + distance)
        return mean, torch.cholesky_inverse(inner), log_prob

    def products(self) -> Tensor:
        r"""Returns :math:`w_d w_d^\top / \psi_d` of each feature, as lower triangles (D, K (K + 1) / 2)."""
        row, column = torch.tril_indices(self.loadings.shape[1], self.loadings.shape[1])
        return self.loadings.index_select(1, row) * self.weighted.index_select(1, column)

    def _inner(self, observed: Tensor, products: Tensor) -> Tensor:
        r"""Returns the factors (R, K, K) of :math:`I + W_o^\top \Psi_o^{-1} W_o`, the precision of z."""
        inner = unpack(observed.to(products.dtype) @ products, self.loadings.shape[1])
        inner.diagonal(dim1=1, dim2=2).add_(1.0)
        factor: Tensor = torch.linalg.cholesky(inner)
        return factor

    def unconditional(self, normals: Tensor) -> Tensor:
        """Returns draws (*, N, D) about zero, a linear map of as many normals."""
        vectors, scale = self.root
        return (normals + ((normals @ vectors) * scale) @ vectors.T) * self.noise.sqrt()

    @property
    def block_rows(self) -> int:
        """How many rows are answered at once."""
        n_features, n_factors = self.loadings.shape
        return max(1, WORKING_BYTES // (8 * max(1, n_features + 3 * n_factors**2)))


def pack(matrices: Tensor) -> Tensor:
    """Returns the lower triangles (N, K (K + 1) / 2) of symmetric matrices (N, K, K), row by row."""
    size = matrices.shape[1]
    row, column = torch.tril_indices(size, size)
    return matrices.reshape(len(matrices), size**2).index_select(1, row * size + column)


def unpack(packed: Tensor, size: int) -> Tensor:
    """Returns the symmetric matrices (N, K, K) of which `pack` took the lower triangles."""
    row, column = torch.tril_indices(size, size)
    place = torch.empty(size, size, dtype=torch.int64)
    place[row, column] = place[column, row] = torch.arange(len(row))
    return packed.index_select(1, place.flatten()).view(len(packed), size, size)


# Guesses that no measurement chose: ranks grow by a third to a half, ridges by half a power of ten.
# `LEAST_NOISE` keeps the covariance from being singular.
RANKS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
RIDGES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
FIRST_RIDGE, TOP_RIDGE = 30.0, 100.0  # initial ridges, for growing ranks and for the largest rank
HIDDEN_SHARE = 0.1  # share of the observed cells that are hidden to choose rank and ridge
FEWEST_ROWS = 6  # with fewer rows, features are treated as independent
PATIENCE = 2  # number of successive ranks without an improvement after which the search stops
PRODUCT_BYTES = 32 * 2**20  # memory of the products of loadings, which limits the rank of wide tables
HOPELESS = 0.05  # deficit in log density per hidden cell after which no other ridge is tried
HASTY_RANK = 8  # the rank if there is no time to compare ranks
LEAST_NOISE = 1e-6  # minimum variance of a standardised feature given the factors
SMALLEST_START = 0.05  # initial variance of an additional factor, relative to the noise


def fit_low_rank(
    batch: Incomplete,
    settings: AscentSettings,
    rank: int,
    ridge: float,
    *,
    weights: Tensor | None = None,
    start: LowRankGaussian | None = None,
    callback: Callable[[int, float], None] | None = None,
) -> Ascent[LowRankGaussian]:
    r"""Maximises the penalised likelihood of `fit_gaussian` among covariances of low rank plus a diagonal.

    .. math::
        \max_{\mu, W, \psi} \sum_n \log \mathcal{N}(x_{n,o_n} \mid \mu, \Sigma)
        - \tfrac{\lambda}{2} \left(\log |\Sigma| + \operatorname{tr} \Sigma^{-1}\right),
        \qquad \Sigma = W W^\top + \operatorname{diag}(\psi)

    EM is exact and monotone; an iteration costs :math:`N D K^2 + D K^3` operations instead of
    :math:`N D^3`. Valid under MAR.

    Parameters
    ----------
    batch : Incomplete
        (N, D), features on a common scale (unit variance), at least one row.
    settings : AscentSettings
        The stopping rule.
    rank : int
        The number of factors K, the columns of W.
    ridge : float
        The pseudo-rows :math:`\lambda` of uncorrelated unit-variance data.
    weights : Tensor, optional
        (N), how much each row counts.
    start : LowRankGaussian, optional
        The initial value; missing factors are added. Principal components by default.
    callback : callable, optional
        Called with the iteration and the objective per row.

    References
    ----------
    Rubin & Thayer (1982), EM algorithms for ML factor analysis; Ilin & Raiko (2010), Practical approaches to
    principal component analysis in the presence of missing values.
    """
    first = _with_factors(independent(batch) if start is None else start, batch, rank)
    algorithm = _FactorEM(batch, ridge, weights)
    return ascend(algorithm.step, first, _extrapolate, settings, batch.n_features, callback)


def choose_rank(
    batch: Incomplete, settings: AscentSettings, *, generator: torch.Generator
) -> tuple[int, float]:
    """Returns the rank and the ridge that predict a tenth of the observed cells from the others best.

    The rank is increased while this improves the prediction; then the ridge is chosen for it. The largest
    rank that rows and memory allow is also tried, with large ridges, for correlations that are not of low
    rank. If the time limit of training is reached before ranks were compared, the rank is at least 8 if rows
    allow it.
    """
    if len(batch) < FEWEST_ROWS:
        return 0, 1.0
    hasty = max(rank for rank in allowed_ranks(batch) if rank <= HASTY_RANK)
    if is_over():
        return hasty, FIRST_RIDGE
    trial = _Trial(batch, settings, generator)
    grown: list[_Outcome] = []
    for rank in allowed_ranks(batch):
        grown.append(trial.run(rank, FIRST_RIDGE, grown[-1].fit if grown else None))
        best = max(grown, key=_score)
        if best not in grown[-PATIENCE:]:
            break
        if is_over():
            return max(best.rank, hasty), FIRST_RIDGE
    found = [trial.best_ridge(best)]
    largest = allowed_ranks(batch)[-1]
    if found[0].rank < largest and not is_over():
        top = trial.run(largest, TOP_RIDGE, None)
        if top.score > found[0].score - HOPELESS:
            found.append(trial.best_ridge(top))
    best = max(found, key=_score)
    return best.rank, best.ridge


def allowed_ranks(batch: Incomplete) -> list[int]:
    """Returns the ranks that rows and memory allow."""
    n_rows, n_features = batch.x.shape
    most = min(n_rows - 1, n_features // 2, int((PRODUCT_BYTES / (4 * n_features)) ** 0.5))
    return [rank for rank in RANKS if rank <= most]


@dataclass(frozen=True)
class _Outcome:
    """A fit to the shown cells, and the log density of the hidden ones given them, per hidden cell."""

    rank: int
    ridge: float
    fit: LowRankGaussian
    score: float


def _score(outcome: _Outcome) -> float:
    return outcome.score


class _Trial:
    """A table with some of its observed cells hidden, to compare ranks and ridges."""

    def __init__(self, batch: Incomplete, settings: AscentSettings, generator: torch.Generator) -> None:
        coins = torch.rand(batch.x.shape, generator=generator, dtype=batch.x.dtype)
        self.batch = batch
        self.shown = Incomplete(batch.x, batch.observed & (coins >= HIDDEN_SHARE))
        self.n_hidden = max(1, int((batch.observed & ~self.shown.observed).sum()))
        self.settings = replace(settings, tolerance=50 * settings.tolerance)

    def run(self, rank: int, ridge: float, start: LowRankGaussian | None) -> _Outcome:
        fit = fit_low_rank(self.shown, self.settings, rank, ridge, start=start).point
        score = float((fit.log_prob(self.batch) - fit.log_prob(self.shown)).sum())
        return _Outcome(rank, ridge, fit, score / self.n_hidden)

    def best_ridge(self, best: _Outcome) -> _Outcome:
        """Returns the best outcome of the same rank: ridges go up, or else down, while that helps."""
        first = RIDGES.index(best.ridge)
        for ridges in (RIDGES[first + 1 :], RIDGES[:first][::-1]):
            for ridge in ridges:
                if is_over():
                    return best
                tried = self.run(best.rank, ridge, best.fit)
                if tried.score <= best.score:
                    break
                best = tried
            if best.ridge != RIDGES[first]:
                break
        return best


def independent(batch: Incomplete) -> LowRankGaussian:
    """Returns features of unit variance about their means, without factors."""
    return LowRankGaussian(
        Standardizer.fit(batch).loc,
        batch.x.new_zeros(batch.n_features, 0),
        batch.x.new_ones(batch.n_features),
    )


def _with_factors(gaussian: LowRankGaussian, batch: Incomplete, rank: int) -> LowRankGaussian:
    """Returns the Gaussian with more factors: the first principal components of what is left unexplained."""
    n_new = rank - gaussian.loadings.shape[1]
    if n_new <= 0:
        return gaussian
    products, scale = gaussian.products(), gaussian.noise.sqrt()
    means = [gaussian.factors(part, products)[0] for part in batch.chunks(gaussian.block_rows)]
    explained = gaussian.loc + torch.cat(means) @ gaussian.loadings.T
    left = torch.where(batch.observed, batch.x - explained, 0.0) / scale  # (N, D)
    tall = len(left) > left.shape[1]
    values, vectors = torch.linalg.eigh(left.T @ left if tall else left @ left.T)
    values, vectors = values[-n_new:].clamp(min=1e-12), vectors[:, -n_new:]
    directions = vectors if tall else left.T @ (vectors / values.sqrt())  # (D, K), orthonormal
    spread = (values / len(left) / batch.observed.double().mean() - 1).clamp(min=SMALLEST_START)
    added = scale[:, None] * directions * spread.sqrt()
    return LowRankGaussian(gaussian.loc, torch.cat([gaussian.loadings, added], dim=1), gaussian.noise)


@dataclass(frozen=True)
class _Sums:
    """What the M-step needs of the rows: the factors z with a constant after them, summed by feature.

    Shapes
    ------
    squares : :math:`(D, (K + 1) (K + 2) / 2)`, lower triangles of second moments over rows that show d
    products : :math:`(D, K + 1)`, of values and factors
    log_prob : :math:`()`, over all rows
    """

    squares: Tensor
    products: Tensor
    log_prob: Tensor


class _FactorEM:
    """EM on one table: the factors of each row, then the regression of each feature on them."""

    def __init__(self, batch: Incomplete, ridge: float, weights: Tensor | None) -> None:
        self.batch = batch
        self.ridge = ridge
        self.weights = torch.ones(len(batch), dtype=batch.x.dtype) if weights is None else weights
        seen = self.weights[:, None] * batch.observed
        self.counts = seen.sum(dim=0)
        self.squares = (seen * batch.filled().square()).sum(dim=0)

    def step(self, gaussian: LowRankGaussian) -> tuple[float, LowRankGaussian]:
        products = gaussian.products()
        blocks = torch.arange(len(self.batch)).split(gaussian.block_rows)
        total = add_in_tree(map_in_threads(lambda rows: self._sums(gaussian, products, rows), blocks), _added)
        assert total is not None  # there is at least one row
        inner = unpack(products.sum(dim=0, keepdim=True), gaussian.loadings.shape[1])[0]
        inner.diagonal().add_(1.0)
        spread = torch.linalg.inv(inner)
        trace = (1 / gaussian.noise).sum() - ((gaussian.weighted @ spread) * gaussian.weighted).sum()
        penalty = 0.5 * self.ridge * (gaussian.noise.log().sum() + torch.logdet(inner) + trace)
        value = float((total.log_prob - penalty) / self.weights.sum())
        return value, self._maximise(gaussian, spread, total)

    def _sums(self, gaussian: LowRankGaussian, products: Tensor, rows: Tensor) -> _Sums:
        """Returns the E-step of some rows."""
        batch, weights = self.batch[rows], self.weights[rows]
        mean, spread, log_prob = gaussian.factors(batch, products)
        factors = torch.nn.functional.pad(mean, (0, 1), value=1.0)
        second = torch.nn.functional.pad(spread, (0, 1, 0, 1)) + factors[:, :, None] * factors[:, None, :]
        seen = weights[:, None] * batch.observed
        return _Sums(
            squares=seen.T @ pack(second),
            products=(seen * batch.filled()).T @ factors,
            log_prob=(weights * log_prob).sum(),
        )

    def _maximise(self, gaussian: LowRankGaussian, spread: Tensor, total: _Sums) -> LowRankGaussian:
        """Returns the M-step; pseudo-rows, which affect loadings and noise only, are added to the rows."""
        size = spread.shape[0] + 1
        beta = gaussian.weighted @ spread  # (D, K): the factors that a pseudo-row gives
        prior = torch.nn.functional.pad(self.ridge * (spread + beta.T @ beta), (0, 1, 0, 1))
        unseen = (self.counts == 0).to(beta.dtype)
        products = total.products + self.ridge * torch.nn.functional.pad(beta, (0, 1))

        def solve(features: Tensor) -> Tensor:
            matrix = unpack(total.squares[features], size).add_(prior)
            matrix[:, -1, -1] += unseen[features]  # whose mean is of no consequence
            factor = torch.linalg.cholesky(matrix)
            return torch.cholesky_solve(products[features, :, None], factor).squeeze(-1)

        n_at_once = max(1, PRODUCT_BYTES // (64 * size**2))
        solved = torch.cat(list(map_in_threads(solve, torch.arange(len(beta)).split(n_at_once))))
        left = self.squares + self.ridge - (solved * products).sum(dim=1)
        noise = (left / (self.counts + self.ridge).clamp(min=1e-12)).clamp(min=LEAST_NOISE)
        return LowRankGaussian(solved[:, -1], solved[:, :-1], noise)


def _added(first: _Sums, second: _Sums) -> _Sums:
    return _Sums(
        first.squares.add_(second.squares),
        first.products.add_(second.products),
        first.log_prob + second.log_prob,
    )


def _extrapolate(first: LowRankGaussian, second: LowRankGaussian, third: LowRankGaussian) -> LowRankGaussian:
    """Returns a point further along the path of two EM steps; the third point if there is none."""
    n_features, n_factors = first.loadings.shape

    def rebuild(point: Tensor) -> LowRankGaussian | None:
        loc, loadings, log_noise = point.split([n_features, n_features * n_factors, n_features])
        if not torch.isfinite(point).all() or log_noise.abs().max() > 50:
            return None
        noise = log_noise.exp().clamp(min=LEAST_NOISE)
        return LowRankGaussian(loc, loadings.view(n_features, n_factors), noise)

    points = [torch.cat([g.loc, g.loadings.flatten(), g.noise.log()]) for g in (first, second, third)]
    return squared_step(points[0], points[1], points[2], rebuild) or third
