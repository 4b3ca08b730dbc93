r"""Probit self-masking: the best prediction by truncated normals or by importance sampling."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtr, owens_t

from papers.problems.gaussian_score import GaussianScore
from papers.problems.links import Linear, ResponseLink
from papers.problems.problem import Bools, Floats

_NUMBERS_AT_ONCE = 2**21
_NEWTON_STEPS = 8
_RAREST = 1e-9  # a smaller probability of both features missing is lost to cancellation


class BayesEstimate(NamedTuple):
    """A prediction per row, its standard error, and its relative effective sample size.

    For rows with a closed form the error is 0 and the relative effective sample size is 1.
    """

    mean: Floats
    standard_error: Floats
    effective: Floats


class ProbitSelfMasked(NamedTuple):
    r"""The distribution of the score of a row under probit self-masking.

    .. math:: P(m_k = 1 \mid x) = \Phi(\lambda_k x_k - c_k)

    With :math:`x_m \mid x_o \sim \mathcal{N}(\mu_c, C)`, :math:`\Lambda = \mathrm{diag}(\lambda_m)`,
    :math:`a = \Lambda \mu_c - c_m` and :math:`V = \Lambda C \Lambda + I`,

    .. math:: \mathrm{E}[x_m \mid x_o, m] = \mu_c + C \Lambda V^{-1} (\mathrm{E}[z \mid z > 0] - a),
              \qquad z \sim \mathcal{N}(a, V),

    a truncated normal, closed for up to two missing features. Beyond, draws of :math:`\mathcal{N}(\hat x,
    C)`, where :math:`\hat x` is the mode of :math:`\mathcal{N}(x_m; \mu_c, C) \prod_{k \in m}
    \Phi(\lambda_k x_k - c_k)`, are weighted by that product over their own density; the weights are
    bounded, and the factors of observed features cancel. The draws are antithetic, and the same for every
    row and call.

    Parameters
    ----------
    score : GaussianScore
        The distribution of the features and of the score.
    slope, threshold : array (D)
        The :math:`\lambda` and :math:`c` of each feature.
    n_draws : int
        The number of importance draws.
    """

    score: GaussianScore
    slope: Floats
    threshold: Floats
    n_draws: int = 1000

    def estimate(self, X: Floats, link: ResponseLink, *, exact: bool = True) -> BayesEstimate:
        """Returns the expected response of incomplete rows; without `exact`, all by importance sampling."""
        mean, error, share = np.empty(len(X)), np.zeros(len(X)), np.ones(len(X))
        for missing, rows in _patterns(np.isnan(X)):
            n_missing = int(missing.sum())
            closed = exact and isinstance(link, Linear) and n_missing <= 2
            if n_missing == 0:
                mean[rows] = link(self.score(X[rows]))
                continue
            centre, covariance = self._conditional(X[rows], missing)
            base = self.score.intercept + X[rows][:, ~missing] @ self.score.coefficients[~missing]
            if closed:
                mean[rows], sure = self._closed(centre, covariance, base, missing)
                rows, centre, base = rows[~sure], centre[~sure], base[~sure]
            weighted = self._weighted(centre, covariance, base, missing, link)
            mean[rows], error[rows], share[rows] = weighted
        return BayesEstimate(mean, error, share)

    def _conditional(self, X: Floats, missing: Bools) -> tuple[Floats, Floats]:
        """Returns mean (N, M) and covariance (M, M) of the missing features given the observed ones."""
        loc, covariance = self.score.loc, self.score.covariance
        cross = covariance[np.ix_(~missing, missing)]
        gain = np.linalg.solve(covariance[np.ix_(~missing, ~missing)], cross)  # (O, M)
        centre = loc[missing] + (X[:, ~missing] - loc[~missing]) @ gain
        return centre, covariance[np.ix_(missing, missing)] - cross.T @ gain

    def _closed(
        self, centre: Floats, covariance: Floats, base: Floats, missing: Bools
    ) -> tuple[Floats, Bools]:
        """Returns the expected score by the mean of a truncated normal, and where that is precise."""
        slope = self.slope[missing]
        shift = slope * centre - self.threshold[missing]
        spread = slope[:, None] * covariance * slope + np.eye(len(slope))
        truncated, sure = (_above_zero if len(slope) == 1 else _both_above_zero)(shift, spread)
        moved = np.linalg.solve(spread, (truncated - shift).T).T * slope  # (N, M)
        return base + (centre + moved @ covariance) @ self.score.coefficients[missing], sure

    def _weighted(
        self, centre: Floats, covariance: Floats, base: Floats, missing: Bools, link: ResponseLink
    ) -> tuple[Floats, Floats, Floats]:
        """Returns self-normalised importance estimates (N) with standard error and effective share."""
        slope, threshold = self.slope[missing], self.threshold[missing]
        half = np.random.RandomState(0).standard_normal(((self.n_draws + 1) // 2, len(slope)))
        noise = np.concatenate([half, -half])  # (S, M)
        root = np.linalg.cholesky(covariance)
        size = max(1, _NUMBERS_AT_ONCE // noise.size)
        parts = [np.empty((3, 0))]
        for start in range(0, len(centre), size):
            place = centre[start : start + size]
            mode = _mode(slope * place - threshold, slope[:, None] * root)  # (N, M)
            drawn = place[:, None, :] + (mode[:, None, :] + noise) @ root.T  # (N, S, M)
            log_weight = log_ndtr(slope * drawn - threshold).sum(axis=-1) - mode @ noise.T  # (N, S)
            weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
            weight /= weight.sum(axis=1, keepdims=True)
            value = link(base[start : start + size, None] + drawn @ self.score.coefficients[missing])
            mean = (weight * value).sum(axis=1)
            error = np.sqrt((weight**2 * (value - mean[:, None]) ** 2).sum(axis=1))
            parts.append(np.stack([mean, error, 1 / (weight**2).sum(axis=1) / len(noise)]))
        mean, error, share = np.concatenate(parts, axis=1)
        return mean, error, share


def _mode(shift: Floats, root: Floats) -> Floats:
    r"""Returns where :math:`-\tfrac12 |u|^2 + \sum_k \log \Phi(a + R u)_k` is largest, by Newton's method.

    Shapes: shift :math:`(N, M)`, root :math:`(M, M)`, output :math:`(N, M)`.
    """
    mode = np.zeros_like(shift)
    for _ in range(_NEWTON_STEPS):
        z = shift + mode @ root.T
        ratio = _inverse_mills(z)
        curvature = np.eye(len(root)) + np.einsum("ki,nk,kj->nij", root, ratio * (ratio + z), root)
        mode += np.linalg.solve(curvature, (ratio @ root - mode)[:, :, None])[:, :, 0]
    return mode


def _above_zero(shift: Floats, spread: Floats) -> tuple[Floats, Bools]:
    """Returns E[z | z > 0] of z ~ N(shift, spread), one-dimensional (N, 1), and that it is always precise."""
    deviation = np.sqrt(spread[0, 0])
    return shift + deviation * _inverse_mills(shift / deviation), np.ones(len(shift), dtype=bool)


def _both_above_zero(shift: Floats, spread: Floats) -> tuple[Floats, Bools]:
    r"""Returns E[z | z > 0] of z ~ N(shift, spread), two-dimensional (N, 2), and where it is precise.

    With :math:`\alpha_i = a_i / \sqrt{V_{ii}}`, correlation :math:`\rho` and i, j = 1, 2 (Rosenbaum, 1961),

    .. math:: \frac{\mathrm{E}[z_i \mid z > 0] - a_i}{\sqrt{V_{ii}}} = \frac{\varphi(\alpha_i)
              \Phi(\alpha_{j|i}) + \rho \varphi(\alpha_j)
              \Phi(\alpha_{i|j})}{\Phi_2(\alpha_i, \alpha_j; \rho)},
              \quad \alpha_{j|i} = \frac{\alpha_j - \rho \alpha_i}{\sqrt{1 - \rho^2}}
    """
    deviation = np.sqrt(np.diag(spread))
    rho = spread[0, 1] / deviation.prod()
    alpha = shift / deviation  # (N, 2)
    other = alpha[:, ::-1]
    reach = (other - rho * alpha) / np.sqrt(1 - rho**2)
    edge = np.exp(-0.5 * alpha**2) / np.sqrt(2 * np.pi) * ndtr(reach)
    both = _bivariate_cdf(alpha, rho)
    sure = both > _RAREST
    moved = (edge + rho * edge[:, ::-1]) / np.where(sure, both, 1.0)[:, None]
    return shift + deviation * moved, sure


def _bivariate_cdf(alpha: Floats, rho: float) -> Floats:
    """Returns P(z_1 < alpha_1, z_2 < alpha_2) of standard normals with correlation rho, by Owen's T."""
    first, second = (np.where(side == 0, 1e-14, side) for side in alpha.T)
    root = np.sqrt(1 - rho**2)
    total = 0.5 * (ndtr(first) + ndtr(second) - (first * second < 0))
    total -= owens_t(first, (second / first - rho) / root) + owens_t(second, (first / second - rho) / root)
    return np.asarray(total, dtype=np.float64)


def _inverse_mills(z: Floats) -> Floats:
    ratio: Floats = np.exp(-0.5 * z**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(z))
    return ratio


def _patterns(missing: Bools) -> Iterator[tuple[Bools, np.ndarray[tuple[int], np.dtype[np.int64]]]]:
    """Yields each distinct pattern with the rows that have it."""
    if not len(missing):
        return
    patterns, of_row = np.unique(missing, axis=0, return_inverse=True)
    order = np.argsort(of_row.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(of_row.ravel(), minlength=len(patterns)))[:-1]
    yield from zip(patterns, np.split(order, ends), strict=True)
