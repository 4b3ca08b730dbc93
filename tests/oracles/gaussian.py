"""The textbook Gaussian, one row at a time, with explicit inverses."""

import numpy as np
from scipy.stats import multivariate_normal


def conditional(loc, covariance, row, observed):
    """Mean and covariance of the missing part of one row given its observed part."""
    o, m = observed, ~observed
    gain = covariance[np.ix_(m, o)] @ np.linalg.inv(covariance[np.ix_(o, o)])
    mean = loc[m] + gain @ (row[o] - loc[o])
    return mean, covariance[np.ix_(m, m)] - gain @ covariance[np.ix_(o, m)]


def log_prob(loc, covariance, row, observed):
    """Log density of the observed part of one row."""
    if not observed.any():
        return 0.0
    return multivariate_normal(loc[observed], covariance[np.ix_(observed, observed)]).logpdf(row[observed])


def em_step(loc, covariance, x, observed, ridge):
    """One textbook EM step; returns the new parameters and the objective per row at the old ones."""
    n, d = x.shape
    completed, spread, total = np.empty((n, d)), np.zeros((d, d)), 0.0
    for i in range(n):
        o, m = observed[i], ~observed[i]
        completed[i, o] = x[i, o]
        completed[i, m], left = conditional(loc, covariance, x[i], o)
        spread[np.ix_(m, m)] += left
        total += log_prob(loc, covariance, x[i], o)
    penalty = 0.5 * ridge * (np.linalg.slogdet(covariance)[1] + np.trace(np.linalg.inv(covariance)))
    new_loc = completed.mean(axis=0)
    centred = completed - new_loc
    new_covariance = (centred.T @ centred + spread + ridge * np.eye(d)) / (n + ridge)
    return new_loc, new_covariance, (total - penalty) / n
