"""Slow, obvious twins: the self-masking predictor in its three algebraic forms, and integrals over grids."""

import itertools

import numpy as np
from oracles.gaussian import conditional
from scipy.special import ndtr
from scipy.stats import norm


def patterns(n_features):
    """Every mask, True where observed."""
    return np.array(list(itertools.product([False, True], repeat=n_features)))


def published_form(mean, spread, centre, variance):
    """(I + D C^-1)^-1 (c + D C^-1 m): Proposition 2.2 as printed."""
    ratio = np.diag(variance) @ np.linalg.inv(spread)
    return np.linalg.solve(np.eye(len(mean)) + ratio, centre + ratio @ mean)


def precision_form(mean, spread, centre, variance):
    """(D^-1 + C^-1)^-1 (D^-1 c + C^-1 m)."""
    inverse = np.linalg.inv(spread)
    return np.linalg.solve(np.diag(1 / variance) + inverse, centre / variance + inverse @ mean)


def gain_form(mean, spread, centre, variance):
    """m + C (C + D)^-1 (c - m)."""
    return mean + spread @ np.linalg.solve(spread + np.diag(variance), centre - mean)


def gain_covariance(spread, variance):
    """C - C (C + D)^-1 C."""
    return spread - spread @ np.linalg.solve(spread + np.diag(variance), spread)


def score_moments(law, row, observed, form=None, centre=None, variance=None):
    """Mean and variance of the score of one row, by sub-matrices; without a form, missing at random."""
    mean, spread = conditional(law.loc, law.covariance, row, observed)
    missing = ~observed
    if form is not None and missing.any():
        mean = form(mean, spread, centre[missing], variance[missing])
        spread = gain_covariance(spread, variance[missing])
    beta = law.coefficients
    t = law.intercept + beta[observed] @ row[observed] + beta[missing] @ mean
    return t, beta[missing] @ spread @ beta[missing]


def probit_by_grid(law, row, observed, slope, threshold, link):
    """E[g(s)] of one row under probit self-masking, by a sum over a grid in up to three missing features."""
    missing = ~observed
    if not missing.any():
        return link(law.intercept + law.coefficients @ row)
    mean, spread = conditional(law.loc, law.covariance, row, observed)
    axis = np.linspace(-8, 8, (40_001, 1001, 121)[missing.sum() - 1])
    grid = np.stack(np.meshgrid(*[axis] * missing.sum(), indexing="ij"), axis=-1).reshape(-1, missing.sum())
    x = mean + grid @ np.linalg.cholesky(spread).T
    weight = norm.pdf(grid).prod(axis=1) * ndtr(slope[missing] * x - threshold[missing]).prod(axis=1)
    score = law.intercept + law.coefficients[observed] @ row[observed] + x @ law.coefficients[missing]
    return weight @ link(score) / weight.sum()


def orthogonality(sample, predicted):
    """The smallest p-value, times their number, that residuals do not depend on what was seen.

    The residual of E[y | seen, mask] has mean zero within every pattern, also times any seen feature.
    """
    residual = sample.y - predicted
    values = []
    for pattern in np.unique(sample.observed, axis=0):
        rows = (sample.observed == pattern).all(axis=1)
        if rows.sum() < 200:
            continue
        seen = sample.X[rows][:, pattern]
        for function in (np.ones(rows.sum()), *seen.T):
            product = residual[rows] * function
            z = product.mean() / (product.std() / np.sqrt(rows.sum()))
            values.append(2 * norm.sf(abs(z)))
    return min(values) * len(values)
